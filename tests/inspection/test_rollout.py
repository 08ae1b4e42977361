"""Rollout and gradients of attention, against matrices and formulas written here."""

import copy

import pytest
import torch

from vit_helpers.inspection import (
    attention_gradients,
    gradient_rollout,
    rollout,
    token_layers,
)


def random_weights(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)).softmax(dim=-1)


def test_rollout_rows_sum_to_one():
    weights = [random_weights(2, 3, 13, 13) for _ in range(4)]
    for residual in (0, 0.5, 0.9):
        assert torch.allclose(rollout(weights, residual).sum(dim=-1), torch.ones(2, 13))
    with pytest.raises(ValueError, match=r"share.* 1\.5"):
        rollout(weights, 1.5)


def test_rollout_of_one_layer_and_of_none_that_moves():
    one = random_weights(2, 3, 13, 13)
    assert torch.allclose(rollout([one], residual=0), one.mean(dim=1))
    assert torch.allclose(
        rollout([torch.eye(13).expand(2, 3, 13, 13)] * 5), torch.eye(13).expand(2, 13, 13)
    )


def test_rollout_follows_the_order_of_the_layers():
    """Token 0 looks at 1 in the last layer, 1 at 2 in the first: so what reaches 0 comes from 2"""
    first, last = torch.eye(3), torch.eye(3)
    first[1], last[0] = torch.eye(3)[2], torch.eye(3)[1]
    flow = rollout([first[None, None], last[None, None]], residual=0)
    assert flow[0, 0].tolist() == [0, 0, 1]


def test_gradients_are_those_of_the_weights(model, images):
    """Against torch's own gradient, of a pass in which the weights of a layer are written out."""
    weights, gradients = attention_gradients(model, images)
    classes = model(images).argmax(dim=1)
    for layer, block in enumerate(model.blocks):
        x = token_layers(model, images)[layer]
        w = weights[layer].clone().requires_grad_()
        _, _, v = block.attn.heads(block.norm1(x))
        y = x + block.attn.proj((w @ v).transpose(1, 2).flatten(2))
        y = y + block.mlp(block.norm2(y))
        for after in model.blocks[layer + 1 :]:
            y = after(y)
        logits = model.head(model.pool(model.norm(y)))
        (slope,) = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), w)
        assert torch.allclose(slope, gradients[layer], atol=1e-5)


def test_gradients_of_another_class_and_nothing_left_behind(model, images):
    before = {name: p.clone() for name, p in model.state_dict().items()}
    for weights, own in zip(
        attention_gradients(model, images)[0], model.attention_weights(images), strict=True
    ):
        assert torch.equal(weights, own)
    one, two = (attention_gradients(model, images, torch.tensor([k, k]))[1][0] for k in (0, 1))
    assert not torch.allclose(one, two)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(before[name], p) for name, p in model.state_dict().items())
    assert not any(
        block.attn._forward_pre_hooks or block.attn.proj._forward_pre_hooks
        for block in model.blocks
    )


def test_hooks_are_gone_after_an_error_too(model):
    with pytest.raises(ValueError, match="12 x 16"):
        attention_gradients(model, torch.randn(1, 1, 8, 8))
    assert not any(
        block.attn._forward_pre_hooks or block.attn.proj._forward_pre_hooks
        for block in model.blocks
    )


def test_gradients_also_where_gradients_are_off_or_the_model_is_frozen(model, images):
    _, wanted = attention_gradients(model, images)
    with torch.no_grad():
        _, got = attention_gradients(model, images)
    _, frozen = attention_gradients(copy.deepcopy(model).requires_grad_(False), images)
    for a, b, c in zip(wanted, got, frozen, strict=True):
        assert torch.equal(a, b) and torch.allclose(a, c, atol=1e-6)
    assert not images.requires_grad


def test_gradient_rollout_leaves_out_what_speaks_against():
    weights, against = [random_weights(1, 2, 5, 5)] * 2, [-torch.ones(1, 2, 5, 5)] * 2
    assert torch.equal(gradient_rollout(weights, against), torch.eye(5)[None])
    spoken = gradient_rollout(weights[:1], [torch.ones(1, 2, 5, 5)])
    assert torch.allclose(spoken, torch.eye(5) + weights[0].mean(dim=1))


def test_a_head_that_speaks_against_does_not_cancel_one_that_speaks_for():
    weights, slopes = random_weights(1, 2, 5, 5), torch.ones(1, 2, 5, 5)
    slopes[:, 1] = -1
    found = gradient_rollout([weights], [slopes])
    assert torch.allclose(found, torch.eye(5) + weights[:, 0] / 2)
