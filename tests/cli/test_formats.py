"""Numbers and times for people, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from tidewheel.cli import formats
from tidewheel.cli.stats import spark_bars
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import FOREVER
from tidewheel.core.urls import redact_url

MINUTE = 60 * MICROSECONDS


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"), (0, "0 ms"), (0.0004, "<1 ms"), (0.012, "12 ms"), (0.9994, "999 ms"), (0.9999, "1.0 s"),
        (1.5, "1.5 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.9, "1m"), (200, "3m 20s"),
        (18_120, "5h 2m"), (86_400, "1d"), (356_400, "4d 3h"),
    ],
)  # fmt: skip
def test_durations_are_short_at_every_scale(seconds: float | None, shown: str) -> None:
    """Two units at most, none of them zero."""
    assert formats.duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"), (0, "0 ms"), (0.000004, "<0.01 ms"), (0.00004, "0.04 ms"), (0.000994, "0.99 ms"),
        (0.000996, "1.0 ms"), (0.00312, "3.1 ms"), (0.00994, "9.9 ms"), (0.012, "12 ms"), (1.5, "1.5 s"),
    ],
)  # fmt: skip
def test_short_times_keep_two_digits(seconds: float | None, shown: str) -> None:
    """A benchmark is about the difference between 0.04 and 0.4 ms."""
    assert formats.latency(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "-"), (0, "0"), (3.71, "3.71"), (96.66, "96.7"), (99.7, "100"), (999.6, "1,000"),
        (12_518, "12,500"), (1_234_567, "1,230,000"),
    ],
)  # fmt: skip
def test_measured_numbers_claim_no_more_than_they_know(number: float | None, shown: str) -> None:
    """Three digits, the rest is noise."""
    assert formats.measured(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "now"), (12, "12s"), (61, "1m"), (7300, "2h"), (200_000, "2d"), (-300, "in 5m")],
)
def test_ages_are_one_unit(seconds: int, shown: str) -> None:
    """An age is for skimming a column."""
    assert formats.relative_time(10**15, 10**15 + seconds * MICROSECONDS) == shown


def test_a_pause_says_how_long_it_lasts() -> None:
    """Over, limited and without end read differently."""
    assert formats.pause_end(None, 100) == formats.pause_end(99, 100) == ""
    assert formats.pause_end(FOREVER, 100) == "paused"
    assert formats.pause_end(5 * MINUTE, 0) == "paused for 5m"


def test_nouns_agree_with_their_numbers() -> None:
    """One job, two jobs, a thousand with a comma."""
    assert [formats.job_count(number) for number in (0, 1, 2, 1000)] == [
        "0 jobs",
        "1 job",
        "2 jobs",
        "1,000 jobs",
    ]
    assert formats.plural(1, "retry", "retries") == "1 retry"
    assert formats.plural(2, "retry", "retries") == "2 retries"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("500ms", 0.5), ("5m", 300), ("2H", 7200), ("1 d", 86_400)],
)
def test_durations_are_read_with_and_without_units(text: str, seconds: float) -> None:
    """Plain numbers are seconds, as everywhere else in Tidewheel."""
    assert formats.DurationType().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "5 parsecs", "1h30m", "nan", "none"])
def test_a_wrong_duration_is_refused_with_examples(text: str) -> None:
    """What is understood is said."""
    with pytest.raises(click.BadParameter, match="or 500ms, 90s, 5m, 2h, 1d"):
        formats.DurationType().convert(text, None, None)


def test_none_is_a_value_where_it_means_something() -> None:
    """``--timeout none`` is not the same as no --timeout."""
    assert formats.option_value(formats.DurationType(none=True).convert("None", None, None)) is None
    assert formats.option_value(formats.NumberOrNoneType().convert("none", None, None)) is None
    assert formats.NumberOrNoneType().convert("7", None, None) == 7
    with pytest.raises(click.BadParameter, match="no whole number and not none"):
        formats.NumberOrNoneType().convert("many", None, None)


def test_moments_need_a_time_zone() -> None:
    """A time without a zone is a different moment on every machine."""
    assert formats.TimeType().convert("2030-01-31T09:00Z", None, None) == datetime(2030, 1, 31, 9, tzinfo=UTC)
    with pytest.raises(click.BadParameter, match="no time zone"):
        formats.TimeType().convert("2030-01-31T09:00", None, None)
    with pytest.raises(click.BadParameter, match="write it like 2030-01-31T09:00Z"):
        formats.TimeType().convert("tomorrow", None, None)


def test_moments_in_filters_may_be_ages() -> None:
    """--created-after 2h is two hours ago; a due time is never meant that way."""
    converted: Any = formats.TimeType(ago=True).convert("2h", None, None)
    assert abs(datetime.now(UTC) - timedelta(hours=2) - converted) < timedelta(minutes=1)
    with pytest.raises(click.BadParameter, match="no ISO 8601 time"):
        formats.TimeType().convert("2h", None, None)
    with pytest.raises(click.BadParameter, match="before all time"):
        formats.TimeType(ago=True).convert("999999w", None, None)


def test_bars_end_at_the_newest_minute_and_reach_the_top_at_the_largest() -> None:
    """A glance shows when it happened and how much."""
    assert spark_bars([(0, 1), (2 * MINUTE, 8)], window=240, most=60) == " ▁ █"
    assert spark_bars([(0, 3), (MINUTE, 3)], window=7200, most=60) == " " * 59 + "█"
    assert spark_bars([], window=3600, most=60) == ""
    assert spark_bars([(0, 1)], window=3600, most=-3) == ""


def test_a_password_is_never_shown() -> None:
    """URLs end up in logs and in screenshots."""
    shown = redact_url("postgresql://ada:secret@db.example:5432/jobs")
    assert shown == "postgresql://ada:***@db.example:5432/jobs"
    assert redact_url("sqlite:///jobs.db") == "sqlite:///jobs.db"
