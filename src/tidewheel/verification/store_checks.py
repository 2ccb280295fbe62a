"""Checks of a live store for ``tidewheel doctor``, and their findings as data.

They cover ailments of the store, leases that no worker ends, tasks that no worker knows, clocks and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tidewheel.admin.reports.answers import Finding as AttentionFinding
from tidewheel.admin.reports.answers import FindingKind, Severity
from tidewheel.admin.reports.attention import health_finding
from tidewheel.builtin.file_reconciliation import (
    MAX_JOBS,
    MAX_NAMES,
    Reconciliation,
    reconcile_files,
)
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import JobFilter
from tidewheel.core.text_format import format_duration, format_size, plural, printable

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel


class FindingLevel(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"  # something is wrong, and somebody has to do something
    DOUBT = "doubt"  # it works, and promises less than it could
    NOTE = "note"  # good to know


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that was found, in a sentence."""

    level: FindingLevel
    text: str
    kind: str = "store"
    """For programs: ``store`` is the store's own check, the others are words that stay the same."""


CLOCK_DOUBT_SECONDS: Final = 1.0
"""Due times that programs give are by their own clock, so by so much jobs run too early or too late."""
CLOCK_PROBLEM_SECONDS: Final = 60.0
FUTURE_SECONDS: Final = 5.0
"""A job that was made so much after now was made by another clock, or this one was set back."""
MAX_FILE_FINDINGS: Final = 20
"""Files that are told one by one."""

_LEVELS: Final = {
    # Somebody has to do something, or these jobs never run.
    FindingKind.LEASE_ENDED: FindingLevel.PROBLEM,
    FindingKind.UNKNOWN_TASK: FindingLevel.PROBLEM,
    # It may be meant so, or be over in a moment.
    FindingKind.NO_WORKER: FindingLevel.DOUBT,
    FindingKind.HOLDER_LOST: FindingLevel.DOUBT,
    FindingKind.WORKER_MISSING: FindingLevel.DOUBT,
    FindingKind.WORKER_STUCK: FindingLevel.DOUBT,
    FindingKind.WORKER_POLLING: FindingLevel.DOUBT,
    FindingKind.CLOCK_STEP: FindingLevel.DOUBT,
    FindingKind.TIMED_OUT: FindingLevel.DOUBT,
    FindingKind.SCHEDULE_OVERDUE: FindingLevel.DOUBT,
    FindingKind.SCHEDULE_TROUBLED: FindingLevel.DOUBT,
    FindingKind.SCHEDULE_UNDECLARED: FindingLevel.NOTE,
    FindingKind.PAUSED: FindingLevel.NOTE,
    FindingKind.LIMITED: FindingLevel.NOTE,
    FindingKind.MIXED_VERSIONS: FindingLevel.NOTE,
    # Of the ground; those that somebody may have chosen are no problem, however bad they are.
    FindingKind.UNSAFE_COMMITS: FindingLevel.DOUBT,
    FindingKind.IN_MEMORY: FindingLevel.DOUBT,
    FindingKind.NETWORK_FILE: FindingLevel.DOUBT,
    FindingKind.READABLE_FILE: FindingLevel.DOUBT,
    FindingKind.POOLED: FindingLevel.DOUBT,
    FindingKind.OLD_SQLITE: FindingLevel.NOTE,
    FindingKind.UNSEEN: FindingLevel.NOTE,
}
"""How bad each kind is for the doctor, who has nothing to say about the kinds that are not here."""
_GROWING_FILES: Final = frozenset(
    {
        FindingKind.LONG_LOG,
        FindingKind.LITTLE_SPACE,
        FindingKind.PINNED_VACUUM,
        FindingKind.DEAD_ROWS,
        FindingKind.SPARSE,
        FindingKind.NO_VACUUM,
        FindingKind.UNPRUNED,
        FindingKind.NOTIFY_QUEUE,
        FindingKind.FEW_CONNECTIONS,
    }
)
"""What grows until it hurts: a problem from the day on on which it is critical."""


def attention_findings(needs: Iterable[AttentionFinding]) -> Iterator[DoctorFinding]:
    """What is about the store and about who works there. Tasks that fail are not the doctor's."""
    for found in needs:
        level = _LEVELS.get(found.kind)
        if found.kind in _GROWING_FILES:
            level = FindingLevel.PROBLEM if found.severity is Severity.CRITICAL else FindingLevel.DOUBT
        if level is not None:
            text = f"{_inside(found.explanation.rstrip('.'))}; {_inside(found.remedy)}"
            yield DoctorFinding(level, text, found.kind)


def _inside(sentence: str) -> str:
    """As it begins inside of another; names such as NTP keep their capitals."""
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]


async def clock_difference(app: Tidewheel) -> tuple[float, float]:
    """By how many seconds the store's clock is ahead of this process's, and how sure that is."""
    before = app.clock.now()
    there = await app.store.now()
    after = app.clock.now()
    return (there - (before + after) / 2) / MICROSECONDS, (after - before) / 2 / MICROSECONDS


def clock_findings(ahead: float, uncertain: float) -> Iterator[DoctorFinding]:
    """A difference beyond what the way to the store explains."""
    certain = abs(ahead) - uncertain
    if certain < CLOCK_DOUBT_SECONDS:
        return
    which = "ahead of" if ahead > 0 else "behind"
    yield DoctorFinding(
        FindingLevel.PROBLEM if certain >= CLOCK_PROBLEM_SECONDS else FindingLevel.DOUBT,
        f"the store's clock is {format_duration(abs(ahead))} {which} this machine's: due times that programs "
        "here "
        "give are off by as much, leases are not; let both follow a time server (NTP)",
        "clock",
    )


async def newest_job_findings(app: Tidewheel) -> list[DoctorFinding]:
    """Whether jobs come from the future."""
    page = await app.store.list_jobs(JobFilter(), limit=1)
    now = await app.store.now()
    ahead = max((job.created_at - now for job in page.items), default=0) / MICROSECONDS
    if ahead < FUTURE_SECONDS:
        return []
    text = (
        f"the newest job was made {format_duration(ahead)} from now: the clock was set back, or that of "
        "another "
        "machine is wrong; what waits for a time waits so much longer until it is right"
    )
    return [DoctorFinding(FindingLevel.DOUBT, text, "clock")]


def file_findings(found: Reconciliation) -> Iterator[DoctorFinding]:
    """What the disk has against completed file jobs."""
    for said in found.mismatches[:MAX_FILE_FINDINGS]:
        job = f"job {said.job_id} ({said.task})"
        text = f"{printable(said.text)}, though {job} completed and is the last about it"
        yield DoctorFinding(FindingLevel.PROBLEM, text, "file")
    if (more := len(found.mismatches) - MAX_FILE_FINDINGS) > 0:
        yield DoctorFinding(
            FindingLevel.PROBLEM,
            f"{plural(more, 'more file is', 'more files are')} not as jobs left them",
            "file",
        )
    if found.unknown:
        first = found.unknown[0]
        yield DoctorFinding(
            FindingLevel.DOUBT,
            f"{plural(len(found.unknown), 'file job')} could not be compared with the disk: "
            f"{printable(first.text)} (job {first.job_id})",
            "file",
        )
    if found.busy:
        files = plural(found.busy, "file differs", "files differ")
        text = f"{files} from what completed jobs say, and may have been changed by other jobs since"
        yield DoctorFinding(FindingLevel.NOTE, text, "file")
    if not found.complete:
        text = f"only the newest {found.jobs:,} completed file jobs were compared with the disk"
        yield DoctorFinding(FindingLevel.NOTE, text, "file")


def leftover_findings(found: Reconciliation) -> Iterator[DoctorFinding]:
    """What killed runs have left beside the files."""
    if found.leftovers:
        number = plural(len(found.leftovers), "hidden file")
        total = format_size(sum(one.size for one in found.leftovers))
        text = (
            f"{number} ({total}) of killed runs, whose jobs are over, such as "
            f"{printable(found.leftovers[0].path)}; delete them, unless you requeue those jobs or another "
            "store has them"
        )
        yield DoctorFinding(FindingLevel.NOTE, text, "leftover")
    if not found.searched:
        text = "there are too many names beneath the roots to look for hidden files of killed runs in all"
        yield DoctorFinding(FindingLevel.NOTE, text, "leftover")


async def health_findings(app: Tidewheel) -> list[DoctorFinding]:
    """Only what the store says of what it stands on, for which nobody has to be allowed to see a job."""
    return list(attention_findings(map(health_finding, await app.store.health())))


async def check_open_store(
    app: Tidewheel, *, files: bool = True, most_files: int = MAX_JOBS, most_names: int = MAX_NAMES
) -> tuple[list[DoctorFinding], Reconciliation | None]:
    """Everything above, of an app that is open; no invariant is checked here."""
    found = list(attention_findings((await app.questions.attention()).findings))
    found += clock_findings(*await clock_difference(app))
    found += await newest_job_findings(app)
    compared = await reconcile_files(app, most=most_files, names=most_names) if files else None
    if compared is not None:
        found += file_findings(compared)
        found += leftover_findings(compared)
    return found, compared
