"""Whether this process lives, and whether it can do its work."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from tidewheel.errors import StoreUnavailable
from tidewheel.server.problems import NOT_OPEN, STORE_UNAVAILABLE, Problem
from tidewheel.server.request import Request
from tidewheel.server.route import Answer, Nothing, Permission, Route

READY_SECONDS: Final = 2.0
"""How long the store may take to answer before it counts as out of reach."""
REMEMBERED_SECONDS: Final = 1.0
"""How long an answer stands: nobody can make the store busy by asking whether it is."""


class Health(Struct, frozen=True):
    status: str


class Readiness:
    """When the store was last asked, and what came of it."""

    def __init__(self) -> None:
        self._asked_at = float("-inf")
        self._fine = False
        self._asking = asyncio.Lock()

    async def fine(self, request: Request[Nothing, None]) -> bool:
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked_at >= REMEMBERED_SECONDS:
                try:
                    async with asyncio.timeout(READY_SECONDS):
                        await request.app.ping()
                    self._fine = True
                except (TimeoutError, OSError, StoreUnavailable):
                    self._fine = False
                self._asked_at = loop.time()
            return self._fine


async def healthz(request: Request[Nothing, None]) -> Answer:
    del request
    return Answer(Health("ok"))


async def readyz(request: Request[Nothing, None]) -> Answer:
    if request.api.closing.is_set():
        raise Problem(NOT_OPEN, "the server is shutting down")
    if not await request.api.readiness.fine(request):
        raise Problem(
            STORE_UNAVAILABLE, f"the store cannot be reached, or did not answer within {READY_SECONDS:g} s"
        )
    return Answer(Health("ok"))


ROUTES: Final = (
    Route(
        method="GET",
        path="/healthz",
        name="healthz",
        summary="This process lives",
        permission=Permission.PUBLIC,
        handler=healthz,
        answers={200: Health},
        tag="operating",
        always=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        name="readyz",
        summary="This process reaches its store",
        permission=Permission.PUBLIC,
        handler=readyz,
        answers={200: Health},
        problems=(NOT_OPEN, STORE_UNAVAILABLE),
        tag="operating",
        always=True,
    ),
)
