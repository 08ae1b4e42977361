"""Classify an image with a trained model, and draw what its attention is on.

Prints the most probable classes. Saves a figure: what the model gets of your image, the attention of the class token in the
last layer (the mean of its heads), and attention followed through all layers (rollout).
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from vit_helpers.cli import positive_int


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("picture", type=Path, help="an image file")
    weights = "as for load_pretrained: torchvision:vit_b_16, timm:NAME, FILE.safetensors, ..."
    parser.add_argument("--weights", required=True, help=weights)
    parser.add_argument("--top", type=positive_int, default=5, help="how many classes (default: 5)")
    parser.add_argument("--out", type=Path, help="the attention figure (default: NAME-attention.png, here)")


def run(args: Namespace) -> None:
    import matplotlib

    from vit_helpers.data.images import open_picture
    from vit_helpers.inspection import rollout
    from vit_helpers.pretrained import load_pretrained

    matplotlib.use("Agg")
    from vit_helpers.plots.inspection import draw_beside

    out = args.out or Path(f"{args.picture.stem}-attention.png")
    picture, pretrained = open_picture(args.picture), load_pretrained(args.weights)
    if not pretrained.class_names:
        raise ValueError(f"{args.weights} has no head: it names no classes")
    for name, probability in pretrained.top(picture, args.top):
        print(f"{probability:6.1%}  {name}")
    framed, model = pretrained.preprocess.frame(picture), pretrained.model
    weights = model.attention_weights(pretrained.preprocess.normalize(framed)[None])
    maps = {"last layer, mean of heads": weights[-1].mean(dim=1)[0], "rollout": rollout(weights)[0]}
    for name, one in maps.items():
        row = one[0, 1:] if model.config.class_token else one.mean(dim=0)  # without a class token: of all patches
        maps[name] = row.unflatten(0, model.config.grid)
    out.parent.mkdir(parents=True, exist_ok=True)
    draw_beside(framed, "what the model gets", maps, "attention weight").savefig(out, dpi=100)
    print(f"attention: {out}")
