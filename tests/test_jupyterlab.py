"""JupyterLab as a reader meets it, in a real browser.

Run by the menu, typed into, moved, and read without a mouse.
"""

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest
from browser import IN_BROWSER, page_of
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image, ImageChops

from tools.execute import METADATA

expect = pytest.importorskip(
    "playwright.sync_api", reason="no playwright here: the extra [test] brings it"
).expect
pytestmark = IN_BROWSER

ROOT = Path(__file__).parents[1]
PATIENCE = 120  # seconds for a step of the page while the machine is busy
LONG = 600  # seconds for a whole notebook
NOTEBOOK = "jupyterapp.shell.currentWidget.content"


# A server, and notebooks in it


class Lab(NamedTuple):
    """A running server: its folder, the page that the README's command opens, address, token."""

    folder: Path
    first: str
    server: dict

    def address(self, name):
        """The address of a notebook, in a workspace of its own, without the tabs of another."""
        workspace = name.replace("/", "-")
        page = f"{self.server['url']}lab/workspaces/{workspace}/tree/notebooks/{name}.ipynb"
        return f"{page}?token={self.server['token']}"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """JupyterLab over a copy of the repository (it saves by itself), with a home of its own."""
    home = tmp_path_factory.mktemp("lab")
    folder = home / "repository"
    for name in ("images", "notebooks", "vit_helpers"):
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"),
        )
    shutil.copy(ROOT / "README.md", folder)
    # it asks the makers' servers for news, new versions and extensions unless it is told not to
    settings = {
        "apputils-extension/notification": {
            "fetchNews": "false",
            "checkForUpdates": False,
            "doNotDisturbMode": True,
        },
        "extensionmanager-extension/plugin": {"enabled": False},
    }
    for name, values in settings.items():
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    with started(folder, home) as (first, server):
        yield Lab(folder, first, server)


def words_of_the_readme():
    """What the README's first command hands to JupyterLab"""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    return shlex.split(
        next(line for line in lines if line.startswith("python3 ")).partition("jupyter lab ")[2]
    )


@contextmanager
def started(folder, home):
    """The server of the README's first command, stopped at the end.

    Gives the page that it opens, and its address and token.
    """
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "JPY"))
    }
    env.pop("MPLBACKEND", None)  # a reader's kernel shows what is left open; so must this one
    env |= {
        f"JUPYTER_{kind}_DIR": str(home / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")
    }
    env |= {
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    env |= {"IPYTHONDIR": str(home / "ipython")}
    ours = ["--no-browser", "--allow-root", "--port=0", "--LabApp.expose_app_in_browser=True"]
    # it would ask npm where it lives, which may never answer
    ours += ["--LanguageServerManager.autodetect=False"]
    words = [sys.executable, "-m", "jupyterlab", *words_of_the_readme(), *ours]
    log = home / "log"
    with log.open("w") as file:
        server = subprocess.Popen(
            words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
        try:
            first = wait_for_file(
                server,
                log,
                home / "runtime",
                f"jpserver-file-to-run-{server.pid}-open.html",
                "</html>",
            )
            known = wait_for_file(server, log, home / "runtime", f"jpserver-{server.pid}.json", "}")
            yield first.as_uri(), json.loads(known.read_text())
        finally:
            server.terminate()  # it shuts its kernels down, but hangs where HOME cannot be written
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def wait_for_file(server, log, folder, name, end):
    """The path of a file that the server writes, once it is there to its last word"""
    path, start = folder / name, time.monotonic()
    while not (path.exists() and path.read_text().rstrip().endswith(end)):
        assert server.poll() is None and time.monotonic() - start < PATIENCE, log.read_text()
        time.sleep(0.1)
    return path


# When the menu's command is done, outputs may still be on their way: all have come when a silent
# request has its last word.
WATCH = """jupyterapp.commands.commandExecuted.connect((_, command) => {
    const kernel = () => jupyterapp.shell.currentWidget.context.sessionContext.session.kernel
    if (command.id === 'runmenu:run-all')
        command.result.finally(() => kernel().requestExecute({code: '', silent: true}).done)
            .finally(() => { window.ranAll = true })
})"""


@contextmanager
def opened(chromium, url):
    """The page of a notebook whose kernel is ready, and the lists of what went wrong.

    The kernel is shut down at the end.
    """
    with page_of(chromium) as (page, wrong):
        page.set_default_timeout(1000 * PATIENCE)
        expect.set_options(timeout=1000 * PATIENCE)
        page.on(
            "console",
            lambda message: (
                wrong["errors"].append(message.text) if message.type == "error" else None
            ),
        )
        page.goto(url)
        page.wait_for_function("window.jupyterapp?.shell.currentWidget?.context?.isReady")
        page.get_by_text("| Idle").wait_for()
        page.evaluate(WATCH)
        yield page, wrong
        page.evaluate("jupyterapp.shell.currentWidget.context.sessionContext.shutdown()")


def run_all(page):
    """Every cell, by the menu"""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    wait_for_all(page)


def wait_for_all(page):
    page.wait_for_function("window.ranAll", timeout=1000 * LONG)


# What can be wrong with a notebook that ran


def faults(page, wrong):
    """All that is wrong with the notebook that ran in this page, a line each"""
    cells = page.evaluate(f"{NOTEBOOK}.model.toJSON().cells")
    dialogs = [f"a dialog: {text}" for text in page.locator(".jp-Dialog").all_inner_texts()]
    drawn = page.evaluate(DRAWN_WRONG)
    return [
        *faults_of_code(cells),
        *drawn,
        *dialogs,
        *(f"{kind}: {line}" for kind in wrong for line in wrong[kind]),
    ]


def faults_of_code(cells):
    """Errors that nobody wanted, warnings, and cells that did not run after the cell before them"""
    code = [
        (n, cell)
        for n, cell in enumerate(cells)
        if cell["cell_type"] == "code" and "".join(cell["source"]).strip()
    ]
    due = code[0][1]["execution_count"] or 1
    for count, (n, cell) in enumerate(code, due):
        if cell["execution_count"] != count:
            yield f"cell {n}: not run in its turn, {count}, but as {cell['execution_count']}"
        for output in cell["outputs"]:
            if output["output_type"] == "error" and "raises-exception" not in cell["metadata"].get(
                "tags", []
            ):
                yield f"cell {n}: {output['ename']}: {output['evalue']}"
            if output.get("name") == "stderr":
                yield f"cell {n}: stderr: {''.join(output['text'])}"


# JupyterLab draws what is in sight, so each cell is brought there first. MathJax draws a macro that
# it does not know in red.
DRAWN_WRONG = """async () => {
    const book = jupyterapp.shell.currentWidget.content, found = []
    const dollars = node => {
        const prose = node.cloneNode(true)
        prose.querySelectorAll('code, mjx-container').forEach(part => part.remove())
        return prose.textContent.includes('$')
    }
    for (const [n, cell] of book.widgets.entries()) {
        await book.scrollToItem(n)
        const prose = [...cell.node.querySelectorAll('.jp-RenderedMarkdown')]
        for (let tries = 0; tries < 30 && prose.some(dollars); tries++)
            await new Promise(go => setTimeout(go, 100))
        const tell = text => found.push(`cell ${n}: ${text}`)
        if (prose.some(dollars)) tell('a dollar sign in the prose: formula not drawn')
        for (const error of cell.node.querySelectorAll('mjx-merror'))
            tell(`formula: ${error.title}`)
        for (const name of cell.node.querySelectorAll('mjx-container mtext[mathcolor=red]'))
            tell(`formula: ${name.textContent} is not known`)
        for (const picture of cell.node.querySelectorAll('img'))
            await picture.decode().catch(() => tell(`broken picture ${picture.src.slice(0, 60)}`))
    }
    return found
}"""

FAULTY = [  # a cell, and what is said of it
    (
        new_markdown_cell("# One\n\n$x$ and $\\frac{1}$"),
        ["cell 0: formula: Missing argument for \\frac"],
    ),
    (new_markdown_cell("$\\nothing x$"), ["cell 1: formula: \\nothing is not known"]),
    (new_markdown_cell("It costs 5$."), ["cell 2: a dollar sign"]),
    (
        new_markdown_cell("![gone](gone.png)"),
        ["cell 3: broken picture http:", "404 (Not Found)", "failed: 404 http:"],
    ),
    (
        new_markdown_cell("![far](https://example.com/far.png)"),
        ["cell 4: broken picture https:", "net::ERR_FAILED", "away: https://example.com/far.png"],
    ),
    (new_code_cell("import sys\nprint('careful', file=sys.stderr)"), ["cell 5: stderr: careful"]),
    (
        new_code_cell(
            "from IPython.display import Image, display\ndisplay(Image(b'\\x89PNG', format='png'))"
        ),
        ["cell 6: broken picture data:image/png"],
    ),
    (new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}), []),
    (new_code_cell("1 / 0"), ["cell 8: ZeroDivisionError: division by zero"]),
    # no cell runs after an error
    (new_code_cell("1"), ["cell 9: not run in its turn, 5, but as None"]),
]


def test_every_fault_is_found(lab, chromium):
    path = lab.folder / "notebooks" / "faulty.ipynb"
    nbformat.write(new_notebook(cells=[cell for cell, _ in FAULTY], metadata=METADATA), path)
    with opened(chromium, lab.address("faulty")) as (page, wrong):
        run_all(page)
        found = faults(page, wrong)
        page.add_style_tag(content="[role=menuitem] { all: unset !important }")
        with pytest.raises(AssertionError, match="cannot be seen"):
            press_to(page, "Shift+Tab", "Run")
    said = [words for _, lines in FAULTY for words in lines]
    assert not [words for words in said if not any(words in line for line in found)]
    assert not [line for line in found if not any(words in line for words in said)]


# The keys and the hand of a reader


def cell_with(page, words):
    """The first cell that holds these words, as a place on the page"""
    number = page.evaluate(
        f"""words => {{
            const has = cell => cell.model.sharedModel.getSource().includes(words)
            const number = {NOTEBOOK}.widgets.findIndex(has)
            {NOTEBOOK}.widgets[number].node.dataset.number = number
            return number
        }}""",
        words,
    )
    return page.locator(f"[data-number='{number}']")


def retype(page, *lines):
    """Type over the line that the cursor is in.

    JupyterLab indents what follows, and steps over brackets it has closed.
    """
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    page.keyboard.type(lines[0])
    for line in lines[1:]:
        page.keyboard.press("Enter")
        page.keyboard.type(line)


def expect_mark(cell, *words):
    """See these words in the output of a cell"""
    for text in words:
        expect(cell.locator(".jp-OutputArea")).to_contain_text(text)


def test_attention_runs_and_its_exercise_is_marked_as_it_is_typed(lab, chromium):
    with opened(chromium, lab.address("03_attention")) as (page, wrong):
        run_all(page)
        assert not faults(page, wrong)
        cell = cell_with(page, "def my_attention")
        expect_mark(cell, "[ ] attention: not written yet")
        cell.locator(".cm-line", has_text="NotImplementedError").click()
        retype(
            page, "weights = (q @ k.transpose(-2, -1)).softmax(-1)", "return weights @ v, weights"
        )
        page.keyboard.press("Shift+Enter")
        expect_mark(
            cell, "[x] attention: ", "your scores are not divided by sqrt(d) before the softmax"
        )
        cell.locator(".cm-line", has_text="softmax").click()
        retype(page, "weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)")
        page.keyboard.press("Shift+Enter")
        expect_mark(cell, "[v] attention: one image", "[v] attention: gradients flow")
        expect(cell.locator(".jp-OutputArea")).not_to_contain_text("[x]")
        assert not any(wrong.values()), wrong


def test_a_further_page_runs_its_widgets_move_and_it_leads_back(lab, chromium):
    with opened(chromium, lab.address("further/03_attention")) as (page, wrong):
        run_all(page)
        assert not faults(page, wrong)
        part = cell_with(page, 'Explorer("attend"').locator(".vit-part")
        said = part.get_by_role("status")
        expect(said).to_contain_text("0.665 to sky")
        number = part.get_by_label("query of sky, component 1")
        number.scroll_into_view_if_needed()
        drag(page, number, 64)
        expect(number).to_have_value("5")
        expect(said).to_contain_text("0.936 to sky")
        number.press("ArrowDown")  # and not the next cell of the notebook
        expect(number).to_have_value("4.5")
        part = cell_with(page, 'Explorer("pick"').locator(".vit-part")
        said = part.get_by_role("status")
        expect(said).to_contain_text("Patch (6, 16): after block 9")
        part.get_by_role("button", name="cat").click()
        part.get_by_role("application").press("ArrowDown")
        expect(said).to_contain_text("Patch (7, 16): after block 9")
        assert not any(wrong.values()), wrong
        page.get_by_role("link", name="Core page: self-attention").first.click()
        page.wait_for_function(
            "jupyterapp.shell.currentWidget.context.path === 'notebooks/03_attention.ipynb'"
        )


def drag(page, handle, pixels):
    """Pull it to the right with the mouse"""
    handle.hover()  # in its middle, once it stands still and nothing covers it
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.down()
    page.mouse.move(x + pixels, y, steps=5)
    page.mouse.up()


def test_looking_inside_runs_and_its_explorer_moves(lab, chromium):
    with opened(chromium, lab.address("08_inspection")) as (page, wrong):
        run_all(page)
        assert not faults(page, wrong)
        part = cell_with(page, 'Explorer("explore"').locator(".vit-part")
        said = part.get_by_role("status")
        expect(said).to_contain_text("Block 4, head 1: the class token gives")
        part.get_by_role("button", name="block 2, head 3").click()
        expect(said).to_contain_text("Block 2, head 3: the class token gives")
        page.keyboard.press("ArrowLeft")  # and no cell of the notebook is folded
        expect(said).to_contain_text("Block 2, head 2: the class token gives")
        part.get_by_role("button", name="row 3, column 4").click()
        expect(said).to_contain_text("Block 2, head 2: the patch in row 3, column 4 gives")
        part.get_by_label("this head is on").uncheck()
        expect(said).to_contain_text("Heads switched off: 1.")
        assert not faults(page, wrong)


# Without a mouse


def press_to(page, key, words, limit=20):
    """Press a key until the focus is on what begins with these words, and is seen to be there."""
    for _ in range(limit):
        before = page.screenshot()
        page.keyboard.press(key)
        if page.evaluate("document.activeElement.innerText.trim()").startswith(words):
            return assert_seen(page, before)
    raise AssertionError(f"{key} did not lead to {words!r} in {limit} steps")


def assert_seen(page, before):
    """What has the focus looks other than before it had it"""
    box = page.evaluate(
        """(({x, y, right, bottom}) => [x, y, right, bottom])(
            document.activeElement.getBoundingClientRect()
        )"""
    )
    shots = (
        Image.open(io.BytesIO(shot)).convert("RGB").crop(box)
        for shot in (before, page.screenshot())
    )
    assert ImageChops.difference(*shots).getbbox(), "the focus cannot be seen"


def test_start_here_is_read_and_run_without_a_mouse(lab, chromium):
    with opened(chromium, lab.first) as (page, wrong):
        assert page.url.endswith("/lab/tree/notebooks/00_start_here.ipynb")
        expect(page.locator(".jp-Cell").first).to_be_focused()
        press_to(page, "Shift+Tab", "File")
        press_to(page, "ArrowRight", "Run")
        page.keyboard.press("Enter")
        press_to(page, "ArrowDown", "Run All Cells")
        page.keyboard.press("Enter")
        wait_for_all(page)
        assert not faults(page, wrong)

        part = cell_with(page, 'Explorer("draw"').locator(".vit-part")
        expect(part.get_by_role("status")).to_contain_text("The model reads this as 3")
        part.get_by_role("application").focus()
        for key in ("Escape", *6 * ["ArrowUp"], "Space", *12 * ["ArrowDown"]):  # a 1
            page.keyboard.press(key)
        expect(part.get_by_role("status")).to_contain_text("1, with a probability of")


def test_an_exercise_is_solved_without_a_mouse(lab, chromium):
    with opened(chromium, lab.address("further/00_start_here")) as (page, wrong):
        cell = cell_with(page, "def num_tokens")
        for number in range(int(cell.get_attribute("data-number"))):
            page.keyboard.press("Shift+Enter")
            page.wait_for_function(f"{NOTEBOOK}.activeCellIndex === {number + 1}")
        expect(cell).to_be_in_viewport()

        before = page.screenshot()
        page.keyboard.press("Enter")
        assert_seen(page, before)
        lines = cell.locator(".cm-line").all_inner_texts()
        for _ in range(next(n for n, line in enumerate(lines) if "NotImplementedError" in line)):
            page.keyboard.press("ArrowDown")
        retype(page, "return (image_size // patch_size) ** 2")
        page.keyboard.press("Shift+Enter")
        expect_mark(cell, "[x] num_tokens: ", "the class token is missing: T = N + 1")
        expect(cell.locator(".jp-OutputArea")).to_be_in_viewport()

        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        page.keyboard.press("End")
        page.keyboard.type(" + 1")
        page.keyboard.press("Escape")  # the way out of the editor, where Tab belongs to the code
        expect(cell).to_be_focused()
        page.keyboard.press("Shift+Enter")
        expect_mark(cell, "[v] num_tokens: right for every size")
        expect(cell.locator(".jp-OutputArea")).to_be_in_viewport()
        assert not any(wrong.values()), wrong
