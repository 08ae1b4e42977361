"""What a model answered to the images of a test, and its worst mistakes: the most confident."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vit_helpers.data.splits import Batch
from vit_helpers.distributed import all_gather
from vit_helpers.training.measurements import predict

WORST = 12  # mistakes, at most, that are shown


class Answers(NamedTuple):
    """The answers to some images, in their order.

    labels       : (n,), the true classes
    predictions  : (n,), the most probable classes
    probabilities: (n,), those of the predictions
    """

    labels: Tensor
    predictions: Tensor
    probabilities: Tensor

    @classmethod
    def from_probabilities(cls, probabilities: Tensor, labels: Tensor) -> "Answers":
        """Take the most probable class of each image: (n, K), (n,)"""
        predictions = probabilities.argmax(dim=1)
        return cls(labels, predictions, probabilities.gather(1, predictions[:, None])[:, 0])

    def take(self, rows: Tensor) -> "Answers":
        """Return the answers to the images with these numbers, in this order."""
        return Answers(*(column[rows] for column in self))

    def worst(self) -> Tensor:
        """Return the numbers of the most confident wrong answers, the worst first; 12 at most."""
        wrong = (self.labels != self.predictions).nonzero().flatten()
        order = self.probabilities[wrong].argsort(descending=True, stable=True)
        return wrong[order[:WORST]]


class Mistakes(NamedTuple):
    """The most confident wrong answers, the worst first.

    images: (m, C, H, W), as the model got them, or from 0 to 1;  answers: to these m images
    """

    images: Tensor
    answers: Answers

    @classmethod
    def among(cls, images: Tensor, answers: Answers) -> "Mistakes":
        """Find them among these images, (n, C, H, W), and the n answers to them."""
        rows = answers.worst()
        return cls(images[rows], answers.take(rows))

    def merge(self, others: "Mistakes") -> "Mistakes":
        """Find them among these and others."""
        columns = zip(self.answers, others.answers, strict=True)
        answers = Answers(*(torch.cat(pair) for pair in columns))
        return self.among(torch.cat([self.images, others.images]), answers)

    def unnormalize(self, mean: Sequence[float], std: Sequence[float]) -> "Mistakes":
        """Return them with images from 0 to 1.  mean, std: of each channel, as for `normalize`"""
        scale, shift = (self.images.new_tensor(values).view(-1, 1, 1) for values in (std, mean))
        return self._replace(images=self.images * scale + shift)

    def of_all_processes(self) -> "Mistakes":
        """Find them among those of all processes, which all need to ask."""
        return self.among(all_gather(self.images), Answers(*map(all_gather, self.answers)))


def predict_with_mistakes(
    model: nn.Module, batches: Iterable[Batch], device: str | torch.device = "cpu"
) -> tuple[Tensor, Tensor, Mistakes]:
    """As `predict`, and keep the images of the worst mistakes, of this process alone.

    raises: ValueError for no batches
    """
    parts, mistakes = list[Batch](), None
    for images, labels in batches:
        logits, labels = predict(model, [(images, labels)], device)
        parts.append((logits, labels))
        answers = Answers.from_probabilities(logits.double().softmax(dim=1), labels)
        among = Mistakes.among(images.cpu(), answers)
        mistakes = mistakes.merge(among) if mistakes else among
    if mistakes is None:
        raise ValueError("no batch to predict")
    all_logits, all_labels = (torch.cat(column) for column in zip(*parts, strict=True))
    return all_logits, all_labels, mistakes
