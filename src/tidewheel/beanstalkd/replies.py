"""What clients are answered, byte for byte as beanstalkd 1.12 does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
BURIED: Final = b"BURIED\r\n"
DEADLINE_SOON: Final = b"DEADLINE_SOON\r\n"
DELETED: Final = b"DELETED\r\n"
DRAINING: Final = b"DRAINING\r\n"
EXPECTED_CRLF: Final = b"EXPECTED_CRLF\r\n"
INTERNAL_ERROR: Final = b"INTERNAL_ERROR\r\n"
JOB_TOO_BIG: Final = b"JOB_TOO_BIG\r\n"
KICKED_ONE: Final = b"KICKED\r\n"
NOT_FOUND: Final = b"NOT_FOUND\r\n"
NOT_IGNORED: Final = b"NOT_IGNORED\r\n"
OUT_OF_MEMORY: Final = b"OUT_OF_MEMORY\r\n"
PAUSED: Final = b"PAUSED\r\n"
RELEASED: Final = b"RELEASED\r\n"
TIMED_OUT: Final = b"TIMED_OUT\r\n"
TOUCHED: Final = b"TOUCHED\r\n"
UNKNOWN_COMMAND: Final = b"UNKNOWN_COMMAND\r\n"


def inserted(number: int) -> bytes:
    return b"INSERTED %d\r\n" % number


def reserved(number: int, body: bytes) -> bytes:
    return b"RESERVED %d %d\r\n%b\r\n" % (number, len(body), body)


def found(number: int, body: bytes) -> bytes:
    return b"FOUND %d %d\r\n%b\r\n" % (number, len(body), body)


def using(tube: str) -> bytes:
    return b"USING %b\r\n" % tube.encode()


def watching(count: int) -> bytes:
    return b"WATCHING %d\r\n" % count


def kicked(count: int) -> bytes:
    return b"KICKED %d\r\n" % count


def chunk(text: str) -> bytes:
    """A document of YAML."""
    body = text.encode()
    return b"OK %d\r\n%b\r\n" % (len(body), body)


def listed(tubes: Iterable[str]) -> bytes:
    """A list as YAML."""
    return chunk("".join(("---\n", *(f"- {tube}\n" for tube in tubes))))
