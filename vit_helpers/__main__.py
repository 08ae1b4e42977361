"""python -m vit_helpers COMMAND: one entry for all commands, each with its own --help."""

import argparse
import ast
import sys
from importlib import import_module
from pathlib import Path

COMMANDS = (
    "train",
    "shards",
    "predict",
    "ablate",
    "pretrain",
    "grade",
    "transfer",
    "bench",
    "parity",
    "speed",
    "rerun",
    "pictures",
    "index",
    "book",
    "slides",
    "publish",
    "doctor",
    "classroom",
)


def main(words=None):
    words = sys.argv[1:] if words is None else words
    ask = argparse.ArgumentParser(prog="python -m vit_helpers", description="Commands of the Vision Transformer series.")
    parsers = ask.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        about = docstring(name)
        parser = parsers.add_parser(
            name, help=about.partition("\n")[0], description=about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in words[:1]:  # this one alone is imported: what another needs may be missing here, or broken
            command = import_module(f"vit_helpers.cli.{name}")
            command.add_arguments(parser)
            parser.set_defaults(run=command.run)
    args = ask.parse_args(words)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


def docstring(name):
    """What a command says of itself, read from its file"""
    path = Path(__file__).parent / "commands" / f"{name}.py"
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
