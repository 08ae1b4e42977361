"""Weights in files: our own, and those without a description.

Our own have a model's config, preprocessing and class names.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL.Image import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
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
    """A model ready for use: a `ViT` in evaluation mode, its `Preprocess`, its classes' names."""

    model: ViT
    preprocess: Preprocess
    class_names: tuple[str, ...]

    @torch.no_grad()
    def top(self, image: Image | Tensor, k: int = 5) -> list[tuple[str, float]]:
        """Predict the k most probable classes of an image.

        returns: pairs (name, probability), in decreasing order
        """
        probabilities = self.model(self.preprocess(image)[None]).softmax(dim=1)[0]
        values, classes = probabilities.topk(min(k, len(probabilities)))
        names = [self.class_names[number] for number in classes.tolist()]
        return list(zip(names, values.tolist(), strict=True))


def save_weights(
    path: str | Path,
    model: ViT,
    preprocess: Preprocess,
    class_names: Sequence[str],
    notes: Mapping[str, str] | None = None,
) -> None:
    """Save a ViT in one safetensors file, with everything that is needed to use it, or not at all.

    notes : other strings by name, for `read_notes`
    raises: ValueError if the weights do not fit `model.config`, as with LoRA that is not merged, or
            custom blocks
    """
    custom = {type(block).__name__ for block in model.blocks if type(block) is not Block}
    if custom:
        raise ValueError(
            f"the model's blocks are {', '.join(custom)}; "
            "only the paper's can be built again from its config"
        )
    path = Path(path)
    state = {key: value.contiguous() for key, value in model.state_dict().items()}
    with torch.device("meta"):
        fill(ViT(model.config), {key: value.to("meta") for key, value in state.items()})
    if len(class_names) != model.config.num_classes:
        raise ValueError(f"{len(class_names)} class names for {model.config.num_classes} classes")
    notes = {
        **(notes or {}),
        "config": json.dumps(asdict(model.config)),
        "preprocess": json.dumps(asdict(preprocess)),
        "class_names": json.dumps(list(class_names)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_aside(path) as aside:
        aside.write_bytes(save(state, notes | {SEAL: tensor_digest(state, notes)}))


@contextmanager
def safe_path(path: str | Path) -> Iterator[str]:
    """Give a path of a file for safetensors, which reads none whose name is not UTF-8.

    Only Linux has such names.
    """
    with Path(path).open("rb") as file:
        is_utf8 = str(path) == as_text(path)
        yield str(path) if is_utf8 else f"/dev/fd/{file.fileno()}"


def read_notes(path: str | Path) -> dict[str, str]:
    """Read the strings beside the weights in a safetensors file.

    raises: FileNotFoundError; ValueError if it is of another kind
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no weights at {path}")
    try:
        with safe_path(path) as safe, safe_open(safe, "pt") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is cut short, or not a safetensors file: {error}") from error


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """Load the tensors of a safetensors file by name."""
    with safe_path(path) as safe:
        return load_file(safe)


def load_pickle(path: Path) -> Any:
    """Load what `torch.save` wrote, on the CPU and without running code."""
    return torch.load(path, map_location="cpu", weights_only=True)


def load_weights(path: str | Path) -> Pretrained:
    """Load a file of `save_weights`, as float32.

    raises: ValueError if it is truncated, damaged, or of another kind
    """
    notes = read_notes(path)
    missing = [part for part in PARTS if part not in notes]
    if missing:
        raise ValueError(
            f"{path} was not made by save_weights: it does not contain {', '.join(missing)}"
        )
    state = load_tensors(path)
    seal = notes.pop(SEAL, None)
    if seal is not None and seal != tensor_digest(state, notes):
        raise ValueError(f"{path} is damaged: it has another checksum")
    try:
        return from_description(state, *(json.loads(notes[part]) for part in PARTS))
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} describes another kind of model: {error}") from error


def from_description(
    state: Mapping[str, Tensor],
    config: dict[str, Any],
    preprocess: dict[str, Any],
    class_names: list[str],
) -> Pretrained:
    """Build the model of weights and their description; many kinds of errors if they do not fit."""
    model = ViT(ViTConfig(**config | {"image_size": tuple(config["image_size"])}))
    fill(model, {key: value.float() for key, value in state.items()})
    pretrained = Pretrained(model.eval(), Preprocess(**preprocess), tuple(map(str, class_names)))
    channels, classes = pretrained.preprocess.in_chans, len(pretrained.class_names)
    # raises if mean or std are not numbers
    pretrained.preprocess.normalize(torch.zeros(channels, 1, 1))
    if channels != model.config.in_chans or classes != model.config.num_classes:
        raise ValueError("its preprocessing or class names do not fit the model")
    return pretrained


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file by name, as float32, wherever they are inside it.

    raises: ValueError if reading them would run code, or there are none; FileNotFoundError
    """
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}")
    is_safe = path.suffix == ".safetensors"
    try:
        content: Any = load_tensors(path) if is_safe else load_pickle(path)
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
            f"{path} is a checkpoint to resume from; "
            f"its weights are in the same folder: give {path.parent}"
        )
    state = unwrap(content)
    if not state:
        raise ValueError(
            f"{path} contains no named tensors, but an object of type {type(content).__name__}"
        )
    return {key: value.float() for key, value in state.items()}


def unwrap(content: Any) -> dict[str, Tensor]:
    """Take a state dict out of the dicts around it, without the prefixes of wrapped models.

    It is empty if there is none.

    >>> list(unwrap({"epoch": 3, "state_dict": {"module.model.cls_token": torch.zeros(1)}}))
    ['cls_token']
    """
    if not isinstance(content, Mapping):
        return {}
    wrapper = next((name for name in WRAPPERS if name in content), None)
    if wrapper and isinstance(content[wrapper], Mapping):
        return unwrap(content[wrapper])
    state = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    while state:
        shared = (prefix for prefix in PREFIXES if all(key.startswith(prefix) for key in state))
        prefix = next(shared, None)
        if prefix is None:
            break
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state
