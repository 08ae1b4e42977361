"""The pages as GitHub shows them, light and dark: pictures, maths, HTML, and screen readers."""

import base64
import re
from collections import Counter
from html import escape
from pathlib import Path

import nbformat
import pytest
from browser import accessibility, broken_pictures, contrast, in_browser, page_of
from folding import folded

from tools.execute import all_notebooks

ROOT = Path(__file__).parents[2]
NOTEBOOKS = all_notebooks()
READMES = [
    ROOT / folder / "README.md"
    for folder in ("", "vit_helpers", "vit_helpers/microvit", "vit_helpers/results", "tools")
]
TEXTS = [
    path
    for path in (
        *READMES,
        ROOT / "TEACHING.md",
        ROOT / "notebooks" / "paper_index.md",
        ROOT / "notebooks" / "further" / "ledger.md",
    )
    if path.exists()
]
PAGES = [*TEXTS, *NOTEBOOKS]

# What GitHub lets through of the HTML in a text: the lists of its html-pipeline
# (github.com/gjtorikian/html-pipeline, lib/html_pipeline/sanitization_filter.rb), of its attributes
# those that a text has a use for. `class` is stripped as well, but does no harm: markdown gives it
# to blocks of code, for their colors.
ELEMENTS = re.compile(
    "h[1-6]|br|b|i|strong|em|a|pre|code|img|tt|div|ins|del|sup|sub|p|ol|ul|table|thead|tbody|tfoot|blockquote|dl|dt|dd|kbd|q|"
    "samp|var|hr|ruby|rt|rp|li|tr|td|th|s|strike|summary|details|caption|figure|figcaption|abbr|bdo|cite|dfn|mark|small|span|"
    "time|wbr"
)
ATTRIBUTES = re.compile(
    "abbr|align|alt|aria-(describedby|hidden|label|labelledby)|border|cite|class|colspan|datetime|dir|headers|height|href|"
    "hreflang|id|label|lang|name|open|rel|role|rowspan|scope|span|src|start|tabindex|title|valign|width"
)
NEAR = re.compile(
    r"(https?:|mailto:|#|(?![a-z]+:))"
)  # addresses that a link or a picture may have: web, or relative

# GitHub's colors (Primer), and the least of its layout
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><base href="{base}">
<style>
:root {{ color-scheme: light dark;
  --text: #1f2328; --page: #ffffff; --code: #f6f8fa; --link: #0969da; --line: #d1d9e0 }}
@media (prefers-color-scheme: dark) {{
  :root {{ --text: #e6edf3; --page: #0d1117; --code: #161b22; --link: #4493f8; --line: #3d444d }}
}}
body {{ font: 16px/1.5 sans-serif; max-width: 900px; margin: 24px auto;
  color: var(--text); background: var(--page) }}
pre, code {{ font: 13px/1.45 monospace; background: var(--code) }}
pre {{ white-space: pre-wrap }}
td, th {{ border: 1px solid var(--line); padding: 4px 10px }}
a {{ color: var(--link); text-decoration: underline }}
img {{ max-width: 100% }}
</style></head><body><main>{body}</main>{maths}</body></html>"""
MATHS = """<script>MathJax = {{
  tex: {{inlineMath: [["$", "$"]], displayMath: [["$$", "$$"]], processEscapes: false}},
  options: {{enableMenu: false}}, startup: {{typeset: false}}
}}</script><script src="{bundle}"></script>"""
RAW = r"""() => {
  const words = [], main = document.querySelector("main")
  const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const node = walker.currentNode
    if (!node.parentElement.closest("pre, code, mjx-container, script")
        && /\$|\\[a-zA-Z]+|\\[([]/.test(node.data))
      words.push(node.data.trim().slice(0, 80))
  }
  return words
}"""

ERRORS = (
    "[...document.querySelectorAll('mjx-merror, [data-mjx-error]')].map(error => error.textContent)"
)


def mathjax():
    """The address of MathJax's bundle, as the extra [book] brings it"""
    from importlib.metadata import PackageNotFoundError, files

    try:
        (bundle,) = [file for file in files("sphinx-mathjax-offline") if file.name == "tex-svg.js"]
    except PackageNotFoundError:
        pytest.skip("no MathJax here: pip install -e '.[book]' brings it")
    return bundle.locate().resolve().as_uri()


def as_html(path):
    """A page as GitHub makes it of a notebook (nbconvert's basic template) or of a text"""
    if path.suffix == ".ipynb":
        from nbconvert import HTMLExporter

        html, _ = HTMLExporter(template_name="basic").from_filename(str(path))
        return re.sub(r"<pre.*?</pre>", without_spans, html, flags=re.S)
    return flavored(path.read_text(encoding="utf-8"))


def without_spans(code):
    """Code without the thousands of spans that color its words: their colors are GitHub's"""
    return re.sub(r"</?span[^>]*>", "", code[0])


def flavored(text):
    """GitHub-flavored markdown as HTML; what stands between dollars is left for MathJax"""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def kept(maths, how):
        dollars = "$$" if how["display_mode"] else "$"
        return dollars + escape(maths) + dollars

    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    markdown.use(
        dollarmath_plugin, allow_labels=False, allow_space=False, allow_digits=False, renderer=kept
    )
    return markdown.render(text)


def our_html(path):
    """The HTML that we wrote ourselves: what our markdown becomes, and outputs that are HTML"""
    if path.suffix == ".md":
        return as_html(path)
    from nbconvert.filters import markdown2html_mistune

    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(markdown2html_mistune(cell.source))
        else:
            parts += [
                without_alignment(output.data["text/html"])
                for output in cell.get("outputs", [])
                if "text/html" in output.get("data", {})
            ]
    return "\n".join(parts)


def without_alignment(html):
    """A table of pandas without its own style, which only aligns cells: GitHub strips it"""
    html = re.sub(
        r"<style scoped>\n    \.dataframe tbody tr th:only-of-type [^<]*</style>\n", "", html
    )
    return html.replace('<tr style="text-align: right;">', "<tr>").replace(' halign="left">', ">")


def stripped(html):
    """What GitHub would take out of this HTML: elements, attributes, addresses"""
    from bs4 import BeautifulSoup

    out = []
    for tag in BeautifulSoup(html, "html.parser").find_all(True):
        if not ELEMENTS.fullmatch(tag.name):
            out.append(f"<{tag.name}>")
        out += [f"<{tag.name} {name}>" for name in tag.attrs if not ATTRIBUTES.fullmatch(name)]
        out += [
            f"<{tag.name}> to {tag[a][:40]}"
            for a in ("href", "src")
            if a in tag.attrs and not NEAR.match(tag[a].lower())
        ]
    return out


def faults(chromium, file, html, base=ROOT):
    """What is wrong with a page that holds this HTML, a line a fault; the file keeps it"""
    page = PAGE.format(
        title=file.stem,
        base=base.as_uri() + "/",
        body=html,
        maths=MATHS.format(bundle=mathjax()) if "$" in html else "",
    )
    file.write_text(page, encoding="utf-8")
    with page_of(chromium, color_scheme="light") as (tab, wrong):
        tab.goto(file.as_uri())
        found = [f"picture: {source}" for source in broken_pictures(tab)]
        found += tab.evaluate(
            "[...document.images].filter(i => !i.alt.trim())"
            ".map(i => 'no alt text: ' + i.src.slice(0, 60))"
        )
        found += [
            f"light, {line}" for line in accessibility(tab)
        ]  # before MathJax draws: how formulas look is not ours
        tab.emulate_media(color_scheme="dark")
        found += [f"dark, {line}" for line in contrast(tab)]
        if "$" in html:
            tab.evaluate("MathJax.startup.promise.then(() => MathJax.typesetPromise())")
        found += [f"TeX: {words}" for words in tab.evaluate(RAW)]
        found += [f"maths: {words}" for words in tab.evaluate(ERRORS)]
    return found + [f"{kind}: {line}" for kind, lines in wrong.items() for line in lines]


def name_of(path):
    return "-".join(path.relative_to(ROOT).with_suffix("").parts)


@in_browser
@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_page_is_whole_in_light_and_dark(path, chromium, tmp_path):
    assert faults(chromium, tmp_path / f"{path.stem}.html", as_html(path), path.parent) == []


@pytest.mark.repo
@folded("path", PAGES, ids=name_of)
def test_github_strips_nothing(path):
    assert stripped(our_html(path)) == []


DOT = base64.b64encode(
    b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
).decode()
BAD = {
    "picture: ": '<img src="nowhere.png" alt="Nothing at all.">',
    "no alt text": f'<img src="data:image/gif;base64,{DOT}">',
    "TeX: ": "<p>Half of $\\frac{1}{2}$ is $\\frac{1}{4}, no?</p>",
    "maths: ": "<p>The sum $x^2^3$</p>",
    "light, color-contrast": '<p style="color: #aaaaaa; background: #ffffff">hardly to be read</p>',
    "dark, color-contrast": '<p style="color: #1f2328">dark on dark</p>',
    "light, link-name": '<a href="#here"></a>',
    "away: ": '<img src="https://example.org/a.png" alt="From elsewhere.">',
    "failed: ": '<link rel="stylesheet" href="nowhere.css">',
    "errors: ": "<script>nothing.there()</script>",
}


@in_browser
@pytest.mark.parametrize("fault", BAD)
def test_a_bad_page_is_seen(fault, chromium, tmp_path):
    found = faults(chromium, tmp_path / "bad.html", BAD[fault])
    assert any(line.startswith(fault) for line in found), found


@in_browser
def test_a_good_page_passes(chromium, tmp_path):
    maths = "<p>Half of $\\frac{1}{2}$ is a quarter; in code <code>$x \\in y$</code></p>"
    html = f'<h1>Maths</h1>{maths}<img alt="A dot." src="data:image/gif;base64,{DOT}">'
    assert faults(chromium, tmp_path / "good.html", html) == []


@pytest.mark.repo
@pytest.mark.parametrize(
    "html",
    [
        "<script>1</script>",
        "<style>p {}</style>",
        '<iframe src="a.html"></iframe>',
        "<form><input></form>",
        '<p onclick="run()">a</p>',
        '<p style="color: red">a</p>',
        '<a href="javascript:run()">a</a>',
        '<img src="data:image/png;base64,AAAA" alt="a">',
    ],
)
def test_what_github_strips_is_seen(html):
    assert stripped(f"<p>before</p>{html}")
    assert not stripped(
        '<p align="center"><a href="a.md#b">a</a> <img src="a.png" width="3" alt="a"></p>'
    )


# Alt texts


def alts(path):
    outputs = [
        o for cell in nbformat.read(path, as_version=4).cells for o in cell.get("outputs", [])
    ]
    return [
        kind["alt"]
        for o in outputs
        for name, kind in o.get("metadata", {}).items()
        if name.startswith("image/")
    ]


@pytest.mark.repo
@folded("path", [path for path in NOTEBOOKS if path.parent.name != "solutions"], ids=name_of)
def test_alt_texts_say_what_is_seen(path):
    texts = alts(path)
    assert texts
    assert [text for text in texts if not 25 <= len(text) <= 300] == []
    assert [
        text
        for text in texts
        if re.match(r"(an? |the )?(image|picture|figure|plot|chart|graph)s? (of|show)", text, re.I)
    ] == []
    assert [text for text, n in Counter(texts).items() if n > 1] == []
