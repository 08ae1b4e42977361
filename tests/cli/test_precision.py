"""The precision that commands choose: bfloat16 for wide models on CPUs with units for it."""

import pandas as pd
import pytest
import torch
from commands import command
from PIL import Image

from vit_helpers import ViT, ViTConfig
from vit_helpers.cli import precision
from vit_helpers.cli.precision import CHOSEN, WIDE, choose_precision, predict_in
from vit_helpers.training.cnn import CNN

pytestmark = pytest.mark.usefixtures("no_figures")

WIDE_MODEL = ["--set", "embed_dim=384", "--set", "num_heads=6", "--set", "depth=1"]
RUN = ["train", "--epochs", "1", "--set", "images=64", "--out", "new"]


def model(width=WIDE, image_size=8):
    """A ViT with weights that are not zero"""
    torch.manual_seed(0)
    vit = ViT(ViTConfig(image_size, 4, 1, 5, width, depth=1, num_heads=2)).eval()
    for weight in vit.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    return vit


@pytest.fixture
def units(monkeypatch):
    """Pretend that the processor has units for bfloat16, or none"""

    def pretend(there):
        monkeypatch.setattr(precision, "bf16_units", lambda: there)

    pretend(True)
    return pretend


@pytest.mark.parametrize(
    ("network", "device", "there", "wanted"),
    [
        (model(384), "cpu", True, "bfloat16"),
        (model(384), "cpu", False, "float32"),
        (model(192), "cpu", True, "float32"),
        (model(384), "cuda", True, "float32"),  # not measured
        (CNN(1, 10), "cpu", True, "float32"),
    ],
)
def test_only_wide_models_get_bfloat16_where_the_processor_has_units(
    units, network, device, there, wanted
):
    units(there)
    assert choose_precision(network, device) == wanted


@pytest.mark.parametrize("chosen", [None, "bfloat16"])
def test_features_are_rounded_and_the_head_is_not(units, capsys, chosen):
    vit, images = model(), torch.rand(6, 1, 8, 8)
    dtypes = []
    vit.blocks[0].mlp.register_forward_hook(lambda module, inputs, output: dtypes.append(output))
    with torch.no_grad():
        exact = vit(images)
        with predict_in(chosen, vit):
            rounded, attention = vit(images), vit.attention_weights(images)
        again = vit(images)
    assert [output.dtype for output in dtypes[:2]] == [torch.float32, torch.bfloat16]
    assert rounded.dtype == attention[0].dtype == torch.float32
    assert not torch.equal(rounded, rounded.bfloat16().float())
    assert 0 < (rounded - exact).abs().max() < 0.05 * exact.abs().max()
    assert torch.equal(again, exact)
    assert capsys.readouterr().out == (f"{CHOSEN}\n" if chosen is None else "")


def test_training_says_that_it_has_chosen_bfloat16_and_a_resumed_run_keeps_it(tmp_path, units):
    first = command(*RUN, *WIDE_MODEL, cwd=tmp_path)
    assert first.returncode == 0 and first.stdout.count(CHOSEN) == 1
    kept = torch.load(tmp_path / "new" / "checkpoint.pt", weights_only=True)
    assert kept["recipe"]["precision"] == kept["about"]["options"]["precision"] == "bfloat16"
    units(False)  # as on another machine
    again = command("train", "--resume", "new", cwd=tmp_path)
    assert again.returncode == 0 and "note: matrix products in bfloat16\n" in again.stdout
    other = command("train", "--resume", "new", "--precision", "float32", cwd=tmp_path)
    assert other.returncode == 1 and "precision bfloat16 -> float32" in other.stderr


@pytest.mark.parametrize(
    "options",
    [
        [],  # mini, which is narrow
        [*WIDE_MODEL, "--precision", "float32"],
        [*WIDE_MODEL, "--set", "precision=float32"],
    ],
)
def test_small_models_and_who_asks_for_it_get_float32(tmp_path, units, options):
    done = command(*RUN, *options, cwd=tmp_path)
    kept = torch.load(tmp_path / "new" / "checkpoint.pt", weights_only=True)
    assert done.returncode == 0 and "bfloat16" not in done.stdout
    units(False)
    plain = command(*RUN[:-1], "plain", *options, cwd=tmp_path)
    other = torch.load(tmp_path / "plain" / "checkpoint.pt", weights_only=True)
    assert plain.returncode == 0 and kept["recipe"] == other["recipe"]
    assert all(torch.equal(kept["model"][name], other["model"][name]) for name in kept["model"])


def test_predictions_say_that_they_are_rounded(tmp_path, units):
    units(False)
    for label in ("0", "1"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(3):
            Image.effect_noise((8, 8), 20 + 40 * number).save(
                tmp_path / "photos" / label / f"{number}.png"
            )
    assert command(*RUN, *WIDE_MODEL, "--lr", "0.1", cwd=tmp_path).returncode == 0

    def probabilities(*options):
        done = command(
            *("predict", "photos", "--weights", "new", "--csv", "all.csv"), *options, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        table = pd.read_csv(tmp_path / "all.csv").filter(like="p(")
        return torch.tensor(table.to_numpy()), done.stdout.count(CHOSEN)

    exact, said = probabilities()
    assert said == 0
    units(True)
    rounded, said = probabilities()
    assert said == 1 and 0 < (rounded - exact).abs().max() < 0.1
    again, said = probabilities("--precision", "float32")
    assert said == 0 and torch.equal(again, exact)
    for words in (["evaluate", "new", "folder:photos"], ["evaluate", "new", "digits"]):
        assert command(*words, cwd=tmp_path).stdout.count(CHOSEN) == 1
        assert CHOSEN not in command(*words, "--precision", "float32", cwd=tmp_path).stdout
    # a single image, which takes no time
    one = command("predict", "photos/0/0.png", "--weights", "new", cwd=tmp_path)
    assert one.returncode == 0 and CHOSEN not in one.stdout
