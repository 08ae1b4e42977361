"""Draw the pictures under images/ anew, with the code and the recipe of the notebooks."""

from pathlib import Path

IMAGES = Path(__file__).parents[2] / "images"


def add_arguments(parser):
    parser.add_argument(
        "--out", type=Path, default=IMAGES, help="folder for the pictures (default: images/ of the repository)"
    )


def run(args):
    path = args.out / "00_start_here" / "pass.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_start_here().savefig(path, dpi=100, metadata={"Software": None})
    print(path)
    return 0


def draw_start_here():
    """A digit on its way through a ViT that was trained with the recipe of notebook 00"""
    import torch

    from vit_helpers.data import load, random_affine
    from vit_helpers.patches import patchify
    from vit_helpers.plots.model import draw_model
    from vit_helpers.training import fit, set_seed
    from vit_helpers.vit import ViT, ViTConfig

    data = load("digits")
    set_seed(0)
    config = ViTConfig.from_name("mini/2", image_size=8, in_chans=1, num_classes=10)
    model = ViT(config)
    train = data.batches("train", 64, shuffle=True, augment=random_affine)
    fit(model, train, data.batches("validation", 512), report=lambda row: None)
    model.eval()
    image = data.validation.images[:1]
    pixels = data.normalize(image)
    with torch.no_grad():
        stops = patchify(image, 2)[0], model.embed(pixels)[0], model.forward_features(pixels)[0]
        probabilities = model(pixels)[0].softmax(0)
    title = "A Vision Transformer reads a handwritten digit"
    return draw_model(image[0], *stops, probabilities, config.patch_size, config.depth, data.class_names, title)
