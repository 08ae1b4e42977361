"""A ViT that reads what you draw: the page, its model in JavaScript, and the same in notebooks."""

from vit_helpers.live.explorer import Explorer

__all__ = ["Explorer"]
