"""Two tenants in one store: neither can see, count or change what is the other's (promise 7).

Each test has two tenants and a topic of its own and asks about those only, so that the tests can also be run
one after another on a single store.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from msgspec import structs

from tidewheel.core.conditions import Compare, ComparePayload, Comparison, Field
from tidewheel.core.full_job import FullJob
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    ROOT_TENANT,
    ActionResult,
    Completed,
    Count,
    Dependents,
    DerivedState,
    Failed,
    JobFilter,
    JobRecord,
    KeyLifetime,
    Lease,
    OnDuplicate,
    Released,
    State,
    TopicHead,
)
from tidewheel.core.reports import TaskStats, TopicDepth, TopicStats
from tidewheel.core.topic_limits import BlockingLimit, Rate, TopicLimits
from tidewheel.errors import ParentNotFound, WrongState
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    claim_from,
    claim_jobs,
    claim_one,
    enqueue_one,
    ids,
    job,
    make_cancelled,
    make_completed,
    make_failed,
    settle_one,
)

HOUR = 3600.0
MANY_LANES = 101
"""Stores may look for the oldest job of many lanes in another way than for that of a few."""


class TenantPair(NamedTuple):
    """Who plays, and where."""

    mine: str
    other: str
    topic: str


_numbers = itertools.count(1)


def _make_pair() -> TenantPair:
    """The other's name comes first in the alphabet: what is found first in an index is not mine."""
    number = next(_numbers)
    return TenantPair(f"mine-{number}", f"another-{number}", f"topic-{number}")


async def _in_every_state(store: Store, topic: str, **options: Any) -> dict[State, UUID]:
    """A job in each; there must be none in this topic yet that waits."""
    found = {
        State.COMPLETED: await make_completed(store, topic, **options),
        State.FAILED: await make_failed(store, topic, **options),
        State.CANCELLED: await make_cancelled(store, topic, **options),
        State.RUNNING: await enqueue_one(store, topic, **options),
    }
    await claim_one(store, topic, reports_starts=True)
    return {**found, State.PENDING: await enqueue_one(store, topic, **options)}


async def _listed(store: Store, **conditions: Any) -> list[JobRecord]:
    return list((await store.list_jobs(JobFilter(**conditions), limit=1000)).items)


# -- one job ------------------------------------------------------------------------------------------------


async def test_another_tenants_job_is_not_there(store: Store) -> None:
    """In whatever state, asked for by its very id: as if there had never been one."""
    mine, other, topic = _make_pair()
    jobs = list((await _in_every_state(store, topic, tenant=other)).values())
    for job_id in jobs:
        assert await store.get(job_id, tenant=mine) is None
        assert await store.get(job_id, tenant=ROOT_TENANT) is None
        assert await store.get(job_id, tenant=other) is not None
    assert await store.states(jobs, tenant=mine) == [None] * len(jobs)
    assert await store.states(jobs, tenant=ROOT_TENANT) == [None] * len(jobs)
    assert await store.states([*jobs, new_id()], tenant=other) == [*await store.states(jobs), None]


async def test_nothing_can_be_done_to_another_tenants_job(store: Store) -> None:
    """In whatever state: not found, and not touched."""
    mine, other, topic = _make_pair()
    jobs = await _in_every_state(store, topic, tenant=other)
    job_ids = list(jobs.values())
    await store.cancel([jobs[State.RUNNING]], tenant=other)  # a row of its own, where claims are packed
    before = [await store.get(job_id) for job_id in job_ids]
    for verb in (store.requeue, store.cancel, store.take_back, store.delete):
        assert await verb(job_ids, tenant=mine) == [ActionResult.NOT_FOUND] * len(job_ids)
        assert [await store.get(job_id) for job_id in job_ids] == before
    for verb in (store.take_back, store.requeue, store.delete):  # a taken job with a cancel request ends
        assert await verb([jobs[State.RUNNING]], tenant=other) == [ActionResult.DONE]
    assert await store.check() == []


async def test_jobs_that_were_claimed_together_stay_apart(store: Store) -> None:
    """One worker may hold jobs of both; each of them still sees its own."""
    mine, other, topic = _make_pair()
    theirs, ours = await enqueue_one(store, topic, tenant=other), await enqueue_one(store, topic, tenant=mine)
    assert len((await claim_from(store, topic)).jobs) == 2
    for tenant, job_id, foreign in ((mine, ours, theirs), (other, theirs, ours)):
        assert await store.states([job_id, foreign], tenant=tenant) == [State.RUNNING, None]
        assert [record.id for record in await _listed(store, tenant=tenant)] == [job_id]
        assert await store.get(foreign, tenant=tenant) is None
        assert await store.cancel([foreign, job_id], tenant=tenant) == [
            ActionResult.NOT_FOUND,
            ActionResult.REQUESTED,
        ]


async def test_nobody_pulls_another_tenants_job(store: Store) -> None:
    """Neither by its id nor by its number; asked for by its own tenant it is there."""
    mine, other, topic = _make_pair()
    for options in ({}, {"delay": 60}):
        [theirs] = await store.enqueue([job(topic, tenant=other, **options)])
        for tenant in (mine, ROOT_TENANT):
            assert await store.job_ids([theirs.number], tenant=tenant) == [None]
            assert await store.kick_jobs([theirs.job_id], tenant=tenant) == [ActionResult.NOT_FOUND]
            assert await store.claim_job(theirs.job_id, worker="w", lease_seconds=60, tenant=tenant) is None
        assert await store.job_ids([theirs.number], tenant=other) == [theirs.job_id]
        granted = await store.claim_job(theirs.job_id, worker="w", lease_seconds=60, tenant=other)
        assert granted is not None
        assert await settle_one(store, granted.lease, Released())
        claimed = await claim_one(store, topic, reports_starts=True)
        assert await store.job_ids([theirs.number], tenant=mine) == [None]
        assert await store.job_ids([theirs.number], tenant=other) == [theirs.job_id]
        await settle_one(store, claimed.lease, Completed())
        assert await store.job_ids([theirs.number], tenant=mine) == [None]
        assert await store.job_ids([theirs.number], tenant=other) == [theirs.job_id]
    dead = await make_failed(store, topic, tenant=other)
    assert await store.kick_jobs([dead], tenant=mine) == [ActionResult.NOT_FOUND]
    assert await store.claim_job(dead, worker="w", lease_seconds=60, tenant=mine) is None
    assert await store.kick_jobs([dead], tenant=other) == [ActionResult.DONE]


async def test_kicks_and_peeks_are_of_one_tenant(store: Store, clock: FrozenClock) -> None:
    """In a topic that both use: the other's jobs come first there, and are not seen. Nor do they keep delayed
    ones waiting.
    """
    for mine, other in (_make_pair()[:2], (ROOT_TENANT, _make_pair().other)):
        topic = _make_pair().topic
        await make_failed(store, topic, tenant=other)
        for tenant, delay in ((other, 10), (mine, 20), (other, 5), (mine, 30)):
            await enqueue_one(store, topic, tenant=tenant, delay=delay)
        await enqueue_one(store, topic, tenant=other, priority=1)
        for head in TopicHead:
            record = await store.peek(topic, head, tenant=mine)
            assert record is None if head is not TopicHead.DELAYED else record is not None
            assert record is None or record.tenant == mine
            record = await store.peek(topic, head, tenant=other)
            assert record is not None
            assert record.tenant == other
        assert await store.kick(topic, 1, tenant=mine) == 1
        record = await store.peek(topic, TopicHead.READY, tenant=mine)
        assert record is not None
        assert record.tenant == mine
        assert await store.kick(topic, 9, tenant=mine) == 1
        assert await store.kick(topic, 9, tenant=mine) == 0
        clock.advance(30)
        assert await store.kick(topic, 9, tenant=other) == 1
        for tenant in (other, mine):
            dead = await make_failed(store, topic, tenant=tenant, priority=9)
        record = await store.peek(topic, TopicHead.FAILED, tenant=mine)
        assert record is not None
        assert record.id == dead, "behind the other's"
        assert await store.kick(topic, 1, tenant=mine) == 1
        assert await store.states([dead]) == [State.PENDING]
        await store.delete([record.id for record in await _listed(store, topic=topic)])


async def test_a_kick_is_not_kept_out_by_another_tenants_key(store: Store) -> None:
    """Whoever else holds one of that name, or comes back with one."""
    mine, other, topic = _make_pair()
    held: dict[str, Any] = {"key": "k", "key_until": KeyLifetime.FINISHED}
    for tenant, rival in ((mine, other), (other, mine)):
        dead = [await make_failed(store, topic, tenant=one, **held) for one in (rival, tenant, tenant)]
        assert await store.kick(topic, 9) == 2
        assert await store.states(dead) == [State.PENDING, State.PENDING, State.FAILED]
        await store.delete(dead)
        first = await make_failed(store, topic, tenant=tenant, **held)
        await enqueue_one(store, topic, tenant=rival, **held)
        granted = await store.claim_job(first, worker="w", lease_seconds=60)
        assert granted is not None
        assert await settle_one(store, granted.lease, Failed(BOOM))
        assert await store.kick(topic, 9, tenant=tenant) == 1
        await claim_from(store, topic)
        for record in await _listed(store, topic=topic):
            await settle_one(store, Lease(record.id, record.fence), Completed())


async def test_depths_are_of_one_tenant(store: Store, clock: FrozenClock) -> None:
    """Its own counts, its own urgent jobs; a pause of a topic without jobs of it is none of its business."""
    for mine, other in (_make_pair()[:2], (ROOT_TENANT, _make_pair().other)):
        topic = _make_pair().topic
        elsewhere = f"{topic}-other"
        for tenant in (other, mine, other):
            await enqueue_one(store, topic, tenant=tenant, delay=5)
            await enqueue_one(store, topic, tenant=tenant, delay=60)
            await enqueue_one(store, topic, tenant=tenant, priority=-5000)
            await store.prune()  # adds up counters, where a store does that
        await enqueue_one(store, topic, tenant=other)
        await enqueue_one(store, elsewhere, tenant=other)
        await store.pause(elsewhere, 2**60)
        await store.pause(topic, 2**60)
        clock.advance(5)
        ours = TopicDepth(topic, ready=2, delayed=1, urgent=1, paused_until=2**60)
        assert await store.topic_depths([topic, elsewhere], tenant=mine) == [ours, TopicDepth(elsewhere)]
        assert ours in await store.topic_depths(tenant=mine)
        assert [depth.topic for depth in await store.topic_depths(tenant=other)] == [topic, elsewhere]
        theirs = TopicDepth(topic, ready=5, delayed=2, urgent=3, paused_until=2**60)
        assert await store.topic_depths([topic], tenant=other) == [theirs]
        for paused in (topic, elsewhere):
            await store.pause(paused, None)
        await store.delete([record.id for record in await _listed(store, topic=topic)])


# -- lists and counts ---------------------------------------------------------------------------------------


async def test_lists_and_counts_are_of_one_tenant(store: Store) -> None:
    """Whatever else narrows them: each filter has its own way to the jobs."""
    mine, other, topic = _make_pair()
    alike: dict[str, Any] = {"task": "send", "correlation_id": topic, "payload": b'"needle"'}
    for tenant, key in ((other, "k"), (mine, "k"), (other, "another")):
        await _in_every_state(store, topic, tenant=tenant, **alike)
        await store.enqueue([job(topic, tenant=tenant, key=key, **alike)])
        await claim_from(store, topic)  # what waits is out of the next one's way
        await store.enqueue([job(topic, tenant=tenant, delay=60, **alike)])
    await enqueue_one(store, topic, tenant=mine, **alike)
    await enqueue_one(store, topic, tenant=other, **alike)
    narrowings: tuple[dict[str, Any], ...] = (
        {},
        {"topic": topic},
        {"task": "send"},
        {"topic": topic, "task": "send"},
        {"topic": topic, "created_after": 0},
        {"created_after": 0},
        {"correlation_id": topic},
        {"key": "k"},
        {"text": "needle"},
        {"condition": Compare(Field.USER_ID, Comparison.EQUAL, "")},
        {"condition": ComparePayload((), Comparison.EQUAL, "needle")},
    )
    everything = await _listed(store, topic=topic)
    for narrowing in narrowings:
        for state in (None, *State, DerivedState.DELAYED, DerivedState.CLAIMED):
            expected = [
                record.id
                for record in everything
                if record.tenant == mine
                and narrowing.get("key") in (None, record.key)
                and (state is None or _is(record, state))
            ]
            found = await _listed(store, tenant=mine, state=state, **narrowing)
            assert [record.id for record in found] == expected, (narrowing, state)
            where = JobFilter(tenant=mine, state=state, **narrowing)
            assert await store.count(where) == Count(len(expected)), where


def _is(record: JobRecord, state: State | DerivedState) -> bool:
    return state == record.shown_state(record.created_at) or state is record.state


async def test_paging_ends_where_the_tenants_jobs_end(store: Store) -> None:
    """A cursor leads to the tenant's next job, however many of others lie between."""
    mine, other, topic = _make_pair()
    for number in range(9):
        await enqueue_one(store, topic, tenant=mine if number % 3 == 0 else other)
    met: list[str] = []
    cursor = None
    for _ in range(3):
        page = await store.list_jobs(JobFilter(tenant=mine), limit=1, cursor=cursor)
        met += [record.tenant for record in page.items]
        cursor = page.cursor
    assert (met, cursor) == ([mine] * 3, None)


async def test_names_are_compared_and_not_matched(store: Store) -> None:
    """Not without case, not as a pattern, not cut short, not as SQL."""
    mine, _, topic = _make_pair()
    job_id = await enqueue_one(store, topic, tenant=mine)
    for name in (mine.upper(), f"{mine}-", mine[:-1], f"{mine} ", "%", "_" * len(mine), "", "' OR ''='"):
        assert await store.get(job_id, tenant=name) is None, name
        assert (await store.count(JobFilter(tenant=name))).total == 0, name
        assert await store.topics(tenant=name) == [], name
        assert await store.delete([job_id], tenant=name) == [ActionResult.NOT_FOUND], name


# -- topics and statistics ----------------------------------------------------------------------------------


async def test_topics_are_those_with_jobs_of_the_tenant(store: Store) -> None:
    """With its own counts; a topic without jobs of it is not there, paused or not."""
    mine, other, topic = _make_pair()
    for _ in range(2):  # before and after the counters were added up, where a store does that
        await enqueue_one(store, topic, tenant=other)
        await enqueue_one(store, f"{topic}-other", tenant=other)
        await store.prune()
    await enqueue_one(store, topic, tenant=mine)
    await enqueue_one(store, topic, tenant=other)
    await store.pause(f"{topic}-other", 2**60)
    assert await store.topics(tenant=mine) == [TopicStats(topic, pending=1)]
    assert await store.topics(tenant=other) == [
        TopicStats(topic, pending=3),
        TopicStats(f"{topic}-other", pending=2, paused_until=2**60),
    ]
    await store.pause(f"{topic}-other", None)


async def test_statistics_are_of_one_tenant(store: Store, clock: FrozenClock) -> None:
    """Counts, topics, delayed jobs and the longest wait: the same, whatever another tenant has."""
    mine, other, topic = _make_pair()
    for _ in range(2):
        await _in_every_state(store, topic, tenant=other)
        await enqueue_one(store, topic, tenant=other, delay=1)
        await claim_from(store, topic)
        await store.prune()
    await enqueue_one(store, topic, tenant=other)
    await enqueue_one(store, topic, tenant=other, delay=1)
    await store.pause(f"{topic}-paused", 2**60)
    clock.advance(5)
    nobody = await store.stats(window_seconds=HOUR, tenant=mine)
    assert (nobody.pending, nobody.running, nobody.completed, nobody.failed, nobody.cancelled) == (0,) * 5
    assert (nobody.delayed, nobody.oldest_due_at, nobody.topics, nobody.series) == (0, None, (), ())
    due = clock.now()
    await enqueue_one(store, topic, tenant=mine)
    await enqueue_one(store, topic, tenant=mine, delay=60)
    stats = await store.stats(window_seconds=HOUR, tenant=mine)
    assert (stats.pending, stats.running, stats.delayed, stats.oldest_due_at) == (2, 0, 1, due)
    assert stats.topics == (TopicStats(topic, pending=2),)
    assert (stats.run_time, stats.wait_time, stats.series) == (nobody.run_time, nobody.wait_time, ())
    await store.pause(f"{topic}-paused", None)


async def test_the_root_tenant_is_told_its_own_longest_wait(store: Store, clock: FrozenClock) -> None:
    """Its jobs may be most there are, and are found in other ways: among lanes, priorities and due times."""
    _, other, topic = _make_pair()
    _, _, level = _make_pair()
    nothing = (await store.stats(window_seconds=HOUR, tenant=ROOT_TENANT)).oldest_due_at
    assert nothing is None, "the test needs a store in which nothing of the root tenant waits"
    await enqueue_one(store, topic, tenant=other, delay=1)
    clock.advance(2)
    await claim_from(store, "unrelated")  # promotes it
    await enqueue_one(store, topic, tenant=other, delay=1)
    await enqueue_one(store, topic, tenant=other)
    await enqueue_one(store, level, tenant=other)
    await enqueue_one(store, f"{topic}-head", tenant=other)
    clock.advance(2)
    due = clock.now()
    await enqueue_one(store, topic)  # behind the other's that had been delayed
    await enqueue_one(store, f"{topic}-head")  # behind the other's that had not
    await enqueue_one(store, level, priority=1)  # before the other's, which heads the next priority
    await enqueue_one(store, topic, delay=60)
    stats = await store.stats(window_seconds=HOUR, tenant=ROOT_TENANT)
    assert (stats.pending, stats.delayed, stats.oldest_due_at) == (4, 1, due)
    await store.enqueue([job(f"{topic}-{number}") for number in range(MANY_LANES)])
    assert (await store.stats(window_seconds=HOUR, tenant=ROOT_TENANT)).oldest_due_at == due
    assert await store.count(JobFilter(topic=topic, tenant=ROOT_TENANT)) == Count(2)
    assert {record.tenant for record in await _listed(store, topic=topic, tenant=ROOT_TENANT)} == {
        ROOT_TENANT
    }
    assert {record.tenant for record in await _listed(store, tenant=ROOT_TENANT)} == {ROOT_TENANT}


# -- keys ---------------------------------------------------------------------------------------------------


async def test_lanes_are_those_with_jobs_of_the_tenant(store: Store, clock: FrozenClock) -> None:
    """Counts of its own jobs, and nothing of what happened, which is told of all together."""
    mine, other, topic = _make_pair()
    for tenant in (ROOT_TENANT, other, other, mine):
        await enqueue_one(store, topic, tenant=tenant)
        await enqueue_one(store, topic, tenant=tenant, delay=60)
    await enqueue_one(store, f"{topic}-other", tenant=other)
    clock.advance(60)
    assert await store.lanes(window_seconds=HOUR, tenant=mine) == [TaskStats(topic, "", pending=2, due=2)]
    mentioned = await store.lanes(window_seconds=HOUR, tenant=ROOT_TENANT)
    assert [lane for lane in mentioned if lane.topic.startswith(topic)] == [
        TaskStats(topic, "", pending=2, due=2)
    ]
    assert await store.lanes(window_seconds=HOUR, tenant="nobody") == []


async def test_durations_and_failures_are_of_one_tenant(store: Store) -> None:
    """Each looks at the tenant's own jobs, also where others' are in between."""
    mine, other, topic = _make_pair()
    for tenant, seconds in ((other, 1.0), (mine, 2.0), (ROOT_TENANT, 3.0), (other, 4.0)):
        await enqueue_one(store, topic, tenant=tenant)
        await settle_one(store, (await claim_one(store, topic)).lease, Completed(), seconds)
        await make_failed(store, topic, tenant=tenant)
    for tenant, seconds in ((mine, 2.0), (ROOT_TENANT, 3.0)):
        lanes = [lane for lane in await store.durations(tenant=tenant) if lane.topic == topic]
        assert [(lane.run_time.count, lane.run_time.average) for lane in lanes] == [(1, seconds)]
        found = await store.failures(JobFilter(topic=topic, tenant=tenant), window_seconds=HOUR)
        assert (found.jobs, [group.count for group in found.groups]) == (1, [1])


async def test_repeats_are_of_one_tenant(store: Store) -> None:
    """Two tenants with the same key or payload are no repetition of each other, nor told of each other's."""
    mine, other, topic = _make_pair()
    until = KeyLifetime.FINISHED
    for tenant in (mine, other, other, ROOT_TENANT):
        await make_cancelled(store, topic, tenant=tenant, key="k", key_until=until)
        await enqueue_one(store, topic, tenant=tenant, payload=b"1")
    for tenant in (mine, ROOT_TENANT):
        found = await store.duplicate_jobs(tenant=tenant)
        assert [group for group in (*found.by_key, *found.by_payload) if group.topic == topic] == []
    found = await store.duplicate_jobs(tenant=other)
    assert [(group.tenant, group.count) for group in (*found.by_key, *found.by_payload)] == [(other, 2)] * 2
    everybodys = await store.duplicate_jobs()
    groups = [*everybodys.by_key, *everybodys.by_payload]
    assert [(group.tenant, group.count) for group in groups if group.topic == topic] == [(other, 2)] * 2


async def test_running_jobs_are_of_one_tenant(store: Store) -> None:
    """The limit counts the tenant's own, however many others run for longer."""
    mine, other, topic = _make_pair()
    ids = [await enqueue_one(store, topic, tenant=tenant) for tenant in (other, mine, other)]
    await claim_from(store, topic)
    assert [record.id for record in await store.longest_running(1, tenant=mine)] == [ids[1]]
    assert len(await store.longest_running(10, tenant=other)) == 2


async def test_a_key_keeps_no_other_tenant_out(store: Store) -> None:
    """The tenant is part of its name: each finds its own job, whether they ask together or not."""
    mine, other, topic = _make_pair()
    for together in (False, True):
        key = f"together {together}"

        async def enqueue(*tenants: str, key: str = key, together: bool = together) -> list[UUID]:
            jobs = [job(topic, tenant=tenant, key=key) for tenant in tenants]
            calls = [jobs] if together else [[one] for one in jobs]
            return [answer.job_id for call in calls for answer in await store.enqueue(call)]

        theirs, ours = await enqueue(other, mine)
        assert theirs != ours
        assert await enqueue(other, mine) == [theirs, ours]
        assert await enqueue(mine, other) == [ours, theirs]


async def test_a_key_replaces_no_other_tenants_job(store: Store) -> None:
    """Debouncing is among a tenant's own jobs, also when both say so in one call."""
    mine, other, topic = _make_pair()
    for tenants in ((mine, other), (other, mine)):
        debounced = {"key": "k", "on_duplicate": OnDuplicate.REPLACE}
        await store.enqueue([job(topic, tenant=tenant, **debounced) for tenant in tenants])
        answers = await store.enqueue(
            [job(topic, tenant=tenant, payload=tenant.encode(), **debounced) for tenant in tenants]
        )
        assert all(answer.replaced for answer in answers)
        for tenant in tenants:
            [record] = await _listed(store, tenant=tenant, key="k")
            found = await store.get(record.id, tenant=tenant)
            assert found is not None
            assert found.payload == tenant.encode()


async def test_a_requeue_is_not_kept_out_by_another_tenants_key(store: Store) -> None:
    """Whoever else holds a key of that name."""
    mine, other, topic = _make_pair()
    for tenant, rival in ((mine, other), (other, mine)):
        old = await make_cancelled(store, topic, tenant=tenant, key="k", key_until=KeyLifetime.FINISHED)
        await enqueue_one(store, topic, tenant=rival, key="k", key_until=KeyLifetime.FINISHED)
        assert await store.requeue([old], tenant=tenant) == [ActionResult.DONE]
        await store.delete([record.id for record in await _listed(store, topic=topic)])


async def test_another_tenants_job_that_runs_after_others_is_not_requeued(store: Store) -> None:
    """Nor kicked; it stays as it is."""
    mine, other, topic = _make_pair()
    child = await enqueue_one(
        store, topic, tenant=other, after=(await enqueue_one(store, topic, tenant=other),)
    )
    await store.cancel([child])
    assert await store.requeue([child], tenant=mine) == [ActionResult.NOT_FOUND]
    assert await store.requeue([child], tenant=other) == [ActionResult.DONE]


async def test_what_is_held_back_by_its_key_is_told_of_its_own(store: Store) -> None:
    """How many run, and what for: the other's key has the same name only."""
    mine, other, topic = _make_pair()
    first, *_ = [await enqueue_one(store, topic, tenant=mine, limit_key="k") for _ in range(2)]
    await enqueue_one(store, topic, tenant=other, limit_key="k")
    await store.set_limits(topic, TopicLimits(ordered=True, key_rate=Rate(1, 60, 1)))
    granted = await store.claim_job(first, worker="w", lease_seconds=60)  # which no rate is asked for
    assert granted is not None
    await claim_from(store, topic)
    for running in (1, 0):
        told = [
            (one.tenant, one.running, one.blocking_limit)
            for one in await store.blocked_by_limits()
            if one.topic == topic
        ]
        assert told == [(mine, running, BlockingLimit.ORDERED)]
        await settle_one(store, granted.lease, Released(60.0))
    await store.set_limits(topic, None)


async def test_a_job_that_goes_frees_its_own_key_only(store: Store) -> None:
    """By whatever end: the other tenant's job still holds the key of that name."""
    mine, other, topic = _make_pair()
    held = {"key": "k", "key_until": KeyLifetime.FINISHED}
    kept = await enqueue_one(store, topic, tenant=other, priority=-1, **held)
    await make_completed(store, topic, tenant=mine, **held)
    gone = await enqueue_one(store, topic, tenant=mine, **held)
    await store.delete([gone], tenant=mine)
    [answer] = await store.enqueue([job(topic, tenant=other, **held)])
    assert (answer.duplicate, answer.job_id) == (True, kept)
    assert await enqueue_one(store, topic, tenant=mine, **held) != gone


async def test_a_key_of_another_tenant_keeps_no_job_of_another_store_out(store: Store) -> None:
    """Jobs that come from elsewhere hold their keys beside everybody else's."""
    mine, other, topic = _make_pair()
    held = await enqueue_one(store, topic, tenant=mine, key="k")
    [whole] = await store.export_jobs(limit=1)
    assert whole.record.id == held
    record = structs.replace(whole.record, id=new_id(), number=whole.record.number + 1)
    assert not await _placed(store, structs.replace(whole, record=record))
    theirs = structs.replace(record, tenant=other)
    assert await _placed(store, structs.replace(whole, record=theirs))
    assert (await store.get(record.id, tenant=mine)) is None
    for tenant, holder in ((mine, held), (other, record.id)):
        [answer] = await store.enqueue([job(topic, tenant=tenant, key="k")])
        assert (answer.job_id, answer.duplicate) == (holder, True)


async def _placed(store: Store, full_job: FullJob) -> bool:
    try:
        return await store.import_jobs([full_job]) == [True]
    except WrongState:
        return False


async def test_a_job_runs_after_jobs_of_its_own_tenant_only(store: Store) -> None:
    """One of another tenant, pending, running or finished, is not there; nor is who runs after it told."""
    theirs = await enqueue_one(store, "kin-theirs", tenant="their-kin")
    running = await enqueue_one(store, "kin-running", tenant="their-kin")
    await claim_one(store, "kin-running")
    over = await make_completed(store, "kin-over", tenant="their-kin")
    for parent in (theirs, running, over):
        with pytest.raises(ParentNotFound):
            await enqueue_one(store, "kin-ours", tenant="our-kin", after=(parent,))
        both = [
            job("kin-ours", tenant="their-kin", after=(parent,)),
            job("kin-ours", tenant="our-kin", after=(parent,)),
        ]
        with pytest.raises(ParentNotFound):
            await store.enqueue(both)
    first = job("kin-ours", tenant="their-kin")
    with pytest.raises(ParentNotFound):
        await store.enqueue([first, job("kin-ours", tenant="our-kin", after=(first.id,))])
    await store.enqueue([first, job("kin-ours", tenant="their-kin", after=(first.id,))])
    child = await enqueue_one(store, "kin-theirs", tenant="their-kin", after=(theirs,))
    assert [one.job_id for one in (await store.dependents(theirs, tenant="their-kin")).jobs] == [child]
    for stranger in ("our-kin", "nobody"):
        assert await store.dependents(theirs, tenant=stranger) == Dependents((), Count(0))


async def test_blocked_jobs_of_others_are_not_taken_off_a_tenants_counts(store: Store) -> None:
    """Delayed jobs are those that wait without the blocked ones, of the same tenant."""
    theirs = await enqueue_one(store, "kin-shared", tenant="their-blocked")
    await enqueue_one(store, "kin-shared", tenant="their-blocked", after=(theirs,))
    await enqueue_one(store, "kin-shared", tenant="our-delayed", delay=60.0)
    assert (await store.stats(window_seconds=60.0, tenant="our-delayed")).delayed == 1
    [depth] = await store.topic_depths(["kin-shared"], tenant="our-delayed")
    assert (depth.ready, depth.delayed) == (0, 1)


async def test_limits_of_keys_do_not_tell_one_tenant_of_another(store: Store) -> None:
    """The same key of two tenants is two keys: in strict order, by rate, and behind a crowd."""
    for topic in ("ordered", "rated", "crowded"):
        limits = TopicLimits(key_rate=Rate(1, 60, 1)) if topic == "rated" else TopicLimits(ordered=True)
        await store.set_limits(topic, limits)
        if topic == "crowded":
            await store.enqueue([job(topic, limit_key="full") for _ in range(40)])
            await claim_jobs(store, topic, limit=1)
        theirs = await enqueue_one(store, topic, limit_key="k", tenant="another")
        first = await claim_jobs(store, topic, limit=1) if topic == "rated" else []
        mine = await enqueue_one(store, topic, limit_key="k", tenant="mine")
        assert ids([*first, *await claim_jobs(store, topic)]) == [theirs, mine]
