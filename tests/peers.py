"""Other libraries, for tests marked `peers`: each is imported where one of its names is first used.

So a file can be collected where they are not installed, and its other tests run.
"""

from importlib import import_module

import pytest

NAMES = {"timm", "huggingface", "Hugging Face"}


class Library:
    """A module that is imported when something asks for one of its names"""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, attribute):
        # pytest asks whatever it finds in a file, whether it is a test
        if attribute.startswith(("__", "pytest")) and attribute != "__version__":
            raise AttributeError(attribute)
        return getattr(import_module(self.name), attribute)


timm, transformers = Library("timm"), Library("transformers")


def mark_peers(cases):
    """Parameters of a test, with the marker where a case is, or begins with, a peer's name

    cases: names, or tuples that begin with one
    """
    for case in cases:
        values = (case,) if isinstance(case, str) else case
        yield pytest.param(*values, marks=pytest.mark.peers if values[0] in NAMES else ())
