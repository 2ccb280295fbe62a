"""The HTTP API as an ASGI application, to serve or to mount.

``CursorCodec`` seals the places where lists continue. A cursor is a job's number, or the time and the id of a
list item. Numbers are store-wide and would tell a tenant how much others enqueue, so cursors are scrambled
under a secret and sealed for their caller: a cursor that was made up or given to another caller is refused.
The secret is in the store, for all servers on it. A reader of the store learns it, so nothing else uses it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import re
import secrets
from collections import defaultdict
from typing import Any, Final
from uuid import UUID

from starlette.routing import Route as StarletteRoute
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from tidewheel.app import Tidewheel
from tidewheel.core.clock import to_datetime
from tidewheel.core.model import NewDocument
from tidewheel.core.urls import is_http_url, redact_url
from tidewheel.errors import NotOpen, NotOverHttp, StoreError
from tidewheel.server.asgi import (
    RESPONSE_STARTED,
    BodyReadSlots,
    ClientGone,
    check_target,
    read_headers,
    respond_problem,
)
from tidewheel.server.authentication import Authenticator
from tidewheel.server.endpoint import Endpoint, encode_json
from tidewheel.server.events.broadcaster import EventBroadcaster
from tidewheel.server.idempotent_requests import IdempotentRequests
from tidewheel.server.problems import NOT_FOUND, Problem, invalid_input_problem, to_problem
from tidewheel.server.redaction import Redaction
from tidewheel.server.request_cancellation import RequestDeadlines
from tidewheel.server.route import Route
from tidewheel.server.routes import ROUTES_WITH_UI
from tidewheel.server.routes.status_routes import ReadinessCheck
from tidewheel.settings import Settings

SECRET_KIND: Final = "secret"  # noqa: S105 - the kind of a document
SECRET_ID: Final = "cursors"  # noqa: S105 - its id
_SEAL_BYTES: Final = 12
_NUMBER_BYTES: Final = 8
_MAX_PLACE_BYTES: Final = 300


async def shared_secret(app: Tidewheel) -> bytes:
    """Return the secret for cursors of the app's store. The first server makes it."""
    store = app.store
    secret = secrets.token_urlsafe(32).encode()
    await store.write_documents([NewDocument(SECRET_KIND, SECRET_ID, secret, None, 0)])
    document = await store.document(SECRET_KIND, SECRET_ID)
    if document is None:
        raise StoreError("the secret for cursors was removed while it was made; try again")
    return document.body


class CursorCodec:
    """Cursors of every server that knows the same secret. ``holder`` says which caller one is for."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def seal(self, number: int, holder: str) -> str:
        """A number as a text for clients."""
        return self._seal(b"number", number.to_bytes(_NUMBER_BYTES, "big"), holder)

    def open(self, text: str, holder: str) -> int:
        """The number; a text that none of these servers gave to this caller is refused."""
        plain = self._open(b"number", text, holder)
        if len(plain) != _NUMBER_BYTES:
            raise _unknown_cursor()
        return int.from_bytes(plain, "big")

    def seal_place(self, place: str, holder: str) -> str:
        """A place in a list of documents (``access/document_pages.py``) as a text for clients."""
        return self._seal(b"place", place.encode(), holder)

    def open_place(self, text: str, holder: str) -> str:
        """The place; refused as a number is."""
        return self._open(b"place", text, holder).decode()

    def _seal(self, kind: bytes, plain: bytes, holder: str) -> str:
        """The scramble is keyed by the seal: both fit, or neither."""
        said = b"\0".join((kind, holder.encode(), plain))
        seal = hmac.digest(self._secret, said, hashlib.sha256)[:_SEAL_BYTES]
        return base64.urlsafe_b64encode(seal + self._scramble(seal, plain)).decode("ascii").rstrip("=")

    def _open(self, kind: bytes, text: str, holder: str) -> bytes:
        try:
            whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            whole = b""
        seal, hidden = whole[:_SEAL_BYTES], whole[_SEAL_BYTES:]
        if 0 < len(hidden) <= _MAX_PLACE_BYTES:
            plain = self._scramble(seal, hidden)
            # The whole text, not the seal alone: base64 has several texts for the same bytes.
            if text.isascii() and hmac.compare_digest(self._seal(kind, plain, holder), text):
                return plain
        raise _unknown_cursor()

    def _scramble(self, seal: bytes, plain: bytes) -> bytes:
        mask = hashlib.shake_256(self._secret + seal).digest(len(plain))
        return bytes(a ^ b for a, b in zip(plain, mask, strict=True))


def _unknown_cursor() -> Problem:
    return invalid_input_problem(
        "cursor is none that this server gave; start again without one", parameter="cursor"
    )


logger = logging.getLogger(__name__)

_ID: Final = "{id:uuid}"
_ID_LENGTH: Final = 36
_id = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def create_api(app: Tidewheel) -> Api:
    """The HTTP API of this app, as an ASGI application.

    Serve it, or mount it in a program of your own: ``web.mount("/tidewheel", create_api(app))``. It opens the
    app where nobody has; a program that opens it in its own lifespan also closes it.
    """
    return Api(app)


class Api:
    """One app's HTTP API. Made by :func:`create_api`."""

    def __init__(self, app: Tidewheel, routes: tuple[Route, ...] = ROUTES_WITH_UI) -> None:
        if is_http_url(app.url):
            raise NotOverHttp(
                f"{redact_url(app.url)} is a server already, and a second one needs the database, too; run "
                "it "
                "where that is, with its URL"
            )
        self.app = app
        if app.settings.http_api:  # whose part /metrics is
            app.telemetry.count_if_allowed()
        self.authenticator = Authenticator(app)
        self.redaction = Redaction(app.settings.redact)
        self._cursors: CursorCodec | None = None
        self._closed = False
        self._max_header_bytes = app.settings.max_header_bytes
        self._reset_for_loop(None)
        by_path: defaultdict[str, dict[str, Route]] = defaultdict(dict)
        for route in routes:
            if _is_served(route, app.settings):
                for path in route.paths:
                    by_path[path][route.method] = route
        resources = {path: Endpoint(self, methods) for path, methods in by_path.items()}
        self._by_path = {path: resource for path, resource in resources.items() if "{" not in path}
        self._by_id = {
            path.removesuffix(_ID): resource for path, resource in resources.items() if path.endswith(_ID)
        }
        self._router = Router(
            [StarletteRoute(path, resource) for path, resource in resources.items()],
            redirect_slashes=False,
            default=_not_found,
        )

    def _reset_for_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """What belongs to one event loop, and to the time between opening and closing."""
        self._owner_loop = loop
        self._open_loop: asyncio.AbstractEventLoop | None = None  # the same, once it is open there
        self._opening = asyncio.Lock()
        self._opened_by_us = False
        self.started_at = to_datetime(self.app.clock.now())
        self.closing = asyncio.Event()  # what waits or streams ends when it is set
        self.readiness = ReadinessCheck()
        self.deadlines = RequestDeadlines()
        self.body_read_slots = BodyReadSlots()
        self.idempotent_requests = IdempotentRequests(encode_json)
        self.event_broadcaster = EventBroadcaster(self.app, self.closing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        try:
            if self._open_loop is not asyncio.get_running_loop():
                if self._closed:
                    raise NotOpen("the API was closed; whoever closed it can open it again")
                await self.open()
            headers = scope["tidewheel.headers"] = read_headers(scope)
            check_target(scope, headers, self._max_header_bytes)
            resource = None if scope.get("root_path") else self._find_endpoint(scope)
            if resource is not None:
                await resource(scope, receive, send)
            else:
                await self._router(scope, receive, send)
        except ClientGone:
            return
        except Exception as error:
            if scope.get(RESPONSE_STARTED):
                raise  # half an answer is out; the server ends the connection
            await respond_problem(scope, send, to_problem(error))

    def _find_endpoint(self, scope: Scope) -> Endpoint | None:
        """Most requests go to a path without parameters or to a job: one look instead of a search."""
        path = scope["path"]
        resource = self._by_path.get(path)
        if resource is not None:
            scope["path_params"] = {}
            return resource
        resource = self._by_id.get(path[:-_ID_LENGTH])
        # The router has its own idea of what an id looks like, and what is none there is none here.
        if resource is None or not _id.fullmatch(path, len(path) - _ID_LENGTH):
            return None
        scope["path_params"] = {"id": UUID(path[-_ID_LENGTH:])}
        return resource

    async def cursors(self) -> CursorCodec:
        """What turns places in lists into texts, under a secret that all servers of this store share."""
        if self._cursors is None:
            self._cursors = CursorCodec(await shared_secret(self.app))
        return self._cursors

    async def open(self) -> None:
        """Open the app on this event loop where nobody has, and read the rules. Harmless when it is open.

        After ``close``, and on another event loop when the one before has ended, it begins anew.
        """
        loop = asyncio.get_running_loop()
        if self._closed or self._owner_loop is not loop:
            if (
                self._owner_loop is not None
                and self._owner_loop is not loop
                and self._owner_loop.is_running()
            ):
                raise NotOpen("the API is served by another event loop; make another with create_api")
            self._closed = False
            self._reset_for_loop(loop)
        async with self._opening:
            if self._open_loop is not None:
                return
            self.authenticator.check_rules()
            if not self.app.is_open:
                await self.app.open()
                self._opened_by_us = True
            await self.cursors()  # the first server of a store makes their secret: no GET shall have to write
            self._open_loop = loop

    async def close(self) -> None:
        """End what waits or streams, and close the app where we opened it."""
        self.closing.set()
        self._closed = True
        self._open_loop = None
        await self.app.bulk.close()
        if self._opened_by_us:
            self._opened_by_us = False
            await self.app.close()

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
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


def _is_served(route: Route, settings: Settings) -> bool:
    return route.served_without_api or (settings.http_api and (settings.ui or not route.for_browsers))


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    del receive, send
    path: Any = scope["path"]
    raise Problem(NOT_FOUND, f"there is nothing at {path[:200]}; /openapi.json lists what there is")
