"""A schema under row-level security, and roles that log in to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from tests.servers.schemas import EMPTY
from tests.servers.shared import fresh_url, shared_server
from tests.stores.postgres.stores import opened, raw, schema_of
from tidewheel.core.clock import Clock
from tidewheel.core.model import ActionResult, Enqueued, JobRecord, NewJob, State, TopicHead
from tidewheel.core.reports import Stats, TopicDepth
from tidewheel.stores.postgres import PostgresStore

API, WORKER, MIGRATOR = "rls_api", "rls_worker", "rls_migrator"
"""Who logs in, as a caller, as a worker and to migrate."""

_LOGINS = f"""
DO $$
BEGIN
    IF to_regrole('{API}') IS NULL THEN
        CREATE ROLE {API} LOGIN IN ROLE tidewheel_api;
        CREATE ROLE {WORKER} LOGIN IN ROLE tidewheel_worker;
        CREATE ROLE {MIGRATOR} LOGIN IN ROLE tidewheel_owner, tidewheel_worker;
        GRANT CREATE ON SCHEMA public TO {WORKER}; -- for tables of handlers
    END IF;
END
$$
"""


@dataclass(frozen=True)
class Secured:
    """A schema with row-level security on the shared server."""

    url: str  # as a superuser

    @property
    def schema(self) -> str:
        return schema_of(self.url)

    def of(self, role: str, url: str = "") -> str:
        """The URL for this role."""
        return (url or self.url).replace("postgres@", f"{role}@")


@asynccontextmanager
async def secured(*, oldest: bool = False) -> AsyncIterator[Secured]:
    """A new schema, made and secured by a superuser, and dropped."""
    url = shared_server(oldest=True).url(schema="tidewheel_secured") if oldest else fresh_url()
    async with raw(url) as connection:
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema_of(url)} CASCADE")
        async with opened(url) as [store]:
            await store.migrate(rls=True)
        await connection.execute(_LOGINS)
        try:
            yield Secured(url)
        finally:
            await connection.execute(f"DROP SCHEMA {schema_of(url)} CASCADE")


async def empty(place: Secured, connection: Any) -> None:
    """Through a superuser's connection that is kept: a new one takes longer for this than most tests."""
    await connection.execute(EMPTY.format(schema=place.schema))


@asynccontextmanager
async def acting(place: Secured, role: str, tenant: str | None = None) -> AsyncIterator[Any]:
    """A connection of this role, with ``app.tenant_id`` set for the session, or never set."""
    async with raw(place.of(role)) as connection:
        if tenant is not None:
            await connection.execute("SELECT set_config('app.tenant_id', $1, false)", tenant)
        yield connection


async def refused(connection: Any, statement: str, *arguments: Any) -> str:
    """What the server says to a statement that it must not carry out; '' when it changed nothing.

    In a transaction that is rolled back, so that a hole is seen and does no harm.
    """
    transaction = connection.transaction()
    await transaction.start()
    try:
        done = await connection.execute(statement, *arguments)
    except asyncpg.PostgresError as error:
        return str(error)
    finally:
        await transaction.rollback()
    assert done.endswith(" 0"), f"{statement}: {done}"
    return ""


class TwoRoles(PostgresStore):
    """A store as a program under row-level security has it: callers' verbs as the api role, one tenant at a
    time, everything else as the worker role.
    """

    def __init__(self, place: Secured, clock: Clock) -> None:
        super().__init__(place.of(WORKER), clock=clock)
        self.place = place
        self.api = PostgresStore(place.of(API), clock=clock)
        self._wakes = clock

    async def open(self) -> None:
        await super().open()
        await self.api.open()
        assert (self._database.sees_one_tenant, self.api._database.sees_one_tenant) == (False, True)

    async def close(self) -> None:
        await self.api.close()
        await super().close()

    def sibling(self) -> TwoRoles:
        other = TwoRoles(self.place, self._wakes)
        other.on_rescued = self.on_rescued
        return other

    async def _tenant_of(self, job_ids: Sequence[UUID]) -> str | None:
        """The tenant of all of these jobs, or None."""
        records = [await super(TwoRoles, self).get(job_id) for job_id in job_ids]
        tenants = {record.tenant for record in records if record is not None}
        return tenants.pop() if len(tenants) == 1 else None

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        answers = await self.api.enqueue(jobs)
        await self._after_enqueue(jobs, answers)  # as the hint would tell
        return answers

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        tenant = await self._tenant_of([job_id]) if tenant is None else tenant
        if tenant is None:
            return await super().get(job_id)
        return await self.api.get(job_id, tenant=tenant)

    async def states(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[State | None]:
        tenant = await self._tenant_of(job_ids) if tenant is None else tenant
        if tenant is None:
            return await super().states(job_ids)
        return await self.api.states(job_ids, tenant=tenant)

    async def cancel(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        tenant = await self._tenant_of(job_ids) if tenant is None else tenant
        if tenant is None:
            return await super().cancel(job_ids)
        return await self.api.cancel(job_ids, tenant=tenant)

    async def requeue(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        tenant = await self._tenant_of(job_ids) if tenant is None else tenant
        if tenant is None:
            return await super().requeue(job_ids)
        return await self.api.requeue(job_ids, tenant=tenant)

    async def delete(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        tenant = await self._tenant_of(job_ids) if tenant is None else tenant
        if tenant is None:
            return await super().delete(job_ids)
        return await self.api.delete(job_ids, tenant=tenant)

    async def stats(self, *, window_seconds: float, tenant: str | None = None) -> Stats:
        if tenant is None:
            return await super().stats(window_seconds=window_seconds)
        return await self.api.stats(window_seconds=window_seconds, tenant=tenant)

    async def kick(
        self, topic: str, limit: int, *, tenant: str | None = None, failed_only: bool = False
    ) -> int:
        if tenant is None:
            return await super().kick(topic, limit, failed_only=failed_only)
        return await self.api.kick(topic, limit, tenant=tenant, failed_only=failed_only)

    async def kick_jobs(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        tenant = await self._tenant_of(job_ids) if tenant is None else tenant
        if tenant is None:
            return await super().kick_jobs(job_ids)
        return await self.api.kick_jobs(job_ids, tenant=tenant)

    async def job_ids(self, numbers: Sequence[int], *, tenant: str | None = None) -> list[UUID | None]:
        if tenant is None:
            return await super().job_ids(numbers)
        return await self.api.job_ids(numbers, tenant=tenant)

    async def peek(self, topic: str, head: TopicHead, *, tenant: str | None = None) -> JobRecord | None:
        if tenant is None:
            return await super().peek(topic, head)
        await self._run_maintenance()  # as any claim would, meanwhile
        return await self.api.peek(topic, head, tenant=tenant)

    async def topic_depths(
        self, topics: Sequence[str] | None = None, *, tenant: str | None = None
    ) -> list[TopicDepth]:
        if tenant is None:
            return await super().topic_depths(topics)
        return await self.api.topic_depths(topics, tenant=tenant)
