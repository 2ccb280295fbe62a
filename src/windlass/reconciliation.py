"""Completed file jobs against the disk: is what was created there, and what was deleted gone? (Q41)

Only looks. Of several jobs about one file the last to complete counts, and a file that an unfinished job is
about is left alone: it may be changed at this moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable
from uuid import UUID

import msgspec

from windlass.errors import TaskError
from windlass.model import BodyFormat, JobFilter, JobRecord, State

if TYPE_CHECKING:
    from windlass.app import Windlass

TASKS: Final = ("create_file", "delete_file")
MOST_JOBS: Final = 10_000
"""Completed jobs of each task that are compared, the newest."""
MOST_UNFINISHED: Final = 1000
PAGE: Final = 200

Place = tuple[str, tuple[str, ...]]
"""A root, and the components of a path beneath it."""


@runtime_checkable
class Disk(Protocol):
    """Where the files are, as the tasks know it."""

    roots: Any
    """has ``locate(path)``, the root and the components from there: two that are the same are one file"""

    def disagreement(self, task: str, payload: Mapping[str, Any]) -> str | None:
        """What it has against a completed job, in words; None when they agree. Raises ``TaskError``."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A file that is not as the last job about it left it."""

    job_id: UUID
    task: str
    text: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What came of a comparison."""

    jobs: int = 0
    """completed jobs that were looked at"""
    files: int = 0
    """different files they were about"""
    busy: int = 0
    """of those, files that were left alone because an unfinished job is about them"""
    disagreements: tuple[Disagreement, ...] = ()
    unknown: tuple[Disagreement, ...] = field(default=())
    """files that could not be looked at"""
    complete: bool = True
    """False: there are more, older jobs"""


def reconcile(
    completed: Iterable[JobRecord], unfinished: Iterable[JobRecord], disk: Disk, *, complete: bool = True
) -> Reconciliation:
    """Compare these jobs, with their payloads, with the disk. Blocks, as disks do."""
    last: dict[Place, tuple[JobRecord, Mapping[str, Any]]] = {}
    unknown: list[Disagreement] = []
    number = 0
    for job in completed:
        number += 1
        payload = _payload(job)
        try:
            place = disk.roots.locate(payload["path"])
        except (KeyError, TaskError) as error:
            reason = "its payload is not that of a file job" if isinstance(error, KeyError) else str(error)
            unknown.append(Disagreement(job.id, job.task, reason))
            continue
        before = last.get(place)
        if before is None or _ended(before[0]) < _ended(job):
            last[place] = (job, payload)
    busy = _places(unfinished, disk) & last.keys()
    found: list[Disagreement] = []
    for place, (job, payload) in last.items():
        if place in busy:
            continue
        try:
            text = disk.disagreement(job.task, payload)
        except TaskError as error:
            unknown.append(Disagreement(job.id, job.task, str(error)))
        else:
            if text is not None:
                found.append(Disagreement(job.id, job.task, text))
    return Reconciliation(number, len(last), len(busy), tuple(found), tuple(unknown), complete)


async def reconcile_files(app: Windlass, *, most: int = MOST_JOBS) -> Reconciliation | None:
    """Compare the newest completed file jobs of an app's store; None where it has no file tasks of ours.

    Jobs go on meanwhile, so that a file may be newer than the jobs that were read: what disagrees is looked
    at twice, and told only when both looks say the same.
    """
    disk = disk_of(app)
    if disk is None:
        return None
    found = await _look(app, disk, most)
    if not found.disagreements:
        return found
    again = await _look(app, disk, most)
    both = tuple(one for one in again.disagreements if one in found.disagreements)
    return replace(again, disagreements=both)


async def _look(app: Windlass, disk: Disk, most: int) -> Reconciliation:
    completed: list[JobRecord] = []
    unfinished: list[JobRecord] = []
    complete = True
    # First: a job that completes between the two lists is in both, and its file left alone.
    for task in TASKS:
        for state in (State.PENDING, State.RUNNING):
            unfinished += (await _jobs(app, task, state, MOST_UNFINISHED))[0]
    for task in TASKS:
        jobs, all_of_them = await _jobs(app, task, State.COMPLETED, most)
        completed += jobs
        complete = complete and all_of_them
    return await asyncio.to_thread(reconcile, completed, unfinished, disk, complete=complete)


def disk_of(app: Windlass) -> Disk | None:
    """What configures the built-in file tasks; a user's own task of the same name has no such thing.

    Told by what it can do: the built-in tasks are like a user's own, and nobody here knows them.
    """
    for task in app.registry:
        owner = getattr(task.fn, "__self__", None)
        if task.name in TASKS and isinstance(owner, Disk):
            return owner
    return None


async def _jobs(app: Windlass, task: str, state: State, most: int) -> tuple[list[JobRecord], bool]:
    """Jobs with their payloads, newest first; False when there are more."""
    where = JobFilter(task=task, state=state)
    found: list[JobRecord] = []
    cursor = None
    while len(found) < most:
        page = await app.store.list_jobs(where, limit=min(PAGE, most - len(found)), cursor=cursor)
        for job in page.items:
            whole = await app.store.get(job.id)
            # It may have been pruned, or have come to another end, since it was listed.
            if whole is not None and whole.state is state:
                found.append(whole)
        cursor = page.cursor
        if cursor is None:
            return found, True
    return found, False


def _places(jobs: Iterable[JobRecord], disk: Disk) -> set[Place]:
    places: set[Place] = set()
    for job in jobs:
        try:
            places.add(disk.roots.locate(_payload(job)["path"]))
        except (KeyError, TaskError):
            continue  # it will fail, and touch nothing
    return places


def _payload(job: JobRecord) -> Mapping[str, Any]:
    """What the job was about; nothing where that cannot be read."""
    if job.payload is None or job.format is not BodyFormat.JSON:
        return {}
    try:
        value = msgspec.json.decode(job.payload)
    except msgspec.DecodeError:
        return {}
    if not isinstance(value, dict) or not isinstance(value.get("path"), str):
        return {}
    if job.task == "create_file" and not isinstance(value.get("content"), str):
        return {}
    return value


def _ended(job: JobRecord) -> tuple[int, int]:
    return job.finished_at or 0, job.fence
