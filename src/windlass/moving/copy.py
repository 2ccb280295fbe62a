"""All jobs of one store into another that has none: look, write what is missing, and compare.

Whatever is in the target has to be in the source as it is there, or nothing is written: so a copy that was
killed goes on by being started again, and nothing is ever doubled or written over. Jobs keep their ids and
numbers, and are written newest first: from the first batch on, whoever enqueues at the target gets numbers
above them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from windlass.clock import MICROSECONDS
from windlass.errors import StoreError, WindlassError, WrongState
from windlass.fleet import MISSING_SECONDS
from windlass.model import JobFilter, State
from windlass.moving.comparing import Pair, side_by_side
from windlass.moving.marking import Mark
from windlass.stores.protocol import MAX_BATCH, Store
from windlass.urls import shown_url
from windlass.whole import WholeJob, canonical
from windlass.wording import duration, plural

if TYPE_CHECKING:
    from windlass.app import Windlass

MOST_SHOWN: Final = 5
"""Of many things that are wrong, so many are told."""


class Phase(Enum):
    LOOK = "looking at what is there"
    WRITE = "copying"
    VERIFY = "verifying"


Watch = Callable[[Phase, int, int], None]
"""Told how many jobs of how many a phase has done."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What came of a copy. Both stores hold the same jobs."""

    jobs: int
    written: int
    """of these, by this run"""
    states: dict[State, int]
    paused: tuple[str, ...]
    """topics that are paused in both"""
    digest: str
    """SHA-256 over all jobs, newest first; the same for the same jobs on any store"""


@dataclass(slots=True)
class _Tally:
    """One store as it was read: how many jobs, and all of them in one number."""

    jobs: int = 0
    states: Counter[State] = field(default_factory=Counter)
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, job: WholeJob) -> None:
        self.jobs += 1
        self.states[job.record.state] += 1
        self._digest.update(canonical(job))

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


async def check_source(source: Windlass, *, live: bool) -> None:
    """Refuse what cannot be copied now, before a target is made for it.

    Jobs that run while they are copied would run twice, or end in one place and not in the other.
    """
    store, name = source.store, shown_url(source.url)
    if missing := await store.missing_steps():
        raise WrongState(
            f"{name} has no tables of this version of Windlass ({plural(len(missing), 'step')} missing), and "
            "a copy does not change its source; run `windlass migrate --url …` there first"
        )
    if live:
        return
    if at_work := await _at_work(store):
        raise WrongState(
            f"workers are at work on {name} ({_some(at_work)}); stop them, or the jobs they run would run "
            "again at the copy. --live copies anyway, to try it out"
        )
    now = await store.now()
    running = await store.longest_running(MAX_BATCH)
    held = [record for record in running if (record.leased_until or 0) > now]
    if held:
        ends_at = max(record.leased_until or 0 for record in held)
        raise WrongState(
            f"{plural(len(held), 'job')} of {name} may still be running: leases hold for up to "
            f"{duration((ends_at - now) / MICROSECONDS)}. Wait until then, or let their workers finish "
            "or release them; --live copies anyway, running jobs with their leases"
        )


async def copy_store(source: Windlass, target: Windlass, *, watch: Watch, live: bool = False) -> Copied:
    """Copy all jobs and pauses of ``source`` to ``target``; both are open.

    ``live``: although workers are at work on the source. What changes meanwhile is then found to differ.
    """
    await check_source(source, live=live)
    return await _Copy(source, target, watch).run()


class _Copy:
    def __init__(self, source: Windlass, target: Windlass, watch: Watch) -> None:
        self._source, self._target = source.store, target.store
        self._from, self._to = shown_url(source.url), shown_url(target.url)
        self._watch = watch

    async def run(self) -> Copied:
        if at_work := await _at_work(self._target):
            raise WrongState(
                f"workers are at work on {self._to} ({_some(at_work)}), and would run jobs before all are "
                "there and verified; stop them until the copy is done"
            )
        mark = Mark(self._target, self._from)
        await mark.set(self._source)
        try:
            total = (await self._source.count(JobFilter(), beyond=True)).total
            if await self._target.whole_jobs(limit=1):
                await self._look(mark, total)
            paused = await self._pause()
            written = await self._write(mark, total)
            await self._limit()
            copied = await self._verify(mark, total, written, paused)
        except BaseException:
            with suppress(StoreError):  # it goes by itself in a while, and the first error is the one to tell
                await mark.take_away()
            raise
        await mark.take_away()
        if problems := await self._target.check():
            raise StoreError(f"all jobs are there, but the check of {self._to} says: {_some(problems)}")
        return copied

    # -- before ---------------------------------------------------------------------------------------------

    async def _look(self, mark: Mark, total: int) -> None:
        """Refuse a target that holds anything but a part of the source."""
        seen = 0
        async with aclosing(side_by_side(self._source, self._target)) as pages:
            async for pairs in pages:
                await mark.renew()
                for mine, theirs in pairs:
                    if theirs is not None and mine != theirs:
                        raise WrongState(self._foreign(mine, theirs))
                seen += len(pairs)
                self._watch(Phase.LOOK, seen, total)

    def _foreign(self, mine: WholeJob | None, theirs: WholeJob) -> str:
        what = f"{self._to} is not empty: job {theirs.record.id} (number {theirs.record.number:,})"
        if mine is None or mine.record.id != theirs.record.id:
            return (
                f"{what} is not a job of {self._from}. Nothing was copied: numbers are kept, so a copy goes "
                "to an empty store, or on with an earlier copy from the same one"
            )
        return (
            f"{what} is not as it is in {self._from} ({_difference(mine, theirs)}): it has changed in one of "
            "them since an earlier copy. Nothing was copied; begin again with an empty store"
        )

    # -- at work --------------------------------------------------------------------------------------------

    async def _pause(self) -> tuple[str, ...]:
        """Pauses first: whoever comes to the target too early finds paused what was paused."""
        now = await self._source.now()
        paused = []
        for topic in await self._source.topics():
            if topic.paused_until is not None and topic.paused_until > now:
                await self._target.pause(topic.topic, topic.paused_until)
                paused.append(topic.topic)
        return tuple(paused)

    async def _limit(self) -> None:
        """Limits last: what runs at the target by then counts."""
        for topic, limits in (await self._source.limits()).items():
            await self._target.set_limits(topic, limits)

    async def _write(self, mark: Mark, total: int) -> int:
        written = seen = 0
        target = self._target if await self._target.whole_jobs(limit=1) else None
        async with aclosing(side_by_side(self._source, target)) as pages:
            async for pairs in pages:
                await mark.renew()
                missing = [mine for mine, theirs in pairs if mine is not None and theirs is None]
                if missing:
                    written += sum(await self._target.place_jobs(missing))
                seen += len(pairs)
                self._watch(Phase.WRITE, seen, total)
        return written

    async def _verify(self, mark: Mark, total: int, written: int, paused: tuple[str, ...]) -> Copied:
        """Read all of both once more. What was written is not taken for granted."""
        mine, theirs = _Tally(), _Tally()
        differing: list[Pair] = []
        async with aclosing(side_by_side(self._source, self._target)) as pages:
            async for pairs in pages:
                await mark.renew()
                for pair in pairs:
                    if pair[0] is not None:
                        mine.add(pair[0])
                    if pair[1] is not None:
                        theirs.add(pair[1])
                    if pair[0] != pair[1]:
                        differing.append(pair)
                        del differing[1000:]
                self._watch(Phase.VERIFY, theirs.jobs, max(total, theirs.jobs))
        if differing or mine.digest != theirs.digest:
            raise self._not_the_same(mine, theirs, differing)
        at_target = {topic.topic: topic.paused_until for topic in await self._target.topics()}
        if unpaused := [topic for topic in paused if at_target.get(topic) is None]:
            raise WrongState(f"topics are not paused in {self._to} as in {self._from}: {_some(unpaused)}")
        return Copied(theirs.jobs, written, dict(theirs.states), paused, theirs.digest)

    def _not_the_same(self, mine: _Tally, theirs: _Tally, differing: list[Pair]) -> WindlassError:
        new = [one.record.id for one, other in differing if one is not None and other is None]
        if len(new) == len(differing):
            return WrongState(
                f"{plural(len(new), 'job')} came to {self._from} during the copy ({_some(map(str, new))}); "
                "stop who enqueues there and start the same command again: it copies what is missing"
            )
        told = [_told(one, other) for one, other in differing]
        return WrongState(
            f"after the copy {self._from} has {plural(mine.jobs, 'job')} (digest {mine.digest[:12]}) and "
            f"{self._to} has {theirs.jobs:,} (digest {theirs.digest[:12]}), and they differ: {_some(told)}. "
            "Somebody works on one of them; stop that, and begin again with an empty store"
        )


async def _at_work(store: Store) -> list[str]:
    now = await store.now()
    workers = await store.workers()
    return [
        f"{worker.name} on {worker.host}, seen {duration(max(0, now - worker.seen_at) / MICROSECONDS)} ago"
        for worker in workers
        if now - worker.seen_at <= MISSING_SECONDS * MICROSECONDS
    ]


def _told(mine: WholeJob | None, theirs: WholeJob | None) -> str:
    if mine is None:
        return f"job {theirs.record.id} is only in the copy" if theirs is not None else ""
    if theirs is None:
        return f"job {mine.record.id} is not in the copy"
    return f"job {mine.record.id}: {_difference(mine, theirs)}"


def _difference(mine: WholeJob, theirs: WholeJob) -> str:
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


def _some(things: Iterable[str]) -> str:
    listed = list(things)
    more = f" and {len(listed) - MOST_SHOWN:,} more" if len(listed) > MOST_SHOWN else ""
    return ", ".join(listed[:MOST_SHOWN]) + more
