"""Test results: which classes are confused with which, and how certain the accuracies are."""

import math
from collections.abc import Iterable, Sequence

import pandas as pd
import torch
from torch import Tensor, nn

from vit_helpers.data.splits import Batch
from vit_helpers.distributed import all_gather
from vit_helpers.training.measurements import Score, evaluate, predict


def score_classes(
    model: nn.Module, batches: Iterable[Batch], device: str | torch.device = "cpu"
) -> tuple[Score, Tensor]:
    """The score of a model on some images, of all processes together, and its confusion matrix, see `confusion`."""
    logits, labels = predict(model, batches, device)
    score = evaluate(nn.Identity(), [(logits, labels)])
    predictions = all_gather(logits.argmax(1))
    return score, confusion(predictions, all_gather(labels), logits.shape[1])


def confusion(predictions: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """How many images of each class (row) got each prediction (column): (n,), (n,) -> (K, K)

    >>> confusion(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2)
    tensor([[1, 1],
            [0, 1]])
    """
    return (
        (labels * num_classes + predictions)
        .bincount(minlength=num_classes**2)
        .view(num_classes, num_classes)
    )


def wilson_interval(correct: int, n: int) -> tuple[float, float]:
    """A 95% interval for the accuracy behind `correct` of n images (Wilson 1927); (0, 1) for none.

    >>> [round(bound, 3) for bound in wilson_interval(27, 37)]
    [0.57, 0.846]
    """
    from scipy.stats import binomtest

    bounds = binomtest(correct, n).proportion_ci(method="wilson") if n else (0.0, 1.0)
    return float(bounds[0]), float(bounds[1])


def class_table(counts: Tensor, class_names: Sequence[str]) -> pd.DataFrame:
    """The accuracy of each class and of all, with 95% intervals.

    counts : (K, K), see `confusion`
    returns: rows named by the classes, and "all classes"; columns images, accuracy (NaN without images), low, high
    """
    rows = [(int(counts[k, k]), int(counts[k].sum())) for k in range(len(counts))]
    rows.append((int(counts.trace()), int(counts.sum())))
    table = [
        (n, correct / n if n else math.nan, *wilson_interval(correct, n)) for correct, n in rows
    ]
    return pd.DataFrame(table, [*class_names, "all classes"], ["images", "accuracy", "low", "high"])
