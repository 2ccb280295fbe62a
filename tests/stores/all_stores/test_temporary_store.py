"""Scratch places: beside the real jobs, with the same settings, and gone in the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.servers import PostgresServer
from tidewheel import Tidewheel
from tidewheel.admin.reports.findings import describe_health_finding
from tidewheel.errors import NotOpen, StoreError
from tidewheel.stores import TemporaryStore, make_temporary_store
from tidewheel.stores.postgres.location import parse_url as parse_postgres
from tidewheel.stores.postgres.temporary_store import PostgresTemporaryStore
from tidewheel.stores.sqlite.location import parse_url as parse_sqlite
from tidewheel.stores.sqlite.temporary_store import SqliteTemporaryStore
from tidewheel.stores.temporary_store import MemoryTemporaryStore


async def use(temporary: TemporaryStore) -> None:
    """What its users do: an app with a job in it."""
    async with Tidewheel(temporary.url) as app:
        await app.enqueue("mail")
        assert (await app.stats()).pending == 1


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path.as_posix()}/jobs.db"
        case _:
            server: PostgresServer = request.getfixturevalue("postgres")
            return server.url()


async def traces(url: str, tmp_path: Path) -> list[str]:
    """What is left on disk and server."""
    left = [path.name for path in tmp_path.iterdir()]
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(url)
        try:
            rows = await connection.fetch("SELECT nspname FROM pg_namespace")
        finally:
            await connection.close()
        left += [row[0] for row in rows if row[0].startswith("tidewheel_scratch")]
    return left


async def test_it_is_a_store_that_goes_with_all_that_is_in_it(url: str, tmp_path: Path) -> None:
    """Files, their companions, the schema."""
    async with make_temporary_store(url) as scratch:
        await use(scratch)
        for time in (await scratch.measure_round_trip(), await scratch.measure_commit()):
            assert time is None or time > 0
    assert await traces(url, tmp_path) == []


async def test_it_goes_when_its_user_fails(url: str, tmp_path: Path) -> None:
    """And the error is passed on."""

    async def fail() -> None:
        async with make_temporary_store(url) as scratch:
            await use(scratch)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await traces(url, tmp_path) == []


async def test_it_goes_when_its_user_is_cancelled_while_it_is_being_removed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Ctrl-C in the last moment must not keep what was about to go."""
    kinds: dict[str, Any] = {
        "memory": MemoryTemporaryStore,
        "sqlite": SqliteTemporaryStore,
        "postgresql": PostgresTemporaryStore,
    }
    kind = kinds[url.partition(":")[0]]
    remove = kind.remove
    begun = asyncio.Event()

    async def tell(scratch: Any) -> None:
        begun.set()
        await asyncio.sleep(0)  # the cancellation comes now
        await remove(scratch)

    monkeypatch.setattr(kind, "remove", tell)

    async def work() -> None:
        async with make_temporary_store(url) as scratch:
            await use(scratch)

    working = asyncio.create_task(work())
    await begun.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await traces(url, tmp_path) == []


async def test_two_at_a_time_do_not_meet(url: str) -> None:
    """Each has a name of its own."""
    async with make_temporary_store(url) as one, make_temporary_store(url) as other:
        await use(one)
        await use(other)


def test_a_file_lies_beside_the_real_one_with_its_options(tmp_path: Path) -> None:
    """The same directory and durability, also where the path needs escaping."""
    directory = tmp_path / "a b?c"
    url = f"sqlite:///{tmp_path.as_posix()}/a%20b%3Fc/jobs.db?synchronous=normal&busy_timeout=7"
    location = parse_sqlite(SqliteTemporaryStore(url).url)
    assert Path(location.path).parent == directory
    assert Path(location.path).name.startswith("tidewheel_scratch_")
    assert (location.synchronous, location.busy_seconds) == ("NORMAL", 7.0)


async def test_less_than_full_durability_is_doubted(tmp_path: Path) -> None:
    """In the words of the setting."""
    async with make_temporary_store(f"sqlite:///{tmp_path.as_posix()}/jobs.db?synchronous=normal") as scratch:
        assert [
            "synchronous is normal" in describe_health_finding(doubt).sentence
            for doubt in scratch.profile.health_findings
        ] == [True]


def test_a_schema_replaces_that_of_the_url_and_keeps_the_rest() -> None:
    """Server, credentials and options are those of the real one; the password is not for showing."""
    scratch = PostgresTemporaryStore(
        "postgresql://app:s%40cret@db/shop?schema=jobs&connections=9&sslmode=require"
    )
    location = parse_postgres(scratch.url)
    assert location.schema.startswith("tidewheel_scratch_")
    assert location.connections == 9
    assert location.dsn == "postgresql://app:s%40cret@db/shop?sslmode=require"
    assert "cret" not in scratch.location
    assert parse_postgres(PostgresTemporaryStore("postgresql:///shop?host=/run").url).dsn == (
        parse_postgres("postgresql:///shop?host=/run").dsn
    )


async def test_a_schema_that_cannot_be_removed_is_named(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the statement that does it by hand."""
    scratch = PostgresTemporaryStore(postgres.url())
    await scratch.create()

    async def refused() -> None:
        raise ConnectionRefusedError("nobody is there")

    with monkeypatch.context() as patch:
        patch.setattr(scratch._database, "connect", refused)
        with pytest.raises(StoreError, match=r"nobody is there; DROP SCHEMA tidewheel_scratch_\w+ CASCADE"):
            await scratch.remove()
    await scratch.remove()


async def test_nothing_can_be_timed_where_nothing_was_made(tmp_path: Path) -> None:
    """And removing it is harmless."""
    for scratch in (
        SqliteTemporaryStore(f"sqlite:///{tmp_path.as_posix()}/jobs.db"),
        PostgresTemporaryStore("postgresql://nobody@127.0.0.1:1/shop"),
    ):
        with pytest.raises(NotOpen):
            await scratch.measure_commit()
        await scratch.remove()


async def test_what_went_wrong_is_told_before_what_could_not_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that hides another leaves people to repair the wrong thing."""

    remove = SqliteTemporaryStore._remove

    def stuck(scratch: SqliteTemporaryStore) -> None:
        remove(scratch)  # Python 3.13 warns of a connection that is left open
        raise StoreError("it could not be removed")

    monkeypatch.setattr(SqliteTemporaryStore, "_remove", stuck)
    with pytest.raises(ValueError, match="the reason") as caught:
        async with make_temporary_store(f"sqlite:///{tmp_path.as_posix()}/jobs.db"):
            raise ValueError("the reason")
    assert caught.value.__notes__ == ["it could not be removed"]
