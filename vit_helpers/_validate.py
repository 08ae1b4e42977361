"""Checks of arguments that several modules share.

Each error names the argument and the value that was passed.
"""

from collections.abc import Iterable
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, SupportsIndex

if TYPE_CHECKING:  # torch takes seconds, and no other check needs it
    from torch import Tensor


def check_int(name: str, value: object, least: int = 1) -> int:
    """Return an integer, numpy's included, as Python's int.

    raises: TypeError for any other value, True too; ValueError below `least`
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if (number := index(value)) < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def to_2tuple(size: object) -> tuple[int, int]:
    """Return a side, or a (height, width) pair, in pixels, as a pair of integers.

    raises: TypeError if the size is neither, ValueError if a side is below 1

    >>> to_2tuple(32), to_2tuple((30, 40))
    ((32, 32), (30, 40))
    """
    sides = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(sides) != 2:
        raise TypeError(f"an image size is a whole number or a pair of them, got {size!r}")
    return check_int("an image side", sides[0]), check_int("an image side", sides[1])


def check_range(name: str, value: object, below: float) -> None:
    """Raise TypeError if the value is not a real number, ValueError if it is not in [0, below)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not 0 <= float(value) < below:
        raise ValueError(f"{name} must be a number from 0 up to {below}, got {value}")


def check_choice(name: str, value: object, known: Iterable[object]) -> None:
    """Raise ValueError, with a list of the known values, if the value is not one of them."""
    known = tuple(known)
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}, known: {', '.join(map(str, known))}")


def check_floating(images: "Tensor") -> None:
    """Raise TypeError if pixels are not floating point, as bytes from 0 to 255 are not."""
    if not images.is_floating_point():
        raise TypeError(
            f"pixels must be floating point, got {images.dtype}: "
            "scale them first, images.float() / 255"
        )
