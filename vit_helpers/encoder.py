"""The encoder block: attention between tokens, then an MLP on each (paper, equations 2 and 3)."""

from torch import Tensor, nn

from vit_helpers.attention import MultiHeadAttention


class MLP(nn.Module):
    """Two linear layers with a GELU between them, applied to each token.  (B, T, D) -> (B, T, D)"""

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden_dim)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.act(self.fc1(x)))  # (B, T, hidden_dim)
        return self.dropout(self.fc2(x))  # (B, T, D)


class Block(nn.Module):
    """One pre-norm encoder block.  (B, T, D) -> (B, T, D)

    mlp_ratio: hidden width of the MLP, divided by D
    dropout  : after every linear layer but the qkv projection (paper, appendix B.1);
               attn_dropout: on the weights
    mask     : (B, T) boolean, True for the tokens that may be attended to
    raises   : ValueError if D is not divisible by the number of heads
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        norm_eps: float = 1e-6,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attn = MultiHeadAttention(dim, num_heads, dropout, attn_dropout)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = MLP(dim, int(dim * mlp_ratio), dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.attn(self.norm1(x), mask)  # Eq. 2
        x = x + self.mlp(self.norm2(x))  # Eq. 3
        return x

    def attention_weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attention weights of this block for its input x: (B, T, D) -> (B, h, T, T)"""
        return self.attn.weights(self.norm1(x), mask)
