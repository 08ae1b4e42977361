"""Settings by name: what they stand for, and that every preset fits its data set."""

import copy
import pickle
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from vit_helpers.ablation import Table
from vit_helpers.data import Data, Split, load
from vit_helpers.parity import largest_difference, perturb
from vit_helpers.training import Recipe
from vit_helpers.training.cnn import CNN
from vit_helpers.training.presets import (
    AUGMENT,
    MIX,
    PRESETS,
    NormLastBlock,
    RunSettings,
    load_data,
    make_batches,
    make_network,
    preset,
    with_tta,
)

SHAPES = {  # (C, side, K) of the images that each preset must fit
    "digits": (1, 8, 10),
    "scattered_digits": (1, 24, 10),
    "fashion_mnist": (1, 28, 10),
    "cifar10": (3, 32, 10),
    "pizza_steak_sushi": (3, 64, 3),
    "folder": (3, 64, 2),
}


def made(C, side, K, n=12):
    torch.manual_seed(0)
    part = Split(torch.rand(n, C, side, side), torch.arange(n) % K)
    return Data.from_splits("made", part, part, part, [str(k) for k in range(K)])


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_its_images(name):
    data, settings = made(*SHAPES[name]), preset(name)
    images, _ = next(iter(make_batches(data, settings)))
    logits = make_network(data, settings)(images)
    assert logits.shape == (12, SHAPES[name][2]) and settings.data == name


def test_presets_are_found_by_name_and_belong_to_the_caller():
    assert set(PRESETS) == set(SHAPES)
    assert preset("folder:/somewhere") == preset("folder").replace(data="folder:/somewhere")
    assert preset("folder").augment == PRESETS["folder"]["augment"]
    assert preset("nothing") == RunSettings(data="nothing")
    preset("cifar10").shape["depth"] = 99
    assert PRESETS["cifar10"]["depth"] == preset("cifar10").shape["depth"] != 99
    assert preset("cifar10", epochs=3, depth=1) == preset("cifar10").replace(epochs=3, depth=1)


def test_shape_recipe_and_batches_follow_the_settings():
    data = load("digits")
    settings = RunSettings.from_dict(
        {"depth": 1, "lr": 0.02, "batch_size": 10, "images": 15, "repeat": 2, "augment": "none"}
    )
    assert len(make_network(data, settings).blocks) == 1 and settings.recipe == Recipe(lr=0.02)
    batches = list(make_batches(data, settings))
    assert [len(labels) for _, labels in batches] == [10, 10, 10]
    labels = torch.cat([labels for _, labels in batches])
    assert torch.equal(labels.sort().values, data.train.labels[:15].repeat(2).sort().values)
    assert isinstance(make_network(data, RunSettings(network="cnn", width=8)), CNN)


@pytest.mark.parametrize("augment", AUGMENT)
@pytest.mark.parametrize("mix", MIX)
def test_every_augmentation_and_mix_keeps_shape_and_counts(augment, mix):
    data = load("digits")
    images, labels = next(
        iter(make_batches(data, RunSettings(augment=augment, mix=mix, images=64)))
    )
    assert images.shape == (64, 1, 8, 8) and images.isfinite().all()
    assert labels.shape == ((64,) if mix == "none" else (64, 10))


def test_a_mirrored_test_answers_the_mean_of_both_looks():
    class Sum(nn.Module):
        """Logits: sums of the left and of the right half"""

        def forward(self, images):
            return torch.stack(
                [images[..., :2].sum((1, 2, 3)), images[..., 2:].sum((1, 2, 3))], dim=1
            )

    images = torch.rand(5, 1, 4, 4)
    model = with_tta(Sum(), RunSettings(tta=True))
    p = Sum()(images).softmax(dim=1)
    assert torch.allclose(model(images).softmax(dim=1), (p + p.flip(1)) / 2)
    plain = Sum()
    assert with_tta(plain, RunSettings()) is plain


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"learning_rate": 1}, "learning_rate.*: .*lr"),
        ({"depht": 4}, r"depht .*'depth'\?"),
        *(
            ({name: 1}, f"setting {name}, known: ")  # more than a misspelling
            for name in ("class_weights", "drop_path", "layer_decay", "accumulation_steps")
        ),
        ({"norm": "middle"}, "norm 'middle'.*: first, last"),
        ({"augment": "blur"}, "augment 'blur'.*: affine, crop, flip"),
        ({"mix": "fmix"}, "unknown mix"),
        ({"network": "rnn"}, "network 'rnn'.*: vit, cnn"),
        ({"model": "XL/4"}, "model 'XL/4'.*: mini"),
        ({"positions": "here"}, "positions 'here'"),
        ({"num_heads": 7}, "64 .* 7"),
        *(
            ({"pool": "none", "class_token": token}, 'pool "none" .*: choose .* cls, avg, map')
            for token in (True, False)
        ),
        ({"lr": 0}, "lr .* 0"),
        ({"batch_size": 0}, "batch_size .* 1, got 0"),
        ({"images": 0}, "images .* 1, got 0"),
        ({"repeat": 1.5}, "repeat .*got 1.5"),
        ({"model": 5}, "model '5'.*: mini"),
        *(({name: True}, f"{name} .*got True") for name in ("lr", "token_lr_mult", "clip")),
    ],
)
def test_settings_that_do_not_fit_are_named(settings, says):
    with pytest.raises((ValueError, TypeError), match=says):
        RunSettings.from_dict(settings)


SOME = RunSettings.from_dict(
    {"depth": 4, "mlp_ratio": 2.0, "lr": 1e-3, "optimizer": "muon", "images": 100, "seed": 7}
)


@pytest.mark.parametrize("settings", [RunSettings(), SOME, *map(preset, PRESETS)])
def test_settings_survive_a_dict_a_copy_and_a_pickle(settings):
    assert RunSettings.from_dict(settings.to_dict()) == settings
    assert RunSettings.from_dict(settings.changed()) == settings
    assert copy.deepcopy(settings) == pickle.loads(pickle.dumps(settings)) == settings


def test_only_what_was_changed_is_written_into_a_table():
    changed = {"depth": 4, "mlp_ratio": 2.0, "lr": 1e-3, "optimizer": "muon"}
    assert SOME.changed() == {"model": "mini/2", **changed, "images": 100, "seed": 7}
    assert RunSettings.from_dict({"batch_size": 64}).changed() == {"model": "mini/2"}


def test_a_size_that_is_asked_for_has_its_own_shape():
    small = preset("fashion_mnist", size="Ti", epochs=2)
    assert small.model == "Ti/14" and small.recipe.epochs == 2
    assert small.shape == {"mlp_ratio": 2.0, "class_token": False, "pool": "avg"}
    assert preset("fashion_mnist", patch=7) == preset("fashion_mnist").replace(model="mini/7")


def test_norm_last_is_torchs_norm_last():
    torch.manual_seed(0)
    ours = NormLastBlock(12, 3)
    perturb(ours, std=0.2)
    theirs = nn.TransformerEncoderLayer(
        12, 3, 48, 0.0, "gelu", 1e-6, batch_first=True, norm_first=False
    )
    names = {"self_attn.in_proj_": "attn.qkv.", "self_attn.out_proj.": "attn.proj."}
    names |= {"linear1.": "mlp.fc1.", "linear2.": "mlp.fc2."}
    state = ours.state_dict()

    def ours_of(name):
        for old, new in names.items():
            name = name.replace(old, new)
        return state[name]

    theirs.load_state_dict({name: ours_of(name) for name in theirs.state_dict()})
    x = torch.randn(2, 5, 12)
    assert largest_difference(ours(x), theirs(x)) < 1e-5
    _, weights = theirs.self_attn(x, x, x, average_attn_weights=False)
    assert largest_difference(ours.attention_weights(x), weights) < 1e-6


@pytest.mark.parametrize("also", [{"patch": 4}, {"size": "S"}, {"size": "S", "patch": 16}])
def test_a_model_beside_a_size_or_a_patch_is_refused(also):
    says = "give a model, or a size and a patch side: got model 'mini/2'"
    with pytest.raises(ValueError, match=says):
        preset("digits", model="mini/2", **also)
    with pytest.raises(ValueError, match=f"coarse: {says}"):
        Table(changes={"coarse": {"model": "mini/2", **also}})


def test_a_size_and_a_patch_in_a_table_become_its_model():
    table = Table(
        model="mini/4", baseline={"depth": 3}, changes={"fine": {"patch": 2}, "wide": {"size": "S"}}
    )
    fine, wide = (table.settings(table.changes[name]) for name in ("fine", "wide"))
    assert (fine.model, fine.shape) == ("mini/2", {"depth": 3})
    assert (wide.model, wide.shape) == ("S/4", {})
    with pytest.raises(ValueError, match="unknown setting size"):
        RunSettings.from_dict({"size": "S"})


@pytest.mark.parametrize("patch", [0, True, "x"])
def test_a_patch_side_that_is_none_is_not_taken_for_no_patch_side(patch):
    with pytest.raises((ValueError, TypeError)):
        preset("digits", patch=patch)


@pytest.mark.parametrize("settings", [RunSettings(), RunSettings(model="mini/4"), SOME])
def test_the_architecture_is_made_once_and_completed_by_the_data(settings):
    assert settings.config is settings.config
    model = make_network(load("digits"), settings)
    sizes = {"image_size": (8, 8), "in_chans": 1, "num_classes": 10}
    assert model.config == replace(settings.config, **sizes)
    with pytest.raises(ValueError, match=r"8 x 8 .* side 3; sides that do are 1, 2, 4, 8"):
        make_network(load("digits"), RunSettings(model="mini/3"))


@pytest.mark.parametrize(
    "shape",
    [
        {"reg_tokens": 4},
        {"positions": "rotary"},
        {"init_values": 1e-5},
        {"mlp_layer": "swiglu"},
        {"norm_layer": "rmsnorm"},
        {"qk_norm": True},
        {"pool": "map"},
        {"mlp_ratio": 2.0},
        {"attn_dropout": 0.5},
        {"norm_eps": 1e-3},
    ],
    ids=str,
)
def test_every_field_of_the_architecture_reaches_the_network(shape):
    data = load("digits")
    plain = make_network(data, RunSettings())
    perturb(plain, std=0.2)
    changed = make_network(data, RunSettings(shape=shape))
    own = changed.state_dict()
    same = {n: w for n, w in plain.state_dict().items() if n in own and w.shape == own[n].shape}
    changed.load_state_dict(same, strict=False)
    outputs = []
    for model in (plain, changed):
        torch.manual_seed(0)  # for dropout
        outputs.append(model.train()(data.train.images[:4]))
    assert largest_difference(*outputs) > 1e-5
    assert all(getattr(changed.config, name) == value for name, value in shape.items())


@pytest.mark.parametrize("shape", [{"positions": "rotary"}, {"qk_norm": True}], ids=str)
def test_norm_last_does_not_ignore_a_later_architecture(shape):
    with pytest.raises(ValueError, match=r"rotary positions, .*qk_norm"):
        make_network(load("digits"), RunSettings(norm="last", shape=shape))


def test_every_setting_is_explained(capsys):
    from vit_helpers.cli import main
    from vit_helpers.training.presets import RECIPE, SHAPE

    assert main(["train", "--settings"]) == 0
    words = set(re.findall(r"\w+", capsys.readouterr().out))
    assert RunSettings().to_dict().keys() | RECIPE | SHAPE <= words


@pytest.mark.parametrize("network", ["vit", "cnn"])
@pytest.mark.parametrize("wrong", [{"num_classes": 1}, {"num_classes": 11}, {"in_chans": 3}])
def test_what_the_data_determine_cannot_be_set_to_something_else(network, wrong):
    data, ((name, value),) = load("digits"), wrong.items()
    make_network(
        data, RunSettings.from_dict({"num_classes": 10, "in_chans": 1, "network": network})
    )
    with pytest.raises(
        ValueError, match=f"digits has {name} 10?, not {value}: leave out what sets it"
    ):
        make_network(data, RunSettings.from_dict({**wrong, "network": network}))


def test_a_data_set_that_is_a_number_is_unknown():
    with pytest.raises(ValueError, match="unknown data '5'"):
        load_data(preset(5))


def test_weights_determine_the_width_that_heads_divide():
    assert (
        RunSettings.from_dict({"weights": "w100.pth", "num_heads": 5, "image_size": 60}).shape[
            "num_heads"
        ]
        == 5
    )


IDLE = [
    ({}, {"width": 99}, "width has no effect: the width of a ViT is embed_dim"),
    ({}, {"rank": 3}, "rank"),
    ({"network": "cnn"}, {"depth": 3}, "depth has no effect: a CNN has only a width"),
    ({"network": "cnn"}, {"norm": "last"}, "norm has no effect"),
    ({"network": "cnn"}, {"token_lr_mult": 1.0}, "token_lr_mult has no effect"),
    ({"network": "cnn"}, {"patch": 4}, "patch has no effect"),
    ({"weights": "ours:seven"}, {"rank": 3}, "rank has no effect: only the updates of tune=lora"),
    ({"weights": "ours:seven", "tune": "head"}, {"token_lr_mult": 2.0}, "head trains no tokens"),
]


@pytest.mark.parametrize(("settings", "change", "says"), IDLE)
def test_a_setting_that_changes_nothing_is_named(settings, change, says):
    with pytest.raises(ValueError, match=says):
        preset("digits", **settings, **change)
    if "weights" not in settings:
        with pytest.raises(ValueError, match=f"x: {says}"):
            Table(baseline=settings, changes={"x": change})
    if "patch" not in change:
        with pytest.raises(ValueError, match="has no effect"):
            preset("digits", **settings).replace(**change)


def test_a_setting_that_changes_something_is_taken():
    weights = {"weights": "ours:seven"}
    assert preset("digits", **weights, tune="lora", rank=3).rank == 3
    assert preset("digits", **weights, token_lr_mult=2.0).recipe.token_lr_mult == 2
    wide = {"network": "cnn", "width": 9}
    assert preset("digits", **wide).width == 9
    table = Table(baseline=wide, changes={"ViT": {"network": "vit"}, "wider": {"width": 12}})
    assert [settings.width for _, _, settings in table.runs()][:3] == [9, 9, 12]
