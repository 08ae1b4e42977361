"""Test strokes for `drawn`, written first and then left alone: digits as the paths of a turtle.

A stroke is a start and a heading, then pieces "length turn", each an arc along which the heading
changes by so many degrees, clockwise on the screen; a length of 0 is a corner. Hands differ in
lengths, turns and tremor, and pens in what they leave on the canvas. Neither the shapes nor the
code are those of the training strokes, and nothing was chosen by these results.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
KINDS = (
    "plain",
    "thin",
    "thick",
    "tilted",
    "wobbly",
    "coarse mouse",
    "small",
    "gaps",
    "overlong",
    "broad nib",
)
# x y heading: length turn, length turn, ...
# one digit a line, | between strokes, ; between the ways to draw it
DIGITS = """
.35 0 180: 2.4 -365; .32 0 180: .31 -90, .5 0, .63 -180, .5 0, .34 -98;\
 .5 .1 215: .4 -105, 2.1 -300; .2 .05 330: 2.5 385
.3 0 92: 1 0; .05 .3 315: .42 5, 0 130, 1 0; .1 .2 320: .28 0, 0 130, .95 2 | .05 1 0: .55 0;\
 .4 0 105: 1 0
.05 .25 300: .9 190, .6 0, 0 -125, .6 0; .05 .22 305: .85 190, .45 0, .4 225, .45 10;\
 0 .05 0: .5 0, 0 120, 1 0, 0 -120, .6 0
.05 .12 320: .8 220, 0 -170, 1 215; 0 0 0: .5 0, 0 130, .45 0, 0 -115, 1.1 205;\
 .05 .1 320: .78 215, .16 -165, .9 200
.1 0 100: .5 0, 0 -100, .55 0 | .5 .05 92: .95 0; .45 0 125: .8 0, 0 -125, .65 0 | .45 0 90: 1 0;\
 .5 .6 180: .5 0, 0 125, .75 0, 0 146, 1 0
.1 0 95: .42 0, 0 -125, .95 220 | .1 0 0: .45 0; .5 0 180: .4 0, 0 -85, .4 0, 0 -130, 1 235;\
 .5 .05 200: .4 -120, .12 -65, .95 200
.45 0 150: .65 -70, 1.5 -345; .35 0 112: .65 -10, 1.35 -350;\
 .52 .12 285: .2 -105, .85 -95, 1.35 -345
0 0 0: .55 0, 0 115, 1.05 0; 0 0 0: .55 0, 0 112, 1 0 | .1 .5 0: .42 0;\
 0 .02 355: .5 12, 0 105, 1 -20; 0 .15 270: .13 0, 0 90, .55 0, 0 117, 1.05 0
.45 .12 184: .73 -170, 1.23 285, .7 0; .3 0 180: 1.3 -360 | .3 .43 0: 1.65 360;\
 .15 .12 356: .73 170, 1.23 -285, .66 -5
.47 .15 255: 1.25 -350, 0 175, 1 5; .48 .2 265: 1.3 -360, 0 180, .5 10, .5 80;\
 .3 0 180: 1.25 -360 | .5 .05 93: .95 8
"""
SHAPES = [
    [way.strip().split("|") for way in line.split(";")] for line in DIGITS.strip().splitlines()
]


def follow(
    x: float, y: float, heading: float, parts: Sequence[tuple[float, ...]], tremor: Iterator[float]
) -> Array:
    """The path from a point through pieces (length, turn): (n, 2), x and y"""
    points = [(x, y)]
    for length, turn in parts:
        steps = max(1, round(length / 0.01))
        for _ in range(steps):
            heading += turn / steps
            towards = np.deg2rad(heading + next(tremor))
            x, y = x + length / steps * np.cos(towards), y + length / steps * np.sin(towards)
            points.append((x, y))
    return np.array(points)


def walk(stroke: str, rng: np.random.Generator, tremor: float, spare: float) -> Array:
    """The path (n, 2) of one stroke.  tremor: of the heading; spare: how much too long it is"""
    start, _, pieces = stroke.partition(":")
    x, y, heading = map(float, start.split())
    x, y = x + rng.normal(0, 0.025), y + rng.normal(0, 0.025)
    parts = [tuple(map(float, piece.split())) for piece in pieces.split(",")]
    if spare:
        parts = [(spare, rng.uniform(-20, 20)), *parts, (spare, rng.uniform(-60, 60))]
    meant = follow(x, y, heading, parts, repeat(0.0))
    moved = [
        (a * np.exp(rng.normal(0, 0.08)), b * (1 + rng.normal(0, 0.05)) + rng.normal(0, 3))
        for a, b in parts
    ]
    shaken = accumulate(
        iter(lambda: rng.normal(0, tremor), None), lambda wobble, new: 0.93 * wobble + new
    )
    drawn = follow(x, y, heading + rng.normal(0, 4), moved, shaken)
    # eyes guide the pen to its goal
    return drawn + np.linspace(0, 0.7, len(drawn))[:, None] * (meant[-1] - drawn[-1])


def scribble(rng: np.random.Generator) -> list[Array]:
    """Strokes that are no digit: a tangle, a hatching, rays, or a page of dots."""
    kind = rng.integers(4)
    if kind == 0:  # a turtle that turns at random
        turns = ", ".join(
            f"{rng.uniform(0.1, 0.6):.2f} {rng.normal(0, 200):.0f}"
            for _ in range(rng.integers(8, 16))
        )
        return [walk(f"{rng.random()} {rng.random()} {rng.uniform(0, 360)}: {turns}", rng, 3, 0)]
    if kind == 1:  # to and fro
        turns = ", ".join(
            f"{rng.uniform(0.5, 1):.2f} 0, 0 {170 * (-1) ** i}" for i in range(rng.integers(6, 12))
        )
        return [walk(f"0 0 {rng.uniform(0, 360)}: {turns}", rng, 2, 0)]
    if kind == 2:  # rays from the middle
        return [
            walk(f"0 0 {a}: {rng.uniform(0.3, 1)} 0", rng, 2, 0)
            for a in np.arange(0, 360, 360 / rng.integers(5, 9))
        ]
    return [
        walk(f"{rng.random()} {rng.random()} 0: .03 0", rng, 1, 0)
        for _ in range(rng.integers(3, 12))
    ]


def render(strokes: list[Array], kind: str, rng: np.random.Generator, side: int = 280) -> Array:
    """What a pen leaves on a square canvas: (side, side), from 0 for paper to 1 for ink"""
    everything = np.concatenate(strokes)
    middle, extent = (
        (everything.max(0) + everything.min(0)) / 2,
        (everything.max(0) - everything.min(0)).max(),
    )
    angle = np.deg2rad(
        rng.choice([-1, 1]) * rng.uniform(10, 18) if kind == "tilted" else rng.normal(0, 3)
    )
    slant = rng.uniform(-0.15, 0.35) if kind != "tilted" else 0.0
    cos, sin, width = np.cos(angle), np.sin(angle), rng.uniform(0.75, 1.25)
    turn = np.array([[cos * width, sin], [-sin * width, cos]])
    large = rng.uniform(60, 100) if kind == "small" else rng.uniform(140, 230)
    low, high = {"thin": (8, 10), "thick": (24, 30), "small": (8, 13)}.get(kind, (12, 22))
    radius, room = rng.uniform(low, high) / 2, (side - large) / 2 - 15
    place, canvas = side / 2 + rng.uniform(-room, room, 2), np.zeros((side, side))
    for stroke in strokes:
        path = (stroke - middle) / extent @ turn * large
        path[:, 0] -= slant * path[:, 1]
        for x, y in trace(path + place, kind, rng):
            stamp(canvas, x, y, radius, 0.45 if kind == "broad nib" else 1.0)
    return canvas


def trace(path: Array, kind: str, rng: np.random.Generator) -> Iterator[Array]:
    """The points at which the pen touches the canvas, two pixels apart."""
    if kind == "coarse mouse":  # the pointer is read rarely, and straight lines join what was read
        path = path[np.unique([*range(0, len(path), rng.integers(12, 20)), len(path) - 1])]
    lengths = np.concatenate([[0], np.hypot(*np.diff(path, axis=0).T).cumsum()])
    along = np.linspace(0, lengths[-1], max(2, int(lengths[-1] / 2)))
    hole = rng.uniform(0.15, 0.8) * lengths[-1]
    for s, x, y in zip(
        along, *(np.interp(along, lengths, path[:, i]) for i in (0, 1)), strict=True
    ):
        if kind != "gaps" or abs(s - hole) > 0.5 * 26:
            yield np.array([x, y])


def stamp(canvas: Array, x: float, y: float, radius: float, flat: float) -> None:
    """One touch of a soft pen: a disk, or an ellipse at 45 degrees if flat is below 1."""
    reach = int(radius) + 2
    top, left = max(0, int(y) - reach), max(0, int(x) - reach)
    window = canvas[top : int(y) + reach + 1, left : int(x) + reach + 1]
    if not window.size:
        return
    dy, dx = np.ogrid[
        top - y : top - y + window.shape[0] - 0.5, left - x : left - x + window.shape[1] - 0.5
    ]
    distance = np.hypot(dx + dy, (dx - dy) / flat) / np.sqrt(2)
    np.maximum(window, np.clip(radius + 0.5 - distance, 0, 1), out=window)


def drawings(count: int, seed: int = 2026) -> Iterator[tuple[Array, str, int]]:
    """count drawings of every kind and digit, scribbles -1: the canvas, the kind, the digit"""
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        for digit, ways in enumerate(SHAPES):
            for i in range(count):
                tremor, spare = (
                    (8.0 if kind == "wobbly" else 1.2),
                    (0.13 if kind == "overlong" else 0.0),
                )
                strokes = [walk(stroke, rng, tremor, spare) for stroke in ways[i % len(ways)]]
                yield render(strokes, kind, rng), kind, digit
    for _ in range(10 * count):
        yield render(scribble(rng), "plain", rng), "scribble", -1
