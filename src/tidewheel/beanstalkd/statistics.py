"""Statistics as YAML, with every field of beanstalkd 1.12 in its order, and one of ours at the end."""

from __future__ import annotations

import math
import os
import platform
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidewheel.__about__ import __version__
from tidewheel.beanstalkd.commands import COUNTED, UINT32

if TYPE_CHECKING:
    from tidewheel.beanstalkd.tubes import Tube
    from tidewheel.clock import Clock
    from tidewheel.pulling.statistics import JobStats, QueueStats, TopicState

VERSION: Final = "1.12"
"""The version of beanstalkd whose commands are spoken. Clients parse it; ours is a field of its own."""
BINLOG_FILE_BYTES: Final = 10 * 2**20
"""What beanstalkd tells without -s."""


@dataclass(slots=True)
class Counters:
    """What happened since the start of this process."""

    clock: Clock
    max_job_size: int
    binlog_max_size: int = BINLOG_FILE_BYTES
    commands: Counter[str] = field(default_factory=Counter)
    timeouts: int = 0
    total_jobs: int = 0
    connections: int = 0
    producers: int = 0
    workers: int = 0
    waiting: int = 0
    total_connections: int = 0
    draining: bool = False
    instance: str = field(default_factory=lambda: secrets.token_hex(8))
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock.monotonic()


def wire_priority(priority: int) -> int:
    """A job's priority as beanstalkd counts: 0 comes first. Jobs that come before all of those are 0, too."""
    return min(max(0, -priority), UINT32)


def of_server(counters: Counters, queue: QueueStats, tubes: int) -> str:
    """For ``stats``."""
    used = os.times()
    return _yaml(
        ("current-jobs-urgent", queue.urgent),
        ("current-jobs-ready", queue.ready),
        ("current-jobs-reserved", queue.reserved),
        ("current-jobs-delayed", queue.delayed),
        ("current-jobs-buried", queue.buried),
        *((f"cmd-{name}", counters.commands[name]) for name in COUNTED),
        ("job-timeouts", counters.timeouts),
        ("total-jobs", counters.total_jobs),
        ("max-job-size", counters.max_job_size),
        ("current-tubes", tubes),
        ("current-connections", counters.connections),
        ("current-producers", counters.producers),
        ("current-workers", counters.workers),
        ("current-waiting", counters.waiting),
        ("total-connections", counters.total_connections),
        ("pid", os.getpid()),
        ("version", f'"{VERSION}"'),
        ("rusage-utime", f"{used.user:.6f}"),
        ("rusage-stime", f"{used.system:.6f}"),
        ("uptime", int(counters.clock.monotonic() - counters.started)),
        ("binlog-oldest-index", 0),
        ("binlog-current-index", 0),
        ("binlog-records-migrated", 0),
        ("binlog-records-written", 0),
        ("binlog-max-size", counters.binlog_max_size),
        ("draining", "true" if counters.draining else "false"),
        ("id", counters.instance),
        ("hostname", platform.node()),
        ("os", platform.version()),
        ("platform", platform.machine()),
        ("tidewheel-version", f'"{__version__}"'),
    )


def of_tube(name: str, topic: TopicState, tube: Tube | None) -> str:
    """For ``stats-tube``. Without a tube nobody of this process has done anything with it."""
    left = int(min(topic.pause_left, UINT32))
    told = tube.paused_for if tube is not None and topic.pause_left > 0 else 0
    return _yaml(
        ("name", name),
        ("current-jobs-urgent", topic.urgent),
        ("current-jobs-ready", topic.ready),
        ("current-jobs-reserved", topic.reserved),
        ("current-jobs-delayed", topic.delayed),
        ("current-jobs-buried", topic.buried),
        ("total-jobs", tube.total_jobs if tube else 0),
        ("current-using", tube.using if tube else 0),
        ("current-watching", tube.watching if tube else 0),
        ("current-waiting", tube.waiting if tube else 0),
        ("cmd-delete", tube.deletes if tube else 0),
        ("cmd-pause-tube", tube.pauses if tube else 0),
        ("pause", max(told, left)),  # longer than told where somebody else has paused it meanwhile
        ("pause-time-left", left),
    )


def of_job(job: JobStats, lease_seconds: float) -> str:
    """For ``stats-job``. ``lease_seconds``: how long jobs without a time to run of their own are reserved."""
    return _yaml(
        ("id", job.number),
        ("tube", job.topic),
        ("state", job.state),
        ("pri", wire_priority(job.priority)),
        ("age", int(job.age)),
        ("delay", _delay(job)),
        ("ttr", int(lease_seconds if job.ttr is None else job.ttr)),
        ("time-left", int(job.time_left)),
        ("file", 0),
        ("reserves", job.reserves),
        ("timeouts", job.timeouts),
        ("releases", job.releases),
        ("buries", job.buries),
        ("kicks", job.kicks),
    )


def _delay(job: JobStats) -> int:
    """The last one that a client asked for, as far as it can be told.

    When a job is due is kept, not what it was delayed for. As long as it was only put that is the same.
    """
    given_back = job.state == "ready" and job.reserves  # by a client that went away
    dug_out = job.buries and job.state != "buried"
    if not (job.releases or job.timeouts or job.kicks or given_back or dug_out):
        return round(job.delay)
    return math.ceil(job.time_left) if job.state == "delayed" else 0


def _yaml(*pairs: tuple[str, object]) -> str:
    return "".join(("---\n", *(f"{name}: {value}\n" for name, value in pairs)))
