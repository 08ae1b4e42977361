"""Settings: plain names and values that determine a training run, their meaning, and presets.toml for each data set."""

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vit_helpers._validate import check_choice, check_int, to_2tuple
from vit_helpers.data import Data, load, subset
from vit_helpers.data.augment import (
    crop,
    cutmix,
    flip_crop,
    mixup,
    random_affine,
    random_erase,
    random_flip,
)
from vit_helpers.data.registry import SOURCES
from vit_helpers.data.splits import sample_rows
from vit_helpers.encoder import Block
from vit_helpers.training.cnn import CNN
from vit_helpers.training.measurements import FlipTTA
from vit_helpers.training.recipe import Recipe
from vit_helpers.vit import ViT, ViTConfig


class NormLastBlock(Block):
    """A post-norm block, as in the first Transformer: the norms follow the sums (arXiv 1706.03762)."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attn(x, mask))
        return self.norm2(x + self.mlp(x))

    def attention_weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """As `Block.attention_weights`; here no norm precedes the attention."""
        return self.attn.weights(x, mask)


NORMS = {"first": Block, "last": NormLastBlock}
AUGMENT = {"affine": random_affine, "crop": crop, "flip": random_flip, "flip_crop": flip_crop, "erase": random_erase,
           "none": None}  # fmt: skip
MIRRORS = (
    "flip",
    "flip_crop",
)  # of these, those that turn left into right, which changes what digits and letters mean
MIX: dict[str, Callable[..., tuple[Tensor, Tensor]] | None] = {
    "mixup": mixup,
    "cutmix": cutmix,
    "none": None,
}
TUNE = ("full", "head", "lora")
SHAPE = {f.name for f in fields(ViTConfig)}
RECIPE = {f.name for f in fields(Recipe)}
RENAMED = {"token_rate": "token_lr_mult", "mirror": "tta"}  # since version 0.1


def make_config(model: str, **shape: Any) -> ViTConfig:
    """`ViTConfig.from_name`; for images that the patches do not divide, the ValueError names sides of patches that do."""
    try:
        return ViTConfig.from_name(model, **shape)
    except ValueError as error:
        if "does not divide into patches" not in str(error):
            raise
        largest = math.gcd(*to_2tuple(shape["image_size"]))
        sides = ", ".join(str(side) for side in range(1, largest + 1) if largest % side == 0)
        raise ValueError(f"{error}; sides that do are {sides}") from error


@dataclass(frozen=True)
class RunSettings:
    """All that determines a training run. `from_dict` and `replace` take every setting by its own name, as in lr=1e-3.

    data      : name of the data set, as for `load`;  split: how a folder is divided, "hash" or "exact" (`data.folders`)
    model     : size of the model with its patch side, as in "mini/2";  shape: fields of `ViTConfig` that differ from it
    recipe    : how it is trained
    network   : "vit", or "cnn" of this width
    norm      : "first" (pre-norm) or "last" (post-norm)
    batch_size: images per step
    images    : how many training images; None for all;  repeat: how often each comes in an epoch
    augment   : "affine", "crop", "flip", "flip_crop", "erase" or "none";  mix: "mixup", "cutmix" or "none"
    tta       : whether testing also uses the mirror images (`FlipTTA`)
    seed      : of all random numbers
    patience  : stop after this many epochs without a better one on the validation split; None for never
    weights   : a trained model to start from, as for `load_pretrained`, which determines the shape; None for none
    tune      : "full" trains all its weights, "head" only a new head, "lora" updates of this `rank` and the head
    raises    : ValueError or TypeError naming what does not fit

    >>> RunSettings.from_dict({"lr": 1e-3, "depth": 4}).replace(epochs=3)
    RunSettings(model='mini/2', depth=4, epochs=3, lr=0.001)
    """

    data: str = "digits"
    split: str = "hash"
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
        for name, known in (("norm", NORMS), ("augment", AUGMENT), ("mix", MIX), ("network", ("vit", "cnn")),
                            ("split", ("hash", "exact")), ("tta", (True, False)), ("tune", TUNE)):  # fmt: skip
            check_choice(name, getattr(self, name), known)
        least = {"width": 1, "batch_size": 1, "repeat": 1, "rank": 1, "seed": -(2**63)}
        least |= {name: 1 for name in ("images", "patience") if getattr(self, name) is not None}
        for name, lowest in least.items():  # numpy's integers become Python's
            object.__setattr__(self, name, check_int(name, getattr(self, name), lowest))
        if self.weights is not None:
            other = [
                name
                for name, usual in (("network", "vit"), ("norm", "first"))
                if getattr(self, name) != usual
            ]
            other += sorted(
                self.shape.keys() - {"image_size", "dropout", "attn_dropout", "num_heads"}
            )
            if other:
                raise ValueError(
                    f"the weights {self.weights} determine {', '.join(other)}: leave out what sets it"
                )
        elif self.network == "vit":
            patch = str(self.shape.get("patch_size", self.model.partition("/")[2]))
            make_config(
                self.model, **{"image_size": int(patch) if patch.isdecimal() else 1, **self.shape}
            )

    @property
    def keeps_weights(self) -> bool:
        """Whether the network is one that `save_weights` can describe"""
        return self.network == "vit" and self.norm == "first"

    @property
    def image_size(self) -> tuple[int, int] | None:
        """(H, W) that photos are resized to; None for that of the data set, or of the weights"""
        return to_2tuple(self.shape["image_size"]) if "image_size" in self.shape else None

    def __str__(self) -> str:
        """What a reader wants to know about a run before it starts, in words."""
        mirrored = "mirrored at random" if self.augment in MIRRORS else "not mirrored"
        mix = f", {self.mix}" * (self.mix != "none")
        r = self.recipe
        steps = f"{r.optimizer}, learning rate {r.lr:g}, {r.schedule}, {r.epochs} epochs, batches of {self.batch_size}"
        return f"augmentation {self.augment}{mix} (images are {mirrored}); {steps}"

    def __repr__(self) -> str:
        return f"RunSettings({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "RunSettings":
        """Settings by name: fields of `ViTConfig`, `Recipe` or this class, as for `replace`."""
        return cls().replace(**settings)

    def replace(
        self, size: str | None = None, patch: int | None = None, **settings: Any
    ) -> "RunSettings":
        """These settings with some changed, by name (version 0.1's, too), or another size or patch side of the model.

        A size has its own width, depth and heads.
        raises: ValueError for an unknown name, and for a model beside a size or a patch side
        """
        settings = {RENAMED.get(name, name): value for name, value in settings.items()}
        kept = {
            k: v
            for k, v in self.shape.items()
            if size is None or k not in ("embed_dim", "depth", "num_heads")
        }
        if settings.get("weights") not in (None, self.weights):  # they bring their own
            kept = {}
        if size is not None or patch is not None:
            if (model := settings.get("model")) is not None:
                raise ValueError(
                    f"give a model, or a size and a patch side: got model {model!r}, {size=}, {patch=}"
                )
            old_size, _, old_patch = self.model.partition("/")
            settings["model"] = (
                f"{old_size if size is None else size}/{old_patch if patch is None else patch}"
            )
        known = {f.name for f in fields(self)} - {"shape", "recipe"} | SHAPE | RECIPE
        if unknown := sorted(settings.keys() - known):
            near = [f"{name!r}" for one in unknown for name in get_close_matches(one, known, n=1)]
            meant = f" (did you mean {' and '.join(near)}?)" if near else ""
            raise ValueError(
                f"unknown setting {', '.join(unknown)}{meant}, known: {', '.join(sorted(known))}"
            )
        shape, recipe = (
            {k: settings.pop(k) for k in list(settings) if k in names} for names in (SHAPE, RECIPE)
        )
        return replace(
            self, shape={**kept, **shape}, recipe=replace(self.recipe, **recipe), **settings
        )

    def to_dict(self) -> dict[str, Any]:
        """Every setting by name, a plain dict that `from_dict` reads."""
        own = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("shape", "recipe")
        }
        return {**own, **self.shape, **asdict(self.recipe)}

    def changed(self) -> dict[str, Any]:
        """The model, and the settings that differ from their default, as one would write them into a table."""
        default = RunSettings().to_dict()
        return {
            k: v
            for k, v in self.to_dict().items()
            if k == "model" or k not in default or v != default[k]
        }


DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FINE_TUNING = DECLARED.pop("fine-tuning")  # {how: settings that replace a data set's}
PRESETS = {
    name: RunSettings.from_dict({"data": name, **settings}) for name, settings in DECLARED.items()
}


def preset(data: str, **changes: Any) -> RunSettings:
    """A data set's settings by its name, as "folder:PATH", with some changed; for "shards:PATH" those of what is inside.

    With `weights` among the changes, the settings for fine-tuning in presets.toml replace those of the data set.
    raises: ValueError for a size, patch side or model beside weights
    """
    name = str(data).partition(":")[0]
    if name == "shards":
        written = load(data).name
        name = written if written in PRESETS else "folder"
    settings = PRESETS.get(name, RunSettings())
    if weights := changes.get("weights"):
        if given := sorted(changes.keys() & {"size", "patch", "model"}):
            raise ValueError(
                f"the weights {weights} determine {', '.join(given)}: leave out what sets it"
            )
        check_choice("tune", tune := changes.get("tune", "full"), TUNE)
        changes = {**FINE_TUNING[tune], **changes}
    elif given := sorted(changes.keys() & {"tune", "rank"}):
        raise ValueError(
            f"{', '.join(given)}: there is nothing to fine-tune without weights (--weights)"
        )
    return settings.replace(**{"data": data, **changes})


def given_settings(options: Mapping[str, Any], pairs: Iterable[str]) -> dict[str, Any]:
    """Options that are not None, and texts "name=value", each value as in a TOML table; quotes may be left out.

    raises: ValueError for a text without a name or a value, and for a name that comes twice

    >>> given_settings({"epochs": None, "seed": 1}, ["depth=4", "lr=1e-3", "tta=true", "augment=none"])
    {'seed': 1, 'depth': 4, 'lr': 0.001, 'tta': True, 'augment': 'none'}
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
    settings: RunSettings, image_size: tuple[int, int] | None = None, **reading: Any
) -> Any:
    """The data set of a run. Photos get the size in the settings, or if there is none, `image_size`.

    reading: other options of `data.folders.folder`
    raises : ValueError for such an option of another data set, or for a size that images which are not resized do not have
    """
    wanted, name = settings.image_size, settings.data
    if name.startswith("folder:"):
        reading["split"] = settings.split
    elif settings.split != "hash" or reading:
        raise ValueError(
            f"{name} is already divided into splits: split, skip_broken and cache are options for folder:PATH"
        )
    source = SOURCES.get(name.partition(":")[0])
    if source is not None and source.resizes and (size := wanted or image_size):
        if size[0] != size[1]:
            raise ValueError(
                f"photos are cropped to a square, got the image size {size[0]} x {size[1]}"
            )
        reading["image_size"] = size[0]
    data = load(name, **reading)
    if wanted and tuple(data.image_size) != wanted:
        sizes = "{} x {} pixels, not {} x {}".format(*data.image_size, *wanted)
        raise ValueError(
            f"the images of {name} have {sizes}: only those of folder:PATH and pizza_steak_sushi are resized"
        )
    return data


def make_network(data: Data, settings: RunSettings) -> nn.Module:
    """The network of a run, untrained, for the images and classes of a data set."""
    K = len(data.class_names)
    for name, own in (("num_classes", K), ("in_chans", data.in_chans)):
        if (wanted := settings.shape.get(name, own)) != own:
            raise ValueError(
                f"{settings.data} has {name} {own}, not {wanted}: leave out what sets it"
            )
    if settings.network == "cnn":
        return CNN(data.in_chans, K, settings.width)
    shape = {
        "image_size": data.image_size,
        "in_chans": data.in_chans,
        "num_classes": K,
        **settings.shape,
    }
    config = make_config(settings.model, **shape)
    options = {
        name: getattr(config, name) for name in ("mlp_ratio", "dropout", "attn_dropout", "norm_eps")
    }
    return ViT(config, partial(NORMS[settings.norm], **options))


def with_tta(model: nn.Module, settings: RunSettings) -> nn.Module:
    """The trained network as it is tested: with test-time augmentation if the settings ask for it."""
    return FlipTTA(model) if settings.tta else model


def make_batches(data: Data, settings: RunSettings) -> Any:
    """The training batches of a run, shuffled and augmented; ValueError if `images` or `repeat` would change a stream."""
    if (settings.images, settings.repeat) != (None, 1):
        if not isinstance(data, Data):
            raise ValueError(
                f"{data.name} is a stream from shards: images and repeat can be set for data in memory only"
            )
        rows = sample_rows(data.train.labels, settings.images).repeat_interleave(settings.repeat)
        data = replace(data, train=subset(data.train, rows))
    mix, augment = MIX[settings.mix], AUGMENT[settings.augment]
    mix = mix and partial(mix, num_classes=len(data.class_names))
    return data.batches("train", settings.batch_size, shuffle=True, augment=augment, mix=mix)
