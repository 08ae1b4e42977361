"""python -m vit_helpers COMMAND: train, predict, evaluate, ablate, shards, doctor and live, each with its own --help."""

import sys

from vit_helpers.cli import main

if __name__ == "__main__":
    sys.exit(main())
