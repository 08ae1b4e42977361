"""A trained model as one file: its weights, its config, the preprocessing of its images and the names of its classes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
from PIL.Image import Image
from torch import Tensor

from vit_helpers._validate import to_2tuple
from vit_helpers.data.images import as_text
from vit_helpers.encoder import Block
from vit_helpers.pretrained.key_maps import fill
from vit_helpers.pretrained.preprocess import Preprocess
from vit_helpers.training.sealed import tensor_digest, write_aside
from vit_helpers.vit import ViT, ViTConfig

PARTS = ("config", "preprocess", "class_names")
SEAL = "sha256"  # the note of a checksum, since version 0.2


class Pretrained(NamedTuple):
    """A model ready for use: a `ViT` in evaluation mode, its `Preprocess`, and the names of its classes."""

    model: ViT
    preprocess: Preprocess
    class_names: tuple[str, ...]

    @torch.no_grad()
    def top(self, image: Image | Tensor, k: int = 5) -> list[tuple[str, float]]:
        """The k most probable classes of an image: pairs (name, probability), in decreasing order."""
        probabilities = self.model(self.preprocess(image)[None]).softmax(dim=1)[0]
        values, classes = probabilities.topk(min(k, len(probabilities)))
        return [(self.class_names[i], p) for p, i in zip(values.tolist(), classes.tolist(), strict=True)]


def save_weights(
    path: str | Path, model: ViT, preprocess: Preprocess, class_names: Sequence[str], notes: Mapping[str, str] | None = None
) -> None:
    """Save a ViT in one safetensors file, with everything that is needed to use it.

    The file is written under another name and then renamed, so an interruption leaves no half-written file.
    notes : other strings by name, for `read_notes`
    raises: ValueError if the weights do not fit `model.config`, as with LoRA that is not merged, or custom blocks
    """
    from safetensors.torch import save

    if other := {type(block).__name__ for block in model.blocks if type(block) is not Block}:
        raise ValueError(f"the model's blocks are {', '.join(other)}; only the paper's can be built again from its config")
    path, state = Path(path), {key: value.contiguous() for key, value in model.state_dict().items()}
    with torch.device("meta"):
        fill(ViT(model.config), {key: value.to("meta") for key, value in state.items()})
    if len(class_names) != model.config.num_classes:
        raise ValueError(f"{len(class_names)} class names for {model.config.num_classes} classes")
    about = (asdict(model.config), asdict(preprocess), list(class_names))
    notes = {**(notes or {}), **dict(zip(PARTS, map(json.dumps, about), strict=True))}
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_aside(path) as aside:
        aside.write_bytes(save(state, notes | {SEAL: tensor_digest(state, notes)}))


@contextmanager
def safe_path(path: str | Path) -> Iterator[str]:
    """A path of a file for safetensors, which reads none whose name is not UTF-8 (only Linux has such names)"""
    with Path(path).open("rb") as file:
        yield text if (text := str(path)) == as_text(path) else f"/dev/fd/{file.fileno()}"


def read_notes(path: str | Path) -> dict[str, str]:
    """The strings beside the weights in a safetensors file: those of `save_weights` and its notes, or another library's.

    raises: FileNotFoundError when there is none; ValueError if it is truncated, or of another kind
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"no weights at {path}")
    try:
        with safe_path(path) as whole, safe_open(whole, "pt") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is cut short, or not a safetensors file: {error}") from error


def load_weights(path: str | Path) -> Pretrained:
    """Load a file of `save_weights`, as float32; ValueError if it is truncated, damaged, or of another kind."""
    from safetensors.torch import load_file

    about = read_notes(path)
    if missing := [part for part in PARTS if part not in about]:
        raise ValueError(f"{path} was not made by save_weights: it does not contain {', '.join(missing)}")
    with safe_path(path) as whole:
        state = load_file(whole)
    if about.pop(SEAL, None) not in (None, tensor_digest(state, about)):  # older versions wrote none
        raise ValueError(f"{path} is damaged: it has another checksum")
    try:
        config, preprocess, class_names = (json.loads(about[part]) for part in PARTS)
        model = ViT(ViTConfig(**config | {"image_size": tuple(config["image_size"])}))
        fill(model, {key: value.float() for key, value in state.items()})
        done = Pretrained(model.eval(), Preprocess(**preprocess), tuple(map(str, class_names)))
        to_2tuple(done.preprocess.resize), to_2tuple(done.preprocess.crop), done.preprocess.normalize(torch.zeros(1, 1, 1))
        if (done.preprocess.in_chans, len(done.class_names)) != (model.config.in_chans, model.config.num_classes):
            raise ValueError("its preprocessing or class names do not fit the model")
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} describes another kind of model: {error}") from error
    return done
