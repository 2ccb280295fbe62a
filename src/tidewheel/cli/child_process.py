"""Worker processes and the parent that looks after them: ``--reload`` has one, ``--processes`` several.

A child gets a process group of its own, so that Ctrl-C reaches the parent alone, and a pipe from the parent
as its stdin. Each byte in it asks the child to stop, the first gracefully, the second at once; its end says
that the parent is gone. Where processes can inherit more, another pipe tells the parent when the child works.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tidewheel.cli.error_output import FINE, WORN

POLL_SECONDS: Final = 0.25
"""How often a parent looks at its children."""

_READY: Final = "TIDEWHEEL_READY_PIPE"


class StopRequests:
    """How often this process was asked to stop.

    Signals and the parent's requests are counted apart: when systemd stops a service, a child gets both, and
    must not take the one for the impatient repetition of the other.
    """

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        self._on_request = on_request
        self._signals = 0
        self._parent = 0

    def urgency(self) -> int:
        """0 not asked, 1 gracefully, 2 at once; 3 and more: do not even wait for that."""
        return max(self._signals, self._parent)

    def by_signal(self, *_: object) -> None:
        self._signals += 1
        self._on_request()

    def by_parent(self) -> None:
        self._parent += 1
        self._on_request()

    def sleep(self, seconds: float) -> None:
        """Sleep, at most a moment longer than until the next request."""
        before = self.urgency()
        deadline = time.monotonic() + seconds
        while self.urgency() == before and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))


# -- in the parent ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """While inside, signals to stop are counted instead of ending the process."""
    stop = StopRequests()
    before = {number: signal.signal(number, stop.by_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Child(subprocess.Popen[bytes]):
    """``tidewheel`` with these arguments, in a fresh interpreter."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str] | None = None) -> None:
        self._ready: int | None = None  # our end of a pipe that the child closes once it works
        self._worked = False
        told: list[int] = []
        options: dict[str, Any] = {}
        if sys.platform == "win32":
            options["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP
        else:
            self._ready, *told = os.pipe()
            options.update(process_group=0, pass_fds=told)
        try:
            super().__init__(
                [sys.executable, "-m", "tidewheel.cli", *arguments],
                stdin=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, **(environment or {}), _READY: "".join(map(str, told))},
                **options,
            )
        except BaseException:
            self._forget_pipe()
            raise
        finally:
            for end in told:
                os.close(end)

    def works(self) -> bool:
        """Whether it has said that it works; where it cannot say so, never."""
        if self._ready is not None and _readable(self._ready):
            self._worked = self.poll() is None  # the pipe ends with the process, too
            self._forget_pipe()
        return self._worked

    def ask(self) -> None:
        """Ask it to stop; once more, to stop at once."""
        with contextlib.suppress(BrokenPipeError):  # it has ended meanwhile
            if self.stdin is not None:
                self.stdin.write(b".")

    def let_go(self) -> None:
        """Of a child that has ended, or is about to."""
        self.wait()
        if self.stdin is not None:
            self.stdin.close()
        self._forget_pipe()

    def _forget_pipe(self) -> None:
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None


def _readable(end: int) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([end], [], [], 0)[0])
    poll = select.poll()  # select knows only the first 1,024 descriptors
    poll.register(end, select.POLLIN)
    return bool(poll.poll(0))


def pass_on(stop: StopRequests, children: list[Child], passed: int = 0) -> None:
    """Ask the children as often as we are asked, and wait until all have finished as they see fit.

    ``passed``: how often they have been asked already.

    Whoever asks a third time means it: no other Ctrl-C reaches them in their own process groups.
    """
    while running := [child for child in children if child.poll() is None]:
        while passed < stop.urgency():
            passed += 1
            for child in running:
                if passed < 3:
                    child.ask()
                else:
                    child.kill()
        stop.sleep(POLL_SECONDS / 5)
    for child in children:
        child.let_go()


def exit_code(code: int) -> int:
    """As shells count it: a child that died of a signal ended with 128 and the signal's number.

    One that made way for the next has not failed.
    """
    if code == WORN:
        return FINE
    return code if code >= 0 else 128 - code


def how_it_ended(code: int) -> str:
    """``ended with exit code 3``, ``was killed by SIGSEGV``."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


# -- in the child -------------------------------------------------------------------------------------------


class Leash:
    """What ties a child to its parent. Made once, before the child does anything else."""

    def __init__(self) -> None:
        # Away from stdin, where programs that a handler starts would read what is meant for us.
        self._requests = os.dup(sys.stdin.fileno())
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, sys.stdin.fileno())
        os.close(nothing)
        self._ready = os.environ.pop(_READY, "")

    def listen(self, stop: StopRequests) -> None:
        """Count the parent's requests from now on. A parent that is gone asks once, unless it did before."""

        def listen() -> None:
            asked = False
            while piece := os.read(self._requests, 64):
                asked = True
                for _ in piece:
                    stop.by_parent()
            if not asked:
                stop.by_parent()

        threading.Thread(target=listen, name="tidewheel-parent", daemon=True).start()

    def works(self) -> None:
        """Tell the parent that this child works."""
        if self._ready:
            os.close(int(self._ready))
            self._ready = ""
