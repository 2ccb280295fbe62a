"""The store as the api role: every verb says whose rows it means, for as long as its transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.servers import PgBouncer
from tests.servers.shared import shared_server
from tests.stores.postgres.proxy import Proxy
from tests.stores.postgres.row_level_security import API, MIGRATOR, WORKER, Secured, secured
from tests.stores.postgres.stores import opened, raw
from tidewheel import SecurityContext, Tidewheel, acting_as
from tidewheel.core.model import (
    ActionResult,
    Completed,
    JobFilter,
    KeyLifetime,
    NewDocument,
    OnDuplicate,
    State,
)
from tidewheel.errors import JobNotFound, LimitExceeded, StoreError
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.postgres import PostgresStore, enqueue
from tidewheel.testing.conformance.helpers import (
    claim_from,
    claim_one,
    enqueue_many,
    enqueue_one,
    job,
    settle_one,
)


@pytest.fixture
async def place() -> AsyncIterator[Secured]:
    async with secured() as place:
        yield place


@pytest.fixture
async def api(place: Secured) -> AsyncIterator[PostgresStore]:
    async with opened(place.of(API), migrated=False) as [store]:
        yield store


@pytest.fixture
async def worker(place: Secured) -> AsyncIterator[PostgresStore]:
    async with opened(place.of(WORKER), migrated=False) as [store]:
        yield store


async def held(store: PostgresStore) -> tuple[bool, bool]:
    return store._database.has_row_level_security, store._database.sees_one_tenant


async def test_a_store_notices_whether_policies_hold_it(place: Secured, postgres_url: str) -> None:
    """Callers are held, workers and those who migrate see all, and nothing changes without policies."""
    async with opened(*(place.of(role) for role in (API, WORKER, MIGRATOR, "postgres")), migrated=False) as [
        api, worker, migrator, superuser,
    ]:  # fmt: skip
        assert await held(api) == (True, True)
        assert await held(worker) == await held(migrator) == await held(superuser) == (True, False)
    async with opened(postgres_url) as [store]:
        assert await held(store) == (False, False)


async def test_each_job_is_written_for_its_own_tenant(api: PostgresStore, worker: PostgresStore) -> None:
    """Calls that share a commit, calls that name several tenants, with keys and large bodies or without."""
    large = b'"%s"' % (b"x" * 3000)
    mixed = [job(tenant=f"t{number % 3}", payload=large, key=f"k{number}") for number in range(9)]
    answers, *singles = await asyncio.gather(
        api.enqueue(mixed), *(api.enqueue([job(tenant=f"t{number % 5}")]) for number in range(50))
    )
    assert [answer.job_id for answer in answers] == [one.id for one in mixed]
    assert not any(answer.duplicate for answer in answers)
    assert len({answer.job_id for [answer] in singles}) == 50
    for number in range(5):
        tenant = f"t{number}"
        assert (await api.count(JobFilter(tenant=tenant))).total == (13 if number < 3 else 10)
        listed = await api.list_jobs(JobFilter(tenant=tenant), limit=100)
        assert {record.tenant for record in listed.items} == {tenant}
    assert [await api.get(one.id, tenant=one.tenant) is not None for one in mixed] == [True] * 9
    assert await worker.check() == []


async def test_jobs_of_one_call_keep_their_order(api: PostgresStore, worker: PostgresStore) -> None:
    """Also when their tenants take turns: first in, first out within a priority, whoever they belong to."""
    jobs = [job(tenant=tenant) for tenant in "zabzza"]
    answers = await api.enqueue(jobs)
    assert [answer.number for answer in answers] == sorted(answer.number for answer in answers)
    assert [one.lease.job_id for one in (await claim_from(worker)).jobs] == [one.id for one in jobs]


async def test_a_call_for_several_tenants_is_all_or_nothing(
    api: PostgresStore, worker: PostgresStore
) -> None:
    """The second tenant's job cannot be written, and the first one's is not either."""
    taken = await enqueue_one(api, tenant="b")
    fresh = job(tenant="a")
    again = job(tenant="b")
    again = type(again)(id=taken, topic="mail", tenant="b")
    with pytest.raises(StoreError, match="taken"):
        await api.enqueue([fresh, again])
    assert await worker.states([fresh.id, taken]) == [None, State.PENDING]
    assert await worker.check() == []


async def test_a_verb_that_names_no_tenant_finds_nothing_and_changes_nothing(
    api: PostgresStore, worker: PostgresStore
) -> None:
    """Forgetting to say whose costs an answer, never a secret."""
    waiting, other = await enqueue_one(api, tenant="a"), await enqueue_one(api, "other", tenant="b")
    for tenant in (None, "", "c", "%", "a'; RESET ALL; --", "a\\"):
        assert await api.get(waiting, tenant=tenant) is None
        assert await api.states([waiting, other], tenant=tenant) == [None, None]
        for verb in (api.cancel, api.requeue, api.delete):
            assert await verb([waiting, other], tenant=tenant) == [ActionResult.NOT_FOUND] * 2
        assert (await api.list_jobs(JobFilter(tenant=tenant), limit=9)).items == ()
        assert (await api.list_jobs(JobFilter(tenant=tenant, topic="mail"), limit=9)).items == ()
        assert (await api.list_jobs(JobFilter(tenant=tenant, text="{"), limit=9)).items == ()
        assert (await api.count(JobFilter(tenant=tenant))).total == 0
        assert (await api.count(JobFilter(tenant=tenant, created_after=1))).total == 0
        stats = await api.stats(window_seconds=60.0, tenant=tenant)
        assert (stats.pending, stats.topics, stats.series) == (0, (), ())
        assert await api.topics(tenant=tenant) == []
    assert await worker.states([waiting, other]) == [State.PENDING] * 2


@pytest.mark.parametrize("tenant", ["a\0b", "\ud800", "x" * 201])
async def test_a_tenant_that_cannot_be_said_is_refused(api: PostgresStore, tenant: str) -> None:
    """It would end the message that sets it too early, or cannot be sent."""
    with pytest.raises(StoreError, match="tenant"):
        await api.get(job().id, tenant=tenant)
    with pytest.raises(StoreError, match="tenant"):
        await api.enqueue([job(tenant=tenant)])
    await enqueue_one(api, tenant="fine")  # the connection is as good as before


async def test_a_callers_whole_life_works(api: PostgresStore, worker: PostgresStore) -> None:
    """Keys, debounce, results, cancelling in every state, requeue, delete, and what is told about it."""
    here: dict[str, Any] = {"tenant": "acme"}
    large = b'"%s"' % (b"x" * 3000)
    later = await enqueue_one(api, delay=60.0, key="k", key_until=KeyLifetime.FINISHED, payload=large, **here)
    [replaced] = await api.enqueue(
        [job(key="k", on_duplicate=OnDuplicate.REPLACE, payload=large, expires_in=600.0, **here)]
    )
    assert (replaced.job_id, replaced.replaced) == (later, True)
    [duplicate] = await api.enqueue([job(key="k", **here)])
    assert duplicate.duplicate
    assert await settle_one(worker, (await claim_one(worker)).lease, Completed(b'"done"'))
    record = await api.get(later, **here)
    assert record is not None
    assert (record.state, record.payload, record.result) == (State.COMPLETED, large, b'"done"')
    waiting = await enqueue_one(api, retention=60.0, **here)
    assert await api.cancel([waiting], **here) == [ActionResult.DONE]
    assert await api.requeue([waiting], **here) == [ActionResult.DONE]
    assert await api.delete([waiting, later], **here) == [ActionResult.DONE] * 2
    assert await worker.check() == []


async def test_a_packed_job_can_be_cancelled_by_its_tenant_only(
    api: PostgresStore, worker: PostgresStore
) -> None:
    """It leaves its pack for that, which is of one tenant."""
    packed = await enqueue_many(api, 30, tenant="a")
    await claim_from(worker)
    assert await api.states(packed[:2], tenant="a") == [State.RUNNING] * 2
    assert await api.states(packed[:2], tenant="b") == [None] * 2
    assert await api.cancel(packed[:1], tenant="b") == [ActionResult.NOT_FOUND]
    assert await api.cancel(packed[:1], tenant="a") == [ActionResult.REQUESTED]
    assert await api.delete(packed[1:2], tenant="a") == [ActionResult.WRONG_STATE]
    assert await worker.check() == []


async def test_what_is_for_workers_is_refused(api: PostgresStore, worker: PostgresStore) -> None:
    """With the server's words; nothing of it happens."""
    job_id = await enqueue_one(api, tenant="a")
    lease = (await claim_one(worker)).lease
    verbs: list[Callable[[], Any]] = [
        lambda: claim_from(api),
        lambda: api.mark_started([lease]),
        lambda: api.extend([lease], 60.0),
        lambda: settle_one(api, lease, Completed(b"1")),
        lambda: api.cancel_requests([lease]),
        api.rescue,
        api.prune,
        api.workers,
        api._counter_rollup.run,
        lambda: api.pause("mail", 2**60),
        lambda: api.deregister_worker("w", 1),
    ]
    for verb in verbs:
        with pytest.raises(StoreError, match="permission denied"):
            await verb()
    documents: list[Callable[[], Any]] = [
        api.check,
        lambda: api.document("key", "k"),
        lambda: api.write_documents([NewDocument("key", "k", b"{}")]),
        lambda: api.enqueue_with_document(NewDocument("key", "k", b"{}"), [job(tenant="a")]),
    ]
    for verb in documents:  # what a server meets under the wrong role: it is told the right one
        with pytest.raises(StoreError, match="tidewheel_worker"):
            await verb()
    assert await worker.states([job_id]) == [State.RUNNING]
    assert await worker.check() == []


async def test_callers_never_add_counters_up(
    api: PostgresStore, worker: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They see one tenant's; whoever sees all does it."""
    monkeypatch.setattr("tidewheel.stores.postgres.maintenance.ROLLUP_AFTER_JOBS", 1)
    await enqueue_many(api, 3, tenant="a")
    assert api._counter_rollup.running is None
    appended = "SELECT count(*) FROM {schema}.counter_deltas"
    assert await worker._database.fetchval(appended) > 0
    await enqueue_one(worker, tenant="b")
    if worker._counter_rollup.running is not None:  # it may be done by now
        await worker._counter_rollup.running
    assert await worker._database.fetchval(appended) == 0
    assert (await api.stats(window_seconds=60.0, tenant="a")).pending == 3


async def test_a_connection_carries_no_tenant_over(place: Secured) -> None:
    """One connection, used for one tenant after another and for nobody, also after a failure in between."""
    async with opened(place.of(API) + "&connections=1", migrated=False) as [store]:
        await _take_turns(store)
        async with store._database.connection() as connection:
            assert await connection.fetchval("SELECT current_setting('app.tenant_id', true)") == ""
            assert not connection.is_in_transaction()


async def test_a_pooler_carries_no_tenant_over(place: Secured) -> None:
    """Two connections to the server are shared by six stores, each for other tenants all the time."""
    with PgBouncer(shared_server(), pool_size=2, users=(API,)) as pooler:
        url = place.of(API, pooler.url(schema=place.schema))
        async with opened(*[url] * 6, migrated=False) as stores:
            assert {store.describe()["connection"] for store in stores} == {"pooled"}
            await asyncio.gather(*(_take_turns(store, f"s{number}") for number, store in enumerate(stores)))
            # A pooler's session that somebody left a tenant on: whoever names none is nobody all the same.
            job_id = await enqueue_one(stores[0], tenant="left")
            async with raw(place.of(API, pooler.url()), statement_cache_size=0) as connection:
                await connection.execute("SET app.tenant_id = 'left'")
                for store in stores:
                    assert await store.get(job_id) is None
                    assert (await store.count(JobFilter())).total == 0
                await connection.execute("RESET app.tenant_id")


async def _take_turns(store: PostgresStore, name: str = "s") -> None:
    tenants = [f"{name}-{number}" for number in range(4)]
    jobs = {tenant: await enqueue_one(store, tenant=tenant) for tenant in tenants}
    for round_ in range(3):
        for tenant in tenants:
            seen = [await store.get(job_id, tenant=tenant) is not None for job_id in jobs.values()]
            assert seen == [other == tenant for other in tenants]
            assert (await store.count(JobFilter(tenant=tenant))).total == round_ + 1
            with pytest.raises(StoreError):
                await store.enqueue([type(job())(id=jobs[tenant], topic="mail", tenant=tenant)])
            assert await store.get(jobs[tenant]) is None
            await enqueue_one(store, tenant=tenant)


async def test_a_conflict_is_tried_again(place: Secured, api: PostgresStore, worker: PostgresStore) -> None:
    """A deadlock rolls the whole transaction back, and all of it is done again, once."""
    async with raw(place.url) as admin:
        await admin.execute(
            "CREATE SEQUENCE trouble; GRANT USAGE ON SEQUENCE trouble TO tidewheel_api;"
            "CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF nextval('trouble') % 4 = 2 THEN RAISE deadlock_detected; END IF; RETURN NEW; END $$"
            " SET search_path FROM CURRENT;"
            "CREATE TRIGGER trouble BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION trouble()"
        )
        jobs = [job(tenant="a"), job(tenant="b", key="k")]
        answers = await api.enqueue(jobs)
        assert [answer.job_id for answer in answers] == [one.id for one in jobs]
        assert not any(answer.duplicate for answer in answers)
        assert await admin.fetchval("SELECT last_value FROM trouble") == 4
        await admin.execute("DROP TRIGGER trouble ON jobs; DROP FUNCTION trouble; DROP SEQUENCE trouble")
    assert await worker.check() == []


@pytest.mark.parametrize("what", ["request BEGIN", "request COMMIT", "reply COMMIT"])
@pytest.mark.parametrize("mixed", [False, True], ids=["alike", "several tenants"])
async def test_an_enqueue_whose_connection_breaks_is_written_once(
    place: Secured, worker: PostgresStore, monkeypatch: pytest.MonkeyPatch, what: str, mixed: bool
) -> None:
    """What begins or commits is lost, or the answer: sent again, nothing is written twice."""
    monkeypatch.setattr(enqueue, "PAUSE_SECONDS", 0.01)
    async with Proxy(place.of(API)) as proxy, opened(proxy.url, migrated=False) as [store]:
        await enqueue_one(store, tenant="a")
        kind, statement = what.split()
        lost = {"request": proxy.lose_request, "reply": proxy.lose_reply}[kind](statement)
        jobs = [job(tenant="a"), job(tenant="b" if mixed else "a")]
        answers = await store.enqueue(jobs)
        assert lost.is_set()
        assert [answer.job_id for answer in answers] == [one.id for one in jobs]
    assert (await worker.count(JobFilter())).total == 3
    assert await worker.check() == []


async def test_limits_count_what_a_tenant_has(place: Secured) -> None:
    """Nobody can count what it cannot see: under policies a topic's limit is each tenant's own."""
    store = PostgresStore(place.of(API), limits=StoreLimits(max_jobs_per_topic=2))
    await store.open()
    try:
        await enqueue_many(store, 2, tenant="a")
        await enqueue_many(store, 2, tenant="b", key=None)
        with pytest.raises(LimitExceeded):
            await enqueue_one(store, tenant="a")
        with pytest.raises(LimitExceeded):
            await store.enqueue([job(tenant="c", key="k"), job(tenant="b")])
        await enqueue_one(store, tenant="c")
    finally:
        await store.close()


async def test_a_worker_runs_what_callers_enqueue(place: Secured) -> None:
    """The whole way through apps: as the api role in, as the worker role done, and the result read."""
    calling = Tidewheel(place.of(API), migrate=True)  # nothing is to be migrated, which it may see
    working = Tidewheel(place.of(WORKER), migrate=False)

    @working.task
    async def double(number: int) -> int:
        return 2 * number

    async with calling, working:
        job_ids = [
            (await calling.enqueue("double", {"number": number}, tenant=f"t{number % 2}")).id
            for number in range(40)
        ]
        assert await working.run_until_idle() == 40
        for number, job_id in enumerate(job_ids):
            record = await calling.store.get(job_id, tenant=f"t{number % 2}")
            assert record is not None
            assert record.result == b"%d" % (2 * number)
        assert await working.check() == []


async def test_a_caller_can_follow_the_job_it_has_just_enqueued(place: Secured) -> None:
    """Through its handle, under a context or without one, and through a context only its own tenant's."""
    calling = Tidewheel(place.of(API), migrate=False, poll_interval=0.05)
    working = Tidewheel(place.of(WORKER), migrate=False)

    @working.task
    async def double(number: int) -> int:
        return 2 * number

    async with calling, working:
        job = await calling.enqueue("double", {"number": 4}, tenant="acme")
        assert (await job.refresh()).state == "pending"
        with pytest.raises(JobNotFound):
            await calling.get(job.id)  # for nobody in particular it is not there
        await working.run_until_idle()
        assert await job.result(timeout=PATIENCE) == 8
        with acting_as(SecurityContext("acme")):
            assert await calling.result(job.id, timeout=PATIENCE) == 8
            assert (await calling.count()).total == 1
        with acting_as(SecurityContext("globex")), pytest.raises(JobNotFound):
            await job.result(timeout=PATIENCE)


async def test_a_role_that_sees_one_tenant_cannot_copy(api: PostgresStore, worker: PostgresStore) -> None:
    """Half of the jobs would look like all of them; a worker's role sees them, and may write them."""
    await enqueue_one(worker, tenant="acme")
    await enqueue_one(worker, tenant="other")
    jobs = await worker.export_jobs(limit=10)
    assert len(jobs) == 2
    for refused in (api.export_jobs(limit=10), api.import_jobs(jobs)):
        with pytest.raises(StoreError, match="run it as a member of tidewheel_worker"):
            await refused
    await worker.delete([whole.record.id for whole in jobs])
    assert await worker.import_jobs(jobs) == [True, True]
    assert await worker.export_jobs(limit=10) == jobs
    assert await worker.check() == []
