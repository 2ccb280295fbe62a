"""When a schedule fires: by a cron expression in a time zone, or every so many seconds.

A firing is a moment in microseconds. Whether it is due is for the store's clock to say, which firings have
been dealt with is for the schedule to remember: this only tells which moments there are.

**Changes of the clock** are treated as Debian's cron does. An expression with a fixed minute and hour means a
time of day: one that the clock skips fires when the skipped hour is over, one that comes twice fires the
first time. One with a ``*`` in front of its minutes or hours means elapsed time, and fires in both hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, cast
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from windlass.clock import MICROSECONDS, seconds_to_microseconds, to_datetime, to_microseconds
from windlass.errors import InvalidInput
from windlass.names import shorten

MAX_EXPRESSION: Final = 200
"""Longest cron expression, in characters."""
FIELDS: Final = 5
MIN_SECONDS: Final = 1.0
MAX_SECONDS: Final = 366 * 86_400.0
MAX_MOST: Final = 1000
"""So many missed firings at most get jobs of their own."""
MAX_COUNTED: Final = 10_000
"""So many missed firings are counted; of more it is said that there are at least so many."""
GRACE_SECONDS: Final = 60.0
"""A firing that is no later was not missed."""
_LAST_YEAR: Final = 9900
_HOUR: Final = 3600 * MICROSECONDS
_MOST_STEPS: Final = 1000
"""Around a change of the clock some steps may lead nowhere; never so many."""


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
class Due:
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
        if len(self.expression.split()) != FIELDS:
            raise InvalidInput(
                f"the cron expression {self.expression!r} has {len(self.expression.split())} fields; it has "
                "five: minute, hour, day of month, month, day of week"
            )
        zone_of(self.zone)
        check_missed(self.missed, self.most)
        try:
            CronSim(self.expression, to_datetime(0))
        except CronSimError as error:
            raise InvalidInput(
                f"the cron expression {self.expression!r} cannot be read: {str(error).lower()}. Its fields "
                "are minute, hour, day of month, month, day of week"
            ) from None
        if self.next_after(0) is None:
            raise InvalidInput(
                f"the cron expression {self.expression!r} never fires: no such day comes within 50 years"
            )

    def next_after(self, moment: int) -> int | None:
        """The first firing after this moment; None when none comes within 50 years."""
        start = to_datetime(moment).astimezone(zone_of(self.zone))
        if start.year > _LAST_YEAR:
            return None
        steps = CronSim(self.expression, start)
        for _ in range(_MOST_STEPS):
            found = next(steps, None)
            if found is None:
                return None
            # In an hour that comes twice a time of day may mean the hour before: that is over.
            if (at := to_microseconds(found)) > moment:
                return at
        return None

    def newest(self, after: int, until: int, most: int) -> tuple[list[int], int]:
        """The newest firings after one moment and up to another, oldest first, and how many there are.

        Counting ends at ``MAX_COUNTED``.
        """
        found = self._between(after, until)
        if len(found) < MAX_COUNTED:
            return found[-most:], len(found)
        span = _HOUR
        while len(newest := self._between(max(after, until - span), until)) < most:
            span *= 2
        return newest[-most:], len(found)

    def _between(self, after: int, until: int) -> list[int]:
        found: list[int] = []
        at = self.next_after(after)
        while at is not None and at <= until and len(found) < MAX_COUNTED:
            found.append(at)
            at = self.next_after(at)
        return found

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
        return (moment // self._step + 1) * self._step

    def newest(self, after: int, until: int, most: int) -> tuple[list[int], int]:
        """As that of ``Cron``."""
        last, number = until // self._step, until // self._step - after // self._step
        first = last - min(number, most) + 1
        return [count * self._step for count in range(first, last + 1)], min(number, MAX_COUNTED)

    def dump(self) -> dict[str, Any]:
        """As stored."""
        return {"every": self.seconds, "missed": self.missed, "most": self.most}

    def __str__(self) -> str:
        return f"every {self.seconds:g} s"


When: TypeAlias = Cron | Every
"""When a schedule fires."""


def load(stored: Mapping[str, Any]) -> When:
    """What ``dump`` gave; ``InvalidInput`` when it means nothing here: a zone this machine does not know."""
    given = dict(stored)
    try:
        if "cron" in given:
            return Cron(given.pop("cron"), **given)
        return Every(given.pop("every"), **given)
    except (KeyError, TypeError):
        raise InvalidInput(f"{shorten(stored)} says not when to fire") from None


def check_when(value: Any) -> When:
    """What a caller gave for one."""
    if not isinstance(value, Cron | Every):
        raise InvalidInput(
            f"the schedule is {shorten(value)} ({type(value).__name__}); give a "
            'Cron("0 3 * * *", zone="Europe/Berlin") or an Every(60)'
        )
    return value


def due(when: When, after: int, now: int) -> Due | None:
    """What has come due since the firing that was dealt with last; None while nothing has.

    Time may have gone back since: then nothing is due until it has caught up.
    """
    most = 1 if when.missed == "one" else when.most
    firings, number = when.newest(after, now, most)
    if not firings:
        return None
    until = firings[-1]
    if when.missed == "skip":
        firings = [at for at in firings if now - at <= GRACE_SECONDS * MICROSECONDS]
    return Due(tuple(firings), number - len(firings), until)


def next_runs(when: When, after: int, number: int) -> list[int]:
    """The next firings, fewer where no more come."""
    found: list[int] = []
    at = when.next_after(after)
    while at is not None and len(found) < number:
        found.append(at)
        at = when.next_after(at)
    return found


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """A time zone by its IANA name."""
    if name == "UTC":
        return UTC  # also where there is no database of zones
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, AttributeError, OSError):
        raise InvalidInput(
            f"zone is {shorten(name)}; there is no such time zone here. Give an IANA name such as "
            "Europe/Berlin; on Windows, and wherever else the system has no zones, pip install tzdata"
        ) from None


def check_missed(missed: Any, most: Any) -> None:
    """Refuse what is no policy."""
    if missed not in set(Missed):
        raise InvalidInput(f"missed is {shorten(missed)}; it must be one of {', '.join(Missed)}")
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MAX_MOST:
        raise InvalidInput(f"most is {shorten(most)}; 1 to {MAX_MOST:,} are possible")
