"""Fine-tuning: adapt a trained ViT to new classes or larger images (paper, 3.2 and B.1.1)."""

import copy
import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers.distributed import (
    load_full_state_dict,
    plain_name,
    plain_state_dict,
    unwrap,
)
from vit_helpers.embeddings import resize_positions
from vit_helpers.vit import OWN_BLOCKS, ViT


def transfer_weights(model: ViT, **changes: Any) -> ViT:
    """Make a ViT with some settings changed, and the weights, device and dtype of a trained one.

    model  : the trained one, which is not modified
    changes: any of `num_classes` (the new head is zero, as in the paper), `image_size` (learned
             position embeddings are interpolated, see `resize_positions`), and, with the paper's
             blocks, `dropout` and `attn_dropout`
    raises : ValueError for any other change: the weights would not fit, or a custom block would
             lose its settings
    """
    model = unwrap(model)
    foreign = changes.keys() - {"num_classes", "image_size", "dropout", "attn_dropout"}
    if foreign:
        raise ValueError(
            f"{', '.join(sorted(foreign))} cannot change: the weights would not fit any more"
        )
    blocks = nn.ModuleList(map(unwrap, model.blocks))  # some may be compiled
    custom = any(type(block) not in OWN_BLOCKS for block in blocks)
    if custom and changes.keys() & {"dropout", "attn_dropout"}:
        raise ValueError(
            "the dropout of custom blocks cannot change: set it in the blocks themselves"
        )
    if "num_classes" in changes:
        changes["representation_size"] = None  # the hidden layer of the old head is dropped with it
    first = next(model.parameters())
    new = ViT(replace(model.config, **changes)).to(first.device, first.dtype)
    if custom:  # their class is not in the config
        new.blocks = copy.deepcopy(blocks).to(first.device, first.dtype)
    weights = plain_state_dict(model)
    if "num_classes" in changes:
        for key in [key for key in weights if key.startswith(("head.", "pre_logits."))]:
            del weights[key]
        head = {key: w for key, w in new.state_dict().items() if key.startswith("head.")}
        weights.update(head)
    name = "token_embed.pos_embed"
    if name in weights:
        weights[name] = resize_positions(weights[name], model.config.grid, new.config.grid)
    load_full_state_dict(new, weights)
    return new.train(model.training)


def freeze(model: ViT, but: tuple[str, ...] = ("head",)) -> ViT:
    """Freeze all parameters but those of some modules, in place.

    but    : the names of modules or parameters, as in ("head", "blocks.11")
    returns: the model
    raises : ValueError, before anything is changed, for a name that the model does not have
    """
    parameters = {plain_name(name): p for name, p in unwrap(model).named_parameters()}
    trained = {
        prefix: [name for name in parameters if f"{name}.".startswith(f"{prefix.rstrip('.')}.")]
        for prefix in but
    }
    if absent := [prefix for prefix, names in trained.items() if not names]:
        parts = ", ".join(dict.fromkeys(name.partition(".")[0] for name in parameters))
        raise ValueError(f"the model has no parameters of {', '.join(absent)}; it has {parts}")
    for parameter in parameters.values():
        parameter.requires_grad_(False)
    for name in chain.from_iterable(trained.values()):
        parameters[name].requires_grad_(True)
    return model


class LoRA(nn.Module):
    """A frozen linear layer plus a trainable low-rank update (Hu et al., arXiv 2106.09685).

    linear : (..., n) -> (..., m), frozen here
    rank   : r, from 1 to min(m, n); the update B A, (m, r) times (r, n), has r (n + m) parameters
             instead of n m
    forward: W x + b + scale B A x; B starts at zero, so at first the update is zero
    raises : ValueError for another rank, or if the layer is a `LoRA`
    """

    def __init__(self, linear: nn.Linear, rank: int, scale: float = 1.0) -> None:
        super().__init__()
        check_rank(linear, rank)
        m, n = linear.weight.shape
        self.linear, self.scale = linear.requires_grad_(False), scale
        self.A = nn.Parameter(linear.weight.new_empty(rank, n))
        self.B = nn.Parameter(linear.weight.new_zeros(m, rank))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.scale * (x @ self.A.T) @ self.B.T

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Make one linear layer with the same output, for use after training."""
        linear = copy.deepcopy(self.linear)
        linear.weight += self.scale * self.B @ self.A
        return linear.requires_grad_()


def check_rank(linear: "nn.Linear | LoRA", rank: int) -> None:
    """Raise ValueError if a layer is a `LoRA` already, or cannot have an update of this rank."""
    if isinstance(linear, LoRA):
        raise ValueError("the model already has LoRA layers: merge_lora makes them linear again")
    m, n = linear.weight.shape
    if rank not in range(1, min(m, n) + 1):
        raise ValueError(f"a rank for a matrix of {m} x {n} is from 1 to {min(m, n)}, got {rank}")


def add_lora(model: ViT, rank: int, scale: float = 1.0) -> ViT:
    """Freeze a ViT except for its head, and replace each block's qkv by a `LoRA`, in place.

    returns: the model
    raises : ValueError, before anything is changed, if it has LoRA layers, or the rank does not fit
    """
    attentions = [block.attn for block in map(unwrap, unwrap(model).blocks)]
    for attention in attentions:
        check_rank(attention.qkv, rank)
    is_headless = isinstance(unwrap(model).head, nn.Identity)
    freeze(model, () if is_headless else ("head",))
    for attention in attentions:
        attention.qkv = LoRA(attention.qkv, rank, scale)
    return model


def merge_lora(model: ViT) -> ViT:
    """Replace every `LoRA` by one linear layer with the same output, in place.

    returns: the model
    """
    for block in map(unwrap, unwrap(model).blocks):
        if isinstance(block.attn.qkv, LoRA):
            block.attn.qkv = block.attn.qkv.merged()
    return model


def layerwise_lr_decay(
    model: ViT, groups: Iterable[dict[str, Any]], decay: float
) -> list[dict[str, Any]]:
    """Split parameter groups by layer, with the learning rate lr * decay^(layers above).

    groups: an optimizer's, [{"params": [...], "lr": ...}, ...]
    decay : 1 for the same rate everywhere, around 0.75 for fine-tuning; the head keeps its rate
    source: BEiT, arXiv 2106.08254
    """
    model = unwrap(model)
    top = len(model.blocks) + 1
    layer_of = dict.fromkeys(map(id, model.parameters()), top)  # the last norm and the head
    embeddings = nn.ModuleList([model.patch_embed, model.token_embed])
    for layer, module in enumerate([embeddings, *model.blocks]):
        layer_of |= dict.fromkeys(map(id, module.parameters()), layer)
    split: dict[tuple[int, int], dict[str, Any]] = {}
    for number, group in enumerate(groups):
        for parameter in group["params"]:
            layer = layer_of[id(parameter)]
            if (number, layer) not in split:
                lr = group["lr"] * decay ** (top - layer)
                split[number, layer] = {**group, "params": [], "lr": lr}
            split[number, layer]["params"].append(parameter)
    return list(split.values())
