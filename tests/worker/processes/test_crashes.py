"""Handlers that crash, leak or will not stop: one failed attempt each, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import state_is, until, working
from tests.worker.processes import handlers
from tests.worker.processes.process_state import is_alive
from tidewheel import Job, Tidewheel
from tidewheel.core.model import Lease, Released, Settlement
from tidewheel.worker.processes import handler_process, pool
from tidewheel.worker.processes.handler_process import HandlerProcess

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as tested here are POSIX")


@asynccontextmanager
async def with_neighbours(tmp_path: Path) -> AsyncIterator[None]:
    """Two jobs that run all the while: one in the worker, one in a process of its own."""
    until_ = tmp_path / "until"
    marks = [tmp_path / "first", tmp_path / "second"]
    jobs = [
        await handlers.neighbour.options(max_attempts=1).enqueue(mark=str(marks[0]), until=str(until_)),
        await handlers.isolated_neighbour.options(max_attempts=1).enqueue(
            mark=str(marks[1]), until=str(until_)
        ),
    ]
    await until(lambda: all(mark.exists() for mark in marks))
    try:
        yield
    finally:
        until_.touch()
    assert [await job.result(timeout=PATIENCE) for job in jobs] == ["untouched"] * 2


def errors(job: Job[Any]) -> list[str]:
    return [record.error.code for record in job.attempts]


async def failed(job: Job[Any]) -> None:
    await until(lambda: state_is(job, "failed"))


async def test_a_handler_that_kills_its_process_is_a_failed_attempt_and_harms_nobody(
    app: Tidewheel, tmp_path: Path
) -> None:
    """Segfault, exit, kill: each is one attempt, which says how the process ended."""
    async with working(app, concurrency=5) as worker, with_neighbours(tmp_path):
        jobs = {how: await handlers.dies.enqueue(how=how) for how in ("segfault", "exit", "killed")}
        for job in jobs.values():
            await failed(job)
            assert errors(job) == ["process_died"]
    assert worker.tally.completed == 2
    messages = {how: str(job.error.message) for how, job in jobs.items() if job.error}
    assert "was killed by SIGSEGV" in messages["segfault"]
    assert "ended with exit code 13" in messages["exit"]
    assert "was killed by SIGKILL; not by its worker" in messages["killed"]
    crash = jobs["segfault"].error
    assert crash is not None
    assert "handlers.py" in str(crash.traceback), "the line that crashed is known"
    assert "in dies" in str(crash.traceback)


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
async def test_a_handler_that_leaks_to_its_memory_limit_is_a_failed_attempt_and_harms_nobody(
    app: Tidewheel, tmp_path: Path
) -> None:
    """Large blocks or small objects: the limit is found, said, and the next job gets a fresh process."""
    async with working(app, concurrency=4), with_neighbours(tmp_path):
        jobs = [await handlers.leaks.enqueue(how=how) for how in ("blocks", "objects")]
        for job in jobs:
            await failed(job)
            assert errors(job) == ["memory_limit"]
            assert job.error is not None
            assert "50,331,648 bytes (memory_limit)" in job.error.message
        assert "hoard.append" in str(jobs[0].error and jobs[0].error.traceback)
        assert await (await handlers.frugal.enqueue()).result(timeout=PATIENCE) == 20_000_000


async def test_memory_that_jobs_leave_behind_ends_with_their_process(memory_app: Tidewheel) -> None:
    """A process that has grown by more than half of the limit is replaced."""
    jobs = await handlers.keeps.enqueue_many([{}] * 2)
    await memory_app.run_until_idle(concurrency=1)
    assert len({await job.result(timeout=0) for job in jobs}) == 2


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("app", ["memory"], indirect=True)
async def test_a_handler_that_ignores_sigterm_is_killed_and_harms_nobody(
    app: Tidewheel, tmp_path: Path
) -> None:
    """At its timeout the attempt errs, cancelled it is cancelled; its slot is free for the next job."""
    marks = [tmp_path / name for name in ("sync", "async", "cancelled")]
    async with working(app, concurrency=5), with_neighbours(tmp_path):
        late = [
            await handlers.stubborn.options(timeout=0.2).enqueue(mark=str(marks[0])),
            await handlers.stubborn_async.options(timeout=0.2).enqueue(mark=str(marks[1])),
        ]
        cancelled = await handlers.stubborn.enqueue(mark=str(marks[2]))
        await until(lambda: marks[2].exists() and bool(marks[2].read_text()))
        await app.cancel(cancelled.id)
        for job in late:
            await failed(job)
            assert errors(job) == ["job_timeout"]
        await until(lambda: state_is(cancelled, "cancelled"))
        assert not any(is_alive(int(mark.read_text())) for mark in marks)
        assert await (await handlers.pid.enqueue()).result(timeout=PATIENCE)


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
async def test_a_call_that_holds_the_interpreter_is_killed_and_its_lease_is_kept_until_then(
    app: Tidewheel, mark: Path
) -> None:
    """The worker is free to extend the lease; nobody else gets the job while it runs, longer than a lease."""
    job = await handlers.holds_the_interpreter.options(timeout=0.1).enqueue(mark=str(mark))
    async with working(app) as worker:
        await failed(job)
    assert (errors(job), job.attempt, worker.tally.lost) == (["job_timeout"], 1, 0)
    assert not is_alive(int(mark.read_text()))
    ran = (job.attempts[0].ended_at - job.created_at).total_seconds()
    assert ran > app.settings.lease, "three seconds of patience"


@pytest.mark.usefixtures("impatient")
async def test_a_handler_that_looks_at_nothing_may_clean_up(memory_app: Tidewheel, tmp_path: Path) -> None:
    """SIGTERM raises in it, so its finally blocks run."""
    mark, cleaned = tmp_path / "mark", tmp_path / "cleaned"
    job = await handlers.cleans_up.options(timeout=0.1).enqueue(mark=str(mark), cleaned=str(cleaned))
    await memory_app.run_until_idle()
    await job.refresh()
    assert errors(job) == ["job_timeout"]
    assert cleaned.exists()


async def test_a_handler_that_obeys_ends_at_once(memory_app: Tidewheel, tmp_path: Path, mark: Path) -> None:
    """Told by its context, or by a cancellation. What it returned although it was cancelled counts."""
    asynchronous, told = tmp_path / "asynchronous", tmp_path / "told"
    async with working(memory_app):
        first = await handlers.obeys.enqueue(mark=str(mark))
        second = await handlers.obeys_async.enqueue(mark=str(asynchronous), told=str(told))
        await until(lambda: mark.exists() and asynchronous.exists())
        await memory_app.cancel_all(state="running")
        assert await first.result(timeout=PATIENCE) == "was cancelled"
        await until(lambda: state_is(second, "cancelled"))
        assert told.exists()


@pytest.mark.usefixtures("impatient")
async def test_what_a_handler_started_is_killed_with_it(memory_app: Tidewheel, mark: Path) -> None:
    """A program started by the handler does not go on alone."""
    job = await handlers.starts_a_program.options(timeout=0.3).enqueue(mark=str(mark))
    await memory_app.run_until_idle()
    await job.refresh()
    assert errors(job) == ["job_timeout"]
    await until(lambda: not is_alive(int(mark.read_text())))


async def test_a_run_that_lost_its_lease_is_killed_at_once(memory_app: Tidewheel, mark: Path) -> None:
    """Somebody else may be running the job already."""
    job = await handlers.stubborn.enqueue(mark=str(mark))
    async with working(memory_app, topics=["stubborn"]) as worker:
        await until(lambda: mark.exists() and bool(mark.read_text()))
        record = await memory_app.store.get(job.id)
        assert record is not None
        # Somebody ends the lease behind the worker's back, as an operator with a database shell would.
        settlement = Settlement(Lease(job.id, record.fence), Released(600))
        assert await memory_app.store.settle([settlement]) == [True]
        await until(lambda: not is_alive(int(mark.read_text())))
        await until(lambda: worker.tally.lost == 1)
    await job.refresh()
    assert (job.state, job.attempt) == ("pending", 0)


async def test_a_handler_that_breaks_the_connection_is_a_failed_attempt(memory_app: Tidewheel) -> None:
    """Garbage on it, or its end closed: the process is lost, the worker goes on."""
    jobs = [await handlers.garbles.enqueue(), await handlers.closes_everything.enqueue()]
    async with working(memory_app):
        for job in jobs:
            await failed(job)
    assert [errors(job) for job in jobs] == [["process_died"]] * 2
    assert "sent something unreadable" in str(jobs[0].error and jobs[0].error.message)
    assert "ended with exit code 1" in str(jobs[1].error and jobs[1].error.message)


async def test_an_idle_process_that_dies_is_replaced(memory_app: Tidewheel) -> None:
    """The next job is not charged for it."""
    async with working(memory_app):
        first = await (await handlers.pid.enqueue()).result(timeout=PATIENCE)
        os.kill(first, signal.SIGKILL)
        job = await handlers.pid.options(max_attempts=1).enqueue()
        assert await job.result(timeout=PATIENCE) != first


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
async def test_a_stopped_worker_lets_it_finish_or_release(app: Tidewheel, mark: Path) -> None:
    """Handlers see the shutdown in a process of their own, too; the next worker goes on from there."""
    job = await handlers.shuts_down.enqueue(mark=str(mark))
    async with working(app):
        await until(lambda: mark.exists() and bool(mark.read_text()))
    await job.refresh()
    assert (job.state, job.attempt, job.checkpoint) == ("pending", 0, {"page": 7})
    assert not is_alive(int(mark.read_text())), "the worker's processes end with it"
    await app.run_until_idle()
    assert await job.result(timeout=0) == "went on"


async def test_a_worker_that_stops_now_kills_and_gives_back(memory_app: Tidewheel, mark: Path) -> None:
    """A second signal does not wait for a handler that ignores everything."""
    job = await handlers.stubborn.enqueue(mark=str(mark))
    worker = memory_app.worker(handle_signals=False)
    run = asyncio.create_task(worker.run())
    await until(lambda: mark.exists() and bool(mark.read_text()))
    worker.stop(now=True)
    await asyncio.wait_for(run, PATIENCE)
    await job.refresh()
    assert (job.state, job.attempt, worker.tally.released) == ("pending", 0, 1)
    assert not is_alive(int(mark.read_text()))


async def test_a_process_whose_start_is_cancelled_is_reaped_once(mark: Path) -> None:
    """Its descriptors are somebody else's by the time of a second time."""
    loop = asyncio.get_running_loop()
    born: list[HandlerProcess] = []
    complaints: list[object] = []

    class Known(HandlerProcess):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            born.append(self)

    loop.set_exception_handler(lambda _, context: complaints.append(context))
    start = asyncio.create_task(Known.start(loop))
    await asyncio.sleep(0)  # the process runs, its connection is being made
    assert len(born) == 1
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await asyncio.wait_for(born[0].exited, PATIENCE)
    with mark.open("w") as file:  # has the number of what was closed
        await asyncio.sleep(0.05)
        file.write("still open")
    assert not complaints
    assert not is_alive(born[0].pid)


async def test_a_machine_without_room_for_a_process_costs_no_attempt(
    memory_app: Tidewheel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is given back and offered again; what it met was not its doing."""
    monkeypatch.setattr(pool, "NO_PROCESS_DELAY_SECONDS", 0.05)
    start = handler_process.start_interpreter
    errors = [BlockingIOError(errno.EAGAIN, "no more processes"), OSError(errno.EMFILE, "no more files")]

    def start_if_there_is_room(connection: socket.socket) -> Any:
        if errors:
            raise errors.pop()
        return start(connection)

    monkeypatch.setattr(handler_process, "start_interpreter", start_if_there_is_room)
    async with working(memory_app) as worker:
        job = await handlers.pid.options(max_attempts=1).enqueue()
        await job.result(timeout=PATIENCE)
        await job.refresh()
    assert (job.attempt, job.attempts, worker.tally.released) == (1, (), 2)
    assert caplog.text.count("is given back for 0.05 s: no process could be started") == 2


async def test_a_cancelled_worker_leaves_no_process_behind(memory_app: Tidewheel, mark: Path) -> None:
    """An event loop that ends takes them along, and the job is given back."""
    job = await handlers.stubborn.enqueue(mark=str(mark))
    run = asyncio.create_task(memory_app.run_worker(handle_signals=False))
    await until(lambda: mark.exists() and bool(mark.read_text()))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not is_alive(int(mark.read_text()))
    await job.refresh()
    assert (job.state, job.attempt) == ("pending", 0)
