"""Where time comes from, and the clock that stands still."""

from __future__ import annotations

import datetime as dt
import math
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.core.clock import (
    Clock,
    SystemClock,
    seconds_to_microseconds,
    to_datetime,
    to_microseconds,
)
from tidewheel.errors import InvalidInput
from tidewheel.testing.clock import FrozenClock


@given(st.datetimes(dt.datetime(1970, 1, 1), timezones=st.just(dt.UTC)))  # noqa: DTZ001 - bounds are naive
def test_every_moment_survives_being_stored(moment: dt.datetime) -> None:
    """To the microsecond, to the end of the calendar."""
    assert to_datetime(to_microseconds(moment)) == moment


@given(st.datetimes(dt.datetime(1971, 1, 1), timezones=st.timezones()))  # noqa: DTZ001 - bounds are naive
def test_the_zone_of_a_moment_does_not_matter(moment: dt.datetime) -> None:
    """The same instant is the same number."""
    if moment.year < 9999:  # a day's room for the shift
        assert to_microseconds(moment) == to_microseconds(moment.astimezone(dt.UTC))


@given(st.integers(0, 10**15))
def test_seconds_become_exact_microseconds(microseconds: int) -> None:
    """Floats of up to thirty years lose nothing."""
    assert seconds_to_microseconds(microseconds / 1e6) == microseconds


def test_the_system_clock_tells_the_time() -> None:
    """Wall time in microseconds, and a monotonic one beside it."""
    clock: Clock = SystemClock()
    assert abs(clock.now() - time.time() * 1e6) < 60e6
    first = clock.monotonic()
    assert clock.monotonic() >= first


def test_a_frozen_clock_moves_only_when_told() -> None:
    """Both its times, by the same amount."""
    clock: Clock = FrozenClock()
    before = (clock.now(), clock.monotonic())
    assert (clock.now(), clock.monotonic()) == before
    assert isinstance(clock, FrozenClock)
    clock.advance(1.5)
    assert (clock.now(), clock.monotonic()) == (before[0] + 1_500_000, before[1] + 1.5)


def test_a_frozen_clock_starts_where_it_is_told() -> None:
    """By default at a fixed moment, so that tests repeat."""
    moment = dt.datetime(2031, 5, 6, 7, 8, 9, 123, tzinfo=dt.UTC)
    assert to_datetime(FrozenClock(moment).now()) == moment
    assert FrozenClock().now() == FrozenClock().now()


@pytest.mark.parametrize("seconds", [-1, -1e-9, math.nan])
def test_a_frozen_clock_does_not_go_back(seconds: float) -> None:
    """Time only moves forward."""
    with pytest.raises(InvalidInput, match="forward"):
        FrozenClock().advance(seconds)


def test_a_frozen_clock_can_be_moved_from_several_threads() -> None:
    """No advance is lost."""
    clock = FrozenClock()
    start = clock.now()

    def advance_often() -> None:
        for _ in range(500):
            clock.advance(1)

    threads = [threading.Thread(target=advance_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() - start == 2000 * 1_000_000
