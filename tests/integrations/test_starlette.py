"""Starlette and FastAPI: open while the program serves, jobs beside the requests, one dependency."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from tests.patience import PATIENCE
from tidewheel import ConfigurationError, NotOpen, Tidewheel
from tidewheel.integrations.starlette import get_tidewheel, lifespan
from tidewheel.server import create_api


@pytest.fixture
def queue(tmp_path: Path) -> Tidewheel:
    return Tidewheel(f"sqlite:///{(tmp_path / 'jobs.db').as_posix()}", shutdown_grace=10)


async def enqueue(request: Request) -> JSONResponse:
    job = await (await get_tidewheel(request)).enqueue("hello")
    return JSONResponse({"id": str(job.id), "own": getattr(request.state, "own", None)})


async def result(request: Request) -> JSONResponse:
    return JSONResponse(
        await (await get_tidewheel(request)).result(request.path_params["id"], timeout=PATIENCE)
    )


ROUTES = [Route("/jobs", enqueue, methods=["POST"]), Route("/jobs/{id}", result)]


def test_the_app_is_open_around_a_lifespan_of_the_programs_own(queue: Tidewheel) -> None:
    """Its startup and its shutdown may enqueue, and what it yields is in the state of requests as always."""
    queue.task(hello)
    seen: list[Any] = []

    @contextlib.asynccontextmanager
    async def own(web: Starlette) -> AsyncIterator[dict[str, Any]]:
        seen.append((await queue.enqueue("hello")).state)
        yield {"own": str(web.debug)}
        seen.append((await queue.enqueue("hello")).state)

    web = Starlette(routes=ROUTES, lifespan=lifespan(queue, inner=own))
    with TestClient(web) as client:
        assert client.post("/jobs").json()["own"] == "False"
    assert seen == ["pending", "pending"]
    assert queue.sync.count().total == 3
    with pytest.raises(NotOpen):
        asyncio.run(queue.enqueue("hello"))
    queue.sync.close()


def test_jobs_run_beside_the_requests(queue: Tidewheel) -> None:
    """The worker has a thread and an event loop of its own: a handler that blocks holds no request up."""
    entered, leave = threading.Event(), threading.Event()

    @queue.task
    async def blocking() -> None:
        entered.set()
        leave.wait(PATIENCE)

    queue.task(hello)
    web = Starlette(routes=ROUTES, lifespan=lifespan(queue, worker={"concurrency": 2}))
    with TestClient(web) as client:
        first = client.post("/jobs").json()["id"]
        assert client.get(f"/jobs/{first}").json() == "hello"
        assert client.portal is not None
        client.portal.call(blocking.enqueue)
        assert entered.wait(PATIENCE)
        assert client.post("/jobs").status_code == 200
        leave.set()


def test_running_jobs_finish_before_the_program_ends(queue: Tidewheel) -> None:
    """Shutting down drains the worker before the program's own lifespan takes away what handlers use."""
    entered, order = threading.Event(), []

    @queue.task
    async def slow() -> None:
        entered.set()
        await asyncio.sleep(0.2)
        order.append("the job ended")

    @contextlib.asynccontextmanager
    async def own(web: Starlette) -> AsyncIterator[None]:
        yield
        order.append("the program ended")

    with TestClient(Starlette(lifespan=lifespan(queue, inner=own, worker=True))) as client:
        assert client.portal is not None
        client.portal.call(slow.enqueue)
        assert entered.wait(PATIENCE)
    assert order == ["the job ended", "the program ended"]
    assert queue.sync.count(state="completed").total == 1
    queue.sync.close()


@pytest.mark.skipif(os.name == "nt", reason="a process cannot send itself these signals there")
async def test_another_signal_while_jobs_finish_gives_them_back(queue: Tidewheel) -> None:
    """Nobody waits out the grace period who does not want to; the job is pending again, uncounted."""
    entered = threading.Event()

    @queue.task
    async def endless() -> None:
        entered.set()
        await asyncio.sleep(60)

    async with queue:
        job = await endless.enqueue()
        living = lifespan(queue, worker=True)(None)
        await living.__aenter__()
        await asyncio.to_thread(entered.wait, 10)
        ending = asyncio.create_task(living.__aexit__(None, None, None))
        before = signal.getsignal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            while signal.getsignal(signal.SIGINT) is before:
                await asyncio.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(ending, PATIENCE)
        assert signal.getsignal(signal.SIGINT) is before
        assert ((await job.refresh()).state, job.attempt) == ("pending", 0)


async def test_a_server_that_gives_up_gives_running_jobs_back(queue: Tidewheel) -> None:
    """Told twice while requests run, a server cancels the lifespan: nobody waits out the grace period."""
    entered = threading.Event()

    @queue.task
    async def endless() -> None:
        entered.set()
        await asyncio.sleep(60)

    async def serve() -> None:
        async with lifespan(queue, worker=True)(None):
            await asyncio.Event().wait()

    async with queue:
        job = await endless.enqueue()
        serving = asyncio.create_task(serve())
        assert await asyncio.to_thread(entered.wait, 10)
        serving.cancel()
        await asyncio.wait((serving,), timeout=queue.settings.shutdown_grace / 2)
        assert serving.cancelled()
        assert ((await job.refresh()).state, job.attempt) == ("pending", 0)


def test_fastapi_gets_the_app_as_a_dependency(queue: Tidewheel) -> None:
    """``Depends(get_tidewheel)``, in endpoints that are awaited and in those that run on threads."""
    queue.task(hello)
    web = FastAPI(lifespan=lifespan(queue))
    Queue = Annotated[Tidewheel, Depends(get_tidewheel)]  # noqa: N806 - a type

    async def awaited(queue: Queue) -> str:
        return str((await queue.enqueue("hello")).state)

    def blocking(queue: Queue) -> str:
        return str(queue.sync.enqueue("hello").state)

    for endpoint in (awaited, blocking):
        # Read here: the names in these annotations are known in this function alone.
        endpoint.__annotations__ = {"queue": Queue, "return": str}
        web.post(f"/{endpoint.__name__}")(endpoint)
    with TestClient(web) as client:
        assert client.post("/awaited").json() == "pending"
        assert client.post("/blocking").json() == "pending"
    queue.sync.close()


def test_the_dependency_waits_for_no_thread(queue: Tidewheel) -> None:
    """An endpoint that is awaited does not queue behind those that block, and take all threads."""
    web = FastAPI(lifespan=lifespan(queue))
    entered, leave = threading.Event(), threading.Event()

    @web.get("/blocking")
    def blocking() -> None:
        entered.set()
        leave.wait(PATIENCE)

    @web.get("/awaited", dependencies=[Depends(get_tidewheel)])
    async def awaited() -> str:
        return "here"

    async def leave_one_thread() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 1

    with TestClient(web) as client:
        assert client.portal is not None
        client.portal.call(leave_one_thread)
        with ThreadPoolExecutor() as pool:
            blocked = pool.submit(client.get, "/blocking")
            try:
                assert entered.wait(PATIENCE)
                assert pool.submit(client.get, "/awaited").result(10).json() == "here"
                assert not blocked.done()
            finally:
                leave.set()


def test_a_program_without_the_lifespan_is_told_so(queue: Tidewheel) -> None:
    """Also a test client that was not entered: the message says what to do."""
    web = Starlette(routes=ROUTES, lifespan=lifespan(queue))
    with pytest.raises(NotOpen, match=r"lifespan=lifespan\(app\).*with TestClient"):
        TestClient(web).post("/jobs")


def test_a_mounted_api_is_ready_with_the_program_and_ends_with_it(queue: Tidewheel) -> None:
    """It serves beside the program's routes, and what streams or waits there is told of the end."""
    api = create_api(queue)
    web = Starlette(routes=[*ROUTES, Mount("/tidewheel", api)], lifespan=lifespan(queue, api=api))
    for _ in range(2):  # a test suite starts a program many times
        with TestClient(web) as client:
            assert client.get("/tidewheel/readyz").status_code == 200
            assert client.get("/tidewheel/ui/").status_code == 200
            closing = api.closing
            assert not closing.is_set()
        assert closing.is_set()


def test_a_program_that_cannot_start_leaves_nothing_open(queue: Tidewheel) -> None:
    """A worker without tasks is refused at startup; then the lifespan is ended, and the app closed."""
    ended: list[bool] = []

    @contextlib.asynccontextmanager
    async def own(web: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            ended.append(queue.is_open)

    async def start() -> None:
        with pytest.raises(ConfigurationError, match="task"):
            await lifespan(queue, inner=own, worker=True)(Starlette()).__aenter__()
        assert not queue.is_open

    asyncio.run(start())
    assert ended == [True]


async def hello() -> str:
    return "hello"
