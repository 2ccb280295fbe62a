"""What a server says of itself: who pins vacuum, and what cannot be seen."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tests.servers.postgres import FAST, PostgresServer
from tests.servers.shared import empty_url
from tidewheel import Tidewheel
from tidewheel.core.reports import HealthFinding, HealthFindingKind
from tidewheel.stores.postgres import PostgresStore, health
from tidewheel.stores.postgres.health import shown_statement


async def of_kind(app: Tidewheel, kind: HealthFindingKind) -> list[HealthFinding]:
    return [ailment for ailment in await app.store.health() if ailment.kind is kind]


async def test_who_holds_a_snapshot_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process, program and state, and the beginning of its statement without values."""
    monkeypatch.setattr(health, "MAX_SNAPSHOT_SECONDS", 0.05)
    url = empty_url()
    holder = await asyncpg.connect(url.partition("?")[0], server_settings={"application_name": "report"})
    try:
        async with Tidewheel(url) as app:
            assert [
                one for one in await of_kind(app, HealthFindingKind.PINNED_VACUUM) if _is_report(one)
            ] == []
            async with holder.transaction(isolation="repeatable_read"):
                await holder.fetch("SELECT 'a secret', 42, $1::int", 7)
                await asyncio.sleep(0.1)
                pins = [one for one in await of_kind(app, HealthFindingKind.PINNED_VACUUM) if _is_report(one)]
            [pin] = pins
            assert pin.figures["process"] == holder.get_server_pid()
            assert pin.figures["state"] == "idle in transaction"
            assert pin.figures["query"] == "SELECT …, …, $1::int"
            assert pin.since is not None
    finally:
        await holder.close()


def _is_report(finding: HealthFinding) -> bool:
    return finding.figures.get("application") == "report"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT  1;\n", "SELECT …"),
        ("UPDATE t SET a = 'it''s', b = $1 WHERE c2 = 3.5", "UPDATE t SET a = …, b = $1 WHERE c2 = …"),
        ("SELECT 'cut off in the mid", "SELECT …"),
        ("SELECT $x$a 'b'$x$ || t", "SELECT … || t"),
        (r"SELECT E'it\'s secret', name, e'\\' FROM t", "SELECT …, name, … FROM t"),
        (r"SELECT 'C:\', name", "SELECT …, name"),
        ("SELECT E'cut off \\", "SELECT …"),
        (None, None),
    ],
)
def test_statements_are_shown_without_values(text: str | None, shown: str | None) -> None:
    """Also where the server cut them off."""
    assert shown_statement(text) == shown
    assert shown_statement("SELECT " + "x" * 500) == "SELECT " + "x" * 93


async def test_what_a_role_may_not_see_is_said_and_harms_nothing_else() -> None:
    """Sessions of others are hidden from an ordinary role; the settings are not."""
    url = empty_url()
    address, _, options = url.partition("?")
    administrator = await asyncpg.connect(address)
    try:
        async with Tidewheel(url):
            pass
        schema = options.removeprefix("schema=")
        await administrator.execute(
            f"CREATE ROLE tidewheel_plain LOGIN; GRANT USAGE ON SCHEMA {schema} TO tidewheel_plain;"
            f"GRANT SELECT ON {schema}.schema_versions TO tidewheel_plain"  # what opening an app reads
        )
        plain = address.replace("postgres@", "tidewheel_plain@")
        async with Tidewheel(f"{plain}?{options}", migrate=False) as app:
            assert await of_kind(app, HealthFindingKind.UNSAFE_COMMITS)
            [unseen] = await of_kind(app, HealthFindingKind.UNSEEN)
        assert unseen.figures["part"] == "open transactions"
        assert unseen.figures["grantee"] == "tidewheel_plain"  # the remedy can be pasted
    finally:
        await administrator.execute("DROP OWNED BY tidewheel_plain; DROP ROLE tidewheel_plain")
        await administrator.close()


async def test_one_broken_part_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view that cannot be read, a part that does not answer: each is told, and the rest is, too."""
    broken = dict(health._sql._statements)
    broken["replication_slots"] = "SELECT * FROM there_is_no_such_view WHERE $1::integer > 0"
    broken["notifications"] = "SELECT pg_sleep(60)"
    monkeypatch.setattr(health._sql, "_statements", broken)
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.2)
    async with Tidewheel(empty_url()) as app:
        unseen = await of_kind(app, HealthFindingKind.UNSEEN)
        assert [one.figures["part"] for one in unseen] == ["replication slots", "notifications"]
        assert await of_kind(app, HealthFindingKind.UNSAFE_COMMITS)
        await app.enqueue("mail", {})


async def test_dead_rows_and_a_crowd_are_told_beyond_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the server's own statistics."""
    monkeypatch.setattr(health, "DEAD_ROWS", 0)
    monkeypatch.setattr(health, "DEAD_SHARE", 0.0)
    monkeypatch.setattr(health, "CONNECTION_SHARE", 0.0)
    monkeypatch.setattr(health, "QUEUE_SHARE", 0.0)
    async with Tidewheel(empty_url()) as app:
        kinds = {one.kind for one in await app.store.health()}
        assert {
            HealthFindingKind.DEAD_ROWS,
            HealthFindingKind.FEW_CONNECTIONS,
            HealthFindingKind.NOTIFY_QUEUE,
        } <= kinds
        assert not app.store.notifications_down


async def test_connections_that_are_reserved_do_not_count(postgres: PostgresServer) -> None:
    """An ordinary role is refused while those of superusers are still free."""
    async with Tidewheel(empty_url()) as app:
        store = app.store
        assert isinstance(store, PostgresStore)
        async with store._database.connection() as connection:
            used, limit = await connection.fetchrow(health._sql["connections"])
    assert used >= 1
    assert limit == int(postgres.settings["max_connections"]) - 3  # superuser_reserved_connections


async def test_a_table_that_is_mostly_empty_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that fill less than a quarter of its pages; a table nobody has counted yet is not accused."""
    monkeypatch.setattr(health, "LARGE_TABLE", 8192 * 4)
    server, _, _ = empty_url().partition("?")
    schema = "sparse"  # of its own: others' tests leave their tables large and empty
    connection = await asyncpg.connect(server)
    try:
        async with Tidewheel(f"{server}?schema={schema}") as app:
            await app.enqueue_many("mail", [{"text": "x" * 500}] * 300)
            assert await of_kind(app, HealthFindingKind.SPARSE) == []
            await connection.execute(f"ANALYZE {schema}.jobs")
            assert await of_kind(app, HealthFindingKind.SPARSE) == []
            await connection.execute(f"DELETE FROM {schema}.jobs")  # noqa: S608 - a name of ours
            await connection.execute(f"VACUUM (TRUNCATE false, ANALYZE) {schema}.jobs")
            [sparse] = await of_kind(app, HealthFindingKind.SPARSE)
    finally:
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        await connection.close()
    assert (sparse.figures["table"], sparse.figures["used"]) == (f"{schema}.jobs", 0.0)


async def test_a_server_that_does_not_vacuum_is_told() -> None:
    """A queue leaves a dead row with every claim."""
    with PostgresServer(settings={**FAST, "autovacuum": "off"}) as server:
        async with Tidewheel(server.url()) as app:
            [found] = await of_kind(app, HealthFindingKind.NO_VACUUM)
            assert found.figures == {"setting": "autovacuum"}
