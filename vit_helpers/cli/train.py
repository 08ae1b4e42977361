"""Train a ViT and keep the results; without options, it trains on real digits and needs no download.

Each data set has settings of its own (vit_helpers/training/presets.toml), which options override.

Prints a line per epoch: the loss (in nats, with label smoothing), the accuracy on the training images as they are seen
during training, loss and accuracy on the validation split, the learning rate, and the speed. The test split is used once,
at the end, with the weights of the best epoch, the one with the highest validation accuracy. The folder of the run contains

    weights.safetensors, last.safetensors   the weights of the best and of the last epoch, for `predict` and `evaluate`
    checkpoint.pt                           everything that --resume needs to continue
    history.csv, curves.png                 the measurements of each epoch, as a table and as a figure
    confusion.png                           the confusion matrix of the test, and the accuracy of each class

Ctrl-C keeps every finished epoch; --resume continues to the result of a run that was never stopped (on CPU and CUDA).

With --weights, a trained model is fine-tuned, which is the best choice for a few hundred photos. WEIGHTS is a name as for
`load_pretrained` (torchvision:vit_b_16, timm:NAME, huggingface:NAME), the folder of a run, or a file: .safetensors, .npz,
or tensors saved by torch.save (.pth, .pt, .bin), which are read without running any code. --tune full trains all weights,
head only a new classification head, and lora low-rank updates (LoRA) and the head.

Examples:

    python -m vit_helpers train --data folder:photos --image-size 96 --augment flip_crop --set depth=4 --set dropout=0.1
    python -m vit_helpers train --data folder:photos --weights torchvision:vit_b_16 --tune head --patience 5

When torchrun starts several processes, they train together, each on its slice of every batch:

    torchrun --nproc-per-node=2 -m vit_helpers train --data fashion_mnist

With data in memory and without dropout, the result is that of one process. Images that do not fit into memory are written
once by `python -m vit_helpers shards`, and then read as a stream with --data shards:FOLDER, each process its own part.
"""

import inspect
import os
import shlex
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_helpers.cli import positive_int
from vit_helpers.cli.reading import add_data_arguments, describe, load_run

if TYPE_CHECKING:  # importing torch takes seconds, which `--help` need not wait for
    from vit_helpers.data import Data
    from vit_helpers.training.presets import RunSettings

SETTINGS: dict[
    str, tuple[Callable[[str], Any], str]
] = {  # options that are settings of the run: their types and meanings
    "size": (
        str,
        "size of the model: mini, Ti, S, B, L or H (default: that of the data set; mini for digits)",
    ),
    "patch": (
        positive_int,
        "side of a patch in pixels (default: that of the data set; 4 for digits)",
    ),
    "image_size": (
        positive_int,
        "side in pixels to which photos are resized (default: 64, or that of the weights)",
    ),
    "augment": (
        str,
        "augmentation of training images: affine, crop, flip or flip_crop (these two mirror), erase, none",
    ),
    "epochs": (positive_int, "passes over the training split (default: that of the data set)"),
    "batch_size": (positive_int, "images per step (default: that of the data set)"),
    "lr": (float, "peak learning rate (default: that of the data set)"),
    "weight_decay": (float, "weight decay of the weight matrices (default: that of the data set)"),
    "precision": (
        str,
        "float32, or bfloat16 for matrix products, on hardware that supports it (default: float32)",
    ),
    "seed": (int, "seed of all random numbers (default: 0)"),
    "patience": (
        positive_int,
        "stop after so many epochs without a higher validation accuracy (default: never)",
    ),
    "weights": (
        str,
        "start from a trained model: a name, a file, or the folder of a run (default: from scratch)",
    ),
    "rank": (positive_int, "rank of the LoRA updates, with --tune lora (default: 8)"),
}
WIDTH = 768  # that the learning rates for fine-tuning in presets.toml are meant for
FEW, WELL = (
    5000,
    0.95,
)  # with fewer training images than this and a lower accuracy, fine-tuning is suggested


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--data",
        help="name of the data set, or folder:PATH for images of your own (default: digits)",
    )
    add_data_arguments(parser)
    for name, (kind, about) in SETTINGS.items():
        add(f"--{name.replace('_', '-')}", type=kind, help=about)
    about = "what is trained, with --weights (default: full; head is the fastest)"
    add("--tune", choices=("full", "head", "lora"), help=about)
    about = "any setting of a table of `ablate`, as in depth=4; may be repeated, and --settings explains all of them"
    add("--set", action="append", default=[], metavar="NAME=VALUE", help=about)
    add("--settings", action="store_true", help="explain every setting, and train nothing")
    add(
        "--device",
        default="auto",
        help="cpu, cuda, mps, or auto for the fastest available (default: auto)",
    )
    add(
        "--out",
        type=Path,
        help="folder for the results (default: the next free runs/DATA-1, -2, ...)",
    )
    add(
        "--resume", type=Path, metavar="FOLDER", help="continue the run in FOLDER, with its options"
    )
    add(
        "--shard",
        action="store_true",
        help="each process keeps only its part of the weights (FSDP2)",
    )


def run(args: Namespace) -> int:
    from vit_helpers.data.shards import BrokenShardError
    from vit_helpers.distributed import is_main_process, is_peer_failure, rank, shutdown, world_size

    if args.settings:
        explain_settings()
        return 0
    try:
        status = train(args)
        if world_size() > 1 and status == 0:
            shutdown()
        return status
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError, RuntimeError) as error:
        if isinstance(error, BrokenPipeError) or (
            isinstance(error, RuntimeError) and not is_peer_failure(error)
        ):
            raise
        if is_main_process() or isinstance(
            error, BrokenShardError | OSError | ImportError | RuntimeError
        ):
            where = (
                "" if world_size() == 1 else f" in process {rank()}"
            )  # of other errors all processes say the same
            print(f"error{where}: {error}", file=sys.stderr)
        return 1


def explain_settings() -> None:
    """Print what the settings mean, from the docstrings of the classes whose fields they are, and the names of all."""
    from vit_helpers.training import Recipe
    from vit_helpers.training.presets import RunSettings
    from vit_helpers.vit import ViTConfig

    names = set[str]()
    for kind in (RunSettings, Recipe, ViTConfig):
        print((inspect.getdoc(kind) or "").partition("\nraises")[0] + "\n")
        names |= {field.name for field in fields(kind)}
    print(f"All names: {', '.join(sorted(names - {'recipe', 'shape'}))}")


def train(args: Namespace) -> int:
    """Train in a folder that no other run can use meanwhile; returns the exit status."""
    from vit_helpers._files import WriteError
    from vit_helpers.cli.run_folder import choose_folder, how_to_resume, stop_cause
    from vit_helpers.distributed import init_distributed, is_main_process
    from vit_helpers.training.presets import given_settings, preset

    device = init_distributed(pick_device(args.device))
    given = given_settings(
        {name: getattr(args, name) for name in ("data", "split", "tune", *SETTINGS)}, args.set
    )
    with ExitStack() as stack:
        name = Path((args.data or "digits").partition(":")[0]).name
        out, found = choose_folder(args.out, args.resume, name, stack)
        settings, about = (
            read_run(args, out, found, given)
            if found
            else (preset(**{"data": "digits", **given}), None)
        )
        checkpoint = found or out / ("checkpoint.shards" if args.shard else "checkpoint.pt")
        if args.shard and settings.weights and settings.tune == "lora":
            raise ValueError(
                "--shard splits the weights, which --tune lora does not train: use only one of them"
            )
        if args.shard and checkpoint.suffix == ".pt":
            raise ValueError(f"{checkpoint} holds the whole model: resume without --shard")
        try:
            scale = settings.weights is not None and found is None and "lr" not in given
            fit_and_test(args, out, checkpoint, settings, device, about, scale)
        except (KeyboardInterrupt, RuntimeError, WriteError, BrokenPipeError) as error:
            if (cause := stop_cause(error)) is None:
                raise
            if "RANK" in os.environ:
                signal.signal(
                    signal.SIGTERM, signal.SIG_IGN
                )  # torchrun's, for the moment that a last message takes
            if is_main_process():
                unheard = isinstance(error, BrokenPipeError)
                print("\n" + how_to_resume(out, cause), file=sys.stderr if unheard else sys.stdout)
            if isinstance(error, KeyboardInterrupt):
                return 130
            raise
    return 0


def read_run(
    args: Namespace, out: Path, found: Path, given: dict[str, Any]
) -> tuple["RunSettings", dict[str, Any]]:
    """The settings of a run to resume, and what its checkpoint says about it; its choice of --skip-broken is kept."""
    from vit_helpers.cli.run_folder import kept_settings
    from vit_helpers.cli.runs import check_best
    from vit_helpers.distributed import is_main_process
    from vit_helpers.pretrained.sources import RUN_WEIGHTS
    from vit_helpers.training.checkpoints import load_checkpoint

    state = load_checkpoint(found)
    settings = kept_settings(found, about := state["about"], given)
    args.skip_broken = args.skip_broken or about.get("skip_broken", False)
    if (
        is_main_process() and settings.keeps_weights and "data" in about
    ):  # not version 0.1's, which kept no best
        print(check_best(out / RUN_WEIGHTS, state["history"]), end="")
    return settings, about


def fit_and_test(
    args: Namespace, out: Path, checkpoint: Path, settings: "RunSettings", device: str, resumed: dict[str, Any] | None,
    scale: bool,
) -> None:  # fmt: skip
    """Train and test, or continue from what a checkpoint contains, `resumed`.  scale: fit the learning rate to the model"""
    from vit_helpers.cli.results import draw_results, print_score
    from vit_helpers.cli.run_folder import describe_run
    from vit_helpers.cli.runs import evaluation_batches, fit_run
    from vit_helpers.cli.scores import score_classes
    from vit_helpers.cli.threads import use_threads
    from vit_helpers.distributed import is_main_process, shard, shard_batches
    from vit_helpers.training import set_seed
    from vit_helpers.training.checkpoints import Checkpoint
    from vit_helpers.training.presets import with_tta

    set_seed(settings.seed)
    data, model = load_run(args, settings)
    use_threads(model, settings.batch_size)
    if scale:  # narrow models tolerate larger steps
        settings = settings.replace(
            lr=float(f"{settings.recipe.lr * WIDTH / model.config.embed_dim:.2g}")
        )
    about = describe_run(data, model, settings, resumed) | {"skip_broken": args.skip_broken}
    if is_main_process():
        print_start(data, model, settings, device)
    if args.shard:
        shard(model)
    history, epoch = fit_run(
        model, data, settings, out, Checkpoint(checkpoint, resumed is not None, about), device
    )
    test = shard_batches(evaluation_batches(data, "test"))
    score, counts = score_classes(with_tta(model, settings), test, device)
    if is_main_process():
        if len(history) < settings.recipe.epochs:
            print(
                f"stopped early after epoch {len(history)}: no better epoch in the last {settings.patience}"
            )
        images = "images and their mirror images" if settings.tta else "images"
        print_score(score, counts, f"{images}, with the weights of epoch {epoch}")
        print(f"test loss {score.loss:.3f} nats, without label smoothing\ncheckpoint: {checkpoint}")
        draw_results(out, history, counts, data.class_names)
        print_end(out, data, settings, score.accuracy)


def print_start(data: "Data", model: Any, settings: "RunSettings", device: str) -> None:
    """What is trained, on what, and how."""
    import torch

    from vit_helpers.distributed import world_size

    size, learns = (
        sum(p.numel() for p in model.parameters() if p.requires_grad >= only)
        for only in (False, True)
    )
    name = "CNN" if settings.network == "cnn" else f"ViT {settings.weights or settings.model}"
    which = f" ({settings.tune}: {learns:,} of them are trained)" * (settings.weights is not None)
    processes = f"{world_size()} processes of " * (world_size() > 1)
    images = min(data.count("train"), settings.images or data.count("train"))
    print(
        f"{settings.data}: {images:,} training images; {name}, {size:,} parameters{which}; ", end=""
    )
    print(f"{device}, {processes}{torch.get_num_threads()} threads\n{describe(data)}\n{settings}")


def print_end(out: Path, data: "Data", settings: "RunSettings", accuracy: float) -> None:
    """Where the results are, and what to do next."""
    if not settings.keeps_weights:
        print(
            f"weights:    only in the checkpoint, because predict reads only ViTs with pre-norm blocks\nfigures:    {out}"
        )
        return
    for name, file in (
        ("weights", "weights.safetensors"),
        ("curves", "curves.png"),
        ("confusion", "confusion.png"),
    ):
        print(f"{name + ':':11} {out / file}")
    print(f"predict with: python -m vit_helpers predict PICTURE --weights {shlex.quote(str(out))}")
    if (
        settings.weights is None
        and data.in_chans == 3
        and data.count("train") < FEW
        and accuracy < WELL
    ):
        advice = "with so few images, fine-tuning a trained model usually does better than training from scratch"
        print(f"{advice}: add --weights torchvision:vit_b_16")


def pick_device(name: str) -> str:
    """A device of this machine by its name; "auto" for the fastest. raises: ValueError for one that is not there"""
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    here = ["cpu", accelerator.type] if accelerator else ["cpu"]
    if name != "auto" and name.partition(":")[0] not in here:
        raise ValueError(f"no device {name!r} on this machine, available: {', '.join(here)}")
    return here[-1] if name == "auto" else name
