"""Health port of ``tidewheel worker``: ``/healthz``, ``/readyz`` and ``/metrics``.

It runs on its own thread without an event loop, so that it still answers while the worker's loop is blocked,
and a slow client delays no other. No request can harm the worker. The port never queries the store; it
reports the state the worker has seen. With several processes, each sends its health to the parent, which
answers for all on one port.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from tidewheel.cli import error_output
from tidewheel.cli.health_reports import HealthReporter, HealthReports, take_report_address
from tidewheel.core.log_throttle import ThrottledLog
from tidewheel.errors import ConfigurationError
from tidewheel.settings import load_settings
from tidewheel.telemetry.samples import MEDIA_TYPE
from tidewheel.telemetry.telemetry import Telemetry
from tidewheel.worker.health import WorkerHealth

MAX_CONNECTIONS: Final = 32
"""With one more, the oldest is cut: whoever dawdles makes room for whoever asks."""
MAX_REQUEST_BYTES: Final = 4096
"""Of a request; what comes after its first line is not even looked at."""
CONNECTION_TIMEOUT_SECONDS: Final = 5.0
"""How long one connection may take for everything."""
SELECT_SECONDS: Final = 1.0
"""How often connections are looked at that have said nothing."""

_STATUS_TEXTS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

_log = logging.getLogger("tidewheel.cli")
_accept_error_log = ThrottledLog(_log)


class HealthStatus(Protocol):
    """What is told: the whole of it as JSON, and one of these by the status code."""

    @property
    def alive(self) -> bool: ...
    @property
    def ready(self) -> bool: ...


class HealthPort:
    """Answers on one socket from ``start`` to ``stop``. ``judge`` is called on its thread, and must not wait;
    likewise ``metrics``, whose answer is text for Prometheus.

    ``also``: another socket to read from, and who does so when something has come.
    """

    def __init__(
        self,
        listener: socket.socket,
        judge: Callable[[], HealthStatus],
        metrics: Callable[[], str],
        also: tuple[socket.socket, Callable[[], None]] | None = None,
    ) -> None:
        self._listener = listener
        self._get_health = judge
        self._metrics = metrics
        self._extra_reader = also
        self._stopped = False
        self._wake, self._woken = socket.socketpair()
        self._connections: dict[socket.socket, _Connection] = {}  # the oldest first
        self._selector = selectors.DefaultSelector()
        self._accepts_from = 0.0  # 0: now; else the listener rests for lack of descriptors
        self._thread = threading.Thread(target=self._run, name="tidewheel-health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Close the socket and every connection."""
        self._stopped = True
        self._wake.close()
        self._thread.join()

    def _run(self) -> None:
        sockets = [self._listener, self._woken] + (
            [self._extra_reader[0]] if self._extra_reader is not None else []
        )
        try:
            for one in sockets:
                one.setblocking(False)
                self._selector.register(one, selectors.EVENT_READ)
            while not self._stopped:
                self._poll_sockets()
        except Exception:
            # Whoever asks is refused from now on, and finds that as unhealthy as it is.
            _log.exception("the health port ended, which is a bug; the worker goes on")
        finally:
            for connection in list(self._connections.values()):
                self._drop(connection)
            for one in sockets:
                one.close()
            self._selector.close()

    def _poll_sockets(self) -> None:
        for key, _ in self._selector.select(SELECT_SECONDS):
            if key.fileobj is self._listener:
                self._accept()
            elif self._extra_reader is not None and key.fileobj is self._extra_reader[0]:
                self._extra_reader[1]()
            elif isinstance(key.data, _Connection) and key.data.socket in self._connections:
                self._advance(key.data)
        now = time.monotonic()
        if self._accepts_from and now >= self._accepts_from:
            self._accepts_from = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)
        for connection in list(self._connections.values()):
            if now >= connection.until:
                self._drop(connection)

    def _accept(self) -> None:
        """All that wait, or as many as there is room for: those before them have not been heard yet."""
        for _ in range(MAX_CONNECTIONS // 4):
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                if not isinstance(error, BlockingIOError | ConnectionError):
                    self._pause_accepting(error)
                return
            self._add_connection(client)

    def _pause_accepting(self, error: OSError) -> None:
        """Accept nothing for a moment: there are no descriptors left, most likely, and this must not spin."""
        _accept_error_log.write("accept", "the health port could not answer: %s", error)
        self._selector.unregister(self._listener)
        self._accepts_from = time.monotonic() + SELECT_SECONDS

    def _add_connection(self, client: socket.socket) -> None:
        client.setblocking(False)
        if len(self._connections) >= MAX_CONNECTIONS:
            self._drop(next(iter(self._connections.values())))
        connection = self._connections[client] = _Connection(client)
        self._selector.register(client, selectors.EVENT_READ, connection)

    def _advance(self, connection: _Connection) -> None:
        try:
            if connection.answer is None:
                piece = connection.socket.recv(MAX_REQUEST_BYTES)
                connection.request += piece
                if not piece:
                    self._drop(connection)
                elif connection.complete:
                    connection.answer = memoryview(self._answer(bytes(connection.request)))
                    self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
            elif connection.answer:
                connection.answer = connection.answer[connection.socket.send(connection.answer) :]
                if not connection.answer:
                    # What came unread would make closing a reset, and the answer might be lost with it.
                    connection.socket.shutdown(socket.SHUT_WR)
                    self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
            elif not connection.socket.recv(MAX_REQUEST_BYTES) or connection.is_flooding():
                self._drop(connection)
        except BlockingIOError:
            return
        except OSError:  # it has gone
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        del self._connections[connection.socket]
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _answer(self, request: bytes) -> bytes:
        line, ended, _ = request[:MAX_REQUEST_BYTES].partition(b"\n")
        words = line.decode("ascii", "replace").split()
        if not ended:
            return _build_response(
                431, {"error": f"the first line of a request may have {MAX_REQUEST_BYTES:,} bytes"}
            )
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _build_response(400, {"error": "this port speaks HTTP/1.1"})
        method, target, _ = words
        path = target.partition("?")[0]
        if path not in {"/healthz", "/readyz", "/metrics"}:
            return _build_response(404, {"error": "there are /healthz, /readyz and /metrics"})
        if method not in {"GET", "HEAD"}:
            return _build_response(405, {"error": "only GET and HEAD"}, b"Allow: GET, HEAD\r\n")
        try:
            if path == "/metrics":
                return _build_response(200, self._metrics(), body=method == "GET")
            told = self._get_health()
        except Exception:
            _log.exception("the health of the worker could not be told, which is a bug")
            return _build_response(500, {"error": "see the log"})
        fine = told.alive if path == "/healthz" else told.ready
        return _build_response(200 if fine else 503, told, body=method == "GET")


class _Connection:
    """One client, from its first byte to the last of the answer."""

    __slots__ = ("answer", "request", "socket", "surplus", "until")

    def __init__(self, client: socket.socket) -> None:
        self.socket = client
        self.until = time.monotonic() + CONNECTION_TIMEOUT_SECONDS
        self.request = bytearray()
        self.answer: memoryview | None = None  # what is left to send of it
        self.surplus = 0

    @property
    def complete(self) -> bool:
        """Whether all of the head is there, or more than we care to read."""
        head = self.request
        return b"\r\n\r\n" in head or b"\n\n" in head or len(head) >= MAX_REQUEST_BYTES

    def is_flooding(self) -> bool:
        """Whether it goes on sending after its answer."""
        self.surplus += 1
        return self.surplus >= MAX_CONNECTIONS


def _build_response(status: int, told: object, headers: bytes = b"", *, body: bool = True) -> bytes:
    if isinstance(told, str):
        content, media_type = told.encode(), MEDIA_TYPE
    else:
        content, media_type = msgspec.json.encode(told) + b"\n", "application/json"
    head = (
        f"HTTP/1.1 {status} {_STATUS_TEXTS[status]}\r\nContent-Type: {media_type}\r\n"
        f"Content-Length: {len(content)}\r\nCache-Control: no-store\r\nConnection: close\r\n"
    )
    return head.encode() + headers + b"\r\n" + (content if body else b"")


LOOPBACK: Final = "127.0.0.1"
BACKLOG: Final = 1024
"""Connections that wait to be accepted. One too many is tried again by its kernel after a second, and that is
how long probes of Kubernetes wait."""


def open_listener(text: str) -> socket.socket:
    """A socket at ``PORT``, ``HOST:PORT`` or ``[IPV6]:PORT``; without a host nobody else can reach it."""
    host, port = _parse_address(text)
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":  # elsewhere it would let two programs share a port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:  # the second: no host can have this name
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"cannot listen on {text!r} for questions about health: {reason}; choose another with "
            "--health-listen"
        ) from None
    return listener


def listener_address(listener: socket.socket) -> str:
    """``127.0.0.1:9090``, with the port that was chosen for port 0."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse_address(text: str) -> tuple[str, int]:
    text = text.strip()
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:  # an IPv6 address, and nobody can tell where it ends
        port = ""
    if not colon:
        host, port = "", text
    if not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(
            f"health_listen is {text[:100]!r}; give PORT, HOST:PORT or [IPV6]:PORT, with a port of 0 to 65535"
        )
    return host or LOOPBACK, int(port)


def configured_address(given: str | None) -> str:
    """Where to listen, as far as it is known without the app; empty for nowhere."""
    return load_settings({}).health_listen if given is None else given


class WorkerHealthPublisher:
    """About one worker, from the first moment of its process to the last."""

    def __init__(
        self,
        judge: Callable[[], WorkerHealth],
        telemetry: Callable[[], Telemetry | None],
        member: int | None,
    ) -> None:
        self._get_health = judge
        self._telemetry = telemetry
        self._member = member
        self._publisher: HealthPort | HealthReporter | None = None
        self._place = ""
        where = take_report_address()
        if where and member is not None:
            self._publisher = HealthReporter(member, judge, telemetry, where)
            self._publisher.start()

    def listen(self, where: str) -> None:
        """Listen there, unless somebody is told already."""
        if not where or self._publisher is not None:
            return
        if self._member is not None:
            if self._member == 1:  # the others would say the same
                error_output.print_warning(
                    f"health_listen is {where!r}, which only the app knows: several processes have one port "
                    "for all; give --health-listen or TIDEWHEEL_HEALTH_LISTEN"
                )
            return
        listener = open_listener(where)
        self._place = listener_address(listener)
        self._publisher = HealthPort(listener, self._get_health, self._metrics)
        self._publisher.start()

    def _metrics(self) -> str:
        telemetry = self._telemetry()
        return "" if telemetry is None else telemetry.prometheus()

    @property
    def is_published(self) -> bool:
        """Whether anybody can ask."""
        return self._publisher is not None

    def announce(self) -> None:
        """Say where it listens."""
        if self._place:
            _announce(self._place)

    def stop(self) -> None:
        if self._publisher is not None:
            self._publisher.stop()


class ParentHealthPublisher:
    """About all processes of a parent, which hears from each of them."""

    def __init__(self, where: str, number: int, called: Callable[[int], str]) -> None:
        listener = open_listener(where)
        try:
            self.reports = HealthReports(number, called)
        except BaseException:
            listener.close()
            raise
        _announce(listener_address(listener))
        reports = self.reports
        self._port = HealthPort(listener, reports.summarize, reports.metrics, (reports.socket, reports.read))
        self._port.start()

    def stop(self) -> None:
        self._port.stop()


def _announce(place: str) -> None:
    _log.info("health is told at http://%s/healthz and /readyz", place)
