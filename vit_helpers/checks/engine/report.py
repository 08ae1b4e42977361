"""Run a check: try an answer idea by idea, print one line for each, never raise.

[ ] not written yet    [x] wrong, and which idea went wrong    [v] right
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
import torch

HINTS = {  # part of an error's name and message, and the way out
    "leaf Variable that requires grad":
        "this writes in place where a gradient is needed. Make a new tensor, or "
        "write into weights under torch.no_grad()",
    "modified by an inplace operation":
        "this overwrites numbers that the gradient still needs. Make a new tensor",
    "call numpy() on Tensor that requires grad":
        "numpy and detach() pass no gradient on, so stay with torch",
    "is invalid for input of size":
        "the lengths in a reshape must multiply to that: is one a fixed number in your code?",
    "view size is not compatible":
        "view cannot merge axes that a transpose or permute has moved. Are those that you merge "
        "neighbors, in the order that you want? If so, call .contiguous() before view",
    "must be Tensor, not int": "for a plain number use math, or ** 0.5 for the root",
    "StopIteration": "next() found nothing left",
    "log_softmax_lastdim_kernel_impl": "cross_entropy takes the logits first, the labels second",
    "'method' object is not": "are the parentheses missing after a method's name?",
    "cannot assign to field":
        "a config is frozen. Make a changed copy with dataclasses.replace(config, ...)",
    "an image size is": "image_size is a pair, and (H, W) * 2 is (H, W, H, W). Multiply each side",
    "'NoneType' object has no attribute 'zero_'":
        "in a new model .grad is None. model.zero_grad() can handle that",
    "object of type 'generator' has no len()":
        "batches may come from a generator, so count them in the loop",
    "number of dimensions in the tensor input does not match":
        "permute needs one number for every axis of its input",
    "more than one element of the written-to tensor":
        "expand shows the same numbers several times. Where each is to learn or to change, create "
        "the tensor in its full shape",
    "(torch.nn.Parameter or None expected)":
        "this name already belongs to a parameter. Give the new one another name",
    "Boolean value of Tensor with more than one value":
        "not, and, or take a single truth value; for tensors there are ~, & and |",
    "only one element tensors can be converted":
        "functions of math take one number; torch has its own for tensors, as torch.sqrt",
    "before Module.__init__() call": "start __init__ with super().__init__()",
}  # fmt: skip
TUPLE = (
    "a tuple is used like a tensor: unpack the results of a function that returns several, as in "
    "output, _ = attention(x). Of numbers, torch.tensor(...) makes a tensor"
)
HINTS |= dict.fromkeys(
    ("'tuple' object has no attribute", "must be Tensor, not tuple", "'Tensor' and 'tuple'"), TUPLE
)
# torch's advice, which hides a wrong order of axes: a reshape never complains
TRAP = " Use .reshape(...) instead."
Function = Callable[..., Any]  # an answer, a right one or a wrong one
results: list[str] = []  # one sign for each idea of the last check; `share` counts them


class Mistake(Exception):  # noqa: N818
    """What is wrong with an answer, in words that help a beginner.

    It is no error of the program: it carries what the learner should read.
    """


def run_check(name: str, answer: Any, ideas: Sequence[tuple[str, Callable[[Any], None]]]) -> bool:
    """Try an answer idea by idea and stop at the first that is wrong.

    ideas  : pairs (what is right, a function that tries the answer and raises `Mistake`)
    returns: True only when every idea is right
    """
    if not callable(answer):
        message = (
            f"got {short(answer)}; pass the function or class itself, "
            "without parentheses after its name"
        )
        return report("x", name, message)
    dtype = torch.get_default_dtype()
    # of several GPUs, fork_rng would warn
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:  # a check leaves no trace, and does not depend on what the notebook switched off
        with torch.random.fork_rng(gpus), torch.inference_mode(False), torch.set_grad_enabled(True):
            passed = sum(1 for _ in takewhile(lambda idea: try_idea(name, answer, *idea), ideas))
            # those behind the first mistake are not tried
            results[:] = ["v"] * passed + ["x"] * (len(ideas) - passed)
            return passed == len(ideas)
    finally:
        torch.set_default_dtype(dtype)


def share(check: Callable[[Any], bool], answer: Any) -> float:
    """Return the fraction of a check's ideas that are right, 0 to 1.

    Those after the first mistake count as wrong.
    """
    results.clear()
    # nbgrader gives nothing to a cell that writes to stderr
    with contextlib.redirect_stderr(sys.stdout):
        check(answer)
    return results.count("v") / len(results)


def try_idea(name: str, answer: Any, right: str, idea: Callable[[Any], None]) -> bool:
    """Print one line for one idea; True when it is right."""
    try:
        # torch.manual_seed would write down where it was called
        torch.default_generator.manual_seed(0)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        idea(answer)
    except Mistake as mistake:
        return report("x", name, str(mistake))
    except NotImplementedError as error:
        if not str(error) or "your turn" in str(error):
            return report(" ", name, "not written yet")
        if "forward" in str(error):  # torch's word for a module without one
            return report(
                "x", name, "the module has no forward; check its name and its indentation"
            )
        return report("x", name, f"{right}: {raised_where(error)}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a check never ends the notebook
        return report("x", name, f"{right}: {raised_where(error)}")
    return report("v", name, right)


def report(sign: str, name: str, message: str) -> bool:
    """Print one line; True for a right answer."""
    print(f"[{sign}] {name}: {message}")
    results.append(sign)
    return sign == "v"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message without `TRAP`, at most 160 characters."""
    try:
        return str(error).strip().partition("\n")[0].replace(TRAP, "")[:160].rstrip()
    except Exception:  # a message that itself fails
        return "(no message)"


def raised(error: BaseException) -> str:
    """Write an error in one line, with advice where there is some."""
    message = f"raises {type(error).__name__}: {first_line(error)}".removesuffix(": ")
    return message + "".join(
        f" ({hint})" for fragment, hint in HINTS.items() if fragment in message
    )


@contextlib.contextmanager
def trying(when: str) -> Iterator[None]:
    """Note on an answer's error what was tried; `raised_where` writes it."""
    try:
        yield
    except Mistake:
        raise
    except Exception as error:
        error.add_note(when)
        raise


def raised_where(error: BaseException) -> str:
    """Write an error in one line, and what was tried when it was raised, if that is known."""
    notes = [note for note in getattr(error, "__notes__", []) if note]
    return f"{raised(error).removesuffix('.')}, {notes[-1]}" if notes else raised(error)


def short(value: Any) -> str:
    """Write a value in a few words: tensors by their shape, at most 60 characters."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray) and value.ndim:
        return f"a numpy array of shape {value.shape}"
    if isinstance(value, (list, tuple)) and len(value) > 20:
        return f"a {type(value).__name__} of {len(value)} elements"
    try:
        text = repr(value).partition("\n")[0]
    except Exception:  # a value that cannot be written down
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def variants(function: Function, table: Mapping[str, Mapping[str, Any]]) -> dict[str, Function]:
    """Make a wrong answer for each message: the right one with other parameters."""
    return {message: partial(function, **changes) for message, changes in table.items()}


def reject_if(condition: Any, message: str | None) -> None:
    """Raise `Mistake` with these words when the condition holds."""
    if condition:
        raise Mistake(message)
