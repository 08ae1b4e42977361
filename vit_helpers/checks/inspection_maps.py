"""The exercises of notebook 08 about whole maps.

They ask how much is inside a box, and how maps are scaled to be drawn.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from vit_helpers.checks.engine.compare import is_float
from vit_helpers.checks.engine.exercise import Case, Exercise, Outcome, Wording
from vit_helpers.checks.engine.learning import result
from vit_helpers.checks.engine.report import Function
from vit_helpers.inspection.localization import fraction_inside


def some_weights(*shape: int) -> Tensor:
    """Return attention weights, made up: rows that sum to 1, and no two alike."""
    return (2 * torch.randn(shape)).softmax(dim=-1)


# Compared with a box


Region = tuple[int, int, int, int]  # left, top, width, height


def pixels(picture: Tensor, P: int) -> Tensor:
    """Return a number for each pixel, from one for each patch."""
    return picture.repeat_interleave(P, 0).repeat_interleave(P, 1)


def within(box: Function, of: Function = pixels) -> Function:
    """Make an answer: the share of a map inside of a box.

    box: (left, top, width, height, patch side) -> top, bottom, left, right
    """

    def answer(picture: Tensor, region: Region, P: int) -> float:
        top, bottom, left, right = box(*region, P)
        numbers = of(picture, P)
        return (numbers[top:bottom, left:right].sum() / numbers.sum()).item()

    return answer


def edges(left: int, top: int, width: int, height: int, P: int) -> Region:
    """Return the right box."""
    return top, top + height, left, left + width


def inside(picture: Tensor, region: Region, P: int) -> Tensor:
    """Return the pixels of a place."""
    top, bottom, left, right = edges(*region, P)
    return pixels(picture, P)[top:bottom, left:right]


def a_map(values: Tensor, region: Region, description: str) -> Case:
    """Make a map in patches of 4 pixels, brighter or darker at every call."""
    return Case(lambda: (values * (torch.rand(1) + 0.5), region, 4), f"for a map {description}")


def spots(found: dict[tuple[int, int], float]) -> Tensor:
    """Return a map of 3 x 4 patches that is 0 except for a few; found: {(row, column): value}."""
    return torch.tensor([[found.get((row, col), 0.0) for col in range(4)] for row in range(3)])


def plain(answer: Function, *args: Any) -> dict[str, Any]:
    """Observe one number, Python's, numpy's or a tensor's."""
    got = answer(*args)
    return {"": float(got) if is_float(got) else got}


FRACTION_INSIDE_MISTAKES: dict[str, Function] = {
    "swaps left and top: a box is (left, top, width, height), "
    "but a tensor's first axis runs from top to bottom":
        within(lambda x, y, w, h, P: (x, x + w, y, y + h)),
    "swaps width and height: a box is (left, top, width, height), "
    "so there are width columns and height rows":
        within(lambda x, y, w, h, P: (y, y + w, x, x + h)),
    "uses width and height as the right and lower edge, but they are lengths":
        within(lambda x, y, w, h, P: (y, h, x, w)),
    "counts patches that are only partly inside as a whole: "
    "apply the box to pixels, not to patches":
        within(
            lambda x, y, w, h, P: (y // P, -(-(y + h) // P), x // P, -(-(x + w) // P)),
            of=lambda m, P: m,
        ),
    "leaves out the patches that are only partly inside":
        within(
            lambda x, y, w, h, P: (-(-y // P), (y + h) // P, -(-x // P), (x + w) // P),
            of=lambda m, P: m,
        ),
    "repeats the whole map instead of each patch: use `repeat_interleave`":
        within(edges, of=lambda m, P: m.repeat(P, P)),
    "counts whole patches, starting where the box begins: apply the box to pixels":
        within(
            lambda x, y, w, h, P: (y // P, y // P + h // P, x // P, x // P + w // P),
            of=lambda m, P: m,
        ),
    "this is the sum inside the box, not its fraction of the whole map":
        lambda m, region, P: inside(m, region, P).sum().item(),
    "this is a sum of pixels divided by a sum of patches, "
    "P * P times too large: divide pixels by pixels":
        lambda m, region, P: (inside(m, region, P).sum() / m.sum()).item(),
    "this is the mean inside the box, not the fraction":
        lambda m, region, P: inside(m, region, P).mean().item(),
    "this is the fraction outside the box":
        lambda m, region, P: 1 - within(edges)(m, region, P),
    "this is the box's fraction of the area, whatever the map contains":
        lambda m, region, P: region[2] * region[3] / pixels(m, P).numel(),
    "this is the largest value inside the box, divided by the largest of all":
        lambda m, region, P: (inside(m, region, P).amax() / m.max()).item(),
}  # fmt: skip
FRACTION_INSIDE = Exercise(
    name="fraction_inside",
    reference=lambda picture, region, P: fraction_inside(picture[None], torch.tensor([region]), P)[
        0
    ].item(),
    outcome=Outcome(observe=plain),
    wording=Wording(
        when=lambda picture, region, P: f"for the box {region} and patches of {P} pixels",
        says="returns {got:.3f} {when}; it should give {right:.3f}: {message}",
        kind="a number from 0 to 1",
        unknown="add up the pixels inside the box and divide by the sum of all pixels",
    ),
    ideas={
        "a map that is inside the box partly, wholly, and not at all": [
            a_map(spots(values), (4, 4, 8, 8), f"that is inside the box {where}")
            for where, values in {
                "with three quarters of its sum": {(1, 1): 3.0, (0, 3): 1.0},
                "wholly": {(1, 1): 2.0},
                "not at all": {(2, 3): 2.0},
            }.items()
        ],
        "a uniform map has the box's share of the image": [
            a_map(
                torch.ones(3, 4),
                region,
                f"that is uniform, of 16 x 12 pixels, and the box {region}",
            )
            for region in [(4, 0, 8, 4), (0, 4, 4, 8)]
        ],
        "patches that are cut by the edge count by their part inside": [
            Case(partial(lambda *place_and_side: (some_weights(3, 4), *place_and_side), region, P))
            for region, P in [((3, 1, 7, 5), 4), ((1, 2, 12, 9), 4), ((5, 0, 3, 6), 2)]
        ],
    },
    mistakes=FRACTION_INSIDE_MISTAKES,
)
check_fraction_inside = FRACTION_INSIDE.check


# Find the mistake: every map stretched by itself


def of_heads(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest weight of each head."""
    return maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)


def largest(*most: float) -> Tensor:
    """Return maps of 2 x 2 patches whose largest weights are these; the first head has a 0."""
    maps = torch.rand(len(most), 2, 2)
    maps[0, 0, 0] = 0
    return maps / of_heads(maps)[1] * torch.tensor(most)[:, None, None]


SCALED_MISTAKES: dict[str, Function] = {
    "rescales every head by itself, so that nobody can see which of them is sharp":
        lambda maps: (maps - of_heads(maps)[0]) / (of_heads(maps)[1] - of_heads(maps)[0]),
    "divides every head by its own largest weight, so that heads can no longer be compared":
        lambda maps: maps / of_heads(maps)[1],
    "turns the smallest weight of all into 0, "
    "so that a uniform map of 0.03 looks like a map of zeros":
        lambda maps: (maps - maps.min()) / (maps.max() - maps.min()),
    "subtracts each head's smallest weight, but only a weight of 0 should become 0":
        lambda maps: (maps - of_heads(maps)[0]) / maps.max(),
    "divides by the sum of all weights instead of the largest one":
        lambda maps: maps / maps.sum(),
    "divides every head by its own sum instead of the largest weight of all heads":
        lambda maps: maps / maps.sum(dim=(1, 2), keepdim=True),
}  # fmt: skip
SCALED = Exercise(
    name="scaled",
    reference=lambda maps: maps / maps.max(),
    outcome=Outcome(observe=result),
    wording=Wording(
        says="{when}: {message}",
        unknown=lambda got, *args: (
            f"returns numbers from {got.min():.3f} to {got.max():.3f}, "
            "not the maps divided by their largest weight"
        ),
    ),
    ideas={
        "the largest weight of all heads becomes 1, 0 stays 0": [
            Case(
                lambda: (largest(0.7, 0.5),),
                "for two heads whose largest weights are 0.7 and 0.5",
            )
        ],
        "a uniform head stays uniform, and faint next to a sharp one": [
            Case(
                lambda: (torch.stack([spots({}) + 0.1, spots({(1, 1): 0.8})]) + 0.01,),
                "for a uniform and a sharp head",
            )
        ],
        "every head by the same factor": [
            Case(lambda: (0.1 + 0.2 * some_weights(4, 2, 3),), "for four heads")
        ],
    },
    mistakes=SCALED_MISTAKES,
)
check_scaled = SCALED.check
