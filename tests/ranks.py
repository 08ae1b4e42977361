"""Processes as torchrun starts them.

First two in a training, of which the test kills one, then three that run cases.
`test_distributed.py` starts this file and looks at the results: what the training prints, and for
the cases files with what each process printed. Each case runs in a process group of two or of
three: the processes join the next group when the cases of one are done. A case returns an exit
status, as a command does. To import torch takes longest, so all are forked from one.
"""

import contextlib
import io
import json
import os
import shutil
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from unittest import mock

# the three processes are forked from one, which imports everything once
import matplotlib.pyplot  # noqa: F401
import sklearn.datasets  # noqa: F401
import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
from torch import nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from vit_helpers.cli import main
from vit_helpers.cli.scores import score_classes
from vit_helpers.data import load
from vit_helpers.distributed import (
    ShardedBatches,
    barrier,
    full_optimizer_state_dict,
    full_state_dict,
    is_main_process,
    rank,
    shard,
    shard_batches,
    world_size,
)
from vit_helpers.training import fit, set_seed
from vit_helpers.training.checkpoints import Checkpoint, load_checkpoint, restore
from vit_helpers.training.loop import start_run, train_epoch
from vit_helpers.training.recipe import Recipe
from vit_helpers.vit import ViT, ViTConfig

# 1,257 training images make two batches of it and a single image, which leaves one process none
BATCH = 628


def train(*words):
    """A training without its figures, which take longer than a few steps do"""
    try:
        with mock.patch("vit_helpers.cli.train.draw_results"):
            return main(["train", *map(str, words)])
    except SystemExit as stop:  # several processes end themselves
        return stop.code


def train_digits(out, *words):
    """The training that several processes and one must finish with the same model"""
    return train("--epochs", 3, "--batch-size", BATCH, "--out", out, *words)


def tune_part(tune, out):
    """Two epochs of the head or LoRA of a model that was trained before"""
    return train_digits(out, "--weights", "two", "--tune", tune, "--epochs", 2)


def train_stream():
    """Three epochs from shards on disk; then the last again, from the checkpoint after two."""
    out = f"stream{world_size()}"
    status = train("--data", "shards:digits", "--epochs", 3, "--out", out)
    if is_main_process():
        Path(f"{out}-cut").mkdir()
        shutil.copy(Path(out, "checkpoint.pt.previous"), Path(f"{out}-cut", "checkpoint.pt"))
    barrier()
    return status or train("--resume", f"{out}-cut")


def resume(folder, copy, *words):
    """Resume a copy of a run, as it was after two of its three epochs"""
    if is_main_process():
        shutil.copytree(folder, copy)
        shutil.move(Path(copy, "checkpoint.pt.previous"), Path(copy, "checkpoint.pt"))
        Path(copy, "weights.safetensors").unlink()
    barrier()
    return train("--resume", copy, *words)


def stop_and_resume():
    """Nine steps of a sharded model with each optimizer, in one go, and resumed after four

    Prints the largest difference between weights and between optimizer states, by optimizer.
    """
    for optimizer in ("adamw", "muon", "sgd"):
        path = Path(f"{optimizer}.pt")
        whole = take_steps(start_sharded(optimizer), range(9))
        Checkpoint(path).on_epoch_end(take_steps(start_sharded(optimizer), range(4)))
        barrier()
        resumed = start_sharded(optimizer)
        restore(load_checkpoint(path), resumed)
        take_steps(resumed, range(4, 9))
        weights, again = full_state_dict(whole.model), full_state_dict(resumed.model)
        gaps = [largest_gap(weights, again)]
        states, again = (
            full_optimizer_state_dict(run.optimizer)["state"] for run in (whole, resumed)
        )
        assert states and states.keys() == again.keys()
        gaps.append(max(largest_gap(states[number], again[number]) for number in states))
        print(optimizer, *gaps)
    return 0


def start_sharded(optimizer):
    set_seed(0)
    config = ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=10)
    return start_run(shard(ViT(config)), Recipe(epochs=3, optimizer=optimizer), 9)


def take_steps(run, steps):
    """Steps on random images, each process on its slice"""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        images = torch.randn(32, 1, 8, 8, generator=generator)
        labels = torch.randint(10, (32,), generator=generator)
        own = slice(rank(), None, world_size())
        run.optimizer.zero_grad()
        nn.functional.cross_entropy(run.network(images[own]), labels[own]).backward()
        run.optimizer.step()
        run.schedule.step()
    return run


def largest_gap(one, other):
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


def train_with_muon():
    """A few steps with Muon, which multiplies whole matrices: sharded ones have to be gathered."""
    set_seed(0)
    data = load("scattered_digits", n=200)
    model = ViT(
        ViTConfig.from_name("mini/4", image_size=data.image_size, in_chans=1, num_classes=10)
    )
    if world_size() > 1:
        shard(model)
    recipe = Recipe(optimizer="muon", epochs=2)
    fit(
        model,
        ShardedBatches(data.batches("train", 64, shuffle=True)),
        ShardedBatches(data.batches("validation", 64)),
        recipe,
    )
    weights = full_state_dict(model)
    if is_main_process():
        torch.save(weights, f"muon{world_size()}.pt")
    return 0


def find_mistakes():
    """The worst mistakes of a model that has learned nothing, in memory and in shards."""
    set_seed(0)
    model = ViT(ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=10))
    nn.init.normal_(model.head.weight, std=0.1)  # zeros would answer the same to all images
    for name in ("digits", "shards:digits"):
        data = load(name)
        batches = shard_batches(data.batches("test", 119))  # 360 images: the last batch has 3
        _, counts, (images, answers) = score_classes(model, batches)
        if is_main_process():
            kind = name.partition(":")[0]
            torch.save([counts, images, *answers], f"mistakes of {kind} by {world_size()}.pt")
    return 0


def restarted(times):
    """As if torchrun had started its processes again this often, in a launch of its own"""
    return {"TORCHELASTIC_RUN_ID": "another", "TORCHELASTIC_RESTART_COUNT": str(times)}


CASES = {  # processes: name: what to run, and what to set in the environment
    2: {
        "two": (lambda: train_digits("two"), {}),
        "sharded": (lambda: train_digits("sharded", "--shard"), {}),
        "whole resumed with --shard": (lambda: resume("two", "resharded", "--shard"), {}),
        "stopped and resumed": (stop_and_resume, {}),
        "older run": (lambda: train("--epochs", 4, "--out", "two"), restarted(0)),
        "older run, second start": (lambda: train("--epochs", 4, "--out", "two"), restarted(1)),
        "no folder": (lambda: train("--epochs", 1), {}),
        "next folder": (
            lambda: train("--epochs", 1, "--batch-size", BATCH),
            {"TORCHELASTIC_MAX_RESTARTS": "0"},
        ),
        "muon": (train_with_muon, {}),
        "stream": (train_stream, {}),
        "head": (lambda: tune_part("head", "head"), {}),
        "lora": (lambda: tune_part("lora", "lora"), {}),
        "mistakes": (find_mistakes, {}),
    },
    3: {"three": (lambda: resume("sharded", "three", "--shard"), {})},
}


def run_case(run, environment, path):
    """Run one case in this process and write its status, output and errors to a file"""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            status = run()
        except Exception:
            status = "an exception"
            traceback.print_exc()
    path.write_text(json.dumps([status, out.getvalue(), err.getvalue()]))


def run_cases(folder):
    me, leave = int(os.environ["RANK"]), dist.destroy_process_group
    os.chdir(folder)
    for count, cases in CASES.items():
        if me >= count:
            continue
        store = dist.FileStore(str(folder / f"store{count}"), count)
        dist.init_process_group(
            "gloo", store=store, rank=me, world_size=count, timeout=timedelta(minutes=5)
        )
        # how `train` ends
        with (
            mock.patch("torch.distributed.destroy_process_group"),
            mock.patch("os._exit", sys.exit),
        ):
            for name, (run, environment) in cases.items():
                run_case(run, environment, folder / f"{name}.{me}.json")
                dist.barrier()
        leave()


def train_again(folder):
    """A training that torchrun starts again, since the test kills a process of the first start."""
    os.chdir(folder)

    def wait(*args, **kwargs):
        time.sleep(2 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 0)
        return train_epoch(*args, **kwargs)

    with (
        mock.patch("os._exit", sys.exit),
        mock.patch("vit_helpers.training.loop.train_epoch", wait),
    ):
        if status := train_digits("again", "--shard"):
            raise SystemExit(status)


if __name__ == "__main__":
    start = "fork" if sys.platform == "linux" else "spawn"
    way = {
        "start_method": start,
        "max_restarts": 1,
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
    }
    elastic_launch(LaunchConfig(1, 1, 2, **way), train_again)(Path(sys.argv[1]))
    elastic_launch(LaunchConfig(1, 1, 3, **way), run_cases)(Path(sys.argv[1]))
    os._exit(0)  # a thread of torch that is still ending may abort an interpreter that clears up
