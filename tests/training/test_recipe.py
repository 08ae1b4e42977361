"""Recipes: what makes sense in them, warm-up, and every schedule."""

import math

import pytest

from vit_helpers.training.recipe import Recipe, warmup_cosine


def test_warm_up_rises_and_the_cosine_falls_to_0():
    rates = [warmup_cosine(step, total=100, warmup=10) for step in range(100)]
    assert rates[:10] == pytest.approx([i / 10 for i in range(1, 11)])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[55] == pytest.approx(0.5)
    assert 0 < rates[-1] < 0.001
    assert warmup_cosine(0, total=5, warmup=0) == 1


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
