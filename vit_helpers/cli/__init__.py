"""The command line: what a user runs, a file for each command with `add_arguments(parser)` and `run(args)`, its status."""

import argparse
import ast
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

COMMANDS = ("train", "predict", "evaluate", "ablate", "shards", "doctor", "live")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; words: the arguments, by default those of the command line."""
    words = sys.argv[1:] if words is None else list(words)
    parser = argparse.ArgumentParser(
        prog="python -m vit_helpers", description="Commands of the Vision Transformer series."
    )
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        file = Path(__file__).with_name(f"{name}.py")
        about = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        form = argparse.RawDescriptionHelpFormatter
        subparser = parsers.add_parser(
            name, help=about.partition("\n")[0], description=about, formatter_class=form
        )
        if (
            name in words[:1]
        ):  # only this command is imported: what another needs may be missing or broken
            command = import_module(f"vit_helpers.cli.{name}")
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run)
    args, unknown = parser.parse_known_args(words)
    if unknown:  # named with the options of the command, which argparse itself does not do
        parsers.choices[args.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    return run_safely(args.run, args)


def run_safely(run: Callable[[argparse.Namespace], int | None], args: argparse.Namespace) -> int:
    """The exit status of run(args), 0 for None; what a user can put right is one line on stderr and 1, Ctrl-C is 130.

    As for other programs it is 141, with no message, when nobody reads the output anymore, as in `... | head -1`.
    """
    prepare_streams()
    os.environ["MPLBACKEND"] = "agg"  # figures become files: no window is opened
    try:
        status = run(args) or 0
        if sys.stdout:
            sys.stdout.flush()  # here an error has a message
        return status
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 141
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (
                OSError
            ):  # drop what is left, about which the interpreter would complain at its end
                with suppress(OSError):  # io.UnsupportedOperation is one
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def prepare_streams() -> None:
    """Put an empty stream where stdin, stdout or stderr is closed, as in daemons; print any character, line by line."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(
                os.devnull, os.O_RDWR
            )  # takes the lowest free number, which another file would get otherwise: this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # in a notebook it is another kind
            stream.reconfigure(errors="backslashreplace", line_buffering=True)


def positive_int(text: str) -> int:
    """The type of an option that counts something: 1 or more."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
