"""The exercises of notebook 11 about the gradient of a batch in parts, and of several processes."""

import math
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from vit_helpers.checks.engine.contract import expect_contract
from vit_helpers.checks.engine.exercise import Arguments, Case, Exercise, Outcome, Wording
from vit_helpers.checks.engine.learning import (
    NO_GRAPH,
    leave_gradients,
    loss_of,
    plain,
    twin,
)
from vit_helpers.checks.engine.report import Function, reject_if

# A large batch, part by part


class Watched(nn.Module):
    """A copy of a model that notes how many images it is passed, and in which mode.

    It also notes what is still kept of earlier passes.
    """

    def __init__(self, start: nn.Module) -> None:
        super().__init__()
        self.net = twin(start)
        self.training = start.training
        self.passed: list[int] = []
        self.modes: list[bool] = []
        self.left: list[int] = []
        self.kept: list[weakref.ref[Tensor]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.passed.append(len(images))
        self.modes += {part.training for part in self.modules()}
        self.left.append(sum(kept() is not None for kept in self.kept))
        return self.net(images)

    def keep(self, tensor: Tensor) -> Tensor:
        """Return what autograd keeps in place of a tensor, noted as long as it does."""
        kept = tensor.detach()
        self.kept.append(weakref.ref(kept))
        return kept


def a_batch(
    n: int, parts: int, part: str, old: bool = False, steep: bool = False, training: bool = True
) -> Case:
    """Make a model, a batch of n images, and what is compared.

    old  : whether an earlier batch left its gradient
    steep: whether the weights are large, so that the gradient is longer than 1
    """

    def draw() -> Arguments:
        model = plain(3).train(training)
        if steep:
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(8)
        if old:
            leave_gradients(model)
        return model, 2 * torch.randn(n, 1, 2, 3), torch.randint(3, (n,)), parts, part

    return Case(draw)


def for_batch(model: nn.Module, images: Tensor, labels: Tensor, parts: int, part: str) -> str:
    """Write the arguments in words."""
    return f"for {len(images)} images and parts = {parts}"


def flat(tensors: Any) -> Tensor:
    """Return all numbers of some tensors in a row."""
    return torch.cat([t.detach().flatten() for t in tensors])


def run(
    answer: Function,
    start: nn.Module,
    images: Tensor,
    labels: Tensor,
    parts: int,
    watch: bool = False,
) -> tuple[Watched, Any]:
    """Return the model that an answer has asked, and what it gave.

    watch: see what autograd keeps
    """
    model, when = Watched(start), for_batch(start, images, labels, parts, "")
    with (
        torch.autograd.graph.saved_tensors_hooks(model.keep, lambda kept: kept)
        if watch
        else nullcontext()
    ):
        got = answer(model, images, labels, parts)
    nothing = ", and gives nothing back: does it end with return?" if got is None else ""
    reject_if(not model.passed, f"never calls the model {when}{nothing}")
    moved = not torch.equal(flat(start.parameters()), flat(model.parameters()))
    reject_if(
        moved,
        f"changes the weights {when}: only .grad is wanted, and the step is left to the caller",
    )
    frozen = not all(p.requires_grad for p in model.parameters())
    reject_if(frozen, f"leaves weights that cannot learn {when}: requires_grad is off")
    return model, got


def left_behind(
    answer: Function, start: nn.Module, images: Tensor, labels: Tensor, parts: int, part: str
) -> dict[str, Tensor]:
    """Return the gradient that an answer leaves in .grad, or the loss that it gives."""
    model, got = run(answer, start, images, labels, parts)
    when = for_batch(start, images, labels, parts, part)
    if part == "loss":
        expect_mode(model, start.training)
        return {
            part: torch.tensor(loss_of(got, when, "the mean loss, a number"), dtype=torch.float32)
        }
    none = [name for name, p in model.named_parameters() if p.grad is None]
    reject_if(none, f"leaves no gradient in .grad of {', '.join(none)} {when}")
    return {part: flat(p.grad for p in model.parameters())}


def expect_mode(model: Watched, training: bool) -> None:
    """Raise Mistake unless a model was called, and is left, in the mode in which it came."""
    modes = ["evaluation", "training"]
    other, came = modes[not training], f"although it came in {modes[training]} mode"
    dropout = ", so dropout is off" if training else ""
    called = f"calls the model in {other} mode, {came}{dropout}"
    reject_if(any(mode != training for mode in model.modes), called)
    left = any(part.training != training for part in model.modules())
    reject_if(left, f"leaves the model in {other} mode, {came}{dropout}")


def apart(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless the model gets one part at a time.

    Nothing of a part may be kept when the next one comes.
    """
    for n, parts in ((12, 4), (10, 4), (14, 2)):
        start, images, labels, *_ = args = a_batch(n, parts, "").draw()
        try:
            model, _ = run(answer, start, images, labels, parts, watch=True)
        except RuntimeError as error:
            if "saved tensor hooks" not in str(error):
                raise
            model, _ = run(
                answer, start, images, labels, parts
            )  # torch.func does not let itself be watched
        passed, size, when = model.passed, math.ceil(n / parts), for_batch(*args)
        whole = "the gradient is right, but no memory is saved"
        reject_if(max(passed) == n, f"passes the model all {n} images at once {when}: {whole}")
        reject_if(
            max(passed) > size,
            f"passes the model {max(passed)} images at once {when}; {size} are enough",
        )
        message = "each image once is enough. Keep the loss of that pass"
        reject_if(
            sum(passed) > n, f"passes the model {sum(passed)} images in all {when}: {message}"
        )
        reject_if(
            len(passed) > parts,
            f"calls the model {len(passed)} times {when}: smaller parts than asked for waste time. "
            "images.chunk(parts) makes them, and never more than parts",
        )
        message = (
            "the gradient is right, but memory holds all parts. "
            "Call backward() inside the loop, without retain_graph"
        )
        reject_if(
            any(model.left),
            f"keeps the activations of earlier parts when the next one starts {when}: {message}",
        )


def weighed(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return values times weights, added up."""
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def by_parts(
    weigh: Function = lambda n, N, k, parts: n / N,
    zero: str = "before",
    pick: Function = lambda chunks: chunks,
    mean: Function = lambda losses, sizes: weighed(losses, sizes) / sum(sizes),
    most: float = math.inf,
) -> Function:
    """Make an answer.

    weigh: (images of a part, of all, number of parts, and as asked) -> the factor of a part's loss
    zero : when gradients are set to 0; pick: (parts) -> those that are used
    mean : (losses, sizes) -> the loss that is returned
    most : the length at which the gradient is clipped
    """

    def answer(model: nn.Module, images: Tensor, labels: Tensor, parts: int) -> float:
        if zero == "before":
            model.zero_grad()
        losses, chunks = [], list(zip(images.chunk(parts), labels.chunk(parts), strict=True))
        for x, y in pick(chunks):
            if zero == "inside":
                model.zero_grad()
            losses.append(F.cross_entropy(model(x), y))
            (losses[-1] * weigh(len(y), len(labels), len(chunks), parts)).backward()
        if most < math.inf:
            clip_grad_norm_(model.parameters(), most)
        if zero == "after":
            model.zero_grad(set_to_none=False)
        return mean([loss.item() for loss in losses], [len(y) for _, y in pick(chunks)])

    return answer


WEIGH = "weight each mean loss by its number of images, divide by the number of all ({when})"
LOST = {  # parts that are missing, whatever the others are multiplied by
    "only the last part is in .grad, but backward() adds up: "
    "call it for every part, and zero_grad() once, before the loop ({when})": by_parts(
        zero="inside"
    ),
    "only the first part is in .grad, but all belong there ({when})": by_parts(
        pick=lambda x: x[:1]
    ),
    "the last part is missing in .grad ({when})": by_parts(pick=lambda x: x[:-1]),
}


def multiple(got: Tensor, of: Tensor) -> float:
    """Return how many times another gradient this one is; 0 where it points elsewhere."""
    factor = (got @ of / (of @ of)).item()
    return factor if factor and (got - factor * of).norm() < 1e-4 * (factor * of).norm() else 0


def other_gradient(got: Tensor, right: Tensor, *args: Any) -> str:
    """Write the message about a gradient that no known mistake gives."""
    for message, wrong in LOST.items():
        result = ACCUMULATE.tried(wrong, args)
        if result and multiple(got, result["gradient"]):
            return message
    if factor := multiple(got, right):
        return f"the gradient is {factor:.3g} times what it should be ({{when}})"
    off = (got - right).norm() / right.norm()
    return f"the gradient in .grad is off by {off:.0%} ({{when}})"


def accumulate_says(part: str, got: Tensor, right: Tensor, message: str, *args: Any) -> str:
    """Write the message about a wrong gradient or loss."""
    said = (
        f"gives {got:.5g} as the loss {for_batch(*args)}; it should give {right:.5g}: "
        if part == "loss"
        else ""
    )
    return said + message


ACCUMULATE_MISTAKES: dict[str, Function] = (
    LOST | {
        "adds up the means of {3} parts: the gradient is about {3} times too large ({when})":
            by_parts(weigh=lambda n, N, k, parts: 1),
        f"weights all parts equally, although the last is smaller: {WEIGH}":
            by_parts(weigh=lambda n, N, k, parts: 1 / k),
        "divides each part's loss by parts, which weights all parts equally, although the last is "
        f"smaller and there may be fewer than {{3}}: {WEIGH}":
            by_parts(weigh=lambda n, N, k, parts: 1 / parts),
        "the gradient is clipped to length 1; leave it as it is, for clipping belongs to the step "
        "({when})":
            by_parts(most=1.0),
        "an earlier batch's gradient is still in .grad: "
        "call zero_grad() once, before the loop ({when})":
            by_parts(zero="never"),
        "leaves zeros in .grad: is zero_grad() called after backward()? ({when})":
            by_parts(zero="after"),
        "that is one part's share: add up the parts":
            by_parts(mean=lambda x, n: x[-1] * n[-1] / sum(n)),
        "that is one part's mean loss: add up all, weighted by their images":
            by_parts(mean=lambda x, n: x[-1]),
        "that is the sum of the parts' means": by_parts(mean=lambda x, n: sum(x)),
        "that weights all parts equally: weight each by its number of images":
            by_parts(mean=lambda x, n: sum(x) / len(x)),
        "that is the sum over images: divide by their number": by_parts(mean=weighed),
        "that is divided twice, by the images and by the parts":
            by_parts(mean=lambda x, n: weighed(x, n) / sum(n) / len(n)),
    }
)  # fmt: skip
ACCUMULATE = Exercise(
    name="accumulate",
    reference=by_parts(),
    outcome=Outcome(observe=left_behind),
    wording=Wording(
        when=for_batch,
        says=accumulate_says,
        unknown={
            "gradient": other_gradient,
            "loss": "it should be the mean over all images",
        },
        hints=NO_GRAPH
        | {
            "tuple index out of range": "images.chunk(parts) may give fewer chunks than parts: "
            "of 9 images and 4 parts, 3. Loop over the chunks themselves"
        },
    ),
    ideas={
        "equal parts: the gradient of the mean over all images": [
            *(a_batch(*sizes, "gradient") for sizes in ((12, 4), (6, 1), (12, 2))),
            a_batch(12, 4, "gradient", steep=True),
        ],
        "a smaller last part: every image counts the same": [
            a_batch(*sizes, "gradient") for sizes in ((10, 4), (9, 4), (7, 2))
        ],
        "starts from zero, whatever an earlier batch left": [
            a_batch(*sizes, "gradient", old=True) for sizes in ((12, 4), (10, 4))
        ],
        "one part at a time, and its activations freed before the next": [apart],
        "the mean loss, and the model in the mode in which it came": [
            *(a_batch(*sizes, "loss") for sizes in ((10, 4), (12, 4), (7, 2))),
            a_batch(12, 4, "loss", training=False),
            expect_contract,
        ],
    },
    mistakes=ACCUMULATE_MISTAKES,
)
check_accumulate = ACCUMULATE.check


# Two processes, one gradient


def processes(counts: Sequence[int], shape: Sequence[int]) -> Case:
    """Make the gradient of each process, and the number of its images."""
    return Case(
        lambda: ([torch.randn(shape) if n else torch.zeros(shape) for n in counts], list(counts))
    )


COMBINE_MISTAKES: dict[str, Function] = (
    {
        f"{message} ({{when}})": wrong for message, wrong in {
            "takes the plain mean, where a process with few images counts as much as one with many":
                lambda gs, ns: sum(gs) / len(ns),
            "adds up the gradients, but each is a mean, and the mean over all images is wanted":
                lambda gs, ns: sum(gs),
            "weights by the counts, but divides by the number of processes instead of all images":
                lambda gs, ns: weighed(gs, ns) / len(ns),
            "weights by the counts, but does not divide: divide by the number of all images":
                weighed,
            "weights by the counts, but divides by the largest instead of their sum":
                lambda gs, ns: weighed(gs, ns) / max(ns),
            "divides twice: by the number of images, and by the number of processes":
                lambda gs, ns: weighed(gs, ns) / sum(ns) / len(ns),
            "divides each gradient by its count, but it is a mean: "
            "multiply by the count and divide by the sum of all":
                lambda gs, ns: sum(g / n for g, n in zip(gs, ns, strict=True)),
            "divides by all images without weighting: each gradient is a mean, "
            "so multiply it by its count":
                lambda gs, ns: sum(gs) / sum(ns),
            "gives each process the weight of another: in which order are the counts?":
                lambda gs, ns: weighed(gs, ns[::-1]) / sum(ns),
            "gives zeros, because c // n is 0: use /":
                lambda gs, ns: weighed(gs, [n // sum(ns) for n in ns]),
            "combines two processes only": lambda gs, ns: weighed(gs[:2], ns[:2]) / sum(ns[:2]),
            "combines two processes only, though it divides by all images":
                lambda gs, ns: weighed(gs[:2], ns[:2]) / sum(ns),
            "gives the gradient of the first process alone": lambda gs, ns: gs[0],
            "gives the gradient of the last process alone": lambda gs, ns: gs[-1],
            "gives numbers that are not finite: never divide by one process's own count":
                lambda gs, ns: weighed(
                    [g / n for g, n in zip(gs, ns, strict=True)], [n * n / sum(ns) for n in ns]
                ),
        }.items()
    }
)  # fmt: skip
COMBINE = Exercise(
    name="combine",
    reference=lambda gs, ns: weighed(gs, ns) / sum(ns),
    wording=Wording(
        when=lambda gs, ns: f"for processes with {', '.join(map(str, ns))} images",
        says="{message}",
        unknown="the result {when} is not the sum of each gradient times its share of the images",
    ),
    ideas={
        "two processes: each weighs as much as it has images": [processes((6, 3), (2, 3))],
        "one process, or many, with equal counts too": [
            processes((5, 1, 2, 4), (4,)),
            processes((7,), (2, 2)),
            processes((3, 3, 3), (3,)),
        ],
        "a process without images changes nothing": [
            processes((4, 0, 3), (2, 3)),
            processes((0, 5), (1,)),
        ],
    },
    mistakes=COMBINE_MISTAKES,
)
check_combine = COMBINE.check
