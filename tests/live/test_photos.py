"""Photos on the live page: which patches are similar, before the blocks and after them."""

import base64
import json
import re
import zlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from browser import CALM, NOTHING, accessibility, in_browser, page_of
from matplotlib import colormaps

from vit_helpers.live.page import bundle, live_page
from vit_helpers.live.photos import ERROR, LAYERS, STEP, photos_data
from vit_helpers.live.picker import read_photo
from vit_helpers.plots import style
from vit_helpers.plots.since_2020 import as_colors
from vit_helpers.results.photo_features import (
    GRID,
    PATCH_SIZE,
    PHOTOS,
    patch_number,
    read_photo_features,
    unit_tokens,
)

MOST_BYTES = 1_400_000
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
SIMILAR = """async ([name, n]) => {
  const {photos, grid, step} = JSON.parse(document.getElementById("photo-data").textContent)
  const photo = photos.find((one) => one.name === name), found = {}
  for (const stage of ["before", "after"]) {
    found[stage] = similarTo(await unpackTokens(photo[stage], step, grid[0] * grid[1]), n)
  }
  return found
}"""
CELLS = 'canvas => Array.from(canvas.getContext("2d").getImageData(0, 0, 45, 30).data)'

# Rectangles of patches, by the thing that they show: first and last row and column, exclusive
THINGS = {
    "china": {
        "sky": [(1, 8, 26, 40), (1, 5, 1, 8)],
        "lake": [(17, 20, 28, 37), (20, 22, 2, 5)],
        "pagoda": [(6, 8, 10, 18), (13, 16, 9, 20), (18, 20, 8, 22), (20, 23, 9, 22)],
        "tree": [(25, 29, 1, 12), (24, 28, 30, 38), (15, 20, 40, 44)],
    },
    "flower": {
        "flower": [(8, 23, 15, 28), (28, 30, 22, 30)],
        "ground": [(8, 20, 2, 9), (8, 14, 33, 41), (1, 4, 18, 24), (26, 29, 8, 14)],
    },
    "cat": {
        "eye": [(10, 14, 14, 20), (12, 16, 30, 34)],
        "fur": [(17, 20, 10, 18), (2, 7, 12, 20), (18, 21, 31, 34)],
        "ground": [(10, 28, 40, 44), (1, 10, 0, 2)],
    },
}


# In Python


def unpack(packed):
    """Read what `pack_tokens` wrote with numpy alone: tokens (N, m)"""
    values = np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype=np.int8)
    return STEP * values.reshape(-1, GRID[0] * GRID[1]).T.astype(np.float64)


def cosines_of(tokens):
    """The cosines of all pairs of rows"""
    tokens = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    return tokens @ tokens.T


def stored_cosines(name, stage):
    """The cosines of all pairs of stored tokens: (N, N)"""
    return cosines_of(read_photo_features(name).tokens[LAYERS[stage]].double().numpy())


def test_the_whole_page_is_small():
    assert len(live_page().encode()) <= MOST_BYTES


def test_the_page_has_the_cosines_of_the_stored_tokens():
    largest = 0
    for photo in photos_data()["photos"]:
        for stage in LAYERS:
            error = np.abs(cosines_of(unpack(photo[stage])) - stored_cosines(photo["name"], stage))
            largest = max(largest, error.max())
    assert ERROR / 2 < largest <= ERROR


def color_cosines(name):
    """The cosines of the mean colors of all pairs of patches, less the mean color of the photo"""
    colors = F.avg_pool2d(read_photo(name)[None], PATCH_SIZE)[0].flatten(1).T
    return cosines_of(unit_tokens(colors).double().numpy())


def test_before_the_blocks_similar_means_similar_colors():
    off = ~np.eye(GRID[0] * GRID[1], dtype=bool)
    follows = {
        (name, stage): np.corrcoef(stored_cosines(name, stage)[off], color_cosines(name)[off])[0, 1]
        for name in PHOTOS
        for stage in LAYERS
    }
    for name in PHOTOS:
        assert follows[name, "before"] > 0.75, follows
        assert follows[name, "after"] < follows[name, "before"] - 0.04, follows
    assert follows["china", "after"] < 0.45 and follows["cat", "after"] < 0.25, follows


def nearest_thing(name, cosines):
    """How often the most similar patch of the other rectangles shows the same thing as a patch"""
    thing, rectangle = np.full(GRID, -1), np.full(GRID, -1)
    for number, places in enumerate(THINGS[name].values()):
        for top, bottom, left, right in places:
            rectangle[top:bottom, left:right] = rectangle.max() + 1
            thing[top:bottom, left:right] = number
    thing, rectangle = thing.ravel(), rectangle.ravel()
    elsewhere = (rectangle[:, None] != rectangle) & (rectangle >= 0)
    named = rectangle >= 0
    nearest = np.where(elsewhere, cosines, -2)[named].argmax(axis=1)
    return (thing[nearest] == thing[named]).mean()


def test_after_the_blocks_similar_means_the_same_thing():
    found = {
        (name, stage): nearest_thing(name, stored_cosines(name, stage))
        for name in PHOTOS
        for stage in LAYERS
    }
    assert all(found[name, "after"] > 0.95 for name in PHOTOS), found
    # the flower is the only orange thing, so that color is enough there
    assert found["china", "before"] < 0.5 and found["cat", "before"] < 0.8, found
    assert nearest_thing("china", color_cosines("china")) < 0.5


# In a browser


@pytest.fixture
def opened(chromium, live_address):
    """A function that opens the page at its photos; in the end nothing may have gone wrong."""
    pages, faults = [], []

    def open_page(**options):
        pages.append(page_of(chromium, **CALM | {"viewport": DESKTOP} | options))
        page, wrong = pages[-1].__enter__()
        page.set_default_timeout(60_000)
        page.on(
            "console",
            lambda message: (
                wrong["errors"].append(message.text) if message.type == "error" else None
            ),
        )
        page.goto(live_address)
        page.evaluate("document.getElementById('photos').scrollIntoView()")
        page.wait_for_selector("#photo-said:not(:empty)")
        faults.append(wrong)
        return page

    yield open_page
    for one in pages:
        one.__exit__(None, None, None)
    assert all(wrong == NOTHING for wrong in faults), faults


def photo_of(page):
    return page.get_by_role("application", name="Photo.")


def center(page, patch):
    """Where the middle of a patch is on the screen"""
    box = photo_of(page).bounding_box()
    (row, column), (rows, columns) = patch, GRID
    x = box["x"] + box["width"] * (column + 0.5) / columns
    return x, box["y"] + box["height"] * (row + 0.5) / rows


def said(page, name, patch):
    """Wait until the page tells of this patch, and compare both cosines with the stored tokens'."""
    # words of the last photo stay until then
    page.get_by_role("button", name=name, pressed=True).wait_for()
    page.locator("#photo-said", has_text=f"Patch ({patch[0]}, {patch[1]}).").wait_for()
    places = re.findall(r"\((\d+), (\d+)\), cosine (\d\.\d+)", page.inner_text("#photo-said"))
    for stage, (row, column, cosine) in zip(LAYERS, places, strict=True):
        stored = stored_cosines(name, stage)[patch_number(patch)]
        assert abs(float(cosine) - stored[patch_number((int(row), int(column)))]) <= ERROR + 0.005
        assert float(cosine) >= np.sort(stored)[-2] - ERROR - 0.005  # the largest is its own


def circled(page, nth, stage):
    """The patch in whose middle the circle of a stage is: in the photo (0) or in a map"""
    layers = page.locator("#photo-maps .vit-photo").nth(nth)
    box, circle = layers.bounding_box(), layers.locator(f".found.{stage}").bounding_box()
    x, y = (
        (circle[at] + circle[size] / 2 - box[at]) / box[size]
        for at, size in (("x", "width"), ("y", "height"))
    )
    assert 1.5 < circle["width"] / (box["width"] / GRID[1]) < 4
    row, column = y * GRID[0] - 0.5, x * GRID[1] - 0.5
    assert abs(row - round(row)) < 0.1 and abs(column - round(column)) < 0.1
    return round(row), round(column)


@in_browser
def test_the_most_similar_patch_is_circled_where_the_words_say_that_it_is(opened):
    page = opened()
    for name, patch in (("china", (26, 30)), ("cat", (12, 17))):
        page.get_by_role("button", name=name).click()
        page.mouse.click(*center(page, patch))
        page.mouse.move(0, 0)
        said(page, name, patch)
        places = re.findall(r"\((\d+), (\d+)\), cosine", page.inner_text("#photo-said"))
        before, after = (tuple(map(int, place)) for place in places)
        assert circled(page, 0, "before") == circled(page, 1, "before") == before
        assert circled(page, 0, "after") == circled(page, 2, "after") == after
        assert page.locator(".found").count() == 4
    page.check("#components-on")
    assert circled(page, 2, "after") == after


@in_browser
def test_without_decompression_the_page_says_what_it_needs_and_the_rest_works(
    chromium, live_address
):
    with page_of(chromium, **CALM, viewport=DESKTOP) as (page, wrong):
        page.add_init_script("delete window.DecompressionStream")
        page.goto(live_address)
        page.wait_for_selector("#said:not(:empty)", state="attached")
        told = page.inner_text("#photo-said")
        assert "DecompressionStream" in told and "Chrome" in told and len(told) < 300
        assert not page.is_visible("#photo-choice") and not page.is_visible("#photo-maps")
        page.click("#samples button >> nth=7")
        page.wait_for_selector("#said:has-text('a 7')", state="attached")
        page.click("#start-tour")
        assert page.is_visible("#tour") and wrong == NOTHING


def colors_of(page, nth):
    """The colors of a map, 0 before the blocks and 1 after: (N, 4)"""
    return np.array(page.locator("#photo-maps canvas").nth(nth + 1).evaluate(CELLS)).reshape(-1, 4)


@in_browser
@pytest.mark.parametrize(
    ("name", "patch"), [("china", (6, 16)), ("flower", (0, 44)), ("cat", (13, 32))]
)
def test_cosines_on_the_page_are_those_of_numpy(opened, name, patch):
    page = opened()
    lab = f"{bundle('photo.js')}\nwindow.similar = {SIMILAR};"
    page.add_script_tag(content=lab)
    found = page.evaluate("([name, n]) => similar([name, n])", [name, patch_number(patch)])
    photo = next(one for one in photos_data()["photos"] if one["name"] == name)
    for stage in LAYERS:
        numbers = np.array(found[stage])
        exact = cosines_of(unpack(photo[stage]))[patch_number(patch)]
        assert np.abs(numbers - exact).max() < 1e-5
        stored = stored_cosines(name, stage)[patch_number(patch)]
        assert np.abs(numbers - stored).max() <= ERROR


@in_browser
def test_a_patch_is_pointed_at_kept_and_moved(opened):
    page = opened()
    said(page, "china", (6, 16))
    page.mouse.move(*center(page, (26, 30)))
    said(page, "china", (26, 30))
    page.mouse.move(0, 0)
    said(page, "china", (6, 16))  # nothing was clicked
    page.mouse.click(*center(page, (26, 30)))
    page.mouse.move(0, 0)
    said(page, "china", (26, 30))
    photo_of(page).focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
    said(page, "china", (24, 31))
    page.get_by_role("button", name="cat").click()
    page.get_by_role("button", name="cat").press("ArrowLeft")
    said(page, "flower", (24, 31))
    cosines = [stored_cosines("flower", stage)[patch_number((24, 31))] for stage in LAYERS]
    for nth, wanted in enumerate(cosines):
        low, high = (
            colormaps[style.SIGNED]((wanted + shift + 1) / 2, bytes=True)[:, :3].astype(int)
            for shift in (-ERROR, ERROR)
        )
        colors = colors_of(page, nth)
        apart = np.maximum(np.minimum(low, high) - colors[:, :3], 0)
        apart += np.maximum(colors[:, :3] - np.maximum(low, high), 0)
        assert apart.max() <= 8 and (colors[:, 3] == 255).all()  # colors do not rise evenly
        assert len(np.unique(colors, axis=0)) > 20


@in_browser
def test_a_finger_picks_a_patch_on_the_photo_and_on_a_map(opened):
    page = opened(viewport=PHONE, has_touch=True)
    page.touchscreen.tap(*center(page, (10, 20)))
    said(page, "china", (10, 20))
    after = page.locator("#photo-maps .vit-photo").nth(2)
    after.scroll_into_view_if_needed()
    box = after.bounding_box()
    page.touchscreen.tap(box["x"] + 3, box["y"] + 3)
    said(page, "china", (0, 0))


@in_browser
def test_components_are_switched_on_and_off(opened):
    page = opened()
    similar = [colors_of(page, nth) for nth in (0, 1)]
    assert not page.is_visible("#components")
    page.check("#components-on")
    tokens = read_photo_features("china").tokens
    for nth, block in enumerate(LAYERS.values()):
        wanted = as_colors(tokens[block], GRID)[:, ::14, ::14].flatten(1).T.numpy()
        assert np.abs(colors_of(page, nth)[:, :3] / 255 - wanted).max() < 0.1
    for number, name in enumerate(("1 red", "2 green", "3 blue")):
        before = colors_of(page, 1)
        page.get_by_label(name).uncheck()
        colors = colors_of(page, 1)
        assert (colors[:, number] == 0).all() and before[:, number].any()
        page.get_by_label(name).check()
        assert (colors_of(page, 1) == before).all()
    assert not page.is_visible("#photo-maps .vit-scale")
    page.uncheck("#components-on")
    assert all((colors_of(page, nth) == similar[nth]).all() for nth in (0, 1))


@in_browser
def test_photo_maps_and_controls_are_on_one_screen(opened):
    page = opened()
    boxes = [one.bounding_box() for one in page.locator("#photo-maps .vit-photo").all()]
    parts = [
        *boxes,
        *(page.locator(f"#{name}").bounding_box() for name in ("photo-choice", "photo-said")),
    ]
    assert len(boxes) == 3 and len({round(box["y"]) for box in boxes}) == 1
    assert all(box["width"] > 350 and box["height"] > 230 for box in boxes)
    assert all(box["y"] >= 0 and box["y"] + box["height"] <= 800 for box in parts)


@in_browser
def test_on_a_phone_the_maps_are_below_the_photo(opened):
    page = opened(viewport=PHONE)
    boxes = [one.bounding_box() for one in page.locator("#photo-maps .vit-photo").all()]
    assert all(box["x"] == boxes[0]["x"] and box["width"] > 340 for box in boxes)
    tops, bottoms = [box["y"] for box in boxes], [box["y"] + box["height"] for box in boxes]
    assert bottoms[0] < tops[1] and bottoms[1] < tops[2]
    assert bottoms[2] - tops[0] < PHONE["height"]  # all three at once
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.evaluate("top => scrollBy(0, top)", tops[0])
    edge = "document.elementFromPoint(386, 400).closest('#photos, #strip').id"
    assert page.evaluate(edge) == "photos"  # the strip is the digit's
    assert not page.locator("#answer-box").bounding_box()["y"] >= 0  # the digit is elsewhere


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_serious(opened, scheme, size):
    page = opened(color_scheme=scheme, viewport=size)
    page.check("#components-on")
    assert accessibility(page) == []


@in_browser
def test_every_control_can_be_reached_with_the_keyboard(opened):
    page = opened()
    page.check("#components-on")
    reached = []
    page.get_by_role("button", name="china").focus()
    for _ in range(6):
        reached.append(
            page.evaluate(
                "(({title, id, labels, role}) => "
                "title || id || labels?.[0].textContent.trim() || role)(document.activeElement)"
            )
        )
        page.keyboard.press("Tab")
    assert reached == ["china", "components-on", "1 red", "2 green", "3 blue", "application"]


SHUFFLED = """n => { // digit n: with positions and without, each also with shuffled patches
  document.querySelectorAll("#samples button")[n].click()
  const canvas = document.getElementById("canvas"), {width, height} = canvas
  const {data} = canvas.getContext("2d").getImageData(0, 0, width, height)
  const ink = Array.from({length: width * height}, (_, i) => data[4 * i + 3] / 255)
  const read = (switches) => (vit.set(switches), vit.read(ink, width, height).probabilities)
  return [[true, false], [true, true], [false, false], [false, true]].map(
    ([positions, shufflePatches]) => read({positions, shufflePatches}))
}"""


@in_browser
def test_without_positions_the_order_is_lost(opened):
    """What the page's first part says of itself"""
    page, changed = opened(), []
    assert len(page.locator("#token-list [data-token]").all()) == 17
    for digit in range(10):
        right, shuffled, lost, lost_too = torch.tensor(page.evaluate(SHUFFLED, digit))
        assert torch.allclose(lost, lost_too, atol=1e-5)
        changed.append((right - shuffled).abs().max().item())
    assert min(changed) > 0.01


def test_each_part_names_what_it_repairs():
    page = live_page()
    assert len(re.findall(r'<p class="repairs"><b>Misconception:</b> “[^”]+”', page)) == 2
    data = re.search(r'<script id="photo-data" type="application/json">([^<]+)<', page)[1]
    assert json.loads(data) == json.loads(json.dumps(photos_data()))
