"""Clients of a beanstalkd: ``python -m bench.beanstalkd.client HOST PORT put|take CLIENTS SECONDS JOBS``.

All of them in one process on bare sockets, each with one request on its way: it sends the next when the last
is answered. Prints what it did as JSON, with the processor time that took, because it must not be the limit.
"""

from __future__ import annotations

import json
import resource
import selectors
import socket
import sys
import time

from bench.figures import percentile

BODY = b"x" * 100
PUT = b"put 100 0 60 %d\r\n%s\r\n" % (len(BODY), BODY)
TAKE = b"reserve\r\n"
STUCK_SECONDS = 10.0


class Failed(Exception):
    """The server said something else than expected, or nothing."""


def main(host: str, port: int, verb: str, clients: int, seconds: float, jobs: int) -> None:
    selector = selectors.DefaultSelector()
    sockets = []
    for _ in range(clients):
        client = socket.create_connection((host, port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ, client)
        sockets.append(client)
    first = PUT if verb == "put" else TAKE
    sent = dict.fromkeys(sockets, 0.0)
    delays: list[float] = []
    done, cpu_before, began = 0, _cpu_seconds(), time.perf_counter()
    until = began + seconds
    for client in sockets:
        sent[client] = time.perf_counter()
        client.sendall(first)
    now = began
    while now < until and done < jobs:
        ready = selector.select(STUCK_SECONDS)
        if not ready:
            raise Failed(f"no answer within {STUCK_SECONDS:.0f} s")
        for key, _ in ready:
            client = key.data
            reply = client.recv(4096)
            now = time.perf_counter()
            if reply.startswith(b"RESERVED "):
                # A reply of this size comes in one piece over the loopback; half a one would fail below.
                client.sendall(b"delete " + reply.split(b" ", 2)[1] + b"\r\n")
                continue
            if reply[:8] not in {b"INSERTED", b"DELETED\r"}:
                raise Failed(f"the server said {reply!r}")
            done += 1
            delays.append(now - sent[client])
            sent[client] = now
            client.sendall(first)
    told = {
        "done": done,
        "seconds": now - began,
        "cpu_seconds": _cpu_seconds() - cpu_before,
        "p50_ms": 1000 * percentile(delays, 0.5),
        "p99_ms": 1000 * percentile(delays, 0.99),
    }
    print(json.dumps(told), flush=True)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]))
