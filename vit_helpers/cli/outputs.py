"""What commands print, and the figures that they write: results replace nothing but results."""

import gzip
import shlex
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from os.path import samestat
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from PIL import ExifTags, Image
from torch import Tensor, nn

from vit_helpers._files import make_parent, shown, write_aside
from vit_helpers._validate import check_choice
from vit_helpers.cli import escape
from vit_helpers.cli.figures import draw_test, draw_worst
from vit_helpers.cli.mistakes import Mistakes
from vit_helpers.cli.scores import (
    balanced_accuracy,
    class_table,
    is_uneven,
    save_class_table,
    wilson_interval,
    worst_classes,
)
from vit_helpers.data.splits import SPLITS, DataLike
from vit_helpers.distributed import world_size
from vit_helpers.plots.training import draw_curves
from vit_helpers.training import Epoch, Score
from vit_helpers.training.presets import RunSettings

CLASSES_SHOWN = 10  # classes that are listed by name
MARK = "drawn by python -m vit_helpers"  # in the metadata of figures: only those are replaced
PACKED = {".bz2", ".gz", ".tar", ".xz", ".zip", ".zst"}  # endings that promise no plain text
# With fewer training images than this and a lower accuracy, fine-tuning is suggested
FEW_IMAGES, GOOD_ACCURACY = 5000, 0.95
# With fewer training images and more parameters, fine-tuning only the head is suggested
FEW_TO_TUNE, LARGE_MODEL = 1000, 50_000_000


# Files


def check_target(
    file: Path,
    option: str,
    ours: Callable[[bytes], bool] | None = None,
    inputs: Iterable[Path] = (),
) -> Path:
    """Create the folder of a result; refuse a file that cannot or must not be written.

    option: that names the file, for the message
    ours  : whether the bytes of a file are those of an earlier result, which may be replaced;
            None where whoever writes the file looks for itself
    inputs: files that the command reads; looked through only if `file` exists
    raises: ValueError or OSError, before the work
    """
    if file.is_dir():
        raise ValueError(f"{file} cannot be written: it is a folder")
    if file.suffix.lower() in PACKED:
        raise ValueError(f"{shown(file)} would not be packed: leave out {file.suffix} in {option}")
    if not file.exists():
        make_parent(file)
        return file
    advice = f"nothing is overwritten, so choose another name with {option}"
    status = file.stat()
    for path in inputs:
        if path.exists() and samestat(status, path.stat()):
            raise ValueError(f"{shown(file)} is read by this command: {advice}")
    empty_or_device = status.st_size == 0  # as /dev/stdout is
    if ours and not empty_or_device and not ours(file.read_bytes()):
        raise ValueError(f"{shown(file)} exists, and is no result of this command: {advice}")
    return file


def check_figure(file: Path, option: str = "--out", inputs: Iterable[Path] = ()) -> Path:
    """As `check_target`, for a figure, whose format is the ending of its name."""
    known = FigureCanvasBase.get_supported_filetypes()
    check_choice(f"ending of {file}", figure_format(file), known)
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise ValueError(f"{shown(file)} is no file, which a figure could replace")
    return check_target(file, option, partial(has_mark, file.suffix), inputs)


def figure_format(file: Path) -> str:
    """Return the format of a figure by the ending of its name; PNG for a name without one."""
    return file.suffix[1:].lower() or "png"


def mark(form: str) -> dict[str, Any]:
    """Return the options of `savefig` by which a file says who drew it.

    There are none for formats without a place for it, so those figures are never replaced.
    """
    if form == "png":
        return {"metadata": {"Software": MARK}}
    if form in ("svg", "svgz", "pdf", "ps", "eps"):
        return {"metadata": {"Creator": MARK}}
    if form in ("jpg", "jpeg", "tif", "tiff", "webp", "avif"):
        exif = Image.Exif()
        exif[ExifTags.Base.Software] = MARK
        return {"pil_kwargs": {"exif": exif}}
    return {"pil_kwargs": {"comment": MARK.encode()}} if form == "gif" else {}


def has_mark(suffix: str, content: bytes) -> bool:
    """Return whether `save_figure` wrote this file."""
    if suffix.lower() == ".svgz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            return False
    return MARK.encode() in content


def save_figure(figure: Figure, file: Path) -> None:
    """Write a figure in the format of the name; one that could not be written whole is not kept."""
    with write_aside(file) as part, warnings.catch_warnings():
        # of a name in letters that the font does not have
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        form = figure_format(file)
        figure.savefig(part, dpi=100, format=form, **mark(form))


def draw_results(
    out: Path,
    history: Sequence[Epoch],
    counts: Tensor,
    class_names: Sequence[str],
    mistakes: Mistakes,
) -> None:
    """Draw the curves and the test results of a run into its folder, with a table of its classes.

    mistakes: with images from 0 to 1
    """
    save_figure(draw_curves(history), out / "curves.png")
    draw_counts(out / "confusion.png", counts, class_names)
    draw_mistakes(out / "mistakes.png", mistakes, counts, class_names)
    save_class_table(class_table(counts, class_names), out / "classes.csv")


def draw_counts(file: Path, counts: Tensor, class_names: Sequence[str]) -> None:
    """Draw the confusion matrix and the accuracy of each class."""
    save_figure(draw_test(counts, class_table(counts, class_names)), file)


def draw_mistakes(
    file: Path,
    mistakes: Mistakes,
    counts: Tensor,
    class_names: Sequence[str],
    pictures: Sequence[str] = (),
) -> None:
    """Draw the worst mistakes, as `draw_worst`; without any, the file of an earlier test goes."""
    if not len(mistakes.images):
        file.unlink(missing_ok=True)
        return
    wrong = int(counts.sum() - counts.trace())
    save_figure(draw_worst(mistakes, class_names, wrong, pictures), file)


# Lines


@contextmanager
def print_warnings(aloud: bool = True) -> Iterator[None]:
    """Print the warnings about data as notes, when what is inside has succeeded."""
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        yield
    for warning in noticed:
        if aloud and warning.category is UserWarning:
            print(f"note: {escape(warning.message)}")


@contextmanager
def print_warnings_at_once() -> Iterator[None]:
    """Print each warning about data as a note when it comes: what is inside may take hours."""
    with warnings.catch_warnings():
        show_others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **text: Any) -> None:
            if category is UserWarning:
                print(f"note: {escape(message)}", flush=True)
            else:
                show_others(message, category, *where, **text)

        warnings.showwarning = show
        yield


def describe(data: DataLike) -> str:
    """Describe in two lines the classes of a data set and its splits, with their sizes."""
    classes = [shown(name) for name in data.class_names]
    if data.class_counts:
        pairs = zip(classes, data.class_counts, strict=True)
        classes = [f"{name} ({number:,})" for name, number in pairs]
    listed = classes[:CLASSES_SHOWN]
    if len(classes) > CLASSES_SHOWN:
        listed.append(f"and {len(classes) - CLASSES_SHOWN:,} more")
    counts = {split: data.count(split) for split in SPLITS}
    total = sum(counts.values())
    shares = ", ".join(f"{split} {n:,} ({n / total:.0%})" for split, n in counts.items())
    height, width = data.image_size
    size = f"{height} x {width} pixels, {'gray' if data.in_chans == 1 else 'color'}"
    return f"{len(classes)} classes: {', '.join(listed)}\nimages: {shares}; {size}"


def print_start(data: DataLike, model: nn.Module, settings: RunSettings, device: str) -> None:
    """Print what is trained, on what, and how."""
    size = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    name = "CNN" if settings.network == "cnn" else f"ViT {settings.weights or settings.model}"
    tuned = f" ({settings.tune}: {trained:,} of them are trained)" if settings.weights else ""
    threads = torch.get_num_threads()
    processes = f"{world_size()} processes of " if world_size() > 1 else ""
    images = min(data.count("train"), settings.images or data.count("train"))
    print(
        f"{settings.data}: {images:,} training images; {name}, {size:,} parameters{tuned}; "
        f"{device}, {processes}{threads} thread{'s' if threads > 1 else ''}"
    )
    print(f"{describe(data)}\n{settings}")
    if settings.weights and settings.tune != "head" and images < FEW_TO_TUNE and size > LARGE_MODEL:
        print(
            f"note: for {images:,} images and a model of this size, try --tune head first: it is "
            "many times as fast, because the model then reads each image only a few times"
        )


def print_score(score: Score, counts: Tensor, description: str) -> None:
    """Print the accuracy of a test, with the interval that its number of images allows."""
    n, largest = int(counts.sum()), int(counts.sum(1).max())
    low, high = wilson_interval(int(counts.trace()), n)
    print(
        f"test accuracy {score.accuracy:.4f} on {n:,} {description}; "
        f"95% interval {low:.3f} to {high:.3f}"
    )
    if low <= largest / n:
        print(
            f"note: that interval includes {largest / n:.3f}, "
            "the accuracy of always predicting the most frequent class"
        )
    print(f"test loss {score.loss:.3f} nats, without label smoothing")


def print_classes(table: pd.DataFrame) -> None:
    """Print in a line how accurate the classes are: all of them, or the worst ten.

    table: `class_table`
    """
    print_balanced(table)
    tested = table[table["images"] > 0].iloc[:-1]
    title = "accuracy of each class (and its images)"
    if len(tested) > CLASSES_SHOWN:
        title = f"worst of {len(tested):,} classes (and their images)"
        tested = worst_classes(table, CLASSES_SHOWN)
    columns = zip(tested.index, tested["accuracy"], tested["images"], strict=True)
    listed = [f"{shown(name)}: {share:.2f} ({images:,})" for name, share, images in columns]
    print(f"{title}: {', '.join(listed)}")


def print_balanced(table: pd.DataFrame) -> None:
    """Print the balanced accuracy of a test whose classes are uneven.

    table: `class_table`
    """
    if is_uneven(table):
        sizes = table["images"].iloc[:-1]
        print(
            f"balanced accuracy {balanced_accuracy(table):.4f}, the mean over the classes, "
            f"which have {sizes[sizes > 0].min():,} to {sizes.max():,} test images"
        )


def print_end(out: Path, data: DataLike, settings: RunSettings, accuracy: float) -> None:
    """Print where the results are, and what to do next."""
    if not settings.keeps_weights:
        reason = "because predict reads only ViTs with pre-norm blocks"
        print(f"weights:    only in the checkpoint, {reason}\nfigures:    {out}")
        return
    print(f"weights:    {out / 'weights.safetensors'}")
    print(f"curves:     {out / 'curves.png'}")
    print(f"confusion:  {out / 'confusion.png'}")
    if (out / "mistakes.png").exists():
        print(f"mistakes:   {out / 'mistakes.png'}")
        if settings.data.startswith("folder:"):
            words = shlex.join(["evaluate", str(out), settings.data])
            print(f"            with the names of their files: python -m vit_helpers {words}")
    print(f"classes:    {out / 'classes.csv'}")
    print(f"predict with: python -m vit_helpers predict PICTURE --weights {shlex.quote(str(out))}")
    few = data.in_chans == 3 and data.count("train") < FEW_IMAGES
    if settings.weights is None and few and accuracy < GOOD_ACCURACY:
        print(
            "with so few images, fine-tuning a trained model usually does better than training "
            "from scratch: add --weights torchvision:vit_b_16 --tune head"
        )


def report_broken(broken: Mapping[Path, str], total: int) -> int:
    """Print how many images could not be read, and why the first ten could not.

    returns: the exit status of the command
    """
    if not broken:
        return 0
    print(f"error: {len(broken)} of {total} images could not be read:", file=sys.stderr)
    for reason in list(broken.values())[:10]:
        print(f"  {escape(reason)}", file=sys.stderr)
    return 1
