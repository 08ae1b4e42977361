"""Train the models that the notebooks start from, and store each as one file.

scattered: classifies digits among clutter, all ten of them
seven    : the same, but only 0 to 6
masked   : reconstructs hidden patches of plain digits, without labels
photos   : classifies color photographs of CIFAR-10; calibrated, and with what `predict` needs to
           notice unfamiliar ones
eight    : classifies those of eight classes, without cats and dogs, which
           `tools.experiments.transfer` has it learn later

Each is written to FOLDER/NAME-SEED.safetensors in float16, with how it was trained. Those in
vit_helpers/weights, which `load_pretrained("ours:NAME")` returns, have seed 0. The first two take
some ten minutes each on one core, photos an hour and a half on two that have units for bfloat16 (on
others twice as long), and eight half as long as photos.
"""

import shlex
import tomllib
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from tools import main
from vit_helpers.cli import positive_int
from vit_helpers.cli.train import pick_device
from vit_helpers.data import Batches, Data, load, subset
from vit_helpers.data.splits import sample_rows
from vit_helpers.pretrained import Preprocess, save_weights
from vit_helpers.pretrained.calibration import NOTE, Familiarity, fit_temperature
from vit_helpers.pretrained.finetune import transfer_weights
from vit_helpers.pretrained.masked import MaskedAutoencoder, pretrain
from vit_helpers.scaling.speedups import best_precision
from vit_helpers.training import Report, evaluate, fit, set_seed
from vit_helpers.training.checkpoints import Checkpoint
from vit_helpers.training.measurements import predict
from vit_helpers.training.presets import RunSettings, load_data, make_batches, make_network
from vit_helpers.vit import ViT

TABLES = tomllib.loads(
    Path(__file__).with_name("static").joinpath("pretrain.toml").read_text(encoding="utf-8")
)
LATER = ("cat", "dog")  # classes that the model called eight has never seen
SETTINGS = {name: RunSettings.from_dict(settings) for name, settings in TABLES.items()}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", choices=SETTINGS, help="which")
    parser.add_argument(
        "--seed", type=int, default=0, help="start of all random draws (default: 0)"
    )
    parser.add_argument(
        "--images", type=positive_int, default=60_000, help="with clutter (default: 60,000)"
    )
    parser.add_argument(
        "--photos",
        default="cifar10",
        help="cifar10, to be downloaded, or folder:PATH (default: cifar10)",
    )
    parser.add_argument(
        "--epochs", type=positive_int, help="passes (default: 5; masked 100, photos 42, eight 24)"
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where the model is trained (default: cpu)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on after the last finished epoch (not for masked)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("weights"), help="the folder (default: weights)"
    )


def run(args: Namespace) -> None:
    device = pick_device(args.device)
    for name in args.names:
        settings = SETTINGS[name].replace(
            seed=args.seed, **({"epochs": args.epochs} if args.epochs else {})
        )
        if settings.recipe.precision == "bfloat16":
            settings = settings.replace(precision=best_precision(device))
        data, path = load_images(name, settings, args), args.out / f"{name}-{args.seed}.safetensors"
        set_seed(settings.seed)
        model, batches = cast(ViT, make_network(data, settings)), make_batches(data, settings)
        used = {"masked": [], "photos": ["photos"], "eight": ["photos"]}.get(name, ["images"])
        words = " ".join(
            f"--{word} {shlex.quote(str(getattr(args, word)))}"
            for word in used
            + ["epochs"] * bool(args.epochs)
            + ["device"] * (device != "cpu")
            + ["seed"]
        )
        notes, class_names = (
            {"command": f"python -m tools.pretrain {name} {words}"},
            data.class_names,
        )
        if name == "masked":
            model, class_names = reconstruct(model, batches, settings, device), ()
        else:
            notes |= classify(
                model,
                batches,
                data,
                settings,
                Checkpoint(path.with_suffix(".checkpoint"), args.resume),
                device,
            )
        if name == "photos":
            notes |= calibrate(model, data, device)
        preprocess = Preprocess(
            min(data.image_size), data.image_size, "bicubic", data.mean, data.std
        )
        save_weights(path, model.cpu().half(), preprocess, class_names, notes)
        print(f"weights: {path}", flush=True)


def reconstruct(model: ViT, batches: Batches, settings: RunSettings, device: str) -> ViT:
    """Train a masked autoencoder, and return its encoder, without a head."""
    say = "epoch {:3d}  mean squared error of hidden pixels {:.4f}".format
    autoencoder = MaskedAutoencoder(model, mask_ratio=0.5)
    pretrain(
        autoencoder,
        batches,
        settings.recipe,
        device,
        report=lambda *row: print(say(*row), flush=True),
    )
    return transfer_weights(model, num_classes=0)


def classify(
    model: ViT,
    batches: Batches,
    data: Data,
    settings: RunSettings,
    checkpoint: Checkpoint,
    device: str,
) -> dict[str, str]:
    """Train a classifier, round its weights to 16 bits, and return the notes for their file."""
    some = subset(
        data.validation, sample_rows(data.validation.labels, 1000)
    )  # enough to see how it goes
    history = fit(
        model,
        batches,
        Batches(some, 500, data.normalize),
        settings.recipe,
        device=device,
        callbacks=[checkpoint, Report()],
    )
    minutes = sum(epoch.train.images / epoch.images_per_second for epoch in history) / 60
    model.half().float()
    accuracy = {
        split: evaluate(model, data.batches(split, 500), device).accuracy
        for split in ("validation", "test")
    }
    scores = ", ".join(f"{split} {accuracy[split]:.4f}" for split in ("validation", "test"))
    print(f"{minutes:.0f} minutes, accuracy: {scores}")
    return {
        "minutes": f"{minutes:.0f}",
        **{f"{split} accuracy": f"{share:.4f}" for split, share in accuracy.items()},
    }


@torch.no_grad()
def calibrate(model: ViT, data: Data, device: str) -> dict[str, str]:
    """Fit the probabilities to the validation split; return a note of what is familiar."""
    logits, labels = predict(model, data.batches("validation", 500), device)
    temperature = fit_temperature(logits, labels)
    for parameter in model.head.parameters():
        parameter.div_(temperature)

    def features_of(batches: Batches) -> Tensor:
        return torch.cat(
            [model.pool(model.forward_features(images.to(device))).cpu() for images, _ in batches]
        )

    part = subset(data.train, sample_rows(data.train.labels, 10_000))
    features = features_of(Batches(part, 500, data.normalize))
    new = features_of(data.batches("validation", 500))
    return {
        "temperature": f"{temperature:.3f}",
        NOTE: Familiarity.from_features(features, part.labels, new).to_note(),
    }


def load_images(name: str, settings: RunSettings, args: Namespace) -> Data:
    """The images that a model is trained on"""
    if name in ("photos", "eight"):
        data = load_data(settings.replace(data=args.photos))
        return (
            data
            if name == "photos"
            else data.filter_classes(*(c for c in data.class_names if c not in LATER))
        )
    data = load("digits") if name == "masked" else load("scattered_digits", n=args.images)
    return data.filter_classes(*"0123456") if name == "seven" else data


if __name__ == "__main__":
    raise SystemExit(main())
