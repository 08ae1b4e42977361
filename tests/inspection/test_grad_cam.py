"""Maps of gradients, and deletion, against loops and formulas written here."""

import pytest
import torch
import torch.nn.functional as F

from vit_helpers.inspection import (
    grad_cam,
    integrated_gradients,
    layer_cam,
    layer_gradients,
    pixel_gradients,
)

CLASSES = torch.tensor([3, 0])


def rest_of(model, z):
    """The logits, from what the first norm of the last block puts out and the stream beside it"""
    stream, normalized = z
    block = model.blocks[-1]
    stream = stream + block.attn(normalized)
    return model.head(model.pool(model.norm(stream + block.mlp(block.norm2(stream)))))


def at_norm1(model, images):
    """Tokens and gradients at the last block's first norm, by a forward pass written here"""
    stream = model.embed(images)
    for block in model.blocks[:-1]:
        stream = block(stream)
    normalized = model.blocks[-1].norm1(stream).detach().requires_grad_()
    logits = rest_of(model, (stream, normalized))
    torch.testing.assert_close(logits, model(images))
    (gradients,) = torch.autograd.grad(logits[range(2), CLASSES].sum(), normalized)
    extra = normalized.shape[1] - 12
    return normalized.detach()[:, extra:], gradients[:, extra:]


def test_grad_cam_follows_the_formula(model, images):
    tokens, gradients = at_norm1(model, images)
    wanted = torch.zeros(2, 12)
    for b in range(2):
        alpha = [gradients[b, :, d].mean() for d in range(tokens.shape[2])]  # paper, equation 1
        for n in range(12):
            total = sum(a * x for a, x in zip(alpha, tokens[b, n], strict=True))
            wanted[b, n] = max(float(total), 0)  # equation 2
    found = grad_cam(model, images, CLASSES)
    assert found.shape == (2, 3, 4) and (found > 0).any()
    torch.testing.assert_close(found.flatten(1), wanted, atol=1e-5, rtol=1e-4)


def test_layer_cam_weighs_every_number_by_its_own_gradient(model, images):
    tokens, gradients = at_norm1(model, images)
    wanted = F.relu(torch.einsum("bnd,bnd->bn", F.relu(gradients), tokens))
    torch.testing.assert_close(layer_cam(model, images, CLASSES).flatten(1), wanted)


def test_without_classes_the_predicted_ones_count(model, images):
    predicted = model(images).argmax(dim=1)
    for method in (grad_cam, layer_cam, pixel_gradients, integrated_gradients):
        assert torch.equal(method(model, images), method(model, images, predicted))


def test_after_the_last_attention_no_patch_token_has_a_gradient_for_a_class_token(model, images):
    last = model.blocks[-1]
    for layer in (last, last.norm2, last.mlp, last.attn):
        _, gradients = layer_gradients(model, images, CLASSES, layer)
        if model.config.class_token:
            assert (gradients[:, 1:] == 0).all() and (gradients[:, 0] != 0).any()
            assert (grad_cam(model, images, CLASSES, layer) == 0).all()
        else:
            assert (gradients != 0).any(dim=2).all()
    for layer in (last.norm1, model.blocks[0]):
        _, gradients = layer_gradients(model, images, CLASSES, layer)
        assert (gradients[:, 1:] != 0).any(dim=2).all()


def test_gradients_of_pixels_are_slopes(model, images):
    slope, step = torch.zeros(1, 12, 16, dtype=torch.float64), 1e-6
    net, x = model.double(), images[:1].double()
    for row in range(12):
        for col in range(16):
            up, down = x.clone(), x.clone()
            up[0, 0, row, col] += step
            down[0, 0, row, col] -= step
            slope[0, row, col] = (net(up)[0, 3] - net(down)[0, 3]).item() / (2 * step)
    wanted = slope.abs().reshape(1, 3, 4, 4, 4).mean(dim=(2, 4))
    found = pixel_gradients(net, x, CLASSES[:1])
    model.float()
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-4)


def test_integrated_gradients_sum_to_the_difference_of_the_logits(model, images):
    black = images.amin(dim=(1, 2, 3), keepdim=True).expand_as(images)
    with torch.no_grad():
        wanted = (model(images) - model(black))[range(2), CLASSES]
    sums = integrated_gradients(model, images, CLASSES, steps=100).sum(dim=(1, 2))
    torch.testing.assert_close(sums, wanted, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(("steps", "error"), [(0, ValueError), (-1, ValueError), (2.5, TypeError)])
def test_steps_that_are_no_count_are_refused(model, images, steps, error):
    with pytest.raises(error, match=f"steps must be .*got {steps}"):
        integrated_gradients(model, images, CLASSES, steps)


def test_a_frozen_model_and_one_in_training_give_the_same_maps(model, images):
    wanted = grad_cam(model, images, CLASSES)
    model.train().requires_grad_(False)
    assert torch.equal(grad_cam(model, images, CLASSES), wanted) and model.training
    model.eval().requires_grad_(True)
    assert all(not module._forward_hooks for module in model.modules())


# Deletion
