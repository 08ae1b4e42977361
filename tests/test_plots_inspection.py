import builtins

import matplotlib.pyplot as plt
import pytest
import torch

from vit_helpers.plots import style
from vit_helpers.plots.explorer import draw_choice, explore, sliders
from vit_helpers.plots.inspection import draw_distances, draw_heads, draw_look


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def image():
    return torch.rand(1, 12, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def maps():
    own = torch.Generator().manual_seed(1)
    return [torch.rand(2, 3, 4, generator=own), torch.rand(2, 3, 4, generator=own) / 10]


def test_a_look_is_drawn_in_its_place_and_its_patch_framed(image, maps):
    ax, drawn = draw_look(image, maps[0], 4, head=1, query=(2, 1))
    heat = drawn.get_array()
    assert heat.shape == (3, 4) and heat[0, 3] == pytest.approx(maps[0][1, 0, 3].item())
    assert drawn.get_clim() == (0, pytest.approx(maps[0].max().item()))
    (box,) = ax.patches
    assert box.get_bbox().bounds == (3.5, 7.5, 4, 4)
    assert not draw_look(image, maps[0], 4, head=0)[0].patches


def test_all_heads_of_all_layers_share_one_scale(image, maps):
    fig = draw_heads(image, maps, 4, notes=[["a", "b"], ["c", "d"]])
    drawn = [ax.images[-1] for ax in fig.axes if ax.images]
    assert len(drawn) == 4 and all(one.get_clim() == (0, pytest.approx(maps[0].max().item())) for one in drawn)
    titles = [ax.get_title(loc="left") or ax.get_title() for ax in fig.axes if ax.images]
    assert titles == ["head 1, entropy a", "head 2, entropy b", "entropy c", "entropy d"]
    words = [text for ax in fig.axes for text in ax.texts]
    assert [text.get_text() for text in words] == ["layer 1", "layer 2"] and all(text.get_visible() for text in words)


def test_a_dot_for_every_head():
    ax = draw_distances(torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.5, 6.0]]))
    dots = [tuple(line.get_xydata()[:, 1]) for line in ax.lines]
    assert dots == [(1, 2), (3, 4), (0.5, 6)] and ax.get_ylim()[0] == 0


def of_layer(maps):
    return lambda layer, query: maps[layer][None]


def test_the_choice_says_what_is_drawn(image, maps):
    fig = draw_choice(image[None], of_layer(maps), 4, layer=1, head=0, query=(0, 2))
    ax = fig.axes[0]
    assert "Layer 2, head 1, asked by the patch (0, 2)" in (ax.get_title(loc="left") or ax.get_title())


def test_without_widgets_one_picture_stands_still(image, maps, monkeypatch):
    own_import = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "ipywidgets":
            raise ImportError(name)
        return own_import(name, *args, **kwargs)

    shown = []
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("IPython.display.display", lambda data, **kwargs: shown.append((data, kwargs)))
    explore(image[None], of_layer(maps), 4, layers=2)
    ((data, kwargs),) = shown
    assert set(data) == {"image/png", "text/plain"} and kwargs["metadata"]["image/png"]["alt"] == data["text/plain"]


def test_the_picture_travels_with_the_sliders(image, maps, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **kwargs: shown.append(data))
    explore(image[None], of_layer(maps), 4, layers=2)
    assert set(shown[-1]) == {"image/png", "text/plain", "application/vnd.jupyter.widget-view+json"}


def test_the_sliders_draw_what_they_say(image, maps, monkeypatch):
    shown = []
    monkeypatch.setattr("vit_helpers.plots.explorer.draw_choice", lambda *args, **kwargs: shown.append((args, kwargs)))
    monkeypatch.setattr(style, "show", lambda fig, alt: None)
    box = sliders(image[None], of_layer(maps), 4, layers=2)
    box.update()
    assert shown[-1][0][3:] == (0, 1, 0, None)
    values = {child.description: child for child in box.children if hasattr(child, "description")}
    values["class token asks"].value = False
    values["row"].value, values["col"].value, values["head"].value = 2, 3, 2
    box.update()
    assert shown[-1][0][3:] == (0, 1, 1, (1, 2))
    assert (values["layer"].max, values["head"].max, values["row"].max, values["col"].max) == (2, 2, 3, 4)
