"""Let an answer teach a small model, and see what it does meanwhile."""

import copy
import gc
import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from vit_helpers.checks.engine.exercise import Arguments, Case
from vit_helpers.checks.engine.report import Function, Mistake, reject_if, short
from vit_helpers.checks.engine.traces import GRAD_OFF, SEEDED

# Small problems


def plain(K: int) -> nn.Module:
    """A model that does the same in both modes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, K))


def restless(K: int) -> nn.Module:
    """A model with dropout and with statistics: training and evaluation differ."""
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
    """What is compared where things are looked at, not learned: the result alone, without gradients and float64."""
    return {"": answer(*args)}


def has_statistics(model: nn.Module) -> bool:
    """Whether it is a `restless` model."""
    return any(isinstance(part, nn.BatchNorm1d) for part in model.modules())


def twin(start: nn.Module) -> nn.Module:
    """A copy of a model with copies of its gradients."""
    model = copy.deepcopy(start)
    for mine, p in zip(model.parameters(), start.parameters(), strict=True):
        mine.grad = None if p.grad is None else p.grad.clone()
    return model


def groups(model: nn.Module, lr: float) -> list[dict[str, Any]]:
    """Matrices and vectors apart, with rates of their own."""
    matrices, vectors = (
        [p for p in model.parameters() if (p.ndim > 1) == wanted] for wanted in (True, False)
    )
    return [{"params": matrices, "lr": lr}, {"params": vectors, "lr": lr / 2}]


OPTIMIZERS: Mapping[str, Function] = {
    "SGD with momentum": lambda model: torch.optim.SGD(groups(model, 0.1), momentum=0.9),
    "AdamW": lambda model: torch.optim.AdamW(
        groups(model, 0.02), weight_decay=0.1, eps=1e-4
    ),  # eps: rounding stays small
}


def problem(
    optimizer: str, K: int = 3, sizes: Sequence[int] = (6, 5, 3), max_norm: float = math.inf, *,
    look: Sequence[str] = ("weights", "loss"), model: Function = plain, training: bool = True, old: bool = False,
) -> Case:  # fmt: skip
    """A model, batches and the name of an optimizer; `look`: what is compared, `old`: whether gradients are left over."""

    def draw() -> Arguments:
        start = model(K).train(training)
        if old:
            leave_gradients(start)
        batches = [(2 * torch.randn(n, 1, 2, 3), torch.randint(K, (n,))) for n in sizes]
        return start, batches, optimizer, max_norm, look

    return Case(draw)


# What happens in a step


def as_number(got: Any, when: str, kind: str = "a number") -> float:
    """What an answer gave, as a Python float; Mistake when it is none."""
    reject_if(got is None, f"gives nothing back {when}: does it end with return?")
    reject_if(
        callable(got),
        f"gives a function {when}; parentheses are missing after its name, as in loss.item()",
    )
    odd = isinstance(got, (bool, str)) or (
        isinstance(got, Tensor) and (got.numel() != 1 or got.is_complex())
    )
    if odd:
        raise Mistake(f"gives {short(got)} {when}; it should give {kind}")
    try:
        value = float(got.detach() if isinstance(got, Tensor) else got)
    except (TypeError, ValueError):
        raise Mistake(f"gives {short(got)} {when}; it should give {kind}") from None
    reject_if(math.isnan(value), f"gives NaN {when}: is 0 divided by 0?")
    return value


def as_list(got: Any, when: str, kind: str, most: int = 1000) -> list[Any]:
    """What an answer gave in a row, as a list; Mistake when it is no row, cut off where it never ends."""
    reject_if(got is None, f"gives nothing back {when}: does it end with return?")
    message = f"gives {short(got)} {when}; it should give {kind}"
    reject_if(isinstance(got, (str, dict)) or not isinstance(got, Iterable), message)
    reject_if(getattr(got, "ndim", 1) == 0, f"gives one number {when}; it should give {kind}")
    return list(islice(got, most))


def loss_of(got: Any, when: str, kind: str) -> float:
    """The loss that an answer gave; Mistake when it holds on to its graph."""
    graph = "the loss comes back with its graph, which keeps the whole forward pass in memory; return loss.item()"
    reject_if(isinstance(got, Tensor) and got.requires_grad, graph)
    reject_if(not torch.is_grad_enabled(), GRAD_OFF)
    return as_number(got, when, kind)


def by_batch(
    answer: Function, model: nn.Module, batches: list[Any], optimizer: Any, max_norm: float
) -> list[float]:
    """The loss of each batch, where an answer takes one batch."""
    return [
        loss_of(answer(model, *batch, optimizer, max_norm), "for a batch", "the loss as a number")
        for batch in batches
    ]


def at_once(
    answer: Function, model: nn.Module, batches: list[Any], optimizer: Any, max_norm: float
) -> list[float]:
    """The mean loss, where an answer takes all batches, one by one."""
    return [
        loss_of(
            answer(model, iter(batches), optimizer), "after an epoch", "the mean loss as a number"
        )
    ]


class Mark:
    """What lives as long as the graph it is fastened to."""


def watch(model: nn.Module, optimizer: torch.optim.Optimizer) -> SimpleNamespace:
    """What will happen: events in their order, the most graphs of earlier batches that are kept, the length at a step.

    events: "forward", "backward", "step", and "evaluation" before a forward in that mode
    """
    seen = SimpleNamespace(events=[], graphs=0, length=0.0)
    marks: list[weakref.ref[Mark]] = []

    def forward(module: nn.Module, _: Any, logits: Tensor) -> None:
        seen.events += (
            ["forward"] if all(m.training for m in module.modules()) else ["evaluation", "forward"]
        )
        if sum(mark() is not None for mark in marks) > 1:
            gc.collect()
        seen.graphs = max(seen.graphs, sum(mark() is not None for mark in marks))
        if logits.requires_grad:
            mark = Mark()
            cast(Any, logits.grad_fn).metadata["mark"] = mark
            marks.append(weakref.ref(mark))

    def step(*_: Any) -> None:
        seen.events.append("step")
        seen.length = length_of([p.grad for p in model.parameters()])

    model.register_forward_hook(forward)
    next(model.parameters()).register_post_accumulate_grad_hook(
        lambda _: seen.events.append("backward")
    )
    optimizer.register_step_post_hook(step)
    return seen


def length_of(gradients: Sequence[Tensor | None]) -> float:
    """The length of all gradients together."""
    return math.sqrt(sum(g.square().sum().item() for g in gradients if g is not None))


EARLY = "step comes before backward, so it uses old gradients"
AFTER = "the gradient is clipped after the step, which has already used the whole gradient"
STILL = "the model is trained in evaluation mode: dropout is off, and statistics are not updated"


def out_of_order(events: list[str], n: int, moved: bool) -> str | None:
    """What is wrong with the events of n batches, in words; None when they are n times forward, backward, step."""
    count = {event: events.count(event) for event in ("forward", "backward", "step", "evaluation")}
    found = {
        "never calls the model: the loss should come from model(images)": not count["forward"],
        "the weights change, but not through the optimizer that is passed in: is another one created inside?":
            not count["step"] and moved,
        "no weight changes: optimizer.step() is missing": not count["step"],
        STILL: count["evaluation"],
        "no gradient reaches the weights: is loss.backward() missing, the model copied, or torch.no_grad() around it?":
            not count["backward"],
        f"calls the model for {count['forward']} of {n} batches: is return inside the loop?": count["forward"] < n,
        f"calls optimizer.step() {count['step']} time(s) for {n} batches; call it once for each": count["step"] != n,
        f"calls backward() {count['backward']} time(s) for {n} batches; call it once for each": count["backward"] != n,
        EARLY: "step" in events and "step" in events[: (*events, "backward").index("backward")],
    }  # fmt: skip
    return next((message for message, wrong in found.items() if wrong), None)


def flat(model: nn.Module) -> Tensor:
    """All weights and statistics as one vector."""
    return torch.cat([x.detach().flatten().float() for x in model.state_dict().values()])


def settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """All that an optimizer was told, but the parameters."""
    return [
        {name: x for name, x in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]


@contextmanager
def told_apart(seen: SimpleNamespace) -> Iterator[None]:
    """The same random numbers for every answer, and what torch says of a step between forward and backward in our words."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(7081)
        try:
            yield
        except RuntimeError as error:
            reject_if(
                "modified by an inplace operation" in str(error) and seen.events[-1:] == ["step"],
                EARLY,
            )
            raise
        reject_if(torch.initial_seed() != 7081, SEEDED)


def learn(
    walk: Function,
    answer: Function,
    start: nn.Module,
    batches: list[Any],
    optimizer: str,
    max_norm: float,
) -> tuple[nn.Module, list[float], SimpleNamespace]:
    """A copy of a model after an answer has taught it, the losses, and what happened meanwhile."""
    model = twin(start)
    used = OPTIMIZERS[optimizer](model)
    seen, settings = watch(model, used), settings_of(used)
    with told_apart(seen):
        losses = walk(answer, model, batches, used, max_norm)
    message = "changes the optimizer's settings, such as its learning rate; leave them as they are"
    reject_if(settings_of(used) != settings, message)
    reject_if(
        not all(p.requires_grad for p in model.parameters()),
        "leaves weights that cannot learn: requires_grad is off",
    )
    message = "adds up losses with their graphs, which keeps those of all batches in memory; add loss.item()"
    reject_if(seen.graphs > 1, message)
    return model, losses, seen


def observe(
    walk: Function, right: Function, answer: Function,
    start: nn.Module, batches: list[Any], optimizer: str, max_norm: float, look: Sequence[str],
) -> dict[str, Tensor]:  # fmt: skip
    """The weights after the batches, and the losses that the answer gave; Mistake where more happens on the way."""
    model, losses, seen = learn(walk, answer, start, batches, optimizer, max_norm)
    n, passes = len(batches), seen.events.count("forward")
    if has_statistics(start):
        reject_if(
            "evaluation" in seen.events, STILL + ". model.train() is missing" * (not start.training)
        )
        reject_if(
            start.training and not model.training,
            "leaves the model in evaluation mode, but it came in training mode",
        )
        reject_if(
            passes > n,
            f"calls the model {passes} times for {n} batches, but once for each is enough",
        )
    if "weights" in look and seen.events != ["forward", "backward", "step"] * n:
        asked, _, _ = learn(walk, right, start, batches, optimizer, max_norm)
        message = out_of_order(seen.events, n, moved=not near(flat(model), flat(start)))
        reject_if(message and not near(flat(model), flat(asked)), message)
    left = length_of([p.grad for p in model.parameters()])
    reject_if(0 < left < 1.001 * max_norm < seen.length, AFTER)
    parts = {"weights": flat(model), "loss": torch.tensor(losses, dtype=torch.float32)}
    return {part: parts[part] for part in look}


def near(got: Tensor, right: Tensor) -> bool:
    """Whether numbers are equal to five digits."""
    return torch.allclose(got, right, rtol=1e-5, atol=1e-5)


def first_wrong(got: Tensor, right: Tensor) -> int:
    """The place of the first wrong number."""
    return next(i for i in range(len(right)) if not near(got[i], right[i]))


def rounded(got: Tensor, right: Tensor) -> bool:
    """Whether numbers are right but for digits behind the point that are cut off."""
    return any(
        torch.allclose(got, right.double().round(decimals=digits).to(got.dtype), atol=1e-6)
        for digits in range(4)
    )


def rounding(got: float, right: float, *args: Any) -> str | None:
    """What is odd about a number with few digits."""
    return (
        "return the number without rounding it"
        if any(got == round(right, digits) for digits in range(6))
        else None
    )
