"""Measure what residual connections and the place of the norm do to gradients and training.

Gradients: norms of those of a new model's MLPs (`fc2.weight`) in its first and last block, for 32
digits. Training: loss and accuracy on the same 32 digits after 50 steps of AdamW. A seed draws
digits and weights. The rows are stored in a CSV file.
"""

from argparse import ArgumentParser, Namespace
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools import main
from tools.experiments.measuring import add_out, store
from vit_helpers.data import load
from vit_helpers.encoder import Block
from vit_helpers.training import set_seed
from vit_helpers.training.presets import NormLastBlock
from vit_helpers.vit import ViT, ViTConfig


class NoResidual(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.mlp(self.norm2(self.attn(self.norm1(x), mask)))


BLOCKS = {"pre-norm": Block, "post-norm": NormLastBlock, "no residual": NoResidual}
# rate, steps of warm-up
SCHEDULES = {
    "1e-3": (1e-3, 1),
    "1e-3 after warm-up": (1e-3, 25),
    "2e-4": (2e-4, 1),
}
DEPTHS, DEEPEST_TRAINED, SEEDS, STEPS = (3, 6, 12, 24, 48), 24, 5, 50


def add_arguments(parser: ArgumentParser) -> None:
    add_out(parser, "norm_placement.csv")


def run(args: Namespace) -> None:
    torch.set_num_threads(1)
    cases = product(("untrained", *SCHEDULES), BLOCKS, DEPTHS, range(SEEDS))
    store(
        (measure(*case) for case in cases if case[0] == "untrained" or case[2] <= DEEPEST_TRAINED),
        args.out,
    )


def measure(schedule: str, block: str, depth: int, seed: int) -> dict[str, object]:
    set_seed(seed)
    data, config = (
        load("digits"),
        ViTConfig.from_name("mini/2", image_size=8, in_chans=1, num_classes=10, depth=depth),
    )
    drawn, net = torch.randperm(len(data.train.labels))[:32], ViT(config, BLOCKS[block])
    # from a head of zeros no block has a gradient
    nn.init.xavier_uniform_(net.get_parameter("head.weight"))
    images, labels = data.normalize(data.train.images[drawn]), data.train.labels[drawn]
    row = {"schedule": schedule, "block": block, "depth": depth, "seed": seed}
    if schedule == "untrained":
        ends = [net.get_parameter(f"blocks.{i}.mlp.fc2.weight") for i in (0, depth - 1)]
        first, last = torch.autograd.grad(F.cross_entropy(net(images), labels), ends)
        return row | {"first": first.norm().item(), "last": last.norm().item()}
    (lr, warmup), optimizer = SCHEDULES[schedule], torch.optim.AdamW(net.parameters(), fused=True)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = lr * min(1, (step + 1) / warmup)
        loss = F.cross_entropy(logits := net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return row | {
        "loss": loss.item(),
        "accuracy": (logits.argmax(dim=1) == labels).float().mean().item(),
    }


if __name__ == "__main__":
    raise SystemExit(main())
