"""The layout: who imports whom, what importing does, how long things are.

And what is documented, and what the README promises.
"""

import ast
import contextlib
import csv
import importlib
import inspect
import json
import re
import statistics
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
import torch
from folding import folded

import vit_helpers
from tools.experiments import accuracies
from tools.experiments.libraries import markdown
from vit_helpers.ablation import effect_of, unpack
from vit_helpers.ablation.comparison import right_answers
from vit_helpers.cli import COMMANDS
from vit_helpers.results import read_results
from vit_helpers.results.localization import compare_methods, summarize_scores

pytestmark = pytest.mark.dev
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "vit_helpers"
FILES = sorted(PACKAGE.rglob("*.py"))
ORDER = {  # a module, or a folder of modules, may import these of ours and no others
    "_validate": {},
    "_cpus": {},
    "_files": {},
    "distributed": {},
    "patches": {"_validate"},
    "embeddings": {"_validate", "patches"},
    "attention": {},
    "parity": {},
    "microvit": {"microvit"},  # in it, only __main__ imports the file that imports nothing
    "encoder": {"attention"},
    "modern": {"_validate", "attention", "encoder"},
    "vit": {"_validate", "patches", "embeddings", "encoder", "modern"},
    "data": {"_cpus", "_files", "_validate", "data", "distributed"},
    "training": {"_files", "_validate", "data", "distributed", "encoder", "training", "vit"},
    "inspection": {"_validate", "data", "inspection", "vit"},
    "pretrained": {
        *("_files", "_validate", "data", "distributed", "embeddings", "encoder", "modern"),
        *("patches", "pretrained", "training", "vit"),
    },
    "ablation": {"_files", "_validate", "ablation", "data", "training"},
    "scaling": {"_validate", "scaling", "training.recipe", "vit"},
    "plots": {"plots"},
    "live": {
        *("_validate", "data", "inspection", "live", "patches", "plots", "pretrained"),
        *("results", "vit"),
    },
}
EVERYTHING = {*ORDER, "cli", "checks"}


def name_of(path):
    """data/splits.py -> data.splits, data/__init__.py -> data"""
    return (
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        .removesuffix("__init__")
        .rstrip(".")
    )


MODULES = {name_of(path): path for path in FILES}


def statements(code):
    """(module, name) of every import of a piece of code; the name is None for `import module`"""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports by dots"
            yield from ((node.module, alias.name) for alias in node.names)


def ours(code):
    """The modules of the package that code imports, as in MODULES; the package itself is ''"""
    for module, name in statements(code):
        if module.partition(".")[0] == "vit_helpers":
            inner = module.removeprefix("vit_helpers").lstrip(".")
            inside = f"{inner}.{name}".lstrip(".")
            exported = (
                vit_helpers.EXPORTS.get(name, "vit_helpers").removeprefix("vit_helpers").lstrip(".")
            )
            yield inside if inside in MODULES else inner or exported


def top(name):
    return name.partition(".")[0]


def within(folders):
    """The modules in these folders, or with these names."""
    return [name for name in MODULES if top(name) in folders]


def test_every_module_has_a_place_in_the_order():
    assert {top(name) for name in MODULES} - {"", "__main__", "results"} == EVERYTHING


@folded("name", within(ORDER))
def test_imports_run_one_way(name):
    allowed = ORDER[top(name)]
    imported = set(ours(MODULES[name].read_text(encoding="utf-8")))
    assert not {other for other in imported if other not in allowed and top(other) not in allowed}


@folded("name", within(EVERYTHING))
def test_nothing_imports_tools_and_only_the_command_line_imports_itself(name):
    code = MODULES[name].read_text(encoding="utf-8")
    assert not [module for module, _ in statements(code) if top(module) == "tools"]
    assert {top(other) for other in ours(code)} & {"cli", "checks"} <= {top(name)}


PAIRED = {"plots", "checks", "cli", "results", "experiments"}  # named after what they serve


def test_two_modules_share_a_name_only_where_the_folder_makes_them_a_pair():
    homes = {}
    for path in (*FILES, *tools()):
        if path.parent.name not in PAIRED and not path.stem.startswith("__"):
            homes.setdefault(path.stem, []).append(str(path.relative_to(ROOT)))
    assert not [paths for paths in homes.values() if len(paths) > 1]


def test_no_two_modules_import_each_other():
    TopologicalSorter(
        {
            name: set(ours(path.read_text(encoding="utf-8"))) - {name}
            for name, path in MODULES.items()
        }
    ).prepare()


def books():
    """All notebooks and solutions"""
    paths = (ROOT / "notebooks").rglob("*.ipynb")
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def cells_of(book, kind):
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == kind]


def cells(kind):
    """The source of every cell of this kind, in all notebooks and solutions"""
    return [cell for book in books() for cell in cells_of(book, kind)]


def notebooks():
    """The code of each notebook, whose cells share their imports"""
    return ["\n".join(cells_of(book, "code")) for book in books()]


def test_a_notebook_or_the_command_line_uses_every_module():
    waiting, used = (
        {"__main__", *within({"cli"}), *(name for code in cells("code") for name in ours(code))},
        set(),
    )
    while waiting:
        used.add(name := waiting.pop())
        packages = {name.rpartition(".")[0]} if "." in name else set()
        waiting |= {*ours(MODULES[name].read_text(encoding="utf-8")), *packages} - used
    assert MODULES.keys() - used <= {"", "results", *within({"microvit"})}  # which runs alone


def references(tree):
    """{function: the names that its code refers to}; "": those of modules and classes themselves

    A name is one that is read, an attribute, the name of an argument in a call, or a word of a
    string that holds names alone ("vit_helpers.training.recipe"). What prose says does not count.
    """
    functions = {"": set()}

    def walk(node, names):
        if isinstance(node, ast.FunctionDef):
            inner = functions.setdefault(node.name, set())
            defaults = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
            for child in filter(None, defaults):
                walk(child, names)
            for child in [*node.body, node.args, *filter(None, [node.returns])]:
                walk(child, inner)
            return
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            names.add(node.arg)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[\w.:]+", str(node.value)):
            names.update(re.findall(r"\w+", str(node.value)))
        for child in ast.iter_child_nodes(node):
            walk(child, names)

    walk(tree, functions[""])
    return functions


def unreached(modules, cells):
    """Functions and methods of modules that no code leads to, neither a module's nor a cell's"""
    functions, reached, waiting = {}, set(), set()
    for code in modules:
        for name, names in references(ast.parse(code)).items():
            functions.setdefault(name, set()).update(names)
    for code in cells:
        tree = ast.parse(re.sub(r"^\s*[%!].*$", "", code, flags=re.M))
        waiting.update(*references(tree).values())
    waiting |= functions.pop("") | {name for name in functions if name.startswith("__")}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= functions.get(name, set()) - reached
    return functions.keys() - reached


def test_something_uses_every_function():
    modules = [path.read_text(encoding="utf-8") for path in [*FILES, *tools()]]
    assert unreached(modules, cells("code")) == {
        "_ipython_display_",  # Jupyter calls these two
        "_repr_mimebundle_",
        "wrong_answers",  # the tests of checks call it
    }


LESSONS = {"data", "training", "inspection", "pretrained", "ablation", "scaling"}


def imported(tree, modules):
    """{local name: (module, name)} of all imports of ours in a tree; a module's name is None."""
    names = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.module.partition(".")[0] != "vit_helpers":
            continue
        module = node.module.removeprefix("vit_helpers").lstrip(".")
        for alias in node.names:
            inner = f"{module}.{alias.name}".lstrip(".")
            target = (inner, None) if inner in modules else (module, alias.name)
            names[alias.asname or alias.name] = target
    return names


def uses(node, names):
    """The (module, name) of ours that a piece of code refers to, by names or as attributes"""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in names:
            yield names[part.id]
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            module, name = names.get(part.value.id, ("", ""))
            if name is None:
                yield module, part.attr
        elif isinstance(part, ast.Constant) and "from vit_helpers" in str(part.value):
            with contextlib.suppress(SyntaxError):  # a script in a string, for another process
                script = ast.parse(part.value)
                yield from uses(script, imported(script, MODULES))


def definitions(module, tree, modules):
    """{name: what its definition refers to} of a module; "" is for its other statements"""
    names, found = imported(tree, modules), {"": set()}
    statements = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    bound = {}
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound[node] = {node.name}
        else:
            parts = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
            bound[node] = {part.id for part in parts if isinstance(part.ctx, ast.Store)}
    names |= {name: (module, name) for of_node in bound.values() for name in of_node}
    for node in statements:
        for name in bound[node] or {""}:
            found.setdefault(name, set()).update(uses(node, names))
    return found, names


def commands_alone(sources, notebooks):
    """Modules of lessons of which no definition is used by a notebook, or by what one uses

    sources: {module: code};  notebooks: the code of each.  What an `__init__` exports is no use.
    """
    known = {name: definitions(name, ast.parse(code), sources) for name, code in sources.items()}
    waiting, reached = set(), set()
    for code in notebooks:
        tree = ast.parse(re.sub(r"^\s*[%!].*$", "", code, flags=re.M))
        waiting.update(uses(tree, imported(tree, sources)))
    while waiting:
        module, name = waiting.pop()
        if module == "" and name in vit_helpers.EXPORTS:
            module = vit_helpers.EXPORTS[name].removeprefix("vit_helpers.")
        if (module, name) in reached or module not in known:
            continue
        reached.add((module, name))
        found, names = known[module]
        if name in found:
            waiting |= found[name] | {(module, "")}
        elif name in names:
            waiting.add(names[name])
    used = {module for module, name in reached if name in known[module][0] and name}
    packages = {name.rpartition(".")[0] for name in sources}
    return {name for name in sources if top(name) in LESSONS} - used - packages


def test_no_lesson_module_serves_commands_alone():
    assert not commands_alone(SOURCES, notebooks())


SOURCES = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
PLANTED = "def plant(): return 1"
EXPORT = "\nfrom vit_helpers.training.planted import plant\n__all__ += ['plant']\n"


@pytest.mark.parametrize("place", ["cli.train", "training"])
def test_a_module_for_commands_alone_is_found(place):
    """A command uses it, or it is exported; a notebook that calls it changes that"""
    sources = SOURCES | {"training.planted": PLANTED, place: SOURCES[place] + EXPORT}
    assert commands_alone(sources, notebooks()) == {"training.planted"}
    cell = "from vit_helpers.training.planted import plant\n"
    assert commands_alone(sources, [*notebooks(), cell]) == {"training.planted"}
    assert not commands_alone(sources, [*notebooks(), cell + "plant()"])


def test_what_a_used_function_uses_is_used():
    """Through a function, a method, a table, a module's name, and an export"""
    sources = {
        "training": "from vit_helpers.training.a import f",
        "training.a": (
            "from vit_helpers.training import b\ndef f(): return b.Thing()\ndef g(): pass"
        ),
        "training.b": "from vit_helpers.training.c import TABLE\nclass Thing:\n  x = TABLE",
        "training.c": "def h():\n  from vit_helpers.training.d import i\n  i()\nTABLE = {1: h}",
        "training.d": "def i(): pass",
        "training.e": "from vit_helpers.training.a import g",
    }
    cell = "from vit_helpers.training import f\nf()"
    assert commands_alone(sources, [cell]) == {"training.e"}
    assert commands_alone(sources, ["# f"]) == {f"training.{name}" for name in "abcde"}


def test_what_prose_and_dead_functions_say_does_not_count():
    module = '''
"""This module says a lot about dead."""
def dead():
    """dead calls itself."""
    return dead() + helper()
def helper(): pass
def used(): return below()
def below(): pass
def by_name(): pass
TABLE = {"a": "module.by_name", "b": "prose about dead"}
'''
    assert unreached([module], ["%matplotlib inline\nused()  # dead"]) == {"dead", "helper"}


def tools():
    return sorted((ROOT / "tools").rglob("*.py"))


@folded("name", within({*ORDER, "cli"}))
def test_no_assert_stands_between_a_user_and_an_error(name):
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]


@folded("name", within(ORDER))
def test_public_names_are_documented(name):
    module = importlib.import_module(f"vit_helpers.{name}")
    assert module.__doc__
    for thing, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__ and not thing.startswith("_")
        if own and (inspect.isclass(value) or inspect.isfunction(value)):
            assert value.__doc__, thing


QUIET = """
import random, sys
import torch, matplotlib
def state():
    random_states = random.getstate(), torch.get_rng_state().tolist()
    return random_states, torch.get_num_threads(), dict(matplotlib.rcParams)
before = state()
import vit_helpers
assert [m for m in sys.modules if m.startswith("vit_helpers")] == ["vit_helpers"]
for name in {names}:
    __import__("vit_helpers." + name)
assert state() == before
assert "sklearn" not in sys.modules and "torchvision" not in sys.modules
print("quiet")
"""


def test_importing_runs_nothing():
    code = QUIET.replace("{names}", repr(within(ORDER)))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("quiet\n", "")


def test_the_package_costs_nothing_to_import():
    ours = "[m for m in sys.modules if m.startswith('vit_helpers.')]"
    code = f"import sys, vit_helpers; print('torch' in sys.modules, {ours})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False []\n", "")


@folded(("name", "home"), vit_helpers.EXPORTS.items())
def test_short_names_are_those_of_their_modules(name, home):
    assert getattr(vit_helpers, name) is getattr(importlib.import_module(home), name)
    assert name in dir(vit_helpers) and name in vit_helpers.__all__


def test_other_names_are_errors():
    with pytest.raises(AttributeError, match="module 'vit_helpers' has no attribute 'vitt'"):
        _ = vit_helpers.vitt


@pytest.mark.parametrize("words", [["check"], ["format", "--check"]])
def test_lint(words):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *words, "."], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def requirements(lines):
    return dict(
        re.match(r"([\w-]+)(.*)", line.partition("#")[0].strip()).groups()
        for line in lines
        if re.match(r"\w", line)
    )


def test_both_lists_of_requirements_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readers = requirements((ROOT / "requirements.txt").read_text().splitlines())
    package = requirements(project["dependencies"])
    tests = requirements(project["optional-dependencies"]["test"])
    assert package.items() <= readers.items()
    assert all(readers[name] == bound for name, bound in tests.items() if name in readers)
    # never reinstall the torch of a Colab machine
    assert "<" not in readers["torch"] + readers["torchvision"]


@pytest.mark.repo
def test_ci_runs_the_command_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    command = next(line for line in readme.splitlines() if line.endswith("bin/pytest"))
    assert any(line.startswith(command) for line in (ROOT / ".ci" / "run").read_text().splitlines())
    start = next(
        line for line in readme.splitlines() if line.endswith(" notebooks/00_start_here.ipynb")
    )
    assert start.startswith("python3 -m venv .venv && ")
    # without it JupyterLab serves notebooks/ alone, and ../images is not found
    assert "--notebook-dir=." in start


READMES = [
    ROOT / "README.md",
    PACKAGE / "README.md",
    PACKAGE / "results" / "README.md",
    ROOT / "tools" / "README.md",
    ROOT / "tools" / "publishing.md",
    ROOT / ".github" / "CONTRIBUTING.md",
    PACKAGE / "microvit" / "README.md",
]


def anchors(path):
    """The places in a page that a link can lead to, as GitHub names its headings"""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S), re.M
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.repo
@folded("path", READMES)
def test_links_and_pictures_of_a_readme_are_there(path):
    text = path.read_text(encoding="utf-8")
    links = [
        link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("https://")
    ]
    assert links or path.parent.name == "tools"
    for link in links:
        file, _, place = link.partition("#")
        there = path.parent / file if file else path
        assert there.exists() and (not place or place in anchors(there)), link
    assert all(alt.strip() for alt in re.findall(r"!\[([^]]*)\]", text))


@pytest.mark.repo
def test_the_first_page_is_short_and_leads_on():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 1150
    for page in (
        "vit_helpers/README.md",
        "vit_helpers/results/README.md",
        "tools/README.md",
        "TEACHING.md",
    ):
        assert f"]({page}" in text, page
    commands = {
        word
        for path in READMES[:2]
        for word in re.findall(r"-m vit_helpers (\w+)", path.read_text(encoding="utf-8"))
    }
    assert commands == set(COMMANDS)


AUGMENTED = ("none", "affine")  # settings of `transfer.csv`


def stored(table, key, **which):
    """Mean and standard deviation over the seeds of a stored table, as the README writes them

    key: a column; of "right", the share of images that a run classified correctly
    """
    with (PACKAGE / "results" / table).open(encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if all(row[name] == value for name, value in which.items())
        ]
    values = [float(unpack(row[key]).mean() if key == "right" else row[key]) for row in rows]
    return statistics.mean(values), statistics.stdev(values)


@pytest.mark.repo
def test_figures_are_those_of_the_stored_tables():
    page = (PACKAGE / "results" / "README.md").read_text(encoding="utf-8")
    tasks = (
        ("photos", ("100", "300", "1000"), "flip_crop"),
        ("new classes", ("100", "300", "1000"), "none"),
        *(("no labels before", ("20", "50", "100"), a) for a in AUGMENTED),
    )
    for task, labels, augment in tasks:
        for n in labels:
            which = {"task": task, "augment": augment, "labels": n, "split": "test"}
            pairs = [
                stored("transfer.csv", "right", way=way, pretrained="0", **which)
                for way in ("from scratch", "probe", "LoRA", "full")
            ]
            assert (
                f"| {int(n):,} | " + " | ".join(f"{a:.3f} ± {b:.3f}" for a, b in pairs) + " |"
                in page
            )
            if task != "no labels before":
                models = [
                    stored("transfer.csv", "right", way="full", pretrained=seed, **which)
                    for seed in ("0", "1", "2")
                ]
                line = " | ".join(f"{a:.3f} ± {b:.3f}" for a, b in models)
                assert f"| {task}, {int(n):,} | {line} |" in page


@pytest.mark.repo
def test_scores_of_maps_are_those_of_the_stored_table():
    page = (PACKAGE / "results" / "README.md").read_text(encoding="utf-8")
    rows = read_results("localization")
    scores = summarize_scores(rows).reset_index().pivot(index=["model", "method"], columns="score")
    for (model, method), line in scores.drop(index="untrained").iterrows():
        cells = [f"{line['mean', 'inside']:.3f}"]
        for score in ("pointing_game", "rank"):
            cells.append(
                f"{line['mean', score]:.3f} ± {(line['high', score] - line['low', score]) / 2:.3f}"
            )
        name = method + ", no model" * (model == "none")
        assert f"| {name} | {' | '.join(cells)} |" in page or method in (
            "uniform map",
            "brightness",
            "edges",
        )
    ahead = compare_methods(rows).loc["ink, blurred"]
    # "no method is ahead of blurred ink"
    assert not ((ahead["mean"] > 0) & (ahead["p"] < 0.05)).any()
    # rollout alone is level
    assert (ahead["models"] == 5).all() and (ahead.loc["rank"].drop("rollout")["high"] < 0).all()


@pytest.mark.repo
def test_accuracies_are_those_of_the_stored_runs():
    page = (PACKAGE / "results" / "README.md").read_text(encoding="utf-8")
    digits = accuracies.summary(read_results("accuracies"))
    answers = list(
        right_answers(read_results("accuracy_fashion_mnist"), "baseline", "test_right").values()
    )
    fashion = effect_of(answers)
    measured = [(line.accuracy, line.low, line.high) for line in digits.itertuples()]
    for mean, low, high in [*measured, (fashion.difference, *fashion.interval())]:
        assert f"{mean:.4f} ({low:.4f} to {high:.4f})" in page
    assert (digits.seeds == 5).all() and len(answers) == 5


@pytest.mark.repo
def test_seconds_are_those_of_the_stored_run():
    page = (PACKAGE / "results" / "README.md").read_text(encoding="utf-8")
    stored = [
        (PACKAGE / "results" / f"bench_{name}.txt").read_text(encoding="utf-8")
        for name in ("digits", "fashion")
    ]
    (machine, *goals), (same, fashion) = (text.strip().split("\n\n") for text in stored)
    assert machine == same and machine in page
    assert [goal.split()[0] for goal in (*goals, fashion)] == [
        "digits-3s",
        "digits",
        "digits-60s",
        "fashion",
    ]
    for goal in (*goals, fashion):
        seconds = [float(x) for x in re.findall(r"training (\S+) s\n", goal)]
        assert f"| {statistics.mean(seconds):.0f} ({max(seconds):.0f}) |" in page, goal


def nearest(kind, seed):
    """Whether each digit's nearest training image, by pixels in the same folds, has its class.

    returns: (1797,)
    """
    every = accuracies.every_digit()
    pixels, right = every.images.flatten(1), torch.zeros(len(every.labels), dtype=torch.bool)
    for rows in accuracies.draw_folds(len(pixels), kind, seed):
        others = torch.ones(len(pixels), dtype=torch.bool)
        others[rows] = False
        found = torch.cdist(pixels[rows], pixels[others]).argmin(dim=1)
        right[rows] = every.labels[others][found] == every.labels[rows]
    return right.numpy()


def cross_validated(goal, kind):
    """Whether each seed's models classify each digit correctly, by seed: (5, 1797)."""
    rows = read_results("accuracies").query("goal == @goal and folds == @kind").sort_values("seed")
    return np.stack([unpack(text) for text in rows.right])


@pytest.mark.repo
def test_the_nearest_training_image_is_the_control():
    page = " ".join((PACKAGE / "results" / "README.md").read_text(encoding="utf-8").split())
    random, consecutive = (
        np.stack([nearest("random", seed) for seed in range(5)]),
        nearest("consecutive", 0),
    )
    assert f"by pixels | | {random.mean():.4f} | {consecutive.mean():.4f} |" in page
    for goal, words in (
        ("digits-3s", "8 epochs are {} points below it (95%: {} to {})"),
        ("digits", "above it ({} to {})"),
    ):
        effect = effect_of(cross_validated(goal, "random").astype(int) - random)
        low, high = sorted(abs(100 * bound) for bound in effect.interval())
        numbers = [f"{x:.1f}" for x in (abs(100 * effect.difference), low, high)]
        assert words.format(*numbers[-words.count("{}") :]) in page


@pytest.mark.repo
def test_what_the_page_says_of_sheets():
    """Each of the 14 sheets in scikit-learn's file begins with the digits 0 to 9; one lacks 0."""
    page = " ".join((PACKAGE / "results" / "README.md").read_text(encoding="utf-8").split())
    starts = [0, 130, 256, 386, 516, 646, 776, 906, 1029, 1157, 1287, 1415, 1545, 1667]
    labels = accuracies.every_digit().labels
    assert all(
        labels[start : start + 9].tolist() == list(range(start == 906, 9 + (start == 906)))
        for start in starts
    )
    sheet = np.searchsorted(starts, np.arange(1797), side="right") - 1
    folds = [set(sheet[rows.numpy()]) for rows in accuracies.draw_folds(1797, "consecutive", 0)]
    cut = [one for one in range(14) if sum(one in fold for fold in folds) > 1]
    shared, right = np.isin(sheet, cut), cross_validated("digits", "consecutive")
    assert len(cut) == 4 and f"so {shared.mean():.0%} of the images still share their sheet" in page
    assert f"on the others the accuracy after 36 epochs is {right[:, ~shared].mean():.3f}" in page
    each = [right[:, sheet == one].mean() for one in range(14)]
    assert f"the accuracy varies from {min(each):.2f} to {max(each):.2f}" in page
    ratios = []
    stored_runs = read_results("accuracies")
    for goal, kind in stored_runs.groupby(["goal", "folds"]).groups:
        answers = cross_validated(goal, kind)
        ends = [effect_of(answers, clusters).interval() for clusters in (sheet, None)]
        ratios.append(np.diff(ends[0])[0] / np.diff(ends[1])[0])
    assert f"are {min(ratios):.1f} to {max(ratios):.1f} times as wide" in page
    effect = effect_of(cross_validated("digits", "random") - right.astype(float), sheet)
    points = [f"{100 * x:.1f}" for x in (effect.difference, *effect.interval())]
    assert "is then {} points ({} to {})".format(*points) in page


@pytest.mark.repo
def test_speeds_are_those_of_the_stored_run():
    results = json.loads((PACKAGE / "results" / "libraries.json").read_text(encoding="utf-8"))
    assert markdown(results).strip() in (PACKAGE / "results" / "README.md").read_text(
        encoding="utf-8"
    )
