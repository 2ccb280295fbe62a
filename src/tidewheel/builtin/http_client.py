"""One HTTP request and its answer, for tasks.

On asyncio's streams, with the parser that ``tidewheel serve`` has already: a handler that is cancelled or
runs out of time stops at the next byte, which a blocking client on a thread would not, and the address that
is connected to is ours to choose. Every request has a connection of its own, and no proxy comes between.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, urljoin, urlsplit

import httptools

from tidewheel.__about__ import __version__
from tidewheel.builtin.network_policy import ConnectionForbidden, NetworkPolicy
from tidewheel.core.names import shorten
from tidewheel.errors import TaskError

MAX_HEADER_BYTES: Final = 65_536
"""In a row that are not of the body: headers, and what may stand between and behind the pieces of a body."""
MAX_HEADERS: Final = 1_000
MAX_RETRY_AFTER_SECONDS: Final = 3600.0
"""That a server may ask for with ``Retry-After``."""
MAX_URL_LENGTH: Final = 8_192
READ_BYTES: Final = 262_144
CONNECT_SECONDS: Final = 10.0
"""For an address to answer, encryption included; then the next address is tried."""
_PORTS: Final = {"http": 80, "https": 443}


class ConnectionInterrupted(TaskError):
    """The connection could not be made, broke, or fell silent. Another try may get further."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="connection_failed")


class InvalidUrl(TaskError):
    """A URL that no request can be made from."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="invalid_input", retryable=False)


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Where a URL leads, in parts. Its text is for people: without anything that may be secret."""

    url: str
    scheme: str
    host: str
    port: int
    target: str

    @classmethod
    def parse(cls, url: str) -> HttpAddress:
        """The parts of a URL that is http or https, with a host and without a password."""
        if len(url) > MAX_URL_LENGTH:
            raise InvalidUrl(f"url has {len(url):,} characters; the limit is {MAX_URL_LENGTH:,}")
        if any(character <= " " or character == "\x7f" for character in url):
            raise InvalidUrl("url holds spaces or control characters; write them as %20 and the like")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:  # its words repeat parts of the URL, perhaps a password
            raise InvalidUrl("url is no URL: its host or port cannot be read") from None
        if parts.scheme not in _PORTS:
            raise InvalidUrl(f"url begins with {shorten(parts.scheme)}; http:// and https:// are possible")
        if not host:
            raise InvalidUrl("url names no host")
        if parts.username is not None or parts.password is not None:
            raise InvalidUrl("url holds a user name or password, which everybody who sees the job would see")
        if not host.isascii():
            try:
                host = host.encode("idna").decode()
            except UnicodeError as error:
                raise InvalidUrl(f"url names a host that cannot be one: {error}") from None
        port = _PORTS[parts.scheme] if port is None else port
        return cls(url, parts.scheme, host, port, _target_of(parts))

    def resolve_redirect(self, location: str) -> HttpAddress:
        """Where a redirect from here leads."""
        try:  # a header is bytes; those beyond ASCII are UTF-8 nearly everywhere
            location = location.encode("latin-1").decode()
        except UnicodeError:
            pass
        try:
            return HttpAddress.parse(urljoin(self.url, location))
        except ValueError:
            raise InvalidUrl("the server leads on to something that is no URL") from None

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target.partition('?')[0]}"


def _target_of(parts: SplitResult) -> str:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # Names in a path are bytes of UTF-8 for nearly every server; what is escaped already stays as it is.
    return "".join(
        character if character.isascii() else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in target
    )


class HttpResponse:
    """What a server says: the head at once, the body as it comes."""

    def __init__(self, reader: asyncio.StreamReader, where: HttpAddress, idle_seconds: float) -> None:
        self._reader = reader
        self._address = where
        self._idle_seconds = idle_seconds
        self._parser: Any = httptools.HttpResponseParser(self)
        self._waiting: list[bytes] = []
        self._bodiless_bytes = 0
        self._header_count = 0
        self._has_head = False
        self.complete = False
        self.status = 0
        self.headers: dict[str, str] = {}

    @property
    def has_known_end(self) -> bool:
        """Whether the server says where the body ends. Otherwise it ends where the connection does."""
        return "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "")

    async def read_head(self) -> None:
        while not self._has_head:
            await self._more()
        coding = self.headers.get("transfer-encoding", "chunked").strip().lower()
        if coding != "chunked":  # nobody asked for it, and undone it would have to be
            raise ConnectionInterrupted(f"{self._address} sends the body as {shorten(coding)}")

    @property
    def retry_after(self) -> float | None:
        """For how many seconds the server does not want to be asked again, if it says so."""
        given = self.headers.get("retry-after", "").strip()
        if given.isdecimal() and len(given) < 19:
            return min(float(given), MAX_RETRY_AFTER_SECONDS)
        try:
            moment = parsedate_to_datetime(given)
            seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
        return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)

    async def blocks(self) -> AsyncIterator[bytes]:
        """The body, as it comes. ``ConnectionInterrupted`` when it ends before its end."""
        while True:
            waiting, self._waiting = self._waiting, []
            for block in waiting:
                yield block
            if self.complete:
                return
            await self._more()

    async def read(self, limit: int) -> bytes:
        """The whole body, if it has no more than ``limit`` bytes."""
        blocks: list[bytes] = []
        size = 0
        async for block in self.blocks():
            size += len(block)
            if size > limit:
                raise TaskError(
                    f"{self._address} answered more than {limit:,} bytes", code="too_large", retryable=False
                )
            blocks.append(block)
        return b"".join(blocks)

    async def _more(self) -> None:
        try:
            async with asyncio.timeout(self._idle_seconds):
                data = await self._reader.read(READ_BYTES)
        except TimeoutError:
            raise ConnectionInterrupted(
                f"{self._address} said nothing for {self._idle_seconds:g} s"
            ) from None
        except (OSError, ssl.SSLError) as error:
            raise ConnectionInterrupted(f"the connection to {self._address} broke: {error}") from None
        if not data:
            if not self._has_head or self.has_known_end:
                raise ConnectionInterrupted(f"{self._address} closed the connection before the end")
            self.complete = True
            return
        bodies = len(self._waiting)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.complete:
                return  # what comes after the end it announced belongs to nobody
            raise ConnectionInterrupted(
                f"{self._address} speaks no HTTP: {error or type(error).__name__}"
            ) from None
        # Lines behind the last piece of a body, say, could go on for ever without a byte that counts.
        self._bodiless_bytes = 0 if len(self._waiting) > bodies else self._bodiless_bytes + len(data)
        if self._bodiless_bytes > MAX_HEADER_BYTES and not self.complete:
            raise ConnectionInterrupted(
                f"{self._address} answered with more than {MAX_HEADER_BYTES:,} bytes of headers"
            )

    # -- what the parser calls ----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.complete:
            raise ValueError("a second answer")
        self.headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            return  # behind the body: what was decided by the head stays as it is
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            raise ValueError(f"more than {MAX_HEADERS:,} headers")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200  # 100 and its like come before the answer

    def on_body(self, body: bytes) -> None:
        self._waiting.append(body)

    def on_message_complete(self) -> None:
        self.complete = self._has_head


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is asked of a server."""

    address: HttpAddress
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encode(self) -> bytes:
        """As it goes over the wire."""
        headers = {
            "Host": self.address.authority,
            "User-Agent": f"tidewheel/{__version__}",
            "Accept": "*/*",
            "Accept-Encoding": "identity",  # bytes are counted and compared, so they come as they are
            "Connection": "close",
            **self.headers,
        }
        if self.body or self.method != "GET":
            headers["Content-Length"] = str(len(self.body))
        lines = [f"{self.method} {self.address.target} HTTP/1.1"]
        for name, value in headers.items():
            if "\r" in value or "\n" in value:  # from a header of an earlier answer, say
                raise InvalidUrl(f"header {name} holds a line break")
            lines.append(f"{name}: {value}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + self.body


@asynccontextmanager
async def send_request(
    request: HttpRequest, *, policy: NetworkPolicy | None, idle_seconds: float = 30.0
) -> AsyncIterator[HttpResponse]:
    """Ask, and be answered: the head is there at once, the body as long as this is open.

    Without a ``reach`` the connection may go anywhere; that is for URLs of those who run the worker.
    """
    wire = request.encode()
    reader, writer = await _connect(request.address, policy)
    try:
        answer = HttpResponse(reader, request.address, idle_seconds)
        try:
            writer.write(wire)
            async with asyncio.timeout(idle_seconds):
                await writer.drain()
        except (OSError, TimeoutError) as error:
            raise ConnectionInterrupted(f"the connection to {request.address} broke: {error}") from None
        await answer.read_head()
        yield answer
    finally:
        # Not a polite goodbye: whoever stops in the middle wants no more bytes, and waits for nobody.
        writer.transport.abort()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


async def _connect(
    where: HttpAddress, policy: NetworkPolicy | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    # On a thread: it reads all the certificates of the system, which takes a twentieth of a second.
    secure = await asyncio.to_thread(ssl.create_default_context) if where.scheme == "https" else None
    # The dot that makes a name absolute is for resolvers; certificates do not have it.
    name = where.host.rstrip(".") if secure is not None else None
    trouble: Exception | None = None
    hosts = [where.host]
    if policy is not None:
        hosts = [str(address) for address in await policy.resolve(where.host, where.port)]
    for host in hosts:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    host, where.port, ssl=secure, server_hostname=name, limit=READ_BYTES
                )
        except (OSError, TimeoutError) as error:
            trouble = error
            continue
        if policy is not None:
            peer = ip_address(writer.get_extra_info("peername")[0].partition("%")[0])
            try:  # it was checked by its name; what counts is where this really ends
                policy.check_address(peer, where.host)
            except ConnectionForbidden:
                writer.transport.abort()
                raise
        return reader, writer
    why = str(trouble) or type(trouble).__name__
    raise ConnectionInterrupted(f"no connection to {where.scheme}://{where.authority}: {why}") from None
