"""The worst mistakes of a test: which they are, and their picture."""

import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from torch import nn

from vit_helpers.cli.figures import draw_worst, width_of
from vit_helpers.cli.mistakes import WORST, Answers, Mistakes, predict_with_mistakes
from vit_helpers.data import load
from vit_helpers.plots.overflow import overflow_faults
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
    with pytest.raises(ValueError, match="no batch to predict"):
        predict_with_mistakes(nn.Identity(), [])


NAMES = ["cat", "a name that is far too long $x_1$", "W" * 30]


@pytest.mark.parametrize("count", [1, 4, 12])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 224, 160)])
def test_the_picture_names_both_classes_the_probability_and_the_file(count, shape):
    labels, predictions = torch.arange(count) % 3, torch.arange(1, count + 1) % 3
    answers = Answers(labels, predictions, torch.linspace(0.999, 0.5, count))
    pictures = [f"a file whose name is longer than the image {n}.jpg" for n in range(count)]
    figure = draw_worst(Mistakes(torch.rand(count, *shape), answers), NAMES, 1234, pictures)
    assert overflow_faults(figure) == []
    assert figure.get_suptitle().startswith(f"{count} of 1,234 wrong answers")
    axes = [ax for ax in figure.axes if ax.images]
    assert len(axes) == count
    titles = [ax.get_title() for ax in axes]
    cut = r"a name that i.*… \(99\.9%\)\ntrue: cat"
    assert re.fullmatch(cut + r"\n….*er than the image 0\.jpg", titles[0])
    boxes = [ax.title.get_window_extent() for ax in axes[:4]]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert {ax.title.get_fontsize() for ax in axes} == {12}
    extents = [ax.get_window_extent() for ax in axes]  # in pixels of the file
    assert min(max(extent.width, extent.height) for extent in extents) >= 200
    unnamed = draw_worst(Mistakes(torch.rand(count, *shape), answers), NAMES, count)
    assert re.fullmatch(cut, unnamed.axes[0].get_title())


@pytest.mark.parametrize("text", ["i", "W" * 30, "Größe: 99.9% (jQ&@)", "…er than the image"])
def test_a_text_is_as_wide_as_matplotlib_says(text):
    path = TextPath((0, 0), text, prop=FontProperties(size=12))
    assert width_of(path) == pytest.approx(path.get_extents().width)
