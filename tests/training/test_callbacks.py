"""Callbacks: when they are called, and what the usual one reports."""

import copy
import pickle

import pytest
from small_classifier import Classifier, batches, silent

from vit_helpers.distributed import ShardedBatches
from vit_helpers.training import Callback, fit
from vit_helpers.training.callbacks import Report
from vit_helpers.training.checkpoints import Checkpoint
from vit_helpers.training.recipe import Recipe


class Notes(Callback):
    """Remembers what it was told"""

    def __init__(self):
        self.told = []

    def on_fit_start(self, run):
        self.told.append(("start", len(run.history), run.steps))

    def on_step_end(self, run, outputs, labels, loss):
        assert loss.ndim == 0
        self.told.append((tuple(outputs.shape), len(labels)))

    def on_epoch_end(self, run):
        self.told.append((run.history[-1].number, run.schedule.last_epoch, run.model.training))

    def on_fit_end(self, run):
        self.told.append(("end", len(run.history), run.steps))


def test_callbacks_are_called_before_after_and_between():
    notes, rows = Notes(), []
    callbacks = [notes, Report(rows.append)]
    history = fit(Classifier(), batches(), batches(), Recipe(epochs=2), callbacks=callbacks)
    steps = [((32, 3), 32), ((32, 3), 32), ((32, 3), 32), ((4, 3), 4)]
    assert notes.told == [
        ("start", 0, 8),
        *(*steps, (1, 4, True)),
        *(*steps, (2, 8, True)),
        ("end", 2, 8),
    ]
    assert rows == history


@pytest.mark.parametrize(
    "thing",
    [Checkpoint("a.pt", about={"x": 1}), Report(print), Report(), ShardedBatches(batches())],
)
def test_what_attaches_survives_copies_and_pickles(thing):
    for twin in (copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
        assert type(twin) is type(thing) and vars(twin).keys() == vars(thing).keys()


def test_a_run_ends_with_its_diagnosis_unless_it_reports_elsewhere(capsys):
    fit(Classifier(), batches(), batches(), Recipe(epochs=1, lr=1e-9))
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("epoch   1") and last.split(":")[0] in (
        "constant prediction",
        "stuck at ln K",
    )
    fit(Classifier(), batches(), batches(), Recipe(epochs=1), **silent)
    assert not capsys.readouterr().out
