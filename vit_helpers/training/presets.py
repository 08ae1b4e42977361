"""Settings: plain names and values that decide a training run, what they stand for, and presets.toml for each data set."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers._validate import check_choice, check_int
from vit_helpers.data import Data, load, subset
from vit_helpers.data.augment import cutmix, mixup, random_affine, random_crop, random_erase, random_flip
from vit_helpers.encoder import Block
from vit_helpers.training.cnn import CNN
from vit_helpers.training.measurements import FlipTTA
from vit_helpers.training.recipe import Recipe
from vit_helpers.vit import ViT, ViTConfig


class NormLastBlock(Block):
    """A post-norm block, as in the first Transformer: the norms follow the sums (Vaswani et al., arXiv 1706.03762)."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attn(x, mask))
        return self.norm2(x + self.mlp(x))

    def attention_weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """As `Block.attention_weights`, of the tokens as they come: here no norm precedes the attention."""
        return self.attn.weights(x, mask)


def flip_crop(images: Tensor) -> Tensor:
    """Mirrored or not, and moved by up to 2 pixels: (B, C, H, W) -> (B, C, H, W)"""
    return random_crop(random_flip(images), padding=2)


NORMS = {"first": Block, "last": NormLastBlock}
AUGMENT = {"affine": random_affine, "flip": random_flip, "flip_crop": flip_crop, "erase": random_erase, "none": None}
MIX: dict[str, Callable[..., tuple[Tensor, Tensor]] | None] = {"mixup": mixup, "cutmix": cutmix, "none": None}
SHAPE = {f.name for f in fields(ViTConfig)}
RECIPE = {f.name for f in fields(Recipe)}
RENAMED = {"token_rate": "token_lr_mult", "mirror": "tta"}  # since version 0.1


@dataclass(frozen=True)
class RunSettings:
    """All that decides a training run. `from_dict` and `replace` take every setting by its own name, as in lr=1e-3.

    data      : name of the data set, as for `load`;  split: how a folder is divided, "hash" or "exact" (`data.folders`)
    model     : size of the model with its patch side, as in "mini/2";  shape: fields of `ViTConfig` that differ from it
    recipe    : how it is trained
    network   : "vit", or "cnn" of this width
    norm      : "first" (pre-norm) or "last" (post-norm)
    batch_size: images per step
    images    : how many training images; None for all;  repeat: how often each comes in an epoch
    augment   : "affine", "flip", "flip_crop", "erase" or "none";  mix: "mixup", "cutmix" or "none"
    tta       : whether testing also looks at the mirror images (`FlipTTA`)
    seed      : start of all random draws
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

    def __post_init__(self) -> None:
        for name, known in (
            ("norm", NORMS),
            ("augment", AUGMENT),
            ("mix", MIX),
            ("network", ("vit", "cnn")),
            ("split", ("hash", "exact")),
        ):
            check_choice(name, getattr(self, name), known)
        least = {"width": 1, "batch_size": 1, "repeat": 1, "seed": -(2**63)} | ({} if self.images is None else {"images": 1})
        for name, lowest in least.items():  # numpy's integers become Python's
            object.__setattr__(self, name, check_int(name, getattr(self, name), lowest))
        if self.network == "vit":
            patch = str(self.shape.get("patch_size", self.model.partition("/")[2]))
            ViTConfig.from_name(self.model, **{"image_size": int(patch) if patch.isdecimal() else 1, **self.shape})

    def __repr__(self) -> str:
        return f"RunSettings({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "RunSettings":
        """Settings by name: fields of `ViTConfig`, `Recipe` or this class, or version 0.1's; ValueError for unknown ones."""
        return cls().replace(**settings)

    def replace(self, size: str | None = None, patch: int | None = None, **settings: Any) -> "RunSettings":
        """These settings with some changed, by name as in `from_dict`, or with another size or patch side of the model.

        A size that is named has its own width, depth and heads.
        raises: ValueError for an unknown name, and for a model beside a size or a patch side: none of them is ignored
        """
        settings = {RENAMED.get(name, name): value for name, value in settings.items()}
        old_size, _, old_patch = self.model.partition("/")
        kept = {k: v for k, v in self.shape.items() if size is None or k not in ("embed_dim", "depth", "num_heads")}
        if size is not None or patch is not None:
            if "model" in settings:
                raise ValueError(
                    f"give a model, or a size and a patch side: got model {settings['model']!r}, {size=}, {patch=}"
                )
            settings["model"] = f"{old_size if size is None else size}/{old_patch if patch is None else patch}"
        known = {f.name for f in fields(self)} - {"shape", "recipe"} | SHAPE | RECIPE
        if unknown := settings.keys() - known:
            raise ValueError(f"unknown setting {', '.join(sorted(unknown))}, known: {', '.join(sorted(known))}")
        shape, recipe = ({k: settings.pop(k) for k in list(settings) if k in names} for names in (SHAPE, RECIPE))
        return replace(self, shape={**kept, **shape}, recipe=replace(self.recipe, **recipe), **settings)

    def to_dict(self) -> dict[str, Any]:
        """Every setting by name, a plain dict that `from_dict` reads."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("shape", "recipe")}
        return {**own, **self.shape, **asdict(self.recipe)}

    def changed(self) -> dict[str, Any]:
        """The model, and the settings that differ from their default: what one would write into a table."""
        default = RunSettings().to_dict()
        return {k: v for k, v in self.to_dict().items() if k == "model" or k not in default or v != default[k]}


PRESETS = {
    name: RunSettings.from_dict({"data": name, **settings})
    for name, settings in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}


def preset(data: str, **changes: Any) -> RunSettings:
    """A data set's settings by its name, as "folder:PATH", with some changed; for "shards:PATH" those of what is inside."""
    name = data.partition(":")[0]
    if name == "shards":
        written = load(data).name
        name = written if written in PRESETS else "folder"
    return PRESETS.get(name, RunSettings()).replace(**{"data": data, **changes})


def load_data(settings: RunSettings, **reading: Any) -> Any:
    """The data set of a run.  reading: options of `data.folders.folder`; ValueError if it is none"""
    if settings.data.startswith("folder:"):
        return load(settings.data, split=settings.split, **reading)
    if settings.split != "hash" or reading:
        raise ValueError(f"{settings.data} is divided already: split and the like are options of folder:PATH")
    return load(settings.data)


def make_network(data: Data, settings: RunSettings) -> nn.Module:
    """The network of a run, untrained, for the images and classes of a data set."""
    K = len(data.class_names)
    if settings.network == "cnn":
        return CNN(data.in_chans, K, settings.width)
    shape = {"image_size": data.image_size, "in_chans": data.in_chans, "num_classes": K, **settings.shape}
    config = ViTConfig.from_name(settings.model, **shape)
    options = {name: getattr(config, name) for name in ("mlp_ratio", "dropout", "attn_dropout", "norm_eps")}
    return ViT(config, partial(NORMS[settings.norm], **options))


def with_tta(model: nn.Module, settings: RunSettings) -> nn.Module:
    """The trained network as it is to be tested: with test-time augmentation where the settings ask for it."""
    return FlipTTA(model) if settings.tta else model


def make_batches(data: Data, settings: RunSettings) -> Any:
    """The training batches of a run, shuffled and augmented; ValueError if `images` or `repeat` would change a stream."""
    if (settings.images, settings.repeat) != (None, 1):
        if not isinstance(data, Data):
            raise ValueError(f"{data.name} is a stream from shards: images and repeat can be set for data in memory only")
        rows = torch.arange(len(data.train))[: settings.images].repeat_interleave(settings.repeat)
        data = replace(data, train=subset(data.train, rows))
    mix, augment = MIX[settings.mix], AUGMENT[settings.augment]
    mix = mix and partial(mix, num_classes=len(data.class_names))
    return data.batches("train", settings.batch_size, shuffle=True, augment=augment, mix=mix)
