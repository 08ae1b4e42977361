"""The work of `live`: the page is written and opened."""

import os
import sys
import tempfile
import webbrowser
from argparse import Namespace
from pathlib import Path

from vit_helpers._files import write_result
from vit_helpers.cli.outputs import check_target
from vit_helpers.live.page import live_page

ADVICE = "No browser could be started here. Open the file in one, on this machine or on another."


def run(args: Namespace) -> None:
    """Write the page; without --out, open it in a browser, too."""
    out = args.out or Path(tempfile.mkdtemp(prefix="vit-live-"), "live.html")
    check_target(out, "--out", is_live_page)
    with write_result(out) as file:
        file.write_text(live_page(), encoding="utf-8")
    print(f"page: {out}")
    if not args.out and not open_page(out):
        print(ADVICE)


def is_live_page(content: bytes) -> bool:
    """Return whether a file is a page that this command wrote."""
    return b'<script id="weights" type="text/plain">' in content


def open_page(page: Path) -> bool:
    """Open a page in a browser; return whether one could be started."""
    display = any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")))
    if not display and sys.platform not in ("win32", "darwin"):
        return False  # Python would start a browser for text in this terminal
    return webbrowser.open(page.resolve().as_uri())
