"""The exercises of notebook 08 about attention weights; whole maps have a module of their own."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vit_helpers import inspection
from vit_helpers.checks.engine.exercise import Arguments, Case, Exercise, Outcome, Wording
from vit_helpers.checks.engine.learning import result
from vit_helpers.checks.engine.report import Function
from vit_helpers.checks.inspection_maps import (  # noqa: F401
    FRACTION_INSIDE,
    SCALED,
    check_fraction_inside,
    check_scaled,
    some_weights,
)

# One token's map


def token_of(grid: tuple[int, int], query: tuple[int, int] | None) -> int:
    """Return the number of a token: 0 is the class token, patches follow along the rows."""
    return 0 if query is None else 1 + query[0] * grid[1] + query[1]


def looked_at(token: Function = token_of) -> Function:
    """Make an answer that folds the weights of one query token, (h, rows, cols)."""
    return lambda w, grid, query: w[:, token(grid, query), 1:].unflatten(1, grid)


def to_map(
    grid: tuple[int, int], query: tuple[int, int] | None, heads: int = 3, even: int = 0
) -> Case:
    """Make weights, a grid and a query; even: as many heads have uniform weights."""
    T = grid[0] * grid[1] + 1
    return Case(
        lambda: (
            torch.cat([torch.full((even, T, T), 1 / T), some_weights(heads - even, T, T)]),
            grid,
            query,
        )
    )


MAP_MISTAKES: dict[str, Function] = {
    "returns the weights that the other tokens give to this one: "
    "rows belong to queries, columns to keys":
        lambda w, g, q: w[:, 1:, token_of(g, q)].unflatten(1, g),
    "forgets that the class token is token 0, so that patch 0 is token 1":
        looked_at(lambda g, q: max(token_of(g, q) - 1, 0)),
    "includes the weight on the class token, "
    "so that every patch is off by one: leave column 0 out":
        lambda w, g, q: w[:, token_of(g, q), :-1].unflatten(1, g),
    "rescales the map to sum to 1, which hides the weight on the class token":
        lambda w, g, q: looked_at()(w / w[..., 1:].sum(dim=-1, keepdim=True), g, q),
    "fills the map column by column, but patches are numbered row by row":
        lambda w, g, q: looked_at()(w, g[::-1], q and divmod(token_of(g, q) - 1, g[0])).mT,
    "uses the wrong patch: row {2[0]} starts at patch {2[0]} * {1[1]}, "
    "because a row has {1[1]} patches":
        looked_at(lambda g, q: 0 if q is None else 1 + q[0] * g[0] + q[1]),
    "uses the wrong patch: row {2[0]} starts at patch {2[0]} * {1[1]}, "
    "and column {2[1]} is {2[1]} further":
        looked_at(lambda g, q: 0 if q is None else 1 + q[1] * g[0] + q[0]),
    "returns the map of the class token: is `query` used?": looked_at(lambda g, q: 0),
    "that is one row of numbers for each head: reshape it to rows and columns":
        lambda w, g, q: w[:, token_of(g, q), 1:],
    "that is a single map, but each of the {0.shape[0]} heads has its own":
        lambda w, g, q: looked_at()(w, g, q).mean(dim=0),
    "the columns come before the rows": lambda w, g, q: looked_at()(w, g, q).mT,
}  # fmt: skip
MAP = Exercise(
    name="map_of",
    reference=inspection.attention_map,
    outcome=Outcome(observe=result),
    wording=Wording(
        when=lambda w, grid, query: (
            f"for {'the class token' if query is None else f'patch {query}'} on "
            f"{grid[0]} x {grid[1]} patches"
        ),
        says="{when}: {message}",
        unknown="the numbers are not the weights",
    ),
    ideas={
        "the map of the class token, in rows and columns of patches": [
            to_map(g, None) for g in [(3, 4), (2, 2), (5, 2)]
        ],
        "the map of any patch": [
            *(to_map((3, 4), query) for query in (None, (2, 1), (0, 0))),
            to_map((5, 2), (3, 1)),
            to_map((1, 6), (0, 4), 1),
        ],
        "the weights themselves, the input left unchanged": [
            to_map((3, 4), query, 2, even=1) for query in ((1, 2), None)
        ],
    },
    mistakes=MAP_MISTAKES,
)
check_map = check_map_of = MAP.check


# How far a head attends


def far(grid: tuple[int, int], P: int = 1, p: float = 2.0, axes: Sequence[int] = (0, 1)) -> Tensor:
    """Return distances between patches, (N, N), numbered along the rows.

    p: of which norm; axes: 0 is down, 1 across
    """
    places = torch.cartesian_prod(*(torch.arange(float(n)) for n in grid))[:, list(axes)]
    return P * torch.cdist(places, places, p=p)


def shares(w: Tensor, dim: int = -1) -> Tensor:
    """Return the weights among patches, which sum to 1 again."""
    return w[:, 1:, 1:] / w[:, 1:, 1:].sum(dim=dim, keepdim=True)


def mean(weights: Tensor, distances: Tensor) -> Tensor:
    """Return distances times weights, summed over keys, averaged over queries."""
    return (weights * distances).sum(dim=-1).mean(dim=-1)


def looking(to: Function, what: str, grid: tuple[int, int], P: int) -> Case:
    """Make a case: weights made by `to` from rows and columns of a grid, and the case in words."""
    return Case(
        lambda: (to(*grid), grid, P),
        f"{what} on {grid[0]} x {grid[1]} patches" + f" of {P} pixels" * (to != other),
    )


def shift(rows: int, cols: int, by: int = 1) -> Tensor:
    """Return weights with which every patch attends to the one `by` columns further.

    The last column attends around the edge, the class token to itself.
    """
    patch, weights = torch.arange(rows * cols), torch.eye(rows * cols + 1)
    weights[1:, 1:] = weights[1:, 1:][patch // cols * cols + (patch + by) % cols]
    return weights[None]


def even(rows: int, cols: int) -> Tensor:
    """Return two heads with uniform weights."""
    return torch.full((2, rows * cols + 1, rows * cols + 1), 1 / (rows * cols + 1))


def other(rows: int, cols: int) -> Tensor:
    """Return three heads with any weights."""
    return some_weights(3, rows * cols + 1, rows * cols + 1)


DISTANCE_MISTAKES: dict[str, Function] = {
    "measures in patches instead of pixels: a patch is patch_size pixels wide":
        lambda w, g, P: mean(shares(w), far(g)),
    "adds the vertical and the horizontal distance, but the straight line is shorter":
        lambda w, g, P: mean(shares(w), far(g, P, p=1.0)),
    "returns squared distances: is the square root missing?":
        lambda w, g, P: mean(shares(w), far(g, P) ** 2),
    "leaves out the class token without rescaling: "
    "divide each row by the sum of the weights that remain":
        lambda w, g, P: mean(w[:, 1:, 1:], far(g, P)),
    "sums over the queries instead of averaging over them":
        lambda w, g, P: (shares(w) * far(g, P)).sum(dim=(-1, -2)),
    "does not weight by attention: the mean over all pairs is the same for every head":
        lambda w, g, P: far(g, P).mean().expand(len(w)),
    "returns the distance of the farthest patch instead of the mean":
        lambda w, g, P: far(g, P).max().expand(len(w)),
    "averages over all pairs: a query's weights sum to 1, so sum over the keys, "
    "then average over the queries":
        lambda w, g, P: (shares(w) * far(g, P)).mean(dim=(-1, -2)),
    "divides along the wrong axis: each row of weights should sum to 1 over its keys":
        lambda w, g, P: mean(shares(w, dim=-2), far(g, P)),
    "numbers the patches column by column, but they are numbered row by row":
        lambda w, g, P: mean(shares(w), far(g[::-1], P)),
    "applies a softmax to weights that are already normalized: divide each row by its sum":
        lambda w, g, P: mean(w[:, 1:, 1:].softmax(dim=-1), far(g, P)),
    "measures only the horizontal distance":
        lambda w, g, P: mean(shares(w), far(g, P, axes=(1,))),
    "measures only the vertical distance":
        lambda w, g, P: mean(shares(w), far(g, P, axes=(0,))),
    "one number for each head: average over the queries too":
        lambda w, g, P: (shares(w) * far(g, P)).sum(dim=-1),
    "averages over one query too many: divide by the N patches, without the class token":
        lambda w, g, P: (shares(w) * far(g, P)).sum(dim=(-1, -2)) / w.shape[-1],
    "gives the class token a position, but it has none":
        lambda w, g, P: mean(w, torch.nn.functional.pad(far(g, P), (1, 0, 1, 0))),
}  # fmt: skip
DISTANCE = Exercise(
    name="distance",
    reference=lambda w, grid, P: inspection.attention_distance(w[None], grid, P)[0],
    outcome=Outcome(observe=result),
    wording=Wording(
        says="{when}: {message}",
        unknown=lambda got, right, *args: f"gives {got[0]:.3f}; it should give {right[0]:.3f}",
    ),
    ideas={
        "a patch that attends to itself has distance 0, to its neighbor one patch side": [
            looking(partial(shift, by=0), "where every patch attends to itself,", (2, 3), 4),
            looking(shift, "where every patch attends to the next in its row,", (3, 5), 4),
            looking(shift, "where every patch attends to the next in its row,", (1, 4), 16),
        ],
        "a head with uniform weights has the distance of the formula": [
            looking(even, "for uniform attention", *sizes)
            for sizes in [((1, 7), 4), ((6, 1), 8), ((4, 4), 2)]
        ],
        "weighted by attention, without the class token": [
            looking(other, "for other weights", *sizes) for sizes in [((3, 4), 4), ((5, 2), 7)]
        ],
    },
    mistakes=DISTANCE_MISTAKES,
)
check_distance = DISTANCE.check


# Through all blocks


def flow(layer: Function, step: Function = lambda layer, through, eye: layer @ through) -> Function:
    """Make an answer: rollout by another matrix of each layer, or by another step.

    layer: (weights (h, T, T), identity) -> the matrix
    """

    def answer(weights: list[Any]) -> Tensor:
        through = eye = torch.eye(weights[0].shape[-1])
        for w in weights:
            through = step(layer(w, eye), through, eye)
        return through

    return answer


def heads_mean(w: Tensor, eye: Tensor) -> Tensor:
    return w.mean(dim=0)


def half(w: Tensor, eye: Tensor) -> Tensor:
    """Return one block's matrix: half is the residual connection, half the mean of the heads."""
    return (eye + heads_mean(w, eye)) / 2


def halves(weights: list[Any]) -> Tensor:
    """Return every block's own matrix, (L, T, T)."""
    return torch.stack([half(w, torch.eye(w.shape[-1])) for w in weights])


def from_identity(weights: list[Any], like: Tensor) -> Tensor:
    """Give the rollout of some blocks, or the identity where there is none."""
    return flow(half)(weights) if weights else torch.eye(like.shape[-1])


def row_sums(got: Tensor, *args: Any) -> str:
    """Write the message about numbers that no known mistake gives."""
    low, high = got.sum(dim=-1).aminmax()
    off = f"returns rows whose sums are {low:.3f} to {high:.3f}, but each row should sum to 1"
    return (
        off
        if max(1 - low, high - 1) > 1e-3
        else "returns rows that sum to 1, but the numbers are wrong"
    )


def one_after_another() -> Arguments:
    """Return two blocks, of which the last attends to what the first has collected."""
    first, last = torch.eye(3), torch.eye(3)
    first[1], last[0] = torch.eye(3)[2], torch.eye(3)[1]
    return ([first[None], last[None]],)


ROLLOUT_MISTAKES: dict[str, Function] = {
    "multiplies in the wrong order: a later block comes on the left, block @ flow":
        flow(half, lambda layer, through, eye: through @ layer),
    "leaves out the residual connection: half of each block's matrix is the identity":
        flow(heads_mean),
    "adds the identity without halving, so that the rows sum to 2, 4, 8, ...":
        flow(lambda w, eye: eye + w.mean(dim=0)),
    "multiplies element by element instead of using @":
        lambda weights: halves(weights).prod(dim=0),
    "multiplies element by element, also by the identity, instead of using @":
        lambda weights: halves(weights).prod(dim=0) * torch.eye(weights[0].shape[-1]),
    "adds half of the identity in every block, but outside the product: "
    "all of (I + W) / 2 multiplies what came before":
        flow(heads_mean, lambda layer, through, eye: eye / 2 + layer / 2 @ through),
    "uses the first block twice": lambda weights: flow(half)([weights[0], *weights]),
    "leaves out the first block": lambda weights: from_identity(weights[1:], weights[0]),
    "leaves out the last block": lambda weights: from_identity(weights[:-1], weights[0]),
    "returns the mean of the blocks instead of their product":
        lambda weights: halves(weights).mean(dim=0),
    "returns the last block alone": lambda weights: halves(weights)[-1],
    "sums over the heads instead of averaging over them":
        flow(lambda w, eye: (eye + w.sum(dim=0)) / 2),
    "uses the maximum over the heads instead of their mean":
        flow(lambda w, eye: (eye + w.amax(dim=0)) / 2),
    "uses only the first head instead of the mean of all heads":
        flow(lambda w, eye: (eye + w[0]) / 2),
    "adds the identity once, after the product, "
    "but every block has its own residual connection":
        lambda weights: (flow(heads_mean)(weights) + torch.eye(weights[0].shape[-1])) / 2,
    "transposes the result": lambda weights: flow(half)(weights).T,
}  # fmt: skip
ROLLOUT = Exercise(
    name="rollout",
    reference=lambda weights: inspection.rollout([w[None] for w in weights])[0],
    wording=Wording(
        when=lambda weights: f"for {len(weights)} blocks" if len(weights) > 1 else "for one block",
        says="{when}: {message}",
        unknown=row_sums,
        hints=dict.fromkeys(
            ("The size of tensor a", "shapes cannot be multiplied"),
            "A block's weights are (h, T, T): the mean over the heads, axis 0, and the identity "
            "are both (T, T)",
        ),
    ),
    ideas={
        "one block: half is the residual connection, half the mean of the heads": [
            Case(lambda: ([some_weights(3, 5, 5)],))
        ],
        "every row sums to 1, through any number of blocks": [
            Case(partial(lambda L, T: (list(some_weights(L, 2, T, T)),), *sizes))
            for sizes in ((2, 7), (6, 6))
        ],
        "later blocks are to the left of earlier ones": [
            Case(
                one_after_another,
                "where token 1 attends to 2 in the first block, and 0 to 1 in the last",
            )
        ],
    },
    mistakes=ROLLOUT_MISTAKES,
)
check_rollout = ROLLOUT.check
