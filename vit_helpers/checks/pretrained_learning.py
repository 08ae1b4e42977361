"""The exercises of notebook 09 about learning.

They are LoRA, a rate for each layer, and the loss of a masked autoencoder.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vit_helpers.checks.engine.compare import same
from vit_helpers.checks.engine.contract import expect_contract, expect_gradients
from vit_helpers.checks.engine.exercise import (
    Arguments,
    Case,
    Contract,
    Exercise,
    Outcome,
    Wording,
    cases,
)
from vit_helpers.checks.engine.learning import as_list, as_number
from vit_helpers.checks.engine.report import Function, reject_if, short

# LoRA


def lora(rule: Function) -> Function:
    """Make an answer of a rule: (W x, bias, B A x, scale) -> the result.

    What is frozen needs no gradient.
    """
    return lambda x, W, b, A, B, scale: rule(x @ W.detach().T, b.detach(), (x @ A.T) @ B.T, scale)


def maps(shape: Sequence[int], m: int, r: int, scale: float, zero: bool = False) -> Case:
    """Make numbers for x of this shape, W (m, n), b, A (r, n), B (m, r), and the scale."""
    n = shape[-1]

    def draw() -> Arguments:
        x, W, b, A, B = (torch.randn(size) for size in (shape, (m, n), (m,), (r, n), (m, r)))
        return x, W, b, A, torch.zeros(m, r) if zero else B, scale

    message = f"for x {shape}, W ({m}, {n}), A ({r}, {n}), B ({m}, {r})" + (
        ", B = 0" if zero else f", scale {scale}"
    )
    return Case(draw, message)


class Sizes(TorchDispatchMode):
    """Notes every tensor of as many numbers as W that is computed meanwhile."""

    def __init__(self, numbers: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = numbers
        self.large: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        got = func(*args, **(kwargs or {}))
        if isinstance(got, Tensor) and got.numel() == self.numbers:
            self.large.append(got.detach().clone())
        return got


def thin(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake if B A is computed, alone or with W added: a matrix as large as W."""
    m, n = 24, 20
    x, W, b, A, B, scale = maps((3, n), m, 2, 0.5).draw()
    with Sizes(m * n) as sizes:
        answer(x, W, b, A, B, scale)
    known = torch.stack([W.flatten(), (B @ A).flatten()], dim=1)
    message = (
        f"computes B A, a matrix of {m} x {n} numbers like W; "
        "multiply x by A first, then the result by B"
    )
    for large in sizes.large:
        large = large.squeeze()
        for matrix in (large, large.mT) if large.ndim == 2 else ():
            wanted = matrix.reshape(-1, 1)
            parts = torch.linalg.lstsq(known, wanted).solution
            made = same(known @ parts, wanted, atol=1e-4) and parts[1].abs() > 1e-3
            reject_if(tuple(matrix.shape) == (m, n) and made, message)


LORA_MISTAKES: dict[str, Function] = {
    "forgets the bias": lora(lambda y, b, thin, s: y + s * thin),
    "forgets the bias and the low-rank term": lora(lambda y, b, thin, s: y),
    "leaves out the low-rank term": lora(lambda y, b, thin, s: y + b),
    "forgets the scale": lora(lambda y, b, thin, s: y + b + thin),
    "scales the whole result, but only the low-rank term is scaled":
        lora(lambda y, b, thin, s: s * (y + b + thin)),
    "scales the frozen layer instead of the low-rank term":
        lora(lambda y, b, thin, s: s * (y + b) + thin),
    "divides by the scale": lora(lambda y, b, thin, s: y + b + thin / s),
    "leaves out the frozen layer, but LoRA adds to its output":
        lora(lambda y, b, thin, s: s * thin),
    "leaves out W x": lora(lambda y, b, thin, s: s * thin + b),
    "adds the bias twice": lora(lambda y, b, thin, s: y + 2 * b + s * thin),
    "scales the bias too": lora(lambda y, b, thin, s: y + s * (thin + b)),
    "subtracts the low-rank term": lora(lambda y, b, thin, s: y + b - s * thin),
    "multiplies the frozen layer by 1 - scale, but LoRA adds to its whole output":
        lora(lambda y, b, thin, s: (1 - s) * (y + b) + s * thin),
}  # fmt: skip
LORA = Exercise(
    name="lora",
    reference=lora(lambda y, b, thin, s: y + b + s * thin),
    wording=Wording(
        says="{when}: {message}",
        unknown="the result is not W x + b + scale B A x",
        hints={
            "shapes cannot be multiplied": "Each token is a row of x, so W and A multiply x from "
            "the right, transposed, and then B what A gives",
            "Expected size for first two dimensions": "x may have more than two axes, of which "
            ".T turns all around. Multiply by W, A and B from the right, transposed",
        },
    ),
    contract=Contract(case=maps((5, 6), 4, 2, 0.5)),
    ideas={
        "with B = 0, the output of the frozen layer": [maps((5, 6), 4, 2, 1.0, zero=True)],
        "the low-rank term, scaled and added": [
            *(
                maps(*sizes)
                for sizes in [
                    ((5, 6), 4, 2, 0.5),
                    ((2, 3, 8), 24, 1, 2.0),
                    ((4, 4), 4, 4, 3.0),
                    ((1, 5, 6), 4, 2, 0.5),
                    ((7,), 3, 2, -1.5),
                ]
            ),
            thin,
        ],
        "gradients for A and B": [expect_contract],
    },
    mistakes=LORA_MISTAKES,
)
check_lora = LORA.check


# Rates by layer


def layers(rule: Function) -> Function:
    """Make an answer of a rule for one layer.

    rule: (lr, decay, how many layers below the head, depth) -> the rate
    """
    return lambda lr, decay, depth: [
        rule(lr, decay, depth + 1 - i, depth) for i in range(depth + 2)
    ]


def listed(answer: Function, lr: float, decay: float, depth: int) -> dict[str, list[Any]]:
    """Return the rates as numbers; Mistake unless there is one for each layer."""
    when, kind = f"for lr {lr}, decay {decay}, {depth} blocks", f"{depth + 2} learning rates"
    got = as_list(answer(lr, decay, depth), when, kind)
    got = [as_number(rate, when) for rate in got]
    message = f"gives rates for the blocks only {when}; the embedding and the head have rates too"
    reject_if(len(got) == depth, message)
    reject_if(
        len(got) != depth + 2,
        f"gives {len(got)} rates {when}; embedding, {depth} blocks and head make {depth + 2}",
    )
    return {"rates": got}


def other_rates(got: list[Any], right: list[Any], *args: Any) -> str:
    """Write the message about rates that no known mistake gives."""
    rates, wanted = (", ".join(f"{x:.4g}" for x in row) for row in (got, right))
    return f"gives {rates}; it should give {wanted}"


RATES_MISTAKES: dict[str, Function] = (
    {
        message: layers(rule) for message, rule in {
            "runs the wrong way: the head should learn fastest":
                lambda lr, decay, n, depth: lr * decay ** (depth + 1 - n),
            "decays the head too, but the head should have the full rate":
                lambda lr, decay, n, depth: lr * decay ** (n + 1),
            "stops one layer short: the embedding is decayed depth + 1 times":
                lambda lr, decay, n, depth: lr * decay ** max(n - 1, 0),
            "divides by decay where it should multiply": lambda lr, decay, n, depth: lr / decay**n,
            "gives the head more than lr: its exponent is 0, and the embedding's is depth + 1":
                lambda lr, decay, n, depth: lr * decay ** (n - 1),
            "falls by equal steps, but each layer has decay times the rate of the one above":
                lambda lr, decay, n, depth: lr * (1 - (1 - decay) * n),
            "gives all layers the same rate": lambda lr, decay, n, depth: lr,
            "leaves out lr": lambda lr, decay, n, depth: decay**n,
            "decays only once for all layers below the head":
                lambda lr, decay, n, depth: lr * decay ** min(n, 1),
        }.items()
    }
)  # fmt: skip
RATES = Exercise(
    name="rates",
    reference=layers(lambda lr, decay, n, depth: lr * decay**n),
    outcome=Outcome(observe=listed),
    wording=Wording(
        when="for lr {}, decay {}, {} blocks".format,
        says="{when}: {message}",
        unknown=other_rates,
    ),
    ideas={
        "one rate for the embedding, for each block, and for the head": [
            lambda exercise, answer: exercise.try_form(answer, (1.0, 0.5, 3))
        ],
        "the head at the full rate, each layer below it slower by the same factor": cases(
            (1.0, 0.5, 2), (3e-3, 0.75, 4), (0.1, 0.9, 12)
        ),
        "a decay of 1 leaves all alike": cases((2e-3, 1.0, 3)),
    },
    mistakes=RATES_MISTAKES,
)
check_rates = RATES.check


# The loss of a masked autoencoder


def taken(x: Tensor, hidden: Tensor) -> Tensor:
    """Return the hidden patches of each image, in the order of its list."""
    return x[torch.arange(len(x))[:, None], hidden]


def laid(p: Tensor, on: Tensor, hidden: Tensor) -> Tensor:
    """Return predicted patches at their places."""
    return on.scatter(1, hidden[:, :, None].expand(-1, -1, on.shape[2]), p)


def masked(B: int, N: int, M: int, painted: bool = False) -> Case:
    """Make predictions, patches, numbers of the hidden ones; painted: predicted exactly."""

    def draw() -> Arguments:
        x, hidden = torch.randn(B, N, 4), torch.stack([torch.randperm(N)[:M] for _ in range(B)])
        return taken(x, hidden) if painted else torch.randn(B, M, 4), x, hidden

    return Case(draw, "for patches predicted exactly" if painted else "")


def for_images(p: Tensor, x: Tensor, hidden: Tensor) -> str:
    """Write the arguments in words."""
    return f"for {len(x)} images of {x.shape[1]} patches, of which {hidden.shape[1]} are hidden"


def back_to_painted(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless the gradient reaches the predictions."""
    args = masked(3, 6, 4).draw()
    got = answer(*args)
    reject_if(
        not isinstance(got, Tensor),
        f"gives {short(got)}, which passes no gradient on: leave out .item()",
    )
    expect_gradients(exercise, answer, args)


MASKED_MISTAKES: dict[str, Function] = {
    "compares the first patches, whichever are hidden":
        lambda p, x, h: F.mse_loss(p, x[:, : h.shape[1]]),
    "uses the first image's list for all images, but each hides patches of its own":
        lambda p, x, h: F.mse_loss(p, x[:, h[0]]),
    "takes all patches from the first image: index images and patches together":
        lambda p, x, h: F.mse_loss(p, x[0][h]),
    "compares with the hidden patches in the order of the image, "
    "but predictions come in the order of `hidden`":
        lambda p, x, h: F.mse_loss(p, taken(x, h.sort(dim=1).values)),
    "picks one pixel of each patch: expand the index for gather to the width of a patch":
        lambda p, x, h: (p - x.gather(1, h[:, :, None])).square().mean(),
    "applies every image's list to every image with patches[:, hidden]: "
    "index images and patches together":
        lambda p, x, h: (p - x[:, h]).square().mean(),
    "divides by the patches of one image, though it sums over all images":
        lambda p, x, h: (p - taken(x, h)).square().sum() / p[0].numel(),
    "divides by all patches, though only the hidden ones count":
        lambda p, x, h: F.mse_loss(laid(p, x, h), x),
    "counts the visible patches as wrong, but they are not predicted":
        lambda p, x, h: F.mse_loss(laid(p, torch.zeros_like(x), h), x),
    "gives the sum instead of the mean, so that the loss depends on the size of the batch":
        lambda p, x, h: (p - taken(x, h)).square().sum(),
    "sums over the pixels of a patch, and takes the mean of that":
        lambda p, x, h: (p - taken(x, h)).square().sum(dim=2).mean(),
    "sums over patches and pixels, and takes the mean over images":
        lambda p, x, h: (p - taken(x, h)).square().sum() / len(p),
    "takes the square root of the mean": lambda p, x, h: F.mse_loss(p, taken(x, h)).sqrt(),
    "takes absolute differences instead of squares": lambda p, x, h: F.l1_loss(p, taken(x, h)),
    "averages the differences without squaring them, so that too bright and too dark cancel":
        lambda p, x, h: (p - taken(x, h)).mean(),
    "halves the loss": lambda p, x, h: F.mse_loss(p, taken(x, h)) / 2,
    "is too large by the ratio of all patches to the hidden ones":
        lambda p, x, h: F.mse_loss(p, taken(x, h)) * x.shape[1] / h.shape[1],
}  # fmt: skip
MASKED = Exercise(
    name="masked_loss",
    reference=lambda p, x, h: (p - taken(x.detach(), h)).square().mean(),
    outcome=Outcome(
        observe=lambda answer, *args: {"": as_number(answer(*args), for_images(*args))},
    ),
    wording=Wording(
        when=for_images,
        says="{when}: {message}",
        unknown=lambda got, right, *args: f"gives {got:.4f}; it should give {right:.4f}",
        hints={
            "out of bounds for dimension 0": "The first axis of patches is the image: "
            "index images and patches together",
            "indexing tensors could not be broadcast": "The numbers of the images must be a "
            "column, (B, 1), to go with `hidden`, (B, |M|)",
        },
    ),
    ideas={
        "0 when every hidden patch is predicted exactly": [masked(3, 6, 4, painted=True)],
        "the mean square on hidden patches, each image by its own list": [
            masked(*sizes) for sizes in [(3, 6, 4), (3, 6, 1), (2, 9, 6), (1, 5, 3)]
        ],
        "the gradient that goes with it": [back_to_painted, expect_contract],
    },
    mistakes=MASKED_MISTAKES,
)
check_masked_loss = MASKED.check
