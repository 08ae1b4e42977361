"""The exercise of notebook 07 in which one step of AdamW is written."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vit_helpers.checks.engine.contract import expect_contract
from vit_helpers.checks.engine.exercise import (
    Arguments,
    Case,
    Contract,
    Exercise,
    Outcome,
    Wording,
)
from vit_helpers.checks.engine.report import Function, variants

Betas = Sequence[float]
Moments = tuple[Tensor, Tensor]


def new_m(m: Tensor, g: Tensor, betas: Betas) -> Tensor:
    """Average the gradients."""
    return betas[0] * m + (1 - betas[0]) * g


def new_v(v: Tensor, g: Tensor, betas: Betas) -> Tensor:
    """Average their squares."""
    return betas[1] * v + (1 - betas[1]) * g**2


def corrected(m: Tensor, v: Tensor, s: int, betas: Betas) -> Moments:
    """Divide each average by what the coefficients of s gradients add up to."""
    return m / (1 - betas[0] ** s), v / (1 - betas[1] ** s)


def quotient(m: Tensor, v: Tensor, eps: float) -> Tensor:
    """Divide the average by the size of the gradient."""
    return m / (v.sqrt() + eps)


def moved(w: Tensor, update: Tensor, lr: float, decay: float) -> Tensor:
    """Shrink the weights and take the step."""
    return (1 - lr * decay) * w - lr * update


def adamw_step(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    s: int,
    lr: float,
    betas: Betas,
    eps: float,
    decay: float,
    first: Function = new_m,
    second: Function = new_v,
    correct: Function = corrected,
    divide: Function = quotient,
    move: Function = moved,
) -> tuple[Tensor, Tensor, Tensor]:
    """Take step s = 1, 2, ... of AdamW: the right answer, or one with a part exchanged.

    w, g   : the weights and their gradient, of one shape; m, v: the averages before this step
    returns: the new weights and averages
    """
    m, v = first(m, g, betas), second(v, g, betas)
    return move(w, divide(*correct(m, v, s, betas), eps), lr, decay), m, v


def as_steps(part: str, table: dict[str, Function]) -> dict[str, Function]:
    """Make whole wrong answers of other versions of one part."""
    return variants(adamw_step, {message: {part: rule} for message, rule in table.items()})


FIRST = {  # wrong averages of the gradient
    "beta1 and 1 - beta1 are exchanged": lambda m, g, b: (1 - b[0]) * m + b[0] * g,
    "the gradient counts in full, as in SGD's momentum; in an average its share is 1 - beta1":
        lambda m, g, b: b[0] * m + g,
    "the old average counts in full, so m would only grow": lambda m, g, b: m + (1 - b[0]) * g,
    "that is the gradient of this step alone": lambda m, g, b: g,
    "it is still the old average": lambda m, g, b: m,
    "the gradient is subtracted from the average": lambda m, g, b: b[0] * m - (1 - b[0]) * g,
    "that averages squared gradients, which is v's task":
        lambda m, g, b: b[0] * m + (1 - b[0]) * g**2,
    "beta2 stands where beta1 belongs": lambda m, g, b: b[1] * m + (1 - b[1]) * g,
}  # fmt: skip
SECOND = {  # wrong averages of its square
    "beta2 and 1 - beta2 are exchanged": lambda v, g, b: (1 - b[1]) * v + b[1] * g**2,
    "the squared gradient counts in full; in an average its share is 1 - beta2":
        lambda v, g, b: b[1] * v + g**2,
    "the old average counts in full, so v would only grow": lambda v, g, b: v + (1 - b[1]) * g**2,
    "that is the squared gradient of this step alone": lambda v, g, b: g**2,
    "it is still the old average of the squares": lambda v, g, b: v,
    "the gradient isn't squared": lambda v, g, b: b[1] * v + (1 - b[1]) * g,
    "that averages absolute values, not squares": lambda v, g, b: b[1] * v + (1 - b[1]) * g.abs(),
    "the gradient's share is squared with it": lambda v, g, b: b[1] * v + ((1 - b[1]) * g) ** 2,
    "beta1 stands where beta2 belongs": lambda v, g, b: b[0] * v + (1 - b[0]) * g**2,
    "one number for the whole tensor, but each weight has a v of its own":
        lambda v, g, b: b[1] * v + (1 - b[1]) * (g**2).mean(),
}  # fmt: skip
CORRECT = {  # wrong bias corrections
    "there is no bias correction": lambda m, v, s, b: (m, v),
    "only m is corrected, and v is still too small": lambda m, v, s, b: (m / (1 - b[0] ** s), v),
    "only v is corrected, and m is still too small": lambda m, v, s, b: (m, v / (1 - b[1] ** s)),
    "the bias is corrected as if it were the step before; s counts from 1":
        lambda m, v, s, b: corrected(m, v, s - 1, b),
    "the bias is corrected as if it were the next step; s counts from 1":
        lambda m, v, s, b: corrected(m, v, s + 1, b),
    "the bias is corrected as in step 1 in every step: where is the power?":
        lambda m, v, s, b: corrected(m, v, 1, b),
    "beta is multiplied by s, but should be raised to the power s":
        lambda m, v, s, b: (m / (1 - b[0] * s), v / (1 - b[1] * s)),
    "the correction multiplies, which makes small averages even smaller":
        lambda m, v, s, b: (m * (1 - b[0] ** s), v * (1 - b[1] ** s)),
    "the two betas are exchanged in the correction":
        lambda m, v, s, b: corrected(m, v, s, b[::-1]),
    "v is corrected after its root was taken": lambda m, v, s, b: (
        m / (1 - b[0] ** s),
        (v.sqrt() / (1 - b[1] ** s)) ** 2,
    ),
}  # fmt: skip
DIVIDE = {  # wrong quotients
    "eps is inside the root, where it counts far more": lambda m, v, eps: m / (v + eps).sqrt(),
    "eps is missing": lambda m, v, eps: m / v.sqrt(),
    "the root is missing: v has the unit of a square": lambda m, v, eps: m / (v + eps),
    "m is multiplied by the root of v, so large gradients take even larger steps":
        lambda m, v, eps: m * (v.sqrt() + eps),
    "eps is added to the quotient: are parentheses missing?": lambda m, v, eps: m / v.sqrt() + eps,
    "m isn't divided by anything, as in SGD": lambda m, v, eps: m,
    "the step has the direction of the gradient and no size: is m divided by its own?":
        lambda m, v, eps: m.sign(),
}  # fmt: skip
MOVE = {  # wrong steps
    "goes up the gradient: the step has the wrong sign":
        lambda w, u, lr, decay: (1 - lr * decay) * w + lr * u,
    "the step isn't multiplied by lr": lambda w, u, lr, decay: (1 - lr * decay) * w - u,
    "the decay isn't multiplied by lr": lambda w, u, lr, decay: (1 - decay) * w - lr * u,
    "the decay is multiplied by lr twice": lambda w, u, lr, decay: w - lr * (u + lr * decay * w),
    "the decay pulls away from 0: it has the wrong sign":
        lambda w, u, lr, decay: (1 + lr * decay) * w - lr * u,
    "there is no weight decay": lambda w, u, lr, decay: w - lr * u,
    "the weights decay after the step, so that the step shrinks, too":
        lambda w, u, lr, decay: (1 - lr * decay) * (w - lr * u),
    "that is only the change of the weights": lambda w, u, lr, decay: -lr * u - lr * decay * w,
    "the weights only decay, and no step is taken": lambda w, u, lr, decay: (1 - lr * decay) * w,
}  # fmt: skip


# Whole wrong answers

STEP: Function = adamw_step  # takes any arguments


def l2(w: Tensor, g: Tensor, m: Tensor, v: Tensor, *rest: Any) -> Any:
    """Add the decay to the gradient."""
    return STEP(w, g + rest[-1] * w, m, v, *rest[:-1], 0.0)


def decay_divided(w: Tensor, g: Tensor, m: Tensor, v: Tensor, *rest: Any) -> Any:
    """Add the decay to the corrected average, before the division."""
    decay = rest[-1]

    def divide(m: Tensor, v: Tensor, eps: float) -> Tensor:
        return quotient(m + decay * w, v, eps)

    return STEP(w, g, m, v, *rest[:-1], 0.0, divide=divide)


def betas_exchanged(*args: Any) -> Any:
    """Use each beta where the other belongs."""
    *before, betas, eps, decay = args
    return STEP(*before, betas[::-1], eps, decay)


def square_of_m(w: Tensor, g: Tensor, m: Tensor, v: Tensor, s: int, *rest: Any) -> Any:
    """Average the square of the new m instead of the gradient's."""
    mean = new_m(m, g, rest[1])
    return STEP(w, g, m, v, s, *rest, second=lambda v, g, betas: new_v(v, mean, betas))


def step_along_g(w: Tensor, g: Tensor, *rest: Any) -> Any:
    """Divide the gradient itself."""
    return STEP(w, g, *rest, correct=lambda *averages: (g, corrected(*averages)[1]))


def step_along_old_m(*args: Any) -> Any:
    """Divide the average of the step before."""
    old = args[2]
    return STEP(*args, correct=lambda m, v, s, betas: corrected(old, v, s, betas))


def step_by_old_v(*args: Any) -> Any:
    """Divide by the average of the step before."""
    old = args[3]
    return STEP(*args, correct=lambda m, v, s, betas: corrected(m, old, s, betas))


def eps_corrected(*args: Any) -> Any:
    """Add eps before the root is corrected."""
    s, (_, beta2) = args[4], args[6]
    share = (1 - beta2**s) ** 0.5
    return STEP(*args, divide=lambda m, v, eps: m / (v.sqrt() + eps / share))


def giving(change: Function, *args: Any) -> Any:
    """Take the right step and give something else.

    change: (the right results, the arguments) -> what is given
    """
    return change(STEP(*args), args)


def corrected_averages(right: Any, args: Arguments) -> Any:
    """Return the averages after their correction."""
    w, m, v = right
    return w, *corrected(m, v, args[4], args[6])


WHOLE: dict[str, Function] = {
    "the decay is added to the gradient (L2), so it is averaged and divided with it": l2,
    "the decay is divided by the size of the gradient, too, so it isn't decoupled": decay_divided,
    "beta1 and beta2 are exchanged": betas_exchanged,
    "that averages the square of m, but v is about the gradient": square_of_m,
    "the step follows the gradient of this step, and m isn't used": step_along_g,
    "the step follows the old m: update it first": step_along_old_m,
    "the step divides by the root of the old v: update it first": step_by_old_v,
    "eps is added before the correction, which enlarges it": eps_corrected,
    "m and v are exchanged in what is returned":
        partial(giving, lambda right, args: (right[0], right[2], right[1])),
    "the weights are returned last, but should be first":
        partial(giving, lambda right, args: (right[1], right[2], right[0])),
    "the corrected averages are returned, and would be corrected again in the next step":
        partial(giving, corrected_averages),
    "the step is right, but the old m is returned":
        partial(giving, lambda right, args: (right[0], args[2], right[2])),
    "the step is right, but the old v is returned":
        partial(giving, lambda right, args: (right[0], right[1], args[3])),
}  # fmt: skip


def step_of(s: int, lr: float, betas: Betas, eps: float, decay: float) -> Case:
    """Make a case: step s, of random weights and gradients. In the first, both averages are 0."""

    def draw() -> Arguments:
        w, g, m = torch.randn(3, 3, 5)
        v = 0.1 + torch.rand(3, 5)
        old = (0 * m, 0 * v) if s == 1 else (m, v)
        return w, g, *old, s, lr, tuple(betas), eps, decay

    return Case(draw)


LATER = step_of(3, 0.1, (0.9, 0.99), 0.05, 0.5)
ADAMW_STEP = Exercise(
    name="adamw_step",
    reference=adamw_step,
    outcome=Outcome(returns=("w", "m", "v"), compared=("m", "v", "w")),
    wording=Wording(
        when=lambda *args: f"in step {args[4]}",
        unknown={
            "m": "it should be a running average of the gradient, which begins at 0",
            "v": "it should be a running average of the squared gradient, which begins at 0",
            "w": "m and v are right, so look at the correction, the division and the decay",
        },
    ),
    contract=Contract(case=LATER, differentiable=False),
    ideas={
        "the first step, from averages of 0": [
            step_of(1, 0.1, (0.9, 0.99), 0.05, 0.5),
            step_of(1, 0.3, (0.8, 0.95), 0.2, 0.2),
        ],
        "later steps, in which earlier gradients count": [
            LATER,
            step_of(2, 0.3, (0.8, 0.95), 0.2, 0.2),
            step_of(20, 0.2, (0.95, 0.98), 0.1, 0.4),
        ],
        "right with the usual settings and without decay, and nothing is kept or overwritten": [
            step_of(5, 0.1, (0.9, 0.999), 1e-8, 0.1),
            step_of(4, 0.1, (0.9, 0.99), 0.05, 0.0),
            expect_contract,
        ],
    },
    mistakes=as_steps("first", FIRST)
    | as_steps("second", SECOND)
    | as_steps("correct", CORRECT)
    | as_steps("divide", DIVIDE)
    | as_steps("move", MOVE)
    | WHOLE,
)
check_adamw_step = ADAMW_STEP.check
