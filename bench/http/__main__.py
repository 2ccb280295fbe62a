"""``python -m bench.http``: enqueueing over HTTP beside a bare endpoint; reading at a million jobs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.environments import NotMeasured
from bench.figures import percentile
from bench.grounds import Grounds, Place
from bench.growing import grow
from bench.http.programs import Asked, ask, call, make_key, serving

BODY = {"task": "send_digest", "payload": {"user_id": "42", "note": "x" * 60}}
SERVE = ["tidewheel.cli", "serve", "bench.http.served:app"]
RULES = {
    "TIDEWHEEL_ENQUEUE_RULE": "@request.auth.id != ''",
    "TIDEWHEEL_MANAGE_RULE": "@request.auth.id != ''",
}
_PACED = "delay = function() return 32 end"
"""64 connections that ask 2,000 times a second together, as long as they are answered at once."""
READS = (
    "",
    "?state=pending",
    "?state=completed&limit=200",
    "?state=failed",
    "?state=running",
    "?topic=topic-7",
    "?task=job",
    "?topic=topic-7&state=completed",
    "?offset=5000",
    "?where=state:failed%20topic:topic-7",
    "?where=state:failed,cancelled",
    "?where=state:running,cancelled",
    "?where=topic:topic-7,topic-8%20state:failed,completed",
    "?where=age%3E1h",
    "?where=age%3C1s",
    "?where=age%3E3d%20age%3C4d",
    "?created_before=2020-01-01T00:00:00Z",
    "?topic=topic-7&state=failed",
    "?state=delayed",
    "?key=nobody",
    "?correlation_id=nobody",
    "?tenant=acme&key=nobody",
    "?tenant=acme&state=failed",
    "/stats",
    "/topics",
    "/tasks",
    "/workers",
    "/failures",
    "/failures?topic=topic-7",
    "/failures?task=job",
    "/lanes",
    "/questions",
    "/audit",
    "/keys",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.http", description=__doc__)
    parser.add_argument("--grounds", default="sqlite,postgres")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run of wrk")
    parser.add_argument("--rounds", type=int, default=3, help="bare and Tidewheel in turn, so many times")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="for the reads; 0 leaves them out")
    options = parser.parse_args()
    failed = False
    with Grounds() as grounds:
        for ground in options.grounds.split(","):
            try:
                with grounds.place(ground) as place:
                    enqueueing(ground, place, options.seconds, options.rounds)
                if options.jobs:
                    with grounds.place(ground) as place:
                        reading(ground, place, options.jobs, options.seconds)
            except NotMeasured as error:
                print(f"{ground}: not measured: {error}", file=sys.stderr)
                failed = True
    return int(failed)


def enqueueing(ground: str, place: Place, seconds: float, rounds: int) -> None:
    """Requests a second, each answered after its durable commit, beside an endpoint that does nothing."""
    environment = {"TIDEWHEEL_URL": place.url, **RULES}
    script = f"""
wrk.method = "POST"
wrk.path = "/api/jobs/enqueue"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer %s"
wrk.body = [[{json.dumps(BODY)}]]
"""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = stack.enter_context(serving(SERVE, environment, "/healthz")).address
        key = make_key(place.url, "--tenant", "shop")
        answer = json.dumps(call(served, "/api/jobs/enqueue", key, BODY))
        words = ["uvicorn", "bench.http.served:bare", "--factory", "--http", "httptools", "--no-access-log"]
        bare = stack.enter_context(
            serving([*words, "--log-level", "warning"], {"BARE_ANSWER": answer, **environment}, "/")
        ).address
        told: dict[str, list[Asked]] = {"bare": [], "tidewheel": []}
        for _ in range(rounds):
            for name, address in (("bare", bare), ("tidewheel", served)):
                told[name].append(ask(address, script % key, seconds, directory))
    for name, runs in told.items():
        rate = statistics.median(run.requests_per_second for run in runs)
        p99 = statistics.median(run.p99_ms for run in runs)
        p50 = statistics.median(run.p50_ms for run in runs)
        errors = sum(run.errors for run in runs)
        print(f"{ground} enqueue {name}: {rate:,.0f}/s p50 {p50:.1f} ms p99 {p99:.1f} ms errors {errors}")
    parts = [
        ours.requests_per_second / theirs.requests_per_second
        for ours, theirs in zip(told["tidewheel"], told["bare"], strict=True)
    ]
    print(f"{ground} enqueue: {statistics.median(parts):.0%} of the bare endpoint", flush=True)


def reading(ground: str, place: Place, jobs: int, seconds: float) -> None:
    """By id at 64 connections, then every list and statistic, one at a time."""
    began = time.perf_counter()
    ids = asyncio.run(grow(place.url, jobs))
    place.rest()
    print(f"{ground}: {jobs:,} jobs made in {time.perf_counter() - began:.0f} s", flush=True)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = stack.enter_context(serving(SERVE, {"TIDEWHEEL_URL": place.url}, "/healthz")).address
        key = make_key(place.url, "--superuser")
        chosen = ",".join(f'"{job_id}"' for job_id in random.sample(ids, min(len(ids), 10_000)))
        script = f"""
local ids = {{{chosen}}}
wrk.headers["Authorization"] = "Bearer {key}"
request = function() return wrk.format("GET", "/api/jobs/" .. ids[math.random(#ids)]) end
"""
        ask(address, script, min(seconds, 2.0), directory)
        for pace, words in (("", "each as soon as it can"), (_PACED, "each every 32 ms")):
            asked = ask(address, script + pace, seconds, directory)
            rate, p50, p99 = asked.requests_per_second, asked.p50_ms, asked.p99_ms
            told = f"{rate:,.0f}/s p50 {p50:.1f} ms p99 {p99:.1f} ms errors {asked.errors}"
            print(f"{ground} get by id, {words}: {told}", flush=True)
        for path in READS:
            times = []
            for _ in range(20):
                start = time.perf_counter()
                call(address, f"/api/jobs{path}", key)
                times.append(1000 * (time.perf_counter() - start))
            p50, worst = percentile(times, 0.5), max(times)
            print(f"{ground} GET /api/jobs{path}: p50 {p50:.1f} ms, worst of 20 {worst:.1f} ms", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
