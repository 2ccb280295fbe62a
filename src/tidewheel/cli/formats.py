"""Numbers and times as people say them, and the option types that read them back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from tidewheel.admin.filters.times import DURATION, UNITS
from tidewheel.core import text_format
from tidewheel.core.clock import MICROSECONDS, to_datetime
from tidewheel.core.model import FOREVER

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # no generic in older releases of click

duration: Final = text_format.format_duration
plural: Final = text_format.plural


def latency(seconds: float | None) -> str:
    """A time that may be short: ``0.04 ms``, ``3.1 ms``, then as ``duration`` has it."""
    if seconds is None or seconds >= 0.00995:
        return duration(seconds)
    milliseconds = seconds * 1000
    if milliseconds < 0.01:
        return "<0.01 ms" if seconds > 0 else "0 ms"
    return f"{milliseconds:.2f} ms" if milliseconds < 0.995 else f"{milliseconds:.1f} ms"


def measured(number: float | None) -> str:
    """A measured number, with as many digits as mean something: ``12,500``, ``3.7``; a dash for nothing."""
    if number is None:
        return "-"
    if number < 99.5:
        return f"{number:.3g}"
    digits = len(str(round(number))) - 3
    return f"{round(number, -digits):,.0f}"


def relative_time(microseconds: int, now: int) -> str:
    """How long ago, in one unit: ``now``, ``12s``, ``5m``, ``3h``, ``2d``; the future as ``in 5m``."""
    seconds = (now - microseconds) / MICROSECONDS
    if abs(seconds) < 1:
        return "now"
    prefix = "in " if seconds < 0 else ""
    seconds = abs(seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{prefix}{int(seconds // size)}{unit}"
    return f"{prefix}{int(seconds)}s"


def iso_time(microseconds: int | None) -> str:
    """A stored time as ISO 8601; empty for none."""
    return "" if microseconds is None else to_datetime(microseconds).isoformat()


def pause_end(paused_until: int | None, now: int) -> str:
    """What to say of a topic's pause; empty when it is not paused."""
    if paused_until is None or paused_until <= now:
        return ""
    if paused_until >= FOREVER:
        return "paused"
    return f"paused for {duration((paused_until - now) / MICROSECONDS)}"


def job_count(number: int) -> str:
    """``1 job``, ``2,000 job_count``."""
    return plural(number, "job")


class DurationType(ParamType):
    """Seconds, or a number with a unit: 90, 90s, 5m, 2h, 1d."""

    name = "duration"

    def __init__(self, *, none: bool = False) -> None:
        self.none = none
        """Whether ``none`` is a value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        text = value.strip().lower()
        if self.none and text == "none":
            return NONE
        match = DURATION.fullmatch(text)
        if match is None:
            also = " or none" if self.none else ""
            self.fail(f"{value!r} is no duration; give seconds{also}, or 500ms, 90s, 5m, 2h, 1d", param, ctx)
        return float(match[1]) * UNITS[match[2] or "s"]


class NumberOrNoneType(ParamType):
    """A whole number, or ``none``."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if value.strip().lower() == "none":
            return NONE
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is no whole number and not none", param, ctx)


class TimeType(ParamType):
    """An ISO 8601 time with a zone; with ``ago`` also a duration before now."""

    name = "time"

    def __init__(self, *, ago: bool = False) -> None:
        self.ago = ago

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        text = value.strip()
        match = DURATION.fullmatch(text)
        if self.ago and match is not None and match[2]:
            try:
                return datetime.now(UTC) - timedelta(seconds=float(match[1]) * UNITS[match[2].lower()])
            except OverflowError:
                self.fail(f"{value!r} ago is before all time", param, ctx)
        also = ", or 2h for two hours ago" if self.ago else ""
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{value!r} is no ISO 8601 time; write it like 2030-01-31T09:00Z{also}", param, ctx)
        if parsed.utcoffset() is None:
            self.fail(
                f"{value!r} has no time zone, so it is a different moment on every machine; "
                f"add Z or an offset like +02:00{also}",
                param,
                ctx,
            )
        return parsed


class _None:
    """The word ``none`` on a command line, told apart from an option that was not given."""

    def __repr__(self) -> str:
        return "none"


NONE: Final = _None()


def option_value(given: Any) -> Any:
    """An option's value as Python means it."""
    return None if given is NONE else given
