"""python -m vit_helpers COMMAND, for each command of `cli.parser`, with its own --help."""

import sys

from vit_helpers.cli import main

if __name__ == "__main__":
    sys.exit(main())
