"""What is new since the paper: rotary positions, LayerScale, registers, gated MLP, pooling."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from peers import timm
from torch import nn

from vit_helpers.attention import attention
from vit_helpers.encoder import MLP, Block
from vit_helpers.inspection import (
    attention_distance,
    attention_gradients,
    attention_map,
    grad_cam,
    layer_cam,
    readout_map,
)
from vit_helpers.inspection.localization import METHODS
from vit_helpers.modern import (
    AttentionPool,
    LayerScale,
    ModernAttention,
    ModernBlock,
    SwiGLU,
    make_mlp,
    rotary_angles,
    rotate,
)
from vit_helpers.pretrained import Preprocess, load_pretrained, save_weights
from vit_helpers.pretrained.finetune import add_lora, merge_lora, transfer_weights
from vit_helpers.pretrained.masked import MaskedAutoencoder
from vit_helpers.vit import ViT, ViTConfig

PLAIN = ViTConfig(16, 4, 3, 5, 32, 2, 4)
NEWER = {
    "rotary": {"positions": "rotary"},
    "registers": {"reg_tokens": 3},
    "LayerScale": {"init_values": 0.1},
    "SwiGLU": {"mlp_layer": "swiglu"},
    "GELU by tanh": {"mlp_layer": "gelu_tanh"},
    "RMSNorm": {"norm_layer": "rmsnorm"},
    "QK norm": {"qk_norm": True},
    "attention pooling": {"pool": "map"},
    "mean, with registers": {"pool": "avg", "reg_tokens": 2},
    "no class token": {"pool": "avg", "class_token": False, "reg_tokens": 2},
    "DINOv3": {"positions": "rotary", "reg_tokens": 4, "init_values": 0.1, "norm_eps": 1e-5},
}
every = pytest.mark.parametrize("newer", NEWER.values(), ids=NEWER)


def perturbed(config, std=0.1):
    """A model whose weights are all drawn anew, as zeros and ones would hide mistakes"""
    model = ViT(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += std * torch.randn_like(parameter)
    return model


def images(count=2, size=(16, 16)):
    return torch.randn(count, 3, *size)


def turned(x, angles):
    return rotate(x, angles.cos(), angles.sin())


# Rotary positions


def test_angles_are_of_centers_from_minus_one_to_one():
    angles = rotary_angles((2, 3), 8, theta=100)
    assert angles.shape == (6, 4)
    frequencies = 2 * torch.pi * torch.tensor([1.0, 0.1])
    assert torch.allclose(angles[4], torch.cat([0.5 * frequencies, 0 * frequencies]))
    assert torch.allclose(angles[0], torch.cat([-0.5 * frequencies, -2 / 3 * frequencies]))


@pytest.mark.parametrize("theta", [100.0, 10_000.0])
def test_every_width_has_an_angle_for_two_numbers(theta):
    for d in range(4, 2049, 4):
        angles = rotary_angles((1, 2), d, theta)
        assert angles.shape == (2, d // 2), d
        exponents = torch.arange(d // 4, dtype=torch.float64) * 4 / d
        expected = torch.cat([torch.zeros(d // 4), torch.pi * theta**-exponents])
        assert torch.allclose(angles[1], expected.float(), atol=1e-5), d


def test_a_rotation_keeps_lengths():
    x = torch.randn(2, 3, 6, 8)
    assert torch.allclose(turned(x, rotary_angles((2, 3), 8)).norm(dim=-1), x.norm(dim=-1))


def test_scores_depend_on_the_difference_of_places_only():
    angles = rotary_angles((4, 5), 16)
    q, k = (turned(x.expand(20, -1), angles) for x in torch.randn(2, 1, 16))
    scores = (q @ k.T).reshape(4, 5, 4, 5)
    assert torch.allclose(scores[0, 1, 2, 2], scores[1, 3, 3, 4], atol=1e-5)
    assert torch.allclose(scores[3, 4, 1, 1], scores[2, 3, 0, 0], atol=1e-5)
    assert (scores[0, 0, 1, 1] - scores[1, 1, 0, 0]).abs() > 1e-3  # there and back differ


def test_tokens_before_the_patches_are_not_rotated():
    x = torch.randn(1, 2, 3 + 6, 8)
    assert torch.equal(turned(x, rotary_angles((2, 3), 8))[:, :, :3], x[:, :, :3])


def test_heads_that_do_not_split_into_pairs_are_refused():
    with pytest.raises(ValueError, match="width 6"):
        rotary_angles((2, 2), 6)
    with pytest.raises(ValueError, match="width 6"):
        replace(PLAIN, positions="rotary", embed_dim=24)


def test_without_positions_patches_are_a_set_and_with_rotary_they_are_not():
    shuffled = torch.randperm(16)

    def pooled(config, order):
        torch.manual_seed(0)
        model = perturbed(replace(config, pool="avg"))
        torch.manual_seed(1)
        tokens = model.patch_embed(images())[:, order]
        x = model.token_embed(tokens)
        for block in model.blocks:
            x = block(x)
        return x.mean(dim=1)

    none, rotary = replace(PLAIN, positions="none"), replace(PLAIN, positions="rotary")
    assert torch.allclose(pooled(none, slice(None)), pooled(none, shuffled), atol=1e-5)
    assert (pooled(rotary, slice(None)) - pooled(rotary, shuffled)).abs().max() > 1e-2


def test_rotary_positions_fit_another_size():
    model = perturbed(replace(PLAIN, positions="rotary"))
    larger = transfer_weights(model, image_size=(24, 32))
    assert larger.blocks[0].attn.cos.shape == (48, 4)
    assert larger(images(size=(24, 32))).shape == (2, 5)


def test_rotary_positions_are_computed_in_the_dtype_of_the_model():
    model = perturbed(replace(PLAIN, positions="rotary", qk_norm=True))
    expected = model(images(8))
    assert model.bfloat16()(images(8).bfloat16()).dtype == torch.bfloat16
    model.float()
    with torch.autocast("cpu", torch.bfloat16):
        assert model(images(8)).shape == expected.shape


# LayerScale, registers, MLP, pooling


def test_layer_scale_multiplies():
    scale = LayerScale(3, 0.5)
    with torch.no_grad():
        scale.gamma[1] = 2
    assert scale(torch.ones(2, 3)).tolist() == [[0.5, 2, 0.5]] * 2


def test_with_small_layer_scale_a_block_hardly_changes_its_input():
    x = torch.randn(1, 5, 32)
    block = ModernBlock(32, 4, init_values=1e-5)
    assert 0 < (block(x) - x).abs().max() < 1e-3


def test_registers_follow_the_class_token_and_have_no_position():
    model = perturbed(replace(PLAIN, reg_tokens=3))
    tokens = model.embed(images())
    assert tokens.shape == (2, 1 + 3 + 16, 32)
    assert torch.equal(tokens[0, 1:4], model.token_embed.reg_token[0])
    pos_embed = model.token_embed.pos_embed
    assert pos_embed.shape == (1, 17, 32)
    assert torch.equal(tokens[0, 0], model.token_embed.cls_token[0, 0] + pos_embed[0, 0])


def test_the_mean_is_of_patches_only():
    model = perturbed(replace(PLAIN, pool="avg", reg_tokens=3))
    tokens = torch.randn(2, 20, 32)
    assert torch.equal(model.pool(tokens), tokens[:, 4:].mean(dim=1))


def test_a_gated_mlp():
    mlp, x = SwiGLU(4, 7), torch.randn(2, 3, 4)
    expected = mlp.fc2(F.silu(mlp.gate(x)) * mlp.fc1(x))
    assert torch.equal(mlp(x), expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_mlp("siwglu", 4, 8), "mlp_layer 'siwglu', known: gelu, gelu_tanh, swiglu"),
        (lambda: ModernBlock(8, 2, mlp_layer="siwglu"), "mlp_layer 'siwglu'"),
        (lambda: AttentionPool(8, 2, mlp_layer="siwglu"), "mlp_layer 'siwglu'"),
        (lambda: ModernBlock(8, 2, norm_layer="foo"), "norm_layer 'foo', known: layernorm, rmsn"),
    ],
)
def test_unknown_layers_are_named_with_the_known(make, message):
    with pytest.raises(ValueError, match=f"unknown {message}"):
        make()


def test_attention_pooling_is_torchs():
    pool, x = AttentionPool(16, 4), torch.randn(3, 9, 16)
    theirs = nn.MultiheadAttention(16, 4, batch_first=True)
    state = {
        "in_proj_weight": torch.cat([pool.q.weight, pool.kv.weight]),
        "in_proj_bias": torch.cat([pool.q.bias, pool.kv.bias]),
        "out_proj.weight": pool.proj.weight,
        "out_proj.bias": pool.proj.bias,
    }
    theirs.load_state_dict(state)
    pooled = theirs(pool.latent.expand(3, -1, -1), x, x)[0]
    assert torch.allclose(pool(x), (pooled + pool.mlp(pool.norm(pooled)))[:, 0], atol=1e-6)


def test_attention_pooling_hides_what_a_mask_hides():
    pool, x = AttentionPool(16, 4), torch.randn(1, 9, 16)
    mask = torch.arange(9)[None] < 6
    assert torch.allclose(pool(x, mask), pool(x[:, :6]), atol=1e-6)


def test_normalized_queries_and_keys_have_no_scale():
    attn = ModernAttention(16, 2, qk_norm=True)
    x = torch.randn(1, 5, 16)
    before = attn.weights(x)
    with torch.no_grad():
        attn.qkv.weight[:32] *= 3
        attn.qkv.bias[:32] *= 3
    assert torch.allclose(attn.weights(x), before, atol=1e-4)


# All of them in a ViT


def test_the_papers_model_has_the_papers_blocks():
    assert type(ViT(PLAIN).blocks[0]) is Block and type(ViT(PLAIN).blocks[0].mlp) is MLP


def test_shared_weights_start_as_in_the_plain_model():
    torch.manual_seed(0)
    plain = ViT(PLAIN).state_dict()
    torch.manual_seed(0)
    scaled = ViT(replace(PLAIN, init_values=1e-5)).state_dict()
    assert all(torch.equal(scaled[name], value) for name, value in plain.items())


@every
def test_weights_of_attention_are_those_that_are_used(newer):
    model = perturbed(replace(PLAIN, **newer))
    x = model.embed(images())
    weights = model.attention_weights(images())
    tokens = 16 + model.config.num_prefix_tokens
    assert len(weights) == 2 and weights[0].shape == (2, 4, tokens, tokens)
    attn = model.blocks[0].attn
    normed = model.blocks[0].norm1(x)
    values = attention(*attn.heads(normed))[0].transpose(1, 2).flatten(2)
    assert torch.allclose(attn(normed), attn.proj(values), atol=1e-5)


@every
def test_every_parameter_learns(newer):
    model = perturbed(replace(PLAIN, **newer))
    F.cross_entropy(model(images()), torch.tensor([0, 1])).backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not still


@every
def test_hidden_patches_change_nothing(newer):
    model = perturbed(replace(PLAIN, **newer))
    prefix = model.config.num_prefix_tokens
    mask = torch.ones(2, model.config.num_tokens, dtype=torch.bool)
    mask[:, prefix + 7] = False  # row 1, column 3
    changed = images()
    expected = model(changed, mask)
    changed = changed.clone()
    changed[:, :, 4:8, 12:16] += 5
    assert torch.allclose(model(changed, mask), expected, atol=1e-5)


@every
def test_it_is_saved_and_loaded(newer, tmp_path):
    model = perturbed(replace(PLAIN, **newer))
    preprocess = Preprocess(16, (16, 16), "bilinear", (0.5,) * 3, (0.5,) * 3)
    save_weights(tmp_path / "a.safetensors", model, preprocess, list("abcde"))
    loaded = load_pretrained(tmp_path / "a.safetensors").model
    assert loaded.config == model.config
    x = images()
    assert torch.equal(loaded(x), model(x))


@every
def test_it_is_fine_tuned(newer):
    model = perturbed(replace(PLAIN, **newer))
    new = transfer_weights(model, num_classes=3, image_size=24)
    assert new(images(size=(24, 24))).shape == (2, 3)
    same = transfer_weights(model, image_size=16)
    x = images()
    assert torch.equal(same(x), model(x))
    lora = add_lora(same, rank=2)
    assert torch.allclose(merge_lora(lora)(x), model(x), atol=1e-6)


def test_a_block_of_ones_own_beside_newer_parts_is_refused():
    with pytest.raises(ValueError, match="rotary"):
        ViT(replace(PLAIN, positions="rotary"), block=Block)
    with pytest.raises(ValueError, match="init_values"):
        ViT(replace(PLAIN, init_values=0.1), block=Block)
    ViT(replace(PLAIN, reg_tokens=2), block=Block)


@pytest.mark.parametrize(
    ("newer", "message"),
    [
        ({"reg_tokens": -1}, "reg_tokens"),
        ({"init_values": -0.1}, "init_values"),
        ({"mlp_layer": "relu"}, "unknown mlp_layer 'relu'"),
        ({"norm_layer": "batchnorm"}, "unknown norm_layer 'batchnorm'"),
        ({"qk_norm": "yes"}, "qk_norm"),
        ({"positions": "rotary", "rope_theta": 0}, "rope_theta"),
    ],
)
def test_what_does_not_exist_is_refused(newer, message):
    with pytest.raises(ValueError, match=message):
        replace(PLAIN, **newer)


# Published models. A position of the class token and biases of keys are what we have beyond them


PUBLISHED = {  # timm's, and what ours has more in numbers of D
    "DeiT III-S/16": ("deit3_small_patch16_224", 1),
    "DeiT III-M/16": ("deit3_medium_patch16_224", 1),
    "DeiT III-H/14": ("deit3_huge_patch14_224", 1),
    "DINOv2-S/14": ("vit_small_patch14_dinov2", 0),
    "DINOv2-g/14": ("vit_giant_patch14_dinov2", 0),
    "DINOv2 with registers-B/14": ("vit_base_patch14_reg4_dinov2", 1),
    "DINOv2 with registers-g/14": ("vit_giant_patch14_reg4_dinov2", 1),
    "SigLIP-B/16": ("vit_base_patch16_siglip_224", 0),
    "SigLIP-So400m/14": ("vit_so400m_patch14_siglip_224", 0),
    "DINOv3-S/16": ("vit_small_patch16_dinov3_qkvb", 12),
    "DINOv3-S+/16": ("vit_small_plus_patch16_dinov3_qkvb", 12),
    "DINOv3-H+/16": ("vit_huge_plus_patch16_dinov3_qkvb", 32),
    "DINOv3-7B/16": ("vit_7b_patch16_dinov3", 3 * 40),
}


@pytest.mark.peers
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_as_many_weights(name):
    published, more = PUBLISHED[name]
    with torch.device("meta"):
        ours, theirs = ViT(ViTConfig.from_name(name)), timm.create_model(published)
    count, wanted = (sum(p.numel() for p in model.parameters()) for model in (ours, theirs))
    assert count == wanted + more * ours.config.embed_dim
    assert ours.config.num_heads == theirs.blocks[0].attn.num_heads


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("DINOv3-S/14", "'DINOv3-S/14', known: DINOv3-S/16, DINOv3-S"),
        ("DINOv4-S/16", "'DINOv4-S/16', known: mini, Ti, S, B, L, H, .*, and DeiT III-S/16"),
        ("7B/16", "'7B/16', known: mini"),
        ("-B/16", "'-B/16', known: mini"),
    ],
)
def test_unknown_models_are_named_with_the_known(name, message):
    with pytest.raises(ValueError, match=message):
        ViTConfig.from_name(name)


# What looks into a model


LOOKING = {name: newer | {"pool": "cls"} for name, newer in NEWER.items()}
LOOKING |= {"registers, mean": {"reg_tokens": 2, "pool": "avg"}, "map": {"pool": "map"}}
LOOKING["no class token"] = {"class_token": False, "pool": "avg", "reg_tokens": 2}


@pytest.mark.parametrize("newer", LOOKING.values(), ids=LOOKING)
def test_every_map_is_of_the_patches(newer):
    model = perturbed(replace(PLAIN, in_chans=1, **newer))
    x, classes = torch.randn(2, 1, 16, 16), torch.tensor([0, 1])
    methods = METHODS | {"Grad-CAM": grad_cam, "LayerCAM": layer_cam}
    for method in methods.values():
        maps = method(model, x, classes)
        assert maps.shape == (2, 4, 4) and maps.isfinite().all()


def test_a_map_of_what_the_head_reads_has_its_query():
    """It is the class token, or else all patches without registers"""
    weights = torch.rand(2, 1 + 3 + 16, 1 + 3 + 16)
    config = replace(PLAIN, reg_tokens=3)
    assert torch.equal(readout_map(weights, config), weights[:, 0, 4:].unflatten(-1, (4, 4)))
    mean = weights[:, 4:, 4:].mean(dim=1).unflatten(-1, (4, 4))
    for pool in ("avg", "map"):  # the class token is one of many tokens, or not read at all
        assert torch.equal(readout_map(weights, replace(config, pool=pool)), mean)
    alone = replace(config, pool="avg", class_token=False)
    assert torch.equal(readout_map(weights[:, 1:, 1:], alone), mean)


@pytest.mark.parametrize("newer", LOOKING.values(), ids=LOOKING)
def test_gradients_of_attention_are_autograds(newer):
    model, x = perturbed(replace(PLAIN, **newer)), images()
    z, kept = model.embed(x), []
    for block in model.blocks:
        q, k, v = block.attn.heads(block.norm1(z))
        kept.append((q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1))
        mixed = block.attn.proj((kept[-1] @ v).transpose(1, 2).flatten(2))
        z = z + getattr(block, "ls1", nn.Identity())(mixed)
        z = z + getattr(block, "ls2", nn.Identity())(block.mlp(block.norm2(z)))
    logits = model.head(model.pool(model.norm(z)))
    assert torch.allclose(logits, model(x), atol=1e-4)
    expected = torch.autograd.grad(logits[:, 1].sum(), kept)
    weights, gradients = attention_gradients(model, x, torch.tensor([1, 1]))
    for actual, wanted in zip((*weights, *gradients), (*kept, *expected), strict=True):
        assert torch.allclose(actual, wanted, atol=1e-4)


def test_a_map_of_attention_leaves_registers_out():
    weights = torch.rand(1, 2, 1 + 3 + 16, 1 + 3 + 16)
    assert torch.equal(
        attention_map(weights, (4, 4), registers=3), weights[..., 0, 4:].unflatten(-1, (4, 4))
    )
    assert torch.equal(
        attention_map(weights, (4, 4), (1, 2), registers=3),
        weights[..., 4 + 6, 4:].unflatten(-1, (4, 4)),
    )
    with pytest.raises(ValueError, match=r"20 tokens .*registers"):
        attention_map(weights, (4, 4))
    with pytest.raises(ValueError, match="without a class token"):
        attention_map(weights, (4, 4), registers=4)
    assert attention_distance(weights, (4, 4), 4, registers=3).shape == (1, 2)


def test_a_masked_autoencoder_keeps_registers():
    model = perturbed(replace(PLAIN, reg_tokens=3, depth=1))
    autoencoder = MaskedAutoencoder(model, dim=8, num_heads=2)
    x, visible = images(), torch.tensor([[3, 5], [0, 15]])
    encoded = autoencoder.encode(x, visible)
    tokens = model.embed(x)
    kept = torch.cat([tokens[:, :4], tokens[torch.arange(2)[:, None], visible + 4]], dim=1)
    assert torch.allclose(encoded, model.norm(model.blocks[0](kept)), atol=1e-6)
    predicted, hidden = autoencoder(x)
    assert predicted.shape == (2, 12, 48) and hidden.shape == (2, 12)


def test_a_masked_autoencoder_has_no_rotary_positions():
    with pytest.raises(ValueError, match="rotary"):
        MaskedAutoencoder(ViT(replace(PLAIN, positions="rotary")), dim=8, num_heads=2)
