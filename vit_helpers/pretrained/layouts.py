"""Weights in files without a description: read without running code, unwrapped, and recognized by their parameter names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vit_helpers.pretrained.files import safe_path
from vit_helpers.pretrained.key_maps import KEY_MAPS, StateDict, unknown_keys

WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "module", "teacher", "model_ema", "ema")
PREFIXES = ("module.", "model.", "net.", "network.", "backbone.", "encoder.", "_orig_mod.", "state_dict.")


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, as float32, wherever they are inside it; no code of the file runs.

    path  : .safetensors, or what torch.save wrote: .pth, .pt, .bin, ...
    raises: FileNotFoundError; ValueError if the file is damaged, needs pickle, or contains no tensors by name
    """
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            with safe_path(path) as whole:
                content: Any = load_file(whole)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise many kinds here
        if "GLOBAL" in str(error):  # a name of code
            raise ValueError(f"{path} contains pickled objects, which could run code: save only the state_dict()") from error
        raise ValueError(f"{path} is truncated, damaged or not a file of weights: {type(error).__name__}") from error
    if isinstance(content, Mapping) and {"history", "recipe"} <= content.keys():
        raise ValueError(f"{path} is a checkpoint to resume from; its weights are in the same folder: give {path.parent}")
    state = unwrap(content)
    if not state:
        raise ValueError(f"{path} contains no named tensors, but an object of type {type(content).__name__}")
    return {key: value.float() for key, value in state.items()}


def unwrap(content: Any) -> dict[str, Tensor]:
    """A state dict out of the dicts around it and without the prefixes of wrapped models; empty if there is none.

    >>> list(unwrap({"epoch": 3, "state_dict": {"module.model.cls_token": torch.zeros(1)}}))
    ['cls_token']
    """
    while isinstance(content, Mapping) and (inner := next((name for name in WRAPPERS if name in content), None)):
        if not isinstance(content[inner], Mapping):
            break
        content = content[inner]
    state = {str(k): v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    while state and (prefix := next((p for p in PREFIXES if all(key.startswith(p) for key in state)), None)):
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def recognize(state: StateDict, source: object) -> str:
    """The library of key_maps.toml whose layout all names of a state dict are in.

    raises: ValueError with the nearest known layout, and the names that are not in it
    """
    unknown = {library: unknown_keys(state, library) for library in KEY_MAPS}
    library = min(unknown, key=lambda name: len(unknown[name]))
    if others := unknown[library]:
        told = f"{len(others)} of its {len(state)} names do not belong to it: {', '.join(others[:5])}"
        if len(others) == len(state):
            raise ValueError(f"{source} has names of no known layout, {', '.join(KEY_MAPS)}: {', '.join(others[:5])}")
        raise ValueError(f"{source} is nearest to the layout of {library}, but {told}")
    return library
