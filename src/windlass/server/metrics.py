"""What the store knows, as text for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from windlass.clock import MICROSECONDS
from windlass.fleet import WorkerInfo
from windlass.model import Stats
from windlass.server.request import Request
from windlass.server.route import Answer, Nothing, Permission, Route
from windlass.server.statistics import MAX_TOPICS

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: Request[Nothing, None]) -> Answer:
    app = request.app
    found = await app.stats()
    workers = await app.workers()
    lines = [*_depth(found), *_oldest(found, app.clock.now()), *_workers(workers)]
    return Answer("\n".join((*lines, "")).encode(), media_type=MEDIA_TYPE.encode())


def _depth(found: Stats) -> Iterable[str]:
    yield "# HELP windlass_queue_depth Jobs that are kept, by topic and state."
    yield "# TYPE windlass_queue_depth gauge"
    for topic in found.topics[:MAX_TOPICS]:
        for state in ("pending", "running", "completed", "failed", "cancelled"):
            yield _line("windlass_queue_depth", {"topic": topic.topic, "state": state}, getattr(topic, state))


def _oldest(found: Stats, now: int) -> Iterable[str]:
    yield "# HELP windlass_oldest_due_seconds How long the longest-waiting due job has been due."
    yield "# TYPE windlass_oldest_due_seconds gauge"
    waited = 0.0 if found.oldest_due_at is None else max(0.0, (now - found.oldest_due_at) / MICROSECONDS)
    yield _line("windlass_oldest_due_seconds", {}, waited)


def _workers(workers: Iterable[WorkerInfo]) -> Iterable[str]:
    yield "# HELP windlass_workers Workers by health."
    yield "# TYPE windlass_workers gauge"
    found = Counter(_health(worker) for worker in workers)
    for health in ("fine", "degraded", "missing"):
        yield _line("windlass_workers", {"health": health}, found[health])


def _health(worker: WorkerInfo) -> str:
    if worker.missing:
        return "missing"
    return "degraded" if worker.degraded else "fine"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value}" if inner else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


ROUTES: Final = (
    Route(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Depths, the longest wait and workers, as text for Prometheus",
        permission=Permission.SUPERUSER,
        handler=metrics,
        answers={200: None},
        media_type="text/plain",
        tag="operating",
    ),
)
