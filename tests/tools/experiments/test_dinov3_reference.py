"""The tool that stores a small DINOv3: it writes what is read, and theirs computes it."""

import pytest
import torch
from peers import transformers

from tools import main as run_tool
from tools.experiments import dinov3_reference as tool
from vit_helpers.parity import largest_difference
from vit_helpers.results.dinov3_reference import read_dinov3_reference

pytestmark = pytest.mark.dev


@pytest.fixture(scope="module")
def stored():
    return read_dinov3_reference()


@pytest.mark.peers
def test_theirs_gives_what_is_stored(stored):
    if not hasattr(transformers, "DINOv3ViTModel"):
        pytest.skip("not run: this version of transformers has no DINOv3")
    model = tool.make_model(stored.weights)
    tokens, gradients = tool.compute(model, stored.images, stored.slope)
    assert largest_difference(tokens, stored.tokens) < 1e-5
    assert gradients.keys() == stored.gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, stored.gradients[name], rtol=1e-4, atol=1e-3), name


@pytest.mark.peers
def test_the_tool_writes_what_is_read(tmp_path):
    if not hasattr(transformers, "DINOv3ViTModel"):
        pytest.skip("not run: this version of transformers has no DINOv3")
    path = tmp_path / "reference.safetensors"
    assert run_tool(tool, ["--out", str(path)]) == 0
    again = read_dinov3_reference(path)
    assert again.config == read_dinov3_reference().config
    assert largest_difference(again.tokens, read_dinov3_reference().tokens) < 1e-4
