"""Every data set by its name."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vit_helpers._files import expand_user
from vit_helpers.data.digits import digits, scattered_digits
from vit_helpers.data.downloads import cifar10, fashion_mnist, pizza_steak_sushi
from vit_helpers.data.folders import folder
from vit_helpers.data.stream import Shards

LOADERS: dict[str, Callable[..., Any]] = {
    loader.__name__: loader
    for loader in (digits, scattered_digits, fashion_mnist, cifar10, pizza_steak_sushi)
}
PATH_LOADERS: dict[str, Callable[..., Any]] = {"folder": folder, "shards": Shards}  # "folder:PATH"


def load(name: str, **options: Any) -> Any:
    """A data set by name, as `Data`.

    "digits"           : 1,797 handwritten digits, 8 x 8 gray, from scikit-learn (UCI, Alpaydin and Kaynak 1998)
    "scattered_digits" : those digits at known random positions among clutter, as many as you ask for
    "fashion_mnist"    : 70,000 pieces of clothing, 28 x 28 gray (Xiao et al., arXiv 1708.07747); downloaded, 30 MB
    "cifar10"          : 60,000 photos, 32 x 32 color (Krizhevsky 2009); downloaded, 170 MB
    "pizza_steak_sushi": 300 color photos (from Food-101, Bossard et al. 2014); downloaded, 15 MB
    "folder:PATH"      : your own images, with a folder for each class
    "shards:PATH"      : any of these after `write_shards`, as `Shards`: a stream from disk

    options: of the data set's own function, for example `image_size` for photos in folders
    raises : ValueError for an unknown name, TypeError for an unknown option; `DownloadError` if a download fails

    >>> data = load("digits")
    >>> data.train.images.shape, len(data.validation), len(data.test)
    (torch.Size([1257, 1, 8, 8]), 180, 360)
    """
    kind, _, path = str(name).partition(":")
    if kind in PATH_LOADERS and path:
        loader, options = PATH_LOADERS[kind], {"path": expand_user(path), **options}
    elif name in LOADERS:
        loader = LOADERS[name]
    else:
        known = f"{', '.join(LOADERS)}, folder:PATH for your own images, shards:PATH"
        raise ValueError(
            f"unknown data {name!r}, known: {known}"
            + f"; did you mean folder:{name}?" * Path(name).is_dir()
        )
    own = inspect.signature(loader).parameters
    if unknown := options.keys() - own:
        raise TypeError(
            f"{kind} has no option {', '.join(sorted(unknown))}; its options: {', '.join(own) or 'none'}"
        )
    return loader(**options)
