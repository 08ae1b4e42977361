"""What leaves a figure or a bar, or touches, is named, and nothing else."""

import pytest

from vit_helpers.plots import style
from vit_helpers.plots.overflow import overflow_faults


def panels(count=2):
    fig = style.blank_figure(6, 3)
    return fig, fig.subplots(ncols=count)


def test_a_figure_that_fits_has_no_fault():
    fig, axes = style.new_figure(6, 3, ncols=2)
    for ax in axes:
        ax.barh([0, 0], [3, 2], left=[0, 3])
        style.write_on(ax, 1.5, 0, "A", "white")
        style.style_axes(ax, "A title", "axis", "other axis")
    assert overflow_faults(fig) == []


@pytest.mark.parametrize(
    ("x", "y", "says"), [(0.95, 0.5, "wider"), (0.01, 0.5, "wider"), (0.5, 1.0, "higher")]
)
def test_a_text_that_leaves_the_canvas_is_named(x, y, says):
    fig, _ = panels(1)
    text = fig.text(x, y, "a long text", ha="center")
    assert overflow_faults(fig) == [f"'a long text' is {says} than the canvas leaves room for"]
    text.set_visible(False)
    assert overflow_faults(fig) == []


def test_every_kind_of_text_is_looked_at():
    def title(ax):
        ax.set_title("T" * 60, loc="left")

    def label(ax):
        ax.set_xlabel("T" * 120)

    def tick(ax):
        ax.set_xticks([1.0], ["T" * 60])
        ax.set_xlim(0, 1)

    def legend(ax):
        ax.plot([0, 1], label="T" * 60)
        ax.legend(loc="upper left")

    def annotation(ax):
        ax.annotate("T" * 60, (0.5, 0.5))

    for draw in (title, label, tick, legend, annotation):
        fig, ax = panels(1)
        ax.set_position((0.5, 0.2, 0.4, 0.6))
        draw(ax)
        assert "is wider than the canvas leaves room for" in " ".join(overflow_faults(fig)), draw
        ax.set_visible(False)
        assert overflow_faults(fig) == [], draw


def test_a_figure_that_was_saved_is_measured_as_it_is():
    fig, ax = style.new_figure(6, 3)
    ax.plot([0, 1], label="a line")
    ax.legend()
    style.drawn(fig, "png")  # at another resolution, at which the legend remembers its place
    assert overflow_faults(fig) == []


def test_an_arrow_may_begin_anywhere_and_a_label_of_a_hidden_axis_is_not_drawn():
    fig, ax = panels(1)
    ax.annotate("A", (0.5, 0.5), (0.6, 0.6), arrowprops={"arrowstyle": "->"}, annotation_clip=False)
    ax.set_xlabel("T" * 200)
    ax.set_axis_off()
    assert overflow_faults(fig) == []


def test_ticks_outside_of_the_limits_are_not_drawn():
    fig, ax = panels(1)
    ax.set_xticks([0, 1, 9], ["0", "1", "9"])
    ax.set_xlim(0, 1)
    assert overflow_faults(fig) == []


@pytest.mark.parametrize(("width", "count"), [(10, 0), (0.5, 1)])
def test_a_label_wider_than_its_bar_is_named(width, count):
    fig, ax = panels(1)
    ax.barh([0, 1], [width, 8])
    ax.set_xlim(0, 10)
    style.write_on(ax, width / 2, 0, "a label", "white")
    assert overflow_faults(fig) == count * ["'a label' is wider than its bar"]


def test_a_label_beside_its_bar_may_be_long():
    fig, ax = panels(1)
    ax.barh([0], [1])
    ax.set_xlim(0, 10)
    ax.text(1.1, 0, "a label", va="center")
    assert overflow_faults(fig) == []


def test_tick_labels_of_two_panels_that_touch_are_named():
    fig, (left, right) = panels()
    left.set_position((0.1, 0.2, 0.4, 0.6))
    right.set_position((0.52, 0.2, 0.4, 0.6))
    for ax in (left, right):
        ax.set_yticks([])
        ax.set_xticks([0, 1], ["from", "until"])
        ax.set_xlim(0, 1)
    assert overflow_faults(fig) == ["the tick labels 'until' and 'from' of two panels touch"]
    right.set_position((0.7, 0.2, 0.2, 0.6))
    assert overflow_faults(fig) == []


def test_tick_labels_of_one_axis_that_touch_are_named():
    fig, (left, right) = panels()
    right.set_axis_off()
    left.set_xticks([0, 0.01, 1], ["first", "second", "third"])
    assert overflow_faults(fig) == ["the tick labels 'first' and 'second' of one axis touch"]
    left.set_xticks([0, 0.5, 1], ["first", "second", "third"])
    assert overflow_faults(fig) == []


def test_a_faulty_figure_warns_when_it_is_shown():
    fig = style.blank_figure(4, 2)
    fig.text(0.5, 0.5, "T" * 100)
    with pytest.warns(UserWarning, match="is wider than the canvas leaves room for"):
        style.encode(fig)
