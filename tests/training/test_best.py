"""The best epoch of a run: found, kept, and waited for; the history as a file."""

from dataclasses import replace
from math import nan

import pandas as pd
import pytest
import torch

from vit_helpers import ViT, ViTConfig
from vit_helpers.training import Epoch, Recipe, Score, fit
from vit_helpers.training.best import (
    EarlyStopping,
    HistoryFile,
    KeepWeights,
    best_epoch,
    kept_epoch,
)
from vit_helpers.training.checkpoints import Checkpoint

BATCHES = [(torch.rand(6, 1, 8, 8), torch.arange(6) % 3)]


def model():
    torch.manual_seed(0)
    return ViT(ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=3, depth=1))


def row(epoch, accuracy, loss):
    return Epoch(epoch, Score(0.5), Score(loss, accuracy))


def test_the_best_epoch_has_the_highest_accuracy_and_of_equals_the_lowest_loss():
    assert (
        best_epoch([row(1, 0.9, 0.2), row(2, 0.95, 0.5), row(3, 0.95, 0.4), row(4, 0.9, 0.1)]) == 3
    )
    assert best_epoch([row(1, 0.5, 0.2), row(2, 0.5, 0.2)]) == 1
    assert best_epoch([row(1, nan, nan)]) == 1
    with pytest.raises(ValueError, match="empty history"):
        best_epoch([])


def test_a_run_keeps_its_last_weights_and_with_patience_its_best():
    history = [row(1, 0.9, 0.1), row(2, 0.7, 0.2), row(3, 0.8, 0.3)]
    assert kept_epoch(history, None) == 3 and kept_epoch(history, 5) == 1


@pytest.mark.parametrize("patience", [None, 9])
def test_the_weights_of_that_epoch_are_kept(patience):
    kept, learner = {}, model()
    keep = KeepWeights(
        lambda weights, row: kept.update({row.number: {k: w.clone() for k, w in weights.items()}}),
        patience,
    )
    history = fit(learner, BATCHES, BATCHES, Recipe(epochs=4, lr=0.05), callbacks=[keep])
    assert max(kept) == kept_epoch(history, patience)
    again = model()
    alone = fit(again, BATCHES, BATCHES, Recipe(epochs=4, lr=0.05), callbacks=[])
    assert [replace(a, images_per_second=0) for a in alone] == [
        replace(a, images_per_second=0) for a in history
    ]
    assert all(torch.equal(w, again.state_dict()[k]) for k, w in learner.state_dict().items())


@pytest.mark.parametrize("patience", [1, 2, None])
def test_training_stops_when_nothing_has_become_better(patience):
    class Worse(EarlyStopping):
        """As if every epoch after the second were worse"""

        def on_epoch_end(self, run):
            epoch = len(run.history)
            run.history[-1] = row(epoch, 0.5 if epoch == 2 else 0.1, 1.0)
            super().on_epoch_end(run)

    history = fit(model(), BATCHES, BATCHES, Recipe(epochs=6), callbacks=[Worse(patience)])
    assert len(history) == (6 if patience is None else 2 + patience)


def test_a_run_that_was_stopped_is_not_trained_further(tmp_path):
    class Flat(EarlyStopping):
        def on_epoch_end(self, run):
            run.history[-1] = row(len(run.history), 0.5, 1.0)
            super().on_epoch_end(run)

    def train(*callbacks):
        return fit(model(), BATCHES, BATCHES, Recipe(epochs=6), callbacks=callbacks)

    path = tmp_path / "checkpoint.pt"
    assert len(train(Flat(2), Checkpoint(path))) == 3
    assert len(train(Checkpoint(path, resume=True), EarlyStopping(2))) == 3


def test_the_history_is_a_table(tmp_path):
    keep = HistoryFile(tmp_path / "h.csv")
    history = fit(model(), BATCHES, BATCHES, Recipe(epochs=3), callbacks=[keep])
    table = pd.read_csv(tmp_path / "h.csv")
    assert table["epoch"].tolist() == [1, 2, 3]
    assert table["val_loss"].tolist() == pytest.approx([row.validation.loss for row in history])
    assert [path.name for path in tmp_path.iterdir()] == ["h.csv"]


@pytest.mark.parametrize("make", [EarlyStopping, lambda patience: KeepWeights(print, patience)])
def test_patience_needs_validation(make):
    with pytest.raises(ValueError, match="epoch 1 has no validation"):
        fit(model(), BATCHES, None, Recipe(epochs=3), callbacks=[make(2)])
    keep = KeepWeights(lambda weights, epoch: None)
    assert len(fit(model(), BATCHES, None, Recipe(epochs=3), callbacks=[keep])) == 3
