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
from tidewheel.admin.reports.attention import of_ailment
from tidewheel.builtin.file_reconciliation import (
    MOST_JOBS,
    MOST_NAMES,
    Reconciliation,
    reconcile_files,
)
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import JobFilter
from tidewheel.core.text_format import duration, plural, printable, size

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel


class Level(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"  # something is wrong, and somebody has to do something
    DOUBT = "doubt"  # it works, and promises less than it could
    NOTE = "note"  # good to know


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, in a sentence."""

    level: Level
    text: str
    kind: str = "store"
    """For programs: ``store`` is the store's own check, the others are words that stay the same."""


CLOCK_DOUBT_SECONDS: Final = 1.0
"""Due times that programs give are by their own clock, so by so much jobs run too early or too late."""
CLOCK_PROBLEM_SECONDS: Final = 60.0
FUTURE_SECONDS: Final = 5.0
"""A job that was made so much after now was made by another clock, or this one was set back."""
MOST_FILES: Final = 20
"""Files that are told one by one."""

_LEVELS: Final = {
    # Somebody has to do something, or these jobs never run.
    FindingKind.LEASE_ENDED: Level.PROBLEM,
    FindingKind.UNKNOWN_TASK: Level.PROBLEM,
    # It may be meant so, or be over in a moment.
    FindingKind.NO_WORKER: Level.DOUBT,
    FindingKind.HOLDER_LOST: Level.DOUBT,
    FindingKind.WORKER_MISSING: Level.DOUBT,
    FindingKind.WORKER_STUCK: Level.DOUBT,
    FindingKind.WORKER_POLLING: Level.DOUBT,
    FindingKind.CLOCK_STEP: Level.DOUBT,
    FindingKind.TIMED_OUT: Level.DOUBT,
    FindingKind.SCHEDULE_OVERDUE: Level.DOUBT,
    FindingKind.SCHEDULE_TROUBLED: Level.DOUBT,
    FindingKind.SCHEDULE_UNDECLARED: Level.NOTE,
    FindingKind.PAUSED: Level.NOTE,
    FindingKind.LIMITED: Level.NOTE,
    FindingKind.MIXED_VERSIONS: Level.NOTE,
    # Of the ground; those that somebody may have chosen are no problem, however bad they are.
    FindingKind.UNSAFE_COMMITS: Level.DOUBT,
    FindingKind.IN_MEMORY: Level.DOUBT,
    FindingKind.NETWORK_FILE: Level.DOUBT,
    FindingKind.READABLE_FILE: Level.DOUBT,
    FindingKind.POOLED: Level.DOUBT,
    FindingKind.OLD_SQLITE: Level.NOTE,
    FindingKind.UNSEEN: Level.NOTE,
}
"""How bad each kind is for the doctor, who has nothing to say about the kinds that are not here."""
_OF_THE_GROUND: Final = frozenset(
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


def of_attention(needs: Iterable[AttentionFinding]) -> Iterator[Finding]:
    """What is about the store and about who works there. Tasks that fail are not the doctor's."""
    for found in needs:
        level = _LEVELS.get(found.kind)
        if found.kind in _OF_THE_GROUND:
            level = Level.PROBLEM if found.severity is Severity.CRITICAL else Level.DOUBT
        if level is not None:
            text = f"{_inside(found.explanation.rstrip('.'))}; {_inside(found.remedy)}"
            yield Finding(level, text, found.kind)


def _inside(sentence: str) -> str:
    """As it begins inside of another; names such as NTP keep their capitals."""
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]


async def clock_difference(app: Tidewheel) -> tuple[float, float]:
    """By how many seconds the store's clock is ahead of this process's, and how sure that is."""
    before = app.clock.now()
    there = await app.store.now()
    after = app.clock.now()
    return (there - (before + after) / 2) / MICROSECONDS, (after - before) / 2 / MICROSECONDS


def of_clock(ahead: float, uncertain: float) -> Iterator[Finding]:
    """A difference beyond what the way to the store explains."""
    certain = abs(ahead) - uncertain
    if certain < CLOCK_DOUBT_SECONDS:
        return
    which = "ahead of" if ahead > 0 else "behind"
    yield Finding(
        Level.PROBLEM if certain >= CLOCK_PROBLEM_SECONDS else Level.DOUBT,
        f"the store's clock is {duration(abs(ahead))} {which} this machine's: due times that programs here "
        "give are off by as much, leases are not; let both follow a time server (NTP)",
        "clock",
    )


async def of_newest_job(app: Tidewheel) -> list[Finding]:
    """Whether jobs come from the future."""
    page = await app.store.list_jobs(JobFilter(), limit=1)
    now = await app.store.now()
    ahead = max((job.created_at - now for job in page.items), default=0) / MICROSECONDS
    if ahead < FUTURE_SECONDS:
        return []
    text = (
        f"the newest job was made {duration(ahead)} from now: the clock was set back, or that of another "
        "machine is wrong; what waits for a time waits so much longer until it is right"
    )
    return [Finding(Level.DOUBT, text, "clock")]


def of_files(found: Reconciliation) -> Iterator[Finding]:
    """What the disk has against completed file jobs."""
    for said in found.disagreements[:MOST_FILES]:
        job = f"job {said.job_id} ({said.task})"
        text = f"{printable(said.text)}, though {job} completed and is the last about it"
        yield Finding(Level.PROBLEM, text, "file")
    if (more := len(found.disagreements) - MOST_FILES) > 0:
        yield Finding(
            Level.PROBLEM, f"{plural(more, 'more file is', 'more files are')} not as jobs left them", "file"
        )
    if found.unknown:
        first = found.unknown[0]
        yield Finding(
            Level.DOUBT,
            f"{plural(len(found.unknown), 'file job')} could not be compared with the disk: "
            f"{printable(first.text)} (job {first.job_id})",
            "file",
        )
    if found.busy:
        files = plural(found.busy, "file differs", "files differ")
        text = f"{files} from what completed jobs say, and may have been changed by other jobs since"
        yield Finding(Level.NOTE, text, "file")
    if not found.complete:
        text = f"only the newest {found.jobs:,} completed file jobs were compared with the disk"
        yield Finding(Level.NOTE, text, "file")


def of_leftovers(found: Reconciliation) -> Iterator[Finding]:
    """What killed runs have left beside the files."""
    if found.leftovers:
        number = plural(len(found.leftovers), "hidden file")
        total = size(sum(one.size for one in found.leftovers))
        text = (
            f"{number} ({total}) of killed runs, whose jobs are over, such as "
            f"{printable(found.leftovers[0].path)}; delete them, unless you requeue those jobs or another "
            "store has them"
        )
        yield Finding(Level.NOTE, text, "leftover")
    if not found.searched:
        text = "there are too many names beneath the roots to look for hidden files of killed runs in all"
        yield Finding(Level.NOTE, text, "leftover")


async def look_at_ailments(app: Tidewheel) -> list[Finding]:
    """Only what the store says of what it stands on, for which nobody has to be allowed to see a job."""
    return list(of_attention(map(of_ailment, await app.store.ailments())))


async def look_around(
    app: Tidewheel, *, files: bool = True, most_files: int = MOST_JOBS, most_names: int = MOST_NAMES
) -> tuple[list[Finding], Reconciliation | None]:
    """Everything above, of an app that is open; no invariant is checked here."""
    found = list(of_attention((await app.questions.attention()).findings))
    found += of_clock(*await clock_difference(app))
    found += await of_newest_job(app)
    compared = await reconcile_files(app, most=most_files, names=most_names) if files else None
    if compared is not None:
        found += of_files(compared)
        found += of_leftovers(compared)
    return found, compared
