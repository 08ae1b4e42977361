"""Tables of runs: a baseline and changes to it, each trained with several seeds and kept in a CSV file."""

import csv
import json
import multiprocessing
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vit_helpers.data import load
from vit_helpers.training import fit, set_seed
from vit_helpers.training.presets import check_settings, make_batches, make_network, make_recipe

RESULTS = Path(__file__).parents[1] / "results"  # what notebooks read; each table is declared in a .toml and kept in a .csv
KINDS = {  # the columns of such a file
    "change": str,
    "seed": int,
    "accuracy": float,
    "loss": float,
    "train_accuracy": float,
    "majority_share": float,
    "parameters": int,
    "multiply_adds": int,
    "seconds": float,
    "settings": str,
}


@dataclass(frozen=True)
class Table:
    """What to run: a baseline, and changes to it, each alone.

    data    : name of a data set;  model: name of a size with its patch side;  seeds: how many of each
    baseline: settings that every run has: fields of `ViTConfig` or `Recipe`, or names in `settings.OTHERS`
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
            check_settings(name, settings)

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


def run_table(table, path, report=print, workers=1):
    """Run what is not yet in the CSV file, a row each, kept as soon as it is done; all rows of the table come back.

    workers: how many runs at a time, each in a process of its own with one thread; 1 for one after another, in this process
    raises : ValueError when the file holds rows of other settings, naming the first
    """
    path, runs = Path(path), list(table.runs())
    done = read_rows(path)
    for name, seed, settings in runs:
        kept, declared = done.get((name, seed), {}).get("settings"), as_text(table, settings)
        if kept not in (None, declared):
            raise ValueError(f"{path} holds {name}, seed {seed} with other settings: {kept}, now {declared}")
    todo = [partial(run, table, *one) for one in runs if one[:2] not in done]
    for number, row in enumerate(finished(todo, workers), len(runs) - len(todo) + 1):
        append_row(path, row)
        done[row["change"], row["seed"]] = row
        said = f"{row['change']}, seed {row['seed']}: accuracy {row['accuracy']:.4f}, {row['seconds']:.1f} s"
        report(f"{number} of {len(runs)}: {said}")
    return [done[name, seed] for name, seed, _ in runs]


def finished(jobs, workers):
    """What jobs give back, each as soon as it is done"""
    if workers == 1:
        yield from (job() for job in jobs)
        return
    fresh = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, fresh, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from (future.result() for future in as_completed([pool.submit(job) for job in jobs]))
    finally:
        pool.shutdown(cancel_futures=True)


def run(table, name, seed, settings):
    """Train one model of a table: its row, with accuracy and loss of the validation part"""
    data = load_once(table.data)
    settings = {"model": table.model, **settings}
    set_seed(seed)
    recipe, train = make_recipe(settings), make_batches(data, settings)
    model = make_network(data, settings)
    start = time.perf_counter()
    last = fit(model, train, data.batches("validation", 512), recipe, report=lambda row: None)[-1]
    return {
        "change": name,
        "seed": seed,
        "accuracy": last["val_accuracy"],
        "loss": last["val_loss"],
        "train_accuracy": last["accuracy"],
        "majority_share": last["val_majority_share"],
        "parameters": sum(p.numel() for p in model.parameters()),
        "multiply_adds": multiply_adds(model, torch.zeros(1, data.in_chans, *data.image_size)),
        "seconds": time.perf_counter() - start,
        "settings": as_text(table, settings),
    }


load_once = cache(load)


def as_text(table, settings):
    """All that decides a run but its seed, as one line"""
    return json.dumps({"data": table.data, "model": table.model, **settings}, sort_keys=True)


def multiply_adds(model, images):
    """Of one pass, as torch counts them: those of matrices and convolutions alone

    In attention's plain form, since older torch does not count the fused one.
    """
    model.eval()  # a batch of one is too small for the norm of a CNN in training
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(images)
    return counter.get_total_flops() // 2


def read_rows(path):
    """The rows of a CSV file by change and seed; none when there is no file"""
    path = Path(path)
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != list(KINDS):
            raise ValueError(f"{path} is no table of this kind: its columns are {reader.fieldnames}, not {list(KINDS)}")
        rows = [{name: kind(row[name]) for name, kind in KINDS.items()} for row in reader]
    return {(row["change"], row["seed"]): row for row in rows}


def append_row(path, row):
    """Add a row to a CSV file, with its head when the file is new"""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(KINDS))
        if new:
            writer.writeheader()
        writer.writerow(row)
