"""Which numbers a command multiplies: in bfloat16 where the processor is faster with it.

It pays where the products take most of the time, so for wide models. We measured it on an AMD EPYC
with AVX512-BF16 (torch 2.14, one thread; medians of 5 alternating rounds, blocks as in the paper).
With 384 or 768 numbers in a token, batches were trained on 1.8 to 2.1 times as fast as in float32,
and classified 1.8 to 2.0 times as fast. With 64 to 256 it was 1.2 to 2.6 and 1.0 to 2.2 times, and
single images with 64 numbers took twice as long. So narrow models, as all of `ours:*`, stay with
float32. Other processors (Intel's AMX) were not measured, nor wide models on a GPU: there,
float32 is kept, too. `python -m tools.experiments.libraries` measures both precisions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from vit_helpers.training.recipe import bf16_units
from vit_helpers.vit import ViT

WIDE = 384  # numbers in a token, as in S/16, from which bfloat16 is chosen
CHOSEN = (
    "note: matrix products in bfloat16, which is faster on this processor; "
    "--precision float32 turns it off"
)


def choose_precision(model: Any, device: str = "cpu") -> str:
    """Return "bfloat16" for a wide ViT on a CPU with units for it, else "float32"."""
    width = model.config.embed_dim if hasattr(model, "config") else 0  # a CNN is small here
    return "bfloat16" if device == "cpu" and width >= WIDE and bf16_units() else "float32"


@contextmanager
def predict_in(precision: str | None, model: ViT) -> Iterator[None]:
    """Compute a model's features inside a `with` in a precision; its head has float32 all the same.

    precision: "float32", "bfloat16", or None for the faster one, which is said if it is bfloat16
    """
    if precision is None and (precision := choose_precision(model)) == "bfloat16":
        print(CHOSEN)
    features = model.forward_features

    def rounded(images: Tensor, mask: Tensor | None = None) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return features(images, mask).float()

    if precision == "float32":
        yield
    else:
        with patch.object(model, "forward_features", rounded):
            yield
