"""When claims look at everything, and when only beyond the marks."""

from __future__ import annotations

import time

from tidewheel.core.model import Lane
from tidewheel.stores.postgres.claim_scan import RESCAN_SECONDS, Answer, Looks, Ranges

LANES = (Lane("mail", "send"),)
FULL = Answer(moment=10, due=5, tended_to=10, cost=None)
"""A claim that granted as many as were asked for and looked back, but not at everything."""


def marked() -> Looks:
    looks = Looks(LANES, None)
    looks.learn(FULL._replace(cost=0.05), [], rooms=False)
    looks._marks.advance({("mail", "send", 0): 90}, cut=None, rooms=False)
    return looks


def is_everything(ranges: Ranges) -> bool:
    return ranges == Ranges.of(LANES)


def test_everything_is_looked_at_when_it_is_time_to_look_back() -> None:
    """Unless that has to rest: then a little."""
    looks = marked()
    now = time.monotonic()
    ranges, back = looks.next(now, rested=True)
    assert (is_everything(ranges), back) == (False, False)
    ranges, back = looks.next(now + RESCAN_SECONDS, rested=True)
    assert (is_everything(ranges), back) == (True, True)
    ranges, back = looks.next(now + RESCAN_SECONDS, rested=False)
    assert (is_everything(ranges), back) == (False, True)


def test_a_look_at_everything_that_had_to_wait_is_made_as_soon_as_it_may() -> None:
    """Not only when it is time to look back again: late commits are to be found within a second."""
    looks = marked()
    ranges, back = looks.next(time.monotonic() + RESCAN_SECONDS, rested=False)
    assert (is_everything(ranges), back) == (False, True)
    looks.learn(FULL, [], rooms=False)
    ranges, back = looks.next(time.monotonic(), rested=True)
    assert (is_everything(ranges), back) == (True, False)
    looks.learn(FULL._replace(cost=0.05), [], rooms=False)
    assert not is_everything(looks.next(time.monotonic(), rested=True)[0])
