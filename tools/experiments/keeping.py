"""Measure which weights of a training to keep: the last, those of an epoch, or a moving average.

Every training of folder_runs.toml has the settings that `train` would have for such images. After
each epoch, and for two moving averages of the weights (EMA) at the end, it is evaluated on its own
small validation split and on new images, which decide nothing. A rule then chooses by the
validation split alone, and `effect` is the accuracy on the new images minus that of the last
weights. Finished trainings are kept in a CSV file, and the same command goes on where it stopped.
"""

from argparse import ArgumentParser, Namespace
from datetime import date
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tools import main
from tools.experiments.folder_runs import CASES, add_cases, prepare
from tools.experiments.measuring import add_out, find_or_measure, markdown_table
from vit_helpers.data.splits import Batches
from vit_helpers.results.keeping import HORIZONS, choose
from vit_helpers.scaling.timing import processor
from vit_helpers.training import evaluate, fit
from vit_helpers.training.callbacks import Callback, Run
from vit_helpers.training.presets import RunSettings, make_batches, with_tta


def add_arguments(parser: ArgumentParser) -> None:
    add_cases(parser, list(CASES))
    add_out(parser, "keeping.csv", seeds=5)


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    for case in args.cases:
        for seed in range(args.seeds):
            find_or_measure(args.out, partial(train_once, args.photos), case=case, seed=seed)
    print(markdown_table(summarize(pd.read_csv(args.out))))
    print(f"\nrows: {args.out}")


def train_once(photos: str, case: str, seed: int) -> dict[str, Any]:
    """One training: accuracies after each epoch in validation and on new images, and the losses."""
    settings, data, model = prepare(CASES[case], photos, seed)
    batches = make_batches(data, settings)
    validation, new = (data.batches(split, 500) for split in ("validation", "test"))
    watch = Watch(new, settings, steps=len(batches))
    history = fit(model, batches, validation, settings.recipe, callbacks=[watch])
    scores = [epoch.validation for epoch in history if epoch.validation is not None]
    columns = {
        "validation": [score.accuracy for score in scores],
        "loss": [score.loss for score in scores],
        "new": watch.new_accuracies,
    }
    for horizon, average in zip(HORIZONS, watch.averages, strict=True):
        columns[f"ema_{horizon}"] = [
            evaluate(with_tta(average.module, settings), part).accuracy
            for part in (validation, new)
        ]
    return {
        "train_images": len(data.train),
        "validation_images": len(data.validation),
        "new_images": len(data.test),
        **{name: " ".join(f"{x:.4f}" for x in values) for name, values in columns.items()},
        "machine": f"{processor()}, 1 thread, torch {torch.__version__}",
        "date": date.today().isoformat(),
    }


class Watch(Callback):
    """Evaluates on new images after each epoch, and averages the weights after each step.

    steps: of an epoch
    """

    def __init__(self, new: Batches, settings: RunSettings, steps: int) -> None:
        self.new, self.settings, self.steps = new, settings, steps
        self.new_accuracies: list[float] = []
        self.averages: list[AveragedModel] = []

    def on_fit_start(self, run: Run) -> None:
        for horizon in HORIZONS:
            decay = 1 - 1 / (horizon * self.steps)
            self.averages.append(AveragedModel(run.model, multi_avg_fn=get_ema_multi_avg_fn(decay)))

    def on_step_end(self, run: Run, *_: Any) -> None:
        for average in self.averages:
            average.update_parameters(run.model)

    def on_epoch_end(self, run: Run) -> None:
        model: nn.Module = with_tta(run.model, self.settings)
        self.new_accuracies.append(evaluate(model, self.new).accuracy)


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """For each case and rule: mean accuracy, and its difference from the last weights' (s.e.)"""
    kept = pd.DataFrame([choose(row) for _, row in table.iterrows()])
    lines = []
    for case, rows in kept.groupby(table["case"], sort=False):
        line = {"case": case, "seeds": len(rows), "last": f"{rows['last'].mean():.3f}"}
        for name in kept.columns.drop("last"):
            effect = 100 * (rows[name] - rows["last"])
            line[name] = f"{effect.mean():+.1f} ({effect.sem():.1f})"
        lines.append(line)
    return pd.DataFrame(lines)


if __name__ == "__main__":
    raise SystemExit(main())
