"""Poll the store once for all listeners, and turn changes into events.

A poll costs one query per tenant whose topics are watched and one per 1,000 jobs. It reads a job when its
state has changed, and every 1 (running) or 2 seconds. Polls come every second; hints bring one forward, up
to four per second. Polling never takes more than half of the time, so that a slow store is not slowed down
further. ``job_states`` reads only the states of many jobs; the route ``states`` uses it, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tidewheel.app import Tidewheel
from tidewheel.client.job_handle import Job
from tidewheel.core.model import State
from tidewheel.core.reports import TopicStats
from tidewheel.core.security_context import SecurityContext, acting_as
from tidewheel.errors import JobNotFound
from tidewheel.server.events.event_json import GoneEvent, Notice, encode, job_event, topic_event
from tidewheel.server.events.ring_buffer import EventKind, EventRing, JobSubject, TopicSubject
from tidewheel.server.events.subscription import JobScope
from tidewheel.stores.bounds import MAX_BATCH

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel


async def job_states(app: Tidewheel, job_ids: Sequence[UUID], *, tenant: str | None) -> list[State | None]:
    """Only the states of these jobs, in a query for each thousand; None where this tenant has no such job.

    Knows no rule about single jobs: who is under one has to get them, one by one. Jobs of the lane, which are
    in no store, are None here.
    """
    states: list[State | None] = []
    for start in range(0, len(job_ids), MAX_BATCH):
        states += await app.store.states(job_ids[start : start + MAX_BATCH], tenant=tenant)
    return states


POLL_SECONDS: Final = 1.0
"""How long after a look the next one is, when nothing hints."""
MIN_POLL_GAP_SECONDS: Final = 0.25
"""How long after a look the next one is, at least."""
HINT_DELAY_SECONDS: Final = 0.02
"""How long after a hint a look is: what is hinted is nearly always committed then."""
RUNNING_JOB_READ_SECONDS: Final = 1.0
"""How often a running job is read: it may report progress and finish steps."""
OTHER_JOB_READ_SECONDS: Final = 2.0
"""How often any other is: it may have been tried between two looks, and be back where it was."""
MAX_WATCHED_TENANTS: Final = 1000
"""Most tenants whose topics are watched by one server."""
MAX_WATCHED_JOBS: Final = 10_000
"""Most jobs that are watched by one server."""

_UNAVAILABLE_NOTICE: Final = Notice("the store cannot be reached; what was told before may be out of date")
_RECOVERED_NOTICE: Final = Notice("the store can be reached again")

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class WatchedTopics:
    """The topics of one tenant, or of all: their counts as they were told last."""

    tenant: str | None
    listeners: int = 0
    since_position: int = 0  # where in the ring watching began: what came before is not known
    last_counts: dict[str, TopicStats] | None = None  # None: not looked at yet
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # an older look must not undo a newer one


@dataclass(slots=True, eq=False)
class WatchedJob:
    """One job in one view, and which entries of its timeline have been told, by their ids."""

    subject: JobSubject
    scope: JobScope
    sent_entries: frozenset[str]  # those of them the job's record still tells
    listeners: int = 0
    job: Job[Any] | None = None  # as last seen; None: it is gone
    read_at: float = 0.0  # on the monotonic clock
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def state_differs(self, state: State | None) -> bool:
        """Whether it cannot be the job that was last seen."""
        return state is not (None if self.job is None else self.job.state)

    def is_stale(self, now: float) -> bool:
        """Whether it has not been read for long enough to have changed unnoticed."""
        running = self.job is not None and self.job.state is State.RUNNING
        return now - self.read_at >= (RUNNING_JOB_READ_SECONDS if running else OTHER_JOB_READ_SECONDS)

    @property
    def is_finished(self) -> bool:
        return self.job is None or self.job.state.final


class ChangePoller:
    """Looks at what is listened to, and adds to the ring. Runs for as long as somebody runs it."""

    def __init__(self, app: Tidewheel, ring: EventRing, looked: Callable[[], None]) -> None:
        self._app = app
        self._ring = ring
        self._on_polled = looked  # called after each look
        self._topics: dict[str | None, WatchedTopics] = {}
        self._jobs: dict[JobSubject, WatchedJob] = {}
        self.store_unavailable = False
        self.poll_count = 0

    # -- what is watched ----------------------------------------------------------------------------------

    @property
    def is_full_of_tenants(self) -> bool:
        return sum(watched.listeners > 0 for watched in self._topics.values()) >= MAX_WATCHED_TENANTS

    def has_room_for_jobs(self, number: int) -> bool:
        return len(self._jobs) + number <= MAX_WATCHED_JOBS

    async def watch_topics(self, tenant: str | None) -> WatchedTopics:
        """Have a tenant's topics watched, until ``unwatch_topics``. Their present counts are known after
        it.
        """
        watched = self._topics.get(tenant)
        if watched is None:
            self._forget_idle()
            watched = self._topics[tenant] = WatchedTopics(tenant)
        watched.listeners += 1
        try:
            if watched.last_counts is None or watched.listeners == 1:
                # When nobody listened for a while, what changed is told now, to those who come back.
                await self._poll_topics(watched)
        except BaseException:
            watched.listeners -= 1
            raise
        return watched

    def unwatch_topics(self, watched: WatchedTopics) -> None:
        """What is known stays known, so that whoever comes back is told the difference."""
        watched.listeners -= 1

    async def watch_jobs(self, view: JobScope, job_ids: Iterable[UUID]) -> list[WatchedJob]:
        """Have jobs watched, until ``unwatch_jobs``. ``JobNotFound`` when one is not in the view."""
        entered: list[WatchedJob] = []
        try:
            for job_id in job_ids:
                about = JobSubject(view, job_id)
                watched = self._jobs.get(about)
                if watched is None:
                    watched = WatchedJob(about, view, self._ring.entries_of(about))
                    self._jobs[about] = watched
                watched.listeners += 1
                entered.append(watched)
                await self._read_job(watched, missing=True)
        except BaseException:
            self.unwatch_jobs(entered)
            raise
        return entered

    def unwatch_jobs(self, watched: Iterable[WatchedJob]) -> None:
        for job in watched:
            job.listeners -= 1
            if not job.listeners:
                del self._jobs[job.subject]

    def _forget_idle(self) -> None:
        """Tenants nobody listens to make room for those somebody does."""
        if len(self._topics) >= MAX_WATCHED_TENANTS:
            for tenant in [tenant for tenant, watched in self._topics.items() if not watched.listeners]:
                del self._topics[tenant]

    # -- looking ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look until cancelled. An outage of the store is told to those who listen, and waited out."""
        with acting_as(None):  # started by a request, which acts for its caller
            async with self._app.changes() as hints:
                hinted = False
                while True:
                    began = time.monotonic()
                    await self.poll()
                    took = time.monotonic() - began
                    await asyncio.sleep(max(MIN_POLL_GAP_SECONDS, took))
                    # SQLite hints just before it commits: a look that was too early is followed by another.
                    pause = 0.0 if hinted else max(0.0, POLL_SECONDS - MIN_POLL_GAP_SECONDS)
                    hinted = await hints.wait(pause)
                    if hinted:
                        await asyncio.sleep(HINT_DELAY_SECONDS)

    async def poll(self) -> None:
        """Everything that is listened to, once."""
        try:
            for topics in [watched for watched in self._topics.values() if watched.listeners]:
                await self._poll_topics(topics)
            await self._poll_jobs()
        except Exception as error:  # a listener's stream must outlive whatever is wrong for the moment
            if not self.store_unavailable:
                logger.warning("events cannot be looked up, trying again: %s", error, exc_info=error)
                self._notice(EventKind.TROUBLE, _UNAVAILABLE_NOTICE)
            self.store_unavailable = True
        else:
            if self.store_unavailable:
                self._notice(EventKind.RECOVERED, _RECOVERED_NOTICE)
            self.store_unavailable = False
        self.poll_count += 1
        self._on_polled()

    def _notice(self, kind: EventKind, notice: Notice) -> None:
        self._ring.add(None, kind, encode(notice), replaces=EventKind.TROUBLE)

    async def _poll_topics(self, watched: WatchedTopics) -> None:
        async with watched.lock:
            with acting_as(
                None if watched.tenant is None else SecurityContext(watched.tenant, allow_root=True)
            ):
                present = {topic.topic: topic for topic in await self._app.topics()}
            before, watched.last_counts = watched.last_counts, present
        if before is None:
            watched.since_position = self._ring.head
            return
        changed = [topic for name, topic in present.items() if before.get(name) != topic]
        vanished = [TopicStats(name) for name in before if name not in present]
        for topic in changed + vanished:
            about = TopicSubject(watched.tenant, topic.topic)
            self._ring.add(about, EventKind.TOPIC, topic_event(topic), replaces=about)

    async def _poll_jobs(self) -> None:
        by_view: defaultdict[JobScope, list[WatchedJob]] = defaultdict(list)
        for job in self._jobs.values():
            by_view[job.scope].append(job)
        for view, jobs in by_view.items():
            for job in await self._jobs_to_read(view, jobs):
                await self._read_job(job)

    async def _jobs_to_read(self, view: JobScope, jobs: list[WatchedJob]) -> list[WatchedJob]:
        if view.only is not None:
            return jobs  # states alone do not tell whether a job is still in the view
        with acting_as(view.context):
            states = await job_states(self._app, [job.subject.job_id for job in jobs], tenant=view.tenant)
        now = time.monotonic()
        pairs = zip(jobs, states, strict=True)
        return [job for job, state in pairs if job.state_differs(state) or job.is_stale(now)]

    async def _read_job(self, watched: WatchedJob, *, missing: bool = False) -> None:
        """``missing``: raise when it is not there, because somebody just asked for it."""
        async with watched.lock:
            watched.read_at = time.monotonic()
            try:
                with acting_as(watched.scope.context):
                    job = await self._app.get(watched.subject.job_id)
            except JobNotFound:
                if missing:
                    raise
                if watched.job is not None:
                    watched.job = None
                    self._ring.add(watched.subject, EventKind.GONE, encode(GoneEvent(watched.subject.job_id)))
                return
            watched.job = job
            timeline = job.timeline
            new = [entry for entry in timeline if entry.id not in watched.sent_entries]
            if new:
                data = job_event(job, new, superuser=watched.scope.superuser)
                self._ring.add(watched.subject, EventKind.JOB, data, entries=tuple(entry.id for entry in new))
                # What the record has forgotten need not be remembered here: it does not come again.
                watched.sent_entries = frozenset(entry.id for entry in timeline)
