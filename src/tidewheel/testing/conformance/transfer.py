"""Jobs that change stores: read whole, written as they are, and going on as if nothing had happened."""

from __future__ import annotations

import pytest
from msgspec import structs

from tidewheel.core.full_job import FullJob, canonical_bytes
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    ActionResult,
    BodyFormat,
    Completed,
    Failed,
    FailureOrigin,
    JobFilter,
    KeyLifetime,
    Lease,
    NewStep,
    Progress,
    Relative,
    Released,
    Report,
    Retried,
    State,
)
from tidewheel.errors import WrongState
from tidewheel.stores.bounds import MAX_BATCH, MAX_EXPORT_BYTES
from tidewheel.stores.memory import MemoryStore
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    TOPIC,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    get_state,
    ids,
    job,
    make_completed,
    settle_one,
)


async def _every_kind(store: Store, clock: FrozenClock) -> None:
    """Jobs in every state, with everything that can belong to one."""
    common = {
        "task": "send",
        "tenant": "acme",
        "timeout": 12.345678,
        "retry": '{"kind":"fixed"}',
        "correlation_id": "c",
        "user_id": "u",
        "service_id": "s",
        "headers": "00-t",
        "retention": 3600.0,
        "retention_failed": 7200.5,
        "lease_seconds": 33.3,
    }
    await enqueue_one(store, "done", key="done", **common)
    one = await claim_one(store, "done")
    await store.mark_started([one.lease])
    step = NewStep("fetch", b"[1]", 0.25)
    await store.report([Report(one.lease, Progress(40.0, "half", "a"), b'{"at":1}', step)])
    await store.report([Report(one.lease, step=NewStep("build", b"2", 0.25))])
    clock.advance(1.5)
    assert await settle_one(store, one.lease, Completed('{"ok":"ü\\u0000"}'.encode()), 1.0)
    await enqueue_one(store, "done", key="done again", key_until=KeyLifetime.FINISHED)
    assert await settle_one(store, (await claim_one(store, "done")).lease, Completed())
    await enqueue_one(store, "bad", max_attempts=30, key="bad", key_until=KeyLifetime.FINISHED, **common)
    for _ in range(23):
        assert await settle_one(store, (await claim_one(store, "bad")).lease, Retried(0.0, BOOM), 0.5)
    assert await settle_one(store, (await claim_one(store, "bad")).lease, Failed(BOOM), 0.5)
    await enqueue_one(store, "bad", retention_failed=60.0, priority=-5)
    buried = Failed(BOOM, FailureOrigin.BURIED, 9)
    assert await settle_one(store, (await claim_one(store, "bad")).lease, buried)
    gone = await enqueue_one(store, "gone", expires_in=30.0, retention=60.0)
    await store.cancel([gone])
    await enqueue_one(store, "late", expires_in=60.0)
    await enqueue_one(
        store, "later", run_at=clock.now() + 90_000_000, key="later", payload=b"[" + b"1," * 900 + b"1]"
    )
    await enqueue_one(store, "again", format=BodyFormat.BYTES, payload=b"\x00\xff")
    assert await settle_one(store, (await claim_one(store, "again")).lease, Retried(20.0, BOOM), 0.1)
    await enqueue_one(store, "back", priority=7)
    assert await settle_one(store, (await claim_one(store, "back")).lease, Released(0.0, 8))
    await enqueue_many(store, 5, "running", retention=5.0)
    held = await claim_jobs(store, "running", limit=3)
    await store.mark_started([held[0].lease])
    await store.report([Report(held[1].lease, Progress(10.0))])
    await store.touch([held[1].lease], 60.0)
    await store.cancel([held[2].lease.job_id])
    await enqueue_one(store, "running", max_attempts=None, payload=b"x" * 5000, format=BodyFormat.BYTES)
    await enqueue_one(store, "suspect", max_attempts=4)
    await enqueue_one(store, "suspect", max_attempts=4)
    await claim_jobs(store, "suspect", lease_seconds=2.0)
    clock.advance(3)
    await store.rescue()
    parent = await enqueue_one(store, "family", retention=60.0)
    over = await enqueue_one(store, "family-over", retention=60.0)
    assert await settle_one(store, (await claim_one(store, "family-over")).lease, Completed())
    child = await enqueue_one(store, "family-child", after=(over, parent), delay=5.0)
    await enqueue_one(store, "family-child", after=(child,), after_any=True)
    failed = await enqueue_one(store, "kicked")
    assert await settle_one(store, (await claim_one(store, "kicked")).lease, Failed(BOOM))
    assert await store.requeue([failed]) == [ActionResult.DONE]


async def _all(store: Store, limit: int = MAX_BATCH) -> list[FullJob]:
    jobs: list[FullJob] = []
    while page := await store.export_jobs(limit=limit, before=jobs[-1].record.number if jobs else None):
        jobs += page
    return jobs


async def _target_store(clock: FrozenClock) -> MemoryStore:
    other = MemoryStore(clock=clock)
    await other.open()
    return other


async def test_jobs_of_every_kind_come_to_another_store_as_they_are(store: Store, clock: FrozenClock) -> None:
    """Nothing is lost of what a store tells of them, whichever store that is."""
    await _every_kind(store, clock)
    jobs = await _all(store)
    other = await _target_store(clock)
    assert await other.import_jobs(jobs) == [True] * len(jobs)
    assert await _all(other) == jobs
    assert list(map(canonical_bytes, await _all(other))) == list(map(canonical_bytes, jobs))
    for whole in jobs:
        assert await other.get(whole.record.id) == await store.get(whole.record.id)
    assert await other.check() == []


async def test_jobs_of_every_kind_come_from_another_store_as_they_are(
    store: Store, clock: FrozenClock
) -> None:
    """The same in the other direction; and the store's own check finds nothing amiss."""
    other = await _target_store(clock)
    await _every_kind(other, clock)
    jobs = await _all(other)
    assert {whole.record.state for whole in jobs} == set(State)
    assert await store.import_jobs(jobs) == [True] * len(jobs)
    assert await _all(store) == jobs
    for whole in jobs:
        assert await store.get(whole.record.id) == await other.get(whole.record.id)
    assert await store.check() == []


async def test_what_is_there_already_is_left_alone(store: Store, clock: FrozenClock) -> None:
    """Placing again what was placed before, in part or after it went on, changes nothing."""
    other = await _target_store(clock)
    await enqueue_many(other, 3)
    jobs = await _all(other)
    assert await store.import_jobs(jobs[:2]) == [True, True]
    [ran, _] = await claim_jobs(store)
    assert await settle_one(store, ran.lease, Completed(b"1"))
    assert await store.import_jobs([*jobs, *jobs]) == [False, False, True, False, False, False]
    assert await get_state(store, ran.lease.job_id) is State.COMPLETED
    assert (await store.count(JobFilter())).total == 3
    assert await store.import_jobs([]) == []
    assert await store.check() == []


async def test_numbers_and_fences_go_on_above_those_that_were_placed(
    store: Store, clock: FrozenClock
) -> None:
    """A new job is the newest, and no lease of old is ever given out again."""
    other = await _target_store(clock)
    await enqueue_many(other, 1000)
    for claimed in await claim_jobs(other):
        await settle_one(other, claimed.lease, Released())
    jobs = await _all(other)
    await store.import_jobs(jobs)
    [answer] = await store.enqueue([job()])
    assert answer.number > max(whole.record.number for whole in jobs)
    fences = [claimed.lease.fence for claimed in await claim_jobs(store, limit=200)]
    assert min(fences) > max(whole.record.fence for whole in jobs)
    assert await store.check() == []


async def test_a_job_whose_number_is_taken_is_refused_and_nothing_written(
    store: Store, clock: FrozenClock
) -> None:
    """Two jobs of one number would be one to whoever asks by number."""
    other = await _target_store(clock)
    await enqueue_many(other, 2)
    [second, first] = await _all(other)
    mine = structs.replace(first, record=structs.replace(first.record, id=new_id()))
    await store.import_jobs([mine])
    with pytest.raises(WrongState, match=r"number 1, which here is that of job"):
        await store.import_jobs([second, first])
    assert [whole.record.id for whole in await _all(store)] == [mine.record.id]
    assert await store.check() == []


async def test_a_job_whose_key_is_held_is_refused_and_nothing_written(
    store: Store, clock: FrozenClock
) -> None:
    """One key, one job, also for those that come from elsewhere; a key that was let go holds nobody up."""
    other = await _target_store(clock)
    await enqueue_one(other, key="a")
    await enqueue_one(other, "let go", key="b", key_until=KeyLifetime.FINISHED)
    await settle_one(other, (await claim_one(other, "let go")).lease, Completed())
    await enqueue_many(store, 2)  # takes two numbers
    mine = await enqueue_one(store, key="a")
    theirs = await enqueue_one(store, "let go", key="b")
    jobs = [_numbered(whole, 10 + place) for place, whole in enumerate(await _all(other))]
    with pytest.raises(WrongState, match=f"key 'a', which here is held by job {mine}"):
        await store.import_jobs(jobs)
    assert await store.import_jobs(jobs[:1]) == [True]
    [duplicate] = await store.enqueue([job("let go", key="b")])
    assert duplicate.job_id == theirs
    assert await store.check() == []


def _numbered(full_job: FullJob, number: int) -> FullJob:
    return structs.replace(full_job, record=structs.replace(full_job.record, number=number))


async def test_placed_jobs_run_in_their_old_order(store: Store, clock: FrozenClock) -> None:
    """By priority, then by number, however they were placed; delayed ones once they are due."""
    other = await _target_store(clock)
    first = await enqueue_one(other, "x")
    urgent = await enqueue_one(other, "x", priority=5)
    last = await enqueue_one(other, "x")
    delayed = await enqueue_one(other, "x", delay=10.0, priority=9)
    for whole in await _all(other):  # the newest first
        await store.import_jobs([whole])
    assert ids(await claim_jobs(store, "x")) == [urgent, first, last]
    clock.advance(10)
    assert ids(await claim_jobs(store, "x")) == [delayed]


async def test_a_running_job_keeps_its_lease_and_is_rescued_when_that_ends(
    store: Store, clock: FrozenClock
) -> None:
    """Whoever holds the lease may settle it in the new place; one that stayed behind is lost."""
    other = await _target_store(clock)
    await enqueue_many(other, 3)
    held = [await claim_one(other, lease_seconds=60.0) for _ in range(3)]
    await other.mark_started([one.lease for one in held])
    await other.report([Report(held[0].lease, checkpoint=b"1", step=NewStep("a", b"2", 0.1))])
    await store.import_jobs(await _all(other))
    assert await claim_jobs(store) == []
    assert [step.name for step in await store.finished_steps(held[0].lease) or ()] == ["a"]
    assert not await settle_one(store, Lease(held[0].lease.job_id, held[0].lease.fence + 1), Completed())
    assert await settle_one(store, held[0].lease, Completed(b"1"), 0.1)
    clock.advance(30)
    assert await store.extend([held[1].lease], 60.0) == [True]
    clock.advance(31)
    [again] = await claim_jobs(store)
    assert (again.lease.job_id, again.attempt) == (held[2].lease.job_id, 2)
    assert (await get_job(store, again.lease.job_id)).attempts[0].error.code == "worker_lost"
    assert await store.check() == []


async def test_finished_jobs_go_on_to_be_kept_pruned_kicked_and_requeued(
    store: Store, clock: FrozenClock
) -> None:
    """Retention counts from when they ended; buried ones stay; errors of a requeued one are kept on."""
    other = await _target_store(clock)
    done = await enqueue_one(other, retention=60.0, key="k")
    await settle_one(other, (await claim_one(other)).lease, Completed(b"1"))
    buried = await enqueue_one(other, "b", retention_failed=60.0)
    await settle_one(other, (await claim_one(other, "b")).lease, Failed(BOOM, FailureOrigin.BURIED))
    bad = await enqueue_one(other, "f", retention_failed=6000.0, max_attempts=3)
    await settle_one(other, (await claim_one(other, "f")).lease, Failed(BOOM))
    clock.advance(50)
    await store.import_jobs(await _all(other))
    [duplicate] = await store.enqueue([job(key="k")])
    assert (duplicate.job_id, duplicate.duplicate) == (done, True)
    assert await store.prune() == {}
    clock.advance(11)
    assert await store.prune() == {State.COMPLETED: 1}
    assert not (await store.enqueue([job(key="k")]))[0].duplicate
    assert await store.kick("b", 10) == 1
    assert await get_state(store, buried) is State.PENDING
    assert await store.requeue([bad]) == [ActionResult.DONE]
    await settle_one(store, (await claim_one(store, "f")).lease, Retried(0.0, BOOM))
    assert len((await get_job(store, bad)).attempts) == 2
    assert await store.check() == []


async def test_placed_jobs_are_counted_but_nothing_has_happened(store: Store, clock: FrozenClock) -> None:
    """Statistics tell how many there are; rates and times tell what was done here."""
    other = await _target_store(clock)
    await enqueue_many(other, 2)
    await settle_one(other, (await claim_one(other)).lease, Completed(), 1.0)
    await store.import_jobs(await _all(other))
    stats = await store.stats(window_seconds=3600.0)
    assert (stats.pending, stats.completed) == (1, 1)
    assert (stats.run_time.count, sum(minute.enqueued + minute.completed for minute in stats.series)) == (
        0,
        0,
    )
    [topic] = await store.topics()
    assert (topic.topic, topic.pending, topic.completed) == (TOPIC, 1, 1)


async def test_whole_jobs_come_in_pages_newest_first_and_large_ones_in_smaller_pages(store: Store) -> None:
    """However they are cut, each job is met once; a job that is larger than a page is one."""
    large = MAX_EXPORT_BYTES // 2 - 1000
    sizes = [10, large, large, MAX_EXPORT_BYTES + 10, 10, 10]
    jobs = [job(format=BodyFormat.BYTES, payload=bytes(size)) for size in sizes]
    wanted = [answer.job_id for answer in await store.enqueue(jobs)][::-1]
    pages: list[list[FullJob]] = []
    before = None
    while page := await store.export_jobs(limit=3, before=before):
        pages.append(page)
        before = page[-1].record.number
    assert [[wanted.index(whole.record.id) for whole in page] for page in pages] == [[0, 1], [2], [3, 4, 5]]
    assert await store.export_jobs(limit=3, before=pages[-1][-1].record.number) == []


async def test_what_runs_have_saved_counts_for_the_size_of_a_page(store: Store) -> None:
    """Small payloads with large checkpoints and outputs of steps take as much memory as large payloads."""
    large = b'"%s"' % (b"x" * (MAX_EXPORT_BYTES // 3))
    await enqueue_many(store, 3)
    first, second, third = await claim_jobs(store, limit=3)
    await store.report([Report(first.lease, checkpoint=large, step=NewStep("a", large, 0.1))])
    await store.report([Report(second.lease, step=NewStep("a", large, 0.1))])
    await store.report([Report(third.lease, checkpoint=b"1")])
    assert len(await store.export_jobs(limit=3)) == 2
    [last] = await store.export_jobs(limit=3, before=second.number)
    assert last.record.id == first.lease.job_id


async def test_families_that_were_placed_go_on(store: Store, clock: FrozenClock) -> None:
    """In any order: a parent that ends here lets its children go, and stays as long as they do."""
    other = await _target_store(clock)
    parent = await enqueue_one(other, "family", retention=10.0)
    over = await make_completed(other, "family-over", retention=10.0)
    child = await enqueue_one(other, "family-child", after=(parent, over), retention=60.0)
    for whole in await _all(other):  # newest first: children before their parents
        await store.import_jobs([whole])
    assert await store.check() == []
    assert (await get_job(store, child)).blocked == 1
    assert await settle_one(store, (await claim_one(store, "family")).lease, Completed())
    clock.advance(20)
    assert await store.prune() == {}
    assert await settle_one(store, (await claim_one(store, "family-child")).lease, Completed())
    assert (await get_job(store, child)).after == (
        Relative(parent, State.COMPLETED),
        Relative(over, State.COMPLETED),
    )
    assert await store.check() == []


async def test_a_child_whose_parent_had_ended_untold_is_told_where_it_comes(
    store: Store, clock: FrozenClock
) -> None:
    """A copy made just then leaves nobody waiting."""
    other = await _target_store(clock)
    parent = await enqueue_one(other, "family")
    child = await enqueue_one(other, "family-child", after=(parent,))
    waiting, _ = await _all(other)
    assert await settle_one(other, (await claim_one(other, "family")).lease, Completed())
    [ended] = [whole for whole in await _all(other) if whole.record.id == parent]
    await store.import_jobs([waiting])
    await store.import_jobs([ended])
    await store.rescue()
    assert (await get_job(store, child)).blocked == 0
    assert await store.check() == []
