"""Let an answer teach a small model, and see what it does meanwhile."""

import copy
import gc
import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor, nn

from vit_helpers.checks.engine.exercise import Arguments, Case
from vit_helpers.checks.engine.report import Function, Mistake, reject_if, short
from vit_helpers.checks.engine.traces import GRAD_OFF, SEEDED

# Small problems


def plain(K: int) -> nn.Module:
    """Make a model that does the same in both modes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, K))


def restless(K: int) -> nn.Module:
    """Make a model with dropout and with statistics: training and evaluation differ."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(6, 12, bias=False),
        nn.BatchNorm1d(12),
        nn.Dropout(0.4),
        nn.Tanh(),
        nn.Linear(12, K),
    )


def leave_gradients(model: nn.Module) -> None:
    """Give every parameter a gradient such as an earlier batch leaves."""
    for i, p in enumerate(model.parameters()):
        p.grad = torch.linspace(-1, 2 + i, p.numel()).view_as(p)


def result(answer: Function, *args: Any) -> dict[str, Any]:
    """Observe the result alone, where nothing is learned: without gradients and float64."""
    return {"": answer(*args)}


def has_statistics(model: nn.Module) -> bool:
    """Tell whether it is a `restless` model."""
    return any(isinstance(part, nn.BatchNorm1d) for part in model.modules())


def twin(start: nn.Module) -> nn.Module:
    """Copy a model and its gradients."""
    model = copy.deepcopy(start)
    for copied, p in zip(model.parameters(), start.parameters(), strict=True):
        copied.grad = None if p.grad is None else p.grad.clone()
    return model


def groups(model: nn.Module, lr: float) -> list[dict[str, Any]]:
    """Part matrices from vectors, with rates of their own."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": matrices, "lr": lr}, {"params": vectors, "lr": lr / 2}]


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    """Make SGD with momentum for a model."""
    return torch.optim.SGD(groups(model, 0.1), momentum=0.9)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Make AdamW for a model; with this eps rounding stays small."""
    return torch.optim.AdamW(groups(model, 0.02), weight_decay=0.1, eps=1e-4)


OPTIMIZERS: Mapping[str, Function] = {"SGD with momentum": momentum, "AdamW": adamw}


def problem(
    optimizer: str,
    K: int = 3,
    sizes: Sequence[int] = (6, 5, 3),
    max_norm: float = math.inf,
    *,
    compared: Sequence[str] = ("weights", "loss"),
    model: Function = plain,
    training: bool = True,
    old: bool = False,
) -> Case:
    """Make a case of a model for K classes, batches of these sizes and the name of an optimizer.

    compared: the parts of what `observe` returns; old: whether gradients are left over
    """

    def draw() -> Arguments:
        start = model(K).train(training)
        if old:
            leave_gradients(start)
        batches = [(2 * torch.randn(n, 1, 2, 3), torch.randint(K, (n,))) for n in sizes]
        return start, batches, optimizer, max_norm, compared

    return Case(draw)


# What an answer returns


def as_number(got: Any, when: str, kind: str = "a number") -> float:
    """Return what an answer gave as a Python float; Mistake when it is none."""
    reject_if(got is None, f"gives nothing back {when}: does it end with return?")
    parentheses = "parentheses are missing after its name, as in loss.item()"
    reject_if(callable(got), f"gives a function {when}; {parentheses}")
    wrong = f"gives {short(got)} {when}; it should give {kind}"
    several = isinstance(got, Tensor) and (got.numel() != 1 or got.is_complex())
    reject_if(several or isinstance(got, (bool, str)), wrong)
    try:
        value = float(got.detach() if isinstance(got, Tensor) else got)
    except (TypeError, ValueError):
        raise Mistake(wrong) from None
    reject_if(math.isnan(value), f"gives NaN {when}, as 0 / 0 does")
    return value


def as_list(got: Any, when: str, kind: str, most: int = 1000) -> list[Any]:
    """Return what an answer gave in a row, cut off where it never ends.

    raises: Mistake when it is no row
    """
    reject_if(got is None, f"gives nothing back {when}: does it end with return?")
    wrong = f"gives {short(got)} {when}; it should give {kind}"
    reject_if(isinstance(got, (str, dict)) or not isinstance(got, Iterable), wrong)
    reject_if(getattr(got, "ndim", 1) == 0, f"gives one number {when}; it should give {kind}")
    return list(islice(got, most))


def loss_of(got: Any, when: str, kind: str) -> float:
    """Return the loss that an answer gave.

    raises: Mistake when it holds on to its graph, or is a tensor
    """
    graph = (
        "the loss comes back with its graph, which keeps the whole forward pass in memory; "
        "return loss.item()"
    )
    reject_if(isinstance(got, Tensor) and got.requires_grad, graph)
    reject_if(not torch.is_grad_enabled(), GRAD_OFF)
    value = as_number(got, when, kind)
    tensor = f"gives a tensor {when}; it should give {kind}: loss.item() is one"
    reject_if(isinstance(got, Tensor), tensor)
    return value


def by_batch(
    answer: Function, model: nn.Module, batches: list[Any], optimizer: Any, max_norm: float
) -> list[float]:
    """Return the loss of each batch, where an answer takes one batch."""
    losses = []
    for images, labels in batches:
        got = answer(model, images, labels, optimizer, max_norm)
        losses.append(loss_of(got, "for a batch", "the loss as a number"))
    return losses


def at_once(
    answer: Function, model: nn.Module, batches: list[Any], optimizer: Any, max_norm: float
) -> list[float]:
    """Return the mean loss, where an answer takes all batches, one by one."""
    got = answer(model, iter(batches), optimizer)
    return [loss_of(got, "after an epoch", "the mean loss as a number")]


NO_GRAPH = {  # a hint
    "does not require grad and does not have a grad_fn": "backward() finds no graph: "
    "is the forward pass inside torch.no_grad() or torch.inference_mode()?"
}


# What happens in a step


class Mark:
    """What lives as long as the graph it is fastened to."""


@dataclass
class Seen:
    """What happened while an answer taught a model.

    events: "forward", "backward", "step", and "evaluation" before a forward in that mode
    graphs: the most graphs of earlier batches that were kept at once
    length: the gradient's length at the last step
    """

    events: list[str] = field(default_factory=list)
    graphs: int = 0
    length: float = 0.0


def watch(model: nn.Module, optimizer: torch.optim.Optimizer) -> Seen:
    """Return a record that is filled while a model is taught with an optimizer."""
    seen = Seen()
    marks: list[weakref.ref[Mark]] = []

    def count_graphs() -> int:
        return sum(mark() is not None for mark in marks)

    def forward(module: nn.Module, _: Any, logits: Tensor) -> None:
        if not all(m.training for m in module.modules()):
            seen.events.append("evaluation")
        seen.events.append("forward")
        if count_graphs() > 1:
            gc.collect()
        seen.graphs = max(seen.graphs, count_graphs())
        if logits.requires_grad:
            mark = Mark()
            cast(Any, logits.grad_fn).metadata["mark"] = mark
            marks.append(weakref.ref(mark))

    def backward(_: Any) -> None:
        seen.events.append("backward")

    def step(*_: Any) -> None:
        seen.events.append("step")
        seen.length = length_of([p.grad for p in model.parameters()])

    model.register_forward_hook(forward)
    next(model.parameters()).register_post_accumulate_grad_hook(backward)
    optimizer.register_step_post_hook(step)
    return seen


def length_of(gradients: Sequence[Tensor | None]) -> float:
    """Return the length of all gradients together."""
    return math.sqrt(sum(g.square().sum().item() for g in gradients if g is not None))


EARLY = "step comes before backward, so it uses old gradients"
AFTER = "the gradient is clipped after the step, which has already used the whole gradient"
STILL = "the model is trained in evaluation mode: dropout is off, and statistics are not updated"
GRAPHS = (
    "adds up losses with their graphs, which keeps those of all batches in memory; add loss.item()"
)


def out_of_order(events: list[str], n: int, moved: bool, when: str) -> str | None:
    """Say what is wrong with the events of n batches.

    moved  : whether the weights have changed
    when   : the case in words
    returns: None when the events are n times forward, backward, step
    """
    forwards, backwards, steps = (events.count(e) for e in ("forward", "backward", "step"))
    first_backward = (*events, "backward").index("backward")
    called_once = "call it once for each"
    one = ": is return inside the loop?" if n > 1 and forwards == 1 else ""
    mistakes = [
        (not forwards, "never calls the model: the loss should come from model(images)"),
        (
            not steps and moved,
            "the weights change, but not through the optimizer that is passed in: "
            "is another one created inside?",
        ),
        (not steps, f"no weight changes {when}, because optimizer.step() is never called"),
        ("evaluation" in events, STILL),
        (
            not backwards,
            f"no gradient reaches the weights {when}: is loss.backward() missing, "
            "the model copied, or torch.no_grad() around it?",
        ),
        (forwards < n, f"calls the model for {forwards} of {n} batches{one}"),
        (
            steps != n,
            f"calls optimizer.step() {steps} time(s) for {n} batches; {called_once}",
        ),
        (backwards != n, f"calls backward() {backwards} time(s) for {n} batches; {called_once}"),
        ("step" in events[:first_backward], EARLY),
    ]
    return next((message for holds, message in mistakes if holds), None)


def taught_with(model: nn.Module, optimizer: str, max_norm: float) -> str:
    """Write the arguments of a step in words."""
    clipped = f" and max_norm = {max_norm:g}" if max_norm < math.inf else ""
    both = " and a model that has dropout and statistics" if has_statistics(model) else ""
    return f"with {optimizer}{clipped}{both}"


def flat(model: nn.Module) -> Tensor:
    """Return all weights and statistics as one vector."""
    return torch.cat([x.detach().flatten().float() for x in model.state_dict().values()])


def settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return all that an optimizer was told, but the parameters."""
    groups = optimizer.param_groups
    return [{name: x for name, x in group.items() if name != "params"} for group in groups]


@contextmanager
def same_random_numbers(seen: Seen) -> Iterator[None]:
    """Draw the same random numbers for every answer; Mistake if an answer sets a seed.

    What torch says of a step between forward and backward is said in our words.
    """
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(7081)
        try:
            yield
        except RuntimeError as error:
            in_place = "modified by an inplace operation" in str(error)
            reject_if(in_place and seen.events[-1:] == ["step"], EARLY)
            raise
        reject_if(torch.initial_seed() != 7081, SEEDED)


def learn(
    walk: Function,
    answer: Function,
    start: nn.Module,
    batches: list[Any],
    optimizer: str,
    max_norm: float,
) -> tuple[nn.Module, list[float], Seen]:
    """Return a copy of a model that an answer has taught, the losses, and what happened meanwhile.

    walk: calls the answer for all batches, `by_batch` or `at_once`
    """
    model = twin(start)
    used = OPTIMIZERS[optimizer](model)
    seen, settings = watch(model, used), settings_of(used)
    with same_random_numbers(seen):
        losses = walk(answer, model, batches, used, max_norm)
    changed = "changes the optimizer's settings, such as its learning rate; leave them as they are"
    reject_if(settings_of(used) != settings, changed)
    frozen = not all(p.requires_grad for p in model.parameters())
    reject_if(frozen, "leaves weights that cannot learn: requires_grad is off")
    reject_if(seen.graphs > 1, GRAPHS)
    return model, losses, seen


def observe(
    walk: Function,
    right: Function,
    answer: Function,
    start: nn.Module,
    batches: list[Any],
    optimizer: str,
    max_norm: float,
    compared: Sequence[str],
) -> dict[str, Tensor]:
    """Return the weights after the batches, and the losses that the answer gave, as compared.

    raises: Mistake where something else happens on the way
    """
    model, losses, seen = learn(walk, answer, start, batches, optimizer, max_norm)
    n = len(batches)
    if has_statistics(start):
        expect_training(start, model, seen, n)
    if "weights" in compared and seen.events != ["forward", "backward", "step"] * n:
        wanted, _, _ = learn(walk, right, start, batches, optimizer, max_norm)
        moved = not near(flat(model), flat(start))
        message = out_of_order(seen.events, n, moved, taught_with(start, optimizer, max_norm))
        reject_if(message and not near(flat(model), flat(wanted)), message)
    left = length_of([p.grad for p in model.parameters()])
    reject_if(0.999 * max_norm < left < 1.001 * max_norm < seen.length, AFTER)
    parts = {"weights": flat(model), "loss": torch.tensor(losses, dtype=torch.float32)}
    return {part: parts[part] for part in compared}


def expect_training(start: nn.Module, model: nn.Module, seen: Seen, n: int) -> None:
    """Raise Mistake unless a model was called once for each of n batches, in training mode."""
    missing = STILL if start.training else STILL + ". model.train() is missing"
    reject_if("evaluation" in seen.events, missing)
    left = "leaves the model in evaluation mode, but it came in training mode"
    reject_if(start.training and not model.training, left)
    calls = seen.events.count("forward")
    many = f"calls the model {calls} times for {n} batches, but once for each is enough"
    reject_if(calls > n, many)


# Five digits


def near(got: Tensor, right: Tensor) -> bool:
    """Tell whether numbers are equal to five digits."""
    return torch.allclose(got, right, rtol=1e-5, atol=1e-5)


def first_wrong(got: Tensor, right: Tensor) -> int:
    """Return the place of the first wrong number."""
    return next(i for i in range(len(right)) if not near(got[i], right[i]))


def rounded(got: Tensor, right: Tensor) -> bool:
    """Tell whether numbers are right but for digits behind the point that are cut off.

    One or no digit proves nothing: other mistakes lead to 0, to 0.5 and to 1.
    """
    return any(
        torch.allclose(got, right.double().round(decimals=digits).to(got.dtype), atol=1e-6)
        for digits in (2, 3)
    )


def rounding(got: float, right: float, *args: Any) -> str | None:
    """Say what is odd about a number of which only the first digits, two or more, are right."""
    few = any(got == round(right, digits) for digits in range(2, 6))
    several = got != float(f"{got:.1g}")
    return "return the number without rounding it" if few and several else None
