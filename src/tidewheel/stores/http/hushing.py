"""Our requests leave no line each in the program's log: a worker makes several every second."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ours: ContextVar[bool] = ContextVar("tidewheel_http_ours", default=False)


def _is_told(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or not _ours.get()


# A filter, and no level: the program may use the library, and want to read of its own requests.
logging.getLogger("httpx2").addFilter(_is_told)


@contextmanager
def hushed() -> Iterator[None]:
    """What the library says of a request in here is not logged, unless something is wrong."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)
