"""Jobs as servers show them: one, their states, lists and counts."""

from __future__ import annotations

import base64
import binascii
import time
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from msgspec import UNSET, Struct

from tidewheel.core.clock import to_datetime, to_microseconds
from tidewheel.core.conditions import ALWAYS, NEVER, AllOf, is_counted, unindexed_condition
from tidewheel.core.model import FOREVER, Count, Dependents, JobFilter, JobRecord, Page, State
from tidewheel.errors import InvalidInput, JobNotFound
from tidewheel.stores.bounds import MAX_COUNT, SEARCH_SECONDS
from tidewheel.stores.http.api_client import ApiClient, bounded_gather
from tidewheel.stores.http.filter_text import condition_to_text
from tidewheel.stores.http.response_models import (
    JobDetail,
    JobList,
    JobResult,
    JobSummary,
    decode_body,
    to_dependents,
    to_full_record,
    to_microseconds_or_none,
    to_record,
)

LARGEST_PAGE: Final = 200
"""Most jobs a server tells of at a time."""
CURSOR_BYTES: Final = 20
"""A server's cursors are so many bytes; here each is their number."""
_MAX_CACHED_OWNERS: Final = 10_000
"""Jobs of which it is remembered whose they are."""


class TimeShape(Struct):
    now: datetime


class StatesShape(Struct):
    states: list[State | None]


class JobQueries:
    """The reading verbs of one opened store."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._owners: OrderedDict[UUID, str] = OrderedDict()

    async def now(self) -> int:
        return to_microseconds((await self._client.get("/time", TimeShape)).now)

    async def get(self, job_id: UUID, tenant: str | None) -> JobRecord | None:
        shape = await self._detail(job_id)
        if shape is None or not belongs_to(shape.tenant, tenant):
            return None
        result = None
        if shape.result is UNSET and shape.state is State.COMPLETED:
            # Bodies are for those who manage jobs; results are for those who may see the job, too.
            try:
                told = await self._client.get(f"/{job_id}/result", JobResult)
            except JobNotFound:
                return None
            result = decode_body(told.result)
        return to_full_record(shape, result)

    async def dependents(self, job_id: UUID, limit: int, tenant: str | None) -> Dependents:
        shape = await self._detail(job_id)
        if shape is None or not belongs_to(shape.tenant, tenant):
            return Dependents((), Count(0))
        return to_dependents(shape.dependents, limit)

    async def states(
        self, job_ids: Sequence[UUID], tenant: str | None, *, wait: float = 0.0
    ) -> list[State | None]:
        """As many as a request may carry. ``wait``: until one of them is final, at most so many seconds."""
        if not job_ids:
            return []
        ids = {"ids": [str(job_id) for job_id in job_ids]}
        states = (await self._client.post("/states", ids, StatesShape, wait=wait)).states
        if tenant is None:
            return states
        own = await self.filter_by_tenant(job_ids, tenant)
        return [state if mine else None for state, mine in zip(states, own, strict=True)]

    async def filter_by_tenant(self, job_ids: Sequence[UUID], tenant: str | None) -> list[bool]:
        """Which of these jobs are a tenant's. A token may be good for all tenants, and the server is not told
        for whom this program acts.
        """
        if tenant is None:
            return [True] * len(job_ids)

        async def is_own(job_id: UUID) -> bool:
            owner = self._owners.get(job_id)
            if owner is None:
                shape = await self._detail(job_id)
                owner = None if shape is None else shape.tenant
            return owner == tenant

        return await bounded_gather(is_own, job_ids)

    async def list_jobs(self, where: JobFilter, limit: int, cursor: int | None, offset: int) -> Page:
        query = filter_to_query(where)
        items: list[JobRecord] = []
        place = None if cursor is None else _cursor_text(cursor)
        while query is not None:
            page = await self._client.get(
                "",
                JobList,
                {**query, "limit": min(limit - len(items), LARGEST_PAGE), "cursor": place, "offset": offset},
            )
            items += [self._to_record(shape) for shape in page.items]
            place, offset = page.cursor, 0
            if place is None or page.partial or len(items) >= limit:
                back_to = to_microseconds_or_none(page.searched_back_to)
                return Page(tuple(items), _cursor_number(place), page.partial, back_to)
        return Page(())

    async def count(self, where: JobFilter) -> Count:
        query = filter_to_query(where)
        if query is None:
            return Count(0)
        if unindexed_condition(where) is None or is_counted(where):
            page = await self._client.get("", JobList, {**query, "limit": 1})
            return Count(page.total, page.total_exact)
        # A search is counted by what it finds, page by page, for as long as a search may take.
        total, until, place = 0, time.monotonic() + SEARCH_SECONDS, None
        while True:
            page = await self._client.get("", JobList, {**query, "limit": LARGEST_PAGE, "cursor": place})
            total, place = total + len(page.items), page.cursor
            if place is None:
                return Count(total)
            if total >= MAX_COUNT or page.partial or time.monotonic() >= until:
                return Count(min(total, MAX_COUNT), exact=False)

    async def _detail(self, job_id: UUID) -> JobDetail | None:
        try:
            shape = await self._client.get(f"/{job_id}", JobDetail)
        except JobNotFound:
            return None
        self._remember(shape)
        return shape

    def _to_record(self, shape: JobSummary) -> JobRecord:
        self._remember(shape)
        return to_record(shape)

    def _remember(self, shape: JobSummary) -> None:
        self._owners[shape.id] = shape.tenant  # which never changes
        if len(self._owners) > _MAX_CACHED_OWNERS:
            self._owners.popitem(last=False)


def belongs_to(owner: str, tenant: str | None) -> bool:
    """Whether a job is for somebody who asks on a tenant's behalf; None is whoever the token is for."""
    return tenant is None or tenant == owner


def filter_to_query(where: JobFilter) -> dict[str, Any] | None:
    """A filter as the parameters of a list; None when nothing can match it."""
    condition = where.condition or ALWAYS
    if condition == NEVER:
        return None
    if condition == ALWAYS:
        text = None
    elif isinstance(condition, AllOf):
        text = " ".join(map(condition_to_text, condition.parts))
    else:
        text = condition_to_text(condition)
    return {
        "where": text,
        "topic": where.topic,
        "task": where.task,
        "state": where.state,
        "tenant": where.tenant,
        "key": where.key,
        "correlation_id": where.correlation_id,
        "created_after": _moment(where.created_after),
        "created_before": _moment(where.created_before),
        "text": where.text,
    }


def _moment(microseconds: int | None) -> str | None:
    if microseconds is None:
        return None
    return to_datetime(min(microseconds, FOREVER)).isoformat()


def _cursor_number(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        place = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        place = b""
    if len(place) != CURSOR_BYTES:
        raise InvalidInput(
            "the server gave a cursor that this Tidewheel does not know; update one of the two"
        )
    return int.from_bytes(place, "big")


def _cursor_text(number: int) -> str:
    if number.bit_length() > 8 * CURSOR_BYTES:
        raise InvalidInput("cursor is none that this server gave; start again without one")
    return base64.urlsafe_b64encode(number.to_bytes(CURSOR_BYTES, "big")).decode("ascii").rstrip("=")
