"""A copy to and from PostgreSQL behind a pooler, where every transaction may be on another connection."""

from __future__ import annotations

from tests.admin.store_transfer.mixed_jobs import all_jobs, fill
from tests.servers import PgBouncer
from tests.stores.postgres.stores import schema_of
from tidewheel import Tidewheel
from tidewheel.admin.store_transfer import copy_store


async def test_a_copy_goes_through_pgbouncer(pgbouncer: PgBouncer, postgres_url: str) -> None:
    """There and back, the same jobs."""
    async with (
        Tidewheel("memory://pooled-from") as first,
        Tidewheel(pgbouncer.url(schema=schema_of(postgres_url))) as second,
        Tidewheel("memory://pooled-to") as third,
    ):
        await fill(first.store, 1000)
        await copy_store(first, second, watch=lambda *_: None, live=True)
        await copy_store(second, third, watch=lambda *_: None, live=True)
        assert await all_jobs(third.store) == await all_jobs(first.store)
        assert second.store.describe()["connection"] == "pooled"
