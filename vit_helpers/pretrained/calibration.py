"""Calibration: probabilities that say how often a classifier is right, and images unlike all that it has learned from."""

import json
import math
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers.pretrained.files import read_notes
from vit_helpers.pretrained.sources import find_file

NOTE = "familiarity"  # its name in a file of weights


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature T for which softmax(logits / T) has the lowest cross-entropy (Guo et al., arXiv 1706.04599).

    logits: (n, K), of images that the model was not trained on;  labels: (n,)
    """
    from scipy.optimize import minimize_scalar

    def loss(log_t: float) -> float:
        return F.cross_entropy(logits / math.exp(log_t), labels).item()

    return math.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)


@dataclass(frozen=True)
class Familiarity:
    """How far images are from all classes that a model has learned, by its pooled features (Lee et al., arXiv 1807.03888).

    means : (K, D), the mean feature of each class;  whiten: (D, D), so that features spread equally in all directions
    limit : the distance that few familiar images exceed

    The distance is Mahalanobis's to the nearest mean, with one covariance for all classes.
    """

    means: Tensor
    whiten: Tensor
    limit: float

    @classmethod
    def from_features(
        cls, features: Tensor, labels: Tensor, new: Tensor, share: float = 0.95
    ) -> "Familiarity":
        """Of training images, (n, D) and (n,), with the limit that this share of `new` images, (m, D), stays below"""
        means = torch.stack(
            [features[labels == k].mean(dim=0) for k in range(int(labels.max()) + 1)]
        )
        values, directions = torch.linalg.eigh((features - means[labels]).T.cov())
        half = cls(means, directions / values.clamp(min=1e-6 * values.max()).sqrt(), math.inf)
        return cls(means, half.whiten, half.distance(new).quantile(share).item())

    def distance(self, features: Tensor) -> Tensor:
        """The distance to the nearest class: (B, D) -> (B,)"""
        return torch.cdist(features @ self.whiten, self.means @ self.whiten).amin(dim=1)

    def to_note(self) -> str:
        """As text, for the notes of `save_weights`; the numbers are rounded to 16 bits"""
        packed = {
            name: b64encode(getattr(self, name).half().numpy().tobytes()).decode()
            for name in ("means", "whiten")
        }
        return json.dumps({**packed, "limit": self.limit})

    @classmethod
    def from_note(cls, note: str) -> "Familiarity":
        """What `to_note` wrote"""
        about = json.loads(note)
        arrays = (
            np.frombuffer(b64decode(about[name]), np.float16).astype(np.float32)
            for name in ("means", "whiten")
        )
        means, whiten = map(torch.from_numpy, arrays)
        D = math.isqrt(len(whiten))
        return cls(means.view(-1, D), whiten.view(D, D), about["limit"])


def load_familiarity(name: str | Path) -> Familiarity | None:
    """What a file of weights says about familiar images; None if it says nothing.  name: as for `load_pretrained`"""
    file = find_file(name)
    note = read_notes(file).get(NOTE) if file.suffix == ".safetensors" else None
    return Familiarity.from_note(note) if note else None
