"""What `train` checks before and after it fits: the weights that are kept."""

import pytest

from vit_helpers.cli.fitting import check_kept
from vit_helpers.training import Epoch, Score
from vit_helpers.training.measurements import UNKNOWN

pytestmark = pytest.mark.usefixtures("no_figures")


def test_with_patience_missing_weights_of_the_best_epoch_are_said(tmp_path):
    history = [Epoch(n, UNKNOWN, Score(1.0, accuracy)) for n, accuracy in ((1, 0.9), (2, 0.8))]
    path = tmp_path / "weights.safetensors"
    assert "the weights of epoch 1 is missing" in check_kept(path, history, patience=3)
    assert check_kept(path, history, patience=None) == ""
