"""Settings: names and values that determine a training run; presets.toml for each data set."""

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vit_helpers._validate import check_choice, check_int, to_2tuple
from vit_helpers.data import Data, load, subset
from vit_helpers.data.augment import (
    augment_photos,
    crop,
    cutmix,
    flip_crop,
    mixup,
    random_affine,
    random_erase,
    random_flip,
)
from vit_helpers.data.images import check_white
from vit_helpers.data.registry import SOURCES
from vit_helpers.data.splits import sample_rows
from vit_helpers.encoder import Block
from vit_helpers.training.cnn import CNN
from vit_helpers.training.measurements import FlipTTA
from vit_helpers.training.recipe import Recipe
from vit_helpers.vit import POOLS, ViT, ViTConfig


class NormLastBlock(Block):
    """A post-norm block, as in the first Transformer (arXiv 1706.03762): norms follow sums."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attn(x, mask))
        return self.norm2(x + self.mlp(x))

    def attention_weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """As `Block.attention_weights`; here no norm precedes the attention."""
        return self.attn.weights(x, mask)


NORMS = ("first", "last")
AUGMENT = {
    "affine": random_affine,
    "crop": crop,
    "flip": random_flip,
    "flip_crop": flip_crop,
    "erase": random_erase,
    "photos": augment_photos,
    "none": None,
}
# Of these, those that turn left into right, which changes what digits and letters mean
MIRRORS = ("flip", "flip_crop", "photos")
MIX: dict[str, Callable[..., tuple[Tensor, Tensor]] | None] = {
    "mixup": mixup,
    "cutmix": cutmix,
    "none": None,
}
TUNE = ("full", "head", "lora")
SHAPE = {f.name for f in fields(ViTConfig)}
RECIPE = {f.name for f in fields(Recipe)}
SIZE = {"embed_dim", "depth", "num_heads"}  # what a size of the model stands for
# What a CNN has none of; image_size, in_chans and num_classes are of the data
OF_VIT = SHAPE - {"image_size", "in_chans", "num_classes"}
OF_VIT |= {"model", "size", "patch", "norm", "token_lr_mult"}


def name_sides(error: ValueError, image_size: tuple[int, int]) -> ValueError:
    """Add to the error about patches that do not divide an image the sides of patches that do."""
    if "does not divide into patches" not in str(error):
        return error
    largest = math.gcd(*image_size)
    sides = ", ".join(str(side) for side in range(1, largest + 1) if largest % side == 0)
    return ValueError(f"{error}; sides that do are {sides}")


@dataclass(frozen=True)
class RunSettings:
    """All that determines a training run. `from_dict` and `replace` take every setting by its name.

    data      : name of the data set, as for `load`
    split     : how a folder is divided, "hash" or "exact" (`data.folders`)
    white     : the value of white in a folder's gray images of more than 8 bits; None to find it
    model     : size of the model with its patch side, as in "mini/2"
    shape     : fields of `ViTConfig` that differ from it
    recipe    : how it is trained
    network   : "vit", or "cnn" of this width
    norm      : "first" (pre-norm) or "last" (post-norm)
    batch_size: images per step
    images    : how many training images; None for all
    repeat    : how often each comes in an epoch
    augment   : "affine", "crop", "flip", "flip_crop", "erase", "photos" or "none"
    mix       : "mixup", "cutmix" or "none"
    tta       : whether testing also uses the mirror images (`FlipTTA`)
    seed      : of all random numbers
    patience  : stop after this many epochs without a better one in validation; None for never
    weights   : a trained model to start from, as for `load_pretrained`, which determines the shape;
                None for none
    tune      : "full" trains all its weights, "head" only a new head (`train` then augments each
                image a few times, and repeats these views), "lora" updates of this `rank` and the
                head
    raises    : ValueError or TypeError naming what does not fit

    >>> RunSettings.from_dict({"lr": 1e-3, "depth": 4}).replace(epochs=3)
    RunSettings(model='mini/2', depth=4, epochs=3, lr=0.001)
    """

    data: str = "digits"
    split: str = "hash"
    white: float | None = None
    model: str = "mini/2"
    shape: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = Recipe()  # noqa: RUF009  frozen
    network: str = "vit"
    width: int = 34
    norm: str = "first"
    batch_size: int = 64
    images: int | None = None
    repeat: int = 1
    augment: str = "affine"
    mix: str = "none"
    tta: bool = False
    seed: int = 0
    patience: int | None = None
    weights: str | None = None
    tune: str = "full"
    rank: int = 8

    def __post_init__(self) -> None:
        for name in ("data", "model"):  # numbers become names, which are unknown
            object.__setattr__(self, name, str(getattr(self, name)))
        check_choice("norm", self.norm, NORMS)
        check_choice("augment", self.augment, AUGMENT)
        check_choice("mix", self.mix, MIX)
        check_choice("network", self.network, ("vit", "cnn"))
        check_choice("split", self.split, ("hash", "exact"))
        check_choice("tta", self.tta, (True, False))
        check_choice("tune", self.tune, TUNE)
        lowest = {"width": 1, "batch_size": 1, "repeat": 1, "rank": 1, "seed": -(2**63)}
        lowest |= {name: 1 for name in ("images", "patience") if getattr(self, name) is not None}
        for name, least in lowest.items():  # numpy's integers become Python's
            object.__setattr__(self, name, check_int(name, getattr(self, name), least))
        check_white(self.white)
        if self.weights is not None:
            self.check_weights()
        elif self.network == "vit":
            self.check_pool()

    def check_pool(self) -> None:
        """Raise ValueError if fields of the architecture do not fit, or if it pools no tokens."""
        if self.config.pool == "none":
            pools = ", ".join(pool for pool in POOLS if pool != "none")
            raise ValueError(
                'pool "none" gives logits for each token, but training needs them for each image, '
                f"(B, K): choose one of {pools}"
            )

    def check_weights(self) -> None:
        """Raise ValueError if the settings contradict weights, which bring their own shape."""
        free = {"image_size", "dropout", "attn_dropout", "num_heads"}
        determined = sorted(self.shape.keys() - free)
        if self.norm != "first":
            determined.insert(0, "norm")
        if self.network != "vit":
            determined.insert(0, "network")
        if determined:
            raise ValueError(
                f"the weights {self.weights} determine {', '.join(determined)}: "
                "leave out what sets it"
            )

    def check_effect(self, names: Iterable[str]) -> None:
        """Raise ValueError if a setting among these, which somebody gave, changes nothing here."""
        idle = {"width": "the width of a ViT is embed_dim"}
        if self.network == "cnn":
            idle = dict.fromkeys(OF_VIT, "a CNN has only a width")
        if self.tune != "lora":
            idle["rank"] = "only the updates of tune=lora have one"
        if self.weights is None:
            idle["tune"] = "there are no weights to fine-tune"
        elif self.tune != "full":
            idle["token_lr_mult"] = f"tune={self.tune} trains no tokens"
        for name in names:
            if name in idle:
                raise ValueError(f"{name} has no effect: {idle[name]}")

    @cached_property
    def config(self) -> ViTConfig:
        """The architecture of a ViT; `make_network` adds what is known with the data.

        Where the settings have no image size, it is for an image of one patch.
        """
        patch = str(self.shape.get("patch_size", self.model.partition("/")[2]))
        image_size = self.image_size or to_2tuple(max(1, int(patch)) if patch.isdecimal() else 1)
        try:
            return ViTConfig.from_name(self.model, **{**self.shape, "image_size": image_size})
        except ValueError as error:
            raise name_sides(error, image_size) from None

    @property
    def keeps_weights(self) -> bool:
        """Whether the network is one that `save_weights` can describe"""
        return self.network == "vit" and self.norm == "first"

    @property
    def image_size(self) -> tuple[int, int] | None:
        """(H, W) that photos are resized to; None for that of the data set, or of the weights"""
        return to_2tuple(self.shape["image_size"]) if "image_size" in self.shape else None

    def __str__(self) -> str:
        """Say what a reader wants to know about a run before it starts."""
        mirrored = "mirrored at random" if self.augment in MIRRORS else "not mirrored"
        mix = "" if self.mix == "none" else f", {self.mix}"
        recipe = self.recipe
        return (
            f"augmentation {self.augment}{mix} (images are {mirrored}); "
            f"{recipe.optimizer}, learning rate {recipe.lr:g}, {recipe.schedule}, "
            f"{recipe.epochs} epoch{'s' if recipe.epochs > 1 else ''}, "
            f"batches of {self.batch_size}"
        )

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.changed().items())
        return f"RunSettings({settings})"

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "RunSettings":
        """Make settings by name: fields of `ViTConfig`, `Recipe` or this class.

        raises: ValueError for an unknown name
        """
        known = {f.name for f in fields(cls)} - {"shape", "recipe"} | SHAPE | RECIPE
        if unknown := sorted(settings.keys() - known):
            # 0.75: a misspelling, while class_weights and drop_path are other things
            matches = [get_close_matches(name, known, n=1, cutoff=0.75) for name in unknown]
            near = [repr(match[0]) for match in matches if match]
            meant = f" (did you mean {' and '.join(near)}?)" if near else ""
            raise ValueError(
                f"unknown setting {', '.join(unknown)}{meant}, known: {', '.join(sorted(known))}"
            )
        shape = {name: value for name, value in settings.items() if name in SHAPE}
        recipe = {name: value for name, value in settings.items() if name in RECIPE}
        own = {name: settings[name] for name in settings if name not in SHAPE | RECIPE}
        return cls(shape=shape, recipe=Recipe(**recipe), **own)

    def replace(self, **changes: Any) -> "RunSettings":
        """Return these settings with some changed, by name.

        raises: ValueError for a change without effect, see `check_effect`
        """
        settings = self.from_dict({**self.to_dict(), **changes})
        settings.check_effect(changes)
        return settings

    def to_dict(self) -> dict[str, Any]:
        """Return every setting by name, a plain dict that `from_dict` reads."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        shape, recipe = own.pop("shape"), own.pop("recipe")
        return {**own, **shape, **asdict(recipe)}

    def changed(self) -> dict[str, Any]:
        """Return the model, and settings that differ from their default, as in a table."""
        default = RunSettings().to_dict()
        settings = self.to_dict()
        same = {name for name, value in default.items() if settings[name] == value} - {"model"}
        return {name: value for name, value in settings.items() if name not in same}


PRESETS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
FINE_TUNING = PRESETS.pop("fine-tuning")  # {how: settings that replace a data set's}


def preset(data: str, **changes: Any) -> RunSettings:
    """Return a data set's settings by its name, as "folder:PATH", with some changed.

    For "shards:PATH" they are those of what is inside. With `weights` among the changes, the
    settings for fine-tuning in presets.toml replace those of the data set.
    changes: as for `override`
    raises : ValueError for a size, patch side or model beside weights, and for a change without
             effect
    """
    name = str(data).partition(":")[0]
    if name == "shards":
        written = load(data).name
        name = written if written in PRESETS else "folder"
    declared = PRESETS.get(name, {})
    if weights := changes.get("weights"):
        if given := sorted(changes.keys() & {"size", "patch", "model"}):
            names = ", ".join(given)
            raise ValueError(f"the weights {weights} determine {names}: leave out what sets it")
        tune = changes.get("tune", "full")
        check_choice("tune", tune, TUNE)
        declared = {name: value for name, value in declared.items() if name not in SHAPE}
        declared |= FINE_TUNING[tune]
    elif given := sorted(changes.keys() & {"tune", "rank"}):
        names = ", ".join(given)
        raise ValueError(f"{names}: there is nothing to fine-tune without weights (--weights)")
    settings = RunSettings.from_dict(override({"data": data, **declared}, changes))
    settings.check_effect(changes)
    return settings


def override(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name with some changed.

    Among the changes, which a person wrote, a "size" or a "patch" (side) may change a part of the
    model; a size has its own width, depth and heads.
    raises: ValueError for a model beside a size or a patch side

    >>> override({"model": "mini/4", "depth": 3, "lr": 1e-3}, {"size": "Ti"})
    {'model': 'Ti/4', 'lr': 0.001}
    """
    parts = {name: changes[name] for name in ("size", "patch") if name in changes}
    if not parts:
        return {**settings, **changes}
    if "model" in changes:
        given = ", ".join(f"{name} {changes[name]!r}" for name in ("model", *parts))
        raise ValueError(f"give a model, or a size and a patch side: got {given}")
    size, _, patch = settings.get("model", RunSettings.model).partition("/")
    model = f"{parts.get('size', size)}/{parts.get('patch', patch)}"
    kept = {name: v for name, v in settings.items() if "size" not in parts or name not in SIZE}
    changes = {name: value for name, value in changes.items() if name not in parts}
    return {**kept, "model": model, **changes}


def given_settings(options: Mapping[str, Any], pairs: Iterable[str]) -> dict[str, Any]:
    """Collect options that are not None, and texts "name=value", each value as in a TOML table.

    Quotes may be left out.
    raises: ValueError for a text without a name or a value, and for a name that comes twice

    >>> given_settings({"epochs": None, "seed": 1}, ["depth=4", "lr=1e-3", "augment=none"])
    {'seed': 1, 'depth': 4, 'lr': 0.001, 'augment': 'none'}
    """
    settings = {name: value for name, value in options.items() if value is not None}
    for pair in pairs:
        name, _, value = (part.strip() for part in pair.partition("="))
        if not name or not value:
            raise ValueError(f"expected NAME=VALUE, as in depth=4, got {pair!r}")
        if name in settings:
            raise ValueError(f"{name} is given twice: {settings[name]} and {value}")
        try:
            settings[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[name] = value
    return settings


def load_data(
    settings: RunSettings, image_size: tuple[int, int] | None = None, **options: Any
) -> Any:
    """Load the data set of a run. Photos get the size in the settings, or else `image_size`.

    options: others of `data.folders.folder`
    raises : ValueError for such an option of another data set, or for a size that images which are
             not resized do not have
    """
    name, wanted = settings.data, settings.image_size
    kind = name.partition(":")[0]
    size, source = wanted or image_size, SOURCES.get(kind)
    if kind == "folder":
        options |= {"split": settings.split, "white": settings.white}
    elif source and (settings.split != "hash" or settings.white or options):
        raise ValueError(
            f"{name} is already divided into splits and read: "
            "split, white, skip_broken and cache are options for folder:PATH"
        )
    if source is None:
        options = {}  # for an unknown name, which the error is about
    if size and source is not None and source.resizes:
        height, width = size
        if height != width:
            raise ValueError(
                f"photos are cropped to a square, got the image size {height} x {width}"
            )
        options["image_size"] = height
    data = load(name, **options)
    if wanted and tuple(data.image_size) != wanted:
        sizes = "{} x {} pixels, not {} x {}".format(*data.image_size, *wanted)
        raise ValueError(
            f"the images of {name} have {sizes}: "
            "only those of folder:PATH and pizza_steak_sushi are resized"
        )
    return data


def make_batches(data: Data, settings: RunSettings, shuffle: bool = True) -> Any:
    """Make the training batches of a run, augmented, and shuffled unless they shall not be.

    raises: ValueError if `images` or `repeat` would change a stream
    """
    if (settings.images, settings.repeat) != (None, 1):
        if not isinstance(data, Data):
            raise ValueError(
                f"{data.name} is a stream from shards: "
                "images and repeat can be set for data in memory only"
            )
        rows = sample_rows(data.train.labels, settings.images).repeat_interleave(settings.repeat)
        data = replace(data, train=subset(data.train, rows))
    mix, augment = MIX[settings.mix], AUGMENT[settings.augment]
    mix = mix and partial(mix, num_classes=len(data.class_names))
    return data.batches("train", settings.batch_size, shuffle=shuffle, augment=augment, mix=mix)


def make_network(data: Data, settings: RunSettings) -> nn.Module:
    """Make the network of a run, untrained, for the images and classes of a data set."""
    K = len(data.class_names)
    for name, value in (("num_classes", K), ("in_chans", data.in_chans)):
        wanted = settings.shape.get(name, value)
        if wanted != value:
            raise ValueError(
                f"{settings.data} has {name} {value}, not {wanted}: leave out what sets it"
            )
    if settings.network == "cnn":
        return CNN(data.in_chans, K, settings.width)
    image_size = to_2tuple(settings.image_size or data.image_size)
    known: dict[str, Any] = {"in_chans": data.in_chans, "num_classes": K}
    try:
        config = replace(settings.config, image_size=image_size, **known)
    except ValueError as error:
        raise name_sides(error, image_size) from None
    if settings.norm == "first":
        return ViT(config)
    block = partial(
        NormLastBlock,
        mlp_ratio=config.mlp_ratio,
        dropout=config.dropout,
        attn_dropout=config.attn_dropout,
        norm_eps=config.norm_eps,
    )
    return ViT(config, block)


def with_tta(model: nn.Module, settings: RunSettings) -> nn.Module:
    """Return the network as it is tested: with test-time augmentation if the settings say so."""
    return FlipTTA(model) if settings.tta else model
