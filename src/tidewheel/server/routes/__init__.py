"""The route table: everything the server answers, in the order paths are looked for."""

from __future__ import annotations

from typing import Final

import msgspec

from tidewheel.server import openapi, ui
from tidewheel.server.request import Request
from tidewheel.server.route import NoQuery, Permission, Response, Route
from tidewheel.server.routes import (
    audit_routes,
    bulk_routes,
    copy_routes,
    enqueue_routes,
    event_routes,
    filter_routes,
    job_routes,
    key_routes,
    lease_routes,
    limit_routes,
    report_routes,
    reserve_routes,
    schedule_routes,
    session_routes,
    settle_routes,
    status_routes,
    superuser_routes,
    task_routes,
    topic_routes,
    worker_routes,
)

_document: list[bytes] = []  # made when it is first asked for


async def get_openapi(request: Request[NoQuery, None]) -> Response:
    del request
    if not _document:
        _document.append(msgspec.json.encode(openapi.build_document(ROUTES)))
    return Response(_document[0])


ROUTES: Final[tuple[Route, ...]] = (
    *enqueue_routes.ROUTES,
    *job_routes.ROUTES,
    *job_routes.STATE_ROUTES,
    *reserve_routes.ROUTES,
    *settle_routes.ROUTES,
    *lease_routes.ROUTES,
    *lease_routes.REPORTING_ROUTES,
    *worker_routes.HEARTBEAT_ROUTES,
    *copy_routes.ROUTES,
    *report_routes.ROUTES,
    *event_routes.ROUTES,
    *report_routes.QUESTION_ROUTES,
    *filter_routes.ROUTES,
    *bulk_routes.ROUTES,
    *topic_routes.ROUTES,
    *limit_routes.ROUTES,
    *task_routes.ROUTES,
    *worker_routes.ROUTES,
    *schedule_routes.ROUTES,
    *key_routes.ROUTES,
    *superuser_routes.ROUTES,
    *audit_routes.ROUTES,
    *session_routes.ROUTES,
    *status_routes.ROUTES,
    *status_routes.HEALTH_ROUTES,
    *status_routes.METRICS_ROUTES,
    Route(
        method="GET",
        path="/openapi.json",
        name="openapi",
        summary="This API as an OpenAPI 3.1 document",
        permission=Permission.PUBLIC,
        handler=get_openapi,
        responses={200: None},
        tag="operating",
    ),
)
"""Every route of the API. Frequent ones first: a path is compared with one after the other."""

ROUTES_WITH_UI: Final[tuple[Route, ...]] = (*ROUTES, *ui.ROUTES)
"""The API, and the UI for browsers, which is no part of its description."""
