"""The figure object: it shows itself once, as a cell's last line, and leaves nothing behind."""

import base64
import copy
import gc
import io
import os
import pickle
import weakref
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
import torch
from nbclient import NotebookClient
from PIL import Image

from vit_helpers.plots import style
from vit_helpers.plots.figure import Picture

TEXT = "A line that rises."
ALT = "A line that rises from 0 to 3."
CELLS = {
    "setup": """
import gc, weakref
import matplotlib.pyplot as plt
from vit_helpers.plots import style
from vit_helpers.plots.figure import Picture

figures = []

def draw_line(top):
    fig, ax = style.new_figure(4, 3)
    ax.plot([0, top])
    figures.append(weakref.ref(fig))
    return Picture(fig, "A line that rises.", f"A line that rises from 0 to {top}.")
""",
    "last line": "draw_line(3)",
    "another number": "draw_line(4)",
    "assigned": "picture = draw_line(3)",
    "in the middle": "display(picture)\nprint('after it')",
    "silenced": "draw_line(3);",
    "open figures": "print(plt.get_fignums())",
    "not freed": (
        "del picture\ncollected = gc.collect()\nprint(sum(ref() is not None for ref in figures))"
    ),
}


@pytest.fixture(scope="module")
def outputs():
    """What each cell of a notebook shows, by its name"""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS.values()])
    env = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    root = str(Path(__file__).parents[2])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, env.get("PYTHONPATH")]))
    NotebookClient(book, timeout=120, kernel_name="python3", coalesce_streams=True).execute(env=env)
    return dict(zip(CELLS, (cell.outputs for cell in book.cells), strict=True))


def png_of(output):
    return Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))


def test_the_last_line_of_a_cell_shows_it_once(outputs):
    (output,) = outputs["last line"]
    assert output.output_type == "execute_result"
    assert output.data.keys() == {"image/png", "text/plain"}
    assert png_of(output).size == (4 * style.DOTS, 3 * style.DOTS)
    assert png_of(output).mode == "P"  # indexed


def test_an_assigned_figure_shows_nothing_until_it_is_displayed(outputs):
    assert outputs["assigned"] == [] and outputs["silenced"] == []
    shown, printed = outputs["in the middle"]
    assert shown.output_type == "display_data" and printed.text == "after it\n"
    assert shown.data == outputs["last line"][0].data
    assert shown.metadata == outputs["last line"][0].metadata


def test_nbval_compares_a_text_without_numbers_and_screen_readers_get_them(outputs):
    (three,), (four,) = outputs["last line"], outputs["another number"]
    assert three.data["text/plain"] == four.data["text/plain"] == TEXT
    assert three.data["image/png"] != four.data["image/png"]
    assert three.metadata == {"image/png": {"alt": ALT, "width": 400}}
    assert four.metadata["image/png"]["alt"] == "A line that rises from 0 to 4."


def test_no_figure_stays_open_or_in_memory(outputs):
    """IPython's `Out` keeps the objects that were shown, so they must let go of their figures."""
    assert outputs["open figures"][0].text == "[]\n"
    assert outputs["not freed"][0].text == "0\n"


def line(text=TEXT, alt=ALT):
    fig, ax = style.new_figure(4, 3)
    ax.plot([0, 3])
    return Picture(fig, text, alt)


def test_it_can_be_changed_until_it_is_shown():
    picture = line()
    picture.figure.axes[0].set_title("changed")
    figure, before = weakref.ref(picture.figure), picture.image
    shown = picture._repr_mimebundle_()
    assert picture.image == before and picture._repr_mimebundle_() == shown  # the same again
    assert before.data == base64.b64decode(shown[0]["image/png"])
    assert before.data != line().image.data
    gc.collect()
    assert figure() is None
    with pytest.raises(RuntimeError, match="shown and then freed: draw it again"):
        _ = picture.figure
    assert not plt.get_fignums()


def test_a_copy_leaves_the_original_as_it_is():
    picture = line()
    again = copy.copy(picture)
    picture.figure.axes[0].set_title("changed")
    assert picture.image != again.image
    with pytest.raises(RuntimeError, match="draw it again"):
        _ = again.figure


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda picture: pickle.loads(pickle.dumps(picture))]
)
def test_copies_show_the_same(duplicate):
    picture = line()
    again = duplicate(picture)
    assert again._repr_mimebundle_() == line()._repr_mimebundle_()
    assert picture._repr_mimebundle_() == again._repr_mimebundle_()
    assert duplicate(again)._repr_mimebundle_() == again._repr_mimebundle_()


def test_photos_are_stored_as_jpeg():
    fig, ax = style.new_figure(5, 4)
    ax.imshow(torch.rand(400, 400, 3, generator=torch.Generator().manual_seed(0)))
    data, metadata = Picture(fig, "Noise in three colors.")._repr_mimebundle_()
    assert data.keys() == {"image/jpeg", "text/plain"}
    assert metadata == {"image/jpeg": {"alt": "Noise in three colors.", "width": 500}}
    assert base64.b64decode(data["image/jpeg"]).startswith(b"\xff\xd8\xff")


def test_series_that_differ_only_by_color_are_reported():
    fig, ax = style.new_figure(4, 3)
    for shift, color in enumerate((style.QUERY, style.CLASS_TOKEN)):
        ax.plot([0, 1 + shift], color=color, label=f"series {shift}")
    with pytest.warns(UserWarning, match="'series 0' and 'series 1' differ only by color"):
        Picture(fig, TEXT)._repr_mimebundle_()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is '': wanted is one line that ends with a period"),
        ("A line", "the text is 'A line': wanted is one line"),
        ("A line.\nAnother line.", "wanted is one line"),
        ("A line from 0 to 3.5.", "has the numbers 0, 3.5: .* numbers belong into alt"),
        ("An accuracy of .97 and 12%.", "has the numbers 97, 12:"),
    ],
)
def test_texts_that_are_missing_or_have_numbers_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        line(text)


def test_names_may_have_digits():
    for text in ("DINOv2 beside ViT-B/16 on CIFAR-10.", "The width d against T² in notebooks."):
        assert repr(line(text)) == text


def test_blank_alt_text_is_refused():
    for alt in ("", "  \n"):
        with pytest.raises(ValueError, match="needs alt text that says what it shows"):
            line(alt=alt)
    assert line(alt=None).alt == TEXT


def test_pages_that_give_their_own_alt_text_can_show_it():
    image, metadata = style.picture(line(), "Something else.")
    assert image.data == line().image.data
    assert metadata == {"image/png": {"alt": "Something else.", "width": 400}}
