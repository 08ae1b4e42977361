"""Compare our model with torchvision's, timm's and Hugging Face's: the largest differences.

Every model gets random weights in the library's own format, none of them zero. Ours loads them with
the functions that read published weights. Then both get the same images, and the gradients of the
same loss are compared too.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from tools import main
from tools.experiments.libraries import CLASSES, SHAPES, make_model
from tools.experiments.measuring import add_out, markdown_table, random_images, store
from vit_helpers import pretrained
from vit_helpers._validate import check_choice
from vit_helpers.parity import largest_difference, perturb
from vit_helpers.vit import ViT, ViTConfig

MORE = {
    name: ViTConfig.from_name(name, num_classes=CLASSES)
    for name in ("S/16", "B/32", "L/16", "H/14")
}
SIZES = dict(sorted((SHAPES | MORE).items(), key=lambda item: item[1].embed_dim))
KEY_MAPS = {"torchvision": pretrained.from_torchvision, "timm": pretrained.from_timm}
KEY_MAPS["Hugging Face"] = pretrained.from_huggingface


def add_arguments(parser: ArgumentParser) -> None:
    about = f"of {', '.join(SIZES)} (default: all; H/14 takes 12 GB of memory)"
    parser.add_argument("sizes", nargs="*", metavar="SIZE", help=about)
    add_out(parser, "runs/parity.csv")


def run(args: Namespace) -> None:
    for size in args.sizes:
        check_choice("size", size, SIZES)
    print(
        markdown(
            store((compare(*case) for case in product(args.sizes or SIZES, KEY_MAPS)), args.out)
        )
    )


def compare(size: str, library: str) -> dict[str, Any]:
    """Our model beside one of a library, in float32: one row of the table.

    logits   : the largest difference of any logit of two images gradients: the largest difference
    of any parameter's gradient, over the largest gradient of that parameter
    """
    torch.manual_seed(0)
    config, renamed = SIZES[size], KEY_MAPS[library]
    theirs = make_model(library, config).eval()
    perturb(theirs)
    eps = next(m.eps for m in theirs.modules() if isinstance(m, nn.LayerNorm))
    ours = ViT(replace(config, norm_eps=eps)).eval()
    pretrained.fill(ours, renamed(theirs.state_dict()))
    images, _ = random_images(config, 2)
    (expected, gradients), (logits, mine) = (
        logits_and_gradients(theirs, images),
        logits_and_gradients(ours, images),
    )
    largest = [
        ((mine[name] - g).abs().max() / g.abs().max()).item()
        for name, g in renamed(gradients).items()
    ]
    row = {
        "model": size,
        "library": library,
        "parameters": sum(p.numel() for p in ours.parameters()),
    }
    row |= {
        "largest logit": expected.abs().max().item(),
        "logits": largest_difference(logits, expected),
    }
    return row | {"gradients": max(largest)}


def logits_and_gradients(model: nn.Module, images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The logits, and the gradients of the sum of their squares, under the model's own names."""
    output = model(images)
    logits = getattr(output, "logits", output)
    logits.square().sum().backward()
    return logits.detach(), {
        name: p.grad for name, p in model.named_parameters() if p.grad is not None
    }


def markdown(rows: pd.DataFrame) -> str:
    """The table of results/README.md: a line for each size, the libraries side by side."""
    sizes = rows.drop_duplicates("model")
    columns = {"largest difference of logits; of gradients": sizes["model"]}
    columns["parameters"] = sizes["parameters"].map("{:,}".format)
    for library, found in rows.groupby("library", sort=False):
        columns[library] = (
            found["logits"].map("{:.0e}; ".format) + found["gradients"].map("{:.0e}".format)
        ).to_numpy()
    return markdown_table(pd.DataFrame(columns))


if __name__ == "__main__":
    raise SystemExit(main())
