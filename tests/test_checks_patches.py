"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from vit_helpers import patches as room
from vit_helpers.checks.patches import check_mended, check_num_patches, check_patchify, check_to_linear, check_unpatchify


def not_written(*arguments):
    raise NotImplementedError("your turn")


# num_patches


def counted(H, W, P):
    if H % P or W % P:
        raise ValueError("pixels are left over")
    return (H // P) * (W // P)


def guarded(rule):
    """A wrong count that raises as it should"""

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


NUM_RIGHT = [
    counted,
    guarded(lambda H, W, P: H * W // P**2),
    guarded(lambda height, width, patch, verbose=False: H_W(height, width, patch)),
    guarded(lambda H, W, P: H / P * W / P),
    guarded(lambda H, W, P: np.int64(len(range(0, H, P)) * len(range(0, W, P)))),
    guarded(lambda H, W, P: torch.tensor(H * W // P // P)),
    lambda H, W, P: math.prod(room.grid_size((H, W), P)),
]


def H_W(height, width, patch):  # noqa: N802
    return (height // patch) * (width // patch)


NUM_WRONG = [
    (not_written, "[ ] num_patches: not written yet"),
    (lambda H, W, P: (H // P) * (W // P), "raise ValueError"),
    (only_rows, "Did you look at both H and W?"),
    (asserts, "raises AssertionError"),
    (guarded(lambda H, W, P: (H // P) ** 2), "where is W?"),
    (guarded(lambda H, W, P: (W // P) ** 2), "where is H?"),
    (guarded(lambda H, W, P: H // P + W // P), "so multiply"),
    (guarded(lambda H, W, P: H * W // P), "divide by P twice"),
    (guarded(lambda H, W, P: H * W), "counts pixels, not patches"),
    (guarded(lambda H, W, P: P * P), "pixels of one patch"),
    (guarded(lambda H, W, P: (H // P) * (W // P) + 1), "counts the class token"),
    (guarded(lambda H, W, P: 196), "the same for every size"),
    (guarded(lambda H, W, P: None), "does it end with return?"),
    (guarded(lambda H, W, P: (H // P, W // P)), "one whole number"),
    (guarded(lambda H, W, P: "24"), "gives '24'"),
    (guarded(lambda H, W, P: complex(H // P * (W // P))), "one whole number"),
    (guarded(lambda H, W, P: {(224, 224): 196}.get((H, W), 0)), "count the rows, then the columns"),
    (196, "hand over the function"),
]

# patchify


def loop(images, P):
    B, _, H, W = images.shape
    if H % P or W % P:
        raise ValueError("left over")
    out = []
    for b in range(B):
        rows = [images[b, :, y : y + P, x : x + P].reshape(-1) for y in range(0, H, P) for x in range(0, W, P)]
        out.append(torch.stack(rows))
    return torch.stack(out)


def by_hand(x, P):
    B, C, H, W = x.shape
    x = x.reshape(B, C, H // P, P, W // P, P).permute(0, 2, 4, 1, 3, 5)
    return x.flatten(3).flatten(1, 2)


def strict(function):
    """Raises where pixels would be left over"""

    def answer(x, P):
        if x.shape[2] % P or x.shape[3] % P:
            raise ValueError("left over")
        return function(x, P)

    return answer


def one_hot(x, P):
    """A convolution whose filters each pick one pixel"""
    length = x.shape[1] * P * P
    weight = torch.eye(length, dtype=x.dtype, device=x.device).reshape(length, x.shape[1], P, P)
    return F.conv2d(x, weight, stride=P).flatten(2).transpose(1, 2)


def slow(x, P):
    """Pixel by pixel into zeros"""
    B, C, H, W = x.shape
    out = x.new_zeros(B, H // P * (W // P), C * P * P)
    for c in range(C):
        for y in range(H):
            for z in range(W):
                out[:, y // P * (W // P) + z // P, c * P * P + y % P * P + z % P] = x[:, c, y, z]
    return out


def steps(images, patch_size=16, *, loud=False):
    x = images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)  # (B, C, rows, cols, P, P)
    return x.permute(0, 2, 3, 1, 4, 5).reshape(len(images), -1, images.shape[1] * patch_size**2)


CUT_RIGHT = [
    room.patchify,
    loop,
    by_hand,
    lambda x, P: rearrange(x, "b c (r p) (s q) -> b (r s) (c p q)", p=P, q=P),
    strict(lambda img, p, norm=None: F.unfold(img, p, stride=p).transpose(1, 2)),
    strict(one_hot),
    strict(slow),
    strict(steps),
    strict(lambda x, P: torch.cat([torch.stack([q.flatten(1) for q in r.split(P, 3)], 1) for r in x.split(P, 2)], 1)),
]


def remember(x, P, seen={}):  # noqa: B006
    """Right at first; afterwards the picture it has seen before"""
    out = by_hand(x, P)
    return seen.setdefault(tuple(out.shape), out) if x.dtype == torch.float64 else out


def colour_only(x, P):
    x = x.reshape(len(x), 3, x.shape[2] // P, P, -1, P)
    return x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def first_kept(x, P, seen={}):  # noqa: B006
    """For every shape the patches of the first images that came"""
    return seen.setdefault((x.shape, P), by_hand(x, P))


def writes(x, P):
    out = by_hand(x, P).clone()
    x.zero_()
    return out


@torch.no_grad()
def no_grad(x, P):
    return by_hand(x, P)


def counter(x, P, calls=[]):  # noqa: B006
    calls.append(1)
    return by_hand(x, P) + len(calls) * 1e-7


def grids(x, P):
    B, C, H, W = x.shape
    return x.reshape(B, C, H // P, P, W // P, P)


def wide(x, P):
    B, C, H, W = x.shape
    return x.reshape(B, C, W // P, P, H // P, P).permute(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * P)


def far(x, P):
    B, C, H, W = x.shape
    return x.reshape(B, C, P, H // P, P, W // P).permute(0, 3, 5, 1, 2, 4).reshape(B, -1, C * P * P)


def count(x, P):
    return x.shape[2] // P * (x.shape[3] // P)


CUT_WRONG = [
    (not_written, "[ ] patchify: not written yet"),
    (lambda x, P: x.view(len(x), count(x, P), -1), "Did you permute before the last reshape?"),
    (lambda x, P: F.unfold(x, P, stride=P), "transpose them"),
    (lambda x, P: F.unfold(x, P, stride=P).reshape(len(x), count(x, P), -1), "use transpose(1, 2)"),
    (lambda x, P: F.unfold(x, P, stride=P).transpose(1, 2), "dropped without a word"),
    (
        lambda x, P: grids(x, P).permute(0, 4, 2, 1, 3, 5).flatten(3).flatten(1, 2),
        "top to bottom; they should run left to right",
    ),
    (lambda x, P: rearrange(x, "b c (r p) (s q) -> b (r s) (p q c)", p=P, q=P), "the channels come last"),
    (lambda x, P: rearrange(x, "b c (r p) (s q) -> b (r s) (p c q)", p=P, q=P), "the channel stands between"),
    (
        lambda x, P: rearrange(x, "b c (r p) (s q) -> b (r s) (c q p)", p=P, q=P),
        "inside a patch the pixels run top to bottom",
    ),
    (wide, "right on square images only"),
    (far, "pixels that lie far apart"),
    (lambda x, P: grids(x, P).permute(0, 2, 1, 3, 4, 5).reshape(len(x), count(x, P), -1), "must become neighbours"),
    (lambda x, P: grids(x, P).permute(0, 1, 2, 4, 3, 5).reshape(len(x), count(x, P), -1), "are not (C, P, P)"),
    (lambda x, P: by_hand(x.flip(3), P), "mirrored"),
    (lambda x, P: by_hand(x, P).flip(1), "from last to first"),
    (lambda x, P: by_hand(x, P).unflatten(1, (-1, x.shape[3] // P)), "should be one axis of N patches"),
    (lambda x, P: grids(x, P).permute(0, 2, 4, 1, 3, 5), "a last reshape is missing"),
    (lambda x, P: by_hand(x, P).flatten(0, 1), "images of the batch ran together"),
    (lambda x, P: by_hand(x, P)[0], "the batch axis is lost"),
    (lambda x, P: by_hand(x, P).unflatten(2, (-1, P, P)), "flattened to one row"),
    (lambda x, P: by_hand(x[:, :1], P), "the channels are lost"),
    (lambda x, P: rearrange(x, "b c (r p) (s q) -> b (c r s) (p q)", p=P, q=P), "every channel became patches of its own"),
    (lambda x, P: by_hand(x, P)[:1].expand(len(x), -1, -1), "alone and in a batch"),
    (lambda x, P: by_hand(x, P).mean(0, keepdim=True).expand(len(x), -1, -1), "must never mix"),
    (lambda x, P: by_hand(x, P) - 0.5, "should not; some are lost, doubled or changed"),
    (lambda x, P: by_hand(x, P).sort(2).values, "in wrong places"),
    (lambda x, P: by_hand(x, P).detach(), "no gradient flows back"),
    (no_grad, "no gradient flows back"),
    (lambda x, P: by_hand(x, P).float(), "the type of the numbers should stay"),
    (lambda x, P: by_hand(x, P).float().double(), "loses digits"),
    (lambda x, P: by_hand(x, P).detach().numpy(), "it should give a tensor"),
    (lambda x, P: torch.cat([by_hand(x, P)[:, :1].detach(), by_hand(x, P)[:, 1:]], 1), "another gradient"),
    (writes, "changes its input"),
    (counter, "loses digits"),
    (first_kept, "was the first one kept?"),
    (lambda x, P: by_hand(x, P).to(torch.complex64), "gives complex numbers"),
    (lambda x, P: nn.Parameter(by_hand(x, P)), "without nn.Parameter"),
    (lambda x, P: torch.from_numpy(by_hand(x, P).numpy()), "(numpy passes no gradient on"),
    (lambda x, P: by_hand(x.div_(1), P), "(that writes in place where a gradient is wanted"),
    (lambda x, P: by_hand(x.flip(1), P), "the channels come in reverse order"),
    (lambda x, P: next(iter(())), "StopIteration (next() found nothing left)"),
    (colour_only, "is one a fixed number in your code?"),
    (lambda x, P: torch.zeros(2, 6, 48), "gives shape (2, 6, 48)"),
    (lambda x, P: None, "does it end with return?"),
    (lambda x: x, "raises TypeError"),
    (torch.zeros(3), "got a tensor of shape (3,); hand over the function"),
]

# unpatchify


def back(p, P, size):
    B, _, length = p.shape
    H, W = size
    C = length // (P * P)
    return p.reshape(B, H // P, W // P, C, P, P).permute(0, 3, 1, 4, 2, 5).reshape(B, C, H, W)


def back_loop(p, P, size):
    (H, W), C = size, p.shape[2] // P**2
    out = p.new_zeros(len(p), C, H, W)
    for n in range(p.shape[1]):
        y, x = divmod(n, W // P)
        out[:, :, y * P : (y + 1) * P, x * P : (x + 1) * P] = p[:, n].reshape(len(p), C, P, P)
    return out


def back_einops(tokens, p, hw, check=True):
    return rearrange(tokens, "b (r s) (c p q) -> b c (r p) (s q)", r=hw[0] // p, p=p, q=p)


BACK_RIGHT = [
    room.unpatchify,
    back,
    back_loop,
    back_einops,
    lambda p, P, s: F.fold(p.transpose(1, 2), s, P, stride=P),
]


def back_axes(p, P, s, axes):
    return p.reshape(len(p), s[0] // P, s[1] // P, -1, P, P).permute(axes)


def no_gradient(p, P, s):
    return torch.from_numpy(back(p, P, s).detach().numpy().copy())


def fixed_channels(p, P, s):
    return p.reshape(len(p), s[0] // P, s[1] // P, 3, P, P).permute(0, 3, 1, 4, 2, 5).reshape(len(p), 3, *s)


BACK_WRONG = [
    (not_written, "[ ] unpatchify: not written yet"),
    (lambda p, P, s: p.reshape(len(p), -1, *s), "one after another, as rows of pixels"),
    (lambda p, P, s: back_einops(p.unflatten(1, (-1, s[0] // P)).transpose(1, 2).flatten(1, 2), P, s), "top to bottom"),
    (lambda p, P, s: rearrange(p, "b (r s) (p q c) -> b c (r p) (s q)", r=s[0] // P, p=P, q=P), "as if they came last"),
    (lambda p, P, s: back_axes(p, P, s, (0, 3, 1, 5, 2, 4)).reshape(len(p), -1, *s), "turned over"),
    (lambda p, P, s: back_axes(p, P, s, (0, 3, 4, 1, 5, 2)).reshape(len(p), -1, *s), "the grid's axis must stand before"),
    (lambda p, P, s: back_axes(p, P, s, (0, 3, 1, 2, 4, 5)).reshape(len(p), -1, *s), "do not alternate"),
    (
        lambda p, P, s: back_axes(p, P, s[::-1], (0, 3, 1, 4, 2, 5)).reshape(len(p), -1, *s),
        "right on square images only",
    ),
    (lambda p, P, s: F.fold(p.reshape(len(p), p.shape[2], -1), s, P, stride=P), "use transpose(1, 2)"),
    (lambda p, P, s: back(p, P, s).permute(0, 2, 3, 1), "the channels come second"),
    (lambda p, P, s: back(p, P, s)[0], "the batch axis is lost"),
    (lambda p, P, s: back(p, P, s)[:, 0], "the channels are lost"),
    (lambda p, P, s: back(p, P, s).transpose(2, 3), "H and W are exchanged"),
    (lambda p, P, s: back_axes(p, P, s, (0, 3, 1, 4, 2, 5)), "a last reshape is missing"),
    (lambda p, P, s: back(p, P, s).flip(2), "the numbers are all there, in wrong places"),
    (lambda p, P, s: back(p, P, s).clamp(max=0.5), "lost, doubled or changed"),
    (no_gradient, "no gradient flows back"),
    (lambda p, P, s: back(p.float(), P, s).to(p.dtype), "loses digits"),
    (lambda p, P, s: back(p, P, s) * 1j, "gives complex numbers"),
    (lambda p, P, s: back(p.sub_(1), P, s) + 1, "changes its input"),
    (fixed_channels, "is one a fixed number in your code?"),
    (lambda p, P, s: back(p, P, s).float(), "the type of the numbers should stay"),
    (lambda p, P, s: back(p.roll(1, 0), P, s), "must never mix"),
    (lambda p, P, s: None, "does it end with return?"),
    (lambda p, P: p, "raises TypeError"),
]

# to_linear


def carried(conv, copy=None, **style):
    linear = nn.Linear(conv.weight[0].numel(), conv.out_channels, bias=conv.bias is not None, dtype=conv.weight.dtype)
    with torch.no_grad():
        linear.weight.copy_((copy or (lambda w: w.flatten(1)))(conv.weight))
        if conv.bias is not None:
            linear.bias.copy_(conv.bias)
    return linear


def by_state(conv):
    D, C, P, Q = conv.weight.shape
    linear = nn.Linear(C * P * Q, D, bias=conv.bias is not None).to(conv.weight.dtype)
    state = {k: v.reshape(D, -1) if k == "weight" else v for k, v in conv.state_dict().items()}
    linear.load_state_dict(state)
    return linear


def by_parameter(conv):
    linear = nn.Linear(1, 1)
    linear.weight = nn.Parameter(rearrange(conv.weight.detach(), "d c p q -> d (c p q)").clone())
    linear.bias = None if conv.bias is None else nn.Parameter(conv.bias.detach().clone())
    return linear


def zero_bias(conv):
    linear = nn.Linear(conv.weight[0].numel(), conv.out_channels, dtype=conv.weight.dtype)
    linear.weight.data = conv.weight.data.flatten(1).clone()
    linear.bias.data = torch.zeros_like(linear.bias) if conv.bias is None else conv.bias.data.clone()
    return linear


def by_deepcopy(conv):
    conv = deepcopy(conv)
    linear = nn.Linear(1, 1, bias=conv.bias is not None)
    linear.weight, linear.bias = nn.Parameter(conv.weight.flatten(1)), conv.bias
    return linear


def in_evaluation(conv):
    return carried(conv).eval()


def as_view(conv):
    linear = carried(conv)
    linear.weight = nn.Parameter(conv.weight.flatten(1))
    return linear


def same_bias(conv):
    linear = carried(conv)
    linear.bias = conv.bias
    return linear


def tied(conv):
    linear = carried(conv)
    del linear.weight
    linear.weight = conv.weight.flatten(1)
    return linear


def rounds(conv):
    linear = carried(conv).float()
    return linear.to(conv.weight.dtype)


def bias_in_float32(conv):
    linear = carried(conv)
    if linear.bias is not None:
        linear.bias.data = linear.bias.data.float()
    return linear


def freezes_conv(conv):
    return carried(conv.requires_grad_(False))


def widens_conv(conv):
    return carried(conv.double())


def half_frozen(conv):
    linear = carried(conv)
    linear.weight.requires_grad_(False)
    return linear


def without_no_grad(conv):
    linear = fresh(conv)
    linear.weight.copy_(conv.weight.flatten(1))
    return linear


def always_bias(conv):
    linear = nn.Linear(conv.weight[0].numel(), conv.out_channels, dtype=conv.weight.dtype)
    linear.weight.data = conv.weight.data.flatten(1)
    if conv.bias is not None:
        linear.bias.data = conv.bias.data
    return linear


def never_bias(conv):
    linear = carried(conv)
    linear.bias = None
    return linear


def forgets_bias(conv):
    linear = carried(conv)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def fresh(conv):
    return nn.Linear(conv.weight[0].numel(), conv.out_channels, dtype=conv.weight.dtype)


def frozen(conv):
    return carried(conv).requires_grad_(False)


def breaks_conv(conv):
    linear = carried(conv)
    nn.init.zeros_(conv.weight)
    return linear


def turned(conv):
    linear = carried(conv)
    linear.weight.data = linear.weight.data.t()
    return linear


LINEAR_RIGHT = [carried, by_state, by_parameter, zero_bias, by_deepcopy, in_evaluation]
LINEAR_WRONG = [
    (not_written, "[ ] to_linear: not written yet"),
    (fresh, "random weights of its own"),
    (lambda conv: carried(conv, lambda w: w.permute(0, 2, 3, 1).flatten(1)), "flatten(1) alone"),
    (lambda conv: carried(conv, lambda w: w.transpose(2, 3).flatten(1)), "y and x are exchanged"),
    (lambda conv: carried(conv, lambda w: w.flip(2, 3).flatten(1)), "mirrored"),
    (lambda conv: carried(conv, lambda w: w.reshape(-1, len(w)).t()), "filter i must become row i"),
    (lambda conv: carried(conv, lambda w: w.flip(0).flatten(1)), "come in another order"),
    (lambda conv: carried(conv, lambda w: w.flatten(1) / 2), "is not the convolution's, filter by filter"),
    (always_bias, "build it with bias=False"),
    (never_bias, "the bias is lost"),
    (forgets_bias, "copy it too"),
    (turned, "torch's Linear keeps (out, in)"),
    (frozen, "frozen"),
    (half_frozen, "its weight is frozen"),
    (breaks_conv, "changes the convolution"),
    (widens_conv, "changes the convolution"),
    (freezes_conv, "freezes the convolution"),
    (as_view, "its weight lies in the convolution's memory: training one would silently change the other"),
    (same_bias, "its bias lies in the convolution's memory"),
    (tied, "its weight is no parameter of its own"),
    (rounds, "loses digits"),
    (bias_in_float32, "has numbers of torch.float32"),
    (without_no_grad, "write into weights under torch.no_grad()"),
    (lambda conv: carried(conv).float(), "has numbers of torch.float32"),
    (lambda conv: conv, "wanted an nn.Linear"),
    (lambda conv: conv.weight.flatten(1), "wanted a whole nn.Linear"),
    (lambda conv: None, "does it end with return?"),
]

# mended


def cut(function):
    """(B, N, C*P*P) -> (B, N, C, P, P)"""
    return lambda x, P: function(x, P).unflatten(2, (x.shape[1], P, P))


MENDED_RIGHT = [
    cut(by_hand),
    cut(loop),
    cut(room.patchify),
    lambda images, patch, extra=1: rearrange(images, "b c (r p) (s q) -> b (r s) c p q", p=patch, q=patch),
    lambda x, P: x.unfold(2, P, P).unfold(3, P, P).flatten(2, 3).transpose(1, 2),
]
MENDED_WRONG = [
    (not_written, "[ ] mended: not written yet"),
    (cut(wide), "still the planted mistake"),
    (cut(far), "far apart"),
    (cut(lambda x, P: x.reshape(len(x), count(x, P), -1)), "Did you permute"),
    (cut(lambda x, P: grids(x, P).permute(0, 4, 2, 1, 3, 5).flatten(3).flatten(1, 2)), "top to bottom"),
    (cut(lambda x, P: rearrange(x, "b c (r p) (s q) -> b (r s) (c q p)", p=P, q=P)), "inside a patch the pixels"),
    (by_hand, "here the patches stay pictures"),
    (cut(lambda x, P: by_hand(x, P).flip(1)), "from last to first"),
    (cut(lambda x, P: by_hand(x, P).detach()), "no gradient flows back"),
    (cut(lambda x, P: by_hand(x, P).float()), "the type of the numbers"),
    (cut(lambda x, P: by_hand(x.float(), P).to(x.dtype)), "loses digits"),
    (cut(lambda x, P: by_hand(x, P).roll(1, 1)), "in wrong places"),
    (lambda x, P: rearrange(x, "b c (r p) (s q) -> b (r s) p q c", p=P, q=P), "it should give"),
    (lambda x, P: None, "does it end with return?"),
    (lambda x, P: x.reshape(7), "raises RuntimeError"),
]


def museum(check, answers):
    return [pytest.param(check, *answer, id=f"{check.__name__}-{i}") for i, answer in enumerate(answers)]


RIGHT = [
    (check_num_patches, NUM_RIGHT),
    (check_patchify, CUT_RIGHT),
    (check_unpatchify, BACK_RIGHT),
    (check_to_linear, LINEAR_RIGHT),
    (check_mended, MENDED_RIGHT),
]
WRONG = [
    (check_num_patches, NUM_WRONG),
    (check_patchify, CUT_WRONG),
    (check_unpatchify, BACK_WRONG),
    (check_to_linear, LINEAR_WRONG),
    (check_mended, MENDED_WRONG),
]


@pytest.mark.parametrize(("check", "answer"), [p for c, all_ in RIGHT for p in museum(c, [(a,) for a in all_])])
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True
    assert all(line.startswith("[v]") for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(("check", "answer", "says"), [p for c, all_ in WRONG for p in museum(c, all_)])
def test_wrong_answers_are_told_what_slipped(check, answer, says, capsys):
    assert check(answer) is False
    out, err = capsys.readouterr()
    *before, last = out.splitlines()
    assert says in last and not err
    assert last.startswith("[ ]" if says.startswith("[ ]") else "[x]")
    assert all(line.startswith("[v]") for line in before)
