"""Data sets by name: the names and options that are known, and what each of them gives."""

import inspect

import pytest

from vit_helpers.data import load
from vit_helpers.data.registry import SOURCES


def test_unknown_names_and_options_are_told_what_is_known():
    with pytest.raises(ValueError, match=r"'mnist'.*digits, scattered_digits, .*folder:PATH"):
        load("mnist")
    with pytest.raises(ValueError, match="'folder:'"):
        load("folder:")
    with pytest.raises(TypeError, match=r"digits .*image_size.*: none"):
        load("digits", image_size=9)
    with pytest.raises(
        TypeError,
        match=r"folder .* size; .*: image_size, split, skip_broken, cache",
    ):
        load("folder:/nowhere", size=9)


@pytest.mark.parametrize("name", SOURCES)
def test_the_table_of_sources_knows_the_options_of_each(name):
    source = SOURCES[name]
    parameters = [*inspect.signature(source.load).parameters]
    assert parameters == ["path"] * source.takes_path + [*source.options]
    assert source.resizes == ("image_size" in parameters)


def test_a_path_belongs_to_the_name(tmp_path):
    with pytest.raises(TypeError, match=r"folder .* path"):
        load(f"folder:{tmp_path}", path="elsewhere")
    for name in ("digits:", "digits:x", "folder", "shards", ":", ""):
        with pytest.raises(ValueError, match="unknown data"):
            load(name)
