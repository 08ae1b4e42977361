"""The drawing kit: its functions stand in one file, and draw in units of axes and of figures."""

import ast
import json
import re
from itertools import chain
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
    modules = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.py")}
    users = [name for name, code in modules.items() if "import matplotlib.pyplot" in code]
    assert users == ["style.py"]  # which closes figures that a reader made with pyplot


@pytest.mark.parametrize("whole", [True, False])
def test_arrows_and_texts_have_the_units_of_what_they_are_drawn_on(whole):
    fig = style.blank_figure(4, 2)
    ax = fig.add_axes((0, 0, 1, 1), xlim=(0, 10), ylim=(10, 0))
    target, scale = (fig, 0.1) if whole else (ax, 1)
    drawn = canvas.arrow(target, (2 * scale, 4 * scale), (6 * scale, 4 * scale), linewidth=3)
    canvas.write(target, 5 * scale, 5 * scale, "middle", weight="bold")
    height = 0.4 if whole else 0.6  # of axes whose first row is on top
    box = drawn.get_window_extent()
    assert (box.x0 / fig.bbox.width, box.x1 / fig.bbox.width) == pytest.approx((0.2, 0.6), abs=0.02)
    assert (box.y0 + box.y1) / 2 / fig.bbox.height == pytest.approx(height, abs=0.02)
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


def imported_plots(number):
    """The modules of the folder that the page with this number imports, or its further page"""
    notebooks = FOLDER.parents[1] / "notebooks"
    paths = [*notebooks.glob(f"{number}_*.ipynb"), *notebooks.glob(f"further/{number}_*.ipynb")]
    cells = [
        cell for path in paths for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
    ]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    by_name = re.findall(r"from vit_helpers\.plots\.(\w+) import", code)
    return {*by_name, *re.findall(r"from vit_helpers\.plots import (\w+)", code)}


def test_the_docstring_of_the_folder_names_every_module_and_its_notebook():
    shared = re.findall(r"^([a-z]+) +: ", plots.__doc__, re.M)
    numbered = {
        number: [words.split()[0] for words in names.split(", ")]
        for number, names in re.findall(r"^(\d\d) (.+)$", plots.__doc__, re.M)
    }
    named = [*shared, *chain.from_iterable(numbered.values())]
    assert sorted(named) == sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))
    for number, names in numbered.items():
        assert {name.split("_")[0] for name in names} == {names[0].split("_")[0]}, number
        assert set(names) <= imported_plots(number), number
