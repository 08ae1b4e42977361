"""The command line: what a user runs, one file per command, each with `add_arguments(parser)` and `run(args)` -> status."""

import argparse
import ast
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

COMMANDS = ("train", "predict", "ablate", "shards", "bench", "doctor")
MOVED = {  # commands of version 0.1 that maintainers and teachers run, and where they are now (remove in 0.3)
    "pretrain": "pretrain",
    "grade": "localization",
    "transfer": "transfer",
    "parity": "parity",
    "speed": "speed",
    "rerun": "execute",
    "pictures": "pictures",
    "index": "paper_index",
    "book": "book",
    "slides": "slides",
    "publish": "publish",
    "classroom": "classroom",
}


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; words: the arguments, by default those of the command line."""
    words = sys.argv[1:] if words is None else list(words)
    if words and words[0] in MOVED:
        new = " ".join(["python -m", f"tools.{MOVED[words[0]]}", *words[1:]])
        print(f"{words[0]!r} has moved. In the folder of the repository, run: {new}", file=sys.stderr)
        return 2
    ask = argparse.ArgumentParser(prog="python -m vit_helpers", description="Commands of the Vision Transformer series.")
    parsers = ask.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        about = docstring(name)
        parser = parsers.add_parser(
            name, help=about.partition("\n")[0], description=about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in words[:1]:  # only this command is imported: what another needs may be missing here, or broken
            command = import_module(f"vit_helpers.cli.{name}")
            command.add_arguments(parser)
            parser.set_defaults(run=command.run)
    args = ask.parse_args(words)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


def docstring(name: str) -> str:
    """The docstring of a command, read from its file without importing it"""
    path = Path(__file__).with_name(f"{name}.py")
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def positive_int(text: str) -> int:
    """The type of an option that counts something: 1 or more"""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
