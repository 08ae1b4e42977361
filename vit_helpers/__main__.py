"""python -m vit_helpers COMMAND: one entry for all commands, each with its own --help."""

import argparse
import sys
from importlib import import_module

COMMANDS = ("train", "shards", "predict", "ablate", "pretrain", "grade", "transfer", "bench", "speed", "rerun", "pictures")


def main(words=None):
    ask = argparse.ArgumentParser(prog="python -m vit_helpers", description="Commands of the Vision Transformer series.")
    parsers = ask.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        command = import_module(f"vit_helpers.commands.{name}")
        first_line = command.__doc__.partition("\n")[0]
        parser = parsers.add_parser(
            name, help=first_line, description=command.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        command.add_arguments(parser)
        parser.set_defaults(run=command.run)
    args = ask.parse_args(words)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
