"""The maps of notebook 08 for the series' three photos, from a ViT with 22 million trained weights.

The model is that of `photo_features`: a DINOv2-S/14, fine-tuned to find what people look at. So it
is no surprise that its last block attends to what stands out. tools/experiments/photo_maps.py made
the file.
"""

from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from vit_helpers._validate import check_choice
from vit_helpers.results.photo_features import PHOTOS

MAPS = Path(__file__).with_suffix(".safetensors")
UNTRAINED = 3  # models with random weights


@dataclass(frozen=True, eq=False)
class PhotoMaps:
    """What is stored of a photo, for 30 x 45 patches. The query is the class token.

    heads          : attention of the six heads of the first and of the last block: (2, 6, 30, 45)
    rollout        : through all blocks: (30, 45)
    rollout_patches: the same, mean of the queries of all patches: (30, 45)
    rollout_later  : through blocks 2 to 12: (30, 45)
    rollout_shifted: through all blocks, of the photo moved right and down by half a patch: (30, 45)
    untrained      : last block, mean of the heads, of three models with random weights: (3, 30, 45)
    """

    heads: Tensor
    rollout: Tensor
    rollout_patches: Tensor
    rollout_later: Tensor
    rollout_shifted: Tensor
    untrained: Tensor

    @property
    def last_block(self) -> Tensor:
        """The attention of the last block, mean of its heads: (30, 45)"""
        return self.heads[1].mean(dim=0)


def read_photo_maps(photo: str) -> PhotoMaps:
    """The maps of "china", "flower" or "cat"; ValueError for another name."""
    check_choice("photo", photo, PHOTOS)
    tensors = {
        name.removeprefix(f"{photo}."): heat.float()
        for name, heat in load_file(MAPS).items()
        if name.startswith(f"{photo}.")
    }
    return PhotoMaps(**{name.replace(".", "_"): heat for name, heat in tensors.items()})
