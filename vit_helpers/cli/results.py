"""What `train`, `evaluate` and `predict` have in common: the score and the figures of a test, and broken images."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from vit_helpers.training import Epoch, Score


def check_target(file: Path, figure: bool = True) -> Path:
    """A file for a result, whose folder is created; ValueError or OSError, before the work, if it cannot be written."""
    from vit_helpers._files import make_parent
    from vit_helpers._validate import check_choice

    if figure:
        from matplotlib.backend_bases import FigureCanvasBase

        check_choice(
            f"ending of {file}",
            file.suffix[1:].lower() or "png",
            FigureCanvasBase.get_supported_filetypes(),
        )
    if file.is_dir():
        raise ValueError(f"{file} cannot be written: it is a folder")
    if not file.exists():
        make_parent(file)
    return file


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
        figure.savefig(part, dpi=100, format=file.suffix[1:] or "png")


def report_broken(broken: Mapping[Path, str], total: int) -> int:
    """Say how many images could not be read, and why the first ten could not; returns the exit status of the command."""
    if broken:
        what = f"error: {len(broken)} of {total} images could not be read:"
        print(what, *list(broken.values())[:10], sep="\n  ", file=sys.stderr)
    return 1 if broken else 0
