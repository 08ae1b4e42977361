"""Compare what an answer returned with what is right, and say what is wrong with it."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers.checks.engine.report import Function, Mistake, raised, reject_if, short

ROUNDED = (
    "loses digits: the input is float64, but something inside is float32. "
    "Is there a .float() or a new torch.tensor(...)?"
)
KEPT = (
    "gives the same result for another input: is it a constant, or was the first one kept? "
    "Compute it from the arguments in every call"
)
NO_GRADIENT = (
    "gives the right numbers, but no gradient flows back: "
    "was something detached, or converted to numpy?"
)
CHANGED = "changes its input"


def expect_tensor(got: Any, shape: Sequence[int], when: str) -> None:
    """Raise Mistake unless the answer gave a tensor of this shape."""
    reject_if(got is None, f"gives nothing back {when}: does it end with return?")
    reject_if(not isinstance(got, Tensor), f"gives {short(got)} {when}; it should give a tensor")
    reject_if(
        got.is_complex(),
        f"gives complex numbers ({got.dtype}) {when}; nothing here has an imaginary part",
    )
    reject_if(
        tuple(got.shape) != tuple(shape),
        f"gives shape {tuple(got.shape)} {when}; it should give {tuple(shape)}",
    )


def same(got: Tensor | None, wanted: Tensor | None, atol: float | None = None) -> bool:
    """Tell whether two tensors hold the same numbers; NaN is never right, nor is None.

    The tolerance is float32's, or float64's where both tensors are float64; atol: another one
    """
    if got is None or wanted is None:
        return False
    rtol, usual = (1e-9, 1e-10) if got.dtype == wanted.dtype == torch.float64 else (1e-4, 1e-5)
    atol = usual if atol is None else atol
    return got.shape == wanted.shape and torch.allclose(
        got.double(), wanted.double(), rtol=rtol, atol=atol
    )


def expect_digits(got: Tensor, wanted: Tensor) -> None:
    """Raise Mistake when float64 numbers are right to the digits of float32 only."""
    reject_if(same(got.float(), wanted.float()) and not same(got, wanted), ROUNDED)


def equal(a: Any, b: Any) -> bool:
    """Tell whether two results are the same.

    They are tensors, numbers (to five digits), or tuples, lists and dicts of them.
    """
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return same(a.nan_to_num(-7.0), b.nan_to_num(-7.0))  # an empty attention row: NaN in both
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if is_number(a) and is_number(b):
        return bool(a == b)
    try:
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-9)
    except (TypeError, ValueError, RuntimeError):
        return type(a) is type(b) and bool(a == b)


def is_number(value: Any) -> bool:
    """Tell whether a value is one whole number, also as a float, numpy's or a tensor's."""
    try:
        return not isinstance(value, bool) and int(value) == value
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False


def is_float(value: Any) -> bool:
    """Tell whether a value is one number."""
    try:
        return not isinstance(value, (bool, str)) and float(value) == float(value)
    except (TypeError, ValueError, RuntimeError):
        return False


def bounded(got: Any, most: int = 1000) -> Any:
    """Return a result that can be inspected: an iterator as a list, cut off if it never ends."""
    return list(islice(got, most)) if isinstance(got, Iterator) else got


def copy_of(value: Any) -> Any:
    """Return a copy that the answer may change.

    Modules are passed as they are, because `traces` compares their state.
    """
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(copy_of(x) for x in value)
    if isinstance(value, dict):
        return {key: copy_of(x) for key, x in value.items()}
    return value if isinstance(value, nn.Module) or callable(value) else copy.deepcopy(value)


def unchanged(value: Any, copied: Any) -> bool:
    """Tell whether a value still equals its copy exactly."""
    if isinstance(copied, Tensor):
        return (
            isinstance(value, Tensor) and value.dtype == copied.dtype and torch.equal(value, copied)
        )
    if isinstance(copied, (list, tuple)):
        return len(value) == len(copied) and all(map(unchanged, value, copied))
    if isinstance(copied, dict):
        return value.keys() == copied.keys() and all(
            unchanged(value[key], copied[key]) for key in copied
        )
    return bool(value == copied) if not isinstance(copied, nn.Module) else value is copied


def expect_anew(first: Any, second: Any) -> None:
    """Raise Mistake if the results for two inputs are the same one."""
    reject_if(isinstance(second, Tensor) and same(first, second), KEPT)


def accelerators() -> list[torch.device]:
    """Return the devices other than the CPU on which answers are tried."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return [device] if device else []


def expect_anywhere(answer: Function, right: Function, *args: Any) -> None:
    """Raise Mistake unless an answer works on an accelerator, where the right answer does."""
    way_out = (
        "Create new tensors on the input's device, as in "
        "torch.zeros(..., device=x.device), without .cpu()"
    )
    for device in accelerators():
        try:
            moved = [x.detach().to(device) if isinstance(x, Tensor) else x for x in args]
            to(right, device)(*moved)
        except Exception:  # torch lacks something there
            continue
        try:
            got = to(answer, device)(*moved)
        except NotImplementedError:
            continue
        except Exception as error:
            message = (
                f"right on the CPU, but for tensors on {device.type} it {raised(error)}. {way_out}"
            )
            raise Mistake(message) from error
        results = got if isinstance(got, (tuple, list)) else [got]
        others = {x.device.type for x in results} - {device.type}
        left = f"gives a tensor on {', '.join(others)} for tensors on {device.type}. {way_out}"
        reject_if(others, left)


def to(function: Function, device: torch.device) -> Function:
    """Move a module to another device; return a function as it is."""
    return function.to(device) if isinstance(function, nn.Module) else function


def gradients(output: Tensor, sources: Sequence[Tensor]) -> list[Tensor | None]:
    """Return the gradient of a weighted sum of the output for each source, or None."""
    learned = [source for source in sources if source.requires_grad]
    if not (output.requires_grad and learned):
        return [None] * len(sources)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    flowing = iter(torch.autograd.grad((output * weights).sum(), learned, allow_unused=True))
    return [next(flowing) if source.requires_grad else None for source in sources]


def gradient(output: Tensor, source: Tensor) -> Tensor | None:
    """Return the gradient of a weighted sum of the output, or None where none flows."""
    return gradients(output, [source])[0]


def expect_gradient(got: Tensor, wanted: Tensor, source: Tensor) -> None:
    """Raise Mistake unless the answer passes its source the same gradient as the right one."""
    slope, right_slope = gradient(got, source), gradient(wanted, source)
    new_leaf = (
        "gives a new leaf tensor, so that no gradient flows back: "
        "return the result as it is, without nn.Parameter"
    )
    reject_if(
        slope is None and got.requires_grad and got.is_leaf, f"{new_leaf} or requires_grad_()"
    )
    reject_if(slope is None, NO_GRADIENT)
    reject_if(
        not same(slope, right_slope, atol=1e-4), "gives the right numbers, but the wrong gradient"
    )
