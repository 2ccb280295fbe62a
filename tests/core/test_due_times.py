"""Due times around the odd hours of a calendar: each means one instant, and that instant is stored."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tidewheel import Tidewheel

BERLIN = ZoneInfo("Europe/Berlin")
ODD_HOURS = {
    # The clocks go from 2:00 to 3:00: half past two is not there, and means an hour later or earlier.
    "gap": (datetime(2027, 3, 28, 2, 30, tzinfo=BERLIN), datetime(2027, 3, 28, 1, 30, tzinfo=UTC)),
    "gap, as seen from after it": (
        datetime(2027, 3, 28, 2, 30, tzinfo=BERLIN, fold=1),
        datetime(2027, 3, 28, 0, 30, tzinfo=UTC),
    ),
    # They go from 3:00 to 2:00: half past two comes twice, and fold says which one.
    "overlap, first": (
        datetime(2027, 10, 31, 2, 30, tzinfo=BERLIN),
        datetime(2027, 10, 31, 0, 30, tzinfo=UTC),
    ),
    "overlap, second": (
        datetime(2027, 10, 31, 2, 30, tzinfo=BERLIN, fold=1),
        datetime(2027, 10, 31, 1, 30, tzinfo=UTC),
    ),
    "leap day": (
        datetime(2028, 2, 29, 0, 30, tzinfo=ZoneInfo("Asia/Kolkata")),
        datetime(2028, 2, 28, 19, 0, tzinfo=UTC),
    ),
    "leap day that is not one everywhere": (
        datetime(2028, 2, 29, 23, 59, 59, 999_999, tzinfo=ZoneInfo("America/New_York")),
        datetime(2028, 3, 1, 4, 59, 59, 999_999, tzinfo=UTC),
    ),
}


@pytest.mark.parametrize("name", ODD_HOURS)
async def test_a_due_time_is_the_instant_its_zone_says_it_is(name: str) -> None:
    """To the microsecond, whatever the clocks of that place do around it."""
    given, meant = ODD_HOURS[name]
    async with Tidewheel("memory://") as app:
        job = await app.enqueue("work", run_at=given)
        await job.refresh()
    assert job.run_at == meant
    assert job.run_at.utcoffset() == UTC.utcoffset(None)
