"""The queue as workers see it, for whoever asks at a health port or at a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.telemetry.prometheus_text import scrape
from tests.worker.conftest import URLS
from tests.worker.helpers import until, working
from tidewheel import Tidewheel
from tidewheel.core.model import ClaimRequest, Lane
from tidewheel.core.reports import TopicStats
from tidewheel.telemetry.metric_gauges import TopicCounts, busiest_topics, sample_queue
from tidewheel.testing.clock import FrozenClock


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tidewheel]:
    """Under a clock that stands still; PostgreSQL has a clock of its own."""
    async with Tidewheel(URLS[request.param](tmp_path), clock=FrozenClock(), metrics=True) as app:
        yield app


async def test_a_look_tells_depth_age_and_leases_nobody_ends(app: Tidewheel) -> None:
    """From counters, but for the leases, which are looked for among the jobs that run longest."""
    clock = app.clock
    assert isinstance(clock, FrozenClock)
    await app.enqueue_many("mail", [{}] * 3)
    clock.advance(30)
    request = ClaimRequest("dead", (Lane("mail", None),), limit=2, lease_seconds=10)
    assert len((await app.store.claim(request)).jobs) == 2
    queue, topics = await sample_queue(app.store)
    assert (queue.pending, queue.running, queue.oldest_due_seconds, queue.stale_leases) == (1, 2, 30.0, 0)
    assert topics == (TopicCounts("mail", 1, 2, 0, 0, 0),)
    clock.advance(10)
    assert (await sample_queue(app.store))[0].stale_leases == 2


async def test_a_look_is_the_same_on_postgresql() -> None:
    """Depths and running jobs, without the clock's help."""
    async with Tidewheel(URLS["postgres"](Path())) as app:
        await app.enqueue_many("mail", [{}] * 3)
        queue, topics = await sample_queue(app.store)
        assert (queue.pending, queue.running, queue.stale_leases) == (3, 0, 0)
        assert topics == (TopicCounts("mail", 3, 0, 0, 0, 0),)


async def test_a_worker_looks_by_itself_and_tells_how_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who asks waits for the store."""
    monkeypatch.setattr("tidewheel.worker.queue_sampler.FIRST_SAMPLE_SECONDS", 0.0)
    async with Tidewheel("memory://", metrics=True) as app:

        @app.task
        async def work() -> None: ...

        await app.enqueue_many("elsewhere", [{}] * 4)
        async with working(app, name="ada") as worker:
            await until(lambda: worker.queue_snapshot is not None)
            queue = worker.health().queue
            assert queue is not None
            assert (queue.pending, queue.stale_leases) == (4, 0)
            assert 0 <= queue.age_seconds < PATIENCE
            found = scrape(app.telemetry.prometheus())
            assert found["tidewheel_queue_depth", "elsewhere", "pending"] == 4
            assert found["tidewheel_worker_slots", "ada"] == 10


def test_of_many_topics_the_busiest_are_told() -> None:
    """The others are one line, so that nothing is missing from a sum."""
    topics = [TopicStats(f"t{index}", index, 0, 1, 0, 0, None) for index in range(5)]
    assert busiest_topics(topics, 2) == (
        TopicCounts("t4", 4, 0, 1, 0, 0),
        TopicCounts("t3", 3, 0, 1, 0, 0),
        TopicCounts("other", 3, 0, 3, 0, 0),
    )


def test_a_topic_that_is_called_as_the_others_is_one_of_them() -> None:
    """A series is told once: of two alike Prometheus would drop one."""
    topics = [TopicStats(name, 9 - index, 0, 0, 0, 0, None) for index, name in enumerate(("other", "a", "b"))]
    assert busiest_topics(topics, 2) == (
        TopicCounts("a", 8, 0, 0, 0, 0),
        TopicCounts("b", 7, 0, 0, 0, 0),
        TopicCounts("other", 9, 0, 0, 0, 0),
    )
    assert busiest_topics(topics, 3)[0] == TopicCounts("other", 9, 0, 0, 0, 0), "there are no others"
