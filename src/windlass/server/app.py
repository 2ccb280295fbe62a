"""The HTTP API as an ASGI application, to serve or to mount."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import Any

from starlette.routing import Route as StarletteRoute
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from windlass.app import Windlass
from windlass.server.cursors import Cursors
from windlass.server.deadlines import Deadlines
from windlass.server.events.broadcast import Broadcast
from windlass.server.gate import Gate
from windlass.server.health import Readiness
from windlass.server.problems import NOT_FOUND, Problem, problem_of
from windlass.server.redaction import Redaction
from windlass.server.resource import Resource
from windlass.server.route import Route
from windlass.server.routes import ROUTES
from windlass.server.transport import BEGUN, ClientGone, check_target, respond_problem

logger = logging.getLogger(__name__)


def create_api(app: Windlass) -> Api:
    """The HTTP API of this app, as an ASGI application.

    Serve it, or mount it in a program of your own: ``web.mount("/windlass", create_api(app))``. It opens the
    app where nobody has; a program that opens it in its own lifespan also closes it.
    """
    return Api(app)


class Api:
    """One app's HTTP API. Made by :func:`create_api`."""

    def __init__(self, app: Windlass, routes: tuple[Route, ...] = ROUTES) -> None:
        self.app = app
        self.gate = Gate(app)
        self.redaction = Redaction(app.settings.redact)
        self.readiness = Readiness()
        self.deadlines = Deadlines()
        self.closing = asyncio.Event()  # what waits or streams ends when it is set
        self._cursors: Cursors | None = None
        self.broadcast = Broadcast(app, self.closing)
        self._opened_by_us = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        by_path: defaultdict[str, dict[str, Route]] = defaultdict(dict)
        for route in routes:
            if app.settings.http_api or route.always:
                for path in route.paths:
                    by_path[path][route.method] = route
        self._by_path = {path: Resource(self, methods) for path, methods in by_path.items()}
        self._router = Router(
            [StarletteRoute(path, resource) for path, resource in self._by_path.items()],
            redirect_slashes=False,
            default=_nothing_here,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        try:
            if self._loop is None:
                await self.open()
            headers = scope["windlass.headers"] = dict(scope["headers"])
            check_target(scope, headers)
            # Most requests go to a path without parameters, at the root: one look instead of a search.
            resource = self._by_path.get(scope["path"]) if not scope.get("root_path") else None
            if resource is not None:
                scope["path_params"] = {}
                await resource(scope, receive, send)
            else:
                await self._router(scope, receive, send)
        except ClientGone:
            return
        except Exception as error:
            if scope.get(BEGUN):
                raise  # half an answer is out; the server ends the connection
            await respond_problem(scope, send, problem_of(error))

    async def cursors(self) -> Cursors:
        """What turns places in lists into texts, under a secret that all servers of this store share."""
        if self._cursors is None:
            self._cursors = Cursors(await self.app.access.secret("cursors"))
        return self._cursors

    async def open(self) -> None:
        """Open the app on this event loop where nobody has, and read the rules. Harmless when it is open."""
        async with self._opening:
            if self._loop is not None:
                return
            self.gate.prepare()
            if not self.app.is_open:
                await self.app.open()
                self._opened_by_us = True
            await self.cursors()  # the first server of a store makes their secret: no GET shall have to write
            self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """End what waits or streams, and close the app where we opened it."""
        self.closing.set()
        self._loop = None
        await self.app.bulk.close()
        if self._opened_by_us:
            self._opened_by_us = False
            await self.app.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message: Message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.open()
                except Exception as error:
                    logger.exception("the API cannot start")
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    del receive, send
    path: Any = scope["path"]
    raise Problem(NOT_FOUND, f"there is nothing at {path[:200]}; /openapi.json lists what there is")
