"""The drawing kit: its functions stand in one file, and draw in the units of axes and of figures."""

import ast
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from torch import Tensor

from vit_helpers import plots
from vit_helpers.plots import canvas, style

FOLDER = Path(plots.__file__).parent


def functions(path):
    """The names of a module's functions"""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_other_module_has_a_function_of_the_kit():
    kit = functions(FOLDER / "canvas.py")
    assert {"new_canvas", "draw_table", "frame", "arrow", "write", "short", "product"} <= kit
    others = [path for path in FOLDER.glob("*.py") if path.stem != "canvas"]
    assert {path.name: found for path in others if (found := functions(path) & kit)} == {}


def test_no_drawing_asks_pyplot():
    users = [path.name for path in FOLDER.glob("*.py") if "pyplot" in path.read_text("utf-8")]
    assert users == ["style.py"]  # which closes figures that a reader made with pyplot


@pytest.mark.parametrize("whole", [True, False])
def test_arrows_and_texts_have_the_units_of_what_they_are_drawn_on(whole):
    fig = style.blank_figure(4, 2)
    ax = fig.add_axes((0, 0, 1, 1), xlim=(0, 10), ylim=(10, 0))
    target, scale = (fig, 0.1) if whole else (ax, 1)
    drawn = canvas.arrow(target, (2 * scale, 4 * scale), (6 * scale, 4 * scale), linewidth=3)
    canvas.write(target, 5 * scale, 5 * scale, "middle", weight="bold")
    height = 0.4 if whole else 0.6  # of axes whose first row is on top
    start, end = drawn.get_path().vertices[[0, -1]]
    inside = drawn.get_transform().transform([start, end]) / fig.bbox.size
    assert inside == pytest.approx([[0.2, height], [0.6, height]], abs=0.06)
    assert drawn.get_linewidth() == 3 and isinstance(drawn, FancyArrowPatch)
    (text,) = target.texts
    assert (text.get_text(), text.get_weight(), text.get_ha()) == ("middle", "bold", "center")
    assert isinstance(fig, Figure) and drawn in target.get_children()


def test_a_table_has_a_cell_for_each_number():
    fig, ax = canvas.new_canvas(8, "A title")
    canvas.draw_table(ax, (2, 3), Tensor([[1, 0.5], [-2, 0.25]]), style.KEY, "name", "(2, 2)")
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["A title", "1", "0.50", "-2", "0.25", "name", "(2, 2)"]
    assert to_hex(ax.patches[-1].get_edgecolor()).upper() == style.KEY  # the frame
    assert fig.get_size_inches().tolist() == pytest.approx([9, 9 * 8 / canvas.COLUMNS])


def test_a_tint_is_between_white_and_the_color():
    assert canvas.tint("black", 0) == [1, 1, 1] and canvas.tint("black", 1) == [0, 0, 0]
    assert canvas.tint("red", 0.25) == pytest.approx([1, 0.75, 0.75])
