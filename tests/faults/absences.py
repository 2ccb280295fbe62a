"""A worker that is away for three leases and comes back: what became of its jobs, with figures.

``python -m tests.faults.absences`` prints a line for each way to be away and each store: an event loop that a
handler blocks, a process that stands still, and (PostgreSQL) connections that are half-open. A second worker
is there all the time, and takes over whatever it is given.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, cast

from msgspec.structs import replace

from tests.faults.network import Network
from tests.patience import PATIENCE
from tests.servers import DURABLE, PostgresServer
from tidewheel.app import Tidewheel
from tidewheel.core.payload import encode
from tidewheel.stores import Store, TemporaryStore, make_temporary_store
from tidewheel.verification.checker import CheckReport, check_history
from tidewheel.verification.fault_run import record_final_state
from tidewheel.verification.history import FileRecorder, HandlerStarted, read_history
from tidewheel.verification.process_group import ManagedProcess, ProcessGroup
from tidewheel.verification.recording_store import RecordingStore
from tidewheel.verification.workload import HandlerBehavior, make_job, make_workload_app

LEASE = 2.0
AWAY = 3 * LEASE
JOBS = 10

Absence = Literal["blocked", "frozen", "half-open"]


async def be_away(
    absence: Absence, temporary: TemporaryStore, directory: Path, network: Network
) -> CheckReport:
    """Jobs that run for a lease and a half are started by one worker, which is then away for three."""
    recorder = FileRecorder(directory / "parent.jsonl", "parent")
    crew = ProcessGroup(directory, recorder, url_for=network.url_for, lease=LEASE, seed=1, pause=0.1)
    app = make_workload_app(temporary.url, lease=LEASE)
    try:
        async with app:
            victim = await crew.start("worker")
            store = cast("Store", RecordingStore(app.store, recorder))
            behaviors = [HandlerBehavior.SLOW] * JOBS
            if absence == "blocked":
                behaviors[0] = HandlerBehavior.BLOCKING  # once the others run, which get no turn any more
            await store.enqueue(
                [
                    replace(
                        make_job(random.Random(number)),
                        payload=encode({"behavior": behavior}, limit=1000),
                        delay=0.0,
                        priority=0 if behavior is HandlerBehavior.BLOCKING else 100,
                    )
                    for number, behavior in enumerate(behaviors)
                ]
            )
            await _until_running(crew, JOBS)
            async with _away(absence, crew, victim, network):
                await crew.start("guard")
                await asyncio.sleep(AWAY)
            await _until_done(app)
            for member in list(crew.processes):
                await crew.stop(member)
            await record_final_state(app, recorder)
    finally:
        crew.kill_all()
        recorder.close()
    return check_history(read_history(crew.histories))


@asynccontextmanager
async def _away(
    absence: Absence, group: ProcessGroup, victim: ManagedProcess, network: Network
) -> AsyncIterator[None]:
    if absence == "frozen":
        group.freeze(victim)
        yield
        group.thaw(victim)
    elif absence == "half-open":
        proxy = network.to(victim.name)
        assert proxy is not None
        proxy.blackhole()
        yield
        proxy.cut()
        proxy.restore()
    else:
        yield  # the handler sees to it


async def _until_running(group: ProcessGroup, number: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        started = [event for event in read_history(group.histories) if isinstance(event, HandlerStarted)]
        if len(started) >= number:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{number} jobs should be running by now")


async def _until_done(app: Tidewheel) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        stats = await app.stats()
        if not stats.pending + stats.running:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the jobs should be done by now")


async def on_sqlite(absence: Absence, directory: Path) -> CheckReport:
    (directory / "histories").mkdir()
    async with (
        make_temporary_store(f"sqlite:///{directory / 'jobs.db'}") as scratch,
        Network(scratch.url) as network,
    ):
        return await be_away(absence, scratch, directory / "histories", network)


async def on_postgres(absence: Absence, directory: Path, server: PostgresServer) -> CheckReport:
    async with make_temporary_store(server.url()) as scratch, Network(scratch.url) as network:
        return await be_away(absence, scratch, directory, network)


def main() -> None:
    columns = ("jobs", "grants", "runs", "jobs run more than once")
    more = ("endings accepted", "endings refused", "endings unknown", "extensions", "extensions refused")
    print("store      absence    " + " | ".join([*columns, *more, "violations"]))
    with PostgresServer(settings=DURABLE) as server:
        for store, absences in (
            ("sqlite", ("blocked", "frozen")),
            ("postgres", ("blocked", "frozen", "half-open")),
        ):
            for absence in cast("tuple[Absence, ...]", absences):
                with tempfile.TemporaryDirectory() as place:
                    run = (
                        on_sqlite(absence, Path(place))
                        if store == "sqlite"
                        else on_postgres(absence, Path(place), server)
                    )
                    report = asyncio.run(run)
                figures = [str(report.counts.get(name, 0)) for name in (*columns, *more)]
                print(f"{store:<11}{absence:<11}" + " | ".join([*figures, str(len(report.violations))]))


if __name__ == "__main__":
    main()
