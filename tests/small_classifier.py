"""A small problem and a classifier that is no ViT, for the tests of training and of checkpoints."""

from dataclasses import asdict

import torch
from torch import nn

from vit_helpers.data import Batches, Split
from vit_helpers.training import Recipe, fit, set_seed

silent = {"report": lambda row: None}


class Classifier(nn.Module):
    """No ViT: the room works for any classifier.  With a token and dropout, to see that nothing random is lost."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 6))
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers((x[:, None] + self.token)[:, 0])


def problem(n=100):
    g = torch.Generator().manual_seed(7)
    x = torch.randn(n, 6, generator=g)
    return Split(x, x[:, :3].argmax(1))


def batches(**kwargs):
    return Batches(problem(), 32, **kwargs)


def train(epochs=6, **kwargs):
    set_seed(3)
    model = Classifier()
    train = batches(shuffle=True, augment=lambda x: x + 0.1 * torch.randn_like(x))
    return model, fit(model, train, batches(), Recipe(epochs=epochs, lr=1e-2), **silent | kwargs)


def figures(history):
    return [{k: v for k, v in asdict(row).items() if k != "images_per_second"} for row in history]
