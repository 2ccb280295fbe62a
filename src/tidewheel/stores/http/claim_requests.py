"""Claim requests to the server, at once or as a long poll.

``ReserveClient`` sends one claim and decodes the jobs. ``LongPoll`` is a claim that waits at the server for
up to 20 seconds, which is less than proxies allow. It can be ended early, and it records when its response
arrived, because the leases of the jobs count from then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace as replace_struct

from tidewheel.core.clock import to_microseconds
from tidewheel.core.model import BodyFormat, Claim, Claimed, ClaimRequest, Lease
from tidewheel.errors import Backpressure, NotOverHttp, StoreError, StoreUnavailable
from tidewheel.stores.http.api_client import ApiClient, decode_json, encode_json, new_request_id
from tidewheel.stores.http.response_models import decode_base64, decode_body
from tidewheel.stores.http.settlements import WORK_PATH, lanes_body

MAX_LANES_PER_REQUEST: Final = 1000
"""Topics and tasks that a worker may wait for at a server."""
MAX_JOBS_PER_REQUEST: Final = 1000
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


class ReserveClient:
    """The claims of one opened store."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def reserve(self, request: ClaimRequest, request_id: str, wait: float) -> Claim:
        """One claim at the server, perhaps not for the first time."""
        if len(request.lanes) > MAX_LANES_PER_REQUEST:
            raise NotOverHttp(
                f"this worker would wait for {len(request.lanes):,} topics and tasks; the limit is "
                f"{MAX_LANES_PER_REQUEST:,} over HTTP: share them between several workers, with topics="
            )
        limits = request.topic_limits
        body: dict[str, Any] = {
            "lanes": lanes_body(request.lanes),
            "limit": min(request.limit, MAX_JOBS_PER_REQUEST),
            "lease": request.lease_seconds,
            "worker": request.worker,
            "reports_starts": request.reports_starts,
            "free": None if request.free_slots is None else min(request.free_slots, MAX_JOBS_PER_REQUEST),
            "topic_limits": {topic: min(most, MAX_JOBS_PER_REQUEST) for topic, most in limits.items()},
        }
        try:
            answer = await self._client.send(
                "POST", f"{WORK_PATH}/reserve", body=encode_json(body), request_id=request_id, wait=wait
            )
        except Backpressure as error:
            # As many wait there as it allows (max_waiters): for a worker that is a server to come back to.
            raise StoreUnavailable(f"the server has no room for another worker: {error}") from None
        found = decode_json(answer, Reservation, self._client.shown)
        return Claim(tuple(_to_claimed(job) for job in found.jobs), found.next_due_in, found.kept_back)


def _to_claimed(job: ReservedJob) -> Claimed:
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
        payload=decode_base64(payload) if job.format is BodyFormat.BYTES else payload,
        format=job.format,
        checkpoint=decode_body(job.checkpoint),
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


POLL_SECONDS: Final = 20.0
"""How long a claim waits at the server: shorter than proxies wait for an answer."""
EARLY_ANSWER_SECONDS: Final = 1.0
"""A claim that is answered sooner, with nothing, is that of a server that shuts down, or of something between
that lets nobody wait: the next one waits here for about as long, or they would ask without a pause."""
LOOP_CHECK_SECONDS: Final = 0.1
"""How often it is noted that the event loop runs: an answer may have waited for as long as it did not."""


class LongPoll:
    """One claim that waits at the server."""

    def __init__(
        self, reserving: ReserveClient, request: ClaimRequest, on_answer: Callable[[LongPoll], None]
    ) -> None:
        self.request = request
        self.id = new_request_id()
        self.ended = False  # nobody wants it to wait any longer
        self._reserving = reserving
        self._on_answer = on_answer
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._wait = POLL_SECONDS
        self.answered_no_earlier_than = (
            0.0  # by the loop's clock: what it brought came no earlier, but for its way here
        )
        self._answered_at = 0.0  # no earlier than that
        self._loop_ran_at = 0.0  # when the loop last had time for it
        self._loop_ran_before = 0.0  # and the time before
        self._asking = asyncio.create_task(reserving.reserve(request, self.id, self._wait))
        self._asking.add_done_callback(self._answered)
        self._ending: asyncio.Task[Claim] | None = None
        self._tick()

    def _tick(self) -> None:
        self._loop_ran_before, self._loop_ran_at = self._loop_ran_at or self._began_at, self._loop.time()
        if not self._asking.done():
            self._loop.call_later(LOOP_CHECK_SECONDS, self._tick)

    @property
    def is_waiting(self) -> bool:
        """Whether it waits at the server, for all that is known."""
        return not self.ended and not self._asking.done()

    @property
    def ended_early(self) -> bool:
        """Whether it was answered by itself, without a job, or failed, when it had hardly begun to wait."""
        waited = self._answered_at - self._began_at
        if self._asking.cancelled() or waited >= min(EARLY_ANSWER_SECONDS, self._wait / 2):
            return False
        return self._asking.exception() is not None or not self._asking.result().jobs

    def matches(self, request: ClaimRequest) -> bool:
        """Whether what it brings is of these lanes."""
        return self.request.worker == request.worker and self.request.lanes == request.lanes

    def covers(self, request: ClaimRequest, *, needs_more_slots: bool) -> bool:
        """Whether a claim asks for nothing that this one would not bring.

        ``kept_back``: the last claim was told of jobs for a worker with more free slots.
        """
        mine = self.request
        if mine.free_slots is None or request.free_slots is None or needs_more_slots:
            offers = mine.free_slots == request.free_slots
        else:
            offers = mine.free_slots > 0 or request.free_slots == 0
        return (
            offers
            and request.limit >= mine.limit
            and request.lease_seconds == mine.lease_seconds
            and request.topic_limits == mine.topic_limits
        )

    def end(self) -> asyncio.Task[Claim]:
        """Have it answered now; what it brought. Repeated under its id a claim does not wait any longer."""
        if self._ending is None:
            self.ended = True
            self._ending = asyncio.create_task(self._end())
            self._ending.add_done_callback(_consume_exception)
        return self._ending

    async def _end(self) -> Claim:
        if self._asking.done():
            return await self._asking
        asked_at = self._loop.time()
        try:
            claim = await self._reserving.reserve(self.request, self.id, 0.0)
        except StoreError:
            if not self._brought_jobs:
                raise
            claim = Claim(())
        finally:
            self._asking.cancel()
        if self._brought_jobs:
            # While it was asked again. Another server, behind the same address, does not know of them.
            return _merge_claims(self._asking.result(), claim)
        self.answered_no_earlier_than = asked_at
        return claim

    @property
    def _brought_jobs(self) -> bool:
        """Whether the request that waited was answered with jobs."""
        asking = self._asking
        if not asking.done() or asking.cancelled() or asking.exception() is not None:
            return False
        return bool(asking.result().jobs)

    def _answered(self, asking: asyncio.Task[Claim]) -> None:
        if not asking.cancelled():
            self._answered_at = self._loop.time()
            # A handler that blocks the loop also keeps it from seeing an answer, and after that the loop may
            # have time for the tick before it has time for the answer.
            self.answered_no_earlier_than = self._loop_ran_before
            _consume_exception(asking)
        self._on_answer(self)


def _consume_exception(done: asyncio.Task[Claim]) -> None:
    """Its error is told where the poll is collected, if it is."""
    if not done.cancelled():
        done.exception()


def _merge_claims(first: Claim, second: Claim) -> Claim:
    """What both brought; the same server tells the same jobs again."""
    jobs = {job.lease: job for job in (*first.jobs, *second.jobs)}
    return replace_struct(second, jobs=tuple(jobs.values()))
