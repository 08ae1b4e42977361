"""The exercises of notebook 01."""

from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from vit_helpers.checks.compare import differ, gradient, same
from vit_helpers.checks.contract import Raises, contract
from vit_helpers.checks.engine import Case, Exercise
from vit_helpers.checks.report import reject_if, short
from vit_helpers.patches import grid_size, patchify, unpatchify

# Counting


def side_left_over(got: str, H: int, W: int, P: int) -> str:
    """What to say to an answer that counts patches although pixels are left over."""
    side = "H" if H % P else "W"
    words = f"gives {got} for {H} x {W} pixels and P = {P}; {side} is no multiple of P, so raise ValueError"
    return f"{words}. Did you look at both H and W?" if (H % P == 0) != (W % P == 0) else words


NUM_PATCHES = Exercise(
    name="num_patches",
    reference=lambda H, W, P: grid_size((H, W), P)[0] * grid_size((H, W), P)[1],
    when="for {} x {} pixels and P = {}".format,
    kind="one whole number",
    depends="H, W and P",
    unknown="count the rows, then the columns, then multiply",
    whole=True,
    ideas={
        "right for square, wide and tall images": [
            Case(partial(tuple, sizes))
            for sizes in [(224, 224, 16), (32, 48, 8), (48, 32, 8), (8, 8, 2), (10, 15, 5), (14, 28, 14), (6, 9, 1)]
        ],
        "raises ValueError where pixels are left over":
            [Raises([(30, 32, 4), (32, 30, 4), (30, 30, 4), (5, 5, 10), (8, 18, 12)], side_left_over)],
    },
    mistakes={
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
    },
)  # fmt: skip
check_num_patches = NUM_PATCHES.check


# Cutting

# (B, C, H, W), P: square, wide, tall and gray, odd numbers, a patch of one pixel, a patch that is the image, equal areas
SIZES = [
    ((2, 3, 8, 8), 2),
    ((2, 3, 8, 12), 4),
    ((1, 1, 6, 4), 2),
    ((3, 2, 9, 15), 3),
    ((2, 4, 5, 7), 1),
    ((2, 3, 4, 4), 4),
    ((2, 3, 12, 8), 4),
    ((2, 2, 2, 6), 2),
]
FORMS = [SIZES[1], *SIZES]  # for shapes: first one whose axes have lengths of their own
PIXELS = "for images of {0.shape[2]} x {0.shape[3]} pixels and P = {1}: {words}"


def images_of(size: tuple, P: int, channels_last: bool = False) -> Case:
    """Images with numbers below 0 and above 1; channels_last: as they lie in memory."""

    def draw() -> tuple:
        images = 1.5 * torch.randn(size)
        return images.contiguous(memory_format=torch.channels_last) if channels_last else images, P

    return Case(draw)


def image_size(images: Tensor, P: int, size: object = None) -> str:
    """Arguments of patchify in words."""
    return f"for images of shape {tuple(images.shape)} and P = {P}"


def misplaced(got: Tensor, right: Tensor, *given: object) -> str:
    """What to say of numbers that no known mistake gives."""
    moved = same(got.flatten().sort().values, right.flatten().sort().values)
    return (
        "the numbers are all there, in wrong places"
        if moved
        else ("holds numbers that it should not; some are lost, doubled or changed")
    )


def grid(images: Tensor, P: int) -> Tensor:
    """The image with the axes of grid and patch apart: (B, C, rows, P, cols, P)."""
    B, C, H, W = images.shape
    return images.reshape(B, C, H // P, P, W // P, P)


def cut(order: tuple, shape: str = "(B, N, -1)") -> object:
    """A wrong patchify by another permutation of the six axes."""
    return lambda x, P: grid(x, P).permute(order).reshape(len(x), number(x, P), -1)


def number(images: Tensor, P: int) -> int:
    return images.shape[2] // P * (images.shape[3] // P)


def turned_grid(images: Tensor, P: int) -> Tensor:
    """Rows and columns of the grid exchanged in the first reshape; right for square images."""
    B, C, H, W = images.shape
    return images.reshape(B, C, W // P, P, H // P, P).permute(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * P)


def spread(images: Tensor, P: int) -> Tensor:
    """The grid's axes behind the patch's: a patch takes pixels that are far apart."""
    B, C, H, W = images.shape
    return images.reshape(B, C, P, H // P, P, W // P).permute(0, 3, 5, 1, 2, 4).reshape(B, -1, C * P * P)


def by_channel(images: Tensor, P: int) -> Tensor:
    """(B, C, N, P*P): the patches of every channel"""
    return patchify(images, P).unflatten(2, (images.shape[1], P * P)).transpose(1, 2)


PLACES = {  # the numbers in wrong places
    "patch 0 holds numbers of the topmost rows, as they lie in memory; it should hold the top-left {1} x {1} square. "
    "Did you permute before the last reshape?": lambda x, P: x.reshape(len(x), number(x, P), -1),
    "the patches run top to bottom; they should run left to right first: in the permute, rows before cols":
        cut((0, 4, 2, 1, 3, 5)),
    "inside a patch the channels come last; they should come first: all red numbers, then green, then blue":
        cut((0, 2, 4, 3, 5, 1)),
    "inside a patch the channel stands between y and x; it should come first": cut((0, 2, 4, 3, 1, 5)),
    "inside a patch the pixels run top to bottom; they should run left to right first": cut((0, 2, 4, 1, 5, 3)),
    "a patch takes pixels that lie far apart; in the first reshape H becomes (rows, P), not (P, rows)": spread,
    "the axes (length, N) were exchanged by a reshape, which moves no number; use transpose(1, 2)":
        lambda x, P: patchify(x, P).transpose(1, 2).reshape(len(x), number(x, P), -1),
    "the last axes after the permute are not (C, P, P): the grid's axes (rows, cols) must come before them":
        cut((0, 1, 2, 4, 3, 5)),
    "the permute leaves (rows, P, cols, P) as it was; the two axes of length P must become neighbours":
        cut((0, 2, 1, 3, 4, 5)),
    "the image is mirrored: patches run left to right, top to bottom": lambda x, P: patchify(x.flip(3), P),
    "the channels come in reverse order; leave them as the image has them": lambda x, P: patchify(x.flip(1), P),
    "the patches come in the order from last to first": lambda x, P: patchify(x, P).flip(1),
}  # fmt: skip
SHAPES = {  # the axes wrong
    "the last two axes are exchanged (unfold gives them so); transpose them": lambda x, P: patchify(x, P).mT,
    "the rows and columns of the grid should be one axis of N patches":
        lambda x, P: patchify(x, P).unflatten(1, (-1, x.shape[3] // P)),
    "a last reshape is missing: merge (rows, cols) to N and (C, P, P) to one axis":
        lambda x, P: grid(x, P).permute(0, 2, 4, 1, 3, 5),
    "a last permute and reshape are missing": grid,
    "each patch should be flattened to one row of numbers": lambda x, P: patchify(x, P).unflatten(2, (-1, P, P)),
    "each patch should be flattened to one row of numbers, channel by channel":
        lambda x, P: patchify(x, P).unflatten(2, (-1, P, P)).movedim(2, -1),
    "the images of the batch ran together; the first axis must stay B": lambda x, P: patchify(x, P).flatten(0, 1),
    "the images of the batch ran together; the first axis must stay B, not 1":
        lambda x, P: patchify(x, P).flatten(0, 1)[None],
    "the batch axis is lost: every image of the batch must be cut": lambda x, P: patchify(x, P)[0],
    "only one image of the batch was cut": lambda x, P: patchify(x[:1], P),
    "every channel became patches of its own; the channels of a place belong to one patch":
        lambda x, P: by_channel(x, P).flatten(1, 2),
    "every channel became patches of its own, (B, C, N, P*P); the channels of a place belong to one patch": by_channel,
    "the channels are lost: a patch holds all C of them": lambda x, P: patchify(x[:, :1], P),
    "B and N are exchanged; the batch comes first": lambda x, P: patchify(x, P).transpose(0, 1),
    "only one patch came back": lambda x, P: patchify(x, P)[:, 0],
}  # fmt: skip
SQUARE_ONLY = "right on square images only: in the first reshape H goes with the rows, W with the columns"
PATCHIFY = Exercise(
    name="patchify",
    reference=patchify,
    when=image_size,
    says=PIXELS,
    unknown=misplaced,
    batch=4,
    ideas={
        "shape (B, N, C*P*P) for square, wide, tall and grey images":
            [lambda exercise, answer: [exercise.try_form(answer, images_of(*size).draw()) for size in FORMS]],
        "each row is one square patch, and the patches run left to right, top to bottom":
            [images_of(*size, lie) for size in SIZES for lie in (False, True)],
        "keeps the type of the numbers, leaves its input as it was, and gradients flow": [contract],
        "raises an error on a 30 x 32 image, as it should": [
            Raises(
                [(torch.rand(1, 3, H, W), 4) for H, W in ((30, 32), (32, 30), (30, 30))],
                lambda got, x, P: (
                    f"gives {got} for {x.shape[2]} x {x.shape[3]} pixels and P = {P}: pixels are dropped "
                    "without a word; raise an error where P does not divide H and W"
                ),
                error=Exception,
            )
        ],
    },
    mistakes=PLACES | {SQUARE_ONLY: turned_grid} | SHAPES,
)  # fmt: skip
check_patchify = PATCHIFY.check


# Putting back


def patches_of(size: tuple, P: int) -> Case:
    """Patches of images with numbers below 0 and above 1."""
    return Case(lambda: (patchify(1.5 * torch.randn(size), P), P, size[2:]))


def of_patches(patches: Tensor, P: int, size: tuple) -> str:
    """Arguments of unpatchify in words."""
    B, _, length = patches.shape
    return f"for patches of images of shape {(B, length // P**2, *size)} and P = {P}"


def fill(axes: tuple, shape: str) -> object:
    """A wrong unpatchify: the axes of patches apart in the order that `shape` names, permuted by `axes`."""

    def answer(p: Tensor, P: int, size: tuple) -> Tensor:
        C = p.shape[2] // (P * P)
        lengths = {"b": len(p), "r": size[0] // P, "c": size[1] // P, "k": C, "p": P, "q": P}
        return p.reshape([lengths[s] for s in shape]).permute(axes).reshape(len(p), C, *size)

    return answer


UNPATCHIFY = Exercise(
    name="unpatchify",
    reference=unpatchify,
    when=of_patches,
    says="for images of {2[0]} x {2[1]} pixels and P = {1}: {words}",
    unknown=misplaced,
    batch=3,
    ideas={
        "shape (B, C, H, W) for square, wide, tall and grey images":
            [lambda exercise, answer: [exercise.try_form(answer, patches_of(*size).draw()) for size in FORMS]],
        "every patch is back in its place, and every pixel in its patch": [patches_of(*size) for size in SIZES],
        "keeps the type of the numbers, leaves its input as it was, and gradients flow": [contract],
    },
    mistakes={
        "the patches are written one after another, as rows of pixels; a permute must take them apart first":
            lambda p, P, s: p.reshape(len(p), -1, *s),
        "the patches are put back top to bottom; they were cut left to right first": fill((0, 3, 2, 4, 1, 5), "bcrkpq"),
        "inside a patch the channels are read as if they came last; they come first": fill((0, 5, 1, 3, 2, 4), "brcpqk"),
        "each patch is turned over: inside it y and x are exchanged": fill((0, 3, 1, 5, 2, 4), "brckpq"),
        "after the permute stand (P, rows) and (P, cols); the grid's axis must stand before the patch's":
            fill((0, 3, 4, 1, 5, 2), "brckpq"),
        "right on square images only: the grid has H/P rows and W/P columns": lambda p, P, s: (
            p.reshape(len(p), s[1] // P, s[0] // P, -1, P, P).permute(0, 3, 1, 4, 2, 5).reshape(len(p), -1, *s)
        ),
        "rows and columns of the grid and of the patch do not alternate: the order is (C, rows, P, cols, P)":
            fill((0, 3, 1, 2, 4, 5), "brckpq"),
        "the numbers of a patch and the patches were exchanged by a reshape; it moves no number, use transpose(1, 2)":
            lambda p, P, s: unpatchify(p.reshape(len(p), p.shape[2], -1).transpose(1, 2).contiguous(), P, s),
        "the channels come second, not last": lambda p, P, s: unpatchify(p, P, s).movedim(1, -1),
        "the batch axis is lost": lambda p, P, s: unpatchify(p, P, s)[0],
        "only one image of the batch came back": lambda p, P, s: unpatchify(p[:1], P, s),
        "a last reshape is missing: merge (rows, P) to H and (cols, P) to W": lambda p, P, s: grid(unpatchify(p, P, s), P),
        "the channels are lost": lambda p, P, s: unpatchify(p, P, s)[:, 0],
        "the channels are lost; C is the length of a patch divided by P*P": lambda p, P, s: unpatchify(p, P, s)[:, :1],
        "H and W are exchanged; image_size is (height, width)": lambda p, P, s: unpatchify(p, P, s).mT,
    },
)  # fmt: skip
check_unpatchify = UNPATCHIFY.check


# Carrying weights


def conv_of(C: int, D: int, P: int, bias: bool, dtype: torch.dtype) -> Case:
    """A convolution whose numbers are all drawn anew."""

    def draw() -> tuple:
        conv = nn.Conv2d(C, D, P, stride=P, bias=bias, dtype=dtype)
        for p in conv.parameters():
            nn.init.normal_(p)
        return (conv,)

    return Case(draw)


def linear_of(weight: object = lambda w: w.flatten(1), bias: object = lambda b: b) -> object:
    """An answer that copies weight and bias, changed as told."""

    def answer(conv: nn.Conv2d) -> nn.Linear:
        w, b = weight(conv.weight.detach()), None if conv.bias is None else bias(conv.bias.detach())
        linear = nn.Linear(*w.shape[::-1], bias=b is not None, dtype=w.dtype)
        linear.weight = nn.Parameter(w.clone())
        linear.bias = None if b is None else nn.Parameter(b.clone())
        return linear

    return answer


def observe_linear(answer: object, conv: nn.Conv2d) -> dict:
    """Weight and bias of the answer's Linear, and what it gives for images that the convolution is given too."""
    linear = answer(conv)
    reject_if(linear is None, "gives nothing back: does it end with return?")
    reject_if(isinstance(linear, Tensor), f"gives {short(linear)}; wanted a whole nn.Linear, weight and bias")
    reject_if(not isinstance(linear, nn.Linear), f"gives {short(linear)}; wanted an nn.Linear")
    (D, C, P, _), shape, dtype = conv.weight.shape, tuple(linear.weight.shape), conv.weight.dtype
    wanted = (D, C * P * P)
    reject_if(shape == wanted[::-1], f"has a weight of shape {shape}; torch's Linear keeps (out, in), so {wanted}")
    reject_if(shape == (D, C, P, P), f"has the convolution's own weight, of shape {shape}; flatten it to {wanted}")
    reject_if(shape != wanted, f"has a weight of shape {shape} for a convolution of {(D, C, P, P)}; wanted {wanted}")
    types = {p.dtype for p in linear.parameters()} - {dtype}
    reject_if(types, f"has numbers of {', '.join(map(str, types))}; the convolution has {dtype}")
    return {"linear": linear, "weight": linear.weight.detach()}


def right_bias(exercise: Exercise, answer: object) -> None:
    """Mistake unless the Linear has the convolution's bias, none where it has none, and gives the same for images."""
    for case in exercise.cases():
        (conv,) = case.draw()
        linear = exercise.asked(answer, (conv,))["linear"]
        if conv.bias is None:
            zero = linear.bias is None or not linear.bias.any()
            reject_if(not zero, "the convolution has no bias, the Linear adds one: build it with bias=False")
        else:
            lost = "the bias is lost: a convolution has one number per filter, and so does a Linear"
            reject_if(linear.bias is None, lost)
            other = differ(linear.bias, conv.bias)
            reject_if(other, "the weight is right, but the bias is not the convolution's: copy it too")
        P = conv.kernel_size[0]
        images = torch.randn(2, conv.in_channels, 2 * P, 3 * P, dtype=conv.weight.dtype)
        got, wanted = linear(patchify(images, P)), conv(images).flatten(2).transpose(1, 2)
        words = f"for {conv.in_channels} channels and P = {P}: the weights are right, but the Linear gives something else"
        reject_if(not same(got, wanted, atol=1e-4), words)


def can_be_trained(exercise: Exercise, answer: object) -> None:
    """Mistake unless the Linear has parameters of its own that get a gradient, and the convolution keeps its own."""
    (conv,) = conv_of(3, 8, 4, True, torch.float32).draw()
    before = deepcopy(conv.state_dict())
    linear, patches = exercise.asked(answer, (conv,))["linear"], patchify(torch.rand(1, 3, 8, 8), 4)
    for name in ("weight", "bias"):
        own = getattr(linear, name)
        reject_if(not own.requires_grad, f"is right, but its {name} is frozen: it gets no gradient and cannot be trained")
        learns = isinstance(own, nn.Parameter) and gradient(linear(patches), own) is not None
        words = f"is right, but its {name} is no parameter of its own, and would not learn: use nn.Parameter or copy_"
        reject_if(not learns, words)
        with torch.no_grad():
            own += 1  # as a step of training does
        moved = any(not torch.equal(p, before[key]) for key, p in conv.state_dict().items())
        tied = f"is right, but its {name} lies in the convolution's memory: training one would silently change the other. "
        reject_if(moved, tied + "Copy the numbers, with copy_ or clone()")


TO_LINEAR = Exercise(
    name="to_linear",
    reference=linear_of(),
    observe=observe_linear,
    compared=("weight",),
    model="convolution",
    when=lambda conv: f"for {conv.in_channels} channels and P = {conv.kernel_size[0]}",
    says="{when}: {words}",
    unknown="the Linear's weight is not the convolution's, filter by filter",
    fresh="the Linear has random weights of its own; copy the convolution's",
    ideas={
        "a Linear from C*P*P to D numbers":
            [lambda exercise, answer: [exercise.try_form(answer, case.draw()) for case in exercise.cases()]],
        "gives what the convolution gives, for colour and grey, with a bias and without": [
            conv_of(3, 8, 4, True, torch.float32),
            conv_of(1, 5, 2, True, torch.float32),
            conv_of(2, 6, 3, False, torch.float64),
            conv_of(2, 5, 3, True, torch.float64),
            right_bias,
        ],
        "leaves the convolution as it was, and can be trained": [can_be_trained, contract],
    },
    mistakes={
        "the weight is flattened with the channels last; a patch here has them first: flatten(1) alone":
            linear_of(lambda w: w.permute(0, 2, 3, 1).flatten(1)),
        "each filter is turned over: y and x are exchanged": linear_of(lambda w: w.transpose(2, 3).flatten(1)),
        "the weight is transposed by a reshape, which moves no number":
            linear_of(lambda w: w.flatten(1).t().reshape(len(w), -1)),
        "the filters are mirrored; torch's convolution does not turn them over, so neither should you":
            linear_of(lambda w: w.flip(2, 3).flatten(1)),
        "the filters come in another order; row i of the Linear is filter i": linear_of(lambda w: w.flip(0).flatten(1)),
        "reshape(-1, D).t() is not the same as reshape(D, -1): filter i must become row i":
            linear_of(lambda w: w.reshape(-1, len(w)).t()),
    },
)  # fmt: skip
check_to_linear = TO_LINEAR.check


# The planted mistake


def apart(function: object) -> object:
    """(B, N, C*P*P) -> (B, N, C, P, P): the patches as images."""
    return lambda x, P: function(x, P).unflatten(2, (x.shape[1], P, P))


STILL = "still the planted mistake: right on square images only. Which of H and W gives the number of rows?"
FIX = Exercise(
    name="mended",
    reference=apart(patchify),
    when=image_size,
    says=PIXELS,
    unknown=misplaced,
    batch=4,
    ideas={
        "shape (B, N, C, P, P)":
            [lambda exercise, answer: [exercise.try_form(answer, images_of(*size).draw()) for size in SIZES]],
        "right on square images, as it was": [images_of(*SIZES[i]) for i in (0, 5)],
        "right on wide and tall images, grey and colour": [images_of(*SIZES[i]) for i in (1, 2, 3, 4, 6, 7)],
        "keeps the type of the numbers, leaves its input as it was, and gradients flow": [contract],
    },
    mistakes={STILL: apart(turned_grid)}
    | {words: apart(wrong) for words, wrong in PLACES.items()}
    | {"here the patches stay pictures: do not flatten them": patchify},
)  # fmt: skip
check_mended = FIX.check
