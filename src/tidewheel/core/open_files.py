"""How many files this process may have open: each connection is one."""

from __future__ import annotations

import asyncio
import errno
import sys
from typing import Any

from tidewheel.core.log_throttle import ThrottledLog

RESERVED_FILES = 200
"""What a server has open besides connections: its database, its log, its modules."""


def raise_file_limit(wanted: int) -> int:
    """Make room for so many connections, as far as the system lets us; for how many there is."""
    if sys.platform == "win32":
        return wanted  # there is no such limit
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft not in (resource.RLIM_INFINITY, -1) and soft < needed:
        # Programs start with a low one for the sake of old ones that cannot count beyond it.
        soft = needed if hard in (resource.RLIM_INFINITY, -1) else min(needed, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (OSError, ValueError):  # macOS has a second limit, which it does not tell
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft in (resource.RLIM_INFINITY, -1):
        return wanted
    return min(wanted, max(0, soft - RESERVED_FILES))


def log_file_shortage(loop: asyncio.AbstractEventLoop, log: ThrottledLog) -> None:
    """Log one line now and then when a connection cannot be accepted for lack of files.

    asyncio reports each failure to accept with a traceback, thousands a second. Other errors that the loop
    reports are handled as before.
    """
    before = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "socket" in context and isinstance(error, OSError) and error.errno in _SHORTAGE_ERRORS:
            log.write(
                "accept",
                "cannot accept connections: %s; trying again every second. Raise the limit of open files "
                "(ulimit -n, LimitNOFILE=)",
                error.strerror,
            )
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


_SHORTAGE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
