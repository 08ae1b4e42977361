"""Train a ViT and keep what it learned: on real digits, with no network, when no option is given.

Each data set brings its own settings (vit_helpers/settings.py, PRESETS); an option given here goes before them.

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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path

from vit_helpers.commands import whole_number

KEPT = ("data", "size", "patch", "epochs", "batch_size", "lr", "weight_decay", "precision", "seed")


def add_arguments(parser):
    parser.add_argument("--data", help="name of the data set, as folder:PATH for images of your own (default: digits)")
    parser.add_argument(
        "--size", help="size of the model: mini, Ti, S, B, L or H (default: what suits the data, mini for the digits)"
    )
    parser.add_argument(
        "--patch", type=whole_number, help="side of a patch in pixels (default: what suits the data, 4 for the digits)"
    )
    parser.add_argument("--epochs", type=whole_number, help="passes over the training part (default: what suits the data)")
    parser.add_argument("--batch-size", type=whole_number, help="images a step (default: what suits the data)")
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
    from vit_helpers.parallel import first, leave, lost_touch, rank, world

    try:
        status = train(args)
        if world() > 1 and status == 0:
            leave()
        return status
    except (ValueError, TypeError, OSError, ImportError, FloatingPointError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not lost_touch(error):
            raise
        if first() or isinstance(error, BrokenShardError | OSError | ImportError | RuntimeError):  # else all say the same
            print(f"error: {error}" if world() == 1 else f"error in process {rank()}: {error}", file=sys.stderr)
        return 1


def train(args):
    from vit_helpers.parallel import join

    device = join(pick_device(args.device))
    with ExitStack() as stack:
        return train_in(*where(args, stack), device, args)


def train_in(out, checkpoint, device, args):
    """Train and keep the results in the folder `out`; the exit status comes back"""
    import torch

    from vit_helpers.data import load
    from vit_helpers.parallel import first, full_weights, last_words, lost_touch, shard, world
    from vit_helpers.settings import for_test, make_batches, make_network, make_recipe
    from vit_helpers.training import evaluate, fit, set_seed

    options, resume = chosen_options(args, checkpoint), checkpoint is not None
    checkpoint = checkpoint or out / ("checkpoint.shards" if args.shard else "checkpoint.pt")
    if args.shard and checkpoint.suffix == ".pt":
        raise ValueError(f"{checkpoint} holds the whole model: go on without --shard")
    set_seed(options["seed"])
    data, settings = load(options["data"]), settings_of(options)
    recipe, batches = make_recipe(settings), share(make_batches(data, settings))

    model = make_network(data, settings)
    size = sum(p.numel() for p in model.parameters())
    if first():
        together = f"{world()} processes of " if world() > 1 else ""
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
        if isinstance(error, RuntimeError) and not lost_touch(error):
            raise
        last_words()
        if first():
            print(stopped(error, out))
        if isinstance(error, RuntimeError):
            raise
        return 130
    score = evaluate(for_test(model, settings), test, device)
    weights = full_weights(model)
    if not first():
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
    from vit_helpers.parallel import Share, world

    return batches if world() == 1 or isinstance(batches, Stream) else Share(batches)


def where(args, stack):
    """The folder of the run, and the checkpoint to go on from: one asked for, or that of a run started again

    Until `stack` closes, no other run can use the folder.
    """
    from vit_helpers.checkpoints import load_checkpoint
    from vit_helpers.parallel import agreed, by_first, total

    if args.resume and args.out:
        raise ValueError("--resume goes on in its own folder: leave --out away")
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) and not (args.out or args.resume):
        raise ValueError("to start again by itself the run needs a folder of its own: give --out")
    out = by_first(lambda: claim(args, stack))
    found, this = agreed(kept(out)), launch()
    again = total(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))) > 0  # each machine counts what it sees
    if args.resume:
        return out, found or out / "checkpoint.pt"
    if found and not (again and load_checkpoint(found)["about"].get("launch") == this):
        raise ValueError(f"{found} is there already: --resume {out} goes on with it, another --out leaves it alone")
    return out, found


def claim(args, stack):
    """Choose the folder of the run, create it, and lock it until `stack` closes; a new one that is empty then is removed.

    raises: ValueError when another run is using the folder; OSError when it cannot be created or locked
    """
    given = args.resume or args.out
    if args.resume and not kept(given):
        return given  # there is nothing to resume, and reading the checkpoint will say so
    new = given is None or not given.exists()
    out = given or next_free(Path("runs"), Path((args.data or "digits").partition(":")[0]).name)
    out.mkdir(parents=True, exist_ok=True)
    if new:
        stack.callback(remove_if_empty, out)
    stack.enter_context(locked(out))
    return out


def next_free(folder, name):
    """Create the first of NAME-1, NAME-2, ... that does not exist, so that no two runs get the same one"""
    for number in count(1):
        with suppress(FileExistsError):
            (folder / f"{name}-{number}").mkdir(parents=True)
            return folder / f"{name}-{number}"


def remove_if_empty(folder):
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def locked(folder):
    """Hold a lock on a folder. The operating system releases it when the process ends, however it ends."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another run is writing into {folder}: wait for it to end, or choose another --out") from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file; there the library does it
            (folder / ".lock").unlink()
        lock.release()


def launch():
    """A name for this start of torchrun, the same when it starts its processes again; None without it"""
    from vit_helpers.parallel import agreed

    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return agreed(f"process {os.getppid()}" if name == "none" else name)


def kept(out):
    """The checkpoint in a run's folder, in one file or in parts; None when none was finished"""
    from vit_helpers.checkpoints import finished

    whole, parts = out / "checkpoint.pt", out / "checkpoint.shards"
    return whole if whole.exists() else parts if finished(parts) else None


def stopped(error, out):
    """What is left, and how to go on, after a Ctrl-C or the loss of another process"""
    from vit_helpers.checkpoints import load_checkpoint

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
    from vit_helpers.checkpoints import load_checkpoint
    from vit_helpers.recipe import Recipe
    from vit_helpers.settings import OTHERS, preset

    given = {name: value for name in KEPT if (value := getattr(args, name)) is not None}
    if checkpoint:
        options = load_checkpoint(checkpoint)["about"].get("options")
        if options is None:
            raise ValueError(f"{checkpoint} was not made by this command: it does not name its options")
        if changed := [f"{name} {options[name]} -> {value}" for name, value in given.items() if options[name] != value]:
            raise ValueError(f"a resumed run keeps its options, these differ: {', '.join(changed)}")
        return options
    defaults = {"seed": 0, **OTHERS, **asdict(Recipe()), **preset(given.get("data", "digits"))}
    size, _, patch = defaults.pop("model").partition("/")
    if "size" in given:  # the named size decides its own shape
        defaults = {name: value for name, value in defaults.items() if name not in ("embed_dim", "depth", "num_heads")}
    return {"data": "digits", "size": size, "patch": int(patch), **defaults, **given}


def settings_of(options):
    """The options of a run as `vit_helpers.settings` has them"""
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


def save_curves(history, out):
    import matplotlib

    matplotlib.use("Agg")
    from vit_helpers.plots.curves import draw_curves

    path = out / "curves.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_curves(history).savefig(path, dpi=100)
    return path
