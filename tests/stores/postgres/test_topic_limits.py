"""Limits on PostgreSQL: many claimers at once never pass one, plans stay bounded, and nobody waits in a
circle.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.stores.postgres.stores import opened, raw, waited_for
from tidewheel.core.model import ClaimRequest, Completed, Lane, Settlement
from tidewheel.core.topic_limits import Rate, TopicLimits
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import (
    claim_from,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    job,
    settle_one,
)

CLAIMERS = 6


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    async with opened(*[postgres_url] * CLAIMERS) as stores:
        yield stores


async def test_claimers_at_once_never_pass_a_limit(stores: list[PostgresStore], postgres_url: str) -> None:
    """Each with connections of its own, while jobs end; looked at from outside, and every slot is used."""
    await stores[0].set_limits("mail", TopicLimits(concurrency=5, key_concurrency=2))
    await stores[0].set_limits("other", TopicLimits(concurrency=3))
    number = 240
    await stores[0].enqueue(
        [job("other" if one % 4 == 0 else "mail", task="t", limit_key=f"k{one % 5}") for one in range(number)]
    )
    done = 0
    most: Counter[tuple[str, str | None]] = Counter()

    async def work(store: PostgresStore) -> None:
        nonlocal done
        # In different orders: locks are taken in one.
        lanes = (Lane("mail", "t"), Lane("other", "t"))[:: 1 if store is stores[0] else -1]
        while done < number:
            jobs = (await store.claim(ClaimRequest("w", lanes, 4, 60.0))).jobs
            await asyncio.sleep(0)
            ended = await store.settle([Settlement(one.lease, Completed(), 0.0) for one in jobs])
            done += sum(ended)

    async def watch() -> None:
        async with raw(postgres_url) as connection:
            while done < number:
                rows = await connection.fetch(
                    "SELECT topic, limit_key, count(*) FROM jobs WHERE state = 2 "
                    "GROUP BY GROUPING SETS ((1), (1, 2))"
                )
                for topic, key, n in rows:
                    most[topic, key] = max(most[topic, key], n)

    async with asyncio.timeout(60):
        await asyncio.gather(watch(), *map(work, stores))
    assert most["mail", None] <= 5
    assert most["other", None] <= 3
    assert max(n for (topic, key), n in most.items() if topic == "mail" and key is not None) <= 2
    assert max(most.values()) >= 3, "nothing ran beside anything else: this test shows nothing"
    assert await stores[0].check() == []


async def test_claimers_at_once_never_pass_a_rate(stores: list[PostgresStore]) -> None:
    """Whoever comes second sees what the first one used."""
    await stores[0].set_limits("mail", TopicLimits(rate=Rate(1, 3600, 7)))
    await enqueue_many(stores[0], 40, "mail")
    granted = await asyncio.gather(*[claim_jobs(store, "mail", limit=3) for store in stores])
    assert sum(map(len, granted)) == 7


async def test_what_a_claim_granted_that_knew_nothing_of_a_new_limit_counts(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """It was under way when the limit was set, and wrote its grants a moment later."""
    first, second = await enqueue_many(stores[0], 2, "mail")
    async with raw(postgres_url) as claimer:
        async with claimer.transaction():
            await claimer.execute(
                "UPDATE jobs SET state = 2, attempt = 1, reserves = 1, fence = nextval('fences') * 64,"
                " store_handle = 1, worker = 'w', claimed_at = now_us(NULL),"
                " leased_until = now_us(NULL) + 60000000 WHERE id = $1",
                first,
            )
            await stores[0].set_limits("mail", TopicLimits(concurrency=1))
        assert await claim_jobs(stores[1], "mail") == []
        await claimer.execute("UPDATE jobs SET leased_until = 1 WHERE id = $1", first)
    assert [one.lease.job_id for one in await claim_jobs(stores[1], "mail")] == [first]
    assert (await get_job(stores[1], second)).reserves == 0


async def test_setting_a_limit_waits_for_no_running_job(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Whoever has it locked may wait for claimers of the topic; it counts from the next claim on."""
    [job_id, _] = await enqueue_many(stores[0], 2, "mail")
    await claim_jobs(stores[0], "mail", limit=1)
    async with raw(postgres_url) as other, other.transaction():
        await other.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", job_id)
        await other.execute("SELECT FROM leased_batches FOR UPDATE")
        await asyncio.wait_for(stores[1].set_limits("mail", TopicLimits(concurrency=1)), PATIENCE)
    assert await claim_jobs(stores[1], "mail") == []


async def test_a_pause_that_has_ended_leaves_nothing_for_claims_to_look_at(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Nor does it take a limit with it."""
    now = await stores[0].now()
    await stores[0].set_limits("limited", TopicLimits(concurrency=1))
    for topic, until in (("over", now - 1), ("limited", now - 1), ("paused", now + 60_000_000)):
        await stores[0].pause(topic, until)
    await stores[0].prune()
    async with raw(postgres_url) as connection:
        rows = await connection.fetch("SELECT topic FROM topics ORDER BY topic")
    assert [topic for (topic,) in rows] == ["limited", "paused"]


async def test_who_finds_nothing_due_waits_for_nobody(stores: list[PostgresStore], postgres_url: str) -> None:
    """The lock of a topic is taken for its jobs, not for its name."""
    await stores[0].set_limits("mail", TopicLimits(concurrency=1))
    plain = await enqueue_one(stores[0], "plain")
    async with _somebody_choosing(postgres_url):
        [claimed] = await asyncio.wait_for(claim_jobs(stores[1], "mail", "plain"), PATIENCE)
        assert claimed.lease.job_id == plain


@pytest.mark.parametrize("limits", [TopicLimits(concurrency=1), TopicLimits(rate=Rate(1, 60, 1))])
async def test_who_finds_no_room_waits_for_nobody(
    stores: list[PostgresStore], postgres_url: str, limits: TopicLimits
) -> None:
    """A hundred workers at a full topic would stand in line to learn that. A rate says when it has room."""
    await stores[0].set_limits("mail", limits)
    await enqueue_many(stores[0], 2, "mail")
    running = await claim_one(stores[0], "mail")
    async with _somebody_choosing(postgres_url) as chooser:
        answer = await asyncio.wait_for(claim_from(stores[1], "mail"), PATIENCE)
        assert answer.jobs == ()
        assert answer.next_due_in is not None
        assert 50 < answer.next_due_in <= 60
        await settle_one(stores[0], running.lease, Completed())
        if limits.rate is None:
            claiming = asyncio.create_task(claim_one(stores[1], "mail"))
            await waited_for(chooser)  # there is room now, and somebody who may be taking it
    if limits.rate is None:
        assert (await claiming).topic == "mail"


@asynccontextmanager
async def _somebody_choosing(postgres_url: str) -> AsyncIterator[Any]:
    """Among the jobs of ``mail``, all the while; over this connection."""
    async with raw(postgres_url) as connection, connection.transaction():
        await connection.execute(
            "SELECT pg_advisory_xact_lock("
            "hashtextextended('tidewheel.limits.' || current_schema() || '.mail', 0))"
        )
        yield connection


async def test_a_job_that_somebody_has_locked_is_left_to_them(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """A claim of a limited topic waits for no row, and takes the next one."""
    await stores[0].set_limits("mail", TopicLimits(concurrency=2))
    first, second = await enqueue_many(stores[0], 2, "mail")
    async with raw(postgres_url) as connection, connection.transaction():
        await connection.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", first)
        [claimed] = await asyncio.wait_for(claim_jobs(stores[1], "mail"), PATIENCE)
        assert claimed.lease.job_id == second
    assert (await claim_one(stores[1], "mail")).lease.job_id == first


async def test_plain_topics_are_packed_and_marked_beside_limited_ones(stores: list[PostgresStore]) -> None:
    """In one claim of both: the plain ones share rows, the limited ones have their own."""
    [store, *_] = stores
    await store.set_limits("limited", TopicLimits(concurrency=3))
    await enqueue_many(store, 40, "plain", task="t")
    await enqueue_many(store, 5, "limited", task="t")
    lanes = (Lane("plain", "t"), Lane("limited", "t"))
    granted = (await store.claim(ClaimRequest("w", lanes, 100, 60.0))).jobs
    assert Counter(one.topic for one in granted) == {"plain": 40, "limited": 3}
    [(packed,)] = await store._database.fetch("SELECT count(*) FROM {schema}.batched_jobs")
    assert packed == 40
    for one in granted:
        assert await settle_one(store, one.lease, Completed())
    late = await enqueue_many(store, 2, "plain", task="t")
    again = (await store.claim(ClaimRequest("w", lanes, 100, 60.0))).jobs
    assert {one.lease.job_id for one in again if one.topic == "plain"} == set(late)
    assert await store.check() == []
