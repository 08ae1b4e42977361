"""Key maps: the weights of other libraries under our names, by the tables in key_maps.toml.

Each `from_*` raises ValueError, with the keys, for weights of another model, or for a block with
only some of q, k and v.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

StateDict = Mapping[str, Tensor]
BLOCK_NUMBER = re.compile(r"(?<![a-z\d])\d+")  # not that of fc1
WITHOUT_KEY_BIAS = ("Hugging Face, DINOv3", "timm, Eva")

# {library: {its name: ours}}
KEY_MAPS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def from_torchvision(state_dict: StateDict) -> dict[str, Tensor]:
    """Put the state dict of a torchvision ViT (`vit_b_16`, ...) under our names."""
    return rename(state_dict, "torchvision")


def from_timm(state_dict: StateDict) -> dict[str, Tensor]:
    """Put the state dict of a timm ViT (`vit_base_patch16_224`, ...) under our names."""
    return rename(state_dict, "timm")


def from_huggingface(state_dict: StateDict) -> dict[str, Tensor]:
    """Put the state dict of a `ViTModel` or `ViTForImageClassification` under our names.

    Both are of Hugging Face. Their layer norms use eps 1e-12 unless their config says otherwise:
    ViTConfig(..., norm_eps=1e-12).
    A `ViTModel` brings a pooler, our hidden tanh layer: ViTConfig(..., num_classes=0,
    representation_size=D).
    """
    return rename(state_dict, "Hugging Face")


def from_google(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """Put the arrays of one of Google's npz files under our names.

    arrays: as `dict(numpy.load(path))` gives them
    """
    if not isinstance(arrays, Mapping):
        raise TypeError(
            "takes an npz file's arrays, as dict(numpy.load(path)) gives them; "
            f"got {type(arrays).__name__}"
        )
    return rename(dict(from_flax(*item) for item in arrays.items()), "Google")


def from_flax(key: str, array: Any) -> tuple[str, Tensor]:
    """Bring a key and an array of flax into torch's form.

    Flax multiplies by a kernel (in, out) from the right.
    """
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
    if module.endswith(".out"):  # (h, d, D)
        return f"{module}.weight", value.flatten(0, -2).T
    return f"{module}.weight", value.flatten(1).T  # queries, keys and values have (D, h, d)


def fill(model: nn.Module, state_dict: StateDict) -> None:
    """Load weights under our names into a model, all or none.

    raises: ValueError with missing and unexpected keys, wrong shapes, weights that are not finite
    """
    expected = model.state_dict()
    problems: dict[str, set[str]] = {
        "missing": expected.keys() - state_dict.keys(),
        "that do not belong": state_dict.keys() - expected.keys(),
        "with infinity or NaN": set(),
        "of another shape": set(),
    }
    for key, value in state_dict.items():
        if not value.is_meta and not value.isfinite().all():
            problems["with infinity or NaN"].add(key)
        if key in expected and value.shape != expected[key].shape:
            shapes = f"expected {tuple(expected[key].shape)}, found {tuple(value.shape)}"
            problems["of another shape"].add(f"{key} {shapes}")
    message = "; ".join(
        f"{len(keys)} {problem}: {', '.join(sorted(keys)[:5])}"
        for problem, keys in problems.items()
        if keys
    )
    if message:
        raise ValueError(
            f"these are not the model's {len(expected)} weights, it is as it was: {message}"
        )
    model.load_state_dict(state_dict)


def rename(state_dict: StateDict, library: str) -> dict[str, Tensor]:
    """Bring weights under our names and into our shapes, by the key map of a library.

    raises: ValueError for unknown keys
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            "expected a state dict, as model.state_dict() returns it, "
            f"got {type(state_dict).__name__}"
        )
    if not state_dict:
        raise ValueError(f"an empty state dict is not a {library} ViT")
    unknown = unknown_keys(state_dict, library)
    if unknown:
        raise ValueError(
            f"{len(unknown)} of {len(state_dict)} keys are not of a {library} ViT: "
            f"{', '.join(unknown[:5])}"
        )
    ours = {str(our_key(key, library)): value for key, value in state_dict.items()}
    ours.pop("", None)
    if library in WITHOUT_KEY_BIAS:
        ours = add_key_biases(ours)
    return to_our_shapes(ours)


def our_key(key: str, library: str) -> str | None:
    """Find our name of a parameter of a library; None if the library's ViT has none such."""
    # of a Hugging Face classifier, and of SigLIP before transformers 5
    name = key.removeprefix("vit.").removeprefix("vision_model.")
    module, leaf, _ = re.split(r"(\.weight|\.bias|)$", name, maxsplit=1)
    for parameter, ending in ((module, leaf), (name, "")):
        layer = BLOCK_NUMBER.search(parameter)
        ours = KEY_MAPS[library].get(BLOCK_NUMBER.sub("{i}", parameter, count=1))
        if ours is not None:
            return ours and ours.format(i=layer and layer[0]) + ending
    return None


def unknown_keys(names: Iterable[str], library: str) -> list[str]:
    """List the names of weights that are not those of a library's ViT."""
    return [key for key in names if our_key(key, library) is None]


def count_unknown(names: Sequence[str]) -> int:
    """Count the names of weights that are not in the layout nearest to them."""
    return min(len(unknown_keys(names, library)) for library in KEY_MAPS)


def add_key_biases(state_dict: StateDict) -> dict[str, Tensor]:
    """Give keys the bias 0, and all of q, k and v, where a model has none.

    Of keys that are not rotated, a bias adds the same to all scores of a query, which no attention
    weight shows; of rotated ones it would show.
    """
    added = dict(state_dict)
    for key, weight in state_dict.items():
        if match := re.fullmatch(r"(.*\.attn\.)(q|qkv)\.weight", key):
            module, name = match.groups()
            D = weight.shape[1]
            if name == "q" or f"{module}q.bias" in state_dict:
                for part in "qkv":
                    added.setdefault(f"{module}{part}.bias", weight.new_zeros(D))
            else:
                added.setdefault(f"{module}qkv.bias", weight.new_zeros(3 * D))
    return added


def to_our_shapes(state_dict: StateDict) -> dict[str, Tensor]:
    """Stack q, k and v, and flatten the convolution's kernel.

    Three of (D, D) become (3 D, D); (D, C, P, P) becomes (D, C*P*P). What is stacked in a library
    but not here is divided: the gate of an MLP and its other layer, the query of a pooling token.
    """
    joined: dict[str, Tensor] = {}
    for key, value in state_dict.items():
        if "mlp.gate_and_fc1" in key:
            for name, part in zip(("gate", "fc1"), value.chunk(2), strict=True):
                joined[key.replace("gate_and_fc1", name)] = part
            continue
        if key.startswith("attn_pool.qkv."):
            D = len(value) // 3
            for name, part in zip(("q", "kv"), value.split([D, 2 * D]), strict=True):
                joined[key.replace("qkv", name)] = part
            continue
        if key == "token_embed.pos_embed" and value.ndim == 2:
            value = value[None]
        match = re.fullmatch(r"(.*\.attn\.)[qkv](\.\w+)", key)
        if match is None:
            joined[key] = value.flatten(1) if key == "patch_embed.proj.weight" else value
            continue
        module, leaf = match.groups()
        keys = [module + name + leaf for name in "qkv"]
        missing = [other for other in keys if other not in state_dict]
        if missing:
            raise ValueError(f"the file is incomplete: it has {key}, but not {', '.join(missing)}")
        joined[f"{module}qkv{leaf}"] = torch.cat([state_dict[other] for other in keys])
    return joined


def recognize(state: StateDict, source: object) -> str:
    """Find the library whose layout all names of a state dict are in.

    raises: ValueError with the library whose layout is nearest, and the names that are not in it;
            with all libraries if most names are in none
    """
    unknown = {library: unknown_keys(state, library) for library in KEY_MAPS}
    library = min(unknown, key=lambda name: len(unknown[name]))
    others = unknown[library]
    if 2 * len(others) > len(state):
        raise ValueError(
            f"{source} has names of no known layout, {', '.join(KEY_MAPS)}: {', '.join(others[:5])}"
        )
    if others:
        raise ValueError(
            f"{source} is nearest to the layout of {library}, but {len(others)} of its "
            f"{len(state)} names do not belong to it: {', '.join(others[:5])}"
        )
    return library
