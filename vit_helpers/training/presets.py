"""Settings: plain names and values that decide a whole run, and what they stand for.  For tables and commands."""

from dataclasses import fields, replace
from functools import partial

import torch

from vit_helpers.data import Data, load, subset
from vit_helpers.data.augment import cutmix, mixup, random_affine, random_crop, random_erase, random_flip
from vit_helpers.encoder import Block
from vit_helpers.training import FlipTTA
from vit_helpers.training.cnn import CNN
from vit_helpers.training.recipe import Recipe
from vit_helpers.vit import ViT, ViTConfig


class NormLastBlock(Block):
    """A block as the first Transformer had it: the norms stand after the sums (Vaswani et al., arXiv 1706.03762)"""

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attn(x, mask))
        return self.norm2(x + self.mlp(x))


def flip_crop(images):
    """Mirrored or not, and moved by up to 2 pixels: (B, C, H, W) -> (B, C, H, W)"""
    return random_crop(random_flip(images), padding=2)


MODEL = {f.name for f in fields(ViTConfig)}
RECIPE = {f.name for f in fields(Recipe)}
NORMS = {"first": Block, "last": NormLastBlock}
AUGMENT = {"affine": random_affine, "flip": random_flip, "flip_crop": flip_crop, "erase": random_erase, "none": None}
MIX = {"mixup": mixup, "cutmix": cutmix, "none": None}
DATA_DEFAULTS = {  # what can be set beside the fields of `ViTConfig` and `Recipe`, and what holds where it is not
    "model": "mini/2",  # a size with its patch side
    "network": "vit",  # or "cnn", of this width:
    "width": 34,
    "norm": "first",  # or "last"
    "batch_size": 64,
    "images": None,  # how many training images; all
    "repeat": 1,  # how often each comes in an epoch
    "augment": "affine",
    "mix": "none",
    "mirror": False,  # whether the test looks at mirror images too, `training.Mirrored`
}
PRESETS = {  # searched for digits and Fashion-MNIST (README says how); the others are places to start from, not tuned
    "digits": {"model": "mini/4"},
    "scattered_digits": {"model": "mini/4", "augment": "none", "optimizer": "muon", "epochs": 20},
    "fashion_mnist": {
        "model": "mini/14",
        "embed_dim": 96,
        "depth": 3,
        "num_heads": 12,
        "mlp_ratio": 2.0,
        "class_token": False,
        "pool": "avg",
        "augment": "flip",
        "mirror": True,
        "optimizer": "muon",
        "epochs": 12,
        "batch_size": 512,
        "lr": 4e-3,
        "label_smoothing": 0.0,
    },
    "cifar10": {"model": "mini/4", "depth": 4, "augment": "flip_crop", "optimizer": "muon", "epochs": 20, "batch_size": 128},
    "pizza_steak_sushi": {"model": "mini/8", "augment": "flip_crop"},
    "folder": {"model": "mini/8", "augment": "flip_crop"},
}


def preset(data):
    """The settings for a data set by its name, "digits" or "folder:PATH": a dict of its own

    Of "shards:PATH" they are those of the data set that was written there.
    """
    name = data.partition(":")[0]
    if name == "shards":
        written = load(data).name
        name = written if written in PRESETS else "folder"
    return dict(PRESETS.get(name, {}))


def check_settings(name, settings):
    """ValueError, with the name and all that can be set, when there is a setting that nobody knows"""
    if not isinstance(settings, dict):
        raise ValueError(f"{name}: expected settings, as {{lr = 0.001}}, got {settings!r}")
    known = MODEL | RECIPE | DATA_DEFAULTS.keys()
    if unknown := settings.keys() - known:
        raise ValueError(f"{name}: unknown setting {', '.join(sorted(unknown))}, known: {', '.join(sorted(known))}")
    for key, choices in (("norm", NORMS), ("augment", AUGMENT), ("mix", MIX), ("network", ("vit", "cnn"))):
        if settings.get(key, DATA_DEFAULTS[key]) not in choices:
            raise ValueError(f"{name}: unknown {key} {settings[key]!r}, known: {', '.join(choices)}")


def make_recipe(settings):
    """The `Recipe` of a run"""
    return replace(Recipe(), **{name: value for name, value in settings.items() if name in RECIPE})


def make_network(data, settings):
    """The network of a run, untrained, for the images and classes of a data set"""
    other = DATA_DEFAULTS | settings
    K = len(data.class_names)
    if other["network"] == "cnn":
        return CNN(data.in_chans, K, other["width"])
    shape = {"image_size": data.image_size, "in_chans": data.in_chans, "num_classes": K}
    shape |= {name: value for name, value in settings.items() if name in MODEL}
    config = ViTConfig.from_name(other["model"], **shape)
    block = partial(
        NORMS[other["norm"]],
        mlp_ratio=config.mlp_ratio,
        dropout=config.dropout,
        attn_dropout=config.attn_dropout,
        norm_eps=config.norm_eps,
    )
    return ViT(config, block)


def with_tta(model, settings):
    """The trained network as it is to be tested"""
    return FlipTTA(model) if settings.get("mirror") else model


def make_batches(data, settings):
    """The training batches of a run: shuffled and augmented"""
    other = DATA_DEFAULTS | settings
    data = with_images(data, other["images"], other["repeat"])
    mix = MIX[other["mix"]] and partial(MIX[other["mix"]], num_classes=len(data.class_names))
    augment = AUGMENT[other["augment"]]
    return data.batches("train", other["batch_size"], shuffle=True, augment=augment, mix=mix)


def with_images(data, images, repeat):
    """The data set with the first `images` of its training part alone, or all for None, each `repeat` times

    raises: ValueError where that would change a stream
    """
    if images is None and repeat == 1:
        return data
    if not isinstance(data, Data):
        raise ValueError(f"{data.name} is a stream from shards: images and repeat can be set for data in memory alone")
    rows = torch.arange(len(data.train))[:images].repeat_interleave(repeat)
    return replace(data, train=subset(data.train, rows))
