"""Look at this machine and say what will hurt: Python, packages, torch, processor, memory, disk, data, Jupyter, network.

A line a thing. `ok`: as it should be. `note`: worth knowing, nothing fails. `bad`: something of the series fails, or takes
many times as long; what to do stands beneath. Nothing is changed, and the exit status is 0 when nothing is bad.
"""

import sys
import textwrap

from vit_helpers.cli.environment_checks import CHECKS, PIP, WITH_TORCH, Finding, import_trouble, network

WIDTH = 100


def add_arguments(parser):
    parser.add_argument("--offline", action="store_true", help="ask no host on the network whether it can be reached")


def run(args):
    states = []
    for thing, look in CHECKS.items():
        if args.offline and look is network:
            continue
        for finding in safely(look):
            states.append(finding.state)
            say(f"{finding.state:<5} {thing:<10} ", finding.what)
            if finding.advice:
                say(f"{'':<17}-> ", finding.advice)
    bad, notes = states.count("bad"), states.count("note")
    say("", f"{len(states)} things: {bad} bad, {notes} worth knowing, {len(states) - bad - notes} as they should be")
    return 1 if bad else 0


def safely(look):
    """The findings of a check; whatever goes wrong in it is one more"""
    try:
        if look in WITH_TORCH and import_trouble():
            yield Finding("note", "not looked at: this takes a torch that can be imported")
        else:
            yield from look()
    except ImportError as error:
        yield Finding("bad", f"could not be looked at: {error}", f"{PIP} -r requirements.txt")
    except Exception as error:  # of any kind: a doctor who faints helps nobody
        yield Finding("note", f"could not be looked at: {type(error).__name__}: {error}")


def say(start, words):
    """Words on lines of at most 100 columns, beneath one another; what stdout cannot write is escaped"""
    text = textwrap.fill(words, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)
    known = sys.stdout.encoding or "utf-8"
    print(text.encode(known, "backslashreplace").decode(known), flush=True)
