"""Train the models that notebooks 08 and 09 start from, and store each as one file.

scattered: classifies digits among clutter, all ten of them
seven    : the same, but only 0 to 6
masked   : reconstructs hidden patches of plain digits, without labels

Each is written to FOLDER/NAME-SEED.safetensors in float16, with its shape and preprocessing. Those in vit_helpers/weights,
which `load_pretrained("ours:NAME")` returns, have seed 0. The first two take some ten minutes each on one core.
"""

import tomllib
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import cast

from tools import main
from vit_helpers.cli import positive_int
from vit_helpers.data import load
from vit_helpers.pretrained import Preprocess, save_weights
from vit_helpers.pretrained.finetune import transfer_weights
from vit_helpers.pretrained.masked import MaskedAutoencoder, pretrain
from vit_helpers.training import evaluate, fit, set_seed
from vit_helpers.training.presets import RunSettings, make_batches, make_network
from vit_helpers.vit import ViT

TABLES = tomllib.loads(Path(__file__).with_name("static").joinpath("pretrain.toml").read_text(encoding="utf-8"))
SETTINGS = {name: RunSettings.from_dict(settings) for name, settings in TABLES.items()}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", choices=SETTINGS, help="which")
    parser.add_argument("--seed", type=int, default=0, help="start of all random draws (default: 0)")
    parser.add_argument("--images", type=positive_int, default=60_000, help="with clutter (default: 60,000)")
    parser.add_argument("--epochs", type=positive_int, help="passes over the images (default: 5; masked 100)")
    parser.add_argument("--out", type=Path, default=Path("weights"), help="the folder (default: weights)")


def run(args: Namespace) -> None:
    say = "epoch {:3d}  mean squared error of hidden pixels {:.4f}".format
    for name in args.names:
        data = load("digits") if name == "masked" else load("scattered_digits", n=args.images)
        data = data.filter_classes(*"0123456") if name == "seven" else data
        settings = SETTINGS[name].replace(seed=args.seed, **({"epochs": args.epochs} if args.epochs else {}))
        path = args.out / f"{name}-{args.seed}.safetensors"
        set_seed(settings.seed)
        model, batches = cast(ViT, make_network(data, settings)), make_batches(data, settings)
        if name == "masked":
            autoencoder = MaskedAutoencoder(model, mask_ratio=0.5)
            pretrain(autoencoder, batches, settings.recipe, report=lambda *row: print(say(*row), flush=True))
            model = transfer_weights(model, num_classes=0)  # the encoder, without a head
        else:
            fit(model, batches, data.batches("validation", 500), settings.recipe)
            print(f"test accuracy {evaluate(model, data.batches('test', 500)).accuracy:.4f}")
        preprocess = Preprocess(data.image_size, data.image_size, "bicubic", data.mean, data.std)
        save_weights(path, model.half(), preprocess, () if name == "masked" else data.class_names)
        print(f"weights: {path}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
