"""Name what a picture shows, with the weights of a trained model, and draw where the model looked.

Prints the likeliest classes with their probabilities. Saves a picture: what the model sees of yours, what the class token
looks at in the last layer (the mean of its heads), and attention followed through all layers (rollout).
"""

import sys
from pathlib import Path

from vit_helpers.cli import positive_int


def add_arguments(parser):
    parser.add_argument("picture", type=Path, help="an image file")
    parser.add_argument(
        "--weights", required=True, help="as for load_pretrained: torchvision:vit_b_16, timm:NAME, FILE.safetensors, ..."
    )
    parser.add_argument("--top", type=positive_int, default=5, help="how many classes (default: 5)")
    parser.add_argument("--out", type=Path, help="the attention picture (default: NAME-attention.png, here)")


def run(args):
    from vit_helpers.data.folders import open_picture
    from vit_helpers.pretrained import load_pretrained

    out = args.out or Path(f"{args.picture.stem}-attention.png")
    try:
        picture, kept = open_picture(args.picture), load_pretrained(args.weights)
        if not kept.class_names:
            raise ValueError(f"{args.weights} has no head: it names no classes")
        for name, share in kept.top(picture, args.top):
            print(f"{share:6.1%}  {name}")
        out.parent.mkdir(parents=True, exist_ok=True)
        draw(kept, picture).savefig(out, dpi=100)
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"attention: {out}")
    return 0


def draw(kept, picture):
    """The picture as the model sees it, beside two maps on scales of their own, which are told"""
    import matplotlib

    matplotlib.use("Agg")
    from vit_helpers.inspection import rollout
    from vit_helpers.plots import style
    from vit_helpers.plots.images import color_bar, draw_image, draw_over

    seen, model = kept.preprocess.frame(picture), kept.model
    weights = model.attention_weights(kept.preprocess.normalize(seen)[None])
    maps = {"last layer, mean of heads": weights[-1].mean(dim=1), "rollout": rollout(weights)}
    fig, (left, *others) = style.new_figure(11, 4, ncols=3)
    draw_image(seen, left, "what the model sees")
    for ax, (name, one) in zip(others, maps.items(), strict=True):
        asked = one[0, 0, 1:] if model.config.class_token else one[0].mean(dim=0)  # without a class token: by all patches
        _, drawn = draw_over(seen, asked.unflatten(0, model.config.grid), ax, name)
        color_bar(drawn, ax, "attention weight")
    return fig
