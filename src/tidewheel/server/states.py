"""The states of many jobs, and the time: what programs that wait for jobs elsewhere ask again and again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

from tidewheel.clock import to_datetime
from tidewheel.server.jobs import LONGEST_WAIT
from tidewheel.server.names import StateName
from tidewheel.server.request import Request
from tidewheel.server.route import ROOT, Answer, Nothing, Permission, Route
from tidewheel.server.waiting import unless_gone

MAX_JOBS: Final = 1000
"""Most jobs that one request may ask about."""


class StatesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    wait: Annotated[
        float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for one of them to finish.")
    ] = 0.0


class StatesBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Some jobs."""

    ids: Annotated[list[UUID], Meta(min_length=1, max_length=MAX_JOBS)]


class States(Struct, frozen=True):
    """The states of these jobs, in their order; null where there is no such job for this caller."""

    states: tuple[StateName | None, ...]


class Time(Struct, frozen=True):
    """What time it is, by the clock that decides when jobs are due, and how large a request may be."""

    now: datetime
    max_request_bytes: int


async def states(request: Request[StatesQuery, StatesBody]) -> Answer:
    found = await unless_gone(request, request.app.remote.states(request.body.ids, request.query.wait))
    return Answer(States(tuple([None if state is None else str(state) for state in found])))


async def time(request: Request[Nothing, None]) -> Answer:
    app = request.app
    return Answer(Time(to_datetime(await app.remote.now()), app.settings.max_request_bytes))


ROUTES: Final = (
    Route(
        method="POST",
        path=f"{ROOT}/states",
        name="job_states",
        summary="The states of up to 1,000 jobs, waiting for one to finish when told to",
        permission=Permission.READ,
        handler=states,
        query=StatesQuery,
        body=StatesBody,
        answers={200: States},
        seconds=lambda query: query.wait,
    ),
    Route(
        method="GET",
        path=f"{ROOT}/time",
        name="time",
        summary="What time it is, and how large a request may be",
        permission=Permission.PUBLIC,
        handler=time,
        answers={200: Time},
        tag="operating",
    ),
)
