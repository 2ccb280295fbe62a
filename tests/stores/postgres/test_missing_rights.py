"""A worker whose role lacks rights ends at its start with a clear message; later it waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.servers.shared import empty_url
from tests.stores.postgres.stores import opened, raw, schema_of
from tidewheel import Tidewheel
from tidewheel.errors import StoreError
from tidewheel.worker import store_maintenance

READ = """
GRANT USAGE ON SCHEMA {schema} TO reader;
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO reader;
"""
ALL = """
GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO reader;
GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO reader;
"""
NO_MORE = "REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM reader;"


@dataclass(frozen=True, slots=True)
class Role:
    """A role that may read a store, and an administrator who changes that."""

    url: str
    owner_url: str
    admin: Any

    async def rights(self, statements: str) -> None:
        await self.admin.execute(statements.format(schema=schema_of(self.url)))


@pytest.fixture
async def role(postgres_url: str) -> AsyncIterator[Role]:
    url = empty_url()
    async with raw(postgres_url) as admin, opened(url):
        await admin.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN")
        role = Role(url.replace("postgres@", "reader@"), url, admin)
        await role.rights(READ)
        yield role
        await admin.execute("DROP OWNED BY reader; DROP ROLE reader")


def shop(url: str) -> tuple[Tidewheel, list[int]]:
    app, ran = Tidewheel(url, poll_interval=0.05), []

    @app.task
    async def work(number: int) -> None:
        ran.append(number)

    return app, ran


async def test_a_worker_without_rights_ends_with_a_clear_message(role: Role) -> None:
    """run_until_idle and run_worker raise what is denied and what to grant, and do not try for ever."""
    app, _ = shop(role.url)
    async with app:
        for run in (app.run_until_idle, lambda: app.run_worker(handle_signals=False)):
            with pytest.raises(
                StoreError, match=r"permission denied for .*grant them: docs/how-to"
            ) as raised:
                async with asyncio.timeout(PATIENCE):
                    await run()
            assert raised.value.lacks_rights


async def test_rights_that_are_lost_while_a_worker_runs_are_waited_for(role: Role) -> None:
    """A role may be changed in flight: the worker reports it and goes on when it has its rights again."""
    await role.rights(ALL)
    (app, ran), (producer, _) = shop(role.url), shop(role.owner_url)
    async with app, producer:
        running = asyncio.create_task(app.run_worker(handle_signals=False))
        for number, statements in enumerate((NO_MORE, ALL)):
            await producer.enqueue("work", {"number": number})
            async with asyncio.timeout(PATIENCE):
                while number not in ran:
                    assert not running.done()
                    await asyncio.sleep(0.01)
            if number == 0:
                await role.rights(statements)
                with pytest.raises(StoreError, match="permission denied"):
                    await app.store.rescue()
                await asyncio.sleep(0.2)
                assert not running.done()
                await role.rights(READ + ALL)
        running.cancel()
        await asyncio.wait((running,))


async def test_a_caller_without_the_rights_leaves_maintenance_to_others(
    role: Role, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried once, and nothing is said about it."""
    monkeypatch.setattr(store_maintenance, "STORE_MAINTENANCE_SECONDS", 0.02)
    with caplog.at_level(logging.DEBUG, "tidewheel.maintenance"):
        async with Tidewheel(role.url), asyncio.timeout(PATIENCE):
            while not caplog.records:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
    [record] = caplog.records
    assert (record.levelname, "leaves it to others" in record.message) == ("DEBUG", True)
