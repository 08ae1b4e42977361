"""Weights in files: our own, and those without a description.

Our own have a model's config, preprocessing and class names.
"""

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Self
from zipfile import is_zipfile

import torch
from PIL.Image import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from vit_helpers._files import as_text, shown, tensor_digest, write_aside
from vit_helpers._validate import check_choice, to_2tuple
from vit_helpers.distributed import plain_name, plain_state_dict, unwrap
from vit_helpers.pretrained.key_maps import count_unknown, fill
from vit_helpers.pretrained.preprocess import Preprocess
from vit_helpers.vit import OWN_BLOCKS, ViT, ViTConfig, check_logits

PARTS = ("config", "preprocess", "class_names")
CONSTRUCTORS = ("scalar", "_reconstruct")  # of numpy's scalars and arrays
PART = "part"  # the note of a file that has only what was trained, the head or LoRA
SEAL = "sha256"  # the note of a checksum, which most of the files in `weights/` lack
# the names of weights in a checkpoint: averaged ones, which are better, before those they average
AVERAGED = ("state_dict_ema", "model_ema", "ema", "teacher")
PLAIN = (
    *("state_dict", "model_state_dict", "model_state"),
    *("model", "net", "module", "student"),
)
# Objects without code of their own that checkpoints have beside the weights, as in DeiT's and MAE's
HARMLESS = (
    *("argparse.Namespace", "datetime.datetime", "pathlib.PosixPath", "pathlib.WindowsPath"),
    *("pathlib._local.PosixPath", "pathlib._local.WindowsPath"),  # of Python 3.13
    *("numpy.dtype", "numpy.ndarray"),
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in CONSTRUCTORS),
)


QUANTIZED = (torch.int8, torch.uint8, torch.qint8, torch.quint8)
MAX_TOKENS = 2**16  # of an image, as a file may ask for
MAX_RATIO = 4  # memory of the tensors in a file, times its size
MAX_RESIZE = 8  # times the side of the crop: what a file may ask for


class Ignored:
    """In place of a harmless object beside weights: made of anything, it keeps nothing."""

    def __new__(cls, *values: object) -> Self:
        return super().__new__(cls)

    def __init__(self, *values: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class Pretrained(NamedTuple):
    """A model ready for use: a `ViT` in evaluation mode, its `Preprocess`, its classes' names."""

    model: ViT
    preprocess: Preprocess
    class_names: tuple[str, ...]

    @torch.no_grad()
    def top(self, image: Image | Tensor, k: int = 5) -> list[tuple[str, float]]:
        """Predict the k most probable classes of an image.

        returns: pairs (name, probability), in decreasing order
        raises : ValueError if the model has no head, or one logit for each token
        """
        check_head("the model", self.class_names)
        logits = check_logits(self.model(self.preprocess(image)[None]))
        probabilities = logits.softmax(dim=1)[0]
        values, classes = probabilities.topk(min(k, len(probabilities)))
        names = [self.class_names[number] for number in classes.tolist()]
        return list(zip(names, values.tolist(), strict=True))


def check_head(name: str, class_names: Sequence[str]) -> None:
    """Raise ValueError, with the name of the weights, if they have no classes to predict."""
    if not class_names:
        raise ValueError(f"{name} has no classification head, so it cannot predict classes")


def save_weights(
    path: str | Path,
    model: ViT,
    preprocess: Preprocess,
    class_names: Sequence[str],
    notes: Mapping[str, str] | None = None,
) -> None:
    """Save a ViT in one safetensors file, with everything that is needed to use it, or not at all.

    path  : ends in .safetensors
    notes : other strings by name, for `read_notes`
    raises: ValueError if the weights do not fit `model.config`, as with LoRA that is not merged, or
            custom blocks; for another ending, or a note with the name of one that is written here
    """
    path, notes = Path(path), notes or {}
    check_choice(f"ending of {shown(path)}", path.suffix, (".safetensors",))
    if taken := [name for name in (*PARTS, SEAL) if name in notes]:
        raise ValueError(
            f"save_weights writes {', '.join(taken)} itself: give these notes other names"
        )
    model = unwrap(model)
    kinds = {type(unwrap(block)) for block in model.blocks}
    custom = {kind.__name__ for kind in kinds - {*OWN_BLOCKS}}
    if custom:
        raise ValueError(
            f"the model's blocks are {', '.join(custom)}; "
            "only those of this package can be built again from its config"
        )
    check_sizes(model.config, preprocess)
    state = {key: value.contiguous() for key, value in plain_state_dict(model).items()}
    with torch.device("meta"):
        fill(ViT(model.config), {key: value.to("meta") for key, value in state.items()})
    if len(class_names) != model.config.num_classes:
        raise ValueError(f"{len(class_names)} class names for {model.config.num_classes} classes")
    notes = {
        **notes,
        "config": json.dumps(asdict(model.config)),
        "preprocess": json.dumps(asdict(preprocess)),
        "class_names": json.dumps(list(class_names)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_aside(path) as aside:
        write_sorted(aside, save(state, notes | {SEAL: tensor_digest(state, notes)}))


def write_sorted(path: Path, content: bytes) -> None:
    """Write a safetensors file with its notes in the order of their names, so that equal are equal.

    `save` puts them in another order each time.
    """
    start = 8  # bytes that hold the length of the header
    end = start + int.from_bytes(content[:start], "little")
    header = json.loads(content[start:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // start) * start)  # aligned, as the tensors have to be
    with path.open("wb") as file:
        file.write(len(text).to_bytes(start, "little") + text)
        file.write(memoryview(content)[end:])


@contextmanager
def safe_path(path: str | Path) -> Iterator[str]:
    """Give a path of a file for safetensors, which reads none whose name is not UTF-8.

    Only Linux has such names.
    """
    with Path(path).open("rb") as file:
        is_utf8 = str(path) == as_text(path)
        yield str(path) if is_utf8 else f"/dev/fd/{file.fileno()}"


def read_notes(path: str | Path) -> dict[str, str]:
    """Read the strings beside the weights in a safetensors file.

    raises: FileNotFoundError; ValueError if it is of another kind
    """
    if not (path := Path(path)).is_file():
        raise FileNotFoundError(f"no weights at {shown(path.absolute())}")
    try:
        with safe_path(path) as safe, safe_open(safe, "pt") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is cut short, or not a safetensors file: {error}") from error


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """Load the tensors of a safetensors file by name."""
    with safe_path(path) as safe:
        return load_file(safe)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read the shapes of the tensors in a file by name, of safetensors from its header alone."""
    if path.suffix != ".safetensors":
        return {
            key: tuple(value.shape) for key, value in find_state(load_pickle(path), path).items()
        }
    with safe_path(path) as safe, safe_open(safe, "pt") as file:
        return {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118


def load_pickle(path: Path) -> Any:
    """Load what `torch.save` wrote, on the CPU and without running code.

    In place of `HARMLESS` objects come those of `Ignored`.
    """
    harmless = torch.serialization.safe_globals([(Ignored, name) for name in HARMLESS])
    with harmless, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected pickle protocol")  # the error says more
        return torch.load(path, map_location="cpu", weights_only=True)


def load_weights(path: str | Path) -> Pretrained:
    """Load a file of `save_weights`, as float32.

    raises: ValueError if it is truncated, damaged, or of another kind
    """
    notes = read_notes(path)
    missing = [part for part in PARTS if part not in notes]
    if missing:
        raise ValueError(
            f"{path} was not made by save_weights: it does not contain {', '.join(missing)}"
        )
    state = load_tensors(path)
    seal = notes.pop(SEAL, None)
    if seal is not None and seal != tensor_digest(state, notes):
        raise ValueError(f"{path} is damaged: it has another checksum")
    try:
        return from_description(state, *(json.loads(notes[part]) for part in PARTS))
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} describes another kind of model: {error}") from error


def from_description(
    state: Mapping[str, Tensor],
    config: dict[str, Any],
    preprocess: dict[str, Any],
    class_names: list[str],
) -> Pretrained:
    """Build the model of weights and their description; many kinds of errors if they do not fit."""
    model_config = ViTConfig(**config | {"image_size": tuple(config["image_size"])})
    prepare = Preprocess(**preprocess)
    weights = {key: value.float() for key, value in state.items()}
    model = build_model(model_config, weights, prepare)
    pretrained = Pretrained(model.eval(), prepare, tuple(map(str, class_names)))
    channels, classes = prepare.in_chans, len(pretrained.class_names)
    if channels != model.config.in_chans or classes != model.config.num_classes:
        raise ValueError("its preprocessing or class names do not fit the model")
    return pretrained


def build_model(config: ViTConfig, state: Mapping[str, Tensor], preprocess: Preprocess) -> ViT:
    """Build the model of a description with its weights.

    Memory is taken only once the description fits the weights, however large a model it names.
    raises: ValueError if it does not
    """
    depth = len({key.split(".")[1] for key in state if key.startswith("blocks.")})
    if config.depth != depth:
        raise ValueError(f"the depth is {config.depth}, but there are weights of {depth} blocks")
    if config.num_tokens > MAX_TOKENS:
        raise ValueError(f"an image has {config.num_tokens:,} tokens (limit: {MAX_TOKENS:,})")
    check_sizes(config, preprocess)
    with torch.device("meta"):
        fill(ViT(config), {key: value.to("meta") for key, value in state.items()})
    model = ViT(config)
    fill(model, state)
    return model


def check_sizes(config: ViTConfig, preprocess: Preprocess) -> None:
    """Raise ValueError if images are prepared in another size than the model's, or far larger.

    And TypeError if mean or std are not numbers.
    """
    preprocess.normalize(torch.zeros(preprocess.in_chans, 1, 1))
    size = config.image_size
    if preprocess.crop != size:
        raise ValueError(f"images are cropped to {preprocess.crop}, but the model reads {size}")
    resized = to_2tuple(preprocess.resize)
    if max(resized) > MAX_RESIZE * max(to_2tuple(size)):
        raise ValueError(f"images of {size} are cut from {resized}, more than {MAX_RESIZE} times")


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file by name, as float32, wherever they are inside it.

    Names come without the prefix of a wrapper. A warning says what is left out.
    raises: ValueError if reading them would run code, if there are none, or if they are quantized;
            FileNotFoundError
    """
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {shown(path.absolute())}")
    shard = re.search(r"-of-0*(\d+)$", path.stem)
    if shard and int(shard[1]) > 1:
        raise ValueError(
            f"{path} is one of {shard[1]} files of a model: give the folder, {path.parent}"
        )
    content = load_content(path)
    if path.suffix == ".safetensors" and (part := read_notes(path).get(PART)):
        raise ValueError(
            f"{path} has only the weights that --tune {part} trained; "
            f"the whole model is in the same folder: give {path.parent}"
        )
    if isinstance(content, Mapping) and {"history", "recipe"} <= content.keys():
        raise ValueError(
            f"{path} is a checkpoint to resume from; "
            f"its weights are in the same folder: give {path.parent}"
        )
    state = find_state(content, path)
    if not state:
        raise ValueError(
            f"{path} contains no named tensors, but an object of type {type(content).__name__}"
        )
    check_memory(path, sum(w.numel() * w.element_size() for w in state.values()))
    state, left_out = without_prefix(state)
    if left_out:
        names = ", ".join(map(shown, left_out[:5]))
        warnings.warn(
            f"{shown(path)}: left out are {len(left_out)} tensors beside the model: {names}",
            stacklevel=2,
        )
    check_not_quantized(path, state)
    return {key: value.float() for key, value in state.items()}


def check_not_quantized(path: Path, state: Mapping[str, Tensor]) -> None:
    """Raise ValueError if matrices are bytes, which mean nothing without their scale."""
    for name, weight in state.items():
        if weight.ndim > 1 and weight.dtype in QUANTIZED:
            raise ValueError(
                f"{path} has quantized weights, {shown(name)} of {weight.dtype}, which are not "
                "read: save the model as it was before (float32, float16 or bfloat16)"
            )


def check_memory(path: Path, claimed: int) -> None:
    """Raise ValueError if so many bytes of tensors are too many for a file of this size.

    They may be views of a few numbers, or compressed zeros.
    """
    size = path.stat().st_size
    if claimed > MAX_RATIO * size:
        raise ValueError(f"{path} has {size:,} bytes, but its tensors would take {claimed:,}")


def load_content(path: Path) -> Any:
    """Load what is in a file of weights; ValueError if it would run code or cannot be read."""
    try:
        return load_tensors(path) if path.suffix == ".safetensors" else load_pickle(path)
    except Exception as error:  # torch and safetensors raise many kinds here
        way_out = (
            "If you trust whoever made the file, torch.load(PATH, weights_only=False) reads it, "
            "and torch.save(STATE_DICT, NEW) saves the weights alone"
        )
        if code := re.search(r"GLOBAL (\S+)", str(error)):
            raise ValueError(
                f"{path} contains pickled objects, which could run code: save only the "
                f"state_dict(). One is {shown(code[1])}. {way_out}"
            ) from error
        if "Unsupported operand" in str(error) and is_zipfile(path):  # as torch.save writes
            raise ValueError(
                f"{path} was saved with another pickle protocol than torch's own, 2, which cannot "
                f"be read without running code. {way_out}"
            ) from error
        raise ValueError(
            f"{path} is truncated, damaged or not a file of weights: {type(error).__name__}"
        ) from error


def find_state(content: Any, path: Path) -> dict[str, Tensor]:
    """Take a state dict out of the dicts around it; it is empty if there is none.

    Of averaged and plain weights the averaged are taken, as by timm, and a warning says so, as it
    names whatever else is there.

    >>> list(find_state({"epoch": 3, "state_dict": {"cls_token": torch.zeros(1)}}, Path("a.pth")))
    ['cls_token']
    """
    if not isinstance(content, Mapping):
        return {}
    inside = {name: find_state(content.get(name), path) for name in (*AVERAGED, *PLAIN)}
    inside = {name: state for name, state in inside.items() if state}
    if not inside:
        return {plain_name(str(name)): w for name, w in content.items() if isinstance(w, Tensor)}
    name, *others = inside
    others += [str(key) for key, w in content.items() if isinstance(w, Tensor) and w.ndim]
    if others:
        kind = "averaged weights" if name in AVERAGED else "weights"
        warnings.warn(
            f"{shown(path)} has {kind}, {name}, which are read, and others, "
            f"{', '.join(map(shown, others[:5]))}, which are not",
            stacklevel=2,
        )
    return inside[name]


def without_prefix(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Remove the prefix that most names share, if names of a known layout are left.

    returns: the weights, with those that have known names without the prefix, too; and the other
             names without it

    >>> weights = {"m.cls_token": torch.zeros(1), "m.norm.bias": torch.zeros(1)}
    >>> state, left_out = without_prefix({**weights, "loss.weight": torch.zeros(1)})
    >>> list(state), left_out
    (['cls_token', 'norm.bias'], ['loss.weight'])
    """
    counts = Counter(
        "".join(parts[:end])
        for parts in (re.findall(r"[^.]*\.", name) for name in state)
        for end in range(1, len(parts) + 1)
    )
    prefixes = ["", *(prefix for prefix, count in counts.items() if 2 * count > len(state))]

    def unknown_without(prefix: str) -> int:
        return count_unknown([name.removeprefix(prefix) for name in state])

    prefix = min(prefixes, key=unknown_without)
    inside = {name.removeprefix(prefix): w for name, w in state.items() if name.startswith(prefix)}
    outside = {name: w for name, w in state.items() if not name.startswith(prefix)}
    known = {
        name: w
        for name, w in outside.items()
        if name not in inside and count_unknown([*inside, name]) == count_unknown(list(inside))
    }
    return {**known, **inside}, [name for name in outside if name not in known]
