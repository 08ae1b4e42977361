"""Tables of runs: a baseline and changes to it, each trained with several seeds.

The runs are stored in a CSV file, and summarized.
"""

import json
import multiprocessing
import os
import threading
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from datetime import date
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vit_helpers._files import hold, shown, tensor_digest
from vit_helpers._validate import check_choice, check_int
from vit_helpers.ablation.factorial import designed
from vit_helpers.ablation.rows import Row, append_row, frame, pack, read_runs
from vit_helpers.data.reading import BrokenFilesError
from vit_helpers.data.splits import SPLITS, Data, DataLike
from vit_helpers.training import fit, predict, set_seed
from vit_helpers.training.best import EarlyStopping
from vit_helpers.training.checkpoints import describe_changes
from vit_helpers.training.measurements import UNKNOWN
from vit_helpers.training.presets import (
    RunSettings,
    load_data,
    make_batches,
    make_network,
    override,
    with_tta,
)

Runs = Sequence[tuple[str, int, RunSettings]]
LOADED: dict[tuple[object, ...], Any] = {}  # data sets that this table has read
DIGEST = "data sha256"  # beside the settings of a row; older rows lack it


@dataclass(frozen=True)
class Table:
    """What to train: a baseline, and changes to it, one at a time.

    data    : name of a data set
    model   : size of a model with its patch side
    seeds   : how many runs of each
    baseline: settings that every run has, by name, as for `RunSettings.from_dict`
    changes : {name: settings}
    factors : {name: settings}, changed together as in `factorial.design` with the generators; its
              runs become changes
    test    : whether the accuracy on the test split is stored, too; nothing may be chosen by it
    raises  : ValueError or TypeError naming the change whose settings do not fit
    """

    data: str = "digits"
    model: str = "mini/2"
    seeds: int = 3
    baseline: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    factors: dict[str, dict[str, Any]] = field(default_factory=dict)
    generators: list[str] = field(default_factory=list)
    test: bool = False

    def __post_init__(self) -> None:
        check_int("seeds", self.seeds)
        if not isinstance(self.changes, dict):
            raise ValueError(f"changes must be a table of settings by name, got {self.changes!r}")
        check_choice("test", self.test, (True, False))
        changes = {**dict(designed(self.factors, self.generators)), **self.changes}
        object.__setattr__(self, "changes", changes)
        if "baseline" in changes:
            raise ValueError(
                '"baseline" is the name of the runs without a change: '
                "call the change something else"
            )
        for name, settings in {"baseline": self.baseline, **self.changes}.items():
            if not isinstance(settings, dict):
                raise ValueError(f"{name}: expected settings, as {{lr = 0.001}}, got {settings!r}")
            try:
                self.check_changes(settings)
            except (ValueError, TypeError) as error:
                raise type(error)(f"{name}: {error}") from error

    def check_changes(self, changes: dict[str, Any]) -> None:
        """Raise ValueError if a table cannot have these settings, or measures nothing of them."""
        settings = self.settings(changes)
        if settings.weights:
            raise ValueError(
                f"a table trains from scratch, without the weights {settings.weights}; "
                "train can fine-tune"
            )
        settings.check_effect(changes)
        if "seed" in changes:
            raise ValueError(
                f"seed has no effect: every setting is trained with {self.seeds} seeds"
            )
        if "tta" in changes and not self.test:
            raise ValueError("tta has no effect on validation: add test = true to the table")

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "Table":
        """Read a table from a TOML file.

        It may have data, model, seeds, test, generators, [baseline], [changes] and [factors].
        """
        try:
            declared = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            for name in declared:
                check_choice("entry", name, [f.name for f in fields(cls)])
            return cls(**declared)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not valid TOML: {error}") from error
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from error

    def settings(self, changes: dict[str, Any]) -> RunSettings:
        """Return the settings of the baseline with some changed."""
        baseline = override({"data": self.data, "model": self.model}, self.baseline)
        return RunSettings.from_dict(override(baseline, changes))

    def runs(self) -> Iterator[tuple[str, int, RunSettings]]:
        """Give all runs, seed by seed: (change, seed, settings)."""
        for seed in range(self.seeds):
            for name, changes in {"baseline": {}, **self.changes}.items():
                yield name, seed, self.settings({**changes, "seed": seed})


def run_table(
    table: Table,
    path: str | PathLike[str],
    report: Callable[[str], object] = print,
    workers: int = 1,
    machine: str = "",
) -> pd.DataFrame:
    """Train the runs that are not in the CSV file yet, and return all runs, one per row.

    Each row is written as soon as its run is finished, so that a table that was stopped continues
    where it was.
    report : called with a line per finished run; the first contains how many hours the others need
    workers: how many runs at a time, each in a process of its own with one thread; 1 for none but
             this process
    machine: how each row describes the machine, before the number of threads and the version of
             torch
    returns: with columns right (see `unpack`), machine and date; if the table asks for it,
             test_accuracy and test_right
    raises : ValueError when the file contains rows of other settings or other images, or another
             process writes into it
    """
    LOADED.clear()  # a folder may have other images than at the last call
    path, runs = Path(path), list(table.runs())
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if len(kept_rows(runs, path, table.test)) < len(runs):  # something will be written
            lock = path.with_name(f".{path.name}.lock")
            hold(lock, f"another process writes into {path}: wait for it to end", stack)
        rows = fill_table(runs, path, report, workers, table.test, machine)
        return frame(rows, table.test)


def kept_rows(runs: Runs, path: Path, test: bool = False) -> dict[tuple[str, int], Row]:
    """Read the rows of these runs that are in the CSV file already, by change and seed.

    raises: ValueError if one has other settings, or lacks the test split that is asked for
    """
    stored = {(row["change"], row["seed"]): row for row in read_runs(path).to_dict("records")}
    rows = {}
    for name, seed, settings in runs:
        if (name, seed) not in stored:
            continue
        row = rows[name, seed] = stored[name, seed]
        kept = json.loads(row["settings"])
        kept.pop(DIGEST, None)
        before = RunSettings.from_dict({**kept, "seed": seed})
        if before != settings:
            changes = describe_changes(before.to_dict(), settings.to_dict())
            raise ValueError(f"{path} holds {name}, seed {seed} with other settings: {changes}")
        if test and not row.get("test_right"):
            raise ValueError(
                f"{path} holds {name}, seed {seed} without the test split: write into another file"
            )
    return rows


def check_same_data(rows: dict[tuple[str, int], Row], runs: Runs, path: Path) -> None:
    """Raise ValueError if a row is of other images or labels than its data set has now.

    Runs that follow would be compared with it.
    """
    for name, seed, settings in runs:
        row = rows.get((name, seed))
        before = json.loads(row["settings"]).get(DIGEST) if row else None
        if before is not None and before != data_digest(load_settings(settings)):
            raise ValueError(
                f"{path} holds {shown(name)}, seed {seed}, of other images or labels than "
                f"{shown(settings.data)} has now: restore them, or write into another file"
            )


def fill_table(
    runs: Runs, path: Path, report: Callable[[str], object], workers: int, test: bool, machine: str
) -> list[Row]:
    """Train the runs that are not in the CSV file yet, and return the rows of all, in order."""
    rows = kept_rows(runs, path, test)
    left = {(name, seed): settings for name, seed, settings in runs if (name, seed) not in rows}
    if left:
        check_same_data(rows, runs, path)
        for settings in left.values():  # what is to be said of the data is said before hours pass
            load_settings(settings)
    jobs = [partial(train_run, *key, settings, test) for key, settings in left.items()]
    for number, row in enumerate(finished(jobs, workers), len(rows) + 1):
        row["machine"] = f"{machine}, {row['machine']}".removeprefix(", ")
        append_row(row, path, test)
        name, seed = row["change"], row["seed"]
        rows[name, seed] = row
        settings = left.pop((name, seed))
        line = f"{number} of {len(runs)}: {shown(name)}, seed {seed}: "
        line += f"accuracy {row['accuracy']:.4f}, {row['seconds']:.1f} s"
        if left and len(left) + 1 == len(jobs):  # the first of this call
            remaining = sum(map(work, left.values()))
            hours = remaining / work(settings) * row["seconds"] / 3600
            line += f"; the other {len(left)} need about {hours:.1f} hours" if hours > 0.05 else ""
        report(line)
    return [rows[name, seed] for name, seed, _ in runs]


def work(settings: RunSettings) -> int:
    """Count the multiply-adds of a training's forward passes, to which its time is proportional."""
    data = load_settings(settings)
    images = min(data.count("train"), settings.images or data.count("train"))
    passes = settings.recipe.epochs * settings.repeat * images
    return passes * multiply_adds(make_network(data, settings), data)


def finished(jobs: Sequence[Callable[[], Row]], workers: int) -> Iterator[Row]:
    """Run jobs, and give what each returns as soon as it is done."""
    if workers == 1:
        yield from (job() for job in jobs)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=prepare_worker)
    try:
        futures = [pool.submit(job) for job in jobs]
        yield from (future.result() for future in as_completed(futures))
    finally:
        pool.shutdown(cancel_futures=True)


def prepare_worker() -> None:
    """Use one thread for torch, and end with the process that started this one, however it ends.

    That process has given the package's warnings about the data.
    """
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="vit_helpers")
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def load_settings(settings: RunSettings) -> Any:
    """Load the data set of a run, once.

    raises: ValueError as `load_data`; of broken files without an option that tables do not have
    """
    key = settings.data, settings.split, settings.white, settings.image_size
    if key not in LOADED:
        try:
            LOADED[key] = load_data(settings)
        except BrokenFilesError as error:
            raise ValueError(error.plain) from None
    return LOADED[key]


def data_digest(data: Any) -> str:
    """Compute what a sha256 begins with of the classes, images and labels of a data set."""
    tensors, notes = dict[str, Tensor](), {"classes": json.dumps(data.class_names)}
    for name in SPLITS:
        if isinstance(data, Data):
            split = data.get_split(name)
            tensors |= {f"{name} pixels": split.pixels, f"{name} labels": split.labels}
        else:
            notes[name] = json.dumps(data.splits[name], sort_keys=True)
    return tensor_digest(tensors, notes)[:16]


def train_run(name: str, seed: int, settings: RunSettings, test: bool = False) -> Row:
    """Train one model of a table.

    returns: its row, with accuracy and loss on the validation split, and which images were right
    """
    data = load_settings(settings)
    set_seed(seed)
    train = make_batches(data, settings)
    model = make_network(data, settings)
    start = time.perf_counter()
    stop = EarlyStopping(settings.patience)
    validation = data.batches("validation", 512)
    last = fit(model, train, validation, settings.recipe, callbacks=[stop])[-1]
    score = last.validation or UNKNOWN
    row = {
        "change": name,
        "seed": seed,
        "seconds": time.perf_counter() - start,
        "settings": as_text(settings, data_digest(data)),
        "accuracy": score.accuracy,
        "loss": score.loss,
        "train_accuracy": last.train.accuracy,
        "majority_share": score.majority_share,
        "parameters": sum(p.numel() for p in model.parameters()),
        "multiply_adds": multiply_adds(model, data),
        "right": pack(right_of(model, data, "validation")),
    }
    if test:
        correct = right_of(with_tta(model, settings), data, "test")
        row |= {"test_accuracy": correct.float().mean().item(), "test_right": pack(correct)}
    threads = torch.get_num_threads()
    machine = f"{threads} thread{'s' if threads > 1 else ''}, "
    machine += f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"
    return row | {"machine": machine, "date": date.today().isoformat()}


def right_of(model: nn.Module, data: DataLike, split: str) -> Tensor:
    """Find which images of a split a model classifies correctly: (n,) booleans."""
    logits, labels = predict(model, data.batches(split, 512))
    return logits.argmax(1) == labels


def as_text(settings: RunSettings, digest: str) -> str:
    """Write all that decides a run except its seed as one line.

    Defaults are among them: those of another version may differ.
    digest: of the data, see `data_digest`
    """
    kept = {name: value for name, value in settings.to_dict().items() if name != "seed"}
    return json.dumps(kept | {DIGEST: digest}, sort_keys=True)


def multiply_adds(model: nn.Module, data: DataLike) -> int:
    """Count the multiply-adds of the forward pass of one image, as torch does.

    They are those of matrix products and convolutions only.
    """
    model.eval()  # a batch of one is too small for the batch norm of a CNN in training
    plain = sdpa_kernel(SDPBackend.MATH)  # older torch does not count fused attention
    with FlopCounterMode(display=False) as counter, torch.no_grad(), plain:
        model(torch.zeros(1, data.in_chans, *data.image_size))
    return counter.get_total_flops() // 2


def summarize(runs: pd.DataFrame) -> pd.DataFrame:
    """Summarize runs, from `run_table` or `read_results`, in one row per change.

    The rows are in the order in which the changes first appear.
    returns: indexed by change: runs (how many), accuracy (mean), spread (standard deviation),
             difference (mean over the seeds of change minus baseline), error (standard error of
             that difference), parameters, multiply_adds, seconds (mean). Spread and error of a
             single run are NaN, as is the difference without a baseline of the same seed

    >>> columns = {"change": ["baseline", "new"], "seed": 0, "accuracy": [0.5, 0.75]}
    >>> runs = pd.DataFrame({**columns, "parameters": 9, "multiply_adds": 9, "seconds": 1.0})
    >>> summarize(runs).difference.to_list()
    [0.0, 0.25]
    """
    baseline = runs[runs["change"] == "baseline"].set_index("seed")["accuracy"]
    runs = runs.assign(difference=runs["accuracy"] - runs["seed"].map(baseline))
    by_change = runs.groupby("change", sort=False)
    return by_change.agg(
        runs=("accuracy", "size"),
        accuracy=("accuracy", "mean"),
        spread=("accuracy", "std"),
        difference=("difference", "mean"),
        error=("difference", "sem"),
        parameters=("parameters", "first"),
        multiply_adds=("multiply_adds", "first"),
        seconds=("seconds", "mean"),
    )
