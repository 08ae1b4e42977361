"""The tool that plants faults: a fault is killed, survives, or is said not to have been tried."""

from dataclasses import replace

import pytest

from tools import mutants
from tools.mutants import LIST, ROOT, Mutant, choose, find, read_mutants, try_all

pytestmark = pytest.mark.dev
SUMS = '''\
def add(a, b):
    return a + b


def twice(a):
    """Double.

    >>> twice(2)
    4
    """
    return 2 * a
'''
LARGER = Mutant("larger", "vit_helpers/sums.py", "a + b", "a + b + 1", "", ("test_sum",))
OF_NEGATIVE = Mutant(
    "of negative", "vit_helpers/sums.py", "a + b", "max(a, 0) + b", "nobody adds -1", ("test_sum",)
)
OF_EXAMPLE = Mutant("of example", "vit_helpers/sums.py", "2 * a", "3 * a", "", ())
GONE = replace(LARGER, name="gone", before="a - b")
ENDLESS = Mutant(
    "endless", "vit_helpers/sums.py", "return a + b", "while True: pass", "", ("test_sum",)
)
BROKEN = replace(LARGER, name="broken", after="a +")


@pytest.fixture
def project(tmp_path):
    """A package of one module, with a test, and an example in a docstring"""
    (tmp_path / "vit_helpers").mkdir()
    (tmp_path / "vit_helpers" / "__init__.py").touch()
    (tmp_path / "vit_helpers" / "sums.py").write_text(SUMS)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_sums.py").write_text(
        "from vit_helpers.sums import add\n\n\ndef test_sum():\n    assert add(1, 2) == 3\n"
    )
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_fault_is_killed_by_a_test_or_an_example(project, capsys):
    before = contents(project)
    assert try_all([LARGER, OF_EXAMPLE], project, parallel=2, seconds=60) == 0
    out = capsys.readouterr().out
    assert "killed           larger: test_sum\n" in out
    assert "killed           of example: vit_helpers.sums.twice\n" in out
    assert "without a fault: 2 passed in " in out
    assert contents(project) == before


def test_a_fault_that_nobody_sees_survives(project, capsys):
    assert try_all([OF_NEGATIVE, LARGER], project, parallel=1, seconds=60) == 1
    out = capsys.readouterr().out
    assert "survived         of negative: nobody adds -1\n" in out
    assert "2 mutants: 1 survived, 1 killed (" in out


@pytest.mark.parametrize(
    ("mutant", "says"),
    [
        (GONE, "gone: its text occurs 0 times in vit_helpers/sums.py"),
        (replace(GONE, before="a"), "gone: its text occurs 5 times"),
        (replace(GONE, before="a + b", tests=("test_none",)), "0 test files are or contain test_n"),
        (BROKEN, "broken: pytest ended with 2"),
    ],
    ids=["text gone", "text twice", "no test", "no Python"],
)
def test_what_was_not_tried_is_no_success(project, capsys, mutant, says):
    assert mutants.try_all([mutant, LARGER], project, parallel=2, seconds=60) == 2
    out = capsys.readouterr().out
    assert says in out and "1 cannot be tried, 1 killed" in out


def test_where_nothing_can_be_tried_no_test_runs(project, capsys):
    assert try_all([GONE], project, parallel=1, seconds=60) == 2
    assert "without a fault" not in capsys.readouterr().out


def test_a_fault_that_never_ends_is_stopped(project):
    test, text = ["tests/test_sums.py"], ENDLESS.text(project)
    outcome = mutants.try_mutant(ENDLESS, text, test, project, seconds=1)
    assert outcome.result == mutants.TIMED_OUT and "after 1 s" in str(outcome)


def test_tests_that_fail_without_a_fault_kill_nothing(project, capsys):
    path = project / "tests" / "test_sums.py"
    path.write_text(path.read_text().replace("3", "4"))
    assert try_all([LARGER], project, parallel=1, seconds=60) == 2
    out = capsys.readouterr().out
    assert "fail without a fault" in out and "killed" not in out


def test_every_fault_of_the_list_applies_and_its_tests_exist():
    for mutant in read_mutants(LIST):
        assert mutant.text(ROOT) and find(mutant, ROOT) and mutant.why, mutant.name


def test_some_are_chosen_by_name():
    assert choose([LARGER, GONE], []) == [LARGER, GONE]
    assert choose([LARGER, GONE], ["gone"]) == [GONE]
    with pytest.raises(ValueError, match="other"):
        choose([LARGER, GONE], ["other"])


def test_a_name_is_given_once(tmp_path):
    row = '[[mutant]]\nname = "a"\nfile = "f"\nbefore = "x"\nafter = "y"\nwhy = "z"\ntests = []\n'
    (tmp_path / "list.toml").write_text(2 * row)
    with pytest.raises(ValueError, match=r"a$"):
        read_mutants(tmp_path / "list.toml")
