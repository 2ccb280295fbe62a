"""``--processes``: a parent that keeps several workers running.

It imports nothing of the project: each worker is a fresh interpreter, and what a handler does to one of them
(a segmentation fault, an exhausted memory) is no concern of the others or of the parent.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

from tidewheel.__about__ import __version__
from tidewheel.cli import child_process, formats
from tidewheel.cli.child_process import POLL_SECONDS, ChildProcess, ParentLink, StopRequests
from tidewheel.cli.error_output import EXIT_DEGRADED, EXIT_FAILED, EXIT_START_FAILED_FLAG, EXIT_USAGE
from tidewheel.cli.health_port import ParentHealthPublisher
from tidewheel.cli.health_reports import HealthReports
from tidewheel.worker.backoff import delay_after_failures

MAX_HEAD_START_SECONDS: Final = 20.0
"""Max seconds by which the first process starts before the others: one reports a mistake, not all of them.
A start takes less than a second, and more than five on a busy machine."""
MIN_HEALTHY_SECONDS: Final = 30.0
"""A worker that lived this long was well: when it ends, the next starts without much of a pause."""

_log = logging.getLogger("tidewheel.cli")


def run_worker_processes(
    app_reference: str, number: int, name: str | None, parent_link: ParentLink | None, health_listen: str = ""
) -> int:
    """Keep ``number`` workers running until told to stop; the exit code."""
    telling = (
        ParentHealthPublisher(health_listen, number, lambda index: _member_name(name, index))
        if health_listen
        else None
    )
    try:
        reports = telling.reports if telling is not None else None
        members = [WorkerMember(index, name, reports) for index in range(1, number + 1)]
        return _run_members(app_reference, members, parent_link, reports)
    finally:
        if telling is not None:
            telling.stop()


def _run_members(
    app_reference: str,
    members: list[WorkerMember],
    parent_link: ParentLink | None,
    reports: HealthReports | None,
) -> int:
    with child_process.count_stop_signals() as stop:
        if parent_link is not None:
            parent_link.listen(stop)
        _log.info(
            "tidewheel %s: %d worker processes of %s; Ctrl-C stops them all",
            __version__,
            len(members),
            app_reference,
        )
        code = _keep_running(members, stop)
        if reports is not None:
            reports.mark_stopping()
        running = [member.child for member in members if member.child is not None]
        child_process.forward_stop_requests(stop, running)
    code = code or max((child_process.shell_exit_code(child.returncode) for child in running), default=0)
    _log.info("all worker processes have stopped")
    return code


def _keep_running(members: list[WorkerMember], stop: StopRequests) -> int:
    """Start what is due, look after what runs, until told to stop (0) or there is no point in going on."""
    first = members[0]
    while not stop.urgency():
        for member in members if first.has_started else members[:1]:
            member.check()
            if member.fatal_exit_code is not None:
                stop.count_signal()  # as if somebody had asked: the others could do no better
                return member.fatal_exit_code
        stop.sleep(POLL_SECONDS if first.has_started else POLL_SECONDS / 5)
    return 0


class WorkerMember:
    """One of the worker processes, over all its lives."""

    def __init__(self, number: int, name: str | None, reports: HealthReports | None = None) -> None:
        self.child: ChildProcess | None = None
        self.has_started = False  # whether it has worked, or had the time it needs to say why it cannot
        self.fatal_exit_code: int | None = None  # the exit code, once it is clear that it will never start
        self._number = number
        self._label = f"worker {_member_name(name, number)}" if name else _member_name(name, number)
        self._reports = reports  # how it is, where anybody asks
        self._start_at = 0.0  # monotonic, and so is the next
        self._started = 0.0
        self._starts = 0
        self._failures = 0  # ends in a row after a short life

    def check(self) -> None:
        """Start it when it is time, and note when it has ended."""
        now = time.monotonic()
        if self.child is not None and self.child.poll() is not None:
            self._ended(self.child, now)
        if self.child is None and self.fatal_exit_code is None and now >= self._start_at:
            self._start(now)
        elif self.child is not None and not self.has_started:
            self.has_started = self.child.is_ready() or now >= self._started + MAX_HEAD_START_SECONDS

    def _start(self, now: float) -> None:
        try:
            told = self._reports.environment if self._reports is not None else None
            self.child = ChildProcess(_child_arguments(sys.argv[1:], self._number), told)
        except OSError as error:
            # No room for another process, or no interpreter while an environment is replaced: it will pass.
            self.has_started = True
            self._failures += 1
            pause = delay_after_failures(self._failures)
            self._start_at = now + pause
            _log.warning(
                "%s could not be started: %s; next try in %s", self._label, error, formats.duration(pause)
            )
            return
        if self._reports is not None:
            self._reports.mark_running(self._number, self.child.pid)
        self._started = now
        self._starts += 1
        if self._starts > 1:
            _log.info("%s starts again: pid %d", self._label, self.child.pid)

    def _ended(self, child: ChildProcess, now: float) -> None:
        self.child = None
        if self._reports is not None:
            self._reports.mark_ended(self._number)
        child.wait_and_close()
        code = child.returncode
        failed_to_start = code in {EXIT_START_FAILED_FLAG + EXIT_FAILED, EXIT_START_FAILED_FLAG + EXIT_USAGE}
        if failed_to_start and self._starts == 1:
            self.fatal_exit_code = code - EXIT_START_FAILED_FLAG  # it has said why
            return
        self.has_started = True
        lived = now - self._started
        if code == EXIT_DEGRADED:  # it has settled everything and said why; a pause would help nobody
            self._start_at = now
            _log.warning("%s (pid %d) makes way after %s", self._label, child.pid, formats.duration(lived))
            return
        self._failures = 1 if lived >= MIN_HEALTHY_SECONDS else self._failures + 1
        pause = delay_after_failures(self._failures)
        self._start_at = now + pause
        _log.warning(
            "%s (pid %d) %s after %s; it starts again in %s",
            self._label,
            child.pid,
            "could not start" if failed_to_start else child_process.describe_exit(code),
            formats.duration(lived),
            formats.duration(pause),
        )


def _member_name(name: str | None, number: int) -> str:
    return f"{name}-{number}" if name else f"worker process {number}"


def _child_arguments(arguments: list[str], number: int) -> list[str]:
    """Our own command line, for one of the processes."""
    index = arguments.index("worker") + 1
    return [*arguments[:index], "--supervised", "--member", str(number), *arguments[index:]]
