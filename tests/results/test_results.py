"""The stored results are read by name."""

import pickle

import pytest

from vit_helpers.results import read_results


@pytest.mark.parametrize(
    "name", ["growth", "halo", "hyperparameters", "localization", "parity", "speed", "transfer"]
)
def test_stored_results_are_read_by_name(name):
    results = read_results(name)
    assert len(results) > 10 and not results.isna().all().any()
    assert pickle.loads(pickle.dumps(results)).equals(results)


def test_results_that_are_not_there_are_named():
    with pytest.raises(
        ValueError,
        match=r"'grades'.*growth, .*hyperparameters, .*localization",
    ):
        read_results("grades")
