"""Ablation: change one thing at a time, train several seeds of each, and see which changes are larger than the noise."""

import csv
import json
import statistics
import time
import tomllib
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from vit_helpers.data import Split, load, random_affine
from vit_helpers.encoder import Block
from vit_helpers.recipe import Recipe
from vit_helpers.training import fit, set_seed
from vit_helpers.vit import ViT, ViTConfig

COLUMNS = ("change", "seed", "accuracy", "loss", "parameters", "multiply_adds", "seconds", "settings")
MODEL = {f.name for f in fields(ViTConfig)}
RECIPE = {f.name for f in fields(Recipe)}
OTHERS = {"batch_size": 64, "augment": "affine", "norm": "first", "images": None}
AUGMENT = {"affine": random_affine, "none": None}


class NormLastBlock(Block):
    """A block as the first Transformer had it: the norms stand after the sums (Vaswani et al., arXiv 1706.03762)"""

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attn(x, mask))
        return self.norm2(x + self.mlp(x))


NORMS = {"first": Block, "last": NormLastBlock}


@dataclass(frozen=True)
class Table:
    """What to run: a baseline, and changes to it, each alone.

    data    : name of a data set;  model: name of a size with its patch side;  seeds: how many of each
    baseline: settings that every run has: fields of `ViTConfig` or `Recipe`, or batch_size, augment ("affine", "none"),
              norm ("first", "last"), images (how many training images, None for all)
    changes : {name: settings}
    raises  : ValueError naming a setting that nobody knows
    """

    data: str = "digits"
    model: str = "mini/2"
    seeds: int = 3
    baseline: dict = field(default_factory=dict)
    changes: dict = field(default_factory=dict)

    def __post_init__(self):
        if isinstance(self.seeds, bool) or not isinstance(self.seeds, int) or self.seeds < 1:
            raise ValueError(f"seeds must be a whole number of at least 1, got {self.seeds!r}")
        if "baseline" in self.changes:
            raise ValueError('"baseline" is the name of the runs without a change: call the change something else')
        for name, settings in {"baseline": self.baseline, **self.changes}.items():
            if not isinstance(settings, dict):
                raise ValueError(f"{name}: expected settings, as {{lr = 0.001}}, got {settings!r}")
            if unknown := settings.keys() - MODEL - RECIPE - OTHERS.keys():
                known = ", ".join(sorted(MODEL | RECIPE | OTHERS.keys()))
                raise ValueError(f"{name}: unknown setting {', '.join(sorted(unknown))}, known: {known}")

    @classmethod
    def read(cls, path):
        """A table from a TOML file with data, model, seeds, [baseline] and [changes]"""
        text = Path(path).read_text(encoding="utf-8")
        try:
            declared = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path} is no TOML: {error}") from error
        known = [f.name for f in fields(cls)]
        if unknown := declared.keys() - known:
            raise ValueError(f"{path}: unknown {', '.join(sorted(unknown))}, known: {', '.join(known)}")
        return cls(**declared)

    def runs(self):
        """All runs, seed by seed: (change, seed, settings)"""
        for seed in range(self.seeds):
            for name, settings in {"baseline": {}, **self.changes}.items():
                yield name, seed, {**self.baseline, **settings}


def run_table(table, path, report=print):
    """Run what is not yet in the CSV file, a row each, kept as soon as it is done; all rows of the table come back.

    raises: ValueError when the file holds rows of other settings, naming the first
    """
    path, runs = Path(path), list(table.runs())
    done = read_rows(path)
    data = load(table.data)
    rows = []
    for number, (name, seed, settings) in enumerate(runs, 1):
        declared = json.dumps({"data": table.data, "model": table.model, **settings}, sort_keys=True)
        row = done.get((name, seed))
        if row is None:
            row = {"change": name, "seed": seed, **run(data, table.model, settings, seed), "settings": declared}
            append_row(path, row)
            report(f"{number} of {len(runs)}: {name}, seed {seed}: accuracy {row['accuracy']:.4f}, {row['seconds']:.1f} s")
        elif row["settings"] != declared:
            raise ValueError(f"{path} holds {name}, seed {seed} with other settings: {row['settings']}, now {declared}")
        rows.append(row)
    return rows


def run(data, model, settings, seed):
    """Train one model; its validation accuracy and loss, parameters, multiply-adds of one image, and seconds"""
    other = OTHERS | {name: value for name, value in settings.items() if name in OTHERS}
    shape = {"image_size": data.image_size, "in_chans": data.in_chans, "num_classes": len(data.class_names)}
    config = ViTConfig.from_name(model, **shape | {k: v for k, v in settings.items() if k in MODEL})
    recipe = replace(Recipe(), **{k: v for k, v in settings.items() if k in RECIPE})
    block = partial(
        NORMS[other["norm"]],
        mlp_ratio=config.mlp_ratio,
        dropout=config.dropout,
        attn_dropout=config.attn_dropout,
        norm_eps=config.norm_eps,
    )
    if other["images"] is not None:
        images, labels = data.train
        data = replace(data, train=Split(images[: other["images"]], labels[: other["images"]]))
    set_seed(seed)
    net = ViT(config, block)
    train = data.batches("train", other["batch_size"], shuffle=True, augment=AUGMENT[other["augment"]])
    start = time.perf_counter()
    last = fit(net, train, data.batches("validation", 512), recipe, report=lambda row: None)[-1]
    return {
        "accuracy": last["val_accuracy"],
        "loss": last["val_loss"],
        "parameters": sum(p.numel() for p in net.parameters()),
        "multiply_adds": multiply_adds(net, data.train.images[:1]),
        "seconds": time.perf_counter() - start,
    }


def multiply_adds(model, images):
    """Of one pass, as torch counts them: multiplications of matrices alone"""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    return counter.get_total_flops() // 2


def read_rows(path):
    """The rows of a CSV file by change and seed; none when there is no file"""
    path = Path(path)
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path} is no table of this kind: its columns are {reader.fieldnames}, not {list(COLUMNS)}")
        kinds = {"seed": int, "accuracy": float, "loss": float, "parameters": int, "multiply_adds": int, "seconds": float}
        rows = [{name: kinds.get(name, str)(value) for name, value in row.items()} for row in reader]
    return {(row["change"], row["seed"]): row for row in rows}


def append_row(path, row):
    """Add a row to a CSV file, with its head when the file is new"""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(row)


def summarise(rows):
    """One line a change: runs, mean and spread of the accuracy, and how far it is from the baseline, seed by seed.

    returns: dicts with change, runs, accuracy (mean), spread (standard deviation), difference (mean over the seeds of change
             minus baseline), error (standard error of that difference; 0 with one seed), parameters, multiply_adds, seconds
    """
    by_change = {}
    for row in rows:
        by_change.setdefault(row["change"], {})[row["seed"]] = row
    baseline = by_change["baseline"]
    lines = []
    for name, runs in by_change.items():
        accuracies = [row["accuracy"] for row in runs.values()]
        differences = [row["accuracy"] - baseline[seed]["accuracy"] for seed, row in runs.items() if seed in baseline]
        lines.append(
            {
                "change": name,
                "runs": len(runs),
                "accuracy": statistics.mean(accuracies),
                "spread": spread(accuracies),
                "difference": statistics.mean(differences),
                "error": spread(differences) / len(differences) ** 0.5,
                **{key: next(iter(runs.values()))[key] for key in ("parameters", "multiply_adds")},
                "seconds": statistics.mean(row["seconds"] for row in runs.values()),
            }
        )
    return lines


def spread(values):
    """Standard deviation; 0 of a single value"""
    return statistics.stdev(values) if len(values) > 1 else 0.0
