"""The errors of differences: against scipy, against McNemar, by simulation.

And many comparisons; choosing without flattery.
"""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vit_helpers.ablation.comparison import (
    combine,
    compare,
    compare_best,
    crossfit,
    effect_of,
    holm,
    paired,
)
from vit_helpers.ablation.rows import pack, unpack


def table(**changes):
    """Rows of runs, from {change: list of answers, one per seed}"""
    rows = [
        (name, seed, pack(right))
        for name, answers in changes.items()
        for seed, right in enumerate(answers)
    ]
    return pd.DataFrame(rows, columns=["change", "seed", "right"])


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 5000])
def test_answers_are_packed_and_unpacked(count):
    right = np.random.default_rng(0).random(count) < 0.8
    assert (unpack(pack(right)) == right).all() and len(unpack(pack(right))) == count
    assert len(pack(np.ones(5000))) < 850


@pytest.mark.parametrize("text", ["", "3", "9:oA==", "3:!!", math.nan])
def test_answers_that_are_not_known_are_an_error(text):
    with pytest.raises(ValueError, match="not known which images"):
        unpack(text)


def test_the_error_of_the_seeds_is_that_of_a_paired_t_test():
    d = np.random.default_rng(1).integers(-1, 2, (5, 400))
    effect, t = effect_of(d), stats.ttest_1samp(d.mean(1), 0)
    assert effect.difference / effect.seeds == pytest.approx(t.statistic)
    assert combine(effect.difference, effect.seeds**2, 0, 0, 4, 399).p == pytest.approx(t.pvalue)
    alone = combine(effect.difference, effect.seeds**2, 0, 0, 4, 399).interval()
    assert alone == pytest.approx(tuple(t.confidence_interval()))


def test_the_error_of_the_images_is_mcnemars():
    """Of b and c discordant answers, the variance is (b + c - (b - c)^2 / m) / m^2."""
    b, c, m = 40, 25, 1000
    effect = effect_of(np.array([[1] * b + [-1] * c + [0] * (m - b - c)]))
    assert effect.images == pytest.approx(math.sqrt((b + c - (b - c) ** 2 / m) / m**2), rel=1e-3)
    assert math.isnan(effect.seeds) and math.isnan(effect.both) and math.isnan(effect.p)


def test_no_difference_at_all_is_no_finding():
    effect = effect_of(np.zeros((5, 100)))
    assert effect.both == 0 and effect.p == 1 and effect.interval() == (0, 0)


@pytest.mark.parametrize(("seeds", "images"), [(0.02, 0.0), (0.0, 0.5), (0.02, 0.3)])
def test_the_error_of_both_is_what_happens_when_both_are_drawn_anew(seeds, images):
    """Differences of a random part for each seed, one for each image, and one for each pair"""
    draw, n, m = np.random.default_rng(2), 5, 200
    effects = []
    for _ in range(1500):
        d = (
            draw.normal(0, seeds, (n, 1))
            + draw.normal(0, images, (1, m))
            + draw.normal(0, 0.3, (n, m))
        )
        effects.append(effect_of(d))
    true = math.sqrt(seeds**2 / n + images**2 / m + 0.3**2 / (n * m))
    assert np.std([effect.difference for effect in effects]) == pytest.approx(true, rel=0.06)
    assert np.mean([effect.both**2 for effect in effects]) ** 0.5 == pytest.approx(true, rel=0.12)
    covered = np.mean([effect.interval()[0] < 0 < effect.interval()[1] for effect in effects])
    assert 0.93 < covered < 0.99


def by_pairs(d, clusters):
    """Squared errors of the images and of both, as double sums over pairs that share a cluster"""
    (n, m), mean, count = d.shape, d.mean(), len(set(clusters))
    same = np.array([[one == other for other in clusters] for one in clusters])
    rest = d - d.mean(1, keepdims=True) - d.mean(0) + mean
    images = (np.outer(d.mean(0) - mean, d.mean(0) - mean) * same).sum() * count / (count - 1)
    overlap = sum((np.outer(row, row) * same).sum() for row in rest)
    overlap *= n / (n - 1) * count / (count - 1)
    seeds, images = d.mean(1).var(ddof=1) / n, images / m**2
    return images, max(seeds, images, seeds + images - overlap / (n * m) ** 2)


@pytest.mark.parametrize("count", [2, 7, 60])
def test_errors_of_clusters_are_sums_over_pairs_in_one_cluster(count):
    draw = np.random.default_rng(5)
    for _ in range(20):
        clusters = [*range(count), *draw.integers(0, count, 80 - count)]
        d = draw.integers(-1, 2, (4, 80))
        effect, names = effect_of(d, clusters), [f"writer {number}" for number in clusters]
        images, both = by_pairs(d, clusters)
        assert effect.images**2 == pytest.approx(images)
        assert effect.both**2 == pytest.approx(both)
        assert effect_of(d, names) == effect
        alone = effect_of(d.mean(0, keepdims=True), clusters)  # one seed
        assert alone.images == pytest.approx(effect.images) and math.isnan(alone.both)


def test_an_image_stored_three_times_counts_once():
    d = np.random.default_rng(6).integers(-1, 2, (4, 50))
    once, thrice = effect_of(d), np.repeat(d, 3, axis=1)
    in_clusters = effect_of(thrice, np.repeat(np.arange(50), 3))
    for name in ("difference", "seeds", "images", "both", "df"):
        assert getattr(in_clusters, name) == pytest.approx(getattr(once, name)), name
    assert effect_of(thrice).images == pytest.approx(once.images / 3**0.5, rel=0.02)
    assert effect_of(d, np.arange(50)) == once


@pytest.mark.parametrize("count", [14, 100])
def test_an_interval_of_clusters_covers_what_one_of_images_misses(count):
    """Differences of a random part for each cluster, image, seed, and pair of seed and cluster"""
    draw, n, m = np.random.default_rng(7), 5, 420
    clusters = np.arange(m) * count // m
    covered = {"images": 0, "clusters": 0}
    for _ in range(1000):
        d = draw.normal(0, 0.3, (1, count))[:, clusters] + draw.normal(0, 0.3, (n, m))
        d += draw.normal(0, 0.2, (n, count))[:, clusters] + draw.normal(0, 0.02, (n, 1))
        for name, labels in (("images", None), ("clusters", clusters)):
            low, high = effect_of(d, labels).interval()
            covered[name] += low < 0 < high
    assert 930 < covered["clusters"] < 980
    assert covered["images"] < 870


@pytest.mark.parametrize(
    ("differences", "clusters", "says"),
    [
        ([1, 0], None, r"two images or more\), got the shape \(2,\)"),
        ([[1]], None, r"got the shape \(1, 1\)"),
        ([[1, 0, 0]], [1, 2], r" 3 images, .*\(2,\)"),
        ([[1, 0, 0]], [["a", "b", "c"]], r"got the shape \(1, 3\)"),
        ([[1, 0, 0]], ["a", None, None], "2 of 3 images have no cluster"),
        ([[1, 0, 0]], [0, 1, math.nan], "1 of 3 images have no cluster"),
        ([[1, 0, 0]], [4, 4, 4], "all 3 images are in one cluster"),
    ],
)
def test_clusters_that_make_no_sense_are_named(differences, clusters, says):
    with pytest.raises(ValueError, match=says):
        effect_of(differences, clusters)


def test_a_comparison_knows_clusters():
    runs = table(baseline=[[1, 0, 0, 0], [1, 0, 1, 0]], up=[[1, 1, 0, 0], [1, 1, 1, 0]])
    clusters = ["a", "b", "c", "c"]
    effect = effect_of(paired(runs, "up"), clusters)
    line = compare(runs, clusters=clusters).loc["up"]
    assert line["images"] == effect.images and line["p"] == effect.p
    assert effect.images != pytest.approx(compare(runs).loc["up", "images"])


def test_holm_is_what_its_definition_says():
    p = [0.001, 0.2, 0.012, math.nan, 0.04]
    assert holm(p)[:3] == pytest.approx([0.004, 0.2, 0.036]) and math.isnan(holm(p)[3])
    assert holm(p)[4] == pytest.approx(0.08) and holm([]) == [] and holm([0.6, 0.9]) == [1.0, 1.0]


def test_holm_keeps_the_error_of_the_family():
    p = np.random.default_rng(3).random((2000, 40))
    assert np.mean([min(holm(family)) < 0.05 for family in p]) < 0.065
    assert np.mean((p < 0.05).any(1)) > 0.8  # without it


def test_the_choice_is_never_made_by_what_it_is_reported_on():
    """Of equal candidates, the best by the same answers looks better; the cross-fitted does not."""
    draw, naive, fair = np.random.default_rng(4), [], []
    for _ in range(300):
        candidates = [draw.random((3, 200)) < 0.8 for _ in range(6)]
        naive.append(max(one.mean() for one in candidates))
        answers, chosen = crossfit(candidates)
        fair.append(answers.mean())
        assert answers.shape == (3, 200) and chosen.shape == (3, 2)
    assert np.mean(naive) > 0.815 and np.mean(fair) == pytest.approx(0.8, abs=0.003)
    better = [np.zeros((3, 200)), np.ones((3, 200))]
    assert (crossfit(better)[1] == 1).all() and crossfit(better)[0].all()
    assert (crossfit([one[:1] for one in better])[1] == 1).all()


@pytest.mark.parametrize("n", [1, 2])
def test_a_half_of_the_images_is_answered_by_what_was_best_on_the_other(n):
    """Of one that knows the even images and one that knows the odd ones, it is always the wrong"""
    even = np.tile([1, 0], (n, 10))
    answers, chosen = crossfit([even, 1 - even])
    assert chosen.tolist() == [[1, 0]] * n and not answers.any()


def test_a_comparison_pairs_seeds_and_images():
    runs = table(
        baseline=[[1, 1, 0, 0], [1, 0, 1, 0]],
        up=[[1, 1, 1, 0], [1, 1, 1, 0]],
        same=[[1, 1, 0, 0], [1, 0, 1, 0]],
    )
    assert paired(runs, "up").tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]]
    lines = compare(runs)
    assert lines.index.to_list() == ["up", "same"] and lines.n.to_list() == [2, 2]
    assert lines.difference.to_list() == [0.25, 0.0] and lines.discordant.to_list() == [0.25, 0.0]
    assert lines.holm["up"] == pytest.approx(2 * lines.p["up"])
    assert compare(runs, changes=["up"]).holm["up"] == pytest.approx(lines.p["up"])
    with pytest.raises(ValueError, match=r"up and baseline .*seed"):
        paired(runs[(runs.change == "up") | (runs.seed == 3)], "up")


def test_each_side_is_compared_at_its_best():
    runs = table(
        **{
            "baseline": [[1, 1, 0, 0], [1, 1, 0, 0]],
            "baseline, slow": [[0, 0, 0, 0]] * 2,
            "up": [[0, 0, 0, 0]] * 2,
            "up, slow": [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]],
        }
    )
    some = {name: [name, f"{name}, slow"] for name in ("baseline", "up")}
    (line,) = compare_best(runs, some).to_dict("records")
    assert line["difference"] == 0.5 and line["n"] == 2 and line["chosen"] == "up, slow: 100%"
    with pytest.raises(ValueError, match=r"candidates of up and baseline .*seed"):
        compare_best(runs[(runs.change != "up") | (runs.seed == 3)], some)
