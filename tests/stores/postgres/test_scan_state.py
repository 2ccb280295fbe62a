"""When claims look at everything, and when only beyond the marks."""

from __future__ import annotations

import time

from tidewheel.core.model import Lane
from tidewheel.stores.postgres.claim_scan import RESCAN_SECONDS, ClaimSummary, ScanRanges, ScanState

LANES = (Lane("mail", "send"),)
FULL = ClaimSummary(server_time=10, next_claim_at=5, maintained_until=10, full_scan_seconds=None)
"""A claim that granted as many as were asked for and looked back, but not at everything."""


def marked() -> ScanState:
    looks = ScanState(LANES, None)
    looks.record_claim(FULL._replace(full_scan_seconds=0.05), [], rooms=False)
    looks._cursors.advance({("mail", "send", 0): 90}, last_urgency=None, topic_limits_apply=False)
    return looks


def is_everything(ranges: ScanRanges) -> bool:
    return ranges == ScanRanges.whole_lanes(LANES)


def test_everything_is_looked_at_when_it_is_time_to_look_back() -> None:
    """Unless that has to rest: then a little."""
    looks = marked()
    now = time.monotonic()
    ranges, back = looks.next_ranges(now, rested=True)
    assert (is_everything(ranges), back) == (False, False)
    ranges, back = looks.next_ranges(now + RESCAN_SECONDS, rested=True)
    assert (is_everything(ranges), back) == (True, True)
    ranges, back = looks.next_ranges(now + RESCAN_SECONDS, rested=False)
    assert (is_everything(ranges), back) == (False, True)


def test_a_look_at_everything_that_had_to_wait_is_made_as_soon_as_it_may() -> None:
    """Not only when it is time to look back again: late commits are to be found within a second."""
    looks = marked()
    ranges, back = looks.next_ranges(time.monotonic() + RESCAN_SECONDS, rested=False)
    assert (is_everything(ranges), back) == (False, True)
    looks.record_claim(FULL, [], rooms=False)
    ranges, back = looks.next_ranges(time.monotonic(), rested=True)
    assert (is_everything(ranges), back) == (True, False)
    looks.record_claim(FULL._replace(full_scan_seconds=0.05), [], rooms=False)
    assert not is_everything(looks.next_ranges(time.monotonic(), rested=True)[0])
