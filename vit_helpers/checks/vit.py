"""The exercises of notebook 05; the count of parameters is in vit_counts.py, the whole model in vit_model.py."""

from collections.abc import Callable
from functools import partial
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.compare import bounded, expect_gradient
from vit_helpers.checks.contract import Raises
from vit_helpers.checks.engine import Case, Exercise, Given, fixed
from vit_helpers.checks.report import Function, reject_if, short
from vit_helpers.checks.vit_counts import COUNTED, VIT_PARAMETERS
from vit_helpers.checks.vit_model import VIT
from vit_helpers.parity import perturb

# The shape at every stop

STOPS = ("patches", "projected patches", "tokens", "features", "class token", "logits")


Shape = tuple[int, ...]


def shapes(
    B: int, C: int, H: int, W: int, P: int, D: int, K: int, count: Function = lambda H, W, P: (H // P) * (W // P)
) -> list[Shape]:
    """All six shapes; count: of patches."""
    N = count(H, W, P)
    return [(B, N, C * P * P), (B, N, D), (B, N + 1, D), (B, N + 1, D), (B, D), (B, K)]


def at(places: str, shape: Callable[[Any, Shape], Shape]) -> Function:
    """An answer that is wrong at some stops: `shape` makes it from all sizes and from the right one."""

    def answer(B: int, C: int, H: int, W: int, P: int, D: int, K: int) -> list[Shape]:
        N = (H // P) * (W // P)
        s = SimpleNamespace(B=B, C=C, P=P, D=D, K=K, N=N, T=N + 1, long=C * P * P, rows=H // P, cols=W // P)
        return [shape(s, six) if str(i) in places else six for i, six in enumerate(shapes(B, C, H, W, P, D, K))]

    return answer


def as_shape(value: Any, stop: str) -> Shape:
    """One stop of an answer as a tuple of whole numbers; Mistake for anything else."""
    is_tuple = isinstance(value, (tuple, list))
    floats = [n for n in value if isinstance(n, float)] if is_tuple else []
    reject_if(floats, f"{stop}: {floats[:1]} is no whole number; H / P gives a float, H // P does not")
    whole = is_tuple and all(isinstance(n, Integral) for n in value)
    reject_if(not whole, f"{stop}: got {short(value)}; a shape is a tuple of numbers")
    return tuple(map(int, value))


def six_shapes(answer: Function, *sizes: int) -> dict[str, Shape]:
    """What is compared: the shape at every stop."""
    got = bounded(answer(*sizes))
    got = list(got.values()) if isinstance(got, dict) else got
    reject_if(got is None, "gives nothing back: does it end with return?")
    reject_if(not isinstance(got, (list, tuple)), f"gives {short(got)}; it should give a list of six shapes")
    flat = got and all(isinstance(n, Integral) for n in got)
    reject_if(flat, f"gives one shape, {short(tuple(got))}; it should give a list of six, one for each stop")
    reject_if(len(got) != 6, f"gives {len(got)} shapes; there are six stops: {', '.join(STOPS)}")
    return {stop: as_shape(value, stop) for stop, value in zip(STOPS, got, strict=True)}


SHAPES = Exercise(
    name="shapes",
    reference=shapes,
    observe=six_shapes,
    when=lambda *sizes: f"for B, C, H, W, P, D, K = {', '.join(map(str, sizes))}",
    says="{part} {when}: gives {got}; {words}",
    unknown=lambda got, right, *sizes: "count again" if len(got) == len(right) else f"there are {len(right)} axes here",
    ideas={  # all numbers of a line differ, so that no axis is right by chance
        "all six stops of one batch": [fixed(2, 3, 32, 48, 8, 20, 5)],
        "other sizes: grey, square, a single patch, ViT-S/16": [
            fixed(7, 1, 6, 10, 2, 11, 3), fixed(1, 4, 9, 9, 3, 5, 2), fixed(5, 3, 224, 224, 16, 384, 1000),
            fixed(4, 2, 5, 5, 5, 6, 10),
        ],
    },
    mistakes={
        "a patch holds P * P pixels of each of C channels, C * P * P": at("0", lambda s, _: (s.B, s.N, s.P * s.P)),
        "a patch is flattened: one row of C * P * P numbers": at("0", lambda s, _: (s.B, s.N, s.C, s.P, s.P)),
        "a patch is flattened, its channels too: one row of C * P * P numbers":
            at("0", lambda s, _: (s.B, s.C, s.N, s.P, s.P)),
        "this is after the projection; a raw patch has C * P * P numbers": at("0", lambda s, _: (s.B, s.N, s.D)),
        "the grid is one axis of N patches": at("01", lambda s, right: (s.B, s.rows, s.cols, right[2])),
        "the grid is one axis of N patches, and stands before D": at("1", lambda s, _: (s.B, s.D, s.rows, s.cols)),
        "tokens come before their numbers": at("0123", lambda s, right: (s.B, right[2], right[1])),
        "the batch axis is missing: every image has its own": at("012345", lambda s, right: right[1:]),
        "that is one image; every image of the batch has its own": at("012345", lambda s, right: (1, *right[1:])),
        "the batch axis comes first": at("012345", lambda s, right: (right[1], s.B, *right[2:])),
        "the class token comes later, after the projection": at("01", lambda s, right: (s.B, s.T, right[2])),
        "the projection is missing: it makes D numbers of C * P * P": at("12", lambda s, right: (s.B, right[1], s.long)),
        "the class token is missing: T = N + 1": at("23", lambda s, _: (s.B, s.N, s.D)),
        "the class token is a row more, not a column": at("23", lambda s, _: (s.B, s.N, s.D + 1)),
        "there is one class token; positions are added, no tokens": at("23", lambda s, _: (s.B, s.N + 2, s.D)),
        "positions are added to the tokens, not put beside them": at("23", lambda s, _: (s.B, 2 * s.T, s.D)),
        "all tokens are still there; only the next stop picks one": at("3", lambda s, _: (s.B, s.D)),
        "all tokens are still there; the head reads one of each image": at("4", lambda s, _: (s.B, s.T, s.D)),
        "all patches are still there; the head reads one token of each image, the class token":
            at("4", lambda s, _: (s.B, s.N, s.D)),
        "a token is a row of D numbers": at("4", lambda s, _: (s.B, s.T)),
        "these are the logits already; the class token is what the head reads": at("4", lambda s, _: (s.B, s.K)),
        "x[:, 0] takes the axis of tokens away": at("45", lambda s, right: (s.B, 1, right[1])),
        "the head reads the class token alone, not every token": at("5", lambda s, _: (s.B, s.T, s.K)),
        "the head makes K numbers of D": at("5", lambda s, _: (s.B, s.D)),
    }
    | {words: partial(shapes, count=wrong) for words, wrong in COUNTED.items()},
)  # fmt: skip
check_shapes = SHAPES.check


# Reading the answer: equation 4, or the mean of the patches


def read(z: Tensor, norm: Function, head: Function, pool: str) -> Tensor:
    """Logits from the class token, or from the mean of the patches."""
    if pool not in ("cls", "avg"):
        raise ValueError(f"unknown pool {pool!r}, known: cls, avg")
    x = norm(z)
    return head(x[:, 0] if pool == "cls" else x[:, 1:].mean(dim=1))


def tokens(pool: str, B: int, T: int, D: int, K: int, dtype: torch.dtype = torch.float32) -> Case:
    """Tokens, a norm and a head in which no number is 0 or 1."""

    def draw() -> Given:
        norm, head = nn.LayerNorm(D, eps=1e-6), nn.Linear(D, K)
        perturb(norm, std=1)
        return 2 * torch.randn(B, T, D, dtype=dtype) + 0.5, norm.to(dtype), head.to(dtype), pool

    return Case(draw)


def sized(*pools: str, dtype: torch.dtype = torch.float32) -> list[Case]:
    """Cases of all sizes."""
    sizes = [(2, 5, 8, 3), (1, 4, 6, 2), (5, 5, 5, 4), (3, 2, 7, 3)]
    return [tokens(pool, *each, dtype=dtype) for pool in pools for each in sizes]


def every_gradient(exercise: Exercise, answer: Function) -> None:
    """Mistake unless tokens, norm and head get the right gradient."""
    for pool in ("cls", "avg"):
        z, norm, head, _ = tokens(pool, 2, 5, 8, 3).draw()
        for source in (z.requires_grad_(), *norm.parameters(), *head.parameters()):
            expect_gradient(answer(z, norm, head, pool), read(z, norm, head, pool), source)


def other_pools(exercise: Exercise, answer: Function) -> None:
    """Mistake unless another pool raises ValueError."""

    def words(got: str, z: Tensor, norm: nn.Module, head: nn.Module, pool: str) -> str:
        given = f"gives an error back for pool={pool!r}; write raise in place of return"
        return given if "Error" in got else f"takes pool={pool!r}; it knows cls and avg only: raise ValueError for another"

    Raises([tokens(p, 2, 5, 8, 3).draw() for p in ("max", "CLS", "", "class", "average", " cls")], words)(exercise, answer)


READ_OUT = Exercise(
    name="read_out",
    reference=read,
    observe=lambda answer, *given: {"": answer(*given)},
    batch=3,
    model="norm or the head",
    when=lambda z, norm, head, pool: f'for pool="{pool}" and tokens {tuple(z.shape)}',
    says="{when}: {words}",
    unknown="the shape is right, the numbers are not head(norm(z)) of what is read",
    ideas={
        "the class token, normed, through the head: equation 4": sized("cls"),
        "the mean of the normed patches, without the class token": sized("avg"),
        "float64 too": sized("cls", "avg", dtype=torch.float64),
        "gradients flow to tokens, norm and head": [every_gradient],
        "raises ValueError for another pool": [other_pools],
    },
    mistakes={
        "the last norm is missing": lambda z, n, h, p: read(z, nn.Identity(), h, p),
        "the head is missing": lambda z, n, h, p: read(z, n, nn.Identity(), p),
        "norm and head are missing": lambda z, n, h, p: read(z, nn.Identity(), nn.Identity(), p),
        "reads the last token; the class token is token 0": lambda z, n, h, p: h(n(z)[:, -1]),
        "reads the first patch; the class token is token 0": lambda z, n, h, p: h(n(z)[:, 1]),
        "gives the class token's result where the mean of the patches is asked for": lambda z, n, h, p: h(n(z)[:, 0]),
        "gives the mean where the class token is asked for": lambda z, n, h, p: h(n(z)[:, 1:].mean(dim=1)),
        "averages the class token with the patches; leave token 0 out": lambda z, n, h, p: h(n(z).mean(dim=1)),
        "averages before the norm; norm every token first": lambda z, n, h, p: h(n(z[:, 1:].mean(dim=1))),
        "averages before the norm, and the class token too": lambda z, n, h, p: h(n(z.mean(dim=1))),
        "norms the mean once more; norm the tokens only": lambda z, n, h, p: h(n(n(z)[:, 1:].mean(dim=1))),
        "sums the patches; take their mean": lambda z, n, h, p: h(n(z)[:, 1:].sum(dim=1)),
        "divides by T; there are T - 1 patches": lambda z, n, h, p: h(n(z)[:, 1:].sum(dim=1) / z.shape[1]),
        "takes the largest number of each feature; take the mean": lambda z, n, h, p: h(n(z)[:, 1:].amax(dim=1)),
        "leaves out the last patch, not the class token": lambda z, n, h, p: h(n(z)[:, :-1].mean(dim=1)),
        "the norm is applied twice": lambda z, n, h, p: read(n(z), n, h, p),
        "gives probabilities; a head gives logits, the loss takes the softmax itself": lambda *a: read(*a).softmax(dim=-1),
        "gives logarithms of probabilities; a head gives logits": lambda *a: read(*a).log_softmax(dim=-1),
        "gives sigmoids; a head gives logits": lambda *a: read(*a).sigmoid(),
        "a tanh stands before the head": lambda z, n, h, p: h(read(z, n, nn.Identity(), p).tanh()),
        "the head's bias is left out": lambda *a: read(*a) - a[2].bias,
        "reads the first image for all": lambda z, n, h, p: read(z[:1], n, h, p).expand(len(z), -1),
        "uses a fresh norm; use the one that is handed over":
            lambda z, n, h, p: read(z, partial(F.layer_norm, normalized_shape=z.shape[-1:]), h, p),
        "the head reads one vector an image": lambda z, n, h, p: h(n(z)),
        "x[:, 0] takes the axis of tokens away, x[:, :1] keeps it": lambda z, n, h, p: h(n(z)[:, :1]),
        "z[0] is the first image, z[:, 0] the first token of each": lambda z, n, h, p: h(n(z)[0, 0]),
        "z[0] is the first image, z[:, 0] each class token": lambda z, n, h, p: h(n(z)[0]),
    },
)  # fmt: skip
check_read_out = READ_OUT.check


# The whole model, and the planted mistake

FIX = VIT.renamed("mend", list(VIT.ideas))
check_vit_parameters, check_vit, check_mend = VIT_PARAMETERS.check, VIT.check, FIX.check
