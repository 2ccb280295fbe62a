"""``app.queue``: the verbs for programs that pull jobs by hand instead of registering tasks.

``WireQueue`` has the same verbs for a server. It gets futures and waiters instead of blocking, and it knows
which command a client sends next.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack
from uuid import UUID

from msgspec.structs import replace

from tidewheel.client import job_actions
from tidewheel.client.enqueue import enqueue_job
from tidewheel.client.handler_transaction import refuse_in_transaction
from tidewheel.client.job_handle import Job
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import FOREVER, ActionResult, Enqueued, NewJob, TopicHead
from tidewheel.core.names import check_any_topic, check_topic, shorten
from tidewheel.core.payload import encode_untyped_payload
from tidewheel.core.reports import TopicDepth
from tidewheel.core.security_context import (
    current_context,
    effective_tenant,
    require_no_row_filter,
    require_system_context,
)
from tidewheel.core.urls import is_http_url, redact_url
from tidewheel.core.validation import check_integer, check_job_id, check_seconds
from tidewheel.errors import InvalidInput, NotBuried, NotOverHttp, ReserveTimeout, WrongState
from tidewheel.pull.dispatcher import WaitingPuller, reservations_of
from tidewheel.pull.job_returner import PulledJob
from tidewheel.pull.queue_stats import JobStats, QueueStats, Recovery, TopicState
from tidewheel.pull.reserved_job import NO_TOUCH_LIMITS, Reserved, TouchLimits, check_reserved
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.tasks.options import JobTemplate, PutOptions, make_template
from tidewheel.worker.store_maintenance import Rescuer

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.client.connections import LoopConnections
    from tidewheel.client.sync.blocking_queue import BlockingReserved
    from tidewheel.stores.protocol import Store

from tidewheel.worker.backoff import RecoverySignal

MIN_TTR_SECONDS: Final = 1.0
MAX_TOPICS: Final = 1000
"""Most topics that one caller may wait for at a time."""
MAX_KICKED: Final = 1_000_000
"""Most jobs that one kick brings back."""


class Queue:
    """The pull verbs of an app. Made by ``app.queue``."""

    def __init__(
        self,
        app: Tidewheel,
        connections: LoopConnections,
        *,
        touch_limits: TouchLimits | None = None,
        check_put_topic: Callable[[Any], str] = check_topic,
    ) -> None:
        self._app = app
        self._connections = connections
        self._limits = TouchLimits.from_settings(app.settings) if touch_limits is None else touch_limits
        self._check_put_topic = check_put_topic

    def on_wire(self) -> WireQueue:
        """The same verbs for a server."""
        if is_http_url(self._app.url):
            raise NotOverHttp(
                f"{redact_url(self._app.url)} is a server, and one for other clients needs the database, "
                "too; "
                "run it where that is, with its URL"
            )
        return WireQueue(
            self._app, self._connections, touch_limits=NO_TOUCH_LIMITS, check_put_topic=check_any_topic
        )

    # -- putting ------------------------------------------------------------------------------------------

    async def put(
        self,
        topic: str,
        body: Any = None,
        *,
        ttr: float | timedelta | None = None,
        **options: Unpack[PutOptions],
    ) -> Job[Any]:
        """Make a job: bytes are kept as they are, anything else as JSON.

        ``ttr``: seconds a reservation of it lasts, at least 1; None is the setting ``default_ttr``. Attempts
        are not limited unless ``max_attempts`` is given. Other options are those of ``enqueue``.
        """
        ttr = self._app.settings.default_ttr if ttr is None else ttr
        return await self._put(self.template(topic, ttr, options).job(*self._body(body)))

    async def _put(self, job: NewJob) -> Job[Any]:
        """Those who put at a time share a commit."""
        reservations = reservations_of(self._connections)
        reservations.commit_window.record_call()
        await reservations.commit_window.wait_for_callers()
        try:
            handle = await enqueue_job(self._app, job)
        finally:
            reservations.commit_window.expect_callers(1)
        reservations.record_new_job(handle.topic, handle.priority)  # middleware may have changed both
        return handle

    def template(self, topic: str, ttr: float | timedelta, options: PutOptions) -> JobTemplate:
        """What jobs have in common that are put into a topic with these options."""
        app = self._app
        template = make_template(
            app.settings,
            task="",
            topic=self._check_put_topic(topic),
            defaults={"max_attempts": None},
            given=options,
        )
        pattern = replace(template.prototype, lease_seconds=check_seconds("ttr", ttr, MIN_TTR_SECONDS))
        template = JobTemplate(pattern, template.by_payload, template.tenant_given)
        context = current_context()
        return (
            template if context is None else template.under_context(context, uuids=app.settings.tenant_uuids)
        )

    def _body(self, value: Any) -> Any:
        return encode_untyped_payload(value, self._app.settings.max_payload_bytes)

    # -- reserving ----------------------------------------------------------------------------------------

    async def reserve(
        self, topics: str | Iterable[str], timeout: float | timedelta | None = None
    ) -> Reserved:
        """Wait for the next job of these topics and take it, for as long as its ``ttr``.

        ``ReserveTimeout`` when there was none within ``timeout`` seconds; 0 is one look, None waits on.
        """
        require_system_context("reserve")
        wanted = check_topics(topics)
        seconds = None if timeout is None else check_seconds("timeout", timeout, 0)
        refuse_in_transaction(self._app, "reserve")
        pulled = await reservations_of(self._connections).reserve(wanted, seconds)
        if pulled is None:
            raise ReserveTimeout(f"no job of {_topic_list(wanted)} was ready within {seconds or 0:g} s")
        return Reserved(self._app, self._connections, pulled, self._limits)

    async def reserve_job(self, job_id: UUID | str) -> Reserved:
        """Take just this job, whether it is ready, delayed or buried, and whether its topic is paused.

        ``WrongState`` when it is in none of these states, ``JobNotFound`` when there is no such job.
        """
        require_system_context("reserve_job")
        wanted = check_job_id(job_id)
        store = self._store("reserve_job")
        pulled = await reservations_of(self._connections).grant(wanted)
        if pulled is None:
            record = await job_actions.get_visible_job(store, wanted, None)
            raise WrongState(
                f"job {wanted} is {record.shown_state(await store.now())} and cannot be reserved; "
                "that is possible for jobs that are ready, delayed or buried, and whose key nobody else holds"
            )
        return Reserved(self._app, self._connections, pulled, self._limits)

    # -- ending -------------------------------------------------------------------------------------------

    async def delete(self, job: Reserved | BlockingReserved | UUID | str) -> None:
        """A reserved job is done, and ends as completed; any other that nobody has reserved is removed."""
        if isinstance(job, UUID | str):
            await self._app.delete(job)
        else:
            await check_reserved(job).delete()

    async def release(
        self,
        reserved: Reserved | BlockingReserved,
        *,
        priority: int | None = None,
        delay: float | timedelta = 0,
    ) -> None:
        """See :meth:`Reserved.release`."""
        await check_reserved(reserved).release(priority=priority, delay=delay)

    async def bury(
        self, reserved: Reserved | BlockingReserved, *, priority: int | None = None, reason: str | None = None
    ) -> None:
        """See :meth:`Reserved.bury`."""
        await check_reserved(reserved).bury(priority=priority, reason=reason)

    async def touch(self, reserved: Reserved | BlockingReserved) -> float:
        """See :meth:`Reserved.touch`."""
        return await check_reserved(reserved).touch()

    async def kick(self, topic: str, bound: int = 1) -> int:
        """Bring back up to ``bound`` buried jobs of a topic, those buried first first; where there are none,
        make as many delayed ones ready. How many it were.
        """
        store = self._store("kick")
        wanted = check_integer("bound", bound, 0, MAX_KICKED)
        check_any_topic(topic)
        require_no_row_filter("kick")
        tenant = self._tenant()
        if wanted <= MAX_BATCH:
            return await store.kick(topic, wanted, tenant=tenant)
        # In batches: without telling them, the one after the last buried job would be delayed ones.
        return await _kick_many(store, topic, wanted, tenant, failed_only=True) or await _kick_many(
            store, topic, wanted, tenant, failed_only=False
        )

    async def kick_job(self, job_id: UUID | str) -> None:
        """The same for one job, buried or delayed; ``NotBuried`` for another."""
        wanted = check_job_id(job_id)
        store = self._store("kick_job")
        tenant = self._tenant()
        await job_actions.get_visible_job(store, wanted, tenant)  # what cannot be seen cannot be kicked
        (verdict,) = await store.kick_jobs([wanted], tenant=tenant)
        match verdict:
            case ActionResult.DONE:
                return
            case ActionResult.NOT_FOUND:
                raise job_actions.job_not_found(wanted)
            case ActionResult.KEY_TAKEN:
                raise WrongState(f"job {wanted} cannot be kicked while another job holds its key")
            case _:
                raise NotBuried(f"job {wanted} is neither buried nor delayed, so there is nothing to kick")

    async def rescue(self) -> int:
        """Let others have jobs whose time to run is over, now and not when somebody next looks. How many."""
        require_system_context("rescue")
        return (await self._store("rescue").rescue()).total

    # -- looking ------------------------------------------------------------------------------------------

    async def peek(self, job_id: UUID | str) -> Job[Any]:
        """One job with its body, or ``JobNotFound``."""
        return await self._app.get(job_id)

    async def job_id(self, number: int) -> UUID | None:
        """The id of the job with this number; None when there is none."""
        if isinstance(number, bool) or not isinstance(number, int):
            raise InvalidInput(f"number is {shorten(number)}; the number of a job is a whole number")
        (job_id,) = await self._app.store.job_ids([number], tenant=self._tenant())
        return job_id

    async def peek_ready(self, topic: str) -> Job[Any] | None:
        """The job of this topic that would be reserved next; None when none is ready."""
        return await self._peek(topic, TopicHead.READY)

    async def peek_delayed(self, topic: str) -> Job[Any] | None:
        """The delayed job of this topic that will be ready next."""
        return await self._peek(topic, TopicHead.DELAYED)

    async def peek_buried(self, topic: str) -> Job[Any] | None:
        """The job of this topic that would be kicked next."""
        return await self._peek(topic, TopicHead.FAILED)

    async def _peek(self, topic: str, head: TopicHead) -> Job[Any] | None:
        store = self._store("peek")
        require_no_row_filter("to peek into a topic")
        record = await store.peek(check_any_topic(topic), head, tenant=self._tenant())
        return None if record is None else Job(self._app, record)

    async def stats(self) -> QueueStats:
        """Counts over all topics."""
        require_no_row_filter("stats")
        depths = await self._app.store.topic_depths(tenant=self._tenant())
        return QueueStats.from_depths(depths, reservations_of(self._connections).waiting)

    async def depths(self) -> list[TopicDepth]:
        """The same for each topic that has unfinished or buried jobs, by name."""
        require_no_row_filter("depths")
        depths = await self._app.store.topic_depths(tenant=self._tenant())
        return [depth for depth in depths if depth.ready or depth.delayed or depth.running or depth.failed]

    async def stats_topic(self, topic: str) -> TopicState:
        """Counts of one topic; zeros for one that has no jobs."""
        require_no_row_filter("stats_topic")
        store = self._app.store
        tenant = self._tenant()
        (depth,) = await store.topic_depths([check_any_topic(topic)], tenant=tenant)
        return TopicState(
            topic=topic,
            ready=depth.ready,
            delayed=depth.delayed,
            reserved=depth.running,
            buried=depth.failed,
            urgent=depth.urgent,
            waiting=reservations_of(self._connections).waiting_for(topic),
            pause_left=_pause_left(depth, await store.now()),
        )

    async def stats_job(self, job_id: UUID | str) -> JobStats:
        """What happened to one job so far, or ``JobNotFound``."""
        store = self._app.store
        record = await job_actions.get_visible_job(store, check_job_id(job_id), self._tenant())
        return JobStats.from_record(record, await store.now())

    async def list_topics(self) -> list[str]:
        """Every topic that has jobs or is paused, by name. One that has none any more is not listed."""
        return [topic.topic for topic in await self._app.topics()]

    async def pause(self, topic: str, seconds: float | timedelta | None = None) -> None:
        """Give out no jobs of this topic, for some time or until ``app.resume``."""
        await self._app.pause(topic, seconds)

    async def wait_for_recovery(
        self,
        timeout: float | timedelta | None = None,
        callback: Callable[[Recovery], Awaitable[None] | None] | None = None,
    ) -> Recovery:
        """What there is after a start. Returns at once: jobs are where they were, in the database.

        ``timeout`` is there for programs that expect to wait. ``callback`` is called once, with the same.
        """
        if timeout is not None:
            check_seconds("timeout", timeout, 0)
        stats = await self.stats()
        done = Recovery("complete", stats.ready + stats.delayed + stats.reserved + stats.buried)
        if callback is not None:
            answer = callback(done)
            if answer is not None:
                await answer
        return done

    def _tenant(self) -> str | None:
        """Whose jobs a call is about; None is all."""
        return effective_tenant(uuids=self._app.settings.tenant_uuids)

    def _store(self, verb: str) -> Store:
        """For what cannot be part of a handler's transaction."""
        refuse_in_transaction(self._app, verb)
        return self._app.store


async def _kick_many(store: Store, topic: str, wanted: int, tenant: str | None, *, failed_only: bool) -> int:
    kicked = 0
    while kicked < wanted:
        batch = min(wanted - kicked, MAX_BATCH)
        number = await store.kick(topic, batch, tenant=tenant, failed_only=failed_only)
        kicked += number
        if number < batch:
            break
    return kicked


def check_topics(value: Any) -> frozenset[str]:
    """One topic or several, to wait for."""
    if not isinstance(value, Iterable):
        raise InvalidInput(f"topics is {shorten(value)}; give a topic, or a list of them")
    try:
        topics = frozenset((value,) if isinstance(value, str) else value)
    except TypeError as error:  # what does not even fit into a set
        raise InvalidInput(f"topics is {shorten(value)}; give a topic, or a list of them") from error
    if not topics:
        raise InvalidInput("no topics are given; give a topic, or a list of them")
    if len(topics) > MAX_TOPICS:
        raise InvalidInput(f"{len(topics):,} topics are given; the limit is {MAX_TOPICS:,}")
    return _check_each(topics)


@functools.lru_cache(256)
def _check_each(topics: frozenset[str]) -> frozenset[str]:
    """Whoever waits again and again mostly waits for the same ones."""
    for topic in topics:
        check_any_topic(topic)
    return topics


def _topic_list(topics: frozenset[str]) -> str:
    names = sorted(topics)
    more = f" and {len(names) - 3} more topics" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _pause_left(depth: TopicDepth, now: int) -> float:
    if depth.paused_until is None:
        return 0.0
    return math.inf if depth.paused_until >= FOREVER else max(0, depth.paused_until - now) / MICROSECONDS


class WireQueue(Queue):
    """``app.queue`` under the rules of a wire: it has its own names, and clients touch as they like."""

    def put_batched(self, job: NewJob, *, calls_again: bool) -> asyncio.Future[Enqueued]:
        """Put a job that was made from a template without a key. ``quick``: the client will put another."""
        if self._app.registry.middleware.has_enqueue_hooks:
            (job,) = self._app.registry.prepare_jobs(self._app, (job,))
        return reservations_of(self._connections).put(job, calls_again=calls_again)

    def add_waiter(
        self, topics: frozenset[str], timeout: float | None, *, calls_again: bool
    ) -> WaitingPuller:
        """Want a job of these topics, which are checked already. What the waiter gets is to be
        ``make_reserved``.

        ``quick``: the client will end the job at once, as it did before.
        """
        return reservations_of(self._connections).add_waiter(topics, timeout, calls_again=calls_again)

    def expire_waiter(self, waiter: WaitingPuller) -> None:
        """It gets a job that is ready now, or none."""
        reservations_of(self._connections).expire_waiter(waiter)

    def remove_waiter(self, waiter: WaitingPuller) -> None:
        """It gets none, unless it has one."""
        reservations_of(self._connections).remove_waiter(waiter)

    def make_reserved(self, pulled: PulledJob) -> Reserved:
        """What a waiter got."""
        return Reserved(self._app, self._connections, pulled, self._limits)

    @property
    def has_prefetched(self) -> bool:
        """Whether jobs are away from the others for clients who have not asked yet."""
        return reservations_of(self._connections).has_prefetched

    async def run_rescuer(self) -> None:
        """Let others have jobs whose time to run is over, until cancelled: a moment after it is over."""
        app = self._app
        recovery = RecoverySignal()
        await Rescuer(app.store, app.settings.poll_interval, app.clock, recovery).run()

    async def return_prefetched(self) -> None:
        """Of those, because somebody is about to look."""
        await reservations_of(self._connections).return_prefetched()
