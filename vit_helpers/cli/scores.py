"""Scores of a test: which classes are confused with which, and how certain accuracies are."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from vit_helpers._files import to_cell, write_result
from vit_helpers.cli.mistakes import Mistakes, predict_with_mistakes
from vit_helpers.data.splits import Batch
from vit_helpers.distributed import all_gather
from vit_helpers.training.measurements import Score, evaluate

UNEVEN = 2  # times as many images in the largest class as in the smallest


def score_classes(
    model: nn.Module, batches: Iterable[Batch], device: str | torch.device = "cpu"
) -> tuple[Score, Tensor, Mistakes]:
    """Return the score of a model on images, of all processes together.

    returns: also its `confusion`, and its worst mistakes
    """
    logits, labels, mistakes = predict_with_mistakes(model, batches, device)
    score = evaluate(nn.Identity(), [(logits, labels)])
    predictions = all_gather(logits.argmax(1))
    counts = confusion(predictions, all_gather(labels), logits.shape[1])
    return score, counts, mistakes.of_all_processes()


def confusion(predictions: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Count how many images of each class (row) got each prediction (column).

    (n,), (n,) -> (K, K)

    >>> confusion(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2)
    tensor([[1, 1],
            [0, 1]])
    """
    cells = labels * num_classes + predictions
    return cells.bincount(minlength=num_classes**2).view(num_classes, num_classes)


def wilson_interval(correct: int, n: int) -> tuple[float, float]:
    """Return a 95% interval for the accuracy behind `correct` of n images (Wilson 1927).

    It is (0, 1) for none.

    >>> [round(bound, 3) for bound in wilson_interval(27, 37)]
    [0.57, 0.846]
    """
    if n == 0:
        return 0.0, 1.0
    low, high = binomtest(correct, n).proportion_ci(method="wilson")
    return float(low), float(high)


def class_table(counts: Tensor, class_names: Sequence[str]) -> pd.DataFrame:
    """Return the accuracy of each class and of all, with 95% intervals.

    counts : (K, K), see `confusion`
    returns: rows named by the classes, and "all classes"; columns images, accuracy (NaN without
             images), low, high
    """
    pairs = [(int(counts[k, k]), int(counts[k].sum())) for k in range(len(counts))]
    pairs.append((int(counts.trace()), int(counts.sum())))
    rows = []
    for correct, n in pairs:
        accuracy = correct / n if n else math.nan
        rows.append((n, accuracy, *wilson_interval(correct, n)))
    return pd.DataFrame(rows, [*class_names, "all classes"], ["images", "accuracy", "low", "high"])


def balanced_accuracy(table: pd.DataFrame) -> float:
    """Return the mean of the classes' accuracies, of those that have images.

    table: `class_table`
    """
    return float(table["accuracy"].iloc[:-1].mean())


def is_uneven(table: pd.DataFrame) -> bool:
    """Say whether a class has twice as many images as another, of those that have any.

    table: `class_table`
    """
    sizes = table["images"].iloc[:-1]
    sizes = sizes[sizes > 0]
    return bool(sizes.max() >= UNEVEN * sizes.min())


def worst_classes(table: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the rows of the worst classes, the worst first.

    They are sorted by the upper ends of their intervals: a class of which the only image was
    missed may be better than one with 5 of 50.
    table: `class_table`
    """
    classes = table.iloc[:-1]
    tested = classes[classes["images"] > 0]
    return tested.sort_values(["high", "accuracy"], kind="stable").head(most)


def confused_pairs(counts: Tensor, class_names: Sequence[str], most: int) -> pd.DataFrame:
    """List the most frequent mistakes.

    counts : (K, K), see `confusion`
    returns: columns true class, predicted class, images, and their share of the true class
    """
    K = len(counts)
    mistakes = counts - counts.diag().diag()
    order = mistakes.flatten().argsort(descending=True, stable=True)[:most].tolist()
    rows = []
    for row, column in (divmod(cell, K) for cell in order):
        if images := int(mistakes[row, column]):
            share = images / int(counts[row].sum())
            rows.append((class_names[row], class_names[column], images, share))
    return pd.DataFrame(rows, columns=["true class", "predicted class", "images", "share"])


def save_class_table(table: pd.DataFrame, file: Path) -> None:
    """Write `class_table` as a CSV file."""
    with write_result(file) as part:
        table.rename(index=to_cell).to_csv(part, index_label="class")


def is_class_table(content: bytes) -> bool:
    """Return whether a file is one that `save_class_table` wrote."""
    return content.startswith(b"class,images,accuracy,low,high")
