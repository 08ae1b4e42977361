"""From patches to tokens: projection, class token, positions (paper, section 3.1, equation 1)."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers._validate import check_choice, check_floating, to_2tuple
from vit_helpers.patches import grid_size, patchify

POSITIONS = ("learned", "sincos", "rotary", "none")
RESIZING: dict[
    str, dict[str, Any]
] = {  # how each library interpolates positions: four ways, four results
    "timm": {"mode": "bicubic", "antialias": True},
    "torchvision": {"mode": "bicubic", "align_corners": True},
    "huggingface": {"mode": "bicubic"},
    "google": {"mode": "bilinear", "align_corners": True},
}


class PatchEmbed(nn.Module):
    """Flatten every patch and project it to width D (equation 1).  (B, C, H, W) -> (B, N, D)

    A Linear on flattened patches equals the published Conv2d with stride P: its weight is the
    convolution's, `flatten(1)`. The first weights are drawn as torchvision draws them.
    raises: TypeError for pixels that are not floating point; ValueError for another number of axes,
            channels or pixels
    """

    def __init__(
        self, image_size: int | tuple[int, int], patch_size: int, in_chans: int, embed_dim: int
    ) -> None:
        super().__init__()
        self.image_size = to_2tuple(image_size)
        self.patch_size = patch_size
        self.in_chans = in_chans
        self.grid = grid_size(image_size, patch_size)
        fan_in = in_chans * patch_size * patch_size
        self.proj = nn.Linear(fan_in, embed_dim)
        nn.init.zeros_(self.proj.bias)
        draw_cut_normal(self.proj.weight, std=math.sqrt(1 / fan_in))

    def forward(self, images: Tensor) -> Tensor:
        self.check(images)
        return self.proj(patchify(images, self.patch_size))  # (B, N, C*P*P) -> (B, N, D)

    def check(self, images: Tensor) -> None:
        """Raise TypeError or ValueError for images that the projection was not made for."""
        if not isinstance(images, torch.Tensor):
            raise TypeError(f"images must be a torch.Tensor, got {type(images).__name__}")
        if images.ndim != 4:
            shape = tuple(images.shape)
            raise ValueError(f"images have 4 axes (B, C, H, W), got {images.ndim}: {shape}")
        check_floating(images)
        _, channels, *size = images.shape
        if channels != self.in_chans:
            raise ValueError(
                f"the model takes {self.in_chans} channels, the images have {channels}"
            )
        if tuple(size) != self.image_size:
            H, W = self.image_size
            raise ValueError(
                f"the model is made for {H} x {W} pixels, the images have {size[0]} x {size[1]}: "
                "resize them, or make a model of that size and interpolate the positions with "
                "vit_helpers.embeddings.resize_positions"
            )


@torch.no_grad()
def draw_cut_normal(weight: Tensor, std: float, limit: float = 2.0) -> None:
    """Draw a tensor's numbers from a normal distribution, and those beyond the limit again.

    nn.init.trunc_normal_ does the same, with other numbers in torch 2.11 than in 2.15.
    """
    weight.normal_(std=std)
    beyond = weight.abs() > limit
    while not weight.is_meta and beyond.any():
        weight[beyond] = torch.empty_like(weight).normal_(std=std)[beyond]
        beyond = weight.abs() > limit


class TokenEmbed(nn.Module):
    """Prepend the class token and add the positions (equation 1).  (B, N, D) -> (B, T, D)

    grid       : rows and columns of patches
    class_token: T = N + 1 with it, T = N without
    positions  : "learned" (the paper's), "sincos" (fixed, 2-D) or "none"; "rotary" adds none, since
                 the attention of `modern.ModernAttention` rotates
    dropout    : right after the sum (paper, appendix B.1)
    reg_tokens : R more tokens after the class token, which no output reads (arXiv 2309.16588):
                 T grows by R, and they have no positions
    """

    pos_embed: Tensor | None

    def __init__(
        self,
        grid: tuple[int, int],
        embed_dim: int,
        class_token: bool = True,
        positions: str = "learned",
        dropout: float = 0,
        reg_tokens: int = 0,
    ) -> None:
        super().__init__()
        check_choice("positions", positions, POSITIONS)
        T = grid[0] * grid[1] + class_token
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim)) if class_token else None
        if positions == "learned":
            self.pos_embed = nn.Parameter(nn.init.normal_(torch.empty(1, T, embed_dim), std=0.02))
        elif positions == "sincos":
            positions_2d = sincos_positions(grid, embed_dim)  # (N, D)
            positions_2d = F.pad(
                positions_2d, (0, 0, int(class_token), 0)
            )  # zeros for a class token
            self.register_buffer("pos_embed", positions_2d[None], persistent=False)
        else:
            self.pos_embed = None
        self.dropout = nn.Dropout(dropout)
        self.reg_token = None
        if reg_tokens:
            self.reg_token = nn.Parameter(torch.zeros(1, reg_tokens, embed_dim))
            nn.init.normal_(self.reg_token, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        if self.cls_token is not None:
            cls_token = self.cls_token.expand(
                x.shape[0], -1, -1
            )  # (B, 1, D), the same for all images
            x = torch.cat([cls_token, x], dim=1)  # (B, T, D)
        if self.pos_embed is not None:
            x = x + self.pos_embed
        if self.reg_token is not None:
            first = 0 if self.cls_token is None else 1
            reg_token = self.reg_token.expand(x.shape[0], -1, -1)  # (B, R, D)
            x = torch.cat([x[:, :first], reg_token, x[:, first:]], dim=1)
        return self.dropout(x)


def sincos_1d(length: int, dim: int) -> Tensor:
    """Sines and cosines of falling frequency at positions 0 .. length - 1 (Vaswani et al., 3.5).

    returns: (length, dim): dim/2 sines, then dim/2 cosines, with frequencies 10000^(-2i/dim)
    raises : ValueError if dim is odd

    >>> sincos_1d(5, 8).shape
    torch.Size([5, 8])
    """
    if dim % 2:
        raise ValueError(
            f"width {dim} does not split into sines and cosines: it must be a multiple of 2"
        )
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


def sincos_positions(grid: tuple[int, int], dim: int) -> Tensor:
    """A fixed position embedding for every patch: half of D encodes the row, half the column.

    The paper learns its position embeddings; MAE (arXiv 2111.06377) uses fixed ones of this form.
    grid   : rows and columns of patches
    returns: (N, dim), patches left to right, top to bottom
    raises : ValueError if dim is not a multiple of 4

    >>> sincos_positions((2, 3), 8).shape
    torch.Size([6, 8])
    """
    if dim % 4:
        raise ValueError(
            f"width {dim} does not split into sines and cosines of two axes: "
            "it must be a multiple of 4"
        )
    rows, cols = grid
    by_row = sincos_1d(rows, dim // 2).repeat_interleave(cols, dim=0)
    by_col = sincos_1d(cols, dim // 2).repeat(rows, 1)
    return torch.cat([by_row, by_col], dim=1)


def resize_positions(
    pos_embed: Tensor, grid: tuple[int, int], new_grid: tuple[int, int], like: str = "timm"
) -> Tensor:
    """Interpolate learned positions to another grid, for images of another size (section 3.2).

    pos_embed: (1, T, D), T = N or N + 1; a class token keeps its position embedding
    grid     : rows and columns that they were learned on; new_grid: those wanted
    like     : the library to agree with: "timm" (bicubic, antialiased), "torchvision" (bicubic,
               corner patches stay in place), "huggingface" (bicubic) or "google" (bilinear, corner
               patches stay in place)
    returns  : (1, T', D)
    raises   : ValueError if T fits the grid neither with a class token nor without, or for an
               unknown library

    >>> resize_positions(torch.zeros(1, 1 + 4 * 4, 8), (4, 4), (6, 5)).shape
    torch.Size([1, 31, 8])
    """
    check_choice("way", like, RESIZING)
    (rows, cols), (_, T, D) = grid, pos_embed.shape
    extra = T - rows * cols
    if extra not in (0, 1):
        raise ValueError(
            f"{T} positions do not belong to a grid of {rows} x {cols} = {rows * cols} patches"
        )
    if tuple(grid) == tuple(new_grid):
        return pos_embed
    prefix, patches = pos_embed[:, :extra], pos_embed[:, extra:]
    x = patches.reshape(1, rows, cols, D).permute(0, 3, 1, 2)  # (1, D, rows, cols)
    x = F.interpolate(x.float(), size=tuple(new_grid), **RESIZING[like]).to(
        pos_embed.dtype
    )  # (1, D, rows', cols')
    return torch.cat([prefix, x.flatten(2).transpose(1, 2)], dim=1)  # (1, T', D)
