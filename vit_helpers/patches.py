"""Cut images into patches, and put patches back together (paper, section 3.1)."""

from operator import index


def pair(size):
    """A side or a (height, width) pair, always as a pair of whole numbers.

    >>> pair(32), pair((30, 40))
    ((32, 32), (30, 40))
    """
    sides = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    try:
        height, width = (index(side) for side in sides)
    except (TypeError, ValueError):
        raise TypeError(f"a size is a whole number or a pair of them, got {size!r}") from None
    if height < 1 or width < 1:
        raise ValueError(f"a size is at least 1 pixel, got {height} x {width}")
    return height, width


def grid_size(image_size, patch_size):
    """How many patches stand below and beside each other: (H/P, W/P).

    image_size : H = W, or the pair (H, W), in pixels
    patch_size : P, in pixels
    raises     : ValueError when H or W is no multiple of P

    >>> grid_size((224, 320), 16)
    (14, 20)
    """
    height, width = pair(image_size)
    side, _ = pair(patch_size)
    if height % side or width % side:
        raise ValueError(f"an image of {height} x {width} pixels does not divide into patches of side {side}")
    return height // side, width // side


def patchify(images, patch_size):
    """Cut images into non-overlapping square patches, left to right, top to bottom (paper, section 3.1).

    images : (B, C, H, W)
    returns: (B, N, C*P*P) with N = (H/P) * (W/P); each row is one patch, channel by channel
    raises : ValueError when the rank is not 4, or H or W is no multiple of P

    >>> import torch
    >>> patchify(torch.zeros(2, 3, 32, 32), 4).shape
    torch.Size([2, 64, 48])
    """
    if images.ndim != 4:
        raise ValueError(f"images have 4 axes (B, C, H, W), got {images.ndim}: {tuple(images.shape)}")
    B, C, H, W = images.shape
    rows, cols = grid_size((H, W), patch_size)
    P = patch_size
    x = images.reshape(B, C, rows, P, cols, P)
    x = x.permute(0, 2, 4, 1, 3, 5)  # (B, rows, cols, C, P, P)
    return x.reshape(B, rows * cols, C * P * P)


def unpatchify(patches, patch_size, image_size):
    """Put patches back together: the inverse of `patchify`.

    patches   : (B, N, C*P*P)
    image_size: H = W, or the pair (H, W), in pixels
    returns   : (B, C, H, W)
    raises    : ValueError when the rank is not 3, N is not (H/P) * (W/P), or a row is no multiple of P*P

    >>> import torch
    >>> images = torch.rand(2, 3, 32, 48)
    >>> torch.equal(unpatchify(patchify(images, 4), 4, (32, 48)), images)
    True
    """
    if patches.ndim != 3:
        raise ValueError(f"patches have 3 axes (B, N, C*P*P), got {patches.ndim}: {tuple(patches.shape)}")
    B, N, length = patches.shape
    rows, cols = grid_size(image_size, patch_size)
    P = patch_size
    if rows * cols != N:
        raise ValueError(f"{N} patches do not fill a grid of {rows} x {cols} = {rows * cols}")
    if length % (P * P):
        raise ValueError(f"a patch of {length} numbers does not split into channels of {P} x {P} = {P * P}")
    C = length // (P * P)
    x = patches.reshape(B, rows, cols, C, P, P)
    x = x.permute(0, 3, 1, 4, 2, 5)  # (B, C, rows, P, cols, P)
    return x.reshape(B, C, rows * P, cols * P)
