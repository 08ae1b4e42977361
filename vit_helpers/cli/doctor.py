"""Check this machine and report what will cause trouble: Python, packages, torch, memory, disk, data, Jupyter, network.

A line for each thing. `ok`: as it should be. `note`: worth knowing, nothing fails. `bad`: some of the series fails, or takes
many times as long; below it is what to do. Nothing is changed. The exit status is 0 if nothing is bad.
"""

import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator

from vit_helpers.cli.environment_checks import CHECKS, PIP, WITH_TORCH, Finding, import_error, network


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--offline", action="store_true", help="do not try to reach the hosts of the downloads")
    parser.add_argument("--report", action="store_true", help="print torch's own report of versions and hardware as well")


def run(args: Namespace) -> int:
    states = []
    for check in CHECKS:
        for state, what, advice in findings(check) if not (args.offline and check is network) else ():
            states.append(state)
            print_wrapped(f"{state:<5} {check.__name__:<10} ", what)
            if advice:
                print_wrapped(f"{'':<17}-> ", advice)
    if args.report and not import_error():
        from torch.utils.collect_env import get_pretty_env_info

        print(get_pretty_env_info())
    bad, notes = states.count("bad"), states.count("note")
    print(f"{len(states)} checks: {bad} bad, {notes} worth knowing, {len(states) - bad - notes} as they should be")
    return 1 if bad else 0


def findings(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What a check finds; an error in it is one more finding."""
    try:
        if check in WITH_TORCH and import_error():
            yield Finding("note", "not checked: this needs a torch that can be imported")
        else:
            yield from check()
    except ImportError as error:
        yield Finding("bad", f"could not be checked: {error}", f"{PIP} -r requirements.txt")
    except Exception as error:  # of any kind: the other checks go on
        yield Finding("note", f"could not be checked: {type(error).__name__}: {error}")


def print_wrapped(start: str, words: str) -> None:
    """Print in lines of at most 100 columns, indented below `start`; what stdout cannot encode is escaped."""
    text = textwrap.fill(words, 100, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
