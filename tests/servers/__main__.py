"""``python -m tests.servers postgres [--durable] [--port N] [--pgbouncer]``: a server in the foreground."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading

from tests.servers.binaries import find_version
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import DURABLE, FAST, PostgresServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("kind", choices=["postgres"])
    parser.add_argument(
        "--durable", action="store_true", help="PostgreSQL's own defaults instead of fsync=off"
    )
    parser.add_argument("--port", type=int, help="a free one by default")
    parser.add_argument("--version", type=int, help="a major version the system has; the wheel's by default")
    parser.add_argument(
        "--pgbouncer", action="store_true", help="PgBouncer in transaction mode in front of it"
    )
    options = parser.parse_args()
    binaries = None
    if options.version is not None and (binaries := find_version(options.version)) is None:
        parser.error(f"there is no PostgreSQL {options.version} on this system")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with contextlib.ExitStack() as stack:
        server = PostgresServer(binaries, port=options.port, settings=DURABLE if options.durable else FAST)
        stack.enter_context(server)
        print(server.url(), flush=True)
        if options.pgbouncer:
            print(stack.enter_context(PgBouncer(server)).url(), flush=True)
        print(f"log: {server.log}; Ctrl-C stops it and throws its data away", flush=True)
        stopped.wait()


if __name__ == "__main__":
    main()
