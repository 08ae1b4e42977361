"""What can go wrong in a whole model: wrong stages of its pass, and wrong parts."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers.checks.block import WAYS, right_way
from vit_helpers.checks.engine.modules import Class
from vit_helpers.checks.engine.report import Function
from vit_helpers.checks.feed_forward import MLPS, mlp
from vit_helpers.encoder import Block
from vit_helpers.patches import patchify
from vit_helpers.vit import ViT, ViTConfig

# One pass, and its mistakes


def run(blocks: list[Function], x: Tensor) -> Tensor:
    for block in blocks:
        x = block(x)
    return x


def put_together(x: Tensor, token: Tensor, places: Tensor) -> Tensor:
    return torch.cat([token, x], dim=1) + places


STAGES: dict[str, Function] = {  # of a right pass
    "cut": patchify,
    "embed": put_together,
    "block": lambda block, x: block(x),
    "encode": lambda blocks, norm, x: norm(run(blocks, x)),
    "read": lambda head, x: head(x[:, 0]),
}


def passed(model: Any, images: Tensor, **wrong: Function) -> Tensor:
    """Pass images through our model, with one stage replaced."""
    stages, embed = STAGES | wrong, model.token_embed
    blocks = [partial(stages["block"], block) for block in model.blocks]
    x = model.patch_embed.proj(stages["cut"](images, model.patch_embed.patch_size))
    x = stages["embed"](x, embed.cls_token.expand(len(x), -1, -1), embed.pos_embed)
    return stages["read"](model.head, stages["encode"](blocks, model.norm, x))


def through(b: Block, x: Tensor, way: Function = right_way, dense: Function = mlp) -> Tensor:
    """Pass tokens through a block with its parts in another order, or with another MLP."""
    return way(x, b.norm1, b.attn, b.norm2, lambda z: dense(z, *b.mlp.parameters()))


def one_head(b: Block, x: Tensor) -> Tensor:
    """Pass tokens through a block whose attention has a single head of the whole width."""
    x = x + b.attn.proj(F.scaled_dot_product_attention(*b.attn.qkv(b.norm1(x)).chunk(3, dim=-1)))
    return x + b.mlp(b.norm2(x))


ALSO_HERE = (  # of a block's mistakes, those that are looked for in a whole model
    "^the norms come after the sums|^the residual connections add|in parallel|starts from "
    "the block|MLP's result is "
    "never|normalized: "
    "mlp|there is no residual|GELU after the last layer too|no activation between|^uses ReLU "
    "where|tanh form"
)
PASSES: dict[str, dict[str, Function]] = {  # message: a wrong stage of the pass
    "encode": {
        "the final norm is never applied, but equation 4 is y = LN(z_L^0)":
            lambda b, n, x: run(b, x),
        "the final norm comes before the blocks instead of after them":
            lambda b, n, x: run(b, n(x)),
        "the final norm is applied before the blocks too, but it belongs only after them":
            lambda b, n, x: n(run(b, n(x))),
        "the final norm is applied twice": lambda b, n, x: n(n(run(b, x))),
        "the final norm is applied after every block instead of once at the end":
            lambda b, n, x: run([f for g in b for f in (g, n)], x),
        "the final norm's weight and bias are swapped":
            lambda b, n, x: (
                F.layer_norm(run(b, x), x.shape[-1:], None, None, n.eps) * n.bias + n.weight
            ),
        "only the first block is applied, but all of them should be": lambda b, n, x: n(b[0](x)),
        "the first block is applied again and again, but each block should be applied once":
            lambda b, n, x: n(run([b[0]] * len(b), x)),
        "the last block is never applied": lambda b, n, x: n(run(b[:-1], x)),
        "the first block is never applied": lambda b, n, x: n(run(b[1:], x)),
        "every block is applied twice, but should be applied once":
            lambda b, n, x: n(run(b, run(b, x))),
        "the blocks are applied from last to first": lambda b, n, x: n(run(b[::-1], x)),
        "only the result of the last block counts, which reads the input of the first one, "
        "but z = block(z) passes the result on":
            lambda b, n, x: n(b[-1](x)),
        "every block reads the input of the first one, and the results are added, "
        "but z = block(z) passes the result on":
            lambda b, n, x: n(sum(block(x) for block in b)),
        "adds a residual connection around all blocks, but each block has its own inside":
            lambda b, n, x: n(x + run(b, x)),
    },
    "block": {
        "adds a residual connection around a block, but the block has its own inside":
            lambda b, x: x + b(x),
        "attention has a single head, but should have the num_heads that is given": one_head,
    }
    | {
        message: partial(through, way=way)
        for message, way in WAYS.items()
        if re.search(ALSO_HERE, message)
    }
    | {
        f"the MLP: {message}": partial(through, dense=wrong)
        for message, wrong in MLPS.items()
        if re.search(ALSO_HERE, message)
    },
    "embed": {
        "the positions are never added": lambda x, c, p: torch.cat([c, x], dim=1),
        "the positions are added twice, because TokenEmbed adds them already":
            lambda x, c, p: put_together(x, c, 2 * p),
        "all tokens get the same position, but each has its own":
            lambda x, c, p: put_together(x, c, p[:, :1]),
        "the class token has no position": lambda x, c, p: torch.cat([c, x + p[:, 1:]], dim=1),
        "the class token is at the end, but it should be token 0":
            lambda x, c, p: torch.cat([x, c], dim=1) + p,
        "the learned numbers of the class token are never used":
            lambda x, c, p: put_together(x, 0 * c, p),
        "there is no class token among the tokens": lambda x, c, p: x + p[:, 1:],
        "(B, D, N) becomes (B, N, D) with .mT, not with a reshape":
            lambda x, c, p: put_together(x.mT.reshape(x.shape), c, p),
    },
    "read": {
        "averages the patches, but this model reads the class token, x[:, 0]":
            lambda h, x: h(x[:, 1:].mean(dim=1)),
        "averages all tokens, but this model reads the class token, x[:, 0]":
            lambda h, x: h(x.mean(dim=1)),
        "reads the last token; the class token is token 0": lambda h, x: h(x[:, -1]),
        "reads token 1, a patch; the class token is token 0": lambda h, x: h(x[:, 1]),
        "there is a tanh before the head, but the head is one linear layer":
            lambda h, x: h(x[:, 0].tanh()),
        "the head's bias is never added": lambda h, x: h(x[:, 0]) - h.bias,
        "gives probabilities, but the head gives logits, "
        "because the loss applies the softmax itself":
            lambda h, x: h(x[:, 0]).softmax(-1),
        "gives logarithms of probabilities, but the head gives logits":
            lambda h, x: h(x[:, 0]).log_softmax(-1),
        "there is a sigmoid after the head, but logits are returned as they are":
            lambda h, x: h(x[:, 0]).sigmoid(),
    },
    "cut": {
        "the image is cut with a single view or reshape, "
        "so these are pieces of pixel rows and not patches":
            lambda x, P: x.reshape(len(x), -1, P * P * x.shape[1]),
        "the patches run from top to bottom first instead of from left to right":
            lambda x, P: patchify(x.mT, P).unflatten(2, (-1, P, P)).mT.flatten(2),
        "rows and columns are swapped, but the patches run from left to right, then down":
            lambda x, P: patchify(x.mT, P),
        "a patch is flattened as (P, P, C), but C should come first":
            lambda x, P: patchify(x, P).unflatten(2, (-1, P * P)).mT.flatten(2),
    },
}  # fmt: skip


class Right(ViT):
    """The right model, from seven sizes."""

    wrong: ClassVar[dict[str, Function]] = {}

    def __init__(self, side: int, P: int, C: int, K: int, D: int, depth: int, heads: int) -> None:
        super().__init__(ViTConfig(side, P, C, K, D, depth, heads))

    def forward(self, images: Tensor, mask: Tensor | None = None) -> Tensor:
        return passed(self, images, **self.wrong)


def with_stage(stage: str, wrong: Function) -> Class:
    """Make a whole wrong class: the right one with one stage of its forward pass replaced."""
    return type("Answer", (Right,), {"wrong": {stage: wrong}})


# Wrong parts, told by the shapes of the parameters

Shapes = Mapping[tuple[int, ...], int]  # how often each shape occurs


def block_shapes(D: int, times: int) -> Shapes:
    """Return how often each shape occurs in some blocks.

    Queries, keys and values count as layers of D x D.
    """
    return {
        (D, D): 4 * times,
        (D,): 9 * times,
        (4 * D, D): times,
        (4 * D,): times,
        (D, 4 * D): times,
    }


LOST = (
    "a plain tensor, or a parameter after .to() or an operation, isn't a parameter, "
    "so the optimizer never changes it"
)
# message: how often each shape occurs more, or less, than it should
PARTS: dict[str, Callable[[Any], Shapes]] = {
    f"the class token and the positions are not registered; {LOST}":
        lambda s: {(s.D,): -1, (s.T, s.D): -1},
    f"the positions are not registered; {LOST}": lambda s: {(s.T, s.D): -1},
    f"D numbers are missing: the projection's bias, half of a norm, or the class token; {LOST}":
        lambda s: {(s.D,): -1},
    "there are N positions, but the class token has one too, T = N + 1":
        lambda s: {(s.T, s.D): -1, (s.N, s.D): 1},
    "keep the positions of all T tokens in one parameter, including that of the class token":
        lambda s: {(s.T, s.D): -1, (s.N, s.D): 1, (s.D,): 1},
    "there are N positions and no class token, but there should be T = N + 1 of both":
        lambda s: {(s.T, s.D): -1, (s.N, s.D): 1, (s.D,): -1},
    "all tokens share one position, but each of the T has its own":
        lambda s: {(s.T, s.D): -1, (s.D,): 1},
    "all blocks are the same one, because [block] * L repeats it: create L of them":
        lambda s: block_shapes(s.D, 1 - s.L),
    "the blocks are not registered: a plain list hides them, use nn.ModuleList or nn.Sequential":
        lambda s: block_shapes(s.D, -s.L),
    "there is one block too few: depth says how many": lambda s: block_shapes(s.D, -1),
    "there is one block too many: depth says how many": lambda s: block_shapes(s.D, 1),
    "the MLP is not 4 D wide inside":
        lambda s: {(4 * s.D, s.D): -s.L, (4 * s.D,): -s.L, (s.D, 4 * s.D): -s.L},
    "queries, keys and values have no bias": lambda s: {(s.D,): -3 * s.L},
    "attention has four layers, D x D with a bias (queries, keys, values, output projection), "
    "but one is missing":
        lambda s: {(s.D, s.D): -s.L, (s.D,): -s.L},
    "the final norm is missing: equation 4 normalizes once more after the last block":
        lambda s: {(s.D,): -2},
    "there is one norm too many, because equation 4 has one, after the last block":
        lambda s: {(s.D,): 2},
    "each block has two norms of its own": lambda s: {(s.D,): -2 * s.L},
    "the head is not registered": lambda s: {(s.K, s.D): -1, (s.K,): -1},
    "the head has no bias": lambda s: {(s.K,): -1},
    "the head is a single linear layer, K x D, which reads only the class token":
        lambda s: {(s.K, s.D): -1},
    "the head reads all tokens in a row instead of the class token":
        lambda s: {(s.K, s.D): -1, (s.K, s.T * s.D): 1},
    "there is one D x D layer too many, because the head is a single linear layer":
        lambda s: {(s.D, s.D): 1, (s.D,): 1},
    "the patch projection is not registered": lambda s: {(s.D, s.long): -1, (s.D,): -1},
}  # fmt: skip


def messages_for_shapes(
    lacks: Counter[tuple[int, ...]], more: Counter[tuple[int, ...]], sizes: tuple[int, ...]
) -> list[str]:
    """Return the messages for the shapes that a model lacks and has too many.

    Those that fit both are first, then come those that fit what it lacks.
    """
    side, P, C, K, D, L, _ = sizes
    N = (side // P) ** 2
    letters = SimpleNamespace(N=N, T=N + 1, K=K, D=D, L=L, long=C * P * P)
    known = {message: Counter(change(letters)) for message, change in PARTS.items()}
    near = [message for message, change in known.items() if (-change, +change) == (lacks, more)]
    near += [message for message, change in known.items() if lacks and -change == lacks]
    return near
