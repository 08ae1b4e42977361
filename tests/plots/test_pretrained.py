from types import SimpleNamespace

import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from vit_helpers.plots import style
from vit_helpers.plots.pretrained import (
    FROZEN,
    NEW,
    TRAINED,
    WAYS,
    draw_frames,
    draw_lora,
    draw_question,
    draw_transfer,
    draw_ways,
    title_of,
)
from vit_helpers.plots.pretrained_further import (
    draw_accuracies,
    draw_centers,
    draw_leads,
    draw_rates,
    draw_reconstructions,
)
from vit_helpers.pretrained.finetune import add_lora, freeze, transfer_weights
from vit_helpers.vit import ViT, ViTConfig


def texts(fig):
    return [t.get_text() for t in fig.findobj(Text) if t.get_text()]


def boxes(fig, look):
    """How many rectangles have this look"""
    same = [
        p for p in fig.axes[0].findobj(Rectangle) if p.get_facecolor() == to_rgba(look["facecolor"])
    ]
    return len([p for p in same if p.get_hatch() is not None]) if "hatch" in look else len(same)


def test_the_question_shows_who_is_right():
    split = SimpleNamespace(images=torch.rand(9, 1, 8, 8), labels=torch.arange(9) % 2)
    data = SimpleNamespace(filter_classes=lambda *names: SimpleNamespace(validation=split))
    answers = {"from scratch": [1, 0, 0, 0, 0, 0, 0, 0, 1], "full": [1, 1, 1, 0, 0, 0, 0, 0, 1]}
    picture = draw_question(data, answers, "78")
    said = texts(picture.figure)
    assert said.count("✓") == 4 and said.count("×") == 12
    assert said.count("a 7") == 4 and said.count("a 8") == 4
    assert picture.figure.get_suptitle().startswith("1 and 3 of 8 right")


@pytest.mark.parametrize("class_token", [True, False])
def test_transfer_shows_what_is_copied_new_and_trained(class_token):
    config = ViTConfig(8, 4, in_chans=1, num_classes=7, embed_dim=16, depth=3, num_heads=2)
    pool = "cls" if class_token else "avg"
    model = ViT(ViTConfig(**vars(config) | {"class_token": class_token, "pool": pool}))
    fig = draw_transfer(model, 3, 4).figure
    copies = {"LoRA": add_lora(transfer_weights(model, num_classes=3), 4)}
    copies["probe"] = freeze(transfer_weights(model, num_classes=3))
    copies["full"] = transfer_weights(model, num_classes=3)
    said = texts(fig)
    for copy in copies.values():
        assert f"{sum(p.numel() for p in copy.parameters() if p.requires_grad):,}" in said
    assert ("[CLS], positions" if class_token else "positions") in said
    copied = 2 + 3 + 1  # embeddings, blocks, norm
    assert boxes(fig, TRAINED) == copied + 1  # and the key
    assert boxes(fig, FROZEN) == 3 * copied + 1  # pretrained, probe, LoRA, and the key
    # heads, from scratch, A and B of three blocks, the key
    assert boxes(fig, NEW) == 3 + (copied + 1) + 2 * 3 + 1


def test_lora_is_drawn_to_scale_with_its_count():
    fig = draw_lora(192, 64, 4).figure
    assert "1,024 numbers are trained beside 12,288 frozen ones" in fig.get_suptitle()
    sizes = [(p.get_width(), p.get_height()) for p in fig.axes[0].patches]
    assert {(64, 192), (4, 192), (64, 4)} <= set(sizes)
    assert sizes.count((64, 192)) == 2  # W, and the product of B and A


def test_frames_keep_their_sizes():
    picture = draw_frames({"a photo": torch.rand(3, 30, 45), "cropped": torch.rand(3, 20, 20)})
    assert [ax.images[0].get_array().shape[:2] for ax in picture.figure.axes] == [
        (30, 45),
        (20, 20),
    ]


POINTS = {100: (0.4, 0.5, 0.55), 1000: (0.5, 0.6, 0.65)}


def test_ways_have_their_interval_their_name_and_marks_that_need_no_color():
    longer = (1000, (0.66, 0.7, 0.77), "longer")
    fig = draw_ways(dict.fromkeys(WAYS, POINTS), (0.3, "a guess"), longer).figure
    (ax,) = fig.axes
    assert set(WAYS) | {"a guess", "(□ longer)"} <= set(texts(fig))
    marks = [line.get_marker() for line in ax.lines if line.get_marker() not in ("None", None)]
    assert len(set(marks[:4])) == 4
    ends = [line.get_ydata() for line in ax.lines if len(line.get_xdata()) == 2]
    assert any(list(end) == [0.4, 0.55] for end in ends)
    assert any(list(end) == [0.66, 0.77] for end in ends)


def test_the_title_says_how_many_labels_are_saved_only_where_that_is_so():
    scratch = {100: (0, 0.5, 1), 300: (0, 0.55, 1), 1000: (0, 0.62, 1)}
    full = {100: (0, 0.621, 1), 300: (0, 0.7, 1), 1000: (0, 0.8, 1)}
    same = title_of({"from scratch": scratch, "full": full})
    assert same == "Fine-tuned with 100 labels, as good as from scratch with 1,000 in as many steps"
    better = title_of({"from scratch": scratch, "full": full | {100: (0, 0.7, 1)}})
    assert better == "Full fine-tuning gains 20 points"


@pytest.mark.parametrize("names", [("one", "other"), ("one", "two", "three", "four", "five")])
def test_rates_have_a_line_a_model_with_its_name(names):
    factors = {name: [0.25 + i / 10, 0.5, 1] for i, name in enumerate(names)}
    fig = draw_rates(factors).figure
    assert set(names) <= set(texts(fig))
    lines = fig.axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == list(factors.values())
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == len(names)


def test_centers_are_marked_where_they_are_read():
    picture = draw_centers(3, {"edges": [-0.25, 0.75, 1.75], "corners": [0, 1, 2]})
    lines = picture.figure.axes[0].lines
    assert [list(line.get_xdata()) for line in lines] == [[-0.25, 0.75, 1.75], [0, 1, 2]]
    assert "edges: from -0.25 to 1.75; corners: from 0.00 to 2.00" in picture.alt


def test_leads_have_a_mark_for_each_pretrained_model_and_the_stored_one_is_filled():
    lead = {100: (1.0, 5.0, 9.0), 300: (4.0, 6.0, 8.0)}
    picture = draw_leads({"Photos": {"0": lead, "1": lead, "2": lead}, "Digits": {"0": lead}})
    photos, digits = picture.figure.axes
    marks = [[line for line in ax.lines if line.get_marker() == "o"] for ax in (photos, digits)]
    hollow = [[line.get_markerfacecolor() == "white" for line in found] for found in marks]
    assert hollow == [[False] * 2 + [True] * 4, [False] * 2]
    assert "Photos, 3 models: 5.0 to 6.0 points" in picture.alt


def test_accuracies_have_marks_that_need_no_color():
    panels = {"One": dict.fromkeys(WAYS, POINTS), "Other": dict.fromkeys(WAYS, POINTS)}
    fig = draw_accuracies(panels, 0.3).figure
    assert style.color_only_pairs(fig) == [] and len(fig.axes) == 2


def hatched(ax):
    return len([p for p in ax.patches if p.get_hatch()])


def test_reconstructions_cover_predict_and_write_errors():
    images, hidden = torch.rand(2, 8, 8) / 2, torch.zeros(2, 4, 4, dtype=torch.bool)
    hidden[0, 1, 2] = hidden[0, 3, 3] = hidden[1, 0, 0] = True
    fig = draw_reconstructions(images, hidden, images + 0.5, 2).figure
    first, second = fig.axes[:4], fig.axes[4:8]
    assert [hatched(line[0]) for line in (first, second)] == [2, 1]
    errors = [[t.get_text() for t in line[3].texts] for line in (first, second)]
    assert errors == [[".25", ".25"], [".25"]]
