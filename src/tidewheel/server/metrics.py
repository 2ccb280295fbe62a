"""What the store knows and what this process has counted, as text for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from tidewheel.fleet import WorkerInfo
from tidewheel.server.request import Request
from tidewheel.server.route import Answer, Nothing, Permission, Route
from tidewheel.server.statistics import MAX_TOPICS
from tidewheel.telemetry import catalogue, figures
from tidewheel.telemetry.looking import look_at
from tidewheel.telemetry.samples import MEDIA_TYPE, Sample, one, text


async def metrics(request: Request[Nothing, None]) -> Answer:
    app = request.app
    queue, topics = await look_at(app, MAX_TOPICS)
    told = text(
        (
            *app.telemetry.counted(),
            *figures.of_topics(topics),
            *figures.of_queue(queue),
            *_workers(await app.workers()),
        )
    )
    return Answer(told.encode(), media_type=MEDIA_TYPE.encode())


def _workers(workers: Iterable[WorkerInfo]) -> Iterator[Sample]:
    """All that the store has on its list; those that vanished are counted, and have nothing to tell."""
    found: Counter[str] = Counter()
    for worker in workers:
        found[_health(worker)] += 1
        if not worker.missing:
            yield one(catalogue.WORKER_SLOTS, worker.concurrency, worker.name)
            yield one(catalogue.WORKER_RUNNING, worker.running, worker.name)
            yield one(catalogue.WORKER_STUCK, worker.stuck, worker.name)
            yield one(catalogue.WORKER_LAG, worker.loop_lag_seconds, worker.name)
    for health in ("fine", "degraded", "missing"):
        yield one(catalogue.WORKERS, found[health], health)


def _health(worker: WorkerInfo) -> str:
    if worker.missing:
        return "missing"
    return "degraded" if worker.degraded else "fine"


ROUTES: Final = (
    Route(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Depths, the longest wait, workers and counters, as text for Prometheus",
        permission=Permission.SUPERUSER,
        handler=metrics,
        answers={200: None},
        media_type="text/plain",
        tag="operating",
    ),
)
