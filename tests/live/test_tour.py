"""The guided tour of the live page: where its steps begin, what its dock shows, what it says."""

import re

import pytest
from browser import CALM, IN_BROWSER, NOTHING, page_of

from tests.live.test_visit import INK, SCRIPT, STEPS, settle
from vit_helpers.live.page import bundle

pytestmark = IN_BROWSER
WIDE = [{"width": 1366, "height": 768}, {"width": 1280, "height": 800}]
PHONE = {"width": 390, "height": 844}
TOUCH = {"viewport": PHONE, "has_touch": True, "is_mobile": True}
SIZES = {f"{s['width']}x{s['height']}": s for s in (*WIDE, PHONE)}
# what a visitor looks at or acts on in each step
LOOK = {
    0: ("#canvas", "#answer"),
    1: ("#cut",),
    2: ("[data-switch=positions]", "[data-switch=shufflePatches]", "#answer"),
    3: ("#pick-token", "#query-bars", "#answer"),
    4: ("[data-head='0,0']", "[data-head='0,3']", "#answer"),
    5: ("#lens", "#answer"),
    6: ("#canvas", "#answer"),
    7: ("[data-switch=untrained]", "#answer"),
    8: ("[data-head='3,0']", "[data-head='3,3']", "#answer"),
    9: ("[data-switch=bareReshape]", "#answer"),
    10: ("[data-head='0,0']", "[data-head='0,3']", "#answer"),
    11: ("#pick-token", "#answer"),
}
ODDS = ("#odds li:first-child", "#odds li:last-child")
BROKEN = """vit.set({positions: false, shufflePatches: true, scaling: false,
  heads: [[false, true, true, true], ...Array(3).fill(Array(4).fill(true))]})"""
HEALTHY = {
    "positions": True,
    "shufflePatches": False,
    "bareReshape": False,
    "scaling": True,
    "softmaxAxis": "keys",
    "untrained": False,
    "heads": None,
}


@pytest.fixture
def visit(chromium, live_address):
    """Open the page as visit(viewport=...); in the end nothing may have gone wrong on it."""
    opened = []

    def visit(**options):
        opened.append(page_of(chromium, **CALM, **options))
        page, wrong = opened[-1].__enter__()
        opened.append(wrong)
        page.goto(live_address)
        settle(page)
        return page

    yield visit
    for context, wrong in zip(opened[::2], opened[1::2], strict=True):
        context.__exit__(None, None, None)
        assert wrong == NOTHING


@pytest.fixture(scope="module")
def says(chromium):
    """Call a function of praise.js by its name, without the page around it."""
    names = re.findall(r"^function (\w+)", bundle("praise.js"), re.M)
    with page_of(chromium) as (page, wrong):
        page.goto("about:blank")
        lab = f"window.lab = {{ {', '.join(names)} }};"
        page.add_script_tag(content=f"{bundle('praise.js')}\n{lab}", type="module")
        page.wait_for_function("window.lab")
        yield lambda name, *facts: page.evaluate(
            "([name, facts]) => lab[name](...facts)", [name, facts]
        )
        assert not wrong["errors"]


def click(page, selector):
    """Click what may be off screen, without scrolling there as a mouse would have to"""
    page.eval_on_selector(selector, "element => element.click()")


def begin(page, step=0):
    click(page, "#start-tour")
    for _ in range(step):
        click(page, "#tour-next")
    settle(page)


def sample_strokes(digit, size=1.0):
    """The strokes of a sample, smaller: fractions of the drawing area"""
    samples = re.findall(r'"([^"]+)"', re.search(r"SAMPLES = \[(.*?)\]\.map", SCRIPT, re.S)[1])
    return [
        [
            tuple(0.5 + (int(z) / 100 - 0.5) * size for z in point.split(","))
            for point in stroke.split()
        ]
        for stroke in samples[digit].split("|")
    ]


def trace(page, stroke):
    """Draw a stroke with the mouse, from point to point: of the drawing area, which is in sight"""
    box = page.locator("#canvas").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place)
    page.mouse.up()


def solve(page, step):
    """Do what a step asks for, as fast as a click needs no scrolling."""
    if step in (0, 6):
        click(page, "#clear")
        for stroke in sample_strokes(3, size=0.3 if step else 1):
            trace(page, stroke)
    elif step in (1, 3):
        seen = page.evaluate(f"vit.forward(({INK})().pixels)")
        most = [max(row) for row in seen["attention"][0][0][1:]]
        values = [sum(patch) for patch in seen["patches"]] if step == 1 else most
        click(page, f"#token-list [data-token='{values.index(max(values)) + 1}']")
    elif step in (2, 7, 9):
        names = {2: ("positions", "shufflePatches"), 7: ("untrained",), 9: ("bareReshape",)}
        for name in names[step]:
            click(page, f"[data-switch={name}]")
    elif step == 4:
        page.evaluate("""for (const head of document.querySelectorAll(".head"))
            if (!document.querySelector("#tour.solved")) head.click()""")
    elif step == 8:
        seen = page.evaluate(f"vit.forward(({INK})().pixels)")
        most = [max(head[0]) for head in seen["attention"][-1]]
        click(page, f"[data-head='3,{most.index(max(most))}']")
    elif step == 10:
        click(page, "[data-head='0,0']")
        for count, digit in enumerate((2, 4, 7), start=1):
            click(page, f"#samples button:nth-child({digit + 1})")
            read = page.locator(f"#tour.solved, #tour-state:has-text('read: {count} of 3')")
            read.first.wait_for()  # a busy machine needs time to read it
    elif step in (5, 11):
        page.evaluate("""for (const choice of document.querySelectorAll("#tour-choices button"))
            choice.click()""")
    page.locator("#tour.solved").wait_for()
    settle(page)


def chosen(page):
    """What is selected, switched and drawn, as a visitor can see it"""
    return page.evaluate("""() => ({
      switches: vit.switches,
      token: document.querySelector("#token-list [aria-checked=true]").dataset.token,
      block: document.getElementById("pick-block").value,
      head: document.getElementById("pick-head").value,
      token2: document.getElementById("pick-token").value,
      altered: !document.getElementById("altered").hidden,
      example: document.getElementById("example").textContent,
    })""")


def mess_up(page):
    """Do everything that a step may leave behind."""
    page.evaluate(BROKEN)
    page.select_option("#pick-block", index=2)
    page.select_option("#pick-head", index=1)
    click(page, "#token-list [data-token='7']")
    click(page, "#scribble")
    settle(page)


# Known states


def test_every_step_begins_from_the_same_state_and_restores_it(visit):
    page = visit(viewport=WIDE[0])
    page.evaluate("vit.set({scaling: false})")
    click(page, "#token-list [data-token='5']")
    page.select_option("#pick-head", index=2)
    before, pixels = chosen(page), page.evaluate(INK)["pixels"]
    begin(page)
    for step in range(len(STEPS)):
        settle(page)
        here = chosen(page)
        assert here["switches"] == HEALTHY and not here["altered"], step
        assert [here[name] for name in ("token", "token2", "block", "head")] == ["0"] * 4, step
        assert page.evaluate(INK)["confidence"] >= 0.8, step
        if step:  # the drawing of the first step stays
            mess_up(page)
        click(page, "#tour-next")
    settle(page)
    assert not page.is_visible("#tour")
    assert chosen(page) == before and page.evaluate(INK)["pixels"] == pixels


def test_closing_and_going_back_restore_too(visit):
    page = visit(viewport=WIDE[0])
    before = chosen(page)
    begin(page, step=3)
    mess_up(page)
    click(page, "#tour-back")
    settle(page)
    assert chosen(page) == before  # the step is about positions, and begins without a bug
    mess_up(page)
    click(page, "#tour-close")
    settle(page)
    assert chosen(page) == before


def test_a_digit_of_ones_own_stays_through_the_tour_but_a_doubtful_one_does_not(visit):
    page = visit(viewport=WIDE[0])
    begin(page)
    for stroke in sample_strokes(2):
        trace(page, stroke)
    settle(page)
    mine = page.evaluate(INK)
    assert mine["confidence"] > 0.8
    for _ in range(2):
        click(page, "#tour-next")
        settle(page)
        assert page.evaluate(INK)["pixels"] == mine["pixels"]
    page.reload()
    settle(page)
    begin(page)
    click(page, "#clear")
    trace(page, [(0.2, 0.2), (0.8, 0.8)])
    trace(page, [(0.2, 0.8), (0.8, 0.2)])
    settle(page)
    assert page.evaluate(INK)["confidence"] < 0.8
    click(page, "#tour-next")
    settle(page)
    assert page.evaluate(INK)["confidence"] > 0.8 and "example" in page.inner_text("#example")


def test_a_digit_that_is_there_already_counts_if_the_visitor_has_drawn_it(visit):
    page = visit(viewport=WIDE[0])
    click(page, "#clear")
    for stroke in sample_strokes(2):
        trace(page, stroke)
    settle(page)
    begin(page)
    page.locator("#tour.solved").wait_for()
    page.reload()
    settle(page)
    begin(page)
    solve(page, 0)
    click(page, "#tour-next")
    assert page.locator("#tour.solved").count() == 0
    click(page, "#tour-back")
    page.locator("#tour.solved").wait_for()  # it was drawn in the tour
    page.reload()
    settle(page)
    click(page, "#samples button >> nth=2")
    settle(page)
    begin(page)
    assert page.locator("#tour.solved").count() == 0


def test_the_digit_of_the_step_about_data_is_gone_in_the_next(visit):
    page = visit(viewport=WIDE[0])
    begin(page, step=6)
    pixels = page.evaluate(INK)["pixels"]
    solve(page, 6)
    assert page.evaluate(INK)["pixels"] != pixels
    click(page, "#tour-next")
    settle(page)
    assert page.evaluate(INK)["pixels"] == pixels


def test_a_bug_that_a_step_is_not_about_is_pointed_out(visit):
    page = visit(viewport=WIDE[0])
    begin(page, step=7)
    page.evaluate("vit.set({positions: false, untrained: true})")
    settle(page)
    assert page.locator("#tour.solved").count() == 0
    assert "Put everything back first" in page.inner_text("#tour-state")
    page.evaluate("vit.set({positions: true})")
    settle(page)
    assert page.locator("#tour.solved").count() == 1


def test_the_tour_stops_a_demonstration_that_is_running(visit):
    page = visit(viewport=WIDE[0])
    page.evaluate("window.stopDemo = () => { window.stopped = true; }")
    begin(page)
    assert page.evaluate("window.stopped") is True


# The pen


def test_a_small_drawing_has_thin_lines_and_is_read_as_a_large_one(visit):
    page = visit(viewport=WIDE[0])
    right, differ = 0, []
    for digit in range(10):
        click(page, f"#samples button:nth-child({digit + 1})")
        settle(page)
        large = page.evaluate(INK)["pixels"]
        click(page, "#clear")
        for stroke in sample_strokes(digit, size=0.36):  # 0.29 of the drawing area with its pen
            trace(page, stroke)
        settle(page)
        small = page.evaluate(INK)
        right += small["digit"] == digit and small["confidence"] > 0.6
        differ.append(sum(abs(a - b) for a, b in zip(small["pixels"], large, strict=True)) / 256)
    assert right >= 9 and max(differ) < 0.12


# The dock


def covered(page, selectors):
    """Those of the elements that are not wholly in sight: outside the window, or below something"""
    return page.evaluate(
        """(selectors) => selectors.filter((selector) => {
          const box = document.querySelector(selector).getBoundingClientRect()
          const points = [[1, 1], [box.width / 2, box.height / 2], [box.width - 1, box.height - 1]]
          return points.some(([x, y]) => {
            const found = document.elementFromPoint(box.left + x, box.top + y)
            return !found || found.closest("#tour") ||
              (found.closest("#answer-box") && selector !== "#answer")
          })
        })""",
        selectors,
    )


@pytest.mark.parametrize("size", SIZES)
def test_the_dock_never_hides_what_a_step_asks_to_look_at(visit, size):
    page = visit(**(TOUCH if SIZES[size] is PHONE else {"viewport": SIZES[size]}))
    begin(page)
    for step, look in LOOK.items():
        look = [*look, *(ODDS if SIZES[size] is not PHONE else ())]
        settle(page)
        assert covered(page, look) == [], f"step {step} at its beginning"
        solve(page, step)
        assert page.locator("#tour.solved").count() == 1, step
        assert covered(page, look) == [], f"step {step} when it is solved"
        dock, said = (page.locator(at).bounding_box() for at in ("#tour", "#tour-state"))
        assert said["y"] + said["height"] <= dock["y"] + dock["height"], step
        click(page, "#tour-next")


def shot(page, picture):
    """What is to be seen on a canvas of the dock"""
    return page.evaluate(
        "i => document.querySelectorAll('#tour-proof canvas')[i].toDataURL()", picture
    )


@pytest.mark.parametrize("size", SIZES)
def test_a_step_shows_patches_that_are_off_screen_before_and_after(visit, size):
    page = visit(**(TOUCH if SIZES[size] is PHONE else {"viewport": SIZES[size]}))
    begin(page, step=2)
    assert not page.is_visible("#tour-proof canvas")
    solve(page, 2)
    assert page.locator("#tour-proof canvas").count() == 2
    for picture in page.locator("#tour-proof canvas").all():
        box, dock = picture.bounding_box(), page.locator("#tour").bounding_box()
        assert box["y"] >= dock["y"] and box["y"] + box["height"] <= dock["y"] + dock["height"]
    before, after = shot(page, 0), shot(page, 1)
    assert before != after
    said = page.locator("#tour-proof small").all_inner_texts()
    healthy = page.evaluate(f"vit.set({{positions: true, shufflePatches: false}}) && ({INK})()")
    page.evaluate("vit.set({positions: false, shufflePatches: true})")
    broken = page.evaluate(INK)
    for name, text, read in zip(("before", "now"), said, (healthy, broken), strict=True):
        digit, part = re.fullmatch(rf"{name}: (\d), [<>]?(\d+)%", text).groups()
        assert int(digit) == read["digit"] and abs(int(part) - 100 * read["confidence"]) <= 1
    if SIZES[size] is PHONE:  # where between answer and dock there is no room for all patches
        return
    page.eval_on_selector("#patches-figure", "figure => figure.scrollIntoView()")
    settle(page)
    assert not page.is_visible("#tour-proof canvas")  # the patches themselves are in sight


def test_on_a_phone_the_dock_shows_the_probabilities_and_offers_samples(visit):
    page = visit(**TOUCH)
    begin(page, step=7)
    solve(page, 7)
    heights = page.eval_on_selector_all(
        "#tour-proof .columns",
        "all => all.map(one => [...one.querySelectorAll('i')]"
        ".map(bar => parseFloat(bar.style.height)))",
    )
    assert max(heights[0]) > 80 and heights[1] == pytest.approx([10] * 10)
    assert page.is_visible("#tour-proof .columns")
    for _ in range(3):
        click(page, "#tour-next")
    settle(page)
    page.tap("#tour-choices button:nth-child(8)")
    settle(page)
    assert "a 7" in page.inner_text("#said")


def test_the_step_about_training_does_not_give_its_answer_away(visit):
    page = visit(viewport=WIDE[0])
    begin(page, 7)
    for place in ("#tour", "#bug-untrained"):
        assert not re.search(r"10%|zero|every digit|equal", page.inner_text(place)), place
    click(page, "[data-switch=untrained]")
    settle(page)
    for place in ("#tour-state", "#bug-untrained"):
        assert re.search(r"10%.* zero", page.inner_text(place), re.S), place


def test_hints_on_keys_are_for_those_who_have_keys(visit):
    page = visit(viewport=WIDE[0])
    assert page.is_visible("#how-to-draw") and "arrow keys" in page.inner_text("#token-help")
    page = visit(**TOUCH)
    assert not page.is_visible("#how-to-draw")
    assert "arrow keys" not in page.inner_text("#token-help")


# What it says

THREE, SEVEN = {"name": "3", "confidence": 0.96}, {"name": "7", "confidence": 0.41}
FAINT = {"name": "3", "confidence": 0.55}
SAID = {  # facts, what must be said, what must not
    "heads, another digit": (
        ("praiseHeads", THREE, SEVEN, 3, 2),
        ("With 3 heads off, the model reads a 7 with 41% instead of a 3 with 96%", "loss of 2"),
        ("still", "depends"),
    ),
    "heads, the same digit": (
        ("praiseHeads", THREE, FAINT, 2, 1),
        ("With 2 heads off, it still reads a 3, but with 55% instead of 96%", "loss of 1 head,"),
        ("instead of a 3", "depends"),
    ),
    "the first head": (
        ("praiseHeads", THREE, SEVEN, 1, 0),
        ("With 1 head off", "depends on this head."),
        ("survived", "other heads"),
    ),
    "several heads at once": (
        ("praiseHeads", THREE, SEVEN, 4, 0),
        ("depends on these heads",),
        ("survived",),
    ),
    "a map that matters": (
        ("praiseMap", THREE, FAINT, 0.55, 0.9),
        ("the 3 goes from 96% to 55%. Here the answer does depend",),
        ("hardly", "surer", "the model reads"),
    ),
    "a map without which another digit is read": (
        ("praiseMap", THREE, SEVEN, 0.2, 0.9),
        ("from 96% to 20%, and the model reads a 7 with 41%. Here the answer does depend",),
        ("hardly", "surer"),
    ),
    "a map that hardly matters": (
        ("praiseMap", THREE, THREE, 0.95, 0.9),
        ("from 96% to 95%", "hardly depends"),
        ("does depend", "surer"),
    ),
    "a map that does harm": (
        ("praiseMap", FAINT, THREE, 0.96, 0.9),
        ("from 55% to 96%", "even surer"),
        ("depend",),
    ),
    "reshaped, another digit": (
        ("praiseReshape", THREE, SEVEN),
        ("goes from a 3 with 96% to a 7 with 41%. So after",),
        ("still",),
    ),
    "reshaped, less sure": (
        ("praiseReshape", THREE, FAINT),
        ("still reads a 3, although with 55% instead of 96%", "does not show the bug"),
        ("goes from", "as surely"),
    ),
    "reshaped, nothing to see": (
        ("praiseReshape", THREE, THREE),
        ("still reads a 3, with 96%, nearly as surely as before", "does not show the bug"),
        ("goes from", "although"),
    ),
    "all samples right": (
        ("praiseSamples", 3, 3, 3),
        ("3 of 3 correctly, as many as with all heads on, and", "0.37³"),
        ("worse",),
    ),
    "the whole model fails too": (
        ("praiseSamples", 1, 1, 3),
        ("1 of 3 correctly, as many as with all heads on", "do not know"),
        ("worse", "37%"),
    ),
    "one fewer": (
        ("praiseSamples", 2, 3, 3),
        ("2 of 3 correctly, fewer than with all heads on (3 of 3), and we still do not know",),
        ("worse", "37%"),
    ),
    "one more": (
        ("praiseSamples", 3, 2, 3),
        ("3 of 3 correctly, more than with all heads on (2 of 3)", "do not know"),
        ("worse",),
    ),
    "much worse": (
        ("praiseSamples", 1, 3, 3),
        ("1 of 3 correctly, fewer than with all heads on (3 of 3). So it is worse",),
        ("do not know", "37%"),
    ),
    "a small eight": (
        ("praiseSmall", 0.25, {"name": "8", "confidence": 0.9}),
        ("No. Your drawing is 25% as large", "reads an 8 with 90%"),
        ("looks thicker",),
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_praise_agrees_with_what_happened(says, case):
    facts, said, unsaid = SAID[case]
    text = says(*facts)
    assert all(part in text for part in said), text
    assert not any(part in text for part in unsaid), text


def test_an_answer_survives_while_its_digit_stays_and_it_falls_by_less_than_20_points(says):
    assert says("survives", THREE, THREE, 0.77)
    assert not says("survives", THREE, FAINT, 0.75)
    assert not says("survives", THREE, SEVEN, 0.9)


def test_heads_are_praised_for_what_they_did(visit):
    page = visit(viewport=WIDE[0])
    begin(page, step=4)
    before = page.evaluate(INK)
    solve(page, 4)
    after, text = page.evaluate(INK), page.inner_text("#tour-state")
    off = sum(not on for row in page.evaluate("vit.switches.heads") for on in row)
    assert f"With {off} head" in text
    same = before["digit"] == after["digit"]
    assert (f"it still reads a {after['digit']}" in text) == same
    assert ("the model reads a" in text) != same
    assert ("survived" in text) == (off > 1)
