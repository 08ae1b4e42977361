"""Measure time and memory of reading a folder of JPEGs, for this and earlier commits in turn, each in its own process.

Memory is what reading adds: the highest use of the process while it reads, minus what it used before.
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from argparse import ArgumentParser, Namespace
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from tools import main
from vit_helpers.cli import positive_int

ROOT = Path(__file__).parents[1]
NOW = {"1 thread": "threads=1", "2 threads": "threads=2", "filling the cache": "threads=2, cache=True"}
NOW["from the cache"] = NOW["filling the cache"]
CHILD = """
import json, re, sys, time
from pathlib import Path
from vit_helpers.data.folders import folder
status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
used = lambda name: int(re.search(name + r":\\s+(\\d+)", status.read_text())[1]) / 1024
folder(sys.argv[1] + "/few", {0})  # imports what it needs
reset.write_text("5")  # the peak is the present now
before, start, cpu = used("VmRSS"), time.perf_counter(), time.process_time()
data = folder(sys.argv[1] + "/all", {0})
row = dict(seconds=time.perf_counter() - start, cpu=time.process_time() - cpu, mib=used("VmHWM") - before)
print(json.dumps(row))
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--against", nargs="*", default=[], metavar="COMMIT", help="earlier commits to compare with")
    parser.add_argument("--images", type=positive_int, default=5000, help="how many, 500 x 375 pixels (default: 5000)")
    parser.add_argument("--rounds", type=positive_int, default=3, help="how often each is measured (default: 3)")


def write_images(folder: Path, count: int) -> None:
    """Crops of scikit-learn's two photos with some noise, each with a class of its own."""
    from sklearn.datasets import load_sample_images

    photos, rng = load_sample_images().images, np.random.default_rng(0)
    for number in range(count):
        top, left = rng.integers(0, 427 - 375 + 1), rng.integers(0, 640 - 500 + 1)
        crop = photos[number % 2][top : top + 375, left : left + 500] + rng.normal(0, 4, (375, 500, 1))
        path = folder / f"{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(crop.clip(0, 255).astype(np.uint8)).save(path, quality=90)


def run(args: Namespace) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        write_images(home / "few", 200)
        write_images(home / "all", args.images)
        readers = {name: (ROOT, f"image_size=64, {options}") for name, options in NOW.items()}
        for commit in args.against:
            packed = subprocess.run(["git", "archive", commit, "vit_helpers"], cwd=ROOT, capture_output=True, check=True)
            with tarfile.open(fileobj=BytesIO(packed.stdout)) as tar:
                tar.extractall(home / commit, filter="data")
            readers[commit] = home / commit, "image_size=64"
        rows = []
        for number in range(args.rounds):
            for name, (place, options) in readers.items():
                cache = {"VIT_HELPERS_DATA": str(home / f"cache {number}"), "PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}
                words = [sys.executable, "-c", CHILD.replace("{0}", options), str(home)]
                done = subprocess.run(words, cwd=home, env=cache, capture_output=True, text=True, check=True)
                rows.append({"reader": name, "round": number, **json.loads(done.stdout)})
                print(*(f"{x:.2f}" if isinstance(x, float) else x for x in rows[-1].values()), flush=True)
    medians = pd.DataFrame(rows).groupby("reader", sort=False)[["seconds", "cpu", "mib"]].median()
    print(f"\nmedians of {args.rounds} rounds\n{medians.round(2).to_string()}")
    for commit in args.against:
        shares = medians.loc[list(NOW)] / medians.loc[commit]
        print(f"\nas fractions of {commit}\n{shares.round(2).to_string()}")


if __name__ == "__main__":
    sys.exit(main())
