"""A child that a handler forked, and that comes back to the worker instead of ending.

It is a copy of the worker that shares its epoll object and its sockets: waiting on them would take the
parent's events, and closing them would leave the parent deaf, even for SIGTERM. So it ends right where the
handler came back.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

_log = logging.getLogger("tidewheel.worker")


class Forks:
    """How often this process's ancestors forked since this was loaded; it changes only by being a child."""

    count = 0


def end_child(error: BaseException | None) -> NoReturn:
    """For a process whose ``Forks.count`` is another after a handler's code ran than before."""
    code = 1
    if isinstance(error, SystemExit):  # it meant to end, and says how
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    else:
        _log.error("process %d was forked by a handler and came back to its worker; it ends", os.getpid())
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # full, closed or absent: there is nobody to tell
            continue
    os._exit(code)


def _count() -> None:
    Forks.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)
