"""Measure ways to make training and inference faster or smaller here; notebook 11 uses them.

The steps of a comparison take turns for several rounds, each compared with the one before it.
`ratio` is the median of the rounds' ratios, followed by their range; 2 means twice as fast. The
columns with mb are megabytes that autograd keeps, in the rows of `memory` those by which a process
grows. What cannot run is reported. Let nothing else run, for five minutes.
"""

import gc
import io
import math
import os
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import sklearn.datasets
import torch
import torch.distributed as dist
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.transforms.functional import pil_to_tensor

from tools import main
from tools.experiments import measuring
from tools.experiments.measuring import (
    STEPS,
    Bench,
    in_own_process,
    in_processes,
    inference_step,
    train_step,
)
from vit_helpers import attention, distributed
from vit_helpers._validate import check_choice
from vit_helpers.cli import positive_int
from vit_helpers.cli.train import pick_device
from vit_helpers.data import load
from vit_helpers.scaling import speedups, timing, training_bytes
from vit_helpers.scaling.timing import Step
from vit_helpers.vit import ViTConfig

COLUMNS = ["row", "case", "before", "before_ms", "after", "after_ms", "ratio", "lowest", "highest"]
COLUMNS += ["before_mb", "after_mb", "start_s", "also", "machine"]
DIGITS, PHOTOS = ViTConfig(8, 2, 1, 10, 64, 2, 2), ViTConfig.from_name("Ti/16")
# much to optimize; much to keep
WIDE, DEEP = (
    ViTConfig(32, 8, 3, 10, 256, 12, 4),
    ViTConfig(64, 4, 3, 10, 96, 12, 3),
)
# two photos of 427 x 640 pixels
JPEG_FILES = sorted((Path(sklearn.datasets.__file__).parent / "images").glob("*.jpg"))
# of a DataLoader
WORKERS = {
    "no workers": (0, False),
    "2 workers": (2, False),
    "2 persistent workers": (2, True),
}
Rows = Iterator[dict[str, Any]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"of {', '.join(CASES)} (default: all)"
    )
    parser.add_argument(
        "--rounds", type=positive_int, default=5, help="rounds of each comparison (default: 5)"
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where the model runs (default: cpu)",
    )
    measuring.add_out(parser, "runs/speed.csv")


def run(args: Namespace) -> None:
    for name in args.rows:
        check_choice("row", name, CASES)
    bench, names = (
        Bench(pick_device(args.device), args.rounds),
        list(dict.fromkeys(args.rows or CASES)),
    )
    machine = timing.machine(bench.device)
    rows = (row | {"machine": machine} for name in names for row in measure(name, bench))
    table = measuring.store(rows, args.out, COLUMNS).drop(columns="machine").astype(object)
    table = table.where(table.notna(), "")
    table = table.map(
        lambda x: measuring.significant(x) if isinstance(x, float) else x.replace("|", "/")
    )
    print(f"{machine}\n\n{measuring.markdown_table(table)}\n\nrows: {args.out}")


def measure(name: str, bench: Bench) -> Rows:
    """The rows of a name; one that says why, if it cannot run."""
    try:
        for row in CASES[name](bench):
            yield {"row": name} | row
    except Exception as error:  # whatever torch or a compiler may raise: the other rows go on
        yield {"row": name, "also": f"not measured: {measuring.first_line(error)}"}


def ways(
    make: Callable[..., dict[str, Step]], kind: str = "training", kept: bool = False, side: int = 32
) -> Any:
    """A function that yields rows of make(model, images, labels).  kept: whether to add bytes"""

    def rows(bench: Bench) -> Rows:
        config, count = (
            replace(measuring.CONFIG, image_size=side),
            max(1, bench.batch * 1024 // side**2),
        )
        model = bench.model(config)
        steps = make(model, *bench.images(count, config))
        yield from bench.compare(
            f"{kind}, {config.num_tokens} tokens, batch {count}", steps, model if kept else None
        )

    return rows


def with_attention(fused: bool, step: Step) -> Step:
    """The step with torch's fused attention everywhere, or with two matrix products everywhere."""
    return patch.object(attention, "use_fused_attention", lambda q: fused)(step)


def bf16(bench: Bench, name: str = "") -> list[dict[str, Any]]:
    model, data = bench.model(), bench.images(bench.batch // 4)  # a few, since it may be slow
    half = train_step(model, *data, "bfloat16")
    steps = {
        "float32": train_step(model, *data),
        "bfloat16": half,
        "bfloat16, fused attention": with_attention(True, half),
    }
    rows = bench.compare(f"training, batch {bench.batch // 4}{name}", steps)
    if bench.device == "cpu" and not name and speedups.best_precision() == "bfloat16":
        with patch.dict(
            os.environ, ONEDNN_MAX_CPU_ISA="AVX512_CORE"
        ):  # of the library that multiplies
            rows += in_own_process(bf16, bench, ", bfloat16 units hidden")
    return rows


def compiled(bench: Bench, kind: str) -> dict[str, Any]:
    """A row of torch.compile; for a process that has compiled nothing before."""
    model, data = bench.model(), bench.images()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        before, after = STEPS[kind](model, *data), STEPS[kind](torch.compile(model), *data)
        start = timing.seconds_of(after)
        (row,) = bench.compare(
            f"{kind}, batch {bench.batch}", {"as written": before, "compiled": after}, start_s=start
        )
    count = speedups.break_even_steps(start, row["before_ms"] / 1000, row["after_ms"] / 1000)
    return row | {"also": f"has paid after {count:,} steps" if count < math.inf else "never pays"}


def memory(bench: Bench) -> Rows:
    for config, count, most, other in (
        (WIDE, 2, 0.8, "2 processes, sharded"),
        (DEEP, 8, 0.5, "recomputed blocks"),
    ):
        allowed = most * sum(training_bytes(config, count).values()) / 1e6
        row: dict[str, Any] = {
            "case": f"width {config.embed_dim}, {allowed:.0f} MB for each process"
        }
        for side, way in (("before", "1 process"), ("after", other)):
            with patch.dict(
                os.environ, MALLOC_MMAP_THRESHOLD_="131072"
            ):  # else glibc keeps freed tensors
                grown, how = in_processes(1 + ("2" in way), growth, config, count, way, allowed)
            row |= {side: f"{way}: {how}", f"{side}_mb": grown}
        yield row


def growth(config: ViTConfig, count: int, way: str, allowed: float) -> tuple[float, str]:
    """Megabytes by which training makes a process grow, and how it ends with only `allowed`."""
    import resource  # not on Windows

    usual = resource.getrlimit(resource.RLIMIT_DATA)
    two_steps(replace(DIGITS, depth=1), count, way)  # loads what torch needs for its first step
    grown = two_steps(config, count, way)
    gc.collect()
    most = timing.process_memory("VmData") + round(1e6 * allowed)
    resource.setrlimit(resource.RLIMIT_DATA, (most, usual[1]))
    try:
        return grown, f"trains, and grows by {two_steps(config, count, way):.0f} MB"
    except RuntimeError as error:
        return grown, f"fails, {str(error).rpartition('DefaultCPUAllocator: ')[2]}"
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, usual)


def two_steps(config: ViTConfig, count: int, way: str) -> float:
    """Megabytes by which two training steps make this process grow at their peak."""
    before, model = timing.reset_peak_memory(), Bench("cpu", 1).model(config)
    step = train_step(
        distributed.shard(model) if "sharded" in way else model,
        *measuring.random_images(config, count),
    )
    timing.seconds_of(
        speedups.checkpoint_blocks(model)(step) if "recomputed" in way else step, repeats=2
    )
    return (timing.peak_memory() - before) / 1e6


def processes(bench: Bench) -> Rows:
    for case, config, n, times in (
        ("20 steps, 64 digits", DIGITS, 64, 20),
        ("1 step, 32 images", measuring.CONFIG, 32, 1),
    ):
        yield from in_processes(2, in_parallel, bench, case, config, n, times)


def in_parallel(
    bench: Bench, case: str, config: ViTConfig, count: int, times: int
) -> list[dict[str, Any]]:
    """Rows of a batch in one process, and shared by two of one thread each; for one of the two."""
    images, labels = bench.images(count, config)
    mine: Any = [part[distributed.rank() :: 2] for part in (images, labels)]
    model, copied, sharded = (bench.model(config) for _ in range(3))
    ddp: Any = distributed.wrap_ddp(copied)
    steps: dict[str, Step] = {
        "1 process": train_step(model, images, labels)
        if distributed.is_main_process()
        else int,  # the other one waits
        "2 processes, gradients not averaged": ddp.no_sync()(train_step(ddp, *mine)),
        "2 processes": train_step(ddp, *mine),
        "2 processes, sharded": train_step(distributed.shard(sharded), *mine),
    }

    def in_step(step: Step) -> Step:
        return lambda: (dist.barrier(), timing.seconds_of(step, times), dist.barrier())

    return bench.compare(case, {name: in_step(step) for name, step in steps.items()}, seconds=0)


def loader(bench: Bench) -> Rows:
    data = load("digits")
    slices: dict[str, Step] = {
        "slices in memory": partial(list, data.batches("train", 32, shuffle=True))
    }
    digits, photos = (
        TensorDataset(data.normalize(data.train.images), data.train.labels),
        32 * JPEG_FILES,
    )
    yield from bench.compare(f"epoch of {len(digits):,} digits", epochs(digits) | slices)
    yield from bench.compare(f"epoch of {len(photos)} photos", epochs(photos, decode))


def epochs(dataset: Any, collate: Callable[[list[Any]], Any] | None = None) -> dict[str, Step]:
    loader = partial(DataLoader, dataset, 16, shuffle=True, collate_fn=collate)
    return {
        name: partial(list, loader(num_workers=n, persistent_workers=stay))
        for name, (n, stay) in WORKERS.items()
    }


def decode(files: list[Any]) -> torch.Tensor:
    return torch.stack([pil_to_tensor(Image.open(file).resize((224, 224))) for file in files])


def decoding(bench: Bench) -> Rows:
    count, smaller = bench.batch // 2, [io.BytesIO(), io.BytesIO()]
    for path, copy in zip(JPEG_FILES, smaller, strict=True):
        Image.open(path).resize((384, 256)).save(copy, "JPEG", quality=90)
    steps = {
        "training step, Ti/16 at 224 pixels": train_step(
            bench.model(PHOTOS), *bench.images(count, PHOTOS)
        ),
        "decoding 427 x 640 pixels": partial(decode, count // 2 * JPEG_FILES),
        "decoding files of 256 x 384 pixels": partial(decode, count // 2 * smaller),
    }
    yield from measuring.with_threads(1, bench.compare, f"{count} photos, 1 thread", steps)


def by_threads(*given: Any) -> dict[str, Step]:
    step = train_step(*given)
    counts = (1, torch.get_num_threads())
    return {f"threads: {n}": partial(measuring.with_threads, n, step) for n in counts}


def by_batch(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Step]:
    one_by_one = partial(timing.seconds_of, inference_step(model, x[:1]), len(x))
    return {"one by one": one_by_one, "in a batch": inference_step(model, x)}


def by_attention(*given: Any) -> dict[str, Step]:
    kinds = ("explicit", "fused")
    return {kind: with_attention(kind == "fused", train_step(*given)) for kind in kinds}


def by_optimizer(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Step]:
    optimizer = partial(torch.optim.AdamW, [*model.parameters()], 1e-6)
    kinds = {"for-loop": optimizer(fused=None), "fused": optimizer(fused=True)}
    return {kind: train_step(model, x, y, optimizer=own) for kind, own in kinds.items()}


def by_accumulation(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Step]:
    return {f"parts: {n}": partial(speedups.accumulate, model, x, y, n) for n in (1, 4)}


def by_checkpointing(model: nn.Module, *data: Any) -> dict[str, Step]:
    step = train_step(model, *data)
    return {"keep all": step, "recompute blocks": speedups.checkpoint_blocks(model)(step)}


def by_quantization(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Step]:
    quantized = speedups.quantize(model)
    return {"float32": inference_step(model, x), "int8": inference_step(quantized, x)}


CASES: dict[str, Callable[[Bench], Any]] = {
    "threads": ways(by_threads),
    "batch": ways(by_batch, "inference"),
    "attention": ways(by_attention, kept=True, side=96),
    "optimizer": ways(by_optimizer),
    "compile": lambda bench: (in_own_process(compiled, bench, kind) for kind in STEPS),
    "accumulation": ways(by_accumulation, "gradient", kept=True),
    "checkpointing": ways(by_checkpointing, kept=True),
    **{rows.__name__: rows for rows in (bf16, memory, processes, loader, decoding)},
    "quantized": ways(by_quantization, "inference"),
}


if __name__ == "__main__":
    raise SystemExit(main())
