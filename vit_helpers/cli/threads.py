"""How many threads a command computes with: as few as are fast, also beside other programs.

Threads that compute together wait for one another many times a step. Where other programs need the
processors, most of them wait for one that has none: `python -m tools.crowd` measures it. So a
command has one thread, which is about as fast as more for small models, and all processors that it
may use for models with so much work that these gain. Its threads sleep while they wait. Whatever
OMP_NUM_THREADS or MKL_NUM_THREADS say is left as it is.

This file is imported before torch, which reads the variables when it is imported.
"""

import os
from typing import Any

from vit_helpers._cpus import count_cpus

LARGE = 1e9  # multiply-adds of a batch's forward pass from which more threads gain
automatic = False  # whether `start_with_one_thread` has chosen, and nobody else


def start_with_one_thread() -> None:
    """Choose one thread, for whatever is imported after this."""
    global automatic
    automatic = not os.environ.keys() & {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}
    if automatic:
        os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def use_threads(model: Any, batch_size: int) -> None:
    """Let torch use all processors for large batches of a ViT, if nobody has chosen otherwise."""
    import torch  # not before `start_with_one_thread`, whose variables it reads

    from vit_helpers.scaling.cost import multiply_adds

    if not automatic or not hasattr(model, "config"):  # a CNN is small here
        return
    if batch_size * sum(multiply_adds(model.config).values()) >= LARGE:
        torch.set_num_threads(max(1, int(count_cpus())))
