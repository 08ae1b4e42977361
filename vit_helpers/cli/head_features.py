"""The features of a frozen backbone, computed once: a head alone is then trained in seconds.

Each image is seen in a few augmented views, which are drawn before the first epoch with the seed of
the run. The epochs read one view after another and begin again with the first, so views repeat.
"""

import math
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers.cli.forecast import WAIT, duration
from vit_helpers.data.splits import Batch, Batches, DataLike, SizedBatches, Split
from vit_helpers.distributed import (
    all_gather,
    is_main_process,
    rank,
    shard_batches,
    world_size,
)
from vit_helpers.training import Callback
from vit_helpers.training.callbacks import Run
from vit_helpers.training.loop import show_progress
from vit_helpers.training.presets import RunSettings, make_batches
from vit_helpers.vit import ViT, ViTConfig, eval_mode

VIEWS = 4  # of each training image, if augmentation or dropout make them differ
MEMORY = 2**30  # bytes that the features may take in each process


def count_views(settings: RunSettings, config: ViTConfig, data: DataLike) -> int:
    """Return how many views of each training image are computed.

    returns: as many as differ and are used, at most `VIEWS`; fewer where those do not fit into
             `MEMORY`, and 0 where not even one does
    """
    images = min(settings.images or math.inf, data.count("train")) * settings.repeat
    dropout = any(settings.shape.get(name) for name in ("dropout", "attn_dropout"))
    differ = dropout or (settings.augment, settings.mix) != ("none", "none")
    wanted = min(VIEWS, settings.recipe.epochs) if differ else 1
    numbers = config.embed_dim + config.num_classes  # labels that are mixed have one for each class
    fit = MEMORY // (4 * numbers) - data.count("validation")
    return max(0, min(wanted, int(fit // images)))


class Head(nn.Module):
    """The head of a ViT alone, for features of images: (B, D) -> (B, K)"""

    def __init__(self, model: ViT) -> None:
        super().__init__()
        self.config, self.head = model.config, model.head

    def forward(self, features: Tensor) -> Tensor:
        return self.head(features)


class Features:
    """Batches of features (B, D) with their labels, in place of batches of images.

    images : this process's slices of the batches, in the same order in each pass
    shuffle: whether each pass over the features has an order of its own
    Epoch e reads view (e - 1) mod V of the V that `compute` has computed.
    """

    def __init__(self, images: SizedBatches, batch_size: int, shuffle: bool = False) -> None:
        self.images, self.batch_size, self.shuffle = images, batch_size, shuffle
        self.epoch, self.views = 1, list[SizedBatches]()

    def __len__(self) -> int:
        return len(self.images)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch reads the next pass: 1, 2, ..."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.views[(self.epoch - 1) % len(self.views)])

    @torch.no_grad()
    def compute(self, model: ViT, device: str, title: str, half: bool = False) -> None:
        """Compute one more view of all images; every process gets the features of all.

        half: with the matrix products in bfloat16, as `fit` has them with this precision
        """
        if hasattr(self.images, "set_epoch"):  # a stream, which augments each pass differently
            self.images.set_epoch(len(self.views) + 1)
        columns: list[tuple[Tensor, Tensor, Tensor]] = []
        for step, (images, labels) in enumerate(show_progress(self.images, title)):
            with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=half):
                features = model.pool(model.forward_features(images.to(device)))
            places = torch.arange(len(labels)) * world_size() + rank()  # within the batch
            columns.append((step * 2**32 + places, features.float().cpu(), labels))
        rows, features, labels = (all_gather(torch.cat(c)) for c in zip(*columns, strict=True))
        order = rows.argsort()  # that of a single process
        split = Split(features[order], labels[order])
        self.views.append(shard_batches(Batches(split, self.batch_size, shuffle=self.shuffle)))


class CachedFeatures(Callback):
    """Computes the features of training and validation images before the first epoch.

    Give it to `fit` after all that may restore or stop a run: where no epoch is left to train,
    nothing is computed.

    validation: this process's slices of the batches
    views     : of each training image, see `count_views`
    """

    def __init__(
        self,
        model: ViT,
        data: Any,
        settings: RunSettings,
        validation: SizedBatches,
        device: str,
        views: int,
    ) -> None:
        # mixup and cutmix need neighbors of other classes, but a folder is sorted by class
        images = make_batches(data, settings, shuffle=settings.mix != "none")
        self.train = Features(shard_batches(images), settings.batch_size, shuffle=True)
        self.validation = Features(validation, settings.batch_size)
        self.model, self.head, self.device = model, Head(model), device
        self.seed, self.count = settings.seed, views

    def on_fit_start(self, run: Run) -> None:
        if run.stop or len(run.history) == run.recipe.epochs:
            return
        if is_main_process():
            views = f"{self.count} augmented views, which repeat" if self.count > 1 else "one view"
            print(f"each image is read once, in {views}; the head is trained on its features")
        model, half = self.model.to(self.device).train(), run.recipe.precision == "bfloat16"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            for view in range(1, self.count + 1):
                start = time.perf_counter()
                self.train.compute(model, self.device, f"view {view} of {self.count}", half)
                seconds = time.perf_counter() - start
                if view == 1 < self.count and seconds >= WAIT and is_main_process():
                    left = duration((self.count - 1) * seconds)
                    print(f"expected: about {left} more for the other views")
        with eval_mode(model):
            self.validation.compute(model, self.device, "validation images")


def cache_features(
    model: ViT, data: Any, settings: RunSettings, validation: SizedBatches, device: str
) -> CachedFeatures | None:
    """Prepare the features for a run that trains a head alone; None for others.

    It is None as well where the features are too large, so that the run reads its images in each
    epoch.
    """
    if settings.weights is None or settings.tune != "head":
        return None
    views = count_views(settings, model.config, data)
    return CachedFeatures(model, data, settings, validation, device, views) if views else None
