"""Training strokes for `drawn`: splines through points that move, thickened by Pillow's lines."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Array = NDArray[np.float64]
SIDE = 280  # of the canvas, in pixels


def parse(way: str) -> Iterator[tuple[Array, list[int]]]:
    """Strokes from drawn.toml: for each its points (n, 2), and which begin or end a spline."""
    for stroke in way.split("|"):
        words = stroke.split()
        corners = [i for i, word in enumerate(words) if word.endswith("!")]
        points = np.array([word.rstrip("!").split(",") for word in words], dtype=float)
        yield points, sorted({0, *corners, len(words) - 1})


def spline(points: Array, per_span: int = 10) -> Array:
    """A Catmull-Rom spline through the points: (n, 2) -> (10 (n - 1) + 1, 2)"""
    a, b, c, d = (
        np.vstack([points[0], points, points[-1]])[i : len(points) - 1 + i, None] for i in range(4)
    )
    t = np.arange(per_span)[None, :, None] / per_span
    curve = b + t / 2 * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
    return np.vstack([curve.reshape(-1, 2), points[-1:]])


def move(points: Array, corners: Sequence[int], rng: np.random.Generator, jitter: float) -> Array:
    """One stroke as a hand draws it this time: points, place, size and ends are moved"""
    points = (
        points * rng.normal(1, 0.15 * jitter, 2)
        + rng.normal(0, 0.6 * jitter, 2)
        + rng.normal(0, jitter, points.shape)
    )
    path = np.vstack([spline(points[i : j + 1]) for i, j in pairwise(corners)])
    if rng.random() < 0.25:  # a pointer that is read rarely
        path = path[
            np.unique(np.append(np.arange(0, len(path), rng.integers(3, 9)), len(path) - 1))
        ]
    if rng.random() < 0.3:  # a trembling hand
        noise = rng.normal(0, rng.uniform(0.05, 0.3), path.shape)
        path = path + (noise + np.roll(noise, 1, 0) + np.roll(noise, 2, 0)) / 2
    for _ in range(2):  # stopped too late, and after turning it around, begun too early
        if rng.random() < 0.3:
            last = path[-1] - path[-2]
            path = np.vstack(
                [path, path[-1] + last * rng.uniform(0, 1.5) / (0.1 + np.hypot(*last))]
            )
        path = path[::-1]
    return path


def place(paths: list[Array], rng: np.random.Generator) -> tuple[list[Array], float]:
    """Slant, rotate, scale and place the strokes; also the width of the pen in pixels"""
    angle, slant = np.deg2rad(np.clip(rng.normal(0, 8), -20, 20)), rng.normal(-0.1, 0.2)
    turn = np.array([[np.exp(rng.normal(0, 0.25)), 0], [slant, 1]])
    turn = turn @ [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    everything = np.vstack(paths) @ turn
    low, high = everything.min(0), everything.max(0)
    size = rng.uniform(50, 250)
    scale = size / max(1e-3, (high - low).max())
    offset = rng.uniform(0, 1, 2) * (SIDE - 10 - (high - low) * scale) + 5
    return [(path @ turn - low) * scale + offset for path in paths], np.exp(
        rng.uniform(np.log(0.03), np.log(0.2))
    ) * size


def ink(paths: list[Array], pen: float, rng: np.random.Generator) -> Image.Image:
    """The canvas: 0 for paper, 255 for ink.  The pen may press unevenly, or skip a piece."""
    canvas = Image.new("L", (SIDE, SIDE))
    pencil, uneven = ImageDraw.Draw(canvas), rng.uniform(0, 0.35) * (rng.random() < 0.4)
    for path in paths:
        widths = pen * (
            1 + uneven * np.sin(np.linspace(0, rng.uniform(2, 9), len(path)) + rng.uniform(0, 6))
        )
        skipped = int(rng.integers(len(path))) if rng.random() < 0.08 and len(path) > 12 else -9
        for i, (x, y) in enumerate(path):
            if abs(i - skipped) < 3:
                continue
            r = widths[i] / 2
            pencil.ellipse((x - r, y - r, x + r, y + r), fill=255)
            if i and abs(i - 1 - skipped) >= 3:
                pencil.line((*path[i - 1], x, y), fill=255, width=max(1, round(widths[i])))
    return canvas


def draw_digit(ways: Sequence[str], rng: np.random.Generator) -> Image.Image:
    """A drawing of one of the ways to write a digit."""
    jitter = rng.uniform(0.1, 0.5)
    way = ways[int(rng.integers(len(ways)))]
    return ink(*place([move(*stroke, rng, jitter) for stroke in parse(way)], rng), rng)


def draw_scribble(rng: np.random.Generator) -> Image.Image:
    """A drawing of no digit: one to six strokes through random points, or to and fro"""
    paths = []
    for _ in range(strokes := int(rng.integers(1, 7))):
        count, jitter = (
            int(rng.integers(2, 9) if strokes > 1 else rng.integers(5, 16)),
            rng.uniform(0, 0.3),
        )
        points = rng.uniform(0, 10, 2) + rng.uniform(0.2, 6) * rng.uniform(-1, 1, (count, 2))
        if rng.random() < 0.3:  # to and fro
            points[1::2, 0] += rng.uniform(3, 10)
        corners = range(count) if rng.random() < 0.4 else (0, count - 1)
        paths.append(move(points, corners, rng, jitter))
    return ink(*place(paths, rng), rng)
