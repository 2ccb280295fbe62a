"""Waking other processes on this machine: a datagram to a port on the loopback interface.

A process that waits for jobs (a worker) or for results binds a port and writes it into
``tidewheel_wakeup_listeners``. Whoever commits something of interest sends a datagram there: about ready jobs
just before the commit, about finished ones after it (``writer.py`` says why). It is a hint: it may get lost,
and anybody on the machine may send one, so it only ever leads to another look at the database. Measured:
under half a millisecond, and nothing at all while idle. inotify on the log fires before the commit is
visible; polling ``data_version`` every millisecond costs 7 % of a core.
"""

from __future__ import annotations

import json
import logging
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from tidewheel.core.clock import MICROSECONDS
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.wakeups import WakeupHub

_sql = SqlFile("tidewheel.stores.sqlite", "sql/wakeups.sql")
_log = logging.getLogger("tidewheel.sqlite")

LOOPBACK: Final = "127.0.0.1"
MAX_DATAGRAM: Final = 1400
STALE_SECONDS: Final = 15 * 60
REFRESH_SECONDS: Final = 5 * 60
FINISHED: Final = "f"
READY: Final = "r"
WAITING: Final = "w"

Listener = tuple[int, bool, bool]
"""A port, and whether it wants to hear of ready and of finished jobs."""


class ProcessWakeup:
    """Rings at other processes, and hears them ring here once somebody subscribed."""

    def __init__(self, hub: WakeupHub, refresh: Callable[[Listener], None]) -> None:
        self._hub = hub
        self._refresh = refresh
        self._lock = threading.Lock()
        self._inbox: socket.socket | None = None
        self._outbox: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._port: int | None = None
        self._ready = False
        self._finished = False
        self._registered: Listener | None = None  # as others can read it
        self.lock_requested = False  # another process waits to write; reset by whoever lets it

    def listen(self, *, ready: bool, finished: bool) -> Listener | None:
        """Make sure rings of these kinds are heard; what has to be written for that, if anything."""
        with self._lock:
            if self._inbox is None:
                try:
                    inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    inbox.bind((LOOPBACK, 0))
                except OSError as error:
                    # Without loopback sockets (some sandboxes) polling still finds every job, only later.
                    _log.warning("no wake-up port on %s (%s); falling back to polling", LOOPBACK, error)
                    return None
                self._inbox = inbox
                self._port = inbox.getsockname()[1]
                self._thread = threading.Thread(
                    target=self._receive, args=(inbox,), name="tidewheel-doorbell", daemon=True
                )
                self._thread.start()
            self._ready |= ready
            self._finished |= finished
            registration = (self._inbox.getsockname()[1], self._ready, self._finished)
            return None if registration == self._registered else registration

    def confirm_registration(self, registration: Listener) -> None:
        """It was written. Until then everybody who subscribes tries: the one before may have given up."""
        with self._lock:
            self._registered = registration

    def notify_this_process(self, topics: Collection[str]) -> None:
        """Tell whoever listens in this process only."""
        self._hub.notify_ready(topics)

    def notify(self, connection: sqlite3.Connection, topics: Collection[str], *, finished: bool) -> None:
        """On the writer's thread: tell whoever listens."""
        if not topics and not finished:
            return
        if topics:
            self._hub.notify_ready(topics)
        if finished:
            self._hub.notify_finished()
        message = b""
        for port, wants_ready, wants_finished in connection.execute(_sql["listeners"]):
            if port == self._port or not ((wants_ready and topics) or (wants_finished and finished)):
                continue
            message = message or _message(topics, finished=finished)
            self._send(message, port)

    def request_lock(self, connection: sqlite3.Connection) -> None:
        """On the writer's thread: tell processes that may write one transaction after another to let us in.

        A lock of SQLite's is had by whoever asks first after it came free, and that is who had it before.
        """
        message = json.dumps({READY: [], FINISHED: False, WAITING: True}).encode()
        for port, wants_ready, _ in connection.execute(_sql["listeners"]).fetchall():
            if wants_ready and port != self._port:
                self._send(message, port)

    def stop_listening(self) -> int | None:
        """Close the port that others send to, and return it: its row is still to be deleted."""
        with self._lock:
            inbox, self._inbox = self._inbox, None
            self._registered = None
        port = None
        if inbox is not None:
            port = int(inbox.getsockname()[1])
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as goodbye:
                goodbye.sendto(b"", (LOOPBACK, port))
            if self._thread is not None:
                self._thread.join(timeout=1.0)
            inbox.close()
        return port

    def close(self) -> None:
        """Close the socket that sends. The writer must have ended: each of its commits may open a new one."""
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None

    def _send(self, message: bytes, port: int) -> None:
        try:
            outbox = self._outbox
            if outbox is None:
                outbox = self._outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                outbox.setblocking(False)
            outbox.sendto(message, (LOOPBACK, port))
        except OSError as error:
            # A full buffer, or a port whose owner died. Listeners poll anyway, and stale ports are dropped.
            _log.debug("wake-up to port %d not sent: %s", port, error)

    def _receive(self, inbox: socket.socket) -> None:
        renew_at = time.monotonic() + REFRESH_SECONDS
        while True:
            now = time.monotonic()
            if now >= renew_at:
                # Others drop a registration nobody renews: its process is gone.
                self._refresh((inbox.getsockname()[1], self._ready, self._finished))
                renew_at = now + REFRESH_SECONDS
            try:
                inbox.settimeout(max(renew_at - now, 0.001))
                message = inbox.recv(MAX_DATAGRAM)
            except TimeoutError:
                continue
            except OSError:
                if self._inbox is None:
                    return  # closed
                time.sleep(0.05)  # Windows says so of a datagram that is too long, or was refused elsewhere
                continue
            if not message and self._inbox is None:
                return
            topics, finished, waiting = _parse(message)
            if waiting:
                self.lock_requested = True
            if topics is None or topics:
                self._hub.notify_ready(topics)
            if finished:
                self._hub.notify_finished()


def notify_from_connection(connection: sqlite3.Connection, topics: Collection[str]) -> None:
    """From a connection of somebody else's: tell whoever listens, this process included."""
    listeners = connection.execute(_sql["listeners"]).fetchall() if topics else []
    ports = [port for port, wants_ready, _ in listeners if wants_ready]
    if not ports:
        return
    try:
        outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        _log.debug("no wake-up sent: %s", error)  # too many open files; the jobs are written all the same
        return
    message = _message(topics, finished=False)
    with outbox:
        outbox.setblocking(False)
        for port in ports:
            try:
                outbox.sendto(message, (LOOPBACK, port))
            except OSError as error:
                _log.debug("wake-up to port %d not sent: %s", port, error)  # listeners poll anyway


def _message(topics: Collection[str], *, finished: bool) -> bytes:
    message = json.dumps({READY: sorted(topics), FINISHED: finished}).encode()
    # Too many names for a datagram: "something somewhere" is a good enough hint.
    return message if len(message) <= MAX_DATAGRAM else json.dumps({READY: None, FINISHED: finished}).encode()


def _parse(message: bytes) -> tuple[Collection[str] | None, bool, bool]:
    """Anybody may send anything: what is not understood counts as a hint about everything."""
    try:
        content = json.loads(message)
        topics = content[READY]
        if topics is not None:
            topics = frozenset(str(topic) for topic in topics)
        return topics, bool(content[FINISHED]), bool(content.get(WAITING))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None, True, False


def register(connection: sqlite3.Connection, listener: Listener, now: int) -> None:
    connection.execute(_sql["register"], (*listener, now))
    connection.execute(_sql["drop_stale"], (now - STALE_SECONDS * MICROSECONDS,))


def unregister(connection: sqlite3.Connection, port: int) -> None:
    connection.execute(_sql["unregister"], (port,))
