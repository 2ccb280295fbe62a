"""One command of a client, and how its line is read.

Where the protocol document is vague, beanstalkd 1.12 decides: which prefix makes a command, what may follow a
number, which mistake is told of first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from tidewheel.beanstalkd.replies import BAD_FORMAT, UNKNOWN_COMMAND

MAX_TUBE_LENGTH: Final = 200
UINT32: Final = 2**32 - 1
UINT64: Final = 2**64 - 1

_number = re.compile(rb" *([0-9]+)")
_two_numbers = re.compile(rb" *([0-9]+) +([0-9]+)")
_three_numbers = re.compile(rb" *([0-9]+) +([0-9]+) +([0-9]+)")
_four_numbers = re.compile(rb" *([0-9]+) +([0-9]+) +([0-9]+) +([0-9]+)")
_signed = re.compile(rb"[ \t\n\v\f\r]*([+-]?[0-9]+)")  # as C's strtol reads it: what follows does not matter
_tube = re.compile(rb"[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]*")
_pause = re.compile(rb" *([A-Za-z0-9+/;.$_()-]+) +([0-9]+)")


class Command(Struct, frozen=True, gc=False):
    """What a client wants. ``error`` is set where there is nothing to do but to say so."""

    name: str  # its word on the wire; empty when it is not counted as any
    error: bytes = b""
    number: int = 0  # the job's
    priority: int = 0
    delay: int = 0  # seconds
    ttr: int = 0  # seconds
    size: int = 0  # of the body that follows
    bound: int = 0
    timeout: int | None = None  # seconds; None waits on
    tube: str = ""
    body: bytes = b""


_BAD: Final = Command("", BAD_FORMAT)
_UNKNOWN: Final = Command("", UNKNOWN_COMMAND)


def read_command(line: bytes) -> Command:
    """A command line without its end."""
    if b"\0" in line:
        return _BAD
    word, space, rest = line.partition(b" ")
    if space:
        reader = _READERS.get(word)
        if reader is not None:
            return reader(word.decode(), rest)
    elif word in _BARE:
        return Command(word.decode())
    # What begins like one of these is that command, with something behind it that does not belong there.
    if line.startswith(b"quit"):
        return Command("quit")
    if line.startswith(b"pause-tube"):
        return _read_pause("pause-tube", line[len(b"pause-tube") :])
    return _BAD if line.startswith(_BARE_PREFIXES) else _UNKNOWN


def begins_like_command(line: bytes) -> bool:
    """Return whether the first word is one of the protocol, whatever follows it."""
    return line.partition(b" ")[0] in _READERS or line.startswith((*_BARE_PREFIXES, b"pause-tube"))


def _read_put(name: str, rest: bytes) -> Command:
    numbers = _four_numbers.match(rest)
    if numbers is None:
        return _BAD
    priority, delay, ttr, size = map(int, numbers.groups())
    if priority > UINT32 or delay > UINT32 or ttr > UINT32 or size > UINT32:
        return _BAD
    # What follows the numbers is told of only when the body is not too big: see the parser.
    error = BAD_FORMAT if numbers.end() != len(rest) else b""
    return Command(name, error, priority=priority, delay=delay, ttr=max(1, ttr), size=size)


def _read_job(name: str, rest: bytes) -> Command:
    numbers = _number.fullmatch(rest)
    if numbers is None or (number := int(numbers[1])) > UINT64:
        return _BAD
    return Command(name, number=number)


def _read_bury(name: str, rest: bytes) -> Command:
    numbers = _two_numbers.fullmatch(rest)
    if numbers is None:
        return _BAD
    number, priority = map(int, numbers.groups())
    if number > UINT64 or priority > UINT32:
        return _BAD
    return Command(name, number=number, priority=priority)


def _read_release(name: str, rest: bytes) -> Command:
    numbers = _three_numbers.fullmatch(rest)
    if numbers is None:
        return _BAD
    number, priority, delay = map(int, numbers.groups())
    if number > UINT64 or priority > UINT32 or delay > UINT32:
        return _BAD
    return Command(name, number=number, priority=priority, delay=delay)


def _read_kick(name: str, rest: bytes) -> Command:
    signed = _signed.match(rest)
    if signed is None or abs(bound := int(signed[1])) > UINT64:
        return _BAD
    return Command(name, bound=bound & UINT32)  # unsigned and cut, so that -1 is all of them


def _read_timeout(name: str, rest: bytes) -> Command:
    signed = _signed.match(rest)
    seconds = 0 if signed is None else int(signed[1])
    if not -(2**63) <= seconds < 2**63:
        return _BAD
    seconds = (seconds + 2**31) % 2**32 - 2**31  # kept in 32 bits
    return Command(name, timeout=None if seconds < 0 else seconds)


def _read_tube(name: str, rest: bytes) -> Command:
    if len(rest) > MAX_TUBE_LENGTH or _tube.fullmatch(rest) is None:
        return _BAD
    return Command(name, tube=rest.decode())


def _read_pause(name: str, rest: bytes) -> Command:
    words = _pause.fullmatch(rest)
    if words is None or (delay := int(words[2])) > UINT32:
        return _BAD
    tube = words[1]
    if len(tube) > MAX_TUBE_LENGTH or tube.startswith(b"-"):
        return Command(name, BAD_FORMAT)
    return Command(name, tube=tube.decode(), delay=delay)


_READERS: Final[dict[bytes, Callable[[str, bytes], Command]]] = {
    b"put": _read_put,
    b"reserve-with-timeout": _read_timeout,
    b"use": _read_tube,
    b"watch": _read_tube,
    b"ignore": _read_tube,
    b"stats-tube": _read_tube,
    b"release": _read_release,
    b"bury": _read_bury,
    b"kick": _read_kick,
    **dict.fromkeys((b"delete", b"touch", b"peek", b"kick-job", b"stats-job", b"reserve-job"), _read_job),
}
_BARE: Final = frozenset(
    {
        b"reserve",
        b"peek-ready",
        b"peek-delayed",
        b"peek-buried",
        b"stats",
        b"list-tubes",
        b"list-tube-used",
        b"list-tubes-watched",
        b"quit",
    }
)
_BARE_PREFIXES: Final = tuple(sorted(_BARE))

COUNTED: Final = (
    "put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve", "reserve-with-timeout", "delete",
    "release", "use", "watch", "ignore", "bury", "kick", "touch", "stats", "stats-job", "stats-tube",
    "list-tubes", "list-tube-used", "list-tubes-watched", "pause-tube",
)  # fmt: skip
"""The commands that ``stats`` counts, in its order. beanstalkd leaves out kick-job and reserve-job."""
