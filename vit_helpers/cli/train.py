"""Train a ViT and keep what it learned: on real digits, with no network, when no option is given.

Each data set brings its own settings (vit_helpers/training/presets.toml); an option given here replaces them.

Prints a line an epoch: loss (nats, with label smoothing), accuracy on training images as seen while learning, loss and
accuracy on the validation part, the learning rate, and the speed. The test part is looked at once, at the end, with the
weights of the best epoch: the one with the highest validation accuracy. The folder of the run gets

    weights.safetensors, last.safetensors   the weights of the best and of the last epoch, for `predict` and `evaluate`
    checkpoint.pt                           all that --resume needs to go on
    history.csv, curves.png                 what was printed of each epoch, and a picture of it
    confusion.png                           what each class of the test part is taken for, with 95% intervals

Ctrl-C keeps every finished epoch; --resume goes on to the same result as a run that was never stopped.

With --weights a trained model is fine-tuned, which is what a few hundred photos need. The weights are a name, as for
`load_pretrained` (torchvision:vit_b_16, timm:NAME, huggingface:NAME), the folder of a run, or a file: .safetensors, .npz,
or tensors that torch.save wrote (.pth, .pt, .bin), of which no code runs. --tune full trains all weights, head only a new
head, and lora low-rank updates and the head.

Examples:

    python -m vit_helpers train --data folder:photos --image-size 96 --augment flip_crop --set depth=4 --set dropout=0.1
    python -m vit_helpers train --data folder:photos --weights torchvision:vit_b_16 --tune head --patience 5

Several processes train together, each on its part of every batch, when torchrun starts them:

    torchrun --nproc-per-node=2 -m vit_helpers train --data fashion_mnist

From memory and without dropout the result is that of one process. With --shard each process keeps its own part of the
weights alone (FSDP2).

What does not fit into memory is written once by `python -m vit_helpers shards`, and read as a stream, each process its own
part, with --data shards:FOLDER; its order depends on the number of processes.
"""

import os
import shlex
import signal
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_helpers.cli import positive_int
from vit_helpers.cli.reading import add_data_arguments, describe, load_run

if TYPE_CHECKING:  # importing torch takes seconds, which `--help` need not wait for
    from vit_helpers.data import Data
    from vit_helpers.training.presets import RunSettings

SETTINGS = (  # options that are settings of the run, by name
    "data", "split", "size", "patch", "image_size", "augment", "epochs", "batch_size", "lr", "weight_decay", "precision",
    "seed", "patience", "weights", "tune", "rank",
)  # fmt: skip
FEW, WELL = 5000, 0.95  # with fewer training images than this and a lower accuracy, fine-tuning is suggested


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", help="name of the data set, or folder:PATH for images of your own (default: digits)")
    add_data_arguments(parser)
    add("--size", help="size of the model: mini, Ti, S, B, L or H (default: what suits the data, mini for the digits)")
    add("--patch", type=positive_int, help="side of a patch in pixels (default: what suits the data, 4 for the digits)")
    words = "side in pixels that photos are resized to (default: 64, or that of the weights)"
    add("--image-size", type=positive_int, help=words)
    add("--augment", help="what happens to training images: affine, crop, flip, flip_crop (both mirror), erase or none")
    add("--epochs", type=positive_int, help="passes over the training split (default: what suits the data)")
    add("--batch-size", type=positive_int, help="images per step (default: what suits the data)")
    add("--lr", type=float, help="highest learning rate (default: what suits the data)")
    add("--weight-decay", type=float, help="weight decay of the matrices (default: what suits the data)")
    add("--precision", help="float32, or bfloat16 for matrix products if the machine has units for it (default: float32)")
    add("--seed", type=int, help="start of all random draws (default: 0)")
    add("--patience", type=positive_int, help="stop after so many epochs without a better one (default: train them all)")
    add("--weights", help="start from a trained model: a name, a file, or the folder of a run (default: from scratch)")
    add("--tune", choices=("full", "head", "lora"), help="what learns, with --weights (default: full)")
    add("--rank", type=positive_int, help="rank of the updates, with --tune lora (default: 8)")
    words = "any setting of the tables of `ablate`, as in depth=4; can be repeated, and an unknown name lists them all"
    add("--set", action="append", default=[], metavar="NAME=VALUE", help=words)
    add("--device", default="auto", help="cpu, cuda, mps, or auto for the fastest there is (default: auto)")
    add("--out", type=Path, help="folder for the results (default: the next free runs/DATA-1, -2, ...)")
    add("--resume", type=Path, metavar="FOLDER", help="go on with the run kept in FOLDER, with its options")
    add("--shard", action="store_true", help="each process keeps only its part of the weights (FSDP2)")


def run(args: Namespace) -> int:
    from vit_helpers.data.shards import BrokenShardError
    from vit_helpers.training.distributed import is_main_process, is_peer_failure, rank, shutdown, world_size

    try:
        status = train(args)
        if world_size() > 1 and status == 0:
            shutdown()
        return status
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError, RuntimeError) as error:
        if isinstance(error, BrokenPipeError) or (isinstance(error, RuntimeError) and not is_peer_failure(error)):
            raise
        if is_main_process() or isinstance(error, BrokenShardError | OSError | ImportError | RuntimeError):
            where = "" if world_size() == 1 else f" in process {rank()}"  # of other errors all processes say the same
            print(f"error{where}: {error}", file=sys.stderr)
        return 1


def train(args: Namespace) -> int:
    """Train in a folder that no other run can use meanwhile; returns the exit status."""
    from vit_helpers.training.checkpoints import load_checkpoint
    from vit_helpers.training.distributed import init_distributed, is_main_process
    from vit_helpers.training.presets import given_settings, preset
    from vit_helpers.training.run_folder import choose_folder, how_to_resume, kept_settings, stop_cause
    from vit_helpers.training.sealed import WriteError

    device = init_distributed(pick_device(args.device))
    given = given_settings({name: getattr(args, name) for name in SETTINGS}, args.set)
    with ExitStack() as stack:
        name = Path((args.data or "digits").partition(":")[0]).name
        out, found = choose_folder(args.out, args.resume, name, stack)
        about = None
        if found:
            settings = kept_settings(found, about := load_checkpoint(found)["about"], given)
        else:
            settings = preset(**{"data": "digits", **given})
        checkpoint = found or out / ("checkpoint.shards" if args.shard else "checkpoint.pt")
        if args.shard and settings.weights and settings.tune == "lora":
            raise ValueError("--shard splits the weights that lora leaves alone: leave out one of them")
        if args.shard and checkpoint.suffix == ".pt":
            raise ValueError(f"{checkpoint} holds the whole model: go on without --shard")
        try:
            scale = settings.weights is not None and found is None and "lr" not in given
            fit_and_test(args, out, checkpoint, settings, device, about, scale)
        except (KeyboardInterrupt, RuntimeError, WriteError, BrokenPipeError) as error:
            if (cause := stop_cause(error)) is None:
                raise
            if "RANK" in os.environ:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's, for the moment that a last message takes
            if is_main_process():
                unheard = isinstance(error, BrokenPipeError)
                print("\n" + how_to_resume(out, cause), file=sys.stderr if unheard else sys.stdout)
            if isinstance(error, KeyboardInterrupt):
                return 130
            raise
    return 0


def fit_and_test(
    args: Namespace, out: Path, checkpoint: Path, settings: "RunSettings", device: str, resumed: dict[str, Any] | None,
    scale: bool,
) -> None:  # fmt: skip
    """Train, test, print both, and keep the results in the folder `out`.

    resumed: what is known about a run that goes on;  scale: fit a fine-tuning's learning rate to the model
    """
    from vit_helpers.cli.results import draw_results, print_score
    from vit_helpers.pretrained.runs import evaluation_batches, fit_run, scale_lr
    from vit_helpers.training import set_seed
    from vit_helpers.training.checkpoints import Checkpoint
    from vit_helpers.training.distributed import is_main_process, shard, shard_batches
    from vit_helpers.training.presets import with_tta
    from vit_helpers.training.run_folder import describe_run
    from vit_helpers.training.testing import score_classes

    set_seed(settings.seed)
    data, model = load_run(args, settings)
    settings = scale_lr(settings, model) if scale else settings
    about = describe_run(data, settings, resumed)
    if is_main_process():
        print_start(data, model, settings, device)
    if args.shard:
        shard(model)
    history, epoch = fit_run(model, data, settings, out, Checkpoint(checkpoint, resumed is not None, about), device)
    test = shard_batches(evaluation_batches(data, "test"))
    score, counts = score_classes(with_tta(model, settings), test, device)
    if is_main_process():
        if len(history) < settings.recipe.epochs:
            print(f"stopped after epoch {len(history)}: none was better in the last {settings.patience}")
        images = "images and their mirror images" if settings.tta else "images"
        print_score(score, counts, f"{images}, with the weights of epoch {epoch}")
        print(f"test loss {score.loss:.3f} nats, without label smoothing\ncheckpoint: {checkpoint}")
        draw_results(out, history, counts, data.class_names)
        print_end(out, data, settings, score.accuracy)


def print_start(data: "Data", model: Any, settings: "RunSettings", device: str) -> None:
    """What is trained, on what, and how."""
    import torch

    from vit_helpers.training.distributed import world_size

    size, learns = (sum(p.numel() for p in model.parameters() if p.requires_grad >= only) for only in (False, True))
    name = "CNN" if settings.network == "cnn" else f"ViT {settings.weights or settings.model}"
    which = f" ({settings.tune}: {learns:,} of them learn)" * (settings.weights is not None)
    processes = f"{world_size()} processes of " * (world_size() > 1)
    images = min(data.count("train"), settings.images or data.count("train"))
    about_model = f"{images:,} training images; {name}, {size:,} parameters{which}"
    print(f"{settings.data}: {about_model}; {device}, {processes}{torch.get_num_threads()} threads")
    print(f"{describe(data)}\n{settings}")


def print_end(out: Path, data: "Data", settings: "RunSettings", accuracy: float) -> None:
    """Where the results are, and what to do next."""
    if not settings.keeps_weights:
        print(f"weights:    in the checkpoint alone, as predict reads ViTs of pre-norm blocks\npictures:   {out}")
        return
    for name, file in (("weights", "weights.safetensors"), ("curves", "curves.png"), ("confusion", "confusion.png")):
        print(f"{name + ':':11} {out / file}")
    print(f"predict with: python -m vit_helpers predict PICTURE --weights {shlex.quote(str(out))}")
    if settings.weights is None and data.in_chans == 3 and data.count("train") < FEW and accuracy < WELL:
        advice = "with so few images, fine-tuning a trained model usually does better than training from scratch"
        print(f"{advice}: add --weights torchvision:vit_b_16")


def pick_device(name: str) -> str:
    """A device of this machine by its name; "auto" for the fastest. raises: ValueError for one that is not there"""
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    here = ["cpu", accelerator.type] if accelerator else ["cpu"]
    if name != "auto" and name.partition(":")[0] not in here:
        raise ValueError(f"no device {name!r} here, there is: {', '.join(here)}")
    return here[-1] if name == "auto" else name
