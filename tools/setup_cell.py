# @title Setup: find vit_helpers (run this first)
import importlib.util
import subprocess
import sys
from pathlib import Path

HOME = ""
for folder in [Path.cwd(), *Path.cwd().parents]:  # notebooks/, its solutions, or the root itself
    if (folder / "vit_helpers" / "vit.py").is_file() and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
if HOME and importlib.util.find_spec("vit_helpers") is None:  # on Colab or Kaggle: fetch it
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]  # its torch stays as it is
    if subprocess.run([*pip, f"git+{HOME}", "torchinfo", "einops"]).returncode:
        raise ModuleNotFoundError(
            f"could not fetch vit_helpers from {HOME}: pip says above why. If internet is missing, "
            "switch it on (on Kaggle: in the notebook's settings) and run this cell again"
        )
    importlib.invalidate_caches()
if importlib.util.find_spec("vit_helpers") is None:
    raise ModuleNotFoundError(
        "no vit_helpers here: open this notebook inside the repository, or pip install that first"
    )
