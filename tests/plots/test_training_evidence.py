"""Figures of what was measured for notebook 07: seeds, intervals, mistakes and fixes."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
from figures import fits

from vit_helpers.plots import training_evidence


def texts(picture):
    return [text.get_text() for text in picture.figure.findobj(plt.Text) if text.get_text()]


def test_spectra_have_a_logarithmic_scale_and_names_at_their_lines():
    spectra = {"gradient": torch.tensor([1.0, 0.1]), "step": torch.tensor([1.0, 0.9])}
    picture = training_evidence.draw_spectra(spectra)
    (ax,) = picture.figure.axes
    assert ax.get_yscale() == "log" and list(ax.lines[0].get_xdata()) == [1, 2]
    assert {*spectra} <= {*texts(picture)} and fits(picture)


def test_the_most_frequent_mistake_is_in_the_title():
    counts = torch.tensor([[8, 1, 0], [3, 7, 0], [0, 2, 9]])
    picture = training_evidence.draw_mistakes(counts, ["a", "b", "c"])
    assert "Most frequent mistake: b classified as a" in texts(picture)
    assert "3 of the 6 mistakes" in picture.alt and fits(picture)


def test_hard_digits_are_shown_smooth_and_as_pixels():
    picture = training_evidence.draw_hardest(torch.rand(2, 1, 8, 8), [3, 4], [5, 6])
    top, bottom = picture.figure.axes[:2], picture.figure.axes[2:]
    assert [ax.images[0].get_interpolation() for ax in top] == ["bicubic"] * 2
    assert "bicubic" not in {ax.images[0].get_interpolation() for ax in bottom}
    assert {"label 3", "label 4", "says 5", "says 6"} <= {*texts(picture)} and fits(picture)


def test_each_calibrated_model_has_a_panel_with_its_mean_gap():
    models = {name: (torch.full((40,), 0.9), torch.ones(40)) for name in ("one", "other")}
    picture = training_evidence.draw_calibrations(models, groups=4)
    assert [ax.get_title(loc="left") for ax in picture.figure.axes] == ["one", "other"]
    assert "one: accuracy less confidence +0.10 on average" in picture.alt and fits(picture)


def test_accuracies_by_size_are_means_and_seeds():
    series = {"CNN": {500: [0.7, 0.9], 5000: [0.9]}, "ViT": {500: [0.6], 5000: [0.7]}}
    picture = training_evidence.draw_by_size(series)
    (ax,) = picture.figure.axes
    assert list(ax.lines[0].get_ydata()) == pytest.approx([0.8, 0.9])
    assert ax.get_xscale() == "log" and {"CNN", "ViT", "500", "5k"} <= {*texts(picture)}
    assert fits(picture)


def test_intervals_that_do_not_cover_other_seeds_are_dotted():
    leads = {"one": {500: (2, 1, 3), 5000: (3, 2, 4)}, "other": {500: (1, 0.5, 1.5)}}
    picture = training_evidence.draw_cnn_lead(leads, images_only=[5000])
    bars = [line for line in picture.figure.axes[0].lines[1:] if len(line.get_ydata()) == 2]
    assert [list(bar.get_ydata()) for bar in bars] == [[1, 3], [2, 4], [0.5, 1.5]]
    assert [bar.get_linestyle() for bar in bars] == ["-", ":", "-"]
    first, other = picture.figure.axes[0].lines[2], picture.figure.axes[0].lines[6]
    assert first.get_markerfacecolor() != "white" == other.get_markerfacecolor()


def test_fixes_are_drawn_from_the_best():
    fixes = pd.DataFrame(
        {"difference": [0.1, 0.5], "low": [0.0, 0.4], "high": [0.2, 0.6]}, index=["a", "b"]
    )
    picture = training_evidence.draw_fixes(fixes, "a title")
    (ax,) = picture.figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b", "a"]
    assert list(ax.lines[1].get_xdata()) == pytest.approx([40, 60])
    assert {"+50.0", "+10.0", "a title"} <= {*texts(picture)} and fits(picture)


def test_lines_of_an_interaction_have_the_means_and_intervals_of_each_level():
    points = {"AdamW": [(0.8, 0.7, 0.9), (0.9, 0.8, 1.0)], "L2": [(0.1, 0.0, 0.2), (0.6, 0.5, 0.7)]}
    picture = training_evidence.draw_interaction({"digits": points}, ["all", "matrices"], [0.95])
    (ax,) = picture.figure.axes
    dotted, line, *_ = ax.lines
    assert set(dotted.get_ydata()) == {0.95} and list(line.get_ydata()) == [0.8, 0.9]
    assert {"AdamW", "L2", "no decay", "digits"} <= {*texts(picture)} and fits(picture)
    assert "digits: AdamW 0.80 to 0.90, L2 0.10 to 0.60" in picture.alt
