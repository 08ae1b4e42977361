"""Weights in files: our own, with a model's config, preprocessing and class names, and those without a description."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL.Image import Image
from torch import Tensor

from vit_helpers._files import as_text, tensor_digest, write_aside
from vit_helpers.encoder import Block
from vit_helpers.pretrained.key_maps import fill
from vit_helpers.pretrained.preprocess import Preprocess
from vit_helpers.vit import ViT, ViTConfig

PARTS = ("config", "preprocess", "class_names")
SEAL = "sha256"  # the note of a checksum, which most of the files in `weights/` lack
WRAPPERS = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "net",
    "module",
    "teacher",
    "model_ema",
    "ema",
)
PREFIXES = (
    "module.",
    "model.",
    "net.",
    "network.",
    "backbone.",
    "encoder.",
    "_orig_mod.",
    "state_dict.",
)


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
        return [
            (self.class_names[i], p) for p, i in zip(values.tolist(), classes.tolist(), strict=True)
        ]


def save_weights(
    path: str | Path,
    model: ViT,
    preprocess: Preprocess,
    class_names: Sequence[str],
    notes: Mapping[str, str] | None = None,
) -> None:
    """Save a ViT in one safetensors file, with everything that is needed to use it, completely or not at all.

    notes : other strings by name, for `read_notes`
    raises: ValueError if the weights do not fit `model.config`, as with LoRA that is not merged, or custom blocks
    """
    from safetensors.torch import save

    if other := {type(block).__name__ for block in model.blocks if type(block) is not Block}:
        raise ValueError(
            f"the model's blocks are {', '.join(other)}; only the paper's can be built again from its config"
        )
    path, state = Path(path), {key: value.contiguous() for key, value in model.state_dict().items()}
    with torch.device("meta"):
        fill(ViT(model.config), {key: value.to("meta") for key, value in state.items()})
    if len(class_names) != model.config.num_classes:
        raise ValueError(f"{len(class_names)} class names for {model.config.num_classes} classes")
    about = {
        "config": asdict(model.config),
        "preprocess": asdict(preprocess),
        "class_names": list(class_names),
    }
    notes = {**(notes or {}), **{part: json.dumps(value) for part, value in about.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_aside(path) as aside:
        aside.write_bytes(save(state, notes | {SEAL: tensor_digest(state, notes)}))


@contextmanager
def safe_path(path: str | Path) -> Iterator[str]:
    """A path of a file for safetensors, which reads none whose name is not UTF-8 (only Linux has such names)"""
    with Path(path).open("rb") as file:
        yield text if (text := str(path)) == as_text(path) else f"/dev/fd/{file.fileno()}"


def read_notes(path: str | Path) -> dict[str, str]:
    """The strings beside the weights in a safetensors file; FileNotFoundError, ValueError if it is of another kind."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"no weights at {path}")
    try:
        with safe_path(path) as whole, safe_open(whole, "pt") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is cut short, or not a safetensors file: {error}") from error


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    from safetensors.torch import load_file

    with safe_path(path) as whole:
        return load_file(whole)


def load_weights(path: str | Path) -> Pretrained:
    """Load a file of `save_weights`, as float32; ValueError if it is truncated, damaged, or of another kind."""
    about = read_notes(path)
    if missing := [part for part in PARTS if part not in about]:
        raise ValueError(
            f"{path} was not made by save_weights: it does not contain {', '.join(missing)}"
        )
    state = load_tensors(path)
    seal = about.pop(SEAL, None)
    if seal is not None and seal != tensor_digest(state, about):
        raise ValueError(f"{path} is damaged: it has another checksum")
    try:
        config, preprocess, class_names = (json.loads(about[part]) for part in PARTS)
        model = ViT(ViTConfig(**config | {"image_size": tuple(config["image_size"])}))
        fill(model, {key: value.float() for key, value in state.items()})
        done = Pretrained(model.eval(), Preprocess(**preprocess), tuple(map(str, class_names)))
        done.preprocess.normalize(
            torch.zeros(done.preprocess.in_chans, 1, 1)
        )  # raises if mean or std are not numbers
        if (done.preprocess.in_chans, len(done.class_names)) != (
            model.config.in_chans,
            model.config.num_classes,
        ):
            raise ValueError("its preprocessing or class names do not fit the model")
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} describes another kind of model: {error}") from error
    return done


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, as float32, wherever they are inside it; ValueError if reading them would run code."""
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}")
    try:
        is_safe = path.suffix == ".safetensors"
        content: Any = (
            load_tensors(path)
            if is_safe
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except Exception as error:  # torch and safetensors raise many kinds here
        if "GLOBAL" in str(error):  # a name of code
            raise ValueError(
                f"{path} contains pickled objects, which could run code: save only the state_dict()"
            ) from error
        raise ValueError(
            f"{path} is truncated, damaged or not a file of weights: {type(error).__name__}"
        ) from error
    if isinstance(content, Mapping) and {"history", "recipe"} <= content.keys():
        raise ValueError(
            f"{path} is a checkpoint to resume from; its weights are in the same folder: give {path.parent}"
        )
    state = unwrap(content)
    if not state:
        raise ValueError(
            f"{path} contains no named tensors, but an object of type {type(content).__name__}"
        )
    return {key: value.float() for key, value in state.items()}


def unwrap(content: Any) -> dict[str, Tensor]:
    """A state dict out of the dicts around it and without the prefixes of wrapped models; empty if there is none.

    >>> list(unwrap({"epoch": 3, "state_dict": {"module.model.cls_token": torch.zeros(1)}}))
    ['cls_token']
    """
    while isinstance(content, Mapping) and (
        inner := next((name for name in WRAPPERS if name in content), None)
    ):
        if not isinstance(content[inner], Mapping):
            break
        content = content[inner]
    state = (
        {str(k): v for k, v in content.items() if isinstance(v, Tensor)}
        if isinstance(content, Mapping)
        else {}
    )
    while state and (
        prefix := next((p for p in PREFIXES if all(key.startswith(p) for key in state)), None)
    ):
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state
