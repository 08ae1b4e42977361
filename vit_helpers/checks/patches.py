"""Marks for the exercises of notebook 01."""

from copy import deepcopy

import torch
from torch import nn

from vit_helpers.checks.marks import (
    check,
    differ,
    expect_anew,
    expect_anywhere,
    expect_gradient,
    expect_tensor,
    gradient,
    same,
    short,
    slip,
    untouched,
)
from vit_helpers.checks.start_here import is_number
from vit_helpers.patches import patchify, unpatchify

# (B, C, H, W), P: square, wide, tall and grey, odd numbers, a patch of one pixel, a patch that is the image
SIZES = [
    ((2, 3, 8, 8), 2),
    ((2, 3, 8, 12), 4),
    ((1, 1, 6, 4), 2),
    ((3, 2, 9, 15), 3),
    ((2, 4, 5, 7), 1),
    ((2, 3, 4, 4), 4),
]


# Counting


COUNTS = [(224, 224, 16), (32, 48, 8), (48, 32, 8), (8, 8, 2), (10, 15, 5), (14, 28, 14), (6, 9, 1)]
COUNT_SLIPS = {  # what a wrong answer equals, and the idea that slipped
    "that adds rows and columns; each row holds every column, so multiply": lambda H, W, P: H // P + W // P,
    "that is right for square images only: where is W?": lambda H, W, P: (H // P) ** 2,
    "that is right for square images only: where is H?": lambda H, W, P: (W // P) ** 2,
    "that is one column of patches; multiply by the patches in a row": lambda H, W, P: H // P,
    "that is one row of patches; multiply by the number of rows": lambda H, W, P: W // P,
    "a patch covers P x P pixels: divide by P twice": lambda H, W, P: H * W // P,
    "that counts pixels, not patches: divide by the patch side, twice": lambda H, W, P: H * W,
    "that counts the pixels of one patch": lambda H, W, P: P * P,
    "that counts the class token too; N is the patches alone": lambda H, W, P: (H // P) * (W // P) + 1,
    "a patch covers P x P pixels, not 2 x P": lambda H, W, P: H * W // (2 * P),
}


def check_num_patches(answer):
    """Mark a function (H, W, P) -> N that raises ValueError where P does not divide H and W."""
    ideas = [("right for square, wide and tall images", counts), ("raises ValueError where pixels are left over", leftover)]
    return check("num_patches", answer, ideas)


def counts(answer):
    got = [(H, W, P, answer(H, W, P)) for H, W, P in COUNTS]
    for H, W, P, n in got:
        slip(n is None, "gives nothing back: does it end with return?")
        slip(not is_number(n), f"gives {short(n)} for {H} x {W} pixels and P = {P}; it should give one whole number")
    wrong = [(H, W, P, int(n)) for H, W, P, n in got if n != (H // P) * (W // P)]
    if not wrong:
        return
    why = "count the rows, then the columns, then multiply"
    if len({int(n) for *_, n in got}) == 1:
        why = "the same for every size; it should depend on H, W and P"
    why = next((w for w, rule in COUNT_SLIPS.items() if all(rule(H, W, P) == n for H, W, P, n in got)), why)
    H, W, P, n = wrong[0]
    slip(True, f"gives {n} for {H} x {W} pixels and P = {P}, wanted {(H // P) * (W // P)}: {why}")


def leftover(answer):
    for H, W, P in [(30, 32, 4), (32, 30, 4), (30, 30, 4), (5, 5, 10), (8, 18, 12)]:
        try:
            got = answer(H, W, P)
        except ValueError:
            continue
        except NotImplementedError:
            raise
        except Exception as error:
            slip(True, f"raises {type(error).__name__} for {H} x {W} pixels and P = {P}; it should be a ValueError")
        side = "H" if H % P else "W"
        words = f"gives {short(got)} for {H} x {W} pixels and P = {P}; {side} is no multiple of P, so raise ValueError"
        slip(True, f"{words}. Did you look at both H and W?" if (H % P == 0) != (W % P == 0) else words)


# Cutting


def grid(images, P):
    """The image with its grid and patch axes apart: (B, C, rows, P, cols, P)"""
    B, C, H, W = images.shape
    return images.reshape(B, C, H // P, P, W // P, P)


def number(images, P):
    return images.shape[2] // P * (images.shape[3] // P)


def swapped(images, P):
    """Rows and columns of the grid exchanged in the first reshape; right for square images"""
    B, C, H, W = images.shape
    return images.reshape(B, C, W // P, P, H // P, P).permute(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * P)


def spread(images, P):
    """The grid's axes behind the patch's: a patch takes pixels that lie far apart"""
    B, C, H, W = images.shape
    return images.reshape(B, C, P, H // P, P, W // P).permute(0, 3, 5, 1, 2, 4).reshape(B, -1, C * P * P)


VIEW = (
    "patch 0 holds numbers of the topmost rows, as they lie in memory; it should hold the top-left {P} x {P} square. "
    "Did you permute before the last reshape?"
)
CUT_SLIPS = {  # the idea that slipped, and what a wrong answer equals; {P} is filled in
    VIEW: lambda x, P: x.reshape(len(x), number(x, P), -1),
    "the patches run top to bottom; they should run left to right first: in the permute, rows before cols": lambda x, P: (
        grid(x, P).permute(0, 4, 2, 1, 3, 5).flatten(3).flatten(1, 2)
    ),
    "inside a patch the channels come last; they should come first: all red numbers, then green, then blue": lambda x, P: (
        grid(x, P).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    ),
    "inside a patch the channel stands between y and x; it should come first": lambda x, P: (
        grid(x, P).permute(0, 2, 4, 3, 1, 5).flatten(3).flatten(1, 2)
    ),
    "inside a patch the pixels run top to bottom; they should run left to right first": lambda x, P: (
        grid(x, P).permute(0, 2, 4, 1, 5, 3).flatten(3).flatten(1, 2)
    ),
    "a patch takes pixels that lie far apart; in the first reshape H becomes (rows, P), not (P, rows)": spread,
    "right on square images only: in the first reshape H goes with the rows, W with the columns": swapped,
    "the axes (length, N) were exchanged by a reshape, which moves no number; use transpose(1, 2)": lambda x, P: (
        patchify(x, P).transpose(1, 2).reshape(len(x), number(x, P), -1)
    ),
    "the last axes after the permute are not (C, P, P): the grid's axes (rows, cols) must come before them": lambda x, P: (
        grid(x, P).permute(0, 1, 2, 4, 3, 5).reshape(len(x), number(x, P), -1)
    ),
    "the permute leaves (rows, P, cols, P) as it was; the two axes of length P must become neighbours": lambda x, P: (
        grid(x, P).permute(0, 2, 1, 3, 4, 5).reshape(len(x), number(x, P), -1)
    ),
    "the image is mirrored: patches run left to right, top to bottom": lambda x, P: patchify(x.flip(3), P),
    "the channels come in reverse order; leave them as the image has them": lambda x, P: patchify(x.flip(1), P),
    "the patches come in the order from last to first": lambda x, P: patchify(x, P).flip(1),
}


def check_patchify(answer):
    """Mark a function (images, patch_size) -> (B, N, C*P*P), channel by channel, left to right, top to bottom."""
    ideas = [
        ("shape (B, N, C*P*P) for square, wide, tall and grey images", cut_shape),
        ("each row is one square patch, and the patches run left to right, top to bottom", cut_values),
        ("keeps the type of the numbers, leaves its input as it was, and gradients flow", cut_manners),
        ("raises an error on a 30 x 32 image, as it should", cut_leftover),
    ]
    return check("patchify", answer, ideas)


def cut_shape(answer):
    for (B, C, H, W), P in SIZES[1:2] + SIZES:
        N, length = (H // P) * (W // P), C * P * P
        got = answer(torch.rand(B, C, H, W), P)
        when = f"for images of shape {(B, C, H, W)} and P = {P}"
        if isinstance(got, torch.Tensor):
            why = shape_slip(tuple(got.shape), B, C, H // P, W // P, P)
            slip(why, f"gives shape {tuple(got.shape)} {when}, wanted {(B, N, length)}: {why}")
        expect_tensor(got, (B, N, length), when)


def shape_slip(shape, B, C, rows, cols, P):
    """What went wrong with a shape, or None"""
    N, length = rows * cols, C * P * P
    known = {
        (B, length, N): "the last two axes are exchanged (unfold gives them so); transpose them",
        (B, rows, cols, length): "the rows and columns of the grid should be one axis of N patches",
        (B, rows, cols, C, P, P): "a last reshape is missing: merge (rows, cols) to N and (C, P, P) to one axis",
        (B, C, rows, cols, P, P): "a last permute and reshape are missing",
        (B, N, C, P, P): "each patch should be flattened to one row of numbers",
        (B, N, P, P, C): "each patch should be flattened to one row of numbers, channel by channel",
        (B * N, length): "the images of the batch ran together; the first axis must stay B",
        (1, B * N, length): "the images of the batch ran together; the first axis must stay B",
        (N, length): "the batch axis is lost: every image of the batch must be cut",
        (1, N, length): "only one image of the batch was cut",
        (B, N * C, P * P): "every channel became patches of its own; the channels of a place belong to one patch",
        (B, C, N, P * P): "every channel became patches of its own; the channels of a place belong to one patch",
        (B, N, P * P): "the channels are lost: a patch holds all C of them",
        (N, B, length): "B and N are exchanged; the batch comes first",
        (B, length): "only one patch came back",
    }
    return None if shape == (B, N, length) else known.get(shape)


def cut_values(answer):
    for size, P in SIZES:
        images = torch.rand(size)
        look(answer, images, P, patchify, CUT_SLIPS, size, P)
        look(answer, images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), P, patchify, CUT_SLIPS, size, P)


def look(answer, given, P, right, slips, size, *arguments):
    """Compare with the right answer, and name the wrong one that the answer equals; given: what goes in first"""
    got = untouched(lambda x: answer(x, *arguments), given)
    wanted = right(given, *arguments)
    expect_tensor(got, wanted.shape, f"for images of shape {size} and P = {P}")
    if same(got, wanted):
        return
    _, _, H, W = size
    where = f"for images of {H} x {W} pixels and P = {P}"
    for words, wrong in slips.items():
        try:
            if same(got, wrong(given, *arguments)):
                slip(True, f"{where}: {words.format(P=P)}")
        except RuntimeError:
            continue  # a wrong way that does not fit this size
    expect_anew(got, answer(1 - given, *arguments))
    if len(given) > 1:
        alone = answer(given[1:2].clone(), *arguments)
        mixed = isinstance(alone, torch.Tensor) and alone.shape == got[1:2].shape and not same(alone, got[1:2])
        slip(mixed, f"{where}: an image comes out differently alone and in a batch; images must never mix")
    slip(
        same(got.flatten().sort().values, wanted.flatten().sort().values),
        f"{where}: the numbers are all there, in wrong places",
    )
    slip(True, f"{where}: holds numbers that it should not; some are lost, doubled or changed")


def cut_manners(answer):
    images = torch.rand(2, 3, 6, 9, dtype=torch.float64)
    manners(answer, images, patchify, 3)


def manners(answer, given, right, *arguments):
    """Type kept, input kept, the same twice and anew for another input, the right gradient, on any device"""
    got = untouched(lambda x: answer(x, *arguments), given)
    slip(got.dtype != given.dtype, f"gives {got.dtype} for {given.dtype}; the type of the numbers should stay")
    slip(differ(got, right(given, *arguments)), "gives other numbers for float64 than for float32")
    slip(not torch.equal(got, answer(given, *arguments)), "gives something else when it is called again")
    expect_anew(got, answer(1 - given, *arguments))
    source = given.clone().requires_grad_()
    expect_gradient(answer(source, *arguments), right(source, *arguments), source)
    expect_anywhere(lambda x: answer(x, *arguments), lambda x: right(x, *arguments), given.float())


def cut_leftover(answer):
    for H, W in [(30, 32), (32, 30), (30, 30)]:
        try:
            got = answer(torch.rand(1, 3, H, W), 4)
        except NotImplementedError:
            raise
        except Exception:
            continue
        came = f"gives {short(got)} for {H} x {W} pixels and P = 4"
        slip(True, f"{came}: pixels are dropped without a word; raise an error where P does not divide H and W")


# Putting back


def fill(p, P, size, axes, shape):
    """Patches with their axes apart in the order `shape` names, permuted by `axes`, as images"""
    rows, cols = size[0] // P, size[1] // P
    C = p.shape[2] // (P * P)
    lengths = {"b": len(p), "r": rows, "c": cols, "k": C, "p": P, "q": P}
    return p.reshape([lengths[s] for s in shape]).permute(axes).reshape(len(p), C, *size)


BACK_SLIPS = {
    "the patches are written one after another, as rows of pixels; a permute must take them apart first": lambda p, P, s: (
        p.reshape(len(p), -1, *s)
    ),
    "the patches are put back top to bottom; they were cut left to right first": lambda p, P, s: fill(
        p, P, s, (0, 3, 2, 4, 1, 5), "bcrkpq"
    ),
    "inside a patch the channels are read as if they came last; they come first": lambda p, P, s: fill(
        p, P, s, (0, 5, 1, 3, 2, 4), "brcpqk"
    ),
    "each patch is turned over: inside it y and x are exchanged": lambda p, P, s: fill(
        p, P, s, (0, 3, 1, 5, 2, 4), "brckpq"
    ),
    "after the permute stand (P, rows) and (P, cols); the grid's axis must stand before the patch's": lambda p, P, s: fill(
        p, P, s, (0, 3, 4, 1, 5, 2), "brckpq"
    ),
    "right on square images only: the grid has H/P rows and W/P columns": lambda p, P, s: (
        p.reshape(len(p), s[1] // P, s[0] // P, -1, P, P).permute(0, 3, 1, 4, 2, 5).reshape(len(p), -1, *s)
    ),
    "rows and columns of the grid and of the patch do not alternate: the order is (C, rows, P, cols, P)": lambda p, P, s: (
        fill(p, P, s, (0, 3, 1, 2, 4, 5), "brckpq")
    ),
    "the numbers of a patch and the patches were exchanged by a reshape; it moves no number, use transpose(1, 2)": (
        lambda p, P, s: unpatchify(p.reshape(len(p), p.shape[2], -1).transpose(1, 2).contiguous(), P, s)
    ),
}


def check_unpatchify(answer):
    """Mark a function (patches, patch_size, image_size) -> (B, C, H, W), the inverse of patchify; image_size is (H, W)."""
    ideas = [
        ("shape (B, C, H, W) for square, wide, tall and grey images", back_shape),
        ("every patch is back in its place, and every pixel in its patch", back_values),
        ("keeps the type of the numbers, leaves its input as it was, and gradients flow", back_manners),
    ]
    return check("unpatchify", answer, ideas)


def back_shape(answer):
    for (B, C, H, W), P in SIZES[1:2] + SIZES:
        got = answer(patchify(torch.rand(B, C, H, W), P), P, (H, W))
        when = f"for patches of images of shape {(B, C, H, W)} and P = {P}"
        if isinstance(got, torch.Tensor):
            shape, rows, cols = tuple(got.shape), H // P, W // P
            known = {
                (B, H, W, C): "the channels come second, not last",
                (C, H, W): "the batch axis is lost",
                (1, C, H, W): "only one image of the batch came back",
                (B, C, rows, P, cols, P): "a last reshape is missing: merge (rows, P) to H and (cols, P) to W",
                (B, H, W): "the channels are lost",
                (B, 1, H, W): "the channels are lost; C is the length of a patch divided by P*P",
                (B, C, W, H): "H and W are exchanged; image_size is (height, width)",
            }
            slip(
                shape != (B, C, H, W) and shape in known,
                f"gives shape {shape} {when}, wanted {(B, C, H, W)}: {known.get(shape)}",
            )
        expect_tensor(got, (B, C, H, W), when)


def back_values(answer):
    for size, P in SIZES:
        look(answer, patchify(torch.rand(size), P), P, unpatchify, BACK_SLIPS, size, P, size[2:])


def back_manners(answer):
    manners(answer, patchify(torch.rand(2, 3, 6, 9, dtype=torch.float64), 3), unpatchify, 3, (6, 9))


# Carrying weights


CONVS = [  # C, D, P, bias, type
    (3, 8, 4, True, torch.float32),
    (1, 5, 2, True, torch.float32),
    (2, 6, 3, False, torch.float64),
    (2, 5, 3, True, torch.float64),
]
WEIGHT_SLIPS = {
    "the weight is flattened with the channels last; a patch here has them first: flatten(1) alone": lambda w: w.permute(
        0, 2, 3, 1
    ).flatten(1),
    "each filter is turned over: y and x are exchanged": lambda w: w.transpose(2, 3).flatten(1),
    "the weight is transposed by a reshape, which moves no number": lambda w: w.flatten(1).t().reshape(len(w), -1),
    "the filters are mirrored; torch's convolution does not turn them over, so neither should you": lambda w: w.flip(
        2, 3
    ).flatten(1),
    "the filters come in another order; row i of the Linear is filter i": lambda w: w.flip(0).flatten(1),
    "reshape(-1, D).t() is not the same as reshape(D, -1): filter i must become row i": lambda w: w.reshape(-1, len(w)).t(),
}


def check_to_linear(answer):
    """Mark a function conv -> Linear: a Conv2d whose kernel and stride are P becomes the Linear on flattened patches."""
    ideas = [
        ("a Linear from C*P*P to D numbers", linear_shape),
        ("gives what the convolution gives, for colour and grey, with a bias and without", linear_values),
        ("leaves the convolution as it was, and can be trained", linear_manners),
    ]
    return check("to_linear", answer, ideas)


def a_conv(C, D, P, bias, dtype):
    conv = nn.Conv2d(C, D, P, stride=P, bias=bias, dtype=dtype)
    nn.init.normal_(conv.weight)
    if bias:
        nn.init.normal_(conv.bias)
    return conv


def linear_shape(answer):
    for C, D, P, bias, dtype in CONVS:
        got = answer(a_conv(C, D, P, bias, dtype))
        slip(got is None, "gives nothing back: does it end with return?")
        slip(isinstance(got, torch.Tensor), f"gives {short(got)}; wanted a whole nn.Linear, weight and bias")
        slip(not isinstance(got, nn.Linear), f"gives {short(got)}; wanted an nn.Linear")
        shape, wanted = tuple(got.weight.shape), (D, C * P * P)
        slip(shape == wanted[::-1], f"has a weight of shape {shape}; torch's Linear keeps (out, in), so {wanted}")
        slip(shape == (D, C, P, P), f"has the convolution's own weight, of shape {shape}; flatten it to {wanted}")
        slip(shape != wanted, f"has a weight of shape {shape} for a convolution of {(D, C, P, P)}; wanted {wanted}")


def linear_values(answer):
    for C, D, P, bias, dtype in CONVS:
        conv = a_conv(C, D, P, bias, dtype)
        linear = carry(answer, deepcopy(conv))
        types = {p.dtype for p in linear.parameters()} - {dtype}
        slip(types, f"has numbers of {', '.join(map(str, types))}; the convolution has {dtype}")
        words = f"for {C} channels and P = {P}: "
        if differ(linear.weight, conv.weight.flatten(1)):
            slip(True, words + weight_slip(answer, linear, conv))
        if not bias:
            zero = linear.bias is None or not linear.bias.any()
            slip(not zero, "the convolution has no bias, the Linear adds one: build it with bias=False")
        else:
            slip(linear.bias is None, "the bias is lost: a convolution has one number per filter, and so does a Linear")
            other = differ(linear.bias, conv.bias)
            slip(other, "the weight is right, but the bias is not the convolution's: copy it too")
        images = torch.rand(2, C, 2 * P, 3 * P, dtype=dtype)
        got, wanted = linear(patchify(images, P)), conv(images).flatten(2).transpose(1, 2)
        slip(not same(got, wanted, atol=1e-4), words + "the weights are right, but the Linear gives something else")


def weight_slip(answer, linear, conv):
    """What is wrong with a Linear's weight"""
    if not same(linear.weight, answer(deepcopy(conv)).weight):
        return "the Linear has random weights of its own; copy the convolution's"
    slips = (why for why, wrong in WEIGHT_SLIPS.items() if same(linear.weight, wrong(conv.weight)))
    return next(slips, "the Linear's weight is not the convolution's, filter by filter")


def linear_manners(answer):
    conv = a_conv(3, 8, 4, True, torch.float32)
    before = deepcopy(conv.state_dict())
    linear, patches = carry(answer, conv), patchify(torch.rand(1, 3, 8, 8), 4)
    for name in ("weight", "bias"):
        own = getattr(linear, name)
        slip(not own.requires_grad, f"is right, but its {name} is frozen: it gets no gradient and cannot be trained")
        learns = isinstance(own, nn.Parameter) and gradient(linear(patches), own) is not None
        slip(
            not learns,
            f"is right, but its {name} is no parameter of its own, and would not learn: use nn.Parameter or copy_",
        )
        with torch.no_grad():
            own += 1  # as a step of training does
        tied = f"is right, but its {name} lies in the convolution's memory: training one would silently change the other. "
        slip(changed(conv, before), tied + "Copy the numbers, with copy_ or clone()")


def carry(answer, conv):
    """The learner's Linear; Slip when the convolution did not stay as it was"""
    before = deepcopy(conv.state_dict())
    linear = answer(conv)
    slip(changed(conv, before), "changes the convolution that was handed over; change the new Linear only")
    frozen = not all(p.requires_grad for p in conv.parameters())
    slip(
        frozen, "freezes the convolution that was handed over, which should still learn. Copy under torch.no_grad() instead"
    )
    return linear


def changed(conv, before):
    """Whether a convolution's numbers are others than before"""
    now = conv.state_dict()
    return now.keys() != before.keys() or not all(
        now[name].dtype == kept.dtype and torch.equal(now[name], kept) for name, kept in before.items()
    )


# The planted mistake


MENDED_SLIPS = {words: wrong for words, wrong in CUT_SLIPS.items() if wrong is not swapped}
STILL = "still the planted mistake: right on square images only. Which of H and W gives the number of rows?"


def check_mended(answer):
    """Mark the mended function cut(images, patch_size) -> (B, N, C, P, P)."""
    ideas = [
        ("shape (B, N, C, P, P)", mended_shape),
        ("right on square images, as it was", lambda answer: mended_values(answer, SIZES[:1] + SIZES[-1:])),
        ("right on wide and tall images, grey and colour", lambda answer: mended_values(answer, SIZES[1:-1])),
        ("keeps the type of the numbers, leaves its input as it was, and gradients flow", mended_manners),
    ]
    return check("mended", answer, ideas)


def right_cut(images, P):
    """(B, C, H, W) -> (B, N, C, P, P)"""
    return patchify(images, P).unflatten(2, (images.shape[1], P, P))


def mended_shape(answer):
    for (B, C, H, W), P in SIZES:
        N = (H // P) * (W // P)
        got = answer(torch.rand(B, C, H, W), P)
        when = f"for images of shape {(B, C, H, W)} and P = {P}"
        flat = isinstance(got, torch.Tensor) and tuple(got.shape) == (B, N, C * P * P)
        slip(
            flat and C * P * P > 1,
            f"gives shape {(B, N, C * P * P)} {when}; here the patches stay pictures: {(B, N, C, P, P)}",
        )
        expect_tensor(got, (B, N, C, P, P), when)


def mended_values(answer, sizes):
    def flat(images, P):
        got = answer(images, P)
        expect_tensor(got, right_cut(images, P).shape, f"for images of shape {tuple(images.shape)} and P = {P}")
        return got.flatten(2)

    for size, P in sizes:
        look(flat, torch.rand(size), P, patchify, {STILL: swapped, **MENDED_SLIPS}, size, P)


def mended_manners(answer):
    manners(answer, torch.rand(2, 3, 6, 9, dtype=torch.float64), right_cut, 3)
