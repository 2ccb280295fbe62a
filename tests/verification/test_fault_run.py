"""A sweep makes real trouble, finds no promise broken, and leaves nothing behind; so does its group."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_bench import schemas
from tests.patience import PATIENCE
from tests.servers import PostgresServer
from tidewheel.errors import InvalidInput, StoreError
from tidewheel.verification import process_group
from tidewheel.verification.fault_run import FaultRunPlan, FaultRunResult, verify
from tidewheel.verification.history import Event, ListRecorder, ProcessEnded, read_history
from tidewheel.verification.process_group import ProcessGroup, Role

# Trouble comes often, so that a few seconds have some of each kind. More is for the soak.
PLAN = FaultRunPlan(seconds=7.0, seed=3, fault_interval=0.4, workers=2, producers=1, pause=0.004)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every process that a group starts."""
    processes: list[subprocess.Popen[bytes]] = []
    spawn = ProcessGroup._spawn

    def noted(group: ProcessGroup, name: str) -> subprocess.Popen[bytes]:
        processes.append(spawn(group, name))
        return processes[-1]

    monkeypatch.setattr(ProcessGroup, "_spawn", noted)
    return processes


async def sweep(sweep_once: Callable[[FaultRunPlan], Awaitable[FaultRunResult]]) -> FaultRunResult:
    """One in which a worker died with jobs in its hands. On a busy machine those that are killed may all have
    been waiting for some; then there is another.
    """
    for seed in (PLAN.seed, 4, 5):
        outcome = await sweep_once(replace(PLAN, seed=seed))
        if outcome.report.recovery.orphans or not outcome.promises_kept:
            break
    return outcome


def check_outcome(outcome: FaultRunResult, started: list[subprocess.Popen[bytes]], places: list[str]) -> None:
    report = outcome.report
    assert report.violations == []
    assert outcome.promises_kept
    assert places == [outcome.place]
    killed = report.faults["worker killed"]
    assert killed > 0
    assert len(report.faults) >= 3, report.faults
    assert report.recovery.orphans > 0
    for name in ("enqueues ok", "jobs completed", "jobs run more than once", "endings accepted"):
        assert report.counts[name] > 0, name
    assert report.counts["runs"] >= report.counts["jobs completed"]
    assert len(started) >= 4 + killed
    # Not only dead but waited for: nobody is left, not even as a zombie.
    assert all(process.returncode is not None for process in started)


async def test_a_sweep_on_sqlite(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    """Killed, frozen and locked out: every promise is kept. Only the histories are left, as asked for."""
    places: list[str] = []
    watched: list[tuple[str, float]] = []
    kept = tmp_path / "kept"

    async def once(plan: FaultRunPlan) -> FaultRunResult:
        for seen in (places, watched, started):
            seen.clear()
        shutil.rmtree(kept, ignore_errors=True)
        return await verify(
            f"sqlite:///{tmp_path}/jobs.db",
            plan,
            begun=places.append,
            watch=lambda what, share: watched.append((what, share)),
            keep=kept,
        )

    outcome = await sweep(once)
    check_outcome(outcome, started, places)
    assert list(tmp_path.iterdir()) == [kept]
    assert Path(outcome.place).parent == tmp_path
    shares = [share for _, share in watched]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(list(kept.glob("*.jsonl"))) == len(started) + 1
    assert sum(isinstance(event, ProcessEnded) for event in read_history(kept.glob("*.jsonl"))) >= len(
        started
    )


async def test_a_sweep_on_postgresql(
    postgres: PostgresServer, started: list[subprocess.Popen[bytes]]
) -> None:
    """The same with a server that throws everybody out; the schema is gone."""
    places: list[str] = []

    async def once(plan: FaultRunPlan) -> FaultRunResult:
        for seen in (places, started):
            seen.clear()
        return await verify(postgres.url(), plan, begun=places.append, watch=lambda _what, _share: None)

    outcome = await sweep(once)
    check_outcome(outcome, started, places)
    assert not await asyncio.to_thread(schemas, postgres)


@pytest.mark.parametrize(
    ("url", "plan", "said"),
    [
        ("memory://", FaultRunPlan(), "out of reach for other processes"),
        ("sqlite:///jobs.db", FaultRunPlan(seconds=1), "seconds is 1; 5 to 86,400 are possible"),
        ("sqlite:///jobs.db", FaultRunPlan(seconds=1e6), "seconds is 1,000,000"),
    ],
)
async def test_what_cannot_be_swept_is_refused(url: str, plan: FaultRunPlan, said: str) -> None:
    """Before anything is started."""
    with pytest.raises(InvalidInput, match=said):
        await verify(url, plan, begun=pytest.fail, watch=lambda _what, _share: None)


async def test_histories_of_two_sweeps_do_not_mix(tmp_path: Path) -> None:
    """The jobs of the first would be missing from the books of the second."""
    (tmp_path / "worker-1.jsonl").write_text("")
    with pytest.raises(InvalidInput, match="is not empty"):
        await verify(
            "sqlite:///jobs.db", PLAN, begun=pytest.fail, watch=lambda _what, _share: None, keep=tmp_path
        )


# -- the group -----------------------------------------------------------------------------------------------


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
async def group(tmp_path: Path, events: list[Event]) -> AsyncIterator[ProcessGroup]:
    """On a file, with nobody in it yet; whoever is left at the end is killed."""

    async def url_for(_: str) -> str:
        return f"sqlite:///{tmp_path}/jobs.db"

    recorder = ListRecorder(events, "sweep", time.monotonic)
    group = ProcessGroup(tmp_path, recorder, url_for=url_for, lease=2.0, seed=1, pause=0.02)
    yield group
    group.kill_all()


async def test_one_that_was_killed_is_replaced_and_no_problem(
    group: ProcessGroup, events: list[Event]
) -> None:
    """By one with another name: histories tell them apart."""
    member = await group.start("producer")
    group.kill(member)
    assert not member.alive
    assert [event.process for event in events if isinstance(event, ProcessEnded)] == [member.name]
    await group.replace_ended()
    [other] = group.processes
    assert other.working
    assert (member.name, other.name) == ("producer-1", "producer-2")
    assert group.problems == []


@pytest.mark.skipif(os.name == "nt", reason="files have no modes there")
async def test_what_a_sweep_writes_is_for_its_owner_alone(group: ProcessGroup, tmp_path: Path) -> None:
    """The file, histories and logs: errors quote payloads and URLs, and ``--keep`` may name any directory."""
    before = os.umask(0o022)
    try:
        member = await group.start("worker")
    finally:
        os.umask(before)
    history = tmp_path / f"{member.name}.jsonl"
    while not history.exists() or not history.stat().st_size:
        await asyncio.sleep(0.01)
    modes = {entry.name: f"{stat.S_IMODE(entry.stat().st_mode):04o}" for entry in tmp_path.iterdir()}
    assert {"worker-1.jsonl", "worker-1.log", "jobs.db"} <= modes.keys()
    assert set(modes.values()) == {"0600"}, modes


@pytest.mark.parametrize("role", ["producer", "worker"])
async def test_one_that_is_told_to_stop_does(
    group: ProcessGroup, tmp_path: Path, events: list[Event], role: Role
) -> None:
    """As a deployment ends it: by itself, and well."""
    member = await group.start(role)
    history = tmp_path / f"{member.name}.jsonl"
    while not history.stat().st_size:  # a worker hears signals once it is at work
        await asyncio.sleep(0.01)
    await group.stop(member)
    assert member.popen.returncode == 0
    assert group.problems == []
    assert [event.process for event in events if isinstance(event, ProcessEnded)] == [member.name]


@pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="needs a signal that nobody listens to")
async def test_one_that_ends_by_itself_is_a_problem(group: ProcessGroup, tmp_path: Path) -> None:
    """A worker must outlive whatever is done to its store; what it said last is passed on."""
    member = await group.start("producer")
    (tmp_path / f"{member.name}.log").write_text("first\nlast words\n")
    os.kill(member.popen.pid, signal.SIGUSR2)
    assert await member.wait(PATIENCE)
    await group.replace_ended()
    assert group.problems == [f"producer-1 ended with code {-signal.SIGUSR2}: first\nlast words"]
    assert [one.name for one in group.processes] == ["producer-2"]


async def test_one_that_cannot_start_says_why(group: ProcessGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last words are in the error, and it is no member."""
    monkeypatch.setattr(process_group, "_PROGRAM", "import sys; sys.exit('no more memory')")
    with pytest.raises(StoreError, match="worker-1 ended: no more memory"):
        await group.start("worker")
    assert group.processes == []


async def test_one_that_takes_too_long_to_start_is_given_up(
    group: ProcessGroup, monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[Any]]
) -> None:
    """Nobody waits for ever, and nobody is left behind."""
    monkeypatch.setattr(process_group, "_PROGRAM", "import time; time.sleep(600)")
    monkeypatch.setattr(process_group, "START_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(StoreError, match=r"worker-1 was not ready within 0\.2 s: it said nothing"):
        await group.start("worker")
    assert [process.returncode for process in started] == [-signal.SIGKILL]
