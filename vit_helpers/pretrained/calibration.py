"""Calibration: probabilities that say how often a classifier is right.

And images that are unlike all that it has learned from.
"""

import json
import math
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from vit_helpers._files import shown
from vit_helpers.pretrained.files import read_notes
from vit_helpers.pretrained.sources import find_file

NOTE = "familiarity"  # its name in a file of weights


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Find the temperature T for which softmax(logits / T) has the lowest cross-entropy.

    logits: (n, K), of images that the model was not trained on
    labels: (n,)
    source: Guo et al., arXiv 1706.04599
    """

    def loss(log_t: float) -> float:
        return F.cross_entropy(logits / math.exp(log_t), labels).item()

    return math.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)


@dataclass(frozen=True)
class Familiarity:
    """How far images are from all classes that a model has learned, by its pooled features.

    means : (K, D), the mean feature of each class
    whiten: (D, D), so that features spread equally in all directions
    limit : the distance that few familiar images exceed
    raises: ValueError if the limit is NaN, which no distance exceeds

    The distance is Mahalanobis's to the nearest mean, with one covariance for all classes (Lee et
    al., arXiv 1807.03888).
    """

    means: Tensor
    whiten: Tensor
    limit: float

    def __post_init__(self) -> None:
        if math.isnan(self.limit):
            raise ValueError("the limit of familiar images must be a distance, got nan")

    @classmethod
    def from_features(
        cls, features: Tensor, labels: Tensor, new: Tensor, share: float = 0.95
    ) -> "Familiarity":
        """Learn it from training images, and its limit from others.

        features: (n, D), of training images;  labels: (n,); a class without images isn't learned
        new     : (m, D), features of images of which this share stays below the limit
        """
        classes, rows = labels.unique(return_inverse=True)
        means = torch.stack([features[labels == k].mean(dim=0) for k in classes])
        values, directions = torch.linalg.eigh((features - means[rows]).T.cov())
        whiten = directions / values.clamp(min=1e-6 * values.max()).sqrt()
        distances = cls(means, whiten, math.inf).distance(new)
        return cls(means, whiten, distances.quantile(share).item())

    def distance(self, features: Tensor) -> Tensor:
        """Compute the distance to the nearest class: (B, D) -> (B,)."""
        return torch.cdist(features @ self.whiten, self.means @ self.whiten).amin(dim=1)

    def to_note(self) -> str:
        """Write it as text, for the notes of `save_weights`; numbers are rounded to 16 bits."""
        return json.dumps(
            {"means": to_base64(self.means), "whiten": to_base64(self.whiten), "limit": self.limit}
        )

    @classmethod
    def from_note(cls, note: str) -> "Familiarity":
        """Read what `to_note` wrote."""
        entries = json.loads(note)
        means, whiten = from_base64(entries["means"]), from_base64(entries["whiten"])
        D = math.isqrt(len(whiten))
        return cls(means.view(-1, D), whiten.view(D, D), entries["limit"])


def to_base64(tensor: Tensor) -> str:
    """Write the numbers of a tensor, rounded to 16 bits, as text."""
    return b64encode(tensor.half().numpy().tobytes()).decode()


def from_base64(text: str) -> Tensor:
    """Read what `to_base64` wrote: (n,) float32."""
    return torch.from_numpy(np.frombuffer(b64decode(text), np.float16).astype(np.float32))


def load_familiarity(name: str | Path) -> Familiarity | None:
    """Read what a file of weights says about familiar images; None if it says nothing.

    name  : as for `load_pretrained`
    raises: ValueError, naming it, if that is not what `to_note` writes for such a model
    """
    file = find_file(name)
    notes = read_notes(file) if file.suffix == ".safetensors" else {}
    if NOTE not in notes:
        return None
    try:
        familiarity = Familiarity.from_note(notes[NOTE])
        D = json.loads(notes["config"])["embed_dim"]
        _ = familiarity.distance(torch.zeros(1, D)) > familiarity.limit  # raises if they don't fit
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{shown(name)} has another kind of note {NOTE}: {error!r}") from error
    return familiarity
