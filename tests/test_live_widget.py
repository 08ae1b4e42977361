"""The parts of the live page in notebooks: what is stored, what runs, and that it is torch's."""

import base64
import builtins
import json

import pytest
import torch
from browser import accessibility, in_browser, page_of
from matplotlib import colormaps

from vit_helpers.data import load
from vit_helpers.live import Explorer
from vit_helpers.live.explorer import VIEW
from vit_helpers.live.ink import reduce_ink
from vit_helpers.live.page import bundle
from vit_helpers.live.picker import tell_patch
from vit_helpers.plots import style
from vit_helpers.plots.attention import STRONG
from vit_helpers.plots.attention_steps import read_example
from vit_helpers.plots.explorer import A_THREE, draw_stroke
from vit_helpers.pretrained import Preprocess, load_pretrained, save_weights
from vit_helpers.pretrained.sources import OURS
from vit_helpers.results.photo_features import PHOTOS, patch_number, read_photo_features
from vit_helpers.vit import ViT, ViTConfig

PAGE = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A part</title>\
<meta name="viewport" content="width=device-width"></head>\
<body><main><h1>A part</h1>{}</main></body></html>'
PARTS = ("draw", "attend", "pick", "explore")
KINDS = dict.fromkeys(PARTS, "image/png") | {"pick": "image/jpeg"}  # of the stored pictures


# In Python


def shown(monkeypatch, part):
    """What a notebook's cell gets from this part: its data and their metadata"""
    found = []
    monkeypatch.setattr(
        "IPython.display.display", lambda data, **more: found.append((data, more["metadata"]))
    )
    Explorer(part)._ipython_display_()
    ((data, metadata),) = found
    return data, metadata


@pytest.mark.parametrize("part", PARTS)
def test_without_anywidget_there_is_the_picture_with_its_alt_text(part, monkeypatch):
    own_import = builtins.__import__

    def without(name, *args, **more):
        if name == "anywidget":
            raise ImportError(name)
        return own_import(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    data, metadata = shown(monkeypatch, part)
    assert set(data) == {KINDS[part], "text/plain"}
    assert metadata[KINDS[part]]["alt"] == data["text/plain"] and len(data["text/plain"]) > 40


@pytest.mark.parametrize("part", PARTS)
def test_the_picture_travels_with_the_widget(part, monkeypatch):
    pytest.importorskip("anywidget", reason="no anywidget here: the extra [live] brings it")
    data, _ = shown(monkeypatch, part)
    assert set(data) == {KINDS[part], "text/plain", VIEW}
    widget = Explorer(part).widget()
    assert widget.data == Explorer(part).data() and "export default { render }" in widget._esm
    assert "import " not in widget._esm.partition("/**")[0] and ".vit-part" in widget._css


def test_what_a_part_gets_are_the_weights_and_the_numbers_themselves():
    data = Explorer("explore").data()
    assert base64.b64decode(data["weights"]) == (OURS / "scattered.safetensors").read_bytes()
    images = load("scattered_digits", n=10_000).test.images[:6]  # notebook 08's
    assert (torch.tensor(data["images"]) - images.flatten(1)).abs().max() <= 5e-4
    tokens, z, W = read_example()
    data = json.loads(json.dumps(Explorer("attend").data()))
    assert data["tokens"] == tokens
    assert all(torch.equal(torch.tensor(data[role]), z @ W[role]) for role in "qkv")


def test_the_picker_gets_the_stored_bytes_of_every_photo():
    data = json.loads(json.dumps(Explorer("pick").data()))
    assert [photo["name"] for photo in data["photos"]] == list(PHOTOS)
    for photo in data["photos"]:
        features = read_photo_features(photo["name"])
        stored = {"tokens": features.tokens[data["block"]], "q": features.q, "k": features.k}
        for role, matrix in stored.items():
            values = bytearray(base64.b64decode(photo[role]["values"]))
            scale = torch.tensor(photo[role]["scale"])
            found = torch.frombuffer(values, dtype=torch.int8).unflatten(0, (-1, len(scale)))
            assert torch.allclose(found * scale, matrix, rtol=1e-6, atol=0)
        assert photo["picture"].startswith("data:image/jpeg;base64,")
    assert len(json.dumps(data)) < 2_000_000


def test_an_unknown_part_and_missing_weights_are_errors():
    with pytest.raises(ValueError, match="part"):
        Explorer("paint")
    for name in ("ours:painted", "nowhere.safetensors"):
        with pytest.raises(FileNotFoundError, match=r"ours:painted|nowhere\.safetensors"):
            Explorer("draw", name).data()


def test_the_picture_of_a_model_with_registers_is_of_its_patches(tmp_path):
    model = ViT(ViTConfig(8, 4, 1, 10, 16, 2, 2, reg_tokens=3)).eval()
    preprocess = Preprocess(8, (8, 8), "bilinear", (0.5,), (0.5,))
    save_weights(tmp_path / "a.safetensors", model, preprocess, list("0123456789"))
    part = Explorer("explore", tmp_path / "a.safetensors", torch.rand(2, 1, 8, 8))
    assert "of 2 x 2" in part.still()[1]


@torch.no_grad()
def test_the_alt_texts_tell_what_torch_computes():
    model, preprocess, names = load_pretrained("ours:drawn")
    pixels = reduce_ink(draw_stroke(A_THREE), 16)
    probabilities = model(preprocess.normalize(pixels[None, None])).softmax(dim=1)[0]
    best = probabilities.argmax().item()
    assert f"{names[best]} gets {probabilities[best]:.0%}" in Explorer("draw").still()[1]
    china = read_photo_features("china")
    weights = china.attention()[patch_number((6, 16))]
    alt = Explorer("pick").still()[1]
    assert alt.startswith("Patch (6, 16): after block 9")
    assert f"gives {weights[:6].sum():.0%} of its weight to the rows above" in alt
    assert alt.endswith(f"to patch {divmod(weights.argmax().item(), 45)}.")
    images = torch.rand(2, 1, 24, 24, generator=torch.Generator().manual_seed(0))
    scattered, preprocess, _ = load_pretrained("ours:scattered")
    weights = scattered.attention_weights(preprocess.normalize(images))[-1][0, 0, 0, 1:]
    row, column = divmod(weights.argmax().item(), 6)
    alt = Explorer("explore", images=images).still()[1]
    assert f"{weights.max():.2f}, is on the patch in row {row + 1}, column {column + 1}" in alt


def test_a_stroke_has_the_width_of_the_pen():
    ink = draw_stroke([[0.25, 0.5], [0.75, 0.5]], side=100, pen=10)
    assert ink.min() == 0 and ink.max() == 1
    assert ink[:, 50].sum().item() == pytest.approx(10) and ink[50].sum().item() == pytest.approx(
        60, abs=0.5
    )


# In a browser


@pytest.fixture
def opened(chromium, tmp_path):
    """A function that opens the page of a part; after the test, what went wrong is looked for."""
    pages = []

    def open_page(explorer, **options):
        path = tmp_path / "part.html"
        path.write_text(PAGE.format(explorer.html()), encoding="utf-8")
        pages.append(page_of(chromium, **options))
        page, wrong = pages[-1].__enter__()
        page.set_default_timeout(60_000)
        page.on(
            "console",
            lambda message: (
                wrong["errors"].append(message.text) if message.type == "error" else None
            ),
        )
        page.goto(path.as_uri())
        faults.append(wrong)
        return page

    faults = []
    yield open_page
    for one in pages:
        one.__exit__(None, None, None)
    assert all(wrong == {"errors": [], "failed": [], "away": []} for wrong in faults), faults


@in_browser
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("width", [375, 900])
def test_it_fits_the_page_and_keeps_nobody_out(opened, part, width):
    page = opened(Explorer(part), viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert accessibility(page) == []


def numbers(page, name):
    """The numbers of a table, row by row"""
    cells = page.locator(f".vit-{name} td:not(:first-child)").all_inner_texts()
    return [float(cell) for cell in cells if cell]


def assert_attention(page, q, k, v, scale):
    scores = q @ k.T / scale
    weights = scores.softmax(dim=-1)
    for name, matrix, error in (
        ("scores", scores, 5e-3),
        ("weights", weights, 5e-4),
        ("out", weights @ v, 5e-3),
    ):
        assert numbers(page, name) == pytest.approx(matrix.flatten().tolist(), abs=1.01 * error), (
            name
        )


@in_browser
def test_queries_and_keys_are_dragged_typed_and_reset(opened):
    page = opened(Explorer("attend"))
    _, z, W = read_example()
    q, k, v = (z @ W[role] for role in "qkv")
    assert_attention(page, q, k, v, 2)
    assert numbers(page, "v") == v.flatten().tolist()

    one = page.get_by_label("query of roof, component 2")
    box = one.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 20 + 48, box["y"] + 10, steps=4)  # half a unit each 8 pixels
    page.mouse.up()
    page.mouse.move(0, 0)
    assert one.input_value() == "3"
    q[1, 1] = 3
    assert_attention(page, q, k, v, 2)
    assert page.get_by_role("status").inner_text().startswith("The query of roof gives")

    page.get_by_label("key of tree, component 4").fill("-2.25")
    k[2, 3] = -2.25
    assert_attention(page, q, k, v, 2)
    page.get_by_label("key of sky, component 1").press("ArrowUp")
    k[0, 0] += 0.5
    page.get_by_label("query of sky, component 1").fill("100")  # as far as it goes
    q[0, 0] = 9
    page.get_by_label("divide the scores").uncheck()
    assert_attention(page, q, k, v, 1)

    page.get_by_role("button", name="Reset").click()
    q, k, v = (z @ W[role] for role in "qkv")
    assert_attention(page, q, k, v, 2)


def without_head(model, layer, head):
    """The same model, with zeros where one head's output would be"""
    width = model.config.embed_dim // model.config.num_heads
    with torch.no_grad():
        model.blocks[layer].attn.proj.weight[:, head * width : (head + 1) * width] = 0
    return model


def probabilities(page):
    return [
        float(text) for text in page.locator(".vit-bars > div > span:last-child").all_inner_texts()
    ]


@in_browser
def test_every_head_of_a_model_and_images_of_ones_own(opened, tmp_path):
    torch.manual_seed(2)  # heads that matter
    model = ViT(ViTConfig(8, 4, 1, 3, embed_dim=8, depth=2, num_heads=2)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.7)
    preprocess, images = Preprocess(8, (8, 8), "bilinear", (0.3,), (0.4,)), torch.rand(2, 1, 8, 8)
    save_weights(tmp_path / "own.safetensors", model, preprocess, ("a", "b", "c"))
    page = opened(Explorer("explore", tmp_path / "own.safetensors", images))
    said, normal = page.get_by_role("status"), preprocess.normalize(images)
    page.get_by_role("button", name="image 2").click()
    with torch.no_grad():
        wanted, attention = model(normal).softmax(dim=1)[1], model.attention_weights(normal)
    assert probabilities(page) == pytest.approx(wanted.tolist(), abs=6e-3)
    for layer, head in ((0, 0), (0, 1), (1, 0), (1, 1)):
        page.get_by_role("button", name=f"block {layer + 1}, head {head + 1}").click()
        for query, button in enumerate(
            ("class token", "row 1, column 1", "row 1, column 2", "row 2, column 1")
        ):
            page.get_by_role("button", name=button).click()
            weights = attention[layer][1, head, query, 1:]
            row, column = divmod(weights.argmax().item(), 2)
            patch = f"the patch in row {row + 1}, column {column + 1}"
            share = f"gives {100 * weights.max():.0f}% of its weight to {patch}"
            assert (
                f"Block {layer + 1}, head {head + 1}:" in said.inner_text()
                and share in said.inner_text()
            )
    page.get_by_role("button", name="block 1, head 1").click()
    page.get_by_label("this head is on").uncheck()
    assert "Heads switched off: 1." in said.inner_text()
    with torch.no_grad():
        changed = without_head(model, 0, 0)(normal).softmax(dim=1)[1]
    assert (changed - wanted).abs().max() > 0.02
    assert probabilities(page) == pytest.approx(changed.tolist(), abs=6e-3)


@in_browser
def test_the_explorer_is_moved_by_keys(opened):
    page = opened(Explorer("explore"))
    said = page.get_by_role("status")
    assert said.inner_text().startswith("Block 4, head 1: the class token gives 97%")
    page.get_by_role("button", name="block 4, head 1").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert said.inner_text().startswith("Block 3, head 2: the class token")
    page.get_by_role("button", name="row 1, column 1").focus()
    page.keyboard.press("ArrowDown")
    assert said.inner_text().startswith("Block 3, head 2: the patch in row 2, column 1")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")  # nothing is above the first row
    assert "the patch in row 1, column" in said.inner_text()


CELLS = 'canvas => Array.from(canvas.getContext("2d").getImageData(0, 0, 45, 30).data)'
PICKED = [("china", (6, 16)), ("flower", (0, 0)), ("cat", (29, 44)), ("cat", (10, 20))]


@in_browser
@pytest.mark.parametrize(("photo", "patch"), PICKED)
def test_both_maps_of_a_picked_patch_are_those_of_torch(chromium, photo, patch):
    features = read_photo_features(photo)
    cosines, weights = features.similarity(9, patch), features.attention()[patch_number(patch)]
    with page_of(chromium) as (page, wrong):
        page.goto("about:blank")
        lab = "window.lab = (photo, n) => "
        lab += "[similarTo, attendsTo].map((of) => of(readPhoto(photo), n));"
        page.add_script_tag(content=f"{bundle('photo.js')}\n{lab}", type="module")
        page.wait_for_function("typeof window.lab === 'function'")
        data = next(one for one in Explorer("pick").data()["photos"] if one["name"] == photo)
        found = page.evaluate("([photo, n]) => lab(photo, n)", [data, patch_number(patch)])
        assert wrong["errors"] == []
    for numbers, wanted in zip(found, (cosines, weights), strict=True):
        assert torch.allclose(torch.tensor(numbers), wanted.flatten(), rtol=1e-4, atol=1e-5)


@in_browser
def test_a_patch_is_picked_with_the_mouse_and_with_keys(opened):
    page = opened(Explorer("pick"))
    said, photo = page.get_by_role("status"), page.get_by_role("application")
    features = {name: read_photo_features(name) for name in PHOTOS}
    assert said.inner_text() == tell_patch(features["china"], (6, 16))
    box = photo.bounding_box()
    photo.click(position={"x": box["width"] * 14.5 / 45, "y": box["height"] * 20.5 / 30})
    assert said.inner_text() == tell_patch(features["china"], (20, 14))
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight", "ArrowRight"):
        photo.press(key)
    assert said.inner_text() == tell_patch(features["china"], (19, 15))
    page.get_by_role("button", name="cat").click()
    assert said.inner_text() == tell_patch(features["cat"], (19, 15))
    cosines = features["cat"].similarity(9, (19, 15)).flatten()
    weights = features["cat"].attention()[patch_number((19, 15))].flatten()
    seen = [torch.tensor(page.locator(".vit-pick canvas").nth(i).evaluate(CELLS)) for i in (1, 2)]
    similar, attends = (cells.unflatten(0, (-1, 4)) for cells in seen)
    colors = colormaps[style.SIGNED](((cosines + 1) / 2).numpy(), bytes=True)
    assert (similar - torch.tensor(colors.astype(int))).abs().max() <= 4  # at the edge of a color
    opacity = 255 * 0.95 * (weights / STRONG).clamp(max=1).sqrt()
    assert (attends[:, 3] - opacity).abs().max() <= 1
    page.get_by_role("button", name="cat").press("ArrowLeft")
    assert said.inner_text() == tell_patch(features["flower"], (19, 15))
    for _ in range(12):
        photo.press("ArrowDown")  # nothing is below the last row
    assert said.inner_text() == tell_patch(features["flower"], (29, 15))


@in_browser
def test_a_digit_is_drawn_with_the_mouse_and_with_keys(opened):
    page = opened(Explorer("draw"))
    said, canvas = page.get_by_role("status"), page.get_by_role("application")
    assert said.inner_text().startswith("The model reads this as 3")
    page.get_by_role("button", name="Clear").click()
    assert said.inner_text().startswith("Nothing drawn yet") and set(probabilities(page)) == {0}
    box = canvas.bounding_box()
    points = [(0.5, 0.15), (0.5, 0.85)]  # a 1
    page.mouse.move(
        *(
            box[side] + box[size] * z
            for side, size, z in zip("xy", ("width", "height"), points[0], strict=True)
        )
    )
    page.mouse.down()
    page.mouse.move(
        *(
            box[side] + box[size] * z
            for side, size, z in zip("xy", ("width", "height"), points[1], strict=True)
        )
    )
    page.mouse.up()
    by_mouse = probabilities(page)
    assert sum(by_mouse) == pytest.approx(1, abs=0.05) and by_mouse.index(max(by_mouse)) == 1
    canvas.focus()
    page.keyboard.press("Escape")
    assert set(probabilities(page)) == {0}
    for key in (*6 * ["ArrowUp"], "Space", *12 * ["ArrowDown"]):
        page.keyboard.press(key)
    by_keys = probabilities(page)
    assert by_keys.index(max(by_keys)) == 1
