"""How many files this process may have open: each connection is one."""

from __future__ import annotations

import asyncio
import errno
import sys
from typing import Any

from tidewheel.core.log_throttle import LimitedLog

OWN_FILES = 200
"""What a server has open besides connections: its database, its log, its modules."""


def allow_connections(wanted: int) -> int:
    """Make room for so many connections, as far as the system lets us; for how many there is."""
    if sys.platform == "win32":
        return wanted  # there is no such limit
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OWN_FILES
    if soft not in (resource.RLIM_INFINITY, -1) and soft < needed:
        # Programs start with a low one for the sake of old ones that cannot count beyond it.
        soft = needed if hard in (resource.RLIM_INFINITY, -1) else min(needed, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (OSError, ValueError):  # macOS has a second limit, which it does not tell
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft in (resource.RLIM_INFINITY, -1):
        return wanted
    return min(wanted, max(0, soft - OWN_FILES))


def report_lack_of_files(loop: asyncio.AbstractEventLoop, log: LimitedLog) -> None:
    """Log one line now and then when a connection cannot be accepted for lack of files.

    asyncio reports each failure to accept with a traceback, thousands a second. Other errors that the loop
    reports are handled as before.
    """
    before = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "socket" in context and isinstance(error, OSError) and error.errno in _LACKS:
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


_LACKS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
