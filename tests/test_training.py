import copy
import math
import pickle
from dataclasses import FrozenInstanceError

import pytest
import torch
import torch.nn.functional as F
from small_classifier import Classifier, batches, figures, problem, silent, train
from torch import nn

from vit_helpers.data import Batches
from vit_helpers.distributed import ShardedBatches
from vit_helpers.training import Callback, Epoch, FlipTTA, Score, evaluate, fit, predict, set_seed
from vit_helpers.training.callbacks import Report
from vit_helpers.training.checkpoints import Checkpoint
from vit_helpers.training.cnn import CNN
from vit_helpers.training.diagnosis import diagnose
from vit_helpers.training.measurements import Evidence
from vit_helpers.training.optimizers import (
    OPTIMIZERS,
    adam_coupled,
    adam_l2,
    adamw,
    adamw_all,
    param_groups,
    sgd,
)
from vit_helpers.training.recipe import Recipe, bf16_units, warmup_cosine


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


def test_tokens_learn_at_their_own_rate(monkeypatch):
    seen = []
    make = adamw
    monkeypatch.setitem(OPTIMIZERS, "adamw", lambda *args: seen.append(make(*args)) or seen[-1])
    fit(Classifier(), batches(), batches(), Recipe(epochs=1, lr=0.01, token_lr_mult=7), **silent)
    assert [group["initial_lr"] for group in seen[0].param_groups] == pytest.approx(
        [0.01, 0.01, 0.07]
    )


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


def test_evaluation_counts_every_image_once():
    model, data = Classifier(), problem()
    score = evaluate(model, batches())
    model.eval()
    logits = model(data.images)
    assert score.images == 100
    assert score.loss == pytest.approx(F.cross_entropy(logits, data.labels).item(), abs=1e-6)
    assert score.accuracy == pytest.approx((logits.argmax(1) == data.labels).float().mean().item())
    assert score.majority_share == pytest.approx(
        max((logits.argmax(1) == k).float().mean().item() for k in range(3))
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_validation_measures_the_loss_of_training_with_its_label_smoothing(smoothing):
    recipe = Recipe(epochs=1, label_smoothing=smoothing)
    (epoch,) = fit(model := Classifier(), batches(), batches(), recipe, **silent)
    loss = F.cross_entropy(*predict(model, batches()), label_smoothing=smoothing).item()
    assert epoch.validation.loss == pytest.approx(loss, abs=1e-6)


def test_prediction_leaves_the_mode_of_the_model_alone():
    model = Classifier().train()
    first, _ = predict(model, batches())
    second, _ = predict(model, batches())
    assert model.training and torch.equal(first, second) and not first.requires_grad
    predict(model.eval(), batches())
    assert not model.training


def test_nothing_to_train_on_is_named():
    nothing = Batches(problem(0), 32)
    with pytest.raises(ValueError, match="no batch to train on"):
        fit(Classifier(), nothing, batches(), **silent)
    with pytest.raises(ValueError, match="no batch to predict"):
        predict(Classifier(), nothing)


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
    with pytest.raises(FloatingPointError, match="norm of the gradient is nan at step 1"):
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
        ("token_lr_mult", 0),
        ("warmup", 1),
        ("label_smoothing", -0.1),
        ("weight_decay", -1),
    ],
)
def test_recipes_that_make_no_sense(name, value):
    with pytest.raises(ValueError, match=f"^{name} .*got {value}"):
        Recipe(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("optimizer", "adam"), ("schedule", "step"), ("precision", "float16")]
)
def test_unknown_names_in_a_recipe_are_told_the_known_ones(name, value):
    with pytest.raises(ValueError, match=f"unknown {name} '{value}', known: "):
        Recipe(**{name: value})


def test_every_schedule_rises_straight_and_then_keeps_its_form():
    for schedule, middle, end in (
        ("cosine", 0.5, 0.0),
        ("linear", 0.5, 0.0),
        ("constant", 1.0, 1.0),
    ):
        recipe = Recipe(warmup=0.2, schedule=schedule)
        factors = [recipe.lr_factor(step, 100) for step in range(100)]
        assert factors[:20] == pytest.approx([i / 20 for i in range(1, 21)])
        assert factors[60] == pytest.approx(middle, abs=0.02) and factors[99] == pytest.approx(
            end, abs=0.02
        )
        assert Recipe(warmup=0, schedule=schedule).lr_factor(0, 10) == 1


def test_l2_in_adam_moves_every_parameter_by_about_the_learning_rate():
    layer = nn.Linear(4, 4)
    before = layer.weight.detach().clone()
    optimizer = adam_l2(layer, lr=0.1, weight_decay=0.3)
    for p in layer.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    # however small the weight
    assert torch.allclose((layer.weight - before).abs(), torch.tensor(0.1), atol=1e-4)
    with pytest.raises(ValueError, match="token_lr_mult must be 1, got 10"):
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
    with pytest.raises(
        ValueError, match="adamw_all treats all parameters alike: token_lr_mult must be 1, got 10"
    ):
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


class Notes(Callback):
    """Remembers what it was told"""

    def __init__(self):
        self.told = []

    def on_fit_start(self, run):
        self.told.append(("start", len(run.history), run.steps))

    def on_step_end(self, run, outputs, labels, loss):
        assert loss.ndim == 0
        self.told.append((tuple(outputs.shape), len(labels)))

    def on_epoch_end(self, run):
        self.told.append((run.history[-1].number, run.schedule.last_epoch, run.model.training))

    def on_fit_end(self, run):
        self.told.append(("end", len(run.history), run.steps))


def test_callbacks_are_called_before_after_and_between():
    notes, rows = Notes(), []
    callbacks = [notes, Report(rows.append)]
    history = fit(Classifier(), batches(), batches(), Recipe(epochs=2), callbacks=callbacks)
    steps = [((32, 3), 32), ((32, 3), 32), ((32, 3), 32), ((4, 3), 4)]
    assert notes.told == [
        ("start", 0, 8),
        *(*steps, (1, 4, True)),
        *(*steps, (2, 8, True)),
        ("end", 2, 8),
    ]
    assert rows == history


def test_another_loss_trains_without_a_score():
    """A model that learns to return its input"""
    model, recipe = nn.Linear(6, 6), Recipe(epochs=30, lr=0.05)
    pairs = [(x, x) for x, _ in batches()]
    history = fit(model, pairs, None, recipe, loss_fn=F.mse_loss, **silent)
    assert history[-1].train.loss < 0.05 * history[0].train.loss
    assert history[-1].validation is None


def test_an_epoch_is_a_row_of_the_history_file_and_back():
    rows = [EPOCH.to_row(), Epoch(2, Score(0.5)).to_row()]
    assert list(rows[0]) == HISTORY_COLUMNS and list(rows[1]) == HISTORY_COLUMNS
    assert (rows[0]["loss"], rows[0]["val_loss"], rows[0]["num_classes"]) == (0.5, 0.25, 3)
    assert math.isnan(rows[1]["val_loss"]) and rows[1]["val_images"] == 0
    assert Epoch.from_row(rows[0]) == EPOCH
    assert Epoch.from_row(rows[1]).validation is None
    with pytest.raises(FrozenInstanceError):
        EPOCH.lr = 0.1


HISTORY_COLUMNS = [  # of history.csv, which readers know by these names
    *("epoch", "lr", "loss", "accuracy", "num_classes", "probabilities", "images_per_second"),
    *("val_loss", "val_accuracy", "val_majority_share", "val_images", "val_largest_class"),
    *("images", "batch_size", "tokens", "least_loss", "guess_loss"),
]
EPOCH = Epoch(
    1,
    lr=0.1,
    train=Score(0.5, 1.0, 100),
    validation=Score(0.25, 0.5, 50, majority_share=1.0, largest_class=0.5),
    images_per_second=9.0,
    evidence=Evidence(3, True, 32, 17, 0.1, 0.2),
)


def test_mirrored_predictions_have_no_log_of_zero():
    class Sure(nn.Module):
        """200 for the half of the image that is brighter"""

        def forward(self, images):
            return 200 * torch.stack(
                [images[..., :1].sum((1, 2, 3)), images[..., 1:].sum((1, 2, 3))], dim=1
            )

    images = torch.tensor([[[[1.0, 0.0]]], [[[0.0, 0.0]]]])
    logits = FlipTTA(Sure())(images)
    assert torch.allclose(logits, torch.full((2, 2), -math.log(2)))
    same = FlipTTA(lambda images: torch.tensor([[200.0, 0.0]]).expand(len(images), 2))(images)
    assert torch.allclose(same, torch.tensor([[0.0, -200.0]]))


@pytest.mark.parametrize(
    "thing",
    [
        EPOCH,
        Score(0.5, 0.25, 100),
        Recipe(lr=0.1),
        diagnose([Epoch(1, Score(math.inf))]),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_results_survive_copies_and_pickles(thing):
    assert copy.copy(thing) == copy.deepcopy(thing) == pickle.loads(pickle.dumps(thing)) == thing


@pytest.mark.parametrize(
    "make", [lambda: FlipTTA(CNN(1, 2, 4)), lambda: CNN(1, 2, 4)], ids=["FlipTTA", "CNN"]
)
def test_models_survive_copies_and_pickles(make):
    model, images = make().eval(), torch.randn(3, 1, 8, 8)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(images), model(images))


@pytest.mark.parametrize(
    "thing",
    [Checkpoint("a.pt", about={"x": 1}), Report(print), Report(), ShardedBatches(batches())],
)
def test_what_attaches_survives_copies_and_pickles(thing):
    for twin in (copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
        assert type(twin) is type(thing) and vars(twin).keys() == vars(thing).keys()


def test_a_run_ends_with_its_diagnosis_unless_it_reports_elsewhere(capsys):
    fit(Classifier(), batches(), batches(), Recipe(epochs=1, lr=1e-9))
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("epoch   1") and last.split(":")[0] in (
        "constant prediction",
        "stuck at ln K",
    )
    fit(Classifier(), batches(), batches(), Recipe(epochs=1), **silent)
    assert not capsys.readouterr().out
