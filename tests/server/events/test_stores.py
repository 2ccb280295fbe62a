"""The same events on every store."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from tests.app.conftest import URLS
from tests.server.events.event_server import served
from tests.server.events.test_events import BOOM, entries, finish
from tests.worker.helpers import working
from tidewheel import SecurityContext, Tidewheel, acting_as
from tidewheel.core.model import Retried


@pytest.mark.parametrize("store", URLS)
async def test_events_are_the_same_on_every_store(store: str, tmp_path: Path) -> None:
    """Hints, counts by tenant and records are all they are made of."""
    async with Tidewheel(URLS[store](tmp_path)) as app, served(app) as server:
        server.gate.admit("acme", SecurityContext("acme"))
        async with server.listen(who="acme") as topics:
            with acting_as(SecurityContext("acme")):
                job = await app.enqueue("mail", delay=0.001)
            told = await topics.event()
            assert (told.kind, told.data["topic"], told.data["pending"]) == ("topic", "mail", 1)
            async with server.listen({"job": str(job.id)}, who="acme") as client:
                events = [await client.event()]
                await finish(server, "mail", Retried(0.0, BOOM))
                await finish(server, "mail")
                events += await client.rest()
            while not told.data["completed"]:
                told = await topics.event()
    said = entries(events, job)
    assert said[:2] == ["enqueued", "delayed"]
    assert said[-1] == "completed"
    assert (said.count("started"), said.count("errored")) == (2, 1)
    assert events[-1].kind == "end"


@pytest.mark.parametrize("store", URLS)
async def test_a_job_stream_tells_of_one_start_with_one_time(store: str, tmp_path: Path) -> None:
    """A worker records it while the handler runs; what is told then is what the job has in the end."""
    ended = asyncio.Event()
    async with Tidewheel(URLS[store](tmp_path)) as app, served(app) as server:

        @app.task
        async def slow() -> None:
            await ended.wait()

        job = await slow.enqueue()
        async with server.listen({"job": str(job.id)}) as client, working(app):
            events = [await client.event()]
            while "started" not in entries(events, job):
                events.append(await client.event())
            ended.set()
            events += await client.rest()
        await job.refresh()
    starts = [
        entry["at"]
        for event in events
        if event.kind == "job"
        for entry in event.data["entries"]
        if entry["what"] == "started"
    ]
    assert [datetime.fromisoformat(at) for at in starts] == [job.started_at]
