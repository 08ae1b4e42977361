"""The command `look`: tokens of a photo as a figure."""

import pytest
import torch
from PIL import Image

from vit_helpers.cli import look, main
from vit_helpers.inspection import principal_components
from vit_helpers.pretrained import Preprocess, load_pretrained, save_weights
from vit_helpers.vit import ViT, ViTConfig

NEWER = {
    "the paper's": {},
    "DINOv3": {"positions": "rotary", "reg_tokens": 4, "init_values": 0.1},
    "without a class token": {"class_token": False, "pool": "map", "reg_tokens": 2},
}


@pytest.fixture
def photo(tmp_path):
    Image.effect_mandelbrot((90, 60), (-3, -2.5, 2, 2.5), 100).convert("RGB").save(
        tmp_path / "photo.png"
    )
    return tmp_path / "photo.png"


def weights(folder, **newer):
    torch.manual_seed(0)
    model = ViT(ViTConfig(32, 8, 3, 2, 32, 2, 4, **newer))
    preprocess = Preprocess(32, (32, 32), "bilinear", (0.5,) * 3, (0.5,) * 3)
    save_weights(folder / "a.safetensors", model, preprocess, ["a", "b"])
    return str(folder / "a.safetensors")


@pytest.mark.parametrize("newer", NEWER.values(), ids=NEWER)
def test_a_figure_of_a_whole_photo(newer, photo, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["look", str(photo), "--weights", weights(tmp_path, **newer)]) == 0
    assert "4 x 6 patches, tokens after block 2 of 2" in capsys.readouterr().out
    with Image.open("photo-look.png") as figure:
        assert min(figure.size) > 500


def test_what_is_drawn(photo, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(look, "draw_look", lambda *args: drawn.setdefault("args", args))
    monkeypatch.setattr(look, "save_figure", lambda *_: None)
    path = weights(tmp_path, **NEWER["DINOv3"])
    words = ["look", str(photo), "--weights", path, "--rows", "6", "--block", "1", "--patch", "2,8"]
    assert main(words) == 0
    seen, components, attention, similarity, patch, block = drawn["args"]
    assert seen.shape == (3, 48, 72) and patch == (2, 8) and block == 1
    assert components.shape == (6, 9, 3)
    queries, attention = attention
    assert queries == "the class token" and attention.shape == similarity.shape == (6, 9)
    assert similarity[2, 8].item() == pytest.approx(1, abs=1e-5)
    assert 0 < attention.sum() < 1  # without the class token and the registers
    bright = load_pretrained(path).preprocess.frame(Image.open(photo))
    assert abs(seen.mean() - bright.mean()) < 0.2


def test_the_title_says_whose_attention_is_drawn(photo, tmp_path, monkeypatch):
    titles = []

    def keep_titles(figure, path):
        titles.extend(ax.get_title(loc="left") for ax in figure.axes)

    monkeypatch.setattr(look, "save_figure", keep_titles)
    for newer in NEWER.values():
        assert main(["look", str(photo), "--weights", weights(tmp_path, **newer)]) == 0
    whose = [title for title in titles if title.startswith("Attention")]
    token, patches = (f"Attention of {q}, last block" for q in ("the class token", "all patches"))
    assert whose == [token, token, patches]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--patch", "4,0"], "from 0,0 to 3,5 here, got '4,0'"),
        (["--patch", "middle"], "got 'middle'"),
        (["--block", "3"], "--block 3: the model has 2 blocks"),
        (["--rows", "99"], "99 x 148 patches are more than 4,096"),
        (["--out", "photo.png"], "is read by this command"),
    ],
)
def test_what_does_not_fit_is_named(words, message, photo, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["look", "photo.png", "--weights", weights(tmp_path), *words]) == 1
    assert message in capsys.readouterr().err


def test_components_are_those_of_all_images_together():
    directions = torch.linalg.qr(torch.randn(8, 8))[0][:, :2].T
    where = torch.randn(2, 9, 2) * torch.tensor([5.0, 2.0])
    tokens = where @ directions + 3
    found = principal_components(tokens, 2)
    assert found.shape == (2, 9, 2)
    assert torch.allclose(found.mean(dim=(0, 1)), torch.zeros(2), atol=1e-5)
    distances = torch.cdist(where.flatten(0, 1), where.flatten(0, 1))
    assert torch.allclose(
        torch.cdist(found.flatten(0, 1), found.flatten(0, 1)), distances, atol=1e-3
    )
    assert found[..., 0].std() > found[..., 1].std()
    assert torch.equal(found, principal_components(tokens, 2))


def test_more_components_than_there_are_is_an_error():
    with pytest.raises(ValueError, match="4 tokens of 2 numbers have no 3 components"):
        principal_components(torch.randn(1, 4, 2), 3)
