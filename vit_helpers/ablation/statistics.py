"""Which changes are larger than the noise: means, standard deviations and paired differences over seeds."""

import statistics


def summarize(rows):
    """One line a change: runs, mean and spread of the accuracy, and how far it is from the baseline, seed by seed.

    returns: dicts with change, runs, accuracy (mean), spread (standard deviation), difference (mean over the seeds of change
             minus baseline), error (standard error of that difference; 0 with one seed), parameters, multiply_adds, seconds
    """
    by_change = {}
    for row in rows:
        by_change.setdefault(row["change"], {})[row["seed"]] = row
    baseline = by_change["baseline"]
    lines = []
    for name, runs in by_change.items():
        accuracies = [row["accuracy"] for row in runs.values()]
        differences = [row["accuracy"] - baseline[seed]["accuracy"] for seed, row in runs.items() if seed in baseline]
        lines.append(
            {
                "change": name,
                "runs": len(runs),
                "accuracy": statistics.mean(accuracies),
                "spread": standard_deviation(accuracies),
                "difference": statistics.mean(differences),
                "error": standard_deviation(differences) / len(differences) ** 0.5,
                **{key: next(iter(runs.values()))[key] for key in ("parameters", "multiply_adds")},
                "seconds": statistics.mean(row["seconds"] for row in runs.values()),
            }
        )
    return lines


def standard_deviation(values):
    """Standard deviation; 0 of a single value"""
    return statistics.stdev(values) if len(values) > 1 else 0.0
