"""``python -m bench.limits``: whether limits hold and what they leave of the throughput, with real processes.

Concurrency: jobs of 50 ms of one key that may run five at a time, four workers, some of them killed on the
way. Rate: fifty starts a second with bursts of ten. Fair share: a tenant with a hundred jobs behind one with
fifty thousand.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.grounds import Grounds
from bench.limits import course
from bench.machine import load_average


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.limits", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000, help="of the limit on concurrency")
    parser.add_argument("--kills", type=int, default=3, help="workers that are killed meanwhile")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the rate")
    parser.add_argument("--many", type=int, default=50_000, help="jobs of the large tenant")
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    options = parser.parse_args()
    with Grounds() as grounds, tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for ground in [options.only] if options.only else ["sqlite", "postgres"]:
            with grounds.place(ground) as place:
                most, share = course.concurrency(
                    place.url,
                    directory,
                    jobs=options.jobs,
                    limit=5,
                    seconds=0.05,
                    workers=4,
                    kills=options.kills,
                )
                say(ground, f"concurrency 5: {most} at once at most, {share:.0%} of what 5 slots allow")
            with grounds.place(ground) as place:
                granted, started, used = course.rate(
                    place.url, directory, count=50, burst=10, seconds=options.seconds, workers=4
                )
                bursts = f"bursts of {granted:.2f} granted, {started:.2f} started"
                say(ground, f"rate 50/s, burst 10: {bursts}; {used:.1%} used")
            with grounds.place(ground) as place:
                wait, kept = course.fair_share(
                    place.url, directory, many=options.many, few=100, seconds=10, slots=10, workers=2
                )
                waited = f"p95 {wait * 1000:.0f} ms for the small tenant"
                say(ground, f"fair share: {waited}, {kept:.0%} of the throughput")


def say(ground: str, what: str) -> None:
    print(f"{ground}: {what} (load {load_average()})", flush=True)


if __name__ == "__main__":
    main()
