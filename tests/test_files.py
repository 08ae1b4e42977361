"""Names and folders of files: the same in every locale, and nobody else's work is lost."""

import os
from pathlib import Path

import pytest

from vit_helpers._files import as_text, new_folder


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    monkeypatch.setattr("vit_helpers.cli.evaluate.draw_counts", lambda *what: None)
    monkeypatch.setattr("vit_helpers.cli.evaluate.draw_mistakes", lambda *what: None)


@pytest.mark.skipif(os.name == "nt", reason="file names are no bytes there")
def test_a_name_is_the_same_text_in_every_locale():
    # as with LC_ALL=C
    assert as_text("日本".encode().decode("ascii", "surrogateescape")) == as_text("日本") == "日本"
    assert as_text(Path(os.fsdecode(b"caf\xe9"))) == r"caf\xe9"


def test_a_folder_that_another_command_fills_meanwhile_stays(tmp_path):
    with (
        pytest.raises(FileExistsError, match=r"x appeared"),
        new_folder(tmp_path / "x"),
    ):
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "index.json").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["x"] and len(
        list((tmp_path / "x").iterdir())
    ) == 1
