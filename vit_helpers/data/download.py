"""Downloads that are checked, and never half there.

pooch brings a file to one side, checks its sha256 and renames it; so an interruption, a second process or a lying server
leaves nothing behind that would be taken for the file.
"""

import os
import shutil
import tarfile
import tempfile
import warnings
import zipfile
from pathlib import Path

TIMEOUT = 20  # seconds without a byte
TRIES = 3


class DownloadError(OSError):
    """A file could not be brought; the message says what was tried and how to put it there by hand"""


def quiet_pooch():
    """pooch, without the warning that its progress bar gives in a notebook that has no widgets"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pooch
    return pooch


def data_folder():
    """Where downloads live: $VIT_HELPERS_DATA, or a folder of the user's cache"""
    pooch = quiet_pooch()
    return Path(os.environ.get("VIT_HELPERS_DATA") or pooch.os_cache("vit_helpers"))


def fetch(url, path, sha256, timeout=TIMEOUT, tries=TRIES):
    """Bring a file, unless it is there and right; its path comes back.

    sha256: of the right file, in hexadecimal;  timeout: seconds without a byte;  tries: in all
    raises: `DownloadError`
    """
    pooch = quiet_pooch()
    path = Path(path)
    if path.exists():
        if pooch.file_hash(path) == sha256:
            return path
        raise DownloadError(
            f"{path} is not the file it should be (its sha256 is {pooch.file_hash(path)}, not {sha256})."
            " Nothing was changed: move it away to have it brought anew."
        )
    brought = pooch.create(
        path.parent, "", registry={path.name: f"sha256:{sha256}"}, urls={path.name: url}, retry_if_failed=tries - 1
    )
    pooch.get_logger().setLevel("WARNING")
    try:
        brought.fetch(path.name, downloader=pooch.HTTPDownloader(progressbar=True, timeout=timeout))
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; ValueError: pooch's word for a wrong hash
        raise DownloadError(by_hand(url, path, sha256, tries, error)) from error
    return path


def by_hand(url, path, sha256, tries, error):
    """What to say when a file does not come"""
    often = f"{tries} {'try' if tries == 1 else 'tries'}"
    return (
        f"could not bring {url} in {often}, the last one said: {type(error).__name__}: {str(error)[:300]}\n"
        f"By hand: put the file at {path} (sha256 {sha256}), or name a folder that has it in VIT_HELPERS_DATA.\n"
        'Without a network there are load("digits"), load("scattered_digits") and load("folder:PATH").'
    )


def unpack(archive, folder):
    """Unpack a zip or tar into a folder that is not there yet: all of it or nothing; the folder comes back.

    raises: ValueError when the archive is broken, or when a name in it leads out of the folder
    """
    archive, folder = Path(archive), Path(folder)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        unpack_into(archive, aside)
        try:
            aside.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was faster: its folder is as good
                raise
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise ValueError(f"{archive} is broken, or holds a name that leads out of its folder: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def unpack_into(archive, folder):
    """Write what a zip or tar holds into a folder; nothing when a name in it leads out"""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            names = [name for name in file.namelist() if not (folder / name).resolve().is_relative_to(folder.resolve())]
            if names:
                raise zipfile.BadZipFile(f"{names[0]!r}")
            file.extractall(folder)
    else:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")  # refuses absolute names, "..", links that lead out
