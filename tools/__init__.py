"""What maintainers and teachers run here, as `python -m tools.NAME`.  See README.md."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


def main(tool: ModuleType | None = None, words: Sequence[str] | None = None) -> int:
    """Run a tool and return its exit status.

    A tool is a module with a docstring, `run(args)`, which returns an exit status or None, and
    `add_arguments(parser)` if it has any.

    tool : by default the one that Python was started with
    words: the arguments, by default those of the command line
    """
    tool = tool or sys.modules["__main__"]
    from vit_helpers.cli import run_safely

    path = Path(str(tool.__file__)).relative_to(Path(__file__).parents[1]).with_suffix("")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        f"python -m {'.'.join(path.parts)}", description=tool.__doc__, formatter_class=form
    )
    if hasattr(tool, "add_arguments"):
        tool.add_arguments(parser)
    return run_safely(tool.run, parser.parse_args(words))
