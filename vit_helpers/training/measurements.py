"""What is measured of a model: an epoch's figures, and loss and accuracy on other images; of all processes together."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.training.distributed import all_gather, all_reduce_sum, world_size

Batch = tuple[Tensor, Tensor]
RENAMED = {"val_commonest": "val_majority_share"}  # since version 0.1


@dataclass(frozen=True)
class Score:
    """How a model does on some images: `loss, accuracy, majority_share = evaluate(...)`

    loss          : mean over the images, in nats
    accuracy      : fraction of the images that are classified correctly, from 0 to 1
    majority_share: fraction of the images that get the most frequent prediction; 1 means that all get the same class
    """

    loss: float
    accuracy: float
    majority_share: float

    def __iter__(self) -> Iterator[float]:
        return iter(vars(self).values())


@dataclass(frozen=True)
class Epoch:
    """The measurements of one epoch; `fit` returns a list of them.  NaN stands for what was not measured.

    epoch            : its number, from 1
    lr               : learning rate at its first step
    loss             : mean over the training images as seen while learning, augmented, in nats with label smoothing
    accuracy         : of the same predictions, from 0 to 1
    num_classes      : K, the number of logits
    probabilities    : whether all training outputs were probability distributions already, as after a softmax
    images_per_second: in training, without validation
    val_loss, val_accuracy, val_majority_share: the validation split's `Score`, with the same label smoothing
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

    def __getitem__(self, name: str) -> float:
        """A measurement by its name, `row["val_loss"]`"""
        return vars(self)[name]

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "Epoch":
        """An epoch from a dict, also from one that version 0.1 kept in a checkpoint."""
        row = {RENAMED.get(name, name): value for name, value in row.items()}
        return cls(**{f.name: row[f.name] for f in fields(cls) if f.name in row})


class TrainingSums:
    """Sums over the steps of an epoch, which become its training figures."""

    def __init__(self) -> None:
        self.loss, self.images, self.classes, self.start = 0.0, 0, 0, time.perf_counter()
        self.correct: int | Tensor = 0
        self.probabilities: bool | Tensor = True

    def add(self, loss: Tensor, outputs: Any, labels: Tensor) -> None:
        """Count one step. Outputs that are not logits (B, K) have no accuracy."""
        size = all_reduce_sum(len(labels))  # of the batch, in all processes
        self.loss += loss.item() * size / world_size()  # weighted by size: the last batch is smaller
        self.images += size
        if isinstance(outputs, Tensor) and outputs.ndim == 2:
            self.classes = outputs.shape[1]
            classes = labels.argmax(1) if labels.ndim == 2 else labels  # of labels that are probabilities, the most probable
            self.correct = self.correct + (outputs.argmax(1) == classes).sum()  # stays on the device
            sums = outputs.float().sum(1)  # of probabilities they are 1, up to the rounding of 16 bits
            self.probabilities = self.probabilities & (outputs >= 0).all() & ((sums - 1).abs() < 0.01).all()

    def means(self) -> dict[str, Any]:
        """loss, accuracy, num_classes, probabilities and images_per_second, of all processes together."""
        seconds, correct = time.perf_counter() - self.start, all_reduce_sum(int(self.correct))
        return {
            "loss": all_reduce_sum(self.loss) / self.images,
            "accuracy": correct / self.images if self.classes else math.nan,
            "num_classes": self.classes,
            "probabilities": all_reduce_sum(int(self.probabilities)) == world_size() and self.classes > 0,
            "images_per_second": self.images / seconds,
        }


class FlipTTA(nn.Module):
    """A trained classifier that also sees each image mirrored, and predicts the mean (test-time augmentation).

    forward: (B, C, H, W) -> (B, K), logarithms of the mean probabilities, to be used as logits
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        one, two = (self.model(x).log_softmax(dim=1) for x in (images, images.flip(3)))
        return torch.logaddexp(one, two) - math.log(2)  # no log of a probability that underflows to 0


@torch.no_grad()
def predict(model: nn.Module, batches: Iterable[Batch], device: str | torch.device = "cpu") -> Batch:
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
    model: nn.Module, batches: Iterable[Batch], device: str | torch.device = "cpu", label_smoothing: float = 0.0
) -> Score:
    """Loss and accuracy over all images of the batches, and of all processes."""
    logits, labels = map(all_gather, predict(model, batches, device))
    loss = F.cross_entropy(logits, labels, label_smoothing=label_smoothing)
    predictions = logits.argmax(1)
    majority_share = predictions.bincount().max() / len(predictions)
    return Score(loss.item(), (predictions == labels).float().mean().item(), majority_share.item())


def print_epoch(row: Epoch) -> None:
    """Print one line of a history: loss in nats; training figures are those seen while learning, on augmented images."""
    print(
        f"epoch {row['epoch']:3d}  loss {row['loss']:.3f}  accuracy {row['accuracy']:.3f}  "
        f"validation loss {row['val_loss']:.3f}  accuracy {row['val_accuracy']:.3f}  "
        f"lr {row['lr']:.1e}  {row['images_per_second']:,.0f} images/s"
    )
