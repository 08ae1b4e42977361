"""Key maps: the weights of other libraries under our parameter names."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

StateDict = Mapping[str, Tensor]

BLOCK = "blocks.{i}."
TORCHVISION = {  # torchvision.models.vision_transformer; older files have mlp.linear_1 and mlp.linear_2
    "conv_proj": "patch_embed.proj",
    "class_token": "token_embed.cls_token",
    "encoder.pos_embedding": "token_embed.pos_embed",
    "encoder.layers.encoder_layer_{i}.ln_1": BLOCK + "norm1",
    "encoder.layers.encoder_layer_{i}.self_attention.in_proj_weight": BLOCK + "attn.qkv.weight",
    "encoder.layers.encoder_layer_{i}.self_attention.in_proj_bias": BLOCK + "attn.qkv.bias",
    "encoder.layers.encoder_layer_{i}.self_attention.out_proj": BLOCK + "attn.proj",
    "encoder.layers.encoder_layer_{i}.ln_2": BLOCK + "norm2",
    "encoder.layers.encoder_layer_{i}.mlp.0": BLOCK + "mlp.fc1",
    "encoder.layers.encoder_layer_{i}.mlp.3": BLOCK + "mlp.fc2",
    "encoder.layers.encoder_layer_{i}.mlp.linear_1": BLOCK + "mlp.fc1",
    "encoder.layers.encoder_layer_{i}.mlp.linear_2": BLOCK + "mlp.fc2",
    "encoder.ln": "norm",
    "heads.pre_logits": "pre_logits.0",
    "heads.head": "head",
}
TIMM = {  # timm.models.vision_transformer
    "patch_embed.proj": "patch_embed.proj",
    "cls_token": "token_embed.cls_token",
    "pos_embed": "token_embed.pos_embed",
    "norm": "norm",
    "head": "head",
} | {BLOCK + part: BLOCK + part for part in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")}
HUGGINGFACE = {  # ViTModel and ViTForImageClassification of transformers 5, then the block's names before
    "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "embeddings.cls_token": "token_embed.cls_token",
    "embeddings.position_embeddings": "token_embed.pos_embed",
    "layers.{i}.layernorm_before": BLOCK + "norm1",
    "layers.{i}.attention.q_proj": BLOCK + "attn.q",
    "layers.{i}.attention.k_proj": BLOCK + "attn.k",
    "layers.{i}.attention.v_proj": BLOCK + "attn.v",
    "layers.{i}.attention.o_proj": BLOCK + "attn.proj",
    "layers.{i}.layernorm_after": BLOCK + "norm2",
    "layers.{i}.mlp.fc1": BLOCK + "mlp.fc1",
    "layers.{i}.mlp.fc2": BLOCK + "mlp.fc2",
    "encoder.layer.{i}.layernorm_before": BLOCK + "norm1",
    "encoder.layer.{i}.attention.attention.query": BLOCK + "attn.q",
    "encoder.layer.{i}.attention.attention.key": BLOCK + "attn.k",
    "encoder.layer.{i}.attention.attention.value": BLOCK + "attn.v",
    "encoder.layer.{i}.attention.output.dense": BLOCK + "attn.proj",
    "encoder.layer.{i}.layernorm_after": BLOCK + "norm2",
    "encoder.layer.{i}.intermediate.dense": BLOCK + "mlp.fc1",
    "encoder.layer.{i}.output.dense": BLOCK + "mlp.fc2",
    "layernorm": "norm",
    "pooler.dense": "pre_logits.0",  # a tanh layer on the class token: the paper's pre-training head
    "classifier": "head",
}

GOOGLE = {  # the npz files of google-research/vision_transformer, with dots instead of slashes
    "embedding": "patch_embed.proj",
    "cls": "token_embed.cls_token",
    "Transformer.posembed_input.pos_embedding": "token_embed.pos_embed",
    "Transformer.encoderblock_{i}.LayerNorm_0": BLOCK + "norm1",
    "Transformer.encoderblock_{i}.MultiHeadDotProductAttention_1.query": BLOCK + "attn.q",
    "Transformer.encoderblock_{i}.MultiHeadDotProductAttention_1.key": BLOCK + "attn.k",
    "Transformer.encoderblock_{i}.MultiHeadDotProductAttention_1.value": BLOCK + "attn.v",
    "Transformer.encoderblock_{i}.MultiHeadDotProductAttention_1.out": BLOCK + "attn.proj",
    "Transformer.encoderblock_{i}.LayerNorm_2": BLOCK + "norm2",
    "Transformer.encoderblock_{i}.MlpBlock_3.Dense_0": BLOCK + "mlp.fc1",
    "Transformer.encoderblock_{i}.MlpBlock_3.Dense_1": BLOCK + "mlp.fc2",
    "Transformer.encoder_norm": "norm",
    "pre_logits": "pre_logits.0",
    "head": "head",
}


def from_torchvision(state_dict: StateDict) -> dict[str, Tensor]:
    """The state dict of a torchvision ViT (`vit_b_16`, ...) under our names.

    raises: ValueError that names the keys which are not part of such a model
    """
    return flatten_projection(rename(state_dict, TORCHVISION, "torchvision"))


def from_timm(state_dict: StateDict) -> dict[str, Tensor]:
    """The state dict of a timm ViT (`vit_base_patch16_224`, ...) under our names.

    raises: ValueError that names the keys which are not part of such a model
    """
    return flatten_projection(rename(state_dict, TIMM, "timm"))


def from_huggingface(state_dict: StateDict) -> dict[str, Tensor]:
    """The state dict of a Hugging Face `ViTModel` or `ViTForImageClassification` under our names.

    Its layer norms use eps 1e-12 unless its config says otherwise: ViTConfig(..., norm_eps=1e-12).
    A `ViTModel` brings a pooler, our hidden tanh layer: ViTConfig(..., num_classes=0, representation_size=D).
    raises: ValueError that names the keys which are not part of such a model, or a block with only some of q, k and v
    """
    return flatten_projection(join_qkv(rename(state_dict, HUGGINGFACE, "Hugging Face")))


def from_google(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """The arrays of one of Google's npz files, as `dict(numpy.load(path))` gives them, under our names.

    raises: ValueError that names the keys which are not part of such a model
    """
    if not isinstance(arrays, Mapping):
        raise TypeError(
            f"takes the arrays of an npz file, as dict(numpy.load(path)) gives them; got {type(arrays).__name__}"
        )
    return flatten_projection(join_qkv(rename(dict(from_flax(*item) for item in arrays.items()), GOOGLE, "Google")))


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


def heads_of_google(arrays: Mapping[str, Any]) -> int:
    """The number of heads h, from the shape of the query kernel (D, h, d)."""
    query = "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel"
    if query not in arrays:
        raise ValueError(f"{query} is not there: the file is incomplete")
    return arrays[query].shape[1]


def fill(model: nn.Module, state_dict: StateDict) -> None:
    """Load weights under our names into a model: all of them, or none.

    raises: ValueError that names missing keys, unexpected keys and wrong shapes
    """
    expected, complaints = model.state_dict(), []
    if missing := expected.keys() - state_dict.keys():
        complaints.append(f"{len(missing)} missing: {some(missing)}")
    if foreign := state_dict.keys() - expected.keys():
        complaints.append(f"{len(foreign)} that do not belong: {some(foreign)}")
    shapes = {key: (tuple(expected[key].shape), tuple(state_dict[key].shape)) for key in expected.keys() & state_dict.keys()}
    if other := [f"{key} expected {a}, found {b}" for key, (a, b) in sorted(shapes.items()) if a != b]:
        complaints.append(f"{len(other)} of another shape: {some(other)}")
    if complaints:
        raise ValueError(f"these are not the model's {len(expected)} weights, it is as it was: {'; '.join(complaints)}")
    model.load_state_dict(state_dict)


def some(names: Iterable[str]) -> str:
    """The first five of many names, in order."""
    first = sorted(names)
    return ", ".join(first[:5]) + (", ..." if len(first) > 5 else "")


def rename(state_dict: StateDict, table: Mapping[str, str], library: str) -> dict[str, Tensor]:
    """Rename every key by a key map, from the library's module names to ours; an unknown key is an error."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"takes a state dict, as model.state_dict() gives it; got {type(state_dict).__name__}")
    if not state_dict:
        raise ValueError(f"an empty state dict is no {library} ViT")
    rules = [(re.compile(re.escape(old).replace(r"\{i\}", r"(\d+)") + r"(\.weight|\.bias|)"), table[old]) for old in table]
    renamed: dict[str, Tensor] = {}
    unknown = []
    for key, value in state_dict.items():
        for pattern, new in rules:
            if match := pattern.fullmatch(key.removeprefix("vit.")):  # the prefix of a Hugging Face classifier
                *layer, leaf = match.groups()
                renamed[new.format(i=layer[0] if layer else None) + leaf] = value
                break
        else:
            unknown.append(key)
    if unknown:
        raise ValueError(f"{len(unknown)} of {len(state_dict)} keys are not of a {library} ViT: {', '.join(unknown[:5])}")
    return renamed


def join_qkv(state_dict: StateDict) -> dict[str, Tensor]:
    """Stack the separate matrices of queries, keys and values into one: three of (D, D) -> (3 D, D)"""
    joined = {}
    for key, value in state_dict.items():
        if match := re.fullmatch(r"(.*\.attn\.)[qkv](\.\w+)", key):
            before, leaf = match.groups()
            parts = [before + name + leaf for name in "qkv"]
            if missing := [part for part in parts if part not in state_dict]:
                raise ValueError(f"{key} is there, but {', '.join(missing)} not: the file is incomplete")
            joined[f"{before}qkv{leaf}"] = torch.cat([state_dict[part] for part in parts])
        else:
            joined[key] = value
    return joined


def flatten_projection(state_dict: StateDict) -> dict[str, Tensor]:
    """The published convolution's kernel (D, C, P, P) as the weight (D, C*P*P) of a Linear on flattened patches."""
    weight = "patch_embed.proj.weight"
    return {key: value.flatten(1) if key == weight else value for key, value in state_dict.items()}
