"""What a small DINOv3 of the library transformers computes: weights, images, tokens, gradients.

Its weights are random, so it needs no license, and none of them is 0 or 1.
tools/experiments/dinov3_reference.py made the file.
"""

from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

REFERENCE = Path(__file__).with_suffix(".safetensors")


@dataclass(frozen=True, eq=False)
class Dinov3Reference:
    """What is stored of a DINOv3 with T tokens of width D, for B images of 32 x 48 pixels.

    images   : (B, 3, 32, 48)
    tokens   : its output, class token and registers first: (B, T, D)
    slope    : of a loss with respect to the output, (B, T, D): the loss is (tokens * slope).sum()
    weights  : of each parameter, under the names of transformers
    gradients: of this loss, under the same names
    config   : num_heads, patch_size, ... by the names of our `ViTConfig`
    version  : of transformers
    """

    images: Tensor
    tokens: Tensor
    slope: Tensor
    weights: dict[str, Tensor]
    gradients: dict[str, Tensor]
    config: dict[str, int]
    version: str


def read_dinov3_reference(path: Path = REFERENCE) -> Dinov3Reference:
    """What is stored; `path` is a file that the tool wrote."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        notes = file.metadata()
    version = notes.pop("transformers")
    notes.pop("command")
    return Dinov3Reference(
        tensors["images"],
        tensors["tokens"],
        tensors["slope"],
        group(tensors, "weights:"),
        group(tensors, "gradients:"),
        {name: int(value) for name, value in sorted(notes.items())},
        version,
    )


def group(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    names = (name for name in sorted(tensors) if name.startswith(prefix))
    return {name.removeprefix(prefix): tensors[name] for name in names}
