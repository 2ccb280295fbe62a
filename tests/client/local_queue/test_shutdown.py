"""The end of the lane: with the app, with the process, and after a fork."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tests.client.local_queue.test_local_queue import until
from tests.patience import PATIENCE
from tidewheel import Context, JobCancelled, JobNotFound, NotOpen, StoreUnavailable, Tidewheel


def lane_threads() -> int:
    return sum(thread.name == "tidewheel-lane" for thread in threading.enumerate())


async def test_closing_lets_running_handlers_finish_and_drops_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning counts what was dropped; whoever waits for it is told, and nobody waits for ever."""
    app = Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}", shutdown_grace=PATIENCE, lane_concurrency=2)
    stopping = threading.Event()

    @app.task(durable=False)
    async def finishes(ctx: Context) -> str:
        while not ctx.shutting_down:
            await asyncio.sleep(0.002)
        stopping.set()
        return "finished"

    async with app:
        running = await finishes.enqueue_many([{}] * 2)
        await until(lambda: app.lane.stats().running == 2)
        waiting = await finishes.enqueue_many([{}] * 5)
        answers = [asyncio.ensure_future(job.result()) for job in (*running, *waiting)]
        await asyncio.sleep(0)
        caplog.set_level(logging.WARNING)
    assert stopping.is_set()
    kinds = [type(answer) for answer in await asyncio.gather(*answers, return_exceptions=True)]
    assert kinds[2:] == [JobCancelled] * 5
    assert set(kinds[:2]) <= {str, NotOpen}
    warnings = [record.getMessage() for record in caplog.records if record.name == "tidewheel.lane"]
    assert warnings == ["5 jobs of non-durable tasks were dropped unfinished: the app was closed"]
    await until(lambda: lane_threads() == 0)


async def test_a_handler_that_outlasts_the_grace_period_is_given_up(app: Tidewheel) -> None:
    """Cancelled where it waits; its job is dropped and counted with the others."""
    cancelled = threading.Event()

    @app.task(durable=False)
    async def endless() -> None:
        try:
            await asyncio.sleep(10 * PATIENCE)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    job = await endless.enqueue()
    await until(lambda: app.lane.stats().running == 1)
    answer = asyncio.ensure_future(job.result())
    await asyncio.sleep(0)
    await app.close()
    assert cancelled.is_set()
    with pytest.raises((JobCancelled, NotOpen)):
        await answer


async def test_a_function_that_never_returns_does_not_keep_the_app_open(app: Tidewheel) -> None:
    """Nothing can stop its thread; the app is closed all the same."""
    release = threading.Event()

    @app.task(durable=False)
    def deaf() -> None:
        release.wait(10 * PATIENCE)

    await deaf.enqueue()
    await until(lambda: app.lane.stats().running == 1)
    try:
        async with asyncio.timeout(PATIENCE):
            await app.close()
    finally:
        release.set()


async def test_the_lane_ends_with_the_last_who_has_the_app_open(app: Tidewheel) -> None:
    """Nested uses and other event loops keep it."""

    @app.task(durable=False)
    async def work() -> str:
        return "done"

    async with app:
        job = await work.enqueue()
        assert await job.result(timeout=PATIENCE) == "done"
    assert (await job.refresh()).state == "completed"

    async def elsewhere() -> None:
        async with app:
            assert await (await work.enqueue()).result(timeout=PATIENCE) == "done"

    await asyncio.to_thread(asyncio.run, elsewhere())
    assert await (await work.enqueue()).result(timeout=PATIENCE) == "done"
    assert lane_threads() == 1
    await app.close()
    await until(lambda: lane_threads() == 0)


async def test_two_loops_that_close_at_once_leave_no_lane_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sees the other still open, and one of them has to be the last."""
    app = Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}")
    line = threading.Barrier(2)
    before_close = app.lane.before_close

    async def together() -> None:
        await before_close()
        line.wait(PATIENCE)

    monkeypatch.setattr(app.lane, "before_close", together)

    @app.task(durable=False)
    async def work() -> None: ...

    async def use() -> None:
        async with app:
            line.wait(PATIENCE)
            await (await work.enqueue()).result(timeout=PATIENCE)

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, use()) for _ in range(2)))
    await until(lambda: lane_threads() == 0)


async def test_threads_that_handlers_left_behind_do_not_keep_the_app_open(app: Tidewheel) -> None:
    """An event loop that ends waits for its executor; the app does not wait for that."""
    release = threading.Event()

    @app.task(durable=False)
    async def leaves() -> None:
        asyncio.get_running_loop().run_in_executor(None, release.wait, 10 * PATIENCE)

    await (await leaves.enqueue()).result(timeout=PATIENCE)
    try:
        async with asyncio.timeout(PATIENCE):
            await app.close()
    finally:
        release.set()


async def test_an_app_opened_again_has_a_new_lane(app: Tidewheel) -> None:
    """And knows nothing of the jobs of the old one."""

    @app.task(durable=False)
    async def work() -> str:
        return "done"

    old = await work.enqueue()
    await old.result(timeout=PATIENCE)
    await app.close()
    await app.open()
    with pytest.raises(JobNotFound):
        await old.refresh()
    assert await (await work.enqueue()).result(timeout=PATIENCE) == "done"
    assert app.lane.stats().completed == 1


async def test_a_handler_may_open_and_close_the_app_itself(app: Tidewheel) -> None:
    """Its own ``async with app`` is not the last one."""

    @app.task(durable=False)
    async def work() -> str:
        async with app:
            return "done"

    for _ in range(2):
        assert await (await work.enqueue()).result(timeout=PATIENCE) == "done"


async def test_the_lane_needs_no_database(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While it is away handlers run; they can enqueue non-durable jobs, and durable ones when it is back."""
    away = True
    opened = app._connections.open

    async def open_() -> None:
        if away:
            raise StoreUnavailable("the database is away")
        await opened()

    monkeypatch.setattr(app._connections, "open", open_)
    monkeypatch.setattr("tidewheel.worker.local_queue_worker.MAX_OPEN_SECONDS", 0.05)

    @app.task
    async def durable() -> None: ...

    @app.task(durable=False)
    async def inner() -> str:
        return "done"

    @app.task(durable=False)
    async def outer() -> str:
        await inner.enqueue()
        return "done"

    @app.task(durable=False, max_attempts=None)
    async def needs_it() -> None:
        await durable.enqueue()

    assert await (await outer.enqueue()).result(timeout=PATIENCE) == "done"
    with pytest.raises(Exception, match="the app is not open on this event loop"):
        await (await needs_it.options(max_attempts=1).enqueue()).result(timeout=PATIENCE)
    away = False
    await (await needs_it.enqueue()).result(timeout=PATIENCE)
    assert (await app.count(task="durable")).total == 1


async def test_a_database_that_hangs_does_not_keep_the_app_open(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the lane still waits for it, before its first job."""

    async def hang() -> None:
        await asyncio.sleep(10 * PATIENCE)

    monkeypatch.setattr(app._connections, "open", hang)
    monkeypatch.setattr("tidewheel.worker.local_queue_worker.MAX_OPEN_SECONDS", 10 * PATIENCE)

    @app.task(durable=False)
    async def work() -> None: ...

    job = await work.enqueue()
    answer = asyncio.ensure_future(job.result())
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await app.close()
    with pytest.raises((JobCancelled, NotOpen)):
        await answer


async def test_an_event_loop_that_ended_without_closing_does_not_keep_the_lane() -> None:
    """It has nobody left who could close the app."""
    app = Tidewheel("memory://")

    @app.task(durable=False)
    async def work() -> None: ...

    async def forget_to_close() -> None:
        await app.open()
        await (await work.enqueue()).result(timeout=PATIENCE)

    async with app:
        await asyncio.to_thread(asyncio.run, forget_to_close())
        assert lane_threads() == 1
    await until(lambda: lane_threads() == 0)


async def test_a_thread_that_cannot_be_started_is_told_and_tried_again(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job is left waiting for a lane that never began."""

    @app.task(durable=False)
    async def work() -> str:
        return "done"

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await work.enqueue()
    assert await (await work.enqueue()).result(timeout=PATIENCE) == "done"


async def test_a_worker_that_breaks_takes_its_jobs_with_it_and_the_next_starts_anew(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug of ours: nobody waits for ever, and the lane is not dead for the rest of the process."""

    @app.task(durable=False)
    async def work() -> str:
        return "done"

    enqueued = threading.Event()

    async def broken(_: object) -> None:
        enqueued.wait(PATIENCE)
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("tidewheel.worker.Worker.run", broken)
        job = await work.enqueue()
        enqueued.set()
        with pytest.raises(JobCancelled):
            await job.result(timeout=PATIENCE)
        await until(lambda: lane_threads() == 0)
    assert "the lane of non-durable tasks broke" in caplog.text
    assert await (await work.enqueue()).result(timeout=PATIENCE) == "done"


# -- the end of the process, and forks -------------------------------------------------------------------

PROGRAM = """
import asyncio, os, sys, time, threading
from tidewheel import JobNotFound, NotOpen, Tidewheel

app = Tidewheel("sqlite:///jobs.db", shutdown_grace=0.5)
begun = threading.Event()

@app.task(durable=False)
async def endless():
    begun.set()
    await asyncio.sleep(1000)

@app.task(durable=False)
def deaf():
    begun.set()
    time.sleep(1000)

@app.task(durable=False)
def pid():
    return os.getpid()
"""


def run_program(directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    """A program of its own; it must end by itself."""
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM + textwrap.dedent(text)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("task", ["endless", "deaf"])
def test_a_program_that_ends_without_closing_ends(tmp_path: Path, task: str) -> None:
    """Its threads are no reason to stay, and nothing is complained about."""
    done = run_program(
        tmp_path,
        f"""
        async def main():
            await app.open()
            await {task}.enqueue_many([{{}}] * 20)
            begun.wait(20)

        asyncio.run(main())
        print("end of main")
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end of main\n", "")


def test_a_script_with_blocking_calls_ends_too(tmp_path: Path) -> None:
    """The exit closes what is behind ``.sync``, and so the lane: after the grace period at the latest."""
    done = run_program(
        tmp_path,
        """
        deaf.sync.enqueue_many([{}] * 20)
        begun.wait(20)
        print("end of main")
        """,
    )
    assert (done.returncode, done.stdout) == (0, "end of main\n")
    assert "20 jobs of non-durable tasks were dropped unfinished: the app was closed" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_a_lane_of_its_own(tmp_path: Path) -> None:
    """Whatever locks the parent held; the parent's jobs are not there, and the parent notices nothing."""
    done = run_program(
        tmp_path,
        """
        job = pid.sync.enqueue()
        assert job.result(timeout=180) == os.getpid()
        store = app.lane._started.store
        store._table.lock.acquire()  # as another thread of the parent may have done
        app.lane._starting.acquire()
        child = os.fork()
        if child == 0:
            try:
                assert app.lane.stats().completed == 0
                try:
                    app.sync.get(job.id)
                except JobNotFound:
                    pass
                else:
                    raise AssertionError("the parent's job is seen")
                assert pid.sync.enqueue().result(timeout=180) == os.getpid()
                app.sync.close()
                assert app.lane._started is None, "the child's lane was not closed"
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        store._table.lock.release()
        app.lane._starting.release()
        assert os.waitstatus_to_exitcode(status) == 0
        assert pid.sync.enqueue().result(timeout=180) == os.getpid()
        app.sync.close()
        print("parent went on")
        """,
    )
    assert (done.stdout, done.returncode) == ("parent went on\n", 0), done.stderr
