"""python -m vit_helpers COMMAND, for each command of `cli.parser`, with its own --help."""

import sys

if __name__ == "__main__":
    try:
        from vit_helpers.cli import main
        from vit_helpers.cli.threads import start_with_one_thread

        start_with_one_thread()
        status = main()
    except KeyboardInterrupt:  # before a command has begun
        print("\nstopped", file=sys.stderr)
        status = 130
    sys.exit(status)
