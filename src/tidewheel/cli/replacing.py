"""A worker's process that starts anew in its own place, because nothing else ends a thread.

The process keeps its number, so whoever manages it (a shell, systemd, a container) notices nothing. Where a
program cannot be replaced like that, and where its jobs live in its memory, a fresh worker takes over inside.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import NoReturn

from tidewheel.cli.failures import FAILED, WORN

_log = logging.getLogger("tidewheel.cli")


class Replacement:
    """The command of this process as it was started. Made before the user's code can change it."""

    def __init__(self) -> None:
        self._directory = os.getcwd()
        self._program = sys.executable
        self._arguments = [self._program, *sys.orig_argv[1:]]

    @property
    def possible(self) -> bool:
        """Windows would end the process its parent knows; a frozen program has no command."""
        return sys.platform != "win32" and bool(self._program)

    def start(self) -> NoReturn:
        """Start anew; ``OSError`` when the interpreter is gone, say, because it is being replaced."""
        _log.warning("this process starts anew: half the slots of its worker are stuck")
        _flush()
        os.chdir(self._directory)
        os.execv(self._program, self._arguments)  # noqa: S606 - our own command line, as it was given

    def force(self, *, supervised: bool) -> NoReturn:
        """The same without an event loop, which is blocked for good: nothing here will ever end properly.

        A supervised process ends, and its parent starts another.
        """
        if supervised:
            _flush()
            os._exit(WORN)
        try:
            self.start()
        except OSError as error:
            _log.critical("this process cannot start anew, and ends: %s", error)
            _flush()
            os._exit(FAILED)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
