"""Completed file jobs against the disk: is what was created there, and what was deleted gone? (Q41)

Only looks. A job has the last word about a file when no other one about it began after it ended; of several
that ran at the same time each may have. What contradicts them is told only when no other job can have done
it: one that has not finished, that came to a bad end, or that writes files in another way. Those are looked
for last, after the disk, so that a job which runs meanwhile is among them.

What is kept of a job is small: of its content the digest.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable
from uuid import UUID

import msgspec

from tidewheel.core.conditions import Compare, Comparison, Field
from tidewheel.core.model import FINAL_STATES, BodyFormat, JobFilter, JobRecord, State
from tidewheel.errors import TaskError

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

TASKS: Final = ("create_file", "delete_file")
PATH_FIELDS: Final = {
    "create_file": ("path",),
    "delete_file": ("path",),
    "download_file": ("dest",),
    "claude_extraction": ("target_path", "targetPath"),
}
"""Tasks that change files, and the names of the field of their payloads that says which."""
MAX_JOBS: Final = 10_000
"""Completed jobs of each task that are compared, the newest; and of any other list that is read."""
MAX_NAMES: Final = 100_000
"""Names beneath the roots among which leftovers are looked for."""
PAGE: Final = 200
MAX_SEARCHES: Final = 5
"""Pages of one list that may be partial: each takes the store most of a second."""
CHUNK: Final = 100
"""Files that are looked at before a cancellation is noticed."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """What a file is to hold, by its digest."""

    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Leftover:
    """A hidden file of a run that was killed, and the job it was one of."""

    path: str
    job_id: UUID
    size: int


@runtime_checkable
class FileSystemView(Protocol):
    """Where the files are, as the tasks know it."""

    roots: Any
    """has ``identity(path)``, which is the same for all paths of one file; raises ``TaskError``"""

    def describe_mismatch(self, path: str, wanted: FileContent | None) -> str | None:
        """What it has against that content, or against there being none, in words; raises ``TaskError``."""

    def leftovers(self, most: int) -> tuple[list[Leftover], bool]:
        """Hidden files of runs; False when there are more than ``most`` names to look at."""


@dataclass(frozen=True, slots=True)
class FileMismatch:
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
    """of those, files that differ and were left alone, because another job may have changed them"""
    mismatches: tuple[FileMismatch, ...] = ()
    unknown: tuple[FileMismatch, ...] = ()
    """files that could not be looked at, or that differ where not every other job could be looked at"""
    complete: bool = True
    """False: there are more, older jobs"""
    leftovers: tuple[Leftover, ...] = ()
    """hidden files of runs whose jobs are over, or unknown to this store, the largest first"""
    searched: bool = True
    """False: there are more names beneath the roots than were looked at for those"""


@dataclass(frozen=True, slots=True)
class FileJob:
    """A completed job, as far as it is about a file."""

    job_id: UUID
    task: str
    path: str
    expected: FileContent | None
    began: int
    ended: int


@dataclass(slots=True)
class FileHistory:
    """What completed jobs say about one file."""

    jobs: list[FileJob] = field(default_factory=list)

    @property
    def since(self) -> int:
        """Whoever ended before this has been followed by another."""
        return max(one.began for one in self.jobs)

    @property
    def last(self) -> list[FileJob]:
        """Those that may have the last word, the last to end first."""
        since = self.since
        return sorted((one for one in self.jobs if one.ended >= since), key=lambda one: -one.ended)


async def reconcile_files(
    app: Tidewheel, *, most: int = MAX_JOBS, names: int = MAX_NAMES
) -> Reconciliation | None:
    """Compare the newest completed file jobs of an app's store; None where it has no file tasks of ours."""
    disk = file_system_view(app)
    if disk is None:
        return None
    said, unknown, complete = await _completed(app, most)
    jobs = len(said) + len(unknown)
    files: dict[str, FileHistory] = {}
    for chunk in _chunks(said):
        unknown += await asyncio.to_thread(_group_by_file, chunk, disk, files)
    differ: dict[str, FileMismatch] = {}
    for places in _chunks(list(files)):
        unknown += await asyncio.to_thread(_compare, places, files, disk, differ)
    since = {place: files[place].since for place in differ}
    suspects = ConcurrentWriters(app, disk, since, compared={one.job_id for one in said})
    if differ:
        await suspects.look(most)
    left = [found for place, found in differ.items() if place not in suspects.excused]
    if suspects.more:
        doubt = "and there are too many jobs to tell whether another one changed it"
        unknown += [replace(found, text=f"{found.text}, {doubt}") for found in left]
        left = []
    leftovers, searched = await _leftovers(app, disk, names)
    return Reconciliation(
        jobs,
        len(files),
        len(suspects.excused),
        tuple(left),
        tuple(unknown),
        complete,
        tuple(leftovers),
        searched,
    )


def file_system_view(app: Tidewheel) -> FileSystemView | None:
    """What configures the built-in file tasks; a user's own task of the same name has no such thing.

    Told by what it can do: the built-in tasks are like a user's own, and nobody here knows them.
    """
    for task in app.registry:
        owner = getattr(task.fn, "__self__", None)
        if task.name in TASKS and isinstance(owner, FileSystemView):
            return owner
    return None


# -- what jobs say ----------------------------------------------------------------------------------------


async def _completed(app: Tidewheel, most: int) -> tuple[list[FileJob], list[FileMismatch], bool]:
    said: list[FileJob] = []
    unknown: list[FileMismatch] = []
    complete = True
    for task in TASKS:
        number = 0
        async for row in _rows(app, JobFilter(task=task, state=State.COMPLETED)):
            if row is None or number == most:
                complete = False
                break
            number += 1
            job = await app.store.get(row.id)
            # It may have been pruned, or requeued, since it was listed.
            if job is None or job.state is not State.COMPLETED:
                continue
            if (one := _file_job(job)) is not None:
                said.append(one)
            else:
                unknown.append(FileMismatch(job.id, job.task, "its payload is not that of a file job"))
    return said, unknown, complete


async def _rows(app: Tidewheel, where: JobFilter) -> AsyncIterator[JobRecord | None]:
    """Matching jobs without their bodies, the newest first; None at the end when not all could be found."""
    cursor = None
    searches = 0
    while searches < MAX_SEARCHES:
        page = await app.store.list_jobs(where, limit=PAGE, cursor=cursor)
        for row in page.items:
            yield row
        cursor = page.cursor
        searches += page.partial
        if cursor is None:
            return
    yield None


def _file_job(job: JobRecord) -> FileJob | None:
    """None where the job cannot have been written by us."""
    payload = _object(job, job.payload)
    path = _path(job, payload)
    content = payload.get("content")
    if path is None or (job.task == "create_file" and not isinstance(content, str)):
        return None
    wanted = None
    if job.task == "create_file":
        data = str(content).encode()
        wanted = FileContent(len(data), hashlib.sha256(data).digest())
    ended = job.finished_at or 0
    return FileJob(job.id, job.task, path, wanted, job.claimed_at or ended, ended)


def _path(job: JobRecord, payload: Mapping[str, Any]) -> str | None:
    """Where the job found its file: a relative path may lead to another root by now."""
    path = next((payload[name] for name in PATH_FIELDS[job.task] if name in payload), None)
    done = _object(job, job.result).get("path")
    if not isinstance(path, str):
        return None
    return done if isinstance(done, str) else path


def _object(job: JobRecord, body: bytes | None) -> Mapping[str, Any]:
    """A payload or a result; nothing where it cannot be read."""
    if body is None or job.format is not BodyFormat.JSON:
        return {}
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


# -- what the disk says: blocks, as disks do --------------------------------------------------------------


def _group_by_file(
    said: Iterable[FileJob], disk: FileSystemView, files: dict[str, FileHistory]
) -> list[FileMismatch]:
    """Put jobs with their files; those that are about no file that can be looked at."""
    unknown = []
    for one in said:
        try:
            place = disk.roots.identity(one.path)
        except TaskError as error:
            unknown.append(FileMismatch(one.job_id, one.task, str(error)))
        else:
            files.setdefault(place, FileHistory()).jobs.append(one)
    return unknown


def _compare(
    places: Iterable[str],
    files: Mapping[str, FileHistory],
    disk: FileSystemView,
    differ: dict[str, FileMismatch],
) -> list[FileMismatch]:
    """Look at some files; those that could not be looked at."""
    unknown = []
    for place in places:
        said = files[place].last
        try:
            possible = dict.fromkeys(one.expected for one in said)
            texts = [disk.describe_mismatch(said[0].path, wanted) for wanted in possible]
        except TaskError as error:
            unknown.append(FileMismatch(said[0].job_id, said[0].task, str(error)))
            continue
        if None not in texts:
            differ[place] = FileMismatch(said[0].job_id, said[0].task, str(texts[0]))
    return unknown


def _chunks(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))


# -- who else it can have been ----------------------------------------------------------------------------


class ConcurrentWriters:
    """Jobs that may have changed files since those that were compared."""

    def __init__(
        self, app: Tidewheel, disk: FileSystemView, since: Mapping[str, int], *, compared: set[UUID]
    ) -> None:
        self._app = app
        self._disk = disk
        self._since = since
        self._compared = compared
        self._looked: set[UUID] = set()
        self.excused: set[str] = set()
        """files that another job may have changed"""
        self.more = False
        """whether there are more jobs than were looked at"""

    async def look(self, most: int) -> None:
        """At running ones twice, because jobs go from there to waiting and back."""
        ended = Compare(Field.FINISHED_AT, Comparison.AT_LEAST, min(self._since.values()))
        tried = Compare(Field.ATTEMPT, Comparison.AT_LEAST, 1)
        for task in PATH_FIELDS:
            running = JobFilter(task=task, state=State.RUNNING)
            waiting = JobFilter(task=task, state=State.PENDING)
            final = [JobFilter(task=task, state=state, condition=ended) for state in sorted(FINAL_STATES)]
            # Those that have not run yet have done nothing, but will: that some are not seen is no harm.
            await self._look(waiting, most)
            for where in (running, replace(waiting, condition=tried), running, *final):
                self.more |= await self._look(where, most)

    async def _look(self, where: JobFilter, most: int) -> bool:
        """Whether there are more."""
        number = 0
        async for row in _rows(self._app, where):
            if row is None or number == most:
                return True
            if row.id in self._looked or (row.state is State.COMPLETED and row.id in self._compared):
                continue
            number += 1
            self._looked.add(row.id)
            job = await self._app.store.get(row.id)
            if job is not None:
                self._consider(job)
        return False

    def _consider(self, job: JobRecord) -> None:
        path = _path(job, _object(job, job.payload))
        if path is None:
            return
        try:
            place = self._disk.roots.identity(path)
        except TaskError:
            return  # it cannot have changed a file of ours
        since = self._since.get(place)
        if since is not None and (job.finished_at is None or job.finished_at >= since):
            self.excused.add(place)


# -- what was left behind ---------------------------------------------------------------------------------


async def _leftovers(app: Tidewheel, disk: FileSystemView, names: int) -> tuple[list[Leftover], bool]:
    """Those of jobs that will not run again by themselves; False when not all could be looked for."""
    found, searched = await asyncio.to_thread(disk.leftovers, names)
    over: list[Leftover] = []
    for start in range(0, len(found), PAGE):
        some = found[start : start + PAGE]
        states = await app.store.states([one.job_id for one in some])
        over += [one for one, state in zip(some, states, strict=True) if state is None or state.final]
    return sorted(over, key=lambda one: -one.size), searched
