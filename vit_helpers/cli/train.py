"""The work of `train`: from options to settings, data, network, training and a test."""

import inspect
import os
import signal
import sys
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers._files import WriteError
from vit_helpers.cli import escape
from vit_helpers.cli.fine_tuning import adapt, load_data_for, load_start, scale_lr
from vit_helpers.cli.fitting import check_kept, evaluation_batches, fit_run
from vit_helpers.cli.mistakes import Mistakes
from vit_helpers.cli.outputs import (
    draw_results,
    print_classes,
    print_end,
    print_score,
    print_start,
    print_warnings,
)
from vit_helpers.cli.parser import TRAIN_SETTINGS
from vit_helpers.cli.precision import CHOSEN, choose_precision
from vit_helpers.cli.run_folder import (
    CHECKPOINT,
    check_restarted,
    choose_folder,
    describe_run,
    how_to_resume,
    kept_settings,
    run_name,
    stop_cause,
)
from vit_helpers.cli.scores import class_table, score_classes
from vit_helpers.cli.seen import warn_of_start
from vit_helpers.cli.threads import use_threads
from vit_helpers.cli.trained_part import PartCheckpoint, trains_part
from vit_helpers.data.shards import BrokenShardError
from vit_helpers.data.splits import DataLike
from vit_helpers.distributed import (
    broadcast,
    init_distributed,
    is_main_process,
    is_peer_failure,
    on_main,
    rank,
    shard,
    shard_batches,
    shutdown,
    world_size,
)
from vit_helpers.pretrained.sources import RUN_WEIGHTS
from vit_helpers.training import Recipe, Score, set_seed
from vit_helpers.training.checkpoints import Checkpoint, load_checkpoint
from vit_helpers.training.loop import show_progress
from vit_helpers.training.presets import (
    RunSettings,
    given_settings,
    load_data,
    make_batches,
    make_network,
    preset,
    with_tta,
)
from vit_helpers.vit import ViTConfig


def run(args: Namespace) -> int:
    """Train, or explain the settings; return the exit status."""
    if args.settings:
        explain_settings()
        return 0
    try:
        status = train(args)
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError, RuntimeError) as error:
        unexpected = isinstance(error, RuntimeError) and not is_peer_failure(error)
        if unexpected or isinstance(error, BrokenPipeError):
            raise
        print_error(error)
        return 1
    if world_size() > 1 and status == 0:
        shutdown()
    return status


def print_error(error: Exception) -> None:
    """Print one line about an error: once, if it is the same in all processes."""
    own = isinstance(error, BrokenShardError | OSError | ImportError | RuntimeError)
    if is_main_process() or own:
        where = "" if world_size() == 1 else f" in process {rank()}"
        print(f"error{where}: {escape(error)}", file=sys.stderr)


def explain_settings() -> None:
    """Print what the settings mean, from the docstrings of the classes whose fields they are."""
    names = set[str]()
    for kind in (RunSettings, Recipe, ViTConfig):
        print((inspect.getdoc(kind) or "").partition("\nraises")[0] + "\n")
        names |= {field.name for field in fields(kind)}
    print(f"All names: {', '.join(sorted(names - {'recipe', 'shape'}))}")


def train(args: Namespace) -> int:
    """Train in a folder that no other run can use meanwhile; return the exit status."""
    device = init_distributed(pick_device(args.device))
    with ExitStack() as stack:
        name = run_name(args.data or "digits")
        choose = partial(choose_folder, args.out, args.resume, name, stack)
        out, checkpoint = on_main(choose)
        if checkpoint and not args.resume:
            check_restarted(checkpoint)
        try:
            fit_and_test(args, out, checkpoint, device)
        except (KeyboardInterrupt, RuntimeError, WriteError, BrokenPipeError) as error:
            cause = stop_cause(error)
            if cause is None:
                raise
            if "RANK" in os.environ:  # ignore torchrun's signal while a last message is written
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if is_main_process():
                unheard = isinstance(error, BrokenPipeError)
                message = how_to_resume(out, cause)
                print(f"\n{message}", file=sys.stderr if unheard else sys.stdout)
            if isinstance(error, KeyboardInterrupt):
                return 130
            raise
    return 0


def fit_and_test(args: Namespace, out: Path, kept: Path | None, device: str) -> None:
    """Train and test.

    out : the folder of the run
    kept: the checkpoint to continue from, None for a new run
    """
    options = {name: getattr(args, name) for name in ("data", "split", "tune", *TRAIN_SETTINGS)}
    given = given_settings(options, args.set)
    resumed = None
    if kept is None:
        settings = preset(**{"data": "digits", **given})
    else:
        settings, resumed = read_run(args, out, kept, given)
    if args.shard and trains_part(settings):
        raise ValueError(
            f"--shard splits the weights, which --tune {settings.tune} does not train: "
            "use only one of them"
        )

    set_seed(settings.seed)
    with print_warnings(is_main_process()):
        start = load_start(settings) if settings.weights else None
    reading: dict[str, Any] = {"skip_broken": True} if args.skip_broken else {}
    if settings.data.startswith("folder:") and not args.no_cache:
        reading["cache"] = True
    load = load_data if start is None else partial(load_data_for, start)
    with print_warnings(is_main_process()):
        data = load(settings, **reading)
        warn_of_start(data, settings)
    batches = make_batches(data, settings)
    model = make_network(data, settings) if start is None else adapt(start, data, settings)
    if start is not None and kept is None and "lr" not in given:
        settings = scale_lr(settings, start.model.config.embed_dim)
    chosen = kept is None and "precision" not in given
    if chosen:  # in all processes the same, if their processors differ
        settings = settings.replace(precision=broadcast(choose_precision(model, device)))

    use_threads(model, settings.batch_size)
    about = describe_run(data, start and start.model, settings, resumed)
    about |= {"skip_broken": args.skip_broken}
    if is_main_process():
        print_start(data, model, settings, device)
        if settings.recipe.precision == "bfloat16":
            print(CHOSEN if chosen else "note: matrix products in bfloat16")
    if args.shard:
        shard(model)
    part = partial(PartCheckpoint, patience=settings.patience)
    kind = part if trains_part(settings) else Checkpoint
    checkpoint = kind(out / CHECKPOINT, resume=kept is not None, about=about)
    history, epoch = fit_run(model, batches, data, settings, out, checkpoint, device)
    if is_main_process() and len(history) < settings.recipe.epochs:
        print(
            f"stopped early after epoch {len(history)}: "
            f"no better epoch in the last {settings.patience}"
        )
    score, counts, mistakes = test(model, data, settings, device)
    if is_main_process():
        images = "images, each averaged with its mirror image" if settings.tta else "images"
        print_score(score, counts, f"{images}, with the weights of epoch {epoch}")
        print_classes(class_table(counts, data.class_names))
        print(f"checkpoint: {checkpoint.path}")
        draw_results(out, history, counts, data.class_names, mistakes)
        print_end(out, data, settings, score.accuracy)


def test(
    model: nn.Module, data: DataLike, settings: RunSettings, device: str
) -> tuple[Score, Tensor, Mistakes]:
    """Test a model once, on the test split.

    returns: of all processes, the score, the confusion matrix, and the worst mistakes, with images
             from 0 to 1
    """
    batches = show_progress(shard_batches(evaluation_batches(data, "test")), "test")
    score, counts, mistakes = score_classes(with_tta(model, settings), batches, device)
    return score, counts, mistakes.unnormalize(data.mean, data.std)


def read_run(
    args: Namespace, out: Path, checkpoint: Path, given: dict[str, Any]
) -> tuple[RunSettings, dict[str, Any]]:
    """Return the settings of a run to resume, and what its checkpoint says about it.

    Its choice of --skip-broken is kept.
    """
    state = load_checkpoint(checkpoint)
    about = state["about"]
    settings = kept_settings(checkpoint, about, given)
    args.skip_broken = args.skip_broken or about["skip_broken"]
    # the weights of a part that is trained are in the checkpoint
    if is_main_process() and settings.keeps_weights and not trains_part(settings):
        print(check_kept(out / RUN_WEIGHTS, state["history"], settings.patience), end="")
    return settings, about


def pick_device(name: str) -> str:
    """Return a device of this machine by its name; "auto" for the fastest.

    raises: ValueError for one that is not there
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    devices = ["cpu", accelerator.type] if accelerator else ["cpu"]
    if name == "auto":
        return devices[-1]
    if name.partition(":")[0] not in devices:
        raise ValueError(f"no device {name!r} on this machine, available: {', '.join(devices)}")
    return name
