"""Symptoms are read from real runs that go wrong, and from histories made by hand."""

import math
import re
from dataclasses import replace

import pytest
import torch
from small_classifier import Classifier, batches, problem, silent
from torch import nn

from vit_helpers.data import Batches, Data, Split, load, subset
from vit_helpers.training import Epoch, Report, Score, fit, set_seed
from vit_helpers.training.diagnosis import ADVICE, diagnose, known_of
from vit_helpers.training.measurements import Evidence
from vit_helpers.training.presets import RunSettings, make_network
from vit_helpers.training.recipe import Recipe

GOOD = {
    "epoch": 9,
    "loss": 0.1,
    "val_loss": 0.12,
    "accuracy": 0.97,
    "val_accuracy": 0.96,
    "val_majority_share": 0.4,
    "num_classes": 3,
}


@pytest.mark.parametrize(
    ("changes", "symptom", "says"),
    [
        ({}, "healthy", "0.97 in training and 0.96 in validation"),
        ({"loss": math.nan}, "not finite", "the loss is nan in epoch 9"),
        ({"val_loss": math.inf}, "not finite", "learning rate"),
        (
            {"val_majority_share": 1.0, "val_accuracy": 0.34, "accuracy": 0.3},
            "constant prediction",
            "100% of the validation",
        ),
        (
            {"loss": 1.09, "accuracy": 0.4, "val_accuracy": 0.4},
            "stuck at ln K",
            "a uniform prediction for 3 classes has a loss of ln 3 = 1.10",
        ),
        ({"loss": 9.0, "accuracy": 0.4, "val_accuracy": 0.4}, "stuck at ln K", "the loss is 9.00"),
        (
            {"probabilities": True, "loss": 0.58},
            "softmax twice",
            "It is 0.58 and cannot fall below 0.55",
        ),
        (
            {"probabilities": True, "val_majority_share": 1.0},
            "softmax twice",
            "a probability distribution already",
        ),
        (
            {"probabilities": True, "loss": 1.09, "accuracy": 0.4},
            "softmax twice",
            "Remove the softmax",
        ),
        ({"probabilities": False, "loss": 0.58}, "healthy", "0.97 in training"),
        (
            {"val_accuracy": 0.7, "val_loss": 0.9},
            "overfitting",
            "0.97 in training and 0.70 in validation",
        ),
        (
            {"accuracy": 0.7, "val_accuracy": 0.69, "loss": 0.8},
            "underfitting",
            "0.70 even on the training images",
        ),
    ],
)
def test_each_symptom_has_its_name_and_advice(changes, symptom, says):
    found = diagnose([GOOD | {"epoch": 8}, GOOD | changes])
    assert found.symptom == symptom and says in found.advice
    assert str(found) == f"{symptom}: {found.advice}"


def test_an_accuracy_above_guessing_is_not_said_to_be_below():
    """0.47 was "no better" than 0.36"""
    row = {"val_accuracy": 0.47, "val_largest_class": 0.36, "val_images": 36, "accuracy": 0.5}
    found = diagnose([GOOD | row])
    assert found.symptom == "no better than guessing"
    said = str(found)
    assert said.startswith("perhaps ") and "0.47" in said and "0.36: 36 " in said


def test_overfitting_tells_when_validation_was_best():
    rows = [
        GOOD | {"epoch": e, "val_loss": loss, "val_accuracy": 0.7}
        for e, loss in ((1, 0.9), (2, 0.5), (3, 0.8))
    ]
    assert "lowest in epoch 2 of 3" in diagnose(rows).advice


def test_a_loss_that_was_not_finite_at_any_time_counts():
    assert diagnose([GOOD | {"loss": math.nan, "epoch": 2}, GOOD]).symptom == "not finite"
    with pytest.raises(ValueError, match="empty history"):
        diagnose([])


def test_two_classes_with_label_smoothing_are_no_second_softmax():
    row = Epoch(
        1,
        train=Score(0.36, 0.91),
        validation=Score(0.67, 0.68, majority_share=0.6),
        evidence=Evidence(num_classes=2),
    )
    assert diagnose([row]).symptom == "overfitting"


ONE_STEP = {
    "loss": 0.68,
    "guess_loss": 0.69,
    "images": 40,
    "batch_size": 64,
    "num_classes": 2,
    "accuracy": 0.5,
}
ONE_STEP |= {"val_accuracy": 1.0, "val_images": 12, "val_largest_class": 0.84}
LARGE = {
    "val_majority_share": 0.985,
    "val_largest_class": 0.985,
    "val_images": 200,
    "num_classes": 2,
    "batch_size": 64,
}


@pytest.mark.parametrize(
    ("changes", "symptom"),
    [
        (LARGE | {"val_accuracy": 1.0}, "healthy"),  # 98.5% of the images are of one class
        # the same, in a history that does not know its counts
        ({"val_majority_share": 0.985, "val_accuracy": 1.0}, "healthy"),
        # no one can tell
        (
            LARGE | {"val_accuracy": 0.985, "val_majority_share": 1.0, "guess_loss": 0.078},
            "healthy",
        ),
        (LARGE | {"val_largest_class": 0.6, "val_accuracy": 0.6}, "constant prediction"),
        (
            LARGE
            | {
                "val_largest_class": 0.5,
                "val_accuracy": 0.5,
                "val_majority_share": 1.0,
                "val_images": 2,
            },
            "unclear",
        ),
        # mixed labels: training looks worse than it is
        ({"accuracy": 0.62, "loss": 0.9}, "healthy"),
        (
            {
                "loss": 1.09,
                "least_loss": 1.0,
                "guess_loss": 1.0986,
                "batch_size": 64,
                "accuracy": 0.6,
            },
            "healthy",
        ),
        (
            {
                "loss": 0.5,
                "guess_loss": 0.5,
                "batch_size": 64,
                "val_accuracy": 0.8,
                "val_largest_class": 0.8,
            },
            "stuck at ln K",
        ),
        (ONE_STEP | {"epoch": 1}, "healthy"),  # a loss that was measured before the only step
        (ONE_STEP | {"epoch": 2, "val_accuracy": 0.85}, "stuck at ln K"),
        (ONE_STEP | {"epoch": 1, "val_accuracy": 0.85}, "no better than guessing"),
        # 30 images show a gap of 0.12 by chance
        ({"val_accuracy": 0.85, "val_images": 30}, "healthy"),
        ({"val_accuracy": 0.85, "val_images": 3000}, "overfitting"),
        (
            {"val_loss": math.nan, "val_accuracy": math.nan, "val_majority_share": math.nan},
            "not validated",
        ),
        # a loss of another kind
        ({"loss": 1.09, "accuracy": 0.4, "batch_size": 64, "val_accuracy": 0.4}, "underfitting"),
    ],
)
def test_what_labels_and_chance_explain_has_no_name(changes, symptom):
    assert diagnose([GOOD | {"epoch": 8} | changes, GOOD | changes]).symptom == symptom


# Curves of runs that were told the opposite of what they show (52 validation images)
SMALL = {"val_images": 52, "images": 196, "batch_size": 32, "num_classes": 3}
SMALL |= {"guess_loss": math.log(3), "val_largest_class": 0.4, "val_majority_share": 0.5}


@pytest.mark.parametrize(
    ("accuracy", "validation", "losses", "symptom"),
    [
        (0.897, 0.692, (0.83, 0.83), "unclear"),  # ahead by 0.2, and not of a model too small
        (0.92, 0.70, (0.83, 0.83), "unclear"),  # neither is it healthy
        (0.70, 0.65, (0.83, 0.945), "unclear"),  # more epochs would not help
        (0.70, 0.65, (0.83, 0.85), "underfitting"),
        (0.897, 0.692, (0.80, 0.95), "overfitting"),
        (0.93, 0.88, (0.5, 0.5), "healthy"),
        (0.70, 0.88, (0.5, 0.5), "healthy"),  # augmented
        (0.63, 0.54, (0.9, 0.9), "underfitting"),
        (0.63, 0.54, (0.8, 0.9), "unclear"),
    ],
)
def test_a_diagnosis_does_not_contradict_its_curves(accuracy, validation, losses, symptom):
    row = SMALL | {"accuracy": accuracy, "val_accuracy": validation, "loss": 0.6}
    rows = [row | {"epoch": n, "val_loss": loss} for n, loss in enumerate(losses, start=1)]
    found = diagnose(rows)
    assert found.symptom == symptom
    if losses[1] > 1.1 * losses[0]:
        assert "Try more epochs" not in found.advice
    if accuracy - validation > 0.15:
        assert "larger model" not in found.advice
    if symptom == "unclear":
        assert f"lowest in epoch 1 of 2 ({losses[0]:.2f}, now {losses[1]:.2f})" in found.advice
        assert "52 images show the accuracy to within 0.1" in found.advice


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"accuracy": 0.62, "val_accuracy": 0.52}, False),  # merely hard
        ({"accuracy": 0.42, "val_accuracy": 0.40}, True),
        ({"accuracy": 0.62, "val_accuracy": 0.38}, True),  # learned by heart, perhaps
        ({"accuracy": 0.42, "val_accuracy": 0.52}, True),  # chance, perhaps
        ({"accuracy": 0.62, "val_accuracy": 0.52, "val_images": 0, "loss": 1.1}, True),
        ({"accuracy": 0.62, "val_accuracy": 0.60, "loss": 1.095}, False),  # stuck, but learning
        ({"accuracy": 0.42, "val_accuracy": 0.40, "loss": 1.095}, True),
    ],
)
def test_labels_are_asked_about_only_where_no_accuracy_shows_that_they_are_right(changes, asked):
    row = SMALL | {"val_loss": 1.05, "loss": 0.9} | changes
    found = diagnose([row | {"epoch": 1}, row | {"epoch": 2}])
    assert found.symptom in ("no better than guessing", "stuck at ln K")
    assert ("labels belong" in found.advice) is asked


def test_a_history_that_knows_its_images_but_no_batches_is_diagnosed():
    row = GOOD | {"images": 100}
    assert diagnose([row | {"epoch": 1}, row | {"epoch": 2}]).symptom == "healthy"


@pytest.mark.parametrize(
    ("losses", "symptom"),
    [((1.098, 1.095), "stuck at ln K"), ((1.098, 0.9), "healthy"), ((0.9, 1.095), "healthy")],
)
def test_accurate_by_tiny_margins_is_stuck(losses, symptom):
    """A trained model with a new head and far too low a rate: (training, validation) loss"""
    loss, validation = losses
    row = SMALL | {"accuracy": 0.97, "val_accuracy": 0.96, "loss": loss, "val_loss": validation}
    assert diagnose([row | {"epoch": 1}, row | {"epoch": 2}]).symptom == symptom


# Each threshold from both sides: a history, the number that differs, and what is said of it
LOST = SMALL | {"accuracy": 0.42, "val_accuracy": 0.40, "val_loss": 1.0}
LN_3 = math.log(3)
EDGES = {
    "CONSTANT": (
        LARGE | {"val_largest_class": 0.6, "val_accuracy": 0.6},
        *("val_majority_share", {0.975: "overfitting", 0.985: "constant prediction"}),
    ),
    "FEW": (
        LARGE | {"val_largest_class": 0.5, "val_accuracy": 0.5, "val_majority_share": 1.0},
        *("val_images", {29: "overfitting", 31: "constant prediction"}),
    ),
    "STUCK": (
        LOST,
        "loss",
        {0.965 * LN_3: "no better than guessing", 0.975 * LN_3: "stuck at ln K"},
    ),
    "ROOM": (
        LOST | {"loss": LN_3, "accuracy": 0.6, "val_accuracy": 0.62},
        *("least_loss", {LN_3 - 0.09: "underfitting", LN_3 - 0.11: "stuck at ln K"}),
    ),
    "GAP": ({}, "val_accuracy", {0.97 - 0.09: "healthy", 0.97 - 0.11: "overfitting"}),
    "POOR": (
        {"val_accuracy": 0.85, "loss": 0.5},
        *("accuracy", {0.89: "underfitting", 0.91: "healthy"}),
    ),
    "three errors below POOR": (
        LOST | {"accuracy": 0.7, "loss": 0.6},
        *("val_accuracy", {0.71: "underfitting", 0.72: "healthy"}),
    ),
}


@pytest.mark.parametrize(("changes", "name", "symptoms"), EDGES.values(), ids=EDGES)
def test_a_symptom_begins_at_its_threshold(changes, name, symptoms):
    row = GOOD | changes
    for value, symptom in symptoms.items():
        assert diagnose([row | {"epoch": 8}, row | {name: value}]).symptom == symptom


def test_a_rare_class_begins_at_its_threshold():
    """Beside one with 91% of the images a healthy training may miss the others"""
    row = GOOD | LARGE | {"val_majority_share": 1.0, "guess_loss": 0.35}
    for share, symptom in {0.89: "constant prediction", 0.91: "healthy"}.items():
        found = diagnose([row | {"val_largest_class": share, "val_accuracy": share}])
        assert found.symptom == symptom


@pytest.mark.parametrize(
    ("risen", "symptom"), [(1.05, "unclear"), (1.09, "unclear"), (1.11, "overfitting")]
)
def test_a_loss_has_risen_from_a_tenth_on(risen, symptom):
    row = LOST | {"accuracy": 0.897, "val_accuracy": 0.692, "loss": 0.6, "val_loss": 0.8}
    rows = [row | {"epoch": 1}, row | {"epoch": 2, "val_loss": 0.8 * risen}]
    assert diagnose(rows).symptom == symptom


@pytest.mark.parametrize("off", [-0.015, -0.008, 0.008, 0.015])
def test_a_loss_sits_at_a_logarithm_within_a_hundredth(off):
    row = {"loss": (1 + off) * math.log(64), "images": 640, "batch_size": 64, "num_classes": 0}
    found = diagnose([row | {"epoch": epoch} for epoch in range(1, 5)])
    assert (found.symptom == "stuck at ln(batch size)") == (abs(off) < 0.01)


QUESTIONS = {
    "constant prediction": {"val_majority_share": 1.0, "val_accuracy": 0.4, "accuracy": 0.4},
    "stuck at ln K": {"loss": 1.095, "accuracy": 0.4, "val_accuracy": 0.4},
    "no better than guessing": {"accuracy": 0.42, "val_accuracy": 0.40},
    "overfitting": {"accuracy": 0.99, "val_accuracy": 0.6},
    "underfitting": {"accuracy": 0.7, "val_accuracy": 0.65},
    "not finite": {"loss": math.nan, "accuracy": 0.4, "val_accuracy": 0.4},
}
OWN_CODE = re.compile("L2|normalized|preprocessed|softmax|warm-up|gradients|single batch")


@pytest.mark.parametrize(("symptom", "changes"), QUESTIONS.items(), ids=QUESTIONS)
def test_nothing_is_asked_that_is_known(symptom, changes):
    row = SMALL | {"val_loss": 1.05, "loss": 0.9} | changes
    history = [row | {"epoch": 1}, row | {"epoch": 2}]
    full, short = diagnose(history), diagnose(history, known_of(Recipe()) | {"code", "weights"})
    assert full.symptom == short.symptom == symptom
    assert OWN_CODE.search(full.advice) and not OWN_CODE.search(short.advice)
    assert "Fine-tuning" not in short.advice and len(short.advice) < len(full.advice)


def test_beside_healthy_a_class_with_nearly_all_images_is_named():
    """144 images beside 6: healthy, with an accuracy of 1"""
    for share, noted in ((0.96, True), (0.5, False), (0.0, False)):  # 0: unknown
        row = GOOD | {"val_accuracy": 1.0, "val_images": 23, "val_largest_class": share}
        symptom, advice = diagnose([row])
        assert symptom == "healthy"
        assert ("But 96% of the validation images are of one class" in advice) == noted


def test_what_a_recipe_tells_is_known():
    assert known_of(Recipe()) == {"l2", "warm-up"}
    coupled = {"optimizer": "adam_l2", "token_lr_mult": 1.0}
    assert known_of(Recipe(warmup=0.0, **coupled)) == set()


def test_every_piece_of_advice_is_a_question_or_has_no_period():
    for entries in ADVICE.values():
        names = {name for name, text in entries["advice"]}
        assert names <= {"", "l2", "warm-up", "code", "weights", "labels", "risen", "even"}
        texts = [entries["seen"], *(text for _, text in entries["advice"])]
        assert not any(text.endswith(".") for text in texts)


def test_a_run_is_not_asked_for_its_own_recipe(capsys):
    model = silenced(Classifier())
    fit(model, batches(), batches(), Recipe(epochs=2, lr=1e-6), callbacks=[Report()])
    told = capsys.readouterr().out
    assert "AdamW" not in told and "warm-up" not in told and "normalized" in told
    fit(model, batches(), batches(), Recipe(epochs=2), callbacks=[Report(known={"code"})])
    assert not OWN_CODE.search(capsys.readouterr().out)


def silenced(model):
    """A model that predicts one class for all"""
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    model.layers[-1].bias.data[0] = 5.0
    return model.requires_grad_(False).requires_grad_()


@pytest.mark.parametrize(
    ("loss", "changes", "symptom"),
    [
        (math.log(64), {}, "stuck at ln(batch size)"),
        ((64 * math.log(64) + 36 * math.log(36)) / 100, {"images": 100}, "stuck at ln(batch size)"),
        (math.log(17), {"tokens": 17}, "stuck at ln(tokens)"),
        (math.log(16), {"tokens": 17}, "stuck at ln(patches)"),
        (math.log(640), {}, "stuck at ln(training images)"),
        (
            math.log(200),
            {"val_images": 200, "val_accuracy": 0.3, "val_loss": 1.0, "val_largest_class": 0.4},
            "stuck at ln(validation images)",
        ),
        (math.log(10), {"num_classes": 10}, "stuck at ln K"),
        (math.log(64) * 0.98, {}, "not validated"),
        (math.log(64), {"guess_loss": 2.3, "num_classes": 10, "loss": 0.2}, "not validated"),
    ],
)
def test_a_loss_that_sits_at_the_logarithm_of_a_count_is_told_the_count(loss, changes, symptom):
    row = {"loss": loss, "images": 640, "batch_size": 64, "num_classes": 0} | changes
    found = diagnose([row | {"epoch": epoch} for epoch in range(1, 5)])
    assert found.symptom == symptom
    if symptom.startswith("stuck at ln("):
        assert (
            symptom[len("stuck at ln(") : -1] in found.advice
            and f"the loss is {loss:.2f}" in found.advice
        )
    assert (
        "stuck" not in diagnose([row | {"epoch": 1, "loss": 2 * loss}, row | {"epoch": 2}]).symptom
    )


def test_a_contrastive_loss_that_learns_nothing_is_told_the_batch_size():
    """Its outputs are (B, B): as many columns as the batch has images, fewer in the last one."""

    class Pairs(Classifier):
        def forward(self, x):
            return 0 * (z := super().forward(x)) @ z.detach().T

    pairs = [(x, torch.arange(len(x))) for x, _ in batches()]
    history = fit(Pairs(), pairs, None, Recipe(epochs=3, label_smoothing=0), **silent)
    assert diagnose(history).symptom == "stuck at ln(batch size)"


def test_a_run_measures_what_its_labels_cost_at_least_and_by_guessing():
    def measured(train, **recipe):
        (row,) = fit(Classifier(), train, batches(), Recipe(epochs=1, **recipe), **silent)
        return row

    shares = problem().labels.bincount() / 100
    row = measured(batches(), label_smoothing=0.0)
    assert row.evidence.guess_loss == pytest.approx(torch.special.entr(shares).sum().item())
    assert row.evidence.least_loss == 0 and row.evidence.num_classes == 3
    assert (row.train.images, row.evidence.batch_size) == (100, 32)
    assert (row.validation.images, row.validation.largest_class) == (100, 0.4)
    smooth = torch.tensor([0.8, 0.1, 0.1])
    row = measured(batches(), label_smoothing=0.3)
    assert row.evidence.least_loss == pytest.approx(torch.special.entr(smooth).sum().item())
    mixed = [(x, torch.tensor([0.5, 0.5, 0.0]).expand(len(x), 3)) for x, _ in batches()]
    row = measured(mixed, label_smoothing=0.0)
    losses = row.evidence.guess_loss, row.evidence.least_loss
    assert losses == pytest.approx((math.log(2), math.log(2)))
    (row,) = fit(
        Classifier(),
        batches(),
        batches(),
        Recipe(epochs=1),
        loss_fn=nn.CrossEntropyLoss(),
        **silent,
    )
    assert row.evidence.guess_loss == row.evidence.least_loss == 0 and row.train.accuracy > 0


def test_probabilities_for_a_loss_that_wants_them_are_no_fault():
    model = nn.Sequential(Classifier(), nn.Softmax(1))
    loss = lambda outputs, labels: nn.functional.nll_loss(outputs.log(), labels)  # noqa: E731
    history = fit(model, batches(), batches(), Recipe(epochs=2), loss_fn=loss, **silent)
    assert diagnose(history).symptom != "softmax twice"


def digits(*classes, model=None, epochs=2, **recipe):
    """Every diagnosis of a training on some of the digits, one for each epoch"""
    data = only(*classes)
    set_seed(0)
    model = model or make_network(data, RunSettings(model="mini/4"))
    train = data.batches("train", 64, shuffle=True)
    history = fit(
        model, train, data.batches("validation", 512), Recipe(epochs=epochs, **recipe), **silent
    )
    return [diagnose(history[: n + 1]).symptom for n in range(epochs)]


def only(*classes):
    """The digits of some classes"""
    data = load("digits")
    parts = []
    for split in (data.train, data.validation, data.test):
        chosen = subset(split, torch.isin(split.labels, torch.tensor(classes)))
        labels = torch.searchsorted(torch.tensor(classes), chosen.labels)
        parts.append(replace(chosen, labels=labels))
    return Data.from_splits("some digits", *parts, tuple(map(str, classes)))


@pytest.mark.parametrize(
    "classes", [(0, 1), (3, 9), (4, 7), (1, 8), (0, 1, 2), (3, 8, 9), (1, 4, 7)]
)
def test_healthy_trainings_on_few_classes_are_never_told_softmax_twice(classes):
    found = digits(*classes, epochs=8)
    assert "softmax twice" not in found


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("classes", [(3, 9), (3, 8, 9), range(10)], ids=len)
def test_a_real_second_softmax_is_found_from_the_first_epoch(classes, smoothing):
    model = nn.Sequential(make_network(only(*classes), RunSettings(model="mini/4")), nn.Softmax(1))
    assert digits(*classes, model=model, label_smoothing=smoothing) == ["softmax twice"] * 2


@pytest.mark.parametrize("last", [nn.LogSoftmax(1), nn.Sigmoid()], ids=["log-softmax", "sigmoid"])
def test_what_is_no_softmax_is_not_called_one(last):
    """A log-softmax changes nothing before another softmax; three sigmoids do not sum to 1."""
    model = nn.Sequential(make_network(only(3, 8, 9), RunSettings(model="mini/4")), last)
    assert "softmax twice" not in digits(3, 8, 9, model=model)


def run(train, validation=None, model=None, **recipe):
    set_seed(0)
    return diagnose(
        fit(model or Classifier(), train, validation or batches(), Recipe(**recipe), **silent)
    ).symptom


def test_runs_that_go_wrong():
    data = problem()
    assert run(batches(shuffle=True), epochs=150, lr=0.01, label_smoothing=0) == "healthy"
    assert run(batches(), epochs=2, lr=1e-6, label_smoothing=0) in (
        "stuck at ln K",
        "constant prediction",
    )
    twenty = Batches(Split(data.images[:20], data.labels[:20].roll(7)), 20)
    assert run(twenty, epochs=400, lr=0.02, label_smoothing=0) == "overfitting"
    squeezed = nn.Sequential(Classifier(), nn.Softmax(1))
    assert run(batches(), epochs=200, lr=0.01, label_smoothing=0, model=squeezed) == "softmax twice"
    strong = run(
        batches(),
        epochs=30,
        lr=0.05,
        weight_decay=3.0,
        token_lr_mult=1,
        optimizer="adam_l2",
        label_smoothing=0,
    )
    assert strong in ("constant prediction", "stuck at ln K")
