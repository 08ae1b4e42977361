"""Train a ViT and keep what it learned: on real digits, with no network, when no option is given.

Each data set brings its own settings (vit_helpers/training/presets.py, PRESETS); an option given here goes before them.

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
import sys
from dataclasses import asdict
from pathlib import Path

from vit_helpers.cli import positive_int

KEPT = ("data", "size", "patch", "epochs", "batch_size", "lr", "weight_decay", "precision", "seed")


def add_arguments(parser):
    parser.add_argument("--data", help="name of the data set, as folder:PATH for images of your own (default: digits)")
    parser.add_argument(
        "--size", help="size of the model: mini, Ti, S, B, L or H (default: what suits the data, mini for the digits)"
    )
    parser.add_argument(
        "--patch", type=positive_int, help="side of a patch in pixels (default: what suits the data, 4 for the digits)"
    )
    parser.add_argument("--epochs", type=positive_int, help="passes over the training part (default: what suits the data)")
    parser.add_argument("--batch-size", type=positive_int, help="images a step (default: what suits the data)")
    parser.add_argument("--lr", type=float, help="highest learning rate (default: what suits the data)")
    parser.add_argument("--weight-decay", type=float, help="decay of the matrices (default: what suits the data)")
    parser.add_argument(
        "--precision", help="float32, or bfloat16 for the products, where the machine has units for it (default: float32)"
    )
    parser.add_argument("--seed", type=int, help="start of all random draws (default: 0)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps, or auto for the fastest there is (default: auto)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: the next free runs/DATA-1, -2, ...)")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with the run kept in FOLDER, with its options")
    parser.add_argument("--shard", action="store_true", help="each process keeps its part of the weights alone (FSDP2)")


def run(args):
    from vit_helpers.data.shards import BrokenShardError
    from vit_helpers.training.distributed import is_main_process, is_peer_failure, rank, shutdown, world_size

    try:
        status = train(args)
        if world_size() > 1 and status == 0:
            shutdown()
        return status
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_peer_failure(error):
            raise
        if is_main_process() or isinstance(
            error, BrokenShardError | OSError | ImportError | RuntimeError
        ):  # else all say the same
            print(f"error: {error}" if world_size() == 1 else f"error in process {rank()}: {error}", file=sys.stderr)
        return 1


def train(args):
    import torch

    from vit_helpers.data import load
    from vit_helpers.training import evaluate, fit, set_seed
    from vit_helpers.training.distributed import (
        full_state_dict,
        ignore_sigterm,
        init_distributed,
        is_main_process,
        is_peer_failure,
        shard,
        world_size,
    )
    from vit_helpers.training.presets import make_batches, make_network, make_recipe, with_tta

    device = init_distributed(pick_device(args.device))
    out, checkpoint = where(args)
    options, resume = chosen_options(args, checkpoint), checkpoint is not None
    checkpoint = checkpoint or out / ("checkpoint.shards" if args.shard else "checkpoint.pt")
    if args.shard and checkpoint.suffix == ".pt":
        raise ValueError(f"{checkpoint} holds the whole model: go on without --shard")
    set_seed(options["seed"])
    data, settings = load(options["data"]), settings_of(options)
    recipe, batches = make_recipe(settings), share(make_batches(data, settings))

    model = make_network(data, settings)
    size = sum(p.numel() for p in model.parameters())
    if is_main_process():
        together = f"{world_size()} processes of " if world_size() > 1 else ""
        print(
            f"{options['data']}: {data.count('train'):,} training images; ViT {options['size']}/{options['patch']}, "
            f"{size:,} parameters; {device}, {together}{torch.get_num_threads()} threads"
        )
    if args.shard:
        shard(model)
    about = {"options": options, "mean": data.mean, "std": data.std, "class_names": data.class_names, "launch": launch()}
    validation, test = (share(data.batches(part, 512)) for part in ("validation", "test"))
    try:
        history = fit(model, batches, validation, recipe, device=device, checkpoint=checkpoint, resume=resume, about=about)
    except (KeyboardInterrupt, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_peer_failure(error):
            raise
        ignore_sigterm()
        if is_main_process():
            print(stopped(error, out))
        if isinstance(error, RuntimeError):
            raise
        return 130
    score = evaluate(with_tta(model, settings), test, device)
    weights = full_state_dict(model)
    if not is_main_process():
        return 0
    seen = "images and their mirror images" if settings.get("mirror") else "images"
    print(f"test accuracy {score.accuracy:.4f} on {data.count('test'):,} {seen}")
    print(f"test loss {score.loss:.3f} nats, without label smoothing")
    whole = make_network(data, settings)
    whole.load_state_dict(weights)
    print(f"checkpoint: {checkpoint}\nweights:    {keep_weights(whole, data, out)}\ncurves:     {save_curves(history, out)}")
    return 0


def share(batches):
    """This process's part of the batches; a stream is that already"""
    from vit_helpers.data.stream import Stream
    from vit_helpers.training.distributed import ShardedBatches, world_size

    return batches if world_size() == 1 or isinstance(batches, Stream) else ShardedBatches(batches)


def where(args):
    """The folder of the run, and the checkpoint to go on from: one asked for, or that of a run started again"""
    from vit_helpers.training.checkpoints import load_checkpoint
    from vit_helpers.training.distributed import all_reduce_sum, broadcast

    if args.resume and args.out:
        raise ValueError("--resume goes on in its own folder: leave --out away")
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) and not (args.out or args.resume):
        raise ValueError("to start again by itself the run needs a folder of its own: give --out")
    out = args.resume or args.out or broadcast(next_free(Path("runs"), (args.data or "digits").partition(":")[0]))
    found, this = broadcast(kept(out)), launch()
    again = all_reduce_sum(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))) > 0  # each machine counts what it sees
    if args.resume:
        return out, found or out / "checkpoint.pt"
    if found and not (again and load_checkpoint(found)["about"].get("launch") == this):
        raise ValueError(f"{found} is there already: --resume {out} goes on with it, another --out leaves it alone")
    return out, found


def launch():
    """A name for this start of torchrun, the same when it starts its processes again; None without it"""
    from vit_helpers.training.distributed import broadcast

    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return broadcast(f"process {os.getppid()}" if name == "none" else name)


def kept(out):
    """The checkpoint in a run's folder, in one file or in parts; None when none was finished"""
    from vit_helpers.training.checkpoints import finished

    whole, parts = out / "checkpoint.pt", out / "checkpoint.shards"
    return whole if whole.exists() else parts if finished(parts) else None


def stopped(error, out):
    """What is left, and how to go on, after a Ctrl-C or the loss of another process"""
    from vit_helpers.training.checkpoints import load_checkpoint

    cause = "stopped" if isinstance(error, KeyboardInterrupt) else "stopped, as another process failed"
    if kept(out) is None:
        return f"\n{cause} before the first epoch was finished: nothing to keep"
    done = len(load_checkpoint(kept(out))["history"])
    return (
        f"\n{cause}: {done} finished epochs are kept in {kept(out)}\ngo on with: python -m vit_helpers train --resume {out}"
    )


def keep_weights(model, data, out):
    """The model as one file, for `predict`; pictures are shrunk to the shorter side and cut, as in `data.folders`"""
    from vit_helpers.pretrained import Preprocess, save_weights

    preprocess = Preprocess(min(data.image_size), data.image_size, "bilinear", data.mean, data.std)
    save_weights(out / "weights.safetensors", model, preprocess, data.class_names)
    return out / "weights.safetensors"


def chosen_options(args, checkpoint):
    """The options of the run: the given ones over the defaults, or those of the checkpoint to go on from"""
    from vit_helpers.training.checkpoints import load_checkpoint
    from vit_helpers.training.presets import DATA_DEFAULTS, preset
    from vit_helpers.training.recipe import Recipe

    given = {name: value for name in KEPT if (value := getattr(args, name)) is not None}
    if checkpoint:
        options = load_checkpoint(checkpoint)["about"].get("options")
        if options is None:
            raise ValueError(f"{checkpoint} was not made by this command: it does not name its options")
        if changed := [f"{name} {options[name]} -> {value}" for name, value in given.items() if options[name] != value]:
            raise ValueError(f"a resumed run keeps its options, these differ: {', '.join(changed)}")
        return options
    defaults = {"seed": 0, **DATA_DEFAULTS, **asdict(Recipe()), **preset(given.get("data", "digits"))}
    size, _, patch = defaults.pop("model").partition("/")
    if "size" in given:  # the named size decides its own shape
        defaults = {name: value for name, value in defaults.items() if name not in ("embed_dim", "depth", "num_heads")}
    return {"data": "digits", "size": size, "patch": int(patch), **defaults, **given}


def settings_of(options):
    """The options of a run as `vit_helpers.training.presets` has them"""
    settings = {name: value for name, value in options.items() if name not in ("data", "size", "patch", "seed")}
    return {"model": f"{options['size']}/{options['patch']}", **settings}


def pick_device(name):
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    known = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not known.get(name.partition(":")[0]):
        raise ValueError(f"no device {name!r} here, there is: {', '.join(device for device, here in known.items() if here)}")
    return name


def next_free(folder, name):
    number = 1
    while (folder / f"{name}-{number}").exists():
        number += 1
    return folder / f"{name}-{number}"


def save_curves(history, out):
    import matplotlib

    matplotlib.use("Agg")
    from vit_helpers.plots.curves import draw_curves

    path = out / "curves.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_curves(history).savefig(path, dpi=100)
    return path
