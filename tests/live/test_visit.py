"""The live page as a visitor meets it in Chromium.

Drawing, stages, switches, the tour, and ways of reading it.
"""

import re

import pytest
from browser import CALM, IN_BROWSER, NOTHING, accessibility, contrast, page_of

from vit_helpers.live.page import HERE, live_page
from vit_helpers.results import read_results

pytestmark = IN_BROWSER
SCRIPT = (HERE / "pen.js").read_text(encoding="utf-8")
SEVEN = [(0.25, 0.15), (0.75, 0.15), (0.45, 0.9)]
STEPS = ("00", "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11")
# at 200 %, 1280 x 900 has half of the pixels
PHONE, ZOOMED = ({"width": 360, "height": 740}, {"width": 640, "height": 450})
BUGS = {
    "positions": False,
    "shufflePatches": True,
    "bareReshape": True,
    "scaling": False,
    "softmaxAxis": "queries",
    "untrained": True,
}
INK = """() => { // what is on the canvas, as window.vit.read takes it
  const canvas = document.getElementById("canvas"), {width, height} = canvas
  const {data} = canvas.getContext("2d").getImageData(0, 0, width, height)
  const ink = Array.from({length: width * height}, (_, i) => data[4 * i + 3] / 255)
  return vit.read(ink, width, height)
}"""

NAME = """(({id, className, dataset, textContent}) =>
  id || className || dataset.switch || textContent)(document.activeElement)"""


@pytest.fixture
def opened(chromium, live_address):
    """A page that has read its example; in the end nothing may have gone wrong on it."""
    with page_of(chromium, **CALM) as (page, wrong):
        console = watch(page)
        page.goto(live_address)
        settle(page)
        yield page
        assert wrong == NOTHING and console == []


def watch(page):
    """The list of what the console will show"""
    console = []
    page.on("console", lambda message: console.append(f"{message.type}: {message.text}"))
    return console


def settle(page):
    """Wait until nothing has changed for a moment, so that everything has been said."""
    page.wait_for_timeout(450)


def draw(page, points, pointer=True):
    """Draw a stroke with the mouse: points as fractions of the canvas."""
    page.locator("#canvas").scroll_into_view_if_needed()
    box = page.locator("#canvas").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=12)
    page.mouse.up()
    page.mouse.move(0, 0)
    settle(page)


def press(page, keys):
    for key in keys.split():
        name, _, times = key.partition("*")
        for _ in range(int(times or 1)):
            page.keyboard.press(name)


def shows(page, read):
    """Assert that answer, bars and table of logits show what `window.vit.read` returned."""
    digit, percentage = re.fullmatch(
        r"I read an? (\d), (?:>|<)?(\d+)%.*", page.inner_text("#said")
    ).groups()
    probabilities = read["probabilities"]
    assert int(digit) == read["digit"]
    assert abs(int(percentage) - 100 * probabilities[read["digit"]]) <= 1
    rows = page.locator("#logits tbody tr").all_inner_texts()
    for row, logit, probability in zip(rows, read["logits"], probabilities, strict=True):
        numbers = re.findall(r"−?[\d.]+", row)
        assert abs(float(numbers[1].replace("−", "-")) - logit) <= 0.0051
        assert abs(float(numbers[2]) - 100 * probability) <= 1
    assert len(page.locator("#odds li").all()) == len(probabilities)


def in_view(page):
    return page.evaluate("[document.documentElement.scrollWidth, innerWidth]")


# Drawing


def test_the_page_opens_with_an_example_that_is_read(opened):
    assert opened.inner_text("#said").startswith("I read a 3, ")
    assert "example" in opened.inner_text("#example")
    shows(opened, opened.evaluate(INK))


def test_what_the_mouse_draws_replaces_the_example_and_is_read(opened):
    before = opened.evaluate(INK)["pixels"]
    draw(opened, SEVEN)
    assert opened.inner_text("#example") == ""
    read = opened.evaluate(INK)
    assert read["pixels"] != before
    # the bar of the 7 fills the first row, of the 3 nothing is left there
    assert sum(read["pixels"][:16]) > 8
    assert sum(read["pixels"][5 * 16 : 5 * 16 + 6]) < 0.5
    shows(opened, read)
    draw(opened, [(0.3, 0.5), (0.7, 0.5)])  # a second stroke is added
    assert sum(opened.evaluate(INK)["pixels"]) > sum(read["pixels"])


def test_a_finger_draws(chromium, live_address):
    with page_of(chromium, has_touch=True, viewport=PHONE, **CALM) as (page, wrong):
        page.goto(live_address)
        settle(page)
        box = page.locator("#canvas").bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        settle(page)
        assert box["y"] + box["height"] < PHONE["height"]  # the canvas is on the first screen
        # a dot fills the pixels, since it is cropped to its ink
        assert sum(page.evaluate(INK)["pixels"]) > 100
        assert wrong == NOTHING


def test_the_keyboard_draws_and_clears(opened):
    opened.focus("#canvas")
    press(opened, "ArrowUp*8 ArrowLeft*6 Space ArrowRight*12 ArrowDown*16 Space")
    settle(opened)
    assert "Pen up" in opened.inner_text("#pen-said")
    read = opened.evaluate(INK)
    pixels = [read["pixels"][16 * row : 16 * row + 16] for row in range(16)]
    assert sum(pixels[0]) > 8 and sum(row[-1] for row in pixels) < sum(map(sum, pixels)) / 2
    # a bar at the top and one at the right, nothing below at the left
    assert sum(row[0] for row in pixels[4:]) < 0.1
    shows(opened, read)
    press(opened, "ArrowLeft*5")  # the pen is up
    settle(opened)
    assert opened.evaluate(INK)["pixels"] == read["pixels"]
    press(opened, "Escape")
    settle(opened)
    assert opened.inner_text("#said").startswith("Nothing drawn yet")
    assert opened.is_visible("#pixels-note")
    assert set(opened.locator("#odds .part").all_inner_texts()) == {"–"}


def test_samples_and_clear(opened):
    right = 0
    for digit in range(10):
        opened.click(f"#samples button >> nth={digit}")
        settle(opened)
        shows(opened, read := opened.evaluate(INK))
        right += read["digit"] == digit
    assert right >= 9  # they are ordinary digits
    opened.click("#clear")
    settle(opened)
    assert opened.inner_text("#answer") == "Nothing drawn yet"
    with pytest.raises(Exception, match="drawing is empty"):
        opened.evaluate(INK)
    opened.click("#scribble")  # and the page goes on
    settle(opened)
    shows(opened, opened.evaluate(INK))


def test_a_drawing_by_api_leaves_the_page_alone(opened):
    said = opened.inner_text("#said")
    bar = "vit.read(Array.from({length: 400}, (_, i) => +(i % 20 > 8 && i % 20 < 12)), 20, 20)"
    assert set(opened.evaluate(bar)) >= {
        "digit",
        "probabilities",
        "logits",
        "attention",
        "tokens",
        "pixels",
    }
    for bad in (
        "vit.read([], 20, 20)",
        "vit.read(Array(400).fill(NaN), 20, 20)",
        "vit.read(Array(400).fill(0), 20, 20)",
    ):
        with pytest.raises(Exception, match="Error"):
            opened.evaluate(bad)
    settle(opened)
    assert opened.inner_text("#said") == said


# Stages


def test_the_table_of_a_head_shows_the_numbers_of_the_forward_pass(opened):
    opened.select_option("#pick-block", index=2)
    opened.select_option("#pick-head", index=1)
    opened.select_option("#pick-token", index=6)
    seen = opened.evaluate(f"vit.forward(({INK})().pixels)")
    q, k, weights = seen["q"][2][1][6], seen["k"][2][1], seen["attention"][2][1][6]
    for row, key, weight in zip(opened.locator("#scores tbody tr").all(), k, weights, strict=True):
        score, part = row.locator(".number").inner_text(), row.locator(".part").inner_text()
        expected = sum(a * b for a, b in zip(q, key, strict=True)) / len(q) ** 0.5
        assert abs(float(score.replace("−", "-")) - expected) <= 0.0051
        assert abs(float(part.strip("<>%")) - 100 * weight) <= 1
    assert opened.inner_text("#weight-sum") == "100%"
    opened.click("#exact summary")
    opened.locator("#exact-numbers", has_text="q = [").wait_for()
    numbers = (
        re.search(r"q = \[(.*?)\]", opened.inner_text("#exact-numbers"))[1]
        .replace("−", "-")
        .split(", ")
    )
    assert (
        max(abs(float(text) - number) for text, number in zip(numbers, q, strict=True)) <= 0.00051
    )


def test_tokens_are_selected_by_pointer_and_by_keyboard(opened):
    def selected():
        return opened.locator("#token-list [aria-checked=true]").get_attribute("data-token")

    assert selected() == "0" and opened.inner_text("#maps-name") == "the class token"
    opened.hover("#token-list [data-token='7']")
    assert selected() == "0" and opened.inner_text("#maps-name") == "token 7"
    opened.mouse.move(0, 0)
    assert opened.inner_text("#maps-name") == "the class token"
    opened.click("#token-list [data-token='7']")
    press(opened, "ArrowRight ArrowRight")
    assert selected() == "9" and opened.input_value("#pick-token") == "9"
    assert opened.evaluate("document.activeElement.dataset.token") == "9"
    press(opened, "End ArrowRight")
    assert selected() == "0"
    opened.click("#cut", position={"x": 10, "y": 10})
    assert selected() == "1" and opened.inner_text("#patch-caption") == "Patch 1"


def test_the_lens_shows_every_block(opened):
    seen = opened.evaluate(f"vit.forward(({INK})().pixels)")
    rows = opened.locator("#lens tbody tr td:last-child").all_inner_texts()
    assert len(rows) == len(seen["lens"]) == opened.evaluate("vit.config.depth") + 1
    for text, parts in zip(rows, seen["lens"], strict=True):
        assert text.startswith(f"{parts.index(max(parts))}, ")


def test_the_text_names_the_numbers_of_the_model(opened):
    config = opened.evaluate("vit.config")
    for place in opened.locator("[data-n]").all():
        name = place.get_attribute("data-n")
        if name in config:
            assert place.inner_text() == str(config[name])
    assert opened.locator("[data-n=parameters]").inner_text() == "202,954"


def test_the_page_says_how_well_its_model_reads(opened):
    # the weights of the page have seed 0
    rows = read_results("drawn").query("seed == 0 and digit >= 0")
    rows = rows.assign(right=rows["accuracy"] * rows["images"])
    drawings, written = rows[rows["kind"] != "handwriting"], rows[rows["kind"] == "handwriting"]

    def accuracy(group):
        return group["right"].sum() / group["images"].sum()

    kinds, digits = (
        {name: accuracy(group) for name, group in drawings.groupby(by)} for by in ("kind", "digit")
    )
    said = opened.inner_text("#honest")
    assert (
        f"Of {drawings['images'].sum():,} digits" in said
        and f"reads {accuracy(drawings):.0%} correctly" in said
    )
    assert (
        f"Of {written['images'].sum()} handwritten" in said
        and f"training it reads {accuracy(written):.0%}" in said
    )
    assert (
        len(kinds) == 10
        and f"{min(kinds, key=kinds.get)} strokes ({min(kinds.values()):.0%})" in said
    )
    worst = min(digits, key=digits.get)
    assert f"the hardest digit is the {worst} ({digits[worst]:.0%})" in said


def test_a_letter_may_be_read_with_high_confidence(opened):
    opened.click("#clear")
    draw(opened, [(0.2, 0.15), (0.8, 0.15), (0.2, 0.85), (0.8, 0.85)])
    assert opened.evaluate(f"vit.forward(({INK})().pixels).confidence") > 0.8  # a Z


def test_a_step_of_the_tour_shows_what_it_asks_for(chromium, live_address):
    with page_of(chromium, viewport=PHONE, **CALM) as (page, _):
        page.goto(live_address)
        settle(page)
        page.click("#start-tour")
        wanted = {
            0: "#canvas",
            7: "[data-switch=untrained]",
            8: "[data-head='3,0']",
            9: "[data-switch=bareReshape]",
        }
        for step in range(10):
            settle(page)
            if step in wanted:
                box, panel = (
                    page.locator(wanted[step]).bounding_box(),
                    page.locator("#tour").bounding_box(),
                )
                assert box["y"] >= 0 and box["y"] + box["height"] <= panel["y"], step
            page.click("#tour-next")


# Switches


@pytest.mark.parametrize("name", BUGS)
def test_a_switch_changes_the_answer_as_the_model_with_this_bug(opened, name):
    before = opened.evaluate(INK)
    opened.check(f"[data-switch={name}]")
    settle(opened)
    assert opened.evaluate(f"vit.switches.{name}") == BUGS[name]
    read = opened.evaluate(INK)
    assert read["logits"] != before["logits"]
    if name == "untrained":
        assert "every digit gets 10%" in opened.inner_text("#said")
    else:
        shows(opened, read)
    assert opened.is_visible("#altered")
    opened.click("#restore")
    settle(opened)
    assert not opened.is_checked(f"[data-switch={name}]") and not opened.is_visible("#altered")
    assert opened.evaluate(INK) == before


def test_switches_set_by_api_show_on_the_page(opened):
    heads = [[True] * 4 for _ in range(4)]
    heads[1][2] = False
    opened.evaluate("heads => vit.set({scaling: false, softmaxAxis: 'queries', heads})", heads)
    settle(opened)
    assert opened.is_checked("[data-switch=scaling]") and opened.is_checked(
        "[data-switch=softmaxAxis]"
    )
    assert opened.get_attribute("[data-head='1,2']", "aria-pressed") == "false"
    assert "1 head off" in opened.inner_text("#altered-what")
    assert opened.inner_text("#weight-sum") != "100%"
    shows(opened, opened.evaluate(INK))
    with pytest.raises(Exception, match="TypeError"):
        opened.evaluate("vit.set({scaling: 3})")
    assert opened.evaluate("vit.set({scaling: true}).scaling") is True
    assert not opened.is_checked("[data-switch=scaling]")


def test_a_click_switches_a_head_off_and_on(opened):
    before = opened.evaluate(INK)
    opened.click("[data-head='3,0']")
    opened.mouse.move(0, 0)
    settle(opened)
    assert opened.evaluate("vit.switches.heads[3]") == [False, True, True, True]
    shows(opened, read := opened.evaluate(INK))
    assert read["logits"] != before["logits"]
    label = opened.get_attribute("[data-head='3,0']", "aria-label")
    assert label.startswith("Head 1 of block 4. The class token attends most to")
    opened.focus("[data-head='3,0']")
    press(opened, "Space")
    settle(opened)
    assert opened.evaluate(INK) == before and opened.evaluate("vit.switches.heads") is None


# The tour


def surest(page):
    """The strokes of the sample that the model is surest of, as a hand may draw them"""
    parts = []
    for digit in range(10):
        page.click(f"#samples button >> nth={digit}")
        settle(page)
        parts.append(page.evaluate(INK)["confidence"])
    page.click("#clear")
    samples = re.search(r"SAMPLES = \[(.*?)\]\.map", SCRIPT, re.S)[1]
    strokes = re.findall(r'"([^"]+)"', samples)[parts.index(max(parts))].split("|")
    return [
        [tuple(int(z) / 100 for z in point.split(",")) for point in stroke.split()]
        for stroke in strokes
    ]


def answer(page, step):
    """Do what a step of the tour asks for."""
    seen = page.evaluate(f"vit.forward(({INK})().pixels)")
    if step == 0:
        for stroke in surest(page):
            draw(page, stroke)
    elif step == 1:
        inks = [sum(patch) for patch in seen["patches"]]
        page.click(f"#token-list [data-token='{inks.index(min(inks)) + 1}']")
        assert "There is a patch with more" in page.inner_text("#tour-state")
        page.click(f"#token-list [data-token='{inks.index(max(inks)) + 1}']")
    elif step == 2:
        page.check("[data-switch=positions]")
        said = page.inner_text("#answer")
        assert "Now shuffle" in page.inner_text("#tour-state")
        page.check("[data-switch=shufflePatches]")
        assert page.inner_text("#answer") == said
    elif step == 3:
        most = [max(row) for row in seen["attention"][0][0]]
        page.select_option("#pick-token", index=most.index(max(most[1:])))
    elif step == 4:
        for block in range(4):
            for head in range(4):
                if page.locator("#tour.solved").count() == 0:
                    page.click(f"[data-head='{block},{head}']")
    elif step in (5, 11):
        for choice in page.locator("#tour-choices button").all():
            if choice.is_enabled():  # until the right one
                choice.click()
    elif step == 6:
        page.click("#clear")
        draw(page, [(0.4, 0.4), (0.55, 0.4), (0.48, 0.6)])
    elif step in (7, 9):
        page.check(f"[data-switch={'untrained' if step == 7 else 'bareReshape'}]")
    elif step == 8:
        most = [max(head[0]) for head in seen["attention"][-1]]
        page.click(f"[data-head='3,{most.index(max(most))}']")
    elif step == 10:
        page.click("[data-head='0,0']")
        for digit in (2, 4, 7):
            page.click(f"#samples button >> nth={digit}")
            settle(page)


def test_the_tour_can_be_answered_to_its_end(opened):
    opened.click("#start-tour")
    for step, notebook in enumerate(STEPS):
        settle(opened)
        assert opened.inner_text("#tour-count") == f"{step + 1} of {len(STEPS)}"
        assert f"Notebook {notebook}" in opened.inner_text("#tour-notebook")
        assert opened.evaluate("document.activeElement.id") == "tour-title"
        assert opened.locator("#tour.solved").count() == 0, (
            f"step {step} was solved before anything was done"
        )
        answer(opened, step)
        settle(opened)
        assert opened.locator("#tour.solved").count() == 1, (
            f"step {step}: {opened.inner_text('#tour')}"
        )
        assert len(opened.inner_text("#tour-state")) > 60
        opened.click("#tour-next")
    assert not opened.is_visible("#tour")
    assert opened.evaluate("document.activeElement.id") == "start-tour"
    assert not opened.is_visible("#altered")


def test_the_tour_can_be_skipped_and_left_with_the_keyboard(opened):
    opened.focus("#start-tour")
    press(opened, "Enter")
    titles = []
    for _ in STEPS:
        titles.append(opened.inner_text("#tour-title"))
        opened.focus("#tour-next")
        press(opened, "Enter")
    assert len(set(titles)) == len(STEPS) and not opened.is_visible("#tour")
    press(opened, "Enter")
    opened.click("#tour-next")
    opened.click("#tour-back")
    assert opened.inner_text("#tour-title") == titles[0]
    press(opened, "Tab Tab")  # nothing holds the focus in the panel
    for _ in range(6):
        press(opened, "Tab")
    opened.focus("#tour-close")
    press(opened, "Escape")
    assert (
        not opened.is_visible("#tour")
        and opened.evaluate("document.activeElement.id") == "start-tour"
    )
    opened.focus("#canvas")
    press(opened, "Escape")
    settle(opened)
    assert opened.inner_text("#answer") == "Nothing drawn yet"


# Ways of reading


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(chromium, live_address, scheme):
    with page_of(chromium, color_scheme=scheme, **CALM) as (page, wrong):
        page.goto(live_address)
        settle(page)
        assert accessibility(page) == []
        heads = "[[false,true,true,true],...Array(3).fill(Array(4).fill(true))]"
        page.evaluate(f"vit.set({{positions: false, heads: {heads}}})")
        page.click("#token-list [data-token='6']")
        page.click("#start-tour")
        page.click("#tour-next")
        answer(page, 1)
        settle(page)
        assert contrast(page) == []
        page.click("#tour-close")
        page.click("#clear")
        settle(page)
        assert accessibility(page) == []
        assert wrong == NOTHING


@pytest.mark.parametrize(
    "size", [PHONE, ZOOMED, {"width": 320, "height": 600}], ids=["phone", "zoomed", "reflow"]
)
def test_narrow_pages_scroll_in_one_direction_only(chromium, live_address, size):
    with page_of(chromium, viewport=size, **CALM) as (page, wrong):
        page.goto(live_address)
        settle(page)
        wide, window = in_view(page)
        assert wide <= window
        page.evaluate("vit.set({positions: false, softmaxAxis: 'queries', untrained: true})")
        page.click("#start-tour")
        for _ in STEPS[1:]:
            wide, window = in_view(page)
            assert wide <= window
            panel = page.locator("#tour").bounding_box()
            assert panel["height"] <= size["height"] / 2
            for name in ("back", "next", "close"):
                button = page.locator(f"#tour-{name}").bounding_box()
                assert (
                    panel["y"] <= button["y"] and button["y"] + button["height"] <= size["height"]
                )
            page.click("#tour-next")
        page.click("#tour-close")
        page.locator("#bugs").scroll_into_view_if_needed()
        assert page.locator("#answer").bounding_box()["y"] >= 0  # the answer stays in sight
        assert wrong == NOTHING


def test_every_control_can_be_reached_with_the_keyboard(opened):
    reached = set()
    opened.focus(".skip")
    for _ in range(80):
        reached.add(opened.evaluate(NAME))
        press(opened, "Tab")
    assert reached >= {
        "canvas",
        "clear",
        "scribble",
        "start-tour",
        "pick-block",
        "pick-head",
        "pick-token",
        "head",
        *BUGS,
    }
    assert "9" in reached


def test_no_animation_where_motion_is_unwanted(opened):
    animated = """[...document.querySelectorAll('*')].filter(
        e => getComputedStyle(e).transitionDuration !== '0s'
    ).length"""
    opened.click("#samples button >> nth=2")
    opened.wait_for_timeout(60)
    first = opened.evaluate(INK)["pixels"]
    settle(opened)
    assert opened.evaluate(INK)["pixels"] == first and opened.evaluate(animated) == 0


def test_links_to_notebooks_appear_once_there_is_an_address(chromium, tmp_path):
    path = tmp_path / "live.html"
    path.write_text(live_page(address="https://example.org/owner/name"), encoding="utf-8")
    with page_of(chromium, **CALM) as (page, wrong):
        page.goto(path.as_uri())
        links = page.eval_on_selector_all(
            "#notebooks li a", "links => links.map(link => link.href)"
        )
        assert len(links) == 13
        assert links[3] == "https://example.org/owner/name/blob/main/notebooks/03_attention.ipynb"
        page.goto(path.as_uri())
        path.write_text(live_page(address=""), encoding="utf-8")
        page.reload()
        assert page.locator("#notebooks li a[href]").count() == 0
        assert wrong == NOTHING
