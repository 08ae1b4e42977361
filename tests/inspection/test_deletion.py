"""Deletion: the patches that a map names first are covered, and answers are counted."""

import math

import pytest
import torch

from vit_helpers.inspection import (
    cover_largest,
    survival,
)


def test_the_largest_patches_are_covered():
    images = torch.ones(1, 2, 4, 6)
    maps = torch.tensor([[[5.0, 1.0, 7.0], [7.0, 2.0, 0.0]]])
    covered = cover_largest(images, maps, 2, fill=-3)
    wanted = torch.ones(1, 2, 4, 6)
    wanted[:, :, :2, 4:], wanted[:, :, 2:, :2] = -3, -3
    assert torch.equal(covered, wanted) and (images == 1).all()
    first = cover_largest(images, maps, 1)  # of equal ones, the first
    assert (first[:, :, :2, 4:] == 0).all() and first.sum() == images.sum() - 8
    assert torch.equal(cover_largest(images, maps, 0), images)
    assert (cover_largest(images, maps, 6) == 0).all()


def test_answers_survive_as_they_do_by_hand(model, images):
    maps = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(2))
    counts = (0, 3, 7, 12)
    wanted = torch.zeros(4, 2)
    with torch.no_grad():
        for row, count in enumerate(counts):
            for b in range(2):
                x = images[b : b + 1].clone()
                for n in maps[b].flatten().topk(count).indices.tolist():
                    r, c = divmod(n, 4)
                    x[..., 4 * r : 4 * r + 4, 4 * c : 4 * c + 4] = 0
                wanted[row, b] = float(model(x).argmax() == model(images[b : b + 1]).argmax())
    found = survival(model, images, maps, counts)
    assert torch.equal(found, wanted) and (found[0] == 1).all()
    assert math.isclose(float(found[-1].sum()), float(wanted[-1].sum()))


@pytest.mark.parametrize("counts", [[], (), range(0)])
def test_no_counts_are_refused(model, images, counts):
    with pytest.raises(ValueError, match="at least one number of patches, got"):
        survival(model, images, torch.rand(2, 3, 4), counts)
