"""Write a data set as shards (tar files), which `train` reads as a stream when images do not fit into memory.

The images of folder:PATH are read a few at a time; any other data set is loaded first. The splits are those of `train`.

Examples:

    python -m vit_helpers shards folder:photos shards/photos --image-size 96
    python -m vit_helpers shards fashion_mnist shards/fashion --per-shard 5000
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from vit_helpers.cli import positive_int
from vit_helpers.cli.reading import add_data_arguments, print_warnings


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "data",
        metavar="DATA",
        help="name of the data set: digits, folder:PATH for your own images, ...",
    )
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=Path,
        help="folder for the shards, which must be new or empty",
    )
    parser.add_argument(
        "--per-shard", type=positive_int, default=1000, help="images in a shard (default: 1000)"
    )
    parser.add_argument(
        "--image-size",
        type=positive_int,
        help="side in pixels to which photos are resized (default: 64)",
    )
    add_data_arguments(parser, cache=False)


def run(args: Namespace) -> None:
    import pandas as pd

    from vit_helpers._files import expand_user
    from vit_helpers.data import Data, load
    from vit_helpers.data.shards import write_shards, write_shards_of_folder
    from vit_helpers.data.stream import Shards

    options = {"image_size": args.image_size} if args.image_size else {}
    kind, _, path = args.data.partition(":")
    if kind == "folder" and path:
        options |= {
            "per_shard": args.per_shard,
            "split": args.split or "hash",
            "skip_broken": args.skip_broken,
        }
        with print_warnings():
            write_shards_of_folder(expand_user(path), args.folder, **options)
    elif args.split or args.skip_broken:
        raise ValueError(
            f"--split and --skip-broken are options for folder:PATH, not for {args.data}"
        )
    else:
        try:
            whole = load(args.data, **options)
        except TypeError as error:  # the data set has no such option
            raise ValueError(error) from error
        if not isinstance(whole, Data):
            raise ValueError(f"{args.data} is already written as shards")
        write_shards(whole, args.folder, args.per_shard)
    data = Shards(args.folder)
    sizes = {
        split: {"images": data.count(split), "shards": len(entries)}
        for split, entries in data.splits.items()
    }
    print(pd.DataFrame(sizes).T.to_string())
    print(f"train on them with: python -m vit_helpers train --data shards:{args.folder}")
