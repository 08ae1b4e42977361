from itertools import combinations

import numpy as np
import pytest
import torch
from peers import timm, transformers
from torch import nn

from vit_helpers.embeddings import (
    RESIZING,
    PatchEmbed,
    TokenEmbed,
    resize_positions,
    sincos_1d,
    sincos_positions,
)
from vit_helpers.parity import largest_difference, perturb


@pytest.mark.parametrize(
    ("size", "patch", "channels"), [(32, 8, 3), ((24, 40), 8, 1), ((6, 9), 3, 5)]
)
def test_a_linear_on_patches_is_the_strided_convolution(size, patch, channels):
    embed = PatchEmbed(size, patch, channels, 16)
    perturb(embed)
    conv = nn.Conv2d(channels, 16, patch, stride=patch)
    conv.load_state_dict(
        {"weight": embed.proj.weight.view_as(conv.weight), "bias": embed.proj.bias}
    )
    images = torch.randn(2, channels, *embed.image_size)
    assert largest_difference(embed(images), conv(images).flatten(2).transpose(1, 2)) < 2e-6


def test_projection_starts_small_enough_to_keep_the_variance():
    embed = PatchEmbed(224, 16, 3, 768)
    assert embed.proj.weight.std().item() == pytest.approx((3 * 16 * 16) ** -0.5, rel=0.02)
    assert not embed.proj.bias.any()


@pytest.mark.parametrize(
    ("images", "error", "words"),
    [
        (torch.zeros(3, 32, 32), ValueError, r"4 axes .* got 3: \(3, 32, 32\)"),
        (torch.zeros(1, 1, 32, 32), ValueError, "takes 3 channels, the images have 1"),
        (
            torch.zeros(1, 3, 32, 48),
            ValueError,
            "32 x 32 pixels, the images have 32 x 48: .*resize_positions",
        ),
        (np.zeros((1, 3, 32, 32)), TypeError, "must be a torch.Tensor, got ndarray"),
        (
            torch.zeros(1, 3, 32, 32, dtype=torch.uint8),
            TypeError,
            "floating point, got torch.uint8",
        ),
    ],
)
def test_bad_images_are_named(images, error, words):
    with pytest.raises(error, match=words):
        PatchEmbed(32, 8, 3, 16)(images)


def test_class_token_is_one_vector_in_front():
    embed = TokenEmbed((2, 3), 8)
    perturb(embed)  # the class token is zeros at first
    x = torch.randn(5, 6, 8)
    tokens = embed(x)
    assert tokens.shape == (5, 7, 8)
    assert torch.equal(tokens[:, 0], (embed.cls_token + embed.pos_embed[:, :1])[:, 0].expand(5, -1))
    assert torch.equal(tokens[:, 1:], x + embed.pos_embed[:, 1:])


def test_published_start():
    embed = TokenEmbed((14, 14), 768)
    assert not embed.cls_token.any()
    assert embed.pos_embed.std().item() == pytest.approx(0.02, rel=0.02)


def test_what_is_learned():
    names = {
        kind: set(dict(TokenEmbed((2, 2), 8, positions=kind).named_parameters()))
        for kind in ("learned", "sincos", "none")
    }
    assert names == {
        "learned": {"cls_token", "pos_embed"},
        "sincos": {"cls_token"},
        "none": {"cls_token"},
    }
    assert set(TokenEmbed((2, 2), 8, class_token=False).state_dict()) == {"pos_embed"}


def test_fixed_positions_leave_the_class_token_alone():
    embed = TokenEmbed((2, 3), 8, positions="sincos")
    assert not embed.pos_embed[:, 0].any()
    assert torch.equal(embed.pos_embed[0, 1:], sincos_positions((2, 3), 8))
    assert set(embed.state_dict()) == {"cls_token"}  # computed, so not kept


def test_dropout_comes_after_the_positions():
    embed = TokenEmbed((2, 2), 8, dropout=0.999)
    nn.init.ones_(embed.pos_embed)
    assert (embed(torch.ones(1, 4, 8)) == 0).float().mean() > 0.9
    assert (embed.eval()(torch.ones(1, 4, 8)) == 0).sum() == 0


def test_sincos_1d_by_its_formula():
    table = sincos_1d(7, 6)
    for place in range(7):
        for i in range(3):
            angle = torch.tensor(place / 10000 ** (2 * i / 6), dtype=torch.float64)
            assert table[place, i].item() == pytest.approx(angle.sin().item(), abs=1e-6)
            assert table[place, 3 + i].item() == pytest.approx(angle.cos().item(), abs=1e-6)


def test_sincos_positions_say_row_and_column():
    table = sincos_positions((3, 4), 16).reshape(3, 4, 16)
    for row in range(3):
        for col in range(4):
            assert torch.equal(
                table[row, col], torch.cat([sincos_1d(3, 8)[row], sincos_1d(4, 8)[col]])
            )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sincos_positions((2, 2), 6), "width 6 .* multiple of 4"),
        (lambda: sincos_1d(2, 5), "width 5 .* multiple of 2"),
        (
            lambda: TokenEmbed((2, 2), 8, positions="fourier"),
            "'fourier', known: learned, sincos, rotary, none",
        ),
        (
            lambda: resize_positions(torch.zeros(1, 15, 8), (4, 4), (2, 2)),
            "15 positions .* 4 x 4 = 16",
        ),
        (
            lambda: resize_positions(torch.zeros(1, 25, 8), (4, 4), (2, 2)),
            "25 positions .* 4 x 4 = 16",
        ),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.peers
@pytest.mark.parametrize(
    ("grid", "new_grid", "extra"), [((4, 4), (6, 6), 1), ((5, 3), (2, 7), 1), ((4, 4), (3, 5), 0)]
)
def test_resizing_equals_timm(grid, new_grid, extra):
    positions = torch.randn(1, extra + grid[0] * grid[1], 8)
    ours = resize_positions(positions, grid, new_grid)
    theirs = timm.layers.resample_abs_pos_embed(
        positions, list(new_grid), list(grid), num_prefix_tokens=extra
    )
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert torch.equal(ours[:, :extra], positions[:, :extra])


def test_resizing_to_the_same_grid_changes_nothing():
    positions = torch.randn(1, 17, 8)
    assert torch.equal(resize_positions(positions, (4, 4), (4, 4)), positions)


def test_resizing_keeps_the_type():
    assert (
        resize_positions(torch.randn(1, 17, 8).bfloat16(), (4, 4), (2, 3)).dtype == torch.bfloat16
    )


# As the libraries stretch positions


def by_torchvision(pos, side, new):
    from torchvision.models.vision_transformer import interpolate_embeddings

    return interpolate_embeddings(new * 4, 4, {"encoder.pos_embedding": pos})[
        "encoder.pos_embedding"
    ]


def by_timm(pos, side, new):
    return timm.layers.resample_abs_pos_embed(pos, [new, new], [side, side])


def by_huggingface(pos, side, new):
    sizes = {"hidden_size": pos.shape[2], "num_attention_heads": 1, "num_hidden_layers": 1}
    embeddings = transformers.ViTModel(
        transformers.ViTConfig(image_size=side * 4, patch_size=4, **sizes)
    ).embeddings
    embeddings.position_embeddings.data = pos
    return embeddings.interpolate_pos_encoding(
        torch.zeros(1, new * new + 1, pos.shape[2]), new * 4, new * 4
    )


def by_google(pos, side, new):
    """The lines of its checkpoint.py, with scipy"""
    from scipy.ndimage import zoom

    grid = pos[0, 1:].reshape(side, side, -1).numpy()
    larger = zoom(grid, (new / side, new / side, 1), order=1)
    return torch.cat([pos[:, :1], torch.tensor(larger).reshape(1, new * new, -1)], dim=1)


@pytest.mark.parametrize(("side", "new"), [(7, 12), (14, 24), (6, 4), (5, 5)])
@pytest.mark.parametrize(
    "theirs",
    [
        by_torchvision,
        pytest.param(by_timm, marks=pytest.mark.peers),
        pytest.param(by_huggingface, marks=pytest.mark.peers),
        by_google,
    ],
)
def test_positions_are_interpolated_as_each_library_does(theirs, side, new):
    pos = torch.randn(1, side * side + 1, 8, generator=torch.Generator().manual_seed(0))
    mine = resize_positions(pos, (side, side), (new, new), like=theirs.__name__.removeprefix("by_"))
    assert torch.allclose(mine, theirs(pos, side, new), atol=1e-5)


def test_the_four_ways_differ():
    pos = torch.randn(1, 50, 8, generator=torch.Generator().manual_seed(0))
    four = [resize_positions(pos, (7, 7), (12, 12), like=way) for way in RESIZING]
    assert all((a - b).abs().max() > 0.01 for a, b in combinations(four, 2))
    with pytest.raises(
        ValueError, match="unknown way 'keras', known: timm, torchvision, huggingface, google"
    ):
        resize_positions(pos, (7, 7), (12, 12), like="keras")
