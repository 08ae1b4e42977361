"""The Vision Transformer, put together (paper, section 3.1 and Table 1)."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from vit_helpers._validate import check_choice, check_int, check_range, to_2tuple
from vit_helpers.embeddings import POSITIONS, PatchEmbed, TokenEmbed
from vit_helpers.encoder import Block
from vit_helpers.modern import (
    MLP_LAYERS,
    NORM_LAYERS,
    AttentionPool,
    ModernBlock,
    rotary_angles,
)
from vit_helpers.patches import grid_size

# Base, Large, Huge: the paper's Table 1
# Tiny, Small: DeiT (arXiv 2012.12877), Steiner et al. (arXiv 2106.10270)
SIZES: dict[str, dict[str, int]] = {
    "mini": {"depth": 2, "embed_dim": 64, "num_heads": 4},  # ours, for images of 8 x 8 pixels
    "Ti": {"depth": 12, "embed_dim": 192, "num_heads": 3},
    "S": {"depth": 12, "embed_dim": 384, "num_heads": 6},
    "B": {"depth": 12, "embed_dim": 768, "num_heads": 12},
    "L": {"depth": 24, "embed_dim": 1024, "num_heads": 16},
    "H": {"depth": 32, "embed_dim": 1280, "num_heads": 16},
}
# Sizes that later models added; "g" and "S+", "H+", "7B" have gated MLPs
LATER_SIZES: dict[str, dict[str, Any]] = {
    "S+": {**SIZES["S"], "mlp_layer": "swiglu"},
    "M": {"depth": 12, "embed_dim": 512, "num_heads": 8},
    "So400m": {"depth": 27, "embed_dim": 1152, "num_heads": 16, "mlp_ratio": 4304 / 1152},
    "H+": {**SIZES["H"], "num_heads": 20, "mlp_layer": "swiglu"},
    "g": {
        **{"depth": 40, "embed_dim": 1536, "num_heads": 24},
        **{"mlp_ratio": 4096 / 1536, "mlp_layer": "swiglu"},
    },
    "7B": {
        **{"depth": 40, "embed_dim": 4096, "num_heads": 32},
        **{"mlp_ratio": 2.0, "mlp_layer": "swiglu"},
    },
}
# Later models: what differs from the paper's, and their sizes with their patch sides
FAMILIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "DeiT III": ({"init_values": 1e-6}, ("S/16", "M/16", "B/16", "L/16", "H/14")),  # 2204.07118
    "DINOv2": (  # arXiv 2304.07193
        {"image_size": 518, "init_values": 1e-5, "num_classes": 0},
        ("S/14", "B/14", "L/14", "g/14"),
    ),
    "DINOv2 with registers": (  # arXiv 2309.16588
        {"image_size": 518, "init_values": 1e-5, "num_classes": 0, "reg_tokens": 4},
        ("S/14", "B/14", "L/14", "g/14"),
    ),
    "SigLIP": (  # arXiv 2303.15343
        {"class_token": False, "pool": "map", "mlp_layer": "gelu_tanh", "num_classes": 0},
        ("B/16", "L/16", "So400m/14"),
    ),
    "DINOv3": (  # arXiv 2508.10104
        {
            **{"positions": "rotary", "reg_tokens": 4, "init_values": 1e-5},
            **{"norm_eps": 1e-5, "num_classes": 0},
        },
        ("S/16", "S+/16", "B/16", "L/16", "H+/16", "7B/16"),
    ),
}
POOLS = ("cls", "avg", "map", "none")
OWN_BLOCKS = (Block, ModernBlock)  # that a config describes
BLOCK_FIELDS = ("init_values", "mlp_layer", "norm_layer", "qk_norm")  # that `Block` does not have


@dataclass(frozen=True)
class ViTConfig:
    """The architecture of a ViT.  The defaults are the paper's B/16 for ImageNet.

    image_size : H = W, or the pair (H, W), in pixels; a multiple of patch_size
    pool       : the head's input: "cls" the class token (the paper's), "avg" the mean of the patch
                 tokens, "map" attention over all tokens (`modern.AttentionPool`), "none" all tokens
    positions  : "learned" (the paper's), "sincos" (fixed, 2-D), "rotary" or "none"
    num_classes: K; 0 for no head: the model returns features
    representation_size: width of the hidden tanh layer of the paper's pretraining head; None for a
                 linear head
    dropout    : where the paper puts it; attn_dropout: on the attention weights
    reg_tokens : how many registers follow the class token
    init_values: the first weights of LayerScale; None for none
    mlp_layer  : "gelu" (the paper's), "gelu_tanh" or "swiglu"
    norm_layer : of the blocks and after them: "layernorm" (the paper's) or "rmsnorm"
    qk_norm    : whether queries and keys are normalized
    rope_theta : of rotary positions, as for `modern.rotary_angles`
    raises     : ValueError or TypeError that names the field

    >>> ViTConfig(image_size=8, patch_size=2, in_chans=1).num_tokens
    17
    """

    image_size: int | tuple[int, int] = 224
    patch_size: int = 16
    in_chans: int = 3
    num_classes: int = 1000
    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    mlp_ratio: float = 4.0
    class_token: bool = True
    pool: str = "cls"
    positions: str = "learned"
    representation_size: int | None = None
    dropout: float = 0.0
    attn_dropout: float = 0.0
    norm_eps: float = 1e-6
    reg_tokens: int = 0
    init_values: float | None = None
    mlp_layer: str = "gelu"
    norm_layer: str = "layernorm"
    qk_norm: bool = False
    rope_theta: float = 100.0

    def __post_init__(self) -> None:
        fields: dict[str, Any] = {"image_size": to_2tuple(self.image_size)}
        for name in ("patch_size", "in_chans", "embed_dim", "depth", "num_heads"):
            fields[name] = check_int(name, getattr(self, name))
        for name in ("num_classes", "reg_tokens"):
            fields[name] = check_int(name, getattr(self, name), least=0)
        if self.representation_size is not None:
            width = check_int("representation_size", self.representation_size)
            fields["representation_size"] = width
        for name, value in fields.items():
            object.__setattr__(self, name, value)  # numpy's integers become Python's
        self.check()

    def check(self) -> None:
        """Raise ValueError or TypeError if fields contradict each other or are out of range."""
        _ = self.grid  # raises if the patches do not divide the image
        check_choice("pool", self.pool, POOLS)
        check_choice("positions", self.positions, POSITIONS)
        check_choice("class_token", self.class_token, (True, False))
        check_choice("mlp_layer", self.mlp_layer, MLP_LAYERS)
        check_choice("norm_layer", self.norm_layer, NORM_LAYERS)
        check_choice("qk_norm", self.qk_norm, (True, False))
        if self.embed_dim % self.num_heads:
            raise ValueError(
                f"width {self.embed_dim} does not split into {self.num_heads} equal heads"
            )
        if self.pool == "cls" and not self.class_token:
            raise ValueError(
                'pool="cls" reads the class token, but class_token=False: '
                'choose pool="avg" or "none"'
            )
        for name in ("dropout", "attn_dropout", "norm_eps"):
            check_range(name, getattr(self, name), below=1)
        for name in ("mlp_ratio", "rope_theta"):
            check_range(name, getattr(self, name), below=math.inf)
        if self.init_values is not None:
            check_range("init_values", self.init_values, below=math.inf)
        if self.positions == "rotary":
            rotary_angles((1, 1), self.head_dim, self.rope_theta)  # raises if d does not fit
        if int(self.embed_dim * self.mlp_ratio) < 1:
            raise ValueError(
                f"mlp_ratio {self.mlp_ratio} leaves no hidden width at width {self.embed_dim}"
            )

    @classmethod
    def from_name(cls, name: str, **changes: Any) -> Self:
        """A size of the paper with its patch size, "B/16", and any other field changed.

        Or a later model, "DINOv3-S/16", see `FAMILIES`, with the image size of its weights.
        raises: ValueError for an unknown model, with a list of the known ones

        >>> ViTConfig.from_name("L/32", num_classes=3).embed_dim
        1024
        >>> ViTConfig.from_name("DINOv3-S/16").num_tokens
        201
        """
        family, dash, model = str(name).rpartition("-")
        size, _, patch = model.partition("/")
        later, models = FAMILIES.get(family, ({}, ()))
        if model not in models if dash else size not in SIZES or not patch.isdecimal():
            raise ValueError(f"unknown model {name!r}, known: {known_models(family)}")
        fields = {**later, **{**SIZES, **LATER_SIZES}[size], "patch_size": int(patch), **changes}
        return cls(**fields)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches: (H/P, W/P)"""
        return grid_size(self.image_size, self.patch_size)

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before those of patches: the class token and the registers"""
        return self.class_token + self.reg_tokens

    @property
    def num_tokens(self) -> int:
        """T: the number of patches, plus those of `num_prefix_tokens`"""
        return math.prod(self.grid) + self.num_prefix_tokens

    @property
    def head_dim(self) -> int:
        """d: the width of a head, D / h"""
        return self.embed_dim // self.num_heads


class ViT(nn.Module):
    """The Vision Transformer.  (B, C, H, W) -> (B, K)

    With pool="none" it returns (B, T, K), and with num_classes=0 D instead of K.
    config: a `ViTConfig`
    block : (dim, num_heads) -> a module (B, T, D) -> (B, T, D); by default the paper's encoder
            block. It is called as block(x), and as block(x, mask=mask) if there is a mask.
    mask  : (B, T) boolean, True for the tokens that may be attended to (the class token is token 0)
    """

    pre_logits: nn.Module
    head: nn.Module

    def __init__(
        self, config: ViTConfig, block: Callable[[int, int], nn.Module] | None = None
    ) -> None:
        super().__init__()
        if not isinstance(config, ViTConfig):
            got = type(config).__name__
            raise TypeError(f"ViT takes a ViTConfig, got {got}: ViT(ViTConfig.from_name('B/16'))")
        c = self.config = config
        if block is not None and block_of(c).func is not Block:
            raise ValueError(
                "a block of your own ignores rotary positions, "
                f"{', '.join(BLOCK_FIELDS)}: leave them out"
            )
        block = block or block_of(c)
        self.patch_embed = PatchEmbed(c.image_size, c.patch_size, c.in_chans, c.embed_dim)
        self.token_embed = TokenEmbed(
            c.grid, c.embed_dim, c.class_token, c.positions, c.dropout, c.reg_tokens
        )
        self.blocks = nn.ModuleList(block(c.embed_dim, c.num_heads) for _ in range(c.depth))
        self.norm = NORM_LAYERS[c.norm_layer](c.embed_dim, eps=c.norm_eps)
        self.attn_pool = None
        if c.pool == "map":
            self.attn_pool = AttentionPool(
                c.embed_dim, c.num_heads, c.mlp_ratio, c.norm_eps, c.mlp_layer
            )
        self.pre_logits, width = nn.Identity(), c.embed_dim
        if c.representation_size is not None:
            self.pre_logits, width = tanh_layer(width, c.representation_size), c.representation_size
        self.head = zero_linear(width, c.num_classes) if c.num_classes else nn.Identity()

    def forward(self, images: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.forward_features(images, mask)  # (B, T, D)
        x = self.pool(x, mask)  # (B, D)
        return self.head(self.pre_logits(x))  # (B, K)

    def forward_features(self, images: Tensor, mask: Tensor | None = None) -> Tensor:
        """The tokens after the last block, normalized: (B, C, H, W) -> (B, T, D)"""
        x = self.embed(images)  # Eq. 1
        self.check_mask(mask)
        for block in self.blocks:
            x = block(x) if mask is None else block(x, mask=mask)  # Eq. 2 and 3
        return self.norm(x)  # Eq. 4, for every token

    def embed(self, images: Tensor) -> Tensor:
        """The tokens that enter the first block, equation 1: (B, C, H, W) -> (B, T, D)"""
        return self.token_embed(self.patch_embed(images))

    def pool(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The input of the head: (B, T, D) -> (B, D); with pool="none" (B, T, D)"""
        if self.config.pool == "none":
            return x
        if self.config.pool == "cls":
            return x[:, 0]
        if self.attn_pool is not None:
            return self.attn_pool(x, mask)
        first = self.config.num_prefix_tokens
        if mask is None:
            return x[:, first:].mean(dim=1)
        visible = mask[:, first:, None].to(x.dtype)
        return (x[:, first:] * visible).sum(dim=1) / visible.sum(dim=1)

    def attention_weights(self, images: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """The attention weights of every layer, without dropout: a list of L tensors (B, h, T, T).

        `model.attention_weights(images)[layer][:, head]` is one head; row 0 belongs to the class
        token as a query.
        raises: TypeError if a custom block has no method `attention_weights(x)`
        """
        self.check_mask(mask)
        weights, extra = [], {} if mask is None else {"mask": mask}
        with eval_mode(self):
            x = self.embed(images)
            for block in cast(Any, self.blocks):
                if not hasattr(block, "attention_weights"):
                    name = type(block).__name__
                    raise TypeError(
                        f"{name} does not expose its weights: define attention_weights(x)"
                    )
                weights.append(block.attention_weights(x, **extra))
                x = block(x, **extra)
        return weights

    def check_mask(self, mask: Tensor | None) -> None:
        """Raise ValueError if a mask hides every patch of an image."""
        if mask is None or mask.ndim != 2 or torch.compiler.is_compiling():
            return  # the attention layer names other shapes
        first = self.config.num_prefix_tokens
        if not mask[:, first:].any(dim=1).all():
            raise ValueError("a mask hides every patch of an image: leave at least one")


def block_of(config: ViTConfig) -> partial[Block] | partial[ModernBlock]:
    """The kind of block that a config asks for: the paper's, unless it has something newer."""
    fields = ("mlp_ratio", "dropout", "attn_dropout", "norm_eps")
    paper: dict[str, Any] = {name: getattr(config, name) for name in fields}
    newer: dict[str, Any] = {name: getattr(config, name) for name in BLOCK_FIELDS}
    if config.positions == "rotary":
        newer["angles"] = rotary_angles(config.grid, config.head_dim, config.rope_theta)
    elif all(value == getattr(ViTConfig, name) for name, value in newer.items()):
        return partial(Block, **paper)
    return partial(ModernBlock, **paper, **newer)


def known_models(family: str) -> str:
    """List the names of models for a message: those of a family, or all families and sizes."""
    if family in FAMILIES:
        return ", ".join(f"{family}-{model}" for model in FAMILIES[family][1])
    later = ", ".join(f"{name}-{models[0]}" for name, (_, models) in FAMILIES.items())
    return f"{', '.join(SIZES)}, each with a patch side, as in B/16, and {later}"


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, without dropout; at the end every module has its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def check_logits(logits: Tensor) -> Tensor:
    """Return logits (B, K) as they are; raises ValueError for another shape."""
    if logits.ndim != 2:
        raise ValueError(
            f"logits must be (B, K), a row for each image, got the shape {tuple(logits.shape)}: "
            'a model with pool="none" returns one for each token, so choose another pool'
        )
    return logits


def tanh_layer(dim: int, hidden_dim: int) -> nn.Sequential:
    """The hidden layer of the paper's pretraining head: (B, dim) -> (B, hidden_dim)"""
    linear = nn.Linear(dim, hidden_dim)
    nn.init.normal_(linear.weight, std=math.sqrt(1 / dim))
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


def zero_linear(dim: int, num_classes: int) -> nn.Linear:
    """A head of zeros (paper, section 3.2): all classes are equally probable, the loss is ln K."""
    linear = nn.Linear(dim, num_classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
