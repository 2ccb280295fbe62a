"""``python -m bench.remote``: workers over HTTP. Hundreds who wait; then three kinds of workers, killed."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from bench.environments import NotMeasured
from bench.figures import percentile
from bench.grounds import Grounds, Place
from bench.http.programs import make_key, serving
from bench.machine import load_average
from bench.remote import mixed, waiting

SERVE = ["tidewheel.cli", "serve", "bench.remote.served:app"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.remote", description=__doc__)
    parser.add_argument("--grounds", default="sqlite,postgres")
    parser.add_argument("--waiters", type=int, default=500, help="who wait for a job at a time")
    parser.add_argument("--seconds", type=float, default=20.0, help="they wait for nothing")
    parser.add_argument("--pickups", type=int, default=1000, help="jobs that come one by one then")
    parser.add_argument("--jobs", type=int, default=10_000, help="that three kinds of workers share")
    parser.add_argument("--kills", type=int, default=2, help="of each kind")
    parser.add_argument("--only", choices=["waiting", "mixed"])
    options = parser.parse_args()
    failed = False
    with Grounds() as grounds:
        for ground in options.grounds.split(","):
            try:
                if options.only != "mixed":
                    with grounds.place(ground) as place:
                        wait(ground, place, options)
                if options.only != "waiting":
                    with grounds.place(ground) as place:
                        failed |= not mix(ground, place, options)
            except NotMeasured as error:
                print(f"{ground}: not measured: {error}", file=sys.stderr)
                failed = True
    return int(failed)


def wait(ground: str, place: Place, options: argparse.Namespace) -> None:
    """What those cost who wait, and how soon one of them has a job."""
    with serving(SERVE, {"TIDEWHEEL_URL": place.url}, "/healthz") as served:
        key = make_key(place.url, "--superuser")
        told = asyncio.run(
            waiting.measure(
                place.url,
                served.address,
                served.pid,
                key,
                waiters=options.waiters,
                seconds=options.seconds,
                jobs=options.pickups,
            )
        )
        apart = asyncio.run(
            waiting.idle_apart(
                served.address, served.pid, key, waiters=options.waiters, seconds=options.seconds
            )
        )
    say(
        ground,
        f"{options.waiters} wait: {told.idle_cpu:.1%} of a core, {told.megabytes:.0f} MB",
    )
    say(ground, f"{options.waiters} wait, each for a topic of its own: {apart:.1%} of a core")
    for how, times in (("over HTTP", told.over_http), ("by another process", told.elsewhere)):
        p50, p99 = (percentile(times, part) * 1000 for part in (0.5, 0.99))
        say(ground, f"a job enqueued {how} is with a worker after {p50:.1f} ms (p50), {p99:.1f} ms (p99)")


def mix(ground: str, place: Place, options: argparse.Namespace) -> bool:
    """Whether nothing was lost when three kinds of workers share a topic and are killed."""
    with (
        tempfile.TemporaryDirectory() as directory,
        serving(SERVE, {"TIDEWHEEL_URL": place.url}, "/healthz") as served,
    ):
        key = make_key(place.url, "--superuser")
        log = Path(directory) / "runs.jsonl"
        told = asyncio.run(
            mixed.run(place.url, served.address, key, log, jobs=options.jobs, kills=options.kills)
        )
    say(
        ground,
        f"{told.jobs:,} jobs in {told.seconds:.1f} s, each kind killed {options.kills} times, frozen once",
    )
    for what in ("states", "completed_by", "runs", "attempts", "errors"):
        counts = getattr(told, what)
        say(ground, f"{what}: {', '.join(f'{name} {counts[name]:,}' for name in sorted(counts))}")
    say(ground, f"{told.finished_twice} jobs came to their end in more than one run; one of them counts")
    for wrong in told.wrong[:20]:
        say(ground, f"WRONG: {wrong}")
    return not told.wrong


def say(ground: str, what: str) -> None:
    print(f"{ground}: {what} (load {load_average()})", flush=True)


if __name__ == "__main__":
    sys.exit(main())
