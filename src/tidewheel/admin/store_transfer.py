"""Copy the jobs, pauses, limits and schedules of one store to another, for ``tidewheel copy``.

Every job in the target must be the same in the source, or nothing is written. A killed copy therefore
continues when it is started again, and no job is duplicated or overwritten. Jobs keep their ids and numbers
and are written newest first, so jobs enqueued at the target from the first batch on get higher numbers.
Finally both stores are compared job by job. Jobs already compared may change meanwhile, so the newest number
and the counters of all topics are read before and after. A job that comes, goes or changes state alters them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from tidewheel.admin.transfer_records import CopiedJobCount, CopyMark
from tidewheel.admin.worker_info import MISSING_SECONDS
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.cron import MAX_SCHEDULES
from tidewheel.core.full_job import FullJob, canonical_bytes
from tidewheel.core.model import JobFilter, JobRecord, NewDocument, State
from tidewheel.core.text_format import format_duration, plural
from tidewheel.core.urls import redact_url
from tidewheel.errors import StoreError, TidewheelError, WrongState
from tidewheel.schedules.schedule import DOCUMENT_KIND, decode_schedule
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import Store

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

PAGE_JOBS: Final = 500
"""Jobs read, and written, at a time."""

JobPair = tuple[FullJob | None, FullJob | None]
"""The job of a number here and there; None where there is none."""


async def iterate_pages(store: Store) -> AsyncGenerator[list[FullJob], None]:
    """All jobs, a page at a time. The next page is read while one is looked at."""
    page = await store.export_jobs(limit=PAGE_JOBS)
    while page:
        further = asyncio.ensure_future(store.export_jobs(limit=PAGE_JOBS, before=page[-1].record.number))
        try:
            yield page
            page = await further
        finally:
            if not further.cancel() and not further.cancelled():
                further.exception()  # whoever left has an error of its own; this one is told to nobody


async def pair_jobs(source: Store, target: Store | None) -> AsyncGenerator[list[JobPair], None]:
    """The jobs of both, a page of the source at a time; without a target, those of the source alone.

    A page of the source brings what the target has down to its last number, in several parts where that is
    much. What the target has below all of the source comes last.
    """
    theirs = _JobCursor(target)
    async with aclosing(theirs), aclosing(iterate_pages(source)) as pages:
        async for page in pages:
            pairs: list[JobPair] = []
            for job in page:
                while others := await theirs.above(job.record.number, PAGE_JOBS):
                    pairs += [(None, other) for other in others]
                    if len(pairs) >= 2 * PAGE_JOBS:
                        yield pairs
                        pairs = []
                pairs.append((job, await theirs.at(job.record.number)))
            yield pairs
        while rest := await theirs.above(-1, PAGE_JOBS):
            yield [(None, other) for other in rest]


class _JobCursor:
    """The jobs of a store one after the other, with a look at the next."""

    def __init__(self, store: Store | None) -> None:
        self._pages = iterate_pages(store) if store is not None else None
        self._page: list[FullJob] = []
        self._place = 0

    async def aclose(self) -> None:
        if self._pages is not None:
            await self._pages.aclose()

    async def _next(self) -> FullJob | None:
        if self._place == len(self._page):
            if self._pages is None:
                return None
            self._page, self._place = await anext(self._pages, []), 0
            if not self._page:
                self._pages = None
                return None
        return self._page[self._place]

    async def above(self, number: int, limit: int) -> list[FullJob]:
        """Take those with a higher number, at most so many."""
        found: list[FullJob] = []
        while len(found) < limit:
            job = await self._next()
            if job is None or job.record.number <= number:
                break
            found.append(job)
            self._place += 1
        return found

    async def at(self, number: int) -> FullJob | None:
        """Take the one with this number, where it is the next."""
        job = await self._next()
        if job is None or job.record.number != number:
            return None
        self._place += 1
        return job


MAX_SHOWN: Final = 5
"""Of many things that are wrong, so many are told."""


class CopyPhase(Enum):
    INSPECT = "looking at what is there"
    WRITE = "copying"
    VERIFY = "verifying"


CopyProgress = Callable[[CopyPhase, int, int], None]
"""Told how many jobs of how many a phase has done."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What came of a copy. Both stores hold the same jobs."""

    jobs: int
    written: int
    """of these, by this run"""
    states: dict[State, int]
    paused: tuple[str, ...]
    """topics that are paused in both"""
    digest: str
    """SHA-256 over all jobs, newest first; the same for the same jobs on any store"""
    schedules: tuple[str, ...] = ()
    """schedules that are in both"""


@dataclass(slots=True)
class _StoreSummary:
    """One store as it was read: how many jobs, and all of them in one number."""

    jobs: int = 0
    states: Counter[State] = field(default_factory=Counter)
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, job: FullJob) -> None:
        self.jobs += 1
        self.states[job.record.state] += 1
        self._digest.update(canonical_bytes(job))

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


async def check_source(source: Tidewheel, *, live: bool) -> None:
    """Refuse what cannot be copied now, before a target is made for it.

    Jobs that run while they are copied would run twice, or end in one place and not in the other.
    """
    store, name = source.store, redact_url(source.url)
    if missing := await store.pending_migrations():
        raise WrongState(
            f"{name} has no tables of this version of Tidewheel ({plural(len(missing), 'step')} missing), "
            "and a copy does not change its source; run `tidewheel migrate --url …` there first"
        )
    if live:
        return
    if at_work := await _active_workers(store):
        raise WrongState(
            f"workers are at work on {name} ({_list_first(at_work)}); stop them, or the jobs they run would "
            "run "
            "again at the copy. --live copies anyway, to try it out"
        )
    _refuse_leased(await store.longest_running(MAX_BATCH), await store.now(), name)


def _refuse_leased(records: Iterable[JobRecord], now: int, name: str) -> None:
    """Refuse jobs whose lease holds: nobody knows who has it."""
    held = [until for record in records if (until := record.leased_until or 0) > now]
    if held:
        raise WrongState(
            f"{plural(len(held), 'job')} of {name} may still be running: leases hold for up to "
            f"{format_duration((max(held) - now) / MICROSECONDS)}. Wait until then, or let their workers "
            "finish "
            "or release them; --live copies anyway, running jobs with their leases"
        )


async def copy_store(
    source: Tidewheel, target: Tidewheel, *, watch: CopyProgress, live: bool = False
) -> CopyResult:
    """Copy all jobs and pauses of ``source`` to ``target``; both are open.

    ``live``: although workers are at work on the source. What changes meanwhile is then found to differ.
    """
    await check_source(source, live=live)
    copied = await _StoreCopy(source, target, watch, live=live).run()
    await check_source(source, live=live)  # whoever began meanwhile would run what is copied
    return copied


class _StoreCopy:
    def __init__(self, source: Tidewheel, target: Tidewheel, watch: CopyProgress, *, live: bool) -> None:
        self._source, self._target = source.store, target.store
        self._from, self._to = redact_url(source.url), redact_url(target.url)
        self._watch, self._live = watch, live
        self._placed = CopiedJobCount(self._target, self._to)

    async def run(self) -> CopyResult:
        if at_work := await _active_workers(self._target):
            raise WrongState(
                f"workers are at work on {self._to} ({_list_first(at_work)}), and would run jobs before all "
                "are "
                "there and verified; stop them until the copy is done"
            )
        mark = CopyMark(self._target, self._from)
        await mark.set(self._source)
        try:
            total = (await self._source.count(JobFilter(), exact=True)).total
            if await self._placed.check():
                await self._look(mark, total)
            paused = await self._pause()
            written = await self._write(mark, total)
            await self._limit()
            copied = await self._verify(mark, total, written, paused)
            copied = replace(copied, schedules=await self._copy_schedules())
        except BaseException:
            with suppress(StoreError):  # it goes by itself in a while, and the first error is the one to tell
                await mark.remove()
            raise
        await mark.remove()
        if problems := await self._target.check():
            raise StoreError(f"all jobs are there, but the check of {self._to} says: {_list_first(problems)}")
        return copied

    # -- before ---------------------------------------------------------------------------------------------

    async def _look(self, mark: CopyMark, total: int) -> None:
        """Refuse a target that holds anything but a part of the source."""
        seen = 0
        async with aclosing(pair_jobs(self._source, self._target)) as pages:
            async for pairs in pages:
                await mark.renew()
                for mine, theirs in pairs:
                    if theirs is not None and mine != theirs:
                        raise WrongState(self._foreign(mine, theirs))
                seen += len(pairs)
                self._watch(CopyPhase.INSPECT, seen, total)

    def _foreign(self, mine: FullJob | None, theirs: FullJob) -> str:
        what = f"{self._to} is not empty: job {theirs.record.id} (number {theirs.record.number:,})"
        if mine is None or mine.record.id != theirs.record.id:
            return (
                f"{what} is not a job of {self._from}. Nothing was copied: numbers are kept, so a copy goes "
                "to an empty store, or on with an earlier copy from the same one"
            )
        return (
            f"{what} is not as it is in {self._from} ({_difference(mine, theirs)}): it has changed in one of "
            "them since an earlier copy. Nothing was copied; begin again with a new store"
        )

    # -- at work --------------------------------------------------------------------------------------------

    async def _pause(self) -> dict[str, int]:
        """Pauses first: whoever comes to the target too early finds paused what was paused."""
        now = await self._source.now()
        paused = {}
        for topic in await self._source.topics():
            if topic.paused_until is not None and topic.paused_until > now:
                await self._target.pause(topic.topic, topic.paused_until)
                paused[topic.topic] = topic.paused_until
        return paused

    async def _copy_schedules(self) -> tuple[str, ...]:
        """Each as far as it has come, so that the copy goes on where the source has stopped.

        Where the source goes on, too, both would fire: then they are paused in the copy.
        """
        found = await self._source.documents(DOCUMENT_KIND, limit=MAX_SCHEDULES)
        bodies = [decode_schedule(document) for document in found]
        for body in bodies:
            body.paused |= self._live
        wanted = [
            NewDocument(DOCUMENT_KIND, document.id, msgspec.json.encode(body))
            for document, body in zip(found, bodies, strict=True)
        ]
        await self._target.write_documents(wanted)
        for new in wanted:
            there = await self._target.document(DOCUMENT_KIND, new.id)
            if there is None or there.body != new.body:
                raise WrongState(f"schedule {new.id} is not in {self._to} as in {self._from}; copy again")
        return tuple(sorted(document.id for document in found))

    async def _limit(self) -> None:
        """Limits last: what runs at the target by then counts."""
        for topic, limits in (await self._source.limits()).items():
            await self._target.set_limits(topic, limits)

    async def _write(self, mark: CopyMark, total: int) -> int:
        written = seen = 0
        target = self._target if await self._target.export_jobs(limit=1) else None
        began = await self._source.now()
        async with aclosing(pair_jobs(self._source, target)) as pages:
            async for pairs in pages:
                await mark.renew()
                missing = [mine for mine, theirs in pairs if mine is not None and theirs is None]
                if not self._live:  # those that the first look did not reach, or that somebody took since
                    _refuse_leased((job.record for job in missing), began, self._from)
                if missing:
                    await self._placed.announce(len(missing))
                    added = sum(await self._target.import_jobs(missing))
                    self._placed.add(added)
                    written += added
                seen += len(pairs)
                self._watch(CopyPhase.WRITE, seen, total)
        await self._placed.announce(0)
        return written

    async def _verify(self, mark: CopyMark, total: int, written: int, paused: dict[str, int]) -> CopyResult:
        """Read all of both once more. What was written is not taken for granted."""
        mine, theirs, differing = _StoreSummary(), _StoreSummary(), _Differences()
        before = [await _read_counters(store) for store in (self._source, self._target)]
        async with aclosing(pair_jobs(self._source, self._target)) as pages:
            async for pairs in pages:
                await mark.renew()
                for pair in pairs:
                    if pair[0] is not None:
                        mine.add(pair[0])
                    if pair[1] is not None:
                        theirs.add(pair[1])
                    if pair[0] != pair[1]:
                        differing.add(pair)
                self._watch(CopyPhase.VERIFY, theirs.jobs, max(total, theirs.jobs))
        if differing.pairs or mine.digest != theirs.digest:
            raise self._not_the_same(mine, theirs, differing)
        after = [await _read_counters(store) for store in (self._source, self._target)]
        for name, earlier, later in zip((self._from, self._to), before, after, strict=True):
            if earlier != later:
                raise WrongState(
                    f"{name} changed while it was compared; stop who enqueues or works there, and start the "
                    "same command again: it copies what is missing, or tells what differs"
                )
        at_target = {topic.topic: topic.paused_until for topic in await self._target.topics()}
        if unpaused := [topic for topic, until in paused.items() if at_target.get(topic) != until]:
            raise WrongState(
                f"topics are not paused in {self._to} as in {self._from}: {_list_first(unpaused)}"
            )
        return CopyResult(theirs.jobs, written, dict(theirs.states), tuple(paused), theirs.digest)

    def _not_the_same(
        self, mine: _StoreSummary, theirs: _StoreSummary, differing: _Differences
    ) -> TidewheelError:
        if differing.new == differing.pairs:
            new = (str(one.record.id) for one, _ in differing.some if one is not None)
            return WrongState(
                f"{plural(differing.new, 'job')} came to {self._from} during the copy "
                f"({_list_first(new, differing.pairs)}); "
                "stop who enqueues there and start the same command again: it copies what is missing"
            )
        told = (_describe_pair(one, other) for one, other in differing.some)
        return WrongState(
            f"after the copy {self._from} has {plural(mine.jobs, 'job')} (digest {mine.digest[:12]}) and "
            f"{self._to} has {theirs.jobs:,} (digest {theirs.digest[:12]}), and they differ: "
            f"{_list_first(told, differing.pairs)}. "
            "Somebody works on one of them; stop that, and begin again with a new store"
        )


@dataclass(slots=True)
class _Differences:
    """Pairs that are not the same: how many, and the first of them."""

    pairs: int = 0
    new: int = 0
    """of these, those that only the source has"""
    some: list[JobPair] = field(default_factory=list)

    def add(self, pair: JobPair) -> None:
        self.pairs += 1
        self.new += pair[1] is None
        if len(self.some) < MAX_SHOWN:
            self.some.append(pair)


async def _read_counters(store: Store) -> tuple[int, dict[str, object]]:
    """The newest number, and the counters of all topics."""
    newest = await store.export_jobs(limit=1)
    counts: dict[str, object] = {
        topic.topic: (topic.pending, topic.running, topic.completed, topic.failed, topic.cancelled)
        for topic in await store.topics()
    }
    return newest[0].record.number if newest else 0, counts


async def _active_workers(store: Store) -> list[str]:
    now = await store.now()
    workers = await store.workers()
    return [
        f"{worker.name} on {worker.host}, seen "
        f"{format_duration(max(0, now - worker.seen_at) / MICROSECONDS)} ago"
        for worker in workers
        if now - worker.seen_at <= MISSING_SECONDS * MICROSECONDS
    ]


def _describe_pair(mine: FullJob | None, theirs: FullJob | None) -> str:
    if mine is None:
        return f"job {theirs.record.id} is only in the copy" if theirs is not None else ""
    if theirs is None:
        return f"job {mine.record.id} is not in the copy"
    return f"job {mine.record.id}: {_difference(mine, theirs)}"


def _difference(mine: FullJob, theirs: FullJob) -> str:
    """The names of what differs; the values may be secret."""
    if mine.record.state is not theirs.record.state:
        return f"{mine.record.state} in FROM, {theirs.record.state} in TO"
    fields = [
        name for name in mine.record.__struct_fields__
        if getattr(mine.record, name) != getattr(theirs.record, name)
    ]  # fmt: skip
    fields += [
        name for name in mine.__struct_fields__
        if name != "record" and getattr(mine, name) != getattr(theirs, name)
    ]  # fmt: skip
    return f"another {', '.join(fields)}"


def _list_first(things: Iterable[str], number: int | None = None) -> str:
    """The first of them, and how many more there are; ``number`` where not all are at hand."""
    listed = list(things)
    more = (len(listed) if number is None else number) - MAX_SHOWN
    return ", ".join(listed[:MAX_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
