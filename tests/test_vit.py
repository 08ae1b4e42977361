import copy
import math
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peers import mark_peers, timm, transformers
from torch import nn
from torchvision.models import VisionTransformer

from vit_helpers.parity import largest_difference, perturb
from vit_helpers.pretrained import from_huggingface, from_timm, from_torchvision
from vit_helpers.vit import ViT, ViTConfig

SUMS_OF_SEED_0 = {
    "patch_embed.proj.weight": 176.393,
    "token_embed.pos_embed": 4.3026,
    "blocks.0.attn.qkv.weight": 165.6279,
    "blocks.0.attn.proj.weight": 56.2383,
    "blocks.0.mlp.fc1.weight": 134.8775,
    "blocks.0.mlp.fc2.weight": 146.9791,
    "pre_logits.0.weight": 26.8621,
}
TINY = {
    "image_size": 16,
    "patch_size": 4,
    "embed_dim": 32,
    "depth": 2,
    "num_heads": 4,
    "num_classes": 7,
}


def tiny(**changes):
    """A small ViT in which no weight is zero, so that every part shows in the result"""
    return perturbed(ViT(ViTConfig(**TINY | changes)))


def perturbed(model):
    perturb(model, std=0.2)
    return model.eval()


# What the paper and the libraries publish


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Ti/16", 5_717_416),
        ("S/16", 22_050_664),
        ("B/16", 86_567_656),
        ("B/32", 88_224_232),
        ("L/16", 304_326_632),
        ("L/32", 306_535_400),
        ("H/14", 632_045_800),
    ],
)
def test_published_sizes(name, parameters):
    with torch.device("meta"):
        model = ViT(ViTConfig.from_name(name))
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_the_parts_of_base_16():
    with torch.device("meta"):
        model = ViT(ViTConfig.from_name("B/16", num_classes=3))

    def count(part):
        return sum(p.numel() for p in part.parameters())

    assert count(model) == 85_800_963
    assert count(model.patch_embed) == 590_592
    assert count(model.token_embed) == 768 + 151_296
    assert {count(block) for block in model.blocks} == {7_087_872}
    assert len(model.state_dict()) == 152


@pytest.mark.parametrize("K", [2, 10, 1000])
@pytest.mark.parametrize(
    "changes", [{}, {"representation_size": 20}, {"class_token": False, "pool": "avg"}]
)
def test_the_first_loss_is_exactly_ln_k(K, changes):
    model = ViT(ViTConfig(**TINY | {"num_classes": K} | changes))
    logits = model(torch.randn(4, 3, 16, 16))
    assert F.cross_entropy(logits, torch.tensor([0, 1, 1, 0])).item() == pytest.approx(
        math.log(K), abs=1e-6
    )


@pytest.mark.parametrize(
    ("name", "depth", "width", "mlp", "heads"),
    [
        ("mini", 2, 64, 256, 4),
        ("Ti", 12, 192, 768, 3),
        ("S", 12, 384, 1536, 6),
        ("B", 12, 768, 3072, 12),
        ("L", 24, 1024, 4096, 16),
        ("H", 32, 1280, 5120, 16),
    ],
)
def test_table_1(name, depth, width, mlp, heads):
    with torch.device("meta"):
        model = ViT(ViTConfig.from_name(f"{name}/16"))
    first = model.blocks[0]
    assert (len(model.blocks), model.norm.normalized_shape[0], first.mlp.fc1.out_features) == (
        depth,
        width,
        mlp,
    )
    assert first.attn.num_heads == heads  # no parameter count tells the heads


def test_every_norm_uses_the_configs_eps():
    model = ViT(ViTConfig(**TINY, norm_eps=0.5))
    assert [m.eps for m in model.modules() if isinstance(m, nn.LayerNorm)] == [0.5] * 5


def test_the_pre_training_heads_hidden_layer_starts_at_the_variance_of_its_input():
    layer = ViT(ViTConfig(**TINY | {"embed_dim": 256}, representation_size=300)).pre_logits[0]
    assert layer.weight.std().item() == pytest.approx(256**-0.5, rel=0.05)
    assert not layer.bias.any()


def test_a_seed_draws_the_same_weights_in_every_version_of_torch():
    """nn.init.trunc_normal_ would draw other numbers in torch 2.11 than in 2.15"""
    torch.manual_seed(0)
    sizes = {"image_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
    model = ViT(ViTConfig(**sizes, num_classes=3, representation_size=8))
    matrices = {
        name: p.double().abs().sum().item()
        for name, p in model.named_parameters()
        if p.dim() > 1 and p.any()
    }
    assert matrices == pytest.approx(SUMS_OF_SEED_0, rel=1e-5)
    torch.manual_seed(1)
    sizes = {"image_size": 2, "patch_size": 1, "in_chans": 1, "embed_dim": 64, "num_heads": 4}
    first = ViT(ViTConfig(**sizes, depth=1)).patch_embed.proj.weight
    assert first.abs().max() <= 2  # some were drawn again
    assert first.sum().item() == pytest.approx(7.36433, rel=1e-5)


def test_numpy_numbers_are_sizes():
    config = ViTConfig(**{name: np.int64(value) for name, value in TINY.items()})
    assert config == ViTConfig(**TINY) and type(config.depth) is int


# Equal to the libraries: same weights, same images, same logits, same gradients

SHAPES = [
    {"image_size": 16, "patch_size": 4},
    {"image_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 3},
    {"image_size": 12, "patch_size": 2, "num_classes": 3},
]
OBLONG = [{"image_size": (16, 24)}, {"image_size": (20, 8), "in_chans": 1}]


def torchvision_twin(c):
    return VisionTransformer(
        c.image_size[0],
        c.patch_size,
        c.depth,
        c.num_heads,
        c.embed_dim,
        4 * c.embed_dim,
        num_classes=c.num_classes,
    )


def timm_twin(c):
    return timm.models.VisionTransformer(
        img_size=c.image_size,
        patch_size=c.patch_size,
        in_chans=c.in_chans,
        num_classes=c.num_classes,
        embed_dim=c.embed_dim,
        depth=c.depth,
        num_heads=c.num_heads,
    )


def huggingface_twin(c):
    config = transformers.ViTConfig(
        image_size=c.image_size,
        patch_size=c.patch_size,
        num_channels=c.in_chans,
        hidden_size=c.embed_dim,
        num_hidden_layers=c.depth,
        num_attention_heads=c.num_heads,
        intermediate_size=4 * c.embed_dim,
        num_labels=c.num_classes,
        layer_norm_eps=c.norm_eps,
    )
    return transformers.ViTForImageClassification(config)


TWINS = {
    "torchvision": (torchvision_twin, from_torchvision, "conv_proj.weight"),
    "timm": (timm_twin, from_timm, "patch_embed.proj.weight"),
    "huggingface": (
        huggingface_twin,
        from_huggingface,
        "vit.embeddings.patch_embeddings.projection.weight",
    ),
}


PAIRS = [(library, shape) for library in TWINS for shape in SHAPES]
# torchvision's are square
PAIRS += [(library, shape) for library in ("timm", "huggingface") for shape in OBLONG]


@pytest.mark.parametrize(("library", "shape"), mark_peers(PAIRS), ids=str)
def test_equal_logits_and_gradients(library, shape):
    make, rename, projection = TWINS[library]
    config = ViTConfig(**TINY | shape, norm_eps=1e-12 if library == "huggingface" else 1e-6)
    twin = perturbed(make(config))
    ours = ViT(config).eval()
    ours.load_state_dict(rename(twin.state_dict()))
    images = torch.randn(2, config.in_chans, *config.image_size)
    logits, theirs = ours(images), twin(images)
    theirs = getattr(theirs, "logits", theirs)
    assert largest_difference(logits, theirs) < 1e-5 * theirs.abs().max()

    logits.square().sum().backward()
    theirs.square().sum().backward()
    grad = dict(twin.named_parameters())[projection].grad.flatten(1)
    assert torch.allclose(ours.patch_embed.proj.weight.grad, grad, rtol=1e-3, atol=1e-5)


def test_equal_to_torchvisions_base_16():
    from torchvision.models import vit_b_16

    twin = vit_b_16(weights=None).eval()
    perturb(twin)
    ours = ViT(ViTConfig.from_name("B/16")).eval()
    ours.load_state_dict(from_torchvision(twin.state_dict()))
    images = torch.randn(1, 3, 224, 224)
    with torch.inference_mode():
        expected = twin(images)
        assert largest_difference(ours(images), expected) < 1e-5 * expected.abs().max()


# And these proofs notice mistakes: each is made in our model, beside each library's in float64


def swap_norms(model):
    for block in model.blocks:
        block.norm1, block.norm2 = block.norm2, block.norm1


def fill(value, *ends):
    """Make a mistake: parameters whose names end so are not used.

    A bias of 0 adds nothing, and a scale of 1 keeps all.
    """

    def spoil(model):
        found = [p for name, p in model.named_parameters() if name.endswith(ends)]
        assert found
        for p in found:
            p.data.fill_(value)

    return spoil


def norms_with_eps(eps):
    def spoil(model):
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = eps

    return spoil


HIDDEN = {  # at initialization these change nothing, not one bit
    "norms swapped": swap_norms,
    "no bias of q, k, v": fill(0, "attn.qkv.bias"),
    "no bias after attention": fill(0, "attn.proj.bias"),
    "no bias in the block's norms": fill(0, "norm1.bias", "norm2.bias"),
    "no bias in the last norm": fill(0, "norm.bias"),
    "no bias of the head": fill(0, "head.bias"),
    "no scales in the block's norms": fill(1, "norm1.weight", "norm2.weight"),
    "no scale in the last norm": fill(1, "norm.weight"),
}
MISTAKES = HIDDEN | {
    "no bias of the patches": fill(0, "patch_embed.proj.bias"),
    "no bias in the MLP": fill(0, "fc1.bias", "fc2.bias"),
    "no bias at all": fill(0, "bias"),
    "no class token": fill(0, "cls_token"),
    "eps 1e-5": norms_with_eps(1e-5),
    "eps 1e-6 or 1e-12": lambda model: norms_with_eps({1e-6: 1e-12, 1e-12: 1e-6}[model.norm.eps])(
        model
    ),
}


def differences(library, spoil, std):
    """The largest difference of the logits from a library's, over the largest logit.

    Without a mistake, and with it.
    """
    make, rename, _ = TWINS[library]
    config = ViTConfig(**TINY, norm_eps=1e-12 if library == "huggingface" else 1e-6)
    torch.manual_seed(0)
    twin, images = make(config).double().eval(), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    perturb(twin, std=std)
    heads = {"torchvision": "heads.head", "timm": "head", "huggingface": "classifier"}
    # all are zero at first in torchvision and in timm
    nn.init.normal_(twin.get_submodule(heads[library]).weight)
    ours, found = ViT(config).double().eval(), []
    ours.load_state_dict(rename(twin.state_dict()))
    expected = twin(images)
    expected = getattr(expected, "logits", expected)
    for change in (lambda model: None, spoil):
        change(ours)
        found.append(largest_difference(ours(images), expected) / expected.abs().max().item())
    return found


@pytest.mark.parametrize("library", mark_peers(TWINS))
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught_after_perturbing(library, mistake):
    correct, wrong = differences(library, MISTAKES[mistake], std=0.02)
    assert correct < 1e-12
    assert wrong > 1e-5  # so in float32 too


@pytest.mark.parametrize("library", mark_peers(TWINS))
@pytest.mark.parametrize("mistake", HIDDEN)
def test_a_mistake_is_hidden_at_initialization(library, mistake):
    correct, wrong = differences(library, MISTAKES[mistake], std=0)
    assert correct == wrong < 1e-12


# What holds of any ViT


def test_images_in_a_batch_never_mix():
    model = tiny()
    images = torch.randn(3, 3, 16, 16, requires_grad=True)
    model(images)[0].sum().backward()
    assert images.grad[0].abs().sum() > 0
    assert not images.grad[1:].any()


def test_every_pixel_reaches_the_class_token():
    model = tiny()
    images = torch.randn(1, 3, 16, 16, requires_grad=True)
    model(images)[0, 0].backward()
    assert (images.grad != 0).all()


@pytest.mark.parametrize("positions", ["learned", "sincos", "none"])
def test_positions_alone_tell_the_order_of_patches(positions):
    model = tiny(positions=positions)
    images = torch.randn(1, 3, 16, 16)
    # two rows of patches change places
    swapped = torch.cat([images[:, :, 4:8], images[:, :, :4], images[:, :, 8:]], dim=2)
    assert torch.allclose(model(images), model(swapped), atol=1e-5) == (positions == "none")


def test_the_loss_falls_on_one_batch():
    model = ViT(ViTConfig(**TINY))
    images, labels = torch.randn(14, 3, 16, 16), torch.arange(14) % 7
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(300):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    assert loss < 0.01  # from ln 7 = 1.95


def test_every_parameter_gets_a_gradient_once_the_head_is_not_zero():
    model = tiny(representation_size=20)
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


# What a config can ask for


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, (2, 7)),
        ({"pool": "avg"}, (2, 7)),
        ({"pool": "avg", "class_token": False}, (2, 7)),
        ({"pool": "none"}, (2, 17, 7)),
        ({"pool": "none", "class_token": False}, (2, 16, 7)),
        ({"num_classes": 0}, (2, 32)),
        ({"num_classes": 0, "pool": "none"}, (2, 17, 32)),
        ({"num_classes": 0, "representation_size": 20}, (2, 20)),
        ({"representation_size": 20}, (2, 7)),
        ({"positions": "sincos"}, (2, 7)),
        ({"positions": "none"}, (2, 7)),
        ({"in_chans": 5}, (2, 7)),
        ({"image_size": (8, 20)}, (2, 7)),
        ({"mlp_ratio": 1.5}, (2, 7)),
    ],
)
def test_shapes(changes, shape):
    model = tiny(**changes)
    images = torch.randn(2, model.config.in_chans, *model.config.image_size)
    assert model(images).shape == shape
    assert model.forward_features(images).shape == (2, model.config.num_tokens, 32)


def test_average_pooling_is_the_mean_of_the_patches():
    model = tiny(pool="avg")
    images = torch.randn(2, 3, 16, 16)
    assert torch.allclose(
        model(images), model.head(model.forward_features(images)[:, 1:].mean(1)), atol=1e-6
    )
    mask = torch.ones(2, 17, dtype=torch.bool)
    mask[:, 5:] = False
    kept = model.forward_features(images, mask)[:, 1:5]
    assert torch.allclose(model(images, mask), model.head(kept.mean(1)), atol=1e-5)


def test_pre_training_head_is_tanh_between_two_layers():
    model = tiny(representation_size=20)
    images = torch.randn(2, 3, 16, 16)
    hidden = model.pre_logits[0](model.forward_features(images)[:, 0])
    assert torch.allclose(model(images), model.head(torch.tanh(hidden)), atol=1e-6)


@pytest.mark.parametrize("changes", [{}, {"pool": "avg"}, {"pool": "avg", "class_token": False}])
def test_a_mask_makes_hidden_patches_not_matter(changes):
    model = tiny(**changes)
    mask = torch.ones(1, model.config.num_tokens, dtype=torch.bool)
    mask[:, -4:] = False  # the last row of patches
    images = torch.randn(1, 3, 16, 16)
    other = images.clone()
    other[:, :, 12:] = 9.0
    assert torch.allclose(model(images, mask), model(other, mask), atol=1e-6)
    assert not torch.allclose(model(images), model(other), atol=1e-2)
    everything = torch.ones_like(mask)
    assert torch.allclose(model(images, everything), model(images), atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_weights_are_those_of_the_normal_path(masked):
    model = tiny()
    images = torch.randn(2, 3, 16, 16)
    mask = torch.rand(2, 17) > 0.3 if masked else None
    weights = model.attention_weights(images, mask)
    assert [w.shape for w in weights] == [(2, 4, 17, 17)] * 2
    assert all(torch.allclose(w.sum(-1), torch.ones(2, 4, 17), atol=1e-5) for w in weights)
    x = model.embed(images)
    second = model.blocks[1]
    assert torch.equal(
        weights[1], second.attn.weights(second.norm1(model.blocks[0](x, mask)), mask)
    )
    if masked:
        assert not weights[0][0, :, :, ~mask[0]].any()


def torch_layer(dim, num_heads):
    return nn.TransformerEncoderLayer(
        dim,
        num_heads,
        4 * dim,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=1e-6,
        batch_first=True,
        norm_first=True,
    )


def test_torchs_encoder_layer_in_place_of_our_block():
    config = ViTConfig(**TINY)
    model, ours = perturbed(ViT(config, block=torch_layer)), ViT(config).eval()
    for theirs, block in zip(model.blocks, ours.blocks, strict=True):
        block.load_state_dict(torch_to_ours(theirs.state_dict()))
    for name in ("patch_embed", "token_embed", "norm"):
        getattr(ours, name).load_state_dict(getattr(model, name).state_dict())
    images = torch.randn(2, 3, 16, 16)
    assert largest_difference(ours.forward_features(images), model.forward_features(images)) < 1e-5
    with pytest.raises(TypeError, match="TransformerEncoderLayer"):
        model.attention_weights(images)


def torch_to_ours(state):
    names = {
        "self_attn.in_proj_": "attn.qkv.",
        "self_attn.out_proj.": "attn.proj.",
        "linear1.": "mlp.fc1.",
        "linear2.": "mlp.fc2.",
        "norm": "norm",
    }
    return {
        key.replace(old, new): v
        for key, v in state.items()
        for old, new in names.items()
        if key.startswith(old)
    }


def test_a_readers_block_needs_width_and_heads_only():
    class Mixer(nn.Module):
        def __init__(self, dim, num_heads):
            super().__init__()
            self.layer = nn.Linear(dim, dim)

        def forward(self, x):
            return x + self.layer(x).mean(dim=1, keepdim=True)

    assert ViT(ViTConfig(**TINY), block=Mixer)(torch.randn(2, 3, 16, 16)).shape == (2, 7)


def test_dropout_is_where_the_paper_puts_it():
    model = ViT(ViTConfig(**TINY, dropout=0.1))
    rates = {
        name: module.p for name, module in model.named_modules() if isinstance(module, nn.Dropout)
    }
    block = {f"blocks.{i}.{part}.dropout": 0.1 for i in range(2) for part in ("attn", "mlp")}
    assert rates == {"token_embed.dropout": 0.1} | block
    assert model.blocks[0].attn.attn_dropout == 0.0
    assert ViT(ViTConfig(**TINY, attn_dropout=0.3)).blocks[1].attn.attn_dropout == 0.3


def test_other_types_and_devices_of_torch():
    model = tiny()
    assert model.double()(torch.randn(1, 3, 16, 16, dtype=torch.float64)).dtype == torch.float64
    assert model.bfloat16()(torch.randn(1, 3, 16, 16, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_torch_can_export_the_model_for_any_batch_size():
    model = tiny(pool="avg")
    B = torch.export.Dim("B", max=1024)
    shapes = ({0: B}, {0: B})
    example = torch.randn(2, 3, 16, 16), torch.ones(2, 17, dtype=torch.bool)
    exported = torch.export.export(model, example, dynamic_shapes=shapes).module()
    images, mask = torch.randn(5, 3, 16, 16), torch.rand(5, 17) > 0.3
    assert torch.allclose(exported(images, mask), model(images, mask), atol=1e-6)


def test_models_and_configs_can_be_copied():
    model = tiny()
    assert copy.deepcopy(model).config == model.config == pickle.loads(pickle.dumps(model.config))


# Bad input is named


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"image_size": 30}, ValueError, "30 x 30 .* side 4"),
        ({"image_size": (16, 18)}, ValueError, "16 x 18 pixels"),
        ({"image_size": (16, 16, 16)}, TypeError, "whole number or a pair"),
        ({"num_heads": 5}, ValueError, "width 32 .* 5 "),
        ({"pool": "max"}, ValueError, "'max'.*: cls, avg, map, none"),
        (
            {"positions": "fourier"},
            ValueError,
            "'fourier'.*: learned, sincos, rotary, none",
        ),
        ({"class_token": False}, ValueError, "class_token=False"),
        ({"depth": 0}, ValueError, "depth .* 1, got 0"),
        ({"depth": 2.0}, TypeError, "depth .*got 2.0"),
        ({"num_classes": -1}, ValueError, "num_classes .* 0, got -1"),
        ({"representation_size": 0}, ValueError, "representation_size .* 1"),
        ({"dropout": 1.5}, ValueError, "^dropout .* 0 .* 1, got 1.5"),
        ({"attn_dropout": -0.1}, ValueError, "attn_dropout .* 0 .* 1"),
        ({"dropout": "0.1"}, TypeError, "^dropout .*got '0.1'"),
        (
            {"mlp_ratio": float("nan")},
            ValueError,
            "mlp_ratio .*got nan",
        ),
        ({"norm_eps": -1}, ValueError, "norm_eps .* 0"),
        ({"class_token": None}, ValueError, "class_token None.*: True, False"),
        ({"image_size": True}, TypeError, "whole number, got True"),
        ({"patch_size": (4, 4)}, TypeError, r"patch_size .*got \(4, 4\)"),
        ({"mlp_ratio": 0}, ValueError, "mlp_ratio 0 "),
        (
            {"positions": "sincos", "embed_dim": 36 + 2, "num_heads": 2},
            ValueError,
            "width 38 .* multiple of 4",
        ),
    ],
)
def test_configs_that_do_not_fit(changes, error, words):
    with pytest.raises(error, match=words):
        ViT(ViTConfig(**TINY | changes))


@pytest.mark.parametrize("name", ["XL/16", "B", "B-16", "B/x", "", 16, "b/16"])
def test_unknown_names_list_the_known_ones(name):
    with pytest.raises(ValueError, match=r": mini, Ti, S, B, L, H, .*B/16"):
        ViTConfig.from_name(name)


def test_a_config_is_not_a_name():
    with pytest.raises(TypeError, match=r"ViTConfig.* str"):
        ViT("B/16")


@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        (torch.ones(2, 17), TypeError, "boolean.* got torch.float32"),
        (torch.ones(2, 16, dtype=torch.bool), ValueError, r"\(2, 17\), got \(2, 16\)"),
        (torch.zeros(2, 17, dtype=torch.bool), ValueError, "hides every patch"),
    ],
)
def test_masks_that_do_not_fit(mask, error, words):
    with pytest.raises(error, match=words):
        tiny()(torch.randn(2, 3, 16, 16), mask)
