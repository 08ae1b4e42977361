"""What can go wrong in a whole model: wrong stages of its pass, and wrong parts."""

import re
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.block import WAYS, right_way
from vit_helpers.checks.feed_forward import MLPS, mlp
from vit_helpers.checks.modules import Class, unregistered
from vit_helpers.checks.report import Function
from vit_helpers.embeddings import TokenEmbed
from vit_helpers.encoder import MLP, Block
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
    """One pass through our model, with a stage of its own."""
    stages, embed = STAGES | wrong, model.token_embed
    blocks = [partial(stages["block"], block) for block in model.blocks]
    x = model.patch_embed.proj(stages["cut"](images, model.patch_embed.patch_size))
    x = stages["embed"](x, embed.cls_token.expand(len(x), -1, -1), embed.pos_embed)
    return stages["read"](model.head, stages["encode"](blocks, model.norm, x))


def through(b: Block, x: Tensor, way: Function = right_way, dense: Function = mlp) -> Tensor:
    """A block with another way through its parts, or another MLP."""
    return way(x, b.norm1, b.attn, b.norm2, lambda z: dense(z, *b.mlp.parameters()))


ALSO_HERE = (  # of a block's mistakes, those that are looked for in a whole model
    "^the norms stand last|^the residual adds|side by side|residual is the block|MLP's result is never|touched: mlp"
    "|there is no residual|GELU stands after the last layer too|nothing stands between|has a ReLU where|tanh form"
)
PASSES: dict[str, dict[str, Function]] = {  # message: a wrong stage of the pass
    "encode": {
        "the last norm is never applied: equation 4 is y = LN(z_L^0)": lambda b, n, x: run(b, x),
        "the last norm stands before the blocks; it belongs behind them": lambda b, n, x: run(b, n(x)),
        "the last norm is used before the blocks too; it belongs behind them only": lambda b, n, x: n(run(b, n(x))),
        "the last norm is applied twice": lambda b, n, x: n(n(run(b, x))),
        "the last norm is applied after every block; once is enough": lambda b, n, x: run([f for g in b for f in (g, n)], x),
        "the last norm's weight and bias have changed places":
            lambda b, n, x: F.layer_norm(run(b, x), x.shape[-1:], None, None, n.eps) * n.bias + n.weight,
        "only the first block is applied: go through all of them": lambda b, n, x: n(b[0](x)),
        "every block is applied twice; L blocks, once each": lambda b, n, x: n(run(b, run(b, x))),
        "the blocks are applied from last to first": lambda b, n, x: n(run(b[::-1], x)),
        "every block reads what entered the first: z = block(z) hands it on": lambda b, n, x: n(b[-1](x)),
        "every block reads what entered the first, and their results are added: z = block(z) hands it on":
            lambda b, n, x: n(sum(block(x) for block in b)),
        "adds its input around all blocks; a block does that inside": lambda b, n, x: n(x + run(b, x)),
    },
    "block": {
        "adds its input around a block; the block does that inside": lambda b, x: x + b(x),
    }
    | {words: partial(through, way=way) for words, way in WAYS.items() if re.search(ALSO_HERE, words)}
    | {f"the MLP: {words}": partial(through, dense=wrong) for words, wrong in MLPS.items() if re.search(ALSO_HERE, words)},
    "embed": {
        "the positions are never added": lambda x, c, p: torch.cat([c, x], dim=1),
        "the positions are added twice; TokenEmbed adds them already": lambda x, c, p: put_together(x, c, 2 * p),
        "all tokens get one position; each has its own": lambda x, c, p: put_together(x, c, p[:, :1]),
        "the class token is left without its position": lambda x, c, p: torch.cat([c, x + p[:, 1:]], dim=1),
        "the class token stands at the end; it should be token 0": lambda x, c, p: torch.cat([x, c], dim=1) + p,
        "the class token's own numbers are never used": lambda x, c, p: put_together(x, 0 * c, p),
        "there is no class token among the tokens": lambda x, c, p: x + p[:, 1:],
        "(B, D, N) becomes (B, N, D) by .mT, not by a reshape": lambda x, c, p: put_together(x.mT.reshape(x.shape), c, p),
    },
    "read": {
        "averages the patches; this model reads the class token, x[:, 0]": lambda h, x: h(x[:, 1:].mean(dim=1)),
        "averages all tokens; this model reads the class token, x[:, 0]": lambda h, x: h(x.mean(dim=1)),
        "reads the last token; the class token is token 0": lambda h, x: h(x[:, -1]),
        "reads token 1, a patch; the class token is token 0": lambda h, x: h(x[:, 1]),
        "a tanh stands before the head; the head is one linear layer": lambda h, x: h(x[:, 0].tanh()),
        "the head's bias is never added": lambda h, x: h(x[:, 0]) - h.bias,
        "gives probabilities; the head gives logits, the loss takes the softmax itself": lambda h, x: h(x[:, 0]).softmax(-1),
        "gives logarithms of probabilities; the head gives logits": lambda h, x: h(x[:, 0]).log_softmax(-1),
        "a sigmoid stands behind the head; it gives logits as they are": lambda h, x: h(x[:, 0]).sigmoid(),
    },
    "cut": {
        "cut by a bare view or reshape: pixel rows, no patches": lambda x, P: x.reshape(len(x), -1, P * P * x.shape[1]),
        "patches go down first, not left to right": lambda x, P: patchify(x.mT, P).unflatten(2, (-1, P, P)).mT.flatten(2),
        "rows and columns are swapped; the patches go left to right, then down": lambda x, P: patchify(x.mT, P),
        "a patch holds (P, P, C); here C goes first": lambda x, P: patchify(x, P).unflatten(2, (-1, P * P)).mT.flatten(2),
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
    """A whole wrong class: the right one with another stage of its pass."""
    return type("Answer", (Right,), {"wrong": {stage: wrong}})


def changed(change: Function) -> Class:
    """A whole wrong class: the right one with parts changed."""

    class Answer(Right):
        def __init__(self, *sizes: int) -> None:
            super().__init__(*sizes)
            change(self, self.config)

        forward = ViT.forward

    return Answer


def in_blocks(change: Function) -> Class:
    """A whole wrong class in which every block is changed, from itself and D."""
    return changed(lambda m, c: [change(block, c.embed_dim) for block in m.blocks])


def hidden(name: str) -> Function:
    """A part that is called, but not registered."""

    def change(m: nn.Module, c: ViTConfig) -> None:
        part = getattr(m, name)
        delattr(m, name)
        setattr(m, name, list(part) if isinstance(part, nn.ModuleList) else lambda x: part(x))

    return change


def only_patches(token: bool) -> Function:
    """Positions of the N patches alone; token: and one for the class token, in a parameter of its own."""

    def change(m: Any, c: ViTConfig) -> None:
        embed, first = m.token_embed, nn.Parameter(torch.zeros(1, 1, c.embed_dim))
        embed.pos_embed = nn.Parameter(torch.zeros(1, c.num_tokens - 1, c.embed_dim))
        embed.first = first if token else None
        embed.forward = lambda x: torch.cat([(embed.cls_token + first).expand(len(x), -1, -1), x + embed.pos_embed], dim=1)

    return change


def layers(*widths: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(*pair) for pair in pairwise(widths)))


def set_to(**parts: Function) -> Class:
    """A whole wrong class in which parts are others, from the model and its config."""

    def change(m: nn.Module, c: ViTConfig) -> None:
        for name, part in parts.items():
            setattr(m, name, part(m, c))

    return changed(change)


LOST = "a plain tensor, or a parameter after .to() or an operation, is no parameter: the optimizer never moves it"
PARTS = {  # message: a class whose parameters tell
    f"the class token and the positions are not registered; {LOST}":
        changed(lambda m, c: unregistered(m.token_embed, "cls_token", "pos_embed")),
    f"the positions are not registered; {LOST}": changed(lambda m, c: unregistered(m.token_embed, "pos_embed")),
    f"D numbers are missing: the projection's bias, half of a norm, or the class token; {LOST}":
        changed(lambda m, c: unregistered(m.token_embed, "cls_token")),
    "there are N positions; the class token has one too, T = N + 1": changed(only_patches(token=False)),
    "keep the positions of all T tokens in one parameter, the class token's too": changed(only_patches(token=True)),
    "there are N positions and no class token: T = N + 1 of both":
        changed(lambda m, c: setattr(m, "token_embed", TokenEmbed(c.grid, c.embed_dim, class_token=False))),
    "all tokens share one position; each of the T has its own":
        changed(lambda m, c: setattr(m.token_embed, "pos_embed", nn.Parameter(torch.zeros(1, 1, c.embed_dim)))),
    "all blocks are one and the same: [block] * L repeats one block, so make L of them":
        set_to(blocks=lambda m, c: nn.ModuleList([m.blocks[0]] * c.depth)),
    "the blocks are not registered: a plain list hides them, use nn.ModuleList or nn.Sequential": changed(hidden("blocks")),
    "there is one block too few: depth says how many": set_to(blocks=lambda m, c: m.blocks[1:]),
    "there is one block too many: depth says how many":
        set_to(blocks=lambda m, c: m.blocks.append(Block(c.embed_dim, c.num_heads))),
    "the MLP is not 4 D wide inside": in_blocks(lambda b, D: setattr(b, "mlp", MLP(D, 2 * D))),
    "queries, keys and values have no bias": in_blocks(lambda b, D: b.attn.qkv.register_parameter("bias", None)),
    "attention has an output projection behind the heads, D x D with a bias":
        in_blocks(lambda b, D: setattr(b.attn, "proj", nn.Identity())),
    "the last norm is missing: equation 4 norms once more after the last block": set_to(norm=lambda m, c: nn.Identity()),
    "there is a norm too many; equation 4 has one, after the last block":
        set_to(norm=lambda m, c: nn.Sequential(nn.LayerNorm(c.embed_dim), nn.LayerNorm(c.embed_dim))),
    "each block has two norms of its own": in_blocks(lambda b, D: setattr(b, "norm2", b.norm1)),
    "the head is not registered": changed(hidden("head")),
    "the head has no bias": changed(lambda m, c: m.head.register_parameter("bias", None)),
    "the head is a single linear layer, K x D, on the class token alone":
        set_to(head=lambda m, c: layers(c.embed_dim, 2 * c.embed_dim, c.num_classes)),
    "the head reads all tokens in a row, not the class token": set_to(
        head=lambda m, c: nn.Linear(c.num_tokens * c.embed_dim, c.num_classes),
        pool=lambda m, c: lambda x, mask: x.flatten(1),
    ),
    "there is a D x D layer too many; the head is a single linear layer":
        set_to(head=lambda m, c: layers(c.embed_dim, c.embed_dim, c.num_classes)),
    "the patch projection is not registered": changed(lambda m, c: unregistered(m.patch_embed.proj, "weight", "bias")),
}  # fmt: skip
