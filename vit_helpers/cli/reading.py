"""How images are read: the options that commands share, and what is printed about the data before training."""

import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vit_helpers.training.presets import RunSettings

SHOWN = 10  # classes that are listed by name


def add_data_arguments(parser: ArgumentParser, cache: bool = True) -> None:
    """Add the options for folder:PATH: --split, --skip-broken and, for a command that may read it many times, --no-cache."""
    add = parser.add_argument
    stable = (
        "'hash', by each image's content, so that no image changes its split when others are added"
    )
    exact = "'exact', 15%% of each class for validation and 15%% for testing"
    add(
        "--split",
        choices=("hash", "exact"),
        help=f"how a folder's images are divided: {stable} (default); or {exact}",
    )
    add(
        "--skip-broken",
        action="store_true",
        help="leave out image files that cannot be read, and say how many",
    )
    if cache:
        add(
            "--no-cache",
            action="store_true",
            help="decode all images again, and store no pixels in your cache folder",
        )


def load_run(args: Namespace, settings: "RunSettings") -> tuple[Any, Any]:
    """The data set of a run and its network, read as the options say; warnings about the data are printed, a line each."""
    from vit_helpers.cli.runs import load_run
    from vit_helpers.distributed import is_main_process

    options = {"skip_broken": True} if args.skip_broken else {}
    if settings.data.startswith("folder:") and not args.no_cache:
        options["cache"] = True
    with print_warnings(is_main_process()):
        return load_run(settings, **options)


@contextmanager
def print_warnings(aloud: bool = True) -> Iterator[None]:
    """Print the warnings about data as notes, when what is inside has succeeded."""
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        yield
    for one in noticed:
        if aloud and one.category is UserWarning:
            print(f"note: {one.message}")


def describe(data: Any) -> str:
    """The classes of a data set with their numbers of images, and its splits with their shares, in two lines."""
    from vit_helpers._files import shown
    from vit_helpers.data.splits import SPLITS

    count = {split: data.count(split) for split in SPLITS}
    counts = (
        [f" ({number:,})" for number in data.class_counts]
        if data.class_counts
        else [""] * len(data.class_names)
    )
    classes = [
        f"{shown(name)}{number}" for name, number in zip(data.class_names, counts, strict=True)
    ]
    more = [f"and {len(classes) - SHOWN:,} more"] if len(classes) > SHOWN else []
    shares = ", ".join(
        f"{split} {n:,} ({n / sum(count.values()):.0%})" for split, n in count.items()
    )
    height, width = data.image_size
    size = f"{height} x {width} pixels, {'gray' if data.in_chans == 1 else 'color'}"
    return (
        f"{len(classes)} classes: {', '.join([*classes[:SHOWN], *more])}\nimages: {shares}; {size}"
    )
