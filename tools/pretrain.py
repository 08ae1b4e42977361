"""Train the models that notebooks 08 and 09 start from, and keep each as one file.

scattered: names digits among clutter, all ten of them
seven    : the same, knows 0 to 6 only
masked   : paints hidden patches of plain digits, sees no label

Each is written to FOLDER/NAME-SEED.safetensors in float16, with its shape and preprocessing. Those in vit_helpers/weights,
which `load_pretrained("ours:NAME")` gives, are of seed 0. The first two take some ten minutes each on one core.
"""

import sys
from dataclasses import replace
from pathlib import Path

from tools import main
from vit_helpers.cli import positive_int

CLUTTER = {"model": "mini/4", "depth": 4, "augment": "affine", "optimizer": "muon", "batch_size": 128, "epochs": 5}
SETTINGS = {  # by the names of `RunSettings`
    "scattered": CLUTTER,
    "seven": CLUTTER,
    "masked": {"model": "mini/2", "augment": "affine", "optimizer": "muon", "epochs": 100, "pool": "avg"},
}


def add_arguments(parser):
    parser.add_argument("names", nargs="+", choices=SETTINGS, help="which")
    parser.add_argument("--seed", type=int, default=0, help="start of all random draws (default: 0)")
    parser.add_argument("--images", type=positive_int, default=60_000, help="with clutter (default: 60,000)")
    parser.add_argument("--epochs", type=positive_int, help="passes over the images (default: 5; masked 100)")
    parser.add_argument("--out", type=Path, default=Path("weights"), help="the folder (default: weights)")


def run(args):
    try:
        for name in args.names:
            train(name, args.seed, args.images, args.epochs, args.out / f"{name}-{args.seed}.safetensors")
    except (ValueError, OSError, FloatingPointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def train(name, seed, images, epochs, path):
    from vit_helpers.data import load
    from vit_helpers.pretrained import Preprocess, save_weights
    from vit_helpers.training import set_seed
    from vit_helpers.training.presets import RunSettings, make_network

    data = load("digits") if name == "masked" else load("scattered_digits", n=images)
    if name == "seven":
        data = data.filter_classes(*"0123456")
    settings = RunSettings.from_dict(SETTINGS[name] | ({"epochs": epochs} if epochs else {}))
    set_seed(seed)
    model = make_network(data, settings)
    if name == "masked":
        model, data = paint(model, data, settings), replace(data, class_names=())
    else:
        classify(model, data, settings)
    H, W = data.image_size
    preprocess = Preprocess((H, W), (H, W), "bicubic", data.mean, data.std)
    save_weights(path, model.half(), preprocess, data.class_names)
    print(f"kept in {path}", flush=True)


def classify(model, data, settings):
    from vit_helpers.training import evaluate, fit
    from vit_helpers.training.presets import make_batches

    fit(model, make_batches(data, settings), data.batches("validation", 500), settings.recipe)
    print(f"test accuracy {evaluate(model, data.batches('test', 500)).accuracy:.4f}")


def paint(model, data, settings):
    """A masked autoencoder's encoder, without a head"""
    from vit_helpers.pretrained.finetune import transfer_weights
    from vit_helpers.pretrained.masked import MaskedAutoencoder, pretrain
    from vit_helpers.training.presets import make_batches

    batches = make_batches(data, settings)
    pretrain(MaskedAutoencoder(model, mask_ratio=0.5), batches, settings.recipe, report=tell)
    return transfer_weights(model, num_classes=0)


def tell(epoch, loss):
    print(f"epoch {epoch:3d}  mean squared error of hidden pixels {loss:.4f}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
