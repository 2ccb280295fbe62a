"""A worker's process that starts anew in its own place, because nothing else ends a thread.

The process keeps its number, so whoever manages it (a shell, systemd, a container) notices nothing. Where a
program cannot be replaced like that, and where its jobs live in its memory, a fresh worker takes over inside.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

_log = logging.getLogger("windlass.cli")


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
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(self._directory)
        os.execv(self._program, self._arguments)  # noqa: S606 - our own command line, as it was given
