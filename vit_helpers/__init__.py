"""A Vision Transformer, one idea a file.

The paper is Dosovitskiy et al., "An Image is Worth 16x16 Words", arXiv 2010.11929.
Letters mean the same in every file, notebook and picture:

    B       images in a batch             D       width of a token
    C       channels of an image          h       attention heads
    H, W    height and width in pixels    d       width of a head, D / h
    P       side of a patch in pixels     L       encoder blocks
    N       patches, (H/P) * (W/P)        K       classes
    T       tokens, N + 1 with the class token

The rooms, in the order of the ideas: patches, embeddings, attention, encoder, vit; data, training with recipe,
diagnosis and checkpoints; inspection, grading; pretrained, finetune, masked; settings, ablation; scaling,
timing, speedups, parallel; plots.
Importing this package runs nothing: each room is imported where it is used (`from vit_helpers.vit import ViT`).
"""

__version__ = "0.1.0"
