"""What is measured during training and on other images, for all processes together: losses, accuracies, speeds."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.distributed import all_gather, all_reduce_sum, world_size

Batch = tuple[Tensor, Tensor]
RENAMED = {"val_commonest": "val_majority_share"}  # since version 0.1


@dataclass(frozen=True)
class Score:
    """How a model does on some images: `loss, accuracy, majority_share = evaluate(...)`

    loss          : mean over the images, in nats
    accuracy      : fraction of the images that are classified correctly
    majority_share: fraction that gets the most frequent prediction; 1 means that all get the same class
    images        : how many there are, 0 if unknown;  largest_class: fraction that has the most frequent label
    """

    loss: float
    accuracy: float
    majority_share: float
    images: int = 0
    largest_class: float = 0.0

    def __iter__(self) -> Iterator[float]:
        return iter((self.loss, self.accuracy, self.majority_share))


@dataclass(frozen=True)
class Epoch:
    """The measurements of one epoch; `fit` returns a list of them.  NaN stands for what was not measured.

    epoch, lr        : its number, from 1; the learning rate at its first step
    loss, accuracy   : means over the training images as seen during training, augmented; in nats with label smoothing
    num_classes      : K, the number of logits
    probabilities    : whether all training outputs were probability distributions already, as after a softmax
    images_per_second: in training, without validation
    val_*            : the validation split's `Score`, with the same label smoothing
    images, batch_size, tokens: training images, those of the largest batch, and tokens of an image in a `ViT`; 0 if unknown
    least_loss       : the lowest loss that these labels allow, in nats: 0 unless they are smoothed or mixed
    guess_loss       : the lowest loss of a prediction that is the same for all images: ln K if all classes are
                       equally frequent; 0 if unknown, or if the loss is not cross-entropy
    """

    epoch: int
    lr: float = math.nan
    loss: float = math.nan
    accuracy: float = math.nan
    num_classes: int = 0
    probabilities: bool = False
    images_per_second: float = math.nan
    val_loss: float = math.nan
    val_accuracy: float = math.nan
    val_majority_share: float = math.nan
    val_images: int = 0
    val_largest_class: float = 0.0
    images: int = 0
    batch_size: int = 0
    tokens: int = 0
    least_loss: float = 0.0
    guess_loss: float = 0.0

    def __getitem__(self, name: str) -> float:
        """A measurement by its name, `row["val_loss"]`"""
        return vars(self)[name]

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "Epoch":
        """An epoch from a dict, including those that version 0.1 stored in checkpoints."""
        row = {RENAMED.get(name, name): value for name, value in row.items()}
        return cls(**{f.name: row[f.name] for f in fields(cls) if f.name in row})


class TrainingSums:
    """Sums over the steps of an epoch.  label_smoothing: of the loss if it is cross-entropy; None for any other loss"""

    def __init__(self, label_smoothing: float | None = 0.0) -> None:
        self.loss, self.images, self.classes, self.start = 0.0, 0, 0, time.perf_counter()
        self.label_smoothing, self.batch_size = label_smoothing, 0
        self.correct: int | Tensor = 0
        self.probabilities: bool | Tensor = label_smoothing is not None
        self.targets: Tensor | None = None  # (K,), summed over the images, as the loss sees them
        self.least: float | Tensor = 0.0  # their entropies, summed over the images

    def add(self, loss: Tensor, outputs: Any, labels: Tensor) -> None:
        """Count one step. Outputs that are not logits (B, K) have no accuracy."""
        size = all_reduce_sum(len(labels))  # of the batch, in all processes
        self.loss += (
            loss.item() * size / world_size()
        )  # weighted by size: the last batch is smaller
        self.images += size
        self.batch_size = max(self.batch_size, size)
        if isinstance(outputs, Tensor) and outputs.ndim == 2:
            if self.classes not in (0, outputs.shape[1]):
                self.label_smoothing = self.targets = (
                    None  # no classes, but the images of a batch or such
                )
            self.classes = outputs.shape[1]
            classes = (
                labels.argmax(1) if labels.ndim == 2 else labels
            )  # of labels that are probabilities, the most probable
            self.correct = (
                self.correct + (outputs.argmax(1) == classes).sum()
            )  # stays on the device
            sums = outputs.float().sum(
                1
            )  # of probabilities they are 1, up to the rounding of 16 bits
            self.probabilities = (
                self.probabilities & (outputs >= 0).all() & ((sums - 1).abs() < 0.01).all()
            )
            if self.label_smoothing is not None:
                targets = (
                    F.one_hot(labels.clamp(min=0), self.classes).float()
                    if labels.ndim == 1
                    else labels.float()
                )
                targets = (
                    1 - self.label_smoothing
                ) * targets + self.label_smoothing / self.classes  # as in the loss
                self.targets = targets.sum(0) + (0 if self.targets is None else self.targets)
                self.least = self.least + torch.special.entr(targets).sum()

    def means(self) -> dict[str, Any]:
        """The fields of `Epoch` from loss to images_per_second, and those about the labels, of all processes together."""
        seconds, correct = time.perf_counter() - self.start, all_reduce_sum(int(self.correct))
        figures = {
            "loss": all_reduce_sum(self.loss) / self.images,
            "accuracy": correct / self.images if self.classes else math.nan,
            "num_classes": self.classes,
            "probabilities": all_reduce_sum(int(self.probabilities)) == world_size()
            and self.classes > 0,
            "images_per_second": self.images / seconds,
            "images": self.images,
            "batch_size": self.batch_size,
        }
        if self.targets is not None:
            shares = all_gather(self.targets[None]).sum(0).cpu() / self.images
            figures["least_loss"] = all_reduce_sum(float(self.least)) / self.images
            figures["guess_loss"] = torch.special.entr(shares).sum().item()
        return figures


class FlipTTA(nn.Module):
    """Test-time augmentation: the logarithms of a classifier's mean probabilities for an image and its mirror image.

    (B, C, H, W) -> (B, K), to be used as logits
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        one, two = (self.model(x).log_softmax(dim=1) for x in (images, images.flip(3)))
        return torch.logaddexp(one, two) - math.log(
            2
        )  # no log of a probability that underflows to 0


@torch.no_grad()
def predict(
    model: nn.Module, batches: Iterable[Batch], device: str | torch.device = "cpu"
) -> Batch:
    """Logits (n, K) and labels (n,) of all batches, in order, on the CPU, without dropout; ValueError for no batches."""
    was_training = model.training
    model.eval()
    pairs = [(model(images.to(device)).cpu(), labels.cpu()) for images, labels in batches]
    model.train(was_training)
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
    """Loss and accuracy over all images of the batches, and of all processes."""
    logits, labels = map(all_gather, predict(model, batches, device))
    loss, predictions = (
        F.cross_entropy(logits, labels, label_smoothing=label_smoothing),
        logits.argmax(1),
    )
    majority_share, largest_class = (
        x.bincount().max().item() / len(x) for x in (predictions, labels)
    )
    accuracy = (predictions == labels).float().mean().item()
    return Score(loss.item(), accuracy, majority_share, len(labels), largest_class)


def print_epoch(row: Epoch) -> None:
    """Print one line of a history: losses in nats; training loss and accuracy are those during training, augmented."""
    learning = f"epoch {row.epoch:3d}  loss {row.loss:.3f}  accuracy {row.accuracy:.3f}"
    validation = f"validation loss {row.val_loss:.3f}  accuracy {row.val_accuracy:.3f}"
    print(f"{learning}  {validation}  lr {row.lr:.1e}  {row.images_per_second:,.0f} images/s")
