"""A Vision Transformer, built by hand: one notebook, one module.

The paper is Dosovitskiy et al., "An Image is Worth 16x16 Words", arXiv 2010.11929.
Letters mean the same in every file, notebook and picture:

    B       images in a batch             D       width of a token
    C       channels of an image          h       attention heads
    H, W    height and width in pixels    d       width of a head, D / h
    P       side of a patch in pixels     L       encoder blocks
    N       patches, (H/P) * (W/P)        K       classes
    T       tokens, N + 1 with the class token

The model, in the order of the notebooks: patches, embeddings, attention, encoder, vit. Around it:
data, training, inspection, pretrained, ablation, scaling; plots, checks and cli.
Importing this package imports nothing else: the names below are loaded when they are first used.
"""

from importlib import import_module

__version__ = "0.3.0"

EXPORTS = {
    "ViT": "vit_helpers.vit",
    "ViTConfig": "vit_helpers.vit",
    "load": "vit_helpers.data",
    "fit": "vit_helpers.training",
    "load_pretrained": "vit_helpers.pretrained",
}
__all__ = list(EXPORTS)


def __getattr__(name: str) -> object:
    """Load an exported name when it is first used (PEP 562)."""
    if name not in EXPORTS:
        raise AttributeError(f"module 'vit_helpers' has no attribute {name!r}")
    return getattr(import_module(EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *EXPORTS])
