"""The encoder block: attention between tokens, then an MLP on each (paper, equations 2 and 3)."""

from torch import nn

from vit_helpers.attention import MultiHeadAttention


class MLP(nn.Module):
    """Two layers with a GELU between, on every token alone.  (B, T, D) -> (B, T, D)"""

    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden_dim)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, x):
        x = self.dropout(self.act(self.fc1(x)))
        return self.dropout(self.fc2(x))


class Block(nn.Module):
    """One encoder block, norm first.  (B, T, D) -> (B, T, D)

    mlp_ratio : hidden width of the MLP over D
    dropout   : after every dense layer but the qkv projection (paper, appendix B.1); attn_dropout: on the weights
    mask      : (B, T) boolean, True for the tokens that may be looked at
    raises    : ValueError when D does not split into the heads
    """

    def __init__(self, dim, num_heads, mlp_ratio=4.0, dropout=0.0, attn_dropout=0.0, norm_eps=1e-6):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attn = MultiHeadAttention(dim, num_heads, dropout, attn_dropout)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = MLP(dim, int(dim * mlp_ratio), dropout)

    def forward(self, x, mask=None):
        x = x + self.attn(self.norm1(x), mask)  # Eq. 2
        x = x + self.mlp(self.norm2(x))  # Eq. 3
        return x

    def attention_weights(self, x, mask=None):
        """The weights of this block's attention for its input x: (B, T, D) -> (B, h, T, T)"""
        return self.attn.weights(self.norm1(x), mask)
