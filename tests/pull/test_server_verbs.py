"""What a door for others needs of ``app.queue`` beyond its verbs, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tidewheel import LimitExceeded, Tidewheel
from tidewheel.core.model import BodyFormat, Enqueued, NewJob
from tidewheel.pull import write_batcher
from tidewheel.pull.queue import Queue
from tidewheel.testing.clock import FrozenClock


async def test_a_job_is_found_by_its_number(queue: Queue) -> None:
    """Whatever the number is."""
    job = await queue.put("mail", b"x")
    assert await queue.job_id(job.number) == job.id
    for number in (0, job.number + 1, 2**63, 2**64 - 1):
        assert await queue.job_id(number) is None


async def test_depths_tell_of_topics_with_unfinished_or_buried_jobs_only(
    app: Tidewheel, queue: Queue
) -> None:
    """Those that have a history, or are paused, are there for others."""
    await queue.put("ready", b"x")
    await queue.put("delayed", b"x", delay=9)
    for topic in ("buried", "done", "held"):
        await queue.put(topic, b"x")
    await (await queue.reserve("buried")).bury()
    await (await queue.reserve("done")).delete()
    await queue.reserve("held")
    await app.pause("paused")
    depths = {depth.topic: depth for depth in await queue.depths()}
    assert list(depths) == ["buried", "delayed", "held", "ready"]
    counts = [(depths[topic].ready, depths[topic].failed) for topic in ("ready", "buried")]
    assert counts == [(1, 0), (0, 1)]


async def test_jobs_whose_time_is_over_can_be_brought_back_at_once(queue: Queue, clock: FrozenClock) -> None:
    """Without anybody asking for one."""
    job = await queue.put("mail", b"x", ttr=5)
    await queue.reserve("mail")
    assert await queue.rescue() == 0
    clock.advance(5)
    assert await queue.rescue() == 1
    assert (await queue.stats_job(job.id)).state == "ready"


async def test_jobs_are_made_from_a_template(queue: Queue) -> None:
    """Checked once, put many times."""
    template = queue.template("mail", 7, {"priority": -5})
    jobs = [template.job(body, BodyFormat.BYTES) for body in (b"a", b"b")]
    putting = [queue.on_wire().put_batched(job, calls_again=True) for job in jobs]
    assert [(await one).job_id for one in putting] == [job.id for job in jobs]
    assert [(await queue.reserve("mail")).body for _ in jobs] == [b"a", b"b"]
    assert (await queue.stats_job(jobs[0].id)).ttr == 7.0


async def test_jobs_put_at_a_time_are_one_write_unless_they_are_large(
    app: Tidewheel, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement has its limits, and a small job must not wait for a gigabyte of others."""
    batches: list[int] = []
    store = app.store
    enqueue = store.enqueue

    async def counted(jobs: Sequence[NewJob]) -> list[Enqueued]:
        batches.append(len(jobs))
        return await enqueue(jobs)

    wire = queue.on_wire()
    monkeypatch.setattr(store, "enqueue", counted)
    template = queue.template("mail", 60, {})
    for size, expected in ((10, [8]), (write_batcher.MAX_BATCH_BYTES // 2, [2, 2, 2, 2])):
        batches.clear()
        jobs = [template.job(b"x" * size, BodyFormat.BYTES) for _ in range(8)]
        await asyncio.gather(*(wire.put_batched(job, calls_again=True) for job in jobs))
        assert batches == expected


async def test_a_job_that_is_refused_does_not_spoil_those_put_with_it(url: str) -> None:
    """The last free place of a topic is somebody's, and only the others are told that there is none."""
    async with Tidewheel(url, max_jobs_per_topic=3) as app:
        wire = app.queue.on_wire()
        template = wire.template("mail", 60, {})
        jobs = [template.job(b"x", BodyFormat.BYTES) for _ in range(5)]
        answers = await asyncio.gather(
            *(wire.put_batched(job, calls_again=True) for job in jobs), return_exceptions=True
        )
        assert [isinstance(answer, LimitExceeded) for answer in answers] == [False] * 3 + [True] * 2
