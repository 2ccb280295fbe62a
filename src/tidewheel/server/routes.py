"""The route table: everything the server answers, in the order paths are looked for."""

from __future__ import annotations

from typing import Final

import msgspec

from tidewheel.server import (
    about,
    audit,
    bulk,
    copying,
    enqueueing,
    filter_fields,
    health,
    jobs,
    keys,
    limits,
    metrics,
    openapi,
    questions,
    schedules,
    session,
    states,
    statistics,
    superusers,
    tasks,
    topics,
    workers,
)
from tidewheel.server.events import route as events
from tidewheel.server.request import Request
from tidewheel.server.route import Answer, Nothing, Permission, Route
from tidewheel.server.ui import route as ui
from tidewheel.server.work import beating, leases, reporting, reserving, settling

_document: list[bytes] = []  # made when it is first asked for


async def describe(request: Request[Nothing, None]) -> Answer:
    del request
    if not _document:
        _document.append(msgspec.json.encode(openapi.document(ROUTES)))
    return Answer(_document[0])


ROUTES: Final[tuple[Route, ...]] = (
    *enqueueing.ROUTES,
    *jobs.ROUTES,
    *states.ROUTES,
    *reserving.ROUTES,
    *settling.ROUTES,
    *leases.ROUTES,
    *reporting.ROUTES,
    *beating.ROUTES,
    *copying.ROUTES,
    *statistics.ROUTES,
    *events.ROUTES,
    *questions.ROUTES,
    *filter_fields.ROUTES,
    *bulk.ROUTES,
    *topics.ROUTES,
    *limits.ROUTES,
    *tasks.ROUTES,
    *workers.ROUTES,
    *schedules.ROUTES,
    *keys.ROUTES,
    *superusers.ROUTES,
    *audit.ROUTES,
    *session.ROUTES,
    *about.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    Route(
        method="GET",
        path="/openapi.json",
        name="openapi",
        summary="This API as an OpenAPI 3.1 document",
        permission=Permission.PUBLIC,
        handler=describe,
        answers={200: None},
        tag="operating",
    ),
)
"""Every route of the API. Frequent ones first: a path is compared with one after the other."""

EVERYTHING: Final[tuple[Route, ...]] = (*ROUTES, *ui.ROUTES)
"""The API, and the UI for browsers, which is no part of its description."""
