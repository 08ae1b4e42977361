import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from vit_helpers.attention import MultiHeadAttention, attention, explicit_is_faster

size = st.integers(1, 6)


@given(B=size, h=size, T=size, d=size)
def test_equals_torchs_own_and_rows_sum_to_1(B, h, T, d):
    q, k, v = torch.randn(3, B, h, T, d)
    values, weights = attention(q, k, v)
    assert torch.allclose(values, F.scaled_dot_product_attention(q, k, v), atol=1e-5)
    assert weights.shape == (B, h, T, T)
    assert torch.allclose(weights.sum(-1), torch.ones(B, h, T), atol=1e-5)


def test_three_tokens_on_paper():
    q = k = math.sqrt(2) * torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # scores are q k^T / sqrt(2)
    v = torch.tensor([[1.0], [2.0], [4.0]])
    values, weights = attention(q, k, v)
    e = [math.exp(math.sqrt(2)), 1.0, math.exp(math.sqrt(2))]  # token 0 scores sqrt(2), 0, sqrt(2)
    assert weights[0].tolist() == pytest.approx([x / sum(e) for x in e])
    assert values[0].item() == pytest.approx((e[0] + 2 * e[1] + 4 * e[2]) / sum(e))


def torch_twin(ours, dim, heads):
    twin = nn.MultiheadAttention(dim, heads, batch_first=True)
    twin.in_proj_weight.data, twin.in_proj_bias.data = ours.qkv.weight.data.clone(), ours.qkv.bias.data.clone()
    twin.out_proj.load_state_dict(ours.proj.state_dict())
    return twin


def with_random_biases(module):
    for name, p in module.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(p)
    return module


@pytest.mark.parametrize(("dim", "heads"), [(8, 1), (12, 3), (64, 4)])
def test_equals_torchs_module_values_weights_and_gradients(dim, heads):
    ours = with_random_biases(MultiHeadAttention(dim, heads))
    twin = torch_twin(ours, dim, heads)
    x = torch.randn(2, 5, dim)
    mask = torch.tensor([[True] * 5, [True, True, False, True, False]])
    values, weights = twin(x, x, x, key_padding_mask=~mask, average_attn_weights=False)
    assert torch.allclose(ours(x, mask), values, atol=1e-5)
    assert torch.allclose(ours.weights(x, mask), weights, atol=1e-6)
    ours(x, mask).square().sum().backward()
    values.square().sum().backward()
    assert torch.allclose(ours.qkv.weight.grad, twin.in_proj_weight.grad, atol=1e-4)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-12), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize("masked", [False, True])
def test_the_fused_and_the_explicit_path_agree(monkeypatch, dtype, bound, masked):
    x = torch.randn(2, 9, 32, dtype=dtype, requires_grad=True)
    mask = torch.tensor([[True] * 9, [True] * 4 + [False] * 5]) if masked else None
    layer = MultiHeadAttention(32, 4).to(dtype)
    results = []
    for explicit in (False, True):
        monkeypatch.setattr("vit_helpers.attention.explicit_is_faster", lambda q, explicit=explicit: explicit)
        x.grad = None
        out = layer(x, mask)
        out.float().square().sum().backward()
        results.append((out.detach().float(), x.grad.float()))
    (fused, fused_grad), (explicit, explicit_grad) = results
    assert (fused - explicit).abs().max() <= bound * fused.abs().max()
    assert (fused_grad - explicit_grad).abs().max() <= bound * fused_grad.abs().max()


def test_which_path_is_taken():
    few, many = torch.zeros(1, 1, 32, 4), torch.zeros(1, 1, 33, 4)
    assert explicit_is_faster(few)
    assert explicit_is_faster(many.bfloat16())
    assert not explicit_is_faster(many)
    assert not explicit_is_faster(few.to("meta"))  # stands for every device that is no CPU


def test_weights_are_those_that_forward_uses():
    layer = MultiHeadAttention(12, 3)
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
    assert (layer(torch.randn(1, 50, 16)) == 0).float().mean() > 0.9  # before the projection, the bias would remain


def test_published_start():
    layer = MultiHeadAttention(256, 4)
    for q_k_or_v in layer.qkv.weight.chunk(3):
        assert q_k_or_v.std().item() == pytest.approx((2 / (256 + 256)) ** 0.5, rel=0.02)  # Xavier, each on its own
        assert q_k_or_v.abs().max() <= (6 / (256 + 256)) ** 0.5
    assert layer.proj.weight.std().item() == pytest.approx((2 / (256 + 256)) ** 0.5, rel=0.02)
    assert not layer.qkv.bias.any() and not layer.proj.bias.any()


@pytest.mark.parametrize("T", [5, 50])
@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        (lambda T: torch.ones(2, T), TypeError, "a mask is boolean.* got torch.float32"),
        (lambda T: torch.ones(T, T, dtype=torch.bool), ValueError, "a row an image and a column a token"),
        (lambda T: torch.ones(T, dtype=torch.bool), ValueError, "a row an image and a column a token"),
    ],
)
def test_masks_that_do_not_fit(T, mask, error, words):
    with pytest.raises(error, match=words):
        MultiHeadAttention(16, 2)(torch.randn(2, T, 16), mask(T))


@pytest.mark.parametrize(("dim", "heads"), [(10, 3), (8, 0), (4, 8)])
def test_width_that_does_not_split_is_named(dim, heads):
    with pytest.raises(ValueError, match=f"width {dim} does not split into {heads} equal heads"):
        MultiHeadAttention(dim, heads)
