"""The poison scene: one job kills its process at every attempt, and no other job may fail for it.

``python -m tests.faults.poison --store sqlite --runs 20``; also ``--store postgres``, ``--store http``
(workers that reach only a server) and ``--processes 2``. There are 20 short jobs, the poison, and 20 more.
Workers are started again after each death, until every job has ended. Prints one line per run, and the
innocent jobs that failed in all runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.processes import Process, Project
from tests.servers.postgres import PostgresServer
from tidewheel import Job, Tidewheel

APP = """
import asyncio, os, signal
from tidewheel import Tidewheel

app = Tidewheel()

@app.task(max_attempts=3)
async def innocent(seconds: float) -> None:
    await asyncio.sleep(seconds)

@app.task(max_attempts=8)
async def poison(seconds: float) -> None:
    await asyncio.sleep(seconds)
    with open("deaths", "a") as deaths:
        deaths.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""

MOST_SECONDS = 300.0
"""Give up a run after this long."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is played: how many innocent jobs before and after the poison, how long they run, and where."""

    innocents: int = 20
    seconds: float = 0.2
    kills_after: float = 0.0
    max_attempts: int = 3
    poison_attempts: int = 8
    concurrency: int = 5
    lease: float = 2.0
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended. ``lost``: attempts that innocent jobs lost without failing."""

    states: Counter[str]
    lost: int
    poison: str
    poison_attempts: int
    deaths: int
    seconds: float

    @property
    def failed(self) -> int:
        return sum(self.states.values()) - self.states["completed"]


class Workers:
    """``tidewheel worker``, started again whenever it has died."""

    def __init__(self, project: Project, scene: Scene, environment: Mapping[str, str]) -> None:
        self._project = project
        self._scene = scene
        self._environment = dict(environment)
        self._stack = contextlib.ExitStack()
        self._process: Process | None = None

    def see_to(self) -> None:
        if self._process is not None and self._process.popen.poll() is None:
            return
        scene = self._scene
        self._process = self._stack.enter_context(
            self._project.start(
                "worker", "app:app", "--concurrency", str(scene.concurrency), "--lease", str(scene.lease),
                "--processes", str(scene.processes), **self._environment,
            )
        )  # fmt: skip

    def close(self) -> None:
        self._stack.close()


async def play(project: Project, scene: Scene, store_url: str, environment: Mapping[str, str]) -> Result:
    """One run, with the jobs in ``store_url`` and workers that go by ``environment``."""
    project.write("app.py", APP)
    async with Tidewheel(store_url) as app:
        payload = {"seconds": scene.seconds}
        innocents = await app.enqueue_many(
            "innocent", [payload] * scene.innocents, max_attempts=scene.max_attempts
        )
        poison = await app.enqueue(
            "poison", {"seconds": scene.kills_after}, max_attempts=scene.poison_attempts
        )
        innocents += await app.enqueue_many(
            "innocent", [payload] * scene.innocents, max_attempts=scene.max_attempts
        )
        began = time.monotonic()
        workers = Workers(project, scene, environment)
        try:
            while time.monotonic() - began < MOST_SECONDS:
                workers.see_to()
                ended = [(await app.count(state=state)).total for state in ("completed", "failed")]
                if sum(ended) > len(innocents):
                    break
                await asyncio.sleep(0.1)
        finally:
            workers.close()
        deaths = (project.directory / "deaths").stat().st_size
        return await _result(innocents, poison, deaths, time.monotonic() - began)


async def _result(innocents: list[Job[Any]], poison: Job[Any], deaths: int, seconds: float) -> Result:
    states: Counter[str] = Counter()
    lost = 0
    for job in [*innocents, poison]:
        await job.refresh()
    for job in innocents:
        states[job.state] += 1
        lost += job.attempt - 1 if job.state == "completed" else 0
    return Result(states, lost, poison.state, poison.attempt, deaths, seconds)


@contextlib.contextmanager
def place(store: str, directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Where the jobs are, and the environment of workers that run them."""
    if store == "postgres":
        with PostgresServer() as server:
            yield server.url(), {"TIDEWHEEL_URL": server.url()}
        return
    project = Project(directory)
    if store == "sqlite":
        yield project.url, {"TIDEWHEEL_URL": project.url}
        return
    project.write("app.py", APP)
    key = _key_of(project.url)
    with project.start("serve", "app:app", "--port", "0", TIDEWHEEL_URL=project.url) as server:
        found = server.wait_for(r"on (http://127\.0\.0\.1:\d+)")
        yield project.url, {"TIDEWHEEL_URL": found[1], "TIDEWHEEL_TOKEN": key}


def _key_of(url: str) -> str:
    with Tidewheel(url).sync as app:
        return app.access.create_key(superuser=True).key


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.poison", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres", "http"], default="sqlite")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.2, help="how long innocent jobs run")
    parser.add_argument("--kills-after", type=float, default=0.0, help="seconds the poison runs first")
    parser.add_argument("--innocents", type=int, default=20, help="before the poison, and again after it")
    parser.add_argument("--max-attempts", type=int, default=3, help="of innocent jobs")
    options = parser.parse_args()
    scene = Scene(
        innocents=options.innocents,
        seconds=options.seconds,
        kills_after=options.kills_after,
        max_attempts=options.max_attempts,
        processes=options.processes,
    )
    failed = lost = 0
    for number in range(1, options.runs + 1):
        with (
            tempfile.TemporaryDirectory() as directory,
            place(options.store, Path(directory)) as (store_url, environment),
        ):
            result = asyncio.run(play(Project(Path(directory)), scene, store_url, environment))
        failed += result.failed
        lost += result.lost
        print(
            f"run {number}: innocents failed {result.failed}, attempts lost {result.lost}; "
            f"poison {result.poison} after {result.poison_attempts} attempts, "
            f"{result.deaths} deaths, {result.seconds:.0f} s",
            flush=True,
        )
    print(f"{options.runs} runs on {options.store}: innocents failed {failed}, attempts lost {lost}")


if __name__ == "__main__":
    main()
