import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from vit_helpers.plots import style
from vit_helpers.plots.pretrained import (
    FROZEN,
    NEW,
    PARTS,
    TRAINED,
    WAYS,
    draw_lora,
    draw_masking,
    draw_reconstructions,
    draw_resized,
    draw_transfer,
    draw_ways,
)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def texts(fig):
    return [t.get_text() for t in fig.findobj(plt.Text) if t.get_text()]


def boxes(fig, look):
    """How many rectangles have this look"""
    same = [
        p for p in fig.axes[0].findobj(Rectangle) if p.get_facecolor() == to_rgba(look["facecolor"])
    ]
    return len([p for p in same if p.get_hatch() is not None]) if "hatch" in look else len(same)


def test_transfer_shows_what_is_copied_new_and_trained():
    fig = draw_transfer({"linear probe": 195, "LoRA": 4291, "full": 203779, "from scratch": 203779})
    said = texts(fig)
    assert set(PARTS[:-1]) <= set(said) and {"trained parameters:", "195", "4,291"} <= set(said)
    copied = len(PARTS) - 1
    assert boxes(fig, TRAINED) == copied + 1  # and the key
    assert boxes(fig, FROZEN) == 3 * copied + 1  # pretrained, probe, LoRA, and the key
    # heads, from scratch, A and B of four blocks, the key
    assert boxes(fig, NEW) == 3 + len(PARTS) + 2 * 4 + 1


def test_lora_is_drawn_to_scale_with_its_count():
    fig = draw_lora(192, 64, 4)
    assert "LoRA of rank 4 trains 1,024 numbers beside a frozen matrix of 12,288" in fig.axes[
        0
    ].get_title(loc="left")
    sizes = [(p.get_width(), p.get_height()) for p in fig.axes[0].patches]
    assert {(64, 192), (4, 192), (64, 4)} <= set(sizes)
    assert sizes.count((64, 192)) == 2  # W, and the product of B and A


def test_differences_of_resized_positions_share_a_scale():
    learned, one = torch.randn(6, 6), torch.randn(9, 9)
    fig = draw_resized(learned, {"timm": one, "torchvision": one + 0.5, "google": one - 0.25})
    *_, apart, other = [ax.images[0] for ax in fig.axes if ax.images]
    assert apart.get_clim() == other.get_clim() == pytest.approx((-0.5, 0.5))
    assert torch.tensor(apart.get_array()).allclose(torch.full((9, 9), 0.5), atol=1e-6)


def hatched(ax):
    return len([p for p in ax.patches if p.get_hatch()])


def test_masking_hides_predicts_and_compares():
    image, hidden = torch.rand(8, 8), torch.zeros(4, 4, dtype=torch.bool)
    hidden[1, 2] = hidden[3, 3] = True
    fig = draw_masking(image, hidden, image + 0.5, 2)
    assert [hatched(ax) for ax in fig.axes[:5]] == [0, 2, 0, 14, 14]
    error = fig.axes[4].images[0].get_array()
    assert error.mask.sum() == 64 - 8 and abs(error.mean() - 0.25) < 1e-6


def test_reconstructions_have_labeled_rows():
    images, hidden = torch.rand(3, 8, 8), torch.rand(3, 4, 4) > 0.5
    fig = draw_reconstructions(images, hidden, images, 2, "t")
    assert {"the encoder's\ninput", "hidden half\npredicted", "original"} <= set(
        texts(fig)
    ) and fig.get_suptitle() == "t"
    assert sum(hatched(ax) for ax in fig.axes) == hidden.sum()


def test_ways_have_their_interval_and_marks_that_need_no_color():
    ax = draw_ways({way: {"100 labels": (0.4, 0.5, 0.55)} for way in WAYS}, floor=0.3)
    assert style.color_only_pairs(ax.figure) == []
    low, high = ax.containers[0].lines[2][0].get_segments()[0][:, 1]
    assert (round(low, 6), round(high, 6)) == (0.4, 0.55)
