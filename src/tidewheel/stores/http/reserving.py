"""One claim as a request: what a worker asks a server for, and the jobs that it is told of."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from tidewheel.clock import to_microseconds
from tidewheel.errors import Backpressure, NotOverHttp, StoreUnavailable
from tidewheel.model import BodyFormat, Claim, Claimed, ClaimRequest, Lease
from tidewheel.stores.http.client import Client, decoded, encoded
from tidewheel.stores.http.shapes import body_of, bytes_of
from tidewheel.stores.http.working import WORK, lanes_body

MOST_LANES: Final = 1000
"""Topics and tasks that a worker may wait for at a server."""
MOST_JOBS: Final = 1000
"""Jobs that it may ask for, and have room for, in one request."""


class ReservedJob(Struct, kw_only=True):
    """A job in a worker's hands, as the server tells it."""

    id: UUID
    fence: int
    topic: str
    task: str
    tenant: str
    priority: int
    attempt: int
    max_attempts: int | None
    timeout: float | None
    retry: Raw  # null where it has none of its own
    lease_seconds: float
    payload: Raw
    format: BodyFormat
    checkpoint: Raw | UnsetType = UNSET
    number: int
    created_at: datetime
    run_at: datetime
    key: str | None
    correlation_id: str | None
    user_id: str | None
    service_id: str | None
    headers: dict[str, str] = {}
    losses: int = 0


class Reservation(Struct, kw_only=True):
    jobs: list[ReservedJob]
    next_due_in: float | None = None
    kept_back: bool = False


class Reserving:
    """The claims of one opened store."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask(self, request: ClaimRequest, request_id: str, wait: float) -> Claim:
        """One claim at the server, perhaps not for the first time."""
        if len(request.lanes) > MOST_LANES:
            raise NotOverHttp(
                f"this worker would wait for {len(request.lanes):,} topics and tasks; the limit is "
                f"{MOST_LANES:,} over HTTP: share them between several workers, with topics="
            )
        limits = request.topic_limits
        body: dict[str, Any] = {
            "lanes": lanes_body(request.lanes),
            "limit": min(request.limit, MOST_JOBS),
            "lease": request.lease_seconds,
            "worker": request.worker,
            "reports_starts": request.reports_starts,
            "free": None if request.free is None else min(request.free, MOST_JOBS),
            "topic_limits": {topic: min(most, MOST_JOBS) for topic, most in limits.items()},
        }
        try:
            answer = await self._client.send(
                "POST", f"{WORK}/reserve", body=encoded(body), request_id=request_id, wait=wait
            )
        except Backpressure as error:
            # As many wait there as it allows (max_waiters): for a worker that is a server to come back to.
            raise StoreUnavailable(f"the server has no room for another worker: {error}") from None
        found = decoded(answer, Reservation, self._client.shown)
        return Claim(tuple(_claimed(job) for job in found.jobs), found.next_due_in, found.kept_back)


def _claimed(job: ReservedJob) -> Claimed:
    payload = bytes(job.payload)
    return Claimed(
        lease=Lease(job.id, job.fence),
        topic=job.topic,
        task=job.task,
        tenant=job.tenant,
        priority=job.priority,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        retry=None if bytes(job.retry) == b"null" else bytes(job.retry).decode(),
        lease_seconds=job.lease_seconds,
        payload=bytes_of(payload) if job.format is BodyFormat.BYTES else payload,
        format=job.format,
        checkpoint=body_of(job.checkpoint),
        number=job.number,
        created_at=to_microseconds(job.created_at),
        run_at=to_microseconds(job.run_at),
        key=job.key,
        correlation_id=job.correlation_id,
        user_id=job.user_id,
        service_id=job.service_id,
        headers=msgspec.json.encode(job.headers).decode() if job.headers else None,
        losses=job.losses,
    )
