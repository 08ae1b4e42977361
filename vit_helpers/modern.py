"""What the ViT has learned since 2020: small changes to its attention, MLP, block and head.

Registers are in `embeddings.TokenEmbed`; `ViTConfig` says which of all these a model has.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers._validate import check_choice
from vit_helpers.attention import MultiHeadAttention, attention_values
from vit_helpers.encoder import MLP

NORM_LAYERS = {"layernorm": nn.LayerNorm, "rmsnorm": nn.RMSNorm}
MLP_LAYERS = ("gelu", "gelu_tanh", "swiglu")


def rotary_angles(grid: tuple[int, int], head_dim: int, theta: float = 100.0) -> Tensor:
    """The angles by which the numbers of a head are rotated at each patch (DINOv3, 2508.10104).

    The first half of the angles grows with the row, the second with the column, at d/4 frequencies
    each. Places are centers of patches, from -1 to 1 on each axis, whatever the size of the image.
    head_dim: d, a multiple of 4
    theta   : the lowest frequency is almost 1/theta of the highest, which turns twice
    returns : (N, d/2) in radians, patches left to right, top to bottom
    raises  : ValueError if d is not a multiple of 4, or theta not positive

    >>> rotary_angles((2, 3), 8).shape
    torch.Size([6, 4])
    """
    if head_dim % 4:
        raise ValueError(
            f"heads of width {head_dim} do not split into pairs for two axes: "
            "it must be a multiple of 4"
        )
    if theta <= 0:
        raise ValueError(f"rope_theta must be positive, got {theta}")
    rows, cols = (2 * (torch.arange(n) + 0.5) / n - 1 for n in grid)
    exponents = torch.arange(0, 1, 4 / head_dim)[: head_dim // 4]  # rounding may bring one more
    frequencies = 2 * math.pi / theta**exponents  # (d/4,)
    places = torch.cartesian_prod(rows, cols)  # (N, 2)
    return (places[:, :, None] * frequencies).flatten(1)  # (N, d/2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate queries or keys by the angles of their patches (RoFormer, arXiv 2104.09864).

    Number i of a head and number i + d/2 are a point in a plane, which is turned around 0.
    x       : (..., T, d), with the tokens of patches last; those before them stay as they are
    cos, sin: (N, d/2), of `rotary_angles`
    returns : (..., T, d)

    >>> quarter = torch.zeros(1, 1), torch.ones(1, 1)  # cosine and sine of 90 degrees
    >>> rotate(torch.tensor([[3.0, 4.0]]), *quarter)
    tensor([[-4.,  3.]])
    """
    prefix = x.shape[-2] - len(cos)
    a, b = x[..., prefix:, :].chunk(2, dim=-1)  # (..., N, d/2) each
    rotated = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return torch.cat([x[..., :prefix, :], rotated], dim=-2)


class ModernAttention(MultiHeadAttention):
    """Attention with rotated, or first normalized, queries and keys.  (B, T, D) -> (B, T, D)

    angles : (N, d/2), of `rotary_angles`; None for no rotation
    qk_norm: whether each query and key is normalized, in each head (arXiv 2302.05442)
    """

    cos: Tensor | None
    sin: Tensor | None

    def __init__(
        self,
        dim: int,
        num_heads: int,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        *,
        angles: Tensor | None = None,
        qk_norm: bool = False,
        norm_eps: float = 1e-6,
    ) -> None:
        super().__init__(dim, num_heads, dropout, attn_dropout)
        width = dim // num_heads
        self.q_norm = nn.LayerNorm(width, eps=norm_eps) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(width, eps=norm_eps) if qk_norm else nn.Identity()
        self.register_buffer("cos", None if angles is None else angles.cos(), persistent=False)
        self.register_buffer("sin", None if angles is None else angles.sin(), persistent=False)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every head: (B, T, D) -> three of (B, h, T, d)"""
        q, k, v = super().heads(x)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.cos is not None and self.sin is not None:
            cos, sin = self.cos.to(q.dtype), self.sin.to(q.dtype)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return q.to(v.dtype), k.to(v.dtype), v


class LayerScale(nn.Module):
    """Multiply each of the D numbers by a learned weight (CaiT, arXiv 2103.17239).

    init_values: all weights at the start; with a small one a new block hardly changes its input
    """

    def __init__(self, dim: int, init_values: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), float(init_values)))

    def forward(self, x: Tensor) -> Tensor:
        return self.gamma * x


class SwiGLU(nn.Module):
    """A gated MLP: one hidden layer multiplies another (arXiv 2002.05202).  (B, T, D) -> same

    hidden_dim: of each; with two thirds of an MLP's it has as many weights as the MLP
    """

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.gate, self.fc1 = nn.Linear(dim, hidden_dim), nn.Linear(dim, hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.gate, self.fc1, self.fc2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(F.silu(self.gate(x)) * self.fc1(x))  # (B, T, hidden_dim)
        return self.dropout(self.fc2(x))  # (B, T, D)


def make_mlp(kind: str, dim: int, hidden_dim: int, dropout: float = 0.0) -> nn.Module:
    """Make the MLP of a block: "gelu" is the paper's, "gelu_tanh" approximates its GELU.

    raises: ValueError for a kind that is not among `MLP_LAYERS`
    """
    check_choice("mlp_layer", kind, MLP_LAYERS)
    if kind == "swiglu":
        return SwiGLU(dim, hidden_dim, dropout)
    mlp = MLP(dim, hidden_dim, dropout)
    if kind == "gelu_tanh":
        mlp.act = nn.GELU(approximate="tanh")
    return mlp


class ModernBlock(nn.Module):
    """An encoder block with what is new since the paper.  (B, T, D) -> (B, T, D)

    The first arguments are those of `encoder.Block`.
    init_values: of `LayerScale` after attention and MLP; None for none
    mlp_layer  : "gelu" (the paper's), "gelu_tanh" or "swiglu"
    norm_layer : "layernorm" (the paper's) or "rmsnorm", which only divides (arXiv 1910.07467)
    qk_norm    : as for `ModernAttention`, like `angles`
    raises     : ValueError for an unknown mlp_layer or norm_layer
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        norm_eps: float = 1e-6,
        *,
        init_values: float | None = None,
        mlp_layer: str = "gelu",
        norm_layer: str = "layernorm",
        qk_norm: bool = False,
        angles: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_choice("norm_layer", norm_layer, NORM_LAYERS)
        norm = NORM_LAYERS[norm_layer]
        self.norm1 = norm(dim, eps=norm_eps)
        self.attn = ModernAttention(
            dim,
            num_heads,
            dropout,
            attn_dropout,
            angles=angles,
            qk_norm=qk_norm,
            norm_eps=norm_eps,
        )
        self.norm2 = norm(dim, eps=norm_eps)
        self.mlp = make_mlp(mlp_layer, dim, int(dim * mlp_ratio), dropout)
        self.ls1 = nn.Identity() if init_values is None else LayerScale(dim, init_values)
        self.ls2 = nn.Identity() if init_values is None else LayerScale(dim, init_values)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.ls1(self.attn(self.norm1(x), mask))
        x = x + self.ls2(self.mlp(self.norm2(x)))
        return x

    def attention_weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attention weights of this block for its input x: (B, T, D) -> (B, h, T, T)"""
        return self.attn.weights(self.norm1(x), mask)


class AttentionPool(nn.Module):
    """Pool tokens by attention: a learned token asks, all tokens answer.  (B, T, D) -> (B, D)

    An MLP follows, as in SigLIP (arXiv 2303.15343).
    mask  : (B, T) boolean, True for the tokens that may be attended to
    raises: ValueError for an unknown mlp_layer
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        norm_eps: float = 1e-6,
        mlp_layer: str = "gelu",
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.latent = nn.Parameter(nn.init.normal_(torch.empty(1, 1, dim), std=dim**-0.5))
        self.q, self.kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = make_mlp(mlp_layer, dim, int(dim * mlp_ratio))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q = self.q(self.latent).expand(len(x), -1, -1)  # (B, 1, D)
        q, k, v = (
            t.unflatten(2, (self.num_heads, -1)).transpose(1, 2)  # (B, h, T, d)
            for t in (q, *self.kv(x).chunk(2, dim=2))
        )
        mask = None if mask is None else mask[:, None, None, :]
        pooled = attention_values(q, k, v, mask).transpose(1, 2).flatten(2)  # (B, 1, D)
        x = self.proj(pooled)
        return (x + self.mlp(self.norm(x)))[:, 0]
