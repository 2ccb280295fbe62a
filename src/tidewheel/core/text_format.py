"""Numbers as people say them, and somebody else's words as they can be shown. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_CONTROLS: Final = {
    code: " " if chr(code).isspace() else f"\\x{code:02x}" for code in (*range(32), *range(127, 160))
}


def format_duration(seconds: float | None) -> str:
    """``12 ms``, ``1.5 s``, ``3m 20s``, ``5h 2m``, ``4d 3h``; a dash for nothing."""
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return "<1 ms" if seconds > 0 else "0 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, unit, smaller, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit} {rest}{small}" if rest else f"{whole // size}{unit}"
    return f"{whole} s"


def plural(number: int, one: str, many: str = "") -> str:
    """A number with its noun: ``1 retry``, ``2 retries``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def list_some(names: Sequence[str], most: int = 5) -> str:
    """The first of these names, and how many more there are: ``a, b, c, d, e and 1,200 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def format_size(number: int) -> str:
    """Bytes: ``12 bytes``, ``1.5 kB``, ``3.0 GB``."""
    for unit, bytes_ in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if number >= bytes_:
            return f"{number / bytes_:,.1f} {unit}"
    return plural(number, "byte")


def printable(text: str) -> str:
    """Somebody else's text on one line, with escapes for what a terminal would obey: it may hold anything."""
    return text if text.isprintable() else text.translate(_CONTROLS)


def storable_text(text: str, limit: int) -> str:
    """Return text that every store can keep: no NUL, no lone surrogates, at most ``limit`` characters."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
