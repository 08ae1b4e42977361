"""The exercises of notebook 02."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.compare import expect_anywhere, expect_gradient, expect_steady, expect_tensor, same
from vit_helpers.checks.contract import Raises, contract
from vit_helpers.checks.engine import Case, Exercise
from vit_helpers.checks.modules import (
    ModuleExercise,
    Sizes,
    build,
    every_gradient,
    made,
    numbers,
    other_sizes,
    output,
    reading_of,
)
from vit_helpers.checks.report import Mistake, first_line, reject_if
from vit_helpers.checks.traces import ask
from vit_helpers.embeddings import TokenEmbed, resize_positions, sincos_1d, sincos_positions
from vit_helpers.patches import patchify, unpatchify

# What the modules share: shapes, and what is learned

UNREGISTERED = (
    "is no registered parameter, so it is never trained and never saved: write self.name = nn.Parameter(...) in __init__ "
    "(and no .to(...) behind it)"
)


def right_shape(exercise: ModuleExercise, sizes: Sizes, x: Tensor) -> Sizes:
    """The shape that the right module gives."""
    return tuple(exercise.module(*sizes)(x.float()).shape)


def tokens_shape(exercise: ModuleExercise, answer: object) -> None:
    """Mistake unless a module gives tensors of the right shape, with the words for the shape of a known mistake."""
    for sizes, shape in exercise.cases:
        (module, x), when = made(answer, sizes, shape), f"for {'images' if len(shape) == 4 else 'patches'} {shape}"
        try:
            got = ask(module, x)
        except (RuntimeError, IndexError) as error:
            about_sizes = any(word in str(error).lower() for word in ("size", "expand", "dimension"))
            words = f"raises an error about sizes {when}: {first_line(error)[:90]}. {exercise.advice}"
            reject_if(exercise.advice and about_sizes, words)
            raise
        wanted = right_shape(exercise, sizes, x)
        if isinstance(got, Tensor) and tuple(got.shape) != wanted:
            for words, wrong in exercise.mistakes.items():
                theirs = exercise.wrong_class(wrong)(*sizes)(x).shape
                reject_if(
                    theirs == got.shape, f"gives {tuple(got.shape)} {when}, wanted {exercise.count} = {wanted}: {words}"
                )
        expect_tensor(got, wanted, when)


def steady(exercise: ModuleExercise, answer: object) -> None:
    """Mistake unless a module gives the same in both modes and at every call."""
    for sizes, shape in exercise.cases:
        module, x = made(answer, sizes, shape)
        expect_steady(module, x, right_shape(exercise, sizes, x))


def learned(module: nn.Module) -> list[int]:
    """How many numbers are in each parameter that learns."""
    return sorted(p.numel() for p in module.parameters() if p.requires_grad)


def registered(exercise: ModuleExercise, answer: object, several: str = "") -> None:
    """Mistake unless a module learns as many numbers as the right one; several: words for a multiple of that number."""
    for sizes, shape in exercise.cases:
        module, _ = made(answer, sizes, shape)
        mine, wanted = learned(module), sum(learned(exercise.module(*sizes)))
        got, total = sum(mine), sum(p.numel() for p in module.parameters())
        frozen = f"has parameters with requires_grad=False ({total - got} numbers): let them learn, or leave them out"
        reject_if(total > got, frozen)
        if got == wanted:
            continue
        known = {words: learned(wrong(*sizes)) for words, wrong in exercise.structures.items()}
        known = {words: theirs for words, theirs in known.items() if sum(theirs) == got}
        words = min(known, key=lambda words: known[words] != mine, default=several if got % wanted == 0 else "")
        reject_if(words, words.format(got=got, more=got - wanted, times=got // wanted, D=sizes[-1]))
        raise Mistake(f"learns {got} numbers, it should learn {wanted}")


def readable(exercise: ModuleExercise, answer: object) -> None:
    """Mistake unless the parameters have the form of published ones."""
    for sizes, shape in exercise.cases:
        module, _ = made(answer, sizes, shape)
        reject_if(not any(True for _ in exercise.readings(module, *sizes)), exercise.unread)


# Projection of patches


class Projection(nn.Module):
    """The right module; a norm before or after, a missing bias or a plain list make it a wrong one."""

    def __init__(self, P: int, C: int, D: int, bias: bool = True, norms: str = "", listed: bool = False) -> None:
        super().__init__()
        proj = nn.Linear(C * P * P, D, bias=bias)
        self.P, self.proj = P, [proj] if listed else nn.ModuleList([proj])
        self.before = nn.LayerNorm(C * P * P) if "before" in norms else nn.Identity()
        self.after = nn.LayerNorm(D) if "after" in norms else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return self.after(self.proj[0](self.before(patchify(images, self.P))))


def side(x: Tensor, w: Tensor) -> int:
    """P, from images (B, C, H, W) and a weight (D, C*P*P)"""
    return math.isqrt(w.shape[1] // x.shape[1])


def project(x: Tensor, w: Tensor, b: Tensor, cut: Callable = patchify) -> Tensor:
    """Images to tokens; a mistake is another way to cut."""
    return F.linear(cut(x, side(x, w)), w, b)


def convolved(x: Tensor, w: Tensor, b: Tensor, overlap: bool = False, padding: int = 0) -> Tensor:
    """The projection as a convolution, (B, D, rows, cols)."""
    P = side(x, w)
    return F.conv2d(x, w.unflatten(1, (-1, P, P)), b, stride=1 if overlap else P, padding=padding)


def reordered(x: Tensor, P: int, order: tuple[int, ...]) -> Tensor:
    """Patches whose numbers stand in another order than (C, P, P)."""
    return patchify(x, P).unflatten(2, (-1, P, P)).permute(0, 1, *order).flatten(2)


def projection_readings(module: nn.Module, P: int, C: int, D: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Every way to read a weight (D, C*P*P) and a bias: that of a Linear or a Conv2d, or a matrix (C*P*P, D)."""
    parameters, length = list(module.parameters()), C * P * P
    for weight in parameters:
        for bias in (p.flatten() for p in parameters if p.numel() == D and p is not weight):
            if weight.numel() == D * length and weight.shape[0] == D:
                yield weight.reshape(D, length), bias
            if weight.numel() == D * length and weight.shape[-2:] == (length, D):
                yield weight.reshape(length, D).T, bias


def linear(exercise: ModuleExercise, answer: object) -> None:
    """Mistake unless a module is linear in the pixels, and images do not mix."""
    for sizes, shape in exercise.cases:
        module, one = made(answer, sizes, shape, torch.float64)
        two = torch.randn_like(one)
        with torch.no_grad():
            zero = output(module, torch.zeros_like(one), "for images", right_shape(exercise, sizes, one))
            straight = alike(module(one) + module(two) - zero, module(one + two))
            alone = torch.cat([module(image[None]) for image in one])
            bent = "is not linear in the pixels: no activation, no norm, no dropout belongs to the projection"
            reject_if(not straight, bent)
            mixed = "an image alone gets other tokens than in a batch: images must not mix"
            reject_if(not alike(alone, module(one)), mixed)


def alike(got: Tensor, wanted: Tensor) -> bool:
    """Whether numbers are the same to float32's digits, computed in whatever type."""
    return same(got.float(), wanted.float())


SEVERAL = "changing one patch of the image changes several tokens: the cut goes wrong. Did you reshape without a permute?"


def in_place(exercise: ModuleExercise, answer: object) -> None:
    """Mistake unless changing a patch changes its own token and no other."""
    for (P, C, D), shape in exercise.cases:
        module, x = made(answer, (P, C, D), shape, torch.float64)
        N = (shape[2] // P) * (shape[3] // P)
        marked = torch.eye(N, dtype=torch.float64)[:, :, None].expand(N, N, C * P * P)
        images = unpatchify(marked.contiguous(), P, shape[2:])
        moved = (module(images) - module(torch.zeros_like(images))).abs().sum(2) > 1e-9  # (image n, token)
        if not torch.equal(moved, torch.eye(N, dtype=torch.bool)):
            order = "the tokens stand in another order than the patches, left to right, then down"
            words = SEVERAL if (moved.sum(1) > 1).any() else order
            readable(exercise, answer)
            reading_of(replace(exercise, unknown=words), module, x, (P, C, D))


PATCH_EMBED = ModuleExercise(
    name="patch_embed",
    module=Projection,
    function=project,
    readings=projection_readings,
    ideas={
        "gives (B, N, D), for non-square and grey images too": [tokens_shape],
        "weight and bias are registered, and nothing else is learned": [registered, steady],
        "is linear, image by image": [linear],
        "token n comes from patch n alone": [in_place],
        "equals PatchEmbed with the same weights, gradients too": [readable, numbers, other_sizes, every_gradient],
    },
    mistakes={
        "flatten the grid, then move D to the end": convolved,
        "N and D changed places, transpose them": lambda x, w, b: project(x, w, b).mT,
        "lay the rows of the grid behind each other": lambda x, w, b: convolved(x, w, b).permute(0, 2, 3, 1),
        "cut, but not yet projected to width D": lambda x, w, b: patchify(x, side(x, w)),
        "the patches overlap. The stride of the convolution is P":
            lambda x, w, b: convolved(x, w, b, overlap=True).flatten(2).mT,
        "the convolution has a padding, it should have none": lambda x, w, b: convolved(x, w, b, padding=1).flatten(2).mT,
        "the class token comes later": lambda x, w, b: F.pad(project(x, w, b), (0, 0, 1, 0)),
        "the patches are ordered top to bottom first; they should go left to right, then down: rows before columns":
            lambda x, w, b: convolved(x, w, b).mT.flatten(2).mT,
        SEVERAL: partial(project, cut=lambda x, P: x.reshape(len(x), -1, x.shape[1] * P * P)),
        "flattens a patch pixel by pixel (P, P, C); published weights want it channel by channel (C, P, P)":
            partial(project, cut=partial(reordered, order=(3, 4, 2))),
        "reads each patch column by column; go row by row": partial(project, cut=partial(reordered, order=(2, 4, 3))),
    },
    structures={
        f"the projection {UNREGISTERED}. A layer in a plain list is not registered either":
            partial(Projection, listed=True),
        "learns {got} numbers, the weight alone; a bias of D = {D} numbers belongs to it in all published weights":
            partial(Projection, bias=False),
    }
    | {
        f"learns {{more}} numbers too many: the paper's model has no LayerNorm here, {norms} the projection":
            partial(Projection, norms=norms)
        for norms in ("before", "after", "before and after")
    },
    cases=[((2, 3, 8), (2, 3, 4, 6)), ((4, 1, 5), (1, 1, 8, 12)), ((3, 2, 7), (3, 2, 9, 3)), ((2, 3, 8), (2, 3, 6, 4))],
    count="(B, N, D)",
    unknown="with the weights of PatchEmbed it gives other numbers than PatchEmbed",
    unread="keeps its weight in a form that no published weight fits: use nn.Linear or nn.Conv2d",
)  # fmt: skip
check_patch_embed = PATCH_EMBED.check


# The class token


class ClassToken(TokenEmbed):
    """The right module; with several vectors, or one that is not registered, a wrong one."""

    def __init__(self, D: int, kept: bool = True) -> None:
        super().__init__((1, 1), D, positions="none")
        if not kept:
            del self.cls_token
            self.cls_token = torch.zeros(1, 1, D)


def front(x: Tensor, token: Tensor, *positions: Tensor) -> Tensor:
    """(B, N, D) -> (B, N + 1, D): the class token in front of every image."""
    return torch.cat([token.expand(len(x), 1, -1), x], dim=1)


def end(x: Tensor, token: Tensor, *positions: Tensor) -> Tensor:
    return torch.cat([x, token.expand(len(x), 1, -1)], dim=1)


def joined(times: Callable[[int, int], int]) -> Callable:
    """The class token so many times in front, from the numbers of images and tokens."""
    return lambda x, token, *positions: torch.cat([token.expand(len(x), times(*x.shape[:2]), -1), x], dim=1)


END = "the class token stands at the end; it should be token 0"
SHAPES = {
    "the class token is a token more, torch.cat it in front": lambda x, token, *positions: x + token,
    "joined along the batch; tokens are along dim=1":
        lambda x, token, *positions: torch.cat([token.expand(1, *x.shape[1:]), x]),
    "joined along the batch, a copy for each image; tokens are along dim=1":
        lambda x, token, *positions: torch.cat([token.expand_as(x), x]),
    "one class token an image, not B of them": joined(lambda B, N: B),
    "one class token an image, not one a patch": joined(lambda B, N: N),
    "joined along the width; tokens are along dim=1": lambda x, token, *positions: F.pad(x, (1, 0)),
}  # fmt: skip


def class_token_reading(module: nn.Module, D: int) -> Iterator[tuple[Tensor]]:
    """The one parameter of D numbers."""
    parameters = list(module.parameters())
    if [p.numel() for p in parameters] == [D]:
        yield (parameters[0].flatten(),)


def in_front(exercise: ModuleExercise, answer: object) -> None:
    """Mistake unless the same vector is in front of every image, and the patches come out as they were."""
    for sizes, shape in exercise.cases:
        module, x = made(answer, sizes, shape)
        got = output(module, x, "for (B, N, D)", right_shape(exercise, sizes, x))
        reject_if(same(got[:, :-1], x), END)
        changed = "the patches behind the class token came out changed; here nothing is added to them"
        reject_if(not same(got[:, 1:], x), changed)
        each = "the images of a batch get different class tokens; it is one learned vector, the same for all. Use expand"
        reject_if(not same(got[:, 0], got[:1, 0].expand_as(got[:, 0])), each)


BATCHES = [(6, (4, 5, 6)), (4, (1, 9, 4)), (8, (3, 2, 8)), (6, (7, 5, 6)), (6, (5, 4, 6))]
SEVERAL_VECTORS = "learns {times} vectors; the class token is one vector of D = {D}, whatever the batch size"
ADD_CLASS_TOKEN = ModuleExercise(
    name="add_class_token",
    module=ClassToken,
    function=front,
    readings=class_token_reading,
    ideas={
        "gives one token more, for every batch size": [tokens_shape],
        "the same vector stands in front of every image": [steady, in_front],
        "it is one registered vector": [partial(registered, several=SEVERAL_VECTORS), readable, numbers],
        "gradients reach it and the patches": [other_sizes, every_gradient],
    },
    mistakes=SHAPES | {END: end},
    structures={f"the class token {UNREGISTERED}": partial(ClassToken, kept=False)},
    cases=[((D,), shape) for D, shape in BATCHES],
    count="(B, N + 1, D)",
    advice="The token is one vector, (1, 1, D); expand it to the batch at hand, x.shape[0], inside forward",
    unknown="token 0 is not the learned vector; hand the vector on as it is (an average of patches is no class token)",
    unread="keeps the vector in several parts; one parameter of D numbers holds it",
)
check_add_class_token = ADD_CLASS_TOKEN.check


# Class token and positions: the mended module


class Tokens(TokenEmbed):
    """The right module; with other numbers of positions, or without a part, a wrong one."""

    def __init__(self, N: int, D: int, rows: Callable = lambda N: N + 1, kept: str = "cls_token pos_embed") -> None:
        super().__init__((1, N), D)
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, rows(N), D))
        for name in {"cls_token", "pos_embed"} - set(kept.split()):
            plain = getattr(self, name).detach()
            delattr(self, name)
            setattr(self, name, plain)

    def forward(self, x: Tensor) -> Tensor:
        x = front(x, self.cls_token)
        return x + F.interpolate(self.pos_embed.mT, x.shape[1]).mT


def token_readings(module: nn.Module, N: int, D: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Class token and positions among the parameters, told apart by their size."""
    by_size = {p.numel(): p for p in module.parameters()}
    if set(by_size) == {D, (N + 1) * D}:
        yield by_size[D].flatten(), by_size[(N + 1) * D].reshape(N + 1, D)


def quiet(exercise: ModuleExercise, answer: object) -> None:
    """Mistake when the positions start so large that the patches are lost in them."""
    for sizes, _ in exercise.cases:
        for _, positions in exercise.readings(build(answer, *sizes), *sizes):
            drown = "the positions start with a standard deviation near 1 and drown the patches: the published code has 0.02"
            reject_if(positions.detach().std() > 0.3, drown)


TOKEN_EMBED = ModuleExercise(
    name="token_embed",
    module=Tokens,
    function=lambda x, token, positions: front(x, token) + positions,
    readings=token_readings,
    ideas={
        "gives one token more, for every batch size": [tokens_shape],
        "one class token and N + 1 positions are learned": [steady, registered],
        "adds to each token its own position, gradients too": [readable, quiet, numbers, other_sizes, every_gradient],
    },
    mistakes=SHAPES
    | {
        "the positions are never added": front,
        "the positions are added twice": lambda x, token, positions: front(x, token) + 2 * positions,
        "one position vector is added to every token; each token has its own":
            lambda x, token, positions: front(x, token) + positions[0],
        "the positions are subtracted; equation 1 adds them": lambda x, token, positions: front(x, token) - positions,
        "the positions are multiplied; equation 1 adds them": lambda x, token, positions: front(x, token) * positions,
        "the class token is left without its position: add after the cat":
            lambda x, token, positions: front(x + positions[1:], token),
        END: lambda x, token, positions: end(x, token) + positions,
        "the positions are off by one: row 0 of the table belongs to the class token":
            lambda x, token, positions: front(x, token) + positions.roll(-1, 0),
    },
    structures={
        f"neither class token nor positions are learned: each {UNREGISTERED}": partial(Tokens, kept=""),
        f"learns the class token alone, or one position; the other {UNREGISTERED}": partial(Tokens, kept="cls_token"),
        f"learns the positions alone: the class token {UNREGISTERED}": partial(Tokens, kept="pos_embed"),
        "learns two vectors: the class token, and one position for all patches. Then a patch still cannot tell "
        "where it stood: positions are (1, N + 1, D), one vector a token": partial(Tokens, rows=lambda N: 1),
        "learns N positions, one too few: the class token gets a position too (E_pos has N + 1 rows)":
            partial(Tokens, rows=lambda N: N),
        "learns three vectors: all patches share one position; each token needs its own":
            partial(Tokens, rows=lambda N: 2),
    },
    cases=[((shape[1], D), shape) for D, shape in BATCHES],
    count="(B, N + 1, D)",
    advice=ADD_CLASS_TOKEN.advice,
    unknown="is not [class token; patches] + positions, equation 1",
    unread="keep one parameter of D numbers for the class token and one of (N + 1) * D for the positions",
)  # fmt: skip
check_token_embed = TOKEN_EMBED.check


# Sines and cosines


def forms(exercise: Exercise, answer: Callable) -> None:
    """Mistake unless an answer has the right form in every case."""
    for case in exercise.cases():
        exercise.try_form(answer, case.draw())


def waves(
    grid: Sizes, dim: int, step: Callable[[int], float] = lambda m: 2 / m, base: float = 10000.0, first: int = 0
) -> Tensor:
    """Positions with another exponent for i, another base, or places counted from `first`."""
    frequencies = base ** (-step(dim // 2) * torch.arange(dim // 4))
    angles = [torch.outer(torch.arange(length, dtype=torch.float64) + first, frequencies) for length in grid]
    row, col = (torch.cat([each.sin(), each.cos()], dim=1) for each in angles)
    return torch.cat([row.repeat_interleave(grid[1], dim=0), col.repeat(grid[0], 1)], dim=1).float()


def columns(change: Callable[[Tensor], Tensor]) -> Callable:
    """The right positions, of which the columns (axis, wave, frequency) are put in another order."""
    return lambda grid, dim: change(sincos_positions(grid, dim).unflatten(1, (2, 2, -1))).flatten(1)


FIRST_PLACE = {  # the numbers that a wrong answer holds for place (0, 0)
    (0.0,): "holds only sines: place (0, 0) is all zeros. Each axis has the sines and then the cosines of its angles",
    (1.0,): "holds only cosines: place (0, 0) is all ones. Each axis has the sines and then the cosines of its angles",
}


def observe_sincos(answer: Callable, grid: Sizes, dim: int) -> dict[str, Tensor]:
    """Positions as float32; Mistake for those that learn, are whole numbers, or hold only one of the waves."""
    got = answer(grid, dim)
    if not isinstance(got, Tensor) or got.is_complex():
        return {"": got}
    if got.ndim == 2 and len(got) == math.prod(grid):
        words = FIRST_PLACE.get(tuple(sorted(set(got[0].tolist()))))
        reject_if(words, words)
    reject_if(got.requires_grad, "is learned; these positions are fixed, so no nn.Parameter and no requires_grad")
    whole = f"gives whole numbers ({got.dtype}); sines and cosines are floats"
    reject_if(not got.is_floating_point(), whole)
    return {"": got.float()}


def odd_positions(got: Tensor, right: Tensor, grid: Sizes, dim: int) -> str:
    """What to say of numbers that no known mistake gives."""
    if set(got[0].tolist()) == {0.0, 2.0}:
        return "adds row and column at full width; they stand side by side, half of the width each"
    if not same(got[0].sort().values, right[0].sort().values):
        return "place (0, 0) should hold sin 0 = 0 and cos 0 = 1 only: count rows and columns from 0"
    if same(got.sort(1).values, right.sort(1).values):
        return "holds the right numbers in another order: row before column; in each half the sines, then the cosines"
    return f"gives other numbers than it should for grid {grid} and width {dim}"


SINCOS = Exercise(
    name="sincos",
    reference=sincos_positions,
    observe=observe_sincos,
    when="for grid {} and width {}".format,
    says="{words}",
    unknown=odd_positions,
    ideas={
        "gives (N, D) fixed floats": [forms],
        "holds sines and cosines of the row, then of the column":
            [Case(partial(tuple, sizes)) for sizes in (((3, 5), 8), ((4, 2), 16), ((1, 6), 12), ((7, 7), 64), ((2, 4), 16))],
        "raises ValueError for a width that is no multiple of 4": [
            Raises(
                [((2, 3), dim) for dim in (6, 10, 5, 7, 9)],
                lambda got, grid, dim: (
                    f"takes width {dim}; two axes with sines and cosines need a multiple of 4, else raise ValueError"
                ),
            )
        ],
    },
    mistakes={
        "flatten the grid": lambda grid, dim: sincos_positions(grid, dim).unflatten(0, grid),
        "no batch axis here": lambda grid, dim: sincos_positions(grid, dim)[None],
        "patches only, no class token here": lambda grid, dim: F.pad(sincos_positions(grid, dim), (0, 0, 1, 0)),
        "rows and columns stand side by side; join along the width, do not add":
            lambda grid, dim: sum(sincos_positions(grid, dim).split(dim // 2, 1)),
        "half of the width for each axis": lambda grid, dim: sincos_positions(grid, 2 * dim),
        "row and column changed places: the first half of the width says the row": columns(lambda x: x.flip(1)),
        "the places go top to bottom first; patches go left to right, then down":
            lambda grid, dim: sincos_positions(grid, dim).unflatten(0, grid).transpose(0, 1).flatten(0, 1),
        "that is the one-dimensional form: number n says neither row nor column":
            lambda grid, dim: sincos_1d(math.prod(grid), dim),
        "the base slipped: it is 10000": partial(waves, base=1000.0),
        "places are counted from 0, not from 1": partial(waves, first=1),
        "sines come first, then cosines": columns(lambda x: x.flip(2)),
        "sines and cosines alternate; here all sines of an axis come first, then its cosines": columns(lambda x: x.mT),
    }
    | {
        f"the exponent slipped, it is {name}: the frequencies are 10000^(-2i/m) with i = 0, 1, 2, ... and m = D / 2":
            partial(waves, step=step)
        for name, step in {
            "-2i/D": lambda m: 1 / m,
            "-4i/m": lambda m: 4 / m,
            "-i/D": lambda m: 1 / (2 * m),
            "2i/m": lambda m: -2 / m,
            "-2i/(m-2)": lambda m: 2 / (m - 2),
        }.items()
    },
)  # fmt: skip
check_sincos = SINCOS.check


# Resizing positions

METHODS = [
    {"mode": mode, "antialias": antialias, "align_corners": align}
    for mode in ("bicubic", "bilinear")
    for antialias in (True, False)
    for align in (False, True)
]


def resized(move: Callable) -> Callable:
    """An answer from what it does with the patches' positions; the class token's is set aside and put back.

    move: (patches (1, N, D), grid, new grid, how to interpolate) -> (1, N', D)
    """

    def answer(pos_embed: Tensor, grid: Sizes, new_grid: Sizes, method: dict | None = None) -> Tensor:
        extra = pos_embed.shape[1] - math.prod(grid)
        moved = move(pos_embed[:, extra:], grid, new_grid, method or METHODS[0])
        return torch.cat([pos_embed[:, :extra], moved], dim=1)

    return answer


def interpolated(patches: Tensor, grid: Sizes, new_grid: Sizes, method: dict) -> Tensor:
    """(1, N, D) -> (1, D, rows', cols')"""
    return F.interpolate(patches.mT.unflatten(2, grid), size=new_grid, **method)


def stretch(patches: Tensor, grid: Sizes, new_grid: Sizes, method: dict) -> Tensor:
    return interpolated(patches, grid, new_grid, method).flatten(2).mT


def filled(patches: Tensor, length: int, copies: bool) -> Tensor:
    """A list of positions cut off, or continued with copies or zeros."""
    more = patches.repeat(1, length, 1) if copies else F.pad(patches, (0, 0, 0, length))
    return more[:, :length]


NEAREST = "copies the nearest position; neighbours then share one. Interpolate: bicubic"
RESIZED = {
    words: resized(move)
    for words, move in {
        "reshaped (1, N, D) to (1, D, rows, cols) without moving axes: go by (1, rows, cols, D), then permute":
            lambda x, grid, new, method: F.interpolate(x.reshape(1, -1, *grid), size=new, **method).flatten(2).mT,
        "came back from picture to tokens by a reshape alone: flatten(2), then transpose(1, 2)":
            lambda x, grid, new, method: interpolated(x, grid, new, method).reshape(1, -1, x.shape[2]),
        "reads the new grid column by column; patches go left to right, then down":
            lambda x, grid, new, method: interpolated(x, grid, new, method).mT.flatten(2).mT,
        "rows and columns changed places": lambda x, grid, new, method: stretch(x, grid[::-1], new, method),
        "rows and columns of the new grid changed places":
            lambda x, grid, new, method: stretch(x, grid, new[::-1], method),
        NEAREST: lambda x, grid, new, method: stretch(x, grid, new, {"mode": "nearest"}),
        f"{NEAREST} (that is nearest-exact)": lambda x, grid, new, method: stretch(x, grid, new, {"mode": "nearest-exact"}),
        "takes the mean of an area; neighbours then share it. Interpolate: bicubic":
            lambda x, grid, new, method: stretch(x, grid, new, {"mode": "area"}),
        "repeats or cuts the list of positions; stretch the grid instead":
            lambda x, grid, new, method: filled(x, math.prod(new), copies=True),
        "stretches the positions as one long row; they lie on a grid, so stretch in two directions":
            lambda x, grid, new, method: F.interpolate(
                x.mT, size=math.prod(new), mode="linear", align_corners=method["align_corners"]
            ).mT,
        "cuts the list of positions or fills it up with zeros; stretch the grid instead":
            lambda x, grid, new, method: filled(x, math.prod(new), copies=False),
    }.items()
}  # fmt: skip
right_resized = resized(stretch)


def observe_resized(answer: Callable, *given: object) -> dict[str, Tensor]:
    """Positions, right or wrong, as the first of the methods gives them: each of eight is welcome, in float32 too."""
    got = answer(*given)
    if isinstance(got, Tensor) and not got.is_complex():
        for known in (right_resized, *RESIZED.values()):
            if any(alike(got, known(*given, method)) for method in METHODS):
                return {"": known(*given).to(got.dtype)}
    return {"": got}


def positions(grid: Sizes, new_grid: Sizes, extra: int) -> Case:
    """Positions in float64, with a class token (extra 1) or without."""
    return Case(lambda: (torch.randn(1, extra + math.prod(grid), 6, dtype=torch.float64), grid, new_grid))


def from_to(pos_embed: Tensor, grid: Sizes, new_grid: Sizes) -> str:
    """The arguments in words."""
    extra = pos_embed.shape[1] > math.prod(grid)
    return f"from {grid} to {new_grid} {'with' if extra else 'without'} a class token"


def class_token_kept(exercise: Exercise, answer: Callable) -> None:
    """Mistake unless the class token's position comes out as it was, in row 0."""
    for case in exercise.cases():
        pos_embed, grid, new_grid = case.draw()
        if pos_embed.shape[1] > math.prod(grid):
            got = answer(pos_embed.clone(), grid, new_grid)
            reject_if(alike(got[:, -1], pos_embed[:, 0]), "the class token's position moved to the end; it stays row 0")
            words = "the class token's position changed; it has no place in the image. Set it aside, and put it back"
            reject_if(not alike(got[:, 0], pos_embed[:, 0]), words)


def as_tensors_go(exercise: Exercise, answer: Callable) -> None:
    """Mistake unless learned positions keep their type, come back with gradients, and stay where the grid does."""
    for dtype in (torch.float32, torch.float64):
        pos_embed = torch.randn(1, 13, 6, dtype=dtype, requires_grad=True)
        still = alike(answer(pos_embed, (3, 4), (3, 4)), pos_embed)
        reject_if(not still, "changes the positions although the grid stays the same")
        got = answer(pos_embed, (3, 4), (5, 6))
        reject_if(got.dtype != dtype, f"turns {dtype} into {got.dtype}; keep the type")
        rights = (right_resized(pos_embed, (3, 4), (5, 6), method) for method in METHODS)
        right = next((right for right in rights if alike(got, right)), None)
        words = f"gives other numbers than bicubic interpolation over the grid, for learned positions of {dtype}"
        reject_if(right is None, words)
        expect_gradient(got, right, pos_embed)
    expect_anywhere(answer, resize_positions, torch.randn(1, 13, 6), (3, 4), (5, 6))


STRETCHES = [((4, 4), (7, 7)), ((3, 5), (6, 4)), ((2, 6), (5, 9)), ((6, 4), (3, 2)), ((2, 6), (3, 4))]
RESIZE_POSITIONS = Exercise(
    name="resize_positions",
    reference=resize_positions,
    observe=observe_resized,
    says="{words}",
    when=from_to,
    unknown=lambda got, right, *given: f"gives other numbers than bicubic interpolation over the grid, {from_to(*given)}",
    ideas={
        "gives (1, T', D), with and without a class token": [forms],
        "the class token keeps its position": [class_token_kept],
        "stretches in two directions, non-square grids too": [positions(*grids, e) for grids in STRETCHES for e in (1, 0)],
        "keeps the type, passes gradients, leaves its input": [as_tensors_go, contract],
        "raises ValueError when positions and grid do not fit": [
            Raises(
                [(torch.zeros(1, T, 6), (3, 4), (5, 6)) for T in (14, 11)],
                lambda got, pos_embed, *grids: (
                    f"takes {pos_embed.shape[1]} positions for a 3 x 4 grid, which holds 12 or, with a class token, 13: "
                    "raise ValueError"
                ),
            )
        ],
    },
    mistakes={
        "the class token lost its position": lambda pos, grid, new: right_resized(pos[:, -math.prod(grid) :], grid, new),
        "a class token came from nowhere":
            lambda pos, grid, new: F.pad(right_resized(pos, grid, new), (0, 0, math.prod(grid) + 1 - pos.shape[1], 0)),
        "keep the leading axis of length 1": lambda pos, grid, new: right_resized(pos, grid, new)[0],
        "make a row of tokens of the picture again":
            lambda pos, grid, new: interpolated(pos[:, -math.prod(grid) :], grid, new, METHODS[0]),
    }
    | RESIZED,
)  # fmt: skip
check_resize_positions = RESIZE_POSITIONS.check
