"""What `train`, `evaluate` and `predict` have in common: the score and the figures of a test, and broken images."""

import gzip
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os.path import samestat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.backend_bases import FigureCanvasBase
from PIL import ExifTags, Image

from vit_helpers._files import make_parent, shown
from vit_helpers._validate import check_choice

if TYPE_CHECKING:
    from torch import Tensor

    from vit_helpers.training import Epoch, Score

MARK = "drawn by python -m vit_helpers"  # in the metadata of figures: only those are replaced


def check_target(
    file: Path,
    option: str,
    ours: Callable[[bytes], bool] | None = None,
    inputs: Iterable[Path] = (),
) -> Path:
    """Create the folder of a result, and refuse a file that cannot be written or must not be replaced.

    option: that names the file, for the message
    ours  : whether the bytes of a file are those of an earlier result, which may be replaced;
            None where whoever writes the file looks for itself
    inputs: files that the command reads; looked through only if `file` exists
    raises: ValueError or OSError, before the work
    """
    if file.is_dir():
        raise ValueError(f"{file} cannot be written: it is a folder")
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
    """The format of a figure by the ending of its name; PNG for a name without one."""
    return file.suffix[1:].lower() or "png"


def mark(form: str) -> dict[str, Any]:
    """What `savefig` has to be told so that the file says who drew it; nothing where the format has no place for it."""
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
    """Whether `save_figure` wrote this file."""
    if suffix.lower() == ".svgz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            return False
    return MARK.encode() in content


def print_score(score: "Score", counts: "Tensor", what: str) -> None:
    """The accuracy of a test, with the interval that its number of images allows."""
    from vit_helpers.cli.scores import wilson_interval

    n, largest = int(counts.sum()), int(counts.sum(1).max())
    low, high = wilson_interval(int(counts.trace()), n)
    print(
        f"test accuracy {score.accuracy:.4f} on {n:,} {what}; 95% interval {low:.3f} to {high:.3f}"
    )
    if low <= largest / n:
        print(
            f"note: that interval includes {largest / n:.3f}, the accuracy of always predicting the most frequent class"
        )


def draw_results(
    out: Path, history: "Sequence[Epoch]", counts: "Tensor", class_names: Sequence[str]
) -> None:
    """Draw the curves and the test results of a run into its folder."""
    from vit_helpers.plots.training import draw_curves

    save_figure(draw_curves(history), out / "curves.png")
    draw_counts(out / "confusion.png", counts, class_names)


def draw_counts(file: Path, counts: "Tensor", class_names: Sequence[str]) -> None:
    """Draw the confusion matrix and the accuracy of each class."""
    from vit_helpers.cli.figures import draw_test
    from vit_helpers.cli.scores import class_table

    save_figure(draw_test(counts, class_table(counts, class_names)), file)


def save_figure(figure: Any, file: Path) -> None:
    """Write a figure in the format of the name; one that could not be written whole, as on a full disk, is not kept."""
    from vit_helpers._files import write_aside

    with write_aside(file) as part, warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Glyph .* missing from"
        )  # a name in letters that the font does not have
        form = figure_format(file)
        figure.savefig(part, dpi=100, format=form, **mark(form))


def report_broken(broken: Mapping[Path, str], total: int) -> int:
    """Say how many images could not be read, and why the first ten could not; returns the exit status of the command."""
    if broken:
        what = f"error: {len(broken)} of {total} images could not be read:"
        print(what, *list(broken.values())[:10], sep="\n  ", file=sys.stderr)
    return 1 if broken else 0
