"""Learning from images without labels: hide most patches, paint them from the rest (MAE, He et al., arXiv 2111.06377)."""

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from vit_helpers.embeddings import sincos_positions
from vit_helpers.encoder import Block
from vit_helpers.patches import patchify
from vit_helpers.training.recipe import Recipe


def random_masking(B, N, share):
    """Which patches stay visible and which are hidden, drawn anew for each image.

    share  : of patches that are hidden, from 0 to 1; at least one stays, at least one is hidden
    returns: (B, visible) and (B, hidden), numbers of patches

    >>> visible, hidden = random_split(2, 16, 0.75)
    >>> visible.shape, hidden.shape
    (torch.Size([2, 4]), torch.Size([2, 12]))
    """
    if not 0 < share < 1 or N < 2:
        raise ValueError(f"hide a share between 0 and 1 of two patches or more, got {share} of {N}")
    hidden = min(max(round(share * N), 1), N - 1)
    order = torch.rand(B, N).argsort(dim=1)
    return order[:, hidden:], order[:, :hidden]


class MaskedAutoencoder(nn.Module):
    """A ViT that reads the visible patches, and a small decoder that paints the hidden ones (Figure 1 of He et al.).

    vit      : the encoder, which is kept afterwards; it has learned nothing from its head
    dim      : width of the decoder, a multiple of 4 and of num_heads; depth: its blocks
    share    : of patches that are hidden
    forward  : normalised images (B, C, H, W) -> painted (B, hidden, C*P*P), hidden (B, hidden), numbers of patches
    """

    def __init__(self, vit, dim=32, depth=1, num_heads=4, share=0.75):
        super().__init__()
        c = vit.config
        if not c.class_token:
            raise ValueError("a masked autoencoder here reads a ViT with a class token")
        self.vit, self.share = vit, share
        self.embed = nn.Linear(c.embed_dim, dim)
        self.mask_token = nn.Parameter(nn.init.normal_(torch.empty(1, 1, dim), std=0.02))
        self.register_buffer("positions", sincos_positions(c.grid, dim), persistent=False)
        self.blocks = nn.ModuleList(Block(dim, num_heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=c.norm_eps)
        self.head = nn.Linear(dim, c.in_chans * c.patch_size**2)

    def forward(self, images):
        N = len(self.positions)
        visible, hidden = random_masking(len(images), N, self.share)
        return self.paint(images, visible, hidden), hidden

    def paint(self, images, visible, hidden):
        """The hidden patches as the decoder paints them from the visible ones: (B, hidden, C*P*P)"""
        visible, hidden = visible.to(images.device), hidden.to(images.device)
        seen = self.encode(images, visible)[:, 1:]
        patches = self.embed(seen) + self.positions[visible]
        holes = self.mask_token + self.positions[hidden]
        x = torch.cat([patches, holes], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, visible.shape[1] :]))

    def encode(self, images, visible):
        """The class token and the visible patches through the encoder: (B, 1 + visible, D); its blocks never see the rest"""
        x = self.vit.embed(images)
        kept = torch.cat([visible.new_zeros(len(visible), 1), visible + 1], dim=1)  # token 0 is the class token
        x = x.gather(1, kept[:, :, None].expand(-1, -1, x.shape[2]))
        for block in self.vit.blocks:
            x = block(x)
        return self.vit.norm(x)

    def loss(self, images):
        """Mean squared error of the pixels painted, on hidden patches alone, in the units of the images"""
        painted, hidden = self(images)
        patches = patchify(images, self.vit.config.patch_size)
        wanted = patches.gather(1, hidden.to(images.device)[:, :, None].expand_as(painted))
        return (painted - wanted).square().mean()


def pretrain(autoencoder, batches, recipe=None, device="cpu", report=None):
    """Train a masked autoencoder; the mean loss of each epoch comes back.  Labels in the batches are not looked at.

    recipe: its precision and label smoothing play no part;  report: called with the epoch's number and its loss
    raises: FloatingPointError when the loss is not finite
    """
    recipe = recipe or Recipe()
    autoencoder.to(device).train()
    total, losses = recipe.epochs * len(batches), []
    optimizer = recipe.make_optimizer(autoencoder)
    schedule = LambdaLR(optimizer, lambda step: recipe.share(step, total))
    for epoch in range(1, recipe.epochs + 1):
        loss_sum = count = 0
        for images, _ in batches:
            optimizer.zero_grad()
            loss = autoencoder.loss(images.to(device))
            if not torch.isfinite(loss):
                raise FloatingPointError(
                    f"the loss is {loss.item()} in epoch {epoch}: see the causes that `training.fit` names"
                )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(autoencoder.parameters(), recipe.clip)
            optimizer.step()
            schedule.step()
            loss_sum += loss.item() * len(images)
            count += len(images)
        losses.append(loss_sum / count)
        if report:
            report(epoch, losses[-1])
    return losses
