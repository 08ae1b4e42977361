"""The live page as one HTML file that needs nothing else: styles, scripts and data are inside."""

import json
import re
import tomllib
from base64 import b64encode
from pathlib import Path

from vit_helpers.live.photos import photos_data

HERE = Path(__file__).parent
WEIGHTS = HERE.parent / "weights" / "drawn.safetensors"
SLOTS = {  # what page.html refers to, and what takes its place
    '<script id="weights" type="text/plain"></script>': (
        '<script id="weights" type="text/plain">{}</script>'
    ),
    '<script id="photo-data" type="application/json"></script>': (
        '<script id="photo-data" type="application/json">{}</script>'
    ),
    '<script type="module" src="page.js"></script>': '<script type="module">\n{}</script>',
}
STYLE = re.compile(r'<link rel="stylesheet" href="([\w-]+\.css)">')
DECLARED = re.compile(r"^(?:async )?(?:function|const|let|class) (\w+)", re.M)  # at the top level
IMPORT = re.compile(r'^import (?:\{\s*\w+(?:,\s*\w+)*,?\s*\} from )?"\./([\w-]+\.js)";\n', re.M)


def live_page(weights: Path = WEIGHTS, address: str | None = None) -> str:
    """The page that reads a drawn digit and compares patches of photos: the text of one HTML file.

    weights: a file of `save_weights`, of a ViT for square gray images
    address: of the public repository, for links to the notebooks; by default `home()`, and with ""
             there are no links
    raises : FileNotFoundError without that file; ValueError if page.html or a script cannot be
             inlined
    """
    data = json.dumps(photos_data(), separators=(",", ":")).replace("</", "<\\/")
    contents = (b64encode(weights.read_bytes()).decode(), data, bundle("page.js"))
    page = (HERE / "page.html").read_text(encoding="utf-8")
    for (reference, slot), content in zip(SLOTS.items(), contents, strict=True):
        if page.count(reference) != 1:
            raise ValueError(f"page.html must contain {reference} exactly once")
        page = page.replace(reference, slot.replace("{}", content))
    page = STYLE.sub(lambda link: f"<style>\n{(HERE / link[1]).read_text('utf-8')}</style>", page)
    where = home() if address is None else address
    if not where:
        return page
    page = re.sub(
        r'<a data-notebook="(\w+)"', rf'\g<0> href="{where}/blob/main/notebooks/\1.ipynb"', page
    )
    return page.replace("<a data-series", f'<a data-series href="{where}"')


def home() -> str:
    """The public address of the repository, from pyproject.toml beside the package, or ''."""
    project = HERE.parents[1] / "pyproject.toml"
    table = (
        tomllib.loads(project.read_text(encoding="utf-8"))["project"] if project.is_file() else {}
    )
    return table.get("urls", {}).get("Repository", "")


def bundle(entry: str) -> str:
    """A JavaScript module and all modules that it imports as one script, what is imported first.

    Each module must import names in braces from files beside it, without renaming them, and no two
    of them may use the same name at the top level. An `export default` stays, since the notebooks'
    widget needs it.
    raises: ValueError for another import or export, and for a name that two modules use
    """
    bodies = {name: module_body(name) for name in import_order(entry)}
    users: dict[str, str] = {}
    for module, body in bodies.items():
        for name in DECLARED.findall(body):
            if (other := users.setdefault(name, module)) != module:
                raise ValueError(f"{other} and {module} both declare {name}: rename one")
    return "\n".join(bodies.values())


def import_order(entry: str) -> list[str]:
    """The modules that a module needs, itself last, each after those that it imports."""
    needed: list[str] = []
    for name in IMPORT.findall((HERE / entry).read_text(encoding="utf-8")):
        needed += import_order(name)
    return list(dict.fromkeys([*needed, entry]))


def module_body(name: str) -> str:
    """A module without imports and the word `export`; ValueError for those of another form."""
    body = IMPORT.sub("", (HERE / name).read_text(encoding="utf-8"))
    body = re.sub(r"^export (?=(?:async )?(?:function|const|let|class) )", "", body, flags=re.M)
    if left := re.search(r"^(?:import\b|export (?!default\b)).*|^import .* as ", body, re.M):
        raise ValueError(f"{name} cannot be inlined because of this line: {left[0]}")
    return body
