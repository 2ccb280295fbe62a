"""What is served here: versions, the store, and the settings that pages and programs go by."""

from __future__ import annotations

import platform
from datetime import datetime
from typing import Final

from msgspec import Struct

from tidewheel.__about__ import __version__
from tidewheel.clock import to_datetime
from tidewheel.server.redaction import REDACTED
from tidewheel.server.request import Request
from tidewheel.server.route import ROOT, Answer, Nothing, Permission, Route
from tidewheel.urls import shown_url


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


async def about(request: Request[Nothing, None]) -> Answer:
    app, settings = request.app, request.app.settings
    described = app.describe()
    store = described["store"]
    return Answer(
        AboutShape(
            version=__version__,
            python=platform.python_version(),
            store=store,
            store_version=described.get(store, ""),
            url=shown_url(app.url),
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
        path=f"{ROOT}/about",
        name="about",
        summary="This server: versions, its store, and the settings that matter to callers",
        permission=Permission.SUPERUSER,
        handler=about,
        answers={200: AboutShape},
        tag="operating",
    ),
)
