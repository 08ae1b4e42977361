"""The stored comparisons of speed: how many times as fast each change made a model."""

from vit_helpers.results import read_results

NAMES = {  # what was compared: its name in a figure
    ("one by one", "in a batch"): "inference in batches",
    ("float32", "int8"): "8-bit weights, inference",
    ("threads: 1", "threads: 2"): "2 threads instead of 1",
    ("float32", "bfloat16"): "bfloat16, training",
    ("explicit", "fused"): "fused attention, 577 tokens",
    ("for-loop", "fused"): "fused AdamW",
}
COMPILED = "as written"  # what compiled models were compared with


def ratios_of(name: str) -> dict[str, tuple[float, float, float]]:
    """Return how many times as fast each change was, with its range over rounds, fastest first.

    name   : of a stored table of `python -m tools.experiments.speed`, as in "speed"
    returns: {change: (median, lowest, highest)}; without changes that save memory instead

    >>> list(ratios_of("speed"))[0]
    'inference in batches'
    """
    found = {}
    for row in read_results(name).dropna(subset="ratio").to_dict("records"):
        change = NAMES.get((row["before"], row["after"]))
        if row["before"] == COMPILED:
            change = f"torch.compile, {row['case'].partition(',')[0]}"
        if change and "hidden" not in row["case"]:
            found[change] = row["ratio"], row["lowest"], row["highest"]
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))
