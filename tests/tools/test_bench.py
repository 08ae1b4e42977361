"""What bench measures: the time to import, and accuracies."""

import re

import pytest
import torch

from tools import bench
from tools import main as run_tool

pytestmark = pytest.mark.dev


def test_bench_measures_import_and_names_the_machine(monkeypatch, capsys):
    """What imports torch runs here, where that takes no time"""
    fresh, places = bench.run_fresh, {}

    def run(code, answer):
        return (
            eval(answer, places)
            if "torch" in code and not exec(code, places)
            else fresh(code, answer)
        )

    monkeypatch.setattr(bench, "run_fresh", run)
    assert run_tool(bench, ["import", "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    assert "threads" in out and "torch" in out
    assert re.search(r"torch, then vit_helpers.vit +\d+\.\d{3} \+ \d+\.\d{4}", out)


def test_a_goal_is_trained_once_for_each_seed(monkeypatch, capsys):
    monkeypatch.setitem(
        bench.GOALS,
        "digits-3s",
        {"data": "digits", "settings": {"epochs": 1}, "promise": "little in no time"},
    )
    assert (
        run_tool(bench, ["digits-3s", "--seeds", "2", "--threads", str(torch.get_num_threads())])
        == 0
    )
    out = capsys.readouterr().out
    first, second = (
        float(x) for x in re.findall(r"seed \d  test accuracy (\d\.\d{4})  training", out)
    )
    assert "digits-3s (little in no time)" in out and min(first, second) > 0.2
    mean, std = re.search(r"mean    test accuracy (\S+), standard deviation (\S+), ", out).groups()
    assert float(mean) == pytest.approx((first + second) / 2, abs=1e-4)
    assert float(std) == pytest.approx(abs(first - second) / 2**0.5, abs=2e-4)


def test_unknown_parts_are_named(capsys):
    assert run_tool(bench, ["sped"]) == 1
    assert "error: unknown part 'sped', known: import, digits-3s" in capsys.readouterr().err


def test_without_words_the_default_is_measured(monkeypatch):
    measured = []
    monkeypatch.setattr(bench, "bench_import", lambda rounds: measured.append("import"))
    monkeypatch.setattr(bench, "bench_goal", lambda name, seeds: measured.append(name))
    assert run_tool(bench, ["--threads", str(torch.get_num_threads())]) == 0
    assert tuple(measured) == bench.DEFAULT
