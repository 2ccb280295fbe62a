"""What somebody with raw SQL as the api role gets at: the rows of the tenant that is named, nothing else."""

# ruff: noqa: S608 - the statements are put together from fixed names

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.patience import PATIENCE
from tests.stores.postgres.row_level_security import API, WORKER, Secured, acting, refused, secured
from tests.stores.postgres.stores import opened, raw
from tidewheel import Tidewheel
from tidewheel.core.model import (
    Completed,
    Failed,
    NewDocument,
    NewStep,
    OnDuplicate,
    Progress,
    Report,
    Settlement,
    State,
    WorkerRecord,
)
from tidewheel.core.topic_limits import Rate, TopicLimits
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import BOOM, claim_from, claim_one, enqueue_one, job, settle_one

NOBODY = [
    None, "", "%", "_", "*", "acme%", "ACME", " acme", "acme ", "'", "''", "acme' OR 'a' = 'a", "acme'--",
    '"acme"', "acme;SELECT 1", "\\", "NULL", "null", "0", "acme,zeta", "{acme}", "root",
]  # fmt: skip
"""Settings that name neither of the two tenants; None: never set."""

FOR_EVERYBODY = {"schema_versions"}
NEVER = {"workers", "retention_queue", "documents"}
"""Tables the api role may not even ask."""


async def fill(store: PostgresStore, tenant: str) -> dict[str, UUID]:
    """Rows of this tenant in every table that has tenants: by state."""
    large = b'"%s"' % (b"x" * 3000)
    lane = f"mail-{tenant}"
    done, bad, running = [
        await enqueue_one(store, lane, tenant=tenant, key=f"key-{number}", payload=large, retention=3600)
        for number in range(3)
    ]
    await settle_one(store, (await claim_one(store, lane)).lease, Completed(b'"secret"'), 0.1)
    await settle_one(store, (await claim_one(store, lane)).lease, Failed(BOOM), 0.1)
    lease = (await claim_one(store, lane)).lease
    step = NewStep("fetch", b'"secret"', 0.1)
    await store.report([Report(lease, Progress(10.0, "secret", "s"), b"{}", step)])
    [packed] = [await enqueue_one(store, f"packed-{tenant}", tenant=tenant)]
    store._claimer.min_leased_batch = 1
    await claim_from(store, f"packed-{tenant}", reports_starts=True)
    waiting = await enqueue_one(store, lane, tenant=tenant)
    await enqueue_one(store, lane, tenant=tenant, after=(waiting,))
    later = await enqueue_one(store, lane, tenant=tenant, delay=600, key="later", payload=large)
    await store.pause(lane, 2**60)
    limited = f"limited-{tenant}"
    await store.set_limits(limited, TopicLimits(fair=True, weights={tenant: 7}, key_rate=Rate(1, 3600)))
    await enqueue_one(store, limited, tenant=tenant, limit_key="secret")
    await claim_from(store, limited)
    return {
        "done": done, "bad": bad, "running": running, "packed": packed, "waiting": waiting, "later": later,
    }  # fmt: skip


@pytest.fixture
async def place() -> AsyncIterator[Secured]:
    async with secured() as place:
        yield place


@pytest.fixture
async def jobs(place: Secured) -> dict[str, dict[str, UUID]]:
    """Two tenants with jobs in every state."""
    async with opened(place.of(WORKER), migrated=False) as [store]:
        await store.heartbeat(WorkerRecord(name="w", host="h", pid=1, version="0", started_at=1, seen_at=1))
        await store.write_documents([NewDocument("key", "k", b"secret")])
        made = {tenant: await fill(store, tenant) for tenant in ("acme", "zeta")}
        await store._counter_rollup.run()
        for tenant, of_tenant in made.items():  # as if somebody had ended a job, and nobody had been told
            ending = (
                "INSERT INTO {schema}.ended_parents (parent, tenant, state) VALUES ($1::uuid, $2::text, 3)"
            )
            await store._database.fetch(ending, of_tenant["done"], tenant)
        for tenant in made:  # so that there is something in the counters, and beside them
            await enqueue_one(store, f"mail-{tenant}", tenant=tenant)
        return made


async def relations(connection: Any, kinds: str = "rv") -> list[str]:
    rows = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        " AND relkind::text = ANY ($1) ORDER BY 1",
        list(kinds),
    )
    return [row[0] for row in rows]


async def with_tenants(connection: Any) -> set[str]:
    rows = await connection.fetch(
        "SELECT table_name FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND column_name = 'tenant'"
    )
    return {row[0] for row in rows}


@pytest.mark.usefixtures("jobs")
async def test_who_names_no_tenant_sees_no_row_of_any_table_or_view(place: Secured) -> None:
    """Not set, empty, patterns, quotes, other spellings: all of them are nobody."""
    async with raw(place.url) as admin, acting(place, API) as api:
        names = set(await relations(admin))
        assert {"jobs", "leased_batches", "job_status", "all_jobs"} <= names
        for name in sorted(names - FOR_EVERYBODY):
            assert await admin.fetchval(f"SELECT count(*) FROM {name}"), f"nothing is in {name}"
        for setting in NOBODY:
            if setting is not None:
                await api.execute("SELECT set_config('app.tenant_id', $1, false)", setting)
            for name in sorted(names - FOR_EVERYBODY - NEVER):
                assert await api.fetchval(f"SELECT count(*) FROM {name}") == 0, f"{setting!r} sees {name}"
        for name in NEVER:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await api.fetch(f"SELECT FROM {name}")


@pytest.mark.usefixtures("jobs")
async def test_a_setting_that_was_local_leaves_nobody_behind(place: Secured) -> None:
    """After SET LOCAL the setting reads as an empty text, not as NULL; that is nobody as well."""
    async with acting(place, API) as api:
        async with api.transaction():
            await api.execute("SET LOCAL app.tenant_id = 'acme'")
            assert await api.fetchval("SELECT count(*) FROM jobs")
        assert await api.fetchval("SELECT current_setting('app.tenant_id', true)") == ""
        assert await api.fetchval("SELECT count(*) FROM all_jobs") == 0


@pytest.mark.usefixtures("jobs")
async def test_a_tenant_sees_exactly_its_rows(place: Secured) -> None:
    """In every table and view that has tenants, all of its own and none of another's."""
    async with raw(place.url) as admin, acting(place, API, "acme") as api:
        names = await with_tenants(admin)
        assert len(names) >= 13
        for name in sorted(names):
            counted = f"SELECT count(*) FROM {name}"
            everybody = await admin.fetchval(counted)
            mine = await admin.fetchval(f"{counted} WHERE tenant = 'acme'")
            assert 0 < mine < everybody, name
            assert await api.fetchval(counted) == mine, name
            assert await api.fetchval(f"{counted} WHERE tenant <> 'acme'") == 0, name
        seen = {row[0] for row in await api.fetch("SELECT topic FROM topics")}
        assert seen == {"mail-acme", "limited-acme"}
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await api.fetch("SELECT limits FROM topics")  # weights name other tenants
        assert await api.fetchval("SELECT count(*) FROM minute_metrics") == 0


@pytest.mark.usefixtures("jobs")
async def test_no_write_reaches_another_tenant(place: Secured) -> None:
    """Rows of another cannot be made, changed, taken over, given away or removed, in any table."""
    async with raw(place.url) as admin, acting(place, API, "acme") as api:
        before = await admin.fetch("SELECT id, tenant FROM all_jobs ORDER BY id")
        for name in sorted(await with_tenants(admin)):
            if name in await relations(admin, "v"):
                continue
            others = await refused(api, f"DELETE FROM {name} WHERE tenant = 'zeta'")
            assert others == "" or "permission denied" in others, name
            for statement in (
                f"UPDATE {name} SET tenant = 'zeta'",
                f"UPDATE {name} SET tenant = 'acme' WHERE tenant = 'zeta'",
                f"TRUNCATE {name}",
            ):
                assert "permission denied" in await refused(api, statement), statement
            # A copy of a row of its own, given to the other.
            said = await refused(
                api,
                f'INSERT INTO {name} SELECT (jsonb_populate_record(t, \'{{"tenant": "zeta"}}\')).*'
                f" FROM {name} t LIMIT 1",
            )
            assert "row-level security" in said or "permission denied" in said, (name, said)
        assert await admin.fetch("SELECT id, tenant FROM all_jobs ORDER BY id") == before


async def test_verbs_with_another_tenants_ids_find_nothing(
    place: Secured, jobs: dict[str, dict[str, UUID]]
) -> None:
    """Called as functions, with no tenant or the other's as argument: what is named is not seen."""
    theirs = list(jobs["zeta"].values())
    async with raw(place.url) as admin, acting(place, API, "acme") as api:
        before = await admin.fetch("SELECT id, state, cancel_requested FROM all_jobs ORDER BY id")
        for argument in (None, "zeta", "acme"):
            for call in (
                "SELECT o_verdict FROM requeue(NULL, $1, $2)",
                "SELECT o_verdict FROM cancel(NULL, $1, $2, 's')",
                "SELECT o_verdict FROM delete_jobs(NULL, $1, $2)",
            ):
                verdicts = {row[0] for row in await api.fetch(call, theirs, argument)}
                assert verdicts == {"not_found"}, call
        packed = await admin.fetch("SELECT batch, held_mask FROM leased_batches ORDER BY batch")
        await api.execute("SELECT unbatch_jobs($1, NULL)", theirs)
        assert await admin.fetch("SELECT batch, held_mask FROM leased_batches ORDER BY batch") == packed
        assert (
            await api.fetchval(
                "SELECT bool_or(any_batched(ARRAY[id])) FROM unnest($1::uuid[]) AS u(id)", theirs
            )
            is False
        )
        await api.execute("SELECT delete_job_data($1)", theirs)
        row = await api.fetchrow("SELECT o_topics, o_paused FROM lanes(NULL, NULL)")
        assert not [topic for topic in row["o_topics"] + row["o_paused"] if "zeta" in topic]
        assert await admin.fetch("SELECT id, state, cancel_requested FROM all_jobs ORDER BY id") == before
        assert await admin.fetchval("SELECT count(*) FROM bodies WHERE tenant = 'zeta'") == 4


FOR_WORKERS = (
    *(
        "claim",
        "extend",
        "settle",
        "complete_batched",
        "mark_started",
        "rescue",
        "promote",
        "prune",
        "release_lost_grants",
        "roll_up_counters",
    ),
    "add_attempt",
)


async def call_of(connection: Any, function: str) -> str:
    """A call of a function of the schema with arguments of the right types."""
    types = await connection.fetchval(
        "SELECT proargtypes::regtype[]::text[] FROM pg_proc WHERE proname = $1", function
    )
    return f"SELECT {function}({', '.join(f'NULL::{type_}' for type_ in types)})"


@pytest.mark.usefixtures("jobs")
async def test_what_is_for_workers_is_refused_also_for_ones_own_jobs(place: Secured) -> None:
    """No claim, no lease, no fence, no settlement, no pause, no adding up, no pruning, no tables."""
    async with acting(place, API, "acme") as api:
        for statement in (
            *[await call_of(api, name) for name in FOR_WORKERS],
            "SELECT nextval('fences')",
            "SELECT last_value FROM numbers",
            "SELECT setval('numbers', 1)",
            "UPDATE jobs SET leased_until = 1, state = 2, fence = 64",
            "UPDATE jobs SET attempt = 0",
            "UPDATE jobs SET number = 1",
            "INSERT INTO leased_batches SELECT * FROM leased_batches",
            "UPDATE leased_batches SET leased_until = 2 ^ 60",
            "INSERT INTO topics VALUES ('mail-acme', 1)",
            "DELETE FROM topics",
            "UPDATE topics SET paused_until = NULL",
            "DELETE FROM counter_deltas",
            "INSERT INTO job_counts VALUES ('acme', 't', 't', 1, 1, 1, 1, 1, 1)",
            "UPDATE job_counts SET ready = 0",
            "INSERT INTO minute_metrics VALUES (0, 0, 0, 1, 1)",
            "INSERT INTO workers VALUES ('w', 'h', 1, 'v', 1, 1, '{}')",
            "DELETE FROM retention_queue",
            "INSERT INTO progress (id, tenant) VALUES (gen_random_uuid(), 'acme')",
            "INSERT INTO attempts VALUES (gen_random_uuid(), 'acme', 1, 1, 'w', 1, 1, '{}')",
            "INSERT INTO schema_versions VALUES (99, 'x')",
            "DELETE FROM schema_versions",
            "CREATE TABLE mine (n integer)",
            "CREATE FUNCTION mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "CREATE TRIGGER mine AFTER INSERT ON jobs EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "ALTER TABLE jobs DISABLE ROW LEVEL SECURITY",
            "DROP POLICY tidewheel_api ON jobs",
            "CREATE POLICY mine ON jobs USING (true)",
            "SET ROLE tidewheel_worker",
            "SET ROLE tidewheel_owner",
            "SET SESSION AUTHORIZATION postgres",
            "COPY jobs TO PROGRAM 'true'",
        ):
            said = await refused(api, statement)
            assert "permission denied" in said or "must be owner" in said, (statement, said)
        # Not silently filtered: a session that tries to see past the policies is told.
        await api.execute("SET row_security = off")
        assert "row-level security" in await refused(api, "DELETE FROM jobs")


async def test_a_row_that_would_hold_up_workers_cannot_be_written(
    place: Secured, jobs: dict[str, dict[str, UUID]]
) -> None:
    """Workers read rows of all tenants in one statement: one that overflows would stop them all."""
    async with acting(place, API, "acme") as api:
        plain = {
            "id": "gen_random_uuid()", "priority": "0", "run_at": "1", "created_at": "1", "state": "1",
            "format": "0", "topic": "'t'", "task": "''", "tenant": "'acme'", "payload": "'{}'",
        }  # fmt: skip

        def insert(**columns: str) -> str:
            row = plain | columns
            return f"INSERT INTO jobs ({', '.join(row)}) VALUES ({', '.join(row.values())})"

        greatest = str(2**63 - 1)
        for columns in (
            {"priority": f"-{greatest} - 1", "state": "0"},
            {"priority": greatest},
            {"retention_us": greatest},
            {"retention_failed_us": greatest},
            {"lease_us": greatest},
            {"lease_us": "0"},
            {"timeout_us": "-1"},
            {"run_at": greatest},
            {"run_at": "-1"},
            {"expires_at": greatest},
            {"reserves": str(2**31 - 1)},
            {"attempt": str(2**31 - 1)},
            {"timeouts": str(2**31 - 1)},
            {"kicks": str(2**31 - 1)},
            {"number": "-1"},
            {"number": "1000000"},
            {"fence": greatest},
            {"topic": "repeat('t', 1000)"},
            {"task": "repeat('t', 1000)"},
            {"error_summary": "repeat('t', 100000)"},
            {"payload": "NULL"},
            {"tenant": "''"},
        ):
            said = await refused(api, insert(**columns))
            assert "row-level security" in said or "out of range" in said, (columns, said)
        await api.execute(insert())
        for statement in (
            f"INSERT INTO counter_deltas (minute, tenant, topic, task) VALUES ({greatest}, 'acme', 't', '')",
            "INSERT INTO counter_deltas (minute, tenant, topic, task) VALUES (1, 'acme', 't', '')",
            "INSERT INTO counter_deltas (minute, tenant, topic, task, run_us) VALUES (0, 'acme', 't', '', 1)",
            "INSERT INTO retention_queue VALUES (1, 1, ARRAY[gen_random_uuid()])",
            f"INSERT INTO retention_queue VALUES (1, 1, ARRAY['{jobs['zeta']['done']}'::uuid])",
            f"INSERT INTO retention_queue VALUES (1, 1, ARRAY['{jobs['acme']['done']}'::uuid])",  # too early
        ):
            said = await refused(api, statement)
            assert "row-level security" in said or "permission denied" in said, (statement, said)
    async with opened(place.of(WORKER), migrated=False) as [store]:
        assert (await claim_from(store, "t")).jobs


@pytest.mark.usefixtures("jobs")
async def test_a_job_without_its_body_harms_nobody_but_itself(place: Secured) -> None:
    """A caller can say that a body is kept apart, and keep none; claimed with others, it fails alone."""
    working = Tidewheel(place.of(WORKER), migrate=False)

    @working.task(max_attempts=1)
    async def greet(name: str = "nobody") -> str:
        return name

    async with working, acting(place, API, "acme") as api:
        good = [await greet.options(tenant="zeta").enqueue(name="Ada") for _ in range(3)]
        broken = await greet.options(tenant="acme").enqueue(name="Ada")
        await api.execute("UPDATE jobs SET has_separate_body = true, payload = NULL WHERE id = $1", broken.id)
        await working.run_until_idle()
        states = await working.store.states([job.id for job in (*good, broken)])
        assert states == [State.COMPLETED] * 3 + [State.FAILED]


async def test_parts_planted_beside_another_tenants_job_are_not_taken_for_its_own(
    place: Secured, jobs: dict[str, dict[str, UUID]]
) -> None:
    """Who learned the id of another's job can write a body under it; it is neither shown nor in the way."""
    theirs = jobs["zeta"]["waiting"], jobs["zeta"]["later"]
    async with acting(place, API, "acme") as api:
        for job_id in theirs:
            await api.execute("INSERT INTO bodies VALUES ($1, 'acme', '\"planted\"', NULL)", job_id)
    async with opened(place.of(WORKER), place.of(API), migrated=False) as [worker, api_store]:
        large = b'"%s"' % (b"y" * 3000)
        replacing = {"key": "later", "on_duplicate": OnDuplicate.REPLACE}
        [answer] = await api_store.enqueue([job("mail-zeta", tenant="zeta", payload=large, **replacing)])
        assert (answer.job_id, answer.replaced) == (jobs["zeta"]["later"], True)
        record = await worker.get(answer.job_id)
        assert record is not None
        assert record.payload == large
        await worker.pause("mail-zeta", None)
        claimed = await claim_from(worker, "mail-zeta")
        assert b"planted" not in b"".join(one.payload for one in claimed.jobs)
        assert len(claimed.jobs) == 3
        answers = await worker.settle([Settlement(one.lease, Completed(b"1"), 0.1) for one in claimed.jobs])
        assert all(answers)


async def test_a_key_says_nothing_of_another_tenants_keys(
    place: Secured, jobs: dict[str, dict[str, UUID]]
) -> None:
    """A key that the other tenant holds is free here; no answer and no error tells of it."""
    async with opened(place.of(API), migrated=False) as [store]:
        [answer] = await store.enqueue([job("mail-zeta", tenant="acme", key="later")])
        assert not answer.duplicate
        assert answer.job_id not in jobs["zeta"].values()
        assert await store.states([answer.job_id], tenant="acme") == [State.PENDING]


async def test_hints_name_no_topics(place: Secured) -> None:
    """Everybody may listen to a channel; what travels there tells neither topics nor numbers."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with acting(place, API) as spy, opened(place.of(WORKER), place.of(API), migrated=False) as stores:
        for channel in (place.schema, f"{place.schema}.finished"):
            await spy.add_listener(channel, lambda *said: heard.put_nowait(said[3]))
        for store in stores:
            await enqueue_one(store, "confidential", tenant="zeta")
            message = await asyncio.wait_for(heard.get(), PATIENCE)
            assert "confidential" not in message
            assert '",null,' in message


async def test_all_views_ask_with_the_rights_of_whoever_looks(place: Secured) -> None:
    """A plain view would show everybody what its owner sees."""
    async with raw(place.url) as admin:
        rows = await admin.fetch(
            "SELECT relname, coalesce('security_invoker=true' = ANY (reloptions), false) FROM pg_class"
            " WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('v', 'm')"
        )
        assert {row[0] for row in rows} >= {"job_status", "all_jobs", "single_row_jobs", "batched_jobs"}
        assert all(row[1] for row in rows), rows
