"""The hall of the house: an app validates, fills in defaults and hands to the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload
from uuid import UUID

from tidewheel.admin import bulk_actions
from tidewheel.admin.filters import JobFilters, check_filter
from tidewheel.admin.job_copy import CopyOptions, make_copy
from tidewheel.client import job_actions, visibility
from tidewheel.client.connections import LoopConnections
from tidewheel.client.enqueue import enqueue_job, enqueue_jobs
from tidewheel.client.external_transaction import enqueue_externally, first_handle
from tidewheel.client.handler_transaction import refuse_in_transaction
from tidewheel.client.job_handle import Job, JobPage
from tidewheel.client.local_queue import LocalQueue
from tidewheel.client.results import wait_for_result
from tidewheel.client.sync.portal import Portal
from tidewheel.core.clock import DAY, Clock, SystemClock, to_datetime
from tidewheel.core.conditions import is_counted, unindexed_condition
from tidewheel.core.model import Count, JobFilter
from tidewheel.core.names import check_any_topic
from tidewheel.core.payload import UNCHANGED
from tidewheel.core.reports import Stats, TopicStats
from tidewheel.core.security_context import effective_tenant, require_system_context
from tidewheel.core.urls import is_http_url
from tidewheel.core.validation import check_integer, check_job_id, check_seconds
from tidewheel.errors import ConfigurationError, NotOverHttp
from tidewheel.pull.queue import Queue
from tidewheel.schedules.declarations import declare_schedule
from tidewheel.settings import SettingOptions, Settings, load_settings
from tidewheel.stores import ExternalTransaction, Store, StoreLimits, create_store
from tidewheel.tasks import task_location
from tidewheel.tasks.job_factory import job_maker, make_job_group
from tidewheel.tasks.options import EnqueueOptions, WorkerOptions
from tidewheel.tasks.registration import TaskRegistration
from tidewheel.tasks.registry import Registry
from tidewheel.tasks.task import Task, encode_each
from tidewheel.telemetry.telemetry import Telemetry
from tidewheel.worker import store_maintenance
from tidewheel.worker.store_maintenance import StoreMaintenance

if TYPE_CHECKING:
    from tidewheel.access.access_control import Access
    from tidewheel.admin.bulk_operations import Bulk
    from tidewheel.admin.reports.questions import Questions
    from tidewheel.admin.topic_controls import TopicLimitControls
    from tidewheel.admin.worker_info import WorkerInfo
    from tidewheel.client.external_transaction import AsyncConnection
    from tidewheel.client.sync.blocking_app import BlockingTidewheel
    from tidewheel.client.sync.blocking_jobs import BlockingJob
    from tidewheel.core.cron import Timing
    from tidewheel.core.reports import TaskStats
    from tidewheel.remote.service import RemoteWorkApi
    from tidewheel.schedules.manager import Schedules
    from tidewheel.stores.external_transaction import UncommittedEnqueue
    from tidewheel.stores.protocol import Wakeups
    from tidewheel.worker.local_queue_worker import LocalQueueWorker
    from tidewheel.worker.worker import Worker
    from tidewheel.worker.worker_thread import WorkerThread

from tidewheel.core.model import DEFAULT_PAGE, MAX_HTTP_CURSOR, MAX_OFFSET, MAX_PAGE


class Tidewheel(TaskRegistration):
    """A durable job queue in the database that ``url`` names.

    Every setting can be given as a keyword; see :class:`~tidewheel.settings.Settings`.
    """

    def __init__(
        self, url: str | None = None, *, clock: Clock | None = None, **settings: Unpack[SettingOptions]
    ) -> None:
        given: dict[str, Any] = dict(settings)
        if url is not None:
            given["url"] = url
        self.settings: Settings = load_settings(given)
        self.clock: Clock = clock or SystemClock()
        self.telemetry = Telemetry(self.settings)
        self.registry = Registry()
        self.portal = Portal(self)
        self.after_enqueue: Callable[[list[Job[Any]]], Awaitable[None]] | None = None  # for inline mode
        self.after_external_enqueue: Callable[[list[Job[Any]]], object] | None = (
            None  # written, but not yet committed
        )
        self.url = self.settings.url  # of the store in use
        self.cannot_open_reason: str | None = None  # why this process may not open it, see ``isolation``
        self._connections = self._connections_to(self.settings.url, self.clock)
        self.lane = LocalQueue(self, self._connections, _local_queue_worker)
        self._access: Access | None = None
        self._bulk: Bulk | None = None

    def __repr__(self) -> str:
        return f"<Tidewheel with {len(self.registry)} tasks>"  # the URL may hold a password

    # -- life -------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Open the store for this event loop and bring its schema up to date."""
        if why := self.cannot_open_reason or task_location.cannot_open_reason:
            raise ConfigurationError(why)
        await self._connections.open()
        return self

    async def close(self) -> None:
        """Finish what was accepted and let go of the store.

        The last to close in a process ends the lane: its running handlers have ``shutdown_grace`` seconds,
        jobs that wait there are dropped.
        """
        try:
            await self.lane.before_close()
        finally:
            await self._connections.close()
        await self.lane.after_close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @contextmanager
    def on_store(self, url: str, *, clock: Clock | None = None) -> Iterator[Self]:
        """Use another store for a while: how tests run an app's tasks on ``memory://``."""
        before = (self.clock, self._connections, self.portal, self.url, self.lane, self._access)
        self._switch_store(url, clock or SystemClock())
        try:
            yield self
        finally:
            self.portal.close()
            self.lane.abandon()
            self.clock, self._connections, self.portal, self.url, self.lane, self._access = before

    def _switch_store(self, url: str, clock: Clock) -> None:
        connections = self._connections_to(url, clock)  # first of all: it may refuse the URL
        self.clock, self.url, self._connections = clock, url, connections
        self.portal = Portal(self)
        self.lane = LocalQueue(self, connections, _local_queue_worker, by_hand=self.lane.manual)
        self._access = None  # what it knows is of the other store

    def _connections_to(self, url: str, clock: Clock) -> LoopConnections:
        limits = StoreLimits(self.settings.max_topics, self.settings.max_jobs_per_topic)
        store = create_store(url, clock=clock, limits=limits, token=self.settings.token)
        store.on_rescued = self.telemetry.record_rescued  # its siblings inherit it

        def maintain(opened: Store) -> StoreMaintenance | None:
            if is_http_url(opened.url):  # the server maintains its store
                return None
            return StoreMaintenance(
                opened, clock, self.telemetry, store_maintenance.STORE_MAINTENANCE_SECONDS
            )

        return LoopConnections(store, self.settings, limits, clock, maintain)

    @property
    def is_open(self) -> bool:
        """Whether somebody has it open on the running event loop."""
        return self._connections.is_open_here()

    async def ping(self) -> None:
        """Read from the store (for its time one of them need not look): raises when it is out of reach."""
        await self.store.states([UUID(int=0)])

    @property
    def store(self) -> Store:
        """The store as opened on the running event loop; ``NotOpen`` when it is not."""
        return self._connections.current().store

    @property
    def external_transaction(self) -> ExternalTransaction:
        """How jobs get into transactions of others; nothing has to be open for it."""
        return self._connections.external_transaction(self.url)

    def notify_on_commit(self, uncommitted: UncommittedEnqueue) -> None:
        """Have those who wait for jobs told once this transaction has committed; from any thread."""
        self._connections.notify_on_commit(uncommitted, self.portal)

    def _store_outside_transaction(self, verb: str) -> Store:
        """The store, for what cannot be part of a handler's transaction."""
        refuse_in_transaction(self, verb)
        return self.store

    @property
    def access(self) -> Access:
        """Who may do what: keys, superusers, tokens, rules, and the audit log.

        Reads the rules and the settings about tokens at first use; ``ConfigurationError`` if they are wrong.
        """
        if self._access is None:
            from tidewheel.access.access_control import Access

            self._access = Access(self)
        return self._access

    @property
    def sync(self) -> BlockingTidewheel:
        """The same app with blocking calls."""
        from tidewheel.client.sync.blocking_app import BlockingTidewheel

        return BlockingTidewheel(self, self.portal)

    # -- schedules --------------------------------------------------------------------------------------

    def schedule(
        self,
        name: str,
        task_or_topic: str | Task[..., Any],
        when: Timing,
        payload: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> None:
        """Declare a schedule; workers of this app write it when they start. ``schedules`` has the others."""
        declare_schedule(self.registry, self.settings, name, task_or_topic, when, payload, options)

    @property
    def schedules(self) -> Schedules:
        """The schedules of the store: list them, make some, pause them, run them now."""
        from tidewheel.schedules.manager import Schedules

        return Schedules(self)

    # -- enqueueing -------------------------------------------------------------------------------------

    @overload
    def enqueue(  # type: ignore[overload-overlap]
        self,
        task_or_topic: str | Task[..., Any],
        payload: Any = None,
        *,
        using: AsyncConnection | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Coroutine[Any, Any, Job[Any]]: ...
    @overload
    def enqueue(
        self,
        task_or_topic: str | Task[..., Any],
        payload: Any = None,
        *,
        using: object,
        **options: Unpack[EnqueueOptions],
    ) -> BlockingJob[Any]: ...
    def enqueue(
        self,
        task_or_topic: str | Task[..., Any],
        payload: Any = None,
        *,
        using: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Any:
        """Make a job for a task, or for whoever takes jobs of a topic. An omitted payload is ``{}``.

        ``using``: a connection of yours, whose open transaction it becomes part of. If the calls of that
        connection block, so do this and the handle it answers; else it is awaited. See ``Task.using``.
        """
        job = job_maker(self, task_or_topic, options)(payload)
        return (
            enqueue_job(self, job) if using is None else first_handle(enqueue_externally(self, (job,), using))
        )

    @overload
    def enqueue_many(  # type: ignore[overload-overlap]
        self,
        task_or_topic: str | Task[..., Any],
        payloads: Iterable[Any],
        *,
        using: AsyncConnection | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Coroutine[Any, Any, list[Job[Any]]]: ...
    @overload
    def enqueue_many(
        self,
        task_or_topic: str | Task[..., Any],
        payloads: Iterable[Any],
        *,
        using: object,
        **options: Unpack[EnqueueOptions],
    ) -> list[BlockingJob[Any]]: ...
    def enqueue_many(
        self,
        task_or_topic: str | Task[..., Any],
        payloads: Iterable[Any],
        *,
        using: object = None,
        **options: Unpack[EnqueueOptions],
    ) -> Any:
        """One job for each payload, written together, handles in the same order.

        All payloads are checked before the first is written; every 10,000 jobs are one transaction.

        ``using``: see ``enqueue``. All of them are part of the transaction that is open there.
        """
        jobs = encode_each(payloads, job_maker(self, task_or_topic, options))
        return enqueue_jobs(self, jobs) if using is None else enqueue_externally(self, jobs, using)

    async def enqueue_together(
        self,
        wanted: Iterable[tuple[str | Task[..., Any], Any, EnqueueOptions]],
        *,
        headers: Mapping[int, Mapping[str, str]] | None = None,
    ) -> list[Job[Any]]:
        """Jobs of any tasks and topics, each a task or name, a payload and options; handles in order.

        All of them are checked before the first is written, and all are written or none: at most 10,000, and
        over HTTP at most 1,000 that fit into one request (``LimitExceeded``).
        ``headers``: texts that travel with the job at a place, for who passes on jobs of others.
        """
        return await enqueue_jobs(self, make_job_group(self, wanted, headers or {}), atomic=True)

    async def enqueue_copy(
        self,
        job_id: UUID | str,
        *,
        payload: Any = UNCHANGED,
        patch: Mapping[str, Any] | None = None,
        **changes: Unpack[CopyOptions],
    ) -> Job[Any]:
        """Make a new job like this one, whatever its state: the same topic, task, tenant and options.

        ``payload`` replaces its payload, ``patch`` changes members of it (RFC 7396: None removes one). It has
        no key unless one is given, and the id of the first job for a correlation id where that had none. That
        job stays as it is.
        """
        wanted = check_job_id(job_id)
        if is_http_url(self.url):
            # What the server hides of a payload (redact) would be lost in the copy, and so would its policy.
            raise NotOverHttp(
                f"a copy is made where the whole job is; ask the server for it: POST /api/jobs/{wanted}/copy"
            )
        record = await job_actions.get_visible_job(self._store_of(wanted), wanted, self._tenant())
        return await enqueue_job(self, make_copy(self, record, payload, patch, changes))

    # -- reading ----------------------------------------------------------------------------------------

    async def get(self, job_id: UUID | str) -> Job[Any]:
        """One job with its bodies and errors, or ``JobNotFound``."""
        wanted = check_job_id(job_id)
        return Job(self, await job_actions.get_visible_job(self._store_of(wanted), wanted, self._tenant()))

    async def jobs(
        self,
        *,
        limit: int = DEFAULT_PAGE,
        offset: int = 0,
        cursor: int | None = None,
        **filters: Unpack[JobFilters],
    ) -> JobPage[Job[Any]]:
        """Jobs that match, newest first, without their bodies; at most 200 a page."""
        where = self._job_filter(filters)
        limit = min(check_integer("limit", limit, 1, MAX_OFFSET), MAX_PAGE)
        check_integer("offset", offset, 0, MAX_OFFSET)
        if cursor is not None:
            check_integer("cursor", cursor, 0, MAX_HTTP_CURSOR if is_http_url(self.url) else 2**63 - 1)
        page = await self.store.list_jobs(where, limit=limit, cursor=cursor, offset=offset)
        whole = page.cursor is None and cursor is None and (offset == 0 or page.items != ())
        if not whole and (unindexed_condition(where) is None or is_counted(where)):
            count = await self.store.count(where)
        else:  # a search is counted by what it has found: counting would be the same search again
            count = Count(offset + len(page.items) if page.items else 0, whole)
        return JobPage(
            tuple(Job(self, record) for record in page.items),
            page.cursor,
            count.total,
            count.exact,
            limit,
            offset,
            page.partial,
            None if page.searched_back_to is None else to_datetime(page.searched_back_to),
        )

    async def count(self, **filters: Unpack[JobFilters]) -> Count:
        """How many jobs match, exact up to 10,000."""
        return await self.store.count(self._job_filter(filters))

    async def result(self, job_id: UUID | str, timeout: float | timedelta | None = None) -> Any:
        """Wait for a job to finish and answer what its handler returned. See ``Job.result``."""
        wanted = check_job_id(job_id)
        seconds = None if timeout is None else check_seconds("timeout", timeout, 0)
        return await wait_for_result(self, self._connections.current(), wanted, seconds, self._tenant())

    async def stats(self, window: float | timedelta = 3600, *, tenant: str | None = None) -> Stats:
        """Counts as of now; times and throughput over the last ``window`` seconds."""
        seconds = check_seconds("window", window, 1)
        return await visibility.visible_stats(self.store, min(seconds, 366 * DAY), self._tenant(tenant))

    def changes(self) -> AbstractAsyncContextManager[Wakeups]:
        """Hints that jobs came or ended, for whoever shows a queue live: ``wait(seconds)`` until one comes.

        A hint may come late, twice or never, and says nothing of whose jobs it is about: look for yourself,
        on behalf of whoever asked, and now and then without a hint.
        """
        return self.store.wakeups(topics=None, finished=True)

    async def task_stats(
        self, window: float | timedelta = 3600, *, tenant: str | None = None
    ) -> list[TaskStats]:
        """Counts as of now and throughput over the last ``window`` seconds, six hours at most, by topic and
        task; of a tenant counts only.
        """
        seconds = check_seconds("window", window, 1)
        return await visibility.visible_lanes(self.store, min(seconds, 366 * DAY), self._tenant(tenant))

    @property
    def questions(self) -> Questions:
        """The six questions of an operator: what is outstanding, what failed, what is stuck, …"""
        from tidewheel.admin.reports.questions import Questions

        return Questions(self)

    # -- managing ---------------------------------------------------------------------------------------

    async def requeue(self, job_id: UUID | str) -> None:
        """Run a failed or cancelled job again, from its first attempt."""
        await self._apply_action("requeue", job_id)

    async def cancel(self, job_id: UUID | str) -> bool:
        """Cancel a job: True when it ended at once, False when its worker has been asked to stop."""
        return await self._apply_action("cancel", job_id)

    async def take_back(self, job_id: UUID | str) -> None:
        """End the lease of a running job and make it pending again; the attempt is not counted.

        Its holder can write nothing any more: a worker stops the handler when it next extends the lease. A
        job that was asked to cancel ends as cancelled.
        """
        await self._apply_action("take-back", job_id)

    async def delete(self, job_id: UUID | str) -> None:
        """Remove a job that is not running, with everything that belongs to it."""
        await self._apply_action("delete", job_id)

    async def requeue_all(self, **filters: Unpack[JobFilters]) -> int:
        """Requeue every failed or cancelled job that matches; how many."""
        return await self._apply_to_all("requeue", filters)

    async def cancel_all(self, **filters: Unpack[JobFilters]) -> int:
        """Cancel every pending job that matches and ask the running ones to stop; how many."""
        return await self._apply_to_all("cancel", filters)

    async def take_back_all(self, *, lost: bool = False, **filters: Unpack[JobFilters]) -> int:
        """Take back every running job that matches; how many.

        ``lost``: only jobs whose holder is gone: a worker or puller that has been silent for 20 seconds.
        Filters may be left out then.
        """
        return await self._apply_to_all("take-back", filters, lost=lost)

    async def delete_all(self, **filters: Unpack[JobFilters]) -> int:
        """Remove every job that matches and is not running; how many."""
        return await self._apply_to_all("delete", filters)

    async def _apply_action(self, verb: str, job_id: UUID | str) -> bool:
        wanted = check_job_id(job_id)
        return await job_actions.apply_action(self._store_of(wanted, verb), verb, wanted, self._tenant())

    async def _apply_to_all(self, verb: str, filters: JobFilters, *, lost: bool = False) -> int:
        store = self._store_outside_transaction(f"{verb}_all")
        uuids = self.settings.tenant_uuids
        meant = await bulk_actions.select_jobs(
            store, verb, filters, now=self.clock.now(), uuids=uuids, lost=lost
        )
        return await bulk_actions.apply_to_all(store, verb, meant)

    def _job_filter(self, filters: JobFilters) -> JobFilter:
        return check_filter(filters, now=self.clock.now(), uuids=self.settings.tenant_uuids)

    @property
    def bulk(self) -> Bulk:
        """Verbs on everything that matches, in the background: previews, progress, stopping."""
        if self._bulk is None:
            from tidewheel.admin.bulk_operations import Bulk

            self._bulk = Bulk(self)
        return self._bulk

    @property
    def queue(self) -> Queue:
        """The verbs for programs that pull jobs by hand: put, reserve, delete, release, bury, kick, …"""
        return Queue(self, self._connections)

    @property
    def remote(self) -> RemoteWorkApi:
        """What a server needs to hand jobs out to workers that reach it, and not the store."""
        from tidewheel.remote.service import RemoteWorkApi

        return RemoteWorkApi(self, self._connections)

    def _tenant(self, given: str | None = None) -> str | None:
        """Whose jobs a call is about: those of the security context in force, or of the given tenant."""
        return effective_tenant(given, uuids=self.settings.tenant_uuids)

    async def topics(self, *, tenant: str | None = None) -> list[TopicStats]:
        """Every topic that has jobs or is paused, by name; of a tenant those that have jobs of it."""
        return await visibility.visible_topics(self.store, self._tenant(tenant))

    async def pause(self, topic: str, seconds: float | timedelta | None = None) -> None:
        """Let no worker take jobs of this topic, for some time or until ``resume``."""
        require_system_context("pause")
        await bulk_actions.pause_topic(self._store_outside_transaction("pause"), topic, seconds)

    async def resume(self, topic: str) -> None:
        """Let workers take jobs of this topic again."""
        require_system_context("resume")
        await self._store_outside_transaction("resume").pause(check_any_topic(topic), None)

    @property
    def limits(self) -> TopicLimitControls:
        """Limits of topics, in the whole cluster: set, get, list and remove them."""
        from tidewheel.admin.topic_controls import TopicLimitControls

        return TopicLimitControls(self)

    async def workers(self) -> list[WorkerInfo]:
        """Who runs jobs here, by name; those that vanished stay listed for a day and are ``missing``."""
        from tidewheel.admin.worker_info import list_workers

        require_system_context("workers")
        return await list_workers(self.store)

    async def migrate(self, *, rls: bool = False) -> list[str]:
        """Bring the schema up to date; the names of the steps taken.

        ``rls``: on PostgreSQL, then set up row-level security: roles for workers and for callers, and
        policies that show callers one tenant at a time.
        """
        require_system_context("migrate")
        return await self.store.migrate(rls=rls)

    def describe(self) -> dict[str, str]:
        """Names and versions of what runs underneath, for people: ``store`` is its kind."""
        require_system_context("describe")
        return self.store.describe()

    async def check(self) -> list[str]:
        """What the store finds wrong with itself; empty when all is well."""
        require_system_context("check")
        return await self.store.check()

    # -- running ----------------------------------------------------------------------------------------

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Return a worker for this app's tasks, on the store of the running event loop."""
        from tidewheel.schedules.scheduler import Scheduler
        from tidewheel.worker.worker import Worker

        require_system_context("a worker")
        return Worker(
            self.store,
            self.registry,
            self.settings,
            clock=self.clock,
            telemetry=self.telemetry,
            make_scheduler=Scheduler,
            **options,
        )

    def worker_thread(self, **options: Unpack[WorkerOptions]) -> WorkerThread:
        """A worker for a program that does something else, a web server say: on a thread and an event loop
        of its own, so that a busy handler cannot hold the program up. ``with app.worker_thread(): ...``
        """
        from tidewheel.worker.worker_thread import WorkerThread

        require_system_context("a worker")
        return WorkerThread(self, options, self._check_after_start)

    async def run_worker(self, **options: Unpack[WorkerOptions]) -> None:
        """Run jobs until stopped. When half its slots are stuck, a fresh worker takes over; see
        ``WorkerStuck``.
        """
        from tidewheel.worker.supervisor import make_supervisor

        await make_supervisor(self, options, self._check_after_start).run()

    async def run_until_idle(self, **options: Unpack[WorkerOptions]) -> int:
        """Run jobs until none is due, for tests and scripts; how many attempts that took.

        Returns when the lane has nothing to do either; what it ran on its own thread is not counted.
        """
        from tidewheel.worker.supervisor import make_supervisor

        require_system_context("run_until_idle")
        ran = 0
        while True:
            granted = self.lane.claim_count
            # Without any task the worker says so; with non-durable ones alone it has nothing to do.
            if not self.registry or any(task.durable for task in self.registry):
                ran += await make_supervisor(self, options, self._check_after_start).run_until_idle()
            ran += await self.lane.run_until_idle()
            if self.lane.claim_count == granted:
                return ran

    async def _check_after_start(self) -> None:
        from tidewheel.verification.startup_check import run_startup_check

        await run_startup_check(self)

    def _store_of(self, job_id: UUID, verb: str = "") -> Store:
        """Where a job is: in the lane of this process, or where all others are. ``verb``: to change it."""
        store = self.store  # first of all: an app that is not open answers nothing
        if (lane := self.lane.store_with(job_id)) is not None:
            return lane
        return self._store_outside_transaction(verb) if verb else store


def _local_queue_worker() -> type[LocalQueueWorker]:
    from tidewheel.worker.local_queue_worker import LocalQueueWorker

    return LocalQueueWorker
