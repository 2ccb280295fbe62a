"""The printed grants: a role that has nothing else enqueues in its own transactions, and that is all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.postgres.secured import Secured, refused, secured
from tests.postgres.stores import opened, raw, schema_of
from tests.servers.shared import fresh_url
from windlass import Job, Windlass
from windlass.errors import ConfigurationError, StoreError
from windlass.model import JobFilter, Settlement, State
from windlass.outcome import Completed
from windlass.schema_scripts import write_grants
from windlass.stores.postgres import PostgresStore
from windlass.stores.protocol import StoreLimits
from windlass.testing.conformance.building import ask, claim_one, job, put

ROLE = 'own "role"'  # quoted wherever it is named
LARGE = b'"%s"' % (b"x" * 3000)
READABLE = (
    "all_jobs, attempts, bodies, counts, finished, jobs, keys, packed_jobs, packs, progress, steps, tally, "
    "unpacked_jobs"
)


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
    """What the role was given on tables and views, by right."""
    rows = await admin.fetch(
        "SELECT privilege_type, string_agg(table_name, ', ' ORDER BY table_name)"
        " FROM information_schema.role_table_grants WHERE grantee = $1 AND table_schema = $2 GROUP BY 1",
        ROLE,
        schema,
    )
    return dict(rows)


async def enqueues_in_its_transactions(url: str, **options: Any) -> UUID:
    """With keys, large bodies and limits; what is rolled back has not been there. The job that stays."""
    app = Windlass(url, migrate=False)
    limited = Windlass(url, migrate=False, max_topics=5, max_jobs_per_topic=5)
    async with raw(of_role(url)) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await app.enqueue("mail", using=connection, **options)
        await transaction.rollback()
        async with connection.transaction():
            first: Job[Any] = await app.enqueue(
                "mail", {"a": "x" * 3000}, using=connection, key="given", **options
            )
            again = await app.enqueue("mail", using=connection, key="given", **options)
            assert (again.duplicate, again.id, again.payload) == (True, first.id, {"a": "x" * 3000})
            assert not (await limited.enqueue("other", using=connection, **options)).duplicate
    return first.id


async def enqueues_and_nothing_else(store: PostgresStore, callers: PostgresStore) -> None:
    job_id = await put(callers, key="once", payload=LARGE)
    [again] = await callers.enqueue([job(key="once")])
    assert (again.duplicate, again.job_id) == (True, job_id)
    limited = PostgresStore(callers.url, limits=StoreLimits(max_topics=5))
    await limited.open()
    await put(limited, topic="other")
    await limited.close()
    claimed = await claim_one(store)
    verbs: list[Callable[[], Awaitable[Any]]] = [
        lambda: ask(callers, "other"),
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
            "UPDATE jobs SET priority = 9",
            "DELETE FROM jobs",
            "DELETE FROM keys",
            "INSERT INTO finished SELECT * FROM finished",
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
            given = await enqueues_in_its_transactions(url)
            assert await store.states([given]) == [State.PENDING]
            assert (await store.count(JobFilter())).total == 4
        assert await rights(role, schema) == {
            "INSERT": "bodies, jobs, keys, tally",
            "SELECT": READABLE,
        }
        await refuses_what_callers_do_not_need(of_role(url))


async def test_with_row_level_security(role: Any) -> None:
    """As a member of the callers' role it enqueues for the tenant it names, and sees nobody else's jobs."""
    async with secured() as place:
        other = await _put_for(place, "other")
        await role.execute(write_grants(place.url, ROLE, rls=True))
        assert await rights(role, place.schema) == {}
        async with opened(of_role(place.url), migrated=False) as [callers]:
            await enqueues_in_its_transactions(place.url, tenant="acme")
            mine = await put(callers, tenant="acme", key="k")
            assert (await callers.get(mine, tenant="acme")).tenant == "acme"  # type: ignore[union-attr]
            assert await callers.get(other, tenant="acme") is None
            assert await callers.states([other]) == [None]
            with pytest.raises(StoreError, match="permission denied"):
                await ask(callers)
        async with raw(of_role(place.url)) as connection:
            assert await connection.fetchval("SELECT count(*) FROM all_jobs") == 0
            await connection.execute("SELECT set_config('app.tenant_id', 'acme', false)")
            assert await connection.fetchval("SELECT count(*) FROM all_jobs") == 3
            for statement in ("UPDATE jobs SET fence = 9", "SELECT FROM documents", "DROP TABLE jobs"):
                assert await refused(connection, statement)
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await connection.execute(
                    "INSERT INTO keys (tenant, scope, key, id) VALUES ('other', 'a', 'b', gen_random_uuid())"
                )


async def _put_for(place: Secured, tenant: str) -> Any:
    async with opened(place.url, migrated=False) as [store]:
        return await put(store, tenant=tenant)


@pytest.mark.parametrize("name", ["", "x" * 64, "a\x00b", "public"])
def test_a_name_that_would_mean_somebody_else_is_refused(name: str) -> None:
    """PostgreSQL cuts long names off, and takes public for everybody."""
    with pytest.raises(ConfigurationError, match="the role is"):
        write_grants("postgresql:", name)
