"""The work of `look`: what a model makes of the patches of a photo, as a figure."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL.Image import Image
from torch import Tensor

from vit_helpers.cli.figures import draw_look
from vit_helpers.cli.outputs import check_figure, print_warnings, save_figure
from vit_helpers.cli.threads import use_threads
from vit_helpers.data.images import open_picture
from vit_helpers.inspection import (
    principal_components,
    readout_map,
    reads_class_token,
    token_layers,
)
from vit_helpers.pretrained import Pretrained, load_pretrained
from vit_helpers.pretrained.finetune import transfer_weights

MAX_PATCHES = 4096  # of a photo: attention needs a number for each pair


def run(args: Namespace) -> None:
    """Draw what a model makes of a photo."""
    out = check_figure(args.out or Path(f"{args.picture.stem}-look.png"), inputs=[args.picture])
    photo = open_picture(args.picture, args.white)
    with print_warnings():
        pretrained = load_pretrained(args.weights)
    size = fit_size(photo.size[::-1], pretrained, args.rows)
    model = transfer_weights(pretrained.model, image_size=size).eval()
    use_threads(model, 1)
    rows, columns = grid = model.config.grid
    patch = parse_patch(args.patch, grid)
    block = args.block or model.config.depth
    if block > model.config.depth:
        raise ValueError(f"--block {block}: the model has {model.config.depth} blocks")

    seen = frame(photo, pretrained, size)
    image = pretrained.preprocess.normalize(seen)[None]
    prefix = model.config.num_prefix_tokens
    with torch.no_grad():
        tokens = token_layers(model, image)[block]
        if block == model.config.depth:
            tokens = model.norm(tokens)
        attention = model.attention_weights(image)[-1].mean(dim=1)[0]  # (T, T)
    tokens = tokens[:, prefix:]
    unit = F.normalize(tokens[0] - tokens[0].mean(dim=0), dim=1)
    queries = "the class token" if reads_class_token(model.config) else "all patches"
    figure = draw_look(
        seen,
        principal_components(tokens)[0].unflatten(0, grid),
        (queries, readout_map(attention, model.config)),
        (unit @ unit[patch[0] * columns + patch[1]]).unflatten(0, grid),
        patch,
        block,
    )
    save_figure(figure, out)
    print(f"{rows} x {columns} patches, tokens after block {block} of {model.config.depth}")
    print(f"figure: {out}")


def fit_size(size: tuple[int, int], pretrained: Pretrained, rows: int | None) -> tuple[int, int]:
    """Return the (H, W) in whole patches for a photo of this size, whose shape it keeps.

    rows  : patches along its shorter side; None for those of the training
    raises: ValueError for more than `MAX_PATCHES` patches
    """
    config = pretrained.model.config
    short = rows or min(config.grid)
    long = max(short, round(short * max(size) / min(size)))
    if short * long > MAX_PATCHES:
        raise ValueError(
            f"{short} x {long} patches are more than {MAX_PATCHES:,}: give fewer --rows, "
            "or a photo whose sides differ less"
        )
    sides = short * config.patch_size, long * config.patch_size
    return sides if size[0] <= size[1] else sides[::-1]


def parse_patch(text: str | None, grid: tuple[int, int]) -> tuple[int, int]:
    """Return the (row, column) of a patch that --patch names; without it, that in the middle.

    raises: ValueError if it is not in the grid
    """
    if text is None:
        return grid[0] // 2, grid[1] // 2
    parts = text.split(",")
    if len(parts) == 2 and all(part.strip().isdecimal() for part in parts):
        row, column = map(int, parts)
        if row < grid[0] and column < grid[1]:
            return row, column
    rows, columns = grid
    raise ValueError(
        f"--patch is ROW,COLUMN from 0,0 to {rows - 1},{columns - 1} here, got {text!r}"
    )


def frame(photo: Image, pretrained: Pretrained, size: tuple[int, int]) -> Tensor:
    """Resize a whole photo to a size, as the model receives it: (C, H, W) from 0 to 1."""
    return replace(pretrained.preprocess, resize=size, crop=size).frame(photo)
