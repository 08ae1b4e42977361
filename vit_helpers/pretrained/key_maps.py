"""Key maps: the weights of other libraries under our parameter names.

Each `from_*` raises ValueError, with the keys, for weights of another model, or for a block with only some of q, k and v.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

StateDict = Mapping[str, Tensor]

OUTSIDE = {  # our modules: in torchvision, timm, Hugging Face, Google's files with dots instead of slashes
    "patch_embed.proj": ("conv_proj", "patch_embed.proj", "embeddings.patch_embeddings.projection", "embedding"),
    "token_embed.cls_token": ("class_token", "cls_token", "embeddings.cls_token", "cls"),
    "token_embed.pos_embed": ("encoder.pos_embedding", "pos_embed", "embeddings.position_embeddings",
                              "Transformer.posembed_input.pos_embedding"),
    "norm": ("encoder.ln", "norm", "layernorm", "Transformer.encoder_norm"),
    "pre_logits.0": ("heads.pre_logits", "", "pooler.dense", "pre_logits"),  # both tanh layers on the class token
    "head": ("heads.head", "head", "classifier", "head"),
}  # fmt: skip
BLOCK = {  # our modules in a block: in torchvision, timm, transformers 5, transformers before, Google's files
    "norm1": ("ln_1", "norm1", "layernorm_before", "layernorm_before", "LayerNorm_0"),
    "attn.qkv": ("", "attn.qkv", "", "", ""),
    "attn.qkv.weight": ("self_attention.in_proj_weight", "", "", "", ""),
    "attn.qkv.bias": ("self_attention.in_proj_bias", "", "", "", ""),
    "attn.q": ("", "", "attention.q_proj", "attention.attention.query", "MultiHeadDotProductAttention_1.query"),
    "attn.k": ("", "", "attention.k_proj", "attention.attention.key", "MultiHeadDotProductAttention_1.key"),
    "attn.v": ("", "", "attention.v_proj", "attention.attention.value", "MultiHeadDotProductAttention_1.value"),
    "attn.proj": ("self_attention.out_proj", "attn.proj", "attention.o_proj", "attention.output.dense",
                  "MultiHeadDotProductAttention_1.out"),
    "norm2": ("ln_2", "norm2", "layernorm_after", "layernorm_after", "LayerNorm_2"),
    "mlp.fc1": ("mlp.0", "mlp.fc1", "mlp.fc1", "intermediate.dense", "MlpBlock_3.Dense_0"),
    "mlp.fc2": ("mlp.3", "mlp.fc2", "mlp.fc2", "output.dense", "MlpBlock_3.Dense_1"),
}  # fmt: skip


def key_map(outside: int, blocks: dict[str, int]) -> dict[str, str]:
    """{a library's name: ours} from columns of the tables; blocks: the prefix of its blocks, with {i} for their number"""
    return {names[outside]: ours for ours, names in OUTSIDE.items() if names[outside]} | {
        prefix + names[column]: f"blocks.{{i}}.{ours}"
        for prefix, column in blocks.items()
        for ours, names in BLOCK.items()
        if names[column]
    }


LAYER = "encoder.layers.encoder_layer_{i}."
TORCHVISION = key_map(0, {LAYER: 0})
TORCHVISION |= {f"{LAYER}mlp.linear_{n}": f"blocks.{{i}}.mlp.fc{n}" for n in (1, 2)}  # in older files
TIMM = key_map(1, {"blocks.{i}.": 1})
HUGGINGFACE = key_map(2, {"layers.{i}.": 2, "encoder.layer.{i}.": 3})
GOOGLE = key_map(3, {"Transformer.encoderblock_{i}.": 4})


def from_torchvision(state_dict: StateDict) -> dict[str, Tensor]:
    """The state dict of a torchvision ViT (`vit_b_16`, ...) under our names."""
    return rename(state_dict, TORCHVISION, "torchvision")


def from_timm(state_dict: StateDict) -> dict[str, Tensor]:
    """The state dict of a timm ViT (`vit_base_patch16_224`, ...) under our names."""
    return rename(state_dict, TIMM, "timm")


def from_huggingface(state_dict: StateDict) -> dict[str, Tensor]:
    """The state dict of a Hugging Face `ViTModel` or `ViTForImageClassification` under our names.

    Its layer norms use eps 1e-12 unless its config says otherwise: ViTConfig(..., norm_eps=1e-12).
    A `ViTModel` brings a pooler, our hidden tanh layer: ViTConfig(..., num_classes=0, representation_size=D).
    """
    return rename(state_dict, HUGGINGFACE, "Hugging Face")


def from_google(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """The arrays of one of Google's npz files, as `dict(numpy.load(path))` gives them, under our names."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"takes an npz file's arrays, as dict(numpy.load(path)) gives them; got {type(arrays).__name__}")
    return rename(dict(from_flax(*item) for item in arrays.items()), GOOGLE, "Google")


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
    shapes = {key: (tuple(expected[key].shape), tuple(state_dict[key].shape)) for key in expected.keys() & state_dict.keys()}
    problems = {
        "missing": expected.keys() - shapes.keys(),
        "that do not belong": state_dict.keys() - shapes.keys(),
        "of another shape": {f"{key} expected {a}, found {b}" for key, (a, b) in shapes.items() if a != b},
    }
    if told := "; ".join(f"{len(keys)} {what}: {', '.join(sorted(keys)[:5])}" for what, keys in problems.items() if keys):
        raise ValueError(f"these are not the model's {len(expected)} weights, it is as it was: {told}")
    model.load_state_dict(state_dict)


def rename(state_dict: StateDict, table: Mapping[str, str], library: str) -> dict[str, Tensor]:
    """Weights under our names and in our shapes, by a key map; an unknown key is an error."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"takes a state dict, as model.state_dict() gives it; got {type(state_dict).__name__}")
    if not state_dict:
        raise ValueError(f"an empty state dict is no {library} ViT")
    renamed: dict[str, Tensor] = {}
    unknown = []
    for key, value in state_dict.items():
        name = key.removeprefix("vit.")  # of a Hugging Face classifier
        module, leaf, _ = re.split(r"(\.weight|\.bias|)$", name, maxsplit=1)
        layer = re.search(r"\d+", module)
        ours = table.get(re.sub(r"\d+", "{i}", module, count=1))
        if ours is None:
            unknown.append(key)
        else:
            renamed[ours.format(i=layer and layer[0]) + leaf] = value
    if unknown:
        raise ValueError(f"{len(unknown)} of {len(state_dict)} keys are not of a {library} ViT: {', '.join(unknown[:5])}")
    return to_our_shapes(renamed)


def to_our_shapes(state_dict: StateDict) -> dict[str, Tensor]:
    """Stack q, k and v, three of (D, D) -> (3 D, D), and flatten the convolution's kernel, (D, C, P, P) -> (D, C*P*P)."""
    joined = {}
    for key, value in state_dict.items():
        if match := re.fullmatch(r"(.*\.attn\.)[qkv](\.\w+)", key):
            before, leaf = match.groups()
            parts = [before + name + leaf for name in "qkv"]
            if missing := [part for part in parts if part not in state_dict]:
                raise ValueError(f"{key} is there, but {', '.join(missing)} not: the file is incomplete")
            joined[f"{before}qkv{leaf}"] = torch.cat([state_dict[part] for part in parts])
        else:
            joined[key] = value.flatten(1) if key == "patch_embed.proj.weight" else value
    return joined
