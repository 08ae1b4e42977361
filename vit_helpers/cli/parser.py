"""The options of all commands.  Nothing is imported here but argparse: `--help` answers at once."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any


def positive_int(text: str) -> int:
    """Read an option that counts something: 1 or more."""
    value = int(text)
    if value < 1:
        raise ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def positive_number(text: str) -> float:
    """Read an option that is a number above 0."""
    value = float(text)
    if not value > 0:
        raise ArgumentTypeError(f"must be above 0, got {text}")
    return value


def parse(words: Sequence[str]) -> Namespace:
    """Read the words after `python -m vit_helpers`; raise SystemExit for --help and for errors."""
    parser = ArgumentParser(
        prog="python -m vit_helpers", description="Commands of the Vision Transformer series."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, add_options in COMMANDS.items():
        summary, _, rest = (add_options.__doc__ or "").partition("\n")
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary}\n{dedent(rest)}",
            formatter_class=RawDescriptionHelpFormatter,
        )
        add_options(command)
    args, unknown = parser.parse_known_args(words)
    if unknown:  # named with the options of the command, which argparse itself does not do
        commands.choices[args.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


# Options of `train` that are settings of the run: their types and meanings
TRAIN_SETTINGS: dict[str, tuple[Callable[[str], Any], str]] = {
    "size": (
        str,
        "size of the model: mini, Ti, S, B, L or H "
        "(default: that of the data set; mini for digits)",
    ),
    "patch": (
        positive_int,
        "side of a patch in pixels (default: that of the data set; 4 for digits)",
    ),
    "image_size": (
        positive_int,
        "side in pixels to which photos are resized (default: 64, or that of the weights)",
    ),
    "augment": (
        str,
        "augmentation of training images: affine, crop, erase, none, or flip, flip_crop, photos "
        "(which mirror)",
    ),
    "epochs": (positive_int, "passes over the training split (default: that of the data set)"),
    "batch_size": (positive_int, "images per step (default: that of the data set)"),
    "lr": (float, "peak learning rate (default: that of the data set)"),
    "weight_decay": (float, "weight decay of the weight matrices (default: that of the data set)"),
    "precision": (
        str,
        "float32, or bfloat16 for matrix products (default: bfloat16 for a wide model, as S or B, "
        "on a CPU with units for it, else float32)",
    ),
    "seed": (int, "seed of all random numbers (default: 0)"),
    "patience": (
        positive_int,
        "stop after so many epochs without a higher validation accuracy (default: never)",
    ),
    "weights": (
        str,
        "start from a trained model: a name, a file, or the folder of a run "
        "(default: from scratch)",
    ),
    "white": (
        positive_number,
        "value of white in a folder's gray images of more than 8 bits, as 4095 for 12 bits "
        "(default: found from all images, or asked for)",
    ),
    "rank": (positive_int, "rank of the LoRA updates, with --tune lora (default: 8)"),
}


def add_train(parser: ArgumentParser) -> None:
    """Train a ViT and keep the results; without options, on real digits that need no download.

    Each data set has settings of its own (vit_helpers/training/presets.toml), which options
    override.

    Prints a line per epoch: the loss (cross-entropy with label smoothing, in nats: guessing one of
    K classes costs ln K), the accuracy on the training images as they are seen during training,
    loss and accuracy on the validation split, the learning rate at the first step, and the speed.
    The test split is used when the training has ended, with the weights that are kept. The folder
    of the run contains

        weights.safetensors    the weights, for `predict` and `evaluate`: those of the last epoch;
                               with --patience those of the best, and last.safetensors the last
        checkpoint.pt          everything that --resume needs to continue; .previous, the one before
        history.csv            the measurements of each epoch, as a table
        curves.png             the same as a figure
        confusion.png          the confusion matrix of the test, and the accuracy of each class
                               (of more than 30 classes, what is confused most, and the worst)
        mistakes.png           the most confident wrong answers of the test, at most 12
        classes.csv            the accuracy of each class in the test, with its 95% interval

    In history.csv, columns without a prefix are of training, those with val_ of validation:
    majority_share is the fraction of images that get the most frequent answer, largest_class the
    share of the largest class, least_loss the lowest loss that smoothed or mixed labels allow,
    guess_loss the lowest of one answer for all images, probabilities whether the outputs have
    passed a softmax, and tokens how many an image has in the network.

    Ctrl-C keeps every finished epoch; --resume continues to the result of a run that was never
    stopped (on CPU and CUDA).

    With --weights, a trained model is fine-tuned, which is the best choice for a few hundred
    photos. WEIGHTS is a name as for `load_pretrained` (torchvision:vit_b_16, timm:NAME,
    huggingface:NAME), the folder of a run, or a file: .safetensors, .npz, or tensors saved by
    torch.save (.pth, .pt, .bin), which are read without running any code.
    Weights of gray images, such as a run on the digits, are adapted to color ones, as folders have
    them, and the reverse: a gray picture gives the same outputs in both forms.

    --tune full trains all weights, head only a new classification head, and lora low-rank updates
    (LoRA) and the head. For a few hundred photos and a large model such as torchvision:vit_b_16,
    --tune head is recommended, because it takes minutes: the model computes the features of each
    image once, in 4 augmented views, and the head is trained on these. The views are drawn with the
    seed of the run before the first epoch, and repeat in the epochs after the fourth. Features take
    up to 1 GiB of memory: of more images there are fewer views, and where not even one fits, all
    images are read in each epoch. With head and lora, checkpoint.pt and last.safetensors contain
    only what is trained, and --resume needs the same WEIGHTS again; weights.safetensors is whole,
    and written when the training ends or is stopped.

    Examples:

        python -m vit_helpers train --data folder:photos --image-size 96 --set depth=4
        python -m vit_helpers train --data folder:photos --augment flip_crop --set dropout=0.1
        python -m vit_helpers train --data folder:photos --weights torchvision:vit_b_16 --tune head

    When torchrun starts several processes, they train together, each on its slice of every batch:

        torchrun --nproc-per-node=2 -m vit_helpers train --data fashion_mnist

    With data in memory and without dropout, the result is that of one process. Images that do not
    fit into memory are written once by `python -m vit_helpers shards`, and then read as a stream
    with --data shards:FOLDER, each process its own part.
    """
    add = parser.add_argument
    add("--data", help="name of the data set, or folder:PATH for your own images (default: digits)")
    add_folder_options(parser)
    add(
        "--no-cache",
        action="store_true",
        help="decode all images again, and store no pixels in your cache folder",
    )
    for name, (kind, meaning) in TRAIN_SETTINGS.items():
        add(f"--{name.replace('_', '-')}", type=kind, help=meaning)
    add(
        "--tune",
        choices=("full", "head", "lora"),
        help="what is trained, with --weights (default: full; head is by far the fastest)",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any setting of a table of `ablate`, as in depth=4; may be repeated, and --settings "
        "explains all of them",
    )
    add("--settings", action="store_true", help="explain every setting, and train nothing")
    add(
        "--device",
        default="auto",
        help="cpu, cuda, mps, or auto for the fastest available (default: auto)",
    )
    add(
        "--out",
        type=Path,
        help="folder for the results (default: the next free runs/NAME-1, -2, ..., by the name of "
        "the data set or of your folder)",
    )
    add(
        "--resume", type=Path, metavar="FOLDER", help="continue the run in FOLDER, with its options"
    )
    add(
        "--shard",
        action="store_true",
        help="each process keeps only its part of the weights (FSDP2)",
    )


def add_folder_options(parser: ArgumentParser) -> None:
    """Add the options for folder:PATH that several commands have."""
    parser.add_argument(
        "--split",
        choices=("hash", "exact"),
        help="how a folder's images are divided: 'hash', by each image's content, so that no image "
        "changes its split when others are added (default); or 'exact', 15%% of each class for "
        "validation and 15%% for testing",
    )
    parser.add_argument(
        "--skip-broken",
        action="store_true",
        help="leave out image files that cannot be read, and say how many",
    )


def add_precision(parser: ArgumentParser) -> None:
    """Add the option of commands that predict."""
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        help="of matrix products (default: bfloat16 for several images and a wide model, as S or "
        "B, on a CPU with units for it, else float32)",
    )


def add_white(parser: ArgumentParser) -> None:
    """Add the option about gray images of more than 8 bits."""
    parser.add_argument(
        "--white",
        type=positive_number,
        help="value of white in gray images of more than 8 bits, as 4095 for 12 bits (default: "
        "that of the model's training images, if there is a model and it is known; else found from "
        "all images, or asked for)",
    )


def add_predict(parser: ArgumentParser) -> None:
    """Classify images with a trained model, and draw what it attends to.

    For one image, prints the most probable classes, and saves a figure: the image as the model
    receives it, the attention of the class token in the last block (the mean of its heads), and the
    attention through all blocks (attention rollout); if the head of the model reads no class token,
    both are means over all patches. For several images, or folders of them, prints a line per
    image; --csv stores the probabilities of all classes. With some weights, such as ours:photos, it
    marks images that are unusually far from every class; with those of your own runs, it marks
    none. This is only a hint: it misses many unsuitable images, and marks 5% of suitable ones.

    Earlier results of this command are replaced; other files are not.

    Examples:

        python -m vit_helpers predict photo.jpg --weights ours:photos
        python -m vit_helpers predict photo.jpg --weights runs/mine
        python -m vit_helpers predict photos more/*.png --weights torchvision:vit_b_16 --csv all.csv
    """
    add = parser.add_argument
    add("pictures", metavar="PICTURE", nargs="+", type=Path, help="image files, or folders of them")
    add(
        "--weights",
        required=True,
        help="the folder of a run, a file, or a name such as torchvision:vit_b_16: as for "
        "`train --weights`",
    )
    add(
        "--top",
        type=positive_int,
        default=5,
        help="classes to print for a single image (default: 5)",
    )
    add_white(parser)
    add_precision(parser)
    add("--out", type=Path, help="figure for a single image (default: NAME-attention.png)")
    add(
        "--csv",
        type=Path,
        help="CSV file for all predictions: picture, class, probability, p(CLASS) ...",
    )


def add_evaluate(parser: ArgumentParser) -> None:
    """Test a trained model on other images, and show which classes it confuses.

    For folder:PATH with a folder for each class, all images are used except those that the run was
    trained or validated on. They are recognized by the bytes of their files, so a copy that was
    saved anew is not; and a note says where it is unknown what a model has seen. For a folder that
    is divided
    into splits, and for other data sets, only the test split is used. The model must know all
    classes.

    Prints the accuracy of each class, and draws two figures: which classes are confused, and the
    most confident wrong answers, at most 12, with the predicted class, its probability, the true
    class, and the file. Of more than 30 classes, the worst and the pairs that are confused most
    often are shown, and all are in NAME-classes.csv. --csv stores what was predicted for each
    image. Images that are no files are named by their split and number, from "test 0" on.

    Earlier results of this command are replaced; other files are not.

    Examples:

        python -m vit_helpers evaluate runs/mine folder:new_photos --csv new_photos.csv
        python -m vit_helpers evaluate runs/digits-1 digits --out digits.png
    """
    add = parser.add_argument
    add(
        "weights",
        metavar="WEIGHTS",
        help="the folder of a run, a file, or a name: as for `train --weights`",
    )
    add(
        "data", metavar="DATA", help="folder:PATH for images of your own, or the name of a data set"
    )
    add_white(parser)
    add_precision(parser)
    add(
        "--out",
        type=Path,
        help="file for the figure (default: NAME-confusion.png); that of wrong answers is beside "
        "it, as NAME-mistakes.png",
    )
    add(
        "--csv",
        type=Path,
        help="CSV file with a row for each image: picture, true class, predicted class, "
        "probability",
    )


def add_ablate(parser: ArgumentParser) -> None:
    """Train a table of changes, one at a time, and show which are larger than the noise.

    The table is a TOML file: data, model, how many seeds of each, and what to change, as in

        data = "digits"
        model = "mini/2"
        seeds = 3
        [baseline]
        epochs = 10
        [changes]
        "no positions" = {positions = "none"}
        "learning rate 1e-3" = {lr = 1e-3}

    Every finished run is written to the CSV file at once, with the images that it classified
    correctly; the same command continues where it stopped. Accuracy is measured on the validation
    split. With "test = true" in the table, accuracy on the test split is kept, too: report it, but
    base no choice on it.

    The error of a difference is its standard error over the seeds, NaN if a few seeds happen to
    have equal differences. "image error" is that over the images, because another sample would give
    a different one; "both errors" combines the two; and p is corrected for the number of changes
    (Holm).

    Examples:

        python -m vit_helpers ablate changes.toml
        python -m vit_helpers ablate changes.toml --workers 2 --out runs/changes.csv
    """
    add = parser.add_argument
    add("table", type=Path, help="the TOML file")
    add(
        "--workers",
        type=positive_int,
        default=1,
        help="runs at a time, one thread each (default: 1)",
    )
    add("--out", type=Path, help="the CSV file (default: beside the table, with its name)")


def add_shards(parser: ArgumentParser) -> None:
    """Write a data set as shards (tar files), which `train` reads as a stream.

    So images are trained on that do not fit into memory. Those of folder:PATH are read a few at a
    time; any other data set is loaded first. The splits are those of `train`.

    Examples:

        python -m vit_helpers shards folder:photos shards/photos --image-size 96
        python -m vit_helpers shards fashion_mnist shards/fashion --per-shard 5000
    """
    add = parser.add_argument
    add(
        "data",
        metavar="DATA",
        help="name of the data set: digits, folder:PATH for your own images, ...",
    )
    add(
        "folder",
        metavar="FOLDER",
        type=Path,
        help="folder for the shards, which must be new or empty",
    )
    add("--per-shard", type=positive_int, default=1000, help="images in a shard (default: 1000)")
    add(
        "--image-size",
        type=positive_int,
        help="side in pixels to which photos are resized (default: 64)",
    )
    add_white(parser)
    add_folder_options(parser)


def add_doctor(parser: ArgumentParser) -> None:
    """Check Python, packages, torch, threads and the kernel, and suggest what to do.

    Prints a line for each finding: `ok`, `note` (worth knowing, but nothing fails) or `bad` (part
    of the series fails, or takes many times as long; the line below says what to do). Nothing is
    changed. The exit status is 0 if nothing is bad.

    Examples:

        python -m vit_helpers doctor
        python -m vit_helpers doctor > report.txt
    """


def add_live(parser: ArgumentParser) -> None:
    """Open a page on which a Vision Transformer reads the digit that you draw.

    The page is a single HTML file with the model inside. It needs no network and no Python, so it
    can be copied or sent.

    Examples:

        python -m vit_helpers live
        python -m vit_helpers live --out digit_page.html
    """
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the page to this file, without opening it"
    )


def add_look(parser: ArgumentParser) -> None:
    """Look into a trained model: what it makes of the patches of a photo, in one figure.

    It shows the photo as the model receives it; the first three principal components of its tokens
    as red, green and blue, so that patches whose tokens are alike have the same color (which color
    is arbitrary); the attention of the class token in the last block, the mean of its heads, or
    that of all patches, if the head of the model reads no class token; and how similar each token
    is to that of one patch, which a cross marks.

    Models that were trained without labels show most, as DINOv2 and DINOv3 do. Examples:

        python -m vit_helpers look photo.jpg --weights huggingface:facebook/dinov2-small
        python -m vit_helpers look photo.jpg --weights timm:vit_small_patch16_dinov3 --patch 5,9
        python -m vit_helpers look photo.jpg --weights runs/mine --block 1
    """
    add = parser.add_argument
    add("picture", metavar="PHOTO", type=Path, help="an image file")
    add(
        "--weights",
        required=True,
        help="the folder of a run, a file, or a name such as huggingface:facebook/dinov2-small: as "
        "for `train --weights`. Without a network there are those of this series, ours:NAME",
    )
    add("--block", type=positive_int, help="after which the tokens are taken (default: the last)")
    add(
        "--rows",
        type=positive_int,
        help="patches along the shorter side of the photo (default: as many as in training)",
    )
    add(
        "--patch",
        metavar="ROW,COLUMN",
        help="to compare with all others, counted from 0 (default: in the middle)",
    )
    add_white(parser)
    add("--out", type=Path, help="the figure (default: NAME-look.png)")


COMMANDS: dict[str, Callable[[ArgumentParser], None]] = {
    "train": add_train,
    "predict": add_predict,
    "look": add_look,
    "evaluate": add_evaluate,
    "ablate": add_ablate,
    "shards": add_shards,
    "doctor": add_doctor,
    "live": add_live,
}
