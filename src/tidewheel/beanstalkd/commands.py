"""Parse the bytes of a beanstalkd connection into commands, without I/O.

Bytes are fed in portions of any size. Where the protocol document is vague, the behaviour of beanstalkd 1.12
applies: which prefix makes a command, which bytes may follow a number, which error is reported first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tidewheel.beanstalkd.replies import BAD_FORMAT, EXPECTED_CRLF, JOB_TOO_BIG, UINT32, UNKNOWN_COMMAND

MAX_TUBE_LENGTH: Final = 200
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


MAX_LINE_BYTES: Final = 224
"""Longest command line in bytes, with its end."""


class NotBeanstalkd(Exception):
    """The other side speaks another protocol: a browser was made to call us, or the port is the wrong one."""


class CommandParser:
    """One connection's bytes. What it keeps is a line, or a body of at most ``max_job_size`` bytes, and
    whatever was fed behind it.
    """

    def __init__(self, max_job_size: int) -> None:
        self._max_job_size = max_job_size
        self._buffer = bytearray()
        self._put: Command | None = None  # whose body is on its way
        self._skipped: Command | None = None  # to be told of once what belongs to it has passed
        self._skip = 0  # bytes of a body that is thrown away
        self._skip_line = False
        self._first = True

    @property
    def buffered(self) -> int:
        """Bytes that were fed and not used yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """What came in."""
        self._buffer += data

    def next(self) -> Command | None:
        """The next command that is there as a whole. Raises ``NotBeanstalkd``."""
        while True:
            if self._skipped is not None:
                return self._skip_unwanted()
            if self._put is not None:
                return self._with_body(self._put)
            line = self._line()
            if line is not None:
                command = read_command(line)
                if command.name != "put":
                    return command
                if command.size > self._max_job_size:
                    self._skip = command.size + 2
                    self._skipped = replace(command, error=JOB_TOO_BIG)
                elif command.error:
                    return command
                else:
                    self._put = command
            elif self._skipped is None:
                return None

    def _line(self) -> bytes | None:
        buffer = self._buffer
        end = buffer.find(b"\r\n", 0, MAX_LINE_BYTES)
        if self._first and (end >= 0 or len(buffer) >= MAX_LINE_BYTES):
            self._first = False
            self._refuse_strangers(end)
        if end >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 2]
            return line
        if len(buffer) >= MAX_LINE_BYTES:
            self._skip_line = True
            self._skipped = Command("", BAD_FORMAT)
        return None

    def _refuse_strangers(self, end: int) -> None:
        """Hang up unless the first line begins like a command, also one that is too long or wrong.

        Other protocols can be made to carry our commands in a later line, such as the body of a request.
        """
        start = bytes(self._buffer[: end if end >= 0 else MAX_LINE_BYTES])
        if not begins_like_command(start):
            raise NotBeanstalkd(repr(start[:40].decode("latin-1")))  # quoted: it goes to the log

    def _with_body(self, put: Command) -> Command | None:
        end = put.size + 2
        buffer = self._buffer
        if len(buffer) < end:
            return None
        self._put = None
        body = bytes(buffer[: put.size])
        complete = buffer[put.size : end] == b"\r\n"
        del buffer[:end]
        return replace(put, body=body) if complete else replace(put, error=EXPECTED_CRLF)

    def _skip_unwanted(self) -> Command | None:
        """Throw away what is not wanted; once all of it has passed, what to tell about it."""
        buffer = self._buffer
        if self._skip_line:
            end = buffer.find(b"\r\n")
            if end < 0:
                del buffer[: max(0, len(buffer) - 1)]  # the last byte may be the first half of the end
                return None
            del buffer[: end + 2]
            self._skip_line = False
        else:
            passed = min(self._skip, len(buffer))
            del buffer[:passed]
            self._skip -= passed
            if self._skip:
                return None
        command, self._skipped = self._skipped, None
        return command
