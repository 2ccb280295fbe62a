"""``python -m bench.beanstalkd``: clients of beanstalkd's protocol, with beanstalkd and with Tidewheel.

Each answers when the change is on the disk: beanstalkd with a binlog and an fsync for every write, Tidewheel
on a SQLite file and on PostgreSQL with their own defaults. In turn, several times, each on a new store.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.servers import Beanstalkd, ServerError
from tests.servers.tidewheel_beanstalkd import Door

from bench.environments import NotMeasured
from bench.figures import summarise
from bench.grounds import FilePlace, Grounds
from bench.machine import describe, load_average, tree_cpu_seconds

PEER = "beanstalkd"
SYSTEMS = (PEER, "sqlite", "postgres")
VERBS = {"put": "put", "take": "reserve + delete"}
WARM_UP_SECONDS = 0.3
MOST_JOBS = 10_000_000


@dataclass(frozen=True, slots=True)
class Told:
    """What the clients of one trial came to."""

    rate: float
    client_share: float
    server_microseconds: float
    p50_ms: float
    p99_ms: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.beanstalkd", description=__doc__)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--clients", default="1,10,100")
    parser.add_argument("--seconds", type=float, default=3.0, help="of puts; then they are taken, as long")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    systems = options.systems.split(",")
    machine = describe()
    print(f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}", flush=True)
    told: dict[tuple[str, str, int], list[Told]] = {}
    failed = False
    with Grounds() as grounds:
        for number in range(options.rounds):
            for clients in map(int, options.clients.split(",")):
                # In turn and every time in another order, so that nobody always comes after the same one.
                turn = number % len(systems)
                for system in systems[turn:] + systems[:turn]:
                    try:
                        trial(grounds, system, clients, options.seconds, told)
                    except (NotMeasured, ServerError) as error:
                        print(f"{system}, {clients} clients: not measured: {error}", file=sys.stderr)
                        failed = True
            print(f"round {number + 1} of {options.rounds}, load {load_average()}", flush=True)
    for verb, words in VERBS.items():
        for clients in map(int, options.clients.split(",")):
            for system in systems:
                if runs := told.get((verb, system, clients)):
                    print(line(words, clients, system, runs, told.get((verb, PEER, clients), [])))
    return int(failed)


def trial(
    grounds: Grounds,
    system: str,
    clients: int,
    seconds: float,
    told: dict[tuple[str, str, int], list[Told]],
) -> None:
    """Put for so long, then take what was put."""
    with serving(grounds, system) as server:
        ask(server, "put", 1, WARM_UP_SECONDS)
        told.setdefault(("put", system, clients), []).append(ask(server, "put", clients, seconds))
        told.setdefault(("take", system, clients), []).append(ask(server, "take", clients, seconds))


@contextlib.contextmanager
def serving(grounds: Grounds, system: str) -> Iterator[Beanstalkd | Door]:
    """On an empty store, all of them on the same file system."""
    if system == PEER:
        with Beanstalkd(durable=True) as server:
            yield server
        return
    with grounds.place(system) as place, Door(url=place.url) as door:
        if isinstance(place, FilePlace):
            ours, theirs = place.directory, door.directory
            assert os.stat(ours).st_dev == os.stat(theirs).st_dev, f"{ours} and {theirs} are on two disks"
        yield door


def ask(server: Beanstalkd | Door, verb: str, clients: int, seconds: float) -> Told:
    """What so many clients come to, in a process of their own."""
    host, port = server.address
    jobs = MOST_JOBS if verb == "put" else waiting(server)
    words = [sys.executable, "-m", "bench.beanstalkd.client", host, str(port), verb]
    before = tree_cpu_seconds(server.pid)
    ran = subprocess.run(
        [*words, str(clients), str(seconds), str(jobs)], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise NotMeasured(ran.stderr.strip().rpartition("\n")[2])
    values = json.loads(ran.stdout)
    done = int(values["done"])
    used = tree_cpu_seconds(server.pid) - before
    return Told(
        done / values["seconds"],
        values["cpu_seconds"] / values["seconds"],
        1e6 * used / done,
        values["p50_ms"],
        values["p99_ms"],
    )


def waiting(server: Beanstalkd | Door) -> int:
    """How many jobs there are to be taken."""
    with socket.create_connection(server.address) as client, client.makefile("rb") as replies:
        client.sendall(b"stats-tube default\r\n")
        statistics_of_tube = replies.read(int(replies.readline().split()[1]))
    found = re.search(rb"current-jobs-ready: (\d+)", statistics_of_tube)
    assert found is not None, statistics_of_tube
    return int(found[1])


def line(words: str, clients: int, system: str, runs: list[Told], peers: list[Told]) -> str:
    """Median and range, beside the peer in the same round."""
    rate = summarise([run.rate for run in runs])
    parts = [ours.rate / theirs.rate for ours, theirs in zip(runs, peers, strict=False)]
    beside = f"{statistics.median(parts):5.2f}× ({min(parts):.2f}–{max(parts):.2f})" if parts else ""
    share, used = (
        statistics.median(values)
        for values in ([run.client_share for run in runs], [run.server_microseconds for run in runs])
    )
    p50, p99 = (
        statistics.median(values) for values in ([run.p50_ms for run in runs], [run.p99_ms for run in runs])
    )
    return (
        f"{words:16} {clients:3} clients  {system:10} {rate.median:7,.0f}/s"
        f" ({rate.lowest:,.0f}–{rate.highest:,.0f}) {beside:20} p50 {p50:.2f} ms p99 {p99:.2f} ms"
        f"  server {used:.0f} µs a job, clients {share:.0%} of a core"
    )


if __name__ == "__main__":
    raise SystemExit(main())
