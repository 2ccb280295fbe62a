"""Requests that come again because their answer did not: done once, answered the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import httpx2
import jwt
import pytest

from tests.server.conftest import Asking, asking, make_app
from tests.server.worker_client import lease, post, settle, take
from tidewheel.core.model import Lease
from tidewheel.server import idempotent_requests
from tidewheel.server.endpoint import encode_json
from tidewheel.server.idempotent_requests import IdempotentRequests
from tidewheel.server.route import Response


async def test_a_repeated_enqueue_makes_one_job(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """With the same answer; another id, and another caller's, is another request."""
    body = {"task": "mail_digest", "payload": {"userId": "1"}}
    name = {"Tidewheel-Request-Id": "one"}
    first, again = [await shop.post("/api/jobs/enqueue", json=body, headers=name) for _ in range(2)]
    assert (first.status_code, again.status_code, first.json()) == (201, 201, again.json())
    assert first.headers["location"] == again.headers["location"]
    assert (await ask.app.count()).total == 1
    other = await ask.with_key(tenant="other")
    await other.post("/api/jobs/enqueue", json=body, headers=name)
    await shop.post("/api/jobs/enqueue", json=body, headers={"Tidewheel-Request-Id": "two"})
    assert (await ask.app.count()).total == 3


async def test_a_repeat_may_come_with_a_renewed_token() -> None:
    """Programs that make a token for each request repeat theirs, too; one that says something else is another
    caller's.
    """
    secret = "a shared secret of more than thirty-two bytes"  # noqa: S105 - of this test
    now = int(time.time())

    async def enqueue(ask: Asking, **claims: Any) -> Any:
        shown = jwt.encode({"sub": "ada", "tenant": "shop", **claims}, secret, "HS256")
        body = {"task": "mail_digest", "payload": {"userId": "1"}}
        name = {"Tidewheel-Request-Id": "one", "Authorization": f"Bearer {shown}"}
        return (await ask.client().post("/api/jobs/enqueue", json=body, headers=name)).json()["id"]

    scopes = ("enqueue",)
    async with asking(
        make_app(jwt_secret=secret, jwt_tenant_claim="tenant", jwt_default_scopes=scopes)
    ) as ask:
        first = await enqueue(ask, exp=now + 60, jti="1")
        assert await enqueue(ask, exp=now + 90, jti="2") == first
        others = [{"sub": "bob"}, {"tenant": "other"}, {"role": "staff"}, {"scope": "tidewheel:enqueue"}]
        assert len({first, *[await enqueue(ask, exp=now + 60, **claims) for claims in others]}) == 5


async def test_a_kick_is_repeated_without_kicking_more(
    ask: Asking, worker: httpx2.AsyncClient, shop: httpx2.AsyncClient
) -> None:
    for _ in range(3):
        await ask.app.enqueue("refuse", tenant="shop")
    for job in await take(worker, "refuse", limit=3):
        await settle(worker, job, "fail", error={"code": "odd", "message": "no"})
    name = {"Tidewheel-Request-Id": "one"}
    answers = [
        (await shop.post("/api/jobs/topics/refuse/kick", json={"count": 1}, headers=name)).json()
        for _ in range(2)
    ]
    assert [answer["kicked"] for answer in answers] == [1, 1]
    assert (await ask.app.stats()).failed == 2


async def test_an_id_of_another_request_is_refused(ask: Asking, shop: httpx2.AsyncClient) -> None:
    name = {"Tidewheel-Request-Id": "one"}
    body = {"task": "mail_digest", "payload": {"userId": "1"}}
    await shop.post("/api/jobs/enqueue", json=body, headers=name)
    body["payload"] = {"userId": "2"}
    answer = await shop.post("/api/jobs/enqueue", json=body, headers=name)
    assert (answer.status_code, "another body" in answer.json()["detail"]) == (422, True)
    for wrong in ("", "a b", "x" * 101):
        answer = await shop.post("/api/jobs/enqueue", json=body, headers={"Tidewheel-Request-Id": wrong})
        assert answer.status_code == 422, wrong
    assert (await ask.app.count()).total == 1


async def test_a_request_that_was_refused_may_have_more_luck(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """Nothing was done, so nothing is remembered."""
    body = {"topic": "new", "payload": {}}
    name = {"Tidewheel-Request-Id": "one"}
    assert (await shop.post("/api/jobs/enqueue", json=body, headers=name)).status_code == 403

    @ask.app.task(topic="new")
    def new() -> None: ...

    assert (await shop.post("/api/jobs/enqueue", json=body, headers=name)).status_code == 201


@pytest.mark.parametrize("limit", ["KEEP_RESPONSES_SECONDS", "MAX_RESPONSES", "MAX_RESPONSE_BYTES"])
async def test_what_is_at_work_is_never_forgotten(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """However long it takes and whatever else is done meanwhile: its repeat would do it a second time."""
    monkeypatch.setattr(idempotent_requests, limit, 0)
    known, through, done = IdempotentRequests(encode_json), asyncio.Event(), 0

    async def slow() -> Response:
        nonlocal done
        done += 1
        await through.wait()
        return Response(done)

    async def other() -> Response:
        return Response(b"x" * 100)

    first = asyncio.create_task(known.run_once("me", "a", b"", slow))
    await asyncio.sleep(0)
    for number in range(3):
        await known.run_once("me", number, b"", other)
    again = asyncio.create_task(known.run_once("me", "a", b"", slow))
    await asyncio.sleep(0)
    through.set()
    assert [(await task).body for task in (first, again)] == [b"1", b"1"]
    await known.run_once("me", "b", b"", other)
    assert list(known._records) == ["b"], "what is done gives way"


@pytest.mark.parametrize(("limit", "most"), [("MAX_RESPONSES", 20), ("MAX_RESPONSE_BYTES", 2000)])
async def test_one_who_sends_a_lot_makes_nobody_elses_forgotten(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """A tenant that imports a million jobs; another one's repeat would make a second job."""
    monkeypatch.setattr(idempotent_requests, limit, most)
    known, done = IdempotentRequests(encode_json), 0

    async def work() -> Response:
        nonlocal done
        done += 1
        return Response(b"x" * 100)

    await known.run_once("other", "the other's", b"", work)
    for number in range(100):
        await known.run_once("bulk", number, b"", work)
    await known.run_once("other", "the other's", b"", work)
    await known.run_once("bulk", 99, b"", work)
    assert done == 101
    assert len(known._records) <= 22
    for number in range(100):  # of many who send little, the oldest give way
        await known.run_once(f"small {number}", f"small's {number}", b"", work)
    assert "the other's" not in known._records
    assert len(known._usage_by_sender) == len(known._completed) <= 22


async def test_a_request_that_failed_is_not_kept() -> None:
    known, done = IdempotentRequests(encode_json), 0

    async def work() -> Response:
        nonlocal done
        done += 1
        if done == 1:
            raise ValueError("the first time")
        return Response(done)

    with pytest.raises(ValueError, match="the first time"):
        await known.run_once("me", "a", b"", work)
    assert (await known.run_once("me", "a", b"", work)).body == b"2"


async def test_a_repeated_copy_makes_one_job(ask: Asking) -> None:
    root = await ask.with_key(superuser=True)
    made = await ask.app.enqueue("mail_digest", {"userId": "1"})
    name = {"Tidewheel-Request-Id": "one"}
    answers = [await root.post(f"/api/jobs/{made.id}/copy", json={}, headers=name) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert (await ask.app.count()).total == 2


async def test_a_schedule_that_is_run_by_hand_again_makes_one_job(ask: Asking) -> None:
    root = await ask.with_key(superuser=True)
    body = {"name": "digests", "task": "mail_digest", "payload": {"userId": "1"}, "every": 3600}
    assert (await root.post("/api/jobs/schedules", json=body)).status_code == 201
    name = {"Tidewheel-Request-Id": "one"}
    answers = [await root.post("/api/jobs/schedules/digests/run", headers=name) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert (await ask.app.count()).total == 1


async def test_a_server_that_stops_still_tells_what_it_granted(
    ask: Asking, worker: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat is how a worker stops without leaving a job behind; an empty answer would be the last word."""
    await ask.app.enqueue("sums")
    name = {"Tidewheel-Request-Id": "one"}
    first = await post(worker, "reserve", {"topics": ["sums"]}, **name)
    original = ask.app.store.extend

    async def extend(leases: Sequence[Lease], seconds: float) -> list[bool]:
        await asyncio.sleep(0.01)  # as any database would
        return await original(leases, seconds)

    monkeypatch.setattr(ask.app.store, "extend", extend)
    ask.api.closing.set()
    again = await post(worker, "reserve", {"topics": ["sums"]}, **name)
    assert (again["repeated"], [job["id"] for job in again["jobs"]]) == (True, [first["jobs"][0]["id"]])


async def test_a_repeat_of_one_at_work_waits_for_it(
    ask: Asking, shop: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job, one answer, also when the first client has long hung up."""
    through, calls = asyncio.Event(), []
    original = ask.app.store.enqueue

    async def enqueue(jobs: Any) -> Any:
        calls.append(jobs)
        await through.wait()
        return await original(jobs)

    monkeypatch.setattr(ask.app.store, "enqueue", enqueue)
    body = {"task": "mail_digest", "payload": {"userId": "1"}}

    def send() -> asyncio.Task[httpx2.Response]:
        name = {"Tidewheel-Request-Id": "one"}
        return asyncio.create_task(shop.post("/api/jobs/enqueue", json=body, headers=name))

    first, again = send(), send()
    while not calls:
        await asyncio.sleep(0)
    first.cancel()
    through.set()
    assert (await again).status_code == 201
    assert len(calls) == 1


async def test_a_repeated_settlement_is_told_the_same(ask: Asking, worker: httpx2.AsyncClient) -> None:
    """Whatever it was: that it was accepted, not that somebody else has the job."""
    made = await ask.app.enqueue("sums")
    (job,) = await take(worker, "sums")
    ending = {"settlements": [{**lease(job), "outcome": "release"}]}
    name = {"Tidewheel-Request-Id": "one"}
    for _ in range(2):
        assert (await post(worker, "settle", ending, **name))["accepted"] == [True]
    assert (await ask.app.queue.stats_job(made.id)).releases == 1


async def test_a_repeated_reservation_grants_nothing_more(ask: Asking, worker: httpx2.AsyncClient) -> None:
    await ask.app.enqueue_many("sums", [{}, {}])
    name = {"Tidewheel-Request-Id": "one"}
    first = await post(worker, "reserve", {"topics": ["sums"]}, **name)
    again = await post(worker, "reserve?wait=30", {"topics": ["sums"]}, **name)
    assert (first["repeated"], again["repeated"]) == (False, True)
    assert [lease(job) for job in first["jobs"]] == [lease(job) for job in again["jobs"]]
    assert (await ask.app.queue.stats_topic("sums")).reserved == 1
