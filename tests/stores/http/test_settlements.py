"""Results over HTTP that a server does not keep, and what the worker makes of them."""

from __future__ import annotations

from contextlib import suppress

from tests.patience import PATIENCE
from tests.stores.http.http_server import Served, key_of
from tests.stores.http.shop import Shop, server_side
from tests.worker.helpers import until, working
from tidewheel import JobFailed

TIME = "/time"


async def test_a_result_that_the_server_does_not_keep_fails_its_job_here_as_well(served: Served) -> None:
    """More than its max_result_bytes, or than fits into any request: the job fails after one attempt, whoever
    waits for the end of it is told of a failure, and its neighbours are settled.
    """
    async with server_side(served, max_result_bytes=100_000, max_request_bytes=300_000) as server:
        client = Shop(served.url, token=await key_of(server.app, scopes=["work"]), max_result_bytes=1_000_000)
        ended: list[tuple[str, int]] = []
        for shop in (server, client):

            @shop.app.task(
                on_success=lambda _, result: ended.append(("completed", len(result))),
                on_failure=lambda ctx, error: ended.append((error.code, ctx.attempt)),
            )
            async def fill(size: int) -> str:
                return "x" * size

        jobs = await server.app.enqueue_many("fill", [{"size": size} for size in (10, 150_000, 400_000, 20)])
        async with client.app, working(client.app, topics=["fill"]):
            for job in jobs:
                with suppress(JobFailed):
                    await job.result(timeout=PATIENCE)
        found = [await job.refresh() for job in jobs]
        assert [job.state for job in found] == ["completed", "failed", "failed", "completed"]
        why = [job.error.message for job in found if job.error is not None]
        assert why[0] == "result is 150,002 bytes; the limit is 100,000 (max_result_bytes)"
        assert why[1].startswith("the result is 400,002 bytes; the server takes requests of 300,000 (max_req")
        assert sorted(ended) == [("completed", 10), ("completed", 20), *[("invalid_result", 1)] * 2]


async def test_a_large_result_survives_a_server_of_another_version(served: Served) -> None:
    """It is asked how much it takes, and does not know of that, for a moment: what is done is kept."""
    async with server_side(served, max_result_bytes=1_000_000) as server:
        client = Shop(served.url, token=await key_of(server.app, scopes=["work"]), max_result_bytes=1_000_000)

        @server.app.task
        async def fill() -> str:
            return ""

        @client.app.task(name="fill")
        async def fill_here() -> str:
            served.switch.unknown.add(TIME)
            return "x" * 100_000

        job = await fill.enqueue()
        async with client.app, working(client.app, topics=["fill"]):
            await until(lambda: TIME in served.switch.unknown)
            before = served.asked(TIME)
            await until(lambda: served.asked(TIME) > before)
            served.switch.unknown.clear()
            assert len(await job.result(timeout=PATIENCE)) == 100_000
        assert (await job.refresh()).attempt == 1
