"""Log lines about jobs' lives, for those who ask for them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Project
from tests.patience import PATIENCE
from tests.worker.conftest import URLS
from tidewheel import Cancel, Context, Fail, Retry, Snooze, Tidewheel
from tidewheel.core.model import ClaimRequest, Lane

PLANTED = "hunter2"


@pytest.fixture(params=URLS)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tidewheel]:
    """An open app that logs its jobs, with no tasks yet."""
    url = URLS[request.param](tmp_path)
    async with Tidewheel(url, lease=2, poll_interval=0.05, log_jobs=True) as app:
        yield app


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "tidewheel.lifecycle")
    return caplog


def told(lines: pytest.LogCaptureFixture, job_id: object) -> list[dict[str, Any]]:
    """The fields of every line about this job, in order."""
    own = vars(logging.makeLogRecord({}))
    return [
        {name: value for name, value in vars(record).items() if name not in own and name != "message"}
        for record in lines.records
        if record.name == "tidewheel.lifecycle" and vars(record)["job_id"] == str(job_id)
    ]


def events(lines: pytest.LogCaptureFixture, job_id: object) -> list[str]:
    return [line["event"] for line in told(lines, job_id)]


async def test_each_step_of_a_life_is_one_line(app: Tidewheel, lines: pytest.LogCaptureFixture) -> None:
    """Who, what, which attempt, and the state from then on; nothing out of a payload, result or message."""

    @app.task(max_attempts=2, retry=Retry.fixed(0))
    async def work(ctx: Context, password: str) -> str:
        if ctx.attempt == 1:
            raise ValueError(f"wrong: {password}")
        return password

    job = await work.options(correlation_id="c-1").enqueue(password=PLANTED)
    await app.run_until_idle()
    queued, claimed, retried, _, completed = told(lines, job.id)
    common = {
        "job_id": str(job.id),
        "task": "work",
        "topic": "work",
        "tenant": "root",
        "correlation_id": "c-1",
    }
    assert queued == {**common, "event": "queued", "state": "pending"}
    worker = claimed.pop("worker")
    assert claimed == {**common, "event": "claimed", "state": "running", "attempt": 1}
    assert 0 <= retried.pop("run_seconds") < 60
    assert retried.pop("error_code")
    assert retried == {
        **common,
        "event": "retried",
        "state": "pending",
        "attempt": 1,
        "worker": worker,
        "delay_seconds": 0.0,
    }
    assert completed["event"] == "completed"
    assert (completed["state"], completed["attempt"]) == ("completed", 2)
    assert PLANTED not in repr([vars(record) for record in lines.records if "lifecycle" in record.name])


async def test_every_way_to_end_has_its_word(app: Tidewheel, lines: pytest.LogCaptureFixture) -> None:
    """Failed, cancelled, released: told when the store has taken it."""

    @app.task
    async def end(ctx: Context, how: str) -> None:
        if how == "fail":
            raise Fail("no", code="not_today")
        if how == "cancel":
            raise Cancel("no")
        if how == "snooze" and not ctx.checkpoint:
            await ctx.checkpoint({"snoozed": True})
            raise Snooze(0)

    jobs = {how: await end.enqueue(how=how) for how in ("fail", "cancel", "snooze")}
    await app.run_until_idle()
    assert events(lines, jobs["fail"].id) == ["queued", "claimed", "failed"]
    assert told(lines, jobs["fail"].id)[-1]["error_code"] == "not_today"
    assert told(lines, jobs["fail"].id)[-1]["state"] == "failed"
    assert events(lines, jobs["cancel"].id) == ["queued", "claimed", "cancelled"]
    assert events(lines, jobs["snooze"].id) == ["queued", "claimed", "released", "claimed", "completed"]


async def test_a_job_that_finds_its_key_taken_is_not_queued(
    app: Tidewheel, lines: pytest.LogCaptureFixture
) -> None:
    """One job, one line; several at once each have theirs."""

    @app.task
    async def work() -> None: ...

    first = await work.options(key="k").enqueue()
    again = await work.options(key="k").enqueue()
    assert again.duplicate
    many = await work.enqueue_many([{}, {}])
    assert events(lines, first.id) == ["queued"]
    assert [events(lines, job.id) for job in many] == [["queued"], ["queued"]]


async def lose(app: Tidewheel, jobs: int, *, started: bool) -> None:
    """Another worker's claim of so many jobs, which it never comes back to."""
    lanes = (Lane("work", "work"),)
    request = ClaimRequest(worker="lost", lanes=lanes, limit=jobs, lease_seconds=0.2)
    claim = await app.store.claim(request)
    assert len(claim.jobs) == jobs
    if started:
        await app.store.mark_started([job.lease for job in claim.jobs])


@pytest.mark.parametrize("started", [False, True], ids=["unstarted", "started"])
async def test_a_job_of_a_lost_worker_is_reclaimed(
    app: Tidewheel, lines: pytest.LogCaptureFixture, started: bool
) -> None:
    """Told when it comes back, before anybody has it again: whose it was, and which attempt was lost."""

    @app.task
    async def work() -> None: ...

    jobs = [
        await work.options(correlation_id="c-1").enqueue(),
        await work.enqueue(),  # a claim of one would count
    ]
    await lose(app, 2, started=started)
    async with app.worker_thread():
        for job in jobs:
            await job.result(timeout=PATIENCE)
    for job in jobs:
        assert events(lines, job.id) == ["queued", "reclaimed", "claimed", "completed"]
        _, reclaimed, claimed, _ = told(lines, job.id)
        assert claimed["attempt"] == (2 if started else 1)
        assert reclaimed == {
            "event": "reclaimed",
            "job_id": str(job.id),
            "task": "work",
            "topic": "work",
            "tenant": "root",
            "correlation_id": "c-1" if job is jobs[0] else None,
            "state": "pending",
            "attempt": 1,
            "worker": "lost",
            "error_code": "worker_lost",
        }


async def test_a_job_is_reclaimed_when_the_sweep_finds_it_though_nobody_takes_it(
    app: Tidewheel, lines: pytest.LogCaptureFixture
) -> None:
    """A worker of other topics sweeps, too; a job that had its last attempt has failed by then."""

    @app.task
    async def work() -> None: ...

    @app.task
    async def other() -> None: ...

    last = await work.options(max_attempts=1).enqueue()
    await lose(app, 1, started=True)
    more = await work.enqueue()
    await lose(app, 1, started=True)
    async with app.worker_thread(topics=["other"]):
        async with asyncio.timeout(PATIENCE):
            while len(events(lines, last.id)) < 2 or len(events(lines, more.id)) < 2:
                await asyncio.sleep(0.01)
    assert events(lines, more.id) == ["queued", "reclaimed"]
    assert events(lines, last.id) == ["queued", "failed"]
    assert told(lines, last.id)[-1]["error_code"] == "worker_lost"
    assert (await more.refresh()).state.value == "pending"


async def test_nothing_is_logged_unless_it_was_asked_for(lines: pytest.LogCaptureFixture) -> None:
    """A busy queue would write more lines than it runs jobs."""
    async with Tidewheel("memory://") as app:

        @app.task
        async def work() -> None: ...

        job = await work.enqueue()
        await app.run_until_idle()
    assert events(lines, job.id) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGTERM to one process")
def test_a_worker_process_writes_them_as_json(tmp_path: Path) -> None:
    """From the environment, one object on a line, for a log collector."""
    project = Project(tmp_path)
    project.write(
        "shop.py",
        "from tidewheel import Tidewheel\napp = Tidewheel('sqlite:///jobs.db')\n"
        "@app.task\nasync def work() -> None: ...\n",
    )
    with project.start("worker", "shop:app", "--log-json", TIDEWHEEL_LOG_JOBS="true") as process:
        process.wait_for("Ctrl-C stops")
        with project.start("enqueue", "work", "--app", "shop:app") as enqueue:
            assert enqueue.wait() == 0
        process.wait_for('"event": "completed"')
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        found = [json.loads(line) for line in process.seen]
    assert [line["event"] for line in found if "event" in line] == ["claimed", "completed"]
    assert all(line["job_id"] == enqueue.seen[0] for line in found if "event" in line)
