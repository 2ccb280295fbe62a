"""One who commits a row and a job, again and again: ``python -m bench.using.writer URL SECONDS [silent]``.

Begins at the first line on its input, and prints how many it has committed. A silent one tells nobody.
"""

from __future__ import annotations

import sys
import time

import psycopg

from tidewheel import Tidewheel
from tidewheel.stores.external_transaction import UncommittedEnqueue


def _nobody(uncommitted: UncommittedEnqueue) -> None:
    """Is told."""


def main(url: str, seconds: float, *, silent: bool) -> None:
    app = Tidewheel(url)
    if silent:
        app.notify_on_commit = _nobody  # type: ignore[method-assign]
    with psycopg.connect(url.partition("?")[0]) as connection:
        app.enqueue("quiet", {"number": 0}, using=connection)
        connection.commit()
        print("ready", flush=True)
        sys.stdin.readline()
        until, committed = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            connection.execute("INSERT INTO orders VALUES (%s)", (committed,))
            app.enqueue("quiet", {"number": committed}, using=connection)
            connection.commit()
            committed += 1
        print(committed, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), silent="silent" in sys.argv)
