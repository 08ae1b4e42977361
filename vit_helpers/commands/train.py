"""Train a ViT and keep what it learned: on real digits, with no network, when no option is given.

Each data set brings its own settings (vit_helpers/settings.py, PRESETS); an option given here goes before them.

Prints a line an epoch: loss (nats, with label smoothing), accuracy on training images as seen while learning, loss and
accuracy on the validation part, the learning rate, and the speed. The test part is looked at once, at the end.
Ctrl-C keeps every finished epoch; --resume goes on to the same result as a run that was never stopped.
"""

import sys
from dataclasses import asdict
from pathlib import Path

from vit_helpers.commands import whole_number

KEPT = ("data", "size", "patch", "epochs", "batch_size", "lr", "weight_decay", "seed")


def add_arguments(parser):
    parser.add_argument("--data", help="name of the data set (default: digits)")
    parser.add_argument(
        "--size", help="size of the model: mini, Ti, S, B, L or H (default: what suits the data, mini for the digits)"
    )
    parser.add_argument(
        "--patch", type=whole_number, help="side of a patch in pixels (default: what suits the data, 2 for the digits)"
    )
    parser.add_argument("--epochs", type=whole_number, help="passes over the training part (default: what suits the data)")
    parser.add_argument("--batch-size", type=whole_number, help="images a step (default: what suits the data)")
    parser.add_argument("--lr", type=float, help="highest learning rate (default: what suits the data)")
    parser.add_argument("--weight-decay", type=float, help="decay of the matrices (default: what suits the data)")
    parser.add_argument("--seed", type=int, help="start of all random draws (default: 0)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps, or auto for the fastest there is (default: auto)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: the next free runs/DATA-1, -2, ...)")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with the run kept in FOLDER, with its options")


def run(args):
    try:
        return train(args)
    except (ValueError, TypeError, OSError, FloatingPointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def train(args):
    import torch

    from vit_helpers.checkpoints import load_checkpoint
    from vit_helpers.data import load
    from vit_helpers.settings import for_test, make_batches, make_network, make_recipe
    from vit_helpers.training import evaluate, fit, set_seed

    options = chosen_options(args)
    device = pick_device(args.device)
    data, settings = load(options["data"]), settings_of(options)
    recipe, batches = make_recipe(settings), make_batches(data, settings)
    out = args.resume or args.out or next_free(Path("runs"), options["data"].partition(":")[0])
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists() and not args.resume:
        raise ValueError(f"{checkpoint} is there already: --resume {out} goes on with it, another --out leaves it alone")

    set_seed(options["seed"])
    model = make_network(data, settings)
    size = sum(p.numel() for p in model.parameters())
    print(
        f"{options['data']}: {len(data.train.labels):,} training images; ViT {options['size']}/{options['patch']}, "
        f"{size:,} parameters; {device}, {torch.get_num_threads()} threads"
    )
    validation = data.batches("validation", 512)
    about = {"options": options, "mean": data.mean, "std": data.std, "class_names": data.class_names}
    try:
        history = fit(
            model, batches, validation, recipe, device=device, checkpoint=checkpoint, resume=bool(args.resume), about=about
        )
    except KeyboardInterrupt:
        if not checkpoint.exists():
            print("\nstopped before the first epoch was finished: nothing to keep")
            return 130
        done = len(load_checkpoint(checkpoint)["history"])
        print(f"\nstopped: {done} finished epochs are kept in {checkpoint}")
        print(f"go on with: python -m vit_helpers train --resume {out}")
        return 130
    score = evaluate(for_test(model, settings), data.batches("test", 512), device)
    seen = "images and their mirror images" if settings.get("mirror") else "images"
    print(f"test accuracy {score.accuracy:.4f} on {len(data.test.labels):,} {seen}")
    print(f"test loss {score.loss:.3f} nats, without label smoothing")
    print(f"checkpoint: {checkpoint}\nweights:    {keep_weights(model, data, out)}\ncurves:     {save_curves(history, out)}")
    return 0


def keep_weights(model, data, out):
    """The model as one file, for `predict`; pictures are shrunk to the shorter side and cut, as in `data.folders`"""
    from vit_helpers.pretrained import Preprocess, save_weights

    preprocess = Preprocess(min(data.image_size), data.image_size, "bilinear", data.mean, data.std)
    save_weights(out / "weights.safetensors", model.cpu(), preprocess, data.class_names)
    return out / "weights.safetensors"


def chosen_options(args):
    """The options of the run: the given ones over the defaults, or a kept run's own"""
    from vit_helpers.checkpoints import load_checkpoint
    from vit_helpers.recipe import Recipe
    from vit_helpers.settings import OTHERS, preset

    given = {name: value for name in KEPT if (value := getattr(args, name)) is not None}
    if args.resume:
        if args.out:
            raise ValueError("--resume goes on in its own folder: leave --out away")
        kept = load_checkpoint(args.resume / "checkpoint.pt")["about"].get("options")
        if kept is None:
            raise ValueError(f"{args.resume / 'checkpoint.pt'} was not made by this command: it does not name its options")
        if changed := [f"{name} {kept[name]} -> {value}" for name, value in given.items() if kept[name] != value]:
            raise ValueError(f"a resumed run keeps its options, these differ: {', '.join(changed)}")
        return kept
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
