"""The worst mistakes of a test: which they are, and their picture."""

import numpy as np
import pytest
import torch
from torch import nn

from vit_helpers.cli.mistakes import WORST, Answers, predict_with_mistakes
from vit_helpers.data import load
from vit_helpers.training import predict
from vit_helpers.vit import ViT, ViTConfig


def test_the_worst_are_the_most_confident_wrong_answers():
    probabilities, labels = torch.rand(80, 3).softmax(dim=1), torch.randint(3, (80,))
    table, truth = probabilities.numpy(), labels.numpy()
    wrong = np.flatnonzero(table.argmax(axis=1) != truth)
    order = np.argsort(-table.max(axis=1)[wrong], kind="stable")[:12]
    answers = Answers.from_probabilities(probabilities, labels)
    assert answers.worst().tolist() == wrong[order].tolist()
    assert torch.equal(answers.take(answers.worst()).labels, labels[wrong[order]])


def test_there_are_no_more_mistakes_than_wrong_answers():
    probabilities, labels = torch.eye(3)[[0, 1, 1, 2]], torch.tensor([0, 1, 2, 2])
    assert Answers.from_probabilities(probabilities, labels).worst().tolist() == [2]
    assert Answers.from_probabilities(probabilities[:2], labels[:2]).worst().tolist() == []


def test_mistakes_of_batches_are_those_of_all_images():
    """Whatever the batches, of which one may be empty, as in a process that gets no image"""
    data = load("digits")
    model = ViT(ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=10))
    whole = predict_with_mistakes(model, data.batches("test", 1000))
    images, labels = next(iter(data.batches("test", 1000)))
    empty = (images[:0], labels[:0])
    batches = predict_with_mistakes(model, [empty, *data.batches("test", 70), empty])
    logits, truth = predict(model, data.batches("test", 1000))
    for found_logits, found_labels, mistakes in (whole, batches):
        assert torch.allclose(found_logits, logits, atol=1e-6)
        assert torch.equal(found_labels, truth)
        worst = Answers.from_probabilities(logits.double().softmax(dim=1), truth).worst()
        assert torch.equal(mistakes.images, images[worst]) and len(worst) == WORST
        assert torch.equal(mistakes.answers.labels, truth[worst])
    pixels = data.test.images[worst]
    assert torch.allclose(mistakes.unnormalize(data.mean, data.std).images, pixels, atol=1e-6)


def test_probabilities_that_are_1_in_float32_are_told_apart():
    logits = torch.tensor([[20.0, 0.0], [30.0, 0.0], [25.0, 0.0]])
    _, _, mistakes = predict_with_mistakes(nn.Identity(), [(logits, torch.ones(3).long())])
    assert mistakes.images[:, 0].tolist() == [30, 25, 20]


def test_without_a_batch_there_is_an_error():
    with pytest.raises(ValueError, match="predict"):
        predict_with_mistakes(nn.Identity(), [])
