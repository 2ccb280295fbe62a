"""Results over HTTP that a server does not keep, and what the worker makes of them."""

from __future__ import annotations

from contextlib import suppress

from tests.http.serving import Served, key_of
from tests.http.shop import Shop, server_side
from tests.worker.helpers import working
from windlass import JobFailed


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
                    await job.result(timeout=10)
        found = [await job.refresh() for job in jobs]
        assert [job.state for job in found] == ["completed", "failed", "failed", "completed"]
        why = [job.error.message for job in found if job.error is not None]
        assert why[0] == "result is 150,002 bytes; the limit is 100,000 (max_result_bytes)"
        assert why[1].startswith("the result is 400,002 bytes; the server takes requests of 300,000 (max_req")
        assert sorted(ended) == [("completed", 10), ("completed", 20), *[("invalid_result", 1)] * 2]
