"""Send requests to one server: pooled connections, limited responses, retries that never repeat an effect.

A request that must take effect only once carries an id. After a broken connection or a 502, 503 or 504 it is
sent again under the same id. A server that has already done it returns the first response; a restarted server
has forgotten the ids. ``bounded_gather`` sends up to 8 requests for single jobs at a time and stops at the
first error. The library's log line per request is dropped, because a worker sends several per second.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from uuid import uuid4

import httpx2
import msgspec

from tidewheel.__about__ import __version__
from tidewheel.core.urls import redact_url
from tidewheel.errors import (
    ConfigurationError,
    LimitExceeded,
    NotOpen,
    StoreError,
    StoreUnavailable,
    TidewheelError,
    UsedAfterFork,
)
from tidewheel.stores.http.errors import is_json, not_our_server_error, problem_to_error, read_problem
from tidewheel.stores.http.location import Location

_in_our_request: ContextVar[bool] = ContextVar("tidewheel_http_ours", default=False)


def _log_filter(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or not _in_our_request.get()


# A filter, and no level: the program may use the library, and want to read of its own requests.
logging.getLogger("httpx2").addFilter(_log_filter)


@contextmanager
def suppress_request_logs() -> Iterator[None]:
    """What the library says of a request in here is not logged, unless something is wrong."""
    token = _in_our_request.set(True)
    try:
        yield
    finally:
        _in_our_request.reset(token)


T = TypeVar("T")

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 35.0
"""How long an answer may take, beyond what was asked to be waited: a little longer than servers give
themselves (``request_seconds``), so that they are the ones to tell."""
WAIT_SECONDS: Final = 10.0
"""The same for a request that waits at the server: one whose connection has gone silent keeps a worker from
its jobs."""
RETRY_SECONDS: Final = 10.0
"""A request that failed later than this after it was first sent is not sent again."""
RETRY_DELAYS: Final = (0.05, 0.25, 1.0)
"""Seconds before each repeat."""
MAX_CONNECTIONS: Final = 100
"""Of one opened store; further requests wait for a free one."""
KEPT_CONNECTIONS: Final = 20
KEPT_SECONDS: Final = 55.0
"""How long an idle connection is kept: a little shorter than the server keeps it."""
MAX_ANSWER_BYTES: Final = 512 * 1024 * 1024
"""Largest answer that is read: more than a thousand jobs with the payloads that servers take by default."""
LARGE_BYTES: Final = 1024 * 1024
"""Lists are sent in parts that are smaller: a larger request has a single large item in it."""
REQUEST_ID: Final = "Tidewheel-Request-Id"

NO_BODY: Final = 204
"""The status of an answer without a body. Any other without one is somebody else's."""
_RETRYABLE_ERRORS: Final = frozenset({502, 503, 504})


class ApiClient:
    """The requests of one opened store, on one event loop."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self.shown: Final = redact_url(location.base)
        self._http: httpx2.AsyncClient | None = None
        self._confirmed = False  # whether a Tidewheel has answered there
        self._pid = 0

    def open(self) -> None:
        """Make ready; nothing is sent."""
        if self._http is not None:
            return
        headers = {"Accept": "application/json", "User-Agent": f"tidewheel/{__version__}"}
        if self._location.token is not None:
            headers["Authorization"] = f"Bearer {self._location.token}"
        self._pid = os.getpid()
        try:
            self._http = httpx2.AsyncClient(
                headers=headers,
                verify=_certificates(),
                follow_redirects=False,  # the token is for the server that was named
                limits=httpx2.Limits(
                    max_connections=MAX_CONNECTIONS,
                    max_keepalive_connections=KEPT_CONNECTIONS,
                    keepalive_expiry=KEPT_SECONDS,
                ),
            )
        except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
            # Without what it says: a proxy's address may have a password in it.
            raise ConfigurationError(
                f"{self.shown} cannot be asked ({type(error).__name__}): a proxy or a file of certificates "
                "that the environment names is of no use (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE, "
                "SSL_CERT_DIR); mend or unset it"
            ) from None

    async def close(self) -> None:
        """Let go of every connection. Idempotent."""
        http, self._http = self._http, None
        if http is not None and self._pid == os.getpid():
            await http.aclose()

    async def get(self, path: str, answer: type[T], query: Mapping[str, Any] | None = None) -> T:
        """Read something."""
        return decode_json(await self.send("GET", path, query=query), answer, self.shown)

    async def post(self, path: str, body: Any, answer: type[T], *, wait: float = 0.0) -> T:
        """Ask for something that may as well be done twice."""
        return decode_json(
            await self.send("POST", path, body=encode_json(body), wait=wait), answer, self.shown
        )

    async def send_idempotent(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Have something done once, however often the connection breaks; the body of the answer, which is to
        be decoded: not every page with a good status is a server's word that it was done.
        """
        return await self.send(method, path, body=body, request_id=new_request_id())

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        request_id: str | None = None,
        wait: float = 0.0,
    ) -> bytes:
        """The body of a good answer; every other one is raised. ``wait``: how long the server may wait."""
        headers = {} if request_id is None else {REQUEST_ID: request_id}
        if body is not None:
            headers["Content-Type"] = "application/json"
        params = {name: _written(value) for name, value in (query or {}).items() if value is not None}
        if wait:
            params["wait"] = _written(wait)
        loop = asyncio.get_running_loop()
        repeat_until = loop.time() + RETRY_SECONDS + wait
        seconds = wait + WAIT_SECONDS if wait else ANSWER_SECONDS
        for pause in (*RETRY_DELAYS, None):
            try:
                return await self._send_once(method, path, params, headers, body, seconds)
            except _OutcomeUnknown as failure:
                if pause is None or loop.time() >= repeat_until:
                    raise failure.error from None
            await asyncio.sleep(pause)
        raise AssertionError  # the last try returns or raises

    async def _send_once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
        seconds: float,
    ) -> bytes:
        http = self._opened()
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        url = self._location.root + path
        try:
            request = http.build_request(
                method, url, params=params or None, headers=headers, content=body, timeout=timeout
            )
        except httpx2.InvalidURL as error:
            raise LimitExceeded(
                f"this cannot be asked in one address: {error}; use a shorter filter"
            ) from None
        # Without a cause: that of the library holds the request, and with it the token.
        try:
            with suppress_request_logs():
                response = await http.send(request, stream=True)
            try:
                answer = await self._read(response)
            finally:
                await response.aclose()
        except httpx2.PoolTimeout:
            raise StoreUnavailable(
                f"{MAX_CONNECTIONS} requests to {self.shown} are under way, and none ended in {seconds:g} s"
            ) from None
        except httpx2.LocalProtocolError as error:
            raise StoreError(f"a request to {self.shown} cannot be sent: {error}") from None
        except httpx2.TimeoutException as error:
            kind = "connect" if isinstance(error, httpx2.ConnectTimeout) else "answer"
            raise _OutcomeUnknown(StoreUnavailable(f"{self.shown} did not {kind} in time")) from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            why = str(error) or type(error).__name__
            reached = not isinstance(error, httpx2.ConnectError | httpx2.ProxyError)
            if reached and body is not None and len(body) > LARGE_BYTES:
                # Whoever is sent more than it takes hangs up, and what it said is lost with the connection.
                # That must not look like a server that is away, which is worth waiting for.
                raise _OutcomeUnknown(
                    StoreError(
                        f"{self.shown} did not take a request of {len(body):,} bytes ({why}); servers take "
                        "max_request_bytes, 4 MiB by default"
                    )
                ) from None
            raise _OutcomeUnknown(StoreUnavailable(f"{self.shown} cannot be reached: {why}")) from None
        media_type = response.headers.get("content-type", "")
        if response.status_code == NO_BODY or (response.is_success and is_json(media_type)):
            return answer
        raise self._to_error(response, answer)

    async def _read(self, response: httpx2.Response) -> bytes:
        parts, size = [], 0
        async for part in response.aiter_bytes():
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise StoreError(
                    f"{self.shown} answered with more than {MAX_ANSWER_BYTES:,} bytes; ask for less at a time"
                )
            parts.append(part)
        return b"".join(parts)

    def _to_error(self, response: httpx2.Response, body: bytes) -> Exception:
        status, media_type = response.status_code, response.headers.get("content-type", "")
        problem = read_problem(media_type, body)
        error: TidewheelError
        if problem is None:
            moved_to = response.headers.get("location") if response.is_redirect else None
            error = not_our_server_error(self.shown, status, media_type, moved_to, known=self._confirmed)
        else:
            self._confirmed = True
            error = problem_to_error(problem)
        again = status in _RETRYABLE_ERRORS and isinstance(error, StoreUnavailable)
        return _OutcomeUnknown(error) if again else error

    def confirm_server(self) -> None:
        """A Tidewheel is there: from now on answers of others are those of a proxy."""
        self._confirmed = True

    def _opened(self) -> httpx2.AsyncClient:
        if self._http is None:
            raise NotOpen(f"the store at {self.shown} is not open")
        if self._pid != os.getpid():
            raise UsedAfterFork(
                f"the store at {self.shown} was opened in process {self._pid}, before a fork; connections do "
                "not survive that: open the app in the process that uses it"
            )
        return self._http


class _OutcomeUnknown(Exception):
    """Nothing is known of what became of a request; ``error`` is what to tell when it stays so."""

    def __init__(self, error: TidewheelError) -> None:
        super().__init__(str(error))
        self.error = error


def new_request_id() -> str:
    """One for each thing that is asked for, however often it is sent."""
    return uuid4().hex


_encoder: Final = msgspec.json.Encoder()


def encode_json(body: Any) -> bytes:
    return _encoder.encode(body)


def decode_json(body: bytes, answer: type[T], shown: str) -> T:
    if answer is type(None) and not body:
        return None
    kind: Any = answer
    try:
        found: T = _decoder(kind).decode(body)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"{shown} answered something that this Tidewheel ({__version__}) does not understand: {error}"
        ) from None
    return found


@functools.cache
def _decoder(answer: Any) -> Any:
    return msgspec.json.Decoder(answer)


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Whom to trust. Read once in a process: that takes longer than a hundred requests."""
    return httpx2.create_ssl_context()


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return str(value)


A = TypeVar("A")

MAX_CONCURRENT_REQUESTS: Final = 8
"""Requests that are under way at a time."""


async def bounded_gather(ask: Callable[[A], Awaitable[T]], about: Iterable[A]) -> list[T]:
    """What it answers about each of these, in their order. An error is raised when nothing runs any more."""
    turns = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

    async def one(item: A) -> T:
        async with turns:
            return await ask(item)

    tasks = [asyncio.create_task(one(item)) for item in about]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
