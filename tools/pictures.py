"""Make the images under images/ again: the animations of the README and of notebook 01.

In the README's, the model of notebook 08 classifies an image, from patches to tokens to attention.
In notebook 01's, numbered pixels move from an image to its patches. What their frames show is drawn
by `vit_helpers.plots.animation` and `vit_helpers.plots.patches_reshaping`; here are the frames in
time, and the files that hold them.
"""

import argparse
from pathlib import Path

from PIL import Image

from tools import main
from tools.execute import ROOT
from vit_helpers.data import load
from vit_helpers.inspection import token_layers
from vit_helpers.plots import animation, patches_reshaping
from vit_helpers.plots.animation import Frames, Reading, read_pass
from vit_helpers.pretrained import load_pretrained

IMAGES = ROOT / "images"
DIGIT = 12  # of the test set: a 6 that the model classifies correctly, well apart from the clutter


def run(args: argparse.Namespace) -> None:
    save_animation(
        IMAGES / "00_start_here" / "reading.gif",
        animation.draw_frames(read_digit()),
        animation.palette(),
    )
    save_animation(
        IMAGES / "01_patches" / "patchify.gif",
        patches_reshaping.draw_frames(),
        patches_reshaping.palette(),
    )


def read_digit() -> Reading:
    """Run the model of notebook 08 on one digit among clutter, from the test set."""
    stored, test = load_pretrained("ours:scattered"), load("scattered_digits", n=100).test
    model, image, P = stored.model.eval(), test.images[DIGIT], stored.model.config.patch_size
    x = stored.preprocess.normalize(image)[None]
    tokens, weights = token_layers(model, x), model.attention_weights(x)
    assert test.boxes is not None
    return read_pass(image, P, tokens, weights, test.boxes[DIGIT], model(x), stored.class_names)


def save_animation(path: Path, frames: Frames, colors: Image.Image) -> None:
    """Store frames as a GIF that loops for ever, and print where it is.

    The frames share the same few colors.
    """
    first, *others = [
        image.quantize(palette=colors, dither=Image.Dither.NONE) for image, _ in frames
    ]
    first.save(
        path, save_all=True, append_images=others, duration=[time for _, time in frames], loop=0
    )
    print(path)


if __name__ == "__main__":
    raise SystemExit(main())
