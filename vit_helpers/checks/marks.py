"""What all checks share: try a learner's answer idea by idea, print one line each, never raise.

[ ] not written yet    [x] wrong, and which idea slipped    [v] right
"""

import contextlib
import copy
import sys
from itertools import takewhile

import torch

HINTS = {  # what an error's name and message hold, and the way out
    "leaf Variable that requires grad": "that writes in place where a gradient is wanted. Make a new tensor of an input; "
    "write into weights under torch.no_grad()",
    "modified by an inplace operation": "that writes over numbers the gradient still needs. Make a new tensor",
    "call numpy() on Tensor that requires grad": "numpy passes no gradient on, nor does detach(): stay with torch",
    "is invalid for input of size": "the lengths in a reshape multiply to that size: is one a fixed number in your code?",
    "StopIteration": "next() found nothing left",
    "log_softmax_lastdim_kernel_impl": "cross_entropy takes the logits first, the labels second",
    "'method' object is not": "are brackets missing behind a method's name?",
    "object of type 'generator' has no len()": "batches may come one by one: count them in the loop",
}
signs = []  # what `share` counts: one for each idea of the last check
ROUNDED = "loses digits: float64 came in, but something on the way was float32. A .float(), or a new torch.tensor(...)?"


class Slip(Exception):  # noqa: N818  it is no error of the program: it carries what the learner should read
    """An idea that slipped, in words a beginner can act on"""


def check(name, answer, ideas):
    """Mark an answer idea by idea, stop at the first that slipped; True only when every idea is right.

    ideas: pairs (what is right, a function that tries the answer and raises `Slip` when it is not)
    """
    if not callable(answer):
        return mark(
            "x", name, f"got {short(answer)}; hand over the function or class itself, without brackets behind its name"
        )
    dtype = torch.get_default_dtype()
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []  # of several, fork_rng would warn
    try:  # a check leaves no trace, and does not depend on what the notebook switched off
        with torch.random.fork_rng(gpus), torch.inference_mode(False), torch.set_grad_enabled(True):
            passed = sum(1 for _ in takewhile(lambda idea: try_idea(name, answer, *idea), ideas))
            signs[:] = ["v"] * passed + ["x"] * (len(ideas) - passed)  # those behind the first slip are not tried
            return passed == len(ideas)
    finally:
        torch.set_default_dtype(dtype)


def share(check, answer):
    """The share of a check's ideas that an answer has right, from 0 to 1; those behind the first slip count as wrong"""
    signs.clear()
    with contextlib.redirect_stderr(sys.stdout):  # nbgrader gives nothing to a cell that writes to stderr
        check(answer)
    return signs.count("v") / len(signs)


def try_idea(name, answer, right, idea):
    """One line for one idea; True when it is right"""
    try:
        torch.manual_seed(0)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        idea(answer)
    except Slip as slip:
        return mark("x", name, str(slip))
    except NotImplementedError as error:
        if not str(error) or "your turn" in str(error):
            return mark(" ", name, "not written yet")
        if "forward" in str(error):  # torch's word for a module without one
            return mark("x", name, "the module has no forward; check its name and its indentation")
        return mark("x", name, f"{right}: {raised(error)}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a check never ends the notebook
        return mark("x", name, f"{right}: {raised(error)}")
    return mark("v", name, right)


def mark(sign, name, words):
    """Print one line; True for a right answer"""
    print(f"[{sign}] {name}: {words}")
    signs.append(sign)
    return sign == "v"


def first_line(error):
    """The first line of an error's message, at most 160 characters of it"""
    try:
        return str(error).strip().partition("\n")[0][:160]
    except Exception:  # a message that itself fails
        return "(no message)"


def raised(error):
    """An error in one line, with a way out where one is known"""
    words = f"raises {type(error).__name__}: {first_line(error)}".removesuffix(": ")
    return words + "".join(f" ({hint})" for fragment, hint in HINTS.items() if fragment in words)


def short(value):
    """What came, in a few words: tensors by their shape"""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    try:
        text = repr(value).partition("\n")[0]
    except Exception:  # a value that cannot be written down
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def slip(condition, words):
    """Raise `Slip` with these words when the condition holds"""
    if condition:
        raise Slip(words)


def expect_tensor(got, shape, when):
    """Slip unless the answer gave a tensor of this shape"""
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    slip(not isinstance(got, torch.Tensor), f"gives {short(got)} {when}; it should give a tensor")
    slip(got.is_complex(), f"gives complex numbers ({got.dtype}) {when}; nothing here has an imaginary part")
    slip(tuple(got.shape) != tuple(shape), f"gives shape {tuple(got.shape)} {when}; it should give {tuple(shape)}")


def same(got, wanted, atol=None):
    """Whether two tensors hold the same numbers; NaN is never right

    The tolerance is float32's, or float64's where both tensors are float64; atol: another one
    """
    rtol, usual = (1e-9, 1e-10) if got.dtype == wanted.dtype == torch.float64 else (1e-4, 1e-5)
    atol = usual if atol is None else atol
    return got.shape == wanted.shape and torch.allclose(got.double(), wanted.double(), rtol=rtol, atol=atol)


def expect_digits(got, wanted):
    """Slip when numbers are right, but float64 ones to the digits of float32 only"""
    slip(same(got.float(), wanted.float()) and not same(got, wanted), ROUNDED)


def differ(got, wanted):
    """Whether two tensors hold other numbers; Slip with words of its own when only float64's digits are lost"""
    if same(got, wanted):
        return False
    expect_digits(got, wanted)
    return True


def untouched(function, *tensors):
    """Call with copies; Slip when the answer wrote into its input"""
    copies = [copy.copy(t) if not isinstance(t, torch.Tensor) else t.clone() for t in tensors]
    result = function(*copies)
    for given, kept in zip(copies, tensors, strict=True):
        if isinstance(kept, torch.Tensor):
            slip(not torch.equal(given, kept), "changes its input; make a new tensor instead of writing into the old one")
    return result


def expect_steady(module, x, shape):
    """Slip unless a module leaves its input alone, gives the same for the same input in both modes, and anew for another"""
    other, results = torch.randn_like(x), {}
    drawn = "something is drawn at random inside forward. A dropout, or a layer made there?"
    with torch.no_grad():
        for mode in ("evaluation", "training"):
            results[mode] = untouched(module.train(mode == "training"), x)
            expect_tensor(results[mode], shape, f"in {mode} mode")
            slip(not same(results[mode], module(x)), f"gives another result at a second call in {mode} mode: {drawn}")
            expect_anew(results[mode], module(other))
    slip(not same(*results.values()), "gives something else in training mode than in evaluation mode")


def expect_anew(first, second):
    """Slip when the results for two inputs are the same one"""
    kept = isinstance(second, torch.Tensor) and same(first, second)
    slip(kept, "gives the same result for another input: was the first one kept? Compute it anew in every call")


def accelerators():
    """The devices beside the CPU on which answers are tried"""
    return [torch.accelerator.current_accelerator()] if torch.accelerator.is_available() else []


def expect_anywhere(answer, right, *given):
    """Slip unless a function or module works on an accelerator, where there is one on which the right answer works"""
    way_out = "Make new tensors where the input is, torch.zeros(..., device=x.device), and do without .cpu()"
    for device in accelerators():
        try:
            moved = [x.detach().to(device) if isinstance(x, torch.Tensor) else x for x in given]
            to(right, device)(*moved)
        except Exception:  # torch lacks something there
            continue
        try:
            got = to(answer, device)(*moved)
        except NotImplementedError:
            continue
        except Exception as error:
            raise Slip(f"right on the CPU, but for tensors on {device.type} it {raised(error)}. {way_out}") from error
        places = {x.device.type for x in (got if isinstance(got, (tuple, list)) else [got])} - {device.type}
        slip(places, f"gives a tensor on {', '.join(places)} for tensors on {device.type}. {way_out}")


def to(function, device):
    """A module on another device; a function as it is"""
    return function.to(device) if isinstance(function, torch.nn.Module) else function


def gradient(output, source):
    """The gradient of a fixed weighing of the output, or None where none flows"""
    if not (output.requires_grad and source.requires_grad):
        return None
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad((output * weights).sum(), source, allow_unused=True)[0]


def expect_gradient(got, wanted, source):
    """Slip unless the answer passes the same gradient to its source as the right one does"""
    mine, right = gradient(got, source), gradient(wanted, source)
    slip(
        mine is None and got.requires_grad and got.is_leaf,
        "gives a tensor that starts anew, so that no gradient flows back: give the result as it is, without nn.Parameter or "
        "requires_grad_()",
    )
    slip(mine is None, "gives the right numbers, but no gradient flows back: was something detached, or turned into numpy?")
    slip(not same(mine, right, atol=1e-4), "gives the right numbers, but another gradient than it should")
