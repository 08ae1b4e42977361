"""The stored maps of gradients: curves of deletion come back, one for each model."""

import numpy as np
import pandas as pd
import pytest

from vit_helpers.results import read_results
from vit_helpers.results.maps import COUNTS, curves_of, pack_curve


def test_curves_come_back_in_the_order_of_the_seeds():
    curves = {1: [1, 0.5], 0: [1, 0.25]}
    rows = [("a", "trained", seed, pack_curve(curve)) for seed, curve in curves.items()]
    rows.append(("a", "untrained", 0, pack_curve([1, 0])))
    table = pd.DataFrame(rows, columns=["method", "model", "seed", "curve"])
    assert np.array_equal(curves_of(table, "a"), [[1, 0.25], [1, 0.5]])
    with pytest.raises(ValueError, match="'b'"):
        curves_of(table, "b")


def test_stored_curves_begin_with_every_answer_kept():
    table = read_results("maps")
    covered = table[(table["model"] != "untrained") & table["curve"].notna()]["method"].unique()
    assert len(covered)
    for method in covered:
        curves = curves_of(table, method)
        assert curves.shape[1] == len(COUNTS) and (curves[:, 0] == 1).all()
        assert ((curves >= 0) & (curves <= 1)).all()
