"""The command line: `parser` knows the options of all commands; the file of a command works.

Each command is a file with its name and a function `run(args)`, which returns its exit status.
"""

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TypeVar

from vit_helpers.cli.parser import COMMANDS, parse, positive_int

__all__ = ["COMMANDS", "escape", "main", "positive_int", "run_safely"]

T = TypeVar("T")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    words: the arguments, by default those of the command line
    """
    return run_safely(run_command, sys.argv[1:] if words is None else list(words))


def run_command(words: Sequence[str]) -> int | None:
    """Run the command that the words name.

    Only its file is imported, once the words are understood: what another command needs may be
    missing or broken, and importing torch takes seconds, for which `--help` need not wait.
    """
    args = parse(words)
    return import_module(f"vit_helpers.cli.{args.command}").run(args)


def run_safely(run: Callable[[T], int | None], args: T) -> int:
    """Call run(args) and return its exit status, 0 for None.

    What a user can put right is one line on stderr and 1; Ctrl-C is 130. As for other programs it
    is 141, without a message, when nobody reads the output anymore, as in `... | head -1`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # in a notebook it is another kind
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    os.environ["MPLBACKEND"] = "agg"  # figures become files: no window is opened
    try:
        status = run(args) or 0
        print(end="", flush=True)  # here an error has a message
        return status
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 141
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        print(f"error: {escape(error)}", file=sys.stderr)
        return 1
    finally:
        drop_unread_output()


def escape(text: object) -> str:
    r"""Return a message with every character that a terminal obeys, but for new lines, escaped.

    >>> print(escape("no \x1b[2K\r safe"))
    no \x1b[2K\r safe
    """
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in str(text))


def drop_unread_output() -> None:
    """Forget what cannot be written, of which Python would complain at its end."""
    try:
        print(end="", flush=True)
    except OSError:
        with suppress(OSError):  # io.UnsupportedOperation is one: no file is behind the stream
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
