"""Findings about the store, workers and schedules: severity, explanation and remedy.

``describe_health_finding`` describes an ailment of the store, for the doctor and for attention.
``find_worker_findings`` covers reports that live workers send with their heartbeat.
``find_schedule_problems`` covers schedules: one finding for each kind of trouble, however many schedules have
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from tidewheel.admin.filters.syntax import field_term
from tidewheel.admin.reports.answers import Finding, FindingKind, Severity
from tidewheel.core.clock_guard import CONFIRM_SECONDS
from tidewheel.core.model import WorkerRecord
from tidewheel.core.reports import HealthFinding, HealthFindingKind
from tidewheel.core.text_format import format_duration, format_size, list_some, plural
from tidewheel.schedules.schedule import Schedule

MAX_PIN_SECONDS: Final = 3600.0
"""A snapshot so old is nobody's report any more."""
NEARLY_FULL: Final = 0.75
VERY_LITTLE_SPACE: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HealthText:
    """An ailment as people are told of it; ``explanation`` and ``remedy`` are halves of one sentence."""

    severity: Severity
    title: str
    explanation: str
    remedy: str

    @property
    def sentence(self) -> str:
        return f"{self.explanation}; {self.remedy}"


def describe_health_finding(finding: HealthFinding) -> HealthText:
    """In words."""
    figures: dict[str, Any] = dict(finding.figures)
    match finding.kind:
        case HealthFindingKind.OLD_SQLITE:
            return HealthText(
                Severity.INFO,
                f"SQLite {figures['version']} has the WAL-reset bug",
                f"before SQLite {figures['fixed']} a checkpoint that races a commit can, very rarely, damage "
                "the file; Tidewheel lets nobody commit meanwhile, but other programs may checkpoint, too",
                "use a Python with a newer SQLite, or set PRAGMA wal_autocheckpoint = 0 wherever else the "
                "file is opened",
            )
        case HealthFindingKind.LONG_LOG:
            return _describe_long_log(figures)
        case HealthFindingKind.SPARSE:
            return HealthText(
                Severity.INFO,
                f"{figures['table']} is mostly empty",
                f"at most {figures['used']:.0%} of the {format_size(figures['bytes'])} of {figures['table']} "
                "are in "
                "use: there was more in it once, and disks and backups still carry that",
                "new jobs fill it again; to have the room back run VACUUM on SQLite, or VACUUM FULL on "
                "PostgreSQL, in a quiet hour: nobody can use it meanwhile",
            )
        case HealthFindingKind.NO_VACUUM:
            return HealthText(
                Severity.CRITICAL,
                f"Nothing is vacuumed: {figures['setting']} is off",
                f"{figures['setting']} is off, so dead rows are never removed: every claim and every ending "
                "leaves some, and the queue becomes slower by the hour",
                f"set {figures['setting']} = on in postgresql.conf",
            )
        case HealthFindingKind.LITTLE_SPACE:
            free = figures["free"]
            return HealthText(
                Severity.CRITICAL if free < VERY_LITTLE_SPACE else Severity.WARNING,
                "The disk is nearly full",
                f"only {format_size(free)} are left on the disk of {figures['directory']}, and no job is "
                "taken in "
                "when there is nothing left",
                "make room there, or keep finished jobs for a shorter time (retention)",
            )
        case HealthFindingKind.IN_MEMORY:
            return HealthText(
                Severity.WARNING,
                "The file is in memory",
                f"the directory {figures['directory']} is in memory ({figures['file_system']}): a restart of "
                "the machine loses every job",
                "give the URL of a file on a disk",
            )
        case HealthFindingKind.NETWORK_FILE:
            return HealthText(
                Severity.WARNING,
                "The file is on a network file system",
                f"the directory {figures['directory']} is on a network file system "
                f"({figures['file_system']}), where SQLite's locks do not hold: two machines that write "
                "there damage the file",
                "see that one machine alone opens it; better move it to a local disk, or use PostgreSQL",
            )
        case HealthFindingKind.READABLE_FILE:
            everyone = figures["readers"] == "everyone"
            return HealthText(
                Severity.WARNING if everyone else Severity.INFO,
                "Other users can read the jobs",
                f"{figures['file']} has the mode {figures['mode']}: {figures['readers']} on this machine can "
                "read every payload and result in it, and the hashes of passwords and keys",
                f"chmod 600 {figures['file']}"
                + ("" if everyone else ", unless that group is meant to read it"),
            )
        case HealthFindingKind.UNSAFE_COMMITS:
            return _describe_unsafe_setting(figures["setting"], figures["value"])
        case HealthFindingKind.PINNED_VACUUM:
            return _describe_pinned_vacuum(figures)
        case HealthFindingKind.DEAD_ROWS:
            return HealthText(
                Severity.WARNING,
                f"Dead rows pile up in {figures['table']}",
                f"the table {figures['table']} has {figures['dead']:,} dead rows beside "
                f"{figures['live']:,} live ones: vacuum does not come, or may not remove them",
                "end what pins vacuum, if anything here says so; otherwise see that autovacuum is on, and "
                f"run VACUUM {figures['table']}",
            )
        case HealthFindingKind.UNPRUNED:
            return HealthText(
                Severity.WARNING,
                "Pruning does not keep up",
                f"there are finished jobs {format_duration(figures['seconds'])} after their retention ended: "
                "no "
                "process keeps the store open to remove them, or more jobs finish than are removed, and "
                "tables grow",
                "run a worker, or any program that keeps the store open; where more finish than it removes, "
                "keep them for a shorter time or not at all (retention=0)",
            )
        case HealthFindingKind.NOTIFY_QUEUE:
            usage = figures["usage"]
            return HealthText(
                Severity.CRITICAL if usage >= NEARLY_FULL else Severity.WARNING,
                "The server's queue of notifications fills up",
                f"the queue of notifications is {usage:.0%} full, and when it is full no transaction that "
                "notifies can commit, whoever's it is: some session listens inside of a long transaction",
                "end it: the server's log names its process (pg_stat_activity shows those idle in "
                "transaction)",
            )
        case HealthFindingKind.FEW_CONNECTIONS:
            return HealthText(
                Severity.WARNING,
                "The server is running out of connections",
                f"the server has {figures['used']:,} of at most {plural(figures['limit'], 'connection')} in "
                "use",
                "close what is idle, raise max_connections, or put a pooler in front of programs that need "
                "no wake-ups",
            )
        case HealthFindingKind.POOLED:
            return HealthText(
                Severity.INFO,
                "No wake-ups come through the pooler",
                "a pooler sits between here and the server: no wake-ups come through it, so idle workers "
                "find jobs by polling",
                "give workers a URL that leads to the server itself",
            )
        case HealthFindingKind.UNSEEN:
            return HealthText(
                Severity.INFO,
                f"Nothing is known of {figures['part']}",
                f"the look at {figures['part']} failed: {figures['reason']}",
                f"let the role that Tidewheel uses see it: GRANT {figures['role']} TO "
                f"{figures.get('grantee') or '…'}"
                if figures.get("role")
                else "see that what it says is put right; nothing else depends on it",
            )
    assert_never(finding.kind)


_DATA_LOSS_TEXTS: Final = {
    "synchronous": (
        "power loss takes the last jobs that were acknowledged",
        "leave it out of the URL for full durability",
    ),
    "fsync": (
        "a crash of the machine may lose or damage everything on this server",
        "set fsync = on in postgresql.conf",
    ),
    "full_page_writes": (
        "a crash of the machine may damage tables",
        "set full_page_writes = on in postgresql.conf",
    ),
    "synchronous_commit": (
        "a crash of the server takes the last jobs that were acknowledged",
        "ALTER ROLE … SET synchronous_commit = on",
    ),
}
"""What a setting that is too low costs, and how to raise it."""


def _describe_unsafe_setting(setting: str, value: str) -> HealthText:
    cost, remedy = _DATA_LOSS_TEXTS[setting]
    severe = setting in {"fsync", "full_page_writes"}
    return HealthText(
        Severity.CRITICAL if severe else Severity.WARNING,
        f"Jobs can be lost: {setting} is {value}",
        f"{setting} is {value}: {cost}",
        remedy,
    )


def _describe_long_log(figures: dict[str, Any]) -> HealthText:
    readers, holders = figures.get("readers"), figures.get("holders")
    if readers:
        remedy = "let it end its transaction, or end the process"
    elif holders:
        remedy = f"one of those that have it open is to end its transaction: {holders}"
    else:
        remedy = f"find the program that has {figures['file']} open (fuser tells) and end its transaction"
    who = f"process {readers}" if readers else "some connection"
    return HealthText(
        Severity.WARNING,
        "The write-ahead log grows",
        f"the write-ahead log is {format_size(figures['bytes'])} and cannot be reset: {who} keeps a read "
        "transaction open",
        remedy,
    )


def _describe_pinned_vacuum(figures: dict[str, Any]) -> HealthText:
    seconds = figures.get("seconds")
    severity = Severity.CRITICAL if seconds is not None and seconds >= MAX_PIN_SECONDS else Severity.WARNING
    since = "" if seconds is None else f" for {format_duration(seconds)}"
    passed = figures.get("transactions")
    cost = "and meanwhile no dead row of the queue's tables can be removed: they grow, and claims slow down"
    if passed:
        cost = f"{cost} ({plural(passed, 'transaction')} since)"
    match figures["holder"]:
        case "session":
            process = figures["process"]
            who = f"process {process} ({_list_figures(figures, 'application', 'role', 'address', 'state')})"
            text = f"; its last statement: {figures['query']}" if figures.get("query") else ""
            return HealthText(
                severity,
                f"A transaction pins vacuum{since}",
                f"{who} has held a snapshot{since}, {cost}{text}",
                f"let it commit, or end it: SELECT pg_terminate_backend({process})",
            )
        case "prepared":
            return HealthText(
                severity,
                f"A prepared transaction pins vacuum{since}",
                f"the prepared transaction {figures['name']} of {figures['role']} has waited{since}, {cost}",
                f"end it in its database: ROLLBACK PREPARED {_sql_text(figures['name'])}, or COMMIT PREPARED",
            )
        case "standby":
            return HealthText(
                severity,
                f"The standby {figures['name']} pins vacuum",
                f"the standby {figures['name']} holds back vacuum for its own queries, {cost}",
                "end the long query there, or set hot_standby_feedback = off on it",
            )
        case _:
            return HealthText(
                severity,
                f"The replication slot {figures['name']} pins vacuum",
                f"the replication slot {figures['name']} (active: {figures['active']}) holds back vacuum for "
                f"its standby, {cost}",
                "bring the standby back; only where it is gone for good: SELECT "
                f"pg_drop_replication_slot({_sql_text(figures['name'])})",
            )


def _sql_text(text: str) -> str:
    """As a statement has it: somebody else chose it, and somebody will paste it."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"


def _list_figures(figures: dict[str, Any], *names: str) -> str:
    return ", ".join(str(figures[name]) for name in names if figures.get(name)) or "nothing known of it"


MAX_LOOP_LAG_SECONDS: Final = 1.0
"""An event loop that lets things wait so long is held up by a handler that does not await."""


def find_worker_findings(live: Sequence[WorkerRecord]) -> Iterator[Finding]:
    """Return what live workers report of themselves and of the store."""
    for worker in live:
        if worker.loop_lag_seconds >= MAX_LOOP_LAG_SECONDS:
            yield Finding(
                kind=FindingKind.WORKER_LAGGING,
                severity=Severity.WARNING,
                title=f"The event loop of {worker.name} is held up",
                explanation=f"In the last seconds the event loop of worker {worker.name} let things wait for "
                f"{format_duration(worker.loop_lag_seconds)}: some handler works without awaiting.",
                remedy="Make that handler a plain function, which runs on a thread, or give its task "
                'isolation="process"; jobs it runs now are those to look at',
                worker=worker.name,
                where=f"state:running {field_term('worker', worker.name)}",
                details={"loop_lag_seconds": worker.loop_lag_seconds},
            )
    if step := max((worker.clock_step_seconds for worker in live), default=0.0):
        yield Finding(
            kind=FindingKind.CLOCK_STEP,
            severity=Severity.WARNING,
            title="The store's clock jumped ahead",
            explanation=f"It stepped ahead by {format_duration(step)}. Pruning, retention and expiry go by "
            "the time "
            f"before that, until the step has lasted for {format_duration(CONFIRM_SECONDS)}.",
            remedy="Set the clock right; if it is right, do nothing",
            details={"seconds": step},
        )
    polling = [worker.name for worker in live if worker.polling]
    if polling:
        yield Finding(
            kind=FindingKind.WORKER_POLLING,
            severity=Severity.WARNING,
            title=f"{plural(len(polling), 'worker hears', 'workers hear')} no wake-ups",
            explanation=f"To {list_names(polling)} no wake-ups come through: jobs are found by polling, up "
            "to "
            "poll_interval later.",
            remedy="The connection that listens is lost, and is made anew by itself when the server lets it; "
            "behind a pooler give workers a URL that leads to the server itself",
            worker=polling[0] if len(polling) == 1 else None,
            details={"workers": len(polling)},
        )
    versions = Counter(worker.version for worker in live)
    if len(versions) > 1:
        told = ", ".join(f"{plural(n, 'worker')} of {version}" for version, n in sorted(versions.items()))
        yield Finding(
            kind=FindingKind.MIXED_VERSIONS,
            severity=Severity.INFO,
            title="Workers of several versions",
            explanation=f"There are {told}.",
            remedy="Right while a deployment goes on; afterwards restart those of the older version",
            details=dict(versions),
        )


def list_names(names: Sequence[str]) -> str:
    """Return their names for a sentence, the first few of many."""
    return f"{'worker' if len(names) == 1 else 'workers'} {list_some(names)}"


def find_schedule_problems(schedules: Sequence[Schedule]) -> Iterator[Finding]:
    """Of those that are not paused."""
    awake = [one for one in schedules if not one.paused]
    troubled = [one for one in awake if one.trouble is not None]
    undeclared = [one for one in awake if one.undeclared]
    overdue = [
        one
        for one in awake
        if one.overdue_since is not None and one not in troubled and one not in undeclared
    ]
    if troubled:
        yield Finding(
            kind=FindingKind.SCHEDULE_TROUBLED,
            severity=Severity.WARNING,
            title=f"{plural(len(troubled), 'schedule')} could not make a job",
            explanation=f"{_names(troubled)}: {troubled[0].trouble}",
            remedy="Correct it: tidewheel schedules create … --replace, or in the code that declares it",
            since=min((one.trouble_at for one in troubled if one.trouble_at), default=None),
        )
    if overdue:
        yield Finding(
            kind=FindingKind.SCHEDULE_OVERDUE,
            severity=Severity.WARNING,
            title=f"{plural(len(overdue), 'schedule is', 'schedules are')} overdue",
            explanation=f"{_names(overdue)}: their time has come, and no worker has made a job.",
            remedy="Start a worker of the app that has their tasks, tidewheel worker MODULE:APP, with the "
            "setting schedules on",
            since=min((one.overdue_since for one in overdue if one.overdue_since), default=None),
        )
    if undeclared:
        yield Finding(
            kind=FindingKind.SCHEDULE_UNDECLARED,
            severity=Severity.INFO,
            title=f"{plural(len(undeclared), 'schedule is', 'schedules are')} not in the code any more",
            explanation=f"{_names(undeclared)}: no worker has declared them for half an hour, and none lets "
            "them fire.",
            remedy="If they were taken out on purpose: tidewheel schedules delete NAME. Otherwise start a "
            "worker of the app that declares them",
        )


def _names(schedules: Sequence[Schedule]) -> str:
    return list_some([one.name for one in schedules])
