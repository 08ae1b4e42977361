"""Every data set by its name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, overload

from vit_helpers._files import expand_user
from vit_helpers.data.digits import digits, scattered_digits
from vit_helpers.data.downloads import cifar10, fashion_mnist, pizza_steak_sushi
from vit_helpers.data.folders import folder
from vit_helpers.data.splits import Data, DataLike
from vit_helpers.data.stream import Shards


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, and what can be asked of it.

    load      : the function that returns it
    options   : the names of the options that it takes
    takes_path: whether a path belongs to the name, as in "folder:PATH", and is the first argument
    """

    load: Callable[..., DataLike]
    options: tuple[str, ...] = ()
    takes_path: bool = False

    @property
    def resizes(self) -> bool:
        """Whether its images can be made in any size"""
        return "image_size" in self.options


SCATTERED = ("n", "image_size", "digit_size", "clutter", "seed")
FOLDER = ("image_size", "split", "skip_broken", "cache", "threads", "white")
SOURCES = {
    "digits": Source(digits),
    "scattered_digits": Source(scattered_digits, SCATTERED),
    "fashion_mnist": Source(fashion_mnist),
    "cifar10": Source(cifar10),
    "pizza_steak_sushi": Source(pizza_steak_sushi, ("image_size",)),
    "folder": Source(folder, FOLDER, takes_path=True),
    "shards": Source(Shards, takes_path=True),
}
InMemory = Literal["digits", "scattered_digits", "fashion_mnist", "cifar10", "pizza_steak_sushi"]


@overload
def load(name: InMemory, **options: object) -> Data: ...
@overload
def load(name: str, **options: object) -> DataLike: ...
def load(name: str, **options: object) -> DataLike:
    """Load a data set by its name.

    "digits"           : 1,797 handwritten digits, 8 x 8 gray, from scikit-learn (UCI, Alpaydin and
                         Kaynak 1998)
    "scattered_digits" : those digits at known random positions among clutter, as many as you want
    "fashion_mnist"    : 70,000 pieces of clothing, 28 x 28 gray (Xiao et al., arXiv 1708.07747);
                         downloaded, 30 MB
    "cifar10"          : 60,000 photos, 32 x 32 color (Krizhevsky 2009); downloaded, 170 MB
    "pizza_steak_sushi": 300 color photos (from Food-101, Bossard et al. 2014); downloaded, 15 MB
    "folder:PATH"      : your own images, with a folder for each class
    "shards:PATH"      : any of these after `write_shards`: a stream from disk

    options: of the data set's own function, for example `image_size` for photos in folders
    returns: `Data`, of shards `Shards`
    raises : ValueError for an unknown name, TypeError for an unknown option; `DownloadError` if a
             download fails

    >>> data = load("digits")
    >>> data.train.images.shape, len(data.validation), len(data.test)
    (torch.Size([1257, 1, 8, 8]), 180, 360)
    """
    kind, colon, path = str(name).partition(":")
    source = SOURCES.get(kind)
    if source is None or source.takes_path != bool(path) or bool(colon) != bool(path):
        raise unknown_data(name)
    unknown = sorted(options.keys() - set(source.options))
    if unknown:
        known = ", ".join(source.options) or "none"
        raise TypeError(f"{kind} has no option {', '.join(unknown)}; its options: {known}")
    if source.takes_path:
        return source.load(expand_user(path), **options)
    return source.load(**options)


def unknown_data(name: object) -> ValueError:
    """Make the error about a data set that is not known, with the names of those that are."""
    known = ", ".join(name for name, source in SOURCES.items() if not source.takes_path)
    message = f"unknown data {name!r}, known: {known}, folder:PATH for your own images, shards:PATH"
    if Path(str(name)).is_dir():
        message += f"; did you mean folder:{name}?"
    return ValueError(message)
