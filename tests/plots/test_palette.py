"""The look for readers who see few colors, and in a gray print.

Colors stay apart, and no figure rests on them alone.
"""

import warnings
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from folding import folded
from matplotlib.colors import to_rgb
from peers import Library

from vit_helpers.plots import (
    ablation,
    ablation_errors,
    data,
    data_copies,
    encoder,
    encoder_stacks,
    images,
    inspection,
    inspection_heads,
    scaling,
    scaling_distributed,
    scaling_evidence,
    since_2020,
    style,
    training,
    training_evidence,
    training_loop,
    vit,
)
from vit_helpers.plots.start_here import Pass, draw_model

pytestmark = pytest.mark.dev
colorspacious = Library("colorspacious")
NAMES = ("CLASS_TOKEN", "PATCH", "POSITION", "QUERY", "KEY", "VALUE", "TEXT", "LINE")
PALETTE = {name: to_rgb(getattr(style, name)) for name in NAMES}
# the last three at their full strength
SIGHTS = ("all colors", "deuteranomaly", "protanomaly", "tritanomaly")
# in CAM02-UCS, where 1 is about the least difference that is seen with two patches side by side
APART = 10
# a gray that without red and green looks like these two
NEAR = {("VALUE", "LINE"), ("POSITION", "LINE")}


def seen(colors, sight):
    """Colors as someone sees them who lacks one kind of cone.

    Source: Machado, Oliveira and Fernandes, 2009.
    """
    if sight == "all colors":
        return np.asarray(colors)
    space = {"name": "sRGB1+CVD", "cvd_type": sight, "severity": 100}
    return np.clip(colorspacious.cspace_convert(colors, space, "sRGB1"), 0, 1)


def distance(one, other, sight):
    return colorspacious.deltaE(
        seen(one, sight), seen(other, sight), input_space="sRGB1", uniform_space="CAM02-UCS"
    )


def contrast(one, other):
    """WCAG 2.1's ratio: 1 for equal colors, 21 for black on white"""
    lights = []
    for color in (one, other):
        parts = np.asarray(to_rgb(color))
        lights.append(
            np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
            @ (0.2126, 0.7152, 0.0722)
        )
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("sight", SIGHTS)
def test_colors_stay_apart(sight):
    pairs = combinations(NAMES, 2)
    close = {pair for pair in pairs if distance(PALETTE[pair[0]], PALETTE[pair[1]], sight) < APART}
    assert close <= NEAR
    assert close == (NEAR if sight == "deuteranomaly" else set())


@pytest.mark.parametrize("sight", SIGHTS)
def test_colors_of_series_stay_apart_and_are_those_of_no_role(sight):
    series = [to_rgb(color) for color in style.SERIES]
    assert all(distance(one, other, sight) > APART for one, other in combinations(series, 2))
    assert not {PALETTE[name] for name in NAMES} & set(series)


def test_a_bad_palette_is_seen():
    red, green = to_rgb("#d62728"), to_rgb("#2ca02c")  # two of matplotlib's own
    assert distance(red, green, "all colors") > 5 * APART
    assert distance(red, green, "deuteranomaly") < APART
    assert contrast("white", "black") == 21 and contrast("#777777", "white") == pytest.approx(
        4.48, abs=0.01
    )


@pytest.mark.parametrize("sight", [*SIGHTS, "gray print"])
def test_measured_values_grow_brighter_for_everyone(sight):
    steps = plt.get_cmap(style.VALUES)(np.linspace(0, 1, 256))[:, :3]
    if sight == "gray print":
        lightness = np.array([100 * style.shade(step) for step in steps])
    else:
        lightness = colorspacious.cspace_convert(seen(steps, sight), "sRGB1", "CAM02-UCS")[:, 0]
    assert (np.diff(lightness) > 0).all() and lightness[-1] - lightness[0] > 60


def test_text_is_read_and_lines_are_seen_on_white():
    assert contrast(style.TEXT, "white") > 7  # WCAG AAA
    # AA, graphics
    assert all(
        contrast(PALETTE[name], "white") > 3
        for name in ("CLASS_TOKEN", "POSITION", "QUERY", "VALUE")
    )
    # pale: for dots, fillings, thick lines with a name
    assert all(contrast(PALETTE[name], "white") > 2.2 for name in NAMES)
    assert all(contrast(style.ink_on(color), color) > 4.5 for color in PALETTE.values())  # AA, text


def test_a_frame_with_a_halo_is_seen_on_every_value():
    steps = plt.get_cmap(style.VALUES)(np.linspace(0, 1, 256))[:, :3]
    for color in (style.QUERY, style.CLASS_TOKEN):
        assert min(contrast(color, step) for step in steps) < 1.1  # alone it sinks into some
        assert contrast(color, "white") > 3  # with its halo it stands out on any
    ax = style.new_axes(None, 3, 3)
    inspection.frame_query(ax, (0, 1), 4)
    (frame,) = ax.patches
    assert frame.get_path_effects() == style.HALO


# No figure rests on color alone


def rows(**kinds):
    return [
        {
            "epoch": e,
            "loss": 2 / e,
            "val_loss": 2.2 / e,
            "accuracy": 0.5,
            "val_accuracy": 0.4,
            **kinds,
        }
        for e in (1, 2, 3)
    ]


def model_figure():
    tokens, weights = torch.randn(5, 6), torch.rand(2, 5, 5)
    stages = Pass(
        torch.rand(1, 4, 4), torch.rand(4, 4), tokens, [weights, weights], tokens, torch.rand(3)
    )
    return draw_model(stages, 2, "abc", "a title", {"classes": "a remark"})


BLOCK = ("MLP", "qkv, output", "scores, mixing")
NEED = ("weights", "gradients", "optimizer", "activations")
EFFECTS = pd.DataFrame(
    {
        "difference": [0.1, -0.2],
        "low": -0.2,
        "high": 0.2,
        "seeds": 0.1,
        "images": 0.1,
        "p": [0.01, 0.5],
        "holm": [0.02, 0.5],
    },
    index=["a", "b"],
)
TRIES = pd.DataFrame(
    [(name, seed, 0.1 * seed) for name in ("baseline", "a", "b") for seed in range(2)],
    columns=["change", "seed", "accuracy"],
)
DRAWN = {  # figures in which several colors carry a meaning, each with as many as it takes
    "draw_tries": lambda: ablation.draw_tries(TRIES, 2),
    "draw_margins": lambda: ablation.draw_margins(np.array([[1, 0, -1]] * 3), 0.1, 0.1, 0, 3),
    "draw_disagreements": lambda: ablation.draw_disagreements(
        torch.rand(3, 1, 4, 4), np.array([True, False, True]), np.array([False, True, True])
    ),
    "draw_ranking": lambda: ablation.draw_ranking(EFFECTS, ["a", "b"]),
    "draw_rates": lambda: ablation.draw_rates({name: {1: [0.1], 2: [0.2]} for name in "abc"}),
    "draw_places": lambda: ablation.draw_places({"a": {"x": EFFECTS.loc["a"]}}),
    "draw_verdict": lambda: ablation.draw_verdict(TRIES, EFFECTS),
    "draw_forest": lambda: ablation_errors.draw_forest(EFFECTS, "title", {"a": "b"}, "head"),
    "draw_holm": lambda: ablation_errors.draw_holm(EFFECTS),
    "draw_pairing": lambda: ablation_errors.draw_pairing(EFFECTS["p"], EFFECTS["holm"]),
    "draw_retuned": lambda: ablation_errors.draw_retuned({"a": 0.1}, EFFECTS),
    "draw_halves": lambda: ablation_errors.draw_halves({"a": ([0.1], [0.2]), "b": ([0.1], [0.3])}),
    "draw_effects": lambda: ablation_errors.draw_effects(EFFECTS.assign(order=[1, 2])),
    "draw_search": lambda: ablation_errors.draw_search([1e-3, 1e-2], [0.1, 0.2], [0.9, 0.8]),
    "draw_curve": lambda: training.draw_curve(rows(), "loss"),
    "draw_loss": lambda: training.draw_loss(10, 0.1),
    "draw_dots": lambda: data_copies.draw_dots({"a": [0.1, 0.2], "b": [0.2, 0.3]}),
    "draw_gains": lambda: data_copies.draw_gains({"a": torch.rand(3), "b": torch.rand(3)}, [1, 2]),
    "draw_folds": lambda: data.draw_folds(
        {name: {"images": (0.5, 0.4, 0.6), "sheets": (0.5, 0.3, 0.7)} for name in "abc"}
    ),
    "draw_batches": lambda: data.draw_batches(torch.tensor([1.0] * 9 + [0.0]), [9, 5]),
    "draw_reports": lambda: data.draw_reports({"a": (0.8, 0.9), "b": (0.7, 0.9)}),
    "draw_answers": lambda: encoder.draw_answers(torch.eye(5)),
    "draw_lead": lambda: encoder.draw_lead([0.1, 1, 2], "9", "0"),
    "draw_differences": lambda: encoder.draw_differences(
        {"one": torch.rand(2, 7), "two": torch.rand(2, 7)}
    ),
    "draw_normalizations": lambda: encoder_stacks.draw_normalizations(
        {"one": torch.rand(2, 3, 4)}, ["a", "b"]
    ),
    "draw_lengths": lambda: encoder_stacks.draw_growth(
        torch.rand(2, 5), torch.rand(2, 4), torch.rand(2, 4)
    ),
    "draw_deep": lambda: encoder_stacks.draw_stacks(
        {"one": {name: torch.rand(2, 6) for name in "abc"}}, "three lines"
    ),
    "draw_failures": lambda: encoder_stacks.draw_failures(
        {"rate": pd.DataFrame([[0, 3], [4, 5]], index=["a", "b"])}, runs=5
    ),
    "draw_sorted_weights": lambda: encoder_stacks.draw_sorted_weights({"a": torch.rand(9)}),
    "draw_scores": lambda: inspection.draw_forest(
        {name: {"mean": 0.5, "low": 0.4, "high": 0.6} for name in "abc"}, ["a"]
    ),
    "draw_deletion": lambda: inspection.draw_deletion(
        range(3), {name: torch.rand(2, 3) for name in "abcdefg"}, ["a", "b", "c"]
    ),
    "draw_probes": lambda: inspection_heads.draw_probes({"a": [0.1, 0.2], "b": [0.1, 0.1]}),
    "draw_norms": lambda: inspection_heads.draw_norms({"a": torch.rand(9), "b": torch.rand(9)}),
    "draw_bars": lambda: images.draw_bars([0.1, 0.9], ["a", "b"], chosen=1),
    "draw_model": model_figure,
    "draw_days": lambda: scaling.draw_days(99, dict.fromkeys(BLOCK, 20)),
    "draw_measured_step": lambda: scaling.draw_measured_step(
        {"forward pass": 0.1, "backward pass": 0.2, "AdamW": 0.1}, 0.2
    ),
    "draw_cost_shares": lambda: scaling.draw_cost_shares({"a": dict.fromkeys(BLOCK, 1)}),
    "draw_memory": lambda: scaling.draw_memory(dict.fromkeys(NEED, 1), 2),
    "draw_formats": lambda: scaling.draw_formats(0.1),
    "draw_budget": lambda: scaling.draw_budget({"a": (1, 2, "GiB"), "b": (2, 1, "GiB")}),
    "draw_ring": lambda: scaling_distributed.draw_ring(
        [[[1, 2], [3, 4]], [[1, 6], [4, 4]]], [4, 6]
    ),
    "draw_drift": lambda: scaling_distributed.draw_drift({"a": [0, 1], "b": [0, 0]}),
    "draw_sharded_memory": lambda: scaling_distributed.draw_sharded_memory(
        {"a": dict.fromkeys(NEED, 1)}
    ),
    "draw_needs": lambda: scaling_evidence.draw_batches({"a": dict.fromkeys(NEED, 1)}),
    "draw_costs": lambda: scaling_evidence.draw_growth({"a": {1: (1, 2), 10: (10, 9)}}, 5),
    "draw_ratios": lambda: scaling_evidence.draw_ratios(
        {"a": (2, 1.5, 3), "b": (0.5, 0.4, 0.9), "c": (1, 0.9, 1.1)}, "title"
    ),
    "draw_changes": lambda: since_2020.draw_changes(
        dict.fromkeys((*since_2020.PLACES, "all the rest"), 9)
    ),
    "draw_scales": lambda: since_2020.draw_scales(
        {"a": [0.1, 1.0], "b": [1e-5, 2e-5]}, torch.rand(2, 2) + 0.1
    ),
    "draw_registers": lambda: since_2020.draw_registers(2),
    "draw_turning": lambda: since_2020.draw_turning(
        torch.ones(2), torch.arange(3.0), torch.rand(3, 3)
    ),
    "draw_largest": lambda: since_2020.draw_largest({"a": [0.1, 0.9], "b": [0.1, 0.2]}, (1, 16)),
    "draw_runs": lambda: training.draw_runs({"a": rows(num_classes=10), "b": rows(num_classes=10)}),
    "draw_paths": lambda: training_loop.draw_paths(
        dict.fromkeys("abc", torch.zeros(3, 2)), (1, 25)
    ),
    "draw_loop": lambda: training_loop.draw_loop(torch.rand(4, 1, 8, 8), range(4)),
    "draw_case": lambda: training_loop.draw_case([0.2, 0.5, 0.2]),
    "draw_decay": lambda: training_loop.draw_decay({"a": [1, 0.9], "b": [0.8, 0.7]}, "title"),
    "draw_schedules": lambda: training_loop.draw_schedules(
        {name: [0.5, 1, 0.5, 0.2] for name in "abc"}
    ),
    "draw_repair": lambda: training_loop.draw_repair(
        {"a": torch.rand(3, 4), "b": torch.rand(3, 4)}, {"always": 0.3}
    ),
    "draw_spectra": lambda: training_evidence.draw_spectra(dict.fromkeys("ab", torch.ones(3))),
    "draw_calibrations": lambda: training_evidence.draw_calibrations(
        {name: (torch.rand(40), torch.rand(40) > 0.5) for name in "ab"}, 4
    ),
    "draw_by_size": lambda: training_evidence.draw_by_size(
        {name: {500: [0.1, 0.2], 5000: [0.3]} for name in "ab"}
    ),
    "draw_cnn_lead": lambda: training_evidence.draw_cnn_lead(
        {name: {500: (2, 1, 3), 5000: (3, 2, 4)} for name in "ab"}
    ),
    "draw_fixes": lambda: training_evidence.draw_fixes(EFFECTS, "title"),
    "draw_interaction": lambda: training_evidence.draw_interaction(
        {"t": {name: [(0.2, 0.1, 0.3), (0.3, 0.2, 0.4)] for name in "ab"}}, ["low", "high"], [0.3]
    ),
    "draw_confusion": lambda: training.draw_confusion(
        torch.tensor([[i + 1, 20 - i] for i in range(20)]), range(20)
    ),
    "draw_calibration": lambda: training.draw_calibration(torch.rand(40), torch.rand(40) > 0.5),
    "draw_shares": lambda: vit.draw_shares(
        {"one": dict.fromkeys("abcde", 1 / 5)},
        {
            "a": style.PATCH,
            "b": style.POSITION,
            "c": style.SERIES[1],
            "d": style.SERIES[0],
            "e": style.LINE,
        },
    ),
}


def figure_of(name):
    plt.close("all")  # those of the figure before: a folded test draws all figures
    drawn = DRAWN[name]()
    return drawn if hasattr(drawn, "axes") and hasattr(drawn, "savefig") else drawn.figure


@folded("name", DRAWN)
def test_no_two_names_differ_by_color_alone(name):
    assert style.color_only_pairs(figure_of(name)) == []


def ground(text):
    """The color beneath a text: its own box, the picture that it stands on, or the page's white."""
    if text.get_bbox_patch():
        return text.get_bbox_patch().get_facecolor()
    if text.axes and text.axes.images and text in text.axes.texts:
        column, row = (round(place) for place in text.get_position())
        (drawn,) = text.axes.images
        return drawn.to_rgba(drawn.get_array())[row, column]
    return "white"


def pale(fig):
    """The texts of a figure that stand out too little from what is beneath them (WCAG AA: 4.5)"""
    texts = [
        text for text in fig.findobj(plt.Text) if text.get_text().strip() and text.get_visible()
    ]
    return [text.get_text() for text in texts if contrast(text.get_color(), ground(text)) < 4.5]


@folded("name", DRAWN)
def test_every_text_can_be_read(name):
    assert pale(figure_of(name)) == []


def test_a_pale_text_is_seen():
    fig, (left, right) = style.new_figure(ncols=2)
    left.text(0, 0, "on the page", color=style.CLASS_TOKEN)
    left.text(0, 0, "in a box", color="white", bbox={"facecolor": style.KEY})
    right.imshow([[0.0, 1.0]], cmap=style.VALUES)
    right.text(0, 0, "on a dark value", color="white")
    right.text(1, 0, "on a bright value", color="white")
    assert pale(fig) == ["on the page", "in a box", "on a bright value"]


def test_marks_tell_what_colors_tell_where_no_names_stand():
    (ax,) = figure_of("draw_ratios").axes
    marks = {
        (line.get_color(), line.get_marker()) for line in ax.lines if line.get_marker() != "None"
    }
    assert (
        len(marks)
        == len({color for color, _ in marks})
        == len({marker for _, marker in marks})
        == 3
    )


def two_lines(**of_second):
    fig, ax = style.new_figure()
    ax.plot([0, 1], color=style.CLASS_TOKEN, label="one")
    ax.plot([1, 0], **{"color": style.POSITION, "label": "other"} | of_second)
    return fig


def test_lines_are_told_apart_by_dashes_marks_or_shades():
    assert style.color_only_pairs(two_lines()) == [("one", "other")]
    for cue in ({"linestyle": "--"}, {"marker": "o"}, {"color": style.TEXT}, {"label": None}):
        assert style.color_only_pairs(two_lines(**cue)) == []


def test_bars_dots_and_errors_are_told_apart_too():
    kinds = {
        "bar": ({"hatch": "//"}, {}),
        "errorbar": ({"marker": "s"}, {"marker": "o"}),
        "scatter": ({"marker": "s"}, {"marker": "o"}),
        "hist": ({"linestyle": "--"}, {}),
    }
    for kind, styles in kinds.items():
        _, (alike, apart) = style.new_figure(ncols=2)
        for ax, (one, other) in ((alike, (styles[1], styles[1])), (apart, styles)):
            for form, color, name in (
                (one, style.CLASS_TOKEN, "one"),
                (other, style.POSITION, "other"),
            ):
                numbers = [[1, 2]] if kind == "hist" else [[1, 2], [3, 4]]
                extra = {"histtype": "step"} if kind == "hist" else {}
                getattr(ax, kind)(*numbers, color=color, label=name, **form, **extra)
        assert style.color_only_pairs(alike.figure) == [("one", "other")], kind
        plt.close(alike.figure)


def test_a_figure_that_rests_on_color_is_shown_with_a_warning():
    with pytest.warns(UserWarning, match="'one' and 'other' differ only by color"):
        style.picture(two_lines(), "Two lines that cross.")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        style.picture(two_lines(linestyle=":"), "Two lines that cross.")
