"""Classify images with a trained model, and draw what it attends to.

For one image, prints the most probable classes, and saves a figure: the image as the model receives it, the attention of
the class token in the last block (the mean of its heads), and the attention through all blocks (attention rollout); for a
model without a class token, both are means over all patches. For several images, or folders of them, prints a line per
image; --csv stores the probabilities of all classes. With some weights, such as ours:photos, it marks images that are
unusually far from every class. This is only a hint: it misses many unsuitable images, and marks 5% of suitable ones.

Examples:

    python -m vit_helpers predict photo.jpg --weights ours:photos
    python -m vit_helpers predict photo.jpg --weights runs/mine
    python -m vit_helpers predict photos more/*.png --weights torchvision:vit_b_16 --csv predictions.csv
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vit_helpers.cli import positive_int

if TYPE_CHECKING:
    from vit_helpers.pretrained import Pretrained

FAR = "unusually far from every class"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "pictures", metavar="PICTURE", nargs="+", type=Path, help="image files, or folders of them"
    )
    weights = "the folder of a run, a file, or a name such as torchvision:vit_b_16: as for `train --weights`"
    parser.add_argument("--weights", required=True, help=weights)
    parser.add_argument(
        "--top",
        type=positive_int,
        default=5,
        help="classes to print for a single image (default: 5)",
    )
    parser.add_argument(
        "--out", type=Path, help="figure for a single image (default: NAME-attention.png)"
    )
    parser.add_argument(
        "--csv",
        type=Path,
        help="CSV file for all predictions: picture, class, probability, p(CLASS) ...",
    )


def run(args: Namespace) -> int:
    from vit_helpers.cli.predictions import find_pictures, predict_files, prediction_table
    from vit_helpers.cli.reading import print_warnings
    from vit_helpers.cli.results import check_target, report_broken
    from vit_helpers.cli.threads import use_threads
    from vit_helpers.pretrained import load_pretrained
    from vit_helpers.pretrained.calibration import load_familiarity

    with print_warnings():
        files = find_pictures(args.pictures)
    pretrained = load_pretrained(args.weights)
    if not (names := pretrained.class_names):
        raise ValueError(f"{args.weights} has no classification head, so it cannot predict classes")
    if args.out and len(files) > 1:
        raise ValueError(
            f"--out is for the figure of a single image, got {len(files)} images: use --csv"
        )
    use_threads(pretrained.model, len(files))
    figure = args.out or Path(f"{files[0].stem}-attention.png")
    if len(files) == 1:
        check_target(figure)
    if args.csv:
        check_target(args.csv, figure=False)
    probabilities, readable, broken = predict_files(
        pretrained, files, familiarity=load_familiarity(args.weights)
    )
    table = prediction_table(readable, probabilities, names)
    if len(files) > 1:
        for unfamiliar, row in zip(readable.values(), table.to_dict("records"), strict=True):
            print(
                f"{row['probability']:6.1%}  {row['class']}  {row['picture']}{f'  ({FAR})' * unfamiliar}"
            )
    elif broken:
        raise ValueError(broken[files[0]])
    else:
        predict_one(args, figure, pretrained, files[0])
        if readable[files[0]]:
            print(
                f"note: this image is {FAR} that the model knows: don't rely on the probabilities"
            )
    if args.csv:
        table.to_csv(args.csv, index=False)
        print(f"predictions: {args.csv}")
    return report_broken(broken, len(files))


def predict_one(args: Namespace, out: Path, pretrained: "Pretrained", file: Path) -> None:
    """Print the most probable classes of an image, and draw its attention into the file `out`."""
    from vit_helpers.cli.results import save_figure
    from vit_helpers.data.images import open_picture
    from vit_helpers.inspection import rollout
    from vit_helpers.plots.photos import draw_beside

    picture = open_picture(file)
    for name, probability in pretrained.top(picture, args.top):
        print(f"{probability:6.1%}  {name}")
    framed, model = pretrained.preprocess.frame(picture), pretrained.model
    weights = model.attention_weights(pretrained.preprocess.normalize(framed)[None])
    maps = {"last block, mean of heads": weights[-1].mean(dim=1)[0], "rollout": rollout(weights)[0]}
    for name, one in maps.items():
        row = (
            one[0, 1:] if model.config.class_token else one.mean(dim=0)
        )  # without a class token: of all patches
        maps[name] = row.unflatten(0, model.config.grid)
    save_figure(draw_beside(framed, "what the model sees", maps, "attention weight"), out)
    print(f"attention: {out}")
