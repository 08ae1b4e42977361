"""What a trained ViT has learned: filters, positions, tokens by layer, patches it relies on."""

from itertools import accumulate, product

import torch
from torch import Tensor

from vit_helpers.inspection.attention_maps import prefix_tokens
from vit_helpers.vit import ViT, check_logits, eval_mode


def position_similarity(pos_embed: Tensor, grid: tuple[int, int]) -> Tensor:
    """Cosine similarity of every patch's position embedding to all others (paper, Figure 7 middle).

    pos_embed: (1, T, D), of which a class token's is left out;  returns: (rows, cols, rows, cols)
    """
    extra = prefix_tokens(pos_embed.shape[1], grid)
    unit = torch.nn.functional.normalize(pos_embed[0, extra:].detach(), dim=-1)  # (N, D)
    return (unit @ unit.T).unflatten(1, grid).unflatten(0, grid)


def filters(model: ViT, n: int) -> Tensor:
    """The first n principal components of the D patch filters: (n, C, P, P) (paper, Figure 7 left).

    They are unit vectors, in the order of the variance that they explain.
    raises: ValueError if there are not n
    """
    weight = model.patch_embed.proj.weight.detach()  # (D, C*P*P)
    P, C = model.config.patch_size, model.config.in_chans
    if not 1 <= n <= min(weight.shape):
        raise ValueError(
            f"a projection of shape {tuple(weight.shape)} has 1 to {min(weight.shape)} components, "
            f"got n = {n}"
        )
    _, _, components = torch.linalg.svd(weight - weight.mean(dim=0), full_matrices=False)
    return components[:n].unflatten(1, (C, P, P))


def principal_components(tokens: Tensor, n: int = 3) -> Tensor:
    """How far each token lies along the n directions in which tokens differ most.

    The directions are those of all images together. The sign of each is arbitrary: here the number
    with the largest size is positive.
    tokens : (B, N, D), without the class token and registers
    returns: (B, N, n), in the order of the variance; each has the mean 0
    raises : ValueError if there are not n
    """
    x = tokens.flatten(0, 1).detach()
    if not 1 <= n <= min(x.shape):
        raise ValueError(f"{x.shape[0]} tokens of {x.shape[1]} numbers have no {n} components")
    _, _, directions = torch.linalg.svd(x - x.mean(dim=0), full_matrices=False)
    scores = (x - x.mean(dim=0)) @ directions[:n].T  # (B*N, n)
    largest = scores.gather(0, scores.abs().argmax(dim=0, keepdim=True))
    return (scores * largest.sign()).unflatten(0, tokens.shape[:2])


@torch.no_grad()
def token_layers(model: ViT, images: Tensor) -> list[Tensor]:
    """The tokens before the first block and after each, not normalized: L + 1 tensors (B, T, D)."""
    with eval_mode(model):
        return list(
            accumulate(model.blocks, lambda z, block: block(z), initial=model.embed(images))
        )


@torch.no_grad()
def occlusion(
    model: ViT, images: Tensor, classes: Tensor | None = None, fill: float = 0.0
) -> Tensor:
    """How much a class's log-probability falls if a patch is covered (arXiv 1311.2901, 4.2).

    images : (B, C, H, W); classes: (B,), by default those that the model predicts
    fill   : the value of covered pixels
    returns: (B, rows, cols); a negative number means that the class becomes more probable without
             the patch
    raises : ValueError if the model's logits are not (B, K)
    """
    P, (rows, cols) = model.config.patch_size, model.config.grid
    falls = []
    with eval_mode(model):
        uncovered = check_logits(model(images)).log_softmax(dim=1)
        classes = uncovered.argmax(dim=1) if classes is None else classes
        for row, col in product(range(rows), range(cols)):
            covered = images.clone()
            covered[:, :, row * P : (row + 1) * P, col * P : (col + 1) * P] = fill
            fall = uncovered - model(covered).log_softmax(dim=1)
            falls.append(fall.gather(1, classes[:, None])[:, 0])
    return torch.stack(falls, dim=1).unflatten(1, (rows, cols))
