"""Plant faults in small training runs, and count how often `diagnose` names them, or others.

Each run draws from its seed 2 to 10 of the digits, of which one makes up 1% to 50% of the images,
how many images there are (a third of the validation splits has only 20 to 60), label smoothing,
mixing, and whether it starts from scratch or from a ViT that has learned digits from other images,
of which it then tunes all weights or LoRA. A fault is planted where no class has more than 80% of
the images, since otherwise a model that always predicts this class is nearly right. The rules of
`diagnose` were made with smaller seeds.
"""

import random
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count as counting
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools import main
from tools.experiments.measuring import add_out, store
from vit_helpers.data import Batches, Split, load, subset
from vit_helpers.data.augment import random_affine
from vit_helpers.pretrained.finetune import add_lora, transfer_weights
from vit_helpers.training import Recipe, fit, set_seed
from vit_helpers.training.diagnosis import diagnose
from vit_helpers.training.presets import MIX
from vit_helpers.vit import ViT, ViTConfig

# any is right if nothing was learned
NOTHING = (
    "constant prediction",
    "stuck at ln K",
    "no better than guessing",
)
TUNING_LR = 1.2e-3  # what `train` gives a model of this width
STEPS, BATCH, LARGEST = 120, 50, 0.8  # LARGEST: share of a class where a fault is planted
FIRST = 14000  # seed of the results to store; the rules were changed after smaller ones
OTHERS = 450  # images from which fine-tuned runs draw none: their ViT has learned from these
STARTS = ("scratch", "scratch", "full", "lora")  # those of a plan, equally often
SMALL = (20, 60)  # images of a small validation split


@dataclass(frozen=True)
class Plan:
    """What a seed draws: the digits that are the classes, their shares, and the training."""

    digits: tuple[int, ...]
    shares: tuple[float, ...]
    images: int
    validation_images: int
    label_smoothing: float
    mix: str
    start: str


@dataclass(frozen=True)
class Fault:
    """A fault by what it changes, and the symptoms that name it."""

    symptoms: tuple[str, ...]
    recipe: dict[str, Any] = field(default_factory=dict)
    split: Callable[[Split], Split] = lambda split: split
    pixels: float = 1.0
    wrap: Callable[[ViT], nn.Module] = lambda model: model
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    changes: dict[str, Any] = field(default_factory=dict)  # of the plan
    augment: Callable[[Tensor], Tensor] | None = random_affine
    validated: bool = True
    both: bool = False  # whether the validation split is changed, too

    def prepare(self, images: Tensor) -> Tensor:
        return self.pixels * (images - 0.3) / 0.38


def relabel(split: Split, share: float = 1.0) -> Split:
    """A share of the images get labels of others."""
    rows = (torch.rand(len(split)) < share).nonzero()[:, 0]
    labels = split.labels.clone()
    labels[rows] = labels[rows[torch.randperm(len(rows))]]
    return replace(split, labels=labels)


class Detached(nn.Module):
    """A model whose outputs let no gradient back."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.scale = model, nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor) -> Tensor:
        return self.scale * self.model(images).detach()


class Places(nn.Module):
    """Of each patch, scores for its place in the image: (B, N, N)"""

    def __init__(self, model: ViT) -> None:
        super().__init__()
        self.model, self.config = model, model.config
        self.head = nn.Linear(model.config.embed_dim, model.config.num_tokens - 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.model.forward_features(images)[:, 1:])


def other_pairs(outputs: Tensor, labels: Tensor) -> Tensor:
    """A contrastive loss of pairs that do not belong together."""
    return F.cross_entropy(outputs @ outputs.T, torch.randperm(len(outputs)))


def other_places(scores: Tensor, labels: Tensor) -> Tensor:
    """Of each patch, the cross-entropy of its scores and a place that is not its own."""
    return F.cross_entropy(scores.flatten(0, 1), torch.rand(scores.shape[:2]).argsort(1).flatten())


SCRATCH = {"start": "scratch"}
HALF = partial(relabel, share=0.5)
L2 = {"optimizer": "adam_l2", "weight_decay": 1.0, "token_lr_mult": 1.0, "schedule": "constant"}
FAULTS = {
    "none": Fault(("healthy",)),
    "softmax before the loss": Fault(
        ("softmax twice",), wrap=lambda model: nn.Sequential(model, nn.Softmax(1))
    ),
    "labels of other images": Fault(NOTHING, split=relabel),
    "black images": Fault(NOTHING, pixels=0.0),
    "rate far too high": Fault(NOTHING, {"lr": 1.0, "optimizer": "adamw"}),
    "rate far too low": Fault(NOTHING, {"lr": 1e-6, "optimizer": "adamw"}),
    # a trained model survives it for so many steps
    "L2 inside Adam": Fault(NOTHING, L2, changes=SCRATCH),
    "no gradient": Fault(NOTHING, wrap=Detached),
    "pairs of other images": Fault(("stuck at ln(batch size)",), loss=other_pairs, changes=SCRATCH),
    "places of other patches": Fault(
        ("stuck at ln(patches)",), wrap=Places, loss=other_places, validated=False, changes=SCRATCH
    ),
    "learned by heart": Fault(
        ("overfitting",),
        split=HALF,
        changes={"images": 100, "mix": "none", **SCRATCH},
        augment=None,
    ),
    "half of the labels wrong": Fault(("underfitting",), split=HALF, both=True),
}


def draw_plan(seed: int) -> Plan:
    """The plan of a seed: one class has a share from 1% to 50%, the others share the rest."""
    draw = random.Random(seed)
    digits = draw.sample(range(10), draw.randint(2, 10))
    first = 0.01 * 50 ** draw.random()
    rest = [draw.uniform(1, 3) for _ in digits[1:]]
    shares = (first, *((1 - first) * x / sum(rest) for x in rest))
    mix = draw.choice(["none", "none", "mixup", "cutmix"])
    images, validation = draw.randint(300, 1000), draw.randint(60, 400)
    smoothing, start = draw.choice([0.0, 0.1, 0.2]), draw.choice(STARTS)
    if draw.random() < 1 / 3:
        validation = draw.randint(*SMALL)
    return Plan(tuple(digits), shares, images, validation, smoothing, mix, start)


@cache
def sources() -> tuple[Split, Split]:
    """Digits to draw training and validation images from, which have none in common"""
    train = load("digits").train
    return subset(train, slice(900)), subset(train, slice(900, None))


def draw_split(source: Split, plan: Plan, count: int) -> Split:
    """Images of the plan's classes in their shares, drawn with replacement, at least one of each"""
    rows, counts = [], [max(1, round(share * count)) for share in plan.shares]
    for digit, n in zip(plan.digits, counts, strict=True):
        pool = (source.labels == digit).nonzero()[:, 0]
        rows.append(pool[torch.randint(len(pool), (n,))])
    return Split(
        source.images[torch.cat(rows)],
        torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)),
    )


def make_vit(num_classes: int) -> ViT:
    """A ViT of one block for the digits"""
    return ViT(
        ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=num_classes, depth=1)
    )


@cache
def learned() -> ViT:
    """A ViT that has learned the ten digits, from images that no fine-tuned run draws"""
    set_seed(0)
    model, fault = make_vit(10), FAULTS["none"]
    images = subset(sources()[0], slice(OTHERS))
    batches = Batches(images, BATCH, fault.prepare, True, fault.augment)
    fit(model, batches, None, Recipe(epochs=30, optimizer="muon"), callbacks=[])
    return model


def start_model(start: str, num_classes: int) -> ViT:
    """The model of a plan: untrained, or the one that has learned digits with a new head"""
    if start == "scratch":
        return make_vit(num_classes)
    model = transfer_weights(learned(), num_classes=num_classes)
    return add_lora(model, rank=4) if start == "lora" else model


def train(name: str, seed: int) -> dict[str, object]:
    """Train with a fault, and diagnose the run."""
    fault = FAULTS[name]
    plan = replace(draw_plan(seed), **fault.changes)
    tuned = plan.start != "scratch"
    if tuned:
        learned()  # before the seed, which it would change
    set_seed(seed)
    pool = subset(sources()[0], slice(OTHERS, None)) if tuned else sources()[0]
    images = fault.split(draw_split(pool, plan, plan.images))
    K, epochs = len(plan.digits), round(STEPS / -(-len(images) // BATCH))
    model = fault.wrap(start_model(plan.start, K))
    mix = None if fault.loss else MIX[plan.mix]
    mix = mix and partial(mix, num_classes=K)
    recipe = Recipe(epochs=epochs, label_smoothing=plan.label_smoothing, optimizer="muon")
    if tuned:
        recipe = replace(recipe, optimizer="adamw", lr=TUNING_LR, token_lr_mult=1.0)
    held_out = draw_split(sources()[1], plan, plan.validation_images)
    validation = (
        Batches(fault.split(held_out) if fault.both else held_out, 512, fault.prepare)
        if fault.validated
        else None
    )
    batches, recipe = (
        Batches(images, BATCH, fault.prepare, True, fault.augment, mix),
        replace(recipe, **fault.recipe),
    )
    history = fit(model, batches, validation, recipe, loss_fn=fault.loss, callbacks=[])
    last, symptom = history[-1], diagnose(history).symptom
    drawn = {key: value for key, value in vars(plan).items() if key not in ("digits", "shares")}
    row = {
        "fault": name,
        "seed": seed,
        "classes": K,
        "smallest": min(plan.shares),
        "largest": max(plan.shares),
        **drawn,
    }
    row |= {name: last.to_row()[name] for name in ("loss", "accuracy", "val_loss", "val_accuracy")}
    return row | {"symptom": symptom, "right": symptom in fault.symptoms}


def add_arguments(parser: ArgumentParser) -> None:
    add_out(parser, "diagnosis.csv", seeds=20)
    parser.add_argument("--first", type=int, default=FIRST, help=f"first seed (default: {FIRST})")
    parser.add_argument(
        "--fault", choices=FAULTS, nargs="*", default=FAULTS, help="only these (default: all)"
    )


def seeds(name: str, first: int, count: int) -> Iterable[int]:
    """The seeds of a fault: so many, and of healthy runs ten times as many"""
    balanced = (seed for seed in counting(first) if max(draw_plan(seed).shares) <= LARGEST)
    return range(first, first + 10 * count) if name == "none" else islice(balanced, count)


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    table = store(
        (train(name, s) for name in args.fault for s in seeds(name, args.first, args.seeds)),
        args.out,
    )
    print(table.groupby("fault", sort=False)["right"].agg(["sum", "count"]).to_string())


if __name__ == "__main__":
    raise SystemExit(main())
