"""A folder of images, and the cache of what they were decoded to"""

import pytest
from image_files import files_of, save

from vit_helpers.data import cache, reading
from vit_helpers.data.folders import folder


@pytest.fixture
def pets(tmp_path):
    """60 cats and 40 dogs"""
    for number in range(100):
        save(tmp_path / "pets" / ("cat" if number < 60 else "dog") / f"{number}.ppm", number)
    return tmp_path / "pets"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """The folder of the cache, and a function that reads a folder and counts the decoded images"""
    monkeypatch.setenv("VIT_HELPERS_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "CACHE_BYTES", 2 * 2**30)
    right, count = reading.decode, []
    monkeypatch.setattr(reading, "decode", lambda *words: count.append(1) or right(*words))

    def decoded(path, size=6):
        count.clear()
        data = folder(path, size, cache=True)
        assert (
            files_of(data) == files_of(folder_without(path, size))
            and data.class_counts == folder_without(path, size).class_counts
        )
        return len(count)

    def folder_without(path, size):
        with monkeypatch.context() as patch:
            patch.setattr(reading, "decode", right)
            return folder(path, size)

    return tmp_path / "cache" / "decoded", decoded
