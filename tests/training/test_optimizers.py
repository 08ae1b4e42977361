"""Muon: orthogonal steps, torch's to the precision of its bfloat16, and AdamW for the rest."""

import copy
import pickle

import pytest
import torch
from torch import nn

from vit_helpers.parity import perturb
from vit_helpers.training import Recipe
from vit_helpers.training.optimizers import Muon, muon, orthogonal
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
