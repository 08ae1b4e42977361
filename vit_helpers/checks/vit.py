"""The exercises of notebook 05; the whole model is in vit_model.py."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import combinations
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.compare import bounded, expect_gradient
from vit_helpers.checks.contract import Raises
from vit_helpers.checks.engine import Case, Exercise
from vit_helpers.checks.patches import NUM_PATCHES
from vit_helpers.checks.report import reject_if, short
from vit_helpers.checks.vit_model import VIT

GRID = "the number of patches is N = (H / P) * (W / P), rows times columns of the grid: "
COUNTED = {GRID + words: wrong for words, wrong in NUM_PATCHES.mistakes.items() if "class token" not in words}

# The shape at every stop

STOPS = ("patches", "projected patches", "tokens", "features", "class token", "logits")


def shapes(
    B: int, C: int, H: int, W: int, P: int, D: int, K: int, count: Callable = lambda H, W, P: (H // P) * (W // P)
) -> list[tuple]:
    """All six shapes; count: of patches."""
    N = count(H, W, P)
    return [(B, N, C * P * P), (B, N, D), (B, N + 1, D), (B, N + 1, D), (B, D), (B, K)]


def at(places: str, shape: Callable[[Any, tuple], tuple]) -> Callable:
    """An answer that is wrong at some stops: `shape` makes it from all sizes and from the right one."""

    def answer(*sizes: int) -> list[tuple]:
        B, C, H, W, P, D, K = sizes
        N, right = (H // P) * (W // P), shapes(*sizes)
        s = SimpleNamespace(B=B, C=C, P=P, D=D, K=K, N=N, T=N + 1, long=C * P * P, rows=H // P, cols=W // P)
        return [shape(s, six) if str(i) in places else six for i, six in enumerate(right)]

    return answer


def as_shape(value: Any, stop: str) -> tuple[int, ...]:
    """One stop of an answer as a tuple of whole numbers; Mistake for anything else."""
    is_tuple = isinstance(value, (tuple, list))
    floats = [n for n in value if isinstance(n, float)] if is_tuple else []
    reject_if(floats, f"{stop}: {floats[:1]} is no whole number; H / P gives a float, H // P does not")
    whole = is_tuple and all(isinstance(n, Integral) for n in value)
    reject_if(not whole, f"{stop}: got {short(value)}; a shape is a tuple of numbers")
    return tuple(map(int, value))


def six_shapes(answer: Callable, *sizes: int) -> dict[str, tuple]:
    """What is compared: the shape at every stop."""
    got = bounded(answer(*sizes))
    got = list(got.values()) if isinstance(got, dict) else got
    reject_if(got is None, "gives nothing back: does it end with return?")
    reject_if(not isinstance(got, (list, tuple)), f"gives {short(got)}; it should give a list of six shapes")
    flat = got and all(isinstance(n, Integral) for n in got)
    reject_if(flat, f"gives one shape, {short(tuple(got))}; it should give a list of six, one for each stop")
    reject_if(len(got) != 6, f"gives {len(got)} shapes; there are six stops: {', '.join(STOPS)}")
    return {stop: as_shape(value, stop) for stop, value in zip(STOPS, got, strict=True)}


def sizes_of(*sizes: int) -> Case:
    return Case(partial(tuple, sizes))


SHAPES = Exercise(
    name="shapes",
    reference=shapes,
    observe=six_shapes,
    when=lambda *sizes: f"for B, C, H, W, P, D, K = {', '.join(map(str, sizes))}",
    says="{part} {when}: gives {got}; {words}",
    unknown=lambda got, right, *sizes: "count again" if len(got) == len(right) else f"there are {len(right)} axes here",
    ideas={  # all numbers of a line differ, so that no axis is right by chance
        "all six stops of one batch": [sizes_of(2, 3, 32, 48, 8, 20, 5)],
        "other sizes: grey, square, a single patch, ViT-S/16": [
            sizes_of(7, 1, 6, 10, 2, 11, 3),
            sizes_of(1, 4, 9, 9, 3, 5, 2),
            sizes_of(5, 3, 224, 224, 16, 384, 1000),
            sizes_of(4, 2, 5, 5, 5, 6, 10),
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


def read(z: Tensor, norm: Callable, head: Callable, pool: str) -> Tensor:
    """Logits from the class token, or from the mean of the patches."""
    if pool not in ("cls", "avg"):
        raise ValueError(f"unknown pool {pool!r}, known: cls, avg")
    x = norm(z)
    return head(x[:, 0] if pool == "cls" else x[:, 1:].mean(dim=1))


def result(answer: Callable, *given: Any) -> dict:
    """What is compared: the logits."""
    return {"": answer(*given)}


def tokens(pool: str, B: int, T: int, D: int, K: int, dtype: torch.dtype = torch.float32) -> Case:
    """Tokens, a norm and a head in which no number is 0 or 1."""

    def draw() -> tuple:
        norm, head = nn.LayerNorm(D, eps=1e-6), nn.Linear(D, K)
        for p in norm.parameters():
            nn.init.normal_(p, mean=0.5)
        return 2 * torch.randn(B, T, D, dtype=dtype) + 0.5, norm.to(dtype), head.to(dtype), pool

    return Case(draw)


def sized(*pools: str, dtype: torch.dtype = torch.float32) -> list[Case]:
    """Cases of all sizes."""
    sizes = [(2, 5, 8, 3), (1, 4, 6, 2), (5, 5, 5, 4), (3, 2, 7, 3)]
    return [tokens(pool, *each, dtype=dtype) for pool in pools for each in sizes]


def every_gradient(exercise: Exercise, answer: Callable) -> None:
    """Mistake unless tokens, norm and head get the right gradient."""
    for pool in ("cls", "avg"):
        z, norm, head, _ = tokens(pool, 2, 5, 8, 3).draw()
        for source in (z.requires_grad_(), *norm.parameters(), *head.parameters()):
            expect_gradient(answer(z, norm, head, pool), read(z, norm, head, pool), source)


def other_pools(exercise: Exercise, answer: Callable) -> None:
    """Mistake unless another pool raises ValueError."""

    def words(got: str, z: Tensor, norm: nn.Module, head: nn.Module, pool: str) -> str:
        given = f"gives an error back for pool={pool!r}; write raise in place of return"
        return given if "Error" in got else f"takes pool={pool!r}; it knows cls and avg only: raise ValueError for another"

    Raises([tokens(p, 2, 5, 8, 3).draw() for p in ("max", "CLS", "", "class", "average", " cls")], words)(exercise, answer)


READ_OUT = Exercise(
    name="read_out",
    reference=read,
    observe=result,
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


# Counting parameters without building


def counts(image_size: int, patch_size: int, in_chans: int, embed_dim: int, depth: int, num_classes: int) -> dict[str, int]:
    """Parameters by part."""
    N, D, L, K = (image_size // patch_size) ** 2, embed_dim, depth, num_classes
    block = {
        "the weights of queries, keys and values, 3 * D * D a block": 3 * D * D,
        "the biases of queries, keys and values, 3 * D a block": 3 * D,
        "the weight of attention's output projection, D * D a block": D * D,
        "the bias of attention's output projection, D a block": D,
        "the weight of the MLP's first layer, D * 4 D a block": 4 * D * D,
        "the bias of the MLP's first layer, 4 D a block": 4 * D,
        "the weight of the MLP's second layer, 4 D * D a block": 4 * D * D,
        "the bias of the MLP's second layer, D a block": D,
        "one of a block's two norms, 2 D a block": 2 * D,
        "the other of a block's two norms, 2 D a block": 2 * D,
    }
    return {
        "the projection's weight, C * P * P * D": in_chans * patch_size**2 * D,
        "the projection's bias, D": D,
        "the class token, D": D,
        "the positions of the N patches, N * D": N * D,
        "the class token's position, D": D,
        **{name: L * n for name, n in block.items()},
        "the last norm, 2 D": 2 * D,
        "the head's weight, D * K": D * K,
        "the head's bias, K": K,
    }


def total(*sizes: int) -> int:
    """All parameters."""
    return sum(counts(*sizes).values())


def off(by: Callable[[int, int, int, int, int], int]) -> Callable:
    """A wrong count: by how much, from N, the projection's weight, D, L and K."""
    return lambda *s: total(*s) + by((s[0] // s[1]) ** 2, s[2] * s[1] ** 2 * s[3], *s[3:])


def missing(*parts: str) -> Callable:
    """A wrong count that leaves parts out, by words in their names."""
    return lambda *s: total(*s) - sum(n for name, n in counts(*s).items() if any(part in name for part in parts))


def by_parts(got: int, right: int, *sizes: int) -> str:
    """What to say of a count that no known mistake gives: which one or two parts are missing or counted twice."""
    terms = counts(*sizes)
    for names in [names for n in (1, 2) for names in combinations(terms, n)]:
        if got == right - sum(terms[name] for name in names):
            return f"missing: {'; '.join(names)}"
    twice = (f"counted twice: {name}" for name, term in terms.items() if got == right + term)
    return next(twice, "go through the parts one by one")


def one_number(answer: Callable, *sizes: int) -> dict:
    """What is compared: the count. Who builds the model after all builds it on meta, where it takes no time."""
    with suppress(Exception), torch.device("meta"):
        if not isinstance(got := answer(*sizes), Tensor):
            return {"": got}
    return {"": answer(*sizes)}


DEPTH = "only the blocks are multiplied by the depth"
HEAD = "the head reads the class token alone: D * K, whatever the number of tokens"
VIT_PARAMETERS = Exercise(
    name="vit_parameters",
    reference=total,
    observe=one_number,
    whole=True,
    says="gives {got:,} for image {0}, patch {1}, C {2}, D {3}, L {4}, K {5}; it should give {right:,}: {words}",
    when=lambda *sizes: f"for {', '.join(map(str, sizes))}",
    depends="all six numbers",
    unknown=by_parts,
    ideas={
        "a small ViT": [sizes_of(32, 4, 3, 40, 3, 10)],
        "another channel count, a single patch, a single block": [sizes_of(12, 3, 1, 24, 5, 7), sizes_of(6, 6, 2, 10, 1, 3)],
        "B/16 with 3 classes, H/14 with 1000, a deeper one":
            [sizes_of(224, 16, 3, 768, 12, 3), sizes_of(224, 14, 3, 1280, 32, 1000), sizes_of(28, 7, 1, 64, 4, 10)],
    },
    mistakes={
        "the class token and all positions are missing: they are parameters too": missing("class token", "positions of"),
        "the positions of the N patches are missing: N * D": missing("positions of"),
        "the positions are missing: (N + 1) * D": missing("position"),
        "the blocks are missing: 12 D * D + 13 D each": missing("a block"),
        "only one block is counted: multiply by the depth": lambda *s: total(*s[:4], 1, s[5]),
        "one block is missing: there are `depth` of them": lambda *s: total(*s[:4], s[4] - 1, s[5]),
        "there is one block too many: `depth` of them": lambda *s: total(*s[:4], s[4] + 1, s[5]),
        DEPTH: lambda *s: s[4] * total(*s[:4], 1, s[5]),
        f"{DEPTH}, not the positions": off(lambda N, W, D, L, K: (L - 1) * (N + 1) * D),
        f"{DEPTH}, not the last norm": off(lambda N, W, D, L, K: (L - 1) * 2 * D),
        "all biases are missing": missing("bias"),
        "the biases inside the blocks are missing":
            missing("biases", "bias of"),
        "5 D a block are missing: the MLP's biases, 4 D and D": missing("bias of the MLP"),
        "the biases and norms of the blocks are missing: 13 D each": missing("biases", "bias of", "two norms"),
        "the two norms of every block are missing: 4 D a block": missing("two norms"),
        "all norms are missing: each has a weight and a bias, 2 D": missing("norm"),
        "a LayerNorm has a weight and a bias, 2 D, not D": off(lambda N, W, D, L, K: -D * (2 * L + 1)),
        "the head is missing: D * K + K": missing("head"),
        "the last norm and the head are missing: 2 D, and D * K + K": missing("head", "last norm"),
        "the head's bias has K numbers, one for each class": off(lambda N, W, D, L, K: D - K),
        "D numbers are missing: the class token, its position, the projection's bias, or half of the last norm":
            off(lambda N, W, D, L, K: -D),
        "2 D numbers are missing: the last norm (weight and bias), or the class token with its position":
            off(lambda N, W, D, L, K: -2 * D),
        "D numbers too many: is the class token, its position or the projection's bias counted twice?":
            off(lambda N, W, D, L, K: D),
        "2 D numbers too many: is the last norm, or the class token with its position, counted twice?":
            off(lambda N, W, D, L, K: 2 * D),
        HEAD: off(lambda N, W, D, L, K: D * N * K),
        f"{HEAD}, not N * D * K": off(lambda N, W, D, L, K: D * (N - 1) * K),
        "the projection reads all C channels":
            lambda *s: total(*s) - s[1] ** 2 * s[3] * (s[2] - 1),
        "a patch has P * P pixels": lambda *s: total(*s) - s[2] * s[3] * s[1] * (s[1] - 1),
        "the projection's bias has D numbers, as many as it gives out": off(lambda N, W, D, L, K: W // D - D),
        "all patches share one projection": off(lambda N, W, D, L, K: (N - 1) * (W + D)),
        "the MLP is 4 D wide: its two weights hold 8 D * D": off(lambda N, W, D, L, K: -6 * D * D * L),
        "4 D * D a block are missing: four D * D are attention's, two 4 D * D the MLP's":
            off(lambda N, W, D, L, K: -4 * D * D * L),
        "the MLP is missing: 8 D * D + 5 D a block": missing("MLP"),
    }
    | {
        words: lambda *s, wrong=wrong: total(*s) + (wrong(s[0], s[0], s[1]) - (s[0] // s[1]) ** 2) * s[3]
        for words, wrong in COUNTED.items()
        if "square images" not in words and "one row" not in words
    },
)  # fmt: skip
check_vit_parameters = VIT_PARAMETERS.check


# The whole model, and the planted mistake

FIX = VIT.renamed("mend", list(VIT.ideas))
check_vit, check_mend = VIT.check, FIX.check
