"""Compare our ViT with those of four libraries: time (import, build, steps) and memory.

All models of a row have the same shape and do the same work, in turn; what differs is in
vit_helpers/results/README.md. All four are needed: pip install -e ".[peers]". The numbers of all
rounds are stored as JSON, and printed as a table. Let nothing else run meanwhile.
"""

import json
import sys
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

import vit_helpers
from tools import main
from tools.bench import run_fresh
from tools.experiments.measuring import (
    STEPS,
    in_own_process,
    markdown_table,
    random_images,
    significant,
    train_step,
)
from vit_helpers._validate import to_2tuple
from vit_helpers.cli import positive_int
from vit_helpers.cli.train import pick_device
from vit_helpers.scaling import multiply_adds, timing, training_multiply_adds
from vit_helpers.scaling.speedups import best_precision
from vit_helpers.vit import ViT, ViTConfig

CLASSES = 10
SHAPES = {
    "8 px/P2/D64/L2": ViTConfig(8, 2, 1, CLASSES, 64, 2, 4),
    "32 px/P4/D192/L6": ViTConfig(32, 4, 3, CLASSES, 192, 6, 3),
    "Ti/16": ViTConfig.from_name("Ti/16", num_classes=CLASSES),
    "B/16": ViTConfig.from_name("B/16", num_classes=CLASSES),
}
BATCH = dict(zip(SHAPES, (64, 32, 8, 4), strict=True))  # images, on a CPU
LIBRARIES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
MODULES, LABELS, UNITS, SHORT = (
    LIBRARIES[name] for name in ("modules", "labels", "units", "short")
)
Row = dict[str, Any]  # a measurement, as it is stored


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="default: all"
    )
    parser.add_argument(
        "--precision",
        nargs="+",
        choices=SHORT,
        help="default: those that the machine has units for",
    )
    parser.add_argument(
        "--rows", nargs="+", choices=LABELS, default=list(LABELS), help="default: all"
    )
    parser.add_argument(
        "--rounds", type=positive_int, default=7, help="rounds of each row (default: 7)"
    )
    parser.add_argument(
        "--threads", type=positive_int, default=2, help="threads for torch (default: 2)"
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where the models run (default: cpu)",
    )
    parser.add_argument(
        "--json",
        type=Path,
        default=Path("runs/libraries.json"),
        help="default: runs/libraries.json",
    )
    parser.add_argument(
        "--from",
        dest="stored",
        type=Path,
        help="print the table of a JSON file, and measure nothing",
    )


def run(args: Namespace) -> None:
    if args.stored:
        print(markdown(json.loads(args.stored.read_text(encoding="utf-8"))))
        return
    torch.set_num_threads(args.threads)
    device = pick_device(args.device)
    precisions = args.precision or list(dict.fromkeys(("float32", best_precision(device))))
    results = measure(args.rows, args.shapes, precisions, args.rounds, device)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"results: {args.json}", file=sys.stderr)  # so that stdout can be pasted
    print(markdown(results))


def measure(
    rows: list[str], shapes: list[str], precisions: list[str], rounds: int, device: str = "cpu"
) -> dict[str, Any]:
    """What the table needs, for JSON: all rounds (3 at most for memory), machine and versions."""
    peers = {
        name: metadata.version(LIBRARIES["packages"].get(name, name))
        for name in MODULES
        if name != "ours"
    }
    measured = []
    with torch.backends.cudnn.flags(
        enabled=True, allow_tf32=False
    ):  # float32 means float32 on a GPU too
        for row in measured_rows(rows, shapes, precisions, rounds, device):
            print(row.get("shape", ""), label(row), file=sys.stderr, flush=True)
            measured.append(row)
    about = {"machine": timing.machine(), "versions": {"ours": vit_helpers.__version__} | peers}
    about["device"] = "CPU" if device == "cpu" else f"{torch.cuda.get_device_name()}, TF32 off"
    return about | {
        "precisions": precisions,
        "bf16_units": best_precision(device) == "bfloat16",
        "rows": measured,
    }


def measured_rows(
    rows: list[str], shapes: list[str], precisions: list[str], rounds: int, device: str
) -> Iterator[Row]:
    """One row for each measurement, {name: [a number for each round]}: seconds, or bytes."""
    if "import" in rows:
        yield {"what": "import", "values": imports(rounds)}
    for shape in shapes:
        if "build" in rows:
            builds = {name: partial(make_model, name, SHAPES[shape]) for name in MODULES}
            values = timing.benchmark_interleaved(builds, rounds, seconds=0)
            yield {"what": "build", "shape": shape, "values": values}
        for precision in precisions:
            about = {"shape": shape, "precision": precision}
            if "memory" in rows and timing.can_measure_memory(device):
                words = (training_memory, shape, precision, device)
                values = {
                    name: [in_own_process(*words, name) for _ in range(min(rounds, 3))]
                    for name in MODULES
                }
                yield {"what": "memory", **about, "values": values}
            for what in STEPS:
                if what in rows:
                    yield {"what": what, **about, **speed(what, shape, precision, device, rounds)}


def imports(rounds: int) -> dict[str, list[float]]:
    """Seconds that torch's import takes, and then that of each library."""
    code = "from time import perf_counter as now; a = now(); import torch; b = now(); "
    code += "import {}; c = now()"
    taken = [
        (name, *run_fresh(code.format(MODULES[name]), "[b - a, c - b]"))
        for _ in range(rounds)
        for name in MODULES
    ]
    table = pd.DataFrame(taken, columns=["name", "torch", "module"])
    modules = table.groupby("name", sort=False)["module"].apply(list).to_dict()
    return {"torch": table["torch"].tolist()} | modules


def speed(what: str, shape: str, precision: str, device: str, rounds: int) -> Row:
    """Seconds of a batch, its size, an image's multiply-adds, and the machine's best a second."""
    config, batch = SHAPES[shape], random_batch(shape, device)
    steps = {
        name: STEPS[what](make_model(name, config).to(device), *batch, precision)
        for name in MODULES
    }
    work = (
        multiply_adds(config)
        if what == "inference"
        else training_multiply_adds(config, fused=False)
    )
    # per second
    peak = timing.matmul_peak(getattr(torch, precision), device, 1024 if device == "cpu" else 8192)
    about = {"batch": len(batch[0]), "multiply_adds": sum(work.values()), "peak": peak}
    return about | {"values": timing.benchmark_interleaved(steps, rounds)}


def random_batch(shape: str, device: str) -> tuple[Tensor, Tensor]:
    """Random images and labels: the shape's batch, on a GPU, which few leave idle, 32 times it."""
    return random_images(SHAPES[shape], BATCH[shape] * (1 if device == "cpu" else 32), device)


def training_memory(shape: str, precision: str, device: str, name: str) -> int:
    """Bytes at the peak of three training steps, besides those of torch (after a small step),
    library and images.

    Call it in a fresh process each time: two models in one process would share a peak.
    """
    import_module(MODULES[name])
    images, labels = random_batch(shape, device)
    with torch.backends.cudnn.flags(
        enabled=True, allow_tf32=False
    ):  # float32 means float32 on a GPU too
        small = nn.Sequential(
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * SHAPES[shape].in_chans, CLASSES)
        )
        train_step(small.to(device), images, labels, precision)()
        before = timing.reset_peak_memory(device)
        step = train_step(make_model(name, SHAPES[shape]).to(device), images, labels, precision)
        for _ in range(3):
            step()
        return timing.peak_memory(device) - before


def make_model(name: str, c: ViTConfig) -> nn.Module:
    """A library's ViT of our shape; what still differs is in vit_helpers/results/README.md."""
    if name == "ours":
        return ViT(c)
    shape = (
        to_2tuple(c.image_size)[0],
        c.patch_size,
        c.in_chans,
        CLASSES,
        c.embed_dim,
        4 * c.embed_dim,
        c.depth,
        c.num_heads,
    )
    module, words = (
        import_module(MODULES[name]),
        dict(zip(LIBRARIES["arguments"][name].split(), shape, strict=True)),
    )
    words.pop("-", None)
    if name == "Hugging Face":
        return module.ViTForImageClassification(module.ViTConfig(**words))
    if name == "vit-pytorch":
        return module.ViT(**words, dim_head=c.embed_dim // c.num_heads)  # dim_head is 64 by default
    model = module.VisionTransformer(**words)
    if name == "torchvision" and c.in_chans != 3:  # its builder knows color images only
        model.conv_proj = nn.Conv2d(c.in_chans, c.embed_dim, c.patch_size, c.patch_size)
    return model


def markdown(results: dict[str, Any]) -> str:
    """The table of what `measure` returned, and below it what was measured where."""
    rows, names = results["rows"], list(results["versions"])
    peaks = pd.DataFrame([row for row in rows if "peak" in row]).groupby("precision")["peak"].max()
    versions = [f"{name} {number}" for name, number in results["versions"].items()]
    about = f"{results['device']}: {results['machine']}; {', '.join(versions)}."
    if not results["bf16_units"] and "bfloat16" not in results["precisions"]:
        about += "\nbf16: no bf16 units here: left out."
    lines = pd.DataFrame([table_line(row, names, peaks) for row in rows])
    return f"{markdown_table(lines)}\n\n{about}"


def table_line(row: Row, names: list[str], peaks: pd.Series) -> dict[str, str]:
    """Medians, their ratio (above 1 if ours is faster), the widest range, our share of the peak."""
    values, speed, share = (
        pd.DataFrame({name: row["values"][name] for name in names}),
        "peak" in row,
        "",
    )
    spread = ((values.max() - values.min()) / values.median()).max()
    values = row["batch"] / values if speed else values / UNITS[row["what"]]
    if speed:
        share = f"{values['ours'].median() * row['multiply_adds'] / peaks[row['precision']]:.0%}"
    about = {
        "measured": label(row),
        "shape": row.get("shape", ""),
        **values.median().map(significant),
    }
    return about | {
        "ours / best peer": ratio(values, speed),
        "spread": f"{spread:.0%}",
        "share of peak": share,
    }


def label(row: Row) -> str:
    words = LABELS[row["what"]]
    if row["what"] == "import":
        words += f" (after torch's {significant(pd.Series(row['values']['torch']).median())})"
    return f"{words}, {SHORT[row['precision']]}" if "precision" in row else words


def ratio(values: pd.DataFrame, speed: bool) -> str:
    """Ours over the best peer, round by round: the median and the range."""
    medians = values.drop(columns="ours").median()
    ratios = values["ours"] / values[medians.idxmax() if speed else medians.idxmin()]
    return f"{ratios.median():.2f} ({ratios.min():.2f} to {ratios.max():.2f})"


if __name__ == "__main__":
    raise SystemExit(main())
