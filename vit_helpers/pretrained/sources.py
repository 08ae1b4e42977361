"""Pretrained models by name: from torchvision, timm, Hugging Face, a file, or this package."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from vit_helpers._validate import check_choice
from vit_helpers.pretrained.files import PARTS, Pretrained, load_weights, read_notes, read_state
from vit_helpers.pretrained.key_maps import StateDict, fill, from_google, our_key, recognize, rename
from vit_helpers.pretrained.preprocess import Preprocess
from vit_helpers.vit import SIZES, ViT, ViTConfig

OURS = Path(__file__).parents[1] / "weights"
RUN_WEIGHTS = "weights.safetensors"  # in the folder of a run of `train`
FILES = (
    ".safetensors",
    ".npz",
    ".pth",
    ".pt",
    ".bin",
    ".ckpt",
    ".tar",
)  # what a name that is a file ends with
NORM_EPS = {"Hugging Face": 1e-12}  # of a library's layer norms, where it is not 1e-6
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and std of torchvision's images


def load_pretrained(name: str | Path, num_heads: int | None = None) -> Pretrained:
    """Load a pretrained model by its name, as `Pretrained`: model, preprocess, class_names.

    "torchvision:vit_b_16"   : also vit_b_32, vit_l_16, vit_l_32 and vit_h_14, with their default weights; others by
                               torchvision's name for them, "torchvision:ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1"
    "timm:vit_base_patch16_224": any vit_* and deit_* that is the paper's model
    "huggingface:google/vit-base-patch16-224": any ViTModel or ViTForImageClassification, by its name or its folder
    "PATH.npz"               : one of Google's files
    "PATH.safetensors"       : a file of `save_weights`
    "PATH.pth" and others    : tensors under the names of torchvision, timm, Hugging Face or this series, see `load_file`
    "ours:scattered"         : models of this series, in `vit_helpers/weights`
    a folder                 : of a run of `train`, or what Hugging Face's save_pretrained wrote

    num_heads: for files that do not contain it, of models whose width is not one of the paper's; ValueError for other names
    raises: ValueError for an unknown name, and for weights that do not fit the paper's model, with their keys and shapes;
            OSError if the weights cannot be downloaded or read; ImportError if their library is not installed
    """
    path, (library, _, rest) = find_file(name), str(name).partition(":")
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ValueError(
                f"{path} has neither {RUN_WEIGHTS}, as a run of train has, nor Hugging Face's config.json"
            )
        library, rest = "huggingface", str(path)
    of_google = path.suffix == ".npz"
    foreign = (
        path.suffix in FILES
        and not of_google
        and not (path.suffix == ".safetensors" and PARTS[0] in read_notes(path))
    )
    if num_heads is not None and not foreign:
        raise ValueError(f"{name} already says how many heads its model has: leave out num_heads")
    if path.suffix in FILES:
        return (
            load_file(path, num_heads)
            if foreign
            else load_google(path)
            if of_google
            else load_weights(path)
        )
    if library not in LIBRARIES or not rest:
        names = ", ".join(f"{library}:NAME" for library in LIBRARIES)
        raise ValueError(
            f"unknown weights {str(name)!r}, known: {names}, the folder of a run, PATH{', PATH'.join(FILES)}"
        )
    try:
        return LIBRARIES[library](rest)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} needs a library that is not installed: pip install {error.name}"
        ) from error


def find_file(name: str | Path) -> Path:
    """The file of weights that a name stands for, if it is one: "ours:NAME", or in the folder of a run the best epoch's."""
    path, (library, _, rest) = Path(name), str(name).partition(":")
    if library == "ours" and (stored := OURS / f"{rest}.safetensors").is_file():
        return stored
    return path / RUN_WEIGHTS if (path / RUN_WEIGHTS).is_file() else path


def load_file(path: Path, num_heads: int | None = None) -> Pretrained:
    """A ViT from a file of tensors by name, without their description; no code of the file runs.

    What names and shapes do not tell is assumed: mean and std are ImageNet's for torchvision's names, else 0.5, the number
    of heads is the paper's for this width, and images are square.
    """
    raw = read_state(path)
    library = recognize(raw, path)
    state = rename(raw, library)
    require_keys(state, "patch_embed.proj.weight", "token_embed.pos_embed")
    kernel = next(raw[key] for key in raw if our_key(key, library) == "patch_embed.proj.weight")
    numbers = kernel[0].numel()
    C = (
        kernel.shape[1] if kernel.ndim == 4 else 1 if math.isqrt(numbers) ** 2 == numbers else 3
    )  # 3 P P is no square
    class_token = "token_embed.cls_token" in state
    patches, P = state["token_embed.pos_embed"].shape[1] - class_token, math.isqrt(numbers // C)
    side = math.isqrt(patches) * P
    if side**2 != patches * P**2:
        raise ValueError(
            f"{path} has position embeddings for {patches} patches, which do not form a square"
        )
    mean, std = IMAGENET if library == "torchvision" and C == 3 else ((0.5,) * C, (0.5,) * C)
    rest = {"norm_eps": NORM_EPS.get(library, 1e-6), "pool": "cls" if class_token else "avg"}
    return assemble(
        state, num_heads, Preprocess(side, (side, side), "bilinear", mean, std), (), **rest
    )


def load_ours(name: str) -> Pretrained:
    """One of the small models of this series."""
    check_choice(
        "weights",
        f"ours:{name}",
        sorted(f"ours:{path.stem}" for path in OURS.glob("*.safetensors")),
    )
    return load_weights(OURS / f"{name}.safetensors")


def weights_of_torchvision(name: str) -> Any:
    """torchvision's description of the default weights of a model, or of weights by their full name."""
    from torchvision.models import get_model_weights, get_weight

    try:
        weights = get_weight(name) if "." in name else get_model_weights(name).DEFAULT
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"torchvision has no weights called {name}: {error}") from error
    if not type(weights).__name__.startswith("ViT_"):
        raise ValueError(f"{name} are not the weights of a ViT")
    return weights


def torchvision_cache_path(name: str) -> Path:
    """Where torchvision caches the weights of a ViT on this machine; the file need not exist."""
    return Path(
        torch.hub.get_dir(), "checkpoints", weights_of_torchvision(name).url.rpartition("/")[2]
    )


def load_torchvision(name: str) -> Pretrained:
    """A ViT with torchvision's weights, which torchvision downloads once; the hash is checked."""
    weights = weights_of_torchvision(name)
    with explain_download(weights.url, f"at {torchvision_cache_path(name)}"):
        state = weights.get_state_dict(progress=True, check_hash=True, weights_only=True)
    t = weights.transforms()
    preprocess = Preprocess(
        t.resize_size[0], (t.crop_size[0],) * 2, t.interpolation.value, t.mean, t.std
    )
    return assemble(rename(state, "torchvision"), None, preprocess, weights.meta["categories"])


def load_timm(name: str) -> Pretrained:
    """A ViT with timm's weights, which timm downloads."""
    import timm
    from timm.data import ImageNetInfo, infer_imagenet_subset, resolve_model_data_config
    from torch import nn

    if not timm.is_model_pretrained(name):
        raise ValueError(f"timm has no weights called {name}")
    with explain_download(f"timm's {name}", "where timm keeps it"):
        theirs = timm.create_model(name, pretrained=True)
    state = rename(theirs.state_dict(), "timm")  # first: it names what is not a ViT
    act, own = theirs.blocks[0].mlp.act, resolve_model_data_config(theirs)
    if (
        not isinstance(act, (nn.GELU, timm.layers.GELU))
        or getattr(act, "approximate", "none") != "none"
    ):
        raise ValueError(f"{name} has {act} in its MLPs, but the paper's model has the exact GELU")
    require_supported(
        name, own, crop_mode=("center", "squash"), interpolation=("bilinear", "bicubic")
    )
    require_supported(name, vars(theirs), global_pool=("token", "avg"))
    size = tuple(own["input_size"][1:])
    scaled = tuple(math.floor(side / own["crop_pct"]) for side in size)
    resize = scaled if own["crop_mode"] == "squash" else scaled[0]
    preprocess = Preprocess(resize, size, own["interpolation"], own["mean"], own["std"])
    rest = {"norm_eps": theirs.norm.eps, "pool": {"token": "cls", "avg": "avg"}[theirs.global_pool]}
    subset = infer_imagenet_subset(theirs)  # timm knows the names of their classes by their number
    name_of = (
        ImageNetInfo(subset).index_to_description if subset else None
    )  # made once: it reads its files
    classes = [name_of(i) for i in range(theirs.num_classes)] if name_of else []
    return assemble(state, theirs.blocks[0].attn.num_heads, preprocess, classes, **rest)


def load_huggingface(name: str) -> Pretrained:
    """A ViTModel or ViTForImageClassification of transformers, from the hub or a folder, whose code never runs."""
    from transformers import AutoConfig, AutoImageProcessor, ViTForImageClassification, ViTModel

    place = "in a folder, and give its path"
    with explain_download(f"Hugging Face's {name}", place), refuse_code(name):
        own = AutoConfig.from_pretrained(name, trust_remote_code=False)
        require_supported(name, own.to_dict(), model_type=("vit",), hidden_act=("gelu",))
        processor = AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
        headless = own.architectures == ["ViTModel"]
        kind: Any = ViTModel if headless else ViTForImageClassification
        options = {"attn_implementation": "eager"}  # else the config may name one to be fetched
        theirs, info = kind.from_pretrained(name, output_loading_info=True, **options)
    if missing := {
        key for key in info["missing_keys"] if not key.startswith("pooler.")
    }:  # a pooler may be left out
        raise ValueError(
            f"{name} has no {', '.join(sorted(missing))}"
        )  # transformers would have drawn them at random
    state = rename(theirs.state_dict(), "Hugging Face")
    if info["missing_keys"]:
        state = {key: value for key, value in state.items() if not key.startswith("pre_logits.")}
    how: dict[str, Any] = vars(processor)
    require_supported(
        name,
        how,
        resample=(2, 3),
        do_resize=(True,),
        do_center_crop=(None, False),
        do_normalize=(True,),
    )
    size, resample = (
        (how["size"]["height"], how["size"]["width"]),
        {2: "bilinear", 3: "bicubic"}[how["resample"]],
    )
    preprocess = Preprocess(size, size, resample, how["image_mean"], how["image_std"])
    classes = [] if headless else [own.id2label[i] for i in range(own.num_labels)]
    return assemble(
        state, own.num_attention_heads, preprocess, classes, norm_eps=own.layer_norm_eps
    )


def load_google(path: Path) -> Pretrained:
    """One of the npz files of google-research/vision_transformer, whose own resizing is not antialiased."""
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = dict(file)
    except (BadZipFile, ValueError, EOFError) as error:
        raise ValueError(f"{path} is cut short, or not an npz file: {error}") from error
    state, query = (
        from_google(arrays),
        "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel",
    )
    require_keys({**state, **arrays}, "token_embed.pos_embed", "patch_embed.proj.weight", query)
    rows = math.isqrt(state["token_embed.pos_embed"].shape[1])
    size = (rows * math.isqrt(state["patch_embed.proj.weight"].shape[1] // 3),) * 2
    num_heads = arrays[query].shape[1]  # (D, h, d)
    return assemble(
        state, num_heads, Preprocess(size, size, "bilinear", (0.5,) * 3, (0.5,) * 3), ()
    )


LIBRARIES = {
    "torchvision": load_torchvision,
    "timm": load_timm,
    "huggingface": load_huggingface,
    "ours": load_ours,
}


def assemble(
    state: StateDict,
    num_heads: int | None,
    preprocess: Preprocess,
    class_names: Sequence[str],
    **fields: Any,
) -> Pretrained:
    """A model whose config follows from its weights' shapes.  num_heads: None for the paper's;  fields: what no shape has"""
    require_keys(state, "patch_embed.proj.weight", "blocks.0.mlp.fc1.bias")
    D, numbers = state["patch_embed.proj.weight"].shape
    num_heads = num_heads or {size["embed_dim"]: size["num_heads"] for size in SIZES.values()}.get(
        D
    )
    if num_heads is None:
        raise ValueError(
            f"weights of width {D} do not show the number of heads: give num_heads (train --set num_heads=N)"
        )
    pre_logits, hidden = state.get("pre_logits.0.weight"), len(state["blocks.0.mlp.fc1.bias"])
    ratio = (
        hidden / D if int(D * (hidden / D)) == hidden else math.nextafter(hidden / D, math.inf)
    )  # 120 / 88 is too small
    config = ViTConfig(
        image_size=preprocess.crop,
        patch_size=math.isqrt(numbers // preprocess.in_chans),
        in_chans=preprocess.in_chans,
        num_classes=len(state.get("head.bias", ())),
        embed_dim=D,
        depth=len({key.split(".")[1] for key in state if key.startswith("blocks.")}),
        num_heads=num_heads,
        mlp_ratio=ratio,
        class_token="token_embed.cls_token" in state,
        representation_size=None if pre_logits is None else len(pre_logits),
        **fields,
    )
    model = ViT(config)
    fill(model, state)
    return Pretrained(
        model.eval(),
        preprocess,
        tuple(class_names) or tuple(f"class {i}" for i in range(config.num_classes)),
    )


def require_supported(name: str, own: Mapping[str, Any], **values: tuple[Any, ...]) -> None:
    """Raise ValueError if the weights need something that `Preprocess` or `ViT` does not implement."""
    if other := [
        f"{key} = {own.get(key)!r}"
        for key, allowed in values.items()
        if own.get(key) not in allowed
    ]:
        raise ValueError(f"{name} needs what is not implemented here: {', '.join(other)}")


def require_keys(state: StateDict, *keys: str) -> None:
    """Raise ValueError if weights that determine the config are missing."""
    if missing := [key for key in keys if key not in state]:
        raise ValueError(f"the file is incomplete: it has no {', '.join(missing)}")


@contextmanager
def refuse_code(name: str) -> Iterator[None]:
    """Raise a ValueError that says what is wanted, where transformers asks to be allowed to run code of a model."""
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            f"{name} contains code of its own (auto_map), which is not run: "
            "wanted a ViT that transformers itself implements (model_type vit, ViTImageProcessor)"
        ) from error


@contextmanager
def explain_download(what: str, place: str) -> Iterator[None]:
    """Raise an OSError that says what else can be done if weights cannot be downloaded or read."""
    try:
        yield
    except (OSError, RuntimeError, UnpicklingError) as error:  # RuntimeError: a wrong hash
        raise OSError(
            f"could not get {what}: {type(error).__name__}: {str(error)[:300]}\nBy hand: put the file {place}. "
            "Without a network there are the models of this series: load_pretrained('ours:...')."
        ) from error
