"""Jobs that are made over HTTP: by those who may do nothing else, for others, and together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.stores.http.http_server import Served
from tests.stores.http.shop import KNOWN, Shop, client_side, server_side
from tests.worker.helpers import working
from tidewheel import InvalidInput, JobFailed, KeyInUse, LimitExceeded, SecurityContext, acting_as

HIDING = f"{KNOWN} && priority > 5"
"""A rule that shows its callers nothing of the jobs here."""


async def test_who_may_only_enqueue_is_told_of_duplicates(served: Served) -> None:
    """The handle has what the server told of the job that holds the key; the rest of it is not theirs."""
    async with (
        server_side(served) as server,
        client_side(served, server, scopes=["enqueue"]) as client,
    ):
        once = client.greet.options(key="once")
        first = await once.enqueue(name="Ada")
        await server.app.cancel(first.id)
        again = await once.enqueue(name="Bob")
        assert (again.id, again.duplicate, again.replaced) == (first.id, True, False)
        assert (again.task, again.key, again.state) == ("greet", "once", "cancelled")
        assert (again.created_at, again.run_at) == (first.created_at, first.run_at)
        assert again.payload is None
        wanted: list[Any] = [
            (client.greet, {"name": name}, {"key": name}) for name in ("new", "once", "newer")
        ]
        new, held, newer = await client.app.enqueue_together(wanted)
        assert [job.duplicate for job in (new, held, newer)] == [False, True, False]
        assert (held.id, held.state, new.payload) == (first.id, "cancelled", {"name": "new"})


@pytest.mark.parametrize("rule", ["", HIDING], ids=["a rule for nobody", "a rule that hides jobs"])
async def test_key_of_a_hidden_job_is_in_use(rule: str, served: Served) -> None:
    """Whose job the manage rule hides is told no more than that the key is taken, for all jobs of a call."""
    async with (
        server_side(served, manage_rule=rule) as server,
        client_side(served, server, superuser=False) as client,
    ):
        once = client.greet.options(key="once")
        first = await once.enqueue(name="Ada")
        with pytest.raises(KeyInUse, match="once") as refusal:
            await once.enqueue(name="Bob")
        assert str(first.id) not in str(refusal.value)
        wanted: list[Any] = [(client.greet, {"name": name}, {"key": name}) for name in ("new", "once")]
        with pytest.raises(KeyInUse):
            await client.app.enqueue_together(wanted)
        assert [job.key for job in (await server.app.jobs()).items] == ["once"]


def hand_on(shop: Shop) -> Any:
    """A task on one side whose handler enqueues."""

    @shop.app.task(max_attempts=1)
    async def pass_on(name: str) -> str:
        return str((await shop.greet.enqueue(name=name)).id)

    return pass_on


async def test_what_handlers_enqueue_is_for_whom_their_job_is(served: Served) -> None:
    """The worker's key is a superuser's, and its handlers act for the tenant, the user and the service."""
    whom = SecurityContext("acme", "ada", "till", "request-1")
    async with server_side(served) as server, client_side(served, server) as client:
        hand_on(client)
        with acting_as(whom):
            first = await hand_on(server).enqueue(name="Ada")
        async with working(client.app, topics=["pass_on"]):
            made = await server.app.get(await first.result(timeout=PATIENCE))
        assert made.task == "greet"
        assert SecurityContext(made.tenant, made.user_id, made.service_id, made.correlation_id) == whom


async def test_a_handler_whose_worker_may_only_work_is_told_what_its_key_lacks(served: Served) -> None:
    """The scope work is for taking jobs and ending them; making others needs one more."""
    async with server_side(served) as server, client_side(served, server, scopes=["work"]) as client:
        hand_on(client)
        job = await hand_on(server).enqueue(name="Ada")
        async with working(client.app, topics=["pass_on"]):
            with pytest.raises(JobFailed, match="needs the scope enqueue; what was shown is good for: work"):
                await job.result(timeout=PATIENCE)


async def test_a_token_is_good_for_its_own_tenant(served: Served) -> None:
    """Code that names it, or acts for it, does so over HTTP as beside the database; another is refused."""
    async with (
        server_side(served) as server,
        client_side(served, server, superuser=False, tenant="acme") as client,
    ):
        named = await client.greet.options(tenant="acme").enqueue(name="a")
        with acting_as(SecurityContext("acme")):
            jobs = [named, *await client.greet.enqueue_many([{"name": "b"}, {"name": "c"}])]
            assert [(await job.refresh()).tenant for job in jobs] == ["acme"] * 3
        others: list[Any] = [{"tenant": "globex"}, {"user_id": "7"}]
        for other in others:
            with pytest.raises(InvalidInput, match="can be chosen by superusers only"):
                await client.greet.options(**other).enqueue(name="d")
        with acting_as(SecurityContext("globex")), pytest.raises(InvalidInput, match="superusers") as told:
            await client.greet.enqueue_many([{"name": "d"}, {"name": "e"}])
        assert told.value.job == 0
        assert (await server.app.count()).total == 3


async def test_what_is_enqueued_together_is_one_request_or_none(served: Served) -> None:
    """All or none, however many bytes that are; what one request has no room for is refused unsent."""
    async with (
        server_side(served, max_request_bytes=2_000_000) as server,
        client_side(served, server) as client,
    ):

        async def together(number: int, size: int) -> None:
            await client.app.enqueue_together([(client.greet, {"name": "x" * size}, {})] * number)

        await together(30, 60_000)  # more than is sent at a time by enqueue_many
        assert (served.asked("/enqueue-many"), (await server.app.count()).total) == (1, 30)
        with pytest.raises(LimitExceeded, match=r"1,001 jobs together; over HTTP the limit is 1,000"):
            await together(1001, 1)
        with pytest.raises(LimitExceeded, match=r"are 2,4\d\d,\d{3} bytes; the server takes 2,000,000 at a"):
            await together(40, 60_000)
        assert (served.asked("/enqueue-many"), (await server.app.count()).total) == (1, 30)
