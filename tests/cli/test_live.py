"""The command `live`: it writes the page, opens it, and says where it is."""

import re
import sys
import webbrowser
from pathlib import Path

import pytest

from vit_helpers.cli import main
from vit_helpers.live.page import live_page


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """The addresses that were opened in a browser, instead of opening it; a shell with a display"""
    addresses = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    return addresses


def test_the_command_opens_the_page(opened, capsys):
    assert main(["live"]) == 0
    out = capsys.readouterr().out
    file = Path(re.fullmatch(r"page: (.+)\n", out)[1])
    assert file.read_text(encoding="utf-8") == live_page() and opened == [file.as_uri()]


def test_the_command_only_writes_a_file_that_was_named(opened, capsys, tmp_path):
    file = tmp_path / "new" / "page.html"
    assert main(["live", "--out", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == live_page() and not opened
    assert capsys.readouterr().out == f"page: {file}\n"


def test_a_browser_that_does_not_start_is_no_error(opened, monkeypatch, capsys):
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert main(["live"]) == 0
    assert "No browser" in capsys.readouterr().out


def test_without_a_display_the_command_writes_the_file_and_says_where(opened, monkeypatch, capsys):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert main(["live"]) == 0
    out = capsys.readouterr().out
    file = Path(out.splitlines()[0].removeprefix("page: "))
    assert file.read_text(encoding="utf-8") == live_page()
    assert sys.platform != "linux" or ("No browser" in out and not opened)


def test_a_file_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    assert main(["live", "--out", str(tmp_path / "folder")]) == 1
    assert re.fullmatch(
        r"error: .*folder cannot be written: it is a folder\n", capsys.readouterr().err
    )
