"""The strip of the live page, one selection everywhere, and the classroom screen, in Chromium."""

import re
from itertools import pairwise

import pytest
from browser import CALM, IN_BROWSER, NOTHING, accessibility, contrast, page_of

from tests.live.test_visit import settle

pytestmark = IN_BROWSER
WIDE, PHONE = {"width": 1366, "height": 768}, {"width": 390, "height": 844}
PROJECTOR = {"width": 1920, "height": 1080}
STAGES = ["ink", "patches", "tokens", "block 1", "block 2", "block 3", "block 4", "answer"]
BROKEN = {  # a switch with its bug on, and the stages that it breaks
    "positions: false": {"tokens"},
    "shufflePatches: true": {"patches"},
    "bareReshape: true": {"patches"},
    "scaling: false": set(STAGES[3:7]),
    "softmaxAxis: 'queries'": set(STAGES[3:7]),
    "untrained: true": set(STAGES[2:]),
}
ALL_BUGS = {
    "positions": False,
    "shufflePatches": True,
    "scaling": False,
    "softmaxAxis": "queries",
}
NAMES = ["answer so far", "class token", "class"]
PICTURE = "document.querySelector('#strip canvas').toDataURL()"
SELECTED = """() => ({ // where the page marks the token that is looked at
  list: document.querySelector("#token-list .shown").dataset.token,
  table: [...document.querySelectorAll("#scores tbody tr")].findIndex((row) =>
    row.matches(".query")),
  choice: document.querySelector("#pick-token").value,
  maps: document.querySelector("#maps-name").textContent,
})"""
POINTED = """() => ["#token-list > *", "#scores tbody tr"].map((all) =>
  [...document.querySelectorAll(all)].findIndex((one) => one.classList.contains("pointed")))"""
SMALL = """(least) => { // what is smaller than that, of all text that is seen
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), small = []
  while (walker.nextNode()) {
    const {parentElement: one, textContent: text} = walker.currentNode
    const box = one.getBoundingClientRect(), read = !one.matches("option, script, style")
    if (!text.trim() || !read || !one.checkVisibility() || box.width < 2) continue
    if (parseFloat(getComputedStyle(one).fontSize) < least - 0.01) small.push(text.trim())
  }
  return small
}"""
ENDS = """() => Math.max(...[...document.querySelectorAll("main :is(p, canvas, svg, table)")]
  .filter((one) => !one.closest("#strip") && one.checkVisibility())
  .map((one) => one.getBoundingClientRect().right))"""
LABELS = """() => [...document.querySelectorAll("#strip li:not([hidden]) a")].map((link) => {
  const box = link.getBoundingClientRect()
  const read = link.querySelector("span").getBoundingClientRect()
  return {text: link.innerText, before: read.left - box.left, after: box.right - read.right,
    height: read.height, left: read.left, right: read.right, top: read.top,
    bottom: read.bottom, frame: [box.top, box.bottom]}
})"""
WRITE = """() => { // what is written in the picture, and where: [left, right, top, bottom]
  const write = CanvasRenderingContext2D.prototype.fillText
  window.written = {}
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
    if (this.canvas.closest("#strip")) {
      const box = this.canvas.getBoundingClientRect(), size = this.measureText(text)
      written[text] = [box.x + x - size.actualBoundingBoxLeft,
        box.x + x + size.actualBoundingBoxRight, box.y + y - size.actualBoundingBoxAscent,
        box.y + y + size.actualBoundingBoxDescent]
    }
    return write.call(this, text, x, y, ...rest)
  }
}"""
FRAMES = """() => Object.fromEntries([...document.querySelectorAll("#strip li:not([hidden])")].map(
  (stage) => {
    const {left, right, top, bottom} = stage.firstChild.getBoundingClientRect()
    return [stage.dataset.stage, [left, right, top, bottom]]
  }))"""
LETTERS = """() => { // the sizes of the letters that the picture's script writes on canvases
  const write = CanvasRenderingContext2D.prototype.fillText
  window.letters = []
  CanvasRenderingContext2D.prototype.fillText = function (...rest) {
    if (this.canvas.closest("#strip")) letters.push(parseFloat(this.font.match(/([\\d.]+)px/)[1]))
    return write.apply(this, rest)
  }
}"""


@pytest.fixture
def opened(chromium, live_address, request):
    """A page of the size that the test names, on which nothing may have gone wrong in the end"""
    options = getattr(request, "param", {"viewport": WIDE})
    with page_of(chromium, **CALM, **options) as (page, wrong):
        page.goto(live_address)
        settle(page)
        yield page
        assert wrong == NOTHING


def on(**options):
    return pytest.mark.parametrize("opened", [options], indirect=True)


def box_of(page, selector):
    return page.locator(selector).bounding_box()


def inside(box, size):
    return (
        box["x"] >= 0
        and box["y"] >= 0
        and box["x"] + box["width"] <= size["width"]
        and box["y"] + box["height"] <= size["height"]
    )


def apart(one, other):
    return any(
        first[at] + first[length] <= second[at]
        for at, length in (("x", "width"), ("y", "height"))
        for first, second in ((one, other), (other, one))
    )


def stages(page, chosen="li"):
    return [one.get_attribute("data-stage") for one in page.locator(f"#strip {chosen}").all()]


# The strip


def test_the_strip_names_all_stages_and_stays_in_view(opened):
    assert stages(opened) == STAGES
    for section in ("pixels", "attention", "result", "bugs"):
        opened.evaluate(f"document.getElementById('{section}').scrollIntoView()")
        strip, place = box_of(opened, "#strip"), box_of(opened, f"#{section} h2")
        assert inside(strip, WIDE) and strip["height"] >= 100, section
        assert place["y"] >= strip["y"] + strip["height"], f"the strip hides {section}"


def test_a_stage_leads_to_its_section(opened):
    for stage, place in (("answer", "#result"), ("block 3", "#block-2"), ("tokens", "#tokens")):
        link = opened.locator(f"#strip [data-stage='{stage}'] a")
        link.focus()
        opened.keyboard.press("Enter")
        settle(opened)
        strip, found = box_of(opened, "#strip"), box_of(opened, place)
        assert strip["height"] - 4 <= found["y"] < WIDE["height"] / 2, stage


def test_the_strip_says_which_stage_is_read(opened):
    for section, stage in (("patches", "patches"), ("block-2", "block 3"), ("result", "answer")):
        opened.evaluate(f"document.getElementById('{section}').scrollIntoView()")
        settle(opened)
        assert opened.locator("#strip [aria-current=location]").all_inner_texts() == [stage]


def test_the_strip_follows_the_drawing(opened):
    seen = [opened.evaluate(PICTURE)]
    for change in ("#samples button >> nth=7", "#clear", "[data-head='2,1']"):
        opened.click(change)
        settle(opened)
        seen.append(opened.evaluate(PICTURE))
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("bug", BROKEN)
def test_the_stage_that_a_bug_breaks_turns_amber(opened, bug):
    assert stages(opened, ".broken") == []
    plain = opened.evaluate("getComputedStyle(document.querySelector('#strip a')).backgroundColor")
    opened.evaluate(f"vit.set({{{bug}}})")
    settle(opened)
    assert set(stages(opened, ".broken")) == BROKEN[bug]
    for link in opened.locator("#strip .broken a").all():
        # for everyone: by its color, by what is written there, and by name
        assert link.evaluate("e => getComputedStyle(e).backgroundColor") != plain
        assert link.inner_text() not in STAGES
        assert re.fullmatch(r"[a-z]+( \d)?: .+", link.get_attribute("aria-label"))
    opened.click("#restore")
    assert stages(opened, ".broken") == [] and opened.inner_text("#strip").split("\n") == STAGES


def test_the_name_of_a_broken_stage_fits_its_frame(opened):
    opened.evaluate("vit.set({positions: false, shufflePatches: true, softmaxAxis: 'queries'})")
    for change, shown in (("{}", "no position"), ("{scaling: false}", "2 bugs")):
        opened.evaluate(f"vit.set({change})")
        settle(opened)
        labels = opened.evaluate(LABELS)
        assert shown in [label["text"] for label in labels]
        assert all(min(label["before"], label["after"]) >= 0 for label in labels), labels
    # all bugs of a stage are named to who cannot see them
    block = opened.locator("#strip [data-stage='block 1'] a")
    assert block.get_attribute("aria-label") == "block 1: not scaled, wrong axis"


@pytest.mark.parametrize("tour", [False, True])
@pytest.mark.parametrize("width", [960, 1180, 1366])
def test_no_name_of_a_stage_lies_over_another(chromium, live_address, width, tour):
    with page_of(chromium, **CALM, viewport={"width": width, "height": 800}) as (page, wrong):
        page.goto(live_address)
        settle(page)
        if tour:
            page.click("#start-tour")
        page.evaluate("document.getElementById('tokens').scrollIntoView()")  # its name is bold
        for bugs in ({}, ALL_BUGS, {**ALL_BUGS, "untrained": True, "positions": True}):
            page.evaluate("bugs => vit.set(bugs)", bugs)
            settle(page)
            labels = page.evaluate(LABELS)
            for one, other in pairwise(labels):
                assert one["right"] + 2 <= other["left"], (one, other)
            assert all(min(label["before"], label["after"]) >= 0 for label in labels), labels
            names_cross_no_frame(page, NAMES[1:])
        assert wrong == NOTHING


def names_cross_no_frame(page, names):
    """Names in the picture are whole, and beside the frames of all stages."""
    page.evaluate(WRITE)
    page.evaluate("vit.set({})")  # draw again
    settle(page)
    written, frames, strip = page.evaluate("written"), page.evaluate(FRAMES), box_of(page, "#strip")
    found = [name for name in names if name in written]
    assert len(found) >= len(names) - 1, written  # where there is no room, "class" is enough
    for name in found:
        left, right, top, bottom = written[name]
        assert left >= strip["x"] and top >= strip["y"], (name, written[name], strip)
        for stage, (begin, end, above, below) in frames.items():
            beside = right <= begin or left >= end or bottom <= above or top >= below
            assert beside, f"{name} lies over the frame of {stage}"


# One selection everywhere


def test_a_token_of_the_strip_is_selected_everywhere(opened):
    before = (
        opened.evaluate(PICTURE),
        opened.evaluate("document.querySelector('#grid').toDataURL()"),
    )
    box = box_of(opened, "#strip canvas")
    opened.mouse.click(*place_of(opened, 7, box))
    opened.mouse.move(0, 0)
    settle(opened)
    marks = {"list": "7", "table": 6 + 1, "choice": "7", "maps": "token 7"}
    assert opened.evaluate(SELECTED) == marks
    after = opened.evaluate(PICTURE), opened.evaluate("document.querySelector('#grid').toDataURL()")
    assert after[0] != before[0] and after[1] != before[1]


def place_of(page, token, box):
    """A point inside of a patch of the strip: found by pointing, as a visitor finds it"""
    page.mouse.move(0, 0)
    for y in range(int(box["y"]) + 24, int(box["y"] + box["height"]), 12):
        for x in range(int(box["x"]) + 70, int(box["x"]) + 220, 12):
            page.mouse.move(x, y)
            if page.evaluate(POINTED)[0] == token:
                return x, y
    raise AssertionError(f"nothing in the strip is token {token}")


def test_what_the_pointer_is_over_is_marked_everywhere(opened):
    opened.evaluate("document.getElementById('pixels').scrollIntoView()")
    box = box_of(opened, "#grid")
    pictures = (
        "['#strip canvas', '#cut', '.head canvas'].map(s => document.querySelector(s).toDataURL())"
    )
    before = opened.evaluate(pictures)
    opened.mouse.move(
        box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.3
    )  # row 2, column 3
    settle(opened)
    assert opened.evaluate(POINTED) == [7, 7]
    assert all(old != new for old, new in zip(before, opened.evaluate(pictures), strict=True))
    assert opened.evaluate(SELECTED)["list"] == "0"  # only marked
    opened.mouse.move(0, 0)
    settle(opened)
    assert opened.evaluate(POINTED) == [-1, -1] and opened.evaluate(pictures) == before


def test_a_cell_of_a_map_and_a_row_of_the_table_are_marked_everywhere(opened):
    opened.evaluate("document.getElementById('block-0').scrollIntoView()")
    box = box_of(opened, "[data-head='0,1'] canvas")
    opened.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.95)
    assert opened.evaluate(POINTED) == [14, 14]
    opened.hover("#scores tbody tr:nth-child(4) th")
    assert opened.evaluate(POINTED) == [3, 3]


def test_the_pixels_of_a_shuffled_patch_are_marked(opened):
    opened.evaluate("vit.set({shufflePatches: true})")
    opened.click("#grid", position={"x": 10, "y": 10})  # where patch 1 of the image is
    caption = opened.inner_text("#patch-caption")
    assert caption.endswith("which is number 1 of the image") or caption == "Patch 1"
    opened.evaluate("vit.set({shufflePatches: false, bareReshape: true})")
    opened.click("#grid", position={"x": 200, "y": 50})  # one row of pixels is one patch
    assert opened.inner_text("#patch-caption") == "Patch 3"


def test_the_chosen_head_is_marked_in_all_blocks(opened):
    opened.select_option("#pick-block", index=2)
    opened.select_option("#pick-head", index=3)
    assert opened.locator(".head.chosen").get_attribute("data-head") == "2,3"


# On a phone


@on(viewport=PHONE, has_touch=True)
def test_on_a_phone_the_strip_is_a_column_that_follows(opened):
    for section in ("draw", "tokens", "blocks", "result"):
        opened.evaluate(f"document.getElementById('{section}')?.scrollIntoView()")
        column = box_of(opened, "#strip canvas")
        assert inside(column, PHONE) and column["height"] > 5 * column["width"]
        assert apart(column, box_of(opened, "#answer-box"))
        assert opened.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        wide = opened.evaluate(ENDS)
        assert wide <= column["x"], f"the column hides a part of {section}"


@on(viewport=PHONE, has_touch=True)
def test_on_a_phone_the_stages_are_named(opened):
    for bugs in ("{}", "{positions: false, shufflePatches: true, softmaxAxis: 'queries'}"):
        opened.evaluate(f"vit.set({bugs})")
        settle(opened)
        for label in opened.evaluate(LABELS)[1:]:  # the ink needs no name
            assert label["text"] and label["height"] > 10, label
            assert label["left"] >= 0 and label["right"] <= PHONE["width"], label


@on(viewport=PHONE, has_touch=True)
def test_on_a_phone_the_dock_does_not_hide_the_column(opened):
    opened.click("#start-tour")
    for _ in range(4):
        settle(opened)
        column, dock = box_of(opened, "#strip canvas"), box_of(opened, "#tour")
        assert column["y"] + column["height"] <= dock["y"] and column["height"] > 200
        opened.click("#tour-next")


@pytest.mark.parametrize("size", [PHONE, {"width": 592, "height": 800}], ids=["390", "592"])
def test_no_name_in_the_column_lies_over_another_stage(chromium, live_address, size):
    with page_of(chromium, **CALM, viewport=size) as (page, wrong):
        page.goto(live_address)
        settle(page)
        for step in range(6):  # 0: the whole column, without the dock of the tour
            labels = page.evaluate(LABELS)[1:]  # the ink needs no name
            for one, other in pairwise(labels):
                assert one["bottom"] <= other["top"], (step, one, other)
                assert other["top"] >= one["frame"][1] - 1, (step, one, other)
            page.click("#tour-next" if step else "#start-tour")
            settle(page)
        assert wrong == NOTHING


# The classroom screen


@on(viewport=PROJECTOR)
def test_the_classroom_screen_shows_everything_without_scrolling(opened):
    opened.evaluate(LETTERS)
    opened.click("#start-classroom")
    opened.keyboard.press("Space")
    for step in range(6):
        settle(opened)
        boxes = {
            name: box_of(opened, name)
            for name in ("#canvas", "#strip canvas", "#answer", "#bug-list", "#tour", "#classroom")
        }
        assert all(inside(box, PROJECTOR) for box in boxes.values()), (step, boxes)
        names = list(boxes)
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                assert apart(boxes[one], boxes[other]), (step, one, other)
        assert opened.evaluate(
            "[document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
        ) == [1080, 1920]
        assert opened.evaluate(SMALL, 24) == [], step
        opened.keyboard.press("Space")
    assert min(opened.evaluate("letters")) >= 24
    # no prose: the article and its explanations are away
    assert not opened.is_visible(".intro") and not opened.is_visible("#attention")
    assert not opened.is_visible("#tour-text") and not opened.is_visible("#bug-positions")


@on(viewport=PROJECTOR)
def test_the_longest_answer_is_whole_in_the_classroom(opened):
    opened.click("#start-classroom")
    opened.evaluate("vit.set({untrained: true})")
    settle(opened)
    assert opened.inner_text("#answer").startswith("I cannot tell")
    begin = opened.evaluate("""() => {
      const text = document.createRange()
      text.selectNodeContents(document.getElementById("answer"))
      return text.getBoundingClientRect().left
    }""")
    leave = box_of(opened, "#classroom button >> nth=-1")
    assert begin >= leave["x"] + leave["width"]


@on(viewport=PROJECTOR)
def test_the_names_in_the_classroom_cross_no_frame(opened):
    opened.click("#start-classroom")
    opened.evaluate("bugs => vit.set(bugs)", ALL_BUGS)
    settle(opened)
    names_cross_no_frame(opened, NAMES[:2])
    frames = opened.evaluate(FRAMES)
    # nor do the columns of the answer so far: each is in the frame of the stage before it
    opened.evaluate("""() => {
      const fill = CanvasRenderingContext2D.prototype.fillRect
      window.filled = []
      CanvasRenderingContext2D.prototype.fillRect = function (x, y, width, height) {
        const box = this.canvas.getBoundingClientRect()
        const isColumn = this.canvas.closest("#strip") && width < 10 && y < 66 && height < 66
        if (isColumn) filled.push([box.x + x, box.x + x + width])
        return fill.call(this, x, y, width, height)
      }
    }""")
    opened.evaluate("vit.set({})")
    settle(opened)
    columns = opened.evaluate("filled")
    assert len(columns) >= 50
    for left, right in columns:
        inside_of = [name for name, box in frames.items() if left >= box[0] and right <= box[1]]
        assert inside_of and inside_of[0] in STAGES[2:7], (left, right, frames)


@on(viewport=PROJECTOR)
def test_a_score_is_opened_in_the_classroom(opened):
    opened.click("#start-classroom")
    assert not opened.is_visible("#product-steps")
    opened.click("#classroom-score")
    settle(opened)
    seen = ("#query-bars", "#key-bars", "#product-steps", "#sum-read", "#score-read")
    for step in range(3):  # alone, and beside the tour
        strip, fit = box_of(opened, "#strip canvas"), box_of(opened, ".fit")
        assert all(inside(box_of(opened, one), PROJECTOR) for one in (*seen, "#weight-read")), step
        assert box_of(opened, "#product-steps")["height"] >= 80
        assert box_of(opened, "#product-steps")["width"] > 600
        for other in ("#strip", "#canvas", "#bug-list", "#samples", "#classroom-said b"):
            assert apart(fit, box_of(opened, other)), (step, other)
        assert strip["height"] > 300 and opened.evaluate(SMALL, 24) == []
        opened.keyboard.press("Space")
        settle(opened)
    opened.click("#tour-close")
    sizes = opened.evaluate("[document.documentElement.scrollHeight, scrollY]")
    assert sizes == [1080, 0]
    # it follows what is chosen, and its key is chosen beside it
    opened.select_option("#classroom-token", index=5)
    opened.select_option("#pick-key", "9")
    assert opened.inner_text("#query-of") == "of token 5"
    assert opened.inner_text("#key-of") == "of token 9"
    assert float(opened.inner_text("#score-read").replace("−", "-")) == pytest.approx(
        float(opened.inner_text("#sum-read").replace("−", "-")) / 4, abs=0.005
    )
    assert accessibility(opened) == []
    opened.click("#classroom-score")
    assert not opened.is_visible("#product-steps")
    # the article has all of it again
    opened.click("#classroom-score")
    opened.keyboard.press("Escape")
    assert opened.locator("#head-figure > .fit #product-steps").is_visible()
    assert opened.locator("#head-figure > .choose label").count() == 4
    assert opened.locator("#head-figure > .choose label:last-child #pick-key").is_visible()


@on(viewport=PROJECTOR)
def test_space_goes_on_and_escape_leaves(opened):
    opened.evaluate("scrollTo(0, 700)")
    opened.evaluate("document.getElementById('start-classroom').click()")
    for step in (1, 2, 3):
        opened.keyboard.press("Space")
        settle(opened)
        assert opened.inner_text("#tour-count").startswith(f"{step} of ")
    box = box_of(opened, "#canvas")
    opened.mouse.click(box["x"] + 20, box["y"] + 20)  # who draws with the mouse goes on with Space
    opened.keyboard.press("Space")
    assert opened.inner_text("#tour-count").startswith("4 of ")
    opened.click("#tour-close")
    opened.keyboard.press("Escape")
    assert not opened.evaluate("document.documentElement.classList.contains('classroom')")
    assert opened.is_visible("#attention") and opened.evaluate("scrollY") == 700
    assert opened.evaluate("document.activeElement.id") == "start-classroom"


@on(viewport=PROJECTOR)
def test_who_comes_with_the_keyboard_keeps_the_space_of_a_control(opened):
    opened.focus("#start-classroom")
    opened.keyboard.press("Enter")
    for _ in range(40):
        opened.keyboard.press("Tab")
        if opened.evaluate("document.activeElement.dataset.switch === 'positions'"):
            break
    opened.keyboard.press("Space")
    assert opened.is_checked("[data-switch=positions]") and not opened.is_visible("#tour")


@on(viewport=PROJECTOR)
def test_the_full_screen_is_taught_without_a_mouse(opened):
    opened.focus("#start-classroom")
    opened.keyboard.press("Enter")
    assert opened.inner_text("#classroom-tour").split() == ["Tour", "Space"]
    steps = 12  # a notebook each, from 00 to 11
    for step in range(1, steps + 1):
        opened.keyboard.press("Space")
        assert opened.inner_text("#tour-count").startswith(f"{step} of {steps}")
        # the article is away, and a number of its steps would be read as one of the tour
        task = opened.inner_text("#tour-task")
        assert not re.search(r"\bstep \d|above the table|\bthese weights\b", task), task
    opened.keyboard.press("Space")
    assert not opened.is_visible("#tour")
    assert opened.evaluate("document.activeElement.id") == "classroom"
    opened.keyboard.press("Space")  # one too many
    assert not opened.is_visible("#tour")
    assert opened.inner_text("#classroom-tour") == "Tour again"
    opened.click("#classroom-tour")
    assert opened.inner_text("#tour-count").startswith("1 of ")
    opened.keyboard.press("Space")
    assert opened.inner_text("#tour-count").startswith("2 of ")
    opened.click("#tour-close")
    opened.keyboard.press("Escape")
    assert opened.evaluate("document.activeElement.id") == "start-classroom"
    opened.keyboard.press("Enter")
    opened.keyboard.press("Space")  # who comes again begins again
    assert opened.inner_text("#tour-count").startswith("1 of ")


@on(viewport=PROJECTOR)
def test_a_full_screen_ends_its_own_visit_however_late_its_events_come(opened):
    opened.evaluate("""() => {
      document.documentElement.requestFullscreen = async () => {}
      document.exitFullscreen = async () => { window.left = true }
      window.happens = (element) => {
        Object.defineProperty(document, "fullscreenElement", { value: element, configurable: true })
        document.dispatchEvent(new Event("fullscreenchange"))
      }
    }""")

    def is_on():
        return opened.evaluate("document.documentElement.classList.contains('classroom')")

    opened.click("#start-classroom")
    opened.evaluate("happens(document.body)")
    opened.keyboard.press("Escape")
    opened.click("#start-classroom")
    opened.evaluate("happens(null)")  # the end of the first visit
    assert is_on()
    opened.evaluate("happens(document.body)")
    opened.evaluate("happens(null)")  # the browser's own way out
    assert not is_on()
    opened.evaluate("left = false")
    opened.evaluate("happens(document.body)")  # given when nobody wants it any more
    assert opened.evaluate("left") and not is_on()


@on(viewport=PROJECTOR)
def test_a_space_that_is_held_down_is_one_step(opened):
    opened.click("#start-classroom")
    for _ in range(5):
        opened.keyboard.down("Space")
    opened.keyboard.up("Space")
    assert opened.inner_text("#tour-count").startswith("1 of ")


@on(viewport=PROJECTOR)
def test_in_the_classroom_tokens_and_heads_are_selected_and_switched(opened):
    opened.click("#start-classroom")
    for name, index in (("token", 5), ("block", 1), ("head", 2)):
        opened.select_option(f"#classroom-{name}", index=index)
    assert "Block 2, head 3: token 5 attends" in opened.inner_text("#classroom-said")
    opened.click("#classroom-off")
    settle(opened)
    assert opened.evaluate("vit.switches.heads[1]") == [True, True, False, True]
    assert "(off)" in opened.inner_text("#classroom-said")
    opened.click("#classroom-off")
    assert opened.evaluate("vit.switches.heads") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_classroom(chromium, live_address, scheme):
    with page_of(chromium, color_scheme=scheme, viewport=PROJECTOR, **CALM) as (page, wrong):
        page.goto(live_address)
        settle(page)
        page.evaluate("vit.set({untrained: true, shufflePatches: true})")
        settle(page)
        assert contrast(page) == []
        page.click("#start-classroom")
        page.keyboard.press("Space")
        settle(page)
        assert accessibility(page) == [] and wrong == NOTHING
