"""When schedules fire: cron expressions across changes of the clock, intervals, missed firings (Q24)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel import Cron, Every, InvalidInput
from tidewheel.core.clock import MICROSECONDS, to_datetime, to_microseconds
from tidewheel.core.cron import MAX_COUNTED_RUNS, find_due_runs, load_timing, next_runs


def _at(text: str) -> int:
    return to_microseconds(datetime.fromisoformat(text))


def _after(when: Cron | Every, text: str, number: int) -> list[str]:
    """The firings after a moment, as that zone's clock shows them."""
    zone = ZoneInfo(when.zone) if isinstance(when, Cron) else UTC
    return [to_datetime(at).astimezone(zone).isoformat() for at in next_runs(when, _at(text), number)]


def test_a_time_of_day_that_the_clock_skips_fires_when_the_skipped_hour_is_over() -> None:
    """02:30 in Berlin on the last Sunday of March 2026, where 02:00 is followed by 03:00."""
    assert _after(Cron("30 2 * * *", zone="Europe/Berlin"), "2026-03-27T12:00+01:00", 3) == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_of_day_that_comes_twice_fires_the_first_time() -> None:
    """02:30 in Berlin on the last Sunday of October 2026, also asked for in the hour that comes again."""
    nightly = Cron("30 2 * * *", zone="Europe/Berlin")
    assert _after(nightly, "2026-10-24T12:00+02:00", 3) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
        "2026-10-27T02:30:00+01:00",
    ]
    assert _after(nightly, "2026-10-25T02:15+01:00", 1) == ["2026-10-26T02:30:00+01:00"]


def test_an_interval_goes_on_through_both_changes() -> None:
    """``*/30 * * * *`` is elapsed time: nothing is left out in March, and both hours count in October."""
    half_hours = Cron("*/30 * * * *", zone="Europe/Berlin")
    for start in ("2026-03-29T00:30+01:00", "2026-10-25T00:30+02:00"):
        runs = next_runs(half_hours, _at(start), 10)
        assert {later - sooner for sooner, later in pairwise(runs)} == {1800 * MICROSECONDS}
        assert runs[0] - _at(start) == 1800 * MICROSECONDS


@pytest.mark.parametrize(
    ("when", "start", "expected"),
    [
        (Cron("0 12 29 2 *"), "2026-01-01T00:00+00:00", ["2028-02-29T12:00:00+00:00"]),
        (Cron("59 23 31 12 *"), "2026-06-01T00:00+00:00", ["2026-12-31T23:59:00+00:00"]),
        (Cron("0 0 1 1 *"), "2026-12-31T23:59:59.999999+00:00", ["2027-01-01T00:00:00+00:00"]),
        (Cron("15 6 * * *", zone="Asia/Kathmandu"), "2026-05-01T00:00+00:00", ["2026-05-01T06:15:00+05:45"]),
        (Cron("0 9 * * MON", zone="Australia/Lord_Howe"), "2026-04-04T00:00Z", ["2026-04-06T09:00:00+10:30"]),
        (Cron("0 0 * * *", zone="Pacific/Apia"), "2011-12-29T09:00-10:00", ["2011-12-31T00:00:00+14:00"]),
        (Cron("0 3 L * *"), "2026-02-01T00:00+00:00", ["2026-02-28T03:00:00+00:00"]),
        (Every(90), "1970-01-01T00:02+00:00", ["1970-01-01T00:03:00+00:00", "1970-01-01T00:04:30+00:00"]),
        (Every(timedelta(hours=6)), "2026-01-01T05:59+00:00", ["2026-01-01T06:00:00+00:00"]),
    ],
    ids=["leap day", "end of the year", "new year", "odd offset", "half an hour", "a day left out",
         "last day", "anchored", "timedelta"],
)  # fmt: skip
def test_calendars_have_corners(when: Cron | Every, start: str, expected: list[str]) -> None:
    """Leap days, ends of months and years, zones with odd offsets and odd changes."""
    assert _after(when, start, len(expected)) == expected


_zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu",
     "Pacific/Apia", "Africa/Casablanca", "America/St_Johns"]
)  # fmt: skip
_minutes = st.sampled_from(["0", "30", "*/20", "*", "15,45", "59"])
_hours = st.sampled_from(["*", "0", "1", "2", "3", "*/2", "1-3", "23"])
_moments = st.integers(_at("2010-01-01T00:00+00:00"), _at("2030-01-01T00:00+00:00"))
_changes = st.sampled_from(
    [_at(text) for text in ("2026-03-29T01:00+00:00", "2026-10-25T01:00+00:00", "2026-04-04T15:00+00:00",
                            "2026-10-03T15:30+00:00", "2026-11-01T06:00+00:00", "2011-12-30T10:00+00:00")]
)  # fmt: skip


@settings(max_examples=150)
@given(
    zone=_zones,
    minute=_minutes,
    hour=_hours,
    start=st.one_of(
        _moments, st.builds(lambda at, off: at + off * MICROSECONDS, _changes, st.integers(-9000, 9000))
    ),
)
def test_firings_only_grow(zone: str, minute: str, hour: str, start: int) -> None:
    """Whatever the zone does: each is later than the moment that was asked about, so none comes twice."""
    runs = [start, *next_runs(Cron(f"{minute} {hour} * * *", zone=zone), start, 12)]
    assert len(runs) == 13
    assert all(sooner < later for sooner, later in pairwise(runs))


@settings(max_examples=60)
@given(
    zone=_zones,
    fields=st.sampled_from(["*/20 *", "* 3", "45 *", "0 */2", "*/15 1-3", "* 0"]),
    start=st.builds(lambda at, off: at + off * MICROSECONDS, _changes, st.integers(-9000, 9000)),
)
def test_elapsed_time_fires_whenever_the_clock_on_the_wall_fits(zone: str, fields: str, start: int) -> None:
    """As somebody who looks at it every minute would say, also where it changes by half an hour."""
    looks = range(start - start % (60 * MICROSECONDS), start + 6 * 3600 * MICROSECONDS, 60 * MICROSECONDS)
    everything = Cron(f"{fields} * * *").firings(-1)
    fitting = {to_datetime(at).time() for at in takewhile(lambda at: at < 86_400 * MICROSECONDS, everything)}
    clock = [(at, to_datetime(at).astimezone(ZoneInfo(zone)).time()) for at in looks if at > start]
    found = takewhile(lambda at: at <= looks[-1], Cron(f"{fields} * * *", zone=zone).firings(start))
    assert list(found) == [at for at, wall in clock if wall in fitting]


def test_white_space_is_no_difference() -> None:
    """So that a newline is in no list, and one that was only spelt otherwise is not taken for a new time."""
    assert Cron(" 0\n3  * * *\t") == Cron("0 3 * * *")


def test_missed_firings_become_one_all_or_none() -> None:
    """Ten hours of an hourly schedule: what each policy makes of them, and what it drops."""
    after, now = _at("2026-01-01T00:00+00:00"), _at("2026-01-01T10:00:30+00:00")
    newest = _at("2026-01-01T10:00+00:00")
    one = find_due_runs(Cron("0 * * * *"), after, now)
    assert one is not None
    assert (one.firings, one.dropped, one.until) == ((newest,), 9, newest)
    every = find_due_runs(Cron("0 * * * *", missed="all", most=4), after, now)
    assert every is not None
    assert (len(every.firings), every.firings[-1], every.dropped) == (4, newest, 6)
    skipped = find_due_runs(Cron("0 * * * *", missed="skip"), after, now)
    assert skipped is not None
    assert (skipped.firings, skipped.dropped) == ((newest,), 9)
    late = find_due_runs(Cron("0 * * * *", missed="skip"), after, now + 31 * MICROSECONDS)
    assert late is not None
    assert (late.firings, late.dropped, late.until) == ((), 10, newest)


def test_nothing_is_due_before_its_time_or_while_time_has_gone_back() -> None:
    """A store whose clock is set back an hour fires nothing again."""
    hourly = Cron("0 * * * *")
    fired = _at("2026-01-01T10:00+00:00")
    assert find_due_runs(hourly, fired, fired) is None
    assert find_due_runs(hourly, fired, fired - 3600 * MICROSECONDS) is None
    assert find_due_runs(hourly, fired, fired + 3600 * MICROSECONDS - 1) is None
    assert find_due_runs(hourly, fired, fired + 3600 * MICROSECONDS) is not None


def test_a_year_of_missed_minutes_is_dealt_with_in_a_moment() -> None:
    """Counting stops, and the newest are found all the same."""
    after, now = _at("2025-01-01T00:00+00:00"), _at("2026-01-01T00:00+00:00")
    for when in (Cron("* * * * *", missed="all", most=3), Every(60, missed="all", most=3)):
        found = find_due_runs(when, after, now)
        assert found is not None
        assert found.firings == tuple(now - back * 60 * MICROSECONDS for back in (2, 1, 0))
        assert found.dropped == MAX_COUNTED_RUNS - 3


def test_a_month_of_missed_minutes_before_quiet_weeks_is_one_firing() -> None:
    """The newest of them, the last minute of January: one that is older would leave others to fire next."""
    found = find_due_runs(Cron("* * * 1 *"), _at("2025-06-01T00:00+00:00"), _at("2026-02-15T00:00+00:00"))
    assert found is not None
    assert found.firings == (_at("2026-01-31T23:59+00:00"),)
    assert found.until == found.firings[-1]


def test_skip_drops_nothing_that_is_less_than_a_minute_late() -> None:
    """Whatever ``most`` says, which is for ``all``."""
    after = _at("2026-01-01T00:00+00:00")
    found = find_due_runs(Every(1, missed="skip", most=1), after, after + 5 * MICROSECONDS)
    assert found is not None
    assert (len(found.firings), found.dropped) == (5, 0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Cron("* * * *"), "4 fields"),
        (lambda: Cron("* * * * * *"), "6 fields"),
        (lambda: Cron("61 * * * *"), "its minute is '61'; possible are 0 to 59"),
        (lambda: Cron("0 0 30 2 *"), "its day of month is '30'"),
        (lambda: Cron("0 0 * * FRI-SUN"), "ranges upwards"),
        (lambda: Cron("0 0 15W * *"), "its day of month is '15W'; .*LW"),
        (lambda: Cron("0 0 * * MON#6"), "its day of week is 'MON#6'"),
        (lambda: Cron("0 0 ? * *"), "its day of month is '.'"),
        (lambda: Cron("@daily"), "1 field; it has five: minute, hour"),
        (lambda: Cron("x" * 201), "at most 200"),
        (lambda: Cron(5), "give text"),  # type: ignore[arg-type]
        (lambda: Cron("0 0 * * *", zone="Europe/Atlantis"), "tzdata"),
        (lambda: Cron("0 0 * * *", zone="../../etc/passwd"), "no such time zone"),
        (lambda: Cron("0 0 * * *", zone="Europe"), "no such time zone"),
        (lambda: Cron("0 0 * * *", zone=["UTC"]), "no such time zone"),  # type: ignore[arg-type]
        (lambda: Cron("0 0 * * *", missed="some"), "skip, one, all"),  # type: ignore[arg-type]
        (lambda: Cron("0 0 * * *", missed=[]), "skip, one, all"),  # type: ignore[arg-type]
        (lambda: Cron("0 0 * * *", most=0), "1 to 1,000"),
        (lambda: Every(0.5), "are possible"),
        (lambda: Every(float("nan")), "are possible"),
        (lambda: Every("60"), "number of seconds"),  # type: ignore[arg-type]
    ],
)
def test_what_never_could_fire_is_refused(make: object, words: str) -> None:
    """With the value, the limit and the remedy."""
    with pytest.raises(InvalidInput, match=words):
        make()  # type: ignore[operator]


def test_what_is_stored_comes_back() -> None:
    """And what is not known here is said, not guessed."""
    for when in (Cron("0 3 * * *", zone="Europe/Berlin", missed="all", most=5), Every(30, missed="skip")):
        assert load_timing(when.dump()) == when
    for stored in ({}, {"every": 30, "until": 5}, {"cron": "0 3 * * *", "zone": "Moon/Copernicus"}):
        with pytest.raises(InvalidInput):
            load_timing(stored)
