"""Make the image under images/ again: the animation of the README and of notebook 00.

In it the model of notebook 08 classifies an image, from patches to tokens to attention, layer by layer. What a
frame shows is drawn by `vit_helpers.plots.animation`; here are the frames in time, and the file that holds them.
"""

import argparse
from pathlib import Path

from PIL import Image

from tools import main
from tools.execute import ROOT
from vit_helpers.data import load
from vit_helpers.inspection.localization import follow_class_token
from vit_helpers.plots.animation import Reading, frame, moments, palette
from vit_helpers.pretrained import load_pretrained

DIGIT = 12  # of the test set: a 6 that the model classifies correctly, well apart from the clutter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=ROOT / "images", help="folder for the images (default: images/)")


def run(args: argparse.Namespace) -> None:
    folder = args.out / "00_start_here"
    folder.mkdir(parents=True, exist_ok=True)
    save_animation(folder / "reading.gif", draw_reading(read_digit()))
    print(folder / "reading.gif")


def read_digit() -> Reading:
    """The forward pass of the model of notebook 08 on one digit among clutter, from the test set."""
    stored, test = load_pretrained("ours:scattered"), load("scattered_digits", n=100).test
    image, box, pixels = test.images[DIGIT], test.boxes[DIGIT], stored.preprocess.normalize(test.images[DIGIT])
    return Reading(image, stored.model.config.patch_size, *follow_class_token(stored.model, pixels, box), stored.class_names)


def draw_reading(reading: Reading, step: float = 0.06) -> list[tuple[Image.Image, int]]:
    """All frames of the animation with their duration in milliseconds.  step: seconds between frames while things move"""
    frames = []
    for number, (_, moving, rest) in enumerate(moments(reading)):
        steps = max(1, round(moving / step))
        for k in range(1, steps + 1):
            seconds = step * (moving > 0) + rest * (k == steps)
            frames.append((frame(reading, number, k / steps), round(1000 * seconds)))
    return frames


def save_animation(path: Path, frames: list[tuple[Image.Image, int]]) -> None:
    """Store frames as a GIF that loops for ever, all with the same few colors."""
    first, *others = [image.quantize(palette=palette(), dither=Image.Dither.NONE) for image, _ in frames]
    first.save(path, save_all=True, append_images=others, duration=[time for _, time in frames], loop=0)


if __name__ == "__main__":
    raise SystemExit(main())
