"""The comparison with libraries: the same work for all, and a table of the stored numbers."""

import json
import sys
from functools import partial

import pytest
import torch

from tools import main as run_tool
from tools.experiments import libraries, measuring
from tools.experiments.libraries import MODULES, SHAPES, make_model, markdown
from vit_helpers.scaling import parameters, speedups, timing, training_bytes
from vit_helpers.vit import ViTConfig

pytestmark = pytest.mark.peers
TINY = ViTConfig(8, 4, 1, 10, 16, 2, 2)
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the resident memory")


@pytest.mark.parametrize("shape", SHAPES)
def test_every_library_builds_the_same_size(shape):
    s = SHAPES[shape]
    with torch.device("meta"):
        models = {name: make_model(name, s) for name in MODULES}
    sizes = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    two_norms, no_biases = (
        2 * s.in_chans * s.patch_size**2 + 2 * s.embed_dim,
        3 * s.embed_dim * s.depth,
    )
    assert sizes.pop("vit-pytorch") == sizes["ours"] + two_norms - no_biases
    assert set(sizes.values()) == {sum(parameters(models["ours"].config).values())}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODULES)
def test_every_library_does_the_same_work(monkeypatch, name, precision):
    monkeypatch.setitem(SHAPES, "tiny", TINY)
    monkeypatch.setitem(libraries.BATCH, "tiny", 2)
    model, batch, outputs = make_model(name, TINY), libraries.random_batch("tiny", "cpu"), []
    model.register_forward_hook(
        lambda module, args, output: outputs.append(getattr(output, "logits", output))
    )
    before = [p.clone() for p in model.parameters()]
    measuring.inference_step(model, *batch, precision)()
    assert not model.training and all(
        torch.equal(p, q) for p, q in zip(before, model.parameters(), strict=True)
    )
    measuring.train_step(model, *batch, precision)()
    logits, in_training = outputs
    assert logits.shape == (2, 10) and logits.dtype == getattr(torch, precision)
    assert torch.equal(logits, in_training)  # no dropout
    assert model.training and not all(
        torch.equal(p, q) for p, q in zip(before, model.parameters(), strict=True)
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--from", "nowhere.json"], "nowhere.json"),
        pytest.param(
            ["--device", "cuda"],
            "no device 'cuda' on this machine, available: cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one here"),
        ),
    ],
)
def test_incorrect_options_are_named(capsys, words, says):
    assert run_tool(libraries, [*words, "--threads", str(torch.get_num_threads())]) == 1
    assert says in capsys.readouterr().err


def test_unknown_shapes_are_named(capsys):
    with pytest.raises(SystemExit):
        run_tool(libraries, ["--shapes", "B/7"])
    assert "invalid choice: 'B/7'" in (err := capsys.readouterr().err) and "8 px/P2/D64/L2" in err


@pytest.fixture
def quick(monkeypatch):
    """One tiny shape, ours and timm, and short turns; a process of its own answers at once"""
    answers = {"[b - a, c - b]": [2.0, 0.5]}
    monkeypatch.setattr(libraries, "run_fresh", lambda code, answer: answers[answer])
    monkeypatch.setattr(libraries, "in_own_process", lambda *words: 3_000_000)
    peak = timing.matmul_peak
    monkeypatch.setattr(
        timing,
        "matmul_peak",
        lambda dtype, device, size: peak(dtype, device, size=32, seconds=0.01),
    )
    monkeypatch.setattr(
        timing, "benchmark_interleaved", partial(timing.benchmark_interleaved, seconds=0.01)
    )
    monkeypatch.setitem(SHAPES, "tiny", TINY)
    monkeypatch.setitem(libraries.BATCH, "tiny", 2)
    monkeypatch.setattr(libraries, "MODULES", {name: MODULES[name] for name in ("ours", "timm")})


def measure_tiny(folder, *words):
    threads = str(torch.get_num_threads())
    words = ("--shapes", "tiny", "--rounds", "3", "--threads", threads, *words)
    return run_tool(libraries, [*words, "--json", str(folder / "kept" / "libraries.json")])


def cells(said):
    """The lines of the table, cell by cell; without the line of dashes"""
    lines = [line.strip("| ").split(" | ") for line in said.splitlines() if line.startswith("|")]
    return [line for line in lines if not line[0].startswith("---")]


@linux
def test_all_rounds_are_kept_and_the_table_is_made_of_them(quick, tmp_path, capsys):
    assert measure_tiny(tmp_path, "--precision", "float32", "bfloat16") == 0
    said = capsys.readouterr()
    assert (
        "tiny training, images/s, bf16\n" in said.err
        and "tiny" not in said.err.rpartition("results: ")[2]
    )
    kept = json.loads((tmp_path / "kept" / "libraries.json").read_text())
    assert [row["what"] for row in kept["rows"]] == [
        "import",
        "build",
        *["memory", "inference", "training"] * 2,
    ]
    for row in kept["rows"]:
        assert row["what"] == "import" or set(row["values"]) == {"ours", "timm"}
        assert all(
            len(row["values"][name]) == 3 and min(row["values"][name]) > 0
            for name in ("ours", "timm")
        )
    assert set(kept["versions"]) == {"ours", "timm"}
    assert run_tool(libraries, ["--from", str(tmp_path / "kept" / "libraries.json")]) == 0
    assert capsys.readouterr().out == said.out


@linux
def test_the_table_says_what_is_missing(quick, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(speedups, "bf16_units", lambda: False)
    assert measure_tiny(tmp_path) == 0
    said = capsys.readouterr().out
    assert "no bf16 units here: left out" in said
    assert timing.machine() in said and "timm" in said
    speeds = [line for line in cells(said) if "images/s" in line[0]]
    assert [line[:2] for line in speeds] == [
        ["inference, images/s, fp32", "tiny"],
        ["training, images/s, fp32", "tiny"],
    ]
    assert all(float(number.replace(",", "")) > 0 for line in speeds for number in line[2:4])


def results(**changes):
    """A stored run: at a batch of 4, ours reads 2, 4 and 4 images a second, timm 2, 2 and 1"""
    speed = {"what": "training", "shape": "Ti/16", "precision": "float32", "batch": 4}
    speed |= {
        "multiply_adds": 100,
        "peak": 500,
        "values": {"ours": [2, 1, 1], "timm": [2, 2, 4], "torchvision": [5, 5, 5]},
    }
    faster = speed | {"what": "inference", "peak": 1000}
    faster |= {"values": {"ours": [0.5] * 3, "timm": [0.25] * 3, "torchvision": [0.5] * 3}}
    imports = {"torch": [2, 2, 2], "ours": [0.01] * 3, "timm": [3, 4, 5], "torchvision": [2] * 3}
    builds = {name: [0.25] for name in ("ours", "timm", "torchvision")}
    peaks = {"ours": [1e9], "timm": [2e9], "torchvision": [3e9]}
    costs = [
        {"what": "import", "values": imports},
        {"what": "build", "shape": "Ti/16", "values": builds},
        {"what": "memory", "shape": "Ti/16", "precision": "bfloat16", "values": peaks},
    ]
    about = {"machine": "an abacus", "device": "CPU", "precisions": ["float32"], "bf16_units": True}
    versions = {"ours": "0.1", "torchvision": "0.2", "timm": "1.0"}
    return (
        about
        | {"versions": versions, "rows": [costs[0], costs[1], costs[2], speed, faster]}
        | changes
    )


def test_the_table_of_a_stored_run():
    said = markdown(results())
    head, *lines = cells(said)
    assert head == [
        *(
            "measured",
            "shape",
            "ours",
            "torchvision",
            "timm",
            "ours / best peer",
            "spread",
            "share of peak",
        ),
    ]
    assert lines[0][:6] == [
        "import, s (after torch's 2)",
        "",
        "0.01",
        "2",
        "4",
        "0.01 (0.01 to 0.01)",
    ]
    assert lines[1][:6] == ["build, ms", "Ti/16", "250", "250", "250", "1.00 (1.00 to 1.00)"]
    assert lines[2][:5] == ["training's memory, MB, bf16", "Ti/16", "1,000", "3,000", "2,000"]
    assert lines[3] == [
        "training, images/s, fp32",
        "Ti/16",
        "4",
        "0.8",
        "2",
        "2.00 (1.00 to 4.00)",
        "100%",
        "40%",
    ]
    assert lines[4] == [
        "inference, images/s, fp32",
        "Ti/16",
        "8",
        "8",
        "16",
        "0.50 (0.50 to 0.50)",
        "0%",
        "80%",
    ]
    assert (
        said.endswith("CPU: an abacus; ours 0.1, torchvision 0.2, timm 1.0.")
        and "left out" not in said
    )
    # all lines have as many cells
    assert len({line.count("|") for line in said.split("\n\n")[0].splitlines()}) == 1


def test_a_library_that_is_missing_is_named_before_anything_is_measured(
    quick, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(
        libraries, "MODULES", {"ours": MODULES["ours"], "no-such-library": "no_such_library"}
    )
    monkeypatch.setattr(libraries, "run_fresh", None)
    assert measure_tiny(tmp_path) == 1
    assert "no-such-library" in capsys.readouterr().err


@linux
def test_memory_is_that_of_the_model():
    shape = "32 px/P4/D192/L6"
    taken = measuring.in_own_process(libraries.training_memory, shape, "float32", "cpu", "ours")
    wanted = sum(training_bytes(SHAPES[shape], libraries.BATCH[shape]).values())
    assert 0.8 * wanted < taken < 2 * wanted
