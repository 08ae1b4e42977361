"""Train a ViT and keep what it learned: on real digits, with no network, when no option is given.

Each data set brings its own settings (vit_helpers/training/presets.toml); an option given here replaces them.

Prints a line an epoch: loss (nats, with label smoothing), accuracy on training images as seen while learning, loss and
accuracy on the validation part, the learning rate, and the speed. The test part is looked at once, at the end.
Ctrl-C keeps every finished epoch; --resume goes on to the same result as a run that was never stopped.

Several processes train together, each on its part of every batch, when torchrun starts them:

    torchrun --nproc-per-node=2 -m vit_helpers train --data fashion_mnist

From memory and without dropout the result is that of one process. With --shard each process keeps its own part of the
weights alone (FSDP2).

What does not fit into memory is written once by `python -m vit_helpers shards`, and read as a stream, each process its own
part, with --data shards:FOLDER; its order depends on the number of processes.
"""

import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vit_helpers.cli import positive_int

if TYPE_CHECKING:  # importing torch takes seconds, which `--help` need not wait for
    from vit_helpers.data import Data
    from vit_helpers.training import Epoch
    from vit_helpers.training.presets import RunSettings
    from vit_helpers.vit import ViT

KEPT = ("data", "size", "patch", "epochs", "batch_size", "lr", "weight_decay", "precision", "seed")


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", help="name of the data set, or folder:PATH for images of your own (default: digits)")
    add("--size", help="size of the model: mini, Ti, S, B, L or H (default: what suits the data, mini for the digits)")
    add("--patch", type=positive_int, help="side of a patch in pixels (default: what suits the data, 4 for the digits)")
    add("--epochs", type=positive_int, help="passes over the training split (default: what suits the data)")
    add("--batch-size", type=positive_int, help="images per step (default: what suits the data)")
    add("--lr", type=float, help="highest learning rate (default: what suits the data)")
    add("--weight-decay", type=float, help="weight decay of the matrices (default: what suits the data)")
    add("--precision", help="float32, or bfloat16 for matrix products if the machine has units for it (default: float32)")
    add("--seed", type=int, help="start of all random draws (default: 0)")
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
    from vit_helpers.training.presets import preset
    from vit_helpers.training.run_folder import choose_folder, how_to_resume, kept_settings, stop_cause
    from vit_helpers.training.sealed import WriteError

    device = init_distributed(pick_device(args.device))
    given = {name: value for name in KEPT if (value := getattr(args, name)) is not None}
    with ExitStack() as stack:
        name = Path((args.data or "digits").partition(":")[0]).name
        out, found = choose_folder(args.out, args.resume, name, stack)
        about = load_checkpoint(found)["about"] if found else None
        if found and about is not None:
            settings = kept_settings(found, about, given)
        else:
            settings = preset(given.get("data", "digits")).replace(**given)
        checkpoint = found or out / ("checkpoint.shards" if args.shard else "checkpoint.pt")
        if args.shard and checkpoint.suffix == ".pt":
            raise ValueError(f"{checkpoint} holds the whole model: go on without --shard")
        try:
            fit_and_test(out, checkpoint, settings, device, sharded=args.shard, resumed=about)
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
    out: Path, checkpoint: Path, settings: "RunSettings", device: str, *, sharded: bool, resumed: dict[str, Any] | None
) -> None:
    """Train, test, print both, and keep the results in the folder `out`.  resumed: what is known about a run that goes on"""
    import torch

    from vit_helpers.data import load
    from vit_helpers.training import evaluate, fit, set_seed
    from vit_helpers.training.checkpoints import Checkpoint
    from vit_helpers.training.distributed import full_state_dict, is_main_process, shard, shard_batches, world_size
    from vit_helpers.training.presets import make_batches, make_network, with_tta
    from vit_helpers.training.run_folder import describe_run

    set_seed(settings.seed)
    data = load(settings.data)
    about = describe_run(data, settings, resumed)
    train, model = shard_batches(make_batches(data, settings)), make_network(data, settings)
    validation, test = (shard_batches(data.batches(split, 512)) for split in ("validation", "test"))
    if is_main_process():
        size, processes = sum(p.numel() for p in model.parameters()), f"{world_size()} processes of " * (world_size() > 1)
        about_model = f"{data.count('train'):,} training images; ViT {settings.model}, {size:,} parameters"
        print(f"{settings.data}: {about_model}; {device}, {processes}{torch.get_num_threads()} threads")
    if sharded:
        shard(model)
    keep = Checkpoint(checkpoint, resumed is not None, about)
    history = fit(model, train, validation, settings.recipe, device=device, callbacks=[keep])
    score = evaluate(with_tta(model, settings), test, device)
    weights = full_state_dict(model)
    if is_main_process():
        seen = "images and their mirror images" if settings.tta else "images"
        print(f"test accuracy {score.accuracy:.4f} on {data.count('test'):,} {seen}")
        print(f"test loss {score.loss:.3f} nats, without label smoothing\ncheckpoint: {checkpoint}")
        whole = cast("ViT", make_network(data, settings))
        whole.load_state_dict(weights)
        save_results(whole, history, data, out)
        print(f"weights:    {out / 'weights.safetensors'}\ncurves:     {out / 'curves.png'}")


def save_results(model: "ViT", history: "list[Epoch]", data: "Data", out: Path) -> None:
    """Write the model as one file, for `predict`, and draw the history."""
    import matplotlib

    matplotlib.use("Agg")
    from vit_helpers.plots.curves import draw_curves
    from vit_helpers.pretrained import Preprocess, save_weights
    from vit_helpers.training.sealed import write_aside

    size = data.image_size  # `data.folders` scales images to the shorter side, and crops
    preprocess = Preprocess(min(size), size, "bilinear", data.mean, data.std)
    save_weights(out / "weights.safetensors", model, preprocess, data.class_names)
    with write_aside(out / "curves.png") as part:
        draw_curves(history).savefig(part, dpi=100, format="png")


def pick_device(name: str) -> str:
    """A device of this machine by its name; "auto" for the fastest. raises: ValueError for one that is not there"""
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    here = ["cpu", accelerator.type] if accelerator else ["cpu"]
    if name != "auto" and name.partition(":")[0] not in here:
        raise ValueError(f"no device {name!r} here, there is: {', '.join(here)}")
    return here[-1] if name == "auto" else name
