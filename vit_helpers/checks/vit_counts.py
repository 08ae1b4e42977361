"""The exercise of notebook 05 that counts a model's parameters without building it."""

from collections.abc import Callable
from contextlib import suppress
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from vit_helpers.checks.engine.exercise import Exercise, Outcome, Wording, fixed
from vit_helpers.checks.engine.report import Function
from vit_helpers.checks.patches import NUM_PATCHES

GRID = "the number of patches is N = (H / P) * (W / P), rows times columns of the grid: "
COUNTED = {
    GRID + message: wrong
    for message, wrong in NUM_PATCHES.mistakes.items()
    if "class token" not in message
}


def counts(
    image_size: int, patch_size: int, in_chans: int, embed_dim: int, depth: int, num_classes: int
) -> dict[str, int]:
    """Count parameters by part."""
    N, D, L, K = (image_size // patch_size) ** 2, embed_dim, depth, num_classes
    block = {
        "the weights of queries, keys and values, 3 * D * D per block": 3 * D * D,
        "the biases of queries, keys and values, 3 * D per block": 3 * D,
        "the weight of attention's output projection, D * D per block": D * D,
        "the bias of attention's output projection, D per block": D,
        "the weight of the MLP's first layer, D * 4 D per block": 4 * D * D,
        "the bias of the MLP's first layer, 4 D per block": 4 * D,
        "the weight of the MLP's second layer, 4 D * D per block": 4 * D * D,
        "the bias of the MLP's second layer, D per block": D,
        "one of a block's two norms, 2 D per block": 2 * D,
        "the other of a block's two norms, 2 D per block": 2 * D,
    }
    return {
        "the projection's weight, C * P * P * D": in_chans * patch_size**2 * D,
        "the projection's bias, D": D,
        "the class token, D": D,
        "the positions of the N patches, N * D": N * D,
        "the class token's position, D": D,
        **{name: L * n for name, n in block.items()},
        "the final norm, 2 D": 2 * D,
        "the head's weight, D * K": D * K,
        "the head's bias, K": K,
    }


def total(*sizes: int) -> int:
    """Count all parameters."""
    return sum(counts(*sizes).values())


def off(by: Callable[[int, int, int, int, int], int]) -> Function:
    """Make a wrong count: by how much, from N, the projection's weight, D, L and K."""
    return lambda *s: total(*s) + by((s[0] // s[1]) ** 2, s[2] * s[1] ** 2 * s[3], *s[3:])


def missing(*parts: str) -> Function:
    """Make a wrong count that leaves parts out, by words in their names."""
    return lambda *s: (
        total(*s) - sum(n for name, n in counts(*s).items() if any(part in name for part in parts))
    )  # fmt: skip


def by_parts(got: int, right: int, *sizes: int) -> str:
    """Write the message about a count that no known mistake gives.

    It may be short by as many as one or two parts have, or too large by one.
    """
    terms = counts(*sizes)
    for names in [names for n in (1, 2) for names in combinations(terms, n)]:
        if got == right - sum(terms[name] for name in names):
            return f"{right - got:,} too few, as many as {' and '.join(names)}"
    more = (
        f"{term:,} too many, as many as {name}"
        for name, term in terms.items()
        if got == right + term
    )
    return next(more, "go through the parts one by one")


def one_number(answer: Function, *sizes: int) -> dict[str, Any]:
    """Observe the count.

    A model that is built for it is built on meta, where that takes no time.
    """
    with suppress(Exception), torch.device("meta"):
        if not isinstance(got := answer(*sizes), Tensor):
            return {"": got}
    return {"": answer(*sizes)}


DEPTH = "only the blocks are multiplied by the depth"
HEAD = "the head reads only the class token, so it has D * K, whatever the number of tokens"
VIT_PARAMETERS_MISTAKES: dict[str, Function] = (
    {
        "the class token and all positions are missing, but they are parameters too":
            missing("class token", "positions of"),
        "the positions of the N patches are missing: N * D": missing("positions of"),
        "the positions are missing: (N + 1) * D": missing("position"),
        "the blocks are missing: 12 D * D + 13 D each": missing("per block"),
        "only one block is counted: multiply by the depth": lambda *s: total(*s[:4], 1, s[5]),
        "one block is missing: there are `depth` of them": lambda *s: total(*s[:4], s[4] - 1, s[5]),
        "there is one block too many: `depth` of them": lambda *s: total(*s[:4], s[4] + 1, s[5]),
        DEPTH: lambda *s: s[4] * total(*s[:4], 1, s[5]),
        f"{DEPTH}, not the positions": off(lambda N, W, D, L, K: (L - 1) * (N + 1) * D),
        f"{DEPTH}, not the final norm": off(lambda N, W, D, L, K: (L - 1) * 2 * D),
        "all biases are missing": missing("bias"),
        "the biases inside the blocks are missing": missing("biases", "bias of"),
        "5 D for each block are missing: the MLP's biases, 4 D and D": missing("bias of the MLP"),
        "the biases and norms of the blocks are missing: 13 D each":
            missing("biases", "bias of", "two norms"),
        "the two norms of every block are missing: 4 D for each block": missing("two norms"),
        "all norms are missing: each has a weight and a bias, 2 D": missing("norm"),
        "a LayerNorm has a weight and a bias, 2 D, not D":
            off(lambda N, W, D, L, K: -D * (2 * L + 1)),
        "the head is missing: D * K + K": missing("head"),
        "the final norm and the head are missing: 2 D, and D * K + K":
            missing("head", "final norm"),
        "the head's bias has K numbers, one for each class": off(lambda N, W, D, L, K: D - K),
        "D numbers are missing: the class token, its position, the projection's bias, "
        "or half of the final norm":
            off(lambda N, W, D, L, K: -D),
        "2 D numbers are missing: the final norm (weight and bias), "
        "or the class token with its position":
            off(lambda N, W, D, L, K: -2 * D),
        "D numbers too many: is the class token, "
        "its position or the projection's bias counted twice?":
            off(lambda N, W, D, L, K: D),
        "2 D numbers too many: is the final norm, "
        "or the class token with its position, counted twice?":
            off(lambda N, W, D, L, K: 2 * D),
        HEAD: off(lambda N, W, D, L, K: D * N * K),
        f"{HEAD}, not N * D * K": off(lambda N, W, D, L, K: D * (N - 1) * K),
        "the projection reads all C channels": lambda *s: total(*s) - s[1] ** 2 * s[3] * (s[2] - 1),
        "a patch has P * P pixels": lambda *s: total(*s) - s[2] * s[3] * s[1] * (s[1] - 1),
        "the projection's bias has D numbers, as many as its output":
            off(lambda N, W, D, L, K: W // D - D),
        "all patches share one projection": off(lambda N, W, D, L, K: (N - 1) * (W + D)),
        "the MLP is 4 D wide: its two weights have 8 D * D numbers":
            off(lambda N, W, D, L, K: -6 * D * D * L),
        "4 D * D for each block are missing: attention has four times D * D, "
        "the MLP two times 4 D * D":
            off(lambda N, W, D, L, K: -4 * D * D * L),
        "the MLP is missing: 8 D * D + 5 D for each block": missing("MLP"),
    }
    | {
        message: lambda *s, wrong=wrong: (
            total(*s) + (wrong(s[0], s[0], s[1]) - (s[0] // s[1]) ** 2) * s[3]
        )
        for message, wrong in COUNTED.items()
        if "square images" not in message and "one row" not in message
    }
)  # fmt: skip
VIT_PARAMETERS = Exercise(
    name="vit_parameters",
    reference=total,
    outcome=Outcome(observe=one_number),
    wording=Wording(
        says=(
            "gives {got:,} for image {0}, patch {1}, C {2}, D {3}, L {4}, K {5}; "
            "it should give {right:,}: {message}"
        ),
        when=lambda *sizes: f"for {', '.join(map(str, sizes))}",
        kind="a whole number",
        depends="all six numbers",
        unknown=by_parts,
    ),
    ideas={
        "a small ViT": [fixed(32, 4, 3, 40, 3, 10)],
        "another number of channels, a single patch, a single block": [
            fixed(12, 3, 1, 24, 5, 7),
            fixed(6, 6, 2, 10, 1, 3),
        ],
        "B/16 with 3 classes, H/14 with 1000, a deeper one": [
            fixed(224, 16, 3, 768, 12, 3),
            fixed(224, 14, 3, 1280, 32, 1000),
            fixed(28, 7, 1, 64, 4, 10),
        ],
    },
    mistakes=VIT_PARAMETERS_MISTAKES,
)
