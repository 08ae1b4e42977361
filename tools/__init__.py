"""What maintainers and teachers run, each as `python -m tools.NAME` in the folder of the repository.  See README.md here."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


def main(tool: ModuleType | None = None, words: Sequence[str] | None = None) -> int:
    """Run a tool: a module with a docstring, `run(args)` -> exit status or None and, for arguments, `add_arguments(parser)`.

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
