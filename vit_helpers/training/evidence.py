"""What a diagnosis needs beside losses and accuracies, collected from the steps of each epoch."""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_helpers.distributed import all_gather, all_reduce_sum, unwrap, world_size
from vit_helpers.training.callbacks import Callback, Run
from vit_helpers.training.measurements import Evidence, is_logits


class CollectEvidence(Callback):
    """Completes each epoch with its `Evidence`; `fit` always attaches it, before all others."""

    def on_fit_start(self, run: Run) -> None:
        self.reset(run)

    def reset(self, run: Run) -> None:
        """Forget the steps of the epoch before."""
        is_cross_entropy = run.loss_fn is None
        self.smoothing = run.recipe.label_smoothing if is_cross_entropy else None
        self.probabilities: bool | Tensor = is_cross_entropy
        self.num_classes = 0
        self.sizes: list[int] = []  # of the batches
        self.targets: Tensor | None = None  # (K,), summed over the images, as the loss sees them
        self.entropy: float | Tensor = 0.0  # of the targets, summed over the images

    def on_step_end(self, run: Run, outputs: Any, labels: Tensor, loss: Tensor) -> None:
        self.sizes.append(len(labels))
        if not is_logits(outputs):
            return
        outputs = outputs.detach().float()
        if self.num_classes not in (0, outputs.shape[1]):
            # no classes, but the images of a batch or such: the loss is not cross-entropy
            self.smoothing = self.targets = None
        self.num_classes = outputs.shape[1]
        is_one = (outputs.sum(1) - 1).abs() < 0.01  # up to the rounding of 16 bits
        self.probabilities = self.probabilities & (outputs >= 0).all() & is_one.all()
        if self.smoothing is not None:
            self.add_targets(labels, self.smoothing)

    def add_targets(self, labels: Tensor, smoothing: float) -> None:
        """Count the labels (B,) or (B, K) as the loss sees them: as probabilities, smoothed."""
        K = self.num_classes
        hard = F.one_hot(labels.clamp(min=0), K) if labels.ndim == 1 else labels
        targets = (1 - smoothing) * hard.float() + smoothing / K
        self.targets = targets.sum(0) + (0 if self.targets is None else self.targets)
        self.entropy = self.entropy + torch.special.entr(targets).sum()

    def on_epoch_end(self, run: Run) -> None:
        sizes = all_gather(torch.tensor([self.sizes])).sum(0)  # in all processes together
        images = int(sizes.sum())
        all_alike = all_reduce_sum(int(self.probabilities)) == world_size()
        evidence = Evidence(
            self.num_classes,
            all_alike and self.num_classes > 0,
            int(sizes.max()),
            getattr(getattr(unwrap(run.model), "config", None), "num_tokens", 0),
        )
        if self.targets is not None:
            shares = all_gather(self.targets[None]).sum(0).cpu() / images
            evidence = replace(
                evidence,
                least_loss=all_reduce_sum(float(self.entropy)) / images,
                guess_loss=torch.special.entr(shares).sum().item(),
            )
        run.history[-1] = replace(run.history[-1], evidence=evidence)
        self.reset(run)
