"""Scores of a test: which classes are confused with which, and how certain accuracies are."""

import math
from collections.abc import Iterable, Sequence

import pandas as pd
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from vit_helpers.data.splits import Batch
from vit_helpers.distributed import all_gather
from vit_helpers.training.measurements import Score, evaluate, predict


def score_classes(
    model: nn.Module, batches: Iterable[Batch], device: str | torch.device = "cpu"
) -> tuple[Score, Tensor]:
    """Return the score of a model on images, of all processes together, and its `confusion`."""
    logits, labels = predict(model, batches, device)
    score = evaluate(nn.Identity(), [(logits, labels)])
    predictions = all_gather(logits.argmax(1))
    return score, confusion(predictions, all_gather(labels), logits.shape[1])


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
