"""The exercises of notebook 09 about weights and pixels.

Those about learning are in pretrained_learning.py.
"""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers.checks.engine.compare import expect_tensor, same
from vit_helpers.checks.engine.exercise import Arguments, Case, Exercise, Outcome, Wording
from vit_helpers.checks.engine.learning import result
from vit_helpers.checks.engine.report import Function, reject_if, short, variants
from vit_helpers.checks.pretrained_learning import (  # noqa: F401
    LORA,
    MASKED,
    RATES,
    check_lora,
    check_masked_loss,
    check_rates,
)
from vit_helpers.parity import perturb
from vit_helpers.vit import ViT, ViTConfig

# Google's convolution


def other_order(got: Tensor, right: Tensor, kernel: Tensor) -> str:
    """Write the message about a weight that no known mistake gives."""
    if same(got.flatten().sort().values, right.flatten().sort().values, atol=1e-4):
        return "the shape is right, but the numbers are in another order"
    return "the numbers are not the kernel's"


def kernels(*shapes: Sequence[int]) -> list[Case]:
    """Make a kernel of each shape (P, P, C, D)."""
    return [Case(partial(lambda shape: (torch.randn(shape),), shape)) for shape in shapes]


KERNEL_MISTAKES: dict[str, Function] = {
    "reshapes without moving axes, "
    "but reshape keeps the numbers in their old order: permute first":
        lambda k: k.reshape(k.shape[3], -1),
    "flattens each filter pixel by pixel, "
    "but our patches are flattened channel by channel: (C, P, P)":
        lambda k: k.flatten(0, 2).T,
    "swaps rows and columns: the first axis of the kernel is the row":
        lambda k: k.permute(3, 2, 1, 0).flatten(1),
    "flatten each filter to a row, (D, C*P*P)": lambda k: k.permute(3, 2, 0, 1),
    "the outputs come first": lambda k: k.permute(3, 2, 0, 1).flatten(1).T,
}  # fmt: skip
KERNEL = Exercise(
    name="kernel_of",
    reference=lambda k: k.permute(3, 2, 0, 1).flatten(1),
    outcome=Outcome(observe=result),
    wording=Wording(
        when=lambda k: f"for a kernel of shape {tuple(k.shape)}",
        says="{when}: {message}",
        unknown=other_order,
    ),
    ideas={
        "outputs first, and each filter in one row": kernels((2, 2, 1, 5)),
        "each filter channel by channel, as patches are flattened": kernels(
            (2, 2, 3, 5), (2, 2, 5, 1)
        ),
        "rows before columns": kernels((4, 4, 3, 7), (1, 1, 3, 4)),
    },
    mistakes=KERNEL_MISTAKES,
)
check_kernel = check_kernel_of = KERNEL.check


# Preprocessing


def middle(image: Tensor, side: int) -> tuple[int, int]:
    """Return row and column where the middle square begins."""
    return (image.shape[1] - side) // 2, (image.shape[2] - side) // 2


def middle_below(image: Tensor, side: int) -> tuple[int, int]:
    """Return the same, rounded up where a difference is odd."""
    return (image.shape[1] - side + 1) // 2, (image.shape[2] - side + 1) // 2


def see(
    image: Tensor,
    side: int,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    normalize: Function = lambda part, m, s: (part - m) / s,
    corner: Function = middle,
    scale: Function = lambda part, image: None,
) -> Tensor:
    """Give the right answer.

    A mistake is something else with the part, where it begins, or in place of mean and std.
    """
    top, left = corner(image, side)
    part = image[:, top : top + side, left : left + side]
    m, s = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return normalize(part, *(scale(part, image) or (m, s)))


def own(part: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each channel."""
    return part.mean(dim=(1, 2), keepdim=True), part.std(dim=(1, 2), keepdim=True)


def pictures(
    sizes: Sequence[Sequence[int]], side: int, mean: Sequence[float], std: Sequence[float]
) -> list[Case]:
    """Make images of these shapes."""
    return [Case(partial(lambda size: (torch.rand(size), side, mean, std), size)) for size in sizes]


ODD = [(3, 9, 11), (3, 8, 7), (3, 5, 12), (3, 15, 10)]  # differences from a side of 4
CENTERS: list[Function] = [  # where a difference of sides is odd, two squares are in the middle
    middle_below,
    lambda image, side: (middle(image, side)[0], middle_below(image, side)[1]),
    lambda image, side: (middle_below(image, side)[0], middle(image, side)[1]),
]
COLORS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SEE_MISTAKES: dict[str, Function] = (
    variants(see, {
        "crops the upper left corner instead of the center": {"corner": lambda *_: (0, 0)},
        "crops the lower right corner instead of the center":
            {"corner": lambda x, side: (x.shape[1] - side, x.shape[2] - side)},
        "computes the left edge from the height and the top edge from the width":
            {"corner": lambda x, side: middle(x, side)[::-1]},
        "does not normalize": {"normalize": lambda part, *_: part},
        "does not normalize, and crops the corner":
            {"normalize": lambda part, *_: part, "corner": lambda *_: (0, 0)},
        "multiplies by std instead of dividing by it":
            {"normalize": lambda part, m, s: (part - m) * s},
        "divides by std before it subtracts the mean":
            {"normalize": lambda part, m, s: part / s - m},
        "adds the mean instead of subtracting it": {"normalize": lambda part, m, s: (part + m) / s},
        "swaps mean and std": {"normalize": lambda part, m, s: (part - s) / m},
        "multiplies the pixels by 255, but mean and std are those of pixels from 0 to 1":
            {"normalize": lambda part, m, s: (part * 255 - m) / s},
        "does not divide by std": {"normalize": lambda part, m, s: part - m},
        "divides by the square of std": {"normalize": lambda part, m, s: (part - m) / s**2},
        "mirrors the image": {"normalize": lambda part, m, s: ((part - m) / s).flip(2)},
        "uses the crop's own mean and std, "
        "so that a dark image looks like a bright one, unlike in training":
            {"scale": lambda part, image: own(part)},
        "uses the whole image's own mean and std, so that a dark image looks like a bright one":
            {"scale": lambda part, image: own(image)},
        "uses the first channel's mean and std for all channels":
            {"normalize": lambda part, m, s: (part - m[0]) / s[0]},
    }) | {
        "one image is (C, H, W), without a batch axis": lambda *args: see(*args)[None],
    }
)  # fmt: skip
SEE = Exercise(
    name="see",
    reference=see,
    outcome=Outcome(
        observe=result,
        also=[partial(see, corner=corner) for corner in CENTERS],
    ),
    wording=Wording(
        when=lambda image, side, mean, std: (
            f"for an image {tuple(image.shape)} and a side of {side}"
        ),
        says="{when}: {message}",
        unknown="the numbers are not those of the center crop, minus mean, divided by std",
        hints={"must match the size": "mean and std are (C,): give them the shape (C, 1, 1)"},
    ),
    ideas={
        "the center square of a wide and of a tall image": pictures(
            [(3, 8, 10), (3, 8, 14), (3, 12, 6), (3, 4, 4), *ODD], 4, (0.5,) * 3, (0.5,) * 3
        )
        + pictures([(3, 10, 8), (3, 7, 12)], 5, (0.5,) * 3, (0.5,) * 3),
        "each channel by its mean and standard deviation": pictures([(3, 10, 6)], 6, *COLORS)
        + pictures([(3, 7, 9)], 3, *COLORS),
        "one channel, and the input stays unchanged": pictures([(1, 6, 8)], 4, (0.3,), (0.2,)),
    },
    mistakes=SEE_MISTAKES,
)
check_see = SEE.check


# A linear probe


def with_zeros(model: ViT, K: int) -> nn.Module:
    """Give the right answer."""
    model.requires_grad_(False)
    model.head = nn.Linear(model.config.embed_dim, K)
    for p in model.head.parameters():
        nn.init.zeros_(p)
    return model


def a_vit(K: int, part: str) -> Case:
    """Make a trained ViT, the number of new classes, images, and what is compared."""

    def draw() -> Arguments:
        model = ViT(ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=10))
        perturb(model, std=0.2)
        return model.eval(), K, torch.randn(5, 1, 8, 8), part

    return Case(draw)


def probed(answer: Function, start: ViT, K: int, images: Tensor, part: str) -> dict[str, Any]:
    """Observe True for what is compared.

    raises: Mistake where the new model computes, starts or learns wrongly
    """
    got = answer(copy.deepcopy(start), K)
    message = (
        "returns nothing: does it end with return? Return the model even if you changed it in place"
    )
    reject_if(got is None, message)
    reject_if(not isinstance(got, nn.Module), f"gives {short(got)}; it should give a model")
    reject_if(isinstance(got, nn.Linear), "gives the head alone; it should give the whole model")
    if part == "features":
        reject_if(
            not hasattr(got, "forward_features"),
            "gives another kind of model; keep the ViT and change its head",
        )
        unchanged = same(got.eval().forward_features(images), start.forward_features(images))
        differ = "gives different features from before; only the head should be new"
        reject_if(not unchanged, differ)
        return {part: True}
    logits = got(images)
    if part == "logits":
        reject_if(
            tuple(logits.shape) == (5, 10),
            f"still has the 10 classes of the old task; expected {K}",
        )
        expect_tensor(logits, (5, K), f"for 5 images and {K} classes")
        random, biased = logits.abs().max() > 1e-6, same(logits, logits[:1].expand(5, K))
        reject_if(
            random and biased,
            "starts with a head whose bias is not zero; weight and bias should be",
        )
        message = (
            "the paper starts fine-tuning from zeros (section 3.2), so that the first loss is ln K"
        )
        reject_if(random, f"starts with a head that is not zero, but {message}")
    else:
        expect_head_alone(got, logits)
    return {part: True}


def expect_head_alone(model: nn.Module, logits: Tensor) -> None:
    """Raise Mistake unless the head learns, and nothing else."""
    learns = {name: p.requires_grad for name, p in model.named_parameters()}
    body, head = (
        [n for n in learns if n.startswith("head.") == of_head] for of_head in (False, True)
    )
    reject_if(
        not any(learns.values()),
        "freezes everything, the new head too, but its weight and bias should learn",
    )
    rest = sorted(n for n in body if learns[n])
    reject_if(
        len(rest) == len(body),
        "lets the whole model learn: call requires_grad_(False) on what should stay",
    )
    reject_if(rest, f"lets {len(rest)} parameters of the backbone learn: {', '.join(rest[:3])}")
    only = ", ".join(sorted(n for n in head if learns[n]))
    reject_if(
        not all(learns[n] for n in head),
        f"lets only {only} learn, but the head has a weight and a bias",
    )
    logits.sum().backward()
    lost = any(p.grad is None for name, p in model.named_parameters() if name in head)
    reject_if(lost, "passes no gradient to the head")


PROBE = Exercise(
    name="probe",
    reference=with_zeros,
    outcome=Outcome(observe=probed),
    wording=Wording(when=lambda *args: ""),
    ideas={
        "a head of zeros for the new classes": [a_vit(K, "logits") for K in (4, 3)],
        "the features stay the same": [a_vit(4, "features")],
        "the head learns, and nothing else": [a_vit(4, "learns")],
    },
    mistakes={},  # no numbers are compared: `probed` tells what is wrong
)
check_probe = PROBE.check
