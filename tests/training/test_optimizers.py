"""Optimizers against torch's and by hand: decay, rates of their own, and Muon."""

import copy
import pickle

import pytest
import torch
from small_classifier import Classifier, batches, silent
from torch import nn

from vit_helpers.parity import perturb
from vit_helpers.training import (
    Recipe,
    fit,
    set_seed,
)
from vit_helpers.training.checkpoints import Checkpoint
from vit_helpers.training.optimizers import (
    OPTIMIZERS,
    Muon,
    adam_coupled,
    adam_l2,
    adamw,
    adamw_all,
    muon,
    orthogonal,
    param_groups,
    sgd,
)
from vit_helpers.vit import ViT, ViTConfig


def small_vit():
    torch.manual_seed(0)
    model = ViT(ViTConfig(8, 2, 1, 10, 16, 2, 2))
    perturb(model, std=0.2)  # a head of zeros would let no gradient through
    return model


@pytest.mark.parametrize("shape", [(8, 8), (24, 8), (8, 32)])
def test_singular_values_become_one_and_directions_stay(shape):
    torch.manual_seed(0)
    u, s, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    s = torch.logspace(0, -2, len(s))  # from strong to weak
    turned = orthogonal(u @ s.diag() @ v)
    assert turned.shape == shape
    values = u.T @ turned @ v.T  # in the old directions
    assert (values - values.diag().diag()).abs().max() < 1e-4
    assert values.diag().min() > 0.3 and values.diag().max() < 1.3
    assert torch.equal(orthogonal(torch.zeros(shape)), torch.zeros(shape))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon since 2.9")
@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 64)])
def test_it_steps_as_torchs(shape):
    torch.manual_seed(0)
    ours = nn.Parameter(torch.randn(shape))
    theirs = nn.Parameter(ours.detach().clone())
    one = Muon([{"params": [ours], "lr": 0.1, "weight_decay": 0.05, "orthogonal": True}])
    two = torch.optim.Muon(
        [theirs], lr=0.1, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(4):
        ours.grad = torch.randn(shape)
        theirs.grad = ours.grad.clone()
        one.step()
        two.step()
        # bfloat16 has 8 bits
        assert (ours - theirs).abs().max() < 0.02 * (0.1 * 0.2 * max(shape) ** 0.5)
        ours.data.copy_(theirs.data)


def test_the_rest_steps_as_under_adamw():
    model, twin = small_vit(), small_vit()
    recipe = Recipe(lr=0.01, weight_decay=0.1)
    images, labels = torch.randn(4, 1, 8, 8), torch.tensor([1, 2, 3, 4])
    for net, optimizer in (
        (model, muon(model, 0.01, 0.1, 10.0)),
        (twin, recipe.make_optimizer(twin)),
    ):
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    pairs = zip(model.named_parameters(), twin.parameters(), strict=True)
    turned = {name for (name, ours), theirs in pairs if not torch.equal(ours, theirs)}
    names = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    blocks = {f"blocks.{i}.{name}.weight" for i in range(2) for name in names}
    assert turned == {"patch_embed.proj.weight", *blocks}


def test_a_closure_computes_the_gradients_before_anything_moves():
    model, twin = small_vit(), small_vit()
    images, labels = torch.randn(4, 1, 8, 8), torch.tensor([1, 2, 3, 4])
    one, two = (Recipe(optimizer="muon").make_optimizer(net) for net in (model, twin))

    def closure():
        one.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        return loss.item()

    for _ in range(2):
        two.zero_grad()
        loss = nn.functional.cross_entropy(twin(images), labels)
        loss.backward()
        two.step()
        assert one.step(closure) == loss.item()
    assert all(
        torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True)
    )


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_steps_as_the_original(duplicate):
    matrix = nn.Parameter(torch.eye(4))
    one = Muon([{"params": [matrix], "orthogonal": True}], lr=0.1, momentum=0.5)
    other = duplicate(one)
    (twin,) = other.param_groups[0]["params"]
    for optimizer, p in ((one, matrix), (other, twin)) * 2:
        p.grad = torch.arange(16.0).view(4, 4)
        optimizer.step()
    assert torch.equal(matrix, twin) and other.param_groups[0]["momentum"] == 0.5


def test_every_parameter_is_in_one_group_and_the_rate_follows_the_schedule():
    model = small_vit()
    optimizer = Recipe(optimizer="muon").make_optimizer(model)
    ids = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(ids) == sorted(map(id, model.parameters()))
    before = copy.deepcopy(model.state_dict())
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    optimizer.step()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_kept_state_goes_on_as_if_never_stopped():
    def train(model, optimizer, steps):
        for seed in steps:
            images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), torch.tensor([0, 1, 2, 3])).backward()
            optimizer.step()

    recipe = Recipe(optimizer="muon")
    whole, half = small_vit(), small_vit()
    train(whole, recipe.make_optimizer(whole), range(6))
    first = recipe.make_optimizer(half)
    train(half, first, range(3))
    kept = copy.deepcopy(first.state_dict())
    second = recipe.make_optimizer(half)
    second.load_state_dict(kept)
    train(half, second, range(3, 6))
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), half.parameters(), strict=True)
    )


def test_tokens_learn_at_their_own_rate(monkeypatch):
    seen = []
    make = adamw
    monkeypatch.setitem(OPTIMIZERS, "adamw", lambda *args: seen.append(make(*args)) or seen[-1])
    fit(Classifier(), batches(), batches(), Recipe(epochs=1, lr=0.01, token_lr_mult=7), **silent)
    assert [group["initial_lr"] for group in seen[0].param_groups] == pytest.approx(
        [0.01, 0.01, 0.07]
    )


def test_decay_reaches_matrices_only():
    model = nn.ModuleDict(
        {
            "conv": nn.Conv2d(3, 4, 2),
            "line": nn.Conv1d(3, 4, 2),
            "norm": nn.LayerNorm(4),
            "rest": Classifier(),
        }
    )
    model.temperature = nn.Parameter(torch.tensor(1.0))
    groups = adamw(model, lr=0.1, weight_decay=0.3, token_lr_mult=5).param_groups
    decayed, others, tokens = ({id(p) for p in group["params"]} for group in groups)
    assert [group["weight_decay"] for group in groups] == [0.3, 0, 0]
    assert [group["lr"] for group in groups] == [0.1, 0.1, 0.5]
    layers = model["rest"].layers
    assert decayed == {
        id(model["conv"].weight),
        id(model["line"].weight),
        id(layers[0].weight),
        id(layers[3].weight),
    }
    assert tokens == {id(model["rest"].token)}
    assert decayed | others | tokens == {id(p) for p in model.parameters()}


def test_decay_is_apart_from_the_gradient():
    layer = nn.Linear(4, 4)
    before = layer.weight.detach().clone()
    optimizer = adamw(nn.ModuleList([layer]), lr=0.1, weight_decay=0.3)
    layer.weight.grad = torch.zeros_like(layer.weight)
    layer.bias.grad = torch.zeros_like(layer.bias)
    optimizer.step()
    # L2 in the gradient would have moved it by about lr
    assert torch.allclose(layer.weight, before * (1 - 0.1 * 0.3))


def test_l2_in_adam_moves_every_parameter_by_about_the_learning_rate():
    layer = nn.Linear(4, 4)
    before = layer.weight.detach().clone()
    optimizer = adam_l2(layer, lr=0.1, weight_decay=0.3)
    for p in layer.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    # however small the weight
    assert torch.allclose((layer.weight - before).abs(), torch.tensor(0.1), atol=1e-4)
    with pytest.raises(ValueError, match=r"token_lr_mult.* 1, got 10"):
        adam_l2(layer, 0.1, 0.3, 10)


def test_decoupled_decay_of_everything_is_torchs():
    model, twin = Classifier(), Classifier()
    twin.load_state_dict(model.state_dict())
    for p in (*model.parameters(), *twin.parameters()):
        p.grad = torch.full_like(p, 0.1)
    adamw_all(model, 0.1, 0.3).step()
    torch.optim.AdamW(twin.parameters(), lr=0.1, weight_decay=0.3).step()
    assert all(
        torch.allclose(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True)
    )
    with pytest.raises(ValueError, match=r"adamw_all.*token_lr_mult.* 1, got 10"):
        adamw_all(model, 0.1, 0.3, 10)


def test_coupled_adam_differs_from_adamw_in_where_the_decay_is_added_alone():
    """Equal without decay; with it, torch.optim.Adam's step of the same matrices.

    There is none for biases and tokens.
    """
    models = [Classifier() for _ in range(4)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
        for number, p in enumerate(model.parameters()):
            p.grad = torch.full_like(p, 0.1 * (number + 1))
    made = (
        adam_coupled(models[0], 0.1, 0.0, 2),
        adamw(models[1], 0.1, 0.0, 2),
        adam_coupled(models[2], 0.1, 0.3, 2),
    )
    groups = [
        {name: group[name] for name in ("params", "lr", "weight_decay")}
        for group in param_groups(models[3], 0.1, 0.3, 2)
    ]
    for optimizer in (*made, torch.optim.Adam(groups)):
        optimizer.step()
    pairs = [
        list(zip(one.parameters(), other.parameters(), strict=True))
        for one, other in (models[:2], models[2:])
    ]
    assert all(torch.allclose(p, q) for some in pairs for p, q in some)
    assert [group["weight_decay"] for group in made[2].param_groups] == [0.3, 0, 0]


def test_sgd_has_momentum_and_decays_matrices_only():
    optimizer = sgd(Classifier(), lr=0.1, weight_decay=0.3, token_lr_mult=2)
    assert [(g["lr"], g["momentum"], g["weight_decay"]) for g in optimizer.param_groups] == [
        (0.1, 0.9, 0.3),
        (0.1, 0.9, 0),
        (0.2, 0.9, 0),
    ]


@pytest.mark.parametrize("optimizer", ["adam_l2", "sgd"])
def test_every_optimizer_learns_and_resumes(tmp_path, optimizer):
    recipe = Recipe(
        epochs=3, lr=0.05, token_lr_mult=1, optimizer=optimizer, schedule="linear", weight_decay=0
    )
    set_seed(0)
    model = Classifier()
    path = tmp_path / "c.pt"
    history = fit(model, batches(), batches(), recipe, callbacks=[Checkpoint(path)])
    assert history[-1].train.loss < history[0].train.loss
    again = [Checkpoint(path, resume=True)]
    assert fit(Classifier(), batches(), batches(), recipe, callbacks=again) == history
