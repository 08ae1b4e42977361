from types import SimpleNamespace

import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from matplotlib.text import Text

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
    assert ("cls and positions" if class_token else "positions") in said
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
