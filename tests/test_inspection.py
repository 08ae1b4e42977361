import copy
import math

import pytest
import torch

from vit_helpers.inspection import (
    attention_distance,
    attention_gradients,
    attention_map,
    entropy,
    filters,
    gradient_rollout,
    occlusion,
    position_similarity,
    rollout,
    token_layers,
)
from vit_helpers.parity import perturb
from vit_helpers.vit import ViT, ViTConfig


@pytest.fixture(
    scope="module", params=[(True, "cls"), (False, "avg")], ids=["class token", "no class token"]
)
def model(request):
    torch.manual_seed(0)
    token, pool = request.param
    model = ViT(
        ViTConfig.from_name(
            "mini/4",
            image_size=(12, 16),
            in_chans=1,
            num_classes=5,
            depth=3,
            class_token=token,
            pool=pool,
        )
    )
    perturb(model, std=0.2)
    return model.eval()


@pytest.fixture
def images():
    return torch.randn(2, 1, 12, 16, generator=torch.Generator().manual_seed(1))


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
    with pytest.raises(ValueError, match=r"without a class token: pass query=\(row, column\)"):
        attention_map(random_weights(1, 1, 12, 12), (3, 4))
    for query in ((3, 0), (0, 4), (-1, 0)):
        with pytest.raises(
            ValueError, match=rf"no patch \({query[0]}, {query[1]}\) in a grid of 3 x 4"
        ):
            attention_map(random_weights(1, 1, 13, 13), (3, 4), query)


def test_entropy_from_one_token_to_all():
    assert entropy(torch.eye(4)).abs().max() == 0
    assert torch.allclose(entropy(uniform(7)), torch.tensor(math.log(7)))


# Rollout


def test_rollout_rows_sum_to_one():
    weights = [random_weights(2, 3, 13, 13) for _ in range(4)]
    for residual in (0, 0.5, 0.9):
        assert torch.allclose(rollout(weights, residual).sum(dim=-1), torch.ones(2, 13))
    with pytest.raises(ValueError, match=r"share from 0 to 1, got 1\.5"):
        rollout(weights, 1.5)


def test_rollout_of_one_layer_and_of_none_that_moves():
    one = random_weights(2, 3, 13, 13)
    assert torch.allclose(rollout([one], residual=0), one.mean(dim=1))
    assert torch.allclose(
        rollout([torch.eye(13).expand(2, 3, 13, 13)] * 5), torch.eye(13).expand(2, 13, 13)
    )


def test_rollout_follows_the_order_of_the_layers():
    """Token 0 looks at 1 in the last layer, 1 at 2 in the first: so what reaches 0 comes from 2"""
    first, last = torch.eye(3), torch.eye(3)
    first[1], last[0] = torch.eye(3)[2], torch.eye(3)[1]
    flow = rollout([first[None, None], last[None, None]], residual=0)
    assert flow[0, 0].tolist() == [0, 0, 1]


def test_gradients_are_those_of_the_weights(model, images):
    """Against torch's own gradient, of a pass in which the weights of a layer are written out."""
    weights, gradients = attention_gradients(model, images)
    classes = model(images).argmax(dim=1)
    for layer, block in enumerate(model.blocks):
        x = token_layers(model, images)[layer]
        w = weights[layer].clone().requires_grad_()
        _, _, v = block.attn.heads(block.norm1(x))
        y = x + block.attn.proj((w @ v).transpose(1, 2).flatten(2))
        y = y + block.mlp(block.norm2(y))
        for after in model.blocks[layer + 1 :]:
            y = after(y)
        logits = model.head(model.pool(model.norm(y)))
        (slope,) = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), w)
        assert torch.allclose(slope, gradients[layer], atol=1e-5)


def test_gradients_of_another_class_and_nothing_left_behind(model, images):
    before = {name: p.clone() for name, p in model.state_dict().items()}
    for weights, own in zip(
        attention_gradients(model, images)[0], model.attention_weights(images), strict=True
    ):
        assert torch.equal(weights, own)
    one, two = (attention_gradients(model, images, torch.tensor([k, k]))[1][0] for k in (0, 1))
    assert not torch.allclose(one, two)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(before[name], p) for name, p in model.state_dict().items())
    assert not any(
        block.attn._forward_pre_hooks or block.attn.proj._forward_pre_hooks
        for block in model.blocks
    )


def test_hooks_are_gone_after_an_error_too(model):
    with pytest.raises(ValueError, match="12 x 16"):
        attention_gradients(model, torch.randn(1, 1, 8, 8))
    assert not any(
        block.attn._forward_pre_hooks or block.attn.proj._forward_pre_hooks
        for block in model.blocks
    )


def test_gradients_also_where_gradients_are_off_or_the_model_is_frozen(model, images):
    _, wanted = attention_gradients(model, images)
    with torch.no_grad():
        _, got = attention_gradients(model, images)
    _, frozen = attention_gradients(copy.deepcopy(model).requires_grad_(False), images)
    for a, b, c in zip(wanted, got, frozen, strict=True):
        assert torch.equal(a, b) and torch.allclose(a, c, atol=1e-6)
    assert not images.requires_grad


def test_gradient_rollout_leaves_out_what_speaks_against():
    weights, against = [random_weights(1, 2, 5, 5)] * 2, [-torch.ones(1, 2, 5, 5)] * 2
    assert torch.equal(gradient_rollout(weights, against), torch.eye(5)[None])
    spoken = gradient_rollout(weights[:1], [torch.ones(1, 2, 5, 5)])
    assert torch.allclose(spoken, torch.eye(5) + weights[0].mean(dim=1))


def test_a_head_that_speaks_against_does_not_cancel_one_that_speaks_for():
    weights, slopes = random_weights(1, 2, 5, 5), torch.ones(1, 2, 5, 5)
    slopes[:, 1] = -1
    found = gradient_rollout([weights], [slopes])
    assert torch.allclose(found, torch.eye(5) + weights[:, 0] / 2)


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


def test_each_position_is_most_similar_to_itself(model):
    similar = position_similarity(model.token_embed.pos_embed, model.config.grid)
    assert similar.shape == (3, 4, 3, 4) and not similar.requires_grad
    pos = model.token_embed.pos_embed[0, -12:]
    assert torch.allclose(
        similar[1, 2, 2, 3], torch.cosine_similarity(pos[6], pos[11], dim=0), atol=1e-6
    )
    assert torch.allclose(similar.reshape(12, 12).diagonal(), torch.ones(12))


def test_filters_are_the_directions_in_which_the_projection_varies(model):
    weight = model.patch_embed.proj.weight
    with torch.no_grad():
        shapes = torch.zeros(2, 16)
        shapes[0, 3], shapes[1, 7] = 1, 1
        by = torch.randn(64, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor(
            [5.0, 1.0]
        )
        old = weight.clone()
        weight.copy_(by @ shapes)
        first, second = filters(model, 2)
        weight.copy_(old)
    assert (
        first.shape == (1, 4, 4)
        and first.flatten()[3].abs() > 0.99
        and second.flatten()[7].abs() > 0.99
    )
    with pytest.raises(ValueError, match=r"has 1 to 16 components, got n = 17"):
        filters(model, 17)


def test_tokens_layer_by_layer(model, images):
    layers = token_layers(model, images)
    assert len(layers) == 4 and torch.equal(layers[0], model.embed(images))
    assert torch.allclose(model.norm(layers[-1]), model.forward_features(images))


# Occlusion


def test_occlusion_finds_the_only_patch_that_counts():
    class Corner(torch.nn.Module):
        """Class 1 by what stands in patch (1, 2)"""

        config = ViTConfig.from_name("mini/4", image_size=(12, 16), in_chans=1, num_classes=2)

        def forward(self, images):
            ink = images[:, 0, 4:8, 8:12].sum(dim=(1, 2))
            return torch.stack([torch.zeros_like(ink), ink], dim=1)

    images = torch.ones(2, 1, 12, 16)
    falls = occlusion(Corner(), images)
    assert falls.shape == (2, 3, 4) and falls[0, 1, 2] > 0.5
    assert falls.flatten(1).count_nonzero(dim=1).tolist() == [1, 1] and images.min() == 1
    assert occlusion(Corner(), images, classes=torch.tensor([0, 0]))[0, 1, 2] < -1
    assert occlusion(Corner(), images, fill=1.0).abs().max() == 0


LOOKS = {
    "attention": lambda model, x: model.attention_weights(x),
    "tokens": token_layers,
    "gradients": lambda model, x: [each for both in attention_gradients(model, x) for each in both],
    "occlusion": lambda model, x: [occlusion(model, x)],
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_model_in_training_is_read_without_dropout_and_stays_in_training(look):
    torch.manual_seed(0)
    model = ViT(
        ViTConfig.from_name(
            "mini/4", image_size=8, in_chans=1, num_classes=3, dropout=0.3, attn_dropout=0.3
        )
    )
    perturb(model, std=0.2)
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    one, two = (look(model, torch.ones(2, 1, 8, 8)) for _ in range(2))
    assert (
        all(map(torch.equal, one, two)) and [module.training for module in model.modules()] == modes
    )
    assert all(map(torch.allclose, one, look(model.eval(), torch.ones(2, 1, 8, 8))))
