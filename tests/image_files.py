"""Small image files for tests of folders: made, spoiled, and looked for in what was read."""

import numpy as np
import torch
from PIL import Image


def save(path, number):
    """A PPM file, whose bytes, and so its split, are the same with every version of Pillow"""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (6, 6, 3)).astype(np.uint8)
    path.write_bytes(b"P6 6 6 255\n" + pixels.tobytes())
    return path


def fill(folder, count, first=0):
    for number in range(first, first + count):
        save(folder / f"{number}.ppm", number)


def save_noise(folder):
    """20 pictures of noise, of two kinds and many sizes"""
    torch.manual_seed(0)
    for kind in ("cat", "dog"):
        (folder / kind).mkdir(parents=True)
        for i in range(10):
            pixels = torch.randint(256, (20 + i, 30 - i, 3), dtype=torch.uint8).numpy()
            Image.fromarray(pixels).save(folder / kind / f"{i}.png")
    return folder


def spoil(pets, count=3):
    paths = sorted(pets.rglob("*.ppm"))[:count]
    for path in paths:
        path.write_bytes(b"no picture " + path.name.encode())
    return paths


def files_of(data):
    """The files that each split of a data set of `pets` was read from, by what they hold"""
    return {
        split: {tuple(row) for row in data.get_split(split).pixels.flatten(1).tolist()}
        for split in ("train", "validation", "test")
    }


def divide(pets, **names):
    """Move the classes into folders of splits, each image into one of them"""
    for number, path in enumerate(sorted(pets.rglob("*.ppm"))):
        part = list(names.values())[number % len(names)]
        new = pets.with_name("divided") / part / path.parent.name / path.name
        new.parent.mkdir(parents=True, exist_ok=True)
        path.rename(new)
    return pets.with_name("divided")
