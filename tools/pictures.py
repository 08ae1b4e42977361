"""Draw the images under images/ again: the forward pass of notebook 00, and the animation at the top of the README."""

import argparse
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure

from tools import main
from tools.animation import Reading, draw_reading, save_animation
from vit_helpers.data import load, random_affine
from vit_helpers.inspection import attention_map, token_layers
from vit_helpers.inspection.localization import fraction_inside
from vit_helpers.patches import patchify
from vit_helpers.plots.model import draw_model
from vit_helpers.pretrained import load_pretrained
from vit_helpers.training import fit, set_seed
from vit_helpers.vit import ViT, ViTConfig

IMAGES = Path(__file__).parents[1] / "images"
DIGIT = 12  # of the test set: a 6 that the model classifies correctly, well apart from the clutter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder for the images (default: that of the repository)")


def run(args: argparse.Namespace) -> int:
    folder = args.out / "00_start_here"
    folder.mkdir(parents=True, exist_ok=True)
    draw_start_here().savefig(folder / "pass.png", dpi=100, metadata={"Software": None})
    print(folder / "pass.png")
    save_animation(folder / "reading.gif", draw_reading(read_digit()))
    print(folder / "reading.gif")
    return 0


def draw_start_here() -> Figure:
    """The forward pass of one digit through a ViT that was trained with the recipe of notebook 00: a figure."""
    data = load("digits")
    set_seed(0)
    model = ViT(config := ViTConfig.from_name("mini/2", image_size=8, in_chans=1, num_classes=10))
    train = data.batches("train", 64, shuffle=True, augment=random_affine)
    fit(model, train, data.batches("validation", 512), report=lambda row: None)
    model.eval()
    image = data.validation.images[:1]
    pixels = data.normalize(image)
    with torch.no_grad():
        stages = patchify(image, 2)[0], model.embed(pixels)[0], model.forward_features(pixels)[0]
        probabilities = model(pixels)[0].softmax(0)
    title = "A Vision Transformer reads a handwritten digit"
    return draw_model(image[0], *stages, probabilities, config.patch_size, config.depth, data.class_names, title)


def read_digit() -> Reading:
    """The forward pass of the model of notebook 08 on one digit among clutter, from the test set."""
    stored, test = load_pretrained("ours:scattered"), load("scattered_digits", n=100).test
    image, box, model = test.images[DIGIT], test.boxes[DIGIT], stored.model
    pixels = stored.preprocess.normalize(image)[None]
    with torch.no_grad():
        weights = [layer.mean(dim=1) for layer in model.attention_weights(pixels)]  # over the heads
        probabilities = model(pixels)[0].softmax(0)
    maps = [attention_map(layer, model.config.grid) for layer in weights]
    inside = [fraction_inside(one, box[None], model.config.patch_size) for one in maps]  # of the attention to patches
    fractions = [(part * (1 - layer[:, 0, 0])).item() for part, layer in zip(inside, weights, strict=True)]  # of all
    tokens = [layer[0] for layer in token_layers(model, pixels)]
    weights = [layer[0, 0] for layer in weights]
    return Reading(image, model.config.patch_size, tokens, weights, fractions, probabilities, stored.class_names)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
