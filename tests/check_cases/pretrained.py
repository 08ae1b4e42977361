"""Answers to the exercises of notebook 09."""

import copy
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn
from torchvision.transforms import functional as TF

from vit_helpers.pretrained.finetune import freeze, transfer_weights
from vit_helpers.vit import ViT

# kernel_of


def kernel_by_loop(kernel):
    P, _, C, D = kernel.shape
    weight = torch.empty(D, C * P * P)
    for d in range(D):
        weight[d] = torch.stack([kernel[:, :, c, d] for c in range(C)]).flatten()
    return weight


def kernel(order="d (c i j)"):
    return lambda k: rearrange(k, f"i j c d -> {order}")


KERNEL_RIGHT = [
    kernel(),
    kernel_by_loop,
    lambda k: k.permute(2, 0, 1, 3).reshape(-1, k.shape[3]).T,
    lambda k: torch.einsum("ijcd->dcij", k).reshape(k.shape[3], -1),
    lambda k: torch.tensor(np.transpose(k.numpy(), (3, 2, 0, 1))).reshape(k.shape[3], -1),
]
KERNEL_WRONG = {
    "without moving axes": lambda k: k.view(k.shape[-1], -1),
    "pixel by pixel": [kernel("d (i j c)"), lambda k: k.reshape(-1, k.shape[3]).T],
    "columns for rows": kernel("d (c j i)"),
    "it should give": [lambda k: k.mT.transpose(0, 1).flatten(1), lambda k: k.sum()],
    "flatten each filter": kernel("d c i j"),
    "outputs come first": kernel("(c i j) d"),
    "other numbers than the kernel's": lambda k: kernel()(k) * 2,
    "another order": lambda k: kernel()(k).flip(0),
    "gives torch.float16": lambda k: kernel()(k).half(),
    "gives torch.float64": lambda k: kernel()(k).double(),
    "AttributeError": lambda k: k.nothing,
}

# see


def cut(image, side):
    _, H, W = image.shape
    return image[:, (H - side) // 2 :, (W - side) // 2 :][:, :side, :side]


def col(x):
    return torch.tensor(x).view(-1, 1, 1)


def see_by_slices(image, side, mean, std):
    return (cut(image, side) - col(mean)) / col(std)


def see_by_loop(image, side, mean, std):
    return torch.stack([(x - m) / s for x, m, s in zip(cut(image, side), mean, std, strict=True)])


def see_turned(image, side, mean, std):
    (left, top), (m, s) = ((n - side >> 1 for n in image.shape[1:]), (mean, std))
    return (image[:, top : top + side, left : left + side] - col(m)) / col(s)


def see_in_place(image, side, mean, std):
    return cut(image.sub_(col(mean)).div_(col(std)), side)


def see_stretched(image, side, mean, std):
    return TF.normalize(F.interpolate(image[None], size=(side, side), mode="bilinear", antialias=True)[0], mean, std)


def see_by_itself(image, side, mean, std, of=cut):
    numbers = of(image, side)
    return (cut(image, side) - numbers.mean((1, 2), keepdim=True)) / numbers.std((1, 2), keepdim=True)


def of_cut(rule):
    return lambda x, side, m, s: rule(cut(x, side), col(m), col(s))


SEE_WRONG = {
    "upper left corner": lambda x, side, m, s: TF.normalize(x[:, :side, :side], m, s),
    "lower right corner": lambda x, side, m, s: TF.normalize(x[:, -side:, -side:], m, s),
    "does not normalize": lambda x, side, m, s: TF.center_crop(x, side),
    "cuts the corner": lambda x, side, m, s: x[:, :side, :side],
    "multiplies by std": of_cut(lambda x, m, s: (x - m) * s),
    "divides before it subtracts": of_cut(lambda x, m, s: x / s - m),
    "adds the mean": of_cut(lambda x, m, s: (x + m) / s),
    "takes std for mean": lambda x, side, m, s: see_by_slices(x, side, s, m),
    "leaves out std": of_cut(lambda x, m, s: x - m),
    "pixels of 255": of_cut(lambda x, m, s: (x * 255 - m) / s),
    "the square of std": of_cut(lambda x, m, s: (x - m) / s / s),
    "mirrors the image": lambda x, *given: see_by_slices(torch.stack(x.unbind(2)[::-1], 2), *given),
    "uses the image's own mean": see_by_itself,
    "the whole image's own mean": lambda *given: see_by_itself(*given, of=lambda image, side: image),
    "first channel's": lambda x, side, m, s: (cut(x, side) - m[0]) / s[0],
    "give them the shape (C, 1, 1)": lambda x, side, m, s: (cut(x, side) - torch.tensor(m)) / torch.tensor(s),
    "it should give (3, 4, 4)": [
        lambda x, side, m, s: (x - col(m)) / col(s),
        lambda x, side, m, s: (cut(x, side).permute(1, 2, 0) - torch.tensor(m)) / torch.tensor(s),
    ],
    "one image is (C, H, W)": lambda *given: torch.stack([see_by_loop(*given)]),
    "changes its input": see_in_place,
    "measures from the height": see_turned,
    "other numbers": see_stretched,
}

# probe


def zeros(*sizes):
    """A layer of zeros."""
    layer = nn.Linear(*sizes)
    layer.load_state_dict({name: torch.zeros_like(p) for name, p in layer.named_parameters()})
    return layer


def with_head(model, head):
    model.head = head
    return model


def probe_by_copy(model, num_classes):
    new = with_head(copy.deepcopy(model), zeros(64, num_classes))
    for name, parameter in new.named_parameters():
        parameter.requires_grad = name.startswith("head")
    return new


def probe_bias(change):
    """The right answer, and something done to the bias."""

    def answer(model, num_classes):
        new = probe_by_copy(model, num_classes)
        change(new.head.bias)
        return new

    return answer


def blocks_only(model, num_classes):
    for block in model.blocks:
        block.requires_grad_(False)
    return with_head(model, zeros(64, num_classes))


def old_head(model, num_classes):
    nn.init.zeros_(model.head.weight)
    return freeze(model)


PROBE_RIGHT = [
    lambda model, num_classes: freeze(transfer_weights(model, num_classes=num_classes)),
    lambda model, K: with_head(model.requires_grad_(False), zeros(model.head.in_features, K)),
    lambda model, K: with_head(model.requires_grad_(False), nn.Sequential(nn.Dropout(0.0), zeros(64, K))),
    probe_by_copy,
]
PROBE_WRONG = {
    "head of random numbers": lambda m, K: with_head(m.requires_grad_(False), nn.Linear(64, K)),
    "head's bias": probe_bias(nn.init.normal_),
    "lets the whole model learn": lambda m, K: with_head(m, zeros(64, K)),
    "freezes everything": lambda m, K: with_head(m, zeros(64, K)).requires_grad_(False),
    "parameters of the body learn": blocks_only,
    "other features": lambda m, K: freeze(ViT(replace(m.config, num_classes=K))),
    "the head has weight and bias": probe_bias(lambda bias: bias.requires_grad_(False)),
    "still has the 10 classes": old_head,
    "head alone": lambda m, K: with_head(m, zeros(64, K)).head,
    "it should give a model": lambda m, K: "model",
    "another kind of model": lambda m, K: nn.Sequential(freeze(transfer_weights(m, num_classes=K))),
}

# lora


def thin(x, A, B):
    return F.linear(F.linear(x, A), B)


def frozen_first(x, W, b, A, B, scale):
    with torch.no_grad():
        y = F.linear(x, W, b)
    return y + scale * thin(x, A, B)


LORA_RIGHT = [
    lambda x, W, b, A, B, scale: F.linear(x, W, b) + scale * thin(x, A, B),
    lambda x, W, b, A, B, scale: F.linear(x, W + scale * B @ A, b),
]
LORA_WRONG = {
    "forgets the bias for": lambda x, W, b, A, B, s: F.linear(x, W) + s * thin(x, A, B),
    "forgets the bias": lambda x, W, b, A, B, s: F.linear(x, W + s * B @ A),
    "forgets the bias, and": lambda x, W, b, A, B, s: F.linear(x, W),
    "leaves the thin product out": lambda x, W, b, A, B, s: F.linear(x, W, b),
    "forgets the scale": lambda x, W, b, A, B, s: F.linear(x, W + B @ A, b),
    "scales all of it": lambda x, W, b, A, B, s: s * F.linear(x, W + B @ A, b),
    "scales the matrix and not": lambda x, W, b, A, B, s: s * F.linear(x, W, b) + thin(x, A, B),
    "divides by the scale": lambda x, W, b, A, B, s: F.linear(x, W + B @ A / s, b),
    "leaves the frozen map out": lambda x, W, b, A, B, s: s * thin(x, A, B),
    "leaves W x out": lambda x, W, b, A, B, s: F.linear(x, s * B @ A, b),
    "adds the bias twice": lambda x, W, b, A, B, s: F.linear(x, W, b) + F.linear(x, s * B @ A, b),
    "subtracts": lambda x, W, b, A, B, s: F.linear(x, W - s * B @ A, b),
    "scales the bias too": lambda x, W, b, A, B, s: F.linear(x, W + s * B @ A, s * b),
    "no gradient": lambda x, W, b, A, B, s: (F.linear(x, W, b) + s * thin(x, A, B)).detach(),
    "gradient": [
        lambda x, W, b, A, B, s: F.linear(x, W, b) + s * thin(x, A, B).detach(),
        lambda x, W, b, A, B, s: F.linear(x, W, b) + s * F.linear(F.linear(x, A).detach(), B),
        lambda x, W, b, A, B, s: F.linear(x, W, b) + s * thin(x.detach(), A, B),
        frozen_first,
    ],
    "RuntimeError":
        [lambda x, W, b, A, B, s: x @ W + b + s * x @ A.T @ B.T, lambda x, W, b, A, B, s: x @ W.T + b + s * x @ B.T @ A.T],
    "other numbers": lambda x, W, b, A, B, s: F.linear(x, W, b) + s * F.linear(F.linear(x, A).relu(), B),
}  # fmt: skip

# rates


def rates_by_loop(lr, decay, depth):
    rates = [lr]
    for _ in range(depth + 1):
        rates.insert(0, rates[0] * decay)
    return rates


def rates_endless(lr, decay, depth):
    while True:
        yield lr


RATES_RIGHT = [
    rates_by_loop,
    lambda lr, decay, L: [lr * decay ** (L + 1 - i) for i in range(L + 2)],
    lambda lr, decay, L: lr * decay ** np.arange(L + 1, -1, -1),
    lambda lr, decay, L: lr * decay ** torch.arange(L + 1, -1, -1),
    lambda lr, decay, L: (lr * decay**n for n in reversed(range(L + 2))),
]
RATES_WRONG = {
    "wrong way": lambda lr, decay, L: rates_by_loop(lr, decay, L)[::-1],
    "decays the head too": lambda lr, decay, L: rates_by_loop(lr * decay, decay, L),
    "one layer short": lambda lr, decay, L: [*rates_by_loop(lr, decay, L)[1:], lr],
    "where it should multiply": lambda lr, decay, L: rates_by_loop(lr, 1 / decay, L),
    "more than lr": lambda lr, decay, L: rates_by_loop(lr / decay, decay, L),
    "equal steps": lambda lr, decay, L: [lr * (1 - (1 - decay) * (L + 1 - i)) for i in range(L + 2)],
    "all the same rate": lambda lr, decay, L: [lr] * (L + 2),
    "leaves lr out": lambda lr, decay, L: rates_by_loop(1, decay, L),
    "once for all": lambda lr, decay, L: [lr * decay] * (L + 1) + [lr],
    "for each block alone": lambda lr, decay, L: rates_by_loop(lr, decay, L)[1:-1],
    "gives 4 rates": lambda lr, decay, L: rates_by_loop(lr, decay, L)[1:],
    "gives 1000 rates": rates_endless,
    "not 0.125, 0.25, 0.5, 1": lambda lr, decay, L: np.sqrt(rates_by_loop(lr, decay, L)),
    "5 learning rates": lambda lr, decay, L: lr * decay**L,
    "gives one number": lambda lr, decay, L: torch.tensor(lr),
    "it should give a number": lambda lr, decay, L: ["slow", *rates_by_loop(lr, decay, L)[1:]],
}

# masked_loss


def g(patches, hidden):
    return patches.gather(1, hidden[:, :, None].expand(-1, -1, patches.shape[2]))


def by_loop(change=lambda difference, i, n: difference.square().mean() / n, wanted=lambda x, h, i: x[i, h[i]]):
    """One image after the other."""

    def answer(painted, patches, hidden):
        each = [change(p - wanted(patches, hidden, i), i, len(painted)) for i, p in enumerate(painted)]
        return torch.stack(each).sum()

    return answer


def on_canvas(p, x, h, canvas):
    canvas[torch.arange(len(x))[:, None], h] = p
    return F.mse_loss(canvas, x)


MASKED_RIGHT = [
    by_loop(),
    lambda p, x, h: F.mse_loss(p, g(x, h)),
    lambda p, x, h: ((p - x[torch.arange(len(x))[:, None], h]) ** 2).mean(),
    lambda p, x, h: (p - torch.take_along_dim(x, h[..., None], dim=1)).pow(2).mean(),
]
MASKED_WRONG = {
    "first patches": by_loop(wanted=lambda x, h, i: x[i, : h.shape[1]]),
    "first image's list": by_loop(wanted=lambda x, h, i: x[i, h[0]]),
    "order of the image": by_loop(wanted=lambda x, h, i: x[i, h[i].sort().values]),
    "divides by all patches": lambda p, x, h: on_canvas(p, x, h, x.clone()),
    "nobody painted them": lambda p, x, h: on_canvas(p, x, h, torch.zeros_like(x)),
    "one pixel of each patch": lambda p, x, h: F.mse_loss(p, x.gather(1, h.unsqueeze(2)).expand_as(p)),
    "every image's list for every image": lambda p, x, h: F.mse_loss(p.expand(len(p), *p.shape), x[:, h]),
    "patches of one image": by_loop(lambda difference, i, n: difference.square().mean()),
    "the sum, not the mean": by_loop(lambda difference, i, n: difference.square().sum()),
    "takes the root": lambda *given: by_loop()(*given).sqrt(),
    "absolute": by_loop(lambda difference, i, n: difference.abs().mean() / n),
    "cancel": by_loop(lambda difference, i, n: difference.mean() / n),
    "halves": by_loop(lambda difference, i, n: difference.square().mean() / n / 2),
    "over the pixels of a patch": by_loop(lambda difference, i, n: difference.square().sum(1).mean() / n),
    "over patches and pixels": by_loop(lambda difference, i, n: difference.square().sum() / n),
    "one of all": lambda p, x, h: by_loop()(p, x, h) / h.shape[1] * x.shape[1],
    "leave .item() out": lambda p, x, h: F.mse_loss(p, g(x, h)).item(),
    "no gradient": lambda p, x, h: F.mse_loss(p.detach(), g(x, h)),
    "it should give a number": lambda p, x, h: (p - g(x, h)).square(),
    "RuntimeError": lambda p, x, h: ((p - x) ** 2).mean(),
}
RIGHT = {
    "kernel_of": KERNEL_RIGHT,
    "see": [see_by_slices, lambda image, side, mean, std: TF.normalize(TF.center_crop(image, side), mean, std), see_by_loop],
    "probe": PROBE_RIGHT,
    "lora": LORA_RIGHT,
    "rates": RATES_RIGHT,
    "masked_loss": MASKED_RIGHT,
}
WRONG = {
    "kernel_of": KERNEL_WRONG,
    "see": SEE_WRONG,
    "probe": PROBE_WRONG,
    "lora": LORA_WRONG,
    "rates": RATES_WRONG,
    "masked_loss": MASKED_WRONG,
}
