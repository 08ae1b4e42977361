"""Ways to train and answer faster, or in less memory, with the same numbers or nearly: the ideas, a function each."""

import math
import warnings
import weakref
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from vit_helpers.training.recipe import bf16_units


def accumulate(model, images, labels, parts):
    """The gradient of a large batch in the memory of a small one: a part at a time, and the gradients add up in `.grad`.

    A part counts by its share of the images, so that uneven parts add up to the mean over all as well.
    images : (B, C, H, W);  labels: (B,), or shares of classes (B, K);  parts: how many, from 1 to B
    returns: the mean loss over all images, in nats; what was in `.grad` before is gone
    raises : ValueError when a part would be empty
    """
    if not 1 <= parts <= len(images):
        raise ValueError(f"a batch of {len(images)} images has from 1 to {len(images)} parts, got {parts}")
    model.zero_grad()
    total = torch.zeros((), device=images.device)
    for some, their in zip(images.tensor_split(parts), labels.tensor_split(parts), strict=True):
        loss = F.cross_entropy(model(some), their) * (len(some) / len(images))
        loss.backward()  # adds to .grad, and frees what autograd kept of this part
        total += loss.detach()
    return total.item()


@contextmanager
def checkpoint_blocks(model):
    """Gradient checkpointing, inside a `with`: a block keeps its input alone, and runs once more on the way back.

    The numbers are the same to the bit, dropout included, and weights keep their names; the price is a second forward pass.
    model : has `blocks`, as `ViT` and timm's models do
    raises: TypeError when it has none
    """
    if not hasattr(model, "blocks"):
        raise TypeError(f"{type(model).__name__} has no blocks to run again")
    before = [(block, vars(block).get("forward")) for block in model.blocks]
    for block, _ in before:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield model
    finally:
        for block, forward in before:
            if forward is None:
                del block.forward  # that of its class shows again
            else:
                block.forward = forward


def best_precision(device="cpu"):
    """The `Recipe.precision` that is fastest on a device: "bfloat16" where there are units for it, elsewhere "float32".

    The trap: bfloat16 runs everywhere, and without units several times slower than float32
    """
    kind, has_units = torch.device(device).type, False
    if kind == "cpu":
        has_units = bf16_units()
    elif kind == "cuda" and torch.cuda.is_available():
        has_units = torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if has_units else "float32"


def quantize(model):
    """A copy whose linear layers hold their weights in 8 bits, a scale a layer; inputs are rounded to 8 bits as they come.

    A quarter of the memory, for inference on a CPU alone. Torch announces that this will move to the package torchao.
    raises: ImportError or RuntimeError where torch, or its build for this processor, has it no longer
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.ao.quantization import quantize_dynamic

        return quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8).eval()


def saved_activation_bytes(function, model):
    """The most memory that autograd keeps for the way back at any moment while function() runs, in bytes.

    The weights of the model are not counted, they are there anyway; nor what a recomputed block keeps for a moment
    """
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    alive, most = weakref.WeakSet(), 0

    def keep(tensor):
        nonlocal most
        held = SavedTensor(tensor)
        alive.add(held)
        storages = [held.tensor.untyped_storage() for held in alive]  # several tensors may share one: counted once
        sizes = {storage.data_ptr(): storage.nbytes() for storage in storages if storage.data_ptr() not in weights}
        most = max(most, sum(sizes.values()))
        return held

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda held: held.tensor):
        function()
    return most


class SavedTensor:
    """A tensor that autograd keeps; gone when autograd lets go of it"""

    def __init__(self, tensor):
        self.tensor = tensor


def break_even_steps(start, before, after):
    """Steps until a start-up of so many seconds is won back, when a step took `before` seconds and now takes `after`.

    >>> pays_after(30, before=0.5, after=0.25), pays_after(30, before=0.25, after=0.25)
    (120, inf)
    """
    return math.ceil(start / (before - after)) if after < before else math.inf
