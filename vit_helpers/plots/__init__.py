"""Figures: each takes data, draws where it is told (`ax`), and hands back what it drew on.

look: colors, text size, `show`;  images: pictures, patches, attention;  curves: training;  model: the whole ViT
"""
