import pytest
import torch
from torch import nn

from vit_helpers.encoder import MLP, Block
from vit_helpers.parity import largest_difference, perturb


def torch_twin(block, dim, heads):
    twin = nn.TransformerEncoderLayer(
        dim,
        heads,
        4 * dim,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=1e-6,
        batch_first=True,
        norm_first=True,
    )
    names = {
        "attn.qkv.weight": "self_attn.in_proj_weight",
        "attn.qkv.bias": "self_attn.in_proj_bias",
    }
    parts = {
        "attn.proj": "self_attn.out_proj",
        "mlp.fc1": "linear1",
        "mlp.fc2": "linear2",
        "norm1": "norm1",
        "norm2": "norm2",
    }
    for ours, theirs in parts.items():
        names |= {f"{ours}.{leaf}": f"{theirs}.{leaf}" for leaf in ("weight", "bias")}
    twin.load_state_dict({names[key]: value for key, value in block.state_dict().items()})
    return twin


@pytest.mark.parametrize(("dim", "heads"), [(16, 2), (48, 3)])
def test_equals_torchs_encoder_layer_and_its_gradients(dim, heads):
    block = Block(dim, heads)
    perturb(block, std=0.2)
    twin = torch_twin(block, dim, heads)
    x = torch.randn(2, 7, dim, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    ours, theirs = block(x), twin(y)
    assert largest_difference(ours, theirs) < 1e-5 * theirs.abs().max()
    ours.square().mean().backward()
    theirs.square().mean().backward()
    assert largest_difference(x.grad, y.grad) < 1e-5 * y.grad.abs().max()


@pytest.mark.parametrize("part", ["attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2", "norm1", "norm2"])
@pytest.mark.parametrize("leaf", ["weight", "bias"])
def test_every_parameter_takes_part_in_the_equality(part, leaf):
    block, x = Block(16, 2), torch.randn(2, 7, 16)
    perturb(block, std=0.2)
    expected = torch_twin(block, 16, 2)(x)
    getattr(block.get_submodule(part), leaf).data.fill_(
        float(part.startswith("norm") and leaf == "weight")
    )
    assert largest_difference(block(x), expected) > 1e-3 * expected.abs().max()


def test_a_mask_hides_tokens_from_the_others():
    block = Block(16, 2)
    perturb(block, std=0.2)
    x = torch.randn(1, 6, 16)
    mask = torch.tensor([[True, True, True, True, False, False]])
    assert torch.allclose(block(x, mask)[:, :4], block(x[:, :4]), atol=1e-6)


def test_weights_are_of_the_normed_input():
    block = Block(16, 2)
    perturb(block, std=0.2)
    x = 5 + 3 * torch.randn(1, 6, 16)
    mask = torch.tensor([[True, True, True, True, False, False]])
    assert torch.equal(block.attention_weights(x), block.attn.weights(block.norm1(x)))
    assert torch.equal(block.attention_weights(x, mask), block.attn.weights(block.norm1(x), mask))


def test_the_residual_stream_passes_when_both_branches_are_silent():
    block = Block(16, 2)
    for layer in (block.attn.proj, block.mlp.fc2):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    x = torch.randn(1, 6, 16)
    assert torch.equal(block(x), x)


def test_the_norms_are_the_published_ones():
    assert Block(16, 2).norm1.eps == Block(16, 2).norm2.eps == 1e-6


def test_published_start():
    mlp = MLP(200, 800)
    for layer in (mlp.fc1, mlp.fc2):
        assert layer.weight.std().item() == pytest.approx((2 / (200 + 800)) ** 0.5, rel=0.02)
        assert 0 < layer.bias.abs().max() < 1e-5


def test_dropouts_reach_their_parts():
    block = Block(16, 2, dropout=0.1, attn_dropout=0.2)
    assert (block.attn.dropout.p, block.attn.attn_dropout, block.mlp.dropout.p) == (0.1, 0.2, 0.1)


def test_mlp_by_hand():
    mlp = MLP(4, 8)
    perturb(mlp, std=0.2)
    x = torch.randn(3, 4)
    hidden = x @ mlp.fc1.weight.T + mlp.fc1.bias
    gelu = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))  # exact, no tanh
    assert torch.allclose(mlp(x), gelu @ mlp.fc2.weight.T + mlp.fc2.bias, atol=1e-6)


def test_dropout_after_both_layers(monkeypatch):
    mlp = MLP(4, 8, dropout=0.5)
    widths = []
    monkeypatch.setattr(mlp.dropout, "forward", lambda x: widths.append(x.shape[-1]) or x)
    mlp(torch.randn(3, 4))
    assert widths == [8, 4]
