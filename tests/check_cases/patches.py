"""Answers to the exercises of notebook 01."""

import math
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from check_cases import each, written
from vit_helpers.checks.patches import PLACES
from vit_helpers.patches import grid_size, patchify

# num_patches


def counted(H, W, P):
    if H % P or W % P:
        raise ValueError("pixels are left over")
    return (H // P) * (W // P)


def guarded(rule):
    """A count that raises as it should."""

    def answer(H, W, P):
        counted(H, W, P)
        return rule(H, W, P)

    return answer


def only_rows(H, W, P):
    if H % P:
        raise ValueError
    return (H // P) * (W // P)


def asserts(H, W, P):
    assert H % P == 0 and W % P == 0
    return (H // P) * (W // P)


def refuses_what_fits(H, W, P):
    if H % P == 0 or W % P == 0:
        raise ValueError("too long")
    return (H // P) * (W // P)


NUM_RIGHT = [
    counted,
    guarded(lambda H, W, P: H * W // P**2),
    guarded(
        lambda height, width, patch, verbose=False: (
            len(range(0, height, patch)) * len(range(0, width, patch))
        )
    ),
    guarded(lambda H, W, P: H / P * W / P),
    guarded(lambda H, W, P: np.int64(len(range(0, H, P)) * len(range(0, W, P)))),
    guarded(lambda H, W, P: torch.tensor(H * W // P // P)),
    lambda H, W, P: math.prod(grid_size((H, W), P)),
]
NUM_WRONG = each(guarded, written("H, W, P", globals(), {
    "where is W?": "len(range(0, H, P)) ** 2",
    "where is H?": "len(range(0, W, P)) ** 2", "so multiply": "(H + W) // P",
    "that is one column of patches": "len(range(0, H, P))",
    "that is one row of patches": "len(range(0, W, P))",
    "divide by P twice": "H * W / P",
    "counts pixels, not patches": "math.prod((H, W))", "pixels of one patch": "P**2",
    "counts the class token": "H * W // P**2 + 1",
    "not 2 x P": "H * W // P // 2", "the same for every size": "196",
    "one whole number": ["(H // P, W // P)", "complex(H // P * (W // P))"], "gives '24'": '"24"',
    "N is the number of rows of patches times": "{(224, 224): 196}.get((H, W), 0)",
    "one row and one column too many": "(len(range(0, H, P)) + 1) * (1 + len(range(0, W, P)))",
})) | {
    "raise a ValueError": lambda H, W, P: (H // P) * (W // P),
    ". Did you check both H and W?": only_rows,
    "raises AssertionError": asserts,
    "raises ValueError: too long, for 224 x 224 pixels and P = 16": refuses_what_fits,
}  # fmt: skip

# patchify


def loop(images, P):
    _, _, H, W = images.shape
    if H % P or W % P:
        raise ValueError("left over")
    places = [(y, x) for y in range(0, H, P) for x in range(0, W, P)]
    return torch.stack(
        [
            torch.stack([image[:, y : y + P, x : x + P].flatten() for y, x in places])
            for image in images
        ]
    )


def by_hand(x, P, channels=None):
    B, C, H, W = x.shape
    x = x.reshape(B, channels or C, H // P, P, W // P, P).permute(0, 2, 4, 1, 3, 5)
    return x.flatten(3).flatten(1, 2)


def strict(function):
    """Raises where pixels would be left over."""

    def answer(x, P):
        if x.shape[2] % P or x.shape[3] % P:
            raise ValueError("left over")
        return function(x, P)

    return answer


def one_hot(x, P):
    """A convolution whose filters each pick one pixel."""
    length = x.shape[1] * P * P
    weight = torch.eye(length, dtype=x.dtype, device=x.device).reshape(length, x.shape[1], P, P)
    return F.conv2d(x, weight, stride=P).flatten(2).transpose(1, 2)


def slow(x, P):
    """Pixel by pixel into zeros."""
    B, C, H, W = x.shape
    out = x.new_zeros(B, H // P * (W // P), C * P * P)
    for c in range(C):
        for y in range(H):
            for z in range(W):
                out[:, y // P * (W // P) + z // P, c * P * P + y % P * P + z % P] = x[:, c, y, z]
    return out


def steps(images, patch_size=16, *, loud=False):
    x = images.unfold(2, patch_size, patch_size).unfold(
        3, patch_size, patch_size
    )  # (B, C, rows, cols, P, P)
    return x.permute(0, 2, 3, 1, 4, 5).reshape(len(images), -1, images.shape[1] * patch_size**2)


def einops(to, wide=False):
    """Patches by einops; wide: rows counted along W."""
    axes = "b c (s p) (r q)" if wide else "b c (r p) (s q)"
    return lambda x, P: rearrange(x, f"{axes} -> {to}", p=P, q=P)


def square_only(x, P):
    """einops, rows and columns of the grid exchanged"""
    return rearrange(
        x.reshape(len(x), x.shape[1], -1),
        "b c (s p r q) -> b (s r) (c p q)",
        p=P,
        q=P,
        s=x.shape[3] // P,
    )


def square_sides(x, P):
    """As published with MAE: the grid has as many rows as columns."""
    rows = cols = x.shape[2] // P
    x = x.reshape(len(x), x.shape[1], rows, P, cols, P)
    return torch.einsum("nchpwq->nhwcpq", x).reshape(len(x), rows * cols, -1)


def only_squares(x, P):
    assert x.shape[2] == x.shape[3]
    return by_hand(x, P)


def count(x, P):
    return x.shape[2] // P * (x.shape[3] // P)


CUT_RIGHT = [
    loop,
    by_hand,
    einops("b (r s) (c p q)"),
    strict(lambda img, p, norm=None: F.unfold(img, p, stride=p).transpose(1, 2)),
    strict(one_hot),
    strict(slow),
    strict(steps),
    strict(
        lambda x, P: torch.cat(
            [torch.stack([q.flatten(1) for q in r.split(P, 3)], 1) for r in x.split(P, 2)], 1
        )
    ),
]
CUT_WRONG = each(einops, {
    "the patches run from top": "b (s r) (c p q)", "the channels come last": "b (r s) (p q c)",
    "inside a patch the channel comes": "b (r s) (p c q)",
    "inside a patch the pixels": "b (r s) (c q p)",
    "should be one axis of N patches": "b r s (c p q)", "a last reshape is missing": "b r s c p q",
    "a last permute and reshape are missing": "b c r p s q",
    "flattened to a row of numbers": "b (r s) c p q",
    "flattened to a row of numbers, channel by channel": "b (r s) p q c",
    "the images of the batch were merged, but the first axis must stay B": "(b r s) (c p q)",
    "every channel became separate patches, but": "b (c r s) (p q)",
    "every channel became separate patches, (B": "b c (r s) (p q)",
    "B and N are swapped": "(r s) b (c p q)",
}) | written("x, P", globals(), {
    "Did you permute before the last reshape?":
        "x.contiguous().view(len(x), -1, x.shape[1] * P * P)",
    "pixels that are far apart": 'rearrange(x, "b c (p r) (q s) -> b (r s) (c p q)", p=P, q=P)',
    "use transpose(1, 2)": "F.unfold(x, P, stride=P).reshape(len(x), count(x, P), -1)",
    "are not (C, P, P)": 'einops("b c r s p q")(x, P).reshape(len(x), count(x, P), -1)',
    "must become neighbors": 'einops("b r c p s q")(x, P).reshape(len(x), count(x, P), -1)',
    "the permute is the one that puts patches back":
        'einops("b p c s r q")(x, P).reshape(len(x), count(x, P), -1)',
    "(view cannot merge axes that a transpose or permute has moved.":
        'einops("b r s c p q")(x, P).transpose(3, 4).view(len(x), count(x, P), -1)',
    "mirrored": "by_hand(torch.fliplr(x.movedim(3, 1)).movedim(1, 3), P)",
    "the channels come in reverse order":
        "torch.cat([by_hand(c, P) for c in x.split(1, 1)[::-1]], 2)",
    "the patches come in reverse order": "torch.stack(by_hand(x, P).unbind(1)[::-1], 1)",
    "transpose them": "F.unfold(x, P, stride=P)",
    "the first axis must stay B, not 1": 'einops("(b r s) (c p q)")(x, P).unsqueeze(0)',
    "the batch axis is missing": "by_hand(x, P).unbind(0)[0]",
    "only one image of the batch was cut": "by_hand(x, P).narrow(0, 0, 1)",
    "channels are missing": "by_hand(x.mean(1, keepdim=True), P)",
    "only one patch": "x[:, :, :P, :P].flatten(1)",
    "raise an error if P does not divide": [
        "F.unfold(x, P, stride=P).transpose(1, 2)",
        "F.unfold(F.pad(x, (0, -x.shape[3] % P, 0, -x.shape[2] % P)), P, stride=P).mT",
        "torch.stack([c.flatten(1) for r in x.split(P, 2) for c in r.split(P, 3)], 1)",
    ],
    "(permute needs one number for every axis of its input), for images of shape (2, 3, 8, 8) and":
        "x.reshape(*x.shape[:2], -1, P, x.shape[3] // P, P).permute(0, 2, 4, 3, 5)",
    "images mix":
        [
            "by_hand(x, P)[:1].expand(len(x), -1, -1)",
            "by_hand(x, P).mean(0, keepdim=True).expand(len(x), -1, -1)",
        ],
    "some numbers are lost, duplicated or changed": "by_hand(x, P) - 0.5",
    "in the wrong places": "by_hand(x, P).sort(2).values",
    "it should give a tensor": "by_hand(x, P).detach().numpy()",
    "it should give one tensor": "list(by_hand(x, P))",
    "the wrong gradient": "torch.cat([by_hand(x, P)[:, :1].detach(), by_hand(x, P)[:, 1:]], 1)",
    "without nn.Parameter": "nn.Parameter(by_hand(x, P))",
    "(this writes in place where a gradient is needed": "by_hand(x.div_(1), P)",
    "StopIteration (next() found nothing left)": "next(iter(()))",
    "is one a fixed number in your code?": "by_hand(x, P, channels=3)",
    "gives shape (2, 6, 48)": "torch.zeros(2, 6, 48)",
}) | {
    "right for square images only": square_only,
    "right shape for square images, but for images of shape (2, 3, 8, 12) and P = 4 it raises "
    "AssertionError. The grid has H / P rows": only_squares,
    "it raises RuntimeError: shape '[2, 3, 2, 4, 2, 4]' is invalid for input of size 576. The grid":
        square_sides,
}  # fmt: skip

# unpatchify


def back(p, P, size):
    (H, W), C = size, p.shape[2] // P**2
    return (
        p.reshape(len(p), H // P, W // P, C, P, P)
        .permute(0, 3, 1, 4, 2, 5)
        .reshape(len(p), C, H, W)
    )


def back_loop(p, P, size):
    (H, W), C = size, p.shape[2] // P**2
    out = p.new_zeros(len(p), C, H, W)
    for n in range(p.shape[1]):
        y, x = divmod(n, W // P)
        out[:, :, y * P : (y + 1) * P, x * P : (x + 1) * P] = p[:, n].reshape(len(p), C, P, P)
    return out


def back_einops(tokens, p, hw, check=True):
    return rearrange(tokens, "b (r s) (c p q) -> b c (r p) (s q)", r=hw[0] // p, p=p, q=p)


def back_square(p, P, size):
    """As published with MAE."""
    h = w = int(p.shape[1] ** 0.5)
    assert h * w == p.shape[1]
    x = torch.einsum("nhwcpq->nchpwq", p.reshape(len(p), h, w, -1, P, P))
    return x.reshape(len(p), -1, h * P, w * P)


def by_einops(axes, to="b c (r p) (s q)", rows=0):
    """Wrong images by einops, as rows of numbers in the right shape."""

    def answer(p, P, s):
        return rearrange(p, f"{axes} -> {to}", r=s[rows] // P, p=P, q=P).reshape(len(p), -1, *s)

    return answer


BACK_RIGHT = [
    back,
    back_loop,
    back_einops,
    lambda p, P, s: F.fold(p.transpose(1, 2), s, P, stride=P),
]
BACK_WRONG = written("p, P, s", globals(), {
    "one after another as rows of pixels": "p.flatten(1).unflatten(1, (-1, *s))",
    "use transpose(1, 2)": "F.fold(p.reshape(len(p), p.shape[2], -1), s, P, stride=P)",
    "the channels come second": "back(p, P, s).permute(0, 2, 3, 1)",
    "the batch axis is missing": "back(p, P, s).unbind(0)[0]",
    "only one image of the batch is": "back(p, P, s).narrow(0, 0, 1)",
    "a last reshape is missing":
        'rearrange(p, "b (r s) (c p q) -> b c r p s q", r=s[0] // P, p=P, q=P)',
    "the channel axis is missing": "back(p, P, s).sum(1)",
    "channels are missing; C is": "back(p[..., : P * P], P, s)",
    "H and W are swapped: the images are (B, C, H, W)": "back(p, P, s).transpose(2, 3)",
    "all the numbers are there, but in the wrong places": "back(p, P, s).flip(2)",
    "lost, duplicated or changed": "back(p, P, s).clamp(max=0.5)",
    "is one a fixed number in your code?":
        "p.reshape(len(p), s[0] // P, s[1] // P, 3, P, P).permute(0, 3, 1, 4, 2, "
        "5).reshape(len(p), 3, *s)",
    "images mix": "back(p.roll(1, 0), P, s)",
    "transpose the patches first": "F.fold(p, s, P, stride=P)",
    "image_size is a pair, (H, W)": "back(p, P, (s, s))",
    ", for patches of images of shape (2, 3, 4, 4) and P = 4":
        "p.reshape(len(p), s[0] // P, s[1] // P, p.shape[2] // (2 * P), P, P)"
        ".permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)",
}) | {
    "top to bottom": by_einops("b (s r) (c p q)"),
    "as if they came last": by_einops("b (r s) (p q c)"),
    "is transposed: ": by_einops("b (r s) (c q p)"),
    "the grid's axis must come before": by_einops("b (r s) (c p q)", "b c (p r) (q s)"),
    "right for square images only": by_einops("b (r s) (c p q)", rows=1),
    "do not alternate": by_einops("b (r s) (c p q)", "b c (r s) (p q)"),
    "the permute is the one that cuts patches": by_einops("b (r s) (c p q)", "b s p r c q"),
    "but for patches of images of shape (2, 3, 8, 12) and P = 4 it raises AssertionError. The grid":
        back_square,
}  # fmt: skip

# to_linear


def fresh(conv, bias=True):
    return nn.Linear(conv.weight[0].numel(), conv.out_channels, bias=bias, dtype=conv.weight.dtype)


def carried(conv, copy=lambda w: w.flatten(1), **style):
    linear = fresh(conv, bias=conv.bias is not None)
    with torch.no_grad():
        linear.weight.copy_(copy(conv.weight))
        if conv.bias is not None:
            linear.bias.copy_(conv.bias)
    return linear


def by_state(conv):
    linear = fresh(conv, bias=conv.bias is not None)
    linear.load_state_dict(
        {k: v.reshape(len(v), -1) if k == "weight" else v for k, v in conv.state_dict().items()}
    )
    return linear


def by_parameter(conv):
    linear = nn.Linear(1, 1)
    linear.weight = nn.Parameter(rearrange(conv.weight.detach(), "d c p q -> d (c p q)").clone())
    linear.bias = None if conv.bias is None else nn.Parameter(conv.bias.detach().clone())
    return linear


def zero_bias(conv):
    linear = fresh(conv)
    linear.weight.data = conv.weight.data.flatten(1).clone()
    linear.bias.data = (
        torch.zeros_like(linear.bias) if conv.bias is None else conv.bias.data.clone()
    )
    return linear


def by_deepcopy(conv):
    conv = deepcopy(conv)
    linear = nn.Linear(1, 1, bias=conv.bias is not None)
    linear.weight, linear.bias = nn.Parameter(conv.weight.flatten(1)), conv.bias
    return linear


def changed(change):
    """The right Linear, changed afterwards; what the change gives takes its place."""

    def answer(conv):
        linear = carried(conv)
        return change(linear, conv) or linear

    return answer


def set_weight(weight):
    return changed(lambda linear, conv: setattr(linear, "weight", nn.Parameter(weight(conv))))


def tie(linear, conv):
    del linear.weight
    linear.weight = conv.weight.flatten(1)


def set_bias(bias):
    return changed(
        lambda linear, conv: linear.bias is not None and setattr(linear, "bias", bias(linear, conv))
    )


def without_no_grad(conv):
    linear = fresh(conv)
    linear.weight.copy_(conv.weight.flatten(1))
    return linear


def always_bias(conv):
    linear = fresh(conv)
    linear.weight.data = conv.weight.data.flatten(1)
    if conv.bias is not None:
        linear.bias.data = conv.bias.data
    return linear


LINEAR_RIGHT = [
    carried,
    by_state,
    by_parameter,
    zero_bias,
    by_deepcopy,
    lambda conv: carried(conv).eval(),
]
LINEAR_WRONG = written("conv", globals(), {
    "flatten(1) is enough": 'carried(conv, lambda w: rearrange(w, "d c p q -> d (p q c)"))',
    "y and x are swapped": 'carried(conv, lambda w: rearrange(w, "d c p q -> d (c q p)"))',
    "a reshape is used to transpose": "carried(conv, lambda w: w.flatten(1).T.reshape(len(w), -1))",
    "mirrored": "carried(conv, lambda w: torch.rot90(w, 2, (2, 3)).flatten(1))",
    "come in another order": "carried(conv, lambda w: torch.cat(w.flatten(1).split(1)[::-1]))",
    "filter i must become row i": "carried(conv, lambda w: w.reshape(-1, len(w)).T)",
    "are not the convolution's filters": "carried(conv, lambda w: w.flatten(1) / 2)",
    "frozen": "carried(conv).requires_grad_(False)",
    "freezes the convolution": "carried(conv.requires_grad_(False))",
    "loses digits": "carried(conv).float().to(conv.weight.dtype)", "should be an nn.Linear": "conv",
    "should be a whole nn.Linear": "conv.weight.flatten(1)",
}) | each(set_bias, written("linear, conv", globals(), {
    "the bias is missing": "None", "copy it too": "nn.Parameter(linear.bias.detach() * 0)",
    "its bias shares the convolution's memory": "conv.bias",
})) | each(set_weight, written("conv", globals(), {
    "torch's Linear stores (out, in), so it should be": "conv.weight.detach().flatten(1).t()",
    "the convolution's own weight": "conv.weight.detach().clone()",
    "its weight shares the convolution's memory, so training one would silently change the other":
        "conv.weight.flatten(1)",
})) | {
    "random weights of its own": fresh,
    "create it with bias=False": always_bias,
    "its weight is frozen":
        changed(lambda linear, conv: linear.weight.requires_grad_(False) is None),
    "changes the numbers of the convolution":
        [
            changed(lambda linear, conv: nn.init.zeros_(conv.weight) is None),
            lambda conv: carried(conv.double()),
        ],
    "its weight is not a parameter": changed(tie),
    "has numbers of torch.float32":
        [
            set_bias(lambda linear, conv: nn.Parameter(linear.bias.detach().float())),
            lambda conv: carried(conv).float(),
        ],
    "write into weights under torch.no_grad()": without_no_grad,
}  # fmt: skip

# the planted mistake


def cut(function):
    """(B, N, C*P*P) -> (B, N, C, P, P)"""
    return lambda x, P: function(x, P).unflatten(2, (x.shape[1], P, P))


FIX_RIGHT = [
    cut(by_hand),
    cut(loop),
    cut(patchify),
    lambda images, patch, extra=1: rearrange(
        images, "b c (r p) (s q) -> b (r s) c p q", p=patch, q=patch
    ),
    lambda x, P: x.unfold(2, P, P).unfold(3, P, P).flatten(2, 3).transpose(1, 2),
]
FIX_WRONG = {
    says: cut(wrong)
    for says, wrong in CUT_WRONG.items()
    if any(says in message for message in PLACES)
} | {
    "still the planted mistake": cut(square_only),
    "here the patches remain small images": by_hand,
    "in the wrong places": cut(lambda x, P: by_hand(x, P).roll(1, 1)),
    "it should give": lambda x, P: rearrange(x, "b c (r p) (s q) -> b (r s) p q c", p=P, q=P),
    "raises RuntimeError": lambda x, P: x.reshape(7),
    "The grid has H / P rows and W / P columns": cut(only_squares),
}

RIGHT = {
    "num_patches": NUM_RIGHT,
    "patchify": CUT_RIGHT,
    "unpatchify": BACK_RIGHT,
    "to_linear": LINEAR_RIGHT,
    "fixed": FIX_RIGHT,
}
WRONG = {
    "num_patches": NUM_WRONG,
    "patchify": CUT_WRONG,
    "unpatchify": BACK_WRONG,
    "to_linear": LINEAR_WRONG,
    "fixed": FIX_WRONG,
}
