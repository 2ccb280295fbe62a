"""The data every part talks about."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tidewheel.core.clock import to_datetime
from tidewheel.core.model import (
    FINAL_STATES,
    FOREVER,
    Claimed,
    DerivedState,
    JobRecord,
    Lease,
    NewJob,
    RescueResult,
    State,
)
from tidewheel.core.reports import Distribution, MinuteStats, Stats, TopicStats
from tidewheel.testing.conformance.helpers import job

NOW = 1_000_000


def _record(**fields: Any) -> JobRecord:
    basics: dict[str, Any] = {
        "id": UUID(int=1),
        "number": 1,
        "tenant": "root",
        "topic": "mail",
        "task": "",
        "state": State.PENDING,
        "priority": 0,
        "attempt": 0,
        "max_attempts": 3,
        "created_at": 0,
        "run_at": 0,
    }
    return JobRecord(**(basics | fields))


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, State.PENDING),
        ({"run_at": NOW}, State.PENDING),
        ({"run_at": NOW + 1}, DerivedState.DELAYED),
        ({"attempt": 1}, DerivedState.RETRYING),
        ({"attempt": 1, "run_at": NOW + 1}, DerivedState.RETRYING),
        ({"blocked": 1}, DerivedState.BLOCKED),
        ({"blocked": 1, "run_at": NOW + 1}, DerivedState.BLOCKED),
        ({"state": State.RUNNING, "attempt": 1}, DerivedState.CLAIMED),
        ({"state": State.RUNNING, "attempt": 1, "started_at": NOW}, State.RUNNING),
        ({"state": State.COMPLETED, "attempt": 1}, State.COMPLETED),
        ({"state": State.FAILED, "attempt": 1, "run_at": NOW + 1}, State.FAILED),
        ({"state": State.CANCELLED}, State.CANCELLED),
    ],
)
def test_the_finest_name_of_a_state_is_shown(fields: dict[str, Any], shown: str) -> None:
    """Derived from what is stored and the time, never stored itself."""
    assert _record(**fields).shown_state(NOW) == shown


def test_three_states_are_final() -> None:
    """What is not final is outstanding."""
    assert {state for state in State if state.final} == FINAL_STATES
    assert {State.COMPLETED, State.FAILED, State.CANCELLED} == FINAL_STATES


def test_derived_states_do_not_clash_with_stored_ones() -> None:
    """A filter by name means one thing."""
    assert not set(map(str, State)) & set(map(str, DerivedState))


@pytest.mark.parametrize("example", [Lease(UUID(int=1), 1), job(), _record()])
def test_data_cannot_be_changed(example: Lease | NewJob | JobRecord) -> None:
    """What one part hands to another stays as it was."""
    with pytest.raises(AttributeError):
        example.attempt = 2  # type: ignore[misc, union-attr]


def test_leases_are_equal_by_value() -> None:
    """So they can be kept in sets and compared across stores."""
    assert len({Lease(UUID(int=1), 1), Lease(UUID(int=1), 1), Lease(UUID(int=1), 2)}) == 2


@pytest.mark.parametrize(
    ("attempt", "max_attempts", "last"), [(1, 3, False), (3, 3, True), (4, 3, True), (99, None, False)]
)
def test_the_last_attempt_is_known_as_such(attempt: int, max_attempts: int | None, last: bool) -> None:
    """Unlimited attempts have no last one."""
    fields: dict[str, Any] = dict.fromkeys(Claimed.__struct_fields__)
    assert Claimed(**(fields | {"attempt": attempt, "max_attempts": max_attempts})).last_attempt is last


def test_the_success_rate_is_of_what_ended_one_way_or_the_other() -> None:
    """Cancelled jobs and retries say nothing about success, nor how long jobs are kept."""

    def rate(completed: int, failed: int, cancelled: int) -> float | None:
        return Stats(
            pending=9,
            running=9,
            completed=8,
            failed=7,
            cancelled=6,
            delayed=0,
            oldest_due_at=None,
            topics=(),
            window_seconds=60,
            run_time=Distribution(),
            wait_time=Distribution(),
            series=(
                MinuteStats(0, completed=completed, cancelled=cancelled, retried=9),
                MinuteStats(60_000_000, failed=failed, enqueued=9),
            ),
        ).success_rate

    assert rate(3, 1, 50) == 0.75
    assert rate(0, 0, 1) is None


def test_totals_add_up() -> None:
    """Of a topic's states and of a rescue's deeds."""
    assert TopicStats("mail", 1, 2, 3, 4, 5).total == 15
    assert RescueResult(1, 2, 3, 4).total == 10


def test_for_ever_is_the_last_moment_a_date_can_name() -> None:
    """It can be shown like any other time."""
    assert to_datetime(FOREVER).isoformat() == "9999-12-31T23:59:59.999999+00:00"
