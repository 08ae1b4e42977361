"""Settings by name: what they stand for, and that every preset fits its data set."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from vit_helpers.data import Data, Split, load
from vit_helpers.training.cnn import CNN
from vit_helpers.training.presets import (
    AUGMENT,
    MIX,
    PRESETS,
    NormLastBlock,
    check_settings,
    make_batches,
    make_network,
    make_recipe,
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
    check_settings(name, settings)
    images, _ = next(iter(make_batches(data, settings)))
    logits = make_network(data, settings)(images)
    assert logits.shape == (12, SHAPES[name][2]) and make_recipe(settings).epochs > 0


def test_presets_are_found_by_name_and_belong_to_the_caller():
    assert set(PRESETS) == set(SHAPES)
    assert preset("folder:/somewhere") == PRESETS["folder"] and preset("nothing") == {}
    preset("cifar10")["depth"] = 99
    assert PRESETS["cifar10"]["depth"] != 99


def test_shape_recipe_and_batches_follow_the_settings():
    data = load("digits")
    settings = {"depth": 1, "lr": 0.02, "batch_size": 10, "images": 15, "repeat": 2, "augment": "none"}
    assert len(make_network(data, settings).blocks) == 1 and make_recipe(settings).lr == 0.02
    batches = list(make_batches(data, settings))
    assert [len(labels) for _, labels in batches] == [10, 10, 10]
    labels = torch.cat([labels for _, labels in batches])
    assert torch.equal(labels.sort().values, data.train.labels[:15].repeat(2).sort().values)
    assert isinstance(make_network(data, {"network": "cnn", "width": 8}), CNN)


@pytest.mark.parametrize("augment", AUGMENT)
@pytest.mark.parametrize("mix", MIX)
def test_every_augmentation_and_mix_keeps_shape_and_counts(augment, mix):
    data = replace(load("digits"))
    images, labels = next(iter(make_batches(data, {"augment": augment, "mix": mix, "images": 64})))
    assert images.shape == (64, 1, 8, 8) and images.isfinite().all()
    assert labels.shape == ((64,) if mix == "none" else (64, 10))


def test_a_mirrored_test_answers_the_mean_of_both_looks():
    class Sum(nn.Module):
        """Logits: sums of the left and of the right half"""

        def forward(self, images):
            return torch.stack([images[..., :2].sum((1, 2, 3)), images[..., 2:].sum((1, 2, 3))], dim=1)

    images = torch.rand(5, 1, 4, 4)
    model = with_tta(Sum(), {"mirror": True})
    p = Sum()(images).softmax(dim=1)
    assert torch.allclose(model(images).softmax(dim=1), (p + p.flip(1)) / 2)
    plain = Sum()
    assert with_tta(plain, {}) is plain


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"learning_rate": 1}, "mine: unknown setting learning_rate, known: .*lr"),
        (3, "mine: expected settings"),
        ({"norm": "middle"}, "mine: unknown norm 'middle', known: first, last"),
        ({"augment": "blur"}, "mine: unknown augment 'blur', known: affine, flip"),
        ({"mix": "fmix"}, "mine: unknown mix"),
        ({"network": "rnn"}, "mine: unknown network 'rnn', known: vit, cnn"),
    ],
)
def test_settings_that_nobody_knows_are_named(settings, says):
    with pytest.raises(ValueError, match=says):
        check_settings("mine", settings)


def test_norm_last_is_torchs_norm_last():
    torch.manual_seed(0)
    ours = NormLastBlock(12, 3)
    theirs = nn.TransformerEncoderLayer(12, 3, 48, 0.0, "gelu", 1e-6, batch_first=True, norm_first=False)
    names = {"self_attn.in_proj_": "attn.qkv.", "self_attn.out_proj.": "attn.proj."}
    names |= {"linear1.": "mlp.fc1.", "linear2.": "mlp.fc2."}
    state = ours.state_dict()

    def ours_of(name):
        for old, new in names.items():
            name = name.replace(old, new)
        return state[name]

    theirs.load_state_dict({name: ours_of(name) for name in theirs.state_dict()})
    x = torch.randn(2, 5, 12)
    assert torch.allclose(ours(x), theirs(x), atol=1e-5)
