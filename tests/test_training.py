import copy
import math
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vit_helpers.data import Batches, Split
from vit_helpers.training import (
    Recipe,
    adamw,
    evaluate,
    fit,
    load_checkpoint,
    predict,
    previous,
    set_seed,
    warmup_cosine,
)

silent = {"report": lambda row: None}


class Classifier(nn.Module):
    """No ViT: the room works for any classifier.  With a token and dropout, to see that nothing random is lost."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 6))
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers((x[:, None] + self.token)[:, 0])


def problem(n=100):
    g = torch.Generator().manual_seed(7)
    x = torch.randn(n, 6, generator=g)
    return Split(x, x[:, :3].argmax(1))


def batches(**kwargs):
    return Batches(problem(), 32, **kwargs)


def train(epochs=6, **kwargs):
    set_seed(3)
    model = Classifier()
    train = batches(shuffle=True, augment=lambda x: x + 0.1 * torch.randn_like(x))
    return model, fit(model, train, batches(), Recipe(epochs=epochs, lr=1e-2), **silent | kwargs)


def figures(history):
    return [{k: v for k, v in row.items() if k != "images_per_second"} for row in history]


def test_it_learns():
    _, history = train(30)
    assert history[0]["val_accuracy"] < 0.8 < 0.9 < history[-1]["val_accuracy"]
    assert [row["epoch"] for row in history] == list(range(1, 31))


def test_a_seed_decides_everything():
    (one, a), (two, b) = train(), train()
    assert figures(a) == figures(b)
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))


def test_a_row_says_what_happened():
    set_seed(3)
    model = Classifier().eval()
    twin = copy.deepcopy(model).train()
    recipe = Recipe(epochs=1, lr=1e-9, label_smoothing=0.2)  # so small a rate that nothing is learned
    set_seed(4)
    (row,) = fit(model, batches(), batches(), recipe, **silent)
    set_seed(4)
    pairs = [(twin(x), y) for x, y in batches()]  # with dropout, as in training
    logits, labels = torch.cat([z for z, _ in pairs]), torch.cat([y for _, y in pairs])
    assert row["loss"] == pytest.approx(F.cross_entropy(logits, labels, label_smoothing=0.2).item(), abs=1e-5)
    assert row["accuracy"] == pytest.approx((logits.argmax(1) == labels).float().mean().item())
    assert (row["val_loss"], row["val_accuracy"]) == pytest.approx(evaluate(model, batches(), label_smoothing=0.2))
    assert row["lr"] == pytest.approx(1e-9)
    assert row["images_per_second"] > 100
    assert row["epoch"] == 1


def test_tokens_learn_at_their_own_rate(monkeypatch):
    seen = []
    make = adamw
    monkeypatch.setattr("vit_helpers.training.adamw", lambda *args: seen.append(make(*args)) or seen[-1])
    fit(Classifier(), batches(), batches(), Recipe(epochs=1, lr=0.01, token_rate=7), **silent)
    assert [group["initial_lr"] for group in seen[0].param_groups] == pytest.approx([0.01, 0.01, 0.07])


def test_warm_up_can_fill_the_whole_run():
    fit(Classifier(), batches(), batches(), Recipe(epochs=1, warmup=0.99), **silent)


def test_warm_up_rises_and_the_cosine_falls_to_0():
    rates = [warmup_cosine(step, total=100, warmup=10) for step in range(100)]
    assert rates[:10] == pytest.approx([i / 10 for i in range(1, 11)])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[55] == pytest.approx(0.5)
    assert 0 < rates[-1] < 0.001
    assert warmup_cosine(0, total=5, warmup=0) == 1


def test_decay_reaches_matrices_only():
    model = nn.ModuleDict(
        {"conv": nn.Conv2d(3, 4, 2), "line": nn.Conv1d(3, 4, 2), "norm": nn.LayerNorm(4), "rest": Classifier()}
    )
    model.temperature = nn.Parameter(torch.tensor(1.0))
    groups = adamw(model, lr=0.1, weight_decay=0.3, token_rate=5).param_groups
    decayed, others, tokens = ({id(p) for p in group["params"]} for group in groups)
    assert [group["weight_decay"] for group in groups] == [0.3, 0, 0]
    assert [group["lr"] for group in groups] == [0.1, 0.1, 0.5]
    layers = model["rest"].layers
    assert decayed == {id(model["conv"].weight), id(model["line"].weight), id(layers[0].weight), id(layers[3].weight)}
    assert tokens == {id(model["rest"].token)}
    assert decayed | others | tokens == {id(p) for p in model.parameters()}


def test_decay_is_apart_from_the_gradient():
    layer = nn.Linear(4, 4)
    before = layer.weight.detach().clone()
    optimizer = adamw(nn.ModuleList([layer]), lr=0.1, weight_decay=0.3)
    layer.weight.grad = torch.zeros_like(layer.weight)
    layer.bias.grad = torch.zeros_like(layer.bias)
    optimizer.step()
    assert torch.allclose(layer.weight, before * (1 - 0.1 * 0.3))  # L2 in the gradient would have moved it by about lr


def test_one_epoch_by_hand():
    set_seed(1)
    model, twin = nn.Linear(6, 3), nn.Linear(6, 3)
    twin.load_state_dict(model.state_dict())
    recipe = Recipe(epochs=1, lr=1e-2, warmup=0.5, label_smoothing=0.2, clip=0.1)
    fit(model, batches(), batches(), recipe, **silent)
    optimizer = torch.optim.AdamW([{"params": [twin.weight]}, {"params": [twin.bias], "weight_decay": 0}],
                                  lr=1e-2, weight_decay=recipe.weight_decay)  # fmt: skip
    for step, (x, y) in enumerate(batches()):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (0.5, 1.0, 1.0, 0.5)[step]  # 4 steps, 2 of them warm-up, then a cosine over 2
        optimizer.zero_grad()
        F.cross_entropy(twin(x), y, label_smoothing=0.2).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
        optimizer.step()
    assert torch.allclose(model.weight, twin.weight, atol=1e-6)


def test_evaluation_counts_every_image_once():
    model, data = Classifier(), problem()
    loss, accuracy = evaluate(model, batches())
    model.eval()
    logits = model(data.images)
    assert loss == pytest.approx(F.cross_entropy(logits, data.labels).item(), abs=1e-6)
    assert accuracy == pytest.approx((logits.argmax(1) == data.labels).float().mean().item())


def test_prediction_leaves_the_mode_of_the_model_alone():
    model = Classifier().train()
    first, _ = predict(model, batches())
    second, _ = predict(model, batches())
    assert model.training and torch.equal(first, second) and not first.requires_grad
    predict(model.eval(), batches())
    assert not model.training


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_run_ends_bit_for_bit_like_one_never_stopped(tmp_path, stop):
    whole, history = train(checkpoint=tmp_path / "whole.pt")
    rows = []

    def stop_after(row):
        rows.append(row)
        if len(rows) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(checkpoint=tmp_path / "cut.pt", report=stop_after)
    torch.manual_seed(99)
    resumed, again = train(checkpoint=tmp_path / "cut.pt", resume=True)
    assert figures(again) == figures(history)
    assert all(torch.equal(p, q) for p, q in zip(whole.parameters(), resumed.parameters(), strict=True))
    one, two = (load_checkpoint(tmp_path / name) for name in ("whole.pt", "cut.pt"))
    assert torch.equal(one["random"]["cpu"], two["random"]["cpu"])


def test_a_checkpoint_cut_short_is_refused_and_the_one_before_is_there(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=3, checkpoint=path)
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"damaged; the one before it is .*\.previous: rename it to checkpoint.pt"):
            load_checkpoint(path)
    assert len(load_checkpoint(previous(path))["history"]) == 2
    path.unlink()
    with pytest.raises(FileNotFoundError, match="the one before it is"):
        load_checkpoint(path)


def test_a_write_that_fails_leaves_the_checkpoint_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)

    def half(state, file):
        file.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("vit_helpers.training.make_room", lambda *rest: None)  # there was room when the run began
    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="disk full"):
        train(epochs=2, checkpoint=path)
    assert len(load_checkpoint(path)["history"]) == 2


@pytest.mark.parametrize("step", range(4))
def test_a_cut_between_any_two_steps_of_writing_leaves_a_checkpoint(tmp_path, monkeypatch, step):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    steps = []

    def cut(action):
        def stop_at_its_turn(*args, **kwargs):
            steps.append(action)
            if len(steps) == step + 1:
                raise KeyboardInterrupt
            return action(*args, **kwargs)

        return stop_at_its_turn

    monkeypatch.setattr("vit_helpers.training.make_room", lambda *rest: None)
    monkeypatch.setattr(torch, "save", cut(torch.save))
    monkeypatch.setattr("shutil.copyfile", cut(shutil.copyfile))
    monkeypatch.setattr(Path, "replace", cut(Path.replace))
    with pytest.raises(KeyboardInterrupt):
        train(epochs=1, checkpoint=path)
    assert len(steps) == step + 1
    assert len(load_checkpoint(path)["history"]) == 2


def test_a_checkpoint_runs_no_code(tmp_path):
    path = tmp_path / "evil.pt"
    torch.save({"history": [], "model": partial(print, "run")}, path)
    with pytest.raises(ValueError, match="cut short or damaged"):
        load_checkpoint(path)


def test_another_file_is_no_checkpoint(tmp_path):
    torch.save({"weights": torch.zeros(2)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="is no checkpoint of this training"):
        load_checkpoint(tmp_path / "other.pt")


def test_another_recipe_cannot_go_on(tmp_path):
    path = tmp_path / "checkpoint.pt"
    train(epochs=2, checkpoint=path)
    with pytest.raises(ValueError, match="another recipe: epochs 2 -> 3"):
        train(epochs=3, checkpoint=path, resume=True)
    with pytest.raises(ValueError, match="total steps 8 -> 14"):
        fit(
            Classifier(),
            Batches(problem(), 16),
            batches(),
            Recipe(epochs=2, lr=1e-2),
            checkpoint=path,
            resume=True,
            **silent,
        )


@pytest.mark.parametrize("about", [{"p": np.float64(1)}, {"p": Path("x")}])
def test_what_could_not_be_read_again_is_refused_before_the_first_epoch(tmp_path, about):
    with pytest.raises(ValueError, match="plain numbers and texts"):
        train(checkpoint=tmp_path / "checkpoint.pt", about=about)


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="is a folder; a checkpoint is a file"):
        train(checkpoint=tmp_path)
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        load_checkpoint(tmp_path)


def test_nothing_to_train_on_is_named():
    nothing = Batches(problem(0), 32)
    with pytest.raises(ValueError, match="no batch to train on"):
        fit(Classifier(), nothing, batches(), **silent)
    with pytest.raises(ValueError, match="no batch to predict"):
        predict(Classifier(), nothing)
    with pytest.raises(ValueError, match="needs the checkpoint"):
        fit(Classifier(), batches(), batches(), resume=True, **silent)


class Cliff(torch.autograd.Function):
    """Passes its input on, and NaN back"""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * math.nan


def test_a_gradient_that_is_not_finite_stops_the_run():
    model = nn.Linear(6, 3)
    model.register_forward_hook(lambda module, args, out: Cliff.apply(out))
    with pytest.raises(FloatingPointError, match="length of the gradient is nan at step 1"):
        fit(model, batches(), batches(), Recipe(epochs=1), **silent)
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(value):
    data = problem()
    data.images[70] = value  # the third batch of 32
    model = nn.Linear(6, 3)
    with pytest.raises(FloatingPointError, match=r"at step 3 \(epoch 1, .*not normalised"):
        fit(model, Batches(data, 32), batches(), Recipe(epochs=2), **silent)
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("lr", math.inf),
        ("weight_decay", math.nan),
        ("lr", 0),
        ("lr", -1),
        ("lr", math.nan),
        ("clip", 0),
        ("token_rate", 0),
        ("warmup", 1),
        ("label_smoothing", -0.1),
        ("weight_decay", -1),
    ],
)
def test_recipes_that_make_no_sense(name, value):
    with pytest.raises(ValueError, match=f"^{name} .*got {value}"):
        Recipe(**{name: value})
