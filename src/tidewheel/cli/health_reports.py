"""Health and counters that worker processes send to their parent.

Reports are datagrams on the loopback interface, like wake-ups: they cost nothing, never block, and need no
descriptor that a crashed child leaves open. A secret of this run, passed in the environment, keeps other
processes from sending reports. Counters are sent as totals, not as increments: a lost datagram makes them
older, not wrong. The parent adds up the totals of all its processes.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from tidewheel.telemetry import metric_gauges, samples
from tidewheel.telemetry.metric_gauges import TopicCounts
from tidewheel.telemetry.samples import Sample, sum_samples
from tidewheel.telemetry.telemetry import Telemetry
from tidewheel.worker.health import WorkerHealth, starting_health

T = TypeVar("T")

MAX_REPORT_BYTES: Final = 7000
"""Of figures in one datagram: with all around them less than the 8 KiB that every system lets through."""
FULL_REPORT_ROUNDS: Final = 30
"""Rounds after which everything is told again, should a datagram have been lost."""


class CountsReport(Struct, frozen=True, tag=True):
    """Some of what a member has counted, and which of its lives it is."""

    member: int
    pid: int
    samples: tuple[Sample, ...] = ()
    topics: tuple[TopicCounts, ...] = ()  # as it saw them last
    replaces_topics: bool = False  # the first of those


class CountsReporter:
    """In a member: what has changed since it was told, and now and then all of it."""

    def __init__(self, member: int) -> None:
        self._member = member
        self._reported: set[Sample] = set()
        self._rounds = 0

    def next_reports(self, telemetry: Telemetry) -> Iterator[CountsReport]:
        """In pieces that fit."""
        if self._rounds % FULL_REPORT_ROUNDS == 0:
            self._reported = set()
        self._rounds += 1
        found = telemetry.counter_samples()
        changed = [sample for sample in found if sample not in self._reported]
        self._reported = set(found)
        pid = os.getpid()
        for index, topics in enumerate(_split_by_size(telemetry.topics())):
            yield CountsReport(self._member, pid, topics=topics, replaces_topics=index == 0)
        for piece in _split_by_size(changed):
            yield CountsReport(self._member, pid, piece)


def _split_by_size(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    piece: list[T] = []
    size = 0
    for item in items:
        more = len(msgspec.json.encode(item)) + 1
        if piece and size + more > MAX_REPORT_BYTES:
            yield tuple(piece)
            piece, size = [], 0
        piece.append(item)
        size += more
    if piece:
        yield tuple(piece)


class MemberCounts:
    """In the parent: the last of each member, and the sum of those that have ended."""

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}
        self._last: dict[int, dict[tuple[str, tuple[str, ...]], Sample]] = {}
        self._ended: list[Sample] = []
        self._topics: dict[str, TopicCounts] = {}  # all members see the same, so the last one told counts

    def apply(self, report: CountsReport) -> None:
        if self._pids.get(report.member) != report.pid:
            # A counter never goes down: what its life before counted stays.
            self._ended = sum_samples((*self._ended, *self._last.pop(report.member, {}).values()))
            self._pids[report.member] = report.pid
        last = self._last.setdefault(report.member, {})
        last.update({(sample.name, sample.labels): sample for sample in report.samples})
        if report.replaces_topics:
            self._topics = {}
        self._topics.update({topic.topic: topic for topic in report.topics})

    def samples(self) -> Iterator[Sample]:
        """Added up, and the queue as one of them saw it last."""
        yield from sum_samples(
            (*self._ended, *(one for last in self._last.values() for one in last.values()))
        )
        yield from metric_gauges.topic_samples(self._topics.values())


REPORT_SECONDS: Final = 1.0
UNREADY_AFTER_SECONDS: Final = 5.0
"""A process that has told nothing for so long cannot be ready: something holds its interpreter."""
DEAD_AFTER_SECONDS: Final = 600.0
"""The same for so long: only a new process helps."""
_MAX_DATAGRAM_BYTES: Final = 8192
_BATCH: Final = 100
"""Reports read in one go, before anybody who asks has a turn."""
_ADDRESS_VARIABLE: Final = "TIDEWHEEL_HEALTH_REPORTS"

_log = logging.getLogger("tidewheel.cli")


class HealthReport(Struct, frozen=True, tag=True):
    """What a member tells, and which of its lives it is."""

    member: int
    pid: int
    health: WorkerHealth


class HealthSummary(Struct, frozen=True, kw_only=True):
    """All processes of one parent."""

    status: str
    alive: bool
    ready: bool
    reasons: tuple[str, ...]
    processes: int
    """How many there should be."""
    processes_ready: int
    workers: tuple[WorkerHealth, ...]


_decoder = msgspec.json.Decoder(HealthReport | CountsReport)


# -- in the parent ------------------------------------------------------------------------------------------


class HealthReports:
    """The last report of each member. ``read`` and ``summarize`` belong to the health port's thread."""

    def __init__(self, number: int, called: Callable[[int], str]) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.bind(("127.0.0.1", 0))
            self.socket.setblocking(False)
        except BaseException:
            self.socket.close()
            raise
        self._secret = secrets.token_hex(16)
        self._member_name = called
        self._number = number
        self._counts = MemberCounts()
        self._last: dict[int, tuple[float, HealthReport]] = {}  # by member, with the moment it came
        self._pids: dict[int, tuple[int, float]] = {}  # of those that run, and since when
        self._stopping = False
        self._lock = threading.Lock()  # over the last two, which the parent's own thread writes

    @property
    def environment(self) -> Mapping[str, str]:
        """What a child needs to know."""
        return {_ADDRESS_VARIABLE: f"{self.socket.getsockname()[1]}:{self._secret}"}

    def mark_running(self, member: int, pid: int) -> None:
        with self._lock:
            self._pids[member] = pid, time.monotonic()

    def mark_ended(self, member: int) -> None:
        with self._lock:
            self._pids.pop(member, None)

    def mark_stopping(self) -> None:
        self._stopping = True

    def read(self) -> None:
        for _ in range(_BATCH):
            try:
                data = self.socket.recv(_MAX_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                _log.warning("a report about a worker's health could not be read: %s", error)
                return
            secret, _, content = data.partition(b" ")
            if not hmac.compare_digest(secret, self._secret.encode()):
                continue  # somebody else's
            try:
                report = _decoder.decode(content)
            except msgspec.MsgspecError as error:
                _log.warning("a report about a worker's health makes no sense: %s", error)
                continue
            if not 1 <= report.member <= self._number:
                continue
            if isinstance(report, CountsReport):
                self._counts.apply(report)
            else:
                self._last[report.member] = time.monotonic(), report

    def metrics(self) -> str:
        """Counters of all processes added up, also of those that have ended; gauges by worker."""
        workers = self._all_health()
        of_workers = (sample for one in workers for sample in metric_gauges.worker_samples(one))
        looks = [one.queue for one in workers if one.queue is not None]
        newest = min(looks, key=lambda look: look.age_seconds, default=None)
        of_queue = () if newest is None else metric_gauges.queue_samples(newest)
        return samples.format_prometheus((*self._counts.samples(), *of_queue, *of_workers))

    def _all_health(self) -> list[WorkerHealth]:
        self.read()
        with self._lock:
            pids = dict(self._pids)
        return [self._member_health(member, pids.get(member)) for member in range(1, self._number + 1)]

    def summarize(self) -> HealthSummary:
        """Ready when any process is; alive unless one of them hangs for good."""
        workers = self._all_health()
        ready = 0 if self._stopping else sum(one.ready for one in workers)
        reasons = dict.fromkeys(
            reason for one in workers if not (one.ready and one.alive) for reason in one.reasons
        )
        working = any(one.status != "starting" for one in workers if one.status != "not running")
        return HealthSummary(
            status="stopping" if self._stopping else "working" if working else "starting",
            alive=all(one.alive for one in workers),
            ready=ready > 0,
            reasons=("it was asked to stop",) if self._stopping else tuple(reasons),
            processes=self._number,
            processes_ready=ready,
            workers=tuple(workers),
        )

    def _member_health(self, member: int, runs: tuple[int, float] | None) -> WorkerHealth:
        """A member's last word, if it is one of its present life and not too old."""
        if runs is None:
            return msgspec.structs.replace(
                starting_health(self._member_name(member)),
                status="not running",
                reasons=("a process is not running",),
            )
        pid, since = runs
        at, report = self._last.get(member, (since, None))
        health = (
            starting_health(self._member_name(member))
            if report is None or report.pid != pid
            else report.health
        )
        silent = time.monotonic() - max(at, since)
        if silent < UNREADY_AFTER_SECONDS:
            return health
        return msgspec.structs.replace(
            health,
            alive=health.alive and silent < DEAD_AFTER_SECONDS,
            ready=False,
            reasons=(*health.reasons, f"a process has told nothing for {silent:.0f} s"),
        )


# -- in the child -------------------------------------------------------------------------------------------


class HealthReporter:
    """Tells the parent every second, on a thread of its own."""

    def __init__(
        self,
        member: int,
        judge: Callable[[], WorkerHealth],
        telemetry: Callable[[], Telemetry | None],
        where: str,
    ) -> None:
        port, _, secret = where.partition(":")
        self._where = ("127.0.0.1", int(port))
        self._secret = secret.encode()
        self._member = member
        self._get_health = judge
        self._telemetry = telemetry
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidewheel-health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            recount = CountsReporter(self._member)
            while True:
                stopped = self._stopped.is_set()
                self._send(sender, HealthReport(self._member, os.getpid(), self._get_health()))
                telemetry = self._telemetry()
                if telemetry is not None:
                    for part in recount.next_reports(telemetry):
                        self._send(sender, part)
                if stopped:  # what was counted last has been told
                    return
                self._stopped.wait(REPORT_SECONDS)

    def _send(self, sender: socket.socket, report: HealthReport | CountsReport) -> None:
        try:
            sender.sendto(self._secret + b" " + msgspec.json.encode(report), self._where)
        except OSError:  # no room just now, or the parent is gone; the next one is due in a second
            _log.debug("a report about health was not sent", exc_info=True)


def take_report_address() -> str:
    """Where to report; nothing when nobody wants to hear. Programs that handlers start do not inherit it."""
    return os.environ.pop(_ADDRESS_VARIABLE, "")
