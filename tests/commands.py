"""Commands as tests call them: in this process, or under way; and a model for them, untrained."""

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from vit_helpers.cli import main
from vit_helpers.pretrained import Preprocess, save_weights
from vit_helpers.vit import ViT, ViTConfig


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def command(*words, cwd):
    """A command in this process, as if typed in a folder: starting Python costs far more"""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main_status(*map(str, words))
    return Done(status, out.getvalue(), err.getvalue())


def stop_halfway(table, path, **options):
    """Ctrl-C while pandas writes a table, in place of `DataFrame.to_csv`"""
    Path(path).write_text("half")
    raise KeyboardInterrupt


def main_status(*words):
    """The exit status of a command, run in this process"""
    try:
        return main(list(words))
    except SystemExit as stop:  # argparse's way to end
        return stop.code


def start(*words, cwd):
    """A command under way, which writes into two files; forked where that is safe"""
    way = "forkserver" if sys.platform == "linux" else "spawn"  # on macOS a fork may crash
    ways = multiprocessing.get_context(way)
    if way == "forkserver":
        ways.set_forkserver_preload(["matplotlib.pyplot", "sklearn.datasets", "torch._dynamo"])
    run = ways.Process(
        target=say_into_files,
        args=(list(map(str, words)), cwd, said := Path(tempfile.mkdtemp(dir=cwd))),
    )
    run.start()
    run.out, run.err = said / "out", said / "err"
    return run


def say_into_files(words, cwd, said):
    """A command in the process that was started for it"""
    os.chdir(cwd)
    # a shell's background jobs are deaf to Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (said / "out").open("w", buffering=1) as out, (said / "err").open("w") as err:
        sys.stdout, sys.stderr = out, err
        sys.exit(main(words))


def ended(run):
    """The exit status of a command that was started, and what it said"""
    run.join(300)
    return Done(run.exitcode, run.out.read_text(), run.err.read_text())


def untrained(path, *names, **notes):
    """A model as it is saved by a run, untrained"""
    config = ViTConfig(
        image_size=8, patch_size=8, embed_dim=8, depth=1, num_heads=1, num_classes=len(names)
    )
    save_weights(
        path, ViT(config), Preprocess(8, (8, 8), "bilinear", (0.5,) * 3, (0.5,) * 3), names, notes
    )
