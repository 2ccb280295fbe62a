"""Whose jobs a verb is about: over HTTP as beside the database, the root tenant's included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from tests.stores.http.http_server import Served
from tests.stores.http.shop import Shop, client_side, server_side
from tidewheel import InvalidInput, JobNotFound, NotOverHttp, SecurityContext, acting_as
from tidewheel.core.model import ActionResult, ClaimRequest, JobFilter, Lane, State
from tidewheel.stores.protocol import Store

OWNERS = ("root", "acme")
WHOSE = (*OWNERS, "nobody", None)
"""Tenants that are asked about; None is all."""


@pytest_asyncio.fixture(loop_scope="module")
async def server(served: Served, tmp_path: Path) -> AsyncIterator[Shop]:
    async with server_side(served, f"sqlite:///{tmp_path}/queue.db") as shop:
        yield shop


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served, server: Shop) -> AsyncIterator[Shop]:
    async with client_side(served, server) as shop:
        yield shop


def of(owner: str) -> dict[str, Any]:
    """Options for a job of this tenant; of root is what names none."""
    return {} if owner == "root" else {"tenant": owner}


async def one_of_each(server: Shop, **options: Any) -> list[UUID]:
    """A job of every owner."""
    jobs = [await server.greet.options(**of(owner), **options).enqueue(name=owner) for owner in OWNERS]
    return [job.id for job in jobs]


async def read(store: Store, jobs: list[UUID], tenant: str | None) -> dict[str, Any]:
    """What every reading verb tells of a tenant."""

    async def listed(where: JobFilter) -> list[UUID]:
        return [record.id for record in (await store.list_jobs(where, limit=100)).items]

    stats = await store.stats(window_seconds=60, tenant=tenant)
    lanes = await store.lanes(window_seconds=60, tenant=tenant)
    return {
        "get": [await store.get(job_id, tenant=tenant) is not None for job_id in jobs],
        "states": await store.states(jobs, tenant=tenant),
        "dependents": [(await store.dependents(job_id, tenant=tenant)).total for job_id in jobs],
        "list": await listed(JobFilter(tenant=tenant)),
        "list of a state": await listed(JobFilter(tenant=tenant, state=State.PENDING)),
        "search": await listed(JobFilter(tenant=tenant, text="o")),
        "count": await store.count(JobFilter(tenant=tenant)),
        "count of a search": await store.count(JobFilter(tenant=tenant, text="o")),
        "stats": (stats.pending, stats.running, stats.delayed, stats.oldest_due_at, stats.topics),
        "topics": await store.topics(tenant=tenant),
        "lanes": [(lane.topic, lane.task, lane.pending, lane.due, lane.running) for lane in lanes],
        "running": [record.id for record in await store.longest_running(9, tenant=tenant)],
    }


async def test_what_is_read_is_a_tenants_as_beside_the_database(server: Shop, client: Shop) -> None:
    """By every verb that takes a tenant."""
    jobs = await one_of_each(server)
    await server.app.store.claim(ClaimRequest("w", (Lane("greet"),), 2, 60.0))
    children = [
        await server.greet.options(**of(owner), after=parent).enqueue(name=owner)
        for parent, owner in zip(jobs, OWNERS, strict=True)
    ]
    jobs += [child.id for child in children]
    for tenant in WHOSE:
        beside = await read(server.app.store, jobs, tenant)
        assert await read(client.app.store, jobs, tenant) == beside, tenant
        assert sum(beside["get"]) == {"root": 2, "acme": 2, "nobody": 0, None: 4}[tenant]


@pytest.mark.parametrize("verb", ["requeue", "cancel", "delete"])
async def test_what_is_changed_is_a_tenants_as_beside_the_database(
    verb: str, server: Shop, client: Shop
) -> None:
    """The same verdicts, and the same jobs are left."""
    for tenant in WHOSE:
        told, left = [], []
        for store in (server.app.store, client.app.store):
            jobs = await one_of_each(server)
            if verb == "requeue":
                await server.app.store.cancel(jobs)
            told.append(await getattr(store, verb)(jobs, tenant=tenant))
            left.append(await server.app.store.states(jobs))
        assert told[0] == told[1], tenant
        assert left[0] == left[1], tenant


async def test_a_kick_is_never_of_more_than_was_asked_for(server: Shop, client: Shop) -> None:
    """It cannot be told over HTTP whose jobs are meant, and is refused."""
    for tenant in OWNERS:
        with pytest.raises(NotOverHttp):
            await client.app.store.kick("greet", 9, tenant=tenant, failed_only=True)


async def test_a_program_that_acts_for_root_touches_no_other_tenants_jobs(server: Shop, client: Shop) -> None:
    """With a superuser's token, which is good for all of them."""
    mine, theirs = await one_of_each(server)
    assert await client.app.delete_all(tenant="root", state="pending") == 1
    assert (await server.app.get(theirs)).state == "pending"
    mine, _ = await one_of_each(server)
    with acting_as(SecurityContext("root", allow_root=True)):
        assert [job.id for job in await client.app.jobs()] == [mine]
        assert (await client.app.get(mine)).tenant == "root"
        for verb in (client.app.get, client.app.cancel, client.app.delete, client.app.result):
            with pytest.raises(JobNotFound):
                await verb(theirs)
        assert await client.app.cancel_all(task="greet") == 1
    assert (await server.app.count(state="pending", tenant="acme")).total == 2


async def test_a_tenants_token_is_no_way_to_ask_about_root(served: Served, server: Shop) -> None:
    """Lists are refused, single jobs are not there: its own are not root's."""
    root, own = await one_of_each(server)
    async with client_side(served, server, superuser=False, tenant="acme") as acme:
        store = acme.app.store
        for asked in (
            store.list_jobs(JobFilter(tenant="root"), limit=9),
            store.count(JobFilter(tenant="root")),
            store.stats(window_seconds=60, tenant="root"),
            store.lanes(window_seconds=60, tenant="root"),
            store.topics(tenant="root"),
        ):
            with pytest.raises(InvalidInput, match="superusers only"):
                await asked
        assert await store.states([root, own], tenant="root") == [None, None]
        assert await store.get(own, tenant="root") is None
        assert await store.delete([root, own], tenant="root") == [ActionResult.NOT_FOUND] * 2
        assert (await acme.app.get(own)).tenant == "acme"


async def test_who_holds_a_key_is_found_with_a_tenants_token(served: Served, server: Shop) -> None:
    """What is enqueued is root's for this program, and the token's tenant's for the server."""
    async with client_side(served, server, superuser=False, tenant="acme") as acme:
        first = await acme.greet.options(key="k").enqueue(name="Ada")
        again = await acme.greet.options(key="k").enqueue(name="Bob")
        many = await acme.greet.options(key="k").enqueue_many([{"name": "a"}, {"name": "b"}])
        assert {(job.id, job.duplicate) for job in (again, *many)} == {(first.id, True)}
        assert await acme.app.store.get(first.id, tenant="root") is None
