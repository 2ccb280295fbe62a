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

from tidewheel.cli.error_output import EXIT_DEGRADED, EXIT_OK

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

    def count_signal(self, *_: object) -> None:
        self._signals += 1
        self._on_request()

    def count_parent_request(self) -> None:
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
def count_stop_signals() -> Iterator[StopRequests]:
    """While inside, signals to stop are counted instead of ending the process."""
    stop = StopRequests()
    before = {number: signal.signal(number, stop.count_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ChildProcess(subprocess.Popen[bytes]):
    """``tidewheel`` with these arguments, in a fresh interpreter."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str] | None = None) -> None:
        self._ready: int | None = None  # our end of a pipe that the child closes once it works
        self._was_ready = False
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
            self._close_pipe()
            raise
        finally:
            for end in told:
                os.close(end)

    def is_ready(self) -> bool:
        """Whether it has said that it works; where it cannot say so, never."""
        if self._ready is not None and _readable(self._ready):
            self._was_ready = self.poll() is None  # the pipe ends with the process, too
            self._close_pipe()
        return self._was_ready

    def request_stop(self) -> None:
        """Ask it to stop; once more, to stop at once."""
        with contextlib.suppress(BrokenPipeError):  # it has ended meanwhile
            if self.stdin is not None:
                self.stdin.write(b".")

    def wait_and_close(self) -> None:
        """Of a child that has ended, or is about to."""
        self.wait()
        if self.stdin is not None:
            self.stdin.close()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None


def _readable(end: int) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([end], [], [], 0)[0])
    poll = select.poll()  # select knows only the first 1,024 descriptors
    poll.register(end, select.POLLIN)
    return bool(poll.poll(0))


def forward_stop_requests(stop: StopRequests, children: list[ChildProcess], forwarded: int = 0) -> None:
    """Ask the children as often as we are asked, and wait until all have finished as they see fit.

    ``passed``: how often they have been asked already.

    Whoever asks a third time means it: no other Ctrl-C reaches them in their own process groups.
    """
    while running := [child for child in children if child.poll() is None]:
        while forwarded < stop.urgency():
            forwarded += 1
            for child in running:
                if forwarded < 3:
                    child.request_stop()
                else:
                    child.kill()
        stop.sleep(POLL_SECONDS / 5)
    for child in children:
        child.wait_and_close()


def shell_exit_code(code: int) -> int:
    """As shells count it: a child that died of a signal ended with 128 and the signal's number.

    One that made way for the next has not failed.
    """
    if code == EXIT_DEGRADED:
        return EXIT_OK
    return code if code >= 0 else 128 - code


def describe_exit(code: int) -> str:
    """``ended with exit code 3``, ``was killed by SIGSEGV``."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


# -- in the child -------------------------------------------------------------------------------------------


class ParentLink:
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
                    stop.count_parent_request()
            if not asked:
                stop.count_parent_request()

        threading.Thread(target=listen, name="tidewheel-parent", daemon=True).start()

    def report_ready(self) -> None:
        """Tell the parent that this child works."""
        if self._ready:
            os.close(int(self._ready))
            self._ready = ""
