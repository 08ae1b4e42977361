"""Run notebooks from top to bottom and store their outputs in place.

The setup cell is brought up to date from tools/setup_cell.py, with the public address of pyproject.toml, so
that it is the same everywhere.
A notebook in which nothing changed stays byte for byte as it was: metadata is cut down to what Jupyter needs, and an
output that differs from the stored one only in what tests/nbval_sanitize.cfg blurs (times, speeds) is left alone. So is a
picture in a cell tagged nbval-ignore-output whose text says the same: clear that cell's output to have it drawn anew.

Each line printed ends with what the notebook cost: seconds from the start of its kernel to the end, and the peak of its
memory. With --cards both are written into the notebook's card and into its row of README.md, word for word the same, and
every output is stored as it came, so that all times in the notebook are those of one run.
"""

import configparser
import copy
import json
import re
import sys
import tomllib
from pathlib import Path

from tools import main
from tools.notebook_costs import MEASURED, card_of, card_with, has_card, in_words, is_listed, list_in_readme, measure

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"
SANITIZE = ROOT / "tests" / "nbval_sanitize.cfg"
SETUP_CELL = Path(__file__).with_name("setup_cell.py")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def add_arguments(parser):
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: every notebook under notebooks/")
    parser.add_argument(
        "--cards",
        action="store_true",
        help="write the time and memory measured into each notebook's card and into README.md, where they differ by more "
        "than a quarter from what is there; let nothing else run meanwhile (default: print them, write none)",
    )


def run(args):
    if not PROJECT.is_file():
        print(f"error: rerun works inside the repository; there is no {PROJECT}", file=sys.stderr)
        return 1
    notebooks = args.notebooks or all_notebooks()
    if missing := [str(path) for path in notebooks if not path.is_file()]:
        print(f"error: no notebook at {', '.join(missing)}", file=sys.stderr)
        return 1
    if args.cards and (unlisted := [str(path) for path in notebooks if has_card(path) and not is_listed(path)]):
        print(f"error: no table in README.md links to {', '.join(unlisted)}", file=sys.stderr)
        return 1
    failed = [path for path in notebooks if not rerun(path, args.cards)]
    return 1 if failed else 0


def all_notebooks():
    """Every notebook and its solutions; not the copies that readers and JupyterLab keep in other folders"""
    return sorted(path for folder in ("", "solutions") for path in (ROOT / "notebooks" / folder).glob("[0-9]*.ipynb"))


WIDGET = "application/vnd.jupyter.widget-view+json"


def rerun(path, cards=False):
    """Run one notebook and store it, with `cards` also what it cost; False, and nothing stored, when that fails."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    try:
        before = path.read_text(encoding="utf-8")
        old = nbformat.reads(before, as_version=4)
    except ValueError as error:
        print(f"{path}: no notebook\n{error}", file=sys.stderr)
        return False
    new = copy.deepcopy(old)
    for cell in filter(is_setup, new.cells):
        cell.source = setup_source(home())
    client = NotebookClient(
        new,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=True,  # nbclient needs it for a while; `store` drops it
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        costs = measure(client.execute)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        print(f"{path}: failed, left as it was\n{error}", file=sys.stderr)
        return False
    if cards and (card := card_of(new)):
        card.source = card_with(card.source, costs)
    after = store(new, new if cards else old)
    if cards and card:
        list_in_readme(path, MEASURED.search(card.source).groups())
    if after != before:
        path.write_text(after, encoding="utf-8", newline="\n")
    print(f"{path}: {'unchanged' if after == before else 'written'}, {', '.join(in_words(costs))}")
    return True


def store(new, old):
    """The text of the file: cleaned, with the stored outputs where the new ones say the same"""
    import nbformat

    rules = sanitize_rules()
    for number, (cell, before) in enumerate(zip(new.cells, old.cells, strict=True)):
        cell["id"] = f"cell-{number:03d}"
        if cell.cell_type == "code":
            for output in cell.outputs:
                output.pop("transient", None)
                output.get("data", {}).pop(WIDGET, None)  # stored, it would stand for sliders that are gone
            measured = "nbval-ignore-output" in cell.metadata.get("tags", [])  # its pictures may show times
            if blur(cell.outputs, rules, measured) == blur(before.outputs, rules, measured):
                cell.outputs = before.outputs
    new.metadata = METADATA
    new.nbformat, new.nbformat_minor = 4, 5
    nbformat.validate(new)
    return nbformat.writes(new) + "\n"


def home():
    """The public address of the repository, from the one place that holds it: pyproject.toml; "" before it is published"""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "")


def setup_source(address):
    """The text of the setup cell of every notebook of a repository with this public address, "" for none"""
    return SETUP_CELL.read_text(encoding="utf-8").strip().replace('HOME = ""', f'HOME = "{address}"')


def is_setup(cell):
    """Whether this is the cell that finds vit_helpers"""
    return "setup" in cell["metadata"].get("tags", [])


def sanitize_rules(path=SANITIZE):
    """nbval's own file: what to look for, and what to put in its place"""
    config = configparser.RawConfigParser()
    config.read(path)
    return [(re.compile(config[name]["regex"]), config[name]["replace"]) for name in config.sections()]


def blur(outputs, rules, measured=False):
    """Outputs as comparable text, execution counts left out, and pictures too where they show what was measured"""
    texts = []
    for output in outputs:
        kept = {key: value for key, value in output.items() if key != "execution_count"}
        if measured and "data" in kept:
            kept["data"] = {kind: value for kind, value in kept["data"].items() if not kind.startswith("image/")}
        text = json.dumps(kept, sort_keys=True)
        for pattern, replacement in rules:
            text = pattern.sub(replacement, text)
        texts.append(text)
    return texts


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
