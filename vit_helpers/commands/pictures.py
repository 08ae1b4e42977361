"""Draw the pictures under images/ anew, each from the code that a notebook uses."""


def add_arguments(parser):
    pass


def run(args):
    return 0
