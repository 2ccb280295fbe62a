"""Leases over HTTP: a job and a fence, which every write of a worker carries."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias
from uuid import UUID

from msgspec import Meta, Struct

from tidewheel.model import Lease
from tidewheel.server.problems import refused
from tidewheel.server.request import Request
from tidewheel.server.route import ROOT, Answer, Nothing, Permission, Route
from tidewheel.settings import DAY, LONGEST

PATH: Final = f"{ROOT}/work"
TAG: Final = "work"
MAX_LEASES: Final = 1000
"""Most leases of one request."""

Fence: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
RunSeconds: TypeAlias = Annotated[float, Meta(ge=0, le=LONGEST, description="Seconds the handler ran.")]
LeaseSeconds: TypeAlias = Annotated[float, Meta(ge=1, le=DAY, description="Seconds.")]


class LeaseBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The right to end one job, as ``reserve`` gave it."""

    id: UUID
    fence: Fence

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.fence)


Leases: TypeAlias = Annotated[list[LeaseBody], Meta(min_length=1, max_length=MAX_LEASES)]


class LeasesBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some leases."""

    leases: Leases


class StartBody(LeasesBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leases whose handlers have begun, and how long ago each did: now unless told. ``alone``: nothing else
    runs in the worker, so its death counts as an attempt. In company it never does, because any of the jobs
    may have caused it.
    """

    run_seconds: Annotated[list[RunSeconds], Meta(max_length=MAX_LEASES)] = []
    alone: bool = True


class ExtendBody(LeasesBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leases, and how long each is to last from now: as long as the server's ``lease`` unless told."""

    lease: LeaseSeconds | None = None


class Held(Struct, frozen=True):
    """Whether each lease is held, in the order they were given. Where one is not, nothing was changed."""

    held: tuple[bool, ...]


class Extended(Struct, frozen=True):
    """The same, and whether somebody wants the job to stop."""

    held: tuple[bool, ...]
    cancel_requested: tuple[bool, ...]


class Cancellations(Struct, frozen=True):
    """Whether somebody wants each of these jobs to stop."""

    cancel_requested: tuple[bool, ...]


async def start(request: Request[Nothing, StartBody]) -> Answer:
    body = request.body
    if body.run_seconds and len(body.run_seconds) != len(body.leases):
        raise refused(
            f"run_seconds has {len(body.run_seconds):,} items for {len(body.leases):,} leases; "
            "give one for each, or leave it out",
            pointer="#/run_seconds",
        )
    held = await request.app.remote.start(_leases(body), body.run_seconds, alone=body.alone)
    return Answer(Held(tuple(held)))


async def extend(request: Request[Nothing, ExtendBody]) -> Answer:
    remote, leases = request.app.remote, _leases(request.body)
    held = await remote.extend(leases, request.body.lease or request.app.settings.lease)
    return Answer(Extended(tuple(held), tuple(await remote.cancel_requests(leases))))


async def cancellations(request: Request[Nothing, LeasesBody]) -> Answer:
    return Answer(Cancellations(tuple(await request.app.remote.cancel_requests(_leases(request.body)))))


def _leases(body: LeasesBody) -> list[Lease]:
    return [item.lease for item in body.leases]


ROUTES: Final = (
    Route(
        method="POST",
        path=f"{PATH}/extend",
        name="extend_leases",
        summary="Make leases last longer",
        permission=Permission.WORK,
        handler=extend,
        body=ExtendBody,
        answers={200: Extended},
        tag=TAG,
    ),
    Route(
        method="POST",
        path=f"{PATH}/cancellations",
        name="cancel_requests",
        summary="Which of these jobs somebody wants to stop",
        permission=Permission.WORK,
        handler=cancellations,
        body=LeasesBody,
        answers={200: Cancellations},
        tag=TAG,
    ),
    Route(
        method="POST",
        path=f"{PATH}/start",
        name="start_jobs",
        summary="Record that handlers have begun, so that a crash counts as an attempt",
        permission=Permission.WORK,
        handler=start,
        body=StartBody,
        answers={200: Held},
        tag=TAG,
    ),
)
