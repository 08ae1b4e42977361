"""Attention maps, their entropy and their distances, against values by hand."""

import math

import pytest
import torch

from vit_helpers.inspection import (
    attention_distance,
    attention_map,
    entropy,
)


def random_weights(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)).softmax(dim=-1)


def uniform(T):
    return torch.full((1, 2, T, T), 1 / T)


# Maps


def test_a_map_holds_the_weights_in_their_places():
    weights = random_weights(2, 3, 13, 13)
    picture = attention_map(weights, (3, 4))
    assert picture.shape == (2, 3, 3, 4) and picture[1, 2, 2, 1] == weights[1, 2, 0, 1 + 2 * 4 + 1]
    assert attention_map(weights, (3, 4), (1, 2))[0, 1, 0, 3] == weights[0, 1, 1 + 1 * 4 + 2, 1 + 3]
    alone = random_weights(2, 3, 12, 12)
    assert attention_map(alone, (3, 4), (1, 2))[0, 1, 0, 3] == alone[0, 1, 1 * 4 + 2, 3]
    assert attention_map(weights[:, 0], (3, 4)).shape == (2, 3, 4)


def test_what_cannot_be_mapped_is_named():
    with pytest.raises(ValueError, match=r"14 tokens.*3 x 4 = 12 patches"):
        attention_map(random_weights(1, 1, 14, 14), (3, 4))
    with pytest.raises(ValueError, match=r"class token.*query=\(row, column\)"):
        attention_map(random_weights(1, 1, 12, 12), (3, 4))
    for query in ((3, 0), (0, 4), (-1, 0)):
        with pytest.raises(ValueError, match=rf"\({query[0]}, {query[1]}\).* 3 x 4"):
            attention_map(random_weights(1, 1, 13, 13), (3, 4), query)


def test_entropy_from_one_token_to_all():
    assert entropy(torch.eye(4)).abs().max() == 0
    assert torch.allclose(entropy(uniform(7)), torch.tensor(math.log(7)))


# Rollout


# Distance


def test_attention_to_the_class_token_alone_has_no_distance_among_patches():
    weights = torch.zeros(1, 2, 5, 5)
    weights[..., 0] = 1
    assert torch.equal(attention_distance(weights, (2, 2), patch_size=4), torch.zeros(1, 2))


@pytest.mark.parametrize("n", [2, 5, 9])
def test_distance_of_uniform_attention_in_a_row_of_patches(n):
    """The mean of |i - j| over 0 .. n-1 is (n^2 - 1) / 3n"""
    for T in (n, n + 1):
        distance = attention_distance(uniform(T), (1, n), patch_size=4)
        assert distance.shape == (1, 2) and torch.allclose(
            distance, torch.tensor(4 * (n**2 - 1) / (3 * n))
        )
    assert torch.allclose(
        attention_distance(uniform(n), (n, 1), 4), torch.tensor(4 * (n**2 - 1) / (3 * n))
    )


def test_distance_of_uniform_attention_over_a_fine_square():
    """The mean distance in a unit square is (2 + sqrt 2 + 5 ln(1 + sqrt 2)) / 15 = 0.5214."""
    closed = (2 + math.sqrt(2) + 5 * math.log(1 + math.sqrt(2))) / 15
    assert attention_distance(uniform(1024)[:, :1], (32, 32), 1 / 32).item() == pytest.approx(
        closed, rel=2e-3
    )


def test_distance_to_oneself_and_to_the_neighbor():
    assert attention_distance(torch.eye(6)[None, None], (2, 3), 16).item() == 0
    # of 2 x 3 patches, each looks at one to the left or right
    beside = torch.eye(6)[[1, 0, 1, 4, 3, 4]]
    assert attention_distance(beside[None, None], (2, 3), 16).item() == 16


# Positions, filters, tokens


# Occlusion
