"""Make the images under images/ again: the README's, and the animations of the notebooks.

In the README's, the model of notebook 08 classifies an image, from patches to tokens to attention.
In notebook 01's, numbered pixels move from an image to its patches; in 03's, a query meets three
keys; in 04's, the class token goes through the blocks of the live page's model. What their frames
show is drawn by `vit_helpers.plots.animation` and `patches_reshaping`, and beside this file by
`animation_meeting` and `animation_stream`; here are the numbers, and the files that hold them. The
README's three small pictures are drawn like the figures that they lead to.
"""

import argparse
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from tools import animation_meeting, animation_stream, main
from tools.execute import ROOT
from tools.readme_pictures import draw_classified, draw_drawn_digit, draw_found
from vit_helpers.data import load, photos
from vit_helpers.data.digits import cat, every_digit
from vit_helpers.inspection import token_layers
from vit_helpers.live.ink import reduce_ink
from vit_helpers.plots import animation, patches_reshaping
from vit_helpers.plots.animation import Frames, Reading, read_pass
from vit_helpers.plots.attention_steps import read_example
from vit_helpers.plots.explorer import A_THREE, draw_stroke
from vit_helpers.plots.figure import Picture
from vit_helpers.pretrained import load_pretrained
from vit_helpers.results.photo_features import read_photo_features

IMAGES = ROOT / "images"
DIGIT = 12  # of the test set: a 6 that the model classifies correctly, well apart from the clutter
NINE = 1434  # of all digits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join([*ANIMATIONS, "README"])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which to make (default: all): {names}"
    )


def run(args: argparse.Namespace) -> None:
    names = args.names or [*ANIMATIONS, "README"]
    if unknown := [name for name in names if name not in (*ANIMATIONS, "README")]:
        raise ValueError(f"unknown {unknown[0]!r}, known: {', '.join([*ANIMATIONS, 'README'])}")
    for name in names:
        if name in ANIMATIONS:
            save_animation(IMAGES / f"{name}.gif", *ANIMATIONS[name]())
        else:
            for stem, picture in readme_pictures().items():
                save_picture(IMAGES / "README" / stem, picture)


def reading() -> tuple[Frames, Image.Image]:
    """Frames and colors of a model of notebook 08 that reads a digit."""
    return animation.draw_frames(read_digit()), animation.palette()


def patchify() -> tuple[Frames, Image.Image]:
    """Frames and colors of numbered pixels that become patches."""
    return patches_reshaping.draw_frames(), patches_reshaping.palette()


def meeting() -> tuple[Frames, Image.Image]:
    """Frames and colors of the roof's query that meets three keys, with notebook 03's numbers."""
    met = animation_meeting.meeting_of(*read_example())
    return animation_meeting.draw_frames(met), animation_meeting.palette()


def stream() -> tuple[Frames, Image.Image]:
    """Frames and colors of the class token of notebook 04's digit on its way through the blocks."""
    followed = animation_stream.read_stream(load_pretrained("ours:drawn"), nine())
    return animation_stream.draw_frames(followed), animation_stream.palette()


def nine() -> Tensor:
    """The handwritten 9 that notebook 04 follows, (1, 8, 8)."""
    return every_digit().images[NINE]


ANIMATIONS = {
    "00_start_here/reading": reading,
    "01_patches/patchify": patchify,
    "03_attention/meeting": meeting,
    "04_encoder/stream": stream,
}


def readme_pictures() -> dict[str, Picture]:
    """Draw the three small pictures of the README: a drawn digit, a roof, a cat."""
    ink, pixels, probabilities = read_drawing()
    features, place = read_photo_features("china"), (6, 16)
    stored = load_pretrained("ours:photos")
    reduced = stored.preprocess.frame(cat())
    P = stored.model.config.patch_size
    return {
        "live": draw_drawn_digit(ink, pixels, probabilities),
        "roof": draw_found(photos()["china"], features.similarity(9, place), place),
        "cat": draw_classified(cat(), reduced, P, stored.top(cat(), k=3)),
    }


def read_drawing() -> tuple[Tensor, Tensor, Tensor]:
    """Read the drawn 3 of the live page: ink, pixels, and the probabilities of ten digits."""
    stored = load_pretrained("ours:drawn")
    ink = draw_stroke(A_THREE)
    pixels = reduce_ink(ink, stored.preprocess.crop[0])
    with torch.no_grad():
        logits = stored.model(stored.preprocess.normalize(pixels[None, None]))
    return ink, pixels, logits.softmax(dim=1)[0]


def save_picture(path: Path, picture: Picture) -> None:
    """Store a figure as a JPEG or PNG, and print where it is."""
    path = path.with_suffix({"jpeg": ".jpg", "png": ".png"}[picture.image.kind])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(picture.image.data)
    print(path)


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
    path.parent.mkdir(exist_ok=True)
    first.save(
        path, save_all=True, append_images=others, duration=[time for _, time in frames], loop=0
    )
    print(path)


if __name__ == "__main__":
    raise SystemExit(main())
