"""The exercises of notebook 08 about whole maps: what lies in a place, and how maps are scaled to be shown."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from vit_helpers.checks.compare import is_float
from vit_helpers.checks.engine import Case, Exercise
from vit_helpers.checks.learning import result
from vit_helpers.checks.report import Function
from vit_helpers.inspection.localization import fraction_inside


def some_weights(*shape: int) -> Tensor:
    """Attention weights, made up: rows that sum to 1, and no two alike."""
    return (2 * torch.randn(shape)).softmax(dim=-1)


# Graded


Place = tuple[int, int, int, int]  # left, top, width, height


def pixels(picture: Tensor, P: int) -> Tensor:
    """A number a pixel, from a number a patch."""
    return picture.repeat_interleave(P, 0).repeat_interleave(P, 1)


def within(box: Function, of: Function = pixels) -> Function:
    """The share of a map in (top, bottom, left, right): `box` tells them of a place and the patch side."""

    def answer(picture: Tensor, place: Place, P: int) -> float:
        top, bottom, left, right = box(*place, P)
        numbers = of(picture, P)
        return (numbers[top:bottom, left:right].sum() / numbers.sum()).item()

    return answer


def edges(left: int, top: int, width: int, height: int, P: int) -> Place:
    """The right box."""
    return top, top + height, left, left + width


def inside(picture: Tensor, place: Place, P: int) -> Tensor:
    """The pixels of a place."""
    top, bottom, left, right = edges(*place, P)
    return pixels(picture, P)[top:bottom, left:right]


def a_map(values: Tensor, place: Place, said: str) -> Case:
    """A map in patches of 4 pixels, brighter or darker at every call."""
    return Case(lambda: (values * (torch.rand(1) + 0.5), place, 4), f"for {said}")


def spots(found: dict[tuple[int, int], float]) -> Tensor:
    """A map of 3 x 4 patches that is 0 but for a few; found: {(row, column): value}."""
    return torch.tensor([[found.get((row, col), 0.0) for col in range(4)] for row in range(3)])


def plain(answer: Function, *given: Any) -> dict[str, Any]:
    """What is compared: one number, Python's, numpy's or a tensor's."""
    got = answer(*given)
    return {"": float(got) if is_float(got) else got}


MASS = Exercise(
    name="mass",
    reference=lambda picture, place, P: fraction_inside(picture[None], torch.tensor([place]), P)[0].item(),
    observe=plain,
    when=lambda picture, place, P: f"for the place {place} and patches of {P} pixels",
    says="gives {got:.3f} {when}; it should give {right:.3f}: {words}",
    kind="a number from 0 to 1",
    unknown="add up the pixels inside, and divide by the sum of all",
    ideas={
        "a map that lies in the place in part, wholly, and not at all": [
            a_map(spots(found), (4, 4, 8, 8), f"a map that lies in the place {said}")
            for said, found in {
                "to three quarters": {(1, 1): 3.0, (0, 3): 1.0}, "wholly": {(1, 1): 2.0}, "not at all": {(2, 3): 2.0}
            }.items()
        ],
        "an even map has the place's share of the picture": [
            a_map(torch.ones(3, 4), place, f"an even map and the place {place} of 16 x 12 pixels")
            for place in [(4, 0, 8, 4), (0, 4, 4, 8)]
        ],
        "patches that the edge cuts count by their part inside": [
            Case(partial(lambda *place_and_side: (some_weights(3, 4), *place_and_side), place, P))
            for place, P in [((3, 1, 7, 5), 4), ((1, 2, 12, 9), 4), ((5, 0, 3, 6), 2)]
        ],
    },
    mistakes={
        "takes left for top: a place is (left, top, width, height), a tensor's first axis is from top to bottom":
            within(lambda x, y, w, h, P: (x, x + w, y, y + h)),
        "takes width and height for the right and lower edge: they are lengths": within(lambda x, y, w, h, P: (y, h, x, w)),
        "counts a patch wholly that is only partly inside: lay the place over pixels, not over patches":
            within(lambda x, y, w, h, P: (y // P, -(-(y + h) // P), x // P, -(-(x + w) // P)), of=lambda m, P: m),
        "leaves out the patches that are only partly inside":
            within(lambda x, y, w, h, P: (-(-y // P), (y + h) // P, -(-x // P), (x + w) // P), of=lambda m, P: m),
        "repeats the whole picture, not each patch: `repeat_interleave`": within(edges, of=lambda m, P: m.repeat(P, P)),
        "counts whole patches from the one where the place begins":
            within(lambda x, y, w, h, P: (y // P, y // P + h // P, x // P, x // P + w // P), of=lambda m, P: m),
        "that is the sum inside, not its share of the whole map": lambda m, place, P: inside(m, place, P).sum().item(),
        "that is the sum inside over that of the patches: pixels over pixels, or the parts are counted P * P times":
            lambda m, place, P: (inside(m, place, P).sum() / m.sum()).item(),
        "that is the mean inside, not the share": lambda m, place, P: inside(m, place, P).mean().item(),
        "that is the share that lies outside": lambda m, place, P: 1 - within(edges)(m, place, P),
        "that is the area of the place, whatever the map holds":
            lambda m, place, P: place[2] * place[3] / pixels(m, P).numel(),
        "that is the largest value inside over the largest of all":
            lambda m, place, P: (inside(m, place, P).amax() / m.max()).item(),
    },
)  # fmt: skip
check_mass = MASS.check


# Find the mistake: every map stretched by itself


def of_heads(maps: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest weight of each head."""
    return maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)


def largest(*most: float) -> Tensor:
    """Maps of 2 x 2 patches whose largest weights are these; the first head has a 0."""
    maps = torch.rand(len(most), 2, 2)
    maps[0, 0, 0] = 0
    return maps / of_heads(maps)[1] * torch.tensor(most)[:, None, None]


SCALED = Exercise(
    name="scaled",
    reference=lambda maps: maps / maps.max(),
    observe=result,
    says="{words}",
    unknown=lambda got, *given: (
        f"gives numbers from {got.min():.3f} to {got.max():.3f} {{when}}, not the maps over their largest weight"
    ),
    ideas={
        "the largest weight of all heads becomes 1, 0 stays 0":
            [Case(lambda: (largest(0.7, 0.5),), "for two heads whose largest weights are 0.7 and 0.5")],
        "a head that looks everywhere alike stays flat, and faint beside a sharp one": [
            Case(lambda: (torch.stack([spots({}) + 0.1, spots({(1, 1): 0.8})]) + 0.01,), "for a flat head and a sharp one")
        ],
        "every head by the same factor": [Case(lambda: (0.1 + 0.2 * some_weights(4, 2, 3),), "for four heads")],
    },
    mistakes={
        "stretches every head by itself {when}: then nobody sees which of them is sharp":
            lambda maps: (maps - of_heads(maps)[0]) / (of_heads(maps)[1] - of_heads(maps)[0]),
        "divides every head by its own largest {when}: heads can no longer be compared":
            lambda maps: maps / of_heads(maps)[1],
        "draws the smallest weight of all as 0 {when}: a flat map of 0.03 is then as dark as nothing":
            lambda maps: (maps - maps.min()) / (maps.max() - maps.min()),
        "subtracts each head's smallest {when}: 0 is to stay 0": lambda maps: (maps - of_heads(maps)[0]) / maps.max(),
        "divides by the sum of all {when}": lambda maps: maps / maps.sum(),
        "divides every head by its own sum {when}": lambda maps: maps / maps.sum(dim=(1, 2), keepdim=True),
    },
)  # fmt: skip
check_scaled = SCALED.check
