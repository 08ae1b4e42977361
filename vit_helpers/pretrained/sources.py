"""Pretrained models by name: from torchvision, timm, Hugging Face, a file, or this package."""

import json
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn

from vit_helpers._files import shown
from vit_helpers._validate import check_choice, to_2tuple
from vit_helpers.modern import MLP_LAYERS
from vit_helpers.pretrained.assembly import (
    assemble,
    check_same_size,
    explain_download,
    fit_positions,
    one_line,
    require_keys,
)
from vit_helpers.pretrained.descriptions import (
    IMAGENET,
    check_outputs,
    check_preprocess,
    require_supported,
    warn_of_assumptions,
    warn_of_unknown_names,
)
from vit_helpers.pretrained.files import (
    PARTS,
    Pretrained,
    check_memory,
    load_weights,
    read_notes,
    read_state,
)
from vit_helpers.pretrained.huggingface import load_huggingface
from vit_helpers.pretrained.key_maps import from_google, our_key, recognize, rename
from vit_helpers.pretrained.preprocess import Preprocess

OURS = Path(__file__).parents[1] / "weights"
RUN_WEIGHTS = "weights.safetensors"  # in the folder of a run of `train`
DESCRIBED = ("model.safetensors", "pytorch_model.bin")  # beside a config.json
ODD = "is damaged, or describes another kind of model"
# what a name that is a file ends with
FILES = (".safetensors", ".npz", ".pth", ".pt", ".bin", ".ckpt", ".tar")
TIMM_POOLS = {"token": "cls", "avg": "avg", "map": "map"}  # {its global_pool: our pool}
NORM_EPS = {"Hugging Face": 1e-12}  # of a library's layer norms, where it is not 1e-6
# of names in each library
FORMS = {
    "torchvision": r"vit_[blh]_\d+",
    "timm": r"(vit|deit3?)_\w+(\.\w+)?",
    "huggingface": r"[\w.-]+/(vit|deit|dino|siglip)[\w.-]*",
}


def load_pretrained(
    name: str | Path,
    num_heads: int | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> Pretrained:
    """Load a pretrained model by its name, as `Pretrained`: model, preprocess, class_names.

    "torchvision:vit_b_16"   : also vit_b_32, vit_l_16, vit_l_32 and vit_h_14, with their default
                               weights; others by torchvision's name for them,
                               "torchvision:ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1"
    "timm:vit_base_patch16_224": any vit_* and deit_* that is the paper's model
    "huggingface:google/vit-base-patch16-224": any ViTModel or ViTForImageClassification, by its
                               name or its folder
    "PATH.npz"               : one of Google's files
    "PATH.safetensors"       : a file of `save_weights`
    "PATH.pth" and others    : tensors under the names of torchvision, timm, Hugging Face or this
                               series, see `load_file`
    "ours:scattered"         : models of this series, in `vit_helpers/weights`
    a folder                 : of a run of `train`, or what Hugging Face's save_pretrained wrote

    num_heads : for files that do not contain it, of models whose width is not one of the paper's
    image_size: (H, W), for files that do not contain it, of models whose images are not square
    raises    : ValueError for either beside a name that contains it, for an unknown name, and for
                weights that do not fit the paper's model, with their keys and shapes; OSError if
                the weights cannot be downloaded or read; ImportError if their library is not
                installed
    """
    with name_source(name):
        path = find_description(find_file(name))
        return load_by_kind(name, path, num_heads, image_size)


def load_by_kind(
    name: str | Path,
    path: Path,
    num_heads: int | None,
    image_size: int | tuple[int, int] | None,
) -> Pretrained:
    """Load what a name or the path of a file stands for, see `load_pretrained`."""
    library, _, rest = str(name).partition(":")
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ValueError(
                f"{path} has neither {RUN_WEIGHTS}, as a run of train has, "
                "nor Hugging Face's config.json"
            )
        library, rest = "huggingface", str(path)
    of_google = path.suffix == ".npz"
    of_ours = path.suffix == ".safetensors" and PARTS[0] in read_notes(path)
    if path.suffix in FILES and not (of_google or of_ours):
        return load_file(path, num_heads, image_size)
    if num_heads is not None:
        raise ValueError(f"{name} already says how many heads its model has: leave out num_heads")
    if image_size is not None:
        raise ValueError(f"{name} already says how large its images are: leave out image_size")
    if of_google:
        return load_google(path)
    if of_ours:
        return load_weights(path)
    if library not in LIBRARIES or not rest:
        names = ", ".join(f"{library}:NAME" for library in LIBRARIES)
        raise ValueError(
            f"unknown weights {str(name)!r}{guess_source(str(name))}, known: {names}, "
            f"the folder of a run, PATH{', PATH'.join(FILES)}"
        )
    try:
        return LIBRARIES[library](rest)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} needs a library that is not installed: pip install {error.name}"
        ) from error


def guess_source(name: str) -> str:
    """Say what may be meant by a name without its source, for a message; empty if nothing is known.

    >>> guess_source("vit_b_16"), guess_source("vit_base_patch16_224")
    (' (did you mean torchvision:vit_b_16?)', ' (did you mean timm:vit_base_patch16_224?)')
    """
    if (OURS / f"{Path(name).name}.safetensors").is_file():
        return f" (did you mean ours:{Path(name).name}?)"
    for library, form in FORMS.items():
        if re.fullmatch(form, name):
            return f" (did you mean {library}:{name}?)"
    if Path(name).name != name:
        return f" (there is no {shown(Path(name).absolute())})"
    return ""


def find_file(name: str | Path) -> Path:
    """Find the file of weights that a name stands for; the name as a path if it is not one.

    Names are "ours:NAME", and the folder of a run, for the weights that it keeps.
    """
    library, _, rest = str(name).partition(":")
    stored = OURS / f"{rest}.safetensors"
    if library == "ours" and stored.is_file():
        return stored
    of_run = Path(name) / RUN_WEIGHTS
    return of_run if of_run.is_file() else Path(name)


def find_description(path: Path) -> Path:
    """Return the folder of a file that Hugging Face's config.json beside it describes.

    It is the path itself if there is none; a config.json of another kind is named in a warning.
    """
    config = path.with_name("config.json")
    if path.name not in DESCRIBED or not config.is_file():
        return path
    with suppress(ValueError, OSError):
        if "model_type" in json.loads(config.read_text(encoding="utf-8")):
            return path.parent
    warnings.warn(f"{shown(config)} is not Hugging Face's, and is not read", stacklevel=3)
    return path


def load_file(
    path: Path,
    num_heads: int | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> Pretrained:
    """Load a ViT from a file of tensors by name, without their description.

    No code of the file runs. What names and shapes do not tell is assumed: mean and std are
    ImageNet's for torchvision's names, else 0.5, the number of heads is the paper's for this width,
    and images are square.
    """
    raw = read_state(path)
    library = recognize(raw, path)
    state = rename(raw, library)
    require_keys(state, "patch_embed.proj.weight", "token_embed.pos_embed")
    kernel = next(raw[key] for key in raw if our_key(key, library) == "patch_embed.proj.weight")
    C, P = channels_and_side(kernel)
    class_token = "token_embed.cls_token" in state
    T = state["token_embed.pos_embed"].shape[1]
    try:
        given = None if image_size is None else to_2tuple(image_size)
        size = find_image_size(T, class_token, P, given)
    except ValueError as error:
        raise ValueError(f"{path} has {error}") from None
    mean, std = IMAGENET if library == "torchvision" and C == 3 else ((0.5,) * C, (0.5,) * C)
    preprocess = Preprocess(min(size) if size[0] == size[1] else size, size, "bilinear", mean, std)
    fields = {"norm_eps": NORM_EPS.get(library, 1e-6), "pool": "cls" if class_token else "avg"}
    pretrained = assemble(shown(path), state, num_heads, preprocess, (), **fields)
    warn_of_assumptions(shown(path), pretrained.model, preprocess)
    return pretrained


def channels_and_side(kernel: Tensor) -> tuple[int, int]:
    """Find the channels C and the side P of patches in the shape of their projection.

    kernel: (D, C, P, P), or (D, C*P*P), which must be of gray or color images
    """
    if kernel.ndim == 4:
        return kernel.shape[1], kernel.shape[2]
    numbers = kernel[0].numel()
    for C in (1, 3):  # 3 P P is no square
        P = math.isqrt(numbers // C)
        if numbers == C * P * P:
            return C, P
    raise ValueError(f"a patch of {numbers} numbers is neither P x P in gray nor in three colors")


def find_image_size(
    T: int, class_token: bool, P: int, image_size: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Find the size of the images that T positions are for: square, unless it is given.

    raises: ValueError if the positions do not fit
    """
    patches = T - class_token
    side = math.isqrt(patches)
    rows, columns = (side, side) if image_size is None else (n // P for n in image_size)
    size = rows * P, columns * P
    if rows * columns == patches and size == (image_size or size):
        return size
    message = f"position embeddings for {patches} patches"
    if image_size is not None:
        raise ValueError(f"{message} of side {P}, which images of {image_size} do not have")
    if class_token and math.isqrt(T) ** 2 == T:
        message = f"position embeddings for {T} patches and none for the class token"
        raise ValueError(f"{message} (no_embed_class in timm), which is not implemented here")
    raise ValueError(
        f"{message}, which do not form a square: give the size of the images, "
        "load_pretrained(PATH, image_size=(H, W)), and keep the model with save_weights"
    )


def load_ours(name: str) -> Pretrained:
    """Load one of the small models of this series."""
    names = sorted(f"ours:{path.stem}" for path in OURS.glob("*.safetensors"))
    check_choice("weights", f"ours:{name}", names)
    return load_weights(OURS / f"{name}.safetensors")


def weights_of_torchvision(name: str) -> Any:
    """Get torchvision's description of a model's default weights, or of weights by full name."""
    from torchvision.models import get_model_weights, get_weight

    try:
        weights = get_weight(name) if "." in name else get_model_weights(name).DEFAULT
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"torchvision has no weights called {name}: {error}") from error
    if not type(weights).__name__.startswith("ViT_"):
        raise ValueError(f"{name} are not the weights of a ViT")
    return weights


def torchvision_cache_path(name: str) -> Path:
    """Say where torchvision caches the weights of a ViT on this machine; there may be no file."""
    file = weights_of_torchvision(name).url.rpartition("/")[2]
    return Path(torch.hub.get_dir(), "checkpoints", file)


def load_torchvision(name: str) -> Pretrained:
    """Load a ViT with torchvision's weights, which it downloads once; the hash is checked."""
    weights = weights_of_torchvision(name)
    with explain_download(weights.url, str(torchvision_cache_path(name))):
        state = weights.get_state_dict(progress=True, check_hash=True, weights_only=True)
    t = weights.transforms()
    crop = (t.crop_size[0],) * 2
    preprocess = Preprocess(t.resize_size[0], crop, t.interpolation.value, t.mean, t.std)
    check_preprocess(f"torchvision's {name}", preprocess, t)
    ours, classes = rename(state, "torchvision"), weights.meta["categories"]
    return assemble(f"torchvision's {name}", ours, None, preprocess, classes)


def load_timm(name: str) -> Pretrained:
    """Load a ViT with timm's weights, which timm downloads."""
    import timm
    from timm.data import (
        ImageNetInfo,
        create_transform,
        infer_imagenet_subset,
        resolve_model_data_config,
    )

    if not timm.is_model_pretrained(name):
        raise ValueError(f"timm has no weights called {name}")
    with explain_download(f"timm's {name}"):
        model = timm.create_model(name, pretrained=True)
    state = rename_timm(model)  # first: it names what is not a ViT
    block, config = model.blocks[0], resolve_model_data_config(model)
    require_supported(
        name,
        {**model.pretrained_cfg, **config},
        crop_mode=("center", "squash"),
        interpolation=("bilinear", "bicubic"),
        test_input_size=(None, config["input_size"]),
        test_crop_pct=(None, config["crop_pct"]),
        label_offset=(None, 0, False),
    )
    require_supported(name, vars(model), global_pool=tuple(TIMM_POOLS))
    size = tuple(config["input_size"][1:])
    check_same_size(name, model.patch_embed.img_size, size)
    scaled = tuple(math.floor(side / config["crop_pct"]) for side in size)
    resize = scaled if config["crop_mode"] == "squash" else scaled[0]
    preprocess = Preprocess(resize, size, config["interpolation"], config["mean"], config["std"])
    check_preprocess(name, preprocess, create_transform(**config, is_training=False))
    state = fit_positions(state, size, size, model.patch_embed.patch_size[0], "timm")
    fields = {
        "norm_eps": model.norm.eps,
        "pool": TIMM_POOLS[model.global_pool],
        "mlp_layer": mlp_layer_of_timm(name, block.mlp),
    }
    if isinstance(model, timm.models.Eva):
        fields |= {"positions": "rotary", "rope_theta": float(model.rope.temperature)}
    classes = list(model.pretrained_cfg.get("label_names") or ())
    subset = infer_imagenet_subset(model)  # timm knows the names of its classes by their number
    if subset and not classes:
        names = ImageNetInfo(subset)  # made once: it reads its files
        classes = [names.index_to_description(number) for number in range(model.num_classes)]
    pretrained = assemble(name, state, block.attn.num_heads, preprocess, classes, **fields)
    check_outputs(name, pretrained.model, model.eval().float())
    warn_of_unknown_names(name, pretrained.class_names)
    return pretrained


def rename_timm(model: Any) -> dict[str, Tensor]:
    """Return the weights of a ViT of timm's under our names."""
    import timm

    if isinstance(model, timm.models.Eva):
        return rename(model.state_dict(), "timm, Eva")
    state = model.state_dict()
    if isinstance(model.blocks[0].mlp, timm.layers.GluMlp):
        state = {key.replace(".mlp.fc1.", ".mlp.gate_and_fc1."): w for key, w in state.items()}
    return rename(state, "timm")


def mlp_layer_of_timm(name: str, mlp: nn.Module) -> str:
    """Find the kind of an MLP of timm's among ours; ValueError if there is none such."""
    import timm

    act: Any = mlp.act
    if isinstance(act, nn.GELU | timm.layers.GELU):
        kind = {"none": "gelu", "tanh": "gelu_tanh"}[getattr(act, "approximate", "none")]
    elif isinstance(act, timm.layers.GELUTanh):
        kind = "gelu_tanh"
    elif isinstance(act, nn.SiLU) and not getattr(mlp, "gate_last", False):
        kind = "swiglu"
    else:
        known = ", ".join(MLP_LAYERS)
        raise ValueError(f"{name} has {act} in its MLPs, but ours are {known}")
    return kind


def load_google(path: Path) -> Pretrained:
    """Load one of the npz files of google-research/vision_transformer.

    Its own resizing is not antialiased, ours is.
    """
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            check_memory(path, sum(member.file_size for member in file.zip.infolist()))
            arrays = dict(file)
    except (AttributeError, BadZipFile, ValueError, EOFError) as error:  # an .npy has no .zip
        if str(path) in str(error):
            raise
        raise ValueError(f"{path} is cut short, or not an npz file: {error}") from error
    state = from_google(arrays)
    query = "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel"
    require_keys({**state, **arrays}, "token_embed.pos_embed", "patch_embed.proj.weight", query)
    C, P = channels_and_side(torch.as_tensor(arrays["embedding/kernel"]).permute(3, 2, 0, 1))
    try:
        size = find_image_size(state["token_embed.pos_embed"].shape[1], "cls" in arrays, P)
    except ValueError as error:
        raise ValueError(f"{path} has {error}") from None
    num_heads = arrays[query].shape[1]  # (D, h, d)
    preprocess = Preprocess(size, size, "bilinear", (0.5,) * C, (0.5,) * C)
    pretrained = assemble(shown(path), state, num_heads, preprocess, ())
    warn_of_assumptions(shown(path), pretrained.model, preprocess)
    return pretrained


LIBRARIES = {
    "torchvision": load_torchvision,
    "timm": load_timm,
    "huggingface": load_huggingface,
    "ours": load_ours,
}


@contextmanager
def name_source(name: str | Path) -> Iterator[None]:
    """Raise errors about a file or folder as one line that names it."""
    try:
        yield
    except (OSError, ImportError, Warning):  # whose messages say what is missing, or assumed
        raise
    except Exception as error:  # torch, safetensors and transformers raise many kinds
        if isinstance(error, ValueError) and str(name) in str(error):
            raise
        cause = "" if isinstance(error, ValueError) else f" {ODD}"
        raise ValueError(f"{shown(name)}{cause}: {one_line(error)}") from error
