"""Starlette and FastAPI: the app is open while the program serves, and its jobs may run beside the requests.

web = FastAPI(lifespan=lifespan(queue, worker=True))

@web.post("/digests")
async def make(queue: Annotated[Tidewheel, Depends(get_tidewheel)]): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import HTTPConnection

from tidewheel.app import Tidewheel
from tidewheel.errors import NotOpen
from tidewheel.tasks.options import WorkerOptions
from tidewheel.worker.signals import stop_signals

if TYPE_CHECKING:
    from tidewheel.server import Api

_STATE: Final = "tidewheel"
"""Under this name the app is in the state of every request."""


def lifespan(
    app: Tidewheel,
    *,
    inner: Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]] | None = None,
    worker: bool | WorkerOptions = False,
    api: Api | None = None,
) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """What to give to ``Starlette(lifespan=…)`` or ``FastAPI(lifespan=…)``.

    The app is open from before ``inner``, a lifespan of your own, starts until after it has ended; what that
    yields is in the state of requests as always. ``worker``: run jobs in this process, on a thread and an
    event loop of their own; ``{"concurrency": 5}`` are its options. It starts last and stops first, and
    running jobs may finish, for up to ``shutdown_grace`` seconds; another Ctrl-C gives them back at once.
    ``api``: what ``create_api`` made and you mounted, to be ready with the program and to end with it.
    """

    @asynccontextmanager
    async def living(web: object) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app)
            if api is not None:
                await api.open()
                stack.push_async_callback(api.close)
            state = None if inner is None else await stack.enter_async_context(inner(web))
            if worker is not False:
                await stack.enter_async_context(_running_worker(app, {} if worker is True else worker))
            yield {**(state or {}), _STATE: app}

    return living


async def get_tidewheel(connection: HTTPConnection) -> Tidewheel:
    """The app of the program that serves this request or websocket: for ``Depends``, or to be awaited.

    Awaited, though there is nothing to wait for: FastAPI has a plain function called on a thread, where it
    would queue behind every endpoint that blocks. ``connection.state.tidewheel`` is the same, for those.
    """
    app = getattr(connection.state, _STATE, None)
    if not isinstance(app, Tidewheel):
        raise NotOpen(
            "this program was not started with Tidewheel's lifespan; give it lifespan=lifespan(app) of "
            "tidewheel.integrations.starlette, and in tests use `with TestClient(web) as client`, or say "
            "web.dependency_overrides[get_tidewheel] = lambda: app"
        )
    return app


@asynccontextmanager
async def _running_worker(app: Tidewheel, options: WorkerOptions) -> AsyncIterator[None]:
    worker = app.worker_thread(**options)
    await asyncio.to_thread(worker.start)
    hurried = False
    try:
        yield
    except asyncio.CancelledError:
        hurried = True  # the server was told twice while requests were still running, and has no time for us
        raise
    finally:
        # The server has heeded the first signal and waits for us: whoever sends another one is in a hurry.
        with stop_signals(worker.stop_now, enabled=True):
            await asyncio.to_thread(worker.stop, now=hurried)
