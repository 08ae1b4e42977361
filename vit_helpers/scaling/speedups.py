"""Ways to train and predict faster, or in less memory: one function each.

The results are the same, or nearly the same.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.weak import WeakIdKeyDictionary

from vit_helpers.training.recipe import bf16_units


def accumulate(model: nn.Module, images: Tensor, labels: Tensor, parts: int) -> float:
    """Accumulate the gradient of a large batch in the memory of a small one.

    It is summed in `.grad` over the batch's parts. Each part is weighted by its number of images,
    so that parts of unequal size also add up to the mean over the batch.
    images : (B, C, H, W)
    labels : (B,), or probabilities (B, K)
    parts  : how many, from 1 to B; else ValueError
    returns: the mean loss over all images, in nats; earlier gradients are discarded
    """
    if not 1 <= parts <= len(images):
        raise ValueError(
            f"a batch of {len(images)} images has from 1 to {len(images)} parts, got {parts}"
        )
    model.zero_grad()
    total = torch.zeros((), device=images.device)
    for x, y in zip(images.tensor_split(parts), labels.tensor_split(parts), strict=True):
        loss = F.cross_entropy(model(x), y) * (len(x) / len(images))
        loss.backward()  # adds to .grad, and frees what autograd kept of this part
        total += loss.detach()
    return total.item()


@contextmanager
def checkpoint_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Checkpoint activations inside a `with`.

    A block keeps only its input, and runs again in the backward pass. The results are the same to
    the bit, dropout included, and weights keep their names; it costs a second forward pass.
    raises: TypeError for a model without `blocks`, which `ViT` and timm's models have
    """
    if not hasattr(model, "blocks"):
        raise TypeError(f"{type(model).__name__} has no blocks to run again")
    with ExitStack() as stack:
        for block in cast(Any, model.blocks):
            again = partial(checkpoint, block.forward, use_reentrant=False)
            stack.enter_context(patch.object(block, "forward", again))  # until the `with` ends
        yield model


def best_precision(device: str | torch.device = "cpu") -> str:
    """Choose a device's fastest `Recipe.precision`.

    It is "bfloat16" if the device has units for it, else "float32", which is much faster then.
    """
    kind = torch.device(device).type
    has_units = kind == "cpu" and bf16_units()
    if kind == "cuda" and torch.cuda.is_available():
        has_units = torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if has_units else "float32"


def quantize(model: nn.Module) -> nn.Module:
    """Copy a model, with 8-bit weights and inputs in its linear layers, one scale for each layer.

    The copy is for inference on a CPU only.
    raises: ImportError or RuntimeError if torch, which will move this to torchao, no longer has it
    """
    with warnings.catch_warnings(action="ignore"):
        from torch.ao.quantization import quantize_dynamic

        return quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8).eval()


def saved_activation_bytes(function: Callable[[], Any], model: nn.Module) -> int:
    """Measure the peak memory that autograd keeps for the backward pass of function(), in bytes.

    The model's weights are not counted, nor what a recomputed block keeps for a moment.
    """
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    alive = WeakIdKeyDictionary()  # tensors that autograd has not released
    totals = [0]

    def keep(tensor: Tensor) -> Tensor:
        saved = tensor.detach()
        alive[saved] = None
        storages = [held.untyped_storage() for held in alive]
        sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}  # shared: once
        totals.append(sum(size for pointer, size in sizes.items() if pointer not in weights))
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        function()
    return max(totals)


def break_even_steps(start: float, before: float, after: float) -> float:
    """Count the steps until a start-up cost of `start` seconds is recovered.

    A step takes `after` instead of `before` seconds; infinity if that is not faster.
    """
    return math.ceil(start / (before - after)) if after < before else math.inf
