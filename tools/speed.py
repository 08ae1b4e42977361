"""Measure ways to make training and inference faster or smaller on this machine, before and after in the same run.

Before and after take turns for several rounds. The ratio is the median of the rounds' ratios, beside it their range; 2 means
twice as fast. The columns with mb are megabytes that autograd keeps, start_s is seconds before the first step. What cannot
run here is reported, and the rest goes on. Let nothing else run meanwhile.
"""

import io
import math
import os
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.transforms.functional import pil_to_tensor

from tools import main, measuring
from tools.measuring import STEPS, Bench, add_out, in_own_process, markdown_table, significant, store, train_step
from vit_helpers import attention
from vit_helpers._validate import check_choice
from vit_helpers.cli import positive_int
from vit_helpers.cli.train import pick_device
from vit_helpers.data import load
from vit_helpers.data.splits import Batches
from vit_helpers.pretrained import load_pretrained
from vit_helpers.scaling import speedups, timing
from vit_helpers.scaling.timing import Step
from vit_helpers.training import evaluate

COLUMNS = ["row", "case", "before", "before_ms", "after", "after_ms", "ratio", "lowest", "highest"]
COLUMNS += ["before_mb", "after_mb", "start_s", "also", "machine"]
SIDES = (16, 32, 96)  # of images with 17, 65 and 577 tokens, to compare the implementations of attention
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "131072"}  # glibc would keep freed tensors, and hide what a process needs
Rows = Iterator[dict[str, Any]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--rounds", type=positive_int, default=5, help="rounds of each comparison (default: 5)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the model runs (default: cpu)")
    add_out(parser, "runs/speed.csv")


def run(args: Namespace) -> None:
    for name in args.rows:
        check_choice("row", name, CASES)
    bench, names = Bench(pick_device(args.device), args.rounds), list(dict.fromkeys(args.rows or CASES))
    machine = timing.machine()
    rows = (row | {"machine": machine} for name in names for row in measure(name, bench))
    table = store(rows, args.out, COLUMNS).drop(columns="machine").astype(object)
    table = table.where(table.notna(), "").map(lambda x: significant(x) if isinstance(x, float) else x.replace("|", "/"))
    print(f"{machine}\n\n{markdown_table(table)}\n\nWhen it pays:")
    print("\n".join(f"- {name}: {' '.join(str(CASES[name].__doc__).split())}" for name in names))
    print(f"\nrows: {args.out}")


def measure(name: str, bench: Bench) -> Rows:
    """The rows of a name; one that says why, if it cannot run."""
    try:
        for row in CASES[name](bench):
            yield {"row": name} | row
    except Exception as error:  # whatever torch or a compiler may raise: the other rows go on
        yield {"row": name, "also": f"not measured: {measuring.first_line(error)}"}


def threads(bench: Bench) -> Rows:
    """In batches; trainings that run side by side are better off with one thread each."""
    most = torch.get_num_threads()
    if bench.device != "cpu" or most == 1:
        raise ValueError("torch has one thread here" if most == 1 else "only on the CPU")
    step = train_step(bench.model(), *bench.images())
    steps: dict[str, Step] = {"1 thread": partial(measuring.with_threads, 1, step), f"{most} threads": step}
    yield bench.compare(f"training step, batch {bench.batch}", steps)


def batch(bench: Bench) -> Rows:
    """Up to the batch that fills the cores; beyond it only memory grows."""
    for case, make in STEPS.items():
        one, together = make(bench.model(), *bench.images(1)), make(bench.model(), *bench.images())
        each = partial(timing.seconds_of, one, bench.batch)  # runs it once for each image
        row = bench.compare(f"{case}, {bench.batch} images", {"one by one": each, f"batch {bench.batch}": together})
        old, new = (1000 * bench.batch / row[ms] for ms in ("before_ms", "after_ms"))
        yield row | {"also": f"{old:,.0f} → {new:,.0f} images/s"}


def attention_(bench: Bench) -> Rows:
    """In memory at any length, since the explicit form keeps a number a pair of tokens; in time, ask the machine."""
    for side in SIDES:
        config, count = replace(measuring.CONFIG, image_size=side), bench.batch // (8 if side > 32 else 1)
        model = bench.model(config)
        step = train_step(model, *bench.images(count, config))
        steps = {"explicit": with_attention(False, step), "fused": with_attention(True, step)}
        yield bench.compare(f"training step, {config.num_tokens} tokens, batch {count}", steps, model)


def with_attention(fused: bool, step: Step) -> Step:
    """The step with torch's fused attention everywhere, or with two matrix products, whatever its tokens and precision."""
    return patch.object(attention, "use_fused_attention", lambda q: fused)(step)


def bf16(bench: Bench) -> Rows:
    """Where the processor has units for it, and `best_precision` says so; elsewhere it is slower than float32."""
    best, model = speedups.best_precision(bench.device), bench.model()
    images, labels = bench.images(None if best == "bfloat16" else 4)  # without units it is slow
    after = with_attention(True, train_step(model, images, labels, "bfloat16"))
    steps = {"float32": train_step(model, images, labels), "bfloat16, fused attention": after}
    yield bench.compare(f"training step, batch {len(images)}", steps, model, also=f"best_precision: {best}")


def channels_last(bench: Bench) -> Rows:
    """For convolutions; our ViT cuts patches by a reshape, where the order of memory decides next to nothing."""
    model, (images, labels) = bench.model(), bench.images()
    orders = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}
    steps = {name: train_step(model, images.to(memory_format=order), labels) for name, order in orders.items()}
    yield bench.compare(f"ViT, training step, batch {bench.batch}", steps)


def optimizer(bench: Bench) -> Rows:
    """Always, if not by much: one call for all parameters instead of a dozen for each."""
    model, data = bench.model(), bench.images()
    loop, fused = (torch.optim.AdamW(model.parameters(), 1e-6, fused=way, foreach=False) for way in (False, True))
    steps = {"for-loop": train_step(model, *data, optimizer=loop), "fused": train_step(model, *data, optimizer=fused)}
    yield bench.compare(f"training step, batch {bench.batch}", steps)


def compile_(bench: Bench) -> Rows:
    """In long runs, from the step named on, when the start-up is won back; more so on a GPU than on a CPU."""
    for kind in STEPS:
        yield in_own_process(compiled, bench, kind)


def compiled(bench: Bench, kind: str) -> dict[str, Any]:
    """A row of torch.compile; for a process that has compiled nothing before."""
    model, data = bench.model(), bench.images()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        before, after = STEPS[kind](model, *data), STEPS[kind](torch.compile(model), *data)
        start = timing.seconds_of(after)
        row = bench.compare(f"{kind}, batch {bench.batch}", {"as written": before, "compiled": after}, start_s=start)
    count = speedups.break_even_steps(start, row["before_ms"] / 1000, row["after_ms"] / 1000)
    return row | {"also": f"has paid after {count:,} steps" if count < math.inf else "never pays"}


def accumulation(bench: Bench) -> Rows:
    """Where the batch you want does not fit into memory; it saves no time."""
    model, data, count = bench.model(), bench.images(), bench.batch
    before, after = (partial(speedups.accumulate, model, *data, parts) for parts in (1, 4))
    gradients = []
    for step in (before, after):
        step()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    difference = ((gradients[0] - gradients[1]).abs().max() / gradients[0].abs().max()).item()
    row = bench.compare("gradient", {f"batch {count} at once": before, f"4 parts of {count // 4}": after}, model)
    yield row | {"also": f"gradients differ by at most {difference:.0e} of the largest"}


def checkpointing(bench: Bench) -> Rows:
    """Where what autograd keeps does not fit into memory: a third more time for a small part of it."""
    model = bench.model()
    step = train_step(model, *bench.images())
    steps = {"keep all": step, "recompute blocks": speedups.checkpoint_blocks(model)(step)}
    row = bench.compare(f"training step, batch {bench.batch}", steps, model)
    if timing.can_measure_memory() and bench.device == "cpu":
        with patch.dict(os.environ, RETURN_MEMORY):
            grown = [in_own_process(growth, bench, recompute) for recompute in (False, True)]
        row["also"] = f"the process grows by {grown[0]:,.0f} → {grown[1]:,.0f} MB"
    yield row


def growth(bench: Bench, recompute: bool) -> float:
    """Megabytes by which three training steps make a fresh process grow, at their peak."""
    model, (images, labels) = bench.model(), bench.images()
    train_step(model, images[:1], labels[:1])()  # loads what torch needs for its first step
    step, before = train_step(model, images, labels), timing.reset_peak_memory()
    with speedups.checkpoint_blocks(model) if recompute else nullcontext():
        for _ in range(3):
            step()
    return (timing.peak_memory() - before) / 1e6


def loader(bench: Bench) -> Rows:
    """Workers pay where making a picture takes longer than handing it over; data that fits in memory wants no loader."""
    data, file = load("digits"), io.BytesIO()
    Image.effect_noise((448, 448), 50).convert("RGB").save(file, "JPEG")
    pairs, files = TensorDataset(data.normalize(data.train.images), data.train.labels), 64 * [file.getvalue()]
    ours: dict[str, Step] = {"slices in memory": partial(list, data.batches("train", 32, shuffle=True))}
    yield bench.compare(f"epoch of {len(pairs):,} digits", load_with(pairs, 0) | ours)
    digits = load_with(pairs, 2) | ours
    pictures = load_with(files, 0, decode) | load_with(files, 2, decode)
    for case, steps in ((f"epoch of {len(pairs):,} digits", digits), (f"epoch of {len(files)} JPEG files", pictures)):
        start = timing.seconds_of(steps["DataLoader, 2 workers"])  # the first epoch starts the workers
        yield bench.compare(case, steps, start_s=start)


def decode(files: list[bytes], side: int = 224) -> Tensor:
    """Images from the contents of JPEG files: (B, 3, side, side)."""
    return torch.stack([pil_to_tensor(Image.open(io.BytesIO(file)).resize((side, side))) for file in files])


def load_with(dataset: Any, workers: int, collate: Callable[[list[Any]], Any] | None = None) -> dict[str, Step]:
    """{name: an epoch of a DataLoader whose workers stay for the next}"""
    stay: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(dataset, 32, shuffle=True, collate_fn=collate, **stay)
    return {f"DataLoader, {workers} workers": partial(list, loader)}


def quantized(bench: Bench) -> Rows:
    """For memory, and for time where the weights take it: wide layers, few images. The rest is to be measured."""
    if bench.device != "cpu":
        raise ValueError("only on the CPU")
    model, (images, _) = bench.model(), bench.images()
    small = speedups.quantize(model)
    notes = f"weights {file_mb(model):.1f} → {file_mb(small):.1f} MB, "
    notes += f"accuracy of a trained model {accuracy_of(lambda x: x):.3f} → {accuracy_of(speedups.quantize):.3f}"
    steps = {"float32": STEPS["inference"](model, images), "int8": STEPS["inference"](small, images)}
    yield bench.compare(f"inference, batch {bench.batch}", steps, also=notes)


def accuracy_of(change: Callable[[nn.Module], nn.Module]) -> float:
    """Of a small trained model after a change, on 100 scattered digits of the test split."""
    trained, data = load_pretrained("ours:scattered"), load("scattered_digits", n=500)
    return evaluate(change(trained.model), Batches(data.test, 100, trained.preprocess.normalize)).accuracy


def file_mb(model: nn.Module) -> float:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell() / 1e6


ROWS = threads, batch, attention_, bf16, channels_last, optimizer, compile_, accumulation, checkpointing, loader, quantized
CASES: dict[str, Callable[[Bench], Rows]] = {case.__name__.strip("_").replace("_", "-"): case for case in ROWS}


if __name__ == "__main__":
    raise SystemExit(main())
