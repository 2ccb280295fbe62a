"""What those need who pull jobs by hand (Q25): single grants, touches, kicks, peeks and depths."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    FOREVER,
    URGENT_ABOVE,
    ActionResult,
    Claimed,
    Completed,
    Failed,
    FailureOrigin,
    KeyLifetime,
    Lease,
    Released,
    Retried,
    State,
    TopicHead,
)
from tidewheel.core.reports import TopicDepth
from tidewheel.errors import LimitExceeded
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    LEASE_SECONDS,
    TOPIC,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    ids,
    job,
    make_cancelled,
    make_completed,
    make_failed,
    settle_one,
)

HINT_TIMEOUT_SECONDS = 5.0
"""Seconds a hint may take before the test gives up; it comes within milliseconds."""


async def _grant(store: Store, job_id: UUID, **options: Any) -> Claimed | None:
    return await store.claim_job(job_id, worker="hand", **({"lease_seconds": LEASE_SECONDS} | options))


async def _bury(store: Store, lease: Lease, priority: int | None = None) -> None:
    assert await settle_one(store, lease, Failed(BOOM, FailureOrigin.BURIED, priority))


async def _fail_one_after_another(store: Store, clock: FrozenClock, job_ids: Sequence[UUID]) -> None:
    """In this order, a second apart."""
    leases = {one.lease.job_id: one.lease for one in await claim_jobs(store, lease_seconds=3600)}
    for job_id in job_ids:
        clock.advance(1)
        await settle_one(store, leases[job_id], Failed(BOOM))


async def _pending(store: Store) -> list[UUID]:
    """What can be claimed now, best first; it is claimed."""
    return ids(await claim_jobs(store))


# -- one job ------------------------------------------------------------------------------------------------


async def test_grant_gives_just_this_job(store: Store, clock: FrozenClock) -> None:
    """Not the best of its topic; as a claim would, with payload, attempt and lease."""
    await enqueue_one(store, priority=9)
    job_id = await enqueue_one(store, payload=b"[1]", correlation_id="c")
    granted = await _grant(store, job_id, lease_seconds=30)
    assert granted is not None
    assert (granted.lease.job_id, granted.payload, granted.correlation_id) == (job_id, b"[1]", "c")
    assert (granted.attempt, granted.lease_seconds, granted.topic) == (1, 30, TOPIC)
    record = await get_job(store, job_id)
    assert (record.state, record.worker, record.attempt) == (State.RUNNING, "hand", 1)
    assert (record.leased_until, record.fence) == (clock.now() + 30_000_000, granted.lease.fence)
    assert await _grant(store, job_id) is None, "it runs"
    assert await settle_one(store, granted.lease, Completed(b"2"))
    assert await _grant(store, job_id) is None, "it has completed"


async def test_grant_does_not_wait_for_due_time_or_pause(store: Store, clock: FrozenClock) -> None:
    """Whoever names a job wants it now. Given back at once, it is due."""
    job_id = await enqueue_one(store, delay=60)
    await store.pause(TOPIC, FOREVER)
    granted = await _grant(store, job_id)
    assert granted is not None
    assert granted.run_at == clock.now()
    assert await settle_one(store, granted.lease, Released())
    await store.pause(TOPIC, None)
    assert await _pending(store) == [job_id]


async def test_grant_brings_a_failed_job_back(store: Store, clock: FrozenClock) -> None:
    """As a requeue, attempts and all; nobody has kicked it."""
    job_id = await enqueue_one(store, max_attempts=1)
    await _bury(store, (await claim_one(store)).lease)
    clock.advance(10)
    granted = await _grant(store, job_id)
    assert granted is not None
    assert granted.attempt == 1
    record = await get_job(store, job_id)
    assert (record.state, record.finished_at, record.buries, record.kicks) == (State.RUNNING, None, 1, 0)
    assert [one.attempt for one in record.attempts] == [1]
    assert await settle_one(store, granted.lease, Completed())


async def test_grant_leaves_alone_what_it_cannot_give(store: Store) -> None:
    """Cancelled and unknown jobs, and a failed one whose key another job holds: None."""
    held: dict[str, Any] = {"key": "k", "key_until": KeyLifetime.FINISHED}
    rival_of = await make_failed(store, **held)
    rival = await enqueue_one(store, **held)
    gone = await make_cancelled(store)
    before = [await get_job(store, one) for one in (rival_of, gone)]
    assert [await _grant(store, one) for one in (rival_of, gone, new_id())] == [None] * 3
    assert [await get_job(store, one) for one in (rival_of, gone)] == before
    await store.delete([rival])
    granted = await _grant(store, rival_of)
    assert granted is not None
    assert granted.key == "k"
    [answer] = await store.enqueue([job(**held)])
    assert (answer.duplicate, answer.job_id) == (True, rival_of), "the key is held again"


async def test_grant_deals_with_what_has_ended_first(store: Store, clock: FrozenClock) -> None:
    """A job whose lease ended is free; one that has expired is not."""
    orphan = await enqueue_one(store)
    await claim_one(store, lease_seconds=10)
    stale = await enqueue_one(store, expires_in=5)
    clock.advance(10)
    granted = await _grant(store, orphan)
    assert granted is not None
    assert granted.attempt == 2
    assert await _grant(store, stale) is None
    assert (await get_job(store, stale)).state is State.CANCELLED


async def test_a_granted_job_is_counted_and_fenced_like_any(store: Store, clock: FrozenClock) -> None:
    """Its own lease length, a new fence each time; when the lease ends, the attempt counts."""
    job_id = await enqueue_one(store, lease_seconds=7, max_attempts=2)
    first = await _grant(store, job_id)
    assert first is not None
    assert first.lease_seconds == 7
    clock.advance(7)
    second = await _grant(store, job_id)
    assert second is not None
    assert (second.attempt, second.lease.fence > first.lease.fence) == (2, True)
    assert not await settle_one(store, first.lease, Completed())
    clock.advance(7)
    await store.rescue()
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, len(record.attempts)) == (State.FAILED, 2, 2)
    assert (record.reserves, record.timeouts, record.lease_seconds) == (2, 2, 7)


async def test_of_two_who_ask_for_a_job_one_gets_it(store: Store) -> None:
    """At the same time, on two handles: also when it was failed."""
    other = store.sibling()
    await other.open()
    try:
        for job_id in (
            await enqueue_one(store),
            await make_failed(store, "other"),
            await enqueue_one(store, delay=60),
        ):
            granted = await asyncio.gather(*[_grant(one, job_id) for one in (store, other) for _ in range(3)])
            assert sum(one is not None for one in granted) == 1
    finally:
        await other.close()


async def test_numbers_lead_to_ids(store: Store) -> None:
    """Whatever became of the job; None where there is none, however absurd the number."""
    answers = await store.enqueue([job(), job(), job("other", delay=9)])
    await settle_one(store, (await claim_one(store)).lease, Completed())
    await claim_one(store)
    numbers = [answer.number for answer in answers]
    wanted = [answer.job_id for answer in answers]
    assert await store.job_ids(numbers) == wanted
    assert await store.job_ids([numbers[2], 0, numbers[0], -1, numbers[2] + 100, 2**63, 2**64]) == [
        wanted[2],
        None,
        wanted[0],
        None,
        None,
        None,
        None,
    ]
    await store.delete([wanted[2]])
    assert await store.job_ids(numbers[2:]) == [None]
    assert await store.job_ids([]) == []


# -- leases -------------------------------------------------------------------------------------------------


async def test_touch_makes_a_lease_last_as_long_again(store: Store, clock: FrozenClock) -> None:
    """The job's own length, or else the one given; an extension by a worker is no touch."""
    plain, own = await enqueue_one(store), await enqueue_one(store, lease_seconds=9)
    leases = [one.lease for one in await claim_jobs(store, lease_seconds=20)]
    clock.advance(5)
    assert await store.touch(leases, 20) == [20, 9]
    assert [(await get_job(store, one)).leased_until for one in (plain, own)] == [
        clock.now() + 20_000_000,
        clock.now() + 9_000_000,
    ]
    assert await store.extend(leases, 20) == [True] * 2
    assert await store.touch(leases[:1], 20) == [20]
    assert [(await get_job(store, one)).touches for one in (plain, own)] == [2, 1]
    assert await store.touch([], 20) == []


async def test_touch_is_refused_without_a_lease_that_holds(store: Store, clock: FrozenClock) -> None:
    """None, and nothing is counted; its neighbours are touched all the same. Named twice, touched once."""
    await enqueue_many(store, 3)
    kept, lost, done = [one.lease for one in await claim_jobs(store, lease_seconds=20)]
    assert await settle_one(store, done, Completed())
    old = Lease(lost.job_id, lost.fence + 1000)
    assert await store.touch([old, kept, done, kept], 20) == [None, 20, None, 20]
    assert (await get_job(store, kept.job_id)).touches == 1
    clock.advance(20)
    assert await store.touch([kept, lost], 20) == [None, None]
    assert (await get_job(store, lost.job_id)).touches == 0


async def test_what_happened_to_a_job_is_counted(store: Store, clock: FrozenClock) -> None:
    """Reserves, timeouts, releases, buries, kicks and touches, over all its runs."""
    job_id = await enqueue_one(store, max_attempts=None)
    await settle_one(store, (await claim_one(store)).lease, Released())
    await claim_one(store, lease_seconds=5)
    clock.advance(5)
    lease = (await claim_one(store)).lease
    await store.touch([lease], 60)
    await _bury(store, lease)
    assert await store.kick(TOPIC, 1) == 1
    await settle_one(store, (await claim_one(store)).lease, Retried(60, BOOM))
    assert await store.kick_jobs([job_id]) == [ActionResult.DONE]
    await settle_one(store, (await claim_one(store)).lease, Failed(BOOM))
    assert await store.requeue([job_id]) == [ActionResult.DONE]
    record = await get_job(store, job_id)
    counts = (record.reserves, record.timeouts, record.releases, record.buries, record.kicks, record.touches)
    assert counts == (5, 1, 1, 1, 3, 1)
    await settle_one(store, (await claim_one(store)).lease, Completed())
    record = await get_job(store, job_id)
    assert (record.reserves, record.timeouts, record.releases, record.kicks) == (6, 1, 1, 3)


async def test_a_job_given_back_by_nobodys_wish_was_not_released(store: Store) -> None:
    """All else is as after a release: the run is no attempt, and the job is due when and as it is told."""
    job_id = await enqueue_one(store, priority=1)
    for count in (1, 2):
        assert await settle_one(store, (await claim_one(store)).lease, Released(counted=False))
        record = await get_job(store, job_id)
        assert (record.state, record.attempt) == (State.PENDING, 0)
        assert (record.reserves, record.releases) == (count, 0)
        assert (record.worker, record.leased_until, record.priority) == (None, None, 1)
    assert await settle_one(store, (await claim_one(store)).lease, Released(counted=False, taken=False))
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.reserves, record.releases) == (State.PENDING, 0, 2, 0)
    assert await settle_one(store, (await claim_one(store)).lease, Released(5, 7, counted=False))
    record = await get_job(store, job_id)
    assert (record.run_at - await store.now(), record.priority, record.releases) == (5_000_000, 7, 0)


async def test_a_lease_that_ends_is_counted_however_the_job_ends(store: Store, clock: FrozenClock) -> None:
    """Also when it fails with it, or is cancelled."""
    failing, asked = await enqueue_one(store, max_attempts=1), await enqueue_one(store, "other")
    await claim_one(store, lease_seconds=5)
    await claim_one(store, "other", lease_seconds=5)
    await store.cancel([asked])
    clock.advance(5)
    await store.rescue()
    for job_id, state in ((failing, State.FAILED), (asked, State.CANCELLED)):
        record = await get_job(store, job_id)
        assert (record.state, record.timeouts) == (state, 1)


async def test_jobs_claimed_together_are_counted_one_by_one(store: Store) -> None:
    """Running or done."""
    first, second = await enqueue_many(store, 2)
    leases = [one.lease for one in await claim_jobs(store)]
    assert await store.touch(leases[:1], 60) == [60]
    records = [await get_job(store, one) for one in (first, second)]
    assert [(record.reserves, record.touches) for record in records] == [(1, 1), (1, 0)]
    for lease in leases:
        await settle_one(store, lease, Completed())
    assert [(await get_job(store, one)).reserves for one in (first, second)] == [1, 1]


async def test_bury_can_give_another_priority(store: Store) -> None:
    """It is there when the job comes back; without one it stays as it was."""
    first, second = await enqueue_one(store, priority=5), await enqueue_one(store, priority=3)
    buried = [one.lease for one in await claim_jobs(store)]
    await _bury(store, buried[0], priority=-7)
    await _bury(store, buried[1])
    assert [(await get_job(store, one)).priority for one in (first, second)] == [-7, 3]
    assert await store.kick(TOPIC, 2) == 2
    assert await _pending(store) == [second, first]


# -- kicks --------------------------------------------------------------------------------------------------


async def test_kick_brings_back_what_failed_first(store: Store, clock: FrozenClock) -> None:
    """As many as asked for, buried or not; delayed ones stay as long as there is a failed one."""
    job_ids = await enqueue_many(store, 4)
    await _fail_one_after_another(store, clock, [job_ids[2], job_ids[0], job_ids[3], job_ids[1]])
    delayed = await enqueue_one(store, delay=60)
    assert await store.kick(TOPIC, 2) == 2
    assert sorted(await _pending(store)) == sorted([job_ids[2], job_ids[0]])
    assert await store.kick(TOPIC, MAX_BATCH) == 2
    record = await get_job(store, job_ids[1])
    assert (record.state, record.attempt, record.run_at, record.kicks) == (State.PENDING, 0, clock.now(), 1)
    assert (await get_job(store, delayed)).run_at > clock.now()
    assert await store.check() == []


async def test_kick_makes_delayed_jobs_due(store: Store, clock: FrozenClock) -> None:
    """Only without failed ones: those due next first. One that is retried keeps its attempts."""
    retrying = await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Retried(30, BOOM))
    late, soon = await enqueue_one(store, delay=60), await enqueue_one(store, delay=10)
    assert await store.kick(TOPIC, 2) == 2
    assert await store.kick(TOPIC, 0) == 0
    records = [await get_job(store, one) for one in (soon, retrying, late)]
    assert [(one.run_at <= clock.now(), one.kicks) for one in records] == [(True, 1), (True, 1), (False, 0)]
    assert records[1].attempt == 1
    assert await _pending(store) == [retrying, soon]
    assert await store.kick(TOPIC, 5) == 1
    assert await store.kick(TOPIC, 5) == 0
    assert await store.kick("nowhere", 5) == 0


async def test_kick_leaves_delayed_jobs_alone_when_told_so(store: Store) -> None:
    """For whoever brings back more than a batch: after the last failed job there is nothing."""
    await make_failed(store)
    delayed = await enqueue_one(store, delay=60)
    assert [await store.kick(TOPIC, 5, failed_only=True) for _ in range(2)] == [1, 0]
    assert (await get_job(store, delayed)).kicks == 0
    assert await store.kick(TOPIC, 5) == 1


async def test_jobs_that_failed_at_once_are_kicked_in_their_order(store: Store) -> None:
    """By number, as everywhere."""
    job_ids = await enqueue_many(store, 3)
    for claimed in reversed(await claim_jobs(store)):
        await settle_one(store, claimed.lease, Failed(BOOM))
    assert await store.kick(TOPIC, 1) == 1
    assert await _pending(store) == job_ids[:1]


async def test_kick_passes_over_what_is_due_cancelled_or_elsewhere(store: Store, clock: FrozenClock) -> None:
    """A delayed job whose time has come is not delayed any more, whoever has noticed."""
    await make_cancelled(store)
    await enqueue_one(store)
    due = await enqueue_one(store, delay=5)
    await enqueue_one(store, "other", delay=60)
    await make_failed(store, "other")
    clock.advance(5)
    assert await store.kick(TOPIC, 5) == 0
    assert await store.kick_jobs([due]) == [ActionResult.WRONG_STATE]
    assert (await get_job(store, due)).kicks == 0


async def test_kick_passes_over_a_job_whose_key_is_taken(store: Store, clock: FrozenClock) -> None:
    """By a job that waits, or by one that is kicked before it. The next one is kicked instead."""
    held: dict[str, Any] = {"key": "k", "key_until": KeyLifetime.FINISHED}
    first = await make_failed(store, **held)
    clock.advance(1)
    second = await make_failed(store, **held)
    clock.advance(1)
    third = await make_failed(store, key="other")
    rival = await enqueue_one(store, "other", task="t", **held)
    assert await store.kick(TOPIC, 2) == 2
    assert [(await get_job(store, one)).state for one in (first, second, third)] == [
        State.PENDING,
        State.FAILED,
        State.PENDING,
    ]
    assert await store.kick_jobs([second]) == [ActionResult.KEY_TAKEN]
    assert await store.kick(TOPIC, 2) == 0
    delayed = await enqueue_one(store, delay=60)
    assert await store.kick(TOPIC, 2) == 1, "nothing that failed can come back"
    assert (await get_job(store, delayed)).run_at == clock.now()
    assert (await get_job(store, rival)).kicks == 0
    assert await store.check() == []


async def test_kick_jobs_judges_each(store: Store) -> None:
    """Failed and delayed ones are brought back; the same one twice is due the second time."""
    bad, done, gone = await make_failed(store), await make_completed(store), await make_cancelled(store)
    running = await enqueue_one(store, priority=1)
    await claim_one(store)
    due, delayed = await enqueue_one(store), await enqueue_one(store, delay=60)
    assert await store.kick_jobs([bad, delayed, delayed, due, done, gone, running, new_id()]) == [
        ActionResult.DONE,
        ActionResult.DONE,
        *[ActionResult.WRONG_STATE] * 5,
        ActionResult.NOT_FOUND,
    ]
    assert await store.kick_jobs([]) == []
    assert sorted(await _pending(store)) == sorted([bad, due, delayed])
    assert await store.check() == []


async def test_a_kick_wakes_those_who_wait(store: Store) -> None:
    """Whichever kick it is, and whatever it brings back."""
    for _ in range(2):
        job_ids = [await make_failed(store), await enqueue_one(store, delay=60)]
        async with store.wakeups(topics=[TOPIC]) as mail:
            assert await store.kick(TOPIC, 1) == 1
            assert await mail.wait(HINT_TIMEOUT_SECONDS)
        async with store.wakeups(topics=[TOPIC]) as mail:
            assert await store.kick_jobs(job_ids[1:]) == [ActionResult.DONE]
            assert await mail.wait(HINT_TIMEOUT_SECONDS)
        await store.delete(job_ids)


async def test_two_kicks_at_once_bring_back_different_jobs(store: Store) -> None:
    """What they say adds up, and no job is kicked twice: failed ones here, delayed ones there."""
    failures, later = await enqueue_many(store, 20), await enqueue_many(store, 20, "other", delay=60)
    for claimed in await claim_jobs(store):
        await settle_one(store, claimed.lease, Failed(BOOM))
    other = store.sibling()
    await other.open()
    try:
        for topic, job_ids in ((TOPIC, failures), ("other", later)):
            kicked = await asyncio.gather(*[one.kick(topic, 4) for one in (store, other) for _ in range(2)])
            records = [await get_job(store, one) for one in job_ids]
            assert sum(kicked) == sum(record.kicks for record in records) == 16
            assert max(record.kicks for record in records) == 1
            assert await store.kick(topic, MAX_BATCH) == 4
            assert ids(await claim_jobs(store, topic)) == job_ids
        assert await store.check() == []
    finally:
        await other.close()


async def test_batches_have_a_limit(store: Store) -> None:
    """As everywhere: so many, and then several calls."""
    with pytest.raises(LimitExceeded):
        await store.kick(TOPIC, MAX_BATCH + 1)
    with pytest.raises(LimitExceeded):
        await store.job_ids(range(MAX_BATCH + 1))


# -- peeks --------------------------------------------------------------------------------------------------


async def test_peek_shows_what_would_come_first(store: Store) -> None:
    """Of each kind the first, whatever its task, with its body; nothing is granted."""
    await enqueue_one(store, task="a")
    best = await enqueue_one(store, task="b", priority=2, payload=b"[2]")
    await enqueue_one(store, priority=2)
    await enqueue_one(store, delay=60)
    soon = await enqueue_one(store, task="z", delay=30)
    await enqueue_one(store, "other", priority=9)
    record = await store.peek(TOPIC, TopicHead.READY)
    assert record == await get_job(store, best)
    assert record.payload == b"[2]"
    delayed = await store.peek(TOPIC, TopicHead.DELAYED)
    assert delayed is not None
    assert delayed.id == soon
    assert await store.peek(TOPIC, TopicHead.FAILED) is None
    assert (await claim_one(store)).lease.job_id == best
    assert [await store.peek("nowhere", head) for head in TopicHead] == [None] * 3


async def test_peek_shows_what_failed_first(store: Store, clock: FrozenClock) -> None:
    """What a kick would bring back."""
    job_ids = await enqueue_many(store, 3)
    await _fail_one_after_another(store, clock, [job_ids[1], job_ids[2], job_ids[0]])
    await make_cancelled(store)
    for expected in (job_ids[1], job_ids[2], job_ids[0]):
        record = await store.peek(TOPIC, TopicHead.FAILED)
        assert record is not None
        assert record.id == expected
        assert await store.kick(TOPIC, 1) == 1
    assert await store.peek(TOPIC, TopicHead.FAILED) is None


async def test_peek_sees_what_a_claim_would_find(store: Store, clock: FrozenClock) -> None:
    """Ended leases are over, due jobs are due, expired ones are gone; a pause hides nothing."""
    orphan = await enqueue_one(store, priority=1)
    await claim_one(store, lease_seconds=10)
    late = await enqueue_one(store, delay=5)
    await enqueue_one(store, priority=5, expires_in=5)
    clock.advance(10)
    await store.pause(TOPIC, FOREVER)
    record = await store.peek(TOPIC, TopicHead.READY)
    assert record is not None
    assert (record.id, record.timeouts) == (orphan, 1)
    assert await store.peek(TOPIC, TopicHead.DELAYED) is None
    await store.delete([orphan])
    record = await store.peek(TOPIC, TopicHead.READY)
    assert record is not None
    assert record.id == late


async def test_peek_shows_a_job_that_failed_with_its_lease(store: Store, clock: FrozenClock) -> None:
    """Nobody has to notice first."""
    job_id = await enqueue_one(store, max_attempts=1)
    await claim_one(store, lease_seconds=10)
    clock.advance(10)
    record = await store.peek(TOPIC, TopicHead.FAILED)
    assert record is not None
    assert (record.id, record.state) == (job_id, State.FAILED)


# -- depths -------------------------------------------------------------------------------------------------


async def test_depths_tell_what_is_unfinished(store: Store, clock: FrozenClock) -> None:
    """By topic, in their order; delayed ones whose time has come are ready, whoever has noticed."""
    await enqueue_many(store, 2, priority=URGENT_ABOVE + 1)
    await enqueue_many(store, 3, task="t", priority=URGENT_ABOVE)
    await enqueue_one(store, delay=5)
    await enqueue_one(store, delay=60)
    await enqueue_one(store, delay=5, priority=-5000)
    await make_failed(store, "other")
    await make_completed(store, "other")
    await make_cancelled(store, "other")
    await enqueue_many(store, 2, "other")
    await claim_one(store, "other")
    await store.pause("paused", FOREVER)
    clock.advance(5)
    mail = TopicDepth(TOPIC, ready=7, delayed=1, urgent=3)
    other = TopicDepth("other", ready=1, running=1, failed=1, urgent=1)
    paused = TopicDepth("paused", paused_until=FOREVER)
    assert await store.topic_depths() == [mail, other, paused]
    assert await store.topic_depths(["paused", "nowhere", "other"]) == [paused, TopicDepth("nowhere"), other]
    assert await store.topic_depths([]) == []
    await claim_jobs(store, limit=1)
    [mail] = await store.topic_depths([TOPIC])
    assert (mail.ready, mail.running, mail.urgent) == (6, 1, 2)


async def test_depths_count_urgent_jobs_among_others(store: Store) -> None:
    """In one task as across several."""
    for priority in (-5000, 0, URGENT_ABOVE, URGENT_ABOVE + 1, 7):
        await enqueue_one(store, priority=priority)
    await enqueue_many(store, 2, task="calm", priority=-2000)
    assert await store.topic_depths() == [TopicDepth(TOPIC, ready=7, urgent=3)]
