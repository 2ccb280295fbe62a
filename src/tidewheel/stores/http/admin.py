"""What operators do: jobs one by one, topics and their limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote
from uuid import UUID

from msgspec import Struct, to_builtins

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import FOREVER, ActionResult, State
from tidewheel.core.topic_limits import LimitsOrigin, Rate, TopicLimits
from tidewheel.errors import JobNotFound, NotOverHttp, WrongState
from tidewheel.stores.bounds import MAX_BATCH, check_batch
from tidewheel.stores.http.api_client import ApiClient, bounded_gather, decode_json, encode_json
from tidewheel.stores.http.job_queries import JobQueries

LONGEST_PAUSE: Final = 36_525 * 86_400.0
"""Seconds of a pause with an end: a hundred years, as everywhere."""


class Changed(Struct):
    action: str
    requested: bool


class TopicChanged(Struct):
    action: str


class Kicked(Struct):
    kicked: int


class RateShape(Struct):
    count: int
    per: float = 1.0
    burst: int | None = None


class TopicLimitsShape(Struct, kw_only=True):
    topic: str
    origin: LimitsOrigin
    concurrency: int | None = None
    rate: RateShape | None = None
    key_concurrency: int | None = None
    key_rate: RateShape | None = None
    ordered: bool = False
    fair: bool = False
    weights: dict[str, int] = {}


class LimitsRemoved(Struct):
    removed: bool


class LimitsList(Struct):
    items: list[TopicLimitsShape]


class AdminRequests:
    """The managing verbs of one opened store."""

    def __init__(self, client: ApiClient, reading: JobQueries) -> None:
        self._client = client
        self._reading = reading

    async def change_jobs(self, verb: str, job_ids: Sequence[UUID], tenant: str | None) -> list[ActionResult]:
        """``requeue``, ``cancel``, ``take-back`` or ``delete`` each of these, a few requests at a time."""
        check_batch("job ids", len(job_ids), MAX_BATCH)
        own = await self._reading.filter_by_tenant(job_ids, tenant)
        verdicts = [ActionResult.NOT_FOUND] * len(job_ids)

        async def one(places: list[int]) -> None:
            for place in places:  # who is named twice is judged twice, in that order
                verdicts[place] = await self._act_on_one(verb, job_ids[place])

        wanted: defaultdict[UUID, list[int]] = defaultdict(list)
        for place, (job_id, mine) in enumerate(zip(job_ids, own, strict=True)):
            if mine:
                wanted[job_id].append(place)
        await bounded_gather(one, wanted.values())
        return verdicts

    async def _act_on_one(self, verb: str, job_id: UUID) -> ActionResult:
        try:
            if verb == "delete":
                answer = await self._client.send_idempotent("DELETE", f"/{job_id}")
            else:
                answer = await self._client.send_idempotent("POST", f"/{job_id}/{verb}")
        except JobNotFound:
            return ActionResult.NOT_FOUND
        except WrongState:
            return await self._verdict_of_error(verb, job_id)
        changed = decode_json(answer, Changed, self._client.shown)
        return ActionResult.REQUESTED if changed.requested else ActionResult.DONE

    async def _verdict_of_error(self, verb: str, job_id: UUID) -> ActionResult:
        """The server says it in words alone."""
        if verb == "requeue":
            [state] = await self._reading.states([job_id], None)
            if state in {State.FAILED, State.CANCELLED}:
                return ActionResult.KEY_TAKEN
        return ActionResult.WRONG_STATE

    async def kick(self, topic: str, limit: int, tenant: str | None, *, failed_only: bool) -> int:
        if tenant is not None or not failed_only:
            raise NotOverHttp(
                "over HTTP failed jobs of a topic are brought back, of the token's tenant and newest first; "
                "delayed jobs cannot be kicked there"
            )
        path = f"/topics/{_escape_topic(topic)}/kick"
        answer = await self._client.send_idempotent(
            "POST", path, encode_json({"count": min(limit, MAX_BATCH)})
        )
        return decode_json(answer, Kicked, self._client.shown).kicked

    async def pause(self, topic: str, until: int | None) -> None:
        body = None
        if until is not None and until != FOREVER:
            seconds = (until - await self._reading.now()) / MICROSECONDS
            if 0 < seconds <= LONGEST_PAUSE:
                body = encode_json({"seconds": max(seconds, 0.001)})
            else:
                until = None if seconds <= 0 else FOREVER  # over already, or not in our time
        action = "resume" if until is None else "pause"
        answer = await self._client.send("POST", f"/topics/{_escape_topic(topic)}/{action}", body=body)
        decode_json(answer, TopicChanged, self._client.shown)

    async def limits(self) -> dict[str, TopicLimits]:
        found = await self._client.get("/limits", LimitsList)
        return {shape.topic: _limits(shape) for shape in found.items}

    async def set_limits(self, topic: str, limits: TopicLimits | None) -> bool:
        path = f"/limits/{_escape_topic(topic)}"
        if limits is None:
            answer = await self._client.send("DELETE", path)
            decode_json(answer, LimitsRemoved, self._client.shown)
            return True
        answer = await self._client.send("PUT", path, body=encode_json(to_builtins(limits)))
        # What an operator has set stands over what code declares.
        return decode_json(answer, TopicLimitsShape, self._client.shown).origin is limits.origin


def _limits(shape: TopicLimitsShape) -> TopicLimits:
    return TopicLimits(
        concurrency=shape.concurrency,
        rate=_rate(shape.rate),
        key_concurrency=shape.key_concurrency,
        key_rate=_rate(shape.key_rate),
        ordered=shape.ordered,
        fair=shape.fair,
        weights=shape.weights,
        origin=shape.origin,
    )


def _rate(shape: RateShape | None) -> Rate | None:
    return None if shape is None else Rate(shape.count, shape.per, shape.burst)


def _escape_topic(topic: str) -> str:
    """Dots that stand alone between slashes would be a way to another topic."""
    parts = [part.replace(".", "%2E") if part in {".", ".."} else quote(part) for part in topic.split("/")]
    return "/".join(parts)
