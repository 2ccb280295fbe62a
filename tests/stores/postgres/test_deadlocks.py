"""Whoever locks several rows does it in one order, so that nobody ever waits in a circle."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.servers import PostgresServer
from tests.stores.postgres.server_log import Complaints
from tests.stores.postgres.stores import opened, raw, waited_for
from tidewheel.core.model import (
    ActionResult,
    Completed,
    Failed,
    FailureOrigin,
    KeyLifetime,
    OnDuplicate,
    Released,
    Settlement,
    TopicHead,
)
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import BOOM, claim_jobs, enqueue_many, job

SECONDS = 0.5
ROUNDS = 5


@pytest.fixture
async def silence(postgres: PostgresServer) -> AsyncIterator[None]:
    """Nothing the test does makes the server complain, least of all of deadlocks."""
    complaints = await Complaints.of(postgres)
    yield
    assert complaints.heard() == []


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    async with opened(*[postgres_url] * 4) as stores:
        yield stores


async def at_once(*verbs: Callable[[], Awaitable[Any]], seconds: float = SECONDS) -> None:
    """Do each of these over and over, all at the same time: for so long, and on a busy machine some times."""
    end = time.monotonic() + seconds

    async def repeat(verb: Callable[[], Awaitable[Any]]) -> None:
        rounds = 0
        while time.monotonic() < end or rounds < ROUNDS:
            await verb()
            rounds += 1

    async with asyncio.TaskGroup() as group:
        for verb in verbs:
            group.create_task(repeat(verb))


@pytest.mark.usefixtures("silence")
async def test_batches_of_cancels_and_requeues_in_any_order_do_not_deadlock(
    stores: list[PostgresStore],
) -> None:
    """Two operators who select the same jobs in different orders do not get in each other's way."""
    ids = await enqueue_many(stores[0], 20)
    shuffles = [random.Random(seed).sample(ids, len(ids)) for seed in range(4)]
    await at_once(
        lambda: stores[0].cancel(shuffles[0]),
        lambda: stores[1].cancel(shuffles[1]),
        lambda: stores[2].requeue(shuffles[2]),
        lambda: stores[3].requeue(shuffles[3]),
    )
    assert await stores[0].check() == []


@pytest.mark.usefixtures("silence")
async def test_verdicts_of_jobs_that_move_are_never_not_found(stores: list[PostgresStore]) -> None:
    """A job that is moving between its tables is there for everybody who asks."""
    ids = await enqueue_many(stores[0], 3)
    seen: set[ActionResult] = set()

    async def collect(call: Awaitable[list[ActionResult]]) -> None:
        seen.update(await call)

    async def settle_one() -> None:
        leases = [claimed.lease for claimed in await claim_jobs(stores[1])]
        if leases:
            await stores[1].settle([Settlement(lease, Released(), None) for lease in leases])

    await at_once(
        lambda: collect(stores[0].cancel(ids)),
        lambda: collect(stores[1].requeue(ids)),
        lambda: collect(stores[2].cancel(ids)),
        lambda: collect(stores[3].requeue(ids)),
        settle_one,
    )
    assert ActionResult.NOT_FOUND not in seen
    assert {ActionResult.DONE, ActionResult.WRONG_STATE} <= seen


@pytest.mark.usefixtures("silence")
async def test_deleting_in_any_order_does_not_deadlock(stores: list[PostgresStore]) -> None:
    """Every job is deleted by exactly one of those who try."""
    for _ in range(10):
        ids = await enqueue_many(stores[0], 20, payload=b'"%s"' % (b"x" * 1500))
        await stores[0].cancel(ids[::2])
        shuffles = [random.sample(ids, len(ids)) for _ in stores]
        verdicts = await asyncio.gather(
            *(store.delete(order) for store, order in zip(stores, shuffles, strict=True))
        )
        done = [verdict for answers in verdicts for verdict in answers].count(ActionResult.DONE)
        assert done == 20
    assert await stores[0].check() == []


@pytest.mark.usefixtures("silence")
async def test_a_mixed_settlement_does_not_deadlock_with_the_keeper(stores: list[PostgresStore]) -> None:
    """Completed, retried and released jobs in one batch, while all of them are extended and reported on."""
    await enqueue_many(stores[0], 100, max_attempts=None)
    held = [claimed.lease for claimed in await claim_jobs(stores[0])]

    async def settle() -> None:
        nonlocal held
        some = [
            Settlement(lease, Completed(b"1") if number < 10 else Released(), 0.001)
            for number, lease in enumerate(sorted(held[:40], key=lambda lease: lease.job_id, reverse=True))
        ]
        await enqueue_many(
            stores[0], sum(isinstance(one.outcome, Completed) for one in some), max_attempts=None
        )
        await stores[0].settle(some)
        held = held[40:] + [claimed.lease for claimed in await claim_jobs(stores[0])]

    await at_once(
        settle,
        lambda: stores[1].extend(held, 60.0),
        lambda: stores[2].mark_started(held),
        lambda: stores[3].cancel_requests(held),
        lambda: stores[1].extend(held[::-1], 60.0),
    )
    assert await stores[0].check() == []


@pytest.mark.usefixtures("silence")
async def test_enqueues_with_the_same_keys_in_any_order_do_not_deadlock(stores: list[PostgresStore]) -> None:
    """Two importers that meet each other's keys: one of them writes each job."""
    written = 0

    async def enqueue(store: PostgresStore, turn: int) -> None:
        nonlocal written
        keys = [f"key-{turn}-{number}" for number in range(20)]
        random.shuffle(keys)
        answers = await store.enqueue([job(key=key) for key in keys])
        written += sum(not answer.duplicate for answer in answers)

    for turn in range(12):
        await asyncio.gather(*(enqueue(store, turn) for store in stores))
    assert written == 12 * 20
    assert await stores[0].check() == []


@pytest.mark.usefixtures("silence")
async def test_replacements_in_any_order_do_not_deadlock(stores: list[PostgresStore]) -> None:
    """Debouncing the same keys from everywhere, while an operator cancels and requeues what holds them."""
    keys = [f"key-{number}" for number in range(20)]
    answers = await stores[0].enqueue([job(key=key, delay=60.0) for key in keys])
    ids = [answer.job_id for answer in answers]

    async def replace(store: PostgresStore) -> None:
        random.shuffle(keys)
        await store.enqueue(
            [
                job(
                    key=key,
                    on_duplicate=OnDuplicate.REPLACE,
                    delay=60.0,
                    payload=b"1" * random.choice((1, 2000)),
                )
                for key in keys
            ]
        )

    await at_once(
        lambda: replace(stores[0]),
        lambda: replace(stores[1]),
        lambda: replace(stores[2]),
        lambda: stores[3].cancel(random.sample(ids, 20)),
        lambda: stores[2].requeue(random.sample(ids, 20)),
    )
    assert await stores[0].check() == []


async def test_requeues_and_enqueues_of_the_same_keys_all_succeed(stores: list[PostgresStore]) -> None:
    """Keys that are let go of all the time, wanted by new jobs and by old ones at once.

    Somebody who finds a key free after having taken others may wait in a circle; the server then ends one of
    the statements, which is done again without anybody noticing.
    """
    keys = [f"key-{number}" for number in range(12)]
    everything: list[Any] = []

    async def enqueue(store: PostgresStore) -> None:
        random.shuffle(keys)
        answers = await store.enqueue([job(key=key, key_until=KeyLifetime.FINISHED) for key in keys])
        everything.extend(answer.job_id for answer in answers if not answer.duplicate)

    async def requeue(store: PostgresStore) -> None:
        await store.requeue(random.sample(everything, min(len(everything), 24)))

    async def cancel(store: PostgresStore) -> None:
        await store.cancel(random.sample(everything, min(len(everything), 24)))

    await at_once(
        lambda: enqueue(stores[0]),
        lambda: enqueue(stores[1]),
        lambda: requeue(stores[2]),
        lambda: requeue(stores[3]),
        lambda: cancel(stores[0]),
        lambda: cancel(stores[2]),
    )
    assert await stores[0].check() == []


@pytest.mark.usefixtures("silence")
async def test_pulling_by_hand_does_not_deadlock(stores: list[PostgresStore]) -> None:
    """Kicks and grants of the same jobs, while others claim, bury, release and kick them: each grant is of a
    lease of its own, and what was kicked adds up.
    """
    ids = await enqueue_many(stores[0], 30, max_attempts=None)
    kicked: list[int] = []
    granted: list[int] = []

    async def pull(store: PostgresStore, worker: str) -> None:
        claimed = await claim_jobs(store, limit=5, worker=worker)
        if (one := await store.claim_job(random.choice(ids), worker=worker, lease_seconds=60)) is not None:
            claimed.append(one)
        granted.append(len(claimed))
        outcomes = (Failed(BOOM, FailureOrigin.BURIED), Failed(BOOM), Released(60.0), Released())
        ends = [Settlement(one.lease, random.choice(outcomes)) for one in claimed]
        assert all(await store.settle(ends)), "nobody else was given the same job"

    async def kick(store: PostgresStore) -> None:
        kicked.append(await store.kick("mail", 5))
        verdicts = await store.kick_jobs(random.sample(ids, 20))
        kicked.append(verdicts.count(ActionResult.DONE))
        assert ActionResult.NOT_FOUND not in verdicts

    await at_once(
        lambda: pull(stores[0], "a"),
        lambda: pull(stores[1], "b"),
        lambda: kick(stores[2]),
        lambda: kick(stores[3]),
        lambda: stores[2].peek("mail", TopicHead.READY),
        stores[3].topic_depths,
    )
    records = [await stores[0].get(job_id) for job_id in ids]
    assert sum(record.kicks for record in records if record is not None) == sum(kicked) > 0
    assert sum(record.reserves for record in records if record is not None) == sum(granted) > 0
    assert await stores[0].check() == []


@pytest.mark.usefixtures("silence")
async def test_adding_up_counters_does_not_deadlock_with_pruning(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Counters of topics that come and go, dropped by one while another adds to them."""
    topics = [f"topic-{number}" for number in range(40)]

    async def come_and_go(store: PostgresStore) -> None:
        random.shuffle(topics)
        answers = await store.enqueue([job(topic, retention=0.0) for topic in topics])
        await store.delete([answer.job_id for answer in answers])

    async def fold() -> None:
        async with raw(postgres_url) as connection:
            for _ in range(20):
                await connection.fetchval("SELECT roll_up_counters()")

    await at_once(
        lambda: come_and_go(stores[0]),
        lambda: come_and_go(stores[1]),
        fold,
        stores[2].prune,
        stores[3].prune,
        stores[2].prune,
    )
    assert await stores[0].check() == []


async def test_who_waits_for_a_pack_holds_no_job(stores: list[PostgresStore], postgres_url: str) -> None:
    """A cancel of one job that runs by itself and one that runs in a pack: a worker that settles others of
    that pack has it locked, and wants the first.
    """
    await enqueue_many(stores[0], 2, "alone")
    [first, _] = await claim_jobs(stores[0], "alone")
    stores[0]._claimer.min_leased_batch = 1
    await enqueue_many(stores[0], 2, "packed")
    [packed, _] = await claim_jobs(stores[0], "packed")
    async with raw(postgres_url) as worker, worker.transaction():
        await worker.execute("SELECT FROM leased_batches FOR UPDATE")
        cancelling = asyncio.create_task(stores[1].cancel([first.lease.job_id, packed.lease.job_id]))
        await waited_for(worker)
        await worker.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE NOWAIT", first.lease.job_id)
    assert await cancelling == [ActionResult.REQUESTED] * 2


@pytest.mark.parametrize("verb", ["delete", "cancel", "settle"])
async def test_who_waits_for_a_job_has_not_let_go_of_a_key(
    stores: list[PostgresStore], postgres_url: str, verb: str
) -> None:
    """Whoever has the job may be waiting for that key, to bring back another that had it."""
    new = [job(key=f"key-{number}", key_until=KeyLifetime.FINISHED, max_attempts=1) for number in range(20)]
    await stores[0].enqueue(new)
    ids = sorted(one.id for one in new)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "delete": lambda: stores[1].delete(ids),
        "cancel": lambda: stores[1].cancel(ids),
    }
    if verb == "settle":
        ends = [Settlement(one.lease, Failed(BOOM), 0.001) for one in await claim_jobs(stores[0])]
        calls[verb] = lambda: stores[1].settle(ends)
    [key] = [one.key for one in new if one.id == ids[0]]
    async with raw(postgres_url) as operator, operator.transaction():
        await operator.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", ids[-1])
        ending = asyncio.ensure_future(calls[verb]())
        await waited_for(operator)
        await operator.execute("SET LOCAL lock_timeout = '500ms'")
        taken = await operator.execute(
            "INSERT INTO job_keys SELECT * FROM job_keys WHERE key = $1 ON CONFLICT DO NOTHING", key
        )
        assert taken == "INSERT 0 0"
    assert await ending == [True if verb == "settle" else ActionResult.DONE] * 20
    async with raw(postgres_url) as operator:
        assert await operator.fetchval("SELECT count(*) FROM job_keys") == 0
