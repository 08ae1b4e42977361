"""The exercises of notebook 09."""

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.compare import bounded, expect_tensor, same
from vit_helpers.checks.contract import contract, expect_gradients
from vit_helpers.checks.engine import Case, Exercise
from vit_helpers.checks.learning import as_number
from vit_helpers.checks.report import reject_if, short
from vit_helpers.vit import ViT, ViTConfig


def result(answer: Callable, *given: Any) -> dict:
    """What is compared: the result alone. Weights and pixels are read, not learned: no gradient, no float64 is asked for."""
    return {"": answer(*given)}


# Google's convolution


def other_order(got: Tensor, right: Tensor, kernel: Tensor) -> str:
    """What to say of a weight that no known mistake gives."""
    if same(got.flatten().sort().values, right.flatten().sort().values, atol=1e-4):
        return "gives the right shape {when}, but the numbers in another order"
    return "gives other numbers than the kernel's {when}"


def kernels(*shapes: tuple) -> list[Case]:
    """A kernel of each shape (P, P, C, D)."""
    return [Case(lambda shape=shape: (torch.randn(shape),)) for shape in shapes]


KERNEL = Exercise(
    name="kernel_of",
    reference=lambda k: k.permute(3, 2, 0, 1).flatten(1),
    observe=result,
    when=lambda k: f"for a kernel of shape {tuple(k.shape)}",
    says="{words}",
    unknown=other_order,
    ideas={
        "outputs first, and each filter in one row": kernels((2, 2, 1, 5)),
        "each filter channel by channel, as patches are flattened": kernels((2, 2, 3, 5), (2, 2, 5, 1)),
        "rows before columns": kernels((4, 4, 3, 7), (1, 1, 3, 4)),
    },
    mistakes={
        "reshapes {when} without moving axes: reshape keeps the numbers in their old order; permute moves axes":
            lambda k: k.reshape(k.shape[3], -1),
        "keeps each filter pixel by pixel {when}; our patches are flattened channel by channel: (C, P, P)":
            lambda k: k.flatten(0, 2).T,
        "takes columns for rows {when}: the first axis of the kernel is the row": lambda k: k.permute(3, 2, 1, 0).flatten(1),
        "flatten each filter, (D, C*P*P)": lambda k: k.permute(3, 2, 0, 1),
        "outputs come first": lambda k: k.permute(3, 2, 0, 1).flatten(1).T,
    },
)  # fmt: skip
check_kernel = check_kernel_of = KERNEL.check


# Preprocessing


def middle(image: Tensor, side: int) -> tuple[int, int]:
    """Row and column where the middle square begins."""
    return (image.shape[1] - side) // 2, (image.shape[2] - side) // 2


def seen(
    normalize: Callable = lambda part, m, s: (part - m) / s,
    corner: Callable = middle,
    scale: Callable = lambda part, image: None,
) -> Callable:
    """An answer: what is done with the part, where it begins, and mean and spread in place of those given."""

    def answer(image: Tensor, side: int, mean: tuple, std: tuple) -> Tensor:
        top, left = corner(image, side)
        part = image[:, top : top + side, left : left + side]
        m, s = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
        return normalize(part, *(scale(part, image) or (m, s)))

    return answer


def own(part: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread of each channel."""
    return part.mean(dim=(1, 2), keepdim=True), part.std(dim=(1, 2), keepdim=True)


def pictures(sizes: Iterable[tuple], side: int, mean: tuple, std: tuple) -> list[Case]:
    """Images of these shapes."""
    return [Case(lambda size=size: (torch.rand(size), side, mean, std)) for size in sizes]


COLORS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SEE = Exercise(
    name="see",
    reference=seen(),
    observe=result,
    when=lambda image, side, mean, std: f"for an image {tuple(image.shape)} and a side of {side}",
    says="{words}",
    unknown="gives other numbers {when} than the middle, minus mean, divided by std",
    hints={"must match the size": "mean and std are (C,): give them the shape (C, 1, 1)"},
    ideas={
        "the middle square of a wide and of a tall image":
            pictures([(3, 8, 10), (3, 8, 14), (3, 12, 6), (3, 4, 4)], 4, (0.5,) * 3, (0.5,) * 3),
        "each channel by the mean and spread of the weights":
            pictures([(3, 10, 6)], 6, *COLORS) + pictures([(3, 7, 9)], 3, *COLORS),
        "one channel too, its input left as it was": pictures([(1, 6, 8)], 4, (0.3,), (0.2,)),
    },
    mistakes={
        "cuts the upper left corner {when}; the middle is wanted": seen(corner=lambda *_: (0, 0)),
        "cuts the lower right corner {when}; the middle is wanted":
            seen(corner=lambda x, side: (x.shape[1] - side, x.shape[2] - side)),
        "measures from the height what is a width {when}": seen(corner=lambda x, side: middle(x, side)[::-1]),
        "does not normalize {when}": seen(lambda part, m, s: part),
        "does not normalize {when}, and cuts the corner": seen(lambda part, m, s: part, lambda *_: (0, 0)),
        "multiplies by std {when}; divide": seen(lambda part, m, s: (part - m) * s),
        "divides before it subtracts {when}: mean and std are both of pixels from 0 to 1":
            seen(lambda part, m, s: part / s - m),
        "adds the mean {when}; subtract": seen(lambda part, m, s: (part + m) / s),
        "takes std for mean and mean for std {when}": seen(lambda part, m, s: (part - s) / m),
        "scales to pixels of 255 {when}; mean and std here are of pixels from 0 to 1":
            seen(lambda part, m, s: (part * 255 - m) / s),
        "leaves out std {when}": seen(lambda part, m, s: part - m),
        "divides by the square of std {when}": seen(lambda part, m, s: (part - m) / s**2),
        "uses the image's own mean and spread {when}: a dark picture then looks like a bright one, as never in training":
            seen(scale=lambda part, image: own(part)),
        "uses the whole image's own mean and spread {when}: a dark picture then looks like a bright one":
            seen(scale=lambda part, image: own(image)),
        "uses the first channel's numbers for all {when}": seen(lambda part, m, s: (part - m[0]) / s[0]),
        "one image is (C, H, W), without an axis for a batch": lambda *given: seen()(*given)[None],
    },
)  # fmt: skip
check_see = SEE.check


# A linear probe


def with_zeros(model: nn.Module, K: int) -> nn.Module:
    """The right answer."""
    model.requires_grad_(False)
    model.head = nn.Linear(model.head.in_features, K)
    for p in model.head.parameters():
        nn.init.zeros_(p)
    return model


def a_vit(K: int, look: str) -> Case:
    """A trained ViT, the number of new classes, images, and what is looked at."""

    def draw() -> tuple:
        model = ViT(ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=10))
        nn.init.normal_(model.head.weight)
        return model.eval(), K, torch.randn(5, 1, 8, 8), look

    return Case(draw)


def probed(answer: Callable, start: nn.Module, K: int, images: Tensor, look: str) -> dict:
    """True for what is looked at; Mistake where the new model computes, starts or learns wrongly."""
    got = answer(copy.deepcopy(start), K)
    words = "gives nothing back: does it end with return? Hand the model over, also if you changed it in place"
    reject_if(got is None, words)
    reject_if(not isinstance(got, nn.Module), f"gives {short(got)}; it should give a model")
    reject_if(isinstance(got, nn.Linear), "gives the head alone; it should give the whole model")
    if look == "features":
        reject_if(not hasattr(got, "forward_features"), "gives another kind of model; keep the ViT and change its head")
        kept = same(got.eval().forward_features(images), start.forward_features(images))
        reject_if(not kept, "gives other features than before: was a new model made, without the old weights?")
        return {look: True}
    logits = got(images)
    if look == "logits":
        reject_if(tuple(logits.shape) == (5, 10), f"still has the 10 classes of old; {K} were wanted")
        expect_tensor(logits, (5, K), f"for 5 images and {K} classes")
        random, biased = logits.abs().max() > 1e-6, same(logits, logits[:1].expand(5, K))
        reject_if(random and biased, "leaves torch's random start in the head's bias; zeros are wanted there too")
        words = "the paper starts fine-tuning from zeros (section 3.2), so that the first loss is ln K"
        reject_if(random, f"starts with a head of random numbers; {words}")
    else:
        expect_head_alone(got, logits)
    return {look: True}


def expect_head_alone(model: nn.Module, logits: Tensor) -> None:
    """Mistake unless the head learns, and nothing else."""
    learns = {name: p.requires_grad for name, p in model.named_parameters()}
    body, head = ([n for n in learns if n.startswith("head.") == of_head] for of_head in (False, True))
    reject_if(not any(learns.values()), "freezes everything, the new head too: put the head in after freezing, or thaw it")
    rest = sorted(n for n in body if learns[n])
    reject_if(len(rest) == len(body), "lets the whole model learn: requires_grad_(False) on all that is to stay")
    reject_if(rest, f"lets {len(rest)} parameters of the body learn: {', '.join(rest[:3])}")
    only = ", ".join(sorted(n for n in head if learns[n]))
    reject_if(not all(learns[n] for n in head), f"lets only {only} learn; the head has weight and bias")
    logits.sum().backward()
    lost = any(p.grad is None for name, p in model.named_parameters() if name in head)
    reject_if(lost, "passes no gradient to the head")


PROBE = Exercise(
    name="probe",
    reference=with_zeros,
    observe=probed,
    when=lambda *given: "",
    ideas={
        "a head of zeros for the new classes": [a_vit(K, "logits") for K in (4, 3)],
        "the features stay as they were": [a_vit(4, "features")],
        "the head learns, and nothing else": [a_vit(4, "learns")],
    },
    mistakes={},  # no numbers are compared: `probed` tells what is wrong
)
check_probe = PROBE.check


# LoRA


def lora(rule: Callable) -> Callable:
    """An answer: (W x, bias, B A x, scale) -> the result. What is frozen needs no gradient."""
    return lambda x, W, b, A, B, scale: rule(x @ W.detach().T, b.detach(), (x @ A.T) @ B.T, scale)


def maps(shape: tuple, m: int, r: int, scale: float, zero: bool = False) -> Case:
    """Numbers for x of this shape, W (m, n), b, A (r, n), B (m, r), and the scale."""
    n = shape[-1]

    def draw() -> tuple:
        x, W, b, A, B = (torch.randn(size) for size in (shape, (m, n), (m,), (r, n), (m, r)))
        return x, W, b, A, torch.zeros(m, r) if zero else B, scale

    words = f"for x {shape}, W ({m}, {n}), A ({r}, {n}), B ({m}, {r})" + (", all of B 0" if zero else f", scale {scale}")
    return Case(draw, words)


LORA = Exercise(
    name="lora",
    reference=lora(lambda y, b, thin, s: y + b + s * thin),
    says="{words}",
    unknown="gives other numbers {when} than W x + b + scale B A x",
    contract_case=maps((5, 6), 4, 2, 0.5),
    ideas={
        "with B of zeros, the linear map as it was": [maps((5, 6), 4, 2, 1.0, zero=True)],
        "the thin product, scaled, beside it": [
            maps(*sizes) for sizes in
            [((5, 6), 4, 2, 0.5), ((2, 3, 8), 24, 1, 2.0), ((4, 4), 4, 4, 3.0), ((1, 5, 6), 4, 2, 0.5), ((7,), 3, 2, -1.5)]
        ],
        "gradients for A and B": [contract],
    },
    mistakes={
        "forgets the bias {when}": lora(lambda y, b, thin, s: y + s * thin),
        "forgets the bias, and the thin product {when}": lora(lambda y, b, thin, s: y),
        "leaves the thin product out {when}": lora(lambda y, b, thin, s: y + b),
        "forgets the scale {when}": lora(lambda y, b, thin, s: y + b + thin),
        "scales all of it {when}; only the thin product is scaled": lora(lambda y, b, thin, s: s * (y + b + thin)),
        "scales the matrix and not the thin product {when}": lora(lambda y, b, thin, s: s * (y + b) + thin),
        "divides by the scale {when}": lora(lambda y, b, thin, s: y + b + thin / s),
        "leaves the frozen map out {when}: LoRA adds to it": lora(lambda y, b, thin, s: s * thin),
        "leaves W x out {when}": lora(lambda y, b, thin, s: s * thin + b),
        "adds the bias twice {when}": lora(lambda y, b, thin, s: y + 2 * b + s * thin),
        "scales the bias too {when}": lora(lambda y, b, thin, s: y + s * (thin + b)),
        "subtracts the thin product {when}": lora(lambda y, b, thin, s: y + b - s * thin),
    },
)  # fmt: skip
check_lora = LORA.check


# Rates by layer


def layers(rule: Callable) -> Callable:
    """An answer: (lr, decay, how many layers below the head, depth) -> the rate of one layer."""
    return lambda lr, decay, depth: [rule(lr, decay, depth + 1 - i, depth) for i in range(depth + 2)]


def listed(answer: Callable, lr: float, decay: float, depth: int) -> dict[str, list]:
    """The rates as numbers; Mistake unless there is one for each layer."""
    when, kind = f"for lr {lr}, decay {decay}, {depth} blocks", f"{depth + 2} learning rates"
    got = bounded(answer(lr, decay, depth))
    reject_if(got is None, f"gives nothing back {when}: does it end with return?")
    words = f"gives {short(got)} {when}; it should give {kind}"
    reject_if(isinstance(got, (str, dict)) or not isinstance(got, Iterable), words)
    reject_if(getattr(got, "ndim", 1) == 0, f"gives one number {when}; it should give {kind}")
    got = [as_number(rate, when) for rate in got]
    words = f"gives a rate for each block alone {when}; the embedding and the head have rates too"
    reject_if(len(got) == depth, words)
    reject_if(len(got) != depth + 2, f"gives {len(got)} rates {when}: embedding, {depth} blocks, head are {depth + 2}")
    return {"rates": got}


def other_rates(got: list, right: list, *given: Any) -> str:
    """What to say of rates that no known mistake gives."""
    mine, theirs = (", ".join(f"{x:.4g}" for x in rates) for rates in (got, right))
    return f"gives {mine} {{when}}, not {theirs}"


RATES = Exercise(
    name="rates",
    reference=layers(lambda lr, decay, n, depth: lr * decay**n),
    observe=listed,
    when="for lr {}, decay {}, {} blocks".format,
    says="{words}",
    unknown=other_rates,
    ideas={
        "one rate for the embedding, for each block, and for the head":
            [lambda exercise, answer: exercise.try_form(answer, (1.0, 0.5, 3))],
        "the head at the full rate, each layer below it slower by the same factor":
            [Case(partial(tuple, given)) for given in [(1.0, 0.5, 2), (3e-3, 0.75, 4), (0.1, 0.9, 12)]],
        "a decay of 1 leaves all alike": [Case(partial(tuple, (2e-3, 1.0, 3)))],
    },
    mistakes={
        f"{words} {{when}}": layers(rule) for words, rule in {
            "runs the wrong way: the head is to learn fastest": lambda lr, decay, n, depth: lr * decay ** (depth + 1 - n),
            "decays the head too; it has the full rate": lambda lr, decay, n, depth: lr * decay ** (n + 1),
            "stops one layer short: the embedding is decayed depth + 1 times":
                lambda lr, decay, n, depth: lr * decay ** max(n - 1, 0),
            "divides by decay where it should multiply": lambda lr, decay, n, depth: lr / decay**n,
            "gives the head more than lr: its exponent is 0, the embedding's depth + 1":
                lambda lr, decay, n, depth: lr * decay ** (n - 1),
            "falls by equal steps; each layer has the one above times decay":
                lambda lr, decay, n, depth: lr * (1 - (1 - decay) * n),
            "gives all the same rate": lambda lr, decay, n, depth: lr,
            "leaves lr out": lambda lr, decay, n, depth: decay**n,
            "decays once for all below the head": lambda lr, decay, n, depth: lr * decay ** min(n, 1),
        }.items()
    },
)  # fmt: skip
check_rates = RATES.check


# The loss of a masked autoencoder


def taken(x: Tensor, hidden: Tensor) -> Tensor:
    """The hidden patches of each image, in the order of its list."""
    return x[torch.arange(len(x))[:, None], hidden]


def laid(p: Tensor, on: Tensor, hidden: Tensor) -> Tensor:
    """Painted patches at their places."""
    return on.scatter(1, hidden[:, :, None].expand(-1, -1, on.shape[2]), p)


def masked(B: int, N: int, M: int, painted: bool = False) -> Case:
    """What is painted, patches, numbers of the hidden ones; painted: as they are."""

    def draw() -> tuple:
        x, hidden = torch.randn(B, N, 4), torch.stack([torch.randperm(N)[:M] for _ in range(B)])
        return taken(x, hidden) if painted else torch.randn(B, M, 4), x, hidden

    return Case(draw, "for patches painted as they are" if painted else "")


def for_images(p: Tensor, x: Tensor, hidden: Tensor) -> str:
    """The arguments in words."""
    return f"for {len(x)} images of {x.shape[1]} patches, of which {hidden.shape[1]} are hidden"


def back_to_painted(exercise: Exercise, answer: Callable) -> None:
    """Mistake unless the gradient goes back to what was painted."""
    given = masked(3, 6, 4).draw()
    got = answer(*given)
    reject_if(not isinstance(got, Tensor), f"gives {short(got)}, which passes no gradient on: leave .item() out")
    expect_gradients(exercise, answer, given)


MASKED = Exercise(
    name="masked_loss",
    reference=lambda p, x, h: (p - taken(x.detach(), h)).square().mean(),
    observe=lambda answer, *given: {"": as_number(answer(*given), for_images(*given))},
    when=for_images,
    says="{words}",
    unknown=lambda got, right, *given: f"gives {got:.4f} {{when}}; it should give {right:.4f}",
    ideas={
        "0 when every hidden patch is painted as it is": [masked(3, 6, 4, painted=True)],
        "the mean square on hidden patches, each image by its own list":
            [masked(*sizes) for sizes in [(3, 6, 4), (3, 6, 1), (2, 9, 6), (1, 5, 3)]],
        "the gradient that goes with it": [back_to_painted, contract],
    },
    mistakes={
        f"{words} ({{when}})": wrong for words, wrong in {
            "compares the first patches, whichever are hidden": lambda p, x, h: F.mse_loss(p, x[:, : h.shape[1]]),
            "takes the first image's list for all: each image hides its own": lambda p, x, h: F.mse_loss(p, x[:, h[0]]),
            "compares with the hidden patches in the order of the image; painted ones come in the order of `hidden`":
                lambda p, x, h: F.mse_loss(p, taken(x, h.sort(dim=1).values)),
            "picks one pixel of each patch: the index for gather must be as wide as a patch, expand it":
                lambda p, x, h: (p - x.gather(1, h[:, :, None])).square().mean(),
            "picks every image's list for every image: patches[:, hidden] is too much, index images and patches together":
                lambda p, x, h: (p - x[:, h]).square().mean(),
            "divides by the patches of one image, though it sums over all images":
                lambda p, x, h: (p - taken(x, h)).square().sum() / p[0].numel(),
            "divides by all patches, though only the hidden ones count": lambda p, x, h: F.mse_loss(laid(p, x, h), x),
            "counts visible patches as wrong: nobody painted them":
                lambda p, x, h: F.mse_loss(laid(p, torch.zeros_like(x), h), x),
            "gives the sum, not the mean: it then depends on the batch": lambda p, x, h: (p - taken(x, h)).square().sum(),
            "sums over the pixels of a patch, and takes the mean of that":
                lambda p, x, h: (p - taken(x, h)).square().sum(dim=2).mean(),
            "sums over patches and pixels, and takes the mean over images":
                lambda p, x, h: (p - taken(x, h)).square().sum() / len(p),
            "takes the root": lambda p, x, h: F.mse_loss(p, taken(x, h)).sqrt(),
            "takes absolute differences; squares are wanted": lambda p, x, h: F.l1_loss(p, taken(x, h)),
            "gives the mean difference, where too bright and too dark cancel": lambda p, x, h: (p - taken(x, h)).mean(),
            "halves it": lambda p, x, h: F.mse_loss(p, taken(x, h)) / 2,
            "counts each hidden patch as one of all":
                lambda p, x, h: F.mse_loss(p, taken(x, h)) * x.shape[1] / h.shape[1],
        }.items()
    },
)  # fmt: skip
check_masked_loss = MASKED.check
