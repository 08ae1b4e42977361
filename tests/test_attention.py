import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from vit_helpers.attention import (
    FEW_TOKENS,
    MultiHeadAttention,
    attention,
    attention_values,
    use_fused_attention,
)
from vit_helpers.parity import largest_difference, perturb

size = st.integers(1, 6)


@given(B=size, h=size, T=size, d=size)
def test_equals_torchs_own_and_rows_sum_to_1(B, h, T, d):
    q, k, v = torch.randn(3, B, h, T, d)
    values, weights = attention(q, k, v)
    assert torch.allclose(values, F.scaled_dot_product_attention(q, k, v), atol=1e-5)
    assert weights.shape == (B, h, T, T)
    assert torch.allclose(weights.sum(-1), torch.ones(B, h, T), atol=1e-5)


def test_three_tokens_on_paper():
    # scores are q k^T / sqrt(2)
    q = k = math.sqrt(2) * torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    v = torch.tensor([[1.0], [2.0], [4.0]])
    values, weights = attention(q, k, v)
    e = [math.exp(math.sqrt(2)), 1.0, math.exp(math.sqrt(2))]  # token 0 scores sqrt(2), 0, sqrt(2)
    assert weights[0].tolist() == pytest.approx([x / sum(e) for x in e])
    assert values[0].item() == pytest.approx((e[0] + 2 * e[1] + 4 * e[2]) / sum(e))


def torch_twin(ours, dim, heads):
    twin = nn.MultiheadAttention(dim, heads, batch_first=True)
    twin.in_proj_weight.data, twin.in_proj_bias.data = (
        ours.qkv.weight.data.clone(),
        ours.qkv.bias.data.clone(),
    )
    twin.out_proj.load_state_dict(ours.proj.state_dict())
    return twin


@pytest.mark.parametrize(("dim", "heads"), [(8, 1), (12, 3), (64, 4)])
def test_equals_torchs_module_values_weights_and_gradients(dim, heads):
    ours = MultiHeadAttention(dim, heads)
    perturb(ours, std=0.5)  # biases are zeros at first
    # in float32 the gradients differ by rounding, by as much as 0.005
    twin = torch_twin(ours, dim, heads).double()
    ours.double()
    x = torch.randn(2, 5, dim, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, True, False, True, False]])
    values, weights = twin(x, x, x, key_padding_mask=~mask, average_attn_weights=False)
    assert largest_difference(ours(x, mask), values) < 1e-13 * values.abs().max()
    assert largest_difference(ours.weights(x, mask), weights) < 1e-13
    ours(x, mask).square().sum().backward()
    values.square().sum().backward()
    grad = twin.in_proj_weight.grad
    assert largest_difference(ours.qkv.weight.grad, grad) < 1e-13 * grad.abs().max()


PRECISIONS = [(torch.float32, 1e-6), (torch.float64, 1e-12), (torch.bfloat16, 0.03)]
LENGTHS = [9, FEW_TOKENS + 9]  # one on each side of the switch
MASKS = {  # (T) -> a mask (B, T) of two images
    "none": lambda T: None,
    "padding": lambda T: torch.tensor([[True] * T, [True] * 4 + [False] * (T - 4)]),
    "an image without any token": lambda T: torch.tensor([[True] * T, [False] * T]),
}


def both_paths(monkeypatch, function, *inputs):
    """Values and input gradients of function(*inputs) on the fused path, then on the plain one."""
    results = []
    for fused in (True, False):
        monkeypatch.setattr(
            "vit_helpers.attention.use_fused_attention", lambda q, fused=fused: fused
        )
        out = function(*inputs)
        # not the same gradient for every value
        weight = torch.linspace(-1, 1, out.numel()).view_as(out)
        grads = torch.autograd.grad(
            (out.float() * weight).sum() + out.float().square().sum(), inputs
        )
        results.append([x.detach().float() for x in (out, *grads)])
    return zip(*results, strict=True)


@pytest.mark.parametrize(("dtype", "bound"), PRECISIONS)
@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_the_fused_and_the_plain_path_agree(monkeypatch, dtype, bound, T, mask):
    layer = MultiHeadAttention(32, 4).to(dtype)
    x = torch.randn(2, T, 32, dtype=dtype, requires_grad=True)
    for fused, plain in both_paths(monkeypatch, lambda x: layer(x, mask(T)), x):
        assert plain.isfinite().all()
        assert (fused - plain).abs().max() <= bound * fused.abs().max()


@pytest.mark.parametrize(("dtype", "bound"), PRECISIONS)
@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_query_that_may_attend_to_nothing_gets_zeros(monkeypatch, dtype, bound, T):
    q, k, v = (torch.randn(2, 3, T, 8, dtype=dtype, requires_grad=True) for _ in range(3))
    mask = torch.rand(2, 1, T, T) < 0.5
    mask[:, :, :, 0], mask[1, :, 4] = True, False  # one empty row among others
    paths = list(both_paths(monkeypatch, lambda *qkv: attention_values(*qkv, mask), q, k, v))
    for fused, plain in paths:
        assert (fused - plain).abs().max() <= bound * fused.abs().max()
    for values in paths[0] + paths[1]:  # values, and gradients of the queries
        assert not values[1, :, 4].any() and values[0, :, 4].any()
    with torch.autograd.detect_anomaly(check_nan=True):  # no NaN on the way either
        values, weights = attention(q, k, v, mask)
        values.float().sum().backward()
    assert not weights[1, :, 4].any() and not weights.masked_select(~mask).any()
    sums = weights.float().sum(-1).masked_fill(~mask.any(-1), 1.0)
    assert torch.allclose(sums, torch.ones(2, 3, T), atol=bound)


def test_a_hidden_key_never_counts_however_large_its_score():
    q, k = torch.tensor([[1e3, 0.0], [0.0, 1e3]]), torch.tensor([[1e3, 1e3], [-1e30, -1e30]])
    mask = torch.tensor([[False, True], [True, False]])
    assert torch.equal(attention(q, k, k, mask)[1], torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


def test_which_path_is_taken():
    few, many = torch.zeros(1, 1, 32, 4), torch.zeros(1, 1, 33, 4)
    assert not use_fused_attention(few)
    assert not use_fused_attention(many.bfloat16())
    assert use_fused_attention(many)
    assert use_fused_attention(few.to("meta"))  # as on every device but a CPU


def test_weights_are_those_that_forward_uses():
    layer = MultiHeadAttention(12, 3)
    perturb(layer, std=0.2)
    x = torch.randn(2, 5, 12)
    _, _, v = layer.heads(x)
    values = (layer.weights(x) @ v).transpose(1, 2).flatten(2)
    assert torch.allclose(layer.proj(values), layer(x), atol=1e-6)


@pytest.mark.parametrize("T", [5, 50])
def test_dropout_on_weights_is_off_by_default_and_works(T):
    x = torch.randn(1, T, 16)
    quiet, noisy = MultiHeadAttention(16, 2), MultiHeadAttention(16, 2, attn_dropout=0.5)
    assert torch.equal(quiet(x), quiet(x))
    assert not torch.equal(noisy(x), noisy(x))
    noisy.eval()
    assert torch.equal(noisy(x), noisy(x))


def test_dropout_after_the_output_projection():
    layer = MultiHeadAttention(16, 2, dropout=0.999)
    nn.init.ones_(layer.proj.bias)
    # before the projection, the bias would remain
    assert (layer(torch.randn(1, 50, 16)) == 0).float().mean() > 0.9


def test_published_start():
    layer = MultiHeadAttention(256, 4)
    for q_k_or_v in layer.qkv.weight.chunk(3):
        # Xavier, each on its own
        assert q_k_or_v.std().item() == pytest.approx((2 / (256 + 256)) ** 0.5, rel=0.02)
        assert q_k_or_v.abs().max() <= (6 / (256 + 256)) ** 0.5
    assert layer.proj.weight.std().item() == pytest.approx((2 / (256 + 256)) ** 0.5, rel=0.02)
    assert not layer.qkv.bias.any() and not layer.proj.bias.any()


@pytest.mark.parametrize("T", [5, 50])
@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        (lambda T: torch.ones(2, T), TypeError, "a mask must be boolean.* got torch.float32"),
        (lambda T: torch.ones(T, T, dtype=torch.bool), ValueError, "a mask must have the shape"),
        (lambda T: torch.ones(T, dtype=torch.bool), ValueError, "a mask must have the shape"),
    ],
)
def test_masks_that_do_not_fit(T, mask, error, words):
    with pytest.raises(error, match=words):
        MultiHeadAttention(16, 2)(torch.randn(2, T, 16), mask(T))


@pytest.mark.parametrize(("dim", "heads"), [(10, 3), (8, 0), (4, 8)])
def test_width_that_does_not_split_is_named(dim, heads):
    with pytest.raises(ValueError, match=f"width {dim} .*{heads} "):
        MultiHeadAttention(dim, heads)
