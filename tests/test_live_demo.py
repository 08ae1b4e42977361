"""The example of the live page draws itself once, until the reader does anything."""

import json
import math
from itertools import pairwise

import pytest
from browser import CALM, IN_BROWSER, NOTHING, page_of

from vit_helpers.live.page import bundle

pytestmark = IN_BROWSER
# time goes on only when the test says so, one frame after the other
CLOCK = """(() => {
  let now = 0, queue = [], timers = []
  performance.now = () => now
  window.requestAnimationFrame = (call) => queue.push(call)
  window.cancelAnimationFrame = (n) => { if (queue[n - 1]) queue[n - 1] = () => {} }
  window.setTimeout = (call, after = 0) => timers.push({call, due: now + after})
  window.clearTimeout = (n) => { if (timers[n - 1]) timers[n - 1].due = Infinity }
  window.frames_of = (count, milliseconds) => {
    for (let i = 0; i < count; i++) {
      const calls = queue
      queue = []
      now += milliseconds
      for (const call of calls) call(now)
      for (const timer of timers.filter(({due}) => due <= now)) {
        timer.due = Infinity
        timer.call()
      }
    }
  }
})()"""
INK = """(() => {
  const canvas = document.getElementById("canvas")
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
  let sum = 0
  for (let i = 3; i < data.length; i += 4) sum += data[i] / 255
  return sum
})()"""
# everything that the page shows; the speed alone depends on how often the model ran
SHOWN = """(() => {
  const copy = document.body.cloneNode(true)
  copy.querySelector("#speed").textContent = ""
  for (const script of copy.querySelectorAll("script")) script.remove()
  return JSON.stringify({
    html: copy.innerHTML.replaceAll(' class=""', ""), body: document.body.className,
    root: document.documentElement.outerHTML.split(">")[0], scroll: scrollY,
    values: [...document.querySelectorAll("input, select")].map((one) => [one.value, one.checked]),
    pictures: [...document.querySelectorAll("canvas")].map((one) => one.toDataURL()),
    focus: document.activeElement.id || document.activeElement.tagName, switches: vit.switches,
  })
})()"""


@pytest.fixture
def opened(chromium, live_address):
    """The page while its example is being drawn: two of the first frames have passed."""
    with page_of(chromium) as (page, wrong):
        page.add_init_script(CLOCK)
        page.goto(live_address)
        page.evaluate("frames_of(2, 16)")
        yield page
        assert wrong == NOTHING


@pytest.fixture(scope="module")
def calm(chromium, live_address):
    """What a page shows that has drawn its example at once, and how much ink that is"""
    with page_of(chromium, **CALM) as (page, wrong):
        page.add_init_script(CLOCK)
        page.goto(live_address)
        page.evaluate("frames_of(1, 16); frames_of(1, 300)")
        assert wrong == NOTHING
        return {"shown": json.loads(page.evaluate(SHOWN)), "ink": page.evaluate(INK)}


def shown(page):
    page.evaluate("frames_of(40, 50)")  # until everything has been said and the strip stands still
    return json.loads(page.evaluate(SHOWN))


def test_the_example_appears_piece_by_piece_and_everything_is_computed_from_it(opened, calm):
    inks, pixels, answers = [opened.evaluate(INK)], [], []
    for _ in range(14):  # 2.8 seconds
        opened.evaluate("frames_of(2, 100)")
        inks.append(opened.evaluate(INK))
        pixels.append(opened.evaluate("document.getElementById('grid').toDataURL()"))
        answers.append(opened.inner_text("#logits"))
    grows = [after - before for before, after in pairwise(inks)]
    assert 0 < inks[0] < 0.1 * calm["ink"]
    assert all(ink > -20 for ink in grows)  # a corner is rounded once the pen has passed it
    assert max(grows) < 0.2 * calm["ink"] and inks[-1] < calm["ink"]
    assert len(set(pixels)) == len(set(answers)) == 14
    assert "example" in opened.inner_text("#example")


def test_a_slow_computer_shows_the_pieces_too(opened, calm):
    opened.evaluate("frames_of(3, 4000)")  # of which each counts as a tenth of a second
    assert opened.evaluate(INK) < 0.2 * calm["ink"]


def test_nothing_else_has_changed_when_it_is_drawn(opened, calm):
    opened.evaluate("frames_of(40, 100)")
    assert shown(opened) == calm["shown"]
    assert opened.evaluate(INK) == calm["ink"]
    opened.evaluate("stopDemo(); frames_of(3, 100)")  # does nothing any more
    assert shown(opened) == calm["shown"]


def test_it_draws_itself_once(opened, calm):
    opened.evaluate("frames_of(40, 100)")
    opened.evaluate("document.getElementById('clear').click(); frames_of(40, 100)")
    assert opened.evaluate(INK) == 0


def test_without_motion_it_is_there_at_once(calm):
    assert "I read a 3" in calm["shown"]["html"]  # after the first frame of all


STOPS = {
    "stopDemo": "stopDemo()",
    "a press elsewhere": "document.querySelector('h1').dispatchEvent("
    "new PointerEvent('pointerdown', {bubbles: true}))",
    "a key": "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'a', bubbles: true}))",
    "a click without a press": "document.querySelector('h1').click()",
}


@pytest.mark.parametrize("name", STOPS)
def test_it_stops_at_once_with_the_whole_example_read(opened, calm, name):
    opened.evaluate("frames_of(10, 100)")
    assert opened.evaluate(INK) < 0.6 * calm["ink"]
    logits = "document.getElementById('logits').innerText"
    said = opened.evaluate(f"(() => {{ {STOPS[name]}; return [{INK}, {logits}] }})()")
    assert said[0] == calm["ink"]  # in the same moment, before the next frame
    opened.evaluate("frames_of(1, 16)")
    assert opened.inner_text("#logits") == said[1]
    assert shown(opened) == calm["shown"]


def test_the_tour_begins_with_the_whole_example(opened, calm):
    opened.evaluate("frames_of(10, 100)")
    opened.evaluate("document.getElementById('start-tour').click()")
    assert opened.evaluate(INK) == calm["ink"]
    opened.evaluate("frames_of(40, 100)")
    assert opened.evaluate(INK) == calm["ink"] and opened.is_visible("#tour")


def dot(page):
    """Press the mouse where the example has no ink."""
    box = page.locator("#canvas").bounding_box()
    page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.8 * box["height"])
    page.mouse.down()
    page.mouse.up()


def test_the_first_stroke_begins_on_an_empty_sheet(opened):
    opened.evaluate("frames_of(10, 100)")
    dot(opened)
    first = opened.evaluate("document.getElementById('canvas').toDataURL()")
    opened.evaluate("frames_of(40, 100)")
    assert opened.evaluate("document.getElementById('canvas').toDataURL()") == first
    assert opened.evaluate(INK) > 0  # nobody else draws
    assert opened.inner_text("#example") == ""
    opened.evaluate("document.getElementById('clear').click()")
    assert opened.evaluate(INK) == 0
    dot(opened)
    assert opened.evaluate("document.getElementById('canvas').toDataURL()") == first


def test_a_pen_that_is_put_down_by_a_key_begins_on_an_empty_sheet(opened):
    opened.evaluate("frames_of(10, 100)")
    opened.focus("#canvas")
    opened.keyboard.press("Space")
    ink = opened.evaluate(INK)
    opened.evaluate("frames_of(40, 100)")
    assert 0 < ink < math.pi * 16**2 and opened.evaluate(INK) == ink


def test_a_sample_is_not_drawn_over(opened, calm):
    opened.evaluate("frames_of(10, 100)")
    opened.evaluate("document.querySelectorAll('#samples button')[7].click()")
    opened.evaluate("frames_of(40, 100)")
    ink = opened.evaluate(INK)
    assert ink != calm["ink"] and "I read a 7" in opened.inner_text("#answer")
    assert opened.inner_text("#example") == ""


@pytest.fixture(scope="module")
def lab(chromium):
    with page_of(chromium) as (page, wrong):
        page.goto("about:blank")
        code = f"{bundle('demo.js')}\nwindow.strokesUntil = strokesUntil;"
        page.add_script_tag(content=code, type="module")
        page.wait_for_function("typeof window.strokesUntil === 'function'")
        yield page
        assert not wrong["errors"]


def test_the_pen_goes_at_one_speed(lab):
    strokes = [[[0, 0], [0.3, 0.4], [0.3, 0.4], [0.3, 0.9]], [[0.5, 0.5], [0.5, 0.6]]]
    way = 0.5 + 0.5 + 0.1

    def length(drawn):
        return sum(math.dist(a, b) for stroke in drawn for a, b in pairwise(stroke))

    for part in (0, 0.1, 0.5 / way, 0.6, 0.95):
        drawn = lab.evaluate("([strokes, part]) => strokesUntil(strokes, part)", [strokes, part])
        assert length(drawn) == pytest.approx(part * way)
        for stroke, whole in zip(drawn, strokes, strict=False):
            assert stroke[:-1] == whole[: len(stroke) - 1]
    assert len(drawn) == 2  # the pen was lifted
    assert lab.evaluate("strokes => strokesUntil(strokes, 0)", strokes) == [[[0, 0]]]
    assert lab.evaluate("strokes => strokesUntil(strokes, 1)", strokes) == strokes
