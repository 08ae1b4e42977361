"""What is measured in training and on other images, of all processes together."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from vit_helpers.data.splits import Batch
from vit_helpers.distributed import all_gather, all_reduce_sum, cross_entropy, world_size
from vit_helpers.vit import eval_mode


@dataclass(frozen=True)
class Score:
    """How a model does on some images.

    loss          : mean over the images, in nats
    accuracy      : fraction of the images that are classified correctly; NaN without classes
    images        : how many there are, 0 if unknown
    majority_share: fraction that gets the most frequent prediction, 1 if all get the same class
    largest_class : fraction that has the most frequent label; both are 0 if unknown, as in training
    """

    loss: float
    accuracy: float = math.nan
    images: int = 0
    majority_share: float = 0.0
    largest_class: float = 0.0


UNKNOWN = Score(math.nan, majority_share=math.nan)  # where nothing was measured


@dataclass(frozen=True)
class Evidence:
    """What `diagnose` needs of an epoch besides losses and accuracies, from `CollectEvidence`.

    num_classes  : K, the number of logits
    probabilities: whether all training outputs were probabilities already, as after a softmax
    batch_size   : images of the largest batch;  tokens: of an image in a `ViT`; 0 if unknown
    least_loss   : the lowest loss that these labels allow, in nats: 0 unless smoothed or mixed
    guess_loss   : the lowest loss of a prediction that is the same for all images: ln K if all
                   classes are equally frequent; 0 if unknown, or if the loss is not cross-entropy
    """

    num_classes: int = 0
    probabilities: bool = False
    batch_size: int = 0
    tokens: int = 0
    least_loss: float = 0.0
    guess_loss: float = 0.0


@dataclass(frozen=True)
class Epoch:
    """The measurements of one epoch; `fit` returns a list of them.

    number           : from 1
    train            : means over the training images as they were seen, augmented, while it learned
    validation       : the score after the epoch; None if there is no validation split
    lr               : the learning rate at its first step
    images_per_second: in training, without validation
    evidence         : what `diagnose` needs besides
    NaN stands for what was not measured. Losses are in nats, with the recipe's label smoothing.
    """

    number: int
    train: Score
    validation: Score | None = None
    lr: float = math.nan
    images_per_second: float = math.nan
    evidence: Evidence = Evidence()

    def to_row(self) -> dict[str, Any]:
        """Return all measurements by name, as in a row of `history.csv`; NaN was not measured."""
        train, validation, evidence = self.train, self.validation or UNKNOWN, self.evidence
        return {
            "epoch": self.number,
            "lr": self.lr,
            "loss": train.loss,
            "accuracy": train.accuracy,
            "num_classes": evidence.num_classes,
            "probabilities": evidence.probabilities,
            "images_per_second": self.images_per_second,
            "val_loss": validation.loss,
            "val_accuracy": validation.accuracy,
            "val_majority_share": validation.majority_share,
            "val_images": validation.images,
            "val_largest_class": validation.largest_class,
            "images": train.images,
            "batch_size": evidence.batch_size,
            "tokens": evidence.tokens,
            "least_loss": evidence.least_loss,
            "guess_loss": evidence.guess_loss,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Epoch":
        """Make an epoch of a row of `to_row`, of which anything but its number may be missing."""
        train = {name: row[name] for name in ("loss", "accuracy", "images") if name in row}
        names = ("loss", "accuracy", "images", "majority_share", "largest_class")
        score = {name: row[f"val_{name}"] for name in names if f"val_{name}" in row}
        validated = not math.isnan(score.get("accuracy", math.nan))
        evidence = {name: row[name] for name in vars(Evidence()) if name in row}
        return cls(
            row["epoch"],
            Score(**{"loss": math.nan, **train}),
            Score(**{"loss": math.nan, **score}) if validated else None,
            row.get("lr", math.nan),
            row.get("images_per_second", math.nan),
            Evidence(**evidence),
        )


class TrainingSums:
    """The sums over the steps of an epoch from which its score is computed."""

    def __init__(self) -> None:
        self.loss, self.images, self.has_classes = 0.0, 0, False
        self.correct: int | Tensor = 0

    def add(self, loss: Tensor, outputs: object, labels: Tensor) -> None:
        """Count one step. Outputs that are not logits (B, K) have no accuracy."""
        size = all_reduce_sum(len(labels))  # of the batch, in all processes
        self.loss += loss.item() * size / world_size()  # by size: the last batch may be smaller
        self.images += size
        if is_logits(outputs):
            self.has_classes = True
            right = outputs.argmax(1) == class_numbers(labels)
            self.correct = self.correct + right.sum()  # which stays on the device

    def score(self) -> Score:
        """Return loss and accuracy over all images so far, of all processes together."""
        loss, correct = all_reduce_sum(self.loss), all_reduce_sum(int(self.correct))
        accuracy = correct / self.images if self.has_classes else math.nan
        return Score(loss / self.images, accuracy, self.images)


def is_logits(outputs: object) -> TypeGuard[Tensor]:
    """Say whether a model's outputs are numbers for each image and class, (B, K)."""
    return isinstance(outputs, Tensor) and outputs.ndim == 2


def class_numbers(labels: Tensor) -> Tensor:
    """Return the classes (B,) of labels; of probabilities (B, K), the most probable ones."""
    return labels.argmax(1) if labels.ndim == 2 else labels


class FlipTTA(nn.Module):
    """Test-time augmentation: an image and its mirror image are both classified.

    forward: (B, C, H, W) -> (B, K), the logarithms of their mean probabilities, used as logits
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        log_p, log_p_mirrored = (self.model(x).log_softmax(dim=1) for x in (images, images.flip(3)))
        # no log of a probability that underflows to 0
        return torch.logaddexp(log_p, log_p_mirrored) - math.log(2)


@torch.no_grad()
def predict(
    model: nn.Module, batches: Iterable[Batch], device: str | torch.device = "cpu"
) -> Batch:
    """Compute logits (n, K) and labels (n,) of all batches, in order, on the CPU, without dropout.

    raises: ValueError for no batches
    """
    with eval_mode(model):
        pairs = [(model(images.to(device)).cpu(), labels.cpu()) for images, labels in batches]
    if not pairs:
        raise ValueError("no batch to predict")
    logits, labels = zip(*pairs, strict=True)
    return torch.cat(logits), torch.cat(labels)


def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    device: str | torch.device = "cpu",
    label_smoothing: float = 0.0,
) -> Score:
    """Measure loss and accuracy over all images of the batches, and of all processes.

    raises: ValueError for no batches, and for a label that is that of no class
    """
    logits, labels = map(all_gather, predict(model, batches, device))
    predictions = logits.argmax(1)
    n = len(labels)
    return Score(
        cross_entropy(logits, labels, label_smoothing).item(),
        (predictions == labels).float().mean().item(),
        n,
        predictions.bincount().max().item() / n,
        labels.bincount().max().item() / n,
    )


def print_epoch(epoch: Epoch) -> None:
    """Print one line of a history: losses in nats, and the speed of training."""
    train, score = epoch.train, epoch.validation or UNKNOWN
    learning = f"epoch {epoch.number:3d}  loss {train.loss:.3f}  accuracy {train.accuracy:.3f}"
    validation = f"validation loss {score.loss:.3f}  accuracy {score.accuracy:.3f}"
    speed = epoch.images_per_second
    digits = 1 if speed < 10 else 0
    print(f"{learning}  {validation}  lr {epoch.lr:.1e}  {speed:,.{digits}f} images/s")
