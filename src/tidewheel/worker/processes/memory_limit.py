"""How much memory a handler may take, beyond what its process held when it started.

On Linux the kernel enforces it: ``RLIMIT_DATA`` counts what a process may write to privately, so an
allocation beyond it fails and Python raises ``MemoryError``. (``RLIMIT_AS`` would count address space that is
only reserved: 72 MB for each thread.) Elsewhere in Unix that limit does not cover what Python allocates, so a
thread looks at the peak of resident memory and ends the process. Windows has neither, see ``IS_ENFORCED``.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Final, Protocol

from tidewheel.worker.processes.messages import OUT_OF_MEMORY_EXIT_CODE

IS_ENFORCED: Final = sys.platform != "win32"

WATCH_INTERVAL_SECONDS: Final = 0.02
"""How often the watching thread looks."""


class MemoryLimit(Protocol):
    """The memory limit of this process."""

    def set(self, extra: int) -> None:
        """From now on at most ``extra`` bytes more than now."""

    def clear(self) -> None:
        """No limit any more. Must work when there is no memory left."""

    def needs_restart(self, extra: int) -> bool:
        """Whether earlier jobs left so much behind that a fresh process is better."""


class NoMemoryLimit:
    """Where nothing can be enforced."""

    def set(self, extra: int) -> None: ...

    def clear(self) -> None: ...

    def needs_restart(self, extra: int) -> bool:  # noqa: ARG002 - the protocol's
        return False


if sys.platform != "win32":
    import resource

    class KernelMemoryLimit:
        """By the kernel."""

        def __init__(self) -> None:
            self._page = resource.getpagesize()
            self._before = resource.getrlimit(resource.RLIMIT_DATA)
            self._first: int | None = None

        def set(self, extra: int) -> None:
            active = self._held()
            if self._first is None:
                self._first = active
            soft, hard = self._before
            allowed = active + extra if soft == resource.RLIM_INFINITY else min(active + extra, soft)
            resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))

        def clear(self) -> None:
            resource.setrlimit(resource.RLIMIT_DATA, self._before)

        def needs_restart(self, extra: int) -> bool:
            return self._first is not None and self._held() - self._first > extra / 2

        def _held(self) -> int:
            with open("/proc/self/statm", "rb") as statm:
                return int(statm.read().split()[5]) * self._page

    class PeakMemoryLimit:
        """By a thread that looks. It comes too late for a handler that holds the interpreter."""

        def __init__(self) -> None:
            self._unit = 1 if sys.platform == "darwin" else 1024
            self._extra: int | None = None
            self._base = 0
            self._started = False

        def set(self, extra: int) -> None:
            self._base, self._extra = self._peak(), extra
            if not self._started:
                self._started = True
                threading.Thread(target=self._watch, name="tidewheel-memory", daemon=True).start()

        def clear(self) -> None:
            self._extra = None

        def needs_restart(self, extra: int) -> bool:
            # A peak never falls: the next job would have its predecessor's for free.
            return self._peak() - self._base > extra / 2

        def _watch(self) -> None:
            pause = threading.Event()
            while not pause.wait(WATCH_INTERVAL_SECONDS):
                extra = self._extra
                if extra is not None and self._peak() - self._base > extra:
                    os._exit(OUT_OF_MEMORY_EXIT_CODE)

        def _peak(self) -> int:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * self._unit


def make_memory_limit() -> MemoryLimit:
    """The best there is here."""
    if sys.platform == "win32":
        return NoMemoryLimit()
    else:  # noqa: RET505 - so a type checker for Windows does not look here
        return KernelMemoryLimit() if sys.platform == "linux" else PeakMemoryLimit()
