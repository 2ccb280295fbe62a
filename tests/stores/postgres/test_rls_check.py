"""The store's own check finds walls with holes, and says how to close them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.stores.postgres.row_level_security import API, MIGRATOR, WORKER, Secured, secured
from tests.stores.postgres.stores import opened, raw


@pytest.fixture
async def place() -> AsyncIterator[Secured]:
    """For a test that leaves damage behind."""
    async with secured() as place:
        yield place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting() -> AsyncIterator[Secured]:
    """For those that say at their end that there is none: making one takes longer than they do."""
    async with secured() as place:
        yield place


async def found(place: Secured, role: str = WORKER) -> list[str]:
    async with opened(place.of(role), migrated=False) as [store]:
        return await store.check()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("ALTER TABLE jobs DISABLE ROW LEVEL SECURITY", "table jobs is off"),
        ("ALTER TABLE minute_metrics DISABLE ROW LEVEL SECURITY", "table minute_metrics is off"),
        ("ALTER TABLE bodies NO FORCE ROW LEVEL SECURITY", "bodies is not forced"),
        ("DROP POLICY tidewheel_api ON attempts", "attempts has no policy tidewheel_api"),
        ("DROP POLICY tidewheel_worker ON workers", "workers has no policy tidewheel_worker"),
        (
            "ALTER POLICY tidewheel_api ON job_keys USING (true)",
            "keys has no policy tidewheel_api, or a changed",
        ),
        ("ALTER POLICY tidewheel_api ON jobs WITH CHECK (true)", "jobs has no policy tidewheel_api, or"),
        ("ALTER POLICY tidewheel_worker ON jobs TO PUBLIC", "jobs has no policy tidewheel_worker, or"),
        (
            (
                "ALTER POLICY tidewheel_api ON leased_batches"
                " USING (tenant LIKE current_setting('app.tenant_id', true))"
            ),
            "leased_batches has no policy tidewheel_api, or a changed",
        ),
        ("DROP POLICY tidewheel_api_values ON jobs", "jobs has no policy tidewheel_api_values"),
        ("CREATE TABLE later (tenant text)", "table later is off"),
        ("CREATE TABLE later_still (tenant text)", "later_still has no policy tidewheel_api"),
        ("ALTER TABLE attempts OWNER TO tidewheel_api", "tidewheel_api, but owns attempts"),
        (
            f"ALTER FUNCTION roll_up_counters() OWNER TO {API}",
            f"the role {API} calls as tidewheel_api, but owns roll_up_counters",
        ),
    ],
)
async def test_a_hole_in_the_schema_is_found_and_closed(lasting: Secured, damage: str, words: str) -> None:
    """The remedy that is told is to migrate again, and it helps."""
    assert await found(lasting) == []
    await _damaged(lasting, damage, words, "tidewheel migrate --rls")
    async with opened(lasting.url, migrated=False) as [store]:
        await store.migrate(rls=True)
    assert await found(lasting) == []


@pytest.mark.parametrize(
    ("damage", "words", "remedy"),
    [
        ("CREATE POLICY more ON jobs USING (true)", "jobs has a policy more", "DROP POLICY more ON"),
        (
            "CREATE POLICY tidewheel_api ON minute_metrics USING (true)",
            "minute_metrics has a policy",
            "DROP POLICY",
        ),
        (
            "CREATE FUNCTION peek() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT 1::bigint'",
            "function peek runs with the rights of its owner",
            "SECURITY INVOKER",
        ),
        ("CREATE VIEW peek AS SELECT * FROM jobs", "view peek shows what its owner sees", "security_invoker"),
        ("ALTER VIEW job_status RESET (security_invoker)", "view job_status shows", "security_invoker"),
        (
            "GRANT TRUNCATE ON jobs TO tidewheel_api",
            "may truncate or put triggers on jobs",
            "REVOKE TRUNCATE",
        ),
        ("GRANT SELECT ON documents TO tidewheel_api", "but has rights on", "REVOKE ALL ON"),
        ("GRANT UPDATE (body) ON documents TO PUBLIC", "where keys, users and secrets are", "REVOKE ALL ON"),
        ("GRANT TRIGGER ON jobs TO PUBLIC", "may truncate or put triggers on jobs", "REVOKE TRUNCATE"),
    ],
)
async def test_what_migrating_does_not_undo_is_found(
    place: Secured, damage: str, words: str, remedy: str
) -> None:
    """Each with the statement that does."""
    await _damaged(place, damage, words, remedy)


async def _damaged(place: Secured, damage: str, words: str, remedy: str) -> None:
    async with raw(place.url) as admin:
        await admin.execute(damage)
    problems = await found(place)
    assert any(words in problem and remedy in problem for problem in problems), problems


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("damage", "undo", "words"),
    [
        (
            f"ALTER ROLE {API} SUPERUSER",
            f"ALTER ROLE {API} NOSUPERUSER",
            f"role {API} calls as tidewheel_api, but is a",
        ),
        (f"ALTER ROLE {API} BYPASSRLS", f"ALTER ROLE {API} NOBYPASSRLS", "bypasses row-level security"),
        (
            "ALTER ROLE tidewheel_api BYPASSRLS",
            "ALTER ROLE tidewheel_api NOBYPASSRLS",
            "role tidewheel_api calls",
        ),
        (
            f"GRANT tidewheel_worker TO {API}",
            f"REVOKE tidewheel_worker FROM {API}",
            "is a member of tidewheel_worker",
        ),
        (
            f"GRANT tidewheel_owner TO {API}",
            f"REVOKE tidewheel_owner FROM {API}",
            "is a member of tidewheel_owner",
        ),
        (
            "GRANT tidewheel_worker TO tidewheel_api",
            "REVOKE tidewheel_worker FROM tidewheel_api",
            f"role {API} calls as tidewheel_api, but is a member of tidewheel_worker",
        ),
        (
            f"GRANT CREATE ON SCHEMA {{schema}} TO {API}",
            f"REVOKE CREATE ON SCHEMA {{schema}} FROM {API}",
            "may make objects in",
        ),
        (f"ALTER ROLE {WORKER} BYPASSRLS", f"ALTER ROLE {WORKER} NOBYPASSRLS", f"role {WORKER} bypasses"),
        (
            f"GRANT tidewheel_owner TO {WORKER}",
            f"REVOKE tidewheel_owner FROM {WORKER}",
            f"role {WORKER} owns tables",
        ),
    ],
)
async def test_a_role_that_no_policy_holds_is_found(
    lasting: Secured, damage: str, undo: str, words: str
) -> None:
    """The statement that undoes it makes the problem go away."""
    async with raw(lasting.url) as admin:
        assert await found(lasting) == []
        await admin.execute(damage.format(schema=lasting.schema))
        try:
            problems = await found(lasting)
        finally:
            await admin.execute(undo.format(schema=lasting.schema))
        assert any(words in problem for problem in problems), problems
        assert await found(lasting) == []


async def test_who_checks_as_somebody_no_policy_holds_is_told(place: Secured) -> None:
    """A superuser, or who migrates, should not be who runs."""
    [superuser] = await found(place, "postgres")
    assert "superuser postgres" in superuser
    [owner] = await found(place, MIGRATOR)
    assert "owns tables" in owner


async def test_nothing_is_asked_of_roles_without_row_level_security(postgres_url: str) -> None:
    """Whoever never wanted it hears nothing of it."""
    async with opened(postgres_url) as [store]:
        assert await store.check() == []


async def test_security_that_was_switched_off_everywhere_is_still_missed(place: Secured) -> None:
    """Somebody who takes all of it away by hand leaves an owner behind, by which it is noticed."""
    async with raw(place.url) as admin:
        await admin.execute(
            """
            DO $$
            DECLARE
                one record;
            BEGIN
                FOR one IN
                    SELECT polrelid::regclass AS name, polname
                    FROM pg_policy JOIN pg_class c ON c.oid = polrelid
                    WHERE relnamespace = current_schema()::regnamespace
                LOOP
                    EXECUTE format('DROP POLICY %I ON %s', one.polname, one.name);
                    EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', one.name);
                END LOOP;
            END
            $$
            """
        )
    assert any("table jobs is off" in problem for problem in await found(place))
