"""The hall of the house: an app validates, fills in defaults and hands to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack, overload
from urllib.parse import quote
from uuid import UUID

from windlass import isolation, managing, payload
from windlass.blocking import Portal
from windlass.clock import Clock, SystemClock, seconds_to_microseconds, to_datetime
from windlass.connections import Connections
from windlass.enqueueing import submit, submit_many
from windlass.errors import (
    ConfigurationError,
    HandlerNotFound,
    InvalidInput,
    JobCancelled,
    JobFailed,
    ResultTimeout,
)
from windlass.filters import JobFilters, check_filter
from windlass.fleet import WorkerInfo, worker_info
from windlass.job import Job, JobPage
from windlass.model import FOREVER, BodyFormat, Count, JobRecord, NewJob, State, Stats, TopicStats
from windlass.names import check_topic, check_wire_topic, shorten, suggest
from windlass.options import (
    EnqueueOptions,
    TaskOptions,
    WorkerOptions,
    check_integer,
    check_seconds,
    make_template,
)
from windlass.registry import Registry
from windlass.settings import DAY, SettingOptions, Settings, load_settings
from windlass.stores import Store, StoreLimits, create_store
from windlass.task import Task, TaskDecorator, encode_each

if TYPE_CHECKING:
    from windlass.background import WorkerThread
    from windlass.blocking_twins import BlockingWindlass
    from windlass.context import Context
    from windlass.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_PAGE: Final = 50
LARGEST_PAGE: Final = 200
"""Larger limits are cut to this."""
LARGEST_OFFSET: Final = 2**31 - 1


class Windlass:
    """A durable job queue in the database that ``url`` names.

    Every setting can be given as a keyword; see :class:`~windlass.settings.Settings`.
    """

    def __init__(
        self, url: str | None = None, *, clock: Clock | None = None, **settings: Unpack[SettingOptions]
    ) -> None:
        given: dict[str, Any] = dict(settings)
        if url is not None:
            given["url"] = url
        self.settings: Settings = load_settings(given)
        self.clock: Clock = clock or SystemClock()
        self.registry = Registry()
        self.portal = Portal(self)
        self.after_enqueue: Callable[[list[Job[Any]]], Awaitable[None]] | None = None  # for inline mode
        self.url = self.settings.url  # of the store in use
        self.unopenable: str | None = None  # why this process may not open it, see ``isolation``
        self._connections = self._connections_to(self.settings.url)

    def __repr__(self) -> str:
        return f"<Windlass with {len(self.registry)} tasks>"  # the URL may hold a password

    # -- life -------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Open the store for this event loop and bring its schema up to date."""
        if why := self.unopenable or isolation.unopenable:
            raise ConfigurationError(why)
        await self._connections.open()
        return self

    async def close(self) -> None:
        """Finish what was accepted and let go of the store."""
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @contextmanager
    def on_store(self, url: str, *, clock: Clock | None = None) -> Iterator[Self]:
        """Use another store for a while: how tests run an app's tasks on ``memory://``."""
        before = (self.clock, self._connections, self.portal, self.url)
        self.clock = clock or SystemClock()
        self.url = url
        self._connections = self._connections_to(url)
        self.portal = Portal(self)
        try:
            yield self
        finally:
            self.portal.close()
            self.clock, self._connections, self.portal, self.url = before

    def _connections_to(self, url: str) -> Connections:
        limits = StoreLimits(self.settings.max_topics, self.settings.max_jobs_per_topic)
        return Connections(create_store(url, clock=self.clock, limits=limits), self.settings)

    @property
    def store(self) -> Store:
        """The store as opened on the running event loop; ``NotOpen`` when it is not."""
        return self._connections.current().store

    @property
    def sync(self) -> BlockingWindlass:
        """The same app with blocking calls."""
        from windlass.blocking_twins import BlockingWindlass

        return BlockingWindlass(self, self.portal)

    # -- tasks ------------------------------------------------------------------------------------------

    @overload
    def task(self, fn: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        topic: str | None = None,
        aliases: Iterable[str] = (),
        **options: Unpack[TaskOptions],
    ) -> TaskDecorator: ...
    def task(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        topic: str | None = None,
        aliases: Iterable[str] = (),
        **options: Any,
    ) -> Any:
        """Register a function as a task. Works bare (``@app.task``) and with options (``@app.task(...)``)."""

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            task: Task[..., Any] = Task(
                self, function, name=name, topic=topic, aliases=aliases, options=options
            )
            self.registry.add(task)
            return task

        return register if fn is None else register(fn)

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of everything that can be enqueued: a union of the tasks, told apart by ``task``."""
        definitions = {
            task.name: task.json_schema(f"#/$defs/{_pointer(task.name)}/$defs/") for task in self.registry
        }
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Jobs",
            "oneOf": [
                {
                    "type": "object",
                    "properties": {
                        "task": {"const": name},
                        "payload": {"$ref": f"#/$defs/{_pointer(name)}"},
                    },
                    "required": ["task", "payload"],
                }
                for name in definitions
            ],
            "discriminator": {"propertyName": "task"},
            "$defs": definitions,
        }

    # -- enqueueing -------------------------------------------------------------------------------------

    async def enqueue(
        self,
        task_or_topic: str | Task[..., Any],
        payload: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job[Any]:
        """Make a job for a task, or for whoever takes jobs of a topic. An omitted payload is ``{}``."""
        return await submit(self, self._maker(task_or_topic, options)(payload))

    async def enqueue_many(
        self,
        task_or_topic: str | Task[..., Any],
        payloads: Iterable[Any],
        **options: Unpack[EnqueueOptions],
    ) -> list[Job[Any]]:
        """One job for each payload, written together, handles in the same order.

        All payloads are checked before the first is written; every 10,000 jobs are one transaction.
        """
        return await submit_many(self, encode_each(payloads, self._maker(task_or_topic, options)))

    def _maker(self, target: str | Task[..., Any], options: EnqueueOptions) -> Callable[[Any], NewJob]:
        """How a payload becomes a job of this task or topic; the options are checked."""
        task = target if isinstance(target, Task) else self._task_named(target)
        limit = self.settings.max_payload_bytes
        if task is not None:
            template = task.template(options)
            signature = task.signature
            body_format = signature.format

            def make(item: Any) -> NewJob:
                return template.job(signature.encode_payload(item, limit), body_format)

        else:
            topic = check_topic(target)
            template = make_template(self.settings, task="", topic=topic, defaults={}, given=options)

            def make(item: Any) -> NewJob:
                return template.job(*_untyped_body(item, limit))

        return make

    def _task_named(self, name: Any) -> Task[..., Any] | None:
        if not isinstance(name, str):
            raise InvalidInput(
                f"the task or topic is {shorten(name)} ({type(name).__name__}); give a task or a name"
            )
        task = self.registry.resolve(name, "")
        if task is None and self.settings.strict_tasks:
            known = ", ".join(self.registry.tasks) or "none"
            raise HandlerNotFound(
                f"there is no task {shorten(name)}{suggest(name, self.registry.tasks)}; "
                f"the tasks are {known} (strict_tasks refuses others)"
            )
        return task

    # -- reading ----------------------------------------------------------------------------------------

    async def get(self, job_id: UUID | str) -> Job[Any]:
        """One job with its bodies and errors, or ``JobNotFound``."""
        return Job(self, await managing.get(self.store, managing.check_job_id(job_id)))

    async def jobs(
        self,
        *,
        limit: int = DEFAULT_PAGE,
        offset: int = 0,
        cursor: int | None = None,
        **filters: Unpack[JobFilters],
    ) -> JobPage[Job[Any]]:
        """Jobs that match, newest first, without their bodies; at most 200 a page."""
        where = check_filter(filters)
        limit = min(check_integer("limit", limit, 1, LARGEST_OFFSET), LARGEST_PAGE)
        check_integer("offset", offset, 0, LARGEST_OFFSET)
        if cursor is not None:
            check_integer("cursor", cursor, 0, 2**63 - 1)
        store = self.store
        page = await store.list_jobs(where, limit=limit, cursor=cursor, offset=offset)
        if where.text is None:
            count = await store.count(where)
        else:  # a search is counted by what it has found: counting would be the same search again
            count = Count(offset + len(page.items), page.cursor is None and cursor is None)
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
        return await self.store.count(check_filter(filters))

    async def result(self, job_id: UUID | str, timeout: float | timedelta | None = None) -> Any:
        """Wait for a job to finish and answer what its handler returned. See ``Job.result``."""
        wanted = managing.check_job_id(job_id)
        seconds = None if timeout is None else check_seconds("timeout", timeout, 0)
        connection = self._connections.current()
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            remaining = None if seconds is None else max(0.0, seconds - (loop.time() - started))
            # With no time left to wait, one look is all there is.
            ended = remaining != 0 and await connection.results.wait(wanted, remaining)
            record = await managing.get(connection.store, wanted)
            if record.state.final:
                return self._result_of(record)
            if not ended:  # otherwise it was final and has been requeued since: wait on
                raise ResultTimeout(f"job {wanted} did not finish within {seconds:g} s; it goes on")

    async def stats(self, window: float | timedelta = 3600, *, tenant: str | None = None) -> Stats:
        """Counts as of now; times and throughput over the last ``window`` seconds."""
        seconds = check_seconds("window", window, 1)
        where = check_filter({"tenant": tenant})
        return await self.store.stats(window_seconds=min(seconds, 366 * DAY), tenant=where.tenant)

    # -- managing ---------------------------------------------------------------------------------------

    async def requeue(self, job_id: UUID | str) -> None:
        """Run a failed or cancelled job again, from its first attempt."""
        await managing.act(self.store, "requeue", managing.check_job_id(job_id))

    async def cancel(self, job_id: UUID | str) -> bool:
        """Cancel a job: True when it ended at once, False when its worker has been asked to stop."""
        return await managing.act(self.store, "cancel", managing.check_job_id(job_id))

    async def delete(self, job_id: UUID | str) -> None:
        """Remove a job that is not running, with everything that belongs to it."""
        await managing.act(self.store, "delete", managing.check_job_id(job_id))

    async def requeue_all(self, **filters: Unpack[JobFilters]) -> int:
        """Requeue every failed or cancelled job that matches; how many."""
        return await managing.act_on_all(self.store, "requeue", check_filter(filters))

    async def cancel_all(self, **filters: Unpack[JobFilters]) -> int:
        """Cancel every pending job that matches and ask the running ones to stop; how many."""
        return await managing.act_on_all(self.store, "cancel", check_filter(filters))

    async def delete_all(self, **filters: Unpack[JobFilters]) -> int:
        """Remove every job that matches and is not running; how many."""
        return await managing.act_on_all(self.store, "delete", check_filter(filters))

    async def topics(self) -> list[TopicStats]:
        """Every topic that has jobs or is paused, by name."""
        return await self.store.topics()

    async def pause(self, topic: str, seconds: float | timedelta | None = None) -> None:
        """Let no worker take jobs of this topic, for some time or until ``resume``."""
        check_wire_topic(topic)
        store = self.store
        if seconds is None:
            await store.pause(topic, FOREVER)
        else:
            length = seconds_to_microseconds(check_seconds("seconds", seconds, 0.001))
            await store.pause(topic, await store.now() + length)

    async def resume(self, topic: str) -> None:
        """Let workers take jobs of this topic again."""
        await self.store.pause(check_wire_topic(topic), None)

    async def workers(self) -> list[WorkerInfo]:
        """Who runs jobs here, by name; those that vanished stay listed for a day and are ``missing``."""
        store = self.store
        records = await store.workers()
        now = await store.now()
        return [worker_info(record, now) for record in records]

    async def migrate(self, *, rls: bool = False) -> list[str]:
        """Bring the schema up to date; the names of the steps taken.

        ``rls``: on PostgreSQL, then set up row-level security: roles for workers and for callers, and
        policies that show callers one tenant at a time.
        """
        return await self.store.migrate(rls=rls)

    async def check(self) -> list[str]:
        """What the store finds wrong with itself; empty when all is well."""
        return await self.store.check()

    # -- running ----------------------------------------------------------------------------------------

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker for this app's tasks on the running event loop's store. See ``windlass.worker.Worker``."""
        from windlass.worker import Worker

        return Worker(self.store, self.registry, self.settings, clock=self.clock, **options)

    def worker_thread(self, **options: Unpack[WorkerOptions]) -> WorkerThread:
        """A worker for a program that does something else, a web server say: on a thread and an event loop
        of its own, so that a busy handler cannot hold the program up. ``with app.worker_thread(): ...``
        """
        from windlass.background import WorkerThread

        return WorkerThread(self, options)

    async def run_worker(self, **options: Unpack[WorkerOptions]) -> None:
        """Run jobs until stopped."""
        await self.worker(**options).run()

    async def run_until_idle(self, **options: Unpack[WorkerOptions]) -> int:
        """Run jobs until none is due, for tests and scripts; how many attempts that took."""
        return await self.worker(**options).run_until_idle()

    def _result_of(self, record: JobRecord) -> Any:
        error = record.newest_error
        if record.state is State.FAILED:
            raise JobFailed(record.id, error)
        if record.state is State.CANCELLED:
            raise JobCancelled(record.id, error)
        task = self.registry.resolve(record.topic, record.task)
        if task is not None:
            return task.decode_result(record.result)
        return None if record.result is None else payload.decode(record.result)


def _untyped_body(value: Any, limit: int) -> tuple[bytes, BodyFormat]:
    """A payload for a topic whose handler is not known here: JSON as given, or bytes."""
    if isinstance(value, bytes | bytearray | memoryview):
        return payload.check_bytes(bytes(value), limit=limit), BodyFormat.BYTES
    return payload.encode({} if value is None else value, limit=limit), BodyFormat.JSON


def _pointer(name: str) -> str:
    """A name as part of a JSON pointer inside a URL."""
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="~")
