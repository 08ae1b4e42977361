"""The work of `predict`: images are classified, and what the model attends to is drawn."""

from argparse import Namespace
from pathlib import Path

from PIL.Image import Image

from vit_helpers._files import from_cell, shown, write_result
from vit_helpers.cli.figures import draw_beside
from vit_helpers.cli.outputs import (
    check_figure,
    check_target,
    print_warnings,
    report_broken,
    save_figure,
)
from vit_helpers.cli.precision import predict_in
from vit_helpers.cli.predictions import (
    find_pictures,
    is_prediction_table,
    predict_files,
    prediction_table,
    white_of,
)
from vit_helpers.cli.threads import use_threads
from vit_helpers.data.images import open_picture
from vit_helpers.inspection import readout_map, rollout
from vit_helpers.pretrained import Pretrained, load_pretrained
from vit_helpers.pretrained.calibration import load_familiarity
from vit_helpers.pretrained.files import check_head

FAR = "unusually far from every class"


def run(args: Namespace) -> int:
    """Classify the images; return the exit status."""
    with print_warnings():
        files = find_pictures(args.pictures)
        pretrained = load_pretrained(args.weights)
    names = pretrained.class_names
    check_head(args.weights, names)
    figure = check_outputs(args, files)
    use_threads(pretrained.model, len(files))
    with print_warnings():
        white = white_of(pretrained, files, args.white)
    familiarity = load_familiarity(args.weights)
    precision = args.precision or (None if len(files) > 1 else "float32")
    with predict_in(precision, pretrained.model):
        probabilities, readable, broken = predict_files(pretrained, files, None, familiarity, white)
    table = prediction_table(readable, probabilities, names)
    if len(files) > 1:
        rows = table.to_dict("records")
        for unfamiliar, row in zip(readable.values(), rows, strict=True):
            hint = f"  ({FAR})" if unfamiliar else ""
            name, picture = (shown(from_cell(row[column])) for column in ("class", "picture"))
            print(f"{row['probability']:6.1%}  {name}  {picture}{hint}")
    elif broken:
        raise ValueError(broken[files[0]])
    else:
        with predict_in(precision, pretrained.model):
            predict_one(pretrained, open_picture(files[0], white), args.top, figure)
        if readable[files[0]]:
            advice = "don't rely on the probabilities"
            print(f"note: this image is {FAR} that the model knows: {advice}")
    if args.csv:
        with write_result(args.csv) as file:
            table.to_csv(file, index=False)
        print(f"predictions: {args.csv}")
    return report_broken(broken, len(files))


def check_outputs(args: Namespace, files: list[Path]) -> Path:
    """Return the file of the figure; raise ValueError or OSError if a result cannot be written."""
    figure = args.out or Path(f"{files[0].stem}-attention.png")
    if len(files) == 1:
        check_figure(figure, inputs=files)
    elif args.out:
        raise ValueError(
            f"--out is for the figure of a single image, got {len(files)} images: use --csv"
        )
    if args.csv:
        check_target(args.csv, "--csv", is_prediction_table, files)
        if len(files) == 1 and args.csv.resolve() == figure.resolve():
            raise ValueError(f"{args.csv} is both the figure and the table: give two names")
    return figure


def predict_one(pretrained: Pretrained, picture: Image, top: int, figure: Path) -> None:
    """Print the most probable classes of an image, and draw its attention into a file."""
    for name, probability in pretrained.top(picture, top):
        print(f"{probability:6.1%}  {shown(name)}")
    framed, model = pretrained.preprocess.frame(picture), pretrained.model
    image = pretrained.preprocess.normalize(framed)
    weights = model.attention_weights(image[None])
    attention = {"last block, mean of heads": weights[-1].mean(dim=1)[0]}
    attention["rollout"] = rollout(weights)[0]
    maps = {name: readout_map(matrix, model.config) for name, matrix in attention.items()}
    save_figure(draw_beside(framed, "what the model sees", maps, "attention weight"), figure)
    print(f"attention: {figure}")
