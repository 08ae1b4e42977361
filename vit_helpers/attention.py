"""Attention: every token takes a weighted average of all tokens (paper, appendix A)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

FEW_TOKENS = 32


def attention(q, k, v, mask=None):
    """softmax(q k^T / sqrt(d)) v, and the weights of that average (paper, equations 6 and 7).

    q, k, v: (..., T, d)
    mask   : boolean, broadcasts to (..., T, T); True where a query (row) may look at a key (column)
    returns: values (..., T, d) and weights (..., T, T), every row of which sums to 1

    >>> q = k = v = torch.eye(3)
    >>> values, weights = attention(q, k, v)
    >>> weights.shape, torch.allclose(weights.sum(-1), torch.ones(3))
    (torch.Size([3, 3]), True)
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., T, T)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    return weights @ v, weights


class MultiHeadAttention(nn.Module):
    """h attentions side by side, each in its own d = D / h of the width, mixed by a last projection (equation 8).

    forward: (B, T, D) -> (B, T, D)
    mask   : (B, T) boolean, True for the tokens that may be looked at
    raises : ValueError when D does not split into h heads
    """

    def __init__(self, dim, num_heads, dropout=0.0, attn_dropout=0.0):
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise ValueError(f"width {dim} does not split into {num_heads} equal heads")
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.attn_dropout = attn_dropout
        bound = math.sqrt(6 / (dim + dim))  # Xavier's, for three D x D matrices that happen to lie in one
        nn.init.uniform_(self.qkv.weight, -bound, bound)
        nn.init.xavier_uniform_(self.proj.weight)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.proj.bias)

    def forward(self, x, mask=None):
        q, k, v = self.heads(x)
        dropout = self.attn_dropout if self.training else 0.0
        if explicit_is_faster(q) and not dropout:
            values, _ = attention(q, k, v, key_padding_mask(mask, x))
        else:
            values = F.scaled_dot_product_attention(q, k, v, key_padding_mask(mask, x), dropout)
        values = values.transpose(1, 2).flatten(2)  # heads side by side again: (B, T, D)
        return self.dropout(self.proj(values))

    def weights(self, x, mask=None):
        """The weights that `forward` uses, before dropout: (B, T, D) -> (B, h, T, T)"""
        _, weights = attention(*self.heads(x), key_padding_mask(mask, x))
        return weights

    def heads(self, x):
        """Queries, keys and values of every head: (B, T, D) -> three of (B, h, T, d)"""
        qkv = self.qkv(x).unflatten(2, (3, self.num_heads, -1))  # (B, T, 3, h, d)
        return qkv.permute(2, 0, 3, 1, 4).unbind(0)


def key_padding_mask(mask, x):
    """A mask over tokens (B, T) hides keys from every head and query: (B, 1, 1, T)"""
    if mask is None:
        return None
    if mask.dtype != torch.bool:
        raise TypeError(f"a mask is boolean, True where a token may be looked at; got {mask.dtype}")
    if mask.shape != x.shape[:2]:
        raise ValueError(f"a mask has a row an image and a column a token, {tuple(x.shape[:2])}, got {tuple(mask.shape)}")
    return mask[:, None, None, :]


def explicit_is_faster(q):
    """Whether two plain matrix products beat torch's fused attention, as measured: on CPUs, for few tokens or bfloat16."""
    return q.device.type == "cpu" and (q.shape[-2] <= FEW_TOKENS or q.dtype == torch.bfloat16)
