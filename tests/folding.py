"""One test for a rule that many things keep: it tries them all, and a failure names each offender.

Where a case takes long or has fixtures of its own, `pytest.mark.parametrize` is better, because a
single case can then be chosen with `-k`.
"""

import inspect
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from traceback import extract_tb

import pytest
import torch

TESTS = Path(__file__).parent


def describe(error):
    """What was raised, and by which line of the tests: test_x.py:12: assert 1 == 2"""
    calls = extract_tb(error.__traceback__)
    line = next(line for line in reversed(calls) if TESTS in Path(line.filename).parents)
    known = isinstance(error, (AssertionError, pytest.fail.Exception))
    said = str(error) if known and str(error) else repr(error)
    return f"{Path(line.filename).name}:{line.lineno}: {said}"


@contextmanager
def all_of():
    """Give `attempt(name)`, a context that keeps what fails; in the end all of that fails at once.

        with all_of() as attempt:
            for page in pages:
                with attempt(page.stem):
                    assert page.exists()

    Every attempt begins with the same random numbers, as a test does. To try nothing is a failure.
    """
    tried, failed = [], []

    @contextmanager
    def attempt(name):
        torch.default_generator.manual_seed(0)
        tried.append(name)
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{name}: {describe(error)}".replace("\n", "\n  "))

    yield attempt
    if not tried:
        pytest.fail("nothing was tried", pytrace=False)
    if failed:
        count = f"{len(failed)} of {len(tried)} failed:"
        pytest.fail("\n".join([count, *failed]), pytrace=False)


def folded(names: str | tuple[str, ...], cases: Iterable, ids: Callable | None = None):
    """Decorate a test as `pytest.mark.parametrize` does, but into one test that tries every case.

    ids: gives the name of a case, from its values; without it, the values themselves name it
    """
    names, cases = ((names,) if isinstance(names, str) else names), list(cases)

    def fold(test):
        signature = inspect.signature(test)

        @wraps(test)
        def try_all(**fixtures):
            with all_of() as attempt:
                for case in cases:
                    values = (case,) if len(names) == 1 else case
                    with attempt(ids(*values) if ids else ", ".join(map(str, values))):
                        test(**dict(zip(names, values, strict=True)), **fixtures)

        parts = signature.parameters.values()
        kept = [part for part in parts if part.name not in names]
        try_all.__signature__ = signature.replace(parameters=kept)
        return try_all

    return fold
