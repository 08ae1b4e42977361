"""What a description of foreign weights says is obeyed or refused; what is assumed is said."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from vit_helpers._files import shown
from vit_helpers._validate import to_2tuple
from vit_helpers.pretrained.key_maps import StateDict
from vit_helpers.pretrained.preprocess import Preprocess
from vit_helpers.vit import ViT

NO_CLASSES = {  # what outputs mean of which the largest is not the class, by Hugging Face's word
    "multi_label_classification": "several labels of an image",
    "regression": "numbers, and no classes",
}
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and std of its pixels
PLACEHOLDER = re.compile(r"class \d+|LABEL_\d+")  # in place of a name that is not known
SIZE = (60, 100)  # height and width of the image on which preprocessings are compared
# of images that are compared: theirs may round to whole gray values on the way, twice
GRAY_TOLERANCE, OUTPUT_TOLERANCE = 3 / 255, 1e-3


def require_supported(name: str, settings: Mapping[str, Any], **values: tuple[Any, ...]) -> None:
    """Raise ValueError if weights need something that `Preprocess` or `ViT` does not implement."""
    needed = {key: settings.get(key) for key in values if settings.get(key) not in values[key]}
    if needed:
        entries = ", ".join(f"{key} = {value!r}" for key, value in needed.items())
        raise ValueError(f"{name} needs what is not implemented here: {entries}")


def preprocess_of_huggingface(name: str, settings: Mapping[str, Any]) -> Preprocess:
    """Make the `Preprocess` of an image processor's settings; ValueError if it needs more."""
    optional = (None, True, False)
    require_supported(
        name,
        settings,
        resample=(2, 3),
        do_resize=(True,),
        do_center_crop=optional,
        do_rescale=optional,
        do_normalize=optional,
        do_pad=(None, False),
    )
    size, crop = (
        {key: value for key, value in dict(settings.get(key) or {}).items() if value is not None}
        for key in ("size", "crop_size")
    )
    sides = crop if settings.get("do_center_crop") else size
    if sides.keys() != {"height", "width"} or size.keys() not in (sides.keys(), {"shortest_edge"}):
        raise ValueError(
            f"{name} needs what is not implemented here: size = {size}, do_center_crop = "
            f"{settings.get('do_center_crop')}, crop_size = {crop}"
        )
    resize = size.get("shortest_edge") or (size["height"], size["width"])
    # theirs is (factor x pixel - mean) / std, of pixels from 0 to 255
    factor = settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale") else 1
    mean, std = (0.0,) * 3, (1.0,) * 3
    if settings.get("do_normalize"):
        mean, std = settings["image_mean"], settings["image_std"]
    return Preprocess(
        resize,
        (sides["height"], sides["width"]),
        "bilinear" if settings["resample"] == 2 else "bicubic",
        tuple(value / (255 * factor) for value in mean),
        tuple(value / (255 * factor) for value in std),
    )


def check_preprocess(
    name: str, preprocess: Preprocess, theirs: Callable[[Image.Image], Tensor]
) -> None:
    """Raise ValueError if a library makes something else of an image than our `Preprocess`.

    So it does by a setting that is not read here.
    """
    height, width = SIZE
    down = torch.linspace(0, 255, height)[:, None].expand(SIZE)
    right = torch.linspace(0, 255, width).expand(SIZE)
    pixels = torch.stack([down, right, (down + right) / 2], dim=-1)
    image = Image.fromarray(pixels.to(torch.uint8).numpy())
    ours, other = preprocess(image), theirs(image)
    std = max(preprocess.std)
    if ours.shape != other.shape or (ours - other).abs().max() * std > GRAY_TOLERANCE:
        raise ValueError(
            f"{name} needs what is not implemented here: its preparation of an image gives "
            f"{describe(other)}, ours {describe(ours)}"
        )


def check_outputs(name: str, model: ViT, theirs: Callable[[Tensor], Tensor]) -> None:
    """Raise ValueError if a library's model computes something else than ours of its weights.

    So it does by a part without weights, such as rotary positions or another activation function.
    """
    generator = torch.Generator().manual_seed(0)
    height, width = to_2tuple(model.config.image_size)
    images = torch.randn(1, model.config.in_chans, height, width, generator=generator)
    with torch.no_grad():
        ours, other = model(images), theirs(images)
    difference, largest = (ours - other).abs().max().item(), other.abs().max().item()
    if not difference <= OUTPUT_TOLERANCE * max(largest, 1e-6):  # false for NaN, too
        raise ValueError(
            f"{name} is not the paper's model: of a random image its largest output is "
            f"{largest:.3g}, and ours differ by up to {difference:.3g}"
        )


def describe(values: Tensor) -> str:
    """Describe an image for a message: its shape and its range."""
    return f"{tuple(values.shape)} from {values.min().item():.3g} to {values.max().item():.3g}"


def drop_head(name: str, state: StateDict, meaning: str) -> StateDict:
    """Leave out a head whose largest output is not the class of an image, and warn.

    meaning: of its outputs
    """
    warnings.warn(f"the head of {name} is left out: its outputs are {meaning}", stacklevel=3)
    return {key: value for key, value in state.items() if not key.startswith("head.")}


def are_unknown(class_names: Sequence[str]) -> bool:
    """Return whether names of classes only stand for names that are not known."""
    return all(PLACEHOLDER.fullmatch(name) for name in class_names)


def warn_of_unknown_names(name: str, class_names: Sequence[str]) -> None:
    """Warn if the names of classes are not known."""
    if class_names and are_unknown(class_names):
        warnings.warn(
            f"the names of the {len(class_names):,} classes of {name} are unknown: "
            f"they are called {shown(class_names[0])} and so on",
            stacklevel=3,
        )


def assumed_preprocess(preprocess: Preprocess) -> str:
    """Say in a few words what a preprocessing is that is assumed."""
    sides = " x ".join(map(str, preprocess.crop))
    mean, std = ("/".join(map(str, dict.fromkeys(v))) for v in (preprocess.mean, preprocess.std))
    return f"mean {mean}, std {std}, resized ({preprocess.interpolation}) to {sides}"


def warn_of_assumptions(name: str, model: ViT, preprocess: Preprocess) -> None:
    """Warn, in one line, of what is assumed of weights that come without a description."""
    config = model.config
    outputs = f", one of {config.num_classes:,} unnamed classes" if config.num_classes else ""
    pooled = "the class token" if config.pool == "cls" else "the mean of the patches"
    warnings.warn(
        f"{name} has no description; assumed: {assumed_preprocess(preprocess)}, "
        f"{config.num_heads} heads, exact GELU, norms with eps {config.norm_eps:g}, "
        f"output from {pooled}{outputs}",
        stacklevel=3,
    )
