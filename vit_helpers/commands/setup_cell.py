# @title Setup: find vit_helpers (run this first)
import importlib.util
import sys
from pathlib import Path

for folder in [Path.cwd(), *Path.cwd().parents]:  # notebooks/, its solutions, or the root itself
    if (folder / "vit_helpers" / "vit.py").is_file() and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
if importlib.util.find_spec("vit_helpers") is None:
    raise ModuleNotFoundError(
        "no vit_helpers here: open this notebook inside the repository, or pip install that first"
    )
