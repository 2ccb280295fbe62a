"""What any worker does for all schedules: make their jobs when it is time.

Every worker does it, and none is in charge. A firing is one write: the jobs, and the schedule that says how
far it has come, over the version that was read. Of two that try one is told to look again. A worker that
stood still for an hour in the middle of it finds that the others have gone on.

The store's clock says what is due. This one's only says when to ask.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from dataclasses import dataclass

from msgspec import structs

from tidewheel.core.clock import MICROSECONDS, Clock
from tidewheel.core.cron import MAX_SCHEDULES, Timing, find_due_runs, load_timing
from tidewheel.core.jitter import GENERATOR, jitter
from tidewheel.core.model import Document, Enqueued, NewDocument, NewJob
from tidewheel.core.text_format import format_duration
from tidewheel.errors import ConfigurationError, InvalidInput, LimitExceeded, StoreError
from tidewheel.schedules.manager import replace_work
from tidewheel.schedules.schedule import (
    DOCUMENT_KIND,
    RENEW_SECONDS,
    ScheduleOrigin,
    StoredSchedule,
    can_fire_here,
    decode_schedule,
    encode_schedule,
    fire_due,
    record_problem,
)
from tidewheel.settings import Settings
from tidewheel.stores.protocol import Store
from tidewheel.tasks.middleware import prepare_jobs_in_worker
from tidewheel.tasks.registry import Registry
from tidewheel.telemetry import job_log
from tidewheel.telemetry.telemetry import Telemetry
from tidewheel.worker.backoff import Backoff, RecoverySignal

REFRESH_SECONDS = 5.0
"""How often all schedules are read, at least: how late a worker hears of one that others have changed."""
REFRESH_SECONDS_PER_SCHEDULE = 0.02
"""Longer for each schedule there is: a thousand are read every 20 s."""
MIN_WAIT_SECONDS = 0.02
DECLARATION_EXPIRY_SECONDS = 2 * RENEW_SECONDS
"""Who declares otherwise and has not said so for this long is gone, and what is declared here counts."""
FAR_AHEAD_SECONDS = 24 * 3600.0
"""A schedule that has fired further in the future counts from now. One that is less ahead waits, so that it
fires nothing twice."""
_TRIES = 5

_log = logging.getLogger("tidewheel.schedules")


@dataclass(slots=True)
class _CachedSchedule:
    """A schedule as it was read last."""

    document: Document
    body: StoredSchedule
    when: Timing
    next_at: int | None  # of the store's clock


class Scheduler:
    """Runs beside the claims of a worker."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        clock: Clock,
        recovery: RecoverySignal,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._store = store
        self._registry = registry
        self._settings = settings
        self._clock = clock
        self._backoff = Backoff("firing schedules", recovery)
        self._cached: dict[str, _CachedSchedule] = {}
        self._unreadable: set[str] = set()  # that were complained about
        self._unwritten = set(registry.schedules)  # that this worker has not written yet
        self._declared: dict[str, StoredSchedule] = {}  # as this worker's code declares them
        self._contested: set[str] = set()  # that others declare otherwise, which was told
        self._refresh_at = 0.0  # monotonic: when to read them all again
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        if not self._settings.schedules:
            return
        with self._registry.schedule_changes.notify(self._changed):
            while True:
                try:
                    wait = await self._tick()
                except StoreError as error:
                    self._refresh_at = 0.0  # whatever was written meanwhile
                    await self._backoff.pause_after_failure(error)
                else:
                    self._backoff.record_success()
                    await self._wait(wait)

    async def run_once(self) -> None:
        """Make the jobs of everything that is due now. A store that is away keeps nobody from their work."""
        if self._settings.schedules:
            try:
                await self._tick()
            except StoreError as error:
                _log.warning("schedules were not looked at: %s", error)

    async def _tick(self) -> float:
        """Look, fire what is due; how long to wait until the next turn, in seconds."""
        if self._unwritten:
            await self._declare()
        if self._clock.monotonic() >= self._refresh_at:
            await self._refresh()
        if not self._cached:
            return self._refresh_at - self._clock.monotonic()
        now = await self._store.now()
        for name in [name for name, known in self._cached.items() if _is_far_ahead(known.body, now)]:
            await self._wind_back(name, now)
        coming = [known for known in self._cached.values() if known.next_at is not None]
        late = [known.document.id for known in coming if known.next_at is not None and known.next_at <= now]
        GENERATOR.shuffle(late)  # several workers share many that are due at midnight
        for name in late:
            try:
                await self._fire(name)
            except StoreError:
                raise
            except Exception:
                # One schedule must not end a worker, nor keep the others from firing. It is tried again.
                _log.exception("schedule %s could not fire, which is a bug", name)
                self._cached.pop(name, None)
        moments = [known.next_at - now for known in self._cached.values() if known.next_at is not None]
        return min(
            self._refresh_at - self._clock.monotonic(), min(moments, default=NO_FIRING) / MICROSECONDS + 0.001
        )

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(min(max(seconds, MIN_WAIT_SECONDS), REFRESH_SECONDS * 4)):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()
        self._refresh_at = 0.0

    # -- reading ----------------------------------------------------------------------------------------

    async def _refresh(self) -> None:
        documents = await self._store.documents(DOCUMENT_KIND, limit=MAX_SCHEDULES)
        before, self._cached = self._cached, {}
        for document in documents:
            known = before.get(document.id)
            if known is not None and known.document == document:  # as nearly all of them are
                self._cached[document.id] = known
            else:
                self._cache(document)
        await self._renew()
        every = max(REFRESH_SECONDS, REFRESH_SECONDS_PER_SCHEDULE * len(documents))
        # Jitter: a hundred workers must not read in step.
        self._refresh_at = self._clock.monotonic() + every * jitter(0.75, 1.0)

    def _cache(self, document: Document) -> _CachedSchedule | None:
        """Keep in mind what this worker may fire, and when."""
        self._cached.pop(document.id, None)
        try:
            body = decode_schedule(document)
            if not can_fire_here(self._registry, document.id, body):
                return None
            when = load_timing(body.when)
            next_at = None if body.paused else when.next_after(body.fired_until)
        except (InvalidInput, ArithmeticError) as error:  # a moment that no calendar has
            self._log_unreadable(document.id, error)
            return None
        known = self._cached[document.id] = _CachedSchedule(document, body, when, next_at)
        return known

    def _log_unreadable(self, name: str, error: Exception) -> None:
        if name not in self._unreadable:
            self._unreadable.add(name)
            _log.error("schedule %s does not fire: %s", name, error)

    async def _reload(self, name: str) -> _CachedSchedule | None:
        """Read one anew."""
        document = await self._store.document(DOCUMENT_KIND, name)
        if document is None:
            self._cached.pop(name, None)
            return None
        return self._cache(document)

    # -- firing -----------------------------------------------------------------------------------------

    async def _fire(self, name: str) -> None:
        known = await self._reload(name)
        if known is None or known.body.paused:
            return
        now = await self._store.now()
        found = find_due_runs(known.when, known.body.fired_until, now)
        if found is None:
            return  # somebody else was first
        body, jobs = fire_due(self._registry, name, known.body, found, now)
        if found.firings and not jobs and self._is_declared_otherwise(known):
            # A deployment goes on: the payload is for a newer task than this worker has, or an older one.
            known.next_at = now + int(REFRESH_SECONDS * MICROSECONDS)
            return
        try:
            jobs = list(prepare_jobs_in_worker(self._registry.middleware, jobs))
        except Exception as error:  # a middleware of the user's may raise anything
            await self._postpone(name, known, f"{type(error).__name__}: {error}", now)
            return
        document = encode_schedule(name, body, known.document.version)
        try:
            answers = await self._write(document, jobs)
        except LimitExceeded as error:
            await self._postpone(name, known, str(error), now)
            return
        if answers is None:
            await self._reload(name)
            return
        if found.dropped:
            _log.warning(
                "schedule %s: %d firings were missed and make no jobs (missed=%s)",
                *(name, found.dropped, known.when.missed),
            )
        if body.trouble is not None:
            _log.error("schedule %s makes no job: %s", name, body.trouble)
        if jobs:
            await self._record_enqueued(name, body, jobs, answers)
        await self._reload(name)

    async def _write(self, document: NewDocument, jobs: list[NewJob]) -> list[Enqueued] | None:
        if self._telemetry is None or self._telemetry.off or not jobs:
            return await self._store.enqueue_with_document(document, jobs)
        return await self._telemetry.enqueue(
            functools.partial(self._store.enqueue_with_document, document), jobs
        )

    async def _record_enqueued(
        self, name: str, stored: StoredSchedule, jobs: list[NewJob], answers: list[Enqueued]
    ) -> None:
        if self._settings.log_jobs:
            job_log.log_enqueued(zip(jobs, answers, strict=True))
        last = answers[-1]
        _log.debug("schedule %s made %d jobs, the last is %s", name, len(jobs), last.job_id)
        if last.duplicate:  # the job that holds its key is the one to look at
            known = await self._reload(name)
            if known is not None and known.body.last_job_id == stored.last_job_id:
                held = structs.replace(known.body, last_job_id=last.job_id)
                await self._store.write_documents([encode_schedule(name, held, known.document.version)])

    async def _postpone(self, name: str, known: _CachedSchedule, reason: str, now: int) -> None:
        """There is no room for its job: it waits, and what comes due meanwhile is missed as it says."""
        if known.body.trouble is None:
            _log.warning("schedule %s waits: %s", name, reason)
            body = record_problem(known.body, reason, now)
            await self._store.write_documents([encode_schedule(name, body, known.document.version)])
        known.next_at = now + int(REFRESH_SECONDS * MICROSECONDS)

    async def _wind_back(self, name: str, now: int) -> None:
        """Count from now, because the clock, set right again, reaches its last firing in a day or later."""
        known = await self._reload(name)
        if known is None or not _is_far_ahead(known.body, now):
            return  # another worker was first
        declared_at = known.body.declared_at and min(known.body.declared_at, now)
        body = structs.replace(known.body, fired_until=now, declared_at=declared_at)
        [written] = await self._store.write_documents([encode_schedule(name, body, known.document.version)])
        if written is not None:
            _log.warning(
                "schedule %s had fired %s ahead of now, by a wrong clock of the store: it counts from now",
                *(name, format_duration((known.body.fired_until - now) / MICROSECONDS)),
            )
        await self._reload(name)

    # -- declaring --------------------------------------------------------------------------------------

    async def _declare(self) -> None:
        """Write what the code declares, once in a worker's life."""
        there = {one.id: one for one in await self._store.documents(DOCUMENT_KIND, limit=MAX_SCHEDULES)}
        room = MAX_SCHEDULES - len(there)
        for name in sorted(self._unwritten):
            declared = self._registry.schedules[name]
            try:
                wanted = StoredSchedule(
                    when=declared.when.dump(),
                    job=declared.make_job(self._registry, self._settings),
                    origin=ScheduleOrigin.DECLARED,
                    fired_until=await self._store.now(),
                )
                wanted.declared_at = wanted.fired_until
                if name not in there:
                    room -= 1
                    if room < 0:
                        raise LimitExceeded(
                            f"there are {MAX_SCHEDULES:,} schedules, which is the limit; delete one"
                        )
                await self._write_declared(name, wanted, there.get(name))
            except (
                InvalidInput,
                ConfigurationError,
                LimitExceeded,
            ) as error:  # also for what is in its place
                _log.error("schedule %s of this code does not fire: %s", name, error)
            else:
                self._declared[name] = wanted
            self._unwritten.discard(name)
        self._refresh_at = 0.0

    async def _write_declared(self, name: str, wanted: StoredSchedule, document: Document | None) -> None:
        for _ in range(_TRIES):
            if document is None:
                new = encode_schedule(name, wanted, 0)
            else:
                body = decode_schedule(document)
                if body.origin is not ScheduleOrigin.DECLARED:
                    raise ConfigurationError(
                        "one of that name was created at run time; delete that one, or choose another name"
                    )
                if body.same_work(wanted) and not _is_stale(body, wanted.fired_until):
                    return
                if not body.same_work(wanted):
                    body = replace_work(body, wanted)
                new = encode_schedule(
                    name, structs.replace(body, declared_at=wanted.declared_at), document.version
                )
            if await self._store.write_documents([new]) != [None]:
                return
            document = await self._store.document(DOCUMENT_KIND, name)

    async def _renew(self) -> None:
        """Say now and then that the code still has them, so that one it has not can be told.

        One that others have written otherwise is theirs while they say so: whoever starts last decides. When
        they are gone, such as an old worker that came back during a deployment, what this code says counts.
        """
        ours = [known for known in self._cached.values() if known.body.origin is ScheduleOrigin.DECLARED]
        if not ours:
            return
        now = await self._store.now()
        for known in ours:
            name, body = known.document.id, known.body
            if self._is_declared_otherwise(known):
                if name not in self._contested:
                    self._contested.add(name)
                    _log.warning("schedule %s is declared otherwise by a worker that started later", name)
                if not _is_stale(body, now, DECLARATION_EXPIRY_SECONDS):
                    continue
                body = replace_work(body, structs.replace(self._declared[name], fired_until=now))
            elif not _is_stale(body, now):
                continue
            body = structs.replace(body, declared_at=now)
            await self._store.write_documents([encode_schedule(name, body, known.document.version)])
            await self._reload(name)

    def _is_declared_otherwise(self, known: _CachedSchedule) -> bool:
        wanted = self._declared.get(known.document.id)
        return wanted is not None and not wanted.same_work(known.body)


NO_FIRING = int(86_400 * MICROSECONDS)


def _is_far_ahead(stored: StoredSchedule, now: int) -> bool:
    return not stored.paused and stored.fired_until - now > FAR_AHEAD_SECONDS * MICROSECONDS


def _is_stale(stored: StoredSchedule, now: int, seconds: float = RENEW_SECONDS) -> bool:
    return now - (stored.declared_at or 0) >= seconds * MICROSECONDS
