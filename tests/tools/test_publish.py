"""The repository's public address: in one place, wherever it is needed, and gone again."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest

from tests.notebooks import test_notebooks
from tools import main as run_tool
from tools import publish
from tools.execute import METADATA, TAG, all_notebooks, home, setup_source

pytestmark = pytest.mark.repo

ROOT = Path(__file__).parents[2]
PARTS = (
    "CITATION.cff",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "images",
    "notebooks",
    "tests/nbval_sanitize.cfg",
    "tools",
    "vit_helpers",
)
NOISE = shutil.ignore_patterns(".*", "__pycache__")
HOME = "https://github.com/own-er/a.name_2"


def copy_repository(folder):
    """All that publishing reads and writes, and what pip installs, in a folder of its own"""
    for part in PARTS:
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copyfile if (ROOT / part).is_file() else shutil.copytree
        copy(ROOT / part, folder / part, **({"ignore": NOISE} if copy is shutil.copytree else {}))
    return folder


def command(folder, *words):
    """python -m tools.NAME, of the copy in that folder"""
    words = [sys.executable, "-B", "-m", f"tools.{words[0]}", *map(str, words[1:])]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True)


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def repository(tmp_path):
    """A copy of this repository that has no address yet"""
    folder = copy_repository(tmp_path / "copy")
    assert command(folder, "publish", "--undo").returncode == 0
    return folder


def cells(path):
    return nbformat.read(path, as_version=4).cells


def notebooks(folder):
    return sorted(
        path
        for where in ("", "further", "solutions")
        for path in (folder / "notebooks" / where).glob("[0-9]*.ipynb")
    )


def test_published_and_undone_every_byte_is_what_it_was(repository):
    before = contents(repository)
    done = command(repository, "publish", "own-er/a.name_2")
    assert done.returncode == 0, done.stderr
    after = contents(repository)
    changed = sorted(path.as_posix() for path in after if after[path] != before.get(path))
    written = [
        "CITATION.cff",
        "README.md",
        "pyproject.toml",
        *[path.relative_to(repository).as_posix() for path in notebooks(repository)],
    ]
    assert changed == sorted(written) and len(written) == 3 + len(all_notebooks())
    *lines, last = done.stdout.splitlines()
    assert sorted(lines) == sorted(f"{path}: written" for path in written)
    assert last.startswith(f"next: commit, tag that {TAG}, and push both")

    assert command(repository, "publish", "own-er/a.name_2").stdout == "nothing to change\n"
    assert contents(repository) == after
    command(repository, "publish", "b/c")
    assert HOME.encode() not in b"".join(contents(repository).values())  # moved, not added
    command(repository, "publish", "own-er/a.name_2")
    assert contents(repository) == after
    assert command(repository, "publish", "--undo").returncode == 0
    assert contents(repository) == before


def leads(folder):
    """Where the README's first pictures lead"""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    return re.findall(r"\]\(images/README/[\w.]+\)\]\(([^)]*)\)", readme)


def site_in(folder):
    """The site that the README's first pictures lead to, "" for none"""
    (site,) = {lead if lead.startswith("https://") else "" for lead in leads(folder)}
    return site


def test_with_a_site_the_first_pictures_lead_to_its_live_page(repository):
    before, site = contents(repository), "https://own-er.github.io/a.name_2/"
    assert set(leads(repository)) == {
        "notebooks/00_start_here.ipynb",
        "notebooks/03_attention.ipynb",
    }
    assert site_in(repository) == ""
    command(repository, "publish", "own-er/a.name_2", "--site", site)
    assert leads(repository) == [site] * 3 and site_in(repository) == site
    command(repository, "publish", "own-er/a.name_2")
    assert site not in (repository / "README.md").read_text(encoding="utf-8")
    command(repository, "publish", "own-er/a.name_2", "--site", site)
    command(repository, "publish", "--undo")
    assert contents(repository) == before


@pytest.mark.parametrize(
    "words", [["a/b", "--site", "my site"], ["--undo", "--site", "https://a.b"]]
)
def test_another_site_is_refused_before_anything_is_written(repository, words):
    before = contents(repository)
    refused = command(repository, "publish", *words)
    assert refused.returncode and "--site" in refused.stderr
    assert contents(repository) == before


def test_the_address_comes_wherever_it_is_needed(repository):
    command(repository, "publish", "own-er/a.name_2")
    assert tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "urls"
    ] == {"Repository": HOME}
    citation = (repository / "CITATION.cff").read_text(encoding="utf-8")
    assert f'\nrepository-code: "{HOME}"\n' in citation
    for path in notebooks(repository):
        where = f"own-er/a.name_2/blob/main/{path.relative_to(repository).as_posix()}"
        first, *rest = cells(path)[0].source.splitlines()
        kaggle = f"https://kaggle.com/kernels/welcome?src=https://github.com/{where}"
        assert first.endswith(
            f" | [Open in Colab](https://colab.research.google.com/github/{where})"
            f" | [Open in Kaggle]({kaggle})"
        )
        # the line of navigation, and nothing after it has moved
        assert first.startswith("[") and rest[0] == ""
        setup = [cell.source for cell in cells(path) if "setup" in cell.metadata.get("tags", [])]
        assert setup == [setup_source(HOME)] and f'"git+{HOME}@{TAG}"' in setup[0]
    readme = (repository / "README.md").read_text(encoding="utf-8")
    assert f"\n```\ngit clone {HOME}\ncd a.name_2\n```\n" in readme
    for alt, badge, link in re.findall(r"\[!\[([^\]]*)\]\(([^)]*\.svg)\)\]\((.*?)\)", readme):
        assert alt in ("Open in Colab", "Open in Kaggle") and badge.startswith("https://")
        assert f"]({link})" in cells(notebooks(repository)[0])[0].source


def test_published_notebooks_are_as_good_as_before(repository):
    longest = "o/" + "n" * 54  # of which the setup cell's lines just fit the page
    assert command(repository, "publish", longest).returncode == 0
    for path in notebooks(repository):
        for folded in (
            test_notebooks.test_it_is_valid_small_and_written_as_execute_writes,
            test_notebooks.test_cells_are_plain_python_that_fits_the_page,
            test_notebooks.test_links_lead_somewhere,
            test_notebooks.test_github_shows_the_prose,
        ):
            folded.__wrapped__(path)
    ruff = [sys.executable, "-m", "ruff"]
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [*ruff, *words, "--no-cache", "notebooks"],
            cwd=repository,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_execute_keeps_the_address(repository):
    command(repository, "publish", "own-er/a.name_2")
    setup = nbformat.v4.new_code_cell("old", metadata={"tags": ["setup"]})
    path = repository / "notebooks" / "99.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[setup], metadata=METADATA), path)
    done = command(repository, "execute", path)
    assert "written" in done.stdout, done.stderr
    assert cells(path)[0].source == setup_source(HOME)


@pytest.mark.parametrize(
    "words",
    ["own-er/a.name_2", "O/n", "a1-b2-c3/-", "a/.github", "a/b.gitx", "a/b..c", "0/" + "n" * 54],
)
def test_what_github_allows_is_allowed(words):
    assert publish.address(words) == f"https://github.com/{words}"


@pytest.mark.parametrize(
    "words",
    [
        *("", "a", "/", "a/", "/b", "a/b/c", "a/b/", "../b", "a/.", "a/.."),
        *("https://github.com/a/b", "github.com/a/b", "git@github.com:a/b"),
        *("a b", "a b/c", "a/b c", " a/b", "a/b\n", 'a/b"'),
        *("-a/b", "a-/b", "a--b/c", "a_b/c", "a.b/c", "a/b.git", "a/B.GIT", "a/b.wiki"),
        *("ä/b", "a/ä", "\u017f/b", "a" * 40 + "/b", "a/" + "b" * 101),
    ],
)
def test_nonsense_is_refused(words):
    with pytest.raises(ValueError, match="wanted OWNER/NAME") as error:
        publish.address(words)
    assert repr(words) in str(error.value)


def test_nothing_is_written_unless_all_can_be(repository):
    for name, damage, message in [
        (
            "README.md",
            lambda text: text.replace("<!-- to here -->", ""),
            "README.md should contain",
        ),
        (
            "pyproject.toml",
            lambda text: text.replace("Repository", "Other"),
            "pyproject.toml should contain",
        ),
        ("notebooks/05_vit.ipynb", lambda text: "no JSON", "Notebook does not appear to be JSON"),
    ]:
        path = repository / name
        kept = path.read_text(encoding="utf-8")
        path.write_text(damage(kept), encoding="utf-8")
        before = contents(repository)
        done = command(repository, "publish", "a/b")
        assert done.returncode == 1 and done.stderr.startswith(f"error: {message}"), done.stderr
        assert contents(repository) == before
        path.write_text(kept, encoding="utf-8")
    before = contents(repository)
    done = command(repository, "publish", "https://github.com/a/b")
    assert done.returncode == 1 and done.stderr.startswith(
        "error: got 'https://github.com/a/b', wanted OWNER/NAME alone"
    )
    assert contents(repository) == before


def test_a_full_disk_is_told(monkeypatch, capsys):
    def full(path, text):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert run_tool(publish, ["a/b"]) == 1
    assert capsys.readouterr().err == "error: no space left on device\n"


def test_copies_that_readers_keep_are_left_alone(repository):
    for folder in ("notebooks/mine", "notebooks/.ipynb_checkpoints"):
        (repository / folder).mkdir()
        shutil.copy(repository / "notebooks" / "01_patches.ipynb", repository / folder)
    command(repository, "publish", "a/b")
    changed = [
        repository / path
        for path in contents(repository)
        if path.name == "01_patches.ipynb" and b"github/a/b" in (repository / path).read_bytes()
    ]
    ours = [path for path in notebooks(repository) if path.name == "01_patches.ipynb"]
    assert sorted(changed) == ours


# The repository as it lies


def test_every_file_says_what_the_one_place_says():
    address = home()
    assert address in ("", publish.address(address.removeprefix(publish.GITHUB)) if address else "")
    for path, text in publish.pages(address, site_in(ROOT)).items():
        assert path.read_text(encoding="utf-8") == text, (
            f"run `python -m tools.publish` for {path.name}"
        )
    if not address:  # so nothing points to what somebody else could own
        for path in [*all_notebooks(), ROOT / "README.md"]:
            assert not re.search(
                r"Open in |colab\.research\.google|kaggle\.com/kernels|git clone http",
                path.read_text(encoding="utf-8"),
            )


def names(lines):
    return {re.match(r"[\w-]+", line).group() for line in lines}


def test_a_notebook_opened_alone_finds_what_it_imports():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    fetched = re.findall(r'"(\w+)"', re.search(r"url, (.*)\]", setup_source(HOME))[1])
    # Colab and Kaggle have these; the last three come with a kernel and with matplotlib
    there = names(project["dependencies"]) | {
        "IPython",
        "psutil",
        "PIL",
    }
    imported = set()
    for path in all_notebooks():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                imported |= set(
                    re.findall(r"^ *(?:import|from) (\w+)", "".join(cell["source"]), re.MULTILINE)
                )
    others = {
        "scikit-learn" if name == "sklearn" else name
        for name in imported - sys.stdlib_module_names - {"vit_helpers"}
    }
    assert others - there == set(fetched)
