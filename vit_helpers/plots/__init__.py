"""Figures: each function takes data, draws into the axes that it is given (`ax`), and returns what it drew on.

look: colors, text size, `show`;  images: pictures, patches, attention;  curves: training;  model: the whole ViT
"""
