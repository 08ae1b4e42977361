"""Attention to be explored with sliders, where ipywidgets is installed; else one picture that stands still."""

from contextlib import suppress

from vit_helpers.plots import look
from vit_helpers.plots.images import colour_bar
from vit_helpers.plots.inspection import draw_look

ALT = "What one token looks at, over the image."


def draw_choice(images, maps, patch_size, image=0, layer=0, head=0, query=None):
    """One map of many, by its numbers, which count from 0; the figure comes back.

    images: (B, C, H, W), from 0 to 1;  maps(layer, query): what a token looks at, (B, h, rows, cols)
    query : (row, column) of the patch that asks; None for the class token
    """
    fig, ax = look.new_figure(5, 4)
    who = "class token" if query is None else f"patch {query}"
    title = f"Layer {layer + 1}, head {head + 1}, asked by the {who}"
    _, drawn = draw_look(images[image], maps(layer, query)[image], patch_size, head, query, ax, title)
    colour_bar(drawn, ax, "attention weight")
    return fig


def explore(images, maps, patch_size, layers):
    """Sliders for image, layer, head and the patch that asks, drawn by `draw_choice`; where none can run, one picture.

    The picture travels with the sliders, so that a page that only shows what was stored has something to show.
    """
    from IPython.display import display

    still, metadata = look.picture(draw_choice(images, maps, patch_size, layer=layers - 1), ALT)
    data, _ = still._repr_mimebundle_()
    with suppress(ImportError):  # no ipywidgets: the picture alone
        data |= sliders(images, maps, patch_size, layers)._repr_mimebundle_()
    display(data | {"text/plain": ALT}, metadata=metadata, raw=True)


def sliders(images, maps, patch_size, layers):
    """The sliders and the picture that they draw, as ipywidgets has them"""
    from ipywidgets import Checkbox, IntSlider, interactive

    B, h, rows, cols = maps(0, (0, 0)).shape

    def show(image, layer, head, class_token, row, col):
        query = None if class_token else (row - 1, col - 1)
        look.show(draw_choice(images, maps, patch_size, image - 1, layer - 1, head - 1, query), ALT)

    def slider(n, start=1):
        return IntSlider(start, 1, n, continuous_update=False)

    return interactive(
        show,
        image=slider(B),
        layer=slider(layers, layers),
        head=slider(h),
        class_token=Checkbox(True, description="class token asks"),
        row=slider(rows),
        col=slider(cols),
    )
