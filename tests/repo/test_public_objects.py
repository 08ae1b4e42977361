"""Every public object survives copy, deepcopy, pickle and replace: nothing of its state is lost."""

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from collections import Counter
from functools import partial
from pathlib import Path
from types import MethodType

import matplotlib.pyplot as plt
import pytest
import torch
from folding import folded
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import vit_helpers
from vit_helpers import ViT, ViTConfig, load
from vit_helpers.cli.mistakes import Answers, Mistakes
from vit_helpers.encoder import Block
from vit_helpers.plots import style
from vit_helpers.training import Recipe
from vit_helpers.training.loop import start_run
from vit_helpers.training.measurements import Evidence, Score

WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
}
CONFIG = ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=3)
RECIPE = {"epochs": 2, "lr": 1e-3}
ROWS = [{"epoch": 1, "loss": 2.0, "val_loss": 2.1, "accuracy": 0.3, "val_accuracy": 0.2}]


def classes():
    """The public classes of the package by name

    But for those that check learners' exercises, and microvit's, which is a program of its own.
    """
    found = {}
    for module in pkgutil.walk_packages(vit_helpers.__path__, "vit_helpers."):
        apart = module.name.startswith(("vit_helpers.checks", "vit_helpers.microvit"))
        if apart or module.name.endswith("__main__"):
            continue
        for name, thing in vars(importlib.import_module(module.name)).items():
            own = (
                inspect.isclass(thing)
                and thing.__module__ == module.name
                and not name.startswith("_")
            )
            if own and not getattr(thing, "_is_protocol", False):
                assert name not in found, f"two classes are called {name}"
                found[name] = thing
    return found


CLASSES = classes()


def muon(cls):
    """An optimizer that made a step with a momentum of its own, and has gradients for the next."""
    weight = nn.Parameter(torch.randn(4, 3))
    optimizer = cls(
        [{"params": [weight], "lr": 0.1, "weight_decay": 0.0, "orthogonal": True}], momentum=0.5
    )
    weight.grad = torch.randn(4, 3)
    optimizer.step()
    return optimizer


def shards(folder):
    from vit_helpers.data.shards import write_shards

    return write_shards(load("scattered_digits", n=20), folder / "shards")


def shown_picture(cls):
    """A picture as it is once it was shown: what copies of others are like at once."""
    picture = cls(style.new_figure(4, 3)[0], "Nothing at all.", "A figure with an empty plot.")
    picture._repr_mimebundle_()
    return picture


def live_curves(cls):
    curves = cls(3)
    curves(ROWS[0])
    return curves


SCORE, EVIDENCE = Score(0.5, 0.9, 10, 0.2, 0.3), Evidence(3, True, 32, 17, 0.1, 0.2)
ANSWERS = Answers(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([0.9, 0.8]))
# (class, an empty folder) -> an instance whose every field differs from its default where it can
MAKE = {
    "PhotoFeatures": lambda cls, path: cls(
        {6: torch.rand(9, 4)}, torch.rand(10, 2), torch.rand(10, 2)
    ),
    "PhotoMaps": lambda cls, _: cls(
        torch.rand(2, 6, 3, 4), *torch.rand(4, 3, 4), torch.rand(3, 3, 4)
    ),
    "Dinov3Reference": lambda cls, _: cls(
        torch.rand(2, 3, 4, 4),
        torch.rand(2, 5, 8),
        torch.rand(2, 5, 8),
        {"a": torch.rand(3)},
        {"a": torch.rand(3)},
        {"depth": 2},
        "1.0",
    ),
    "Kind": lambda cls, _: cls("a layout", "AModel", "AClassifier", dict, {"act": ("gelu",)}),
    "ViTConfig": lambda cls, _: CONFIG,
    "ViT": lambda cls, _: cls(CONFIG, partial(Block, mlp_ratio=2)),
    "PatchEmbed": lambda cls, _: cls(8, 4, 1, 16),
    "TokenEmbed": lambda cls, _: cls((2, 2), 16, positions="sincos"),
    "MultiHeadAttention": lambda cls, _: cls(16, 2, attn_dropout=0.1),
    "MLP": lambda cls, _: cls(4, 8),
    "Block": lambda cls, _: cls(16, 2),
    "ModernBlock": lambda cls, _: cls(16, 2, init_values=0.1),
    "ModernAttention": lambda cls, _: cls(16, 2, qk_norm=True),
    "LayerScale": lambda cls, _: cls(8, 0.1),
    "SwiGLU": lambda cls, _: cls(4, 8),
    "AttentionPool": lambda cls, _: cls(16, 2),
    "NormLastBlock": lambda cls, _: cls(16, 2),
    "CNN": lambda cls, _: cls(1, 3, 8),
    "Pretrained": lambda cls, _: cls(
        ViT(CONFIG), CLASSES["Preprocess"](8, (8, 8), "bilinear", (0.5,), (0.5,)), ("a", "b", "c")
    ),
    "Preprocess": lambda cls, _: cls((9, 9), (8, 8), "bicubic", (0.1,), (0.2,), 4095.0),
    "LoRA": lambda cls, _: cls(nn.Linear(4, 6), 2, 0.5),
    "MaskedAutoencoder": lambda cls, _: cls(ViT(CONFIG), dim=8, num_heads=2),
    "Split": lambda cls, _: cls(
        torch.randint(256, (2, 1, 8, 8), dtype=torch.uint8),
        torch.tensor([0, 1]),
        torch.tensor([[0, 0, 4, 4], [1, 2, 4, 4]]),
    ),
    "Content": lambda cls, _: cls([Path("a.jpg")], Counter({".txt": 2}), [Path("b")], [Path("c")]),
    "GrayRange": lambda cls, _: cls(0.0, 4095.0, (65535,), "a.png"),
    "FilesRead": lambda cls, _: cls({"train": []}, [], 4095.0, 3),
    "ImageFile": lambda cls, _: cls(Path("a.jpg"), 5, 1, b"sha256"),
    "ImageCache": lambda cls, folder: cls(folder, 8),
    "Sample": lambda cls, _: cls("000017", {"cls": b"3"}, "train-00000.tar", "it is broken"),
    "Source": lambda cls, _: cls(load, ("image_size",), True),
    "Data": lambda cls, _: load("scattered_digits", n=20),
    "Batches": lambda cls, _: load("digits").batches("train", 8, shuffle=True),
    "Shards": lambda cls, folder: cls(shards(folder)),
    "Stream": lambda cls, folder: cls(shards(folder), 8, seed=3),
    "DownloadError": lambda cls, _: cls("no network"),
    "BrokenFilesError": lambda cls, _: cls("x.png is broken, or skip it", "x.png is broken"),
    "BrokenShardError": lambda cls, _: cls("train-00000.tar"),
    "Recipe": lambda cls, _: cls(**RECIPE),
    "RunSettings": lambda cls, _: cls.from_dict({"depth": 4, "lr": 1e-3, "tta": True, "seed": 3}),
    "Epoch": lambda cls, _: cls(1, SCORE, SCORE, 0.1, 9.0, EVIDENCE),
    "Evidence": lambda cls, _: EVIDENCE,
    "CollectEvidence": lambda cls, _: cls(),
    "Run": lambda cls, _: start_run(nn.Linear(2, 2), Recipe(**RECIPE), 10),
    "TrainingSums": lambda cls, _: cls(),
    "Callback": lambda cls, _: cls(),
    "Report": lambda cls, _: cls(print),
    "KeepWeights": lambda cls, _: cls(print, 3),
    "EarlyStopping": lambda cls, _: cls(3),
    "HistoryFile": lambda cls, _: cls("history.csv"),
    "Forecast": lambda cls, folder: cls(folder, load("digits"), 9, True, True),
    "WriteError": lambda cls, _: cls("no space left"),
    "Checkpoint": lambda cls, _: cls("a.pt", True, {"x": 1}),
    "PartCheckpoint": lambda cls, _: cls("a.pt", True, {"x": 1}),
    "Head": lambda cls, _: cls(ViT(CONFIG)),
    "Features": lambda cls, _: cls([(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))], 8, True),
    "CachedFeatures": lambda cls, _: cls(
        ViT(CONFIG), load("digits"), CLASSES["RunSettings"](), [], "cpu", 2
    ),
    "ImagesAsTargets": lambda cls, _: cls([(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))]),
    "Score": lambda cls, _: SCORE,
    "Diagnosis": lambda cls, _: cls("overfitting", "more data"),
    "FlipTTA": lambda cls, _: cls(ViT(CONFIG)),
    "ShardedBatches": lambda cls, _: cls([(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]))]),
    "Muon": lambda cls, _: muon(cls),
    "Table": lambda cls, _: cls("digits", "mini/2", 2, {"epochs": 1}, {"faster": {"lr": 0.01}}),
    "Effect": lambda cls, _: cls(0.01, 0.002, 0.004, 0.005, 9.0),
    "Explorer": lambda cls, _: cls("explore", "ours:drawn", torch.rand(2, 1, 16, 16)),
    "LiveCurves": lambda cls, _: live_curves(cls),
    "Picture": lambda cls, _: shown_picture(cls),
    "Encoded": lambda cls, _: cls("png", b"data", 900),
    "Stage": lambda cls, _: cls("tokens", "T, D", torch.rand(3, 4), width=2.0),
    "TensorView": lambda cls, _: cls("patchify", "N, P*P", (2, 8), (1, 2, 2, 4), torch.arange(16)),
    "Pass": lambda cls, _: cls(
        *torch.rand(3, 1, 4, 4), [torch.rand(2, 5, 5)], torch.rand(5, 3), torch.rand(2)
    ),
    "Finding": lambda cls, _: cls("ok", "Python 3.11"),
    "Outputs": lambda cls, _: cls(Path("a.png"), Path("a-mistakes.png"), None, Path("a.csv")),
    "Answers": lambda cls, _: ANSWERS,
    "Mistakes": lambda cls, _: cls(torch.rand(2, 1, 8, 8), ANSWERS),
    "Tested": lambda cls, _: cls(
        ANSWERS, ["test 0", "test 1"], Mistakes(torch.rand(2, 1, 8, 8), ANSWERS), "images", {}
    ),
    "Ignored": lambda cls, _: cls(1, "any"),
    "Familiarity": lambda cls, _: cls(torch.rand(3, 4), torch.rand(4, 4), 2.5),
    "Reading": lambda cls, _: cls(
        torch.rand(1, 4, 4),
        2,
        [torch.rand(5, 3)],
        [torch.rand(5)],
        [0.5],
        torch.rand(2),
        ("a", "b"),
    ),
}


def test_every_public_class_has_an_entry():
    assert not CLASSES.keys() - MAKE.keys(), "say in MAKE how to make one"
    assert not MAKE.keys() - CLASSES.keys(), "no longer there"


def same(a, b, seen=()):
    """Whether two objects have equal state, all the way down."""
    if a is b or (id(a), id(b)) in seen:
        return True
    if type(a) is not type(b):
        return False
    seen = (*seen, (id(a), id(b)))
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.requires_grad == b.requires_grad
    # torch itself drops what a new one sets up again
    if isinstance(a, (torch.optim.Optimizer, LambdaLR)):
        return same(a.state_dict(), b.state_dict(), seen)
    if isinstance(a, partial):
        return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords), seen)
    if isinstance(a, MethodType):
        return a.__func__ is b.__func__ and same(a.__self__, b.__self__, seen)
    if isinstance(a, (dict, list, tuple)):
        ours, theirs = (list(x.items() if isinstance(x, dict) else x) for x in (a, b))
        inside = len(ours) == len(theirs) and all(
            same(x, y, seen) for x, y in zip(ours, theirs, strict=True)
        )
    else:
        inside = (
            a.args == b.args if isinstance(a, BaseException) else hasattr(a, "__dict__") or a == b
        )
    return inside and (
        not hasattr(a, "__dict__") or same(list(vars(a).items()), list(vars(b).items()), seen)
    )


def make(name, folder):
    """An object of a class; what it writes is in a folder of its own."""
    empty = folder / name
    empty.mkdir()
    return MAKE[name](CLASSES[name], empty)


@pytest.mark.parametrize("way", WAYS)
@folded("name", MAKE)
def test_it_survives(name, way, tmp_path):
    original = make(name, tmp_path)
    again = WAYS[way](original)
    assert type(again) is CLASSES[name] and same(original, again)
    plt.close("all")


DATACLASSES = [name for name in CLASSES if dataclasses.is_dataclass(CLASSES[name])]


def state(thing):
    """The fields of a dataclass by name, as they are stored: a property may show something else."""
    fields = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
    return fields | vars(thing)


def assert_same_state(original, changed, but=None):
    """Two dataclasses are equal in all but one field, and tensors have the same dtype."""
    before, after = state(original), state(changed)
    assert type(changed) is type(original) and before.keys() == after.keys()
    for name in before.keys() - {but}:
        assert type(after[name]) is type(before[name]), name
        assert getattr(after[name], "dtype", None) == getattr(before[name], "dtype", None), name
        assert same(before[name], after[name]), name


@folded("name", DATACLASSES)
def test_replace_keeps_every_other_field(name, tmp_path):
    original = make(name, tmp_path)
    assert_same_state(original, dataclasses.replace(original))
    for field in dataclasses.fields(original):
        if not field.init:
            continue
        value = getattr(original, field.name)
        new = torch.zeros_like(value) if isinstance(value, torch.Tensor) else copy.deepcopy(value)
        changed = dataclasses.replace(original, **{field.name: new})
        assert same(getattr(changed, field.name), new)
        assert_same_state(original, changed, but=field.name)


def test_replace_on_every_dataclass():
    assert len(DATACLASSES) >= 10 and {"Split", "Data", "ViTConfig", "Recipe"} <= {*DATACLASSES}


def test_a_lost_attribute_is_noticed():
    class Forgetful:
        def __init__(self):
            self.kept, self.lost = torch.ones(2), [partial(max, 3)]

        def __getstate__(self):
            return {"kept": self.kept}

    assert same(Block(4, 2), Block(4, 2)) is False  # other weights
    assert not same(Forgetful(), copy.copy(Forgetful()))
    assert same(
        [1, {"a": (partial(max, 3), torch.ones(2))}], [1, {"a": (partial(max, 3), torch.ones(2))}]
    )


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copied_optimizer_makes_the_same_step(way):
    ours = muon(CLASSES["Muon"])
    copied = WAYS[way](ours)
    for optimizer in (ours, copied):
        (weight,) = optimizer.param_groups[0]["params"]
        weight.grad = torch.ones(4, 3)
        optimizer.step()
    assert torch.equal(ours.param_groups[0]["params"][0], copied.param_groups[0]["params"][0])
