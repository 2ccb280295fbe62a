"""The process that opened a store: its threads and connections do not survive ``fork()``.

Told by a hook, because to ask for the number of the process is a call into the system, and was as expensive
as making a job's id.
"""

from __future__ import annotations

import os

from tidewheel.errors import UsedAfterFork


class Home:
    """The process this was made in."""

    _forks = 0  # how often this process's ancestors forked, since this module was loaded

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._made_after = Home._forks

    @property
    def left(self) -> bool:
        """Whether this is another process, forked from it."""
        return self._made_after != Home._forks

    def check(self) -> None:
        if self.left:
            raise UsedAfterFork(
                f"this store was opened in process {self._pid} and is used in process {os.getpid()}; "
                "open a new Tidewheel after fork()"
            )


def _count() -> None:
    Home._forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)
