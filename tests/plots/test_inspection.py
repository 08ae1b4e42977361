from types import SimpleNamespace

import pytest
import torch
from figures import areas

from vit_helpers.plots.inspection import (
    draw_deletion,
    draw_forest,
    draw_heads,
    draw_maps,
    draw_question,
    draw_row_as_map,
    draw_scaled_heads,
    share,
)
from vit_helpers.vit import ViT, ViTConfig


def title_of(picture):
    return picture.figure.get_suptitle()


def test_the_question_shows_a_map_of_the_model_and_one_of_the_ink():
    torch.manual_seed(0)
    model = ViT(ViTConfig.from_name("mini/4", image_size=(8, 12), in_chans=1, num_classes=3))
    images = torch.zeros(2, 1, 8, 12)
    images[1, 0, 5:, 8:] = 0.5  # 3 x 4 pixels of ink in the last patch
    data = SimpleNamespace(validation=SimpleNamespace(images=images))
    preprocess = SimpleNamespace(normalize=lambda x: 2 * x - 1)
    picture = draw_question((model.eval(), preprocess, ["a", "b", "c"]), data, 1)
    image, first, second = picture.figure.axes
    assert len(image.images) == 1 and not image.patches
    with torch.no_grad():
        weights = model.attention_weights(preprocess.normalize(images[1:]))
    flow = torch.eye(7)
    for layer in weights:
        flow = (0.5 * torch.eye(7) + 0.5 * layer[0].mean(dim=0)) @ flow
    rollout = flow[0, 1:] / flow[0, 1:].sum()
    near = torch.tensor([[2.0, 1, 0]]).square() + torch.tensor([[1.0], [0]])  # from that patch
    ink = (-near / 2).exp().flatten()
    wanted = torch.stack([rollout, ink / ink.sum()])
    for ax, each in zip((first, second), wanted / wanted.max(), strict=True):
        assert areas(ax) == pytest.approx(each.tolist(), rel=1e-4)


def test_all_heads_of_all_blocks_share_one_scale(image, maps):
    notes = [["a", "b"], ["c", "d"]]
    picture = draw_heads(image, maps, 4, ["block 1", "block 2"], notes, top=2)
    axes = picture.figure.axes
    wanted = [[x / 2 for x in head.flatten().tolist()] for block in maps for head in block]
    assert [areas(ax) for ax in axes] == [pytest.approx(each) for each in wanted]
    assert [ax.get_title() for ax in axes] == ["head 1, a", "head 2, b", "c", "d"]
    words = [text for ax in axes for text in ax.texts]
    assert [text.get_text() for text in words] == ["block 1", "block 2"]
    assert all(text.get_visible() for text in words)
    largest = max(block.max().item() for block in maps)
    assert f"the largest weight is {largest:.2f}" in picture.alt
    framed = draw_heads(image, maps[:1], 4, ["block 1"], query=(1, 2))
    assert title_of(framed).startswith("Framed patch")
    (frame,) = [patch for patch in framed.figure.axes[0].patches if not patch.get_fill()]
    assert frame.get_bbox().bounds == (7.5, 3.5, 4, 4)


def test_the_map_of_the_opening_is_row_0_without_its_first_weight(image):
    weights = torch.rand(13, 13, generator=torch.Generator().manual_seed(2)) / 5
    fig = draw_row_as_map(image, weights, (3, 4), top=0.3).figure
    strip, folded, matrix = fig.axes[:3]
    assert torch.equal(torch.as_tensor(matrix.images[0].get_array()), weights)
    assert torch.equal(torch.as_tensor(strip.images[0].get_array()), weights[:1])
    assert areas(folded) == pytest.approx((weights[0, 1:] / 0.3).tolist(), rel=1e-5)
    assert [text.get_text() for text in folded.texts] == ["1 to 4", "5 to 8", "9 to 12"]


def test_the_grid_of_the_opening_is_a_square_unless_it_is_given():
    weights = torch.rand(10, 10, requires_grad=True)  # as a model returns them
    picture = draw_row_as_map(torch.rand(1, 12, 12), weights / 10)
    assert "3 by 3 patches" in picture.alt


def test_shares_are_of_positive_numbers():
    maps = torch.tensor([[[1.0, 3.0], [-2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert share(maps).tolist() == [[[0.25, 0.75], [0, 0]], [[0, 0], [0, 0]]]


def test_maps_are_drawn_with_the_frames_of_their_objects(image):
    maps = {"one": torch.ones(2, 3, 4), "two": torch.rand(2, 3, 4)}
    boxes = torch.tensor([[1, 2, 6, 6], [4, 4, 8, 8]])
    picture = draw_maps(torch.stack([image, image]), maps, boxes, ["a", "b"], top=0.5)
    axes = picture.figure.axes
    assert len(axes) == 4 and areas(axes[0]) == pytest.approx([1 / 6] * 12)
    frame = [patch for patch in axes[3].patches if not patch.get_fill()]
    assert [each.get_bbox().bounds for each in frame] == [(3.5, 3.5, 8, 8)]
    assert [ax.get_title() for ax in axes] == ["a", "b", "", ""]
    assert title_of(picture) == "Each method draws a map of its own"


def test_a_map_of_zeros_is_said_to_be_none(image):
    maps = {"Grad-CAM after\nthe last block": torch.zeros(2, 3, 4), "other": torch.ones(2, 3, 4)}
    picture = draw_maps(torch.stack([image, image]), maps, torch.tensor([[0, 0, 4, 4]] * 2))
    assert title_of(picture) == "Grad-CAM after the last block: no map at all"
    assert sum(areas(picture.figure.axes[0])) == 0
    assert "The row of Grad-CAM after the last block has no squares." in picture.alt


def line(mean, half):
    return {"mean": mean, "low": mean - half, "high": mean + half}


def test_scores_are_sorted_and_the_best_control_is_a_line():
    lines = {"a": line(0.95, 0.02), "ink": line(0.96, 0.01), "b": line(0.1, 0.05)}
    lines["center"] = line(0.6, 0.02)
    picture = draw_forest(lines, ["ink", "center"])
    (ax,) = picture.figure.axes
    names = ["b  0.10", "center  0.60", "a  0.95", "ink  0.96"]  # from the bottom
    assert [text.get_text() for text in ax.texts] == names
    assert [text.get_position()[1] for text in ax.texts] == [0, 1, 2, 3]
    rival, *rest = ax.lines
    assert rival.get_xdata() == [0.96, 0.96]
    spans = [tuple(each.get_xdata()) for each in rest[::2]]
    wanted = [(lines[n]["low"], lines[n]["high"]) for n in ("b", "center", "a", "ink")]
    assert spans == [pytest.approx(span) for span in wanted]
    assert ax.get_title(loc="left") == "No map is clearly ahead of ink"
    ahead = draw_forest(lines | {"a": line(0.99, 0.01)}, ["ink", "center"]).figure.axes[0]
    assert ahead.get_title(loc="left") == "Scores of maps"


def test_deletion_curves_are_means_and_their_names_are_in_order():
    curves = {"ink": torch.tensor([[1, 0.5, 0.2], [1, 0.7, 0.4]])}
    curves |= {"slow": torch.tensor([[1, 0.9, 0.2]]), "fast": torch.tensor([[1, 0.1, 0.0]])}
    picture = draw_deletion((0, 1, 2), curves, ["ink"])
    (ax,) = picture.figure.axes
    drawn = [list(each.get_ydata()) for each in ax.lines[:3]]
    assert drawn == [pytest.approx(y) for y in ([1, 0.1, 0], [1, 0.9, 0.2], [1, 0.6, 0.3])]
    assert [text.get_text() for text in ax.texts] == ["fast", "slow", "ink"]  # by their ends
    assert ax.get_title(loc="left") == "Answers fall fastest in the order of fast"
    assert "fast 0.10, ink 0.60, slow 0.90" in picture.alt


def test_deletion_curves_of_maps_and_of_controls_have_looks_of_their_own():
    curves = {f"{n}": torch.tensor([[1, n / 10, n / 10]]) for n in range(1, 8)}
    (ax,) = draw_deletion((0, 1, 2), curves, ["2", "3", "4"]).figure.axes
    looks = [(each.get_color(), each.get_linestyle(), each.get_marker()) for each in ax.lines[:7]]
    assert len({*looks}) == 7 and [color for color, *_ in looks].count(looks[0][0]) == 4


def test_scaled_heads_show_their_numbers(image):
    scales = {"own": torch.rand(2, 3, 4), "one": torch.rand(2, 3, 4)}
    picture = draw_scaled_heads(image, scales, [1, 0.5], ["a", "b"])
    seen, *own, empty, first, second = picture.figure.axes[:6]
    assert len(seen.images) == 1 and not empty.images
    limits = [ax.images[0].get_clim() for ax in (*own, first, second)]
    assert limits == [(0, 1)] * 2 + [(0, 0.5)] * 2
    maps = [torch.tensor(ax.images[0].get_array()) for ax in (*own, first, second)]
    torch.testing.assert_close(maps, [*scales["own"], *scales["one"]])
