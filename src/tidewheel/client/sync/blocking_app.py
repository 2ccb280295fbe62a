"""The twins behind ``.sync``, written by ``scripts/make_blocking_twins.py``: do not edit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from tidewheel.client.sync.blocking_access import BlockingAccess
from tidewheel.client.sync.blocking_jobs import BlockingJob
from tidewheel.client.sync.blocking_queue import BlockingQueue
from tidewheel.client.sync.portal import BlockingAppBase, BlockingWrapper
from tidewheel.core.clock import HOUR
from tidewheel.core.model import DEFAULT_PAGE
from tidewheel.core.payload import UNCHANGED

if TYPE_CHECKING:
    from tidewheel.admin.filters import JobFilters
    from tidewheel.admin.job_copy import CopyOptions
    from tidewheel.admin.reports.answers import (
        Attention,
        Duplicates,
        FailedJobs,
        JobDurations,
        LastHour,
        Outstanding,
        StuckJobs,
    )
    from tidewheel.admin.reports.questions import Questions
    from tidewheel.admin.topic_controls import TopicLimitControls
    from tidewheel.admin.worker_info import WorkerInfo
    from tidewheel.app import Tidewheel
    from tidewheel.client.job_handle import JobPage
    from tidewheel.core.cron import Timing
    from tidewheel.core.model import Count
    from tidewheel.core.reports import Stats, TaskStats, TopicStats
    from tidewheel.core.topic_limits import TopicLimits
    from tidewheel.schedules.manager import Schedules
    from tidewheel.schedules.schedule import Schedule
    from tidewheel.tasks.options import EnqueueOptions, WorkerOptions
    from tidewheel.tasks.task import Task


class BlockingQuestions(BlockingWrapper["Questions"]):
    """Blocking twin of :class:`~tidewheel.admin.reports.questions.Questions`."""

    def outstanding(self, *, tenant: str | None = None) -> Outstanding:
        """What is outstanding: jobs that are due, delayed or running, by task and topic."""
        return self._portal.run(self._inner.outstanding, tenant=tenant)

    def failed(
        self, *, window: float | timedelta = HOUR, limit: int = 50, **filters: Unpack[JobFilters]
    ) -> FailedJobs:
        """What failed and why: failed jobs that match, grouped by task and error, the largest groups first.

        The newest 10,000 are looked at; the trend of each group is that of the last ``window`` seconds.
        """
        return self._portal.run(self._inner.failed, window=window, limit=limit, **filters)

    def stuck(self, *, tenant: str | None = None) -> StuckJobs:
        """What is stuck: running jobs that should have ended, due jobs nobody takes, workers in trouble."""
        return self._portal.run(self._inner.stuck, tenant=tenant)

    def attention(self, *, tenant: str | None = None) -> Attention:
        """What needs attention, the worst first, each with what to do about it.

        What is stuck, tasks that fail, lanes that fall behind, workers in trouble, and what ails the store.
        Under a security context it is about the tenant's own jobs, as far as counters tell: workers and the
        store are everybody's, and minutes are kept of all tenants together.
        """
        return self._portal.run(self._inner.attention, tenant=tenant)

    def durations(self, *, tenant: str | None = None) -> JobDurations:
        """How long jobs take: their handlers, and how long they had waited before, by task and topic.

        Of the newest 10,000 completed jobs; of all together, of what ran in the last hour.
        """
        return self._portal.run(self._inner.durations, tenant=tenant)

    def duplicates(self, *, limit: int = 50, tenant: str | None = None) -> Duplicates:
        """Whether there are duplicates: jobs that share a key, and pending ones that share a payload.

        The newest 10,000 of each are looked at, and payloads of up to 1,000 bytes.
        """
        return self._portal.run(self._inner.duplicates, limit=limit, tenant=tenant)

    def last_hour(self, *, tenant: str | None = None) -> LastHour:
        """What ran in the last hour: how many jobs came in and ended, minute by minute, and by lane.

        Of a tenant no minutes are kept: its jobs that were enqueued in the last hour are counted.
        """
        return self._portal.run(self._inner.last_hour, tenant=tenant)


class BlockingTopicLimitControls(BlockingWrapper["TopicLimitControls"]):
    """Blocking twin of :class:`~tidewheel.admin.topic_controls.TopicLimitControls`."""

    def set(self, topic: str, limits: TopicLimits) -> None:
        """Limit this topic from now on, in place of the limits it has."""
        self._portal.run(self._inner.set, topic, limits)

    def declare(self, topic: str, limits: TopicLimits) -> bool:
        """The same as code declares it, for programs that pass on what workers elsewhere declare: False where
        an operator has set others, which stand.
        """
        return self._portal.run(self._inner.declare, topic, limits)

    def get(self, topic: str) -> TopicLimits | None:
        """The limits of a topic; None when it has none."""
        return self._portal.run(self._inner.get, topic)

    def list(self) -> dict[str, TopicLimits]:
        """Every topic that has limits, by name."""
        return self._portal.run(self._inner.list)

    def remove(self, topic: str) -> bool:
        """Let workers take any number of jobs of this topic again; whether it had limits.

        What tasks declare about it comes back when a worker with such a task starts.
        """
        return self._portal.run(self._inner.remove, topic)


class BlockingSchedules(BlockingWrapper["Schedules"]):
    """Blocking twin of :class:`~tidewheel.schedules.manager.Schedules`."""

    def create(
        self,
        name: str,
        task_or_topic: str | Task[..., Any],
        when: Timing,
        payload: Any = None,
        *,
        replace: bool = False,
        **options: Unpack[EnqueueOptions],
    ) -> Schedule:
        """Make a schedule: a job of this task, or for whoever takes jobs of this topic, at these times.

        Checked as an enqueue is, options included. ``WrongState`` when the name is taken; ``replace`` then
        puts it in the place of the other one, which keeps its counts, and its pause. One that code declares
        is changed in the code.
        """
        return self._portal.run(
            self._inner.create, name, task_or_topic, when, payload, replace=replace, **options
        )

    def all(self) -> list[Schedule]:
        """Every schedule, by name; there are at most 1,000."""
        return self._portal.run(self._inner.all)

    def get(self, name: str) -> Schedule:
        """One schedule, or ``ScheduleNotFound``."""
        return self._portal.run(self._inner.get, name)

    def pause(self, name: str) -> Schedule:
        """Let it make no jobs until ``resume``, whatever restarts meanwhile."""
        return self._portal.run(self._inner.pause, name)

    def resume(self, name: str) -> Schedule:
        """Let it make jobs again, from now on: what passed while it was paused is not made up for."""
        return self._portal.run(self._inner.resume, name)

    def run(self, name: str) -> BlockingJob[Any]:
        """Make a job of it now, also while it is paused. Its own times are not changed by it."""
        return BlockingJob(self._portal.run(self._inner.run, name), self._portal)

    def delete(self, name: str) -> None:
        """Forget it. Its jobs stay. One that code declares comes back with the next worker that starts."""
        self._portal.run(self._inner.delete, name)


class BlockingTidewheel(BlockingAppBase["Tidewheel"]):
    """Blocking twin of :class:`~tidewheel.app.Tidewheel`."""

    def ping(self) -> None:
        """Read from the store (for its time one of them need not look): raises when it is out of reach."""
        self._portal.run(self._inner.ping)

    @property
    def access(self) -> BlockingAccess:
        """Who may do what: keys, superusers, tokens, rules, and the audit log.

        Reads the rules and the settings about tokens at first use; ``ConfigurationError`` if they are wrong.
        """
        return BlockingAccess(self._inner.access, self._portal)

    @property
    def schedules(self) -> BlockingSchedules:
        """The schedules of the store: list them, make some, pause them, run them now."""
        return BlockingSchedules(self._inner.schedules, self._portal)

    def enqueue(
        self, task_or_topic: str | Task[..., Any], payload: Any = None, **options: Unpack[EnqueueOptions]
    ) -> BlockingJob[Any]:
        """Make a job for a task, or for whoever takes jobs of a topic. An omitted payload is ``{}``."""
        return BlockingJob(
            self._portal.run(lambda: self._inner.enqueue(task_or_topic, payload, **options)), self._portal
        )

    def enqueue_many(
        self, task_or_topic: str | Task[..., Any], payloads: Iterable[Any], **options: Unpack[EnqueueOptions]
    ) -> list[BlockingJob[Any]]:
        """One job for each payload, written together, handles in the same order.

        All payloads are checked before the first is written; every 10,000 jobs are one transaction.
        """
        return [
            BlockingJob(item, self._portal)
            for item in self._portal.run(lambda: self._inner.enqueue_many(task_or_topic, payloads, **options))
        ]

    def enqueue_together(
        self,
        wanted: Iterable[tuple[str | Task[..., Any], Any, EnqueueOptions]],
        *,
        headers: Mapping[int, Mapping[str, str]] | None = None,
    ) -> list[BlockingJob[Any]]:
        """Jobs of any tasks and topics, each a task or name, a payload and options; handles in order.

        All of them are checked before the first is written, and all are written or none: at most 10,000, and
        over HTTP at most 1,000 that fit into one request (``LimitExceeded``).
        ``headers``: texts that travel with the job at a place, for who passes on jobs of others.
        """
        return [
            BlockingJob(item, self._portal)
            for item in self._portal.run(self._inner.enqueue_together, wanted, headers=headers)
        ]

    def enqueue_copy(
        self,
        job_id: UUID | str,
        *,
        payload: Any = UNCHANGED,
        patch: Mapping[str, Any] | None = None,
        **changes: Unpack[CopyOptions],
    ) -> BlockingJob[Any]:
        """Make a new job like this one, whatever its state: the same topic, task, tenant and options.

        ``payload`` replaces its payload, ``patch`` changes members of it (RFC 7396: None removes one). It has
        no key unless one is given, and the id of the first job for a correlation id where that had none. That
        job stays as it is.
        """
        return BlockingJob(
            self._portal.run(self._inner.enqueue_copy, job_id, payload=payload, patch=patch, **changes),
            self._portal,
        )

    def get(self, job_id: UUID | str) -> BlockingJob[Any]:
        """One job with its bodies and errors, or ``JobNotFound``."""
        return BlockingJob(self._portal.run(self._inner.get, job_id), self._portal)

    def jobs(
        self,
        *,
        limit: int = DEFAULT_PAGE,
        offset: int = 0,
        cursor: int | None = None,
        **filters: Unpack[JobFilters],
    ) -> JobPage[BlockingJob[Any]]:
        """Jobs that match, newest first, without their bodies; at most 200 a page."""
        return self._portal.run(self._inner.jobs, limit=limit, offset=offset, cursor=cursor, **filters).map(
            lambda item: BlockingJob(item, self._portal)
        )

    def count(self, **filters: Unpack[JobFilters]) -> Count:
        """How many jobs match, exact up to 10,000."""
        return self._portal.run(self._inner.count, **filters)

    def result(self, job_id: UUID | str, timeout: float | timedelta | None = None) -> Any:
        """Wait for a job to finish and answer what its handler returned. See ``Job.result``."""
        return self._portal.run(self._inner.result, job_id, timeout)

    def stats(self, window: float | timedelta = 3600, *, tenant: str | None = None) -> Stats:
        """Counts as of now; times and throughput over the last ``window`` seconds."""
        return self._portal.run(self._inner.stats, window, tenant=tenant)

    def task_stats(self, window: float | timedelta = 3600, *, tenant: str | None = None) -> list[TaskStats]:
        """Counts as of now and throughput over the last ``window`` seconds, six hours at most, by topic and
        task; of a tenant counts only.
        """
        return self._portal.run(self._inner.task_stats, window, tenant=tenant)

    @property
    def questions(self) -> BlockingQuestions:
        """The six questions of an operator: what is outstanding, what failed, what is stuck, …"""
        return BlockingQuestions(self._inner.questions, self._portal)

    def requeue(self, job_id: UUID | str) -> None:
        """Run a failed or cancelled job again, from its first attempt."""
        self._portal.run(self._inner.requeue, job_id)

    def cancel(self, job_id: UUID | str) -> bool:
        """Cancel a job: True when it ended at once, False when its worker has been asked to stop."""
        return self._portal.run(self._inner.cancel, job_id)

    def take_back(self, job_id: UUID | str) -> None:
        """End the lease of a running job and make it pending again; the attempt is not counted.

        Its holder can write nothing any more: a worker stops the handler when it next extends the lease. A
        job that was asked to cancel ends as cancelled.
        """
        self._portal.run(self._inner.take_back, job_id)

    def delete(self, job_id: UUID | str) -> None:
        """Remove a job that is not running, with everything that belongs to it."""
        self._portal.run(self._inner.delete, job_id)

    def requeue_all(self, **filters: Unpack[JobFilters]) -> int:
        """Requeue every failed or cancelled job that matches; how many."""
        return self._portal.run(self._inner.requeue_all, **filters)

    def cancel_all(self, **filters: Unpack[JobFilters]) -> int:
        """Cancel every pending job that matches and ask the running ones to stop; how many."""
        return self._portal.run(self._inner.cancel_all, **filters)

    def take_back_all(self, *, lost: bool = False, **filters: Unpack[JobFilters]) -> int:
        """Take back every running job that matches; how many.

        ``lost``: only jobs whose holder is gone: a worker or puller that has been silent for 20 seconds.
        Filters may be left out then.
        """
        return self._portal.run(self._inner.take_back_all, lost=lost, **filters)

    def delete_all(self, **filters: Unpack[JobFilters]) -> int:
        """Remove every job that matches and is not running; how many."""
        return self._portal.run(self._inner.delete_all, **filters)

    @property
    def queue(self) -> BlockingQueue:
        """The verbs for programs that pull jobs by hand: put, reserve, delete, release, bury, kick, …"""
        return BlockingQueue(self._inner.queue, self._portal)

    def topics(self, *, tenant: str | None = None) -> list[TopicStats]:
        """Every topic that has jobs or is paused, by name; of a tenant those that have jobs of it."""
        return self._portal.run(self._inner.topics, tenant=tenant)

    def pause(self, topic: str, seconds: float | timedelta | None = None) -> None:
        """Let no worker take jobs of this topic, for some time or until ``resume``."""
        self._portal.run(self._inner.pause, topic, seconds)

    def resume(self, topic: str) -> None:
        """Let workers take jobs of this topic again."""
        self._portal.run(self._inner.resume, topic)

    @property
    def limits(self) -> BlockingTopicLimitControls:
        """Limits of topics, in the whole cluster: set, get, list and remove them."""
        return BlockingTopicLimitControls(self._inner.limits, self._portal)

    def workers(self) -> list[WorkerInfo]:
        """Who runs jobs here, by name; those that vanished stay listed for a day and are ``missing``."""
        return self._portal.run(self._inner.workers)

    def migrate(self, *, rls: bool = False) -> list[str]:
        """Bring the schema up to date; the names of the steps taken.

        ``rls``: on PostgreSQL, then set up row-level security: roles for workers and for callers, and
        policies that show callers one tenant at a time.
        """
        return self._portal.run(self._inner.migrate, rls=rls)

    def check(self) -> list[str]:
        """What the store finds wrong with itself; empty when all is well."""
        return self._portal.run(self._inner.check)

    def run_worker(self, **options: Unpack[WorkerOptions]) -> None:
        """Run jobs until stopped. When half its slots are stuck, a fresh worker takes over; see
        ``WorkerStuck``.
        """
        self._portal.run(self._inner.run_worker, **options)

    def run_until_idle(self, **options: Unpack[WorkerOptions]) -> int:
        """Run jobs until none is due, for tests and scripts; how many attempts that took.

        Returns when the lane has nothing to do either; what it ran on its own thread is not counted.
        """
        return self._portal.run(self._inner.run_until_idle, **options)
