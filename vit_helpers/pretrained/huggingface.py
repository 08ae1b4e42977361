"""Models of Hugging Face's transformers, from the hub or a folder. Code from there never runs."""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL.Image import Image
from torch import Tensor

from vit_helpers._validate import to_2tuple
from vit_helpers.pretrained.assembly import (
    assemble,
    check_same_size,
    explain_download,
    fit_positions,
)
from vit_helpers.pretrained.descriptions import (
    IMAGENET,
    NO_CLASSES,
    assumed_preprocess,
    check_outputs,
    check_preprocess,
    drop_head,
    preprocess_of_huggingface,
    require_supported,
    warn_of_unknown_names,
)
from vit_helpers.pretrained.files import Pretrained, read_shapes
from vit_helpers.pretrained.key_maps import StateDict, rename
from vit_helpers.pretrained.preprocess import Preprocess

PROCESSOR = "preprocessor_config.json"  # in a folder of Hugging Face's
HALF = ((0.5,) * 3, (0.5,) * 3)
ACTS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}  # our mlp_layer


class Kind(NamedTuple):
    """A kind of model, by its model_type in transformers.

    layout    : of its weights, in key_maps.toml
    model     : its class without a head; classifier: with one that our `ViT` has, too
    fields    : of our config, what no shape has, from theirs
    supported : values of theirs that we implement
    statistics: mean and std of pixels that are assumed without a description
    resizing  : how their model interpolates positions, as for `resize_positions`; None for not
    """

    layout: str
    model: str
    classifier: str | None
    fields: Callable[[Any], dict[str, Any]]
    supported: dict[str, tuple[Any, ...]]
    statistics: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET
    resizing: str | None = "huggingface"


def rotary_fields(config: Any) -> dict[str, Any]:
    """The fields of our config for a DINOv3."""
    theta = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]
    return {"positions": "rotary", "rope_theta": float(theta)}


def siglip_fields(config: Any) -> dict[str, Any]:
    """The fields of our config for the vision model of a SigLIP."""
    return {"mlp_layer": ACTS[config.hidden_act]}


DINOV2 = Kind("Hugging Face, DINOv2", "Dinov2Model", None, lambda _: {}, {"hidden_act": ("gelu",)})
KINDS = {
    "vit": Kind(
        "Hugging Face",
        "ViTModel",
        "ViTForImageClassification",
        lambda _: {},
        {"hidden_act": ("gelu",)},
        HALF,
        resizing=None,
    ),
    "dinov2": DINOV2,
    "dinov2_with_registers": DINOV2._replace(model="Dinov2WithRegistersModel", resizing="timm"),
    "dinov3_vit": Kind(
        "Hugging Face, DINOv3",
        "DINOv3ViTModel",
        None,
        rotary_fields,
        {"hidden_act": ("gelu", "silu")},
    ),
    "siglip_vision_model": Kind(
        "Hugging Face, SigLIP",
        "SiglipVisionModel",
        None,
        siglip_fields,
        {"hidden_act": tuple(ACTS), "vision_use_head": (None, True)},
        HALF,
        resizing=None,
    ),
}


def load_huggingface(name: str) -> Pretrained:
    """Load a ViT of transformers, of one of the `KINDS`, from the hub or a folder."""
    import transformers

    is_there = Path(name).is_dir()
    with explain_download(f"Hugging Face's {name}", is_there=is_there), refuse_code(name):
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        architectures = config.architectures or []
        config = getattr(config, "vision_config", config)  # of a SigLIP with its text model
        require_supported(name, config.to_dict(), model_type=tuple(KINDS))
        kind = KINDS[config.model_type]
        require_supported(name, config.to_dict(), **kind.supported)
        check_description(Path(name), config)
        processor = None
        if not lacks_preprocessing(name):
            processor = transformers.AutoImageProcessor.from_pretrained(
                name, trust_remote_code=False
            )
        class_name = choose_class(name, kind, architectures)
        options = {"attn_implementation": "eager"}  # else the config may name one to be fetched
        with silent_transformers() if is_there else nullcontext():  # a download has a bar
            model, info = getattr(transformers, class_name).from_pretrained(
                name, output_loading_info=True, **options
            )
    # a pooler may be left out; what else is missing transformers would have drawn at random
    missing = {key for key in info["missing_keys"] if not key.startswith("pooler.")}
    if missing:
        raise ValueError(f"{name} has no {', '.join(sorted(missing))}")
    state: StateDict = rename(model.state_dict(), kind.layout)
    if info["missing_keys"]:
        state = {key: value for key, value in state.items() if not key.startswith("pre_logits.")}
    preprocess = find_preprocess(name, kind, config, processor)
    size = to_2tuple(config.image_size)
    if kind.resizing is None:
        check_same_size(name, size, preprocess.crop)
    else:
        state = fit_positions(state, size, preprocess.crop, config.patch_size, kind.resizing)
    problem = "regression" if config.num_labels == 1 else config.problem_type  # as there
    classes: list[str] = []
    if class_name == kind.classifier:
        classes = [config.id2label[number] for number in range(config.num_labels)]
        if problem in NO_CLASSES:
            state = drop_head(name, state, NO_CLASSES[problem])
    fields = {"norm_eps": config.layer_norm_eps, **kind.fields(config)}
    pretrained = assemble(name, state, config.num_attention_heads, preprocess, classes, **fields)
    check_outputs(name, pretrained.model, partial(run_huggingface, model.float(), state))
    warn_of_unknown_names(name, pretrained.class_names)
    return pretrained


def choose_class(name: str, kind: Kind, architectures: list[str]) -> str:
    """Return the class of transformers that reads weights of these architectures.

    raises: ValueError for a head that reads something else than ours
    """
    if kind.classifier is not None:
        return kind.model if architectures == [kind.model] else kind.classifier
    if others := [each for each in architectures if "Classification" in each]:
        raise ValueError(
            f"{name} needs what is not implemented here: the head of {', '.join(others)}; "
            f"wanted: the weights of a {kind.model}"
        )
    return kind.model


def find_preprocess(name: str, kind: Kind, config: Any, processor: Any) -> Preprocess:
    """Return the preprocessing that a processor describes; without one, what is assumed."""
    if processor is not None:
        preprocess = preprocess_of_huggingface(name, vars(processor))
        check_preprocess(name, preprocess, partial(run_processor, processor))
        return preprocess
    size = to_2tuple(config.image_size)
    preprocess = Preprocess(size, size, "bilinear", *kind.statistics)
    assumed = assumed_preprocess(preprocess)
    warnings.warn(f"{name} has no {PROCESSOR}; assumed: {assumed}", stacklevel=3)
    return preprocess


@contextmanager
def silent_transformers() -> Iterator[None]:
    """Let transformers neither draw progress bars nor report on keys: our errors name them."""
    from transformers.utils import logging

    level, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if had_bars:
            logging.enable_progress_bar()


def check_description(folder: Path, config: Any) -> None:
    """Raise ValueError if a folder's config names another model than its weights.

    transformers would take memory for the model that the config names.
    """
    files = [*folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin")]
    if not files:  # of the hub
        return
    shapes = {key: shape for file in files for key, shape in read_shapes(file).items()}
    vision = [key for key in shapes if key.startswith("vision_model.")]  # beside a text model
    shapes = {key: shapes[key] for key in vision or shapes}
    sides = set(chain.from_iterable(shapes.values()))
    layers = [re.search(r"layers?\.(\d+)\.", key) for key in shapes]
    depth = len({layer[1] for layer in layers if layer})
    wanted = {
        "hidden_size": (config.hidden_size, sides),
        "num_hidden_layers": (config.num_hidden_layers, {depth}),
    }
    if hasattr(config, "intermediate_size"):
        wanted["intermediate_size"] = (config.intermediate_size, sides)
    if any("position" in key for key in shapes):
        rows, columns = (side // config.patch_size for side in to_2tuple(config.image_size))
        prefix = config.model_type != "siglip_vision_model"  # the class token's
        wanted["image_size"] = (rows * columns + prefix, sides)
    if wrong := [name for name, (number, numbers) in wanted.items() if number not in numbers]:
        names = ", ".join(f"{name} = {getattr(config, name)!r}" for name in wrong)
        raise ValueError(f"{folder}: config.json does not describe the weights: {names}")


def lacks_preprocessing(name: str) -> bool:
    """Return whether a folder of Hugging Face's does not describe its preprocessing.

    So it is where only the model was stored.
    """
    return Path(name).is_dir() and not any(
        Path(name, file).exists() for file in (PROCESSOR, "processor_config.json")
    )


def run_processor(processor: Any, image: Image) -> Tensor:
    """Return what an image processor of Hugging Face's makes of an image: (C, H, W)."""
    return torch.as_tensor(processor(image, return_tensors="pt")["pixel_values"][0])


def run_huggingface(model: Any, state: StateDict, images: Tensor) -> Tensor:
    """Return the output of a model of Hugging Face's that is wanted of ours, with weights `state`.

    That is the head's, if it is kept; else the pooler's, if it has weights; else that of the last
    norm.
    """
    if "head.weight" in state:
        return model(images).logits
    outputs = getattr(model, "vit", model)(images)
    if {"pre_logits.0.weight", "attn_pool.latent"} & state.keys():
        return outputs.pooler_output
    return outputs.last_hidden_state[:, 0]


@contextmanager
def refuse_code(name: str) -> Iterator[None]:
    """Raise a ValueError with what is wanted, where transformers asks to run a model's code."""
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            f"{name} contains code of its own (auto_map), which is not run: "
            f"wanted a ViT that transformers itself implements (model_type {', '.join(KINDS)})"
        ) from error
