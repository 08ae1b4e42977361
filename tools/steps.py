"""The steps that benchmarks time, the same for every model, and fresh processes to run them in."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[], Any]
Size = int | None


def inference_step(
    model: nn.Module, images: Tensor, labels: Tensor | None = None, precision: str = "float32", size: Size = None
) -> Step:
    """A function that runs the images through the model, `size` at a time (default: all at once)."""

    def step() -> None:
        model.eval()
        with torch.inference_mode(), autocast(images, precision):
            for some in images.split(size or len(images)):
                model(some)

    return step


def train_step(
    model: nn.Module, images: Tensor, labels: Tensor, precision: str = "float32", size: Size = None, optimizer: Any = None
) -> Step:
    """A function that learns from the images, `size` at a time (default: all at once): cross entropy, AdamW."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = list(zip(images.split(size or len(images)), labels.split(size or len(images)), strict=True))

    def step() -> None:
        model.train()
        for some, their in batches:
            optimizer.zero_grad()
            with autocast(some, precision):
                output = model(some)
            logits = getattr(output, "logits", output)  # Hugging Face wraps them
            F.cross_entropy(logits.float(), their).backward()
            optimizer.step()

    return step


STEPS: dict[str, Callable[..., Step]] = {"inference": inference_step, "training": train_step}


def autocast(images: Tensor, precision: str) -> torch.autocast:
    """Matrix products in bfloat16 if that is the precision, as in `fit`."""
    return torch.autocast(images.device.type, torch.bfloat16, enabled=precision == "bfloat16")


@contextmanager
def num_threads(count: int) -> Iterator[None]:
    """Torch uses this many threads inside a `with`."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_own_process(function: Callable, *args: Any) -> Any:
    """What function(*args) returns in a fresh process, with as many threads as here; its error is a RuntimeError."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(with_threads, torch.get_num_threads(), function, *args).result()


def with_threads(count: int, function: Callable, *args: Any) -> Any:
    try:
        with num_threads(count):
            return function(*args)
    except Exception as error:  # some of torch's errors cannot be pickled
        raise RuntimeError(first_line(error)) from None


def first_line(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')[:150]}"
