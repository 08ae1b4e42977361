"""The failing runs of notebook 07: one change repairs each, and every other choice is answered."""

import itertools
from statistics import fmean

import pytest

from vit_helpers.checks import training_repairs
from vit_helpers.checks.engine.report import share
from vit_helpers.checks.training_repairs import (
    CHANGES,
    NOTHING,
    RUNS,
    SEEDS,
    WHY,
    check_repair,
    failing_runs,
    measure,
    measured,
    repair_of,
    train,
)
from vit_helpers.training.diagnosis import diagnose

REPAIRS = {
    "F": "AdamW instead of Adam with L2",
    "G": "ten times the learning rate",
    "H": "a tenth of the learning rate",
}

each_run = pytest.mark.parametrize("letter", RUNS)


# The runs


@each_run
def test_one_change_repairs_a_run_with_every_seed_and_no_other_does(letter):
    accuracies = measured()[letter]["accuracies"]
    assert list(accuracies) == [NOTHING, *CHANGES]
    assert {len(seeds) for seeds in accuracies.values()} == {len(SEEDS)}
    repaired = accuracies.pop(REPAIRS[letter])
    assert repair_of(letter) == REPAIRS[letter]
    assert min(repaired) > 0.8 > 0.05 + max(itertools.chain(*accuracies.values()))


def test_the_order_of_the_list_gives_nothing_away():
    assert list(CHANGES) == sorted(CHANGES, key=str.lower)
    places = [list(CHANGES).index(repair) for repair in REPAIRS.values()]
    assert places not in (sorted(places), sorted(places, reverse=True))


def test_the_histories_are_those_of_the_runs_as_they_are():
    runs = failing_runs()
    assert list(runs) == list(RUNS)
    for letter, history in runs.items():
        assert [row["epoch"] for row in history] == list(range(1, RUNS[letter].epochs + 1))
        assert history[-1]["val_accuracy"] == measured()[letter]["accuracies"][NOTHING][0]
        assert "lr" not in history[0]  # it would reveal the repair
        assert diagnose(history).symptom


def test_what_the_curves_show():
    """What the hint and the messages say of them."""
    losses = {letter: [row["loss"] for row in rows] for letter, rows in failing_runs().items()}
    assert losses["H"][0] > 2.303 > max(losses["F"][0], losses["G"][0])
    assert losses["F"][-1] > min(losses["F"]) + 0.1
    assert losses["G"] == sorted(losses["G"], reverse=True) and losses["G"][-1] > 1.5


def test_every_change_is_trained_with_every_seed(monkeypatch):
    """The tool passes each setting on; the trainings themselves are replaced."""
    seen = []

    def note(recipe, seed):
        seen.append((recipe, seed))
        row = dict.fromkeys(("loss", "accuracy", "num_classes", "val_loss", "secret"), 0.0)
        return [row | {"epoch": 1, "val_accuracy": len(seen)}]

    monkeypatch.setattr(training_repairs, "train", note)
    found = measure(RUNS["F"])
    recipes = [RUNS["F"], *(change(RUNS["F"]) for change in CHANGES.values())]
    assert seen == list(itertools.product(recipes, SEEDS)) and len(set(recipes)) == len(recipes)
    assert found["accuracies"][NOTHING] == list(range(1, len(SEEDS) + 1))
    assert "secret" not in found["history"][0] and found["history"][0]["val_accuracy"] == 1


@pytest.mark.long
def test_a_run_trained_anew_fails_and_is_repaired():
    failing, repaired = RUNS["F"], CHANGES[REPAIRS["F"]](RUNS["F"])
    accuracies = [train(recipe, seed=0)[-1]["val_accuracy"] for recipe in (failing, repaired)]
    assert accuracies[0] < 0.6 < accuracies[1]


# What the check says


def told(answer, capsys):
    right = check_repair(answer)
    return right, capsys.readouterr().out.splitlines()


def test_right_repairs_are_confirmed(capsys):
    for answer in (
        REPAIRS,
        {letter.lower(): f" {name.upper()} " for letter, name in REPAIRS.items()},
        dict(reversed(REPAIRS.items())),
    ):
        right, lines = told(answer, capsys)
        assert right is True and all(line.startswith("[v]") for line in lines)
        assert len(lines) == len(RUNS)


def test_every_wrong_change_is_answered_by_what_it_does(capsys):
    assert {letter: {*CHANGES} - {*why} for letter, why in WHY.items()} == {
        letter: {repair} for letter, repair in REPAIRS.items()
    }
    for letter, change in itertools.product(RUNS, CHANGES):
        if change == REPAIRS[letter]:
            continue
        right, lines = told(REPAIRS | {letter: change}, capsys)
        (wrong,) = [line for line in lines if not line.startswith("[v]")]
        accuracies = measured()[letter]["accuracies"]
        effect = (
            f"becomes {fmean(accuracies[change]):.2f} instead of {fmean(accuracies[NOTHING]):.2f}"
        )
        assert right is False and wrong.startswith(f"[x] repair: {letter}: not '{change}': ")
        assert effect in wrong and wrong.endswith(WHY[letter][change])
        assert REPAIRS[letter] not in wrong


ODD = [
    (None, ["not written yet"]),
    ({}, ["not written yet"]),
    (dict.fromkeys(RUNS, ...), ["not written yet"]),
    (dict.fromkeys(RUNS, "..."), ["not written yet"]),
    (list(REPAIRS.values()), ["pass a dictionary"]),
    ("AdamW", ["pass a dictionary"]),
    (REPAIRS | {"F": "AdamW"}, ["F: 'AdamW' is not one of the changes: a tenth of the"]),
    (REPAIRS | {"F": 3}, ["F: 3 is not one of the changes"]),
    (REPAIRS | {"G": ...}, ["G: no change is chosen yet"]),
    ({k: v for k, v in REPAIRS.items() if k != "H"}, ["H: no change is chosen yet"]),
    (REPAIRS | {"A": "twice as many epochs"}, ["there is no run A; the runs are F, G, H"]),
]


@pytest.mark.parametrize(("answer", "says"), ODD)
def test_odd_answers(answer, says, capsys):
    right, lines = told(answer, capsys)
    wrong = [line for line in lines if not line.startswith("[v]")]
    assert right is False and len(wrong) == len(says)
    assert all(words in line for words, line in zip(says, wrong, strict=True)), wrong


def test_each_run_is_worth_the_same():
    assert share(check_repair, REPAIRS) == 1
    assert share(check_repair, REPAIRS | {"G": "clipping to a norm of 1"}) == 2 / 3
    assert share(check_repair, dict.fromkeys(RUNS, ...)) == 0
