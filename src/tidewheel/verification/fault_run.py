"""The sweep: work goes on, trouble after trouble happens, then all is quiet and the books are looked at.

The trouble comes from a schedule that the seed decides. What it hits depends on the machine, so two sweeps
with one seed are alike, not the same; for schedules that repeat exactly there is the simulation in the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidewheel.app import Tidewheel
from tidewheel.core.model import JobFilter, JobRecord
from tidewheel.errors import InvalidInput, StoreError
from tidewheel.stores import DatabaseProfile, TemporaryStore, make_temporary_store
from tidewheel.verification.checker import CheckReport, Violation, check_history
from tidewheel.verification.faults import Fault, FaultContext, available_faults
from tidewheel.verification.history import (
    FileRecorder,
    JobsCounted,
    Recorder,
    StoredJob,
    WorkloadDrained,
    read_history,
)
from tidewheel.verification.process_group import ProcessGroup, Role
from tidewheel.verification.workload import make_workload_app

LEASE_SECONDS: Final = 2.0
"""The shortest there is: recovery is seen as often as possible."""
WORKERS: Final = 3
PRODUCERS: Final = 2
MIN_SECONDS: Final = 5.0
MAX_SECONDS: Final = 86_400.0
DRAIN_TIMEOUT_SECONDS: Final = 90.0
"""How long it may take until everything is done, once no trouble is made any more."""
DRAINED_CHECKS: Final = 6
"""In a row, a fifth of a second apart: the last call of a killed producer may still be on its way."""
PAGE_SIZE: Final = 1000
RUN_RULE: Final = "sound"
"""The name of what a sweep sees by itself, beside the rules of the checker."""
RUN_RULE_PROMISE: Final = (
    "Everything comes to its end, no process fails by itself, and the store's own check finds nothing wrong."
)


@dataclass(frozen=True, slots=True)
class FaultRunPlan:
    """What a sweep does."""

    seconds: float = 60.0
    seed: int = 1
    lease: float = LEASE_SECONDS
    workers: int = WORKERS
    producers: int = PRODUCERS
    pause: float = 0.02
    """Seconds a producer rests between two calls, on average."""
    fault_interval: float = 1.0
    """Seconds from one trouble to the next, on average."""
    max_parallel_faults: int = 2
    """Troubles that may go on at the same time."""


@dataclass(frozen=True, slots=True)
class FaultRunResult:
    """What came of it."""

    plan: FaultRunPlan
    report: CheckReport
    ground: DatabaseProfile
    place: str
    seconds: float

    @property
    def promises_kept(self) -> bool:
        return not self.report.violations


ProgressCallback = Callable[[str, float], None]
"""Told what goes on, and what share of the sweep is over."""


async def verify(
    url: str,
    plan: FaultRunPlan,
    *,
    begun: Callable[[str], None],
    watch: ProgressCallback,
    keep: Path | None = None,
) -> FaultRunResult:
    """Sweep beside the store that ``url`` names; ``begun`` is told where. Nothing is left behind there.

    With ``keep`` the histories and the logs of all processes stay in that directory.
    """
    if not MIN_SECONDS <= plan.seconds <= MAX_SECONDS:
        raise InvalidInput(
            f"seconds is {plan.seconds:,.15g}; {MIN_SECONDS:g} to {MAX_SECONDS:,.0f} are possible"
        )
    if keep is not None:
        check_empty(keep)
    async with make_temporary_store(url) as scratch:
        if not scratch.profile.shared:
            raise InvalidInput(
                f"{scratch.location} is out of reach for other processes, and killing them is what this is "
                "about; give the URL of a store on disk or on a server"
            )
        begun(scratch.location)
        with _directory(keep) as directory:
            return await run_with_faults(scratch, plan, directory, watch=watch)


async def run_with_faults(
    temporary: TemporaryStore,
    plan: FaultRunPlan,
    directory: Path,
    *,
    watch: ProgressCallback,
    url_for: Callable[[str], Awaitable[str]] | None = None,
    troubles: Sequence[Fault] | None = None,
    patience: float = DRAIN_TIMEOUT_SECONDS,
) -> FaultRunResult:
    """One sweep on a store that nobody else uses. Tests bring their own troubles and ways to the store."""

    async def straight(_: str) -> str:
        return temporary.url

    recorder = FileRecorder(directory / "sweep.jsonl", "sweep")
    crew = ProcessGroup(
        directory,
        recorder,
        url_for=url_for or straight,
        lease=plan.lease,
        seed=plan.seed,
        pause=plan.pause,
    )
    app = make_workload_app(temporary.url, lease=plan.lease)
    began = time.monotonic()
    try:
        async with app:
            scene = FaultContext(crew, random.Random(plan.seed), plan.lease, recorder, temporary)  # noqa: S311
            team: dict[Role, int] = {"guard": 1, "worker": plan.workers, "producer": plan.producers}
            for role, number in team.items():
                for _ in range(number):
                    await crew.start(role)
            await _inject_faults(scene, plan, troubles or available_faults(), watch)
            watch("waiting until all is quiet", 1.0)
            problems = await _drain(app, crew, plan, patience)
            for member in crew.processes:
                if member.alive:
                    await crew.stop(member)
            problems += crew.problems  # now: who does not stop is one, too
            watch("reading the books", 1.0)
            await record_final_state(app, recorder)
            problems += [f"the store itself says: {problem}" for problem in await app.check()]
    finally:
        crew.kill_all()
        recorder.close()
    report = await asyncio.to_thread(check_history, read_history(crew.histories))
    report.violations[:0] = [Violation(RUN_RULE, problem) for problem in problems]
    return FaultRunResult(plan, report, temporary.profile, temporary.location, time.monotonic() - began)


async def _inject_faults(
    scene: FaultContext, plan: FaultRunPlan, troubles: Sequence[Fault], watch: ProgressCallback
) -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    under_way: set[asyncio.Task[None]] = set()
    weights = [trouble.weight for trouble in troubles]
    # Each kind once to begin with, the likeliest first: a short sweep has them, too, and a slow machine's.
    first = deque(sorted(troubles, key=lambda trouble: -trouble.weight))
    enough = asyncio.Event()
    replacing = asyncio.create_task(_replace_ended(scene.processes, enough))
    try:
        while (passed := loop.time() - begin) < plan.seconds:
            watch("making trouble", passed / plan.seconds)
            await asyncio.sleep(scene.choose.uniform(0.2, 1.8) * plan.fault_interval)
            if len(under_way) < plan.max_parallel_faults:
                trouble = first.popleft() if first else scene.choose.choices(troubles, weights)[0]
                under_way.add(asyncio.create_task(trouble.inject(scene)))
            done = {task for task in under_way if task.done()}
            under_way -= done
            for task in done:
                task.result()  # a mistake of ours ends the sweep
            if replacing.done():
                replacing.result()
        enough.set()
        await asyncio.gather(*under_way, replacing)
    finally:
        for task in (*under_way, replacing):
            task.cancel()
        await asyncio.gather(*under_way, replacing, return_exceptions=True)


async def _replace_ended(group: ProcessGroup, enough: asyncio.Event) -> None:
    """Beside the trouble, which does not wait for a process to start."""
    while not enough.is_set():
        await group.replace_ended()
        await asyncio.sleep(0.05)


async def _drain(app: Tidewheel, group: ProcessGroup, plan: FaultRunPlan, patience: float) -> list[str]:
    """No more jobs, no more trouble: everything that was accepted comes to its end."""
    for member in group.processes:
        group.thaw(member)
    for member in group.processes:
        if member.role == "producer" and member.alive:
            await group.stop(member)
    group.retire_role("producer")
    deadline = time.monotonic() + patience + 10 * plan.lease
    left, quiet = -1, 0
    while time.monotonic() < deadline:
        await group.replace_ended()
        with contextlib.suppress(StoreError):
            stats = await app.stats()
            left = stats.pending + stats.running
            quiet = quiet + 1 if not left else 0
            if quiet == DRAINED_CHECKS:
                return []
        await asyncio.sleep(0.2)
    return [f"{left} jobs were not done {patience + 10 * plan.lease:g} s after the last trouble"]


async def record_final_state(app: Tidewheel, recorder: Recorder) -> None:
    """Everything that is stored, once nothing is going on any more."""
    store = app.store
    # One clock for all events: how far the store's is ahead of ours.
    asked = recorder.now()
    now = await store.now()
    ahead = now / 1e6 - (asked + recorder.now()) / 2
    recorder.write(WorkloadDrained(at=recorder.now()))
    cursor: int | None = None
    while True:
        page = await store.list_jobs(JobFilter(), limit=PAGE_SIZE, cursor=cursor)
        for record in page.items:
            recorder.write(_stored(record, recorder.now(), ahead))
        cursor = page.cursor
        if cursor is None:
            break
    for topic in (await app.stats()).topics:
        states = {
            "pending": topic.pending,
            "running": topic.running,
            "completed": topic.completed,
            "failed": topic.failed,
            "cancelled": topic.cancelled,
        }
        recorder.write(JobsCounted(at=recorder.now(), topic=topic.topic, states=states))


def _stored(record: JobRecord, at: float, ahead: float) -> StoredJob:
    code = None if record.error_summary is None else record.error_summary.partition(":")[0]
    return StoredJob(
        at=at,
        id=record.id,
        topic=record.topic,
        tenant=record.tenant,
        task=record.task,
        key=record.key,
        state=record.state,
        attempt=record.attempt,
        max_attempts=record.max_attempts,
        fence=record.fence,
        ended=None if record.finished_at is None else record.finished_at / 1e6 - ahead,
        error=code,
    )


def check_empty(directory: Path) -> None:
    """Histories of another sweep would be read as part of this one."""
    if directory.exists() and any(directory.iterdir()):
        raise InvalidInput(f"{directory} is not empty; histories need a directory of their own")


@contextlib.contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="tidewheel-verify-") as directory:
        yield Path(directory)
