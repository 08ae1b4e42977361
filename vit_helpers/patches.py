"""Cut images into patches, and put patches back together (paper, section 3.1)."""

from torch import Tensor

from vit_helpers._validate import check_int, to_2tuple


def grid_size(image_size: int | tuple[int, int], patch_size: int) -> tuple[int, int]:
    """Rows and columns of patches: (H/P, W/P).

    image_size: H = W, or the pair (H, W), in pixels
    patch_size: P, in pixels
    raises    : ValueError if H or W is not a multiple of P

    >>> grid_size((224, 320), 16)
    (14, 20)
    """
    (H, W), P = to_2tuple(image_size), check_int("patch_size", patch_size)
    if H % P or W % P:
        raise ValueError(f"an image of {H} x {W} pixels does not divide into patches of side {P}")
    return H // P, W // P


def patchify(images: Tensor, patch_size: int) -> Tensor:
    """Cut images into square patches, left to right and top to bottom (paper, section 3.1).

    images : (B, C, H, W)
    returns: (B, N, C*P*P) with N = (H/P) * (W/P); each row is one patch, channel by channel
    raises : ValueError if the images do not have 4 axes, or H or W is not a multiple of P

    >>> import torch
    >>> patchify(torch.zeros(2, 3, 32, 32), 4).shape
    torch.Size([2, 64, 48])
    """
    if images.ndim != 4:
        shape = tuple(images.shape)
        raise ValueError(f"images have 4 axes (B, C, H, W), got {images.ndim}: {shape}")
    B, C, H, W = images.shape
    rows, cols = grid_size((H, W), patch_size)
    P = patch_size
    x = images.reshape(B, C, rows, P, cols, P)
    x = x.permute(0, 2, 4, 1, 3, 5)  # (B, rows, cols, C, P, P)
    return x.reshape(B, rows * cols, C * P * P)  # (B, N, C*P*P)


def unpatchify(patches: Tensor, patch_size: int, image_size: int | tuple[int, int]) -> Tensor:
    """Put patches back together: the inverse of `patchify`.

    patches   : (B, N, C*P*P)
    image_size: H = W, or the pair (H, W), in pixels
    returns   : (B, C, H, W)
    raises    : ValueError if the patches do not have 3 axes, N is not (H/P) * (W/P), or a row is
                not a multiple of P*P

    >>> import torch
    >>> images = torch.rand(2, 3, 32, 48)
    >>> torch.equal(unpatchify(patchify(images, 4), 4, (32, 48)), images)
    True
    """
    if patches.ndim != 3:
        shape = tuple(patches.shape)
        raise ValueError(f"patches have 3 axes (B, N, C*P*P), got {patches.ndim}: {shape}")
    B, N, length = patches.shape
    rows, cols = grid_size(image_size, patch_size)
    P = patch_size
    if rows * cols != N:
        raise ValueError(f"{N} patches do not fill a grid of {rows} x {cols} = {rows * cols}")
    if length % (P * P):
        raise ValueError(
            f"a patch of {length} numbers does not split into channels of {P} x {P} = {P * P}"
        )
    C = length // (P * P)
    x = patches.reshape(B, rows, cols, C, P, P)
    x = x.permute(0, 3, 1, 4, 2, 5)  # (B, C, rows, P, cols, P)
    return x.reshape(B, C, rows * P, cols * P)  # (B, C, H, W)
