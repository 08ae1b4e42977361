"""Evaluation, prediction, and the rows of a history: counted once, kept, copied."""

import contextlib
import copy
import math
import pickle
from dataclasses import FrozenInstanceError

import pytest
import torch
import torch.nn.functional as F
from small_classifier import Classifier, batches, problem
from torch import nn

from vit_helpers.training import Epoch, FlipTTA, Score, evaluate, predict
from vit_helpers.training.cnn import CNN
from vit_helpers.training.diagnosis import diagnose
from vit_helpers.training.measurements import Evidence
from vit_helpers.training.recipe import Recipe


def test_evaluation_counts_every_image_once():
    model, data = Classifier(), problem()
    score = evaluate(model, batches())
    model.eval()
    logits = model(data.images)
    assert score.images == 100
    assert score.loss == pytest.approx(F.cross_entropy(logits, data.labels).item(), abs=1e-6)
    assert score.accuracy == pytest.approx((logits.argmax(1) == data.labels).float().mean().item())
    assert score.majority_share == pytest.approx(
        max((logits.argmax(1) == k).float().mean().item() for k in range(3))
    )


def test_prediction_leaves_the_mode_of_the_model_alone():
    model = Classifier().train()
    first, _ = predict(model, batches())
    second, _ = predict(model, batches())
    assert model.training and torch.equal(first, second) and not first.requires_grad
    predict(model.eval(), batches())
    assert not model.training


@pytest.mark.parametrize("function", [predict, evaluate])
@pytest.mark.parametrize("data", [batches(), [(torch.zeros(2, 5), torch.zeros(2))]])
def test_each_part_keeps_its_mode_also_after_an_error(function, data):
    model = Classifier().train()
    model.layers.eval()
    modes = [part.training for part in model.modules()]
    with contextlib.suppress(RuntimeError):  # of images with too few pixels
        function(model, data)
    assert [part.training for part in model.modules()] == modes


def test_an_epoch_is_a_row_of_the_history_file_and_back():
    rows = [EPOCH.to_row(), Epoch(2, Score(0.5)).to_row()]
    assert list(rows[0]) == HISTORY_COLUMNS and list(rows[1]) == HISTORY_COLUMNS
    assert (rows[0]["loss"], rows[0]["val_loss"], rows[0]["num_classes"]) == (0.5, 0.25, 3)
    assert math.isnan(rows[1]["val_loss"]) and rows[1]["val_images"] == 0
    assert Epoch.from_row(rows[0]) == EPOCH
    assert Epoch.from_row(rows[1]).validation is None
    with pytest.raises(FrozenInstanceError):
        EPOCH.lr = 0.1


HISTORY_COLUMNS = [  # of history.csv, which readers know by these names
    *("epoch", "lr", "loss", "accuracy", "num_classes", "probabilities", "images_per_second"),
    *("val_loss", "val_accuracy", "val_majority_share", "val_images", "val_largest_class"),
    *("images", "batch_size", "tokens", "least_loss", "guess_loss"),
]


EPOCH = Epoch(
    1,
    lr=0.1,
    train=Score(0.5, 1.0, 100),
    validation=Score(0.25, 0.5, 50, majority_share=1.0, largest_class=0.5),
    images_per_second=9.0,
    evidence=Evidence(3, True, 32, 17, 0.1, 0.2),
)


def test_mirrored_predictions_have_no_log_of_zero():
    class Sure(nn.Module):
        """200 for the half of the image that is brighter"""

        def forward(self, images):
            return 200 * torch.stack(
                [images[..., :1].sum((1, 2, 3)), images[..., 1:].sum((1, 2, 3))], dim=1
            )

    images = torch.tensor([[[[1.0, 0.0]]], [[[0.0, 0.0]]]])
    logits = FlipTTA(Sure())(images)
    assert torch.allclose(logits, torch.full((2, 2), -math.log(2)))
    same = FlipTTA(lambda images: torch.tensor([[200.0, 0.0]]).expand(len(images), 2))(images)
    assert torch.allclose(same, torch.tensor([[0.0, -200.0]]))


@pytest.mark.parametrize(
    "thing",
    [
        EPOCH,
        Score(0.5, 0.25, 100),
        Recipe(lr=0.1),
        diagnose([Epoch(1, Score(math.inf))]),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_results_survive_copies_and_pickles(thing):
    assert copy.copy(thing) == copy.deepcopy(thing) == pickle.loads(pickle.dumps(thing)) == thing


@pytest.mark.parametrize(
    "make", [lambda: FlipTTA(CNN(1, 2, 4)), lambda: CNN(1, 2, 4)], ids=["FlipTTA", "CNN"]
)
def test_models_survive_copies_and_pickles(make):
    model, images = make().eval(), torch.randn(3, 1, 8, 8)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(images), model(images))
