"""Limits of topics: listing, setting and removing them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from tidewheel.core.topic_limits import (
    MAX_CONCURRENCY,
    MAX_RATE_COUNT,
    MAX_RATE_SECONDS,
    MAX_WEIGHT,
    MAX_WEIGHTS,
    Rate,
    TopicLimits,
)
from tidewheel.errors import InvalidInput
from tidewheel.server.field_types import TenantName
from tidewheel.server.problems import INVALID_INPUT, Problem
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route

SlotCount = Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY)]
StartCount = Annotated[int, Meta(ge=1, le=MAX_RATE_COUNT)]


class RateBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most ``count`` starts in ``per`` seconds; ``burst`` of them at once after a quiet time, or
    ``count``.
    """

    count: StartCount
    per: Annotated[float, Meta(gt=0, le=MAX_RATE_SECONDS, description="Seconds.")] = 1.0
    burst: StartCount | None = None


class LimitsBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to hold for the jobs of a topic, of all workers together. At least one of them.

    Keys are the jobs' ``limit_key``, each of one tenant. ``origin``: ``code`` for what the tasks of a worker
    declare, which does not change what an operator has set; the answer has what is in force.
    """

    concurrency: SlotCount | None = None
    rate: RateBody | None = None
    key_concurrency: SlotCount | None = None
    key_rate: RateBody | None = None
    ordered: bool = False
    fair: bool = False
    weights: Annotated[
        dict[TenantName, Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]], Meta(max_length=MAX_WEIGHTS)
    ] = {}
    origin: Literal["code", "operator"] = "operator"


class TopicLimitsShape(Struct, frozen=True, kw_only=True):
    """The limits of a topic; ``text`` says them in a line, ``origin`` tells who set them."""

    topic: str
    origin: Literal["code", "operator"]
    text: str
    concurrency: int | None
    rate: RateBody | None
    key_concurrency: int | None
    key_rate: RateBody | None
    ordered: bool
    fair: bool
    weights: dict[str, int]


class LimitsList(Struct, frozen=True):
    """Topics that have limits, by name."""

    items: tuple[TopicLimitsShape, ...]


class LimitsRemoved(Struct, frozen=True):
    """``removed`` is false when the topic had none."""

    topic: str
    removed: bool


async def list_limits(request: Request[NoQuery, None]) -> Response:
    found = await request.app.limits.list()
    return Response(LimitsList(tuple(_shape(topic, limits) for topic, limits in found.items())))


async def set_limits(request: Request[NoQuery, LimitsBody]) -> Response:
    topic, body = request.path["topic"], request.body
    try:
        limits = TopicLimits(
            concurrency=body.concurrency,
            rate=_rate(body.rate),
            key_concurrency=body.key_concurrency,
            key_rate=_rate(body.key_rate),
            ordered=body.ordered,
            fair=body.fair,
            weights=body.weights,
        )
    except InvalidInput as error:
        raise Problem(INVALID_INPUT, str(error)) from None
    if body.origin == "code":
        return await _declare(request, topic, limits)
    details = {"limits": str(limits)}
    async with request.api.authenticator.record_action(request, "limits.set", target=topic, details=details):
        await request.app.limits.set(topic, limits)
    return Response(_shape(topic, limits))


async def _declare(request: Request[NoQuery, LimitsBody], topic: str, limits: TopicLimits) -> Response:
    details = {"limits": str(limits), "origin": "code"}
    async with request.api.authenticator.record_action(
        request, "limits.set", target=topic, details=details
    ) as entry:
        entry.discard = not await request.app.limits.declare(topic, limits)
    present = await request.app.limits.get(topic) or limits
    return Response(_shape(topic, present))


async def remove_limits(request: Request[NoQuery, None]) -> Response:
    topic = request.path["topic"]
    async with request.api.authenticator.record_action(request, "limits.remove", target=topic) as entry:
        removed = entry.details["removed"] = await request.app.limits.remove(topic)
    return Response(LimitsRemoved(topic, removed))


def _rate(body: RateBody | None) -> Rate | None:
    return None if body is None else Rate(body.count, body.per, body.burst)


def _shape(topic: str, limits: TopicLimits) -> TopicLimitsShape:
    return TopicLimitsShape(
        topic=topic,
        origin=limits.origin.value,
        text=str(limits),
        concurrency=limits.concurrency,
        rate=_rate_shape(limits.rate),
        key_concurrency=limits.key_concurrency,
        key_rate=_rate_shape(limits.key_rate),
        ordered=limits.ordered,
        fair=limits.fair,
        weights=dict(limits.weights),
    )


def _rate_shape(rate: Rate | None) -> RateBody | None:
    return None if rate is None else RateBody(count=rate.count, per=rate.per, burst=rate.burst)


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/limits",
        name="list_limits",
        summary="Every topic that has limits, and what they are",
        permission=Permission.SUPERUSER,
        handler=list_limits,
        responses={200: LimitsList},
        tag="topics",
    ),
    Route(
        method="PUT",
        path=f"{API_ROOT}/limits/{{topic:path}}",
        name="set_limits",
        summary="Limit a topic: what runs at once, how fast, in which order, for whom",
        permission=Permission.SUPERUSER,
        handler=set_limits,
        body=LimitsBody,
        responses={200: TopicLimitsShape},
        tag="topics",
    ),
    Route(
        method="DELETE",
        path=f"{API_ROOT}/limits/{{topic:path}}",
        name="remove_limits",
        summary="Remove the limits of a topic",
        permission=Permission.SUPERUSER,
        handler=remove_limits,
        responses={200: LimitsRemoved},
        tag="topics",
    ),
)
