"""The driver's own connection in a handler's hands: it can do much, and cannot end what is not its own."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.client.handler_transactions.ledger import OPENING, ledger_of
from tests.servers.shared import empty_url
from tidewheel import Context, JobFailed, Tidewheel, TransactionTimeout


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


async def _run(app: Tidewheel, handler: Any, **options: Any) -> Any:
    job = await app.task(name="handler", max_attempts=1, **options)(handler).enqueue()
    await app.run_until_idle()
    await job.refresh()
    return job


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "ROLLBACK",
        "END",
        "BEGIN",
        "UPDATE tidewheel_jobs SET state = 3",
        "DELETE FROM Tidewheel_Job_Keys",
        "INSERT INTO tidewheel_topics (topic, paused_until) VALUES ('a', 1)",
        "DROP TABLE tidewheel_jobs",
        "RELEASE tidewheel_handler",
        "ROLLBACK TO tidewheel_handler",
        "ALTER TABLE tidewheel_jobs ADD COLUMN mine TEXT",
        "CREATE TRIGGER mine AFTER INSERT ON tidewheel_jobs BEGIN SELECT 1; END",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA synchronous = OFF",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA writable_schema = ON",
        "PRAGMA WAL_AutoCheckpoint = 1",
        "PRAGMA Locking_Mode = EXCLUSIVE",
        "CREATE TEMP TRIGGER mine BEFORE UPDATE ON tidewheel_jobs BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TEMP TABLE tidewheel_jobs (id)",
        "CREATE TEMP VIEW tidewheel_jobs AS SELECT 1",
    ],
)
async def test_on_sqlite_a_handler_can_neither_end_it_nor_touch_the_queue(
    sqlite_url: str, statement: str
) -> None:
    """Half a transfer committed, or a job completed by hand, would make every promise void."""
    app = Tidewheel(sqlite_url, lease=6)

    async def handler(ctx: Context) -> None:
        await ctx.transaction.execute("CREATE TABLE mine (name TEXT)")
        with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
            await ctx.transaction.execute(statement)
        await ctx.transaction.execute("INSERT INTO mine VALUES ('kept')")

    async with app:
        job = await _run(app, handler)
        assert (job.state, job.error) == ("completed", None)
        assert await app.check() == []
    assert _look(sqlite_url, "SELECT name FROM mine") == [("kept",)]


async def test_on_sqlite_savepoints_and_foreign_keys_are_as_one_expects(sqlite_url: str) -> None:
    """Part of it can be undone, and keys that are declared hold, though SQLite forgets them by default."""
    app = Tidewheel(sqlite_url, lease=6)

    async def handler(ctx: Context) -> None:
        say = ctx.transaction.execute
        await say("CREATE TABLE mine (name TEXT PRIMARY KEY)")
        await say("CREATE TABLE yours (name TEXT REFERENCES mine)")
        await say("SAVEPOINT here")
        await say("INSERT INTO mine VALUES ('undone')")
        await say("ROLLBACK TO here")
        await say("INSERT INTO mine VALUES ('kept')")
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            await say("INSERT INTO yours VALUES ('undone')")

    async with app:
        assert (await _run(app, handler)).error is None
    assert _look(sqlite_url, "SELECT name FROM mine") == [("kept",)]


async def test_on_sqlite_a_job_behind_the_handlers_own_savepoint_is_gone_with_it(sqlite_url: str) -> None:
    """Rows and counters: both are undone."""
    app = Tidewheel(sqlite_url, lease=6)

    @app.task
    async def note() -> None: ...

    async def handler(ctx: Context) -> None:
        await ctx.transaction.execute("SAVEPOINT here")
        await note.enqueue()
        await ctx.transaction.execute("ROLLBACK TO here")
        await note.options(delay=60).enqueue()

    async with app:
        assert (await _run(app, handler)).error is None
        assert (await app.stats()).pending == 1
        assert await app.check() == []


async def test_on_sqlite_a_statement_whose_caller_gave_up_before_its_turn_is_not_run(sqlite_url: str) -> None:
    """Who is told that nothing came of it can rely on that."""
    app = Tidewheel(sqlite_url, lease=60)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000)"

    async def handler(ctx: Context) -> None:
        await ctx.transaction.execute("CREATE TABLE mine (name TEXT)")
        first = asyncio.create_task(ctx.transaction.fetchval(f"{numbers} SELECT max(i) FROM n"))
        await asyncio.sleep(0)
        given_up = asyncio.create_task(ctx.transaction.execute("INSERT INTO mine VALUES ('late')"))
        await asyncio.sleep(0)
        given_up.cancel()
        await first

    async with app:
        assert (await _run(app, handler)).error is None
    assert _look(sqlite_url, "SELECT name FROM mine") == []


async def test_on_sqlite_the_connection_itself_is_not_given_away(sqlite_url: str) -> None:
    """Its thread would share it with the handler's, and the driver can hang or crash then."""
    app = Tidewheel(sqlite_url, lease=6)

    async def handler(ctx: Context) -> None:
        await ctx.transaction.connection()

    async with app:
        assert "execute, executemany, fetch" in (await _run(app, handler)).error.message


async def test_on_sqlite_a_transaction_that_the_database_has_rolled_back_is_not_gone_on_with(
    sqlite_url: str,
) -> None:
    """What is said next would be committed by itself, statement by statement."""
    app = Tidewheel(sqlite_url, lease=6)

    async def handler(ctx: Context) -> None:
        say = ctx.transaction.execute
        await say("CREATE TABLE mine (name TEXT UNIQUE)")
        await say("INSERT INTO mine VALUES ('a')")
        with pytest.raises(sqlite3.IntegrityError):
            await say("INSERT OR ROLLBACK INTO mine VALUES ('a')")
        with pytest.raises(Exception, match="rolled the transaction back"):
            await say("CREATE TABLE other (name TEXT)")

    async with app:
        job = await _run(app, handler)
        assert job.state == "failed"
        assert "rolled the transaction back" in job.error.message
    assert _look(sqlite_url, "SELECT name FROM sqlite_master WHERE name IN ('mine', 'other')") == []


async def test_on_postgresql_a_connection_that_was_kept_is_dead_after_the_end() -> None:
    """A task that a handler left behind cannot write outside of any transaction."""
    app = Tidewheel(empty_url(), lease=6)
    kept: list[Any] = []

    async def handler(ctx: Context) -> None:
        kept.append(await ctx.transaction.connection())

    async with app:
        assert (await _run(app, handler)).state == "completed"
        with pytest.raises(asyncpg.InterfaceError, match="closed"):
            await kept[0].execute("SELECT 1")


async def test_on_sqlite_a_statement_that_takes_too_long_is_cut_off_in_the_middle(sqlite_url: str) -> None:
    """Nobody else can write as long as it runs."""
    app = Tidewheel(sqlite_url, lease=6, transaction_seconds=0.3)
    said: list[str] = []
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def handler(ctx: Context) -> None:
        say = ctx.sync.transaction.execute
        say("CREATE TABLE mine (name TEXT)")
        for statement in (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
            "CREATE TABLE other (name TEXT)",
        ):
            try:
                say(statement)
            except TransactionTimeout as error:
                said.append(str(error))
        loop.call_soon_threadsafe(over.set)

    async with app:
        job = await _run(app, handler)
        await over.wait()
        assert (job.state, job.error.code) == ("failed", "transaction_timeout")
    assert len(said) == 2
    assert _look(sqlite_url, "SELECT name FROM sqlite_master WHERE name IN ('mine', 'other')") == []


async def test_on_postgresql_a_handler_that_ends_it_by_itself_is_told_what_it_did() -> None:
    """It cannot be kept from it there; it is not taken for a completion."""
    url = empty_url()
    app = Tidewheel(url, lease=6)

    async def handler(ctx: Context) -> None:
        connection = await ctx.transaction.connection()
        await connection.execute("COMMIT")

    async with app:
        job = await _run(app, handler)
        assert job.state == "failed"
        assert "ended by the handler itself" in job.error.message


async def test_on_postgresql_nested_transactions_are_savepoints() -> None:
    """``async with connection.transaction()`` works as everybody expects."""
    url = empty_url()
    app = Tidewheel(url, lease=6)
    ledger = ledger_of(url)

    async def handler(ctx: Context) -> None:
        connection = await ctx.transaction.connection()
        async with connection.transaction():
            await connection.execute(f"UPDATE {ledger.accounts} SET balance = 1 WHERE id = 1")
        undone = connection.transaction()
        await undone.start()
        await connection.execute(f"UPDATE {ledger.accounts} SET balance = 2 WHERE id = 2")
        await undone.rollback()

    async with app:
        await ledger.make()
        assert (await _run(app, handler)).state == "completed"
    assert (await ledger.balances())[:3] == [OPENING, 1, OPENING]
    await ledger.drop()


async def test_on_postgresql_a_failed_statement_that_was_swallowed_fails_the_attempt() -> None:
    """The server refuses everything after it, the completion included."""
    app = Tidewheel(empty_url(), lease=6)

    async def handler(ctx: Context) -> None:
        with pytest.raises(asyncpg.UndefinedTableError):
            await ctx.transaction.execute("UPDATE nowhere SET nothing = 1")

    async with app:
        job = await _run(app, handler)
        with pytest.raises(JobFailed, match="aborted"):
            await job.result(timeout=0)


async def test_on_postgresql_the_tenant_is_set_for_policies_of_the_programs_own_tables() -> None:
    """Locally: the next who gets the connection has none."""
    app = Tidewheel(empty_url(), lease=6)
    seen: list[Any] = []

    @app.task(max_attempts=1)
    async def look(ctx: Context) -> None:
        seen.append(await ctx.transaction.fetchval("SELECT current_setting('app.tenant_id', true)"))

    async with app:
        for tenant in ("acme", "globex", "root"):
            await (look if tenant == "root" else look.options(tenant=tenant)).enqueue()
            await app.run_until_idle()
    assert seen == ["acme", "globex", "root"]


async def test_on_postgresql_what_a_handler_left_in_the_session_is_gone_for_the_next() -> None:
    """Settings, temporary tables, advisory locks: the same connection is lent again without them."""
    app = Tidewheel(empty_url(), lease=6)
    seen: list[Any] = []

    @app.task(max_attempts=1)
    async def leave(ctx: Context) -> None:
        await ctx.transaction.execute("SET statement_timeout = 4711")
        await ctx.transaction.execute("SET ROLE pg_monitor")
        await ctx.transaction.execute("CREATE TEMPORARY TABLE left_behind (name text)")
        await ctx.transaction.fetch("SELECT pg_advisory_lock(4711)")
        seen.append(await ctx.transaction.fetchval("SELECT pg_backend_pid()"))

    @app.task(max_attempts=1)
    async def look(ctx: Context) -> None:
        seen.append(await ctx.transaction.fetchval("SELECT pg_backend_pid()"))
        seen.append(await ctx.transaction.fetchval("SELECT current_user = session_user"))
        seen.append(await ctx.transaction.fetchval("SELECT to_regclass('left_behind')"))
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711"
        seen.append(await ctx.transaction.fetchval(locks))

    async with app:
        for task in (leave, look):
            await task.enqueue()
            await app.run_until_idle()
    assert seen == [seen[0], seen[0], True, None, 0]


def _look(url: str, statement: str) -> list[Any]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection.execute(statement).fetchall()
    finally:
        connection.close()
