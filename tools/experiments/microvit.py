"""Measure how well the ViT in plain Python reads the digits, beside ours and nearest neighbors.

Its learning rate is chosen on the validation digits, with seeds that are not used again. There, our
own `ViT` is trained in its place, with the same weights, digits and steps: it computes the same in
seconds. Then the file itself is trained with five seeds and tested on the 360 test digits, as are
two trainings of the series' ViT (the settings of `python -m tools.bench`). The control is the
nearest training digit. Finished rows are kept in a CSV file, and the same command goes on where it
stopped.
"""

import random
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from tools import main
from tools.bench import GOALS
from tools.experiments.measuring import add_out, find_or_measure
from vit_helpers.ablation.rows import pack
from vit_helpers.data import load
from vit_helpers.microvit import microvit
from vit_helpers.microvit.microvit import Weights
from vit_helpers.scaling.timing import processor
from vit_helpers.training import fit, predict, set_seed
from vit_helpers.training.presets import make_batches, make_network, preset, with_tta
from vit_helpers.vit import ViT, ViTConfig

RATES, CHOOSING = (0.003, 0.006, 0.012), range(100, 105)  # seeds
NAMES = {  # of a layer in a block: ours
    **{"norm1": "norm1", "norm2": "norm2", "proj": "attn.proj"},
    **{"fc1": "mlp.fc1", "fc2": "mlp.fc2"},
}


def add_arguments(parser: ArgumentParser) -> None:
    add_out(parser, "microvit.csv", seeds=5)


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    print("about 15 minutes of one thread, if nothing is stored yet", flush=True)
    for rate, seed in product(RATES, CHOOSING):
        measure(args.out, "validation", f"ViT, rate {rate}", seed, train_twin)
    for seed in range(args.seeds):
        measure(args.out, "test", f"microvit, rate {microvit.RATE}", seed, train_microvit)
    for seed, goal in product(range(args.seeds), ("digits-3s", "digits")):
        measure(args.out, "test", goal, seed, train_ours)
    measure(args.out, "test", "nearest", 0, find_nearest)
    rows = pd.read_csv(args.out).groupby(["split", "model"])[["accuracy", "seconds"]]
    print(f"\n{rows.agg(['mean', 'min', 'max']).to_string()}\n\nrows: {args.out}")


def measure(
    path: Path, split: str, model: str, seed: int, answer: Callable[[str, str, int], Tensor]
) -> None:
    """Store whether each digit of a split is classified correctly, unless it is stored."""

    def row(split: str, model: str, seed: int) -> dict[str, Any]:
        start = time.process_time()
        right = answer(split, model, seed) == load("digits").get_split(split).labels
        seconds = time.process_time() - start
        where = f"{processor()}, 1 thread, torch {torch.__version__}"
        return {
            "accuracy": right.float().mean().item(),
            "seconds": seconds,
            "right": pack(right),
            "machine": where,
            "date": date.today().isoformat(),
        }

    find_or_measure(path, row, split=split, model=model, seed=seed)


def train_microvit(split: str, model: str, seed: int) -> Tensor:
    """The answers of the plain model, trained with this seed"""
    random.seed(seed)
    digits, weights = microvit.read_digits(), microvit.make_weights()
    microvit.train(weights, digits["train"])
    return torch.tensor([microvit.predict(weights, image) for image, _ in digits[split]])


def train_twin(split: str, model: str, seed: int, steps: int = microvit.STEPS) -> Tensor:
    """The same training, of our `ViT` in double precision; its rate is the name's last word."""
    digits = load("digits")
    random.seed(seed)
    network = twin(microvit.make_weights())
    images, labels = digits.train.images.double(), digits.train.labels
    optimizer = torch.optim.Adam(network.parameters(), betas=(0.9, 0.95))
    queue: list[int] = []
    for step in range(1, steps + 1):
        rows = []
        for _ in range(microvit.BATCH):
            queue = queue or random.sample(range(len(labels)), len(labels))
            rows.append(queue.pop())
        optimizer.param_groups[0]["lr"] = float(model.split()[-1]) * (1 - step / (steps + 1))
        optimizer.zero_grad()
        F.cross_entropy(network(images[rows]), labels[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        return network(digits.get_split(split).images.double()).argmax(1)


def twin(weights: Weights) -> ViT:
    """Our `ViT` with the weights of the plain model, in double precision"""
    config = ViTConfig(
        image_size=microvit.SIDE,
        patch_size=microvit.PATCH,
        in_chans=1,
        num_classes=microvit.CLASSES,
        embed_dim=microvit.DIM,
        depth=microvit.DEPTH,
        num_heads=microvit.HEADS,
        mlp_ratio=microvit.HIDDEN / microvit.DIM,
        norm_eps=1e-6,
    )
    model = ViT(config).double()
    model.load_state_dict(state_dict(weights))
    return model


def state_dict(weights: Weights, what: str = "data") -> dict[str, Tensor]:
    """The weights of the plain model, or with "grad" their gradients, by the names of `ViT`"""
    rows = {
        name: torch.tensor([[getattr(x, what) for x in row] for row in matrix], dtype=torch.float64)
        for name, matrix in weights.items()
    }

    def layer(matrix: Tensor, name: str) -> dict[str, Tensor]:
        return {f"{name}.weight": matrix[:, :-1], f"{name}.bias": matrix[:, -1]}

    def norm(matrix: Tensor, name: str) -> dict[str, Tensor]:
        return {f"{name}.weight": matrix[0], f"{name}.bias": matrix[1]}

    state = layer(rows["embed"], "patch_embed.proj") | layer(rows["head"], "head")
    state |= {"token_embed.cls_token": rows["cls"][None]}
    state |= {"token_embed.pos_embed": rows["positions"][None]} | norm(rows["norm"], "norm")
    for i in range(microvit.DEPTH):
        qkv = torch.cat([rows[f"block{i}.{name}"] for name in "qkv"])
        state |= layer(qkv, f"blocks.{i}.attn.qkv")
        for name, ours in NAMES.items():
            convert = norm if name.startswith("norm") else layer
            state |= convert(rows[f"block{i}.{name}"], f"blocks.{i}.{ours}")
    return state


def train_ours(split: str, goal: str, seed: int) -> Tensor:
    """The answers of the series' ViT, trained with a preset on the same digits"""
    data, settings = load("digits"), preset("digits", seed=seed, **GOALS[goal]["settings"])
    set_seed(seed)
    model = make_network(data, settings)
    fit(model, make_batches(data, settings), None, settings.recipe, callbacks=[])
    return predict(with_tta(model, settings), data.batches(split, 512))[0].argmax(1)


def find_nearest(split: str, model: str, seed: int) -> Tensor:
    """The label of the training digit whose pixels are most similar; nothing is learned"""
    data = load("digits")
    images, known = data.get_split(split).images.flatten(1), data.train.images.flatten(1)
    return data.train.labels[torch.cdist(images, known).argmin(1)]


if __name__ == "__main__":
    raise SystemExit(main())
