"""The stored animations: small, calm, and what the code draws from the real numbers."""

import argparse
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageChops, ImageSequence, ImageStat

from tools import animation_meeting as meeting
from tools import animation_stream as stream
from tools.pictures import ANIMATIONS, IMAGES, nine, run
from vit_helpers.plots.attention_steps import read_example
from vit_helpers.pretrained import load_pretrained

pytestmark = pytest.mark.dev

ROOT = Path(__file__).parents[2]
NEW = {"03_attention/meeting": meeting, "04_encoder/stream": stream}
each = pytest.mark.parametrize("name", ANIMATIONS)


def numbers(name):
    """What an animation of a notebook is drawn from"""
    if name == "03_attention/meeting":
        return meeting.meeting_of(*read_example())
    return stream.read_stream(load_pretrained("ours:drawn"), nine())


def frames(name):
    with Image.open(IMAGES / f"{name}.gif") as file:
        loop = file.info.get("loop")
        return [
            (one.convert("RGB"), one.info["duration"]) for one in ImageSequence.Iterator(file)
        ], loop


def alt(name):
    """The alt text of an animation on its page, where it is shown once"""
    page = (ROOT / "notebooks" / f"{name.split('/')[0]}.ipynb").read_text(encoding="utf-8")
    (text,) = re.findall(rf"!\[([^]]*)\]\(\.\./images/{name}\.gif\)", page)
    return text


def apart(one, other):
    """How much two frames differ, in levels of 255; letters may differ by a pixel"""
    return max(ImageStat.Stat(ImageChops.difference(one.reduce(4), other.reduce(4))).mean)


# all of them


def test_every_animation_has_its_command_and_its_page():
    stored = {
        path.relative_to(IMAGES).with_suffix("").as_posix() for path in IMAGES.glob("**/*.gif")
    }
    assert stored == set(ANIMATIONS)
    assert all(80 < len(alt(name)) <= 300 for name in ANIMATIONS)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"'03'.* 00_start_here/reading, "):
        run(argparse.Namespace(names=["03"]))


@each
def test_a_stored_animation_is_small_and_rests_at_its_end(name):
    pictures, loop = frames(name)
    assert (IMAGES / f"{name}.gif").stat().st_size < 400_000 and loop == 0
    assert 24 <= len(pictures) <= 100 and pictures[0][1] >= 1000 and pictures[-1][1] >= 2500
    assert sum(time for _, time in pictures) < 20_000
    (size,) = {one.size for one, _ in pictures}
    # as wide as a page shows it, and white at its corners
    assert size[0] <= 910
    corners = [(1, 1), (size[0] - 2, 1), (1, size[1] - 2), (size[0] - 2, size[1] - 2)]
    assert all(one.getpixel(at) == (255, 255, 255) for one, _ in pictures for at in corners)


@each
def test_it_begins_with_a_question_and_not_with_the_answer(name):
    pictures, _ = frames(name)
    assert apart(pictures[0][0], pictures[-1][0]) > 3


@each
def test_nothing_in_it_flashes(name):
    """Less than a quarter changes its brightness by a tenth or more at once (WCAG 2.3.1)."""
    for (before, _), (after, _) in pairwise(frames(name)[0]):
        changed = np.abs(np.asarray(before.convert("L"), int) - np.asarray(after.convert("L"), int))
        assert (changed > 25).mean() < 0.25


# those of 03 and 04


@pytest.mark.parametrize("name", NEW)
def test_the_stored_file_is_what_the_code_draws(name):
    module, given = NEW[name], numbers(name)
    pictures, last = frames(name)[0], len(module.moments(given)) - 1
    for (shown, _), number in ((pictures[0], 0), (pictures[-1], last)):
        drawn = module.draw_frame(given, number, 1.0)
        colors = drawn.quantize(palette=module.palette(), dither=Image.Dither.NONE)
        assert apart(shown, colors.convert("RGB")) < 2
    pace = [(moving, rest) for _, moving, rest in module.moments(given)]
    total = 1000 * sum(moving + rest for moving, rest in pace)
    assert sum(time for _, time in pictures) == pytest.approx(total, rel=0.1)


@pytest.mark.parametrize("name", NEW)
def test_captions_end_before_their_frame_does(name):
    module, given = NEW[name], numbers(name)
    for number in range(len(module.moments(given))):
        frame = np.asarray(module.draw_frame(given, number, 1.0).convert("L"))
        assert frame[[0, -1]].min() == 255 and frame[:, [0, -1]].min() == 255


def test_the_alt_texts_have_the_numbers():
    followed, met = numbers("04_encoder/stream"), numbers("03_attention/meeting")
    best = int(followed.before.argmax())
    assert f"at most an {best} with {followed.before.max():.0%}, and a 9" in alt(
        "04_encoder/stream"
    )
    assert f"a 9 with {followed.after.max():.0%} after" in alt("04_encoder/stream")
    sky, roof, tree = met.weights.tolist()
    said = f"the weights {sky:.0%}, {roof:.0%} and {tree:.0%}."
    assert said in alt("03_attention/meeting")
    sums = [f"{number:g}" for number in met.products.sum(dim=1).tolist()]
    assert f"add up to {sums[0]}, {sums[1]} and {sums[2]}," in alt("03_attention/meeting")
