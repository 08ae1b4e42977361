"""The loop: what it learns, one epoch by hand, seeds, and runs that must stop."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from small_classifier import Classifier, batches, figures, problem, silent, train
from torch import nn

from vit_helpers.data import Batches
from vit_helpers.training import evaluate, fit, predict, set_seed
from vit_helpers.training.recipe import Recipe, bf16_units


def test_it_learns():
    _, history = train(100)
    assert history[0].validation.accuracy < 0.8 < 0.95 < history[-1].validation.accuracy
    assert [epoch.number for epoch in history] == list(range(1, 101))


def test_a_seed_decides_everything():
    (one, a), (two, b) = train(), train()
    assert figures(a) == figures(b)
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))


def test_a_row_says_what_happened():
    set_seed(3)
    model = Classifier().eval()
    twin = copy.deepcopy(model).train()
    # so small a rate that nothing is learned
    recipe = Recipe(epochs=1, lr=1e-9, label_smoothing=0.2)
    set_seed(4)
    (row,) = fit(model, batches(), batches(), recipe, **silent)
    set_seed(4)
    pairs = [(twin(x), y) for x, y in batches()]  # with dropout, as in training
    logits, labels = torch.cat([z for z, _ in pairs]), torch.cat([y for _, y in pairs])
    loss = F.cross_entropy(logits, labels, label_smoothing=0.2).item()
    assert row.train.loss == pytest.approx(loss, abs=1e-5) and row.train.images == 100
    assert row.train.accuracy == pytest.approx((logits.argmax(1) == labels).float().mean().item())
    score = evaluate(model, batches(), label_smoothing=0.2)
    assert vars(row.validation) == pytest.approx(vars(score))
    assert row.evidence.num_classes == 3
    assert row.lr == pytest.approx(1e-9)
    assert row.images_per_second > 100
    assert row.number == 1


def test_warm_up_can_fill_the_whole_run():
    fit(Classifier(), batches(), batches(), Recipe(epochs=1, warmup=0.99), **silent)


def test_one_epoch_by_hand():
    set_seed(1)
    model, twin = nn.Linear(6, 3), nn.Linear(6, 3)
    twin.load_state_dict(model.state_dict())
    recipe = Recipe(epochs=1, lr=1e-2, warmup=0.5, label_smoothing=0.2, clip=0.1)
    fit(model, batches(), batches(), recipe, **silent)
    groups = [{"params": [twin.weight]}, {"params": [twin.bias], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, weight_decay=recipe.weight_decay)
    for step, (x, y) in enumerate(batches()):
        for group in optimizer.param_groups:
            # 4 steps, 2 of them warm-up, then a cosine over 2
            group["lr"] = 1e-2 * (0.5, 1.0, 1.0, 0.5)[step]
        optimizer.zero_grad()
        F.cross_entropy(twin(x), y, label_smoothing=0.2).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
        optimizer.step()
    assert torch.allclose(model.weight, twin.weight, atol=1e-6)


def test_nothing_to_train_on_is_named():
    nothing = Batches(problem(0), 32)
    with pytest.raises(ValueError, match="train"):
        fit(Classifier(), nothing, batches(), **silent)
    with pytest.raises(ValueError, match="predict"):
        predict(Classifier(), nothing)


class Once:
    """Four batches, once"""

    def __init__(self):
        self.batches = iter(batches())

    def __len__(self):
        return 4

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.batches)


SPLITS = ("training", "validation")


@pytest.mark.parametrize("name", SPLITS)
def test_batches_that_only_one_epoch_could_read_are_named_before_it(name):
    train, validation = (Once() if name == other else batches() for other in SPLITS)
    once = Recipe(epochs=1)
    assert len(fit(Classifier(), train, validation, once, **silent)) == 1
    model = Classifier()
    model.register_forward_hook(lambda *rest: pytest.fail("an epoch was trained"))
    train, validation = (Once() if name == other else batches() for other in SPLITS)
    with pytest.raises(TypeError, match=f"each of 2 epochs reads the {name} batches, but a Once"):
        fit(model, train, validation, Recipe(epochs=2), **silent)


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_of_no_class_is_named(label):
    wrong = [(x, torch.full_like(y, label)) for x, y in batches()]
    says = f"3 classes, whose labels are 0 to 2, got the label {label}"
    with pytest.raises(ValueError, match=says):
        fit(Classifier(), wrong, None, Recipe(epochs=1), **silent)
    with pytest.raises(ValueError, match=says):
        evaluate(Classifier(), wrong)


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
    with pytest.raises(FloatingPointError, match="gradient is nan at step 1"):
        fit(model, batches(), batches(), Recipe(epochs=1), **silent)
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(value):
    data = problem()
    data.images[70] = value  # the third batch of 32
    model = nn.Linear(6, 3)
    with pytest.raises(FloatingPointError, match=r"at step 3 \(epoch 1, .*not normalized"):
        fit(model, Batches(data, 32), batches(), Recipe(epochs=2), **silent)
    assert all(p.isfinite().all() for p in model.parameters())


def test_labels_may_be_probabilities_of_classes():
    data = problem()
    shares = F.one_hot(data.labels, 3).float()
    rows = []
    for mix in (None, lambda images, labels: (images, F.one_hot(labels, 3).float())):
        set_seed(0)
        rows += fit(Classifier(), Batches(data, 32, mix=mix), batches(), Recipe(epochs=1), **silent)
    assert figures(rows)[0] == pytest.approx(figures(rows)[1])
    assert torch.equal(
        next(iter(Batches(data, 100, mix=lambda x, y: (x, F.one_hot(y, 3).float()))))[1], shares
    )


def test_bfloat16_learns_the_same_within_its_digits():
    rows = []
    for precision in ("float32", "bfloat16"):
        set_seed(0)
        model = Classifier()
        rows.append(
            fit(
                model,
                batches(),
                batches(),
                Recipe(epochs=5, lr=0.01, precision=precision),
                **silent,
            )[-1]
        )
        assert all(p.dtype == torch.float32 for p in model.parameters())
    full, half = (row.train.loss for row in rows)
    assert full == pytest.approx(half, rel=0.02) and full != half
    assert bf16_units() in (True, False)


def test_another_loss_trains_without_a_score():
    """A model that learns to return its input"""
    model, recipe = nn.Linear(6, 6), Recipe(epochs=30, lr=0.05)
    pairs = [(x, x) for x, _ in batches()]
    history = fit(model, pairs, None, recipe, loss_fn=F.mse_loss, **silent)
    assert history[-1].train.loss < 0.05 * history[0].train.loss
    assert history[-1].validation is None


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_validation_measures_the_loss_of_training_with_its_label_smoothing(smoothing):
    recipe = Recipe(epochs=1, label_smoothing=smoothing)
    (epoch,) = fit(model := Classifier(), batches(), batches(), recipe, **silent)
    loss = F.cross_entropy(*predict(model, batches()), label_smoothing=smoothing).item()
    assert epoch.validation.loss == pytest.approx(loss, abs=1e-6)
