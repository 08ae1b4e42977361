"""What all checks share: try a learner's answer idea by idea, print one line each, never raise.

[ ] not written yet    [x] wrong, and which idea slipped    [v] right
"""

import copy

import torch


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
    try:  # a check leaves no trace, and does not depend on what the notebook switched off
        with torch.random.fork_rng(), torch.inference_mode(False), torch.set_grad_enabled(True):
            return all(try_idea(name, answer, right, idea) for right, idea in ideas)
    finally:
        torch.set_default_dtype(dtype)


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
        return mark("x", name, f"{right}: raises NotImplementedError: {first_line(error)}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a check never ends the notebook
        return mark("x", name, f"{right}: raises {type(error).__name__}: {first_line(error)}")
    return mark("v", name, right)


def mark(sign, name, words):
    """Print one line; True for a right answer"""
    print(f"[{sign}] {name}: {words}")
    return sign == "v"


def first_line(error):
    """The first line of an error's message, at most 160 characters of it"""
    try:
        return str(error).strip().partition("\n")[0][:160]
    except Exception:  # a message that itself fails
        return "(no message)"


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
    slip(tuple(got.shape) != tuple(shape), f"gives shape {tuple(got.shape)} {when}; it should give {tuple(shape)}")


def same(got, wanted, atol=1e-5):
    """Whether two tensors hold the same numbers, whatever their type, to a tolerance; NaN is never right"""
    return got.shape == wanted.shape and torch.allclose(got.double(), wanted.double(), rtol=1e-4, atol=atol)


def untouched(function, *tensors):
    """Call with copies; Slip when the answer wrote into its input"""
    copies = [copy.copy(t) if not isinstance(t, torch.Tensor) else t.clone() for t in tensors]
    result = function(*copies)
    for given, kept in zip(copies, tensors, strict=True):
        if isinstance(kept, torch.Tensor):
            slip(not torch.equal(given, kept), "changes its input; make a new tensor instead of writing into the old one")
    return result


def gradient(output, source):
    """The gradient of a fixed weighing of the output, or None where none flows"""
    if not output.requires_grad:
        return None
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad((output * weights).sum(), source, allow_unused=True)[0]


def expect_gradient(got, wanted, source):
    """Slip unless the answer passes the same gradient to its source as the right one does"""
    mine, right = gradient(got, source), gradient(wanted, source)
    slip(mine is None, "gives the right numbers, but no gradient flows back: was something detached, or turned into numpy?")
    slip(not same(mine, right, atol=1e-4), "gives the right numbers, but another gradient than it should")
