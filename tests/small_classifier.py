"""A small problem and a classifier that is no ViT, for the tests of training and of checkpoints."""

import torch
from torch import nn

from vit_helpers.data import Batches, Split
from vit_helpers.training import Recipe, Report, fit, set_seed
from vit_helpers.training.checkpoints import Checkpoint

silent = {"callbacks": []}


class Classifier(nn.Module):
    """No ViT: the room works for any classifier.

    It has a token and dropout, to see that nothing random is lost.
    """

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


def train(epochs=6, checkpoint=None, resume=False, about=None, report=None):
    """A model and its history"""
    callbacks = [Checkpoint(checkpoint, resume, about)] if checkpoint else []
    callbacks += [Report(report)] if report else []
    set_seed(3)
    model = Classifier()
    train = batches(shuffle=True, augment=lambda x: x + 0.1 * torch.randn_like(x))
    recipe = Recipe(epochs=epochs, lr=1e-2)
    return model, fit(model, train, batches(), recipe, callbacks=callbacks)


def figures(history):
    """All measurements that do not depend on the machine"""
    rows = [epoch.to_row() for epoch in history]
    return [{k: v for k, v in row.items() if k != "images_per_second"} for row in rows]
