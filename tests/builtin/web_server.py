"""A web server of the tests' own, on loopback: one file, and every way to be difficult about it."""

from __future__ import annotations

import hashlib
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.patience import PATIENCE


def bytes_of(size: int, seed: int = 1) -> bytes:
    """Bytes that are not alike anywhere, and the same every time."""
    return random.Random(seed).randbytes(size)


@dataclass
class Web:
    """What the server has, how it behaves, and what it was asked."""

    content: bytes = b""
    etag: str | None = '"one"'
    headers: Mapping[str, str] = field(default_factory=dict)
    ranges: bool = True
    drop_every: int | None = None  # bytes of a body after which the connection is closed
    hold_at: list[int] = field(default_factory=list)  # bytes of all answers after which it waits, each once
    framing: str = "length"  # or "chunked", or "close"
    announce: int | None = None  # a length that may be a lie
    ends: bool = True  # whether the last chunk is followed by the mark that says so
    answer: Callable[[BaseHTTPRequestHandler], bool] | None = None  # True when it has answered by itself
    host: str = "127.0.0.1"
    port: int = 0

    requests: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self.held = threading.Event()
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/file.bin"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def hold(self) -> None:
        """Wait until the server waits."""
        assert self.held.wait(PATIENCE), f"the server sent {self.sent:,} bytes and was never held"

    def release(self) -> None:
        """Let it go on until the next time."""
        self.held.clear()
        self.go_on.set()

    def count(self, size: int) -> None:
        with self._lock:
            self.sent += size
            due = bool(self.hold_at) and self.sent >= self.hold_at[0]
            if due:
                del self.hold_at[0]
                self.go_on.clear()
                self.held.set()
        if due:
            self.go_on.wait(PATIENCE)

    @contextmanager
    def serving(self) -> Iterator[Web]:
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                _answer(web, self)

            def do_POST(self) -> None:
                _answer(web, self)

            def log_message(self, *_: object) -> None:
                """Nothing on stderr."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Clients that die in the middle are what this is for."""

        with Server((self.host, self.port), Handler) as server:
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            try:
                yield self
            finally:
                self.go_on.set()
                server.shutdown()
                thread.join()


def _answer(web: Web, handler: BaseHTTPRequestHandler) -> None:
    length = int(handler.headers.get("Content-Length", 0))
    web.requests.append(
        {"path": handler.path, "body": handler.rfile.read(length), **dict(handler.headers.items())}
    )
    if web.answer is not None and web.answer(handler):
        return
    begin, total = 0, len(web.content)
    found = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    tag = handler.headers.get("If-Range")
    known = {web.etag, web.headers.get("Last-Modified")} - {None}
    if found is not None and web.ranges and (tag is None or tag in known):
        begin = int(found[1])
        if begin >= total:
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{total}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {begin}-{total - 1}/{total}")
    else:
        handler.send_response(200)
    if web.etag is not None:
        handler.send_header("ETag", web.etag)
    for name, value in web.headers.items():
        handler.send_header(name, value)
    handler.send_header("Connection", "close")
    handler.close_connection = True
    if web.framing == "length":
        handler.send_header("Content-Length", str(web.announce or total - begin))
    elif web.framing == "chunked":
        handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    end = total if web.drop_every is None else min(total, begin + web.drop_every)
    for at in range(begin, end, 65_536):
        block = web.content[at : min(at + 65_536, end)]
        if web.framing == "chunked":
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
        else:
            handler.wfile.write(block)
        web.count(len(block))
    if web.framing == "chunked" and end == total and web.ends:
        handler.wfile.write(b"0\r\n\r\n")
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def redirecting(location: str, status: int = 302) -> Callable[[BaseHTTPRequestHandler], bool]:
    """An answer that sends the client elsewhere."""

    def answer(handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(status)
        handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    return answer


def saying(status: int, body: bytes = b"", **headers: str) -> Callable[[BaseHTTPRequestHandler], bool]:
    """An answer that is always the same."""

    def answer(handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return True

    return answer
