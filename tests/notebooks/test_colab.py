"""Notebooks opened alone, as Colab and Kaggle open them.

An empty folder, no vit_helpers, an address to fetch it from. The environment imitates Colab: one of
its own on top of another, whose packages it sees but for ours; `google.colab` is a stub; git leads
the published address to a repository on this disk, so that the setup cell runs as it stands in the
notebook.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.tools.test_publish import HOME, ROOT, command, copy_repository
from tools.execute import TAG, all_notebooks, is_setup, lessons

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="the environment is made of symbolic links"
)
# Colab in August 2026; from ipykernel on: as with Python 3.12, or the next that Python 3.13 has; no
# version: not known.
COLAB = [
    "torch==2.11.*",
    "torchvision==0.26.*",
    "matplotlib==3.10.*",
    "ipython==7.34.*",
    "ipywidgets==7.7.*",
    "ipykernel==6.17.*",
    "numpy==2.1.*",
    "pandas==2.2.*",
    "scikit-learn==1.6.*",
    "scipy==1.16.*",
    "psutil",
    "einops",
    "tqdm",
    "datasets",
    "pooch",
    "safetensors",
]
WHERE = """\
from importlib.metadata import version
from importlib.util import find_spec
import einops, vit_helpers
assert find_spec("tools") is None
print(vit_helpers.__file__, version("torch"))
"""
OURS = re.compile("vit[-_]helpers")


def run(*words, **settings):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, **settings)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def on_top_of(python, folder):
    """Make an environment that sees the packages of another one, but for vit_helpers.

    returns: the path of its python
    """
    run(python, "-m", "venv", folder)
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    lower, upper = (
        Path(run(each, "-c", purelib).strip()) for each in (python, folder / "bin" / "python")
    )
    seen = folder / "seen"
    seen.mkdir()
    for entry in lower.iterdir():
        # On Colab torch lacks packages that it asks for. To fix that takes gigabytes, and pip must
        # not: so hide one here.
        if entry.suffix != ".pth" and not re.match(r".*vit_helpers|networkx-.*-info", entry.name):
            (seen / entry.name).symlink_to(entry)
    (upper / "seen.pth").write_text(str(seen))
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The working tree, published and committed, as GitHub would serve it"""
    folder = copy_repository(tmp_path_factory.mktemp("published"))
    assert command(folder, "publish", HOME.removeprefix("https://github.com/")).returncode == 0
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    run(*git, "init", "-q")
    run(*git, "config", "uploadpack.allowFilter", "true")
    run(*git, "add", ".")
    run(*git, "commit", "-q", "-m", "all")
    run(*git, "tag", TAG)
    return folder


@pytest.fixture(scope="module")
def world(published, tmp_path_factory):
    """The environment's variables: git finds the published repository here and goes nowhere else"""
    stub = tmp_path_factory.mktemp("stub")
    (stub / "google" / "colab").mkdir(parents=True)
    (stub / "google" / "colab" / "__init__.py").touch()
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GIT_", "PYTHON", "MPL", "VIRTUAL_ENV"))
    }
    return kept | {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{published}.insteadOf",
        "GIT_CONFIG_VALUE_0": HOME,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "file",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONPATH": str(stub),
    }


@pytest.fixture(scope="module")
def offline(world):
    """The same where pip has no network: all that vit_helpers needs is there, and left as it is."""
    return world | {
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_CONFIG_FILE": os.devnull,
    }


@pytest.fixture(scope="module")
def setup(published):
    """The setup cell as it was published"""
    path = published / "notebooks" / "01_patches.ipynb"
    return next(cell.source for cell in nbformat.read(path, as_version=4).cells if is_setup(cell))


def files(package):
    return sorted(
        p.relative_to(package).as_posix()
        for p in package.rglob("*")
        if p.is_file() and p.suffix != ".pyc"
    )


@pytest.mark.colab
def test_the_setup_cell_fetches_the_package_and_nothing_else(setup, offline, tmp_path):
    python = on_top_of(sys.executable, tmp_path / "env")
    folder = tmp_path / "content"
    folder.mkdir()

    def execute(code, **variables):
        return subprocess.run(
            [python, "-c", code],
            cwd=folder,
            env=offline | variables,
            capture_output=True,
            text=True,
        )

    listed = run(python, "-m", "pip", "list", "--format=freeze", env=offline).splitlines()
    assert not [line for line in listed if OURS.match(line)]
    # a machine whose internet is switched off
    done = execute(setup, GIT_CONFIG_KEY_0="url.file:///nowhere.insteadOf")
    assert (done.returncode == 1 and "unable to access" in done.stderr) or "does not" in done.stderr
    assert "AssertionError: pip says above why it failed; on Kaggle, is internet on?" in done.stderr

    where = "import google.colab, einops, vit_helpers.vit; print(vit_helpers.__file__)"
    done = execute(f"{setup}\n{setup}\n{where}")
    assert done.returncode == 0, done.stderr
    package = Path(done.stdout.strip()).parent
    assert package.is_relative_to(tmp_path / "env")
    assert files(package) == files(ROOT / "vit_helpers")
    after = run(python, "-m", "pip", "list", "--format=freeze", env=offline).splitlines()
    assert [line for line in after if not OURS.match(line)] == listed
    assert not list(folder.iterdir())

    # it is there: nothing is fetched
    again = execute(f"{setup}\n{where}", GIT_CONFIG_KEY_0="url.file:///nowhere.insteadOf")
    assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr


# Core pages alone in an empty folder, with the packages found here; or all notebooks, with Colab's
# packages in the folder of VIT_HELPERS_COLAB
NOTEBOOKS = all_notebooks() if os.environ.get("VIT_HELPERS_COLAB") else lessons()


@pytest.fixture(scope="module")
def lower():
    """The python whose packages a notebook sees: this one, or one with Colab's versions."""
    folder = os.environ.get("VIT_HELPERS_COLAB")
    if not folder:
        return sys.executable
    python = Path(folder).resolve() / "bin" / "python"
    if not python.exists():
        latest = shutil.which("python3.13")
        assert latest, "Colab has Python 3.13: no python3.13 on the path"
        run(latest, "-m", "venv", folder)
    run(python, "-m", "pip", "install", "-q", *COLAB)
    return python


@pytest.fixture(scope="module")
def alone(lower, tmp_path_factory):
    """A python without vit_helpers for all notebooks: the first of them fetches the package."""
    folder = tmp_path_factory.mktemp("alone")
    python = on_top_of(lower, folder / "env")
    kernel = folder / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": argv, "display_name": "Colab", "language": "python"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
        yield python


@pytest.mark.weekly
@pytest.mark.parametrize(
    "notebook", NOTEBOOKS, ids=lambda path: path.relative_to(ROOT / "notebooks").as_posix()
)
def test_a_notebook_runs_alone(alone, published, world, offline, notebook, tmp_path):
    env = world if os.environ.get("VIT_HELPERS_COLAB") else offline
    path = shutil.copy(published / notebook.relative_to(ROOT), tmp_path)
    book = nbformat.read(path, as_version=4)
    book.cells.append(nbformat.v4.new_code_cell(WHERE))
    client = NotebookClient(
        book, timeout=1800, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env=env)  # raises where a cell fails that is not meant to
    printed = [output for cell in book.cells for output in cell.get("outputs", [])]
    print(*(output.text for output in printed if output.get("name") == "stderr"))
    where, version = printed[-1].text.split()
    assert Path(where).is_relative_to(alone.parents[1])
    assert version.startswith("2.11.") or env is offline
