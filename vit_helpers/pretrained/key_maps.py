"""Key maps: the weights of other libraries under our parameter names, by the tables in key_maps.toml.

Each `from_*` raises ValueError, with the keys, for weights of another model, or for a block with only some of q, k and v.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

StateDict = Mapping[str, Tensor]

KEY_MAPS = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)  # {library: {its name: ours}}


def from_torchvision(state_dict: StateDict) -> dict[str, Tensor]:
    """The state dict of a torchvision ViT (`vit_b_16`, ...) under our names."""
    return rename(state_dict, "torchvision")


def from_timm(state_dict: StateDict) -> dict[str, Tensor]:
    """The state dict of a timm ViT (`vit_base_patch16_224`, ...) under our names."""
    return rename(state_dict, "timm")


def from_huggingface(state_dict: StateDict) -> dict[str, Tensor]:
    """The state dict of a Hugging Face `ViTModel` or `ViTForImageClassification` under our names.

    Its layer norms use eps 1e-12 unless its config says otherwise: ViTConfig(..., norm_eps=1e-12).
    A `ViTModel` brings a pooler, our hidden tanh layer: ViTConfig(..., num_classes=0, representation_size=D).
    """
    return rename(state_dict, "Hugging Face")


def from_google(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """The arrays of one of Google's npz files, as `dict(numpy.load(path))` gives them, under our names."""
    if not isinstance(arrays, Mapping):
        raise TypeError(
            f"takes an npz file's arrays, as dict(numpy.load(path)) gives them; got {type(arrays).__name__}"
        )
    return rename(dict(from_flax(*item) for item in arrays.items()), "Google")


def from_flax(key: str, array: Any) -> tuple[str, Tensor]:
    """A key and an array of flax in torch's form.  Flax multiplies by a kernel (in, out) from the right."""
    path, _, leaf = key.rpartition("/")
    module, value = path.replace("/", "."), torch.as_tensor(array)
    if leaf == "scale":
        return f"{module}.weight", value
    if leaf == "bias":
        return f"{module}.bias", value.flatten()  # of queries, keys, values (h, d)
    if leaf != "kernel":
        return key.replace("/", "."), value
    if value.ndim == 4:  # the convolution's (P, P, C, D)
        return f"{module}.weight", value.permute(3, 2, 0, 1)
    into_width = module.endswith(".out")  # (h, d, D); queries, keys and values have (D, h, d)
    return f"{module}.weight", (value.flatten(0, -2) if into_width else value.flatten(1)).T


def fill(model: nn.Module, state_dict: StateDict) -> None:
    """Load weights under our names into a model, all or none; ValueError names missing and unexpected keys, wrong shapes."""
    expected = model.state_dict()
    shapes = {
        key: (tuple(expected[key].shape), tuple(state_dict[key].shape))
        for key in expected.keys() & state_dict.keys()
    }
    problems = {
        "missing": expected.keys() - shapes.keys(),
        "that do not belong": state_dict.keys() - shapes.keys(),
        "with infinity or NaN": {
            key for key, w in state_dict.items() if not w.is_meta and not w.isfinite().all()
        },
        "of another shape": {
            f"{key} expected {a}, found {b}" for key, (a, b) in shapes.items() if a != b
        },
    }
    if told := "; ".join(
        f"{len(keys)} {what}: {', '.join(sorted(keys)[:5])}"
        for what, keys in problems.items()
        if keys
    ):
        raise ValueError(
            f"these are not the model's {len(expected)} weights, it is as it was: {told}"
        )
    model.load_state_dict(state_dict)


def rename(state_dict: StateDict, library: str) -> dict[str, Tensor]:
    """Weights under our names and in our shapes, by the key map of a library; an unknown key is an error."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"expected a state dict, as model.state_dict() returns it, got {type(state_dict).__name__}"
        )
    if not state_dict:
        raise ValueError(f"an empty state dict is not a {library} ViT")
    if unknown := unknown_keys(state_dict, library):
        raise ValueError(
            f"{len(unknown)} of {len(state_dict)} keys are not of a {library} ViT: {', '.join(unknown[:5])}"
        )
    return to_our_shapes({str(our_key(key, library)): value for key, value in state_dict.items()})


def our_key(key: str, library: str) -> str | None:
    """Our name of a parameter of a library; None if the library's ViT has no such parameter."""
    name = key.removeprefix("vit.")  # of a Hugging Face classifier
    module, leaf, _ = re.split(r"(\.weight|\.bias|)$", name, maxsplit=1)
    layer = re.search(r"\d+", module)
    ours = KEY_MAPS[library].get(re.sub(r"\d+", "{i}", module, count=1))
    return ours and ours.format(i=layer and layer[0]) + leaf


def unknown_keys(state_dict: StateDict, library: str) -> list[str]:
    """The names in a state dict that are not those of a library's ViT."""
    return [key for key in state_dict if our_key(key, library) is None]


def to_our_shapes(state_dict: StateDict) -> dict[str, Tensor]:
    """Stack q, k and v, three of (D, D) -> (3 D, D), and flatten the convolution's kernel, (D, C, P, P) -> (D, C*P*P)."""
    joined = {}
    for key, value in state_dict.items():
        if match := re.fullmatch(r"(.*\.attn\.)[qkv](\.\w+)", key):
            before, leaf = match.groups()
            parts = [before + name + leaf for name in "qkv"]
            if missing := [part for part in parts if part not in state_dict]:
                raise ValueError(
                    f"the file is incomplete: it has {key}, but not {', '.join(missing)}"
                )
            joined[f"{before}qkv{leaf}"] = torch.cat([state_dict[part] for part in parts])
        else:
            joined[key] = value.flatten(1) if key == "patch_embed.proj.weight" else value
    return joined


def recognize(state: StateDict, source: object) -> str:
    """The library whose layout all names of a state dict are in; ValueError with the nearest one, and other names."""
    unknown = {library: unknown_keys(state, library) for library in KEY_MAPS}
    library = min(unknown, key=lambda name: len(unknown[name]))
    others = unknown[library]
    if len(others) == len(state):
        raise ValueError(
            f"{source} has names of no known layout, {', '.join(KEY_MAPS)}: {', '.join(others[:5])}"
        )
    if others:
        told = (
            f"{len(others)} of its {len(state)} names do not belong to it: {', '.join(others[:5])}"
        )
        raise ValueError(f"{source} is nearest to the layout of {library}, but {told}")
    return library
