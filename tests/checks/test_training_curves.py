"""The curves of notebook 07: five runs are what their faults say, every reading is answered."""

import itertools
import math
import statistics

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR

from vit_helpers.checks.mysteries import FAULTS, RUNS, mystery_runs, train_mysteries
from vit_helpers.checks.training_adamw import adamw_step
from vit_helpers.checks.training_curves import SPEAKS, check_reading
from vit_helpers.training.diagnosis import diagnose
from vit_helpers.training.recipe import warmup_cosine

READ = {letter: fault for letter, (fault, _) in RUNS.items()}


@pytest.fixture(
    scope="module",
    params=[mystery_runs, pytest.param(train_mysteries, marks=pytest.mark.long)],
    ids=["kept", "trained anew"],
)
def runs(request):
    return request.param()


def rows(runs, fault, key):
    letter = next(letter for letter in RUNS if READ[letter] == fault)
    return [row[key] for row in runs[letter]]


def test_five_runs_with_five_faults_and_nothing_that_gives_them_away(runs):
    assert list(runs) == list("ABCDE") and sorted(READ.values()) == list(FAULTS) == sorted(FAULTS)
    assert all(READ[letter] != fault for letter, fault in zip("ABCDE", FAULTS, strict=True))
    for history in runs.values():
        assert [row["epoch"] for row in history] == list(range(1, 7))
        assert not {"lr", "images_per_second"} & history[0].keys()
        assert {
            "loss",
            "accuracy",
            "val_loss",
            "val_accuracy",
            "val_majority_share",
            "num_classes",
        } <= history[0].keys()
        assert diagnose(history).symptom


def test_rate_too_high(runs):
    """On the whole not better than guessing.

    Single epochs can be, since rounding alone leads to another run.
    """
    losses = {key: rows(runs, "rate too high", key) for key in ("loss", "val_loss")}
    assert losses["loss"][0] > 5 and statistics.median(
        losses["loss"] + losses["val_loss"]
    ) > math.log(10)
    best = max(
        x for key in ("accuracy", "val_accuracy") for x in rows(runs, "rate too high", key)[1:]
    )
    learning = [fault for fault in FAULTS if fault not in ("rate too high", "labels shuffled")]
    assert best < min(
        rows(runs, fault, key)[-1] for fault in learning for key in ("accuracy", "val_accuracy")
    )


def test_rate_too_high_as_it_is_kept():
    kept = mystery_runs()
    assert rows(kept, "rate too high", "val_loss")[0] > 2.8
    assert (
        max(
            rows(kept, "rate too high", "accuracy")[1:]
            + rows(kept, "rate too high", "val_accuracy")[1:]
        )
        < 0.2
    )


def test_rate_too_low(runs):
    loss, val_loss = (rows(runs, "rate too low", key) for key in ("loss", "val_loss"))
    assert loss == sorted(loss, reverse=True) and loss[0] < 2.35 and 1.7 < loss[-1] < 2.15
    assert (
        val_loss[-1] < val_loss[-3] < val_loss[2]
        and max(abs(a - b) for a, b in zip(loss, val_loss, strict=True)) < 0.2
    )
    for key in ("accuracy", "val_accuracy"):
        assert 0.4 < rows(runs, "rate too low", key)[-1] < 0.75


def test_labels_shuffled(runs):
    for key in ("loss", "val_loss"):
        assert all(2.2 < x < 2.5 for x in rows(runs, "labels shuffled", key))
    for key in ("accuracy", "val_accuracy"):
        assert max(rows(runs, "labels shuffled", key)) < 0.22


def test_too_few_images(runs):
    loss, val_loss = (rows(runs, "too few images", key) for key in ("loss", "val_loss"))
    accuracy, val_accuracy = (
        rows(runs, "too few images", key) for key in ("accuracy", "val_accuracy")
    )
    assert accuracy[-1] > 0.98 and loss[0] < 2.3 and loss[3] < 0.3 and loss[-1] < 0.1
    assert (
        0.4 < val_accuracy[-1] < 0.75 and val_loss[-1] > 1.3 and val_loss[-1] > min(val_loss) + 0.1
    )


def test_nothing_wrong(runs):
    loss, val_loss = (rows(runs, "nothing wrong", key) for key in ("loss", "val_loss"))
    accuracy, val_accuracy = (
        rows(runs, "nothing wrong", key) for key in ("accuracy", "val_accuracy")
    )
    assert (
        1.9 < loss[0] < 2.3
        and loss[-1] < 0.6
        and val_loss[-1] < 0.7
        and accuracy[-1] > 0.8
        and val_accuracy[-1] > 0.8
    )
    assert max(a - b for a, b in zip(accuracy, val_accuracy, strict=True)) < 0.12


def told(answer, capsys):
    right = check_reading(answer)
    return right, capsys.readouterr().out.splitlines()


def test_a_right_reading_is_confirmed(capsys):
    for answer in (
        READ,
        {k.lower(): f" {v.title()} " for k, v in READ.items()},
        dict(reversed(READ.items())),
    ):
        right, lines = told(answer, capsys)
        assert right is True and len(lines) == 5 and all(line.startswith("[v]") for line in lines)


def test_every_wrong_entry_is_told_what_speaks_against_it(capsys):
    for letter, fault in itertools.product("ABCDE", FAULTS):
        if fault == READ[letter]:
            continue
        right, lines = told(READ | {letter: fault}, capsys)
        wrong = [line for line in lines if not line.startswith("[v]")]
        assert right is False and len(lines) == 5 and len(wrong) == 1
        would, here = SPEAKS[fault]
        assert wrong[0].startswith(f"[x] reading: {letter}: not '{fault}'") and would in wrong[0]
        assert here[READ[letter]] in wrong[0] and "here" in wrong[0]
        assert READ[letter] not in wrong[0].replace(fault, "")


READINGS = [
    (None, ["not written yet"]),
    ({}, ["not written yet"]),
    (dict.fromkeys("ABCDE", ...), ["not written yet"]),
    (dict.fromkeys("ABCDE", "..."), ["not written yet"]),
    (dict.fromkeys("ABCDE"), ["not written yet"]),
    (list(READ.values()), ["pass a dictionary"]),
    ("rate too high", ["pass a dictionary"]),
    (print, ["pass a dictionary"]),
    (
        READ | {"A": "learning rate"},
        ["A: 'learning rate' is not one of the names: labels shuffled, nothing wrong"],
    ),
    (READ | {"A": 3}, ["A: 3 is not one of the names"]),
    (READ | {"A": ["rate too high"]}, ["is not one of the names"]),
    (READ | {"A": ...}, ["A: no fault is named yet"]),
    ({k: v for k, v in READ.items() if k != "D"}, ["D: no fault is named yet"]),
    (READ | {"F": "nothing wrong"}, ["there is no run F"]),
    (READ | {7: "nothing wrong"}, ["there is no run 7"]),
    (dict.fromkeys("ABCDE", "nothing wrong"), ["A: not", "B: not", "D: not", "E: not"]),
]


@pytest.mark.parametrize(("answer", "says"), READINGS)
def test_odd_readings(answer, says, capsys):
    right, lines = told(answer, capsys)
    wrong = [line for line in lines if not line.startswith("[v]")]
    assert right is False and len(wrong) == len(says)
    assert all(words in line for words, line in zip(says, wrong, strict=True)), wrong


# some torch warns of what its own SequentialLR does
@pytest.mark.filterwarnings("ignore:The epoch parameter in")
def test_the_asked_schedule_is_the_one_that_torch_knows():
    """The rise and the fall of two schedulers of torch, one after the other."""
    total, warmup = 30, 6
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=1.0)
    rise = LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1)
    theirs = SequentialLR(optimizer, [rise, CosineAnnealingLR(optimizer, total - warmup)], [warmup])
    ours = LambdaLR(torch.optim.SGD([p], lr=1.0), lambda step: warmup_cosine(step, total, warmup))
    for _ in range(total):
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), abs=1e-6)
        for scheduler in (theirs, ours):
            scheduler.optimizer.step()
            scheduler.step()


def test_the_asked_step_is_the_one_that_torch_takes():
    """The reference beside torch's AdamW, over ten steps."""
    torch.manual_seed(0)
    settings = {"lr": 0.1, "betas": (0.8, 0.95), "eps": 0.01}
    w = torch.randn(3, 5, dtype=torch.float64)
    p, m, v = torch.nn.Parameter(w.clone()), torch.zeros_like(w), torch.zeros_like(w)
    optimizer = torch.optim.AdamW([p], weight_decay=0.3, **settings)
    for s in range(1, 11):
        p.grad = torch.randn_like(p)
        w, m, v = adamw_step(w, p.grad, m, v, s, *settings.values(), 0.3)
        optimizer.step()
        state = optimizer.state[p]
        for ours, theirs in ((w, p), (m, state["exp_avg"]), (v, state["exp_avg_sq"])):
            torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-14)
