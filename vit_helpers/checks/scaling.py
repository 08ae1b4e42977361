"""The exercises of notebook 11: the largest batch, and days.

Costs are in scaling_costs.py, gradients in scaling_steps.py.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from vit_helpers.checks.engine.exercise import Case, Exercise, Outcome, Wording, cases
from vit_helpers.checks.engine.report import Function, variants
from vit_helpers.checks.scaling_costs import (  # noqa: F401
    AVERAGED,
    B16,
    BLOCK,
    KEYS,
    L16,
    S16,
    SMALL,
    TIMES,
    check_block_multiply_adds,
    check_times_more,
    cost,
    named,
    unless_first,
)
from vit_helpers.checks.scaling_steps import ACCUMULATE, COMBINE, check_accumulate, check_combine  # noqa: F401
from vit_helpers.scaling import parameters, training_bytes, training_multiply_adds
from vit_helpers.vit import ViTConfig

# The largest batch


def fit(
    config: ViTConfig,
    gibibytes: float,
    *,
    copies: float = 4,
    each: float = 0,
    unit: float = 2**30,
    count: Function = math.floor,
    fused: bool = True,
) -> int:
    """Return how many images fit.

    copies: numbers a parameter that are there once; each: those counted for every image
    """
    needs = training_bytes(config, 1, fused=fused)
    room = gibibytes * unit - copies * needs["weights"]
    return max(0, count(room / (needs["activations"] + each * needs["weights"])))


def to_the_byte(config: ViTConfig, batch: int) -> list[Case]:
    """Make two cases: exactly the memory that a batch needs, and a byte less."""
    room, H = sum(training_bytes(config, batch).values()), f"for {named(config)} and "
    return [
        Case(
            partial(tuple, (config, bytes_ / 2**30)),
            f"{H}{bytes_ / 2**30:.6g} GiB, {message} a batch of {batch} needs",
        )
        for bytes_, message in ((room, "exactly what"), (room - 1, "a byte less than"))
    ]


def other_batch(got: float, right: int, config: ViTConfig, gibibytes: float) -> str:
    """Write the message about a number that no known mistake gives."""
    if not right:
        return "not even one image fits beside the weights, so the answer is 0"
    message = "subtract what is stored once, then divide by what one image needs"
    return unless_first((B16, 24), fit, message)(got, right, config, gibibytes)


NEEDS: dict[str, dict[str, Any]] = {  # what is counted in another way
    "uses GB of 10^9 bytes instead of GiB of 2**30 bytes": {"unit": 1e9},
    "one too few: a batch that needs exactly the memory there is still fits, so compare with <=": {
        "count": lambda x: math.ceil(x) - 1
    },
    "one too many: is it rounded up?": {"count": math.ceil},
    "one too many: does a loop stop one too late?": {"count": lambda x: math.floor(x) + 1},
    "one too many where it is rounded to the nearest number: round down": {"count": round},
    "that is rounded down to a power of two, but the largest batch is wanted": {
        "count": lambda x: 2 ** math.floor(math.log2(max(x, 1)))
    },
    "that is for fused=False, where attention stores its weights: leave the default": {
        "fused": False
    },
    "multiplied by 4, but training_bytes already counts bytes": {"unit": 2**28},
    "only the activations are counted, but weights, gradients and optimizer take memory too": {
        "copies": 0
    },
    **{
        f"only {n} of the four numbers per parameter count: weight, gradient, and two of AdamW's": {
            "copies": n
        }
        for n in (1, 2, 3)
    },
    **{
        f"{n} of the four numbers per parameter count for every image, "
        "but they are stored only once": {"copies": 4 - n, "each": n}
        for n in (1, 2, 3)
    },
    "all four numbers per parameter count for every image, but they are stored only once": {
        "copies": 0,
        "each": 4,
    },
}
BATCH = Exercise(
    name="largest_batch",
    reference=fit,
    wording=Wording(
        when=lambda config, gibibytes: f"for {named(config)} and {gibibytes:.6g} GiB",
        says="gives {got:,} {when}; it should give {right:,}: {message}",
        kind="a whole number of images, by // or math.floor",
        unknown=other_batch,
        hints=KEYS,
    ),
    ideas={
        "weights, gradients and optimizer once, activations for each image": cases(
            (B16, 24), (S16, 8), (L16, 40), (SMALL, 0.5), (AVERAGED, 0.25)
        ),
        "0 where not even one image fits": cases((L16, 4), (B16, 1), (B16, 1.35)),
        "what fits to the last byte fits, and with one byte less it does not": [
            case
            for config, batch in ((B16, 3), (S16, 10), (SMALL, 1), (SMALL, 0))
            for case in to_the_byte(config, batch)
        ],
    },
    mistakes=variants(fit, NEEDS),
)
check_largest_batch = BATCH.check


# Days


def days(
    config: ViTConfig,
    images: int,
    epochs: int,
    peak: float,
    share: float,
    factor: Function = lambda *args: 1,
) -> float:
    """Give the right answer, times something that depends on the arguments."""
    flops = 2 * images * epochs * cost(config, training_multiply_adds)
    return factor(config, images, epochs, peak, share) * flops / (peak * share) / 86400


def every_token(c: ViTConfig) -> float:
    """Return the share of all multiply-adds that parameters times tokens are."""
    return cost(c, parameters) * c.num_tokens / cost(c)


FACTORS: Mapping[str, Function] = {  # by which wrong days differ from the right ones
    "divides multiply-adds by a peak in FLOPs, but a multiply-add is 2 FLOPs": lambda *_: 1 / 2,
    "twice too long: count the 2 FLOPs of a multiply-add only once": lambda *_: 2,
    "only the forward pass is counted, but the backward pass costs about twice as much again":
        lambda *_: 1 / 3,
    "only the forward pass is counted, and a multiply-add counts as one FLOP": lambda *_: 1 / 6,
    "only the backward pass is counted: add the forward pass": lambda *_: 2 / 3,
    "three times too long: training_multiply_adds already includes the backward pass": lambda *_: 3,
    "the share of the peak is left out, but no training reaches the peak":
        lambda c, images, epochs, peak, share: share,
    "multiplied by the share: divide by it, because a slower GPU takes longer":
        lambda c, images, epochs, peak, share: share**2,
    "that is for one epoch": lambda c, images, epochs, *_: 1 / epochs,
    "that is for one image in each epoch": lambda c, images, *_: 1 / images,
    "that is for one token in each image": lambda c, *_: 1 / c.num_tokens,
    "parameters are counted, but each weight is used once for every token":
        lambda c, *_: every_token(c) / c.num_tokens,
    "parameters times tokens leaves out scores and mixing": lambda c, *_: every_token(c),
    "that is in seconds": lambda *_: 86400,
    "that is in minutes": lambda *_: 1440,
    "that is in hours": lambda *_: 24,
    "60 times too long: a day has 24 * 60 * 60 seconds": lambda *_: 60,
    "3,600 times too long: a day has 24 * 60 * 60 seconds": lambda *_: 3600,
    "60 times too short: a day has 24 * 60 * 60 seconds": lambda *_: 1 / 60,
    "24 times too short: a day has 24 * 60 * 60 seconds": lambda *_: 1 / 24,
    "upside down: divide the FLOPs by those that the GPU reaches in a day":
        lambda *args: days(*args) ** -2,
}  # fmt: skip
DAYS = Exercise(
    name="training_days",
    reference=days,
    outcome=Outcome(
        # attention that stores its weights costs a little less than fused; both are right
        rtol=0.02,
    ),
    wording=Wording(
        when=lambda config, images, epochs, peak, share: (
            f"for {images:,} images, {epochs} epochs, "
            f"{share:g} of {peak:.3g} FLOPs per second, and {named(config)}"
        ),
        says="gives {got:,.5g} {when}; it should give {right:,.5g}: {message}",
        kind="a number of days",
        unknown=unless_first(
            (B16, 1_281_167, 300, 989e12, 0.45),
            days,
            "divide the FLOPs of all images and epochs by those that the GPU reaches in a day",
        ),
        hints=KEYS,
    ),
    ideas={
        "B/16 on ImageNet-1k, 300 epochs": cases((B16, 1_281_167, 300, 989e12, 0.45)),
        "other data, another GPU, another share of its peak": cases(
            (B16, 1_281_167, 90, 312e12, 0.3),
            (B16, 14_000_000, 7, 989e12, 0.55),
            (B16, 60_000, 1, 15e12, 1.0),
        ),
        "other models": cases(
            *(
                (config, 1_281_167, 30, 989e12, 0.35)
                for config in (S16, L16, replace(B16, image_size=384))
            )
        ),
    },
    mistakes={message: partial(days, factor=factor) for message, factor in FACTORS.items()},
)
check_training_days = DAYS.check
