"""Shards in place of data in memory: trained on, written, made of a folder of images."""

import json
import weakref

import pytest
import torch
from image_files import save_noise
from PIL import Image
from small_classifier import figures
from torch import nn

from vit_helpers.cli import main
from vit_helpers.data import load, shards
from vit_helpers.data import stream as streams
from vit_helpers.data.shards import BrokenShardError, write_shards, write_shards_of_folder
from vit_helpers.data.splits import SPLITS
from vit_helpers.data.stream import Stream
from vit_helpers.training import Report, fit, set_seed
from vit_helpers.training.checkpoints import Checkpoint
from vit_helpers.training.presets import RunSettings, make_batches, make_network, preset
from vit_helpers.training.recipe import Recipe

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture(scope="module")
def digits():
    return load("digits").filter_classes("3", "7")  # real ones, but few


@pytest.fixture(scope="module")
def written(digits, tmp_path_factory):
    return write_shards(digits, tmp_path_factory.mktemp("stream") / "digits", 40)


def labels_of(batches):
    return torch.cat([labels for _, labels in batches]).tolist()


# The number of a pass


def test_the_number_of_a_pass_decides_its_order(written):
    one, other = Stream(written, 12), Stream(written, 12)
    passes = [labels_of(one) for _ in range(3)]
    for number in (3, 1, 2):
        other.set_epoch(number)
        assert labels_of(other) == passes[number - 1]
    assert labels_of(other) == passes[2]  # the one after pass 2


def test_a_pass_resumed_in_the_middle_is_left_as_it_is(written):
    one, other = Stream(written, 12), Stream(written, 12)
    passing = iter(one)
    next(passing)
    state = one.state_dict()
    rest = labels_of(passing)
    other.load_state_dict(state)
    other.set_epoch(5)
    assert labels_of(other) == rest
    other.set_epoch(5)
    # the fourth is over
    assert other.state_dict()["epoch"] == 4 and other.state_dict()["batch"] == len(other)
    list(other)
    assert other.state_dict()["epoch"] == 5


def train_on(folder, *callbacks):
    set_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 2))
    train = Stream(folder, 12, augment=lambda images: images + 0.1 * torch.randn_like(images))
    validation = Stream(folder, 12, "validation", buffer_size=0)
    recipe = Recipe(epochs=4, lr=1e-2)
    return model, fit(model, train, validation, recipe, callbacks=callbacks)


def test_a_resumed_training_sees_the_orders_of_one_never_stopped(written, tmp_path):
    whole, history = train_on(written)

    def stop_after_two(epoch):
        if epoch.number == 2:
            raise KeyboardInterrupt

    path = tmp_path / "cut.pt"
    with pytest.raises(KeyboardInterrupt):
        train_on(written, Checkpoint(path), Report(stop_after_two))
    resumed, again = train_on(written, Checkpoint(path, resume=True))
    assert figures(again) == figures(history)
    assert all(
        torch.equal(p, q) for p, q in zip(whole.parameters(), resumed.parameters(), strict=True)
    )


# In the place of `Data`


def test_shards_are_what_was_written(written, digits):
    data = load(f"shards:{written}")
    for name in ("name", "class_names", "mean", "std", "image_size", "in_chans"):
        assert getattr(data, name) == getattr(digits, name)
    assert (
        [data.count(split) for split in SPLITS]
        == [digits.count(split) for split in SPLITS]
        == [254, 44, 64]
    )
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(data.normalize(images), digits.normalize(images))
    assert str(make_network(data, RunSettings())) == str(make_network(digits, RunSettings()))


def test_validation_comes_in_order_and_training_in_that_of_the_seed(written, digits):
    data = load(f"shards:{written}")
    (images, labels), *rest = data.batches("validation", 512)
    (wanted, right), *_ = digits.batches("validation", 512)
    assert not rest and torch.equal(labels, right) and torch.allclose(images, wanted, atol=0.02)
    orders = []
    for seed in (1, 1, 2, -1):
        set_seed(seed)
        orders.append(labels_of(data.batches("train", 64, shuffle=True)))
    assert orders[0] == orders[1] and len({tuple(order) for order in orders}) == 3


def test_processes_have_each_their_slice_and_draw_each_on_its_own(written, monkeypatch):
    data, seen = load(f"shards:{written}"), []
    for rank in range(2):
        for name, value in (("rank", rank), ("world_size", 2)):
            monkeypatch.setattr(streams, name, lambda value=value: value)
            monkeypatch.setattr(f"vit_helpers.distributed.{name}", lambda value=value: value)
        set_seed(0)
        train = data.batches("train", 12, shuffle=True)
        seen.append([(len(labels), torch.rand(()).item()) for _ in range(2) for _, labels in train])
        seen[-1].append(torch.rand(()).item())
    (*one, end), (*two, same_end) = seen
    assert sum(n for n, _ in one + two) == 2 * 254
    assert len({draw for _, draw in one + two}) == 2 * 2 * len(train)  # in each pass others
    assert end == same_end  # what a checkpoint keeps is true of both


def test_settings_that_would_change_a_stream_are_refused(written):
    data = load(f"shards:{written}")
    images, labels = next(iter(make_batches(data, RunSettings(batch_size=10, mix="mixup"))))
    assert images.shape == (9, 1, 8, 8) and labels.shape == (9, 2)  # 254 images in 26 batches
    for settings in (RunSettings(images=10), RunSettings(repeat=2)):
        with pytest.raises(
            ValueError,
            match=r"digits .*images and repeat",
        ):
            make_batches(data, settings)


def test_the_preset_is_that_of_the_data_set_which_was_written(written, pets, tmp_path):
    assert preset(f"shards:{written}").replace(data="digits") == preset("digits")
    write_shards_of_folder(pets, tmp_path / "shards", 8, split="exact")
    assert preset(f"shards:{tmp_path / 'shards'}").replace(data="folder") == preset("folder")


def test_an_unknown_split_is_named(written):
    data = load(f"shards:{written}")
    for call in (data.count, lambda split: data.batches(split, 8)):
        with pytest.raises(ValueError, match=r"'dev'.*: train, validation, test"):
            call("dev")


# Of a folder of images


@pytest.fixture
def pets(tmp_path):
    return save_noise(tmp_path / "pets")


def test_a_folder_as_shards_is_the_folder_in_memory(pets, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    in_memory = load(f"folder:{pets}", image_size=8, split="exact")
    write_shards(in_memory, one, 5)
    write_shards_of_folder(pets, two, 8, 5, "exact")
    assert sorted(file.name for file in two.iterdir()) == sorted(
        file.name for file in one.iterdir()
    )
    assert all((two / file.name).read_bytes() == file.read_bytes() for file in one.glob("*.tar"))
    data = load(f"shards:{two}")
    assert data.mean == pytest.approx(in_memory.mean, abs=1e-6) and data.std == pytest.approx(
        in_memory.std, abs=1e-6
    )
    index, other = (json.loads((folder / "index.json").read_text()) for folder in (one, two))
    assert all(index[key] == other[key] for key in index if key not in ("mean", "std", "sha256"))


def test_a_few_pictures_of_a_folder_are_in_memory_at_a_time(pets, tmp_path, monkeypatch):
    alive, most, right = [], [], shards.read_image

    def counted(*words, **options):
        sha256, image = right(*words, **options)
        alive.append(weakref.ref(image))
        most.append(sum(one() is not None for one in alive))
        return sha256, image

    monkeypatch.setattr(shards, "read_image", counted)
    write_shards_of_folder(pets, tmp_path / "shards", 8, split="exact")
    assert len(most) == 20 and max(most) <= 8  # one for each thread


def test_a_folder_that_cannot_be_written_leaves_nothing(pets, tmp_path):
    (pets / "cat" / "3.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"3\.png is damaged"):
        write_shards_of_folder(pets, tmp_path / "shards", 8, split="exact")
    for i, path in enumerate(pets.rglob("*.png")):
        Image.new("RGB", (9, 9 + i), (1, 200, 3)).save(path)
    with pytest.raises(ValueError, match="constant"):
        write_shards_of_folder(pets, tmp_path / "shards", 8, split="exact")
    assert [path.name for path in tmp_path.iterdir()] == ["pets"]


# The command


@pytest.mark.parametrize("spoil", ["no folder", "no index", "half a shard"])
def test_train_names_what_is_wrong_with_shards(spoil, digits, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if spoil != "no folder":
        write_shards(digits, tmp_path / "mine")
    if spoil == "no index":
        (tmp_path / "mine" / "index.json").unlink()
    if spoil == "half a shard":
        (tmp_path / "mine" / "train-00000.tar").write_bytes(b"half")
    assert main(["train", "--data", "shards:mine", "--epochs", "1"]) == 1
    said = {"half a shard": "train-00000.tar in mine is broken: it has 4 bytes"}
    assert "error: " + said.get(spoil, "no index.json in mine") in capsys.readouterr().err


def test_damage_is_told_by_the_process_that_met_it(digits, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "vit_helpers.cli.train.train", lambda args: (_ for _ in ()).throw(BrokenShardError("mine"))
    )
    for module in ("distributed", "cli.train"):
        monkeypatch.setattr(f"vit_helpers.{module}.rank", lambda: 1)
        monkeypatch.setattr(f"vit_helpers.{module}.world_size", lambda: 2)
    assert main(["train"]) == 1
    assert "error in process 1: mine" in capsys.readouterr().err
