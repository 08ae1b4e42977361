"""The options of commands: every one is explained, examples hold, bad ones are named."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import main_status

from vit_helpers.cli import COMMANDS
from vit_helpers.cli.parser import parse

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--data", "mnist"], 1, "unknown data 'mnist', known: digits"),
        (["--size", "XL"], 1, "unknown model 'XL/4', known: mini, Ti"),
        (["--patch", "3"], 1, "patches of side 3"),
        (["--epochs", "0"], 2, "must be at least 1, got 0"),
        (["--lr", "0"], 1, "lr must be above 0"),
        (["--device", "abacus"], 1, "'abacus'"),
        (["--device", "meta"], 1, "no device 'meta' on this machine"),
        (["--epochs", "1e3"], 2, "invalid positive_int value: '1e3'"),
        (["--out", "file"], 1, "file"),
        (["--resume", "nowhere"], 1, "{here}/nowhere/checkpoint.pt"),
        (["--resume", "a", "--out", "b"], 1, "leave out --out"),
        (["--lr", "1e30", "--epochs", "1"], 1, "the loss is nan at step"),
    ],
)
def test_bad_options_are_named(tmp_path, monkeypatch, capsys, words, status, says):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("in the way")
    assert main_status("train", *words) == status
    err = capsys.readouterr().err.replace("\\", "/")
    assert says.format(here=tmp_path.as_posix()) in err
    # no folder is left of a run that kept nothing
    assert {path.name for path in Path().rglob("*")} <= {"file", "runs"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_option(capsys, name):
    assert main_status("--help") == 0
    assert name in capsys.readouterr().out
    assert main_status(name, "--help") == 0
    options = re.split(r"\n  (?=-|\w)", capsys.readouterr().out.partition("options:")[2])[1:]
    assert options and all(len(option.split()) > 3 for option in options)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_two_examples_whose_options_exist(capsys, name):
    assert main_status(name, "--help") == 0
    examples = re.findall(rf"^    python -m vit_helpers ({name}.*)$", capsys.readouterr().out, re.M)
    assert len(examples) >= 2
    for example in examples:
        assert parse(shlex.split(example.partition(" > ")[0])).command == name


HELP = """
import sys
from vit_helpers.cli import main
try:
    main({words})
except SystemExit:
    pass
print([name for name in sorted(sys.modules) if name.partition(".")[0] in {names}])
"""


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_neither_torch_nor_a_command(words):
    code = HELP.format(words=words, names={"torch", "numpy", "pandas", "matplotlib", "vit_helpers"})
    words = [sys.executable, "-S", "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    imported = done.stdout.splitlines()[-1]
    assert imported == "['vit_helpers', 'vit_helpers.cli', 'vit_helpers.cli.parser']", done.stderr


def test_an_unknown_option_is_answered_with_those_of_the_command(capsys):
    assert main_status("train", "--learning-rate", "1") == 2
    assert re.search(
        r"usage: python -m vit_helpers train .*unrecognized arguments: --learning-rate 1",
        capsys.readouterr().err,
        re.S,
    )
