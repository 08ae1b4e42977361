"""The picture of the pipeline from image files to batches."""

from types import SimpleNamespace

import torch
from matplotlib.colors import to_hex

from tests.plots.test_palette import contrast
from vit_helpers.plots import style
from vit_helpers.plots.data_pipeline import draw_pipeline


def split_of(images, labels):
    return SimpleNamespace(images=images, labels=torch.tensor(labels))


def test_the_pipeline_shows_its_stages_and_three_splits():
    photos = {"one": torch.rand(3, 427, 640), "two": torch.rand(3, 427, 640)}
    train, validation, test = (split_of(torch.rand(n, 1, 8, 8), []) for n in (1200, 20, 30))
    data = SimpleNamespace(train=train, validation=validation, test=test)
    fig = draw_pipeline(photos, data).figure
    texts = [text.get_text() for text in fig.axes[0].texts]
    assert {"training: 1,200 images", "validation: 20 images", "test: 30 images", "two.jpg"} <= set(
        texts
    )
    assert min(contrast(text.get_color(), "white") for text in fig.axes[0].texts) > 4.5
    ends = [text.get_window_extent() for text in fig.axes[0].texts]
    assert all(
        box.x0 >= 0 and box.x1 <= fig.bbox.width and box.y0 >= 0 and box.y1 <= fig.bbox.height
        for box in ends
    )
    assert not {to_hex(patch.get_edgecolor()) for patch in fig.axes[0].patches} & {
        color.lower()
        for color in (
            style.CLASS_TOKEN,
            style.PATCH,
            style.POSITION,
            style.QUERY,
            style.KEY,
            style.VALUE,
        )
    }
