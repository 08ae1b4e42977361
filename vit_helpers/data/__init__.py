"""Data sets by name, in three parts: real digits, real photos, downloads, and your own folder of images.

parts.py: what a data set is; digits.py, downloaded.py, folders.py: where they come from; augment.py: changed pictures;
shards.py and stream.py: written to disk and read from there, for what does not fit into memory
"""

from vit_helpers.data.augment import random_affine
from vit_helpers.data.digits import photos
from vit_helpers.data.registry import load
from vit_helpers.data.splits import Batches, Data, Split, mean_and_std, split_rows

__all__ = ["Batches", "Data", "Split", "load", "mean_and_std", "photos", "random_affine", "split_rows"]
