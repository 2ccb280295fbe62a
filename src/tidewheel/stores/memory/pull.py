"""What those need who pull jobs by hand: one job granted, kicks, peeks, and how much is in a topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from uuid import UUID

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import URGENT_ABOVE, ActionResult, Claimed, Lease, State, TopicHead
from tidewheel.core.reports import TopicDepth
from tidewheel.stores.bounds import MAX_BATCH, MAX_COUNT
from tidewheel.stores.memory import admin, dependencies, maintenance
from tidewheel.stores.memory.job_rows import JobRow, KeyName
from tidewheel.stores.memory.job_table import JobTable


def claim_job(
    table: JobTable, job_id: UUID, tenant: str | None, worker: str, lease_seconds: float, now: int
) -> Claimed | None:
    maintenance.rescue(table, now, MAX_BATCH)
    job = table.find(job_id, tenant)
    if job is None or job.state not in (State.PENDING, State.FAILED) or job.blocked:
        return None
    if job.state is State.FAILED:
        if table.key_taken(job) or dependencies.must_wait(table, job):
            return None
        admin.return_to_pending(table, job, now)
        dependencies.restore_parents(table, [job], now)
    job.run_at = min(job.run_at, now)  # whoever asks for it makes it due
    seconds = lease_seconds if job.lease_seconds is None else job.lease_seconds
    table.grant(job, worker, now + seconds_to_microseconds(seconds), now)
    job.counts_if_lost = True
    return job.to_claimed(seconds)


def touch(table: JobTable, lease: Lease, lease_seconds: float, now: int) -> float | None:
    job = table.job_under_lease(lease, now)
    if job is None:
        return None
    seconds = lease_seconds if job.lease_seconds is None else job.lease_seconds
    table.lease(job, now + seconds_to_microseconds(seconds))
    job.touches += 1
    return seconds


def kick(table: JobTable, topic: str, limit: int, tenant: str | None, now: int, *, failed_only: bool) -> int:
    taken: set[KeyName] = set()  # by those that are kicked now

    def can_come_back(job: JobRow) -> bool:
        name = job.key_name
        if tenant not in (None, job.tenant) or table.key_taken(job) or name in taken:
            return False
        if name is not None:
            taken.add(name)
        return True

    failed = table.failed.first(topic, limit, can_come_back)
    if failed:
        admin.requeue(table, [job.id for job in failed], None, now)
        return len(failed)
    if failed_only:
        return 0
    delayed = table.waiting.topic_queues.first(topic, limit, lambda job: _is_delayed(job, tenant, now))
    for job in delayed:
        _make_due(table, job, now)
    return len(delayed)


def kick_jobs(table: JobTable, job_ids: Iterable[UUID], tenant: str | None, now: int) -> list[ActionResult]:
    back: list[JobRow] = []
    verdicts = [_kick_job(table, table.find(job_id, tenant), tenant, now, back) for job_id in job_ids]
    dependencies.restore_parents(table, back, now)
    return verdicts


def _kick_job(
    table: JobTable, job: JobRow | None, tenant: str | None, now: int, back: list[JobRow]
) -> ActionResult:
    if job is None or job.state is State.FAILED:
        return admin.requeue_job(table, job, now, back)
    if job.state is not State.PENDING or not _is_delayed(job, tenant, now):
        return ActionResult.WRONG_STATE
    _make_due(table, job, now)
    return ActionResult.DONE


def _is_delayed(job: JobRow, tenant: str | None, now: int) -> bool:
    """Of a pending job."""
    return tenant in (None, job.tenant) and not job.blocked and job.run_at > now


def _make_due(table: JobTable, job: JobRow, now: int) -> None:
    job.run_at = now
    job.kicks += 1
    table.enqueue_pending(job, now)


def peek(table: JobTable, topic: str, head: TopicHead, tenant: str | None, now: int) -> JobRow | None:
    maintenance.rescue(table, now, MAX_BATCH)
    table.promote(now)

    def wanted(job: JobRow) -> bool:
        return tenant in (None, job.tenant) and not job.blocked

    match head:
        case TopicHead.READY:
            heads = _ready_heads(table, topic, None if tenant is None else wanted)
            return min(heads, key=lambda job: (-job.priority, job.number), default=None)
        case TopicHead.DELAYED:
            found = table.waiting.topic_queues.first(topic, 1, wanted)
        case TopicHead.FAILED:
            found = table.failed.first(topic, 1, wanted)
    return found[0] if found else None


def _ready_heads(table: JobTable, topic: str, wanted: Callable[[JobRow], bool] | None) -> Iterable[JobRow]:
    """The first due job of each task; with a condition, all that meet it."""
    for ready in table.ready.get(topic, {}).values():
        if wanted is not None:
            yield from filter(wanted, ready)
        elif (job := ready.first()) is not None:
            yield job


def depths(table: JobTable, topics: Sequence[str] | None, tenant: str | None, now: int) -> list[TopicDepth]:
    table.promote(now)
    if tenant is None:
        names = sorted(table.topic_names(now)) if topics is None else topics
        return [_depth(table, topic, now) for topic in names]
    found: dict[str, Counter[str]] = {}
    for job in table.jobs.values():
        if job.tenant == tenant:
            found.setdefault(job.topic, Counter()).update(_depth_column(table, job))
    return [
        _depth_of_tenant(table, topic, found, now) for topic in (sorted(found) if topics is None else topics)
    ]


def _depth(table: JobTable, topic: str, now: int) -> TopicDepth:
    counts = table.counts.get(topic, Counter())
    of_tasks = table.ready.get(topic, {}).values()
    ready = sum(map(len, of_tasks))
    urgent = (job for of_task in of_tasks for job in of_task if job.priority > URGENT_ABOVE)
    return TopicDepth(
        topic,
        ready=ready,
        delayed=counts[State.PENDING] - ready - sum(job.topic == topic for job in table.blocked),
        running=counts[State.RUNNING],
        failed=counts[State.FAILED],
        urgent=sum(1 for _ in islice(urgent, MAX_COUNT)),
        paused_until=table.paused_until(topic, now),
    )


def _depth_of_tenant(table: JobTable, topic: str, found: dict[str, Counter[str]], now: int) -> TopicDepth:
    counts = found.get(topic)
    if counts is None:
        return TopicDepth(topic)  # also its pause is none of the tenant's business
    return TopicDepth(
        topic,
        ready=counts["ready"],
        delayed=counts["delayed"],
        running=counts["running"],
        failed=counts["failed"],
        urgent=min(counts["urgent"], MAX_COUNT),
        paused_until=table.paused_until(topic, now),
    )


def _depth_column(table: JobTable, job: JobRow) -> list[str]:
    if job.state is not State.PENDING:
        return [str(job.state)]
    if job.heap is table.waiting:
        return ["delayed"]
    if job.blocked:
        return []
    return ["ready", "urgent"] if job.priority > URGENT_ABOVE else ["ready"]
