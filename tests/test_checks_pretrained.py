"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.transforms import functional as TF

from vit_helpers.checks.pretrained import (
    check_kernel,
    check_lora,
    check_masked_loss,
    check_probe,
    check_rates,
    check_see,
)
from vit_helpers.pretrained.finetune import freeze, transfer_weights


def not_written(*_):
    raise NotImplementedError("your turn: replace this line")


# kernel


def kernel_by_loop(kernel):
    P, _, C, D = kernel.shape
    weight = torch.empty(D, C * P * P)
    for d in range(D):
        weight[d] = torch.stack([kernel[:, :, c, d] for c in range(C)]).flatten()
    return weight


KERNEL_RIGHT = [
    lambda k: k.permute(3, 2, 0, 1).flatten(1),
    lambda k: k.permute(2, 0, 1, 3).reshape(-1, k.shape[3]).T,
    lambda k: torch.einsum("ijcd->dcij", k).reshape(k.shape[3], -1),
    lambda k: torch.tensor(np.transpose(k.numpy(), (3, 2, 0, 1))).reshape(k.shape[3], -1),
    kernel_by_loop,
]
KERNEL_WRONG = [
    (lambda k: k.reshape(k.shape[3], -1), "without moving axes"),
    (lambda k: k.permute(3, 0, 1, 2).flatten(1), "pixel by pixel"),
    (lambda k: k.reshape(-1, k.shape[3]).T, "pixel by pixel"),
    (lambda k: k.permute(3, 2, 1, 0).flatten(1), "columns for rows"),
    (lambda k: k.mT.transpose(0, 1).flatten(1), "it should give"),
    (lambda k: k.permute(3, 2, 0, 1), "flatten each filter"),
    (lambda k: k.permute(2, 0, 1, 3).reshape(-1, k.shape[3]), "outputs come first"),
    (lambda k: k.permute(3, 2, 0, 1).flatten(1) * 2, "other numbers than the kernel's"),
    (lambda k: k.permute(3, 2, 0, 1).flatten(1).flip(0), "another order"),
    (lambda k: k.sum(), "it should give"),
    (lambda k: None, "gives nothing back"),
    (lambda k: k.nothing, "AttributeError"),
]  # fmt: skip

# see


def see_by_slices(image, side, mean, std):
    _, H, W = image.shape
    top, left = (H - side) // 2, (W - side) // 2
    part = image[:, top : top + side, left : left + side]
    return (part - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]


def see_by_torchvision(image, side, mean, std):
    return TF.normalize(TF.center_crop(image, side), mean, std)


def see_by_loop(image, side, mean, std):
    C, H, W = image.shape
    part = image[:, (H - side) // 2 :, (W - side) // 2 :][:, :side, :side]
    return torch.stack([(part[c] - mean[c]) / std[c] for c in range(C)])


def cut(image, side):
    _, H, W = image.shape
    return image[:, (H - side) // 2 :, (W - side) // 2 :][:, :side, :side]


def col(x):
    return torch.tensor(x).view(-1, 1, 1)


def see_turned(image, side, mean, std):
    _, H, W = image.shape
    top, left = (H - side) // 2, (W - side) // 2
    part = image[:, left : left + side, top : top + side]
    return (part - col(mean)) / col(std)


def see_in_place(image, side, mean, std):
    image -= col(mean)
    image /= col(std)
    return cut(image, side)


def see_stretched(image, side, mean, std):
    small = F.interpolate(image[None], size=(side, side), mode="bilinear", antialias=True)[0]
    return (small - col(mean)) / col(std)


def see_by_itself(image, side, mean, std):
    part = cut(image, side)
    return (part - part.mean((1, 2), keepdim=True)) / part.std((1, 2), keepdim=True)


SEE_WRONG = [
    (lambda x, s, m, d: (x[:, :s, :s] - col(m)) / col(d), "upper left corner"),
    (lambda x, s, m, d: cut(x, s), "does not normalise"),
    (lambda x, s, m, d: x[:, :s, :s], "cuts the corner"),
    (lambda x, s, m, d: (cut(x, s) - col(m)) * col(d), "multiplies by std"),
    (lambda x, s, m, d: cut(x, s) / col(d) - col(m), "divides before it subtracts"),
    (lambda x, s, m, d: (cut(x, s) + col(m)) / col(d), "adds the mean"),
    (lambda x, s, m, d: cut(x, s) - col(m), "leaves out std"),
    (lambda x, s, m, d: (cut(x, s) * 255 - col(m)) / col(d), "pixels of 255"),
    (see_by_itself, "own mean"),
    (lambda x, s, m, d: (cut(x, s) - m[0]) / d[0], "first channel's"),
    (lambda x, s, m, d: (cut(x, s) - torch.tensor(m)) / torch.tensor(d), "RuntimeError"),
    (lambda x, s, m, d: (x - col(m)) / col(d), "it should give (3, 4, 4)"),
    (lambda x, s, m, d: ((cut(x, s) - col(m)) / col(d))[None], "4 axes"),
    (lambda x, s, m, d: (cut(x, s).permute(1, 2, 0) - torch.tensor(m)) / torch.tensor(d), "it should give"),
    (see_in_place, "changes its input"),
    (see_turned, "measures from the height"),
    (see_stretched, "other numbers"),
    (lambda x, s, m, d: None, "gives nothing back"),
]  # fmt: skip

# probe


def probe_by_room(model, num_classes):
    return freeze(transfer_weights(model, num_classes=num_classes))


def probe_in_place(model, num_classes):
    model.requires_grad_(False)
    model.head = nn.Linear(model.head.in_features, num_classes)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    return model


def probe_by_copy(model, num_classes):
    new = copy.deepcopy(model)
    head = nn.Linear(64, num_classes)
    head.load_state_dict({"weight": torch.zeros(num_classes, 64), "bias": torch.zeros(num_classes)})
    new.head = head
    for name, parameter in new.named_parameters():
        parameter.requires_grad = name.startswith("head")
    return new


def with_head(model, num_classes, zero=True):
    model.head = nn.Linear(64, num_classes)
    if zero:
        nn.init.zeros_(model.head.weight)
        nn.init.zeros_(model.head.bias)
    return model


def probe_bias_random(model, num_classes):
    probe_in_place(model, num_classes)
    nn.init.normal_(model.head.bias)
    return model


def frozen_after(model, num_classes):
    return with_head(model, num_classes).requires_grad_(False)


def blocks_only(model, num_classes):
    for block in model.blocks:
        block.requires_grad_(False)
    return with_head(model, num_classes)


def forgets_the_old(model, num_classes):
    from dataclasses import replace

    from vit_helpers.vit import ViT

    return freeze(ViT(replace(model.config, num_classes=num_classes)))


def bias_frozen(model, num_classes):
    probe_in_place(model, num_classes)
    model.head.bias.requires_grad_(False)
    return model


def old_head(model, num_classes):
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    return freeze(model)


PROBE_WRONG = [
    (lambda m, K: freeze(with_head(m, K, zero=False)), "head of random numbers"),
    (probe_bias_random, "head's bias"),
    (with_head, "lets the whole model learn"),
    (frozen_after, "freezes everything"),
    (blocks_only, "parameters of the body learn"),
    (forgets_the_old, "other features"),
    (bias_frozen, "the head has weight and bias"),
    (old_head, "still has the 10 classes"),
    (lambda m, K: with_head(m, K).head, "head alone"),
    (lambda m, K: None, "gives nothing back"),
    (lambda m, K: "model", "it should give a model"),
    (lambda m, K: nn.Sequential(freeze(transfer_weights(m, num_classes=K))), "another kind of model"),
]

# lora


def lora_by_linear(x, W, b, A, B, scale):
    return F.linear(x, W, b) + scale * F.linear(F.linear(x, A), B)


def lora_merged(x, W, b, A, B, scale):
    return F.linear(x, W + scale * B @ A, b)


LORA_WRONG = [
    (lambda x, W, b, A, B, s: x @ W.T + s * x @ A.T @ B.T, "forgets the bias"),
    (lambda x, W, b, A, B, s: x @ W.T + b, "leaves the thin product out"),
    (lambda x, W, b, A, B, s: x @ W.T + b + x @ A.T @ B.T, "forgets the scale"),
    (lambda x, W, b, A, B, s: s * (x @ W.T + b + x @ A.T @ B.T), "scales all of it"),
    (lambda x, W, b, A, B, s: x @ W.T + b + x @ A.T @ B.T / s, "divides by the scale"),
    (lambda x, W, b, A, B, s: s * x @ A.T @ B.T, "leaves the frozen map out"),
    (lambda x, W, b, A, B, s: x @ W.T + b - s * x @ A.T @ B.T, "subtracts"),
    (lambda x, W, b, A, B, s: x @ W.T + s * (b + x @ A.T @ B.T), "scales the bias too"),
    (lambda x, W, b, A, B, s: F.linear(x, W, b) + s * F.linear(F.linear(x, A), B).detach(), "no gradient"),
    (lambda x, W, b, A, B, s: F.linear(x, W, b) + s * F.linear(F.linear(x, A).detach(), B), "gradient"),
    (lambda x, W, b, A, B, s: x @ W + b + s * x @ A.T @ B.T, "RuntimeError"),
    (lambda x, W, b, A, B, s: x @ W.T + b + s * x @ B.T @ A.T, "RuntimeError"),
    (lambda x, W, b, A, B, s: F.linear(x, W, b) + s * F.linear(F.linear(x, A).relu(), B), "other numbers"),
    (lambda x, W, b, A, B, s: None, "gives nothing back"),
]  # fmt: skip

# rates


def rates_by_loop(lr, decay, depth):
    rates = [lr]
    for _ in range(depth + 1):
        rates.insert(0, rates[0] * decay)
    return rates


RATES_RIGHT = [
    rates_by_loop,
    lambda lr, decay, L: [lr * decay ** (L + 1 - i) for i in range(L + 2)],
    lambda lr, decay, L: lr * decay ** np.arange(L + 1, -1, -1),
    lambda lr, decay, L: lr * decay ** torch.arange(L + 1, -1, -1),
]
RATES_WRONG = [
    (lambda lr, decay, L: [lr * decay**i for i in range(L + 2)], "wrong way"),
    (lambda lr, decay, L: [lr * decay ** (L + 2 - i) for i in range(L + 2)], "decays the head too"),
    (lambda lr, decay, L: [lr * decay ** (L - i) for i in range(L + 1)] + [lr], "one layer short"),
    (lambda lr, decay, L: [lr * decay ** (L - i) for i in range(L)], "for each block alone"),
    (lambda lr, decay, L: [lr * decay ** (L - i) for i in range(L + 1)], "gives 4 rates"),
    (lambda lr, decay, L: [lr * decay ** (L - i) for i in range(L + 2)], "more than lr"),
    (lambda lr, decay, L: [lr] * (L + 2), "all the same rate"),
    (lambda lr, decay, L: [lr * decay] * (L + 1) + [lr], "once for all"),
    (lambda lr, decay, L: [lr * (1 - (1 - decay) * (L + 1 - i)) for i in range(L + 2)], "equal steps"),
    (lambda lr, decay, L: [decay ** (L + 1 - i) for i in range(L + 2)], "leaves lr out"),
    (lambda lr, decay, L: lr * decay**L, "one number|5 learning rates"),
    (lambda lr, decay, L: None, "gives nothing back"),
]

# masked loss


def masked_by_gather(painted, patches, hidden):
    wanted = patches.gather(1, hidden[:, :, None].expand(-1, -1, patches.shape[2]))
    return F.mse_loss(painted, wanted)


def masked_by_index(painted, patches, hidden):
    return ((painted - patches[torch.arange(len(patches))[:, None], hidden]) ** 2).mean()


def masked_by_loop(painted, patches, hidden):
    return torch.stack([((p - x[h]) ** 2).mean() for p, x, h in zip(painted, patches, hidden, strict=True)]).mean()


def masked_by_take(painted, patches, hidden):
    return (painted - torch.take_along_dim(patches, hidden[..., None], dim=1)).pow(2).mean()


def g(patches, hidden):
    return patches.gather(1, hidden[:, :, None].expand(-1, -1, patches.shape[2]))


def whole_canvas(painted, patches, hidden):
    canvas = patches.scatter(1, hidden[:, :, None].expand(-1, -1, patches.shape[2]), painted)
    return F.mse_loss(canvas, patches)


MASKED_WRONG = [
    (lambda p, x, h: F.mse_loss(p, x[:, : h.shape[1]]), "first patches"),
    (lambda p, x, h: F.mse_loss(p, x[:, h[0]]), "first image's list"),
    (lambda p, x, h: F.mse_loss(p, g(x, h.sort(dim=1).values)), "order of the image"),
    (whole_canvas, "divides by all patches"),
    (lambda p, x, h: (p - x.gather(1, h[:, :, None])).square().mean(), "one pixel of each patch"),
    (lambda p, x, h: (p - x[:, h]).square().mean(), "every image's list for every image"),
    (lambda p, x, h: (p - g(x, h)).square().sum() / (h.shape[1] * x.shape[2]), "patches of one image"),
    (lambda p, x, h: F.mse_loss(p, g(x, h), reduction="sum"), "the sum, not the mean"),
    (lambda p, x, h: F.mse_loss(p, g(x, h)).sqrt(), "takes the root"),
    (lambda p, x, h: F.l1_loss(p, g(x, h)), "absolute"),
    (lambda p, x, h: (p - g(x, h)).mean(), "cancel"),
    (lambda p, x, h: F.mse_loss(p, g(x, h)) / 2, "halves"),
    (lambda p, x, h: (p - g(x, h)).square().sum(dim=2).mean(), "over the pixels of a patch"),
    (lambda p, x, h: F.mse_loss(p, g(x, h)).item(), "leave .item() out"),
    (lambda p, x, h: F.mse_loss(p.detach(), g(x, h)), "no gradient"),
    (lambda p, x, h: (p - g(x, h)).square(), "it should give a number"),
    (lambda p, x, h: ((p - x) ** 2).mean(), "RuntimeError"),
    (lambda p, x, h: None, "gives nothing back"),
]  # fmt: skip

RIGHT = (
    [(check_kernel, answer) for answer in KERNEL_RIGHT]
    + [(check_see, answer) for answer in (see_by_slices, see_by_torchvision, see_by_loop)]
    + [(check_probe, answer) for answer in (probe_by_room, probe_in_place, probe_by_copy)]
    + [(check_lora, answer) for answer in (lora_by_linear, lora_merged)]
    + [(check_rates, answer) for answer in RATES_RIGHT]
    + [(check_masked_loss, a) for a in (masked_by_gather, masked_by_index, masked_by_loop, masked_by_take)]
)
WRONG = (
    [(check_kernel, *pair) for pair in KERNEL_WRONG]
    + [(check_see, *pair) for pair in SEE_WRONG]
    + [(check_probe, *pair) for pair in PROBE_WRONG]
    + [(check_lora, *pair) for pair in LORA_WRONG]
    + [(check_rates, *pair) for pair in RATES_WRONG]
    + [(check_masked_loss, *pair) for pair in MASKED_WRONG]
)
CHECKS = (check_kernel, check_see, check_probe, check_lora, check_rates, check_masked_loss)


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(line.startswith("[v]") for line in lines)


@pytest.mark.parametrize(("check", "answer", "says"), WRONG)
def test_wrong_answers_are_told_what_slipped(check, answer, says, capsys):
    assert check(answer) is False
    *before, last = capsys.readouterr().out.splitlines()
    assert last.startswith("[x]") and any(part in last for part in says.split("|")), last
    assert all(line.startswith("[v]") for line in before)


@pytest.mark.parametrize("check", CHECKS)
def test_not_written_yet(check, capsys):
    assert check(not_written) is False
    assert capsys.readouterr().out.endswith("not written yet\n")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("thing", [None, 3, "text", torch.ones(2)])
def test_what_is_no_function_is_refused(check, thing, capsys):
    assert check(thing) is False and "without brackets" in capsys.readouterr().out
