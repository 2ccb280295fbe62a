"""Reading and claiming use the indexes made for them, whatever the planner believes about the tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from tests.servers.shared import other_version, shared_server
from tests.stores.postgres.query_plans import Plans, Step
from tidewheel.core.conditions import (
    AllOf,
    AnyOf,
    Compare,
    ComparePayload,
    Comparison,
    ContainsText,
    Field,
    Not,
)
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    Completed,
    DerivedState,
    Failed,
    JobFilter,
    Lane,
    Outcome,
    Progress,
    Released,
    Report,
    Retried,
    Settlement,
    State,
    TopicHead,
)
from tidewheel.core.topic_limits import Rate, TopicLimits
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    claim_jobs,
    enqueue_one,
    job,
    make_cancelled,
    make_completed,
    make_failed,
    settle_one,
)

LARGE = ("jobs", "finished_jobs", "bodies", "progress", "attempts", "steps", "job_keys", "retention_queue")
"""Tables that grow with the number of jobs; the counters do not."""

_OF_LANE = {"jobs_ready", "jobs_pending_by_lane", "jobs_leased", "finished_jobs_lane", "leased_batches_pkey"}

LISTS = [
    (JobFilter(), {"jobs_number", "finished_jobs_number", "leased_batches_pkey"}),
    (JobFilter(topic="mail"), _OF_LANE),
    (JobFilter(task="send"), _OF_LANE),
    (JobFilter(topic="mail", task="send", tenant="root", created_after=1), _OF_LANE),
    (JobFilter(topic="mail", state=State.PENDING), {"jobs_ready", "jobs_pending_by_lane"}),
    (JobFilter(topic="mail", state=DerivedState.DELAYED), {"jobs_pending_by_lane"}),
    (JobFilter(topic="mail", state=State.COMPLETED), {"finished_jobs_lane"}),
    (JobFilter(tenant="acme"), {"jobs_tenant", "finished_jobs_tenant", "leased_batches_pkey"}),
    (JobFilter(tenant="acme", topic="mail", state=State.FAILED), {"finished_jobs_tenant"}),
    (JobFilter(tenant="root"), {"jobs_number", "finished_jobs_number", "leased_batches_pkey"}),
    (JobFilter(key="k"), {"jobs_key", "finished_jobs_key"}),
    (JobFilter(key="k", topic="mail", tenant="acme", correlation_id="c"), {"jobs_key", "finished_jobs_key"}),
    (JobFilter(correlation_id="c"), {"jobs_correlation", "finished_jobs_correlation", "leased_batches_pkey"}),
    (JobFilter(correlation_id="c", task="send", state=State.FAILED), {"finished_jobs_correlation"}),
    (JobFilter(created_after=1, created_before=2), {
        "jobs_number", "finished_jobs_number", "leased_batches_pkey"
    }),
    (JobFilter(state=State.PENDING), {"jobs_number"}),
    (JobFilter(state=State.RUNNING), {"jobs_leased", "leased_batches_pkey"}),
    (JobFilter(state=State.RUNNING, topic="mail", tenant="root"), {"jobs_leased", "leased_batches_pkey"}),
    (JobFilter(state=State.COMPLETED), {"finished_jobs_number"}),
    (JobFilter(state=State.FAILED), {"finished_jobs_failed_or_cancelled"}),
    (JobFilter(state=State.CANCELLED), {"finished_jobs_failed_or_cancelled"}),
    (JobFilter(state=DerivedState.DELAYED), {"jobs_pending_by_lane"}),
    (JobFilter(state=DerivedState.RETRYING), {"jobs_retrying"}),
    (JobFilter(state=DerivedState.BLOCKED), {"jobs_blocked"}),
    (JobFilter(state=DerivedState.CLAIMED), {"jobs_leased", "leased_batches_pkey"}),
]  # fmt: skip

_CROWD = """
INSERT INTO {schema}.jobs (
    id, priority, run_at, created_at, state, leased_until, attempt, blocked, format, topic, task, tenant, key,
    correlation_id, payload
)
SELECT gen_random_uuid(), 0, n, 1, $1::integer, CASE WHEN $1 = 2 THEN 1 END, 1, $2::integer, 0, 'mail',
       'send', 'acme', 'k', 'c', '{}'
FROM generate_series(1, 700) AS n
"""
_CROWD_FINISHED = """
INSERT INTO {schema}.finished_jobs (
    id, number, priority, run_at, created_at, finished_at, fence, attempt, reserves, timeouts, releases,
    buries, kicks, touches, state, format, has_separate_body, topic, task, tenant, key, correlation_id,
    payload
)
SELECT gen_random_uuid(), n, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, $1::integer, 0, false, 'mail', 'send',
       'acme', 'k', 'c', '{}'
FROM generate_series(1, 700) AS n
"""


async def _nothing(_: PostgresStore) -> None:
    """Statistics have never been made."""


async def _analysed_while_empty(store: PostgresStore) -> None:
    """The planner believes that there are no rows."""
    for table in (*LARGE, "counter_deltas", "job_counts", "topics"):
        await store._database.fetch(f"ANALYZE {{schema}}.{table}")


async def _vacuumed_while_empty(store: PostgresStore) -> None:
    """As it happens to any idle queue: the planner has seen the pages and knows that they hold no rows."""
    await _fill(store)
    for table in LARGE:
        await store._database.fetch(f"DELETE FROM {{schema}}.{table}")  # noqa: S608
    for table in (*LARGE, "counter_deltas", "job_counts", "topics"):
        await store._database.fetch(f"VACUUM ANALYZE {{schema}}.{table}")


async def _analysed_when_all_was_different(store: PostgresStore) -> None:
    """The planner believes that every row matches every filter, and every row but one is gone."""
    database = store._database
    for state, blocked in ((0, 0), (0, 1), (1, 0), (2, 0)):
        await database.fetch(_CROWD, state, blocked)
    for state in (3, 4, 5):
        await database.fetch(_CROWD_FINISHED, state)
    await _analysed_while_empty(store)
    for table in ("jobs", "finished_jobs"):
        await database.fetch(f"DELETE FROM {{schema}}.{table}")  # noqa: S608


Misled = Callable[[PostgresStore], Awaitable[None]]
VERSIONS = ["newest", "oldest"] if other_version() is not None else ["newest"]


@asynccontextmanager
async def _new_store(version: str) -> AsyncIterator[PostgresStore]:
    server = shared_server(oldest=version == "oldest")
    store = PostgresStore(server.url(schema=f"plans_{new_id().hex}"), clock=FrozenClock())
    await store.open()
    await store.migrate()
    for table in (*LARGE, "counter_deltas", "job_counts", "topics"):
        await store._database.fetch(f"ALTER TABLE {{schema}}.{table} SET (autovacuum_enabled = off)")
    yield store
    await store._database.fetch("DROP SCHEMA {schema} CASCADE")
    await store.close()


@pytest.fixture(params=VERSIONS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    """In a schema that no test had before: statistics outlive the rows they are about."""
    async with _new_store(request.param) as store:
        yield store


MISLED: list[Misled] = [
    _nothing,
    _analysed_while_empty,
    _vacuumed_while_empty,
    _analysed_when_all_was_different,
]
misled = pytest.mark.parametrize("mislead", MISLED)


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[(version, mislead) for version in VERSIONS for mislead in MISLED],
    ids=lambda param: f"{param[0]}-{param[1].__name__}",
)
async def filled(request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    """Misled, with jobs of every kind, for all tests that only read: what they read changes no statistics."""
    version, mislead = request.param
    async with _new_store(version) as store:
        await mislead(store)
        await _fill(store)
        yield store


only_reads = pytest.mark.asyncio(loop_scope="module")


async def _fill(store: PostgresStore) -> None:
    """Some jobs of every kind; more of the tenant root and the topic mail than of others."""
    await make_failed(store, tenant="acme", task="send")
    for tenant, topic, number in (("root", "mail", 6), ("acme", "other", 1)):
        for _ in range(number):
            options: dict[str, Any] = {"tenant": tenant, "task": "send", "correlation_id": "c"}
            await make_failed(store, topic, **options)
            await make_completed(store, topic, **options)
            await make_cancelled(store, topic, **options)
            await enqueue_one(store, topic, key=new_id().hex, **options)
            await enqueue_one(store, topic, delay=60, **options)
            await enqueue_one(store, topic, priority=2, **options)
            [claimed] = await claim_jobs(store, Lane(topic, "send"), limit=1)
            await settle_one(store, claimed.lease, Retried(60, BOOM))
            await enqueue_one(store, topic, priority=2, **options)
            await claim_jobs(store, Lane(topic, "send"), limit=1)


def _check(statements: list[tuple[str, tuple[Step, ...]]]) -> None:
    assert statements
    for text, steps in statements:
        for step in steps:
            assert step.kind != "Seq Scan" or step.table not in LARGE, f"{step} in {text}"
            if step.index is not None and step.index.endswith(("_pkey", "jobs_ready")):
                assert step.looked_up or step.table not in LARGE, f"{step} in {text}"


def _check_jobs(statements: list[tuple[str, tuple[Step, ...]]], indexes: set[str]) -> None:
    """Rows of jobs are found through these indexes only."""
    for text, steps in statements:
        used = {step.index for step in steps if step.table == "jobs" and step.index is not None}
        assert used <= indexes, f"{used - indexes} in {text}"


@only_reads
async def test_each_list_reads_the_indexes_made_for_it(filled: PostgresStore) -> None:
    """In their order, from their end; a page is as quick beside a million other jobs."""
    async with Plans(filled).kept() as plans:
        for where, indexes in LISTS:
            await plans.taken()
            await filled.list_jobs(where, limit=50)
            statements = await plans.taken()
            _check(statements)
            [page] = [steps for text, steps in statements if text.startswith("SELECT number FROM")]
            assert {step.index for step in page} == indexes, where


SOUGHT = AllOf(
    (
        Not(Compare(Field.USER_ID, Comparison.EQUAL, "nobody")),
        AnyOf((ContainsText("nowhere"), Not(ComparePayload(("a",), Comparison.EQUAL, 1)))),
    )
)
"""What no index serves: columns, texts and payloads, all of which have to be looked at."""


@only_reads
async def test_each_search_reads_the_same_indexes(filled: PostgresStore) -> None:
    """What the fields leave is walked through in order; bodies and errors are looked up one by one."""
    async with Plans(filled).kept() as plans:
        for where, indexes in LISTS:
            await plans.taken()
            await filled.list_jobs(replace(where, condition=SOUGHT), limit=50)
            statements = await plans.taken()
            _check(statements)
            pages = [steps for text, steps in statements if text.startswith("SELECT number, created_at")]
            assert pages
            assert all({step.index for step in page} == indexes for page in pages), where


@only_reads
async def test_each_count_reads_counters_or_the_same_indexes(filled: PostgresStore) -> None:
    """Counters when there are some of just that; never all jobs."""
    async with Plans(filled).kept() as plans:
        for where, indexes in LISTS:
            await plans.taken()
            await filled.count(where)
            statements = await plans.taken()
            _check(statements)
            counted = [steps for text, steps in statements if text.startswith("SELECT count(*)")]
            read = {step.index for steps in counted for step in steps}
            assert read in (indexes, set()), where
            finer = (where.key, where.correlation_id, where.created_after)
            assert (read == indexes) == (isinstance(where.state, DerivedState) or finer != (None,) * 3), where


@only_reads
async def test_statistics_and_searches_scan_no_large_table(filled: PostgresStore) -> None:
    """They are told from counters and the ends of indexes, and job by job."""
    async with Plans(filled).kept() as plans:
        for tenant in (None, "root", "acme"):
            await filled.stats(window_seconds=3600, tenant=tenant)
        await filled.topics()
        statements = await plans.taken()
        _check(statements)
        _check_jobs(
            statements, {"jobs_ready", "jobs_waiting", "jobs_promoted", "jobs_blocked", "jobs_tenant"}
        )
        page = await filled.list_jobs(JobFilter(text="boom"), limit=50)
        await filled.get(page.items[0].id)
        await filled.states([item.id for item in page.items])
        statements = await plans.taken()
    _check(statements)
    [looked_into] = [steps for text, steps in statements if "strpos" in text]
    assert {step.index for step in looked_into} == {
        "jobs_number", "finished_jobs_number", "leased_batches_pkey", "bodies_pkey", "attempts_pkey"
    }  # fmt: skip


@misled
async def test_the_longest_wait_of_many_lanes_is_told_from_the_ends_of_indexes(
    store: PostgresStore, mislead: Misled
) -> None:
    """First among the oldest jobs, in their order; whatever is not there is looked up by lane."""
    await mislead(store)
    await _fill(store)
    await store.enqueue([job(f"topic-{number}") for number in range(101)])
    async with Plans(store).kept() as plans:
        for tenant in (None, "root", "nobody"):
            await store.stats(window_seconds=3600, tenant=tenant)
        statements = await plans.taken()
    _check(statements)
    _check_jobs(
        statements,
        {"jobs_ready", "jobs_waiting", "jobs_promoted", "jobs_blocked", "jobs_tenant", "jobs_number"},
    )


@misled
async def test_a_claim_reads_the_left_ends_of_its_indexes(store: PostgresStore, mislead: Misled) -> None:
    """A claim costs the same beside a million finished, waiting or delayed jobs only if this holds."""
    await mislead(store)
    await _fill(store)
    async with Plans(store).kept() as plans:
        await claim_jobs(store, Lane("mail", "send"), limit=3)
        await claim_jobs(store, Lane("mail", "send"), Lane("other", "send"), "mail", limit=3)
        store._clock.advance(100)  # type: ignore[attr-defined]
        await claim_jobs(store, "mail", "other")
        await store.rescue()
        statements = await plans.taken()
    _check(statements)
    _check_jobs(statements, {"jobs_ready", "jobs_waiting", "jobs_leased", "jobs_expiring", "jobs_pkey"})
    granting = [steps for text, steps in statements if "SET state = 2" in text]
    assert granting
    for steps in granting:
        assert {step.kind for step in steps if step.table == "jobs"} <= {"Tid Scan", "ModifyTable"}, steps


@misled
async def test_writes_find_their_jobs_by_id(store: PostgresStore, mislead: Misled) -> None:
    """Settling, extending, reporting and operating: each job is looked up, none is searched for."""
    await mislead(store)
    await _fill(store)
    async with Plans(store).kept() as plans:
        await store.enqueue([job(key=new_id().hex, payload=b'"' + b"x" * 5000 + b'"') for _ in range(6)])
        leases = [one.lease for one in await claim_jobs(store, Lane("mail", ""))]
        assert len(leases) == 6
        await store.mark_started(leases)
        await store.extend(leases, 60)
        await store.report([Report(lease, Progress(1), b"1") for lease in leases])
        await store.cancel_requests(leases)
        outcomes: list[Outcome] = [Completed(b"1"), Completed(), Failed(BOOM), Released()]
        outcomes += [Retried(0, BOOM), Retried(9, BOOM)]
        pairs = zip(leases, outcomes, strict=True)
        await store.settle([Settlement(lease, outcome, 1.0) for lease, outcome in pairs])
        job_ids = [lease.job_id for lease in leases]
        await store.requeue(job_ids)
        await store.kick_jobs(job_ids)
        granted = await store.claim_job(job_ids[-1], worker="w", lease_seconds=60)
        assert granted is not None
        await store.touch([granted.lease], 60)
        await store.cancel(job_ids)
        await store.delete(job_ids)
        await store.prune()
        statements = await plans.taken()
    _check(statements)
    _check_jobs(statements, {"jobs_pkey", "jobs_ready", "jobs_leased", "jobs_waiting", "jobs_expiring"})


@misled
async def test_topics_are_looked_at_through_their_own_indexes(store: PostgresStore, mislead: Misled) -> None:
    """Peeks, kicks and depths cost the same beside a million jobs of other topics, whoever they are for."""
    await mislead(store)
    await _fill(store)
    numbers = [record.number for record in (await store.list_jobs(JobFilter(), limit=5)).items]
    async with Plans(store).kept() as plans:
        for tenant in (None, "root", "acme"):
            for head in TopicHead:
                assert await store.peek("mail", head, tenant=tenant) is not None or tenant == "acme"
            await store.topic_depths(tenant=tenant)
            await store.topic_depths(["mail", "other"], tenant=tenant)
            await store.job_ids([*numbers, 10**9], tenant=tenant)
        for tenant in (None, "root", "acme", "acme"):
            await store.kick("mail", 3, tenant=tenant)
        await store.kick("other", 9)
        assert await store.kick("other", 9) > 0, "delayed ones"
        statements = await plans.taken()
    _check(statements)


@misled
async def test_a_limited_claim_reads_the_indexes_made_for_it(store: PostgresStore, mislead: Misled) -> None:
    """However many jobs wait: a full key hides nothing, and nothing is read from end to end."""
    await mislead(store)
    limits = {
        "keyed": TopicLimits(key_concurrency=1, key_rate=Rate(1000)),
        "lined-up": TopicLimits(ordered=True),
        "shared": TopicLimits(fair=True, concurrency=9),
    }
    for topic, of_topic in limits.items():
        await store.set_limits(topic, of_topic)
        await store.enqueue([job(topic, task="t", limit_key="full", tenant="a") for _ in range(60)])
        await enqueue_one(store, topic, task="t", limit_key="other", tenant="b")
    # In the half minute after limits were set claims of their topic look at all that runs, too.
    await store._database.fetch("UPDATE {schema}.topics SET limits_at = 0")
    async with Plans(store).kept() as plans:
        for topic in limits:
            assert {one.tenant for one in await claim_jobs(store, Lane(topic, "t"), limit=5)} == {"a", "b"}
        assert {one.topic for one in await store.blocked_by_limits()} >= {"keyed", "lined-up"}
        statements = await plans.taken()
    _check(statements)
    used = {step.index: step for _, steps in statements for step in steps if step.table == "jobs"}
    assert used.keys() >= {"jobs_ready", "jobs_by_limit_key", "jobs_limited", "jobs_in_key_order"}
    for index in ("jobs_ready", "jobs_by_limit_key", "jobs_limited", "jobs_in_key_order"):
        assert used[index].looked_up, index
    assert "jobs_number" not in used
