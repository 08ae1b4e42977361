"""The cost model against torch's own counters, against autograd, and against published counts."""

import subprocess
import sys
from contextlib import nullcontext
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vit_helpers.attention import FEW_TOKENS
from vit_helpers.scaling import (
    activations,
    attention_crossover,
    multiply_adds,
    parameters,
    training_bytes,
    training_multiply_adds,
)
from vit_helpers.scaling.timing import can_measure_memory
from vit_helpers.vit import ViT, ViTConfig

CONFIGS = {
    "65 tokens": ViTConfig(32, 4, 3, 10, 64, 2, 4),
    "17 tokens": ViTConfig(16, 4, 1, 10, 64, 2, 4),
    "no square": ViTConfig((24, 40), 4, 3, 7, 96, 3, 3, mlp_ratio=2.0),
    "averaged": ViTConfig(
        32, 4, 3, 10, 64, 2, 4, pool="avg", class_token=False, positions="sincos"
    ),
    "hidden head": ViTConfig(32, 4, 3, 10, 64, 2, 4, representation_size=48),
    "every token": ViTConfig(16, 4, 3, 10, 64, 1, 4, pool="none"),
    "no head": ViTConfig(16, 4, 3, 0, 64, 1, 4, positions="none"),
    "DINOv3": ViTConfig(32, 4, 3, 10, 64, 2, 4, positions="rotary", reg_tokens=4, init_values=1e-5),
    "swiglu": ViTConfig(16, 4, 3, 10, 64, 2, 4, mlp_layer="swiglu"),
    "gated": ViTConfig(16, 4, 3, 10, 64, 2, 4, mlp_layer="swiglu", norm_layer="rmsnorm"),
    "QK norm": ViTConfig(16, 4, 3, 10, 64, 2, 4, qk_norm=True),
    "SigLIP": ViTConfig(
        32, 4, 3, 10, 64, 2, 4, pool="map", class_token=False, mlp_layer="gelu_tanh"
    ),
}
every = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
B = 4


def images(config):
    return torch.randn(B, config.in_chans, *config.image_size)


@every
def test_parameters_are_the_models_own(config):
    assert sum(parameters(config).values()) == sum(p.numel() for p in ViT(config).parameters())


@every
def test_multiply_adds_are_torchs_count(config):
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        ViT(config).eval()(images(config))
    query = config.embed_dim**2 if config.pool == "map" else 0  # once for a batch
    assert counter.get_total_flops() == 2 * (B * sum(multiply_adds(config).values()) + query)


def loss_of(model, config):
    return F.cross_entropy(model(images(config)), torch.randint(config.num_classes, (B,)))


@cache
def counts_fused():
    """Whether this torch counts fused attention on CPUs; older ones take it for nothing"""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        F.scaled_dot_product_attention(*[torch.ones(1, 1, 99, 8)] * 3)
    return counter.get_total_flops() > 0


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ["65 tokens", "17 tokens", "no square", "averaged", "hidden head"])
def test_training_is_torchs_count(name, fused):
    config = CONFIGS[name]
    if fused and not counts_fused():
        pytest.skip("this torch counts no fused attention on CPUs")
    model = ViT(config)
    with (
        FlopCounterMode(display=False) as counter,
        nullcontext() if fused else sdpa_kernel(SDPBackend.MATH),
    ):
        loss_of(model, config).backward()
    counted = sum(
        training_multiply_adds(config, fused=fused and config.num_tokens > FEW_TOKENS).values()
    )
    assert counter.get_total_flops() == 2 * B * counted


@pytest.mark.parametrize(
    "name", ["65 tokens", "17 tokens", "no square", "averaged", "DINOv3", "QK norm", "swiglu"]
)
def test_what_autograd_keeps(name):
    config = CONFIGS[name]
    model = ViT(config)
    weights = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            # held, so that no address comes twice
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss_of(model, config)
    of_loss = 4 * B * config.num_classes + 8 * B + 4  # shares of classes, labels, a weight
    counted = 4 * B * sum(activations(config, fused=config.num_tokens > FEW_TOKENS).values())
    assert sum(size for size, _ in kept.values()) == counted + of_loss


@pytest.mark.parametrize(("name", "count", "billions"), [
    ("Ti/16", 5_717_416, None), ("S/16", 22_050_664, None),
    ("B/16", 86_567_656, 17.56), ("B/32", 88_224_232, 4.41),
    ("L/16", 304_326_632, 61.55), ("L/32", 306_535_400, 15.38),
    ("H/14", 632_045_800, 167.3),
])  # fmt: skip
def test_published_counts(name, count, billions):
    config = ViTConfig.from_name(name)
    assert sum(parameters(config).values()) == count
    if billions:
        assert sum(multiply_adds(config).values()) / 1e9 == pytest.approx(billions, abs=0.05)


def test_where_scores_overtake():
    config = ViTConfig()
    T = attention_crossover(config)
    large = ViTConfig(16 * 72, 16, class_token=False, pool="avg")  # 5,184 tokens
    small = ViTConfig(16 * 64, 16, class_token=False, pool="avg")  # 4,096
    assert small.num_tokens < T < large.num_tokens
    for c, wins in ((small, False), (large, True)):
        cost = multiply_adds(c)
        assert (
            cost["scores"] + cost["mixing"] > cost["qkv"] + cost["output"] + cost["MLP"]
        ) == wins


def test_memory_of_training_is_the_sum_of_its_parts():
    config = CONFIGS["65 tokens"]
    n = 4 * sum(parameters(config).values())
    parts = training_bytes(config, batch=8)
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (n, n, 2 * n)
    assert training_bytes(config, batch=16)["activations"] == 2 * parts["activations"]
    assert training_bytes(config, 8, "sgd")["optimizer"] == n
    with pytest.raises(ValueError, match=r"'lamb'.*: adamw, sgd"):
        training_bytes(config, 8, "lamb")


MEASURE = """
import torch
import torch.nn.functional as F
from vit_helpers.training.optimizers import adamw
from vit_helpers.scaling import training_bytes
from vit_helpers.scaling.timing import freed_memory_returned, peak_memory, reset_peak_memory
from vit_helpers.vit import ViT, ViTConfig

def used(config, batch):
    images = torch.randn(batch, config.in_chans, *config.image_size)
    labels = torch.randint(10, (batch,))
    before = reset_peak_memory()
    model = ViT(config)
    optimizer = adamw(model, 1e-3, 0.05)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return peak_memory() - before

used(ViTConfig(32, 4, 3, 10, 64, 1, 4), 2)  # what torch loads for its first step is not meant
config = ViTConfig.from_name("S/16", num_classes=10, depth=6)
with freed_memory_returned():
    print(used(config, {batch}) / sum(training_bytes(config, {batch}).values()))
"""


@pytest.mark.processes
@pytest.mark.skipif(not can_measure_memory(), reason="only Linux tells the memory of a process")
@pytest.mark.parametrize("batch", [2, 8])
def test_memory_of_training_is_what_the_system_tells(batch):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.replace("{batch}", str(batch))],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert 0.8 < float(done.stdout) < 1.1
