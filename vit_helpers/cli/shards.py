"""The work of `shards`: a data set is written as tar files."""

import shlex
from argparse import Namespace
from typing import Any

import pandas as pd

from vit_helpers._files import expand_user
from vit_helpers.cli.outputs import print_warnings
from vit_helpers.data import Data, load
from vit_helpers.data.shards import write_shards, write_shards_of_folder
from vit_helpers.data.stream import Shards


def run(args: Namespace) -> None:
    """Write the shards, and print how many there are."""
    options = {"image_size": args.image_size} if args.image_size else {}
    kind, _, path = args.data.partition(":")
    if kind == "folder" and path:
        with print_warnings():
            write_shards_of_folder(
                expand_user(path),
                args.folder,
                per_shard=args.per_shard,
                split=args.split or "hash",
                skip_broken=args.skip_broken,
                white=args.white,
                **options,
            )
    elif args.split or args.skip_broken or args.white:
        raise ValueError(
            f"--split, --white and --skip-broken are options for folder:PATH, not for {args.data}"
        )
    else:
        write_shards(load_whole(args.data, options), args.folder, args.per_shard)
    written = Shards(args.folder)
    sizes = {
        split: {"images": written.count(split), "shards": len(entries)}
        for split, entries in written.splits.items()
    }
    print(pd.DataFrame(sizes).T.to_string())
    name = shlex.quote(f"shards:{args.folder}")
    print(f"train on them with: python -m vit_helpers train --data {name}")


def load_whole(name: str, options: dict[str, Any]) -> Data:
    """Load a data set; raise ValueError if it has no such options, or if it is shards already."""
    try:
        data = load(name, **options)
    except TypeError as error:
        raise ValueError(error) from error
    if not isinstance(data, Data):
        raise ValueError(f"{name} is already written as shards")
    return data
