"""What GitHub reads: workflows, the issue form, the citation; and what a commit is checked by.

None of it can run here, so its form is checked, and that it says what the repository says.
"""

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import vit_helpers

yaml = pytest.importorskip("yaml", reason="no yaml here: the extra [dev] brings it")
pytestmark = pytest.mark.dev

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
SCHEMAS = {  # a schema of check-jsonschema, and what has to follow it
    "github-workflows": WORKFLOWS,
    "github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / "check_rejects_my_answer.yml"],
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs():
    """Every job of every workflow, with its name"""
    named = {path.stem: read(path)["jobs"] for path in WORKFLOWS}
    return {f"{stem}: {name}": job for stem, of in named.items() for name, job in of.items()}


def steps():
    return [step for job in jobs().values() for step in job["steps"]]


@pytest.mark.skipif(
    find_spec("check_jsonschema") is None, reason="no check-jsonschema: the extra [dev] brings it"
)
@pytest.mark.parametrize("name", SCHEMAS)
def test_files_follow_their_schemas(name, tmp_path):
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{name}"]
    options = {"capture_output": True, "text": True}
    done = subprocess.run([*words, *SCHEMAS[name]], **options)
    assert done.returncode == 0, done.stdout
    spoiled = tmp_path / "spoiled.yml"
    spoiled.write_text("jobs: 3\nauthors: 3\nbody: 3\ncontact_links: 3")
    assert subprocess.run([*words, spoiled], **options).returncode == 1


@pytest.mark.skipif(
    find_spec("pre_commit") is None, reason="no pre-commit: the extra [dev] brings it"
)
def test_pre_commit_can_read_its_settings():
    words = [sys.executable, "-m", "pre_commit", "validate-config"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_workflows_may_read_and_the_one_that_publishes_may_publish_and_no_more():
    assert len(WORKFLOWS) == 2
    for path in WORKFLOWS:
        assert read(path)["permissions"] == {"contents": "read"}
    more = {name: job["permissions"] for name, job in jobs().items() if "permissions" in job}
    assert more == {"pages: deploy": {"pages": "write", "id-token": "write"}}


def test_every_job_ends_and_keeps_nothing_for_the_next():
    assert all(job["timeout-minutes"] <= 120 for job in jobs().values())
    assert not any("cache" in key for step in steps() for key in step.get("with", {}))


def test_actions_are_githubs_own_at_a_major_version():
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[a-z-]+@v\d+", name) for name in used)


def test_readers_oldest_python_is_tried_on_three_systems_each_week():
    trigger = read(GITHUB / "workflows" / "tests.yml")[True]  # YAML reads `on` as true
    assert len(trigger["schedule"]) == 1
    matrix = jobs()["tests: readers"]["strategy"]["matrix"]
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    oldest, newest = matrix["python"]
    assert PROJECT["requires-python"] == f">={oldest}"
    assert [*map(int, newest.split("."))] > [*map(int, oldest.split("."))]


def test_extras_and_files_that_shell_lines_name_are_there():
    lines = "\n".join(step["run"] for step in steps() if "run" in step)
    for names in re.findall(r"-e \"\.\[([\w,]+)\]\"", lines):
        assert set(names.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100 or sys.platform == "win32"
    assert ".ci/run" in lines and "python -m pytest" in lines
    for name in re.findall(r"python -m tools\.(\w+)", lines):
        assert (ROOT / "tools" / f"{name}.py").is_file()


def test_the_citation_is_of_this_version_and_license():
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == vit_helpers.__version__
    assert citation["license"] == PROJECT["license"]
    (paper,) = citation["references"]
    assert paper["url"] in (ROOT / "README.md").read_text(encoding="utf-8")


def test_commits_and_ci_are_checked_by_the_same_lines():
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = [hook["entry"] for hook in local["hooks"]]
    ran = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lint = re.findall(r"^\.venv/bin/((?:ruff|mypy).*?) \|\|", ran, re.MULTILINE)
    assert hooks == lint and len(hooks) == 3


def test_the_form_asks_for_what_a_test_of_a_check_needs():
    (path,) = SCHEMAS["github-issue-forms"]
    required = [part["id"] for part in read(path)["body"] if part.get("validations")]
    assert {"cell", "message"} <= set(required)


def test_every_text_file_has_the_same_bytes_on_every_system():
    listed = subprocess.run(
        ["git", "ls-files", "--eol"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    if not listed:
        pytest.skip("not a checkout of git")
    assert not [line for line in listed if re.match(r"i/(crlf|mixed)", line)]
    assert all("eol=lf" in line for line in listed)
