"""Status of this server: versions and settings, health checks, metrics.

``about`` returns the versions, the store and the settings that pages and programs depend on. ``/healthz``
reports that the process is alive, ``/readyz`` that it reaches its store. ``/metrics`` returns figures of the
store and counters of this process as text for Prometheus.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from msgspec import Struct

from tidewheel.__about__ import __version__
from tidewheel.admin.worker_info import WorkerInfo
from tidewheel.core.clock import to_datetime
from tidewheel.core.urls import redact_url
from tidewheel.errors import StoreUnavailable
from tidewheel.server.problems import NOT_OPEN, STORE_UNAVAILABLE, Problem
from tidewheel.server.redaction import REDACTED
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.server.routes.report_routes import MAX_TOPICS
from tidewheel.telemetry import metric_gauges, samples
from tidewheel.telemetry.metric_gauges import sample_app_queue
from tidewheel.telemetry.samples import MEDIA_TYPE, Sample, format_prometheus, make_sample


class LimitsShape(Struct, frozen=True, kw_only=True):
    """Settings that limit what may be asked; 0 is unlimited, of topics and their jobs."""

    max_payload_bytes: int
    max_result_bytes: int
    max_request_bytes: int
    max_key_length: int
    max_topics: int
    max_jobs_per_topic: int


class DefaultsShape(Struct, frozen=True, kw_only=True):
    """Settings that jobs and workers are given when nothing else is said. Durations are seconds."""

    max_attempts: int | None
    timeout: float | None
    lease: float
    concurrency: int
    poll_interval: float
    retention: float | None
    retention_failed: float | None
    audit_retention: float | None
    session_seconds: float
    tenant: str


class AccessShape(Struct, frozen=True, kw_only=True):
    """Who may do what, as it is set; an empty rule is superusers only."""

    enqueue_rule: str
    manage_rule: str
    allowed_topics: tuple[str, ...]
    redact: tuple[str, ...]
    redacted: str
    """what stands in the place of a hidden value"""


class AboutShape(Struct, frozen=True, kw_only=True):
    """What is served. ``store`` is sqlite, postgresql or memory; ``url`` is without its password."""

    version: str
    python: str
    store: str
    store_version: str
    url: str
    started_at: datetime
    now: datetime
    tasks: int
    limits: LimitsShape
    defaults: DefaultsShape
    access: AccessShape


async def about(request: Request[NoQuery, None]) -> Response:
    app, settings = request.app, request.app.settings
    described = app.describe()
    store = described["store"]
    return Response(
        AboutShape(
            version=__version__,
            python=platform.python_version(),
            store=store,
            store_version=described.get(store, ""),
            url=redact_url(app.url),
            started_at=request.api.started_at,
            now=to_datetime(app.clock.now()),
            tasks=len(app.registry),
            limits=LimitsShape(**{name: getattr(settings, name) for name in LimitsShape.__struct_fields__}),
            defaults=DefaultsShape(
                **{name: getattr(settings, name) for name in DefaultsShape.__struct_fields__}
            ),
            access=AccessShape(
                enqueue_rule=settings.enqueue_rule,
                manage_rule=settings.manage_rule,
                allowed_topics=settings.allowed_topics,
                redact=settings.redact,
                redacted=REDACTED,
            ),
        )
    )


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/about",
        name="about",
        summary="This server: versions, its store, and the settings that matter to callers",
        permission=Permission.SUPERUSER,
        handler=about,
        responses={200: AboutShape},
        tag="operating",
    ),
)


READY_TIMEOUT_SECONDS: Final = 2.0
"""How long the store may take to answer before it counts as out of reach."""
READY_CACHE_SECONDS: Final = 1.0
"""How long an answer stands: nobody can make the store busy by asking whether it is."""


class Health(Struct, frozen=True):
    status: str


class ReadinessCheck:
    """When the store was last asked, and what came of it."""

    def __init__(self) -> None:
        self._checked_at = float("-inf")
        self._last_result = False
        self._lock = asyncio.Lock()

    async def is_ready(self, request: Request[NoQuery, None]) -> bool:
        loop = asyncio.get_running_loop()
        async with self._lock:
            if loop.time() - self._checked_at >= READY_CACHE_SECONDS:
                try:
                    async with asyncio.timeout(READY_TIMEOUT_SECONDS):
                        await request.app.ping()
                    self._last_result = True
                except (TimeoutError, OSError, StoreUnavailable):
                    self._last_result = False
                self._checked_at = loop.time()
            return self._last_result


async def healthz(request: Request[NoQuery, None]) -> Response:
    del request
    return Response(Health("ok"))


async def readyz(request: Request[NoQuery, None]) -> Response:
    if request.api.closing.is_set():
        raise Problem(NOT_OPEN, "the server is shutting down")
    if not await request.api.readiness.is_ready(request):
        raise Problem(
            STORE_UNAVAILABLE,
            f"the store cannot be reached, or did not answer within {READY_TIMEOUT_SECONDS:g} s",
        )
    return Response(Health("ok"))


HEALTH_ROUTES: Final = (
    Route(
        method="GET",
        path="/healthz",
        name="healthz",
        summary="This process lives",
        permission=Permission.PUBLIC,
        handler=healthz,
        responses={200: Health},
        tag="operating",
        served_without_api=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        name="readyz",
        summary="This process reaches its store",
        permission=Permission.PUBLIC,
        handler=readyz,
        responses={200: Health},
        problems=(NOT_OPEN, STORE_UNAVAILABLE),
        tag="operating",
        served_without_api=True,
    ),
)


async def metrics(request: Request[NoQuery, None]) -> Response:
    app = request.app
    queue, topics = await sample_app_queue(app, MAX_TOPICS)
    told = format_prometheus(
        (
            *app.telemetry.counter_samples(),
            *metric_gauges.topic_samples(topics),
            *metric_gauges.queue_samples(queue),
            *_worker_samples(await app.workers()),
        )
    )
    return Response(told.encode(), media_type=MEDIA_TYPE.encode())


def _worker_samples(workers: Iterable[WorkerInfo]) -> Iterator[Sample]:
    """All that the store has on its list; those that vanished are counted, and have nothing to tell."""
    found: Counter[str] = Counter()
    for worker in workers:
        found[_health(worker)] += 1
        if not worker.missing:
            yield make_sample(samples.WORKER_SLOTS, worker.concurrency, worker.name)
            yield make_sample(samples.WORKER_RUNNING, worker.running, worker.name)
            yield make_sample(samples.WORKER_STUCK, worker.stuck, worker.name)
            yield make_sample(samples.WORKER_LAG, worker.loop_lag_seconds, worker.name)
    for health in ("fine", "degraded", "missing"):
        yield make_sample(samples.WORKERS, found[health], health)


def _health(worker: WorkerInfo) -> str:
    if worker.missing:
        return "missing"
    return "degraded" if worker.degraded else "fine"


METRICS_ROUTES: Final = (
    Route(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Depths, the longest wait, workers and counters, as text for Prometheus",
        permission=Permission.SUPERUSER,
        handler=metrics,
        responses={200: None},
        media_type="text/plain",
        tag="operating",
    ),
)
