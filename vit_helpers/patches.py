"""Cut images into patches, and put patches back together (paper, section 3.1)."""

from operator import index


def check_int(name, value, least=1):
    """A whole number, numpy's included, as Python's int.

    raises: TypeError when it is none (True is none either), ValueError when it is below `least`; both name it
    """
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def to_2tuple(size):
    """A side or a (height, width) pair in pixels, always as a pair of whole numbers.

    >>> pair(32), pair((30, 40))
    ((32, 32), (30, 40))
    """
    sides = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(sides) != 2:
        raise TypeError(f"an image size is a whole number or a pair of them, got {size!r}")
    return tuple(check_int("an image side", side) for side in sides)


def grid_size(image_size, patch_size):
    """How many patches stand below and beside each other: (H/P, W/P).

    image_size : H = W, or the pair (H, W), in pixels
    patch_size : P, in pixels
    raises     : ValueError when H or W is no multiple of P

    >>> grid_size((224, 320), 16)
    (14, 20)
    """
    (H, W), P = to_2tuple(image_size), check_int("patch_size", patch_size)
    if H % P or W % P:
        raise ValueError(f"an image of {H} x {W} pixels does not divide into patches of side {P}")
    return H // P, W // P


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
