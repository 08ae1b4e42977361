"""The map of the ViT: it can be read, its colors say where the reader is, its numbers are right."""

from functools import cache
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.transforms import Bbox

from tests.plots.test_palette import contrast
from vit_helpers.plots import start_here_map, style
from vit_helpers.plots.start_here_map import PARTS, draw_overview

ALL = pytest.mark.parametrize("here", [*PARTS, None])
ROLES = {  # where a role's color may be used
    style.CLASS_TOKEN: {"tokens", "output", "head"},
    style.PATCH: {"image", "patches", "tokens", "output", "head"},
    style.POSITION: {"tokens"},
    style.QUERY: {"head", "dot product"},
    style.KEY: {"head", "dot product"},
    style.VALUE: {"head"},
}


@cache
def drawn(here=None):
    """A figure that no test changes"""
    fig = draw_overview(here).figure
    fig.draw_without_rendering()
    return fig


def texts(fig):
    (ax,) = fig.axes
    return list(ax.texts)


def extent(text):
    """What a text covers, with the box behind it"""
    return (text.get_bbox_patch() or text).get_window_extent()


def overlaps(fig):
    pairs = combinations(texts(fig), 2)
    return [(a.get_text(), b.get_text()) for a, b in pairs if extent(a).overlaps(extent(b))]


def outside(fig):
    """Texts closer than 2 points to an edge of the figure, or beyond it"""
    x0, y0, x1, y1 = fig.bbox.padded(-2 * fig.dpi / 72).extents
    boxes = [(text.get_text(), extent(text)) for text in texts(fig)]
    return [
        words for words, box in boxes if box.x0 < x0 or box.y0 < y0 or box.x1 > x1 or box.y1 > y1
    ]


def crossing(fig):
    """Texts that the edge of a box or of an inset runs through"""
    (ax,) = fig.axes
    frames = [ax.transData.transform_bbox(Bbox.from_bounds(*at)) for at in rectangles()]
    crossed = []
    for text in texts(fig):
        box = extent(text)
        inside = [
            f.x0 <= box.x0 and box.x1 <= f.x1 and f.y0 <= box.y0 and box.y1 <= f.y1 for f in frames
        ]
        crossed += [
            text.get_text()
            for f, within in zip(frames, inside, strict=True)
            if f.overlaps(box) and not within
        ]
    return crossed


def rectangles():
    return [
        *(frame for frame, _ in start_here_map.INSETS.values()),
        *(box[1:5] for box in start_here_map.BOXES),
    ]


def colors(artist):
    """The colors of an artist that are seen"""
    if isinstance(artist, Patch):
        found = [artist.get_facecolor()] if artist.get_fill() else []
        return [*found, artist.get_edgecolor()] if artist.get_linewidth() else found
    box = artist.get_bbox_patch() if isinstance(artist, plt.Text) else None
    return [to_rgba(artist.get_color()), *(colors(box) if box else [])]


def colorful(color):
    """Whether a color is more than a gray"""
    return color[3] > 0 and max(color[:3]) - min(color[:3]) > 0.02


def artists(fig):
    (ax,) = fig.axes
    return [
        one
        for one in ax.get_children()
        if isinstance(one, Patch | Line2D | plt.Text) and one.get_gid()
    ]


def parts_in_color(fig):
    return {one.get_gid() for one in artists(fig) if any(map(colorful, colors(one)))}


@ALL
def test_no_text_lies_on_another_or_on_an_edge(here):
    fig = drawn(here)
    assert overlaps(fig) == [] and outside(fig) == [] and crossing(fig) == []


def test_a_misplaced_text_is_seen():
    fig = draw_overview("model").figure
    image, patches, *_ = [text for text in texts(fig) if text.get_text() in ("image", "patches")]
    patches.set_x(image.get_position()[0] + 30)
    fig.draw_without_rendering()
    assert overlaps(fig) == [("image", "patches")]
    image.set_position((5, 405))
    fig.draw_without_rendering()
    assert outside(fig) == ["image"]
    image.set_position((302, 115))  # the right edge of the first inset
    fig.draw_without_rendering()
    assert crossing(fig) == ["image"]


@ALL
def test_the_figure_fits_the_page_and_its_text_is_large_enough(here):
    fig = drawn(here)
    width, height = fig.get_size_inches()
    assert width == 9 and height <= 4.6 and to_hex(fig.get_facecolor()) == "#ffffff"
    assert min(text.get_fontsize() for text in texts(fig)) >= 11


@pytest.mark.parametrize("here", PARTS)
def test_only_the_parts_of_the_notebook_are_in_color(here):
    fig = drawn(here)
    # the title is text alone
    assert parts_in_color(fig) == (PARTS[here] | {"tag"}) - {"model title"}
    for text in texts(fig):
        if text.get_gid() not in (*PARTS[here], "tag"):
            assert text.get_color() == start_here_map.QUIET, text.get_text()
    inked = {text.get_gid() for text in texts(fig) if text.get_color() == style.TEXT}
    assert inked == PARTS[here]


def test_what_each_notebook_treats():
    assert PARTS["model"] == frozenset().union(*PARTS.values())
    assert PARTS["patches"] | PARTS["embeddings"] < PARTS["vit"]
    assert PARTS["attention"] & PARTS["encoder"] == {"attention"}
    assert PARTS["vit"] & PARTS["encoder"] == {"blocks"}


def test_without_a_place_everything_is_in_color():
    fig = drawn()
    assert parts_in_color(fig) == parts_in_color(drawn("model")) - {"tag"}
    assert "you are here" not in [text.get_text() for text in texts(fig)]


@pytest.mark.parametrize("here", PARTS)
def test_colors_of_roles_are_used_for_these_roles_alone(here):
    for one in artists(drawn(here)):
        for color in colors(one):
            assert one.get_gid() in ROLES.get(to_hex(color).upper(), {one.get_gid()})


@cache
def grounds(ax):
    """The filled shapes of a figure, with what they cover at most"""
    filled = [p for p in ax.patches if p.get_fill() and not isinstance(p, FancyArrowPatch)]
    return [(patch, patch.get_window_extent()) for patch in filled]


def ground(text):
    """The color beneath the middle of a text"""
    if text.get_bbox_patch():
        return text.get_bbox_patch().get_facecolor()
    box = extent(text)
    middle = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
    beneath = [
        p for p, reach in grounds(text.axes) if reach.contains(*middle) and p.contains_point(middle)
    ]
    return max(beneath, key=lambda p: p.get_zorder()).get_facecolor() if beneath else "white"


@ALL
def test_every_text_stands_out_from_its_ground(here):
    fig = drawn(here)
    assert [
        text.get_text()
        for text in texts(fig)
        if contrast(to_hex(text.get_color()), to_hex(ground(text))) < 4.5
    ] == []


def row(fig, low, high):
    """The texts between two heights, from left to right"""
    found = [(text.get_position(), text.get_text()) for text in texts(fig)]
    return [words for (_, y), words in sorted(found) if low < y < high]


def test_shapes_follow_each_other_along_the_model():
    assert row(drawn(), 270, 282) == ["(C, H, W)", "(N, C·P·P)", "(T, D)", "(T, D)", "(K)"]


def test_the_dot_product_is_the_framed_score():
    words = [text.get_text() for text in texts(drawn()) if text.get_gid() == "dot product"]
    query, key = words[words.index("query") + 1 :][:4], words[words.index("key") + 1 :][:4]
    product = np.dot([int(n) for n in query], [int(n) for n in key])
    assert (query, key) == (["1"] * 4, ["1", "1", "0", "0"])  # sky and roof in notebook 03
    assert words[-1] == f"= {product}" and start_here_map.SCORES[1][3] == product
    assert row(drawn(), 102, 104) == ["1", "+", "1", "+", "0", "+", "0", "= 2"]


def test_every_inset_starts_where_its_part_is():
    """The wedge's first edge lies on what it enlarges: block 1, attention box, framed score."""
    (ax,) = drawn().axes
    wedges = [patch.get_xy() for patch in ax.patches if patch.get_gid() == "wedge"]
    boxes = {words: box for _, *box, words in start_here_map.BOXES}
    left, bottom, width, _ = boxes["1"]
    assert wedges[0][:2].tolist() == [[left, bottom], [left + width, bottom]]
    frames = [patch for patch in ax.patches if patch.get_gid() == "head" and not patch.get_fill()]
    score = min(
        (frame for frame in frames if frame.get_width() == 9), key=lambda frame: frame.get_x()
    )
    assert wedges[2][:2].tolist() == [
        [score.get_x() + 9, score.get_y() + 9],
        [score.get_x() + 9, score.get_y()],
    ]
    for wedge, (x, y, across, up) in zip(
        wedges, (frame for frame, _ in start_here_map.INSETS.values()), strict=True
    ):
        corners = {(x, y), (x + across, y), (x + across, y + up), (x, y + up)}
        assert len({tuple(point) for point in wedge[2:4].tolist()} & corners) == 2


@pytest.mark.parametrize("name", ["", "Model", "03"])
def test_another_name_is_an_error(name):
    with pytest.raises(
        ValueError, match=f"here is '{name}'; allowed are 'model', 'patches', .* 'vit' and None"
    ):
        draw_overview(name)
    assert plt.get_fignums() == []
