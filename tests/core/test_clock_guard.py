"""What is believed of a clock that jumps."""

from __future__ import annotations

import logging

import pytest

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.clock_guard import (
    CONFIRM_SECONDS,
    TOLERANCE_SECONDS,
    ClockGuard,
    ClockHistory,
    ClockReading,
    update_history,
)
from tidewheel.testing.clock import FrozenClock

DAY = 86_400.0
START = ClockReading(1_000 * MICROSECONDS, 0.0)


def look(elapsed: float, ahead: float = 0.0) -> ClockReading:
    """After so many seconds, on a clock that is ahead of where it should be."""
    return ClockReading(round((1_000 + elapsed + ahead) * MICROSECONDS), elapsed)


@pytest.mark.parametrize(
    "ahead", [0.0, TOLERANCE_SECONDS - 1, -1.0, -DAY], ids=["right", "a little ahead", "back", "far back"]
)
def test_a_clock_that_runs_or_is_set_back_is_believed(ahead: float) -> None:
    """Setting it back deletes nothing."""
    assert update_history(ClockHistory(START), look(10, ahead)) == ClockHistory(look(10, ahead))


def test_a_clock_that_runs_a_little_fast_is_believed() -> None:
    """A day between two looks allows for the drift of a day."""
    assert update_history(ClockHistory(START), look(DAY, 100)) == ClockHistory(look(DAY, 100))
    assert update_history(ClockHistory(START), look(10, 100)).unconfirmed == look(10, 100)


def test_a_step_is_confirmed_by_a_look_after_the_delay() -> None:
    """Not by many looks before that."""
    history = update_history(ClockHistory(START), look(10, DAY))
    assert history == ClockHistory(START, look(10, DAY))
    for elapsed in (11, 100, 10 + CONFIRM_SECONDS - 1):
        assert update_history(history, look(elapsed, DAY)) == history
    last = look(10 + CONFIRM_SECONDS, DAY)
    assert update_history(history, last) == ClockHistory(last)


def test_another_step_begins_the_delay_again() -> None:
    """A clock that jumps around is not believed, however long it does."""
    history = update_history(ClockHistory(START), look(10, DAY))
    further = look(CONFIRM_SECONDS, 2 * DAY)
    history = update_history(history, further)
    assert history == ClockHistory(START, further)
    assert update_history(history, look(CONFIRM_SECONDS + 60, DAY)).unconfirmed == look(
        CONFIRM_SECONDS + 60, DAY
    )


def test_a_clock_that_comes_back_ends_the_doubt() -> None:
    """What it showed in between is forgotten."""
    history = update_history(ClockHistory(START), look(10, DAY))
    assert update_history(history, look(22)) == ClockHistory(look(22))


def test_a_step_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """With the size of the step and what to do."""
    caplog.set_level(logging.WARNING)
    clock = FrozenClock()
    guard = ClockGuard(clock)
    guard.record(clock.now())
    clock.step(200 * DAY)
    for _ in range(20):
        clock.advance(1)
        believed = guard.confirmed_time(clock.now())
        assert clock.now() - believed > 199 * DAY * MICROSECONDS
    assert guard.step_seconds == pytest.approx(200 * DAY, abs=1)
    clock.step(-200 * DAY)
    assert guard.confirmed_time(clock.now()) == clock.now()
    first, second = [record.getMessage() for record in caplog.records]
    assert "stepped ahead by 200d" in first
    assert "Set the clock right" in first
    assert "is back where it should be" in second


def test_steps_between_two_looks_within_a_moment_are_seen() -> None:
    """Also while looks follow each other so fast that most are not remembered."""
    clock = FrozenClock()
    guard = ClockGuard(clock)
    for _ in range(5):
        clock.advance(0.1)
        assert guard.confirmed_time(clock.now()) == clock.now()
    clock.step(3600)
    assert guard.confirmed_time(clock.now()) < clock.now()
