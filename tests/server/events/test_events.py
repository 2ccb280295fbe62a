"""What listeners are told: topics, jobs, and where they were when they left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.events.event_server import Served, Told
from tidewheel import Job, TopicStats
from tidewheel.core.model import ClaimRequest, Completed, JobError, Lane, Outcome, Retried, Settlement
from tidewheel.server.events import change_poller
from tidewheel.server.events.ring_buffer import EventRing

BOOM = JobError("boom", "it broke")


async def finish(server: Served, topic: str, outcome: Outcome | None = None) -> None:
    """Claim the next job of a topic, start it and end it."""
    store = server.app.store
    claim = await store.claim(ClaimRequest("w1", (Lane(topic),), limit=1, lease_seconds=60))
    (job,) = claim.jobs
    await store.mark_started([job.lease])
    assert await store.settle([Settlement(job.lease, outcome or Completed(), 0.0)]) == [True]


def entries(events: list[Told], job: Job[Any]) -> list[str]:
    return [
        entry["what"]
        for event in events
        if event.kind == "job" and event.data["id"] == str(job.id)
        for entry in event.data["entries"]
    ]


async def test_counts_are_told_when_they_change(server: Served) -> None:
    """A topic that nothing happens in is not mentioned; what is told is what the topic has now."""
    await server.app.enqueue("quiet")
    async with server.listen() as client:
        assert client.status == 200
        assert "content-type: text/event-stream" in client.head
        await server.app.enqueue("mail")
        told = await client.event()
        assert told.kind == "topic"
        assert told.data == {
            "topic": "mail", "pending": 1, "running": 0, "completed": 0, "failed": 0, "cancelled": 0,
        }  # fmt: skip
        await finish(server, "mail")
        while told.data["completed"] == 0:
            told = await client.event()
            assert told.data["topic"] == "mail"


async def test_a_topic_without_jobs_is_told_once_more(server: Served) -> None:
    """Counts that went to nothing are news, too."""
    job = await server.app.enqueue("mail")
    async with server.listen() as client:
        await job.delete()
        told = await client.event()
        assert (told.data["topic"], told.data["pending"]) == ("mail", 0)


async def test_topics_can_be_chosen(server: Served) -> None:
    """Of others nothing is heard, however much happens there."""
    async with server.listen({"topic": "mail,sms"}) as client:
        await server.app.enqueue("loud")
        await server.app.enqueue("sms")
        assert (await client.event()).data["topic"] == "sms"


async def test_a_jobs_life_is_told_whole_and_ends(server: Served) -> None:
    """Whatever the listener saw of it, nothing is told twice, and the end is the end."""
    job = await server.app.enqueue("mail")
    async with server.listen({"job": str(job.id)}) as client:
        first = await client.event()
        assert first.data["state"] == "pending"
        assert entries([first], job) == ["enqueued"]
        await finish(server, "mail", Retried(0.0, BOOM))
        await finish(server, "mail")
        events = [first, *await client.rest()]
    told = entries(events, job)
    ids = [entry["id"] for event in events if event.kind == "job" for entry in event.data["entries"]]
    assert len(ids) == len(set(ids))
    assert [what for what in told if what in {"enqueued", "errored", "completed"}] == [
        "enqueued", "errored", "completed",
    ]  # fmt: skip
    assert told.count("started") == 2
    assert events[-1].kind == "end"


async def test_a_finished_job_is_told_and_the_stream_ends_at_once(server: Served) -> None:
    """Who comes late is told the whole life."""
    job = await server.app.enqueue("mail")
    await finish(server, "mail")
    async with server.listen({"job": str(job.id)}) as client:
        events = await client.rest()
    assert [event.kind for event in events] == ["job", "end"]
    assert entries(events, job) == ["enqueued", "claimed", "started", "completed"]


async def test_a_deleted_job_is_gone(server: Served) -> None:
    """The listener is told, and waits no longer."""
    job = await server.app.enqueue("mail")
    async with server.listen({"job": str(job.id)}) as client:
        await client.event()
        await job.delete()
        assert [event.kind for event in await client.rest()] == ["gone", "end"]


async def test_who_comes_back_goes_on_where_it_was(server: Served) -> None:
    """Also when nobody listened meanwhile: what changed since is told, once, and nothing else."""
    await server.app.enqueue("before")
    async with server.listen() as client:
        await server.app.enqueue("mail")
        await client.event()
        last = client.last_id
    await server.until_nobody_listens()
    await server.app.enqueue("sms")
    async with server.listen(last=last) as client:
        told = await client.event()
        assert (told.kind, told.data["topic"]) == ("topic", "sms")
        await server.app.enqueue("after")
        assert (await client.event()).data["topic"] == "after"


async def test_a_job_stream_is_resumed_without_a_gap_or_a_double(server: Served) -> None:
    """Entries have been told, or are still to be told: the ring knows which."""
    job = await server.app.enqueue("mail")
    async with server.listen({"job": str(job.id)}) as client:
        events = [await client.event()]
        await finish(server, "mail", Retried(0.0, BOOM))
        events.append(await client.event())
        last = client.last_id
    await server.until_nobody_listens()
    await finish(server, "mail")
    async with server.listen({"job": str(job.id), "last_event_id": last}) as client:
        events += await client.rest()
    told = entries(events, job)
    assert "reset" not in {event.kind for event in events}
    assert told.count("enqueued") == told.count("errored") == told.count("completed") == 1
    assert told.count("started") == 2


async def test_an_id_of_another_server_means_reading_again(server: Served) -> None:
    """One reset, then on from now; also for an id that makes no sense."""
    for last in ("000000000000-5", "nonsense", EventRing().id_at(0).decode()):
        async with server.listen(last=last) as client:
            assert (await client.event()).kind == "reset"
            await server.app.enqueue("mail")
            assert (await client.event()).kind == "topic"


async def test_many_listeners_are_told_the_same(server: Served) -> None:
    """One look for all of them."""
    clients = [server.listen() for _ in range(50)]
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.__aenter__())
    looks = server.api.event_broadcaster.poller.poll_count
    await server.app.enqueue("mail")
    told = await asyncio.gather(*(client.event() for client in clients))
    assert len({event.id for event in told}) == 1
    assert server.api.event_broadcaster.poller.poll_count - looks < 10
    for client in clients:
        await client.__aexit__()
    await server.until_nobody_listens()


async def test_a_hint_that_comes_before_its_commit_is_not_wasted(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite rings first and commits then: who looks at once sees nothing, and has to look again."""
    monkeypatch.setattr(change_poller, "POLL_SECONDS", 600.0)
    async with server.listen() as client:
        topics = server.app.topics
        early = [await topics()]

        async def not_yet_committed() -> list[TopicStats]:
            return early.pop() if early else await topics()

        monkeypatch.setattr(server.app, "topics", not_yet_committed)
        await server.app.enqueue("mail")
        assert (await client.event()).data["topic"] == "mail"
        assert not early
