"""Ablation: change one thing at a time, train several seeds of each, and see which changes are larger than the noise."""

from vit_helpers.ablation.runs import RESULTS, Table, read_rows, run_table
from vit_helpers.ablation.statistics import spread, summarise

__all__ = ["RESULTS", "Table", "read_rows", "run_table", "spread", "summarise"]
