import matplotlib.pyplot as plt
import pytest
import torch
from test_localization import table

from vit_helpers.plots import style
from vit_helpers.plots.explorer import draw_choice, draw_reading, tell_choice
from vit_helpers.plots.inspection import (
    TOP,
    draw_depth,
    draw_differences,
    draw_distances,
    draw_heads,
    draw_maps,
    draw_row_as_map,
    draw_scaled_heads,
    draw_scores,
)
from vit_helpers.plots.inspection_photos import draw_photos
from vit_helpers.results.localization import RIVALS, SCORES, compare_methods, summarize_scores


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


def areas(ax):
    """Of the squares on the patches, as fractions of a patch of 4 x 4 pixels"""
    return [patch.get_width() * patch.get_height() / 16 for patch in ax.patches if patch.get_fill()]


def test_all_heads_of_all_blocks_share_one_scale(image, maps):
    fig = draw_heads(image, maps, 4, notes=[["a", "b"], ["c", "d"]])
    top = maps[0].max().item()
    drawn = [areas(ax) for ax in fig.axes]
    assert drawn == [
        pytest.approx([x / top for x in head.flatten().tolist()])
        for block in maps
        for head in block
    ]
    titles = [ax.get_title(loc="left") for ax in fig.axes]
    assert titles == ["head 1, a", "head 2, b", "c", "d"]
    words = [text for ax in fig.axes for text in ax.texts]
    assert [text.get_text() for text in words] == ["block 1", "block 2"] and all(
        text.get_visible() for text in words
    )


def test_the_map_of_the_opening_is_row_0_without_its_first_weight(image):
    weights = torch.rand(13, 13, generator=torch.Generator().manual_seed(2)) / 5
    fig = draw_row_as_map(image, weights, (3, 4), top=0.3)
    strip, folded, matrix = fig.axes[:3]
    assert torch.equal(torch.as_tensor(matrix.images[0].get_array()), weights)
    assert torch.equal(torch.as_tensor(strip.images[0].get_array()), weights[:1])
    assert areas(folded) == pytest.approx((weights[0, 1:] / 0.3).tolist(), rel=1e-5)
    assert [text.get_text() for text in folded.texts] == ["1 to 4", "5 to 8", "9 to 12"]


def test_maps_are_drawn_with_the_frames_of_their_objects(image):
    shares = {"one": torch.full((2, 3, 4), 1 / 12), "two": torch.rand(2, 3, 4)}
    boxes = torch.tensor([[1, 2, 6, 6], [4, 4, 8, 8]])
    fig = draw_maps(torch.stack([image, image]), shares, boxes, ["a", "b"], top=0.5, name="share")
    assert len(fig.axes) == 4 and areas(fig.axes[0]) == pytest.approx([1 / 6] * 12)
    frame = [patch for patch in fig.axes[3].patches if not patch.get_fill()]
    assert [one.get_bbox().bounds for one in frame] == [(3.5, 3.5, 8, 8)]
    assert [ax.get_title() for ax in fig.axes] == ["a", "b", "", ""]


def test_a_numbered_circle_for_every_head():
    ax = draw_distances(torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.5, 6.0]]))
    heights = [line.get_ydata()[0] for line in ax.lines]
    assert heights == pytest.approx([1, 2, 3, 4, 0.5, 6]) and ax.get_ylim()[0] == 0
    assert [text.get_text() for text in ax.texts] == ["1", "2"] * 3


NAMES = {"inside": "fraction inside", "pointing_game": "pointing game", "rank": "rank score"}


def test_scores_are_dots_and_a_rival_is_a_line():
    summary = summarize_scores(table())
    fig = draw_scores(summary, NAMES, RIVALS[-1])
    assert [ax.get_title(loc="left") for ax in fig.axes] == list(NAMES.values())
    for ax, score in zip(fig.axes, NAMES, strict=True):
        dots = {line.get_label(): list(line.get_xdata()) for line in ax.lines}
        for kind in ("trained", "untrained"):
            assert dots[f"{kind} models"] == pytest.approx(
                summary.loc[(score, kind, "rollout"), "each"]
            )
        means = [summary.loc[(score, "none", rival), "mean"] for rival in RIVALS]
        assert dots["no model"] == pytest.approx(means)
        assert dots["no model: ink, blurred"] == pytest.approx(2 * means[-1:])
    said = [text.get_text() for text in fig.legends[0].get_texts()]
    wanted = {
        "trained models",
        "untrained models",
        "95% interval, trained",
        "no model",
        "no model: ink, blurred",
    }
    assert set(said) == wanted


def test_differences_have_their_intervals_on_the_scale():
    compared = compare_methods(table(gain=0.1))
    left, right = draw_differences(
        compared, {score: NAMES[score] for score in SCORES}, RIVALS, limit=0.5
    ).axes
    for ax, score in ((left, "pointing_game"), (right, "rank")):
        spans = [tuple(line.get_xdata()) for line in ax.lines[1:] if len(line.get_xdata()) == 2]
        wanted = [
            tuple(compared.loc[(rival, score, "rollout"), ["low", "high"]]) for rival in RIVALS
        ]
        assert spans == [pytest.approx(one) for one in wanted]
    for line in (line for line in left.lines if len(line.get_xdata()) == 1):
        rival = next(
            one
            for one in RIVALS
            if compared.loc[(one, "pointing_game", "rollout"), "mean"] == line.get_xdata()[0]
        )
        significant = compared.loc[(rival, "pointing_game", "rollout"), "holm"] < 0.05
        assert (line.get_markerfacecolor() == line.get_color()) == significant
    off = draw_differences(
        compare_methods(table(gain=0.4)), {"rank": "rank"}, RIVALS, limit=0.1
    ).axes[0]
    assert len(off.texts) == 3  # off the scale: a number at its edge


def test_depth_and_scaled_heads_show_their_numbers(image):
    shares = {"class token": [0.2, 0.9], "patches": [0.3, 0.5]}
    left, _, right = draw_depth(image, torch.tensor([[0.25, 0.75], [0.0, 1.0]]), "ab", shares).axes
    assert [list(line.get_ydata()) for line in left.lines] == list(shares.values())
    assert [text.get_text() for text in right.texts] == ["25", "75", "0", "100"]
    assert [line.get_color() for line in left.lines] == [style.CLASS_TOKEN, style.PATCH]
    scales = {"own": torch.rand(2, 3, 4), "one": torch.rand(2, 3, 4)}
    seen, *own, empty, first, second = draw_scaled_heads(image, scales, [1, 0.5], ["a", "b"]).axes[
        :6
    ]
    assert len(seen.images) == 1 and not empty.images
    assert [ax.images[0].get_clim() for ax in (*own, first, second)] == [(0, 1)] * 2 + [
        (0, 0.5)
    ] * 2
    maps = [torch.tensor(ax.images[0].get_array()) for ax in (*own, first, second)]
    torch.testing.assert_close(maps, [*scales["own"], *scales["one"]])


def of_block(maps):
    return lambda block, query: maps[block][None]


def test_the_choice_says_what_is_drawn(image, maps):
    fig = draw_choice(torch.stack([image, image]), of_block(maps), 4, block=1, head=0, query=(0, 2))
    titles = [ax.get_title(loc="left") for ax in fig.axes]
    assert "Block 2, head 1\nquery: patch (0, 2)" in titles and {
        "images",
        "head 1",
        "head 2",
    } < set(titles)
    large = fig.axes[titles.index("Block 2, head 1\nquery: patch (0, 2)")]
    assert areas(large) == pytest.approx(
        [min(x / TOP, 1) for x in maps[1][0].flatten().tolist()], rel=1e-4
    )


def test_the_alt_text_of_one_map_tells_its_largest_weight(image, maps):
    weights = maps[1][0]
    row, col = divmod(weights.argmax().item(), weights.shape[1])
    said = tell_choice(of_block(maps), block=1)
    patch = f"the patch in row {row + 1}, column {col + 1}"
    assert f"the largest weight, {weights.max():.2f}, is on {patch}" in said


def test_a_reading_shows_drawing_pixels_and_a_bar_for_each_class():
    ink, pixels, shares = torch.zeros(30, 20), torch.rand(8, 8), torch.tensor([0.1, 0.7, 0.2])
    left, middle, right = draw_reading(ink, pixels, 4, shares, "abc").axes
    assert (left.images[0].get_array() == 1).all()  # paper is white
    torch.testing.assert_close(torch.tensor(middle.images[0].get_array()).reshape(8, 8), 1 - pixels)
    assert len(middle.lines) == 2  # one cut in each direction
    assert [bar.get_width() for bar in right.patches] == pytest.approx(shares.tolist())
    assert [label.get_text() for label in right.get_yticklabels()] == ["a", "b", "c"]


def test_photos_have_a_row_each_and_all_maps_one_scale():
    images, maps = torch.rand(2, 3, 8, 8), torch.tensor([[[1.0, 1], [1, 1]], [[1, 1], [1, 13]]])
    fig = draw_photos(["one", "two"], [("as seen", images, None), ("map", images, maps)], top=3)
    *drawn, bar = fig.axes
    assert [ax.get_title() for ax in drawn] == ["as seen", "map", "", ""]
    assert [ax.texts[0].get_text() for ax in drawn[::2]] == ["one", "two"]
    # 13 is 3.25 times the mean
    for ax, above in zip(drawn[1::2], ([[0, 0], [0, 0]], [[0, 0], [0, 2]]), strict=True):
        assert ax.images[1].get_array().tolist() == above and ax.images[1].get_clim() == (0, 2)
    assert [len(ax.images) for ax in drawn] == [1, 2, 1, 2]
    frames = [(box.get_xy(), box.get_width(), box.get_linewidth()) for box in drawn[3].patches]
    assert len(frames) == 4 and frames[0] == ((3.5, 3.5), 4, 2.5)  # the largest of four patches
    assert [label.get_text() for label in bar.get_yticklabels()] == ["1", "2", "3 or\nmore"]
