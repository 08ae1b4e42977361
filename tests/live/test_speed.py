"""How soon the live page answers, in seconds on a clock: nothing else may run beside this."""

import math

import pytest
from browser import IN_BROWSER, page_of

pytestmark = [pytest.mark.alone, *IN_BROWSER[1:]]


def test_the_first_answer_comes_within_a_second(chromium, live_address):
    times = []
    # again if another process was in the way
    while len(times) < 6 and min(times, default=math.inf) > 1000:
        with page_of(chromium) as (fresh, _):
            fresh.goto(live_address)
            read = "window.vit.read(Array(256).fill(1), 16, 16)"
            # the time is counted since the page was opened
            code = f"() => {{ {read}; return performance.now() }}"
            times.append(fresh.evaluate(code))
    print(f"first answer after {times} ms")
    assert min(times) < 1000
