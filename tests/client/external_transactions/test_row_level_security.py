"""``using`` under row-level security: the caller's role is held to its tenant, in its own transaction."""

from __future__ import annotations

import asyncpg
import pytest

from tests.stores.postgres.row_level_security import API, acting, secured
from tidewheel import SecurityContext, Tidewheel, acting_as


async def test_a_role_of_callers_enqueues_for_its_tenant_alone() -> None:
    """A transaction that names no tenant gets the one of its jobs meanwhile; one that does is held to it."""
    async with secured() as place:
        app = Tidewheel(place.url)
        async with acting(place, API) as connection:
            with acting_as(SecurityContext("acme")):
                async with connection.transaction():
                    job = await app.enqueue("greet", {"name": "Ada"}, key="a", using=connection)
                    again = await app.enqueue("greet", {"name": "Ada"}, key="a", using=connection)
                    assert await connection.fetchval("SELECT current_setting('app.tenant_id', true)") == ""
            assert (job.tenant, again.duplicate, again.id) == ("acme", True, job.id)
        async with acting(place, API, "acme") as connection:
            with acting_as(SecurityContext("acme")):
                assert (await app.enqueue("greet", {"name": "Ada"}, key="a", using=connection)).duplicate
            with acting_as(SecurityContext("other")), pytest.raises(asyncpg.InsufficientPrivilegeError):
                await app.enqueue("greet", {"name": "Eve"}, using=connection)
        async with app:
            assert [job.tenant for job in await app.jobs()] == ["acme"]
