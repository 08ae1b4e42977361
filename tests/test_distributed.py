"""Several processes against one.

In a group that starts once (ranks.py), and as torchrun handles lost processes.
"""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from ranks import (
    BATCH,
    CASES,
    find_mistakes,
    resume,
    train,
    train_digits,
    train_stream,
    train_with_muon,
    tune_part,
)

from vit_helpers import distributed
from vit_helpers.cli.run_folder import find_checkpoint
from vit_helpers.data import load
from vit_helpers.data.shards import write_shards
from vit_helpers.distributed import ShardedBatches, fork_rng, is_peer_failure, mean_loss
from vit_helpers.pretrained import load_weights
from vit_helpers.training.checkpoints import load_checkpoint

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="torchrun's processes are tested on Linux and macOS"
)
PROC = Path("/proc")
needs_proc = pytest.mark.skipif(
    not PROC.exists(), reason="the number of a worker is read from /proc"
)


class Said(NamedTuple):
    status: int
    out: str
    err: str


TORCHRUN = ["-m", "torch.distributed.run", "--standalone"]  # as a person starts it


def python(*words, cwd):
    """Python under way"""
    words = [sys.executable, *map(str, words)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        words, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def alone(run, *words, cwd):
    """What a case prints in this process, with no others"""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return Said(run(*words), out.getvalue(), err.getvalue())


def epochs(text):
    """The numbers in the lines of the history, without speed, which differs"""
    lines = [line.rpartition("lr")[0] for line in text.splitlines() if line.startswith("epoch")]
    return [[float(number) for number in re.findall(r"[\d.]+", line)] for line in lines]


def like(rows):
    """Equal but for the last digit of each number, which may be rounded up in one run only."""
    return [pytest.approx(row, abs=1.1e-3) for row in rows]


def history(folder):
    return load_checkpoint(find_checkpoint(folder))["history"]


def largest_difference(one, two):
    """Between the logits of two runs for all test images.

    Weights themselves may differ by more: Adam divides each gradient by its size, so that one of a
    millionth, which is rounding alone, moves its weight as far as any other. That of the keys' bias
    is such: softmax does not feel it.
    """
    images = load("digits").test.images
    logits = [
        load_weights(folder / "weights.safetensors").model.eval()(images) for folder in (one, two)
    ]
    return (logits[0] - logits[1]).abs().max().item()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder in which all cases ran, and what each process said: (name, rank) -> `Said`.

    Rank 0 of "one" ran alone. In the training "again", which is the first, a process is killed
    after an epoch; what both print is rank 0's here.
    """
    folder = tmp_path_factory.mktemp("runs")
    write_shards(load("digits"), folder / "digits", 200)
    (folder / "runs" / "digits-1").mkdir(parents=True)
    group = python(ROOT / "tests" / "ranks.py", folder, cwd=folder)
    if PROC.exists():
        kill_one(group, "epoch   1")
    said = {("one", 0): alone(train_digits, "one", cwd=folder)}
    out, err = group.communicate(timeout=300)
    assert group.returncode == 0, out + err
    said["again", 0] = Said(0, out, err)
    for count, cases in CASES.items():
        for name in cases:
            for rank in range(count):
                said[name, rank] = Said(*json.loads((folder / f"{name}.{rank}.json").read_text()))
    assert said["one", 0].status == 0, said["one", 0].err
    return folder, said


@pytest.mark.processes
@pytest.mark.parametrize("way", ["two", "sharded"])
def test_several_processes_end_where_one_does(runs, way):
    folder, said = runs
    assert [said[way, rank].status for rank in range(2)] == [0, 0], said[way, 0].err
    assert epochs(said[way, 0].out) == like(epochs(said["one", 0].out))
    for one, other in zip(history(folder / "one"), history(folder / way), strict=True):
        assert one.train.loss == pytest.approx(other.train.loss, abs=1e-6)
        assert one.validation.loss == pytest.approx(other.validation.loss, abs=1e-6)
        assert vars(one.evidence) == pytest.approx(vars(other.evidence), rel=1e-5)
    assert largest_difference(folder / "one", folder / way) < 1e-6


@pytest.mark.processes
@pytest.mark.parametrize("tune", ["head", "lora"])
def test_several_processes_tune_a_part_as_one_does(runs, tune):
    """The head alone is trained on features, of which each process computes its share"""
    folder, said = runs
    assert [said[tune, rank].status for rank in range(2)] == [0, 0], said[tune, 0].err
    one = alone(tune_part, tune, f"{tune} alone", cwd=folder)
    assert epochs(said[tune, 0].out) == like(epochs(one.out)) and len(epochs(one.out)) == 2
    assert largest_difference(folder / tune, folder / f"{tune} alone") < 1e-5


@pytest.mark.processes
@pytest.mark.parametrize("way", ["two", "sharded"])
def test_the_first_process_alone_prints(runs, way):
    _, said = runs

    def lines_of(name):  # how long it will take is only said by a run that lasts a second
        return [line for line in said[name, 0].out.splitlines() if not line.startswith("expected")]

    lines = lines_of(way)
    assert len(lines) == len(set(lines)) == len(lines_of("one"))
    assert "2 processes of 1 thread" in lines[0]
    assert said[way, 1].out == said[way, 1].err == ""


@pytest.mark.processes
def test_the_file_of_a_sharded_model_is_that_of_a_whole_one(runs):
    folder, _ = runs
    one, other = (load_checkpoint(folder / name / "checkpoint.pt") for name in ("two", "sharded"))
    assert one.keys() == other.keys() and one["model"].keys() == other["model"].keys()
    for name, weight in one["model"].items():
        assert type(other["model"][name]) is torch.Tensor
        assert other["model"][name].shape == weight.shape
    states, again = (state["optimizer"]["state"] for state in (one, other))
    assert states.keys() == again.keys()
    for number, values in states.items():
        assert {name: value.shape for name, value in values.items()} == {
            name: value.shape for name, value in again[number].items()
        }


@pytest.mark.processes
def test_a_resumed_sharded_run_is_one_never_stopped(runs):
    _, said = runs
    status, out, err = said["stopped and resumed", 0]
    assert status == 0, err
    assert out.splitlines() == [f"{name} 0.0 0.0" for name in ("adamw", "muon", "sgd")]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("out", "case"),
    [("alone", None), ("three", "three"), ("resharded", "whole resumed with --shard")],
)
def test_any_number_of_processes_resumes_sharded_or_not(runs, out, case):
    folder, said = runs
    done = alone(resume, "sharded", out, cwd=folder) if case is None else said[case, 0]
    assert done.status == 0, done.err
    assert epochs(done.out) == like(epochs(said["one", 0].out)[2:])
    assert largest_difference(folder / "one", folder / out) < 1e-6


@pytest.mark.processes
def test_a_damaged_checkpoint_of_a_sharded_run_is_refused(runs, tmp_path):
    folder, _ = runs
    path = shutil.copytree(folder / "sharded", tmp_path / "run") / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-1])
    status, _, err = alone(train, "--resume", "run", cwd=tmp_path)
    assert status == 1 and "truncated or damaged" in err


def kill_one(run, after):
    """End a worker, without a warning, after the first line that starts so.

    Its process number comes from the system.
    """
    while not run.stdout.readline().startswith(after):
        assert run.poll() is None
    children = (PROC / f"{run.pid}/task/{run.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)


LONG = ["-m", "vit_helpers", "train", "--epochs", 3, "--batch-size", BATCH, "--out", "run"]


@pytest.mark.processes
@needs_proc
def test_a_worker_that_dies_ends_the_run_and_nothing_finished_is_lost(runs, tmp_path):
    folder, said = runs
    run = python(*TORCHRUN, "--nproc-per-node=2", *LONG, cwd=tmp_path)
    kill_one(run, "epoch   1")
    out, err = run.communicate(timeout=120)
    assert run.returncode != 0
    stopped = r"stopped(, because another process failed)?; "
    found = re.search(f"{stopped}everything up to epoch [12] is kept in run/checkpoint.pt", out)
    assert "continue with: python -m vit_helpers train --resume run" in out
    # or torchrun was first to end it
    assert found and bool(found[1]) == ("error in process 0" in err) and "SIGKILL" in err
    status, out, err = alone(train, "--resume", "run", cwd=tmp_path)
    assert status == 0, err
    assert 1 <= len(epochs(out)) <= 2 and epochs(out) == like(
        epochs(said["one", 0].out)[-len(epochs(out)) :]
    )
    assert largest_difference(folder / "one", tmp_path / "run") < 1e-6


@pytest.mark.processes
@needs_proc
def test_torchrun_starts_again_from_the_last_checkpoint(runs):
    folder, said = runs
    _, out, err = said["again", 0]
    assert "SIGKILL" in err and epochs(out)[-1:] == like(epochs(said["one", 0].out)[-1:])
    assert 1 not in [epoch for epoch, *_ in epochs(out)]  # `kill_one` has read the first one
    assert largest_difference(folder / "one", folder / "again") < 1e-6


@pytest.mark.processes
@pytest.mark.parametrize("start", ["older run", "older run, second start"])
def test_a_restart_does_not_take_over_an_older_run(runs, start):
    folder, said = runs
    assert [said[start, rank].status for rank in range(2)] == [1, 1]
    assert (
        sum(
            said[start, rank].err.count("already exists: continue it with --resume two")
            for rank in range(2)
        )
        == 1
    )
    assert len(history(folder / "two")) == 3


def test_a_first_checkpoint_cut_short_is_none(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.pt.part").write_bytes(b"half")
    assert find_checkpoint(tmp_path / "run") is None
    status, _, err = alone(train, "--resume", "run", cwd=tmp_path)
    assert status == 1 and f"no checkpoint at {tmp_path / 'run'}" in err


@pytest.mark.processes
def test_muon_works_on_weights_shared_out(runs):
    """It multiplies whole matrices, which each process then has to gather"""
    folder, said = runs
    assert said["muon", 0].status == 0, said["muon", 0].err
    assert alone(train_with_muon, cwd=folder).status == 0
    one, two = (torch.load(folder / f"muon{processes}.pt") for processes in (1, 2))
    assert max((one[name] - two[name]).abs().max() for name in one if "qkv.bias" not in name) < 1e-3


@pytest.mark.processes
def test_several_processes_find_the_mistakes_that_one_does(runs):
    """Each finds those among its own images, some of them none"""
    folder, said = runs
    assert [said["mistakes", rank].status for rank in range(2)] == [0, 0], said["mistakes", 0].err
    assert alone(find_mistakes, cwd=folder).status == 0
    for kind in ("digits", "shards"):
        one, two = (torch.load(folder / f"mistakes of {kind} by {count}.pt") for count in (1, 2))
        assert len(one[1]) == 12 and one[0].sum() == 360
        torch.testing.assert_close(two, one)


@pytest.mark.processes
def test_a_run_that_may_start_again_needs_a_folder(runs):
    _, said = runs
    status, _, err = said["no folder", 0]
    assert status == 1 and "give --out" in err


@pytest.mark.processes
def test_processes_of_one_run_share_the_next_free_folder(runs):
    folder, said = runs
    status, out, err = said["next folder", 0]
    assert status == 0, err
    assert "checkpoint: runs/digits-2/checkpoint.pt" in out
    assert {path.name for path in (folder / "runs").iterdir()} == {"digits-1", "digits-2"}


@pytest.mark.processes
@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_on_shards_goes_on_where_it_stopped(runs, processes):
    folder, said = runs
    status, out, err = alone(train_stream, cwd=folder) if processes == 1 else said["stream", 0]
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("shards:digits: 1,257 training images; ViT mini/4, ")
    assert [line[:9] for line in lines if line.startswith("epoch")] == [
        f"epoch   {epoch}" for epoch in (1, 2, 3, 3)
    ]
    assert len(re.findall(r"^test accuracy 0\.\d{4} on 360 images", out, re.M)) == 2
    rows = history(folder / f"stream{processes}")
    assert rows[2].validation.accuracy > 0.5 and rows[2].train.loss < rows[0].train.loss
    assert largest_difference(folder / f"stream{processes}", folder / f"stream{processes}-cut") == 0


# Without other processes


def in_group(monkeypatch, rank, world):
    monkeypatch.setattr(distributed, "rank", lambda: rank)
    monkeypatch.setattr(distributed, "world_size", lambda: world)


def test_shares_make_the_batch_and_all_draw_the_same_order(monkeypatch):
    shares, after = [], set()
    for rank in range(3):
        in_group(monkeypatch, rank, 3)
        torch.manual_seed(1)
        batches = load("digits").batches("train", BATCH, shuffle=True)
        share = ShardedBatches(batches)
        shares.append([(images, labels, torch.rand(())) for images, labels in share])
        after.add(torch.rand(()).item())
    assert [len(labels) for _, labels, _ in shares[1]] == [209, 209, 0]
    assert len(after) == 1  # so the next pass has the same order everywhere
    in_group(monkeypatch, 0, 1)
    torch.manual_seed(1)
    whole = list(ShardedBatches(load("digits").batches("train", BATCH, shuffle=True)))
    for step, (images, labels) in enumerate(whole):
        for rank in range(3):
            assert torch.equal(shares[rank][step][0], images[rank::3])
            assert torch.equal(shares[rank][step][1], labels[rank::3])
    assert len({draw.item() for share in shares for _, _, draw in share}) == 9  # dropout differs


def test_the_mean_over_unequal_shares_is_the_mean_over_all(monkeypatch):
    logits, labels = torch.randn(5, 3, requires_grad=True), torch.tensor([0, 1, 2, 0, 1])
    whole = mean_loss(logits, labels, 0.1)
    in_group(monkeypatch, 0, 2)
    monkeypatch.setattr(distributed, "all_reduce_sum", lambda number: 5)
    shares = [mean_loss(logits[rows], labels[rows], 0.1) for rows in (slice(0, 4), slice(4, 5))]
    assert torch.allclose(sum(shares) / 2, whole)
    assert mean_loss(logits[:0], labels[:0], 0.1) == 0


def test_random_numbers_are_put_back_after_an_error(monkeypatch):
    in_group(monkeypatch, 1, 2)
    state = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt), fork_rng(0):
        raise KeyboardInterrupt
    assert torch.equal(torch.get_rng_state(), state)
    for _ in ShardedBatches(load("digits").batches("train", BATCH)):
        torch.rand(3)
        break
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RuntimeError("could not restore the model"), False),
        (RuntimeError("Expected all tensors to be on the same device"), False),
        (ValueError("Connection reset by peer"), False),
        (
            RuntimeError(
                "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] "
                "Connection closed by peer [::1]:1"
            ),
            True,
        ),
        (torch.distributed.DistBackendError("NCCL error"), True),
        (torch.distributed.DistStoreError("wait timeout"), True),
    ],
)
def test_only_the_loss_of_another_process_is_taken_for_one(monkeypatch, error, lost):
    assert not is_peer_failure(error)  # in a process that trains alone
    in_group(monkeypatch, 0, 2)
    assert is_peer_failure(error) is lost


def test_alone_nothing_changes():
    model, rows = torch.nn.Linear(2, 2), torch.ones(2)
    assert (
        distributed.init_distributed("cpu") == "cpu"
        and distributed.is_main_process()
        and distributed.world_size() == 1
    )
    assert (
        distributed.wrap_ddp(model) is model
        and distributed.shard(model) is model
        and distributed.all_gather(rows) is rows
    )
    assert distributed.all_reduce_sum(3) == 3 and distributed.broadcast("a") == "a"
