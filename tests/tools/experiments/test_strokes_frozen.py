"""The test strokes are those that were frozen."""

import hashlib
from pathlib import Path

import pytest

from tools.experiments import strokes_frozen

pytestmark = pytest.mark.dev


FROZEN = "7099786039515dd7bc5f6fe70a8010f087c7550a7715d7d4885dc8bbb766f8f4"


def test_the_test_strokes_are_those_that_were_frozen():
    """They are older than the training strokes; if they change, no stored result holds."""
    assert hashlib.sha256(Path(strokes_frozen.__file__).read_bytes()).hexdigest() == FROZEN
