"""Attention: every token takes a weighted average of all tokens (paper, appendix A)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEW_TOKENS = 32


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention: softmax(q k^T / sqrt(d)) v, and the weights (equations 6, 7).

    q, k, v: (..., T, d)
    mask   : boolean, broadcasts to (..., T, T); True where a query (row) may attend to a key
             (column)
    returns: values (..., T, d) and weights (..., T, T), each row of which sums to 1. If the mask
             hides every key from a query, its weights and values are all zero, as in torch's fused
             attention

    >>> q = k = v = torch.eye(3)
    >>> values, weights = attention(q, k, v)
    >>> weights.shape, torch.allclose(weights.sum(-1), torch.ones(3))
    (torch.Size([3, 3]), True)
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., T, T)
    if mask is not None:  # -inf would do, but for empty rows
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if mask is not None:  # in a row without any key, they are equal until here
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v, weights


class MultiHeadAttention(nn.Module):
    """Multi-head self-attention: h heads of width d = D / h, mixed by a projection (equation 8).

    forward: (B, T, D) -> (B, T, D)
    mask   : (B, T) boolean, True for the tokens that may be attended to; if there are none, the
             heads output zeros
    raises : ValueError if D is not divisible by h
    """

    def __init__(
        self, dim: int, num_heads: int, dropout: float = 0.0, attn_dropout: float = 0.0
    ) -> None:
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise ValueError(f"width {dim} does not split into {num_heads} equal heads")
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.attn_dropout = attn_dropout
        bound = math.sqrt(6 / (dim + dim))  # Xavier's, for three D x D matrices stored as one
        nn.init.uniform_(self.qkv.weight, -bound, bound)
        nn.init.xavier_uniform_(self.proj.weight)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.proj.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)  # three of (B, h, T, d)
        dropout = self.attn_dropout if self.training else 0.0
        mask = key_padding_mask(mask, x)
        values = attention_values(q, k, v, mask, dropout)  # Eq. 6 and 7: (B, h, T, d)
        values = values.transpose(1, 2).flatten(2)  # heads side by side: (B, T, D)
        return self.dropout(self.proj(values))  # Eq. 8

    def weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The weights that `forward` uses, before dropout: (B, T, D) -> (B, h, T, T)"""
        q, k, v = self.heads(x)
        return attention(q, k, v, key_padding_mask(mask, x))[1]

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every head: (B, T, D) -> three of (B, h, T, d)"""
        qkv = self.qkv(x).unflatten(2, (3, self.num_heads, -1))  # (B, T, 3, h, d)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (3, B, h, T, d)
        return q, k, v


def key_padding_mask(mask: Tensor | None, x: Tensor) -> Tensor | None:
    """Hide tokens, as keys, from every head and query: (B, T) -> (B, 1, 1, T)"""
    if mask is None:
        return None
    if mask.dtype != torch.bool:
        raise TypeError(
            f"a mask must be boolean, True where a token may be attended to, got {mask.dtype}"
        )
    wanted = tuple(x.shape[:2])
    if mask.shape != wanted:
        raise ValueError(f"a mask must have the shape (B, T) = {wanted}, got {tuple(mask.shape)}")
    return mask[:, None, None, :]


def attention_values(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """The values of `attention`, by the faster of two ways; dropout applies to the weights."""
    if dropout or use_fused_attention(q):
        return F.scaled_dot_product_attention(q, k, v, mask, dropout)
    return attention(q, k, v, mask)[0]


def use_fused_attention(q: Tensor) -> bool:
    """Tell whether torch's fused attention is faster: not on CPUs for few tokens or bfloat16."""
    return q.device.type != "cpu" or (q.shape[-2] > FEW_TOKENS and q.dtype != torch.bfloat16)
