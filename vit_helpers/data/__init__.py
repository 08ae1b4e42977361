"""Data sets by name, in three splits: digits, photos, downloads, and your own folder of images.

splits.py                            what a data set is
digits.py, downloads.py, folders.py  where data sets come from
registry.py                          `load`, and what each of them can do
images.py, reading.py, cache.py      an image file; many, each read once; what they were decoded to
augment.py                           random changes to images
shards.py, stream.py                 data larger than memory, written to the disk and read back
"""

from vit_helpers.data.augment import random_affine
from vit_helpers.data.digits import photos
from vit_helpers.data.registry import load
from vit_helpers.data.splits import Batches, Data, Split, mean_and_std, split_rows, subset

__all__ = [
    "Batches",
    "Data",
    "Split",
    "load",
    "mean_and_std",
    "photos",
    "random_affine",
    "split_rows",
    "subset",
]
