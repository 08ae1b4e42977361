"""Open a page on which a Vision Transformer reads the digit that you draw.

The page is a single HTML file with the model inside. It needs no network and no Python, so it can be copied or sent.

Examples:

    python -m vit_helpers live
    python -m vit_helpers live --out digit_page.html
"""

import os
import sys
import tempfile
import webbrowser
from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the page to this file, without opening it"
    )


def is_live_page(content: bytes) -> bool:
    """Whether a file is a page that this command wrote."""
    return b'<script id="weights" type="text/plain">' in content


def run(args: Namespace) -> None:
    from vit_helpers.cli.results import check_target
    from vit_helpers.live.page import live_page

    out = args.out or Path(tempfile.mkdtemp(prefix="vit-live-"), "live.html")
    check_target(out, "--out", is_live_page)
    out.write_text(live_page(), encoding="utf-8")
    print(f"page: {out}")
    # without a display, Python would start a browser for text in this terminal
    display = sys.platform in ("win32", "darwin") or any(
        map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
    )
    if not args.out and not (display and webbrowser.open(out.resolve().as_uri())):
        print(
            "No browser could be started here. Open the file in one, on this machine or on another."
        )
