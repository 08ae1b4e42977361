"""Fine-tuning: a trained ViT meets new classes, or larger images (paper, section 3.2 and appendix B.1.1)."""

import copy
import math
from dataclasses import replace

import torch
from torch import nn

from vit_helpers.embeddings import resize_positions
from vit_helpers.vit import ViT


def transfer_weights(model, **changes):
    """A new ViT with other settings that begins with the weights of a trained one; that one stays as it is.

    changes: any of `num_classes` (a head of zeros in place of the old one, as in the paper), `image_size` (learned positions
             are stretched over the new grid, `resize_positions`), `dropout`, `attn_dropout`
    raises : ValueError for a change that would not leave the weights their shape

    >>> from vit_helpers.vit import ViTConfig
    >>> old = ViT(ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=10))
    >>> new = carry_over(old, num_classes=3, image_size=16)
    >>> new.config.num_tokens, new.head.weight.abs().sum().item()
    (17, 0.0)
    """
    if foreign := changes.keys() - {"num_classes", "image_size", "dropout", "attn_dropout"}:
        raise ValueError(f"{', '.join(sorted(foreign))} cannot change: the weights would not fit any more")
    if "num_classes" in changes:
        changes["representation_size"] = None  # the hidden layer of the old head goes with it
    new = ViT(replace(model.config, **changes))
    weights = model.state_dict()
    if "num_classes" in changes:
        weights = {key: w for key, w in weights.items() if not key.startswith(("head.", "pre_logits."))}
        weights |= {key: w for key, w in new.state_dict().items() if key.startswith("head.")}
    if (name := "token_embed.pos_embed") in weights:
        weights[name] = resize_positions(weights[name], model.config.grid, new.config.grid)
    new.load_state_dict(weights)
    return new.train(model.training)


def freeze(model, but=("head",)):
    """Let only parts of a model learn, by the beginnings of their names; the model comes back"""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(tuple(but)))
    return model


class LoRA(nn.Module):
    """A Linear that stays as it is, and beside it a product of two thin ones that learns (Hu et al., arXiv 2106.09685)

    linear : (..., n) -> (..., m), frozen here
    rank   : r: the step B A, (m, r) times (r, n), has r (n + m) numbers in place of n m
    scale  : of the step
    forward: W x + b + scale B A x; at first nothing is added, since B begins with zeros
    """

    def __init__(self, linear, rank, scale=1.0):
        super().__init__()
        m, n = linear.weight.shape
        if not 1 <= rank <= min(m, n):
            raise ValueError(f"a rank for a matrix of {m} x {n} is from 1 to {min(m, n)}, got {rank}")
        self.linear, self.scale = linear.requires_grad_(False), scale
        self.A = nn.Parameter(linear.weight.new_empty(rank, n))
        self.B = nn.Parameter(linear.weight.new_zeros(m, rank))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, x):
        return self.linear(x) + self.scale * (x @ self.A.T) @ self.B.T

    @torch.no_grad()
    def merged(self):
        """A plain Linear that does the same, for use after training"""
        linear = copy.deepcopy(self.linear)
        linear.weight += self.scale * self.B @ self.A
        return linear.requires_grad_()


def add_lora(model, rank, scale=1.0):
    """Freeze a ViT but for its head, and put a `LoRA` in place of each block's qkv; the model comes back, changed"""
    freeze(model)
    for block in model.blocks:
        block.attn.qkv = LoRA(block.attn.qkv, rank, scale)
    return model


def merge_lora(model):
    """Put plain matrices back in place of every `LoRA`; the model comes back, with the same outputs"""
    for block in model.blocks:
        if isinstance(block.attn.qkv, LoRA):
            block.attn.qkv = block.attn.qkv.merged()
    return model


def layerwise_lr_decay(model, groups, decay):
    """Split groups of parameters so that earlier layers learn more slowly: lr times decay^(layers above) (arXiv 2106.08254)

    groups : as an optimiser takes them, [{"params": [...], "lr": ...}, ...]
    decay  : 1 for all alike, 0.75 and the like for fine-tuning; the head keeps its rate
    returns: new groups
    """
    depth = len(model.blocks)
    layer_of = {}
    for name, parameter in model.named_parameters():
        part, _, rest = name.partition(".")
        if part == "blocks":
            layer_of[id(parameter)] = 1 + int(rest.partition(".")[0])
        else:
            layer_of[id(parameter)] = 0 if part in ("patch_embed", "token_embed") else depth + 1
    split = {}
    for number, group in enumerate(groups):
        for parameter in group["params"]:
            layer = layer_of[id(parameter)]
            lr = group["lr"] * decay ** (depth + 1 - layer)
            split.setdefault((number, layer), {**group, "params": [], "lr": lr})["params"].append(parameter)
    return list(split.values())
