"""The test of a model: intervals are scipy's, counts scikit-learn's; the picture shows them."""

import pandas as pd
import pytest
import torch
from commands import stop_halfway
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score, confusion_matrix
from torch import nn

from vit_helpers.cli.figures import draw_test
from vit_helpers.cli.outputs import print_classes
from vit_helpers.cli.scores import (
    balanced_accuracy,
    class_table,
    confused_pairs,
    confusion,
    is_class_table,
    is_uneven,
    save_class_table,
    score_classes,
    wilson_interval,
    worst_classes,
)
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
    score, counts, mistakes = score_classes(nn.Identity(), batches)
    assert score == evaluate(nn.Identity(), batches)
    assert counts.trace() / 50 == pytest.approx(score.accuracy)
    wrong = (logits.argmax(1) != labels).nonzero().flatten()
    worst = wrong[logits.softmax(dim=1).max(dim=1).values[wrong].argmax()]
    assert torch.equal(mistakes.images[0], logits[worst])


def test_balanced_accuracy_is_scikit_learns():
    labels, predictions = torch.randint(3, (90,)).clamp(max=1), torch.randint(4, (90,))
    table = class_table(confusion(predictions, labels, 4), list("abcd"))  # no image of c or d
    with pytest.warns(UserWarning, match="classes not in y_true"):
        theirs = balanced_accuracy_score(labels, predictions)
    assert balanced_accuracy(table) == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("sizes", "uneven"),
    [((50, 50), False), ((20, 39), False), ((20, 40), True), ((144, 6), True), ((9, 0), False)],
)
def test_balanced_accuracy_is_printed_where_classes_are_uneven(capsys, sizes, uneven):
    table = class_table(torch.tensor([[sizes[0], 0], [sizes[1], 0]]), ["cat", "a\ndog"])
    assert is_uneven(table) == uneven
    print_classes(table)
    out = capsys.readouterr().out
    assert ("balanced accuracy 0.5000, the mean over the classes" in out) == uneven
    other = f", 'a\\ndog': 0.00 ({sizes[1]})" if sizes[1] else ""
    assert out.endswith(f"accuracy of each class (and its images): cat: 1.00 ({sizes[0]}){other}\n")
    assert (f"which have {min(sizes)} to {max(sizes)} test images" in out) == uneven


def many_classes():
    """Counts of 40 classes, of which all mistakes are known, and their names"""
    counts = 50 * torch.eye(40).long()
    counts[7, 3], counts[3, 7], counts[39, 0], counts[12, 13] = 30, 10, 30, 1
    counts[20] = 0  # not tested
    counts[21] = torch.eye(40).long()[22]  # a single image
    return counts, [f"c{number}" for number in range(40)]


def test_of_many_classes_the_worst_and_the_most_confused_are_shown(capsys):
    counts, names = many_classes()
    table = class_table(counts, names)
    pairs = confused_pairs(counts, names, 4)
    assert pairs.to_numpy().tolist() == [
        ["c7", "c3", 30, 30 / 80],
        ["c39", "c0", 30, 30 / 80],
        ["c3", "c7", 10, 10 / 60],
        ["c12", "c13", 1, 1 / 51],
    ]
    assert len(confused_pairs(counts, names, 99)) == 5
    # c21 has a single image, so it may be better than its accuracy of 0
    assert worst_classes(table, 4).index.tolist() == ["c7", "c39", "c21", "c3"]
    left, right = draw_test(counts, table).axes
    labels = [text.get_text() for text in left.get_yticklabels()]
    assert labels == ["c7 as c3", "c39 as c0", "c3 as c7", "c12 as c13", "c21 as c22"]
    assert [bar.get_width() for bar in left.patches] == [30, 30, 10, 1, 1]
    assert [text.get_text() for text in left.texts][:3] == ["30 (38%)", "30 (38%)", "10 (17%)"]
    assert len(right.get_yticklabels()) == 15
    assert right.get_title(loc="left") == "The 15 worst of 39 classes"
    print_classes(table)
    assert "\nworst of 39 classes (and their images): c7: 0.62 (80), " in capsys.readouterr().out
    perfect = torch.eye(60).long()
    draw_test(perfect, class_table(perfect, list(map(str, range(60))))).canvas.draw()


def test_the_table_of_the_classes_is_a_file_that_is_known_again(tmp_path):
    counts, names = many_classes()
    save_class_table(class_table(counts, ["=1+1", *names[1:]]), tmp_path / "classes.csv")
    content = (tmp_path / "classes.csv").read_bytes()
    assert is_class_table(content) and not is_class_table(b"class,weekday\n")
    rows = pd.read_csv(tmp_path / "classes.csv", index_col="class")
    assert rows.index[0] == "'=1+1" and rows.index[-1] == "all classes"
    assert rows.loc["c7", "accuracy"] == 50 / 80 and rows.loc["c20", "images"] == 0


def test_a_table_that_is_not_finished_leaves_the_one_before(tmp_path, monkeypatch):
    table, file = class_table(*many_classes()), tmp_path / "classes.csv"
    save_class_table(table, file)
    before = file.read_bytes()
    monkeypatch.setattr(pd.DataFrame, "to_csv", stop_halfway)
    with pytest.raises(KeyboardInterrupt):
        save_class_table(table, file)
    assert list(tmp_path.iterdir()) == [file] and file.read_bytes() == before
