"""Attention on the live page: one score as a sum of products, the output as a sum of values.

What the stage computes equals torch's, and what it draws equals what it computes, with each bug.
"""

import re
from base64 import b64encode

import pytest
import torch
from browser import CALM, IN_BROWSER, NOTHING, page_of
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from test_live_page import INK
from test_live_vit import BUGS, MUTED, in_double, untrained
from test_palette import APART, SIGHTS, contrast, distance
from torch.nn.functional import interpolate

from vit_helpers import load
from vit_helpers.live.page import HERE, WEIGHTS, bundle
from vit_helpers.plots import style
from vit_helpers.pretrained import load_weights

pytestmark = IN_BROWSER
PLACES = [(0, 0, 0, 3), (5, 2, 1, 5), (16, 0, 2, 0), (9, 3, 3, 12)]  # query, block, head, key
SWITCHES = {"none": {}} | {name: switch for name, (switch, _) in BUGS.items()}
# bars as [top or bottom, the other end], in the order of the columns
READ = """() => {
  const bars = (svg) => [...svg.querySelectorAll(".up, .down")].flatMap((path) =>
    [...path.getAttribute("d").matchAll(/M([\\d.]+) (-?[\\d.]+)V(-?[\\d.]+)H/g)].map((found) => {
      const [column, from, to] = found.slice(1).map(Number)
      return {column: Math.floor(column), from, to, kind: path.classList[0]}
    })
  ).sort((a, b) => a.column - b.column)
  const zero = (svg) =>
    Number(svg.querySelector(".zero").getAttribute("d").match(/M0 (-?[\\d.]+)/)[1])
  const steps = (id) => {
    const svg = document.getElementById(id), bottom = zero(svg)
    return bars(svg).map(({from, to, kind}) => [bottom - from, bottom - to, kind])
  }
  const text = (id) => document.getElementById(id).textContent.replace("−", "-")
  const ribbons = [...document.querySelectorAll(".ribbons path")].map((path) =>
    path.getAttribute("d").match(/-?[\\d.]+/g).map(Number))
  const lanes = document.querySelector(".lanes"), {width, height} = lanes
  const {data} = lanes.getContext("2d").getImageData(0, 0, width, height)
  const color = (x, y) => { // from 0 to 1
    const at = 4 * (Math.floor(y * height) * width + Math.floor(x * width))
    return [...data.slice(at, at + 4)]
  }
  const ids = {sum: "sum-read", score: "score-read", weight: "weight-read", total: "weight-sum",
    output: "output-scale", softmax: "softmax-name"}
  const whole = document.querySelector(".whole"), at = (i, n) => (i + 0.5) / n
  return {
    products: steps("product-steps"), sum: steps("sum-step"), score: steps("score-step"),
    output: steps("output-bars"), ribbons, whole: whole.hidden ? null : whole.style.top,
    weight: parseFloat(document.getElementById("weight-step").style.height),
    said: Object.fromEntries(Object.entries(ids).map(([name, id]) => [name, text(id)])),
    columns: Array.from({length: 16}, (_, i) =>
      Array.from({length: 90}, (_, j) => color(at(i, 16), at(j, 90)))),
  }
}"""
OPEN = """([query, block, head, key]) => {
  for (const [name, value] of Object.entries({token: query, block, head, key})) {
    const select = document.getElementById(`pick-${name}`)
    select.value = value
    select.dispatchEvent(new Event("change"))
  }
}"""


@pytest.fixture(scope="module")
def shared(chromium, live_address):
    with page_of(chromium, **CALM) as (page, wrong):
        page.goto(live_address)
        page.wait_for_selector("#said:not(:empty)", state="attached")
        yield page
        assert wrong == NOTHING


@pytest.fixture
def opened(shared):
    """The page with its example, as if it had just been opened"""
    yield shared
    shared.mouse.move(0, 0)
    shared.evaluate(
        "vit.set({heads: null, positions: true, shufflePatches: false, bareReshape: false,"
        "scaling: true, softmaxAxis: 'keys', untrained: false})"
    )
    shared.evaluate(OPEN, [0, 0, 0, ""])


@pytest.fixture(scope="module")
def lab(chromium):
    with page_of(chromium) as (page, wrong):
        page.goto("about:blank")
        names = "makeVit, forward, openHead, SWITCHES"
        code = f"{bundle('api.js')}\n{bundle('attention.js')}\nwindow.lab = {{ {names} }};"
        page.add_script_tag(content=code, type="module")
        page.wait_for_function("window.lab")
        page.evaluate(
            "text => { window.model = lab.makeVit("
            "Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer) }",
            b64encode(WEIGHTS.read_bytes()).decode(),
        )
        yield page
        assert not wrong["errors"]


@pytest.fixture(scope="module")
def drawn():
    return load_weights(WEIGHTS)


@pytest.fixture(scope="module")
def digit():
    """A test digit of the size that the model reads: (1, 1, 16, 16), from 0 to 1"""
    return interpolate(load("digits").test.images[:1], (16, 16), mode="bilinear").clamp(0, 1)


def expected(seen, query, block, head, key, switch):
    """What the stage should show, from the numbers of a forward pass in double precision"""
    q, k, v = (seen[name][0, block, head].double() for name in ("q", "k", "v"))
    products = q[query] * k
    sums = products.sum(-1)
    scores = sums if switch.get("scaling") is False else sums / q.shape[-1] ** 0.5
    weights = seen["attention"][0, block, head, query].double()
    on = switch["heads"][block][head] if "heads" in switch else True
    return {
        "products": products[key],
        "sum": sums[key],
        "score": scores[key],
        "scores": scores,
        "weight": weights[key],
        "weights": weights,
        "total": weights.sum(),
        "output": weights @ v * on,
    }


def bugs_of(name, model):
    """The model and the bug of a switch, for `in_double`"""
    return (
        (untrained(model.config), {})
        if name == "untrained"
        else (model, BUGS.get(name, ({}, {}))[1])
    )


@pytest.mark.parametrize("name", [*SWITCHES, "untrained"])
def test_an_opened_score_has_torchs_numbers(lab, drawn, digit, name):
    switch = SWITCHES.get(name, {"untrained": True})
    model, bug = bugs_of(name, drawn.model)
    seen = in_double(model, drawn.preprocess.normalize(digit), **bug)
    code = """([pixels, changes, places]) => places.map(([token, block, head, key]) => {
      const switches = {...lab.SWITCHES, ...changes}
      const seen = lab.forward(model, pixels, switches)
      const opened = lab.openHead(seen, {token, block, head, key, switches})
      const plain = (value) => typeof value === "number" ? value : Array.from(value, plain)
      return Object.fromEntries(Object.entries(opened).map(([name, all]) => [name, plain(all)]))
    })"""
    found = lab.evaluate(code, [digit.flatten().tolist(), switch, PLACES])
    for place, ours in zip(PLACES, found, strict=True):
        for part, value in expected(seen, *place, switch).items():
            assert (torch.tensor(ours[part], dtype=torch.float64) - value).abs().max() < 1e-9, part
        sums = torch.tensor(ours["sums"][place[3]], dtype=torch.float64)
        assert sums[0] == 0
        products = torch.tensor(ours["products"], dtype=torch.float64)
        assert (sums.diff() - products).abs().max() < 1e-9
        assert ours["key"] == place[3]


def test_without_a_chosen_key_the_one_with_the_most_weight_is_open(lab, digit):
    code = """(pixels) => {
      const seen = lab.forward(model, pixels, lab.SWITCHES)
      return [0, 4, 16].map((token) => {
        const view = {token, block: 1, head: 2, key: null, switches: lab.SWITCHES}
        return [lab.openHead(seen, view).key, Array.from(seen.attention[1][2][token])]
      })
    }"""
    for key, weights in lab.evaluate(code, digit.flatten().tolist()):
        assert key == weights.index(max(weights))


# What is drawn


def near_color(color, number):
    """Whether a color is matplotlib's for a number from -1 to 1, as far as 256 steps allow"""
    wanted = colormaps[style.SIGNED]((number + 1) / 2)[:3]
    return max(abs(part - 255 * one) for part, one in zip(color, wanted, strict=False)) < 4


def as_drawn(page, place, switch):
    """What the page shows, and the numbers behind it"""
    page.evaluate("changes => vit.set(changes)", switch)
    page.evaluate(OPEN, list(place))
    seen = page.evaluate(f"vit.forward(({INK})().pixels)")
    tensors = {
        name: torch.tensor(seen[name])[None].double() for name in ("q", "k", "v", "attention")
    }
    return (
        page.evaluate(READ),
        expected(tensors, *place, switch),
        tensors["v"][0, place[1], place[2]],
    )


@pytest.mark.parametrize("name", [*SWITCHES, "untrained"])
def test_what_is_drawn_are_the_numbers(opened, name):
    switch = SWITCHES.get(name, {"untrained": True})
    for place in PLACES[:2]:
        shown, numbers, values = as_drawn(opened, place, switch)
        unit = 1 / height_of(opened, place)
        end = 0
        for (start, stop, kind), product in zip(
            shown["products"], numbers["products"].tolist(), strict=True
        ):
            assert start == pytest.approx(end, abs=2e-5)  # each begins where the last one ended
            assert stop - start == pytest.approx(product * unit, abs=3e-5)
            assert kind == ("up" if product >= 0 else "down")
            end = stop
        assert end == pytest.approx(shown["sum"][0][1], abs=2e-5)  # and together they are the score
        assert shown["score"][0][1] == pytest.approx(numbers["score"].item() * unit, abs=2e-5)
        assert shown["sum"][0][1] == pytest.approx(numbers["sum"].item() * unit, abs=2e-5)
        assert float(shown["said"]["sum"]) == pytest.approx(numbers["sum"].item(), abs=0.0051)
        assert float(shown["said"]["score"]) == pytest.approx(numbers["score"].item(), abs=0.0051)
        assert shown["weight"] == pytest.approx(100 * numbers["weight"].item(), abs=1e-4)
        outputs_are_drawn(shown, numbers)
        ribbons_are_drawn(shown, numbers, values)


def height_of(page, place):
    """What the whole height stands for: from the least to the largest sum of any key"""
    seen, (query, block, head, _) = page.evaluate(f"vit.forward(({INK})().pixels)"), place
    q, k = (torch.tensor(seen[name][block][head]).double() for name in ("q", "k"))
    sums = (q[query] * k).cumsum(-1)
    return (sums.max().clamp(min=0) - sums.min().clamp(max=0)).item()


def outputs_are_drawn(shown, numbers):
    output = numbers["output"]
    if not output.any():
        assert shown["said"]["output"] == "0" and all(
            start == end for start, end, _ in shown["output"]
        )
        return
    limit = float(shown["said"]["output"].strip("±"))
    assert output.abs().max() <= limit < 2 * output.abs().max()  # not a flat line
    for (start, end, _), number in zip(shown["output"], output.tolist(), strict=True):
        assert start == pytest.approx(0, abs=2e-5)
        assert end == pytest.approx(number / limit / 2, abs=2e-5)


def ribbons_are_drawn(shown, numbers, values):
    weights, total = numbers["weights"], numbers["total"].item()
    whole, begin, limit = max(1, total), 0, None
    for t, (path, weight) in enumerate(zip(shown["ribbons"], weights.tolist(), strict=True)):
        top, lane_top, lane_bottom, bottom = path[1], path[7], path[8], path[-1]
        assert bottom - top == pytest.approx(weight, abs=2e-4)  # where it leaves its key
        assert (top + bottom) / 2 == pytest.approx(t + 0.5, abs=1e-4)
        assert lane_top == pytest.approx(begin, abs=2e-3)  # where it meets its value
        begin += 17 * weight / whole
        assert lane_bottom == pytest.approx(begin, abs=2e-3)
    assert shown["said"]["total"] == f"{round(100 * total)}%"
    assert (shown["whole"] is None) == (whole < 1.005)
    if shown["whole"]:
        assert float(shown["whole"].strip("%")) == pytest.approx(100 / whole, abs=0.01)
    limit = nice_limit(values.abs().max().item())
    ends = (weights.cumsum(0) / whole).tolist()
    checked = 0
    for i, column in enumerate(shown["columns"]):
        for j, (*color, alpha) in enumerate(column):
            at = (j + 0.5) / len(column)
            if min(abs(at - end) for end in [0, *ends]) < 0.012:
                continue  # the edge of a lane, or its frame
            lane = next((t for t, end in enumerate(ends) if at < end), None)
            assert (alpha == 0) == (lane is None)
            if lane is not None:
                assert near_color(color, values[lane, i].item() / limit)
                checked += 1
    assert checked > 100


def nice_limit(most):
    steps = sorted(
        step * 10.0**power for power in range(-3, 3) for step in (1, 1.5, 2, 3, 4, 5, 6, 8)
    )
    return next(step for step in steps if step >= most * (1 - 1e-9))


def test_weights_of_more_than_a_whole_are_seen_to_be_more(opened):
    opened.evaluate("vit.set({softmaxAxis: 'queries'})")
    code = (
        "() => vit.forward(("
        + INK
        + ")().pixels).attention[0][0].map((row) => row.reduce((a, b) => a + b))"
    )
    sums = opened.evaluate(code)
    shown, _, _ = as_drawn(opened, (sums.index(max(sums)), 0, 0, 1), {"softmaxAxis": "queries"})
    assert max(sums) > 1.2 and shown["whole"] is not None
    shown, _, _ = as_drawn(opened, (sums.index(min(sums)), 0, 0, 1), {"softmaxAxis": "queries"})
    assert min(sums) < 0.8 and shown["whole"] is None
    assert {column[-1][3] for column in shown["columns"]} == {0}  # the end stays empty
    assert shown["said"]["softmax"] == "softmax over queries"


def test_a_division_that_is_left_out_is_struck_out(opened):
    line = "getComputedStyle(document.querySelector('.fit .formula')).textDecorationLine"
    assert opened.evaluate(line) == "none"
    opened.evaluate("vit.set({scaling: false})")
    assert opened.evaluate(line) == "line-through"
    shown = opened.evaluate(READ)
    assert shown["score"] == shown["sum"] and shown["said"]["score"] == shown["said"]["sum"]


# Opening a score


def test_a_key_is_opened_by_its_row_and_its_ribbon(opened):
    def key():
        return opened.inner_text("#key-of"), opened.input_value("#pick-key")

    best = key()[0]
    opened.hover("#scores tbody tr:nth-child(13) .number")
    assert key() == ("of token 12", "")
    opened.mouse.move(0, 0)
    assert key() == (best, "")
    opened.click("#scores tbody tr:nth-child(5) .number")
    opened.mouse.move(0, 0)
    assert key() == ("of token 4", "4")
    opened.select_option("#pick-block", index=1)  # another head begins with its own best key
    assert key()[1] == ""
    opened.select_option("#pick-key", "0")
    opened.select_option("#pick-token", "3")
    assert key()[1] == ""  # and so does another query
    opened.select_option("#pick-key", "3")
    assert key() == ("of the same token", "3")
    opened.select_option("#pick-key", "")
    chosen = opened.locator("#scores tbody tr.chosen")
    assert chosen.count() == 1 and "best" in chosen.get_attribute("class")
    opened.select_option("#pick-key", "1")
    box = opened.locator(".lanes").bounding_box()
    weights = opened.evaluate(f"vit.forward(({INK})().pixels).attention[1][0][3]")
    middle = sum(weights[: (most := weights.index(max(weights)))]) + max(weights) / 2
    opened.mouse.move(box["x"] + 20, box["y"] + middle * box["height"])
    assert opened.locator("#scores tbody tr.chosen th").inner_text() == (
        str(most) if most else "class"
    )
    opened.mouse.move(box["x"] - 4, box["y"] + middle * box["height"])  # the ribbon's end
    assert opened.locator("#scores tbody tr.chosen th").inner_text() == (
        str(most) if most else "class"
    )


def test_a_product_is_read_by_pointing_at_it(opened):
    quiet = opened.inner_text("#product-read")
    opened.locator("#product-steps").scroll_into_view_if_needed()
    box = opened.locator("#product-steps").bounding_box()
    opened.mouse.move(box["x"] + box["width"] * 10.5 / 16, box["y"] + box["height"] / 2)
    said = opened.inner_text("#product-read").replace("−", "-")
    number, q, k, product = re.fullmatch(r"Number (\d+): (\S+) × (\S+) = (\S+)", said).groups()
    seen = opened.evaluate(f"vit.forward(({INK})().pixels)")
    best = seen["attention"][0][0][0]
    best = best.index(max(best))
    wanted = seen["q"][0][0][0][10], seen["k"][0][0][best][10]
    assert number == "11"
    for text, value in zip((q, k, product), (*wanted, wanted[0] * wanted[1]), strict=True):
        assert float(text) == pytest.approx(value, abs=0.0051)
    opened.mouse.move(0, 0)
    assert opened.inner_text("#product-read") == quiet


def test_a_head_that_is_off_puts_out_nothing(opened):
    opened.evaluate("heads => vit.set({heads})", MUTED)
    opened.evaluate(OPEN, [0, 1, 1, ""])
    shown = opened.evaluate(READ)
    assert shown["said"]["output"] == "0" and shown["said"]["total"] == "100%"
    assert "replaced by zeros" in opened.inner_text("#scores-note")
    assert "off" in opened.get_attribute("#scores", "class")


# Colors


def css_colors():
    """{name: color} by day, and by night"""
    day, night = re.findall(
        r":root \{(.*?)\n\s*\}", (HERE / "page.css").read_text(encoding="utf-8"), re.S
    )[:2]
    return [dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in (day, night)]


def test_red_and_blue_are_the_notebooks_and_are_seen():
    day, night = css_colors()
    signed = colormaps[style.SIGNED]
    for colors, strong in ((day, 0.9), (night, 0.8)):
        for name, at in (("up", strong), ("down", 1 - strong)):
            wanted = signed(at)[:3]
            assert max(abs(a - b) for a, b in zip(to_rgb(colors[name]), wanted, strict=True)) < 0.01
            assert contrast(colors[name], colors["page"]) > 3  # WCAG AA, graphics
        for sight in SIGHTS:
            assert distance(to_rgb(colors["up"]), to_rgb(colors["down"]), sight) > APART
