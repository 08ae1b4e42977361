"""The test of a model: intervals are scipy's, counts scikit-learn's; the picture shows them."""

import pytest
import torch
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix
from torch import nn

from vit_helpers.cli.figures import draw_test
from vit_helpers.cli.scores import class_table, confusion, score_classes, wilson_interval
from vit_helpers.training import evaluate


@pytest.mark.parametrize(
    ("correct", "n"), [(0, 1), (1, 1), (27, 37), (360, 360), (0, 50), (499, 1000)]
)
def test_intervals_are_scipys(correct, n):
    theirs = binomtest(correct, n).proportion_ci(0.95, "wilson")
    assert wilson_interval(correct, n) == pytest.approx((theirs.low, theirs.high), abs=1e-7)


def test_no_images_say_nothing():
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_counts_are_scikit_learns():
    logits, labels = torch.randn(50, 4), torch.randint(4, (50,))
    assert (
        confusion(logits.argmax(1), labels, 4).tolist()
        == confusion_matrix(labels, logits.argmax(1)).tolist()
    )
    batches = [(logits[:30], labels[:30]), (logits[30:], labels[30:])]
    score, counts = score_classes(nn.Identity(), batches)
    assert score == evaluate(nn.Identity(), batches)
    assert counts.trace() / 50 == pytest.approx(score.accuracy)


def test_the_table_and_the_picture():
    names = ["up $x_1$", "a name that is far too long to be drawn", "nobody"]
    counts = torch.tensor([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    table = class_table(counts, names)
    assert table.index.tolist() == [*names, "all classes"]
    assert table["images"].tolist() == [10, 10, 0, 20] and table["accuracy"].tolist()[:2] == [
        0.8,
        0.9,
    ]
    assert table["accuracy"].isna().tolist() == [False, False, True, False]
    left, right = draw_test(counts, table).axes
    assert left.get_title(loc="left") == "17 of 20 images are classified correctly"
    names = [text.get_text() for text in right.get_yticklabels()]
    assert names == [r"up \$x_1\$ (10)", "a name that is fa… (10)", "nobody (0)"]
    draw_test(
        torch.eye(60).long(), class_table(torch.eye(60).long(), list(map(str, range(60))))
    ).canvas.draw()
