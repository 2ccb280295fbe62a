"""What is refused over HTTP is named, with its place and with what could stand there."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

ENQUEUE = "/api/jobs/enqueue"
MANY = "/api/jobs/enqueue-many"
BULK = "/api/jobs/bulk"
GOOD: dict[str, Any] = {"task": "mail_digest", "payload": {"userId": "1"}}


@pytest.mark.parametrize(
    ("path", "body", "pointer", "detail"),
    [
        (ENQUEUE, {**GOOD, "priority": "high"}, "#/priority", "priority: expected int, got str"),
        (ENQUEUE, {**GOOD, "until": "x"}, "#/until", "until: invalid enum value 'x'; possible are finished,"),
        (ENQUEUE, {**GOOD, "retry": {"kind": "fixed"}}, "#/retry/delay", "delay is missing"),
        (
            ENQUEUE,
            {**GOOD, "retry": {"kind": "fixed", "seconds": 3}},
            "#/retry/seconds",
            "'seconds' is unknown here and cannot be set; possible are initial, factor,",
        ),
        (MANY, {"jobs": [GOOD, {**GOOD, "delay": -1}]}, "#/jobs/1/delay", "jobs/1/delay: expected float >="),
        (MANY, {"jobs": [GOOD, {**GOOD, "tsk": 1}]}, "#/jobs/1/tsk", "'tsk' is unknown here and cannot"),
        (
            MANY,
            {"jobs": [GOOD, {**GOOD, "payload": {}}]},
            "#/jobs/1/payload/userId",
            "job 1 (counted from 0): ",
        ),
        (BULK, {"action": "run", "filter": {}}, "#/action", "action: invalid enum value 'run'; possible are"),
        (BULK, {"action": "cancel", "filter": {"limit": 1}}, "#/filter/limit", "'limit' is unknown here and"),
        (BULK, {"action": "cancel", "filter": {"status": "x"}}, "#/filter/status", "state is 'x'"),
        (BULK, {"action": "cancel", "filter": {"where": "a b:c"}}, "#/filter/where", "there is no field 'b'"),
    ],
)
async def test_a_body_is_refused_with_its_place(
    shop: httpx2.AsyncClient, path: str, body: dict[str, Any], pointer: str, detail: str
) -> None:
    """The pointer is into the body that was sent, and the detail says it to a person."""
    answer = await shop.post(path, json=body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "invalid_input")
    assert [part.get("pointer") for part in problem["errors"]] == [pointer]
    assert problem["detail"].startswith(detail)


async def test_an_error_in_a_filter_of_a_body_has_its_characters(shop: httpx2.AsyncClient) -> None:
    """As one in the query has."""
    problem = (await shop.post(BULK, json={"action": "cancel", "filter": {"where": "a b:c"}})).json()
    assert (problem["position"], problem["length"]) == (2, 1)


@pytest.mark.parametrize(
    ("query", "parameter", "detail"),
    [
        ("status=broken", "status", "the states are pending"),
        ("created_after=2026-01-31T12:00:00+00:00", "created_after", "write it as %2B"),
        ("created_after=2026-01-31", "created_after", "give a time like 2026-01-31T12:00:00Z"),
        ("created_after=1767873600", "created_after", "give a time like 2026-01-31T12:00:00Z"),
    ],
)
async def test_a_parameter_is_refused_by_the_name_it_was_given(
    shop: httpx2.AsyncClient, query: str, parameter: str, detail: str
) -> None:
    """With what to write instead."""
    problem = (await shop.get(f"/api/jobs?{query}")).json()
    assert [part["parameter"] for part in problem["errors"]] == [parameter]
    assert detail in problem["detail"]


async def test_an_empty_key_is_no_key(shop: httpx2.AsyncClient) -> None:
    """A client that meant to send one hears of it before it has made two jobs."""
    answer = await shop.post(ENQUEUE, json=GOOD, headers={"Idempotency-Key": ""})
    assert (answer.status_code, (await shop.get("/api/jobs")).json()["total"]) == (422, 0)
