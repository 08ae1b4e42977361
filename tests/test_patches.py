import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from hypothesis import given
from hypothesis import strategies as st

from vit_helpers.patches import grid_size, patchify, unpatchify

side = st.integers(1, 5)


@given(B=st.integers(0, 3), C=side, rows=side, cols=side, P=side)
def test_equals_einops_and_unfold_and_comes_back(B, C, rows, cols, P):
    images = torch.rand(B, C, rows * P, cols * P)
    patches = patchify(images, P)
    other = rearrange(images, "b c (r p) (s q) -> b (r s) (c p q)", p=P, q=P)
    assert torch.equal(patches, other)
    assert torch.equal(unpatchify(patches, P, (rows * P, cols * P)), images)
    if B:
        assert torch.equal(patches, F.unfold(images, P, stride=P).transpose(1, 2))


def test_patch_0_is_the_top_left_square():
    images = torch.arange(2 * 3 * 8 * 12).reshape(2, 3, 8, 12)
    patches = patchify(images, 4)
    assert torch.equal(patches[1, 0].reshape(3, 4, 4), images[1, :, :4, :4])
    assert torch.equal(patches[1, 1].reshape(3, 4, 4), images[1, :, :4, 4:8])
    assert torch.equal(patches[1, 3].reshape(3, 4, 4), images[1, :, 4:, :4])


def test_gradient_of_every_pixel_is_1():
    images = torch.rand(1, 2, 6, 9, requires_grad=True)
    patchify(images, 3).sum().backward()
    assert torch.equal(images.grad, torch.ones_like(images))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: patchify(torch.zeros(1, 3, 30, 32), 4), "30 x 32 .* side 4"),
        (lambda: patchify(torch.zeros(3, 32, 32), 4), r"4 axes .* got 3: \(3, 32, 32\)"),
        (lambda: unpatchify(torch.zeros(1, 15, 48), 4, 16), "15 patches .* 4 x 4 = 16"),
        (lambda: unpatchify(torch.zeros(1, 16, 50), 4, 16), "50 numbers .* = 16"),
        (lambda: unpatchify(torch.zeros(16, 48), 4, 16), "3 axes .* got 2"),
        (lambda: grid_size(32, 0), "at least 1"),
        (lambda: grid_size(0, 4), "at least 1"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_patches_are_square():
    with pytest.raises(TypeError, match=r"patch_size.*\(4, 8\)"):
        patchify(torch.zeros(1, 3, 32, 32), (4, 8))


def test_numpy_numbers_are_sizes():
    assert grid_size((np.int64(8), np.int32(4)), np.int64(2)) == (4, 2)
