"""Store what a small DINOv3 of the library transformers computes: outputs and gradients.

Our model is compared with it where this class of transformers, or the license of DINOv3's own
weights, cannot be had. All parameters are random.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tools import main
from vit_helpers._files import write_aside
from vit_helpers.parity import perturb
from vit_helpers.results.dinov3_reference import REFERENCE

SIZE = (32, 48)  # pixels: 4 x 6 patches, so that rows and columns cannot be swapped unseen
CONFIG = {"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2, "mlp_ratio": 2}
CONFIG |= {"reg_tokens": 3}
THEIRS = {
    "image_size": SIZE[0],
    "patch_size": CONFIG["patch_size"],
    "hidden_size": CONFIG["embed_dim"],
    "num_hidden_layers": CONFIG["depth"],
    "num_attention_heads": CONFIG["num_heads"],
    "num_register_tokens": CONFIG["reg_tokens"],
    "intermediate_size": CONFIG["mlp_ratio"] * CONFIG["embed_dim"],
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=REFERENCE, help=f"(default: {REFERENCE.name})")


def run(args: Namespace) -> None:
    import transformers

    torch.manual_seed(0)
    model = make_model()
    images = torch.randn(2, 3, *SIZE)
    slope = torch.randn(2, 1 + CONFIG["reg_tokens"] + 24, CONFIG["embed_dim"])
    tokens, gradients = compute(model, images, slope)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    tensors = {"images": images, "tokens": tokens, "slope": slope}
    tensors |= {f"weights:{name}": weights[name] for name in gradients}
    tensors |= {f"gradients:{name}": gradient for name, gradient in gradients.items()}
    notes = {name: str(value) for name, value in CONFIG.items()}
    notes["transformers"] = transformers.__version__
    notes["command"] = "python -m tools.experiments.dinov3_reference"
    with write_aside(args.out) as path:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, notes)
    print(f"{args.out}: {len(weights)} parameters, {args.out.stat().st_size / 1e3:.0f} kB")


def make_model(weights: dict[str, Tensor] | None = None) -> Any:
    """transformers' DINOv3 with these weights, or with random ones.

    raises: ImportError if this version of transformers has no such class
    """
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    model = DINOv3ViTModel(DINOv3ViTConfig(**THEIRS)).eval()
    if weights is None:
        perturb(model, std=0.2)
        return model
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in weights:  # not the token of masked patches
                parameter.copy_(weights[name])
    return model


def compute(model: Any, images: Tensor, slope: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The tokens of a model, and the gradients of (tokens * slope).sum() by parameter."""
    model.zero_grad()
    tokens = model(images).last_hidden_state
    (tokens * slope).sum().backward()
    gradients = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None  # the token of masked patches has none
    }
    return tokens.detach(), gradients


if __name__ == "__main__":
    raise SystemExit(main())
