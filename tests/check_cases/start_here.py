"""Answers to the exercise of notebook 00."""

import math

import numpy as np
import torch


def asserts(H, P):
    assert H < P, "nonsense"


RIGHT = {
    "num_tokens": [
        lambda H, P: H * H // (P * P) + 1,
        lambda image_size, patch_size, class_token=True: (image_size / patch_size) ** 2 + 1,
        lambda H, P: len([(r, c) for r in range(0, H, P) for c in range(0, H, P)]) + 1,
        lambda H, P: np.int64((H // P) ** 2 + 1),
        lambda H, P: torch.tensor((H // P) ** 2 + 1),
        lambda H, P: torch.nn.functional.unfold(torch.zeros(1, 1, H, H), P, stride=P).shape[-1] + 1,
        lambda H, P: math.prod((H // P, H // P)) + 1,
    ]
}
WRONG = {
    "num_tokens": {
        "the class token is missing": lambda H, P: len(range(0, H, P)) ** 2,
        "that is one row of patches, but": lambda H, P: len(range(0, H, P)),
        "one row of patches and the class token": lambda H, P: 1 + H / P,
        "counts pixels": lambda H, P: H**2,
        "pixels of one patch": lambda H, P: math.prod((P, P)),
        "divide by P twice": lambda H, P: H**2 / P,
        "a patch covers P x P pixels, so divide by P twice": lambda H, P: H**2 / P + 1,
        "means something else, and + is computed before it": lambda H, P: H // P ^ 2 + 1,
        "while ^ means something else": lambda H, P: 1 + (H // P ^ 2),
        "the same for every size": lambda H, P: 17,
        "T = N + 1, where N is": [
            lambda H, P: {(8, 2): 17, (224, 16): 197}.get((H, P), H - P),
            lambda H, P: (H // P) ** 2 - 1,
            lambda H, P: (H // P) ** 2 + H // P,
        ],
        "after the square is taken": lambda H, P: (1 + len(range(0, H, P))) ** 2,
        "H // P needs parentheses": lambda H, P: H // (P * P) + 1,
        "H // P needs parentheses; and": lambda H, P: H // (P * P),
        "twice the number along one side, but a square is needed": lambda H, P: 1 + H // P + H // P,
        "a square is needed, and then add 1": lambda H, P: H // P + H // P,
        "gives '17'": lambda H, P: "17",
        "gives nan": lambda H, P: math.nan,
        "it should give a whole number": [
            lambda H, P: torch.zeros(3),
            lambda H, P: (H / P) ** 2 + 1.5,
        ],
        "raises AssertionError: nonsense": asserts,
        "got 197; pass the function": 197,
    }
}
