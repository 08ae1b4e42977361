"""python -m vit_helpers COMMAND, for each command of `cli.parser`, with its own --help."""

import sys

from vit_helpers.cli import main
from vit_helpers.cli.threads import start_with_one_thread

if __name__ == "__main__":
    start_with_one_thread()
    sys.exit(main())
