"""What `python -m vit_helpers` can do, a file a command: `add_arguments(parser)` and `run(args)` -> exit status."""

import argparse


def whole_number(text):
    """The type of an option that counts something: 1 or more"""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
