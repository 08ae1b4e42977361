"""The exercise of notebook 02 that projects patches to tokens.

Here is also what the modules of this notebook share.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.engine import modules
from vit_helpers.checks.engine.compare import same
from vit_helpers.checks.engine.modules import ModuleExercise
from vit_helpers.checks.engine.report import Function, Mistake, first_line, reject_if
from vit_helpers.checks.engine.traces import ask
from vit_helpers.checks.patches import turned_grid
from vit_helpers.patches import patchify, unpatchify

# What the modules share: shapes, and what is learned

UNREGISTERED = (
    "is not a registered parameter, so it is never trained or saved: "
    "write self.name = nn.Parameter(...) in __init__ "
    "(without .to(...) after it)"
)


def tokens_shape(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless a module gives tensors of the right shape.

    The shape of a known mistake has a message of its own.
    """
    for sizes, shape in exercise.cases:
        (module, x), when = (
            modules.made(answer, sizes, shape),
            f"for {'images' if len(shape) == 4 else 'patches'} {shape}",
        )
        wanted = modules.right_shape(exercise, sizes, x)
        try:
            got = ask(module, x)
        except (RuntimeError, IndexError) as error:
            about_sizes = "view size" not in str(error) and any(
                word in str(error).lower() for word in ("size", "expand", "dimension")
            )
            message = (
                f"raises an error about sizes {when}: {first_line(error)[:90]}. {exercise.advice}"
            )
            reject_if(exercise.advice and about_sizes, message)
            raise
        if isinstance(got, Tensor) and got.shape != wanted:
            for message, wrong in exercise.mistakes.items():
                known = exercise.wrong_class(wrong)(*sizes)(x).shape == got.shape
                should = f"gives {tuple(got.shape)} {when} instead of {exercise.count} = {wanted}"
                reject_if(known, f"{should}: {message}")
        modules.output(module, x, when, wanted)


def steady(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless a module gives the same in both modes and at every call."""
    for sizes, shape in exercise.cases:
        module, x = modules.made(answer, sizes, shape)
        modules.expect_steady(module, x, modules.right_shape(exercise, sizes, x))


def learned(module: nn.Module) -> list[int]:
    """Return how many numbers are in each parameter that learns."""
    return sorted(p.numel() for p in module.parameters() if p.requires_grad)


def registered(exercise: ModuleExercise, answer: Function, several: str = "") -> None:
    """Raise Mistake unless a module learns as many numbers as the right one.

    A message of `structures` is given if its parameters are the answer's for all sizes.
    several: the message for a multiple
    """
    counts_by_size = [
        (sizes, learned(modules.made(answer, sizes, shape)[0])) for sizes, shape in exercise.cases
    ]
    known = [
        message
        for message, structure in exercise.structures.items()
        if all(sorted(structure(*sizes)) == counts for sizes, counts in counts_by_size)
    ]
    for sizes, shape in exercise.cases:
        module, _ = modules.made(answer, sizes, shape)
        got, wanted = sum(learned(module)), sum(learned(exercise.module(*sizes)))
        total = sum(p.numel() for p in module.parameters())
        frozen = (
            f"has parameters with requires_grad=False ({total - got} numbers): "
            "let them learn, or remove them"
        )
        reject_if(total > got, frozen)
        if got == wanted:
            continue
        message = next(iter(known), several if got % wanted == 0 else "")
        reject_if(
            message, message.format(got=got, more=got - wanted, times=got // wanted, D=sizes[-1])
        )
        raise Mistake(f"learns {got} numbers, but should learn {wanted}")


def readable(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless the parameters have the form of published ones."""
    for sizes, shape in exercise.cases:
        module, _ = modules.made(answer, sizes, shape)
        reject_if(not any(True for _ in exercise.readings(module, *sizes)), exercise.unread)


# Projection of patches


class Projection(nn.Module):
    """The right module."""

    def __init__(self, P: int, C: int, D: int) -> None:
        super().__init__()
        self.P, self.proj = P, nn.Linear(C * P * P, D)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(patchify(images, self.P))


def side(x: Tensor, w: Tensor) -> int:
    """Return P, from images (B, C, H, W) and a weight (D, C*P*P)."""
    return math.isqrt(w.shape[1] // x.shape[1])


def project(x: Tensor, w: Tensor, b: Tensor, cut: Function = patchify) -> Tensor:
    """Project images to tokens; a mistake is another way to cut."""
    return F.linear(cut(x, side(x, w)), w, b)


def convolved(x: Tensor, w: Tensor, b: Tensor, overlap: bool = False, padding: int = 0) -> Tensor:
    """Return the projection as a convolution, (B, D, rows, cols)."""
    P = side(x, w)
    return F.conv2d(x, w.unflatten(1, (-1, P, P)), b, stride=1 if overlap else P, padding=padding)


def reordered(x: Tensor, P: int, order: tuple[int, ...]) -> Tensor:
    """Return patches whose numbers are in another order than (C, P, P)."""
    return patchify(x, P).unflatten(2, (-1, P, P)).permute(0, 1, *order).flatten(2)


def projection_readings(
    module: nn.Module, P: int, C: int, D: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield every way to read a weight (D, C*P*P) and a bias.

    The weight is that of a Linear or a Conv2d, or a matrix (C*P*P, D).
    """
    parameters, length = list(module.parameters()), C * P * P
    for weight in parameters:
        for bias in (p.flatten() for p in parameters if p.numel() == D and p is not weight):
            if weight.numel() == D * length and weight.shape[0] == D:
                yield weight.reshape(D, length), bias
            if weight.numel() == D * length and weight.shape[-2:] == (length, D):
                yield weight.reshape(length, D).T, bias


def linear(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless a module is linear in the pixels, and images do not mix."""
    for sizes, shape in exercise.cases:
        module, x = modules.made(answer, sizes, shape, torch.float64)
        y = torch.randn_like(x)
        with torch.no_grad():
            zero = modules.output(
                module,
                torch.zeros_like(x),
                "for images",
                modules.right_shape(exercise, sizes, x),
            )
            straight = alike(module(x) + module(y) - zero, module(x + y))
            alone = torch.cat([module(image[None]) for image in x])
            bent = (
                "is not linear in the pixels: "
                "the projection should have no activation, norm or dropout"
            )
            reject_if(not straight, bent)
            mixed = "an image gets different tokens alone and in a batch: images must not mix"
            reject_if(not alike(alone, module(x)), mixed)


def alike(got: Tensor, wanted: Tensor) -> bool:
    """Tell whether numbers agree to float32's digits, whatever type they were computed in."""
    return same(got.float(), wanted.float())


def in_place(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless changing a patch changes its own token and no other.

    A known mistake has a message of its own.
    """
    for (P, C, D), shape in exercise.cases:
        module, x = modules.made(answer, (P, C, D), shape, torch.float64)
        N = (shape[2] // P) * (shape[3] // P)
        own = torch.eye(N, dtype=torch.float64)
        marked = own[:, :, None] * torch.randn(C * P * P, dtype=torch.float64)
        images = unpatchify(marked, P, (shape[2], shape[3]))
        change = module(images) - module(torch.zeros_like(images))
        moved = change.abs().sum(2) > 1e-9  # (image n, token)
        if not torch.equal(moved, own > 0):
            order = (
                "the tokens are not in the order of the patches, "
                "which run from left to right, then down"
            )
            several = "changing one patch changes several tokens"
            none = "changing a patch changes no token"
            counts = moved.sum(1)
            message = several if (counts > 1).any() else order if counts.all() else none
            readable(exercise, answer)
            modules.reading_of(replace(exercise, unknown=message), answer, module, x, (P, C, D))


PATCH_EMBED_MISTAKES: dict[str, Function] = {
    "flatten the grid, then move D to the end": convolved,
    "N and D are swapped: transpose them": lambda x, w, b: project(x, w, b).mT,
    "put the rows of the grid one after another":
        lambda x, w, b: convolved(x, w, b).permute(0, 2, 3, 1),
    "the patches are cut, but not yet projected to width D":
        lambda x, w, b: patchify(x, side(x, w)),
    "the patches overlap: the stride of the convolution should be P":
        lambda x, w, b: convolved(x, w, b, overlap=True).flatten(2).mT,
    "the convolution has padding, but should have none":
        lambda x, w, b: convolved(x, w, b, padding=1).flatten(2).mT,
    "the class token is added later": lambda x, w, b: F.pad(project(x, w, b), (0, 0, 1, 0)),
    "the patches are ordered from top to bottom first, but should go from left to right, "
    "then down: rows before columns":
        lambda x, w, b: convolved(x, w, b).mT.flatten(2).mT,
    "the images are cut with a reshape alone, so the pieces are rows of pixels and not squares: "
    "a permute has to come before the last reshape":
        partial(project, cut=lambda x, P: x.reshape(len(x), -1, x.shape[1] * P * P)),
    "right for square images only: the grid has H / P rows and W / P columns":
        partial(project, cut=turned_grid),
    "a reshape turned (B, D, N) into (B, N, D), but it moves no numbers; use transpose(1, 2)":
        lambda x, w, b: (y := convolved(x, w, b)).reshape(len(x), -1, y.shape[1]),
    "subtracts each patch's mean, but the projection reads the pixels as they are":
        partial(project, cut=lambda x, P: (y := patchify(x, P)) - y.mean(-1, keepdim=True)),
    "the bias is never added": lambda x, w, b: project(x, w, 0 * b),
    "flattens a patch pixel by pixel (P, P, C), "
    "but published weights expect it channel by channel (C, P, P)":
        partial(project, cut=partial(reordered, order=(3, 4, 2))),
    "reads each patch column by column, but it should go row by row":
        partial(project, cut=partial(reordered, order=(2, 4, 3))),
}  # fmt: skip
PATCH_EMBED_STRUCTURES: dict[str, Function] = (
    {
        f"the projection {UNREGISTERED}. A layer in a plain list is not registered either":
            lambda P, C, D: [],
        "learns only the weight, {got} numbers, "
        "but all published weights also have a bias of D = {D} numbers":
            lambda P, C, D: [C * P * P * D],
        "learns {more} numbers too many: each channel has a projection with its own bias, "
        "but one bias of D = {D} numbers is enough":
            lambda P, C, D: [P * P * D, D] * C,
    }
    | {
        f"learns {{more}} numbers too many: "
        f"the paper's model has no norm here, {message} the projection": norms
        for message, norms in {
            "before": lambda P, C, D: [C * P * P * D, D, C * P * P, C * P * P],
            "after": lambda P, C, D: [C * P * P * D, D, D, D],
            "before and after": lambda P, C, D: [C * P * P * D, D, C * P * P, C * P * P, D, D],
        }.items()
    }
)  # fmt: skip
PATCH_EMBED = ModuleExercise(
    name="patch_embed",
    module=Projection,
    function=project,
    readings=projection_readings,
    ideas={
        "gives (B, N, D), for non-square and gray images too": [tokens_shape],
        "weight and bias are registered, and nothing else is learned": [registered, steady],
        "is linear, image by image": [linear],
        "token n comes from patch n alone": [in_place],
        "agrees with PatchEmbed for the same weights, including gradients": [
            readable,
            modules.numbers,
            modules.other_sizes,
            modules.every_gradient,
        ],
    },
    mistakes=PATCH_EMBED_MISTAKES,
    structures=PATCH_EMBED_STRUCTURES,
    cases=[
        ((2, 3, 8), (2, 3, 4, 6)),
        ((4, 1, 5), (1, 1, 8, 12)),
        ((3, 2, 7), (3, 2, 9, 3)),
        ((2, 3, 8), (2, 3, 6, 4)),
    ],
    count="(B, N, D)",
    unknown="gives different numbers from PatchEmbed with the same weights",
    unread="stores its weight in a form that fits no published weights: use nn.Linear or nn.Conv2d",
)
