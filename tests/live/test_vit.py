"""The ViT in JavaScript, run by Chromium: torch's numbers, with each switch too, and fast."""

import copy
import json
import math
import statistics
from base64 import b64encode

import numpy as np
import pytest
import torch
from browser import IN_BROWSER, page_of
from torch.nn.functional import interpolate

from vit_helpers import ViT, ViTConfig, load
from vit_helpers.checks.attention_mistakes import WEIGHTS as WRONG_WEIGHTS
from vit_helpers.checks.vit_mistakes import PASSES
from vit_helpers.live.ink import reduce_ink
from vit_helpers.live.page import WEIGHTS, bundle, live_page
from vit_helpers.patches import patchify
from vit_helpers.pretrained import Preprocess, load_weights, save_weights

pytestmark = IN_BROWSER
NAMES = ("logits", "probabilities", "attention", "tokens", "q", "k", "v", "lens")
LAB = """window.lab = { makeVit, forward, erf, permutation };
window.makeVitOf = (base64) =>
  makeVit(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)).buffer);"""


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    """The page that visitors get, opened from a file"""
    file = tmp_path_factory.mktemp("live") / "live.html"
    file.write_text(live_page(), encoding="utf-8")
    with page_of(chromium) as (page, wrong):
        page.goto(file.as_uri())
        yield page
        assert wrong == {"errors": [], "failed": [], "away": []}


@pytest.fixture(scope="module")
def lab(chromium):
    """An empty page with the functions of the modules, for what the page itself does not show"""
    with page_of(chromium) as (page, wrong):
        page.goto("about:blank")
        page.add_script_tag(content=f"{bundle('api.js')}\n{LAB}", type="module")
        page.wait_for_function("window.lab")
        yield page
        assert not wrong["errors"]


@pytest.fixture(scope="module")
def drawn():
    return load_weights(WEIGHTS)


@pytest.fixture(scope="module")
def pixels():
    """200 test digits of the size that the model reads: (200, 1, 16, 16), from 0 to 1"""
    return interpolate(load("digits").test.images[:200], (16, 16), mode="bilinear").clamp(0, 1)


@torch.no_grad()
def trace(model, images, cut=patchify, order=slice(None), embed=None, weigh=None, heads=None):
    """Run a forward pass with all that JavaScript's returns, by names, possibly with a bug."""
    x = model.patch_embed.proj(cut(images, model.config.patch_size)[:, order])
    classes = model.token_embed.cls_token.expand(len(x), -1, -1)
    x = embed(x, classes, model.token_embed.pos_embed) if embed else model.token_embed(x)
    seen = {name: [] for name in ("attention", "tokens", "q", "k", "v")}
    for layer, block in enumerate(model.blocks):
        seen["tokens"].append(x)
        q, k, v = block.attn.heads(block.norm1(x))
        weights = weigh(q, k, v) if weigh else (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1)
        values = weights @ v
        if heads is not None:
            values = values * torch.tensor(heads[layer])[:, None, None]
        x = x + block.attn.proj(values.transpose(1, 2).flatten(2))
        x = x + block.mlp(block.norm2(x))
        for name, value in {"attention": weights, "q": q, "k": k, "v": v}.items():
            seen[name].append(value)
    seen["tokens"].append(x)
    stacked = {name: torch.stack(values, dim=1) for name, values in seen.items()}
    lens = model.head(model.norm(stacked["tokens"][:, :, 0]))
    return stacked | {
        "logits": lens[:, -1],
        "probabilities": lens[:, -1].softmax(-1),
        "lens": lens.softmax(-1),
    }


def in_browser(page, pixels, names=NAMES, **switches):
    """The same from the page, for images (B, 1, H, W)"""
    code = """([images, names, switches]) => {
      window.vit.set(switches);
      const one = (pixels) => {
        const all = window.vit.forward(pixels);
        return names.map((name) => all[name]);
      };
      return JSON.stringify(images.map(one));
    }"""
    try:
        found = json.loads(page.evaluate(code, [pixels.flatten(1).tolist(), list(names), switches]))
    finally:
        page.evaluate(
            """vit.set({heads: null, positions: true, shufflePatches: false, bareReshape: false,
            scaling: true, softmaxAxis: 'keys', untrained: false})"""
        )
    return {
        name: torch.tensor([one[i] for one in found], dtype=torch.float64)
        for i, name in enumerate(names)
    }


def differences(ours, expected):
    """The largest difference of each part, by names"""
    assert {name: value.shape for name, value in ours.items()} == {
        name: expected[name].shape for name in ours
    }
    return {name: (value - expected[name]).abs().max().item() for name, value in ours.items()}


def in_double(model, images, **bug):
    """`trace` in double precision, as JavaScript computes.

    torch's rounding to single precision alone changes tokens by up to 1.1e-5 (by how much depends
    on the processor), and without scaling by 3e-5, so only this says whether the tokens of two
    implementations agree.
    """
    return trace(copy.deepcopy(model).double(), images.double(), **bug)


def test_golden_numbers(page, drawn, pixels):
    model, images = drawn.model, drawn.preprocess.normalize(pixels)
    parts = [in_browser(page, some, ("logits", "attention", "tokens")) for some in pixels.split(25)]
    ours = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    after_blocks = []
    handles = [
        block.register_forward_hook(lambda *call: after_blocks.append(call[2]))
        for block in model.blocks
    ]
    with torch.no_grad():  # the model as it is, and not only our trace
        expected = trace(model, images) | {"logits": model(images)}
        expected["attention"] = torch.stack(model.attention_weights(images), dim=1)
    for handle in handles:
        handle.remove()
    expected["tokens"] = torch.stack(
        [model.embed(images), *after_blocks[: len(model.blocks)]], dim=1
    ).detach()
    found, exact = differences(ours, expected), differences(ours, in_double(model, images))
    print(f"from torch in float32: {found}\nfrom torch in float64: {exact}")
    assert max(exact.values()) < 1e-9
    # of tokens, torch's own rounding takes as much, see in_double
    assert max(found["logits"], found["attention"]) < 1e-5
    assert torch.equal(ours["logits"].argmax(1), expected["logits"].argmax(1))


def test_read_goes_through_reduction_and_model(page, drawn):
    ink = torch.zeros(90, 120)
    ink[20:70, 50:56] = 1
    ink[20:26, 30:56] = 0.8
    result = page.evaluate(
        "([ink, w, h]) => window.vit.read(ink, w, h)", [ink.flatten().tolist(), 120, 90]
    )
    small = reduce_ink(ink, 16)
    with torch.no_grad():
        images = drawn.preprocess.normalize(small[None, None])
        logits, attention = (
            drawn.model(images)[0],
            torch.stack(drawn.model.attention_weights(images))[:, 0],
        )
        embedded = drawn.model.embed(images)[0]
    assert {"digit", "probabilities", "logits", "attention", "tokens", "pixels"} <= result.keys()
    for name, value in {
        "pixels": small.flatten(),
        "logits": logits,
        "probabilities": logits.softmax(-1),
    }.items():
        torch.testing.assert_close(torch.tensor(result[name]), value, atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.tensor(result["attention"]), attention, atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.tensor(result["tokens"][0]), embedded, atol=1e-5, rtol=0)
    assert len(result["tokens"]) == drawn.model.config.depth + 1
    assert result["digit"] == logits.argmax() and result["confidence"] == pytest.approx(
        logits.softmax(-1).max().item()
    )


def test_the_config_is_that_of_the_file(page, drawn):
    found, config = page.evaluate("window.vit.config"), drawn.model.config
    same = (
        "patch_size",
        "in_chans",
        "num_classes",
        "embed_dim",
        "depth",
        "num_heads",
        "mlp_ratio",
        "norm_eps",
        "num_tokens",
    )
    assert {name: found[name] for name in same} == {name: getattr(config, name) for name in same}
    assert [found["image_size"]] * 2 == list(config.image_size) and found["class_names"] == list(
        drawn.class_names
    )


# Each switch and the Python code with the same bug

MUTED = [[True, False, True, True], [False] * 4, [True] * 4, [False, True, True, False]]
ORDER = [7, 12, 5, 15, 2, 10, 8, 3, 4, 11, 1, 0, 13, 6, 9, 14]


def mistake(table, words):
    """The one wrong function whose message contains these words."""
    (found,) = [function for message, function in table.items() if words in message]
    return found


BUGS = {
    "positions": (
        {"positions": False},
        {"embed": mistake(PASSES["embed"], "positions are never added")},
    ),
    "shuffled": ({"shufflePatches": True}, {"order": ORDER}),
    "reshape": ({"bareReshape": True}, {"cut": mistake(PASSES["cut"], "single view or reshape")}),
    "scaling": (
        {"scaling": False},
        {"weigh": mistake(WRONG_WEIGHTS, "not divided by sqrt(d) before the softmax")},
    ),
    "softmax": (
        {"softmaxAxis": "queries"},
        {"weigh": mistake(WRONG_WEIGHTS, "normalizes over the queries")},
    ),
    "heads": ({"heads": MUTED}, {"heads": MUTED}),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_switch_agrees_with_python_code_with_the_same_bug(page, drawn, pixels, name):
    switch, bug = BUGS[name]
    some = pixels[:40]
    images = drawn.preprocess.normalize(some)
    ours = in_browser(page, some, **switch)
    found, exact = (
        differences(ours, trace(drawn.model, images, **bug)),
        differences(ours, in_double(drawn.model, images, **bug)),
    )
    print(f"from torch in float32: {found}\nfrom torch in float64: {exact}")
    assert max(exact.values()) < 1e-9
    assert max(found["logits"], found["attention"], found["probabilities"]) < 1e-5
    with torch.no_grad():
        # the bug changes every answer
        assert (ours["logits"] - drawn.model(images)).abs().amax(dim=1).min() > 0.01


def test_all_switches_at_once(page, drawn, pixels):
    switches = {key: value for switch, _ in BUGS.values() for key, value in switch.items()}
    bugs = {key: value for _, bug in BUGS.values() for key, value in bug.items()}
    bugs["weigh"] = lambda q, k, v: (q @ k.mT).softmax(dim=-2)  # two bugs in one place
    expected = in_double(drawn.model, drawn.preprocess.normalize(pixels[:5]), **bugs)
    assert max(differences(in_browser(page, pixels[:5], **switches), expected).values()) < 1e-9


def test_the_patches_are_in_the_order_of_the_tokens(page, pixels):
    cut = patchify(pixels[:1], 4)[0]
    for switches, expected in (({}, cut), ({"shufflePatches": True}, cut[ORDER])):
        page.evaluate("switches => window.vit.set(switches)", switches)
        found = page.evaluate("pixels => window.vit.forward(pixels)", pixels[0].flatten().tolist())
        assert torch.equal(torch.tensor(found["patches"]), expected)
        assert found["order"] == (ORDER if switches else list(range(16)))
    page.evaluate("window.vit.set({shufflePatches: false})")


# Untrained weights: the generator of init.js once more, in numpy


def uniform(name, i):
    """Numbers i of the generator, between 0 and 1, for the tensor of that name"""
    seed = 0x811C9DC5
    for letter in name.encode():
        seed = (seed ^ letter) * 0x01000193 % 2**32
    h = np.array(seed + i.astype(np.uint64) * 0x9E3779B9).astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ (h >> shift)) * np.uint32(factor)
    return ((h ^ (h >> 16)).astype(np.float64) + 0.5) / 2**32


def normal(name, i):
    return np.sqrt(-2 * np.log(uniform(name, 2 * i))) * np.cos(2 * np.pi * uniform(name, 2 * i + 1))


def initial(name, shape):
    """An initial tensor, as our modules draw it, but from that generator"""
    i, fan_in = np.arange(math.prod(shape)), shape[-1]
    if "norm" in name and name.endswith("weight"):
        values = np.ones(len(i))
    elif name == "token_embed.pos_embed":
        values = 0.02 * normal(name, i)
    elif name == "patch_embed.proj.weight":
        values = math.sqrt(1 / fan_in) * normal(name, i)
    elif "mlp" in name and name.endswith("bias"):
        values = 1e-6 * normal(name, i)
    elif name.startswith("blocks") and name.endswith("weight"):
        fan_out = shape[0] // 3 if "qkv" in name else shape[0]
        values = math.sqrt(6 / (fan_in + fan_out)) * (2 * uniform(name, i) - 1)
    else:
        values = np.zeros(len(i))
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


def untrained(config):
    model = ViT(config)
    model.load_state_dict(
        {name: initial(name, tuple(value.shape)) for name, value in model.state_dict().items()}
    )
    return model.eval()


def test_untrained_weights(page, drawn, pixels):
    model, some = untrained(drawn.model.config), pixels[:20]
    ours, images = in_browser(page, some, untrained=True), drawn.preprocess.normalize(some)
    found, exact = (
        differences(ours, trace(model, images)),
        differences(ours, in_double(model, images)),
    )
    assert max(exact.values()) < 1e-9
    assert max(found["logits"], found["attention"], found["probabilities"]) < 1e-5
    assert ours["logits"].eq(0).all() and (ours["probabilities"] - 0.1).abs().max() < 1e-12


def test_untrained_weights_are_distributed_as_ours(drawn):
    torch.manual_seed(0)
    ours, torchs = untrained(drawn.model.config).state_dict(), ViT(drawn.model.config).state_dict()
    for name, value in torchs.items():
        assert ours[name].std().item() == pytest.approx(value.std().item(), rel=0.15, abs=1e-9), (
            name
        )
        assert abs(ours[name].mean() - value.mean()) <= 6 * value.std() / math.sqrt(
            value.numel()
        ), name


def test_the_shuffling_is_the_documented_one(lab):
    for n in (16, 37):
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            j = int(uniform("shuffle", np.array([i]))[0] * (i + 1))
            order[i], order[j] = order[j], order[i]
        assert lab.evaluate("n => lab.permutation(n)", n) == order
        assert n != 16 or order == ORDER


# Other models: nothing in the module knows the sizes of ours


def save_perturbed(path, half):
    """A ViT with other sizes than ours, whose parameters are all away from zeros and ones"""
    torch.manual_seed(1)
    config = ViTConfig(12, 3, 1, 7, 30, 3, 5, mlp_ratio=2.5, norm_eps=1e-3)
    model = ViT(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    save_weights(
        path,
        model.half() if half else model,
        Preprocess(12, (12, 12), "bilinear", (0.4,), (0.2,)),
        "abcdefg",
    )


@pytest.mark.parametrize("half", [True, False], ids=["float16", "float32"])
def test_a_model_of_another_size(lab, tmp_path, half):
    save_perturbed(tmp_path / "other.safetensors", half)
    model, preprocess, _ = load_weights(tmp_path / "other.safetensors")
    images = torch.rand(5, 1, 12, 12)
    code = """([file, images, names]) => {
      const model = makeVitOf(file);
      const plain = (x) => (ArrayBuffer.isView(x) ? [...x] : x.map(plain));
      const one = (pixels) => {
        const all = lab.forward(model, pixels);
        return names.map((name) => plain(all[name]));
      };
      return images.map(one);
    }"""
    file = b64encode((tmp_path / "other.safetensors").read_bytes()).decode()
    found = lab.evaluate(code, [file, images.flatten(1).tolist(), list(NAMES)])
    ours = {
        name: torch.tensor([one[i] for one in found], dtype=torch.float64)
        for i, name in enumerate(NAMES)
    }
    images = preprocess.normalize(images)
    found, exact = (
        differences(ours, trace(model, images)),
        differences(ours, in_double(model, images)),
    )
    assert max(exact.values()) < 1e-9
    assert max(found["attention"], found["probabilities"]) < 1e-5
    assert (ours["logits"] - model(images).detach()).abs().max() < 1e-5


def test_erf(lab):
    xs = [
        *np.linspace(-7, 7, 2801).tolist(),
        2.4999999,
        2.5,
        6.0,
        1e-9,
        -1e-300,
        40.0,
        math.inf,
        -math.inf,
    ]
    found = lab.evaluate("xs => xs.map(lab.erf)", xs)
    assert max(abs(a - math.erf(x)) for a, x in zip(found, xs, strict=True)) < 1e-14
    assert math.isnan(lab.evaluate("lab.erf(NaN)"))


BROKEN = {
    "an empty file": (lambda data: b"", "the file is cut short"),
    "half of a file": (lambda data: data[: len(data) // 2], "the file is cut short"),
    "half of a header": (lambda data: data[:100], "the file is cut short"),
    "another type": (
        lambda data: data.replace(b'"F32"', b'"I32"', 1),
        "has the type I32; known are F32 and F16",
    ),
    "no config": (lambda data: data.replace(b'"config"', b'"konfig"', 1), "it has no config"),
    "color images": (
        lambda data: data.replace(rb"\"in_chans\": 1", rb"\"in_chans\": 3", 1),
        "square gray images",
    ),
    "registers": (
        lambda data: data.replace(rb"\"reg_tokens\": 0", rb"\"reg_tokens\": 4", 1),
        "not one with reg_tokens",
    ),
    "LayerScale": (
        lambda data: data.replace(rb"\"init_values\": null", rb"\"init_values\": 1e-5", 1),
        "not one with init_values",
    ),
    "a gated MLP": (
        lambda data: data.replace(rb"\"mlp_layer\": \"gelu\"", rb"\"mlp_layer\": \"swig\"", 1),
        "not one with mlp_layer",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_a_clear_error(lab, tmp_path, name):
    change, message = BROKEN[name]
    save_perturbed(tmp_path / "model.safetensors", half=False)
    data = (tmp_path / "model.safetensors").read_bytes()
    assert change(data) != data
    code = "file => { try { makeVitOf(file) } catch (error) { return error.message } }"
    assert message in lab.evaluate(code, b64encode(change(data)).decode())


# Ink


def drawings():
    generator = torch.Generator().manual_seed(0)
    one_pixel, corner, faint = (
        torch.zeros(5, 9),
        torch.zeros(33, 50),
        torch.rand(40, 40, generator=generator) * 0.1,
    )
    one_pixel[2, 3] = 1
    corner[0, 0] = corner[32, 49] = 0.5
    faint[7:30, 11] = 0.9
    edge = torch.zeros(20, 20)
    edge[5:15, 5:9] = 0.1  # not above the threshold
    edge[8, 6] = 0.11
    return {
        "one pixel": one_pixel,
        "corners": corner,
        "faint": faint,
        "threshold": edge,
        "all": torch.ones(1, 1),
        "wide": torch.rand(3, 200, generator=generator),
        "tall": torch.rand(280, 17, generator=generator),
        "canvas": (torch.rand(320, 320, generator=generator) > 0.9).float(),
    }


@pytest.mark.parametrize("name", drawings())
def test_ink_is_reduced_as_in_python(page, name):
    ink = drawings()[name]
    height, width = ink.shape
    found = page.evaluate(
        "([ink, w, h]) => window.vit.read(ink, w, h).pixels",
        [ink.flatten().tolist(), width, height],
    )
    assert (torch.tensor(found) - reduce_ink(ink, 16).flatten()).abs().max() < 1e-6


BAD_INK = {
    "[], 0, 0": "width must be a whole number from 1 on, got 0",
    "[], 16, 16": "16 x 16 pixels are 256 numbers, but ink has 0",
    "Array(255).fill(1), 16, 16": "16 x 16 pixels are 256 numbers, but ink has 255",
    "Array(257).fill(1), 16, 16": "16 x 16 pixels are 256 numbers, but ink has 257",
    "Array(256).fill(1), 16": "height must be a whole number from 1 on, got undefined",
    "Array(256).fill(1)": "width must be a whole number from 1 on, got undefined",
    "Array(24).fill(1), 2.5, 9.6": "width must be a whole number from 1 on, got 2.5",
    "Array(4).fill(1), -2, -2": "width must be a whole number from 1 on, got -2",
    "Array(4).fill(1), NaN, 2": "width must be a whole number from 1 on, got NaN",
    "Array(4).fill(1), Infinity, 2": "width must be a whole number from 1 on, got Infinity",
    "Array(4).fill(1), '2', 2": 'width must be a whole number from 1 on, got "2"',
    "[0, 1, NaN, 1], 2, 2": "ink[2] is NaN, not a number",
    "new Float32Array([0, NaN, 0, 0]), 2, 2": "ink[1] is NaN, not a number",
    "[0, 1, Infinity, 1], 2, 2": "ink[2] is Infinity; it must be from 0 (paper) to 1 (ink)",
    "[0, 1, 1, -Infinity], 2, 2": "ink[3] is -Infinity; it must be from 0 (paper) to 1 (ink)",
    "[0, 1, 1, 1.5], 2, 2": "ink[3] is 1.5; it must be from 0 (paper) to 1 (ink)",
    "[-0.01, 1, 1, 1], 2, 2": "ink[0] is -0.01; it must be from 0 (paper) to 1 (ink)",
    "[0, 255, 1, 1], 2, 2": "ink[1] is 255; it must be from 0 (paper) to 1 (ink)",
    "[0, '1', 1, 1], 2, 2": 'ink[1] is "1", not a number',
    "[0, null, 1, 1], 2, 2": "ink[1] is null, not a number",
    "Array(4), 2, 2": "ink[0] is undefined, not a number",
    "[[1, 1], [1, 1]], 2, 1": "ink[0] is an array, not a number",
    "[0n, 1n, 1n, 1n], 2, 2": "ink[0] is 0, not a number",
    "'1111', 2, 2": 'ink must be an array of numbers, got "1111"',
    "null, 2, 2": "ink must be an array of numbers, got null",
    "undefined, 2, 2": "ink must be an array of numbers, got undefined",
    "{length: 4}, 2, 2": "ink must be an array of numbers, got an object",
    "Symbol(), 2, 2": "ink must be an array of numbers, got Symbol()",
    "Array(256).fill(0), 16, 16": "the drawing is empty: no pixel has more than 0.1 of ink",
    "Array(256).fill(0.1), 16, 16": "the drawing is empty: no pixel has more than 0.1 of ink",
}
CATCH = """try {{ {}; }} catch (error) {{
  [error instanceof TypeError || error instanceof RangeError, error.message]
}}"""


@pytest.mark.parametrize("arguments", BAD_INK)
def test_bad_ink_is_a_clear_error_and_the_page_goes_on(page, arguments):
    right_kind, message = page.evaluate(CATCH.format(f"window.vit.read({arguments})"))
    assert right_kind and BAD_INK[arguments] in message
    assert sum(
        page.evaluate("window.vit.read([0, 1, 1, 0], 2, 2)")["probabilities"]
    ) == pytest.approx(1)


BAD_SWITCHES = {
    "{position: false}": (
        "no switch is called position; there are heads, positions, shufflePatches, bareReshape"
    ),
    "{toString: true}": "no switch is called toString",
    "{positions: 0}": "positions must be true or false, got 0",
    "{scaling: 'no'}": 'scaling must be true or false, got "no"',
    "{softmaxAxis: 'rows'}": 'softmaxAxis must be "keys" or "queries", got "rows"',
    "{softmaxAxis: true}": 'softmaxAxis must be "keys" or "queries", got true',
    "{heads: [[true, true]]}": "heads must be null, or 4 arrays of 4 booleans",
    "{heads: Array(4).fill([1, 1, 1, 1])}": "heads must be null, or 4 arrays of 4 booleans",
    "{heads: [[true, true, true, true], , , ,]}": "heads must be null, or 4 arrays of 4 booleans",
    "null": "switches are an object",
    "'positions'": "switches are an object",
    "[]": "switches are an object",
    "": "switches are an object",
    "{positions: false, scaling: 1}": "scaling must be true or false, got 1",
}


@pytest.mark.parametrize("argument", BAD_SWITCHES)
def test_a_bad_switch_is_a_clear_error_and_changes_nothing(page, argument):
    before = page.evaluate("window.vit.switches")
    right_kind, message = page.evaluate(CATCH.format(f"window.vit.set({argument})"))
    assert right_kind and BAD_SWITCHES[argument] in message
    assert page.evaluate("window.vit.switches") == before


def test_set_changes_only_what_it_names_and_nothing_from_outside(page):
    code = """() => {
      const heads = Array(4).fill([true, true, true, true]);
      window.vit.set({positions: false});
      const all = window.vit.set({heads});
      heads[0] = [false, false, false, false];
      all.scaling = window.vit.switches.heads[1][1] = false;
      return window.vit.switches;
    }"""
    found = page.evaluate(code)
    back = page.evaluate("window.vit.set({positions: true, heads: null})")
    assert found == back | {"positions": False, "heads": [[True] * 4] * 4}


# Speed and size


def median_ms(page, code):
    """The median of 9 rounds of ten calls, after those in which the browser still compiles

    It is the time that the processor spends on the page: other processes on this machine do not
    count.
    """
    chromium = page.context.new_cdp_session(page)
    chromium.send("Performance.enable")

    def seconds():
        metrics = chromium.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "ThreadTime")

    rounds = []
    for _ in range(14):
        start = seconds()
        page.evaluate(f"() => {{ for (let i = 0; i < 10; i++) {code}; }}")
        rounds.append((seconds() - start) * 100)  # milliseconds of one of ten calls
    return statistics.median(rounds[5:])


def test_a_forward_pass_takes_less_than_20_ms(page, lab):
    lab.evaluate(
        "file => { window.model = makeVitOf(file) }", b64encode(WEIGHTS.read_bytes()).decode()
    )
    lab.evaluate("window.pixels = Float32Array.from({ length: 256 }, (_, i) => (i % 7) / 7)")
    page.evaluate("window.ink = Float32Array.from({ length: 280 * 280 }, (_, i) => (i % 11) / 11)")
    forward, read = (
        median_ms(lab, "lab.forward(model, pixels)"),
        median_ms(page, "window.vit.read(ink, 280, 280)"),
    )
    print(f"forward {forward:.1f} ms, read {read:.1f} ms")
    assert forward < 20
    assert read < 20  # with the reduction of 78,400 pixels, and the copies that are returned
