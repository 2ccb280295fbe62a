"""The printed grants: a role that has nothing else enqueues in its own transactions, and that is all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from tests.patience import PATIENCE
from tests.servers.shared import fresh_url
from tests.stores.postgres.row_level_security import Secured, refused, secured
from tests.stores.postgres.stores import opened, raw, schema_of
from tidewheel import Task, Tidewheel
from tidewheel.admin.migration_scripts import write_grants
from tidewheel.core.model import Completed, KeyLifetime, Released, Settlement, State
from tidewheel.errors import ConfigurationError, LimitExceeded, StoreError
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import claim_from, claim_one, enqueue_one, job

ROLE = 'own "role"'  # quoted wherever it is named
LARGE = b'"%s"' % (b"x" * 3000)
READABLE = (
    "all_jobs, attempts, batched_jobs, bodies, counter_deltas, dependencies, finished_jobs, job_counts, "
    "job_keys, jobs, leased_batches, progress, schema_versions, single_row_jobs, steps"
)
SOME_COLUMNS = {
    ("SELECT", "topics"): "fair, topic",
    ("INSERT", "counter_deltas"): "enqueued_events, minute, ready, task, tenant, topic, waiting",
    ("UPDATE", "finished_jobs"): "has_dependents, prune_at",
    ("UPDATE", "jobs"): (
        "blocked, expires_at, format, has_dependents, has_separate_body, payload, priority, raw, run_at, "
        "state"
    ),
    ("UPDATE", "leased_batches"): "held_mask",
}


@pytest.fixture
async def role(postgres_url: str) -> AsyncIterator[Any]:
    """A superuser's connection; the role is there, and has no rights. It is gone afterwards."""
    async with raw(postgres_url) as admin:
        await admin.execute('DROP ROLE IF EXISTS "own ""role"""; CREATE ROLE "own ""role""" LOGIN')
        yield admin
        await admin.execute('DROP OWNED BY "own ""role"""; DROP ROLE "own ""role"""')


def of_role(url: str) -> str:
    return url.replace("postgres@", "own%20%22role%22@")


async def rights(admin: Any, schema: str) -> dict[str, str]:
    """What the role was given on whole tables and views, by right."""
    rows = await admin.fetch(
        "SELECT privilege_type, string_agg(table_name, ', ' ORDER BY table_name)"
        " FROM information_schema.role_table_grants WHERE grantee = $1 AND table_schema = $2 GROUP BY 1",
        ROLE,
        schema,
    )
    return dict(rows)


async def rights_to_columns(admin: Any, schema: str) -> dict[tuple[str, str], str]:
    """What it was given on some columns only."""
    rows = await admin.fetch(
        "SELECT privilege_type, table_name, string_agg(column_name, ', ' ORDER BY column_name)"
        " FROM information_schema.role_column_grants AS c WHERE grantee = $1 AND table_schema = $2"
        " AND NOT EXISTS (SELECT FROM information_schema.role_table_grants AS t WHERE t.grantee = c.grantee"
        " AND (t.table_schema, t.table_name, t.privilege_type)"
        " = (c.table_schema, c.table_name, c.privilege_type)) GROUP BY 1, 2",
        ROLE,
        schema,
    )
    return {(right, table): columns for right, table, columns in rows}


def shop(url: str, **settings: Any) -> tuple[Tidewheel, Task[[str], None], Task[[bytes], None]]:
    """An app whose tasks take JSON and bytes."""
    app = Tidewheel(url, **settings)

    @app.task
    async def mail(text: str) -> None: ...

    @app.task
    async def print_out(page: bytes) -> None: ...

    return app, mail, print_out


async def waits_for_others(working: Tidewheel, say: Any, completed: Any) -> None:
    """Jobs that run after others: after one that has ended, is packed, waits, or was cancelled."""
    assert (await working.get((await say("at once", after=completed)).id)).shown_state == "pending"
    waiting = await say("waits")
    [packed] = await ask_alone(working, waiting)
    child = await say("child", after=waiting)
    assert (await working.get(child.id)).shown_state == "blocked"
    await working.store.settle([Settlement(packed.lease, Completed(), 0.001)])
    assert (await working.get(child.id)).shown_state == "pending"
    await working.cancel(child.id)
    late = await say("late", after=child)
    await working.store.rescue()  # of a role that may not end jobs itself, workers end them
    assert (await working.get(late.id)).state == "cancelled"


async def ask_alone(working: Tidewheel, wanted: Any) -> list[Any]:
    """Claim what is due, packed, and give all but one back."""
    assert isinstance(working.store, PostgresStore)
    working.store._claimer.min_leased_batch = 1
    claimed = (await claim_from(working.store, "mail")).jobs
    others = [one for one in claimed if one.lease.job_id != wanted.id]
    await working.store.settle([Settlement(one.lease, Released()) for one in others])
    return [one for one in claimed if one.lease.job_id == wanted.id]


async def enqueues_in_its_transactions(url: str, **options: Any) -> None:
    """With every option; what is rolled back has not been there."""
    _, mail, print_out = shop(of_role(url))
    working, *_ = shop(url)
    async with raw(of_role(url)) as connection, working:

        async def say(text: str, **more: Any) -> Any:
            async with connection.transaction():
                return await mail.options(**options, **more).using(connection).enqueue(text=text)

        transaction = connection.transaction()
        await transaction.start()
        await say("gone", key="pruned")
        await transaction.rollback()
        first = await say("x" * 3000, key="pruned")
        again = await say("y", key="pruned")
        assert (again.duplicate, again.id, again.payload) == (True, first.id, {"text": "x" * 3000})
        await say("a", key="finished", until="finished")
        assert (await say("b", key="finished", until="finished")).duplicate
        later = await say("c", delay=600, priority=7, expires=900, timeout=5, max_attempts=2, retention=60)
        async with connection.transaction():
            many = [{"text": str(number)} for number in range(5)]
            assert len(await mail.options(**options).using(connection).enqueue_many(many)) == 5
            for page in (b"\x00\x01", bytes(5000)):
                await print_out.options(**options).using(connection).enqueue(page)
        debounced = {"key": "debounced", "on_duplicate": "replace"}
        held = await say("z" * 3000, delay=600, **debounced)
        for text in ("small", "z" * 4000, "z" * 5000):  # a body apart goes, comes, and is another one
            assert (await say(text, delay=600, **debounced)).id == held.id
            assert (await working.get(held.id)).payload == {"text": text}
        assert (await say("due", **debounced)).id == held.id
        await working.run_until_idle()
        assert [job.id for job in await working.jobs(state="pending", task="mail")] == [later.id]
        assert [
            (await working.count(state="completed", task=task)).total for task in ("mail", "print_out")
        ] == [8, 2]
        assert (await say("too late", **debounced)).duplicate
        assert (await say("never", key="pruned")).id == first.id
        assert not (await say("d", key="finished", until="finished")).duplicate
        await waits_for_others(working, say, first)


async def is_held_to_limits(url: str, **options: Any) -> None:
    """In a transaction that names no tenant, too."""
    _, mail, _ = shop(of_role(url), max_topics=50, max_jobs_per_topic=20)
    plain = mail.options(**options, topic="limited")
    keyed = plain.options(key="k")
    async with raw(of_role(url)) as connection, connection.transaction():
        await keyed.using(connection).enqueue(text="a")
        await plain.using(connection).enqueue_many([{"text": "b"}] * 19)
        assert (await keyed.using(connection).enqueue(text="again")).duplicate
        with pytest.raises(LimitExceeded, match="no room for 1 more"):
            await plain.using(connection).enqueue(text="c")


async def opens_without_rights_to_tables(url: str, **options: Any) -> None:
    """An app of this role finds that there is nothing to migrate, and needs no more than that."""
    async with Tidewheel(of_role(url)) as app:
        await app.enqueue("opened", **options)


async def enqueues_and_nothing_else(store: PostgresStore, callers: PostgresStore) -> None:
    job_id = await enqueue_one(callers, key="once", payload=LARGE)
    [again] = await callers.enqueue([job(key="once")])
    assert (again.duplicate, again.job_id) == (True, job_id)
    limited = PostgresStore(callers.url, limits=StoreLimits(max_topics=5))
    await limited.open()
    await enqueue_one(limited, topic="other")
    await limited.close()
    claimed = await claim_one(store)
    verbs: list[Callable[[], Awaitable[Any]]] = [
        lambda: claim_from(callers, "other"),
        lambda: callers.settle([Settlement(claimed.lease, Completed(b"1"))]),
        lambda: callers.extend([claimed.lease], 60.0),
        lambda: callers.cancel([job_id]),
        lambda: callers.requeue([job_id]),
        lambda: callers.delete([job_id]),
        lambda: callers.pause("mail", None),
        callers.prune,
        callers.rescue,
    ]
    for verb in verbs:
        with pytest.raises(StoreError, match="permission denied"):
            await verb()
    assert await store.states([job_id]) == [State.RUNNING]


async def refuses_what_callers_do_not_need(url: str) -> None:
    async with raw(url) as connection:
        for statement in (
            "UPDATE jobs SET fence = 9",
            "UPDATE jobs SET attempt = 0",
            "UPDATE bodies SET payload = ''",
            "DELETE FROM jobs",
            "DELETE FROM job_keys",
            "INSERT INTO finished_jobs SELECT * FROM finished_jobs",
            "SELECT FROM documents",
            "SELECT FROM workers",
            "CREATE TABLE mine ()",
        ):
            assert "permission denied" in await refused(connection, statement)
        assert "must be owner" in await refused(connection, "DROP TABLE jobs")


async def test_without_row_level_security(role: Any) -> None:
    """It enqueues, with keys and large bodies and past limits, and reads the jobs it meets; nothing else."""
    url = fresh_url()
    schema = schema_of(url)
    async with opened(url) as [store]:
        with pytest.raises(StoreError, match="permission denied for schema"):
            await PostgresStore(of_role(url)).open()
        await role.execute(write_grants(url, ROLE))
        async with opened(of_role(url), migrated=False) as [callers]:
            await enqueues_and_nothing_else(store, callers)
            # A careful administrator takes away what everybody may by default.
            await role.execute(f"REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC")
            await enqueues_in_its_transactions(url)
            await is_held_to_limits(url)
            await opens_without_rights_to_tables(url)
            assert await store.check() == []
        assert await rights(role, schema) == {
            "DELETE": "bodies, leased_batches",
            "INSERT": "bodies, dependencies, ended_parents, job_keys, jobs",
            "SELECT": READABLE,
        }
        assert await rights_to_columns(role, schema) == SOME_COLUMNS
        await refuses_what_callers_do_not_need(of_role(url))


async def test_with_row_level_security(role: Any) -> None:
    """As a member of the callers' role it enqueues for the tenant it names, and sees nobody else's jobs."""
    async with secured() as place:
        other = await _put_for(place, "other")
        await role.execute(write_grants(place.url, ROLE, rls=True))
        assert await rights(role, place.schema) == {}
        async with opened(of_role(place.url), migrated=False) as [callers]:
            await enqueues_in_its_transactions(place.url, tenant="acme")
            await is_held_to_limits(place.url, tenant="acme")
            await opens_without_rights_to_tables(place.url, tenant="acme")
            mine = await enqueue_one(callers, tenant="acme")
            assert (await callers.get(mine, tenant="acme")).tenant == "acme"  # type: ignore[union-attr]
            assert await callers.get(other, tenant="acme") is None
            assert await callers.states([other]) == [None]
            with pytest.raises(StoreError, match="permission denied"):
                await claim_from(callers)
        async with raw(of_role(place.url)) as connection:
            assert await connection.fetchval("SELECT count(*) FROM all_jobs") == 0
            await connection.execute("SELECT set_config('app.tenant_id', 'acme', false)")
            assert await connection.fetchval("SELECT array_agg(DISTINCT tenant) FROM all_jobs") == ["acme"]
            for statement in ("UPDATE jobs SET fence = 9", "SELECT FROM documents", "DROP TABLE jobs"):
                assert await refused(connection, statement)
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await connection.execute(
                    "INSERT INTO job_keys (tenant, scope, key, id)"
                    " VALUES ('other', 'a', 'b', gen_random_uuid())"
                )


async def test_a_key_that_is_let_go_of_meanwhile_needs_no_more_rights(role: Any) -> None:
    """A caller finds the key taken, its holder finishes, and the caller takes it: nothing is deleted."""
    url = fresh_url()
    async with opened(url) as [store], raw(url) as holding, raw(of_role(url)) as connection:
        await role.execute(write_grants(url, ROLE))
        await enqueue_one(store, task="mail", topic="mail", key="k", key_until=KeyLifetime.FINISHED)
        claimed = await claim_one(store, "mail")
        await holding.execute(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NULL; END';"
            "CREATE TRIGGER wait AFTER INSERT ON job_keys EXECUTE FUNCTION wait();"
            "SELECT pg_advisory_lock(4711)"
        )
        _, mail, _ = shop(of_role(url))
        enqueuing = asyncio.create_task(
            mail.options(key="k", until="finished").using(connection).enqueue(text="a")
        )
        async with asyncio.timeout(PATIENCE):
            while not await holding.fetchval(  # it has met the key, and has not looked yet whose it is
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted"
            ):
                await asyncio.sleep(0.01)
        assert await store.settle([Settlement(claimed.lease, Completed(b"1"))]) == [True]
        await holding.execute("SELECT pg_advisory_unlock(4711)")
        assert not (await enqueuing).duplicate


async def _put_for(place: Secured, tenant: str) -> Any:
    async with opened(place.url, migrated=False) as [store]:
        return await enqueue_one(store, tenant=tenant)


@pytest.mark.parametrize("name", ["", "x" * 64, "a\x00b", "public"])
def test_a_name_that_would_mean_somebody_else_is_refused(name: str) -> None:
    """PostgreSQL cuts long names off, and takes public for everybody."""
    with pytest.raises(ConfigurationError, match="the role is"):
        write_grants("postgresql:", name)
