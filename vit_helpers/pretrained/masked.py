"""Masked autoencoders learn without labels: a decoder reconstructs hidden patches.

The paper of the MAE is by He et al. (arXiv 2111.06377).
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from vit_helpers.data.splits import SizedBatches
from vit_helpers.embeddings import sincos_positions
from vit_helpers.encoder import Block
from vit_helpers.patches import patchify
from vit_helpers.training import Recipe, Report, fit
from vit_helpers.vit import ViT


def random_masking(B: int, N: int, mask_ratio: float) -> tuple[Tensor, Tensor]:
    """Draw at random, for each image, which patches stay visible and which are hidden.

    mask_ratio: fraction of the patches that are hidden, between 0 and 1; at least one stays, at
                least one is hidden
    returns   : (B, visible) and (B, hidden), numbers of patches
    """
    if not 0 < mask_ratio < 1 or N < 2:
        raise ValueError(
            f"mask_ratio must be between 0 and 1, of two patches or more, got {mask_ratio} of {N}"
        )
    hidden = min(max(round(mask_ratio * N), 1), N - 1)
    order = torch.rand(B, N).argsort(dim=1)
    return order[:, hidden:], order[:, :hidden]


class MaskedAutoencoder(nn.Module):
    """A ViT that encodes the visible patches, and a decoder for the hidden ones (Figure 1).

    vit       : the encoder, which is what one keeps; training leaves its head untouched
    dim       : width of the decoder, a multiple of 4 and of num_heads
    depth     : number of blocks of the decoder
    mask_ratio: fraction of the patches that are hidden
    forward   : normalized images (B, C, H, W) -> predicted pixels (B, hidden, C*P*P), and hidden
                (B, hidden), patch numbers
    """

    def __init__(
        self, vit: ViT, dim: int = 32, depth: int = 1, num_heads: int = 4, mask_ratio: float = 0.75
    ) -> None:
        super().__init__()
        self.positions: Tensor
        c = vit.config
        if not c.class_token:
            raise ValueError("this masked autoencoder needs a ViT with a class token")
        if c.positions == "rotary":
            raise ValueError(
                "this masked autoencoder leaves patches out, and rotary positions are those of all"
            )
        self.vit, self.mask_ratio = vit, mask_ratio
        self.embed = nn.Linear(c.embed_dim, dim)
        self.mask_token = nn.Parameter(nn.init.normal_(torch.empty(1, 1, dim), std=0.02))
        self.register_buffer("positions", sincos_positions(c.grid, dim), persistent=False)
        self.blocks = nn.Sequential(*(Block(dim, num_heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=c.norm_eps)
        self.head = nn.Linear(dim, c.in_chans * c.patch_size**2)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        visible, hidden = random_masking(len(images), len(self.positions), self.mask_ratio)
        return self.paint(images, visible, hidden), hidden

    def paint(self, images: Tensor, visible: Tensor, hidden: Tensor) -> Tensor:
        """Predict the pixels of the hidden patches from the visible ones: (B, hidden, C*P*P)."""
        visible, hidden = visible.to(images.device), hidden.to(images.device)
        prefix = self.vit.config.num_prefix_tokens
        patches = self.embed(self.encode(images, visible)[:, prefix:]) + self.positions[visible]
        masked = self.mask_token + self.positions[hidden]
        x = self.blocks(torch.cat([patches, masked], dim=1))
        return self.head(self.norm(x[:, visible.shape[1] :]))

    def encode(self, images: Tensor, visible: Tensor) -> Tensor:
        """Encode the visible patches and the tokens before: (B, 1 + registers + visible, D)."""
        x, prefix = self.vit.embed(images), self.vit.config.num_prefix_tokens
        before = torch.arange(prefix, device=visible.device).expand(len(visible), -1)
        tokens = torch.cat([before, visible + prefix], dim=1)
        x = x.gather(1, tokens[:, :, None].expand(-1, -1, x.shape[2]))
        for block in self.vit.blocks:
            x = block(x)
        return self.vit.norm(x)

    def loss(self, outputs: tuple[Tensor, Tensor], images: Tensor) -> Tensor:
        """Compute the mean squared error of the pixels of the hidden patches, in the images' units.

        outputs: of `forward` for the images
        """
        predicted, hidden = outputs
        patches = patchify(images, self.vit.config.patch_size)
        target = patches.gather(1, hidden.to(images.device)[:, :, None].expand_as(predicted))
        return (predicted - target).square().mean()


class ImagesAsTargets:
    """Batches whose labels are replaced by the images: (images, labels) -> (images, images)."""

    def __init__(self, batches: SizedBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((images, images) for images, _ in self.batches)


def pretrain(
    autoencoder: MaskedAutoencoder,
    batches: SizedBatches,
    recipe: Recipe | None = None,
    device: str = "cpu",
    report: Callable[[int, float], object] | None = None,
) -> list[float]:
    """Train a masked autoencoder, and return the mean loss of each epoch.

    batches: their labels are ignored
    recipe : its label smoothing is not used
    report : called with the epoch's number and its loss
    raises : as `fit`
    """
    callbacks = []
    if report:
        callbacks.append(Report(lambda epoch: report(epoch.number, epoch.train.loss)))
    history = fit(
        autoencoder,
        ImagesAsTargets(batches),
        None,
        recipe,
        device=device,
        loss_fn=autoencoder.loss,
        callbacks=callbacks,
    )
    return [epoch.train.loss for epoch in history]
