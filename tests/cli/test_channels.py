"""Weights of gray images on color ones, and the reverse: equal logits in every direction."""

import pytest
import torch
from commands import command
from PIL import Image

from vit_helpers.cli.channels import with_channels
from vit_helpers.cli.fine_tuning import adapt, load_data_for, load_start
from vit_helpers.data import load
from vit_helpers.pretrained import Preprocess, load_pretrained, save_weights
from vit_helpers.pretrained.files import Pretrained
from vit_helpers.training.presets import preset
from vit_helpers.vit import ViT, ViTConfig

pytestmark = pytest.mark.usefixtures("no_figures")

UNEQUAL = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # ImageNet's
NUMBERS = tuple("0123456789")


def trained(in_chans, mean, std, **fields):
    """A model whose every parameter is drawn, with its preprocessing"""
    torch.manual_seed(0)
    config = ViTConfig.from_name(
        "mini/4", image_size=8, in_chans=in_chans, num_classes=10, **fields
    )
    model = ViT(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return Pretrained(model.eval(), Preprocess(8, (8, 8), "bilinear", mean, std, 255), NUMBERS)


def logits(pretrained, images):
    with torch.no_grad():
        return pretrained.model(pretrained.preprocess.normalize(images))


GRAY = trained(1, (0.3,), (0.2,))
COLOR = trained(3, *UNEQUAL)
GRAYS = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
AS_COLOR = GRAYS.expand(-1, 3, -1, -1)


def test_gray_pictures_give_equal_logits_in_gray_and_in_color():
    color = with_channels(GRAY, 3)
    assert color.model.config.in_chans == color.preprocess.in_chans == 3
    torch.testing.assert_close(logits(color, AS_COLOR), logits(GRAY, GRAYS), atol=1e-5, rtol=1e-5)
    gray = with_channels(COLOR, 1)
    assert gray.model.config.in_chans == gray.preprocess.in_chans == 1
    torch.testing.assert_close(logits(gray, GRAYS), logits(COLOR, AS_COLOR), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(logits(gray, GRAYS), logits(gray, 1 - GRAYS), atol=0.1)


def test_of_equal_channels_the_kernels_are_added_and_the_bias_stays():
    color = trained(3, (0.5,) * 3, (0.5,) * 3)
    gray = with_channels(color, 1)
    before, after = color.model.state_dict(), gray.model.state_dict()
    name = "patch_embed.proj.weight"
    torch.testing.assert_close(after[name], before[name].view(64, 3, 16).sum(1))
    for key in before.keys() - {name}:
        torch.testing.assert_close(after[key], before[key])


def test_a_color_picture_gives_what_its_gray_values_gave():
    noise = Image.effect_noise((8, 8), 90)
    picture = Image.merge("RGB", [noise.rotate(90 * turn) for turn in range(3)])
    gray, color = (
        model.model(model.preprocess(picture)[None]) for model in (GRAY, with_channels(GRAY, 3))
    )
    # gray values of a picture are rounded
    torch.testing.assert_close(color, gray, atol=0.05, rtol=0.05)


def test_there_and_back_is_the_same_model():
    again = with_channels(with_channels(GRAY, 3), 1)
    assert again.preprocess.white == 255
    torch.testing.assert_close(again.preprocess.mean, GRAY.preprocess.mean)
    for name, weight in GRAY.model.state_dict().items():
        torch.testing.assert_close(again.model.state_dict()[name], weight, msg=name)
    assert with_channels(GRAY, 1) is GRAY


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 3), (4, 1)])
def test_other_numbers_of_channels_are_named(old, new):
    with pytest.raises(ValueError, match=f"{old} channels .* {new}"):
        with_channels(trained(old, (0.5,) * old, (0.5,) * old), new)


# Commands


@pytest.fixture
def numbers(tmp_path):
    """The last 400 handwritten digits as gray PNGs, in a folder for each"""
    data = load("digits").train
    for row in range(len(data) - 400, len(data)):
        path = tmp_path / "numbers" / str(int(data.labels[row])) / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((data.images[row, 0] * 255).round().byte().numpy()).save(path)
    return tmp_path / "numbers"


@pytest.mark.parametrize("start", [GRAY, COLOR], ids=["gray", "color"])
def test_a_run_starts_with_the_outputs_of_its_weights(tmp_path, numbers, start):
    save_weights(tmp_path / "w.safetensors", *start)
    weights = str(tmp_path / "w.safetensors")
    name = f"folder:{numbers}" if start is GRAY else "digits"
    settings = preset(name, weights=weights)
    pretrained = load_start(settings)
    with pytest.warns(UserWarning, match="gray"):
        data = load_data_for(pretrained, settings)
    model = adapt(pretrained, data, settings).eval()
    assert model.config.in_chans == data.in_chans == 4 - start.preprocess.in_chans
    images, _ = next(iter(data.batches("train", 32)))
    raw = data.train.images[:32]
    raw = raw[:, :1] if start is GRAY else raw.expand(-1, 3, -1, -1)
    with torch.no_grad():
        ours = model.forward_features(images)
        theirs = start.model.forward_features(start.preprocess.normalize(raw))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_a_gray_run_is_fine_tuned_on_a_folder_and_tested_on_gray_images_again(tmp_path, numbers):
    done = command("train", "--epochs", 6, "--out", "gray", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    words = [
        "--data",
        f"folder:{numbers}",
        "--split",
        "exact",
        "--weights",
        "gray",
        "--tune",
        "head",
    ]
    done = command("train", *words, "--epochs", 2, "--out", "own", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "adapted" in line]
    assert len(said) == 1
    assert said[0].startswith("note: gray was trained on gray images, these are color: ")
    assert load_pretrained(tmp_path / "own").preprocess.in_chans == 3
    again = command("train", "--resume", "own", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    test = [line for line in done.stdout.splitlines() if line.startswith("test accuracy")]
    assert test and test[0] in again.stdout
    accuracy = float(test[0].split()[2])
    assert accuracy > 0.5  # of a tenth by guessing
    done = command("evaluate", "own", "digits", "--out", "c.png", cwd=tmp_path)
    assert done.returncode == 0 and "color images" in done.stdout, done.stderr
