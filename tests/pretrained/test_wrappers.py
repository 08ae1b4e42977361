"""Wrapped and foreign models: what goes by a name or a shape finds the same parameters in them."""

import pytest
import torch
import torchvision
from peers import mark_peers, timm, transformers
from small_classifier import Classifier, batches, silent
from torch import nn
from torch.optim.swa_utils import AveragedModel

from vit_helpers.distributed import full_state_dict, plain_state_dict, unwrap
from vit_helpers.parity import perturb
from vit_helpers.pretrained import Preprocess, load_weights, save_weights
from vit_helpers.pretrained.finetune import (
    add_lora,
    freeze,
    layerwise_lr_decay,
    merge_lora,
    transfer_weights,
)
from vit_helpers.training import Recipe, fit, set_seed
from vit_helpers.training.checkpoints import Checkpoint
from vit_helpers.training.optimizers import muon, param_groups
from vit_helpers.vit import ViT, ViTConfig

# torch.compile looks at tensors inside the model
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")


def compiled(model):
    return torch.compile(model, backend="eager")


def compiled_inside(model):
    """Only the blocks are compiled, as is usual where compiling all takes too long"""
    model.blocks = nn.ModuleList(map(compiled, model.blocks))
    return model


WRAPPERS = {
    "plain": lambda model: model,
    "compiled": compiled,
    "compiled blocks": compiled_inside,
    "DataParallel": nn.DataParallel,
    "compiled DataParallel": lambda model: compiled(nn.DataParallel(model)),
    "averaged": AveragedModel,
}
TINY = ViTConfig(
    image_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=16, depth=2, num_heads=2
)
every_wrapper = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


def small_vit():
    torch.manual_seed(0)
    model = ViT(TINY)
    perturb(model, std=0.2)
    return model


def orthogonal_names(model):
    """The names of what Muon makes orthogonal steps for"""
    hidden = {
        p for group in muon(model, 1e-3, 0.05).param_groups if group["orthogonal"]
        for p in group["params"]
    }  # fmt: skip
    return {
        name.replace("_orig_mod.", "")
        for name, p in unwrap(model).named_parameters()
        if p in hidden
    }


@every_wrapper
def test_muon_leaves_the_head_alone_in_every_wrapper(wrap):
    plain = orthogonal_names(small_vit())
    assert orthogonal_names(wrap(small_vit())) == plain and "head.weight" not in plain
    assert len(plain) == 1 + 2 * 4  # the patches' projection, and four matrices a block


class Tail(nn.Sequential):
    """A model whose output layer has no name"""


def hugging_face():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.ViTConfig(**sizes, intermediate_size=16)
    return transformers.ViTForImageClassification(config)


FOREIGN = {
    "torchvision": (
        lambda: torchvision.models.VisionTransformer(32, 8, 1, 2, 16, 32, num_classes=3),
        "heads.head.weight",
    ),
    "timm": (
        lambda: timm.create_model(
            "vit_tiny_patch16_224", embed_dim=16, depth=1, num_heads=2, num_classes=3
        ),
        "head.weight",
    ),
    "Hugging Face": (hugging_face, "classifier.weight"),
    "resnet": (lambda: torchvision.models.resnet18(num_classes=3), "fc.weight"),
    "sequence": (lambda: Tail(small_vit(), nn.Softmax(1)), "0.head.weight"),
    "embedding": (lambda: Tail(nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 2)), "2.weight"),
}


@pytest.mark.parametrize("name", mark_peers(FOREIGN))
def test_muon_leaves_the_head_of_foreign_models_alone(name):
    make, head = FOREIGN[name]
    names = orthogonal_names(make())
    assert head not in names and head in dict(make().named_parameters())
    assert "0.weight" not in names  # of an embedding


def test_what_a_module_names_does_not_decay():
    """timm's convention; its Swin names tables of two axes, which look like matrices."""

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias_table, self.matrix = (nn.Parameter(torch.ones(9, 2)) for _ in range(2))

        def no_weight_decay(self):
            return {"bias_table"}

    model = nn.DataParallel(nn.Sequential(Table(), nn.Linear(2, 2)))
    decaying = {
        p for group in param_groups(model, 1e-3, 0.05, 10.0) if group["weight_decay"]
        for p in group["params"]
    }  # fmt: skip
    table = model.module[0]
    assert table.bias_table not in decaying and table.matrix in decaying
    assert orthogonal_names(model) == {"0.matrix"}


@every_wrapper
def test_freezing_leaves_the_head_in_every_wrapper(wrap):
    model = wrap(small_vit())
    assert freeze(model) is model
    trained = {name for name, p in unwrap(model).named_parameters() if p.requires_grad}
    assert trained == {"head.weight", "head.bias"}


def test_names_to_freeze_end_at_a_dot_and_are_there():
    model = ViT(ViTConfig.from_name("mini/4", image_size=8, in_chans=1, depth=11))
    freeze(model, ("blocks.1", "norm"))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert all(name.startswith(("blocks.1.", "norm.")) for name in trained) and len(trained) == 14
    resnet = torchvision.models.resnet18()
    with pytest.raises(ValueError, match=r"head; .*conv1, .*, fc"):
        freeze(resnet)
    assert all(p.requires_grad for p in resnet.parameters())


@every_wrapper
def test_weights_are_transferred_from_every_wrapper(wrap):
    images = torch.randn(2, 1, 8, 8)
    plain = small_vit().eval()
    new = transfer_weights(wrap(small_vit().eval()), num_classes=5, image_size=16)
    expected = transfer_weights(plain, num_classes=5, image_size=16)
    assert plain_state_dict(new).keys() == expected.state_dict().keys()
    larger = torch.randn(2, 1, 16, 16)
    assert torch.equal(new(larger), expected(larger))
    assert torch.equal(transfer_weights(wrap(plain))(images), small_vit().eval()(images))


@every_wrapper
def test_lora_and_layer_rates_in_every_wrapper(wrap):
    images = torch.randn(2, 1, 8, 8)
    plain, model = small_vit().eval(), wrap(small_vit().eval())
    assert add_lora(model, rank=2) is model
    trained = {name for name, p in full_named(model) if p.requires_grad}
    blocks = {f"blocks.{n}.attn.qkv.{matrix}" for n in (0, 1) for matrix in "AB"}
    assert trained == {"head.weight", "head.bias", *blocks}
    merge_lora(model)
    assert torch.equal(unwrap(model)(images), plain(images))
    groups = layerwise_lr_decay(model, param_groups(model, 1e-3, 0.05, 1.0), 0.5)
    assert {group["lr"] for group in groups} == {1e-3 * 0.5**layer for layer in range(4)}


def full_named(model):
    return [(name.replace("_orig_mod.", ""), p) for name, p in unwrap(model).named_parameters()]


def test_a_model_without_a_head_gets_lora():
    model = add_lora(ViT(ViTConfig.from_name("mini/4", image_size=8, num_classes=0)), rank=2)
    assert {name[-1] for name, p in model.named_parameters() if p.requires_grad} == {"A", "B"}


@every_wrapper
def test_weights_of_every_wrapper_are_saved_by_their_own_names(tmp_path, wrap):
    model, images = small_vit().eval(), torch.randn(2, 1, 8, 8)
    logits = model(images)
    save_weights(
        tmp_path / "w.safetensors",
        wrap(model),
        Preprocess(8, (8, 8), "bilinear", (0,), (1,)),
        "abc",
    )
    assert torch.equal(load_weights(tmp_path / "w.safetensors").model(images), logits)


@pytest.mark.parametrize("first", [compiled, nn.DataParallel, lambda model: model])
@pytest.mark.parametrize("second", [compiled, nn.DataParallel, lambda model: model])
def test_a_run_is_resumed_with_another_wrapper(tmp_path, first, second):
    def run(wrap, epochs, **options):
        set_seed(0)
        model = Classifier()
        stop = [] if epochs is None else [Stop(epochs)]
        history = fit(
            wrap(model),
            batches(shuffle=True),
            batches(),
            Recipe(epochs=4, optimizer="muon"),
            callbacks=[Checkpoint(tmp_path / "k.pt", **options), *stop],
        )
        return model.state_dict(), [epoch.train.loss for epoch in history]

    whole, losses = run(lambda model: model, None)
    run(first, 2)
    state, resumed = run(second, None, resume=True)
    assert resumed == losses
    assert all(torch.equal(value, whole[name]) for name, value in state.items())


class Stop(Checkpoint):
    """Ends the training after so many epochs"""

    def __init__(self, epochs):
        self.epochs = epochs

    def on_fit_start(self, run):
        pass

    def on_epoch_end(self, run):
        run.stop = len(run.history) == self.epochs


@every_wrapper
def test_the_evidence_knows_the_tokens_of_every_wrapper(wrap):
    train = [(torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0]))]
    (epoch,) = fit(wrap(small_vit()), train, None, Recipe(epochs=1), **silent)
    assert epoch.evidence.tokens == 5


def test_full_weights_have_plain_names():
    state = full_state_dict(compiled(compiled_inside(small_vit())))
    assert state.keys() == small_vit().state_dict().keys()
