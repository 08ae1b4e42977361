"""Speed-ups: the same numbers as without them, and the memory that the cost model predicts."""

import io
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vit_helpers.parity import perturb
from vit_helpers.scaling import activations, speedups
from vit_helpers.scaling.speedups import (
    accumulate,
    best_precision,
    break_even_steps,
    checkpoint_blocks,
    quantize,
    saved_activation_bytes,
)
from vit_helpers.vit import ViT, ViTConfig

CONFIG = ViTConfig(32, 4, 3, 10, 64, 3, 4)
B = 12


def model(**changes):
    vit = ViT(replace(CONFIG, **changes))
    perturb(vit)  # from a head of zeros the blocks have no gradient
    return vit


def images(count=B):
    return torch.randn(count, 3, 32, 32)


def labels(count=B):
    return torch.randint(10, (count,))


def gradients(vit):
    return {name: p.grad.clone() for name, p in vit.named_parameters()}


def close(ours, theirs):
    return all(torch.allclose(ours[name], theirs[name], rtol=0, atol=1e-6) for name in theirs)


@pytest.mark.parametrize("parts", [1, 2, 5, 7, B])  # 5 and 7 do not divide 12
def test_parts_add_up_to_the_big_batch(parts):
    vit, x, y = model(), images(), labels()
    loss = F.cross_entropy(vit(x), y)
    loss.backward()
    wanted = gradients(vit)
    said = accumulate(vit, x, y, parts)  # over the gradients that are there
    assert said == pytest.approx(loss.item(), abs=1e-6)
    assert close(gradients(vit), wanted)


def test_parts_add_up_for_shares_of_classes_too():
    vit, x, shares = model(), images(), torch.rand(B, 10).softmax(1)
    F.cross_entropy(vit(x), shares).backward()
    wanted = gradients(vit)
    accumulate(vit, x, shares, 5)
    assert close(gradients(vit), wanted)


@pytest.mark.parametrize("parts", [0, B + 1, -1])
def test_no_part_is_empty(parts):
    with pytest.raises(ValueError, match=f" 1 to 12 parts, got {parts}"):
        accumulate(model(), images(), labels(), parts)


def test_a_part_is_forgotten_before_the_next():
    vit, x, y = model(), images(), labels()
    whole, third = (
        saved_activation_bytes(lambda parts=parts: accumulate(vit, x, y, parts), vit)
        for parts in (1, 3)
    )
    assert whole == pytest.approx(3 * third, rel=1e-3)


@pytest.mark.parametrize(
    "changes", [{}, {"dropout": 0.2}, {"dropout": 0.1, "attn_dropout": 0.1}, {"image_size": 16}]
)
def test_recomputed_gradients_are_the_same_to_the_bit(changes):
    vit, y = model(**changes), labels()
    x = torch.randn(B, 3, *vit.config.image_size)
    runs = []
    for recompute in (False, True):
        vit.zero_grad()
        torch.manual_seed(1)
        if recompute:
            with checkpoint_blocks(vit):
                loss = F.cross_entropy(vit(x), y)
            loss.backward()  # also after the context has ended
        else:
            loss = F.cross_entropy(vit(x), y)
            loss.backward()
        runs.append(({"loss": loss.detach()} | gradients(vit), torch.get_rng_state()))
    (plain, after), (again, after_again) = runs
    assert all(torch.equal(plain[name], again[name]) for name in plain)
    assert torch.equal(after, after_again)


def test_recomputing_works_with_a_mask():
    vit, x, mask = model(), images(2), torch.rand(2, 65) > 0.3
    with checkpoint_blocks(vit):
        assert torch.equal(vit(x, mask), vit(x, mask))
        vit(x, mask).sum().backward()


def test_recomputing_leaves_no_trace():
    vit = model()
    names, forwards = list(vit.state_dict()), [block.forward for block in vit.blocks]
    with pytest.raises(KeyError), checkpoint_blocks(vit) as inside:
        assert inside is vit and list(vit.state_dict()) == names
        assert [block.forward for block in vit.blocks] != forwards
        with checkpoint_blocks(vit):
            vit(images(1))
        assert [block.forward for block in vit.blocks] != forwards
        raise KeyError
    assert [block.forward for block in vit.blocks] == forwards
    deepcopy(vit)
    with (
        pytest.raises(TypeError, match=r"Linear .*blocks"),
        checkpoint_blocks(nn.Linear(1, 1)),
    ):
        pass


def of_loss(config):
    return 4 * B * config.num_classes + 8 * B + 4  # shares of classes, labels, a weight


@pytest.mark.parametrize("depth", [1, 3])
def test_what_autograd_keeps_is_the_cost_models(depth):
    vit, x, y = model(depth=depth), images(), labels()
    counted = activations(vit.config)

    def step():
        F.cross_entropy(vit(x), y).backward()

    assert saved_activation_bytes(step, vit) == 4 * B * sum(counted.values()) + of_loss(vit.config)
    T, D = vit.config.num_tokens, vit.config.embed_dim
    blocks = depth * T * D  # their inputs
    last_norm = T * (D + 2)
    with checkpoint_blocks(vit):
        fewer = saved_activation_bytes(step, vit)
    assert fewer == 4 * B * (
        counted["projection"] + blocks + last_norm + counted["head"]
    ) + of_loss(vit.config)


def test_nothing_is_kept_without_a_way_back():
    vit, x = model(), images()
    with torch.no_grad():
        assert saved_activation_bytes(lambda: vit(x), vit) == 0


@pytest.mark.parametrize(
    ("device", "cpu_units", "cuda", "cuda_units", "wanted"),
    [
        ("cpu", False, False, False, "float32"),
        ("cpu", True, False, False, "bfloat16"),
        ("cpu", False, True, True, "float32"),
        ("cuda", True, False, False, "float32"),
        ("cuda", False, True, False, "float32"),
        ("cuda:0", False, True, True, "bfloat16"),
        ("mps", True, False, False, "float32"),
        (torch.device("cpu"), True, False, False, "bfloat16"),
    ],
)
def test_best_precision(monkeypatch, device, cpu_units, cuda, cuda_units, wanted):
    monkeypatch.setattr(speedups, "bf16_units", lambda: cpu_units)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: cuda_units)
    assert best_precision(device) == wanted


def file_bytes(vit):
    file = io.BytesIO()
    torch.save(vit.state_dict(), file)
    return file.tell()


def test_eight_bits_say_nearly_the_same():
    pytest.importorskip("torch.ao.quantization")
    vit, x = model(num_classes=5), images()
    names = list(vit.state_dict())
    small = quantize(vit)
    with torch.no_grad():
        theirs, ours = vit(x), small(x)
    assert 0 < (ours - theirs).std() < 0.15 * theirs.std()
    assert vit.training and not small.training and list(vit.state_dict()) == names  # a copy
    assert file_bytes(small) < 0.35 * file_bytes(vit)


def test_when_a_start_has_paid():
    assert break_even_steps(10, 1.0, 0.75) == 40
    assert break_even_steps(10, 1.0, 2.0) == float("inf")
