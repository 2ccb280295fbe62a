"""A worker beside the store, one over HTTP in Python and one in Node share a topic, and are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.environments import NotMeasured
from tidewheel import Tidewheel
from tidewheel.core.model import State

HERE = Path(__file__).parent
KINDS = ("direct", "python-http", "node")
LEASE_SECONDS = 2.0


@dataclass
class Report:
    """What came of it."""

    jobs: int
    states: Counter[str] = field(default_factory=Counter)
    completed_by: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)  # by kind, begun
    attempts: Counter[int] = field(default_factory=Counter)  # how many a job needed
    errors: Counter[str] = field(default_factory=Counter)  # of attempts, by code
    finished_twice: int = 0  # jobs whose handler came to its end in more than one run
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Worker:
    """A worker process that is started again when it was killed."""

    def __init__(self, kind: str, url: str, address: str, key: str, log: Path) -> None:
        self.kind = kind
        remote = {"TIDEWHEEL_URL": address, "TIDEWHEEL_TOKEN": key}
        self._environment = {**os.environ, **({"TIDEWHEEL_URL": url} if kind == "direct" else remote)}
        python = [sys.executable, "-m", "bench.remote.worker"]
        program = ["node", str(HERE / "worker.mjs")] if kind == "node" else python
        self._command = [*program, kind, str(log)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._environment, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    async def freeze(self, seconds: float) -> None:
        """Longer than its leases, and then on as if nothing had happened."""
        self._process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise NotMeasured(f"the {self.kind} worker did not stop") from None


async def run(
    url: str,
    address: str,
    key: str,
    log: Path,
    *,
    jobs: int,
    kills: int,
    freezes: int = 1,
    seconds: float = 0.1,
) -> Report:
    """``jobs`` of so many seconds, each kind killed and frozen so often, spread over the course."""
    if not (HERE.parents[1] / "sdk/js/dist/index.js").exists():
        raise NotMeasured("the SDK is not built (cd sdk/js && npm ci && npm run build)")
    report = Report(jobs)
    log.touch()
    async with Tidewheel(url) as app:
        payloads = [{"n": n, "seconds": seconds} for n in range(jobs)]
        loop = asyncio.get_running_loop()
        workers = [Worker(kind, url, address, key, log) for kind in KINDS]
        began = loop.time()
        try:
            while len(await app.workers()) < len(workers):  # noqa: ASYNC110 - as soon as all are there
                await asyncio.sleep(0.02)
            began = loop.time()
            await app.enqueue_many("count", payloads, max_attempts=100)
            course = [("kill", worker) for _ in range(kills) for worker in workers]
            course += [("freeze", worker) for _ in range(freezes) for worker in workers]
            for place, (what, worker) in enumerate(course):
                # Each when its part of the jobs is done, so that all happen under load.
                await _until(app, jobs * (place + 1) // (len(course) + 2), worker.kind, log)
                if what == "kill":
                    worker.kill()
                    worker.start()
                else:
                    await worker.freeze(LEASE_SECONDS + 1.5)
            await _until(app, jobs)
        finally:
            report.seconds = loop.time() - began
            for worker in workers:
                worker.stop()
        await _judge(app, log, report)
    return report


async def _until(app: Tidewheel, completed: int, kind: str | None = None, log: Path | None = None) -> None:
    """Until so many have completed, and a worker of this kind has just begun something."""
    while (await app.stats()).completed < completed:  # noqa: ASYNC110 - others complete them
        await asyncio.sleep(0.02)
    if kind is not None and log is not None:
        size = log.stat().st_size
        while f'"{kind}"' not in log.read_text()[size:]:
            if (await app.stats()).pending == 0:
                raise NotMeasured(f"all jobs were done before the {kind} worker had a turn")
            await asyncio.sleep(0.02)


async def _judge(app: Tidewheel, log: Path, report: Report) -> None:
    """Every job is completed, by a run that came to its end under the fence that counts."""
    ended: defaultdict[int, set[int]] = defaultdict(set)
    for line in log.read_text().splitlines():
        said = json.loads(line)
        if said["what"] == "start":
            report.runs[said["kind"]] += 1
        else:
            ended[said["n"]].add(said["fence"])
    report.finished_twice = sum(len(fences) > 1 for fences in ended.values())
    cursor: int | None = None
    while True:
        page = await app.jobs(limit=200, cursor=cursor)
        for listed in page.items:
            _judge_one(await app.get(listed.id), ended, report)
        cursor = page.cursor
        if cursor is None:
            return


def _judge_one(job: Any, ended: dict[int, set[int]], report: Report) -> None:
    report.states[str(job.state)] += 1
    report.attempts[job.attempt] += 1
    report.errors.update(attempt.error.code for attempt in job.attempts)
    if job.state is not State.COMPLETED:
        report.wrong.append(f"{job.id} is {job.state}")
        return
    result = json.loads(job.record.result)
    report.completed_by[result["kind"]] += 1
    if result["fence"] != job.record.fence:
        report.wrong.append(f"{job.id} was completed under fence {result['fence']}, not {job.record.fence}")
    elif result["fence"] not in ended[job.payload["n"]]:
        report.wrong.append(f"{job.id} was completed by a run that did not come to its end")
