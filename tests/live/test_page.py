"""The live page as a file: what goes into it, in which order, and what cannot."""

import re
from base64 import b64decode

import pytest

from tools.execute import lessons
from vit_helpers.live import page as live
from vit_helpers.live.page import WEIGHTS, bundle, live_page


def test_everything_is_inside():
    page = live_page()
    without_photos = re.sub(r'(?<=<script id="photo-data" type="application/json">)[^<]+', "", page)
    assert len(without_photos.encode()) < 900_000
    assert not re.findall(
        r"<(?:script|img|iframe|audio|video|source)\b[^>]*\ssrc=(?!\"data:)|<link\b[^>]*stylesheet",
        page,
    )
    assert not re.findall(r"@import|\burl\((?![\"']?(?:data:|#))|\bfetch\(|\bimport\(", page)
    assert not re.findall(r"^(?:import|export)\b", page, re.M)
    weights = re.search(r'<script id="weights" type="text/plain">([^<]+)</script>', page)
    assert b64decode(weights[1]) == WEIGHTS.read_bytes()


def test_every_notebook_is_listed():
    (listed,) = re.findall(r'<ol class="notebook-list">(.*?)</ol>', live_page(), re.S)
    links = re.findall(r'<li><a data-notebook="(\w+)"', listed)
    assert links == [path.stem for path in lessons()]


def test_a_file_of_other_weights(tmp_path):
    (tmp_path / "other.safetensors").write_bytes(b"other weights")
    assert ">b3RoZXIgd2VpZ2h0cw==<" in live_page(tmp_path / "other.safetensors")
    with pytest.raises(FileNotFoundError):
        live_page(tmp_path / "none.safetensors")


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder in which the test writes modules: modules(name=text)"""
    monkeypatch.setattr(live, "HERE", tmp_path)

    def write(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.js").write_text(text, encoding="utf-8")

    return write


def test_modules_come_after_what_they_import_and_once(modules):
    modules(
        a=(
            'import { b } from "./b.js";\nimport {\n  c,\n  d,\n} from "./c.js";\n'
            'import "./e.js";\nb(c);\n'
        ),
        b='import { c } from "./c.js";\nexport function b() { return c; }\n',
        c="export const c = 1;\nexport class D {}\nexport async function d() {}\n",
        e="console.log(/export const/);\n",
    )
    assert bundle("a.js") == (
        "const c = 1;\nclass D {}\nasync function d() {}\n\nfunction b() { return c; }\n\n"
        "console.log(/export const/);\n\nb(c);\n"
    )


REFUSED = {
    "another name": (
        'import { b as c } from "./b.js";\n',
        "a.js cannot be inlined because of this line: import { b as c }",
    ),
    "a whole module": ('import * as b from "./b.js";\n', "because of this line: import"),
    "a library": (
        'import { b } from "https://example.org/b.js";\n',
        "because of this line: import",
    ),
    "a list of exports": ("const x = 1;\nexport { x };\n", "because of this line: export { x };"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_inlined_is_an_error(modules, name):
    text, message = REFUSED[name]
    modules(a=text, b="export const b = 1;\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        bundle("a.js")


def test_a_name_in_two_modules_is_an_error(modules):
    modules(
        a='import { b } from "./b.js";\nconst size = b;\n', b="let size = 1;\nexport const b = 1;\n"
    )
    with pytest.raises(ValueError, match=r"b\.js and a\.js both declare size"):
        bundle("a.js")


def test_a_page_that_lost_its_place_for_the_weights_is_an_error(tmp_path, monkeypatch):
    for file in live.HERE.glob("page.*"):
        (tmp_path / file.name).write_text(
            file.read_text(encoding="utf-8").replace('id="weights"', 'id="numbers"')
        )
    (tmp_path / "page.js").write_text("")
    monkeypatch.setattr(live, "HERE", tmp_path)
    with pytest.raises(
        ValueError,
        match=r'page\.html must contain <script id="weights" type="text/plain"></script> exactly',
    ):
        live_page()
