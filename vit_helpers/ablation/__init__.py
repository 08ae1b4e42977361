"""Ablation: change settings, train several seeds of each change, and test which differences are larger than the noise."""

from vit_helpers.ablation.comparison import compare, compare_best, crossfit, effect_of, holm
from vit_helpers.ablation.factorial import effects
from vit_helpers.ablation.rows import read_runs, unpack
from vit_helpers.ablation.runs import Table, run_table, summarize

__all__ = [
    "Table", "compare", "compare_best", "crossfit", "effect_of", "effects", "holm", "read_runs", "run_table", "summarize",
    "unpack",
]  # fmt: skip
