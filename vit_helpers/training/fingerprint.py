"""A fingerprint of what a run learns from, its data and trained weights, so that a resumed run notices when they change."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from vit_helpers.data import Data
from vit_helpers.data.splits import SPLITS
from vit_helpers.training.checkpoints import describe_changes
from vit_helpers.training.distributed import world_size

WEIGHTS = "trained weights"
CLOSE = 1e-5  # of mean and standard deviation, which another number of threads may round differently


def data_fingerprint(data: Any, dropout: bool = False) -> dict[str, Any]:
    """What determines the batches of a run: classes, counts, and a sha256 of each split's pixels and labels.

    data   : `Data` or `Shards`, of which the index has the sha256 of every shard
    dropout: whether the model uses it. Its random numbers depend on the number of processes, as the order of a stream does
    """
    found: dict[str, Any] = {"classes": ", ".join(data.class_names)}
    found |= {f"{split} images": data.count(split) for split in SPLITS}
    found |= {f"pixels or labels of {split}": split_digest(data, split) for split in SPLITS}
    return found | ({} if isinstance(data, Data) and not dropout else {"processes": world_size()})


def split_digest(data: Any, split: str) -> str:
    """The sha256, in 16 digits, of the pixels and labels of one split; data: as for `data_fingerprint`"""
    digest = hashlib.sha256()
    if isinstance(data, Data):
        for tensor in (data.get_split(split).pixels, data.get_split(split).labels):
            for rows in tensor.split(1024):
                digest.update(rows.contiguous().numpy())
    else:
        digest.update(json.dumps(data.splits[split], sort_keys=True).encode())
    return digest.hexdigest()[:16]


def check_same_data(about: Mapping[str, Any], fingerprint: Mapping[str, Any], data: Any) -> None:
    """Raise ValueError that says what changed, if the data or weights of a checkpoint, by its `about`, are not these."""
    kept = dict(about.get("data", {}))
    if not kept and "class_names" in about:  # written by version 0.1
        kept = {"classes": ", ".join(about["class_names"])}
    now = {name: fingerprint.get(name, "none") for name in kept}  # older checkpoints have fewer
    for name in ("mean", "std"):
        if any(abs(x - y) > CLOSE for x, y in zip(about.get(name, ()), getattr(data, name), strict=False)):
            kept[name], now[name] = about[name], getattr(data, name)
    if kept and (changed := describe_changes(kept, now)):
        what = "weights to fine-tune" if WEIGHTS in changed else "data"
        raise ValueError(
            f"the {what} have changed since the checkpoint was made: {changed}. A resumed run might be tested on "
            f"images that it was trained on: restore the {what}, or start a new run"
        )
