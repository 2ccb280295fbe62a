"""What a row filter leaves to be seen: of one job, and of counts.

Counters know topics, not what a row filter may ask. When it asks for more, jobs are counted one by one, for a
second at most and up to a limit; times and series, which are kept of all jobs together, are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tidewheel.core.conditions import (
    ALWAYS,
    InState,
    any_of,
    depends_on_topic_only,
    leaves,
    matches,
    matches_topic,
)
from tidewheel.core.filter_pushdown import push_down
from tidewheel.core.model import Count, Dependents, DerivedState, JobFilter, JobRecord, Relative, State
from tidewheel.core.reports import Distribution, Stats, TaskStats, TopicStats
from tidewheel.core.security_context import row_filter
from tidewheel.core.validation import check_integer
from tidewheel.stores.bounds import MAX_COUNT, MAX_DEPENDENTS
from tidewheel.stores.protocol import Store


async def is_visible(store: Store, record: JobRecord) -> bool:
    """Whether this job is there for the code at hand."""
    only = row_filter()
    if only is None:
        return True
    # Some states depend on the time, which is the store's.
    now = await store.now() if any(isinstance(leaf, InState) for leaf in leaves(only)) else 0
    return matches(only, record, now)


async def visible_states(store: Store, job_ids: Sequence[UUID], tenant: str | None) -> list[State | None]:
    """The states of these jobs; None for those that are not there for the code at hand."""
    if row_filter() is None:
        return await store.states(job_ids, tenant=tenant)
    found: list[State | None] = []
    for job_id in job_ids:
        record = await store.get(job_id, tenant=tenant)
        found.append(record.state if record is not None and await is_visible(store, record) else None)
    return found


async def visible_relatives(
    store: Store, found: tuple[Relative, ...], tenant: str | None
) -> tuple[Relative, ...]:
    """Of jobs that run after another, or before it, those that are there for the code at hand.

    Under a row filter at most ``MAX_DEPENDENTS`` are looked at, and what was deleted is not told.
    """
    if row_filter() is None:
        return found
    seen = []
    for one in found[:MAX_DEPENDENTS]:
        record = await store.get(one.job_id, tenant=tenant)
        if record is not None and await is_visible(store, record):
            seen.append(one)
    return tuple(seen)


async def visible_dependents(store: Store, job_id: UUID, limit: int, tenant: str | None) -> Dependents:
    """The jobs that run after one, as far as they are in view; then only those are counted."""
    told = await store.dependents(job_id, limit=check_integer("limit", limit, 1, 2**31), tenant=tenant)
    if row_filter() is None:
        return told
    seen = await visible_relatives(store, told.jobs, tenant)
    return Dependents(seen, Count(len(seen), exact=len(told.jobs) == told.total.total))


async def visible_topics(store: Store, tenant: str | None) -> list[TopicStats]:
    """The topics with jobs in view."""
    listed = await store.topics(tenant=tenant)
    where = visible_filter(tenant)
    if where is None:
        return listed
    if _depends_on_topic_only(where):
        return [topic for topic in listed if _topic_is_visible(where, topic.topic)]
    return list((await _count_topics(store, where, listed))[0])


async def visible_stats(store: Store, window_seconds: float, tenant: str | None) -> Stats:
    """The state of the queue, as far as it is in view."""
    told = await store.stats(window_seconds=window_seconds, tenant=tenant)
    where = visible_filter(tenant)
    if where is None:
        return told
    if _depends_on_topic_only(where):
        kept, exact = tuple(topic for topic in told.topics if _topic_is_visible(where, topic.topic)), True
        if kept == told.topics:
            return told
    else:
        kept, exact = await _count_topics(store, where, told.topics)
    delayed = await store.count(push_down(where, InState(DerivedState.DELAYED)))
    return Stats(
        **{str(state): sum(getattr(topic, state) for topic in kept) for state in State},
        delayed=delayed.total,
        oldest_due_at=None,
        topics=kept,
        window_seconds=told.window_seconds,
        run_time=Distribution(),
        wait_time=Distribution(),
        series=(),
        exact=exact and delayed.exact,
    )


async def visible_lanes(store: Store, window_seconds: float, tenant: str | None) -> list[TaskStats]:
    """The lanes; where some of the jobs are in view only, those of unfinished ones, and nothing of others."""
    seen = visible_filter(tenant)
    if seen is None:
        return await store.lanes(window_seconds=window_seconds, tenant=tenant)
    where = push_down(seen, any_of(InState(State.PENDING), InState(State.RUNNING)))
    page, now = await store.list_jobs(where, limit=MAX_COUNT), await store.now()
    found: dict[tuple[str, str], TaskStats] = {}
    for job in page.items:
        lane = found.get((job.topic, job.task)) or TaskStats(job.topic, job.task)
        pending = job.state is State.PENDING
        found[job.topic, job.task] = replace(
            lane,
            pending=lane.pending + pending,
            due=lane.due + (pending and not job.blocked and job.run_at <= now),
            running=lane.running + (not pending),
        )
    return [found[name] for name in sorted(found)]


def visible_filter(tenant: str | None) -> JobFilter | None:
    """What the row filter leaves of a tenant's jobs; None when it leaves all."""
    only, all_of_them = row_filter(), JobFilter(tenant=tenant)
    where = all_of_them if only is None else push_down(all_of_them, only)
    return None if where == all_of_them else where


def _depends_on_topic_only(where: JobFilter) -> bool:
    """Whether it asks for nothing but the topic, so that counters tell."""
    fields = replace(where, topic=None, tenant=None, condition=None)
    return fields == JobFilter() and depends_on_topic_only(where.condition or ALWAYS)


def _topic_is_visible(where: JobFilter, topic: str) -> bool:
    """Whether jobs of this topic are in view, when only topics matter."""
    if where.topic not in (None, topic):
        return False
    return matches_topic(where.condition or ALWAYS, where.tenant or "", topic)


async def _count_topics(
    store: Store, where: JobFilter, listed: Sequence[TopicStats]
) -> tuple[tuple[TopicStats, ...], bool]:
    """Topics by their jobs in view, and whether those are all."""
    page = await store.list_jobs(where, limit=MAX_COUNT)
    exact = page.cursor is None
    pauses = {topic.topic: topic.paused_until for topic in listed}
    counts: dict[str, Counter[State]] = {}
    for record in page.items:
        counts.setdefault(record.topic, Counter())[record.state] += 1
    counted = tuple(
        TopicStats(
            topic,
            **{str(state): counts[topic][state] for state in State},
            paused_until=pauses.get(topic),
            exact=exact,
        )
        for topic in sorted(counts)
    )
    return counted, exact
