"""A real browser for tests: Debian's Chromium, kept away from every other host by playwright."""

import shutil
from contextlib import contextmanager
from urllib.parse import urlparse

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NEAR = {"", "127.0.0.1", "localhost"}  # the hosts of files and of servers that a test starts

CALM = {"reduced_motion": "reduce"}  # a page without animations
NOTHING = {"errors": [], "failed": [], "away": []}  # what may go wrong on a page of ours

IN_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium here: Debian's package `chromium` brings it"
    ),
]


def in_browser(test):
    """Mark a test that drives Chromium; a whole file is marked with `pytestmark = IN_BROWSER`."""
    for mark in IN_BROWSER:
        test = mark(test)
    return test


@contextmanager
def browser():
    """A browser without a screen, closed at the end"""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@contextmanager
def page_of(chromium, **options):
    """Open a page, with the lists of what went wrong on it.

    These are errors of scripts, what did not come, and requests to other hosts. Such a request is
    written down and stopped, so that a page that asks for one is tested as if offline.
    """
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
    page = context.new_page()
    wrong = {"errors": [], "failed": [], "away": []}

    def near_only(route):
        url = route.request.url
        if urlparse(url).scheme in {"data", "blob"} or (urlparse(url).hostname or "") in NEAR:
            return route.continue_()
        wrong["away"].append(url)
        return route.abort()

    context.route("**/*", near_only)
    page.on("pageerror", lambda error: wrong["errors"].append(str(error)))
    page.on(
        "response",
        lambda answer: (
            wrong["failed"].append(f"{answer.status} {answer.url}")
            if answer.status >= 400
            else None
        ),
    )
    page.on(  # a file has no status
        "requestfailed",
        lambda asked: (
            wrong["failed"].append(f"{asked.failure} {asked.url}")
            if asked.url.startswith("file:")
            else None
        ),
    )
    try:
        yield page, wrong
    finally:
        context.close()


def accessibility(page, *leave_out):
    """List what axe-core finds serious or critical on a page.

    leave_out: ids of rules (say why beside them)
    """
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    serious = [
        rule
        for rule in found
        if rule["impact"] in {"serious", "critical"} and rule["id"] not in leave_out
    ]
    return one_a_line(serious)


def contrast(page):
    """List the texts that axe-core finds too pale, as what may change between light and dark."""
    from axe_playwright_python.sync_playwright import Axe

    options = {"resultTypes": ["violations"], "runOnly": ["color-contrast"]}
    return one_a_line(Axe().run(page, options=options).response["violations"])


def one_a_line(violations):
    return [
        f"{rule['id']}: {node['target']} {node['html'][:160]}"
        for rule in violations
        for node in rule["nodes"]
    ]


def broken_pictures(page):
    """The sources of pictures that do not load, also of those that would wait to be scrolled to"""
    return page.evaluate("""async () => {
      const pictures = [...document.images].filter((one) => one.hasAttribute("src"))
      for (const one of pictures) one.loading = "eager"
      await Promise.allSettled(pictures.map((one) => one.decode()))
      return pictures.filter((one) => !one.naturalWidth).map((one) => one.src.slice(0, 90))
    }""")
