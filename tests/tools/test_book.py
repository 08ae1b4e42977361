"""The book and the slides as they are read: links, search, narrow and dark pages; refusals."""

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import nbformat
import pytest
from browser import accessibility, broken_pictures, contrast, in_browser, page_of

from tools import book
from tools import main as run_tool
from tools.book import EXERCISE, LIVE, README, page_name
from tools.execute import ROOT, all_notebooks, further_pages, home, lessons

pytestmark = pytest.mark.book

READMES = (
    *("vit_helpers/README", "vit_helpers/microvit/README", "vit_helpers/results/README"),
    "tools/README",
)
BESIDE = [
    name
    for name in ("TEACHING", "notebooks/paper_index", *READMES)
    if (ROOT / f"{name}.md").exists()
]
LESSONS = lessons()
IN_ORDER = sorted([*LESSONS, *further_pages()], key=lambda path: (path.name, path not in LESSONS))


def command(*words, root=ROOT):
    """`python -m tools.NAME ...` as a person calls it in the repository at `root`"""
    command = [sys.executable, "-m", f"tools.{words[0]}", *map(str, words[1:])]
    return subprocess.run(
        command,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "book"
    return folder, command("book", folder)


@pytest.fixture(scope="module")
def site(built):
    folder, done = built
    assert done.returncode == 0, done.stderr
    return folder


def test_it_is_built_without_a_warning(built):
    folder, done = built
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"written: {folder / 'index.html'}\n",
        "",
    )


def test_no_page_says_that_its_author_is_not_set(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > 100
    assert not [page for page in pages if "name not set" in page.read_text(encoding="utf-8")]


class Page(HTMLParser):
    """What a page leads to and shows, and the places in it that a link can lead to"""

    def __init__(self, path):
        super().__init__()
        self.links, self.pictures, self.ids, self.solutions = [], [], set(), 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids.add(found.get("id"))
        self.solutions += tag == "details" and "tip" in found.get("class", "")
        if tag == "img":
            self.pictures.append(found)
        for name in {"a": ["href"], "link": ["href"], "script": ["src"], "img": ["src"]}.get(
            tag, []
        ):
            if found.get(name):
                self.links.append(found[name])


@pytest.fixture(scope="module")
def pages(site):
    return {
        path: Page(path)
        for path in site.rglob("*.html")
        if "_static" not in path.relative_to(site).parts
    }


def test_every_file_of_the_series_has_its_page(site, pages):
    rooms = [path for path in (ROOT / "vit_helpers").glob("*.py") if path.name != "__main__.py"]
    for name in [*map(page_name, [LIVE, README, *all_notebooks(), *rooms]), *BESIDE]:
        assert site / f"{name}.html" in pages


def test_every_link_leads_to_a_page_and_to_a_place_in_it(pages):
    seen = 0
    for path, page in pages.items():
        for link in page.links:
            address = urlparse(link)
            if address.scheme == "data":
                continue
            if address.scheme:
                assert address.scheme == "https", (path, link)
                continue
            there = (
                path
                if not address.path
                else Path(os.path.normpath(path.parent / unquote(address.path)))
            )
            assert there.is_file(), (path, link)
            if address.fragment and there in pages:
                assert unquote(address.fragment) in pages[there].ids, (path, link)
                seen += 1
    assert seen > 100


def test_pictures_say_what_they_show(pages):
    assert sum(len(page.pictures) for page in pages.values()) > 90
    for path, page in pages.items():
        assert not [picture for picture in page.pictures if not picture.get("alt", "").strip()], (
            path
        )


def exercises(path):
    cells = nbformat.read(path, as_version=4).cells
    return sum(len(EXERCISE.findall(cell.source)) for cell in cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", IN_ORDER, ids=page_name)
def test_every_exercise_is_followed_by_its_solution(path, site, pages):
    page = pages[site / f"{page_name(path)}.html"]
    if path.stem.startswith("00"):  # its answer is in the further page's own text
        text = (site / f"{page_name(path)}.html").read_text(encoding="utf-8")
        assert page.solutions == 0
        assert ("Answer to the exercise" in text) == (exercises(path) > 0)
    else:
        assert exercises(path) >= 1 or path not in LESSONS
        assert page.solutions == exercises(path)


def test_buttons_to_colab_wait_until_the_repository_is_published(site):
    everything = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.html"))
    assert ("colab.research.google.com/github" in everything) == bool(home())


def test_the_theme_leads_through_the_series_in_its_order(site):
    place, order = site / "readme.html", []
    while len(order) < len(IN_ORDER):
        place = place.parent / re.search(
            r'<link rel="next" [^>]*href="([^"]+)"', place.read_text(encoding="utf-8")
        ).group(1)
        place = Path(os.path.normpath(place))
        order.append(place.relative_to(site).with_suffix("").as_posix())
    assert order == [page_name(path) for path in IN_ORDER]


def test_a_further_page_stands_under_its_core_page_in_the_table_of_contents(site):
    sidebar = (site / "readme.html").read_text(encoding="utf-8").partition("bd-sidebar-primary")[2]
    entry = r'<li class="toctree-l1"><a[^>]* href="(notebooks/(?:further/)?\d\d_\w+)\.html">'
    listed = re.findall(rf"{entry}\s*([^<]+?)\s*</a>", sidebar)
    assert [name for name, _ in listed[: len(IN_ORDER)]] == [page_name(path) for path in IN_ORDER]
    names = dict(listed)
    for path in further_pages():
        core = names[f"notebooks/{path.stem}"]
        assert names[page_name(path)] == f"{core[:2]} further: {core[3:]}"


def test_a_link_to_a_section_of_a_further_page_leads_there(site, pages):
    for path in further_pages():
        page = pages[site / "notebooks" / f"{path.stem}.html"]
        links = [link for link in page.links if link.startswith(f"further/{path.stem}.html#")]
        assert links and "#" in links[0]  # that the place is there is tested above


# In a browser


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        """Nothing"""


@pytest.fixture(scope="module")
def served(site):
    """The book on a web server"""
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=site)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def typeset(page):
    """Wait until all mathematics of the page stands, and count it"""
    page.wait_for_function("!window.MathJax || (MathJax.startup && MathJax.startup.promise)")
    return page.evaluate(
        "window.MathJax ? MathJax.startup.promise.then("
        "() => document.querySelectorAll('mjx-container').length) : 0"
    )


@contextmanager
def reading(chromium, **options):
    """A page that may take its time, as beside other tests it will"""
    with page_of(chromium, **options) as (page, wrong):
        page.set_default_timeout(180_000)
        yield page, wrong


@in_browser
@pytest.mark.parametrize(
    "name", ["index", "readme", *map(page_name, IN_ORDER), *BESIDE, "vit_helpers/attention"]
)
def test_a_page_on_a_phone(name, site, chromium):
    with reading(chromium, viewport={"width": 375, "height": 800}) as (page, wrong):
        page.goto(f"file://{site}/{name}.html")
        assert (
            name in ("index", "readme", "vit_helpers/attention", "TEACHING", *READMES)
            or "/further/" in name
            or typeset(page) > 3
        )
        assert not page.query_selector_all("mjx-merror, [data-mjx-error]")
        assert page.evaluate("document.documentElement.scrollWidth") == 375
        assert broken_pictures(page) == []
        assert wrong == {"errors": [], "failed": [], "away": []}


@in_browser
def test_search_finds_a_word_in_its_notebook(served, chromium):
    with reading(chromium) as (page, wrong):
        page.goto(f"{served}/readme.html")
        page.keyboard.press("Control+k")
        page.keyboard.type("rollout")
        page.keyboard.press("Enter")
        page.click("#search-results a[href*='notebooks/08_inspection.html']")
        page.wait_for_url("**/notebooks/08_inspection.html**")
        assert wrong == {"errors": [], "failed": [], "away": []}


@in_browser
def test_search_needs_no_server(site, chromium):
    with reading(chromium) as (page, wrong):
        page.goto(f"file://{site}/search.html?q=rollout")
        page.wait_for_selector("#search-results a[href*='notebooks/08_inspection.html']")
        # lines of the pages found, which only a server hands out
        assert set(wrong["errors"]) <= {"Failed to fetch"}
        assert wrong["away"] == []


@in_browser
def test_a_reader_without_a_mouse(served, chromium):
    with reading(chromium) as (page, wrong):
        page.goto(f"{served}/notebooks/01_patches.html")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.innerText") == "Skip to main content"
        solution = page.locator("details.tip").first
        assert (
            "return (H // P) * (W // P)" in solution.text_content()
            and not solution.locator("pre").is_visible()
        )
        solution.locator("summary").focus()
        page.keyboard.press("Enter")
        assert solution.locator("pre").is_visible()
        page.keyboard.press("Space")
        assert not solution.locator("pre").is_visible()
        for name in ("further/01_patches", "02_embeddings"):
            page.get_by_role("link", name=re.compile("^next", re.IGNORECASE)).focus()
            page.keyboard.press("Enter")
            page.wait_for_url(f"**/notebooks/{name}.html")
        assert wrong == {"errors": [], "failed": [], "away": []}


@in_browser
def test_the_site_opens_with_the_live_page_and_leads_to_the_notebooks_and_back(served, chromium):
    with reading(chromium) as (page, wrong):
        page.goto(served)
        assert page.evaluate("window.vit.config.class_names.length") == 10
        page.get_by_role("link", name="00 Start here").click()
        page.wait_for_url("**/notebooks/00_start_here.html")
        page.get_by_role("link", name="live page").first.click()
        page.wait_for_url("**/index.html")
        page.get_by_role("link", name="series of notebooks").click()
        page.wait_for_url("**/readme.html")
        page.locator(".bd-sidebar-primary").get_by_role("link", name="The live page").click()
        page.wait_for_url("**/index.html")
        assert wrong == {"errors": [], "failed": [], "away": []}


WIDGETS = {
    "draw": "00_start_here",
    "attend": "further/03_attention",
    "pick": "further/03_attention",
    "explore": "08_inspection",
}


@in_browser
@pytest.mark.parametrize(("part", "name"), WIDGETS.items())
def test_a_widget_replaces_its_picture_and_works_without_a_kernel(site, chromium, part, name):
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    (cell,) = [cell for cell in notebook.cells if f'Explorer("{part}"' in cell.source]
    with reading(chromium, viewport={"width": 1280, "height": 900}) as (page, wrong):
        page.goto(f"file://{site}/notebooks/{name}.html")
        page.wait_for_selector(f"#vit-{part} [role=status]")
        said = page.locator(f"#vit-{part}").get_by_role("status")
        before = said.inner_text()
        do_something = {
            "draw": lambda: page.get_by_role("button", name="Clear").click(),
            "attend": lambda: page.get_by_label("query of sky, component 1").fill("5"),
            "pick": lambda: page.get_by_role("button", name="cat").click(),
            "explore": lambda: page.get_by_role("button", name="block 1, head 1").click(),
        }
        do_something[part]()
        assert said.inner_text() != before
        ((picture,),) = (output.metadata.values() for output in cell.outputs)
        assert page.get_by_alt_text(picture["alt"]).count() == 0
        assert wrong == {"errors": [], "failed": [], "away": []}


UNFOLD = """async () => {
    document.querySelectorAll('details').forEach(folded => folded.open = true);
    await new Promise(next => requestAnimationFrame(() => requestAnimationFrame(next)));
    // what is folded fades in
    await Promise.all(document.getAnimations().map(one => one.finished));
}"""


@in_browser
@pytest.mark.parametrize(
    ("theme", "audit"), [("light", accessibility), ("dark", contrast)], ids=["light", "dark"]
)
def test_nothing_keeps_a_reader_out(site, chromium, theme, audit):
    # from the start: no color is caught half-way between themes
    with reading(chromium, color_scheme=theme) as (page, _):
        for name in ("notebooks/01_patches", "vit_helpers/patches", "search"):
            page.goto(f"file://{site}/{name}.html")
            page.evaluate(UNFOLD)
            typeset(page)
            assert audit(page) == [], name


EVERY_SLIDE = """Reveal.getSlides().map(slide => {
    const at = Reveal.getIndices(slide);
    Reveal.slide(at.h, at.v);
    return [slide.scrollWidth, slide.scrollHeight, getComputedStyle(slide).overflowY];
})"""


@in_browser
def test_slides_of_a_notebook(tmp_path, chromium):
    folder = tmp_path / "slides"
    done = command("slides", "--out", folder)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"written: {folder / 'index.html'}\n",
        "",
    )
    with reading(chromium, viewport={"width": 1280, "height": 720}) as (page, wrong):
        page.goto(f"file://{folder}/index.html")
        page.click("text=01 patches")
        page.wait_for_function("window.Reveal && Reveal.isReady()")
        typeset(page)
        page.keyboard.press("Space")
        opening = "Reveal.getCurrentSlide().querySelector('img, pre code') !== null"
        assert page.evaluate(opening)  # the map, or the code that draws it
        cells = nbformat.read(ROOT / "notebooks" / "01_patches.ipynb", as_version=4).cells
        sizes = page.evaluate(EVERY_SLIDE)
        assert len(sizes) > len(cells) - 2
        assert all(width <= 1280 for width, _, _ in sizes)
        # so one can scroll
        assert all(overflow == "auto" for _, height, overflow in sizes if height > 720)
        words = page.evaluate("document.body.textContent")
        assert "Exercise: how many patches?" in words and "assert check_num_patches" not in words
        assert "find_spec" not in words and not page.query_selector_all(
            "mjx-merror, [data-mjx-error]"
        )
        with page.expect_popup() as speaker:
            page.keyboard.press("s")
        speaker.value.wait_for_selector("text=Upcoming")
        assert broken_pictures(page) == [] and wrong == {"errors": [], "failed": [], "away": []}


# What the command refuses, and a repository that is published


TO_OTHERS = (
    r"\[([^][]*)\]\((?:\.\./|further/)?(?!01)\d\d_\w+\.ipynb(?:#[^)]*)?\)"  # links to other pages
)


@pytest.fixture
def small(tmp_path):
    """A repository with one notebook, published"""
    root = tmp_path / "small"
    for folder in ("tools", "images"):
        skipped = shutil.ignore_patterns("__pycache__", "README.md")
        shutil.copytree(ROOT / folder, root / folder, ignore=skipped)
    for folder in ("", "further", "solutions"):
        name = f"{folder}/01_patches.ipynb".strip("/")
        (root / "notebooks" / folder).mkdir(parents=True, exist_ok=True)
        if not (ROOT / "notebooks" / name).is_file():
            continue
        text = (ROOT / "notebooks" / name).read_text(encoding="utf-8")
        (root / "notebooks" / name).write_text(re.sub(TO_OTHERS, r"\1", text), encoding="utf-8")
    left_out = shutil.ignore_patterns(
        "__pycache__", "README.md", "claims.md", "ablation", "checks", "scaling"
    )
    shutil.copytree(ROOT / "vit_helpers", root / "vit_helpers", ignore=left_out)
    (root / "pyproject.toml").write_text(
        '[project]\nurls = {Repository = "https://github.com/someone/series"}\n'
    )
    (root / "LICENSE").write_text("as you like\n")
    (root / "README.md").write_text(
        "# Small\n\n"
        "[![a badge](https://colab.research.google.com/badge.svg)]"
        "(https://colab.research.google.com/)\n\n"
        "[01 patches](notebooks/01_patches.ipynb), "
        "[line 3](vit_helpers/patches.py#L3), [licence](LICENSE)\n"
    )
    return root


def test_a_published_book_has_buttons_that_lead_to_the_repository(small):
    done = command("book", root=small)
    assert (done.returncode, done.stderr) == (0, "")
    site = small / "build" / "book"
    notebook = (site / "notebooks" / "01_patches.html").read_text(encoding="utf-8")
    at = "/someone/series/blob/main/notebooks/01_patches.ipynb"
    assert f'href="https://colab.research.google.com/github{at}"' in notebook
    assert 'href="https://github.com/someone/series"' in notebook
    front = (site / "readme.html").read_text(encoding="utf-8")
    assert 'id="canvas"' in (site / "index.html").read_text(encoding="utf-8")
    assert (
        'href="https://github.com/someone/series/blob/main/LICENSE"' in front
        and "badge.svg" not in front
    )
    assert 'href="vit_helpers/patches.html#L-3"' in front
    assert 'id="L-3"' in (site / "vit_helpers" / "patches.html").read_text(encoding="utf-8")


def test_a_link_that_leads_nowhere_stops_the_build_and_leaves_the_older_book(small):
    site = small / "build" / "book"
    (site / "_static").mkdir(parents=True)
    (site / "_static" / "vit_helpers.css").write_text("")
    (small / "README.md").write_text(
        "# Small\n\n[01 patches](notebooks/01_patches.ipynb), [nowhere](nowhere.md)\n"
    )
    done = command("book", root=small)
    assert done.returncode == 1 and "'nowhere.md'" in done.stderr
    assert done.stderr.endswith("error: nothing was written: see the warnings above\n")
    assert [path.name for path in site.rglob("*.*")] == ["vit_helpers.css"]


def test_a_picture_without_words_and_another_way_to_the_repository_stop_no_slides(small, tmp_path):
    path = small / "notebooks" / "01_patches.ipynb"
    book = nbformat.read(path, as_version=4)
    for output in (
        output for cell in book.cells for output in cell.get("outputs", []) if "metadata" in output
    ):
        output.metadata = {}
    nbformat.write(book, path)
    (tmp_path / "link").symlink_to(small)
    done = command("slides", "--out", tmp_path / "deck", root=tmp_path / "link")
    assert done.returncode == 0, done.stderr
    pages = (tmp_path / "deck" / "notebooks" / "01_patches.html").read_text(encoding="utf-8")
    shown = [page for page in pages.split("<section") if "cell_output" in page and "<img" in page]
    assert len(shown) > 5 and all(re.search(r"<h[123]>", page) for page in shown)


# How a notebook is cut into slides


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path, capsys):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    for place in (tmp_path, thesis):
        assert run_tool(book, [str(place)]) == 1
        assert (
            f"error: {place} holds something else: empty it, or name another folder"
            in capsys.readouterr().err
        )
    assert [path.name for path in tmp_path.iterdir()] == [
        "thesis.txt"
    ] and thesis.read_text() == "years of work"


def test_without_the_extra_it_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "myst_nb", None)
    assert run_tool(book, [str(tmp_path / "book")]) == 1
    assert (
        capsys.readouterr().err
        == "error: this needs myst_nb, not found here: pip install -e '.[book]'\n"
    )
