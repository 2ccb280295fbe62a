"""When a schedule fires: by a cron expression in a time zone, or every so many seconds.

A firing is a moment in microseconds. Whether it is due is for the store's clock to say, which firings have
been dealt with is for the schedule to remember: this only tells which moments there are.

**Changes of the clock** are treated as Debian's cron does. An expression with a fixed minute and hour means a
time of day: one that the clock skips fires when the skipped hour is over, one that comes twice fires the
first time. One with a ``*`` in front of its minutes or hours means elapsed time: it fires whenever the clock
on the wall fits, so in both hours that are called the same, and in none that is skipped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any, Final, Literal, TypeAlias, cast
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tidewheel.core.clock import (
    MICROSECONDS,
    seconds_to_microseconds,
    to_datetime,
    to_microseconds,
)
from tidewheel.core.names import shorten
from tidewheel.core.text_format import plural
from tidewheel.errors import InvalidInput

MAX_EXPRESSION: Final = 200
"""Longest cron expression, in characters."""
MIN_SECONDS: Final = 1.0
MAX_SECONDS: Final = 366 * 86_400.0
MAX_MADE_UP_RUNS: Final = 1000
"""So many missed firings at most get jobs of their own."""
MAX_COUNTED_RUNS: Final = 10_000
"""So many missed firings are counted; of more it is said that there are at least so many."""
GRACE_SECONDS: Final = 60.0
"""A firing that is no later was not missed."""
_MAX_TIME: Final = 250_000_000_000 * MICROSECONDS
"""In the year 9892. Who is further ahead has come to the end."""
_HOUR: Final = 3600 * MICROSECONDS
_POSSIBLE: Final = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day of month": "1 to 31 (if its months have it), L (the last) and LW (the last weekday)",
    "month": "1 to 12 and JAN to DEC",
    "day of week": "0 to 7 (both are Sunday), SUN to SAT, 5L (the last Friday) and MON#1 (the first Monday)",
}
"""The fields of an expression, in their order, and what they may be."""


class Missed(StrEnum):
    """What becomes of firings that passed while nobody was there."""

    SKIP = "skip"
    """those that are more than a minute late are left out"""
    ONE = "one"
    """one job for all of them"""
    ALL = "all"
    """a job for each, the newest ones, at most as many as ``most`` says"""


MissedWord: TypeAlias = Literal["skip", "one", "all"]


@dataclass(frozen=True, slots=True)
class DueRuns:
    """Firings whose time has come: those that get a job, and how many do not."""

    firings: tuple[int, ...]
    dropped: int
    until: int  # the newest of all: up to here the schedule has been dealt with


@dataclass(frozen=True, slots=True)
class Cron:
    """By a cron expression of five fields: ``Cron("0 3 * * *", zone="Europe/Berlin")``.

    ``missed``: what becomes of firings while no worker ran; ``most`` bounds ``"all"``.
    """

    expression: str
    zone: str = "UTC"
    missed: MissedWord = "one"
    most: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str) or len(self.expression) > MAX_EXPRESSION:
            raise InvalidInput(
                f"the cron expression is {shorten(self.expression)}; give text of at most {MAX_EXPRESSION} "
                "characters"
            )
        # One spelling of each: white space may be a newline, which nobody wants in a list.
        object.__setattr__(self, "expression", " ".join(self.expression.split()))
        _check_expression(self.expression)
        zone_of(self.zone)
        check_missed(self.missed, self.most)

    def next_after(self, moment: int) -> int | None:
        """The first firing after this moment; None when none comes within 50 years."""
        return next(self.firings(moment), None)

    def firings(self, after: int) -> Iterator[int]:
        """Every firing after this moment, in their order, until none comes within 50 years."""
        if after > _MAX_TIME:
            return
        start = to_datetime(after).astimezone(zone_of(self.zone))
        minute, hour, *_ = self.expression.split()
        elapsed = minute.startswith("*") or hour.startswith("*")
        for at in _by_wall_clock(self.expression, start) if elapsed else _by_day(self.expression, start):
            if at > after:
                yield at

    def newest_runs(self, after: int, until: int, most: int) -> tuple[list[int], int]:
        """The newest firings after one moment and up to another, oldest first, and how many there are.

        Counting ends at ``MAX_COUNTED_RUNS``.
        """
        found = self._between(after, until)
        if len(found) < MAX_COUNTED_RUNS:
            return found[-most:], len(found)
        # Too many from ``early`` on, too few from ``late`` on. From behind, because that is soon done, twice
        # as far each time; a month of minutes before quiet months is too many, and then less far again.
        early, late, start = after, until, until - _HOUR
        while not most <= len(found := self._between(start, until)) < MAX_COUNTED_RUNS:
            if len(found) < most:
                late, start = start, until - 2 * (until - start)
            else:
                early = start
            if start <= early:
                start = (early + late) // 2
        return found[-most:], MAX_COUNTED_RUNS

    def _between(self, after: int, until: int) -> list[int]:
        return list(islice(takewhile(lambda at: at <= until, self.firings(after)), MAX_COUNTED_RUNS))

    def dump(self) -> dict[str, Any]:
        """As stored."""
        return {"cron": self.expression, "zone": self.zone, "missed": self.missed, "most": self.most}

    def __str__(self) -> str:
        return f"{self.expression} ({self.zone})"


@dataclass(frozen=True, slots=True)
class Every:
    """Every so many seconds, counted from 1970 in UTC: ``Every(30)``. Any number of workers agree on it.

    ``missed`` and ``most``: see :class:`Cron`.
    """

    seconds: float | timedelta
    missed: MissedWord = "one"
    most: int = 100

    def __post_init__(self) -> None:
        given = self.seconds
        seconds = given.total_seconds() if isinstance(given, timedelta) else given
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise InvalidInput(f"seconds is {shorten(given)}; give a number of seconds or a timedelta")
        if not MIN_SECONDS <= seconds <= MAX_SECONDS:  # also refuses NaN
            raise InvalidInput(
                f"seconds is {shorten(given)}; {MIN_SECONDS:g} to {MAX_SECONDS:,.0f} (a year) are possible"
            )
        object.__setattr__(self, "seconds", float(seconds))
        check_missed(self.missed, self.most)

    @property
    def _step(self) -> int:
        return seconds_to_microseconds(cast("float", self.seconds))  # by now it is one

    def next_after(self, moment: int) -> int | None:
        """The first firing after this moment."""
        return next(self.firings(moment), None)

    def firings(self, after: int) -> Iterator[int]:
        """As those of ``Cron``."""
        first = after // self._step + 1
        return (place * self._step for place in range(first, _MAX_TIME // self._step))

    def newest_runs(self, after: int, until: int, most: int) -> tuple[list[int], int]:
        """As that of ``Cron``."""
        last, number = until // self._step, until // self._step - after // self._step
        first = last - min(number, most) + 1
        return [place * self._step for place in range(first, last + 1)], min(number, MAX_COUNTED_RUNS)

    def dump(self) -> dict[str, Any]:
        """As stored."""
        return {"every": self.seconds, "missed": self.missed, "most": self.most}

    def __str__(self) -> str:
        return f"every {self.seconds:g} s"


Timing: TypeAlias = Cron | Every
"""When a schedule fires."""


def load_timing(stored: Mapping[str, Any]) -> Timing:
    """What ``dump`` gave; ``InvalidInput`` when it means nothing here: a zone this machine does not know."""
    given = dict(stored)
    try:
        if "cron" in given:
            return Cron(given.pop("cron"), **given)
        return Every(given.pop("every"), **given)
    except (KeyError, TypeError):
        raise InvalidInput(f"{shorten(stored)} says not when to fire") from None


def check_timing(value: Any) -> Timing:
    """What a caller gave for one."""
    if not isinstance(value, Cron | Every):
        raise InvalidInput(
            f"the schedule is {shorten(value)} ({type(value).__name__}); give a "
            'Cron("0 3 * * *", zone="Europe/Berlin") or an Every(60)'
        )
    return value


def find_due_runs(when: Timing, after: int, now: int) -> DueRuns | None:
    """What has come due since the firing that was dealt with last; None while nothing has.

    Time may have gone back since: then nothing is due until it has caught up.
    """
    # Those of the last minute are all made: there are at most 61 of them.
    most = {"one": 1, "skip": MAX_MADE_UP_RUNS, "all": when.most}[when.missed]
    firings, number = when.newest_runs(after, now, most)
    if not firings:
        return None
    until = firings[-1]
    if when.missed == "skip":
        firings = [at for at in firings if now - at <= GRACE_SECONDS * MICROSECONDS]
    return DueRuns(tuple(firings), number - len(firings), until)


@lru_cache(maxsize=2048)  # of each schedule that there can be: a list of them is asked for again and again
def next_runs(when: Timing, after: int, number: int) -> tuple[int, ...]:
    """The next firings, fewer where no more come."""
    return tuple(islice(when.firings(after), number))


@lru_cache(maxsize=2048)  # schedules are read again and again
def _check_expression(expression: str) -> None:
    parts = expression.split()
    if len(parts) != len(_POSSIBLE):
        raise InvalidInput(
            f"the cron expression {expression!r} has {plural(len(parts), 'field')}; it has five: "
            f"{', '.join(_POSSIBLE)}"
        )
    try:
        CronSim(expression, to_datetime(0))
    except CronSimError as error:
        field = str(error).removeprefix("Bad ").replace("-", " ")
        part = parts[list(_POSSIBLE).index(field)]
        raise InvalidInput(
            f"the cron expression {expression!r} cannot be read: its {field} is {part!r}; possible are "
            f"{_POSSIBLE[field]}, lists (1,2), ranges upwards (1-3) and steps (*/2)"
        ) from None
    if next(_by_day(expression, to_datetime(0)), None) is None:
        raise InvalidInput(
            f"the cron expression {expression!r} never fires: no such day comes within 50 years"
        )


def _by_day(expression: str, start: datetime) -> Iterator[int]:
    """Times of day. One that is skipped comes when the gap is over, one that comes twice the first time.

    If the start is in an hour that comes again, some of the first lie before it.
    """
    return map(to_microseconds, CronSim(expression, start))


def _by_wall_clock(expression: str, start: datetime) -> Iterator[int]:
    """Every moment at which the clock on the wall fits. Some of the first may lie before the start.

    Here cronsim lists times without a zone: with one it steps by whole hours, and loses firings where a
    clock changes by half an hour.
    """
    zone, local = start.tzinfo, start.replace(tzinfo=None)
    # Within the first pass of an hour that comes again the second pass of what is over is still to come.
    local -= max(_offset(start.replace(fold=0)) - _offset(start.replace(fold=1)), timedelta())
    again: deque[int] = deque()  # second passes
    for wall in CronSim(expression, local):
        first, second = wall.replace(tzinfo=zone, fold=0), wall.replace(tzinfo=zone, fold=1)
        ahead, behind = _offset(first), _offset(second)
        if ahead < behind:
            continue  # the clock skips it
        at = to_microseconds(first)
        while again and again[0] < at:
            yield again.popleft()
        yield at
        if ahead > behind:
            again.append(to_microseconds(second))
    yield from again


def _offset(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta()


_zone_info = lru_cache(maxsize=256)(ZoneInfo)


def zone_of(name: str) -> tzinfo:
    """A time zone by its IANA name."""
    if name == "UTC":
        return UTC  # also where there is no database of zones
    try:
        return _zone_info(name)
    except (KeyError, ValueError, TypeError, AttributeError, OSError):
        raise InvalidInput(
            f"zone is {shorten(name)}; there is no such time zone here. Give an IANA name such as "
            "Europe/Berlin; on Windows, and wherever else the system has no zones, pip install tzdata"
        ) from None


def check_missed(missed: Any, most: Any) -> None:
    """Refuse what is no policy."""
    if missed not in list(Missed):  # a list: what is given may have no hash
        raise InvalidInput(f"missed is {shorten(missed)}; it must be one of {', '.join(Missed)}")
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MAX_MADE_UP_RUNS:
        raise InvalidInput(f"most is {shorten(most)}; 1 to {MAX_MADE_UP_RUNS:,} are possible")


MAX_SCHEDULES: Final = 1000
"""Most schedules of a store: workers keep all of them in mind."""
