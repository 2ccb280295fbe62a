"""The attacks. Each is a function of a port and a size, and tells how many of its connections were cut, when.

They run in a process of their own: ``python -m tests.server.hostile.attacks NAME PORT CONNECTIONS GIVE_UP``.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from tests.server.streams.limits import allow_many_files

CHUNKED = (
    b"POST /api/jobs/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE_GET = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
_ENDED = select.POLLERR | select.POLLHUP | getattr(select, "POLLRDHUP", 0)


@dataclass
class Outcome:
    """What became of an attacker: its connections, those that the server ended, and when the last one was."""

    connections: int
    cut: int
    seconds: float
    megabytes: float


class Line:
    """One connection that never waits: what the server does not take is dropped, and counted as not sent."""

    def __init__(self, port: int, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.sent = 0
        self.cut_after: float | None = None
        self.began = time.monotonic()
        try:
            self.socket.connect(("127.0.0.1", port))
        except ConnectionError:
            self.cut_after = 0.0
        self.socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self.socket, _ENDED)

    def send(self, data: bytes) -> None:
        try:
            self.sent += self.socket.send(data)
        except BlockingIOError:
            return
        except ConnectionError:
            self._end()

    def receive(self, size: int) -> None:
        try:
            if not self.socket.recv(size):
                self._end()
        except BlockingIOError:
            return
        except ConnectionError:
            self._end()

    def _end(self) -> None:
        if self.cut_after is None:
            self.cut_after = time.monotonic() - self.began

    @property
    def cut(self) -> bool:
        if self.cut_after is None and self._poll.poll(0):
            self._end()
        return self.cut_after is not None


def press(
    lines: list[Line], give_up: float, step: Callable[[Line], None], pause: float = 0.0, kept: int = 0
) -> Outcome:
    """Repeat ``step`` on every connection until all but ``kept`` are cut, or until the attacker gives up."""
    end = time.monotonic() + give_up
    while time.monotonic() < end:
        alive = [line for line in lines if not line.cut]
        if len(alive) <= kept:
            break
        for line in alive:
            step(line)
        time.sleep(pause)
    ends = [line.cut_after for line in lines if line.cut_after is not None]
    return Outcome(
        connections=len(lines),
        cut=len(ends),
        seconds=max(ends, default=give_up),
        megabytes=sum(line.sent for line in lines) / 1e6,
    )


def opened(port: int, number: int, first: bytes = b"", receive_buffer: int = 0) -> list[Line]:
    lines = [Line(port, receive_buffer) for _ in range(number)]
    for line in lines:
        if first:
            line.send(first)
    return lines


def _blocks_of(piece: Callable[[int], bytes]) -> Iterator[bytes]:
    """Endless blocks of 64 kB that are made of numbered pieces."""
    numbers = count()
    while True:
        block = bytearray()
        while len(block) < 65_536:
            block += piece(next(numbers))
        yield bytes(block)


class _Endless:
    """Sends an endless text. What the server did not take of a block is sent first the next time."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._blocks = _blocks_of(piece)
        self._rest: dict[Line, bytes] = {}

    def __call__(self, line: Line) -> None:
        data = self._rest.get(line) or next(self._blocks)
        before = line.sent
        line.send(data)
        self._rest[line] = data[line.sent - before :]


def endless_trailers(port: int, connections: int, give_up: float) -> Outcome:
    lines = opened(port, connections, CHUNKED + b"2\r\n{}\r\n0\r\n")
    return press(lines, give_up, _Endless(lambda number: b"a%d: b\r\n" % number))


def endless_trailer(port: int, connections: int, give_up: float) -> Outcome:
    lines = opened(port, connections, CHUNKED + b"2\r\n{}\r\n0\r\na: ")
    return press(lines, give_up, _Endless(lambda _: b"b" * 1000))


def endless_chunk_extension(port: int, connections: int, give_up: float) -> Outcome:
    lines = opened(port, connections, CHUNKED + b"2;a=")
    return press(lines, give_up, _Endless(lambda _: b"b" * 1000))


def endless_headers(port: int, connections: int, give_up: float) -> Outcome:
    lines = opened(port, connections, b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
    return press(lines, give_up, _Endless(lambda number: b"a%d: b\r\n" % number))


def pipelining(port: int, connections: int, give_up: float) -> Outcome:
    """Repeats a request without waiting for answers, but reads them."""
    more = _Endless(lambda _: GET)

    def step(line: Line) -> None:
        more(line)
        line.receive(1 << 20)

    return press(opened(port, connections), give_up, step)


def pipelining_unread(port: int, connections: int, give_up: float) -> Outcome:
    return press(opened(port, connections), give_up, _Endless(lambda _: GET))


def slow_readers(port: int, connections: int, give_up: float) -> Outcome:
    """Asks for large answers and reads 500 bytes now and then.

    It sends an empty line with each look, because a system that gives up on a client does not say so: the
    answer to that line does.
    """
    lines = opened(port, connections, LARGE_GET * 8, receive_buffer=4096)

    def step(line: Line) -> None:
        line.receive(500)
        line.send(b"\r\n")

    return press(lines, give_up, step, pause=2.0)


def no_files(port: int, connections: int, give_up: float) -> Outcome:
    """Holds more connections open than the server has file descriptors, and opens new ones when cut."""
    lines = opened(port, connections)
    end = time.monotonic() + give_up
    cut = 0
    while time.monotonic() < end:
        for place, line in enumerate(lines):
            if line.cut:
                cut += 1
                line.socket.close()
                lines[place] = Line(port)
        time.sleep(0.05)
    return Outcome(connections, cut, give_up, 0.0)


def slow_heads(port: int, connections: int, give_up: float) -> Outcome:
    lines = opened(port, connections, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ")
    return press(lines, give_up, lambda line: line.send(b"a"), pause=0.3)


def fat_heads(port: int, connections: int, give_up: float) -> Outcome:
    """Sends almost all of a large head, and then a byte now and then."""
    head = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"a: %s\r\n" % (b"b" * 310) * 195
    lines = opened(port, connections, head)
    return press(lines, give_up, lambda line: line.send(b"a"), pause=0.3)


def fat_heads_with_bodies(port: int, connections: int, give_up: float) -> Outcome:
    """Sends a large head, which is complete, and almost all of a body that needs no turn."""
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\n" + b"a: %s\r\n" % (b"b" * 150) * 190 + b"\r\n")
    lines = opened(port, connections, head + b"3fff\r\n" + b" " * 16_000)
    return press(lines, give_up, lambda line: line.send(b" "), pause=0.3)


def held_bodies(port: int, connections: int, give_up: float) -> Outcome:
    """Sends almost all of a large body, and then a byte now and then."""
    size = 3_000_000
    head = (
        b"POST /api/jobs/enqueue HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n"
    )
    lines = opened(port, connections, head % size)
    block = b" " * 65_536

    def step(line: Line) -> None:
        for _ in range(8):
            if line.sent < size - len(block):
                line.send(block)

    return press(lines, give_up, step, pause=0.02)


def unread_bodies(port: int, connections: int, give_up: float) -> Outcome:
    """Sends a large body with a request whose answer does not depend on it."""
    lines = opened(port, connections, GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 100000000\r\n\r\n"))
    block = b" " * 65_536

    def step(line: Line) -> None:
        if line.sent < 4 * len(block):
            line.send(block)

    return press(lines, give_up, step, pause=0.02)


def long_names(port: int, connections: int, give_up: float) -> Outcome:
    """Posts bodies of one member with an enormous name, which is unknown, without a key."""
    end = time.monotonic() + give_up
    sent = cut = 0
    paths = ("session", "enqueue")
    while time.monotonic() < end:
        for number in range(connections):
            body = b'{"' + b"nmae" * (1_000_000 - 10) + b'": 1}'
            head = (
                f"POST /api/jobs/{paths[number % 2]} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            ).encode()
            answer = b""
            try:
                with socket.create_connection(("127.0.0.1", port), 60) as line:
                    line.sendall(head + body)
                    while piece := line.recv(1 << 20):
                        answer += piece
            except ConnectionError:
                pass
            sent += len(body)
            cut += len(answer) < 10_000
            if len(answer) >= 10_000:
                return Outcome(number + 1, cut, give_up, sent / 1e6)
    return Outcome(1, 1, time.monotonic() - end + give_up, sent / 1e6)


def _repeated(request: bytes, port: int, connections: int, give_up: float) -> Outcome:
    """One request after the other, each on a new connection, which the server has to end."""
    began = time.monotonic()
    cut = made = 0
    while made < connections and time.monotonic() - began < give_up:
        line = Line(port)
        made += 1
        line.send(request)
        select.select([line.socket], [], [], 20)
        line.receive(65_536)
        select.select([line.socket], [], [], 0.5)
        cut += line.cut
        line.socket.close()
    return Outcome(made, cut, time.monotonic() - began, 0.0)


def malformed(port: int, connections: int, give_up: float) -> Outcome:
    return _repeated(b"GET\x00/ HTTP/9.9\r\n\r\n", port, connections, give_up)


def upgrades(port: int, connections: int, give_up: float) -> Outcome:
    request = GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    return _repeated(request, port, connections, give_up)


def many_connections(port: int, connections: int, give_up: float) -> Outcome:
    """Holds connections open from one address, each with a request that is complete now and then."""
    lines = opened(port, connections, GET)
    return press(lines, give_up, lambda line: line.send(GET), pause=0.5, kept=2 * connections // 3)


ATTACKS: dict[str, Callable[[int, int, float], Outcome]] = {
    function.__name__: function
    for function in (
        endless_headers,
        endless_trailers,
        endless_trailer,
        endless_chunk_extension,
        pipelining,
        pipelining_unread,
        slow_readers,
        slow_heads,
        fat_heads,
        fat_heads_with_bodies,
        held_bodies,
        unread_bodies,
        long_names,
        malformed,
        upgrades,
        no_files,
        many_connections,
    )
}


def main() -> None:
    name, port, connections, give_up = sys.argv[1:]
    allow_many_files()
    outcome = ATTACKS[name](int(port), int(connections), float(give_up))
    print(json.dumps(vars(outcome)))


if __name__ == "__main__":
    main()
