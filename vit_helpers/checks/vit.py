"""The exercises of notebook 05.

The count of parameters is in vit_counts.py, the whole model in vit_model.py, timm's file in
vit_reading.py.
"""

from collections.abc import Callable
from functools import partial
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.engine.compare import bounded, expect_gradient
from vit_helpers.checks.engine.contract import Raises
from vit_helpers.checks.engine.exercise import (
    Arguments,
    Case,
    Contract,
    Exercise,
    Outcome,
    Wording,
    fixed,
)
from vit_helpers.checks.engine.report import Function, reject_if, short
from vit_helpers.checks.vit_counts import COUNTED, VIT_PARAMETERS
from vit_helpers.checks.vit_model import VIT
from vit_helpers.checks.vit_reading import check_equations  # noqa: F401
from vit_helpers.parity import perturb

# The shape at every stage

STOPS = ("patches", "projected patches", "tokens", "features", "class token", "logits")


Shape = tuple[int, ...]


def shapes(
    B: int,
    C: int,
    H: int,
    W: int,
    P: int,
    D: int,
    K: int,
    count: Function = lambda H, W, P: (H // P) * (W // P),
) -> list[Shape]:
    """Return all six shapes; count: (H, W, P) -> the number of patches."""
    N = count(H, W, P)
    return [(B, N, C * P * P), (B, N, D), (B, N + 1, D), (B, N + 1, D), (B, D), (B, K)]


def at(places: str, shape: Callable[[Any, Shape], Shape]) -> Function:
    """Make an answer that is wrong at some stages.

    shape: (all sizes, the right shape) -> the wrong one
    """

    def answer(B: int, C: int, H: int, W: int, P: int, D: int, K: int) -> list[Shape]:
        N = (H // P) * (W // P)
        s = SimpleNamespace(
            B=B, C=C, P=P, D=D, K=K, N=N, T=N + 1, long=C * P * P, rows=H // P, cols=W // P
        )
        return [
            shape(s, six) if str(i) in places else six
            for i, six in enumerate(shapes(B, C, H, W, P, D, K))
        ]

    return answer


def as_shape(value: Any, stop: str) -> Shape:
    """Return one stage of an answer as a tuple of whole numbers; Mistake for anything else."""
    is_tuple = isinstance(value, (tuple, list))
    floats = [n for n in value if isinstance(n, float)] if is_tuple else []
    reject_if(
        floats,
        f"{stop}: {floats[:1]} is not a whole number; H / P gives a float, while H // P doesn't",
    )
    whole = is_tuple and all(isinstance(n, Integral) for n in value)
    reject_if(not whole, f"{stop}: got {short(value)}; a shape is a tuple of numbers")
    return tuple(map(int, value))


def six_shapes(answer: Function, *sizes: int) -> dict[str, Shape]:
    """Observe the shape at every stage."""
    got = bounded(answer(*sizes))
    got = list(got.values()) if isinstance(got, dict) else got
    reject_if(got is None, "gives nothing back: does it end with return?")
    reject_if(
        not isinstance(got, (list, tuple)),
        f"gives {short(got)}; it should give a list of six shapes",
    )
    flat = got and all(isinstance(n, Integral) for n in got)
    reject_if(
        flat,
        f"gives one shape, {short(tuple(got))}; it should give a list of six, one for each stage",
    )
    reject_if(len(got) != 6, f"gives {len(got)} shapes; there are six stages: {', '.join(STOPS)}")
    return {stop: as_shape(value, stop) for stop, value in zip(STOPS, got, strict=True)}


SHAPES_MISTAKES: dict[str, Function] = (
    {
        "a patch contains P * P pixels of each of C channels, C * P * P numbers":
            at("0", lambda s, _: (s.B, s.N, s.P * s.P)),
        "a patch is flattened: one row of C * P * P numbers":
            at("0", lambda s, _: (s.B, s.N, s.C, s.P, s.P)),
        "a patch is flattened, including its channels: one row of C * P * P numbers":
            at("0", lambda s, _: (s.B, s.C, s.N, s.P, s.P)),
        "this is after the projection, but a raw patch has C * P * P numbers":
            at("0", lambda s, _: (s.B, s.N, s.D)),
        "the grid is one axis of N patches":
            at("01", lambda s, right: (s.B, s.rows, s.cols, right[2])),
        "the grid is one axis of N patches, which comes before D":
            at("1", lambda s, _: (s.B, s.D, s.rows, s.cols)),
        "the axis of the tokens comes before that of their numbers":
            at("0123", lambda s, right: (s.B, right[2], right[1])),
        "the batch axis is missing: every image has its own":
            at("012345", lambda s, right: right[1:]),
        "that is one image, but every image of the batch has its own":
            at("012345", lambda s, right: (1, *right[1:])),
        "the batch axis comes first": at("012345", lambda s, right: (right[1], s.B, *right[2:])),
        "the class token comes later, after the projection":
            at("01", lambda s, right: (s.B, s.T, right[2])),
        "the projection is missing: it turns C * P * P numbers into D":
            at("12", lambda s, right: (s.B, right[1], s.long)),
        "the class token is missing: T = N + 1": at("23", lambda s, _: (s.B, s.N, s.D)),
        "the class token is an additional row, not a column":
            at("23", lambda s, _: (s.B, s.N, s.D + 1)),
        "there is one class token, and positions are added without adding tokens":
            at("23", lambda s, _: (s.B, s.N + 2, s.D)),
        "positions are added to the tokens, not concatenated with them":
            at("23", lambda s, _: (s.B, 2 * s.T, s.D)),
        "all tokens are still there, because only the next stage picks one":
            at("3", lambda s, _: (s.B, s.D)),
        "all tokens are still there, but the head reads one for each image":
            at("4", lambda s, _: (s.B, s.T, s.D)),
        "all patches are still there, but the head reads one token for each image, the class token":
            at("4", lambda s, _: (s.B, s.N, s.D)),
        "a token is a row of D numbers": at("4", lambda s, _: (s.B, s.T)),
        "these are already the logits, but the class token is what the head reads":
            at("4", lambda s, _: (s.B, s.K)),
        "x[:, 0] removes the axis of the tokens": at("45", lambda s, right: (s.B, 1, right[1])),
        "the head reads only the class token, not every token":
            at("5", lambda s, _: (s.B, s.T, s.K)),
        "the head turns D numbers into K": at("5", lambda s, _: (s.B, s.D)),
    }
    | {message: partial(shapes, count=wrong) for message, wrong in COUNTED.items()}
)  # fmt: skip
SHAPES = Exercise(
    name="shapes",
    reference=shapes,
    outcome=Outcome(observe=six_shapes),
    wording=Wording(
        when=lambda *sizes: f"for B, C, H, W, P, D, K = {', '.join(map(str, sizes))}",
        says="{part} {when}: gives {got}; {message}",
        unknown=lambda got, right, *sizes: (
            "count again" if len(got) == len(right) else f"there are {len(right)} axes here"
        ),
    ),
    ideas={  # all numbers of a line differ, so that no axis is right by chance
        "all six stages of one batch": [fixed(2, 3, 32, 48, 8, 20, 5)],
        "other sizes: gray, square, a single patch, ViT-S/16": [
            fixed(7, 1, 6, 10, 2, 11, 3),
            fixed(1, 4, 9, 9, 3, 5, 2),
            fixed(5, 3, 224, 224, 16, 384, 1000),
            fixed(4, 2, 5, 5, 5, 6, 10),
        ],
    },
    mistakes=SHAPES_MISTAKES,
)
check_shapes = SHAPES.check


# Reading the answer: equation 4, or the mean of the patches


def read(z: Tensor, norm: Function, head: Function, pool: str) -> Tensor:
    """Return logits from the class token, or from the mean of the patches."""
    if pool not in ("cls", "avg"):
        raise ValueError(f"unknown pool {pool!r}, known: cls, avg")
    x = norm(z)
    return head(x[:, 0] if pool == "cls" else x[:, 1:].mean(dim=1))


def tokens(pool: str, B: int, T: int, D: int, K: int, dtype: torch.dtype = torch.float32) -> Case:
    """Make tokens, a norm and a head in which no number is 0 or 1."""

    def draw() -> Arguments:
        norm, head = nn.LayerNorm(D, eps=1e-6), nn.Linear(D, K)
        perturb(norm, std=1)
        return 2 * torch.randn(B, T, D, dtype=dtype) + 0.5, norm.to(dtype), head.to(dtype), pool

    return Case(draw)


def sized(*pools: str, dtype: torch.dtype = torch.float32) -> list[Case]:
    """Make cases of all sizes."""
    sizes = [(2, 5, 8, 3), (1, 4, 6, 2), (5, 5, 5, 4), (3, 2, 7, 3)]
    return [tokens(pool, *each, dtype=dtype) for pool in pools for each in sizes]


def every_gradient(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless tokens, norm and head get the right gradient."""
    for pool in ("cls", "avg"):
        z, norm, head, _ = tokens(pool, 2, 5, 8, 3).draw()
        for source in (z.requires_grad_(), *norm.parameters(), *head.parameters()):
            expect_gradient(answer(z, norm, head, pool), read(z, norm, head, pool), source)


def other_pools(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless another pool raises ValueError."""

    def message(got: str, z: Tensor, norm: nn.Module, head: nn.Module, pool: str) -> str:
        if "Error" in got:
            return f"returns an error for pool={pool!r}; write raise instead of return"
        return f"accepts pool={pool!r}; raise ValueError for anything but cls and avg"

    unknown = ("max", "CLS", "", "class", "average", " cls")
    raises = Raises([tokens(pool, 2, 5, 8, 3).draw() for pool in unknown], message)
    raises(exercise, answer)


def averaging(wrong: Function) -> Function:
    """Make an answer that is wrong where the mean of the patches is requested."""
    return lambda z, n, h, p: wrong(z, n, h) if p == "avg" else read(z, n, h, p)


READ_OUT_MISTAKES: dict[str, Function] = {
    "the final norm is missing": lambda z, n, h, p: read(z, nn.Identity(), h, p),
    "the head is missing": lambda z, n, h, p: read(z, n, nn.Identity(), p),
    "norm and head are missing": lambda z, n, h, p: read(z, nn.Identity(), nn.Identity(), p),
    "reads the last token; the class token is token 0": lambda z, n, h, p: h(n(z)[:, -1]),
    "reads the first patch; the class token is token 0": lambda z, n, h, p: h(n(z)[:, 1]),
    "gives the result of the class token when the mean of the patches is requested":
        lambda z, n, h, p: h(n(z)[:, 0]),
    "gives the result of the mean when the class token is requested":
        lambda z, n, h, p: h(n(z)[:, 1:].mean(dim=1)),
    "averages the class token with the patches, so leave out token 0":
        averaging(lambda z, n, h: h(n(z).mean(dim=1))),
    "averages before the norm, but every token must be normalized first":
        averaging(lambda z, n, h: h(n(z[:, 1:].mean(dim=1)))),
    "averages before the norm, and includes the class token":
        averaging(lambda z, n, h: h(n(z.mean(dim=1)))),
    "normalizes the mean once more, but only the tokens should be normalized":
        averaging(lambda z, n, h: h(n(n(z)[:, 1:].mean(dim=1)))),
    "adds up the patches instead of taking their mean":
        averaging(lambda z, n, h: h(n(z)[:, 1:].sum(dim=1))),
    "divides by T, but there are T - 1 patches":
        averaging(lambda z, n, h: h(n(z)[:, 1:].sum(dim=1) / z.shape[1])),
    "takes the maximum of each feature instead of the mean":
        averaging(lambda z, n, h: h(n(z)[:, 1:].amax(dim=1))),
    "leaves out the last patch instead of the class token":
        averaging(lambda z, n, h: h(n(z)[:, :-1].mean(dim=1))),
    "the norm is applied twice": lambda z, n, h, p: read(n(z), n, h, p),
    "gives probabilities, but a head gives logits, because the loss applies the softmax itself":
        lambda *a: read(*a).softmax(dim=-1),
    "gives logarithms of probabilities, but a head gives logits":
        lambda *a: read(*a).log_softmax(dim=-1),
    "gives sigmoids, but a head gives logits": lambda *a: read(*a).sigmoid(),
    "there is a tanh before the head":
        lambda z, n, h, p: h(read(z, n, nn.Identity(), p).tanh()),
    "the head's bias is missing": lambda *a: read(*a) - a[2].bias,
    "reads the first image for all images":
        lambda z, n, h, p: read(z[:1], n, h, p).expand(len(z), -1),
    "uses a new norm instead of the one that is given":
        lambda z, n, h, p: read(z, partial(F.layer_norm, normalized_shape=z.shape[-1:]), h, p),
    "the head reads one vector for each image": lambda z, n, h, p: h(n(z)),
    "x[:, 0] removes the axis of the tokens, while x[:, :1] keeps it":
        lambda z, n, h, p: h(n(z)[:, :1]),
    "z[0] is the first image, z[:, 0] the first token of each":
        lambda z, n, h, p: h(n(z)[0, 0]),
    "z[0] is the first image, z[:, 0] each class token": lambda z, n, h, p: h(n(z)[0]),
}  # fmt: skip
READ_OUT = Exercise(
    name="read_out",
    reference=read,
    outcome=Outcome(observe=lambda answer, *args: {"": answer(*args)}),
    wording=Wording(
        model="norm or the head",
        when=lambda z, norm, head, pool: f'for pool="{pool}" and tokens {tuple(z.shape)}',
        says="{when}: {message}",
        unknown=(
            "the shape is right, but the numbers are not head(norm(z)) of what the head should read"
        ),
        hints={
            "(2x4 and 8x3)": "The head reads (B, D): the mean is over the tokens, dim=1",
            "at least 1D, but they are 0D": (
                "mean() without dim takes one mean of all numbers: the mean is over the tokens, "
                "dim=1"
            ),
            "expected input with shape [*": (
                "The norm reads tokens of width D, so the head comes after it"
            ),
        },
    ),
    contract=Contract(batch=3),
    ideas={
        "the normalized class token through the head, equation 4": sized("cls"),
        "the mean of the normalized patches, without the class token": sized("avg"),
        "float64 too": sized("cls", "avg", dtype=torch.float64),
        "gradients flow to tokens, norm and head": [every_gradient],
        "raises ValueError for another pool": [other_pools],
    },
    mistakes=READ_OUT_MISTAKES,
)
check_read_out = READ_OUT.check


# The whole model, and the planted mistake

FIX = VIT.renamed("fix", list(VIT.ideas))
check_vit_parameters, check_vit, check_fix = VIT_PARAMETERS.check, VIT.check, FIX.check
