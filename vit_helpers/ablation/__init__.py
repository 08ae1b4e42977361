"""Ablation: which changes of settings make a difference that is larger than the noise.

Each change is trained with several seeds, and compared with the baseline.
"""

from vit_helpers.ablation.comparison import compare, compare_best, crossfit, effect_of, holm
from vit_helpers.ablation.factorial import effects
from vit_helpers.ablation.rows import read_runs, unpack
from vit_helpers.ablation.runs import Table, run_table, summarize

__all__ = [
    "Table",
    "compare",
    "compare_best",
    "crossfit",
    "effect_of",
    "effects",
    "holm",
    "read_runs",
    "run_table",
    "summarize",
    "unpack",
]
