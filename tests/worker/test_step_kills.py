"""Workers killed in and between the steps of their jobs, as real processes on real stores."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.servers.shared import empty_url
from tests.worker.step_victims import POINTS
from tests.worker.worker_processes import Site
from tidewheel import Job, Tidewheel

ROUNDS = 2
"""How often each job is killed, every time at another point."""


async def test_no_finished_step_runs_again_wherever_its_worker_is_killed(tmp_path: Path) -> None:
    """Six jobs of three steps, each killed in its own place and again in the next; on SQLite and PostgreSQL.

    A step whose output the handler had is not run again, and keeps that output. The one that was being run
    when the worker died, and only that, is run again.
    """
    sites = []
    for name, url in (("sqlite", None), ("postgres", empty_url())):
        (tmp_path / name).mkdir()
        sites.append(Site(tmp_path / name, store_url=url, program="tests.worker.step_victims"))
    problems = await asyncio.gather(*(_kill_and_check(site) for site in sites))
    assert problems == [[], []]


async def _kill_and_check(site: Site) -> list[str]:
    app = Tidewheel(site.url)

    @app.task(name="three_steps", max_attempts=20)
    async def three_steps(points: list[str]) -> list[dict[str, Any]]: ...  # type: ignore[empty-body]

    async with app:
        plans = [[POINTS[min(n + turn, 5)] for turn in range(ROUNDS)] for n in range(len(POINTS))]
        jobs = await three_steps.enqueue_many([{"points": points} for points in plans])
        for turn in range(ROUNDS):
            with site.workers(1) as [worker]:
                number = len(POINTS) * (turn + 1)
                await asyncio.to_thread(site.wait_for, "stands", number=number)
                worker.kill()
        with site.workers(1):
            results = [await job.result(timeout=60) for job in jobs]
        problems = await app.check()
        for job, points, result in zip(jobs, plans, results, strict=True):
            await job.refresh()
            problems += _problems_of(job, points, result, site.events())
    return problems


def _problems_of(job: Job[Any], points: list[str], result: Any, events: list[dict[str, Any]]) -> list[str]:
    mine = [event for event in events if event["job"] == str(job.id)]
    problems = []
    if [event["point"] for event in mine if event["event"] == "stands"] != points:
        problems.append(f"job {job.id} was not killed at {points}")
    seen: defaultdict[int, list[Any]] = defaultdict(list)
    runs: defaultdict[int, int] = defaultdict(int)
    for event in mine:
        if event["event"] == "has":
            seen[event["step"]].append(event["output"])
        elif event["event"] == "ran":
            runs[event["step"]] += 1
            if seen[event["step"]]:
                problems.append(
                    f"step {event['step']} of the job killed at {points} ran after it was finished"
                )
    for number in (1, 2, 3):
        if runs[number] != 1 + points.count(f"in {number}"):
            problems.append(f"step {number} of the job killed at {points} ran {runs[number]} times")
        if any(output != seen[number][0] for output in seen[number]):
            problems.append(f"step {number} of the job killed at {points} changed: {seen[number]}")
    outputs = [seen[number][0] for number in (1, 2, 3)]
    if result != outputs or [step.output for step in job.steps] != outputs:
        problems.append(
            f"of the job killed at {points} was kept {result} and {job.steps} instead of {outputs}"
        )
    return problems
