"""Replies to beanstalkd clients, byte for byte those of beanstalkd 1.12, and statistics as YAML.

The statistics have every field of beanstalkd 1.12 in its order, and one field of Tidewheel at the end.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidewheel.__about__ import __version__
from tidewheel.beanstalkd.server_state import ServerCounters

if TYPE_CHECKING:
    from tidewheel.beanstalkd.tubes import Tube
    from tidewheel.pull.queue_stats import JobStats, QueueStats, TopicState

BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
BURIED: Final = b"BURIED\r\n"
DEADLINE_SOON: Final = b"DEADLINE_SOON\r\n"
DELETED: Final = b"DELETED\r\n"
DRAINING: Final = b"DRAINING\r\n"
EXPECTED_CRLF: Final = b"EXPECTED_CRLF\r\n"
INTERNAL_ERROR: Final = b"INTERNAL_ERROR\r\n"
JOB_TOO_BIG: Final = b"JOB_TOO_BIG\r\n"
KICKED_ONE: Final = b"KICKED\r\n"
NOT_FOUND: Final = b"NOT_FOUND\r\n"
NOT_IGNORED: Final = b"NOT_IGNORED\r\n"
OUT_OF_MEMORY: Final = b"OUT_OF_MEMORY\r\n"
PAUSED: Final = b"PAUSED\r\n"
RELEASED: Final = b"RELEASED\r\n"
TIMED_OUT: Final = b"TIMED_OUT\r\n"
TOUCHED: Final = b"TOUCHED\r\n"
UNKNOWN_COMMAND: Final = b"UNKNOWN_COMMAND\r\n"


def inserted(number: int) -> bytes:
    return b"INSERTED %d\r\n" % number


def reserved(number: int, body: bytes) -> bytes:
    return b"RESERVED %d %d\r\n%b\r\n" % (number, len(body), body)


def found(number: int, body: bytes) -> bytes:
    return b"FOUND %d %d\r\n%b\r\n" % (number, len(body), body)


def using(tube: str) -> bytes:
    return b"USING %b\r\n" % tube.encode()


def watching(count: int) -> bytes:
    return b"WATCHING %d\r\n" % count


def kicked(count: int) -> bytes:
    return b"KICKED %d\r\n" % count


def yaml_reply(text: str) -> bytes:
    """A document of YAML."""
    body = text.encode()
    return b"OK %d\r\n%b\r\n" % (len(body), body)


def yaml_list_reply(tubes: Iterable[str]) -> bytes:
    """A list as YAML."""
    return yaml_reply("".join(("---\n", *(f"- {tube}\n" for tube in tubes))))


VERSION: Final = "1.12"
"""The version of beanstalkd whose commands are spoken. Clients parse it; ours is a field of its own."""


def wire_priority(priority: int) -> int:
    """A job's priority as beanstalkd counts: 0 comes first. Jobs that come before all of those are 0, too."""
    return min(max(0, -priority), UINT32)


def server_stats(counters: ServerCounters, queue: QueueStats, tubes: int) -> str:
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


def tube_stats(name: str, topic: TopicState, tube: Tube | None) -> str:
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


def job_stats(job: JobStats, lease_seconds: float) -> str:
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


UINT32: Final = 2**32 - 1


COUNTED: Final = (
    "put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve", "reserve-with-timeout", "delete",
    "release", "use", "watch", "ignore", "bury", "kick", "touch", "stats", "stats-job", "stats-tube",
    "list-tubes", "list-tube-used", "list-tubes-watched", "pause-tube",
)  # fmt: skip
"""The commands that ``stats`` counts, in its order. beanstalkd leaves out kick-job and reserve-job."""
