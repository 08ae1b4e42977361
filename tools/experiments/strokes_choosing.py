"""The strokes that chose the recipe of `drawn`: Bezier curves, bent by waves, by matplotlib.

They are a third hand's digits: neither the shapes nor the code are those of the training strokes or
the test strokes.
"""

from collections.abc import Iterator

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

Array = NDArray[np.float64]
CODES = {"M": [Path.MOVETO], "L": [Path.LINETO], "Q": [Path.CURVE3] * 2, "C": [Path.CURVE4] * 3}


def parse(way: str) -> Path:
    """The path of a text as in SVG: absolute M, L, Q and C, each letter with its own points."""
    codes = [code for letter in way if letter in CODES for code in CODES[letter]]
    numbers = "".join(" " if letter in CODES else letter for letter in way).split()
    return Path(np.array(numbers, dtype=float).reshape(-1, 2), codes)


def bend(points: Array, rng: np.random.Generator) -> Array:
    """Points as another hand would set them: bent by two slow waves, scaled, slanted, rotated"""
    for _ in range(2):
        across = rng.normal(0, 1, 2)
        wave = np.sin(
            points @ (across / np.hypot(*across)) / rng.uniform(15, 30) + rng.uniform(0, 2 * np.pi)
        )
        points = points + wave[:, None] * rng.normal(0, 4, 2)
    points = (
        (points - points.mean(0))
        * [rng.uniform(0.7, 1.5), 1]
        @ [[1, 0], [rng.uniform(-0.35, 0.2), 1]]
    )
    angle = np.deg2rad(rng.normal(0, 7))
    return points @ [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]


def drawings(
    shapes: dict[str, list[str]], count: int, seed: int = 7
) -> Iterator[tuple[Array, str, int]]:
    """count drawings of every row: canvas (280, 280), 0 paper to 1 ink; kind; digit or -1"""
    rng = np.random.default_rng(seed)
    for name, ways in shapes.items():
        for i in range(count):
            path = parse(ways[i % len(ways)])
            points = bend(path.vertices, rng) * (large := rng.uniform(0.8, 2.2))
            figure = Figure(figsize=(2.8, 2.8), dpi=100)
            pen = rng.uniform(8, min(30, 16 * large)) * 0.72  # in points
            place = 140 + rng.uniform(-20, 20, 2)
            line = Path((points * [1, -1] + place) / 280, path.codes)
            figure.add_artist(
                PathPatch(line, fill=False, lw=pen, capstyle="round", joinstyle="round")
            )
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
            kind, digit = ("scribble", -1) if name == "scribble" else ("choosing", int(name))
            yield 1 - np.asarray(canvas.buffer_rgba())[..., 0] / 255, kind, digit
