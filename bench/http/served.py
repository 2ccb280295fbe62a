"""The apps that are measured: Tidewheel as it is served, and an endpoint that only reads and writes JSON."""

from __future__ import annotations

import json
import os
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tidewheel import Tidewheel

app = Tidewheel()


@app.task(topic="mail_digest")
async def send_digest(user_id: str, note: str = "") -> None:
    """Never run here."""


def bare() -> Starlette:
    """Parses what it is sent and answers what Tidewheel answered to the same request."""
    answer: Any = json.loads(os.environ["BARE_ANSWER"])

    async def enqueue(request: Request) -> JSONResponse:
        await request.json()
        return JSONResponse(answer, 201)

    return Starlette(routes=[Route("/api/jobs/enqueue", enqueue, methods=["POST"])])
