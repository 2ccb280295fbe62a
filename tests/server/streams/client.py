"""Streams that are opened and then only read: ``python -m tests.server.streams.client PORT STREAMS KEY``.

Says ``ready`` when all are open, and ``all FIRST LAST`` each time all of them have been told something, with
the moments on the clock that processes of one machine share.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time

from tests.server.streams.limits import allow_many_files


def main() -> None:
    port, number, key = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    allow_many_files()
    request = f"GET /api/jobs/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    selector = selectors.DefaultSelector()
    for _ in range(number):
        line = socket.create_connection(("127.0.0.1", port))
        line.sendall(request)
        selector.register(line, selectors.EVENT_READ)
    opened: set[int] = set()
    told: set[int] = set()
    first = 0.0
    while True:
        for key_, _ in selector.select():
            line = key_.fileobj  # type: ignore[assignment]
            text = line.recv(65536)
            if not text:
                return
            if b"retry:" in text and key_.fd not in opened:
                opened.add(key_.fd)
                if len(opened) == number:
                    print("ready", flush=True)
            if b"event: topic" in text:
                first = first if told else time.monotonic()
                told.add(key_.fd)
                if len(told) == number:
                    print("all", first, time.monotonic(), flush=True)
                    told.clear()


if __name__ == "__main__":
    main()
