"""``python -m bench.using``: how soon a worker runs a job after its caller's commit, and what telling costs.

The callers' rate is compared with the same work of callers who tell nobody, in turn, in one run: somebody
holds the lock of those who tell, and nobody looks for transactions that left it to others.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psycopg

from bench.grounds import Grounds
from bench.machine import load_average
from tidewheel import Tidewheel

JOBS = 200
WARM_UP = 10
THINKING_SECONDS = 0.002
"""Between the enqueue and the commit: a transaction does something else as well."""
PAUSE_SECONDS = 0.02
WRITERS = 8
TELLING = "SELECT pg_advisory_lock(hashtextextended('tidewheel.tell.' || %s, 0))"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.using", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement of the callers' rate")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    with Grounds() as grounds:
        for ground in ("sqlite", "postgres"):
            with grounds.place(ground) as place:
                app = Tidewheel(place.url)
                app.sync.open()
                wake_up(ground, app)
                if ground == "postgres":
                    rates(app, options.seconds, options.rounds)
                app.sync.close()


def wake_up(ground: str, app: Tidewheel) -> None:
    connection: Any
    if ground == "sqlite":
        connection = sqlite3.connect(app.url.removeprefix("sqlite:///").partition("?")[0])
    else:
        connection = psycopg.connect(app.url.partition("?")[0])
    delays = []
    with working(app.url) as worker, contextlib.closing(connection):
        for number in range(JOBS + WARM_UP):
            app.enqueue("notice", {"number": number}, using=connection)
            time.sleep(THINKING_SECONDS)
            connection.commit()
            committed_at = time.time()
            _, began_at = worker.readline().split()
            delays.append((float(began_at) - committed_at) * 1000)
            time.sleep(PAUSE_SECONDS)
    delays = sorted(delays[WARM_UP:])
    shares = {share: delays[int(len(delays) * share / 100)] for share in (50, 90, 99)}
    told = ", ".join(f"p{share} {delay:.2f}" for share, delay in shares.items())
    print(f"{ground}: commit to handler, ms: {told} (load {load_average()})", flush=True)


@contextlib.contextmanager
def working(url: str) -> Iterator[Any]:
    words = [sys.executable, "-m", "bench.using.worker", url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as worker:
        time.sleep(2)  # until it listens; before, it polls
        try:
            yield worker.stdout
        finally:
            worker.terminate()


def rates(app: Tidewheel, seconds: float, rounds: int) -> None:
    url = app.url.partition("?")[0]
    schema = "tidewheel" if "schema=" not in app.url else app.url.partition("schema=")[2].partition("&")[0]
    with psycopg.connect(url, autocommit=True) as holder:
        holder.execute("CREATE TABLE IF NOT EXISTS orders (number integer)")
        told: list[float] = []
        untold: list[float] = []
        for number in range(rounds):
            # Each is first as often as the other: a disk that grows slower or faster favours neither.
            for telling in (True, False) if number % 2 == 0 else (False, True):
                if telling:
                    told.append(committed(app.url, seconds))
                else:
                    holder.execute(TELLING, (schema,))
                    untold.append(committed(app.url, seconds, "silent"))
                    holder.execute("SELECT pg_advisory_unlock_all()")
            print(f"{WRITERS} writers: {told[-1]:,.0f}/s told, {untold[-1]:,.0f}/s untold", flush=True)
    share = statistics.median(told) / statistics.median(untold)
    print(f"{WRITERS} writers: {share:.0%} of the rate without telling, by the medians", flush=True)


def committed(url: str, seconds: float, *more: str) -> float:
    """Transactions a second, of all writers together."""
    words = [sys.executable, "-m", "bench.using.writer", url, str(seconds), *more]
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(
                subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(WRITERS)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        return sum(int(writer.stdout.readline()) for writer in writers if writer.stdout) / seconds


if __name__ == "__main__":
    main()
