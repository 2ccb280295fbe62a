"""How a worker takes jobs, keeps them, gives them back and stops."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.worker.conftest import URLS
from tests.worker.helpers import until, working
from tidewheel import ConfigurationError, Context, Fail, JobCancelled, Tidewheel
from tidewheel.core.ids import new_id
from tidewheel.core.model import ClaimRequest, Lane, Lease, NewJob, Released, Settlement
from tidewheel.stores import create_store


async def test_a_stopped_worker_lets_running_jobs_finish_and_gives_the_rest_back(app: Tidewheel) -> None:
    """What has not started goes back uncounted, at once; what runs is completed."""
    started, finish = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> str:
        started.set()
        await finish.wait()
        return "finished"

    first, *others = await slow.enqueue_many([{}] * 6)
    worker = app.worker(handle_signals=False, concurrency=1, prefetch=5)
    run = asyncio.create_task(worker.run())
    await started.wait()
    await until(lambda: len(worker._active_jobs) == 6)
    worker.stop()

    async def given_back() -> bool:
        for job in others:
            await job.refresh()
        return all((job.state, job.attempt) == ("pending", 0) for job in others)

    await until(given_back)
    await first.refresh()
    assert first.state == "running"
    finish.set()
    await run
    assert await first.result(timeout=0) == "finished"
    assert worker.tally.released == 5


async def test_handlers_see_the_shutdown_and_may_release(app: Tidewheel) -> None:
    """A long job saves its work and leaves; the next worker goes on from there."""
    started = asyncio.Event()

    @app.task
    async def long(ctx: Context) -> str:
        if ctx.checkpoint:
            return "went on"
        started.set()
        while not ctx.shutting_down:
            await asyncio.sleep(0.005)
        await ctx.checkpoint({"half": True})
        return ctx.release()

    job = await long.enqueue()
    async with working(app):
        await started.wait()
    await job.refresh()
    assert (job.state, job.attempt) == ("pending", 0)
    await app.run_until_idle()
    assert await job.result(timeout=0) == "went on"


async def test_a_second_stop_releases_running_jobs_at_once(app: Tidewheel) -> None:
    """Handlers are cancelled and their jobs given back, uncounted."""
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.sleep(3600)

    job = await endless.enqueue()
    worker = app.worker(handle_signals=False)
    run = asyncio.create_task(worker.run())
    await started.wait()
    worker.stop()
    worker.stop()
    await asyncio.wait_for(run, PATIENCE)
    await job.refresh()
    assert (job.state, job.attempt) == ("pending", 0)


async def test_a_handler_that_will_not_stop_is_given_back_all_the_same(app: Tidewheel) -> None:
    """Neither a swallowed cancellation nor a blocked thread keeps the worker from ending."""
    started = threading.Barrier(2, timeout=PATIENCE)
    finish = threading.Event()
    swallowing = asyncio.Event()

    @app.task
    def blocked() -> None:
        started.wait()
        finish.wait(60)

    @app.task
    async def stubborn() -> None:
        while not finish.is_set():
            try:
                swallowing.set()
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    jobs = [await blocked.enqueue(), await stubborn.enqueue()]
    worker = app.worker(handle_signals=False)
    run = asyncio.create_task(worker.run())
    await asyncio.to_thread(started.wait)
    await swallowing.wait()
    worker.stop(now=True)
    await asyncio.wait_for(run, PATIENCE)
    for job in jobs:
        await job.refresh()
        assert (job.state, job.attempt) == ("pending", 0)
    finish.set()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_a_running_job_that_is_cancelled_hears_of_it_within_a_second(app: Tidewheel) -> None:
    """The request travels through the store: any process may make it."""
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.sleep(3600)

    job = await endless.enqueue()
    async with working(app):
        await started.wait()
        assert await app.cancel(job.id) is False
        with pytest.raises(JobCancelled):
            await job.result(timeout=PATIENCE)


async def test_a_handler_that_finishes_before_it_hears_of_the_cancellation_wins(app: Tidewheel) -> None:
    """Cancelling a running job is a request; what is done is done."""
    answers: list[bool] = []

    @app.task
    async def work(ctx: Context) -> str:
        # Another thread asks while this one holds the event loop, so that nothing reaches the handler.
        asking = threading.Thread(target=lambda: answers.append(app.sync.cancel(ctx.job.id)))
        asking.start()
        asking.join()
        return "done"

    job = await work.enqueue()
    async with working(app):
        assert await job.result(timeout=PATIENCE) == "done"
    assert answers == [False]
    await asyncio.to_thread(app.sync.close)


async def test_a_handler_knows_the_name_of_its_worker(app: Tidewheel) -> None:
    """The one that the job and the list of workers have; so do callbacks."""
    told: list[str] = []

    @app.task(on_success=lambda ctx, _: told.append(ctx.worker))
    async def who(ctx: Context) -> str:
        return ctx.worker

    job = await who.enqueue()
    await app.run_until_idle(name="bob")
    await job.refresh()
    assert (await job.result(timeout=0), told, job.worker) == ("bob", ["bob"], "bob")


async def test_a_worker_leaves_tasks_it_does_not_know_alone(app: Tidewheel) -> None:
    """They wait for a worker that knows them, and do not stand in the way of the others."""

    @app.task(topic="mail")
    async def known() -> str:
        return "ran"

    strangers = [
        (await app.store.enqueue([_new("mail", "unknown_yet")]))[0].job_id,
        (await app.store.enqueue([_new("elsewhere", "")]))[0].job_id,
    ]
    job = await known.enqueue()
    await app.run_until_idle()
    assert await job.result(timeout=0) == "ran"
    for stranger in strangers:
        assert (await app.get(stranger)).state == "pending"


async def test_a_bare_name_runs_the_task_of_that_name(app: Tidewheel) -> None:
    """A producer that knows no tasks enqueues by name alone."""

    @app.task(name="digest", topic="mail")
    async def digest(user: str) -> str:
        return user

    [answer] = await app.store.enqueue([_new("digest", "", b'{"user":"42"}')])
    await app.run_until_idle()
    assert await app.result(answer.job_id, timeout=0) == "42"


async def test_topic_concurrency_is_never_passed(app: Tidewheel) -> None:
    """At most so many jobs of a topic run at a time, while other topics use the other slots."""
    running, most = 0, 0
    free_ran = asyncio.Event()

    @app.task
    async def limited() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await free_ran.wait()
        running -= 1

    @app.task
    async def free() -> None:
        free_ran.set()

    await limited.enqueue_many([{}] * 20)
    await free.enqueue()
    worker = app.worker(handle_signals=False, topic_concurrency={"limited": 2}, concurrency=10)
    assert await worker.run_until_idle() == 21
    assert most == 2


async def test_concurrency_is_used_and_never_passed(app: Tidewheel) -> None:
    """As many handlers run at a time as the worker has slots, no more."""
    running, most = 0, 0
    full = asyncio.Event()

    @app.task
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 4:
            full.set()
        await full.wait()
        running -= 1

    await work.enqueue_many([{}] * 50)
    await app.run_until_idle(concurrency=4)
    assert most == 4


async def test_a_delayed_job_starts_when_it_is_due(app: Tidewheel) -> None:
    """The worker sleeps until then instead of polling, and not longer."""
    ran_at: list[float] = []

    @app.task
    async def work() -> None:
        ran_at.append(time.time())

    job = await work.options(delay=0.3).enqueue()
    async with working(app):
        await job.result(timeout=PATIENCE)
    late = ran_at[0] - job.run_at.timestamp()
    assert 0 <= late < 1


async def test_a_waiting_worker_is_woken_by_an_enqueue(tmp_path: Path) -> None:
    """Not by its poll: that is an hour away here."""
    for url in (where(tmp_path) for where in URLS.values()):
        app = Tidewheel(url, poll_interval=3600)

        @app.task
        async def work() -> str:
            return "woken"

        async with app, working(app) as worker:
            await until(lambda worker=worker: worker._run_state is not None)  # type: ignore[misc]
            await (await work.enqueue()).result(timeout=PATIENCE)
            assert await (await work.enqueue()).result(timeout=PATIENCE) == "woken"


async def test_the_keeper_extends_leases_while_a_handler_blocks_the_event_loop(tmp_path: Path) -> None:
    """A blocked loop for more than a lease loses nothing: nobody else gets the job."""
    app = Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}", lease=2)
    blocking = threading.Event()

    @app.task
    async def rude() -> str:
        blocking.set()
        time.sleep(3.0)
        return "mine"

    stolen: list[bool] = []

    def thief() -> None:
        """Another process would see the same file; another store in another thread sees it just so."""
        store = create_store(app.settings.url)

        async def steal() -> None:
            await store.open()
            deadline = time.monotonic() + 2.7
            while time.monotonic() < deadline:
                claim = await store.claim(ClaimRequest("thief", (Lane("rude", "rude"),), 10, 60))
                stolen.extend(True for _ in claim.jobs)
                await asyncio.sleep(0.05)
            await store.close()

        blocking.wait(PATIENCE)
        asyncio.run(steal())

    async with app:
        job = await rude.enqueue()
        other = asyncio.create_task(asyncio.to_thread(thief))
        await app.run_until_idle()
        await other
        assert await job.result(timeout=0) == "mine"
        await job.refresh()
    assert stolen == []
    assert job.attempt == 1


async def test_a_handler_that_ignores_its_timeout_loses_its_job_to_another_run(app: Tidewheel) -> None:
    """Its lease is not kept for ever: the attempt counts as lost, and the job goes on without it."""
    finish = asyncio.Event()
    runs: list[int] = []

    @app.task(timeout=0.2, max_attempts=2)
    async def stubborn(ctx: Context) -> str:
        runs.append(ctx.attempt)
        while ctx.attempt == 1 and not finish.is_set():
            try:
                await finish.wait()
            except asyncio.CancelledError:
                continue
        return "second run"

    job = await stubborn.enqueue()
    async with working(app, lease=2):
        assert await job.result(timeout=PATIENCE) == "second run"
        finish.set()
    assert runs == [1, 2]


async def test_a_job_that_waits_too_long_for_a_slot_is_given_back(app: Tidewheel) -> None:
    """Another worker may have a free slot; it costs the job nothing."""
    started, finish = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> None:
        started.set()
        await finish.wait()

    _, second = await slow.enqueue_many([{}] * 2)
    async with working(app, concurrency=1, prefetch=1, lease=2) as worker:
        await started.wait()
        await until(lambda: worker.tally.released > 0)
        finish.set()
        await second.result(timeout=PATIENCE)
    await second.refresh()
    assert (second.state, second.attempt) == ("completed", 1)


async def test_a_loop_blocked_past_a_timeout_does_not_keep_its_jobs_for_ever(tmp_path: Path) -> None:
    """Neither the job that blocks nor those that wait behind it: other workers get them."""
    app = Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}", lease=2)
    blocking = threading.Event()
    finish = threading.Event()
    rescued: list[str] = []

    @app.task(timeout=0.5)
    async def rude() -> None:
        blocking.set()
        finish.wait(PATIENCE)

    @app.task
    async def innocent() -> None: ...

    def other_worker() -> None:
        store = create_store(app.settings.url)

        async def claim_both() -> None:
            await store.open()
            deadline = time.monotonic() + PATIENCE
            while len(rescued) < 2 and time.monotonic() < deadline:
                lanes = (Lane("rude", "rude"), Lane("innocent", "innocent"))
                claim = await store.claim(ClaimRequest("other", lanes, 10, 60))
                rescued.extend(job.task for job in claim.jobs)
                await asyncio.sleep(0.05)
            await store.close()

        blocking.wait(PATIENCE)
        asyncio.run(claim_both())
        finish.set()

    async with app:
        await rude.enqueue()
        await innocent.enqueue()
        other = asyncio.create_task(asyncio.to_thread(other_worker))
        async with working(app, concurrency=1, prefetch=5) as worker:
            await other
            await until(lambda: worker.tally.lost == 2)
    assert sorted(rescued) == ["innocent", "rude"]


async def test_a_worker_that_is_cancelled_gives_its_jobs_back(app: Tidewheel) -> None:
    """``asyncio.wait_for(app.run_worker(), 60)`` in a script must not leave jobs leased."""
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.sleep(3600)

    jobs = await endless.enqueue_many([{}] * 3)
    run = asyncio.create_task(app.run_worker(handle_signals=False, concurrency=1, prefetch=5))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    for job in jobs:
        await job.refresh()
        assert (job.state, job.attempt) == ("pending", 0)
    assert not [thread for thread in threading.enumerate() if thread.name == "tidewheel-keeper"]


async def test_a_worker_cancelled_twice_leaves_no_keeper_behind(app: Tidewheel) -> None:
    """A keeper without its worker would extend leases that nobody will ever settle."""
    started, finish = asyncio.Event(), asyncio.Event()

    @app.task
    async def stubborn() -> None:
        started.set()
        while not finish.is_set():
            try:
                await finish.wait()
            except asyncio.CancelledError:
                continue

    await stubborn.enqueue()
    worker = app.worker(handle_signals=False)
    run = asyncio.create_task(worker.run())
    await started.wait()
    run.cancel()
    await until(lambda: worker._stop_now)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await until(lambda: "tidewheel-keeper" not in [thread.name for thread in threading.enumerate()])
    finish.set()


async def test_a_name_that_becomes_ambiguous_stops_nothing_but_its_own_jobs(app: Tidewheel) -> None:
    """A task registered late makes a bare name mean two things; jobs by that name wait for who knows."""
    ran = asyncio.Event()

    @app.task(topic="mail")
    async def one() -> str:
        ran.set()
        return "ran"

    async with working(app) as worker:
        await (await one.enqueue()).result(timeout=PATIENCE)

        @app.task(topic="mail")
        async def two() -> None: ...

        [answer] = await app.store.enqueue([_new("mail", "")])

        async def given_back() -> bool:
            return (await app.get(answer.job_id)).shown_state == "delayed"

        await until(given_back)
        assert await (await one.enqueue()).result(timeout=PATIENCE) == "ran"
    assert worker.tally.lost == 0
    bare = await app.get(answer.job_id)
    assert (bare.state, bare.attempt) == ("pending", 0)


async def test_a_cancellation_for_one_job_never_reaches_the_next(app: Tidewheel) -> None:
    """Jobs share a slot one after another; what one does to its task is over with it."""

    @app.task(max_attempts=1)
    async def cancels_itself() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    @app.task(max_attempts=1)
    async def innocent() -> str:
        await asyncio.sleep(0)
        return "done"

    jobs = []
    for _ in range(5):
        jobs += [await cancels_itself.enqueue(), await innocent.enqueue()]
    await app.run_until_idle(concurrency=1)
    for job in jobs:
        await job.refresh()
    assert [job.state for job in jobs] == ["completed"] * 10


async def test_an_exception_that_cannot_be_described_fails_its_attempt(app: Tidewheel) -> None:
    """Whatever a handler raises, its job is settled."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @app.task(max_attempts=1)
    async def mute() -> None:
        raise Mute

    @app.task
    async def odd_reason() -> None:
        raise Fail(ValueError("not text"))  # type: ignore[arg-type]

    jobs = [await mute.enqueue(), await odd_reason.enqueue()]
    await app.run_until_idle()
    for job in jobs:
        await job.refresh()
    assert [(job.state, job.attempt) for job in jobs] == [("failed", 1)] * 2


async def test_a_lost_lease_stops_the_handler_and_writes_nothing(app: Tidewheel) -> None:
    """A worker told that its lease is gone cancels the handler; whoever holds the job now decides."""
    started, stopped = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    job = await slow.enqueue()
    async with working(app) as worker:
        await started.wait()
        record = await app.store.get(job.id)
        assert record is not None
        assert await app.store.settle([Settlement(Lease(job.id, record.fence), Released(600))]) == [True]
        await asyncio.wait_for(stopped.wait(), PATIENCE)
        await until(lambda: worker.tally.lost == 1)
    await job.refresh()
    assert (job.state, job.attempt) == ("pending", 0)


async def test_trouble_with_the_database_neither_kills_a_worker_nor_loses_results(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An outsider locks the file: finished results are kept and settled when it lets go."""
    path = tmp_path / "jobs.db"
    app = Tidewheel(f"sqlite:///{path}?busy_timeout=0.1", lease=30, poll_interval=0.05)
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        started.set()
        await go_on.wait()
        return "kept"

    caplog.set_level(logging.WARNING, "tidewheel")
    async with app:
        job = await work.enqueue()
        async with working(app) as worker:
            await started.wait()
            outsider = sqlite3.connect(path, isolation_level=None)
            outsider.execute("BEGIN IMMEDIATE")
            go_on.set()
            await until(lambda: "settling finished jobs failed" in caplog.text)
            await until(lambda: "claiming jobs failed" in caplog.text)
            outsider.execute("ROLLBACK")
            outsider.close()
            assert await job.result(timeout=PATIENCE) == "kept"
            await until(lambda: "works again" in caplog.text)
        assert worker.tally.lost == 0
    assert caplog.text.count("settling finished jobs failed") == 1


async def test_a_worker_without_tasks_is_refused(app: Tidewheel) -> None:
    """It would wait for ever, and nobody would know why."""
    with pytest.raises(ConfigurationError, match="no task is registered"):
        app.worker()

    @app.task
    async def work() -> None: ...

    with pytest.raises(ConfigurationError, match="topics it was given"):
        app.worker(exclude_topics=["work"])
    with pytest.raises(ConfigurationError, match="concurrency"):
        app.worker(concurrency=0)


async def test_jobs_of_a_dead_worker_come_back_and_are_run(app: Tidewheel) -> None:
    """Within one lease and a second, without anybody's help."""

    @app.task
    async def work() -> str:
        return "rescued"

    job = await work.enqueue()
    request = ClaimRequest("dead worker", (Lane("work", "work"),), 10, 0.3)
    assert len((await app.store.claim(request)).jobs) == 1
    async with working(app):
        assert await job.result(timeout=PATIENCE) == "rescued"
    await job.refresh()
    assert job.attempt == 2  # granted alone, so the lost run counts


def _new(topic: str, task: str, payload: bytes = b"{}") -> NewJob:
    return NewJob(id=new_id(), topic=topic, task=task, payload=payload)
