"""A model of another library's weights: its config follows from their shapes."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pickle import UnpicklingError
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from vit_helpers._validate import to_2tuple
from vit_helpers.embeddings import resize_positions
from vit_helpers.patches import grid_size
from vit_helpers.pretrained.descriptions import drop_head
from vit_helpers.pretrained.files import Pretrained, build_model
from vit_helpers.pretrained.key_maps import StateDict
from vit_helpers.pretrained.preprocess import Preprocess
from vit_helpers.vit import SIZES, ViTConfig

OFFLINE = "Without a network: --weights ours:photos (in Python: load_pretrained('ours:photos'))."


def assemble(
    name: str,
    state: StateDict,
    num_heads: int | None,
    preprocess: Preprocess,
    class_names: Sequence[str],
    **fields: Any,
) -> Pretrained:
    """Make a model whose config follows from its weights' shapes.

    name     : of the weights, for messages
    num_heads: None for the paper's
    fields   : of the config, what no shape has; what `positions` has is learned if it has weights
    """
    require_keys(state, "patch_embed.proj.weight", "blocks.0.mlp.fc1.bias")
    D, numbers = state["patch_embed.proj.weight"].shape
    if not num_heads:
        num_heads = {size["embed_dim"]: size["num_heads"] for size in SIZES.values()}.get(D)
    if num_heads is None:
        raise ValueError(
            f"weights of width {D} do not show the number of heads: "
            "give num_heads, load_pretrained(PATH, num_heads=N) or train --set num_heads=N, "
            "or the folder, if a config.json is beside the file"
        )
    pre_logits, hidden = state.get("pre_logits.0.weight"), len(state["blocks.0.mlp.fc1.bias"])
    ratio = hidden / D
    if int(D * ratio) != hidden:  # 120 / 88 is too small
        ratio = math.nextafter(ratio, math.inf)
    if len(state.get("head.bias", ())) == 1:
        state = drop_head(name, state, "a single number, and no classes")
    classes = len(state.get("head.bias", ()))
    if "token_embed.pos_embed" in state:
        fields["positions"] = "learned"
    if "blocks.0.mlp.gate.weight" in state:
        fields["mlp_layer"] = "swiglu"
    if "attn_pool.latent" in state:
        fields["pool"] = "map"
    config = ViTConfig(
        image_size=preprocess.crop,
        patch_size=math.isqrt(numbers // preprocess.in_chans),
        in_chans=preprocess.in_chans,
        num_classes=classes,
        embed_dim=D,
        depth=len({key.split(".")[1] for key in state if key.startswith("blocks.")}),
        num_heads=num_heads,
        mlp_ratio=ratio,
        class_token="token_embed.cls_token" in state,
        representation_size=None if pre_logits is None else len(pre_logits),
        reg_tokens=sum(state[key].shape[1] for key in state if key == "token_embed.reg_token"),
        init_values=1.0 if "blocks.0.ls1.gamma" in state else None,  # learned since
        qk_norm="blocks.0.attn.q_norm.weight" in state,
        **fields,
    )
    model = build_model(config, state, preprocess)
    names = list(class_names) or [f"class {number}" for number in range(classes)]
    return Pretrained(model.eval(), preprocess, tuple(names if classes else ()))


def fit_positions(
    state: StateDict,
    size: tuple[int, int],
    new_size: tuple[int, int],
    patch_size: int,
    like: str,
) -> dict[str, Tensor]:
    """Bring learned positions into the form of our `ViT`, for images of another size.

    A class token without a position gets zeros.
    size: of the images that they were learned on
    like: the library that interpolates, as for `resize_positions`
    """
    name = "token_embed.pos_embed"
    if name not in state:
        return dict(state)
    grid, new_grid = grid_size(size, patch_size), grid_size(new_size, patch_size)
    positions = state[name]
    if "token_embed.cls_token" in state and positions.shape[1] == math.prod(grid):
        positions = F.pad(positions, (0, 0, 1, 0))
    return {**state, name: resize_positions(positions, grid, new_grid, like)}


def check_same_size(name: str, image_size: Any, crop: tuple[int, ...]) -> None:
    """Raise ValueError if images are prepared in another size than the model's."""
    size = to_2tuple(tuple(image_size) if isinstance(image_size, list) else image_size)
    if size != tuple(crop):
        raise ValueError(
            f"{name} has position embeddings for images of {size}, but prepares them as {crop}"
        )


def require_keys(state: StateDict, *keys: str) -> None:
    """Raise ValueError if weights that determine the config are missing."""
    missing = [key for key in keys if key not in state]
    if missing:
        raise ValueError(f"the file is incomplete: it has no {', '.join(missing)}")


def one_line(error: BaseException) -> str:
    """Return what an error says, or at least its kind, in one line of at most 300 characters."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextmanager
def explain_download(source: str, place: str = "", is_there: bool = False) -> Iterator[None]:
    """Raise an OSError that says what else can be done if weights cannot be downloaded or read.

    place   : the file that can be put there by hand, if it is known
    is_there: whether nothing has to be downloaded
    """
    try:
        yield
    except (OSError, RuntimeError, UnpicklingError) as error:  # RuntimeError: a wrong hash
        message = f"could not get {source}: {type(error).__name__}: {one_line(error)}"
        if place:
            message += f"\nBy hand: put the file at {place}."
        if not is_there:
            message += f"\n{OFFLINE}"
        raise OSError(message) from error
