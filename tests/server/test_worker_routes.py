"""Workers over HTTP: they take jobs, keep them and end them, each under its lease."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.patience import PATIENCE
from tests.server.conftest import Asking
from tests.server.worker_client import lease, post, serving, settle, take, waiting
from tidewheel.core.model import State
from tidewheel.remote.reserve_requests import ReserveRequests
from tidewheel.server.http_connection import HttpConnection
from tidewheel.server.routes import reserve_routes


async def test_a_job_comes_with_everything_its_handler_needs(ask: Asking, worker: httpx2.AsyncClient) -> None:
    """The payload as it is, secrets included: a worker is a part of the system."""
    made = await ask.app.enqueue(
        "mail_digest", {"userId": "7"}, tenant="shop", key="k", correlation_id="c", priority=3
    )
    (job,) = await take(worker, "mail_digest", worker="node-1", lease=30)
    assert {
        name: job[name] for name in ("id", "topic", "task", "tenant", "payload", "format", "attempt")
    } == {
        "id": str(made.id),
        "topic": "mail_digest",
        "task": "mail_digest",
        "tenant": "shop",
        "payload": {"userId": "7"},
        "format": "json",
        "attempt": 1,
    }
    assert (job["key"], job["correlation_id"], job["priority"], job["max_attempts"]) == ("k", "c", 3, 3)
    assert job["lease_seconds"] == 30
    assert 0 < job["lease_left"] <= 30
    assert (await ask.app.get(made.id)).worker == "node-1"


async def test_secrets_in_payloads_are_not_hidden_from_who_has_to_use_them(
    ask: Asking, worker: httpx2.AsyncClient
) -> None:
    await ask.app.enqueue("login", {"password": "hunter2"})
    (job,) = await take(worker, "login")
    assert job["payload"] == {"password": "hunter2"}


async def test_bytes_come_as_base64(ask: Asking, worker: httpx2.AsyncClient) -> None:
    await ask.app.enqueue("upload", b"\x00\xff")
    (job,) = await take(worker, "upload")
    assert (job["format"], base64.b64decode(job["payload"])) == ("bytes", b"\x00\xff")


async def test_a_worker_takes_only_the_tasks_it_knows(ask: Asking, worker: httpx2.AsyncClient) -> None:
    """Lanes are topics and tasks; what it does not know is left alone."""
    await ask.app.enqueue("mail_digest", {"userId": "1"})
    assert (await post(worker, "reserve", {"lanes": [{"topic": "mail_digest", "task": "other"}]}))[
        "jobs"
    ] == []
    known = {"lanes": [{"topic": "mail_digest", "task": "mail_digest"}]}
    assert len((await post(worker, "reserve", known))["jobs"]) == 1


@pytest.mark.parametrize(
    ("outcome", "more", "state"),
    [
        ("complete", {"result": {"ok": True}}, State.COMPLETED),
        ("complete", {}, State.COMPLETED),
        ("retry", {"error": {"code": "odd", "message": "no"}, "delay": 100}, State.PENDING),
        ("retry", {"error": {"code": "odd", "message": "no"}}, State.PENDING),
        ("retry", {"error": {"code": "odd", "message": "no", "retryable": False}}, State.FAILED),
        ("fail", {"error": {"code": "odd", "message": "no"}}, State.FAILED),
        ("release", {"delay": 5}, State.PENDING),
        ("cancel", {}, State.CANCELLED),
    ],
)
async def test_an_attempt_ends_once_and_as_told(
    ask: Asking, worker: httpx2.AsyncClient, outcome: str, more: dict[str, Any], state: State
) -> None:
    """Under its lease; the second time it is not held any more, but for what has ended the job, which is the
    same.
    """
    made = await ask.app.enqueue("mail_digest", {"userId": "1"})
    (job,) = await take(worker, "mail_digest")
    assert await settle(worker, job, outcome, run_seconds=0.25, **more)
    found = await ask.app.get(made.id)
    assert found.state is state
    if error := more.get("error"):
        assert found.error is not None
        assert (found.error.code, found.error.message) == (error["code"], error["message"])
    assert await settle(worker, job, outcome, **more) is state.final


async def test_a_result_waits_for_who_asks(ask: Asking, worker: httpx2.AsyncClient) -> None:
    made = await ask.app.enqueue("sums", {"of": [1, 2]})
    (job,) = await take(worker, "sums")
    assert await settle(worker, job, "complete", result=3)
    assert await made.result(timeout=PATIENCE) == 3


async def test_a_stale_worker_changes_nothing_and_is_told_so(ask: Asking, worker: httpx2.AsyncClient) -> None:
    """Every verb under a lease: a job that was given back and taken again is another's."""
    made = await ask.app.enqueue("sums")
    (old,) = await take(worker, "sums")
    assert await settle(worker, old, "release")
    (new,) = await take(worker, "sums")
    assert new["fence"] > old["fence"]
    stale = {"leases": [lease(old)]}
    assert await post(worker, "start", stale) == {"held": [False]}
    assert (await post(worker, "extend", stale))["held"] == [False]
    assert await post(worker, "report", {"reports": [{**lease(old), "progress": {"percent": 9}}]}) == {
        "held": [False]
    }
    assert await post(worker, "steps", lease(old)) == {"held": False, "steps": []}
    for outcome in ("complete", "release", "cancel"):
        assert not await settle(worker, old, outcome)
    assert (await ask.app.get(made.id)).progress is None
    assert await settle(worker, new, "complete")


async def test_one_bad_lease_does_not_spoil_its_neighbours(ask: Asking, worker: httpx2.AsyncClient) -> None:
    await ask.app.enqueue_many("sums", [{}, {}])
    first, second = await take(worker, "sums", limit=2)
    endings = [
        {**lease(first), "outcome": "complete"},
        {"id": str(uuid4()), "fence": 1, "outcome": "complete"},
        {**lease(second), "outcome": "complete"},
    ]
    assert (await post(worker, "settle", {"settlements": endings}))["accepted"] == [True, False, True]


async def test_what_a_handler_wants_remembered_is_there_for_the_next_attempt(
    ask: Asking, worker: httpx2.AsyncClient
) -> None:
    """Progress, a checkpoint, finished steps."""
    made = await ask.app.enqueue("sums")
    (job,) = await take(worker, "sums")
    assert "checkpoint" not in job
    said = {"progress": {"percent": 40, "stage": "adding"}, "checkpoint": {"row": 7}}
    step = {"name": "one", "output": [1, 2], "run_seconds": 0.5}
    assert await post(worker, "report", {"reports": [{**lease(job), **said, "step": step}]}) == {
        "held": [True]
    }
    found = await ask.app.get(made.id)
    assert found.progress is not None
    assert (found.progress.percent, found.progress.stage) == (40, "adding")
    assert await settle(worker, job, "release")
    (again,) = await take(worker, "sums")
    assert again["checkpoint"] == {"row": 7}
    (kept,) = (await post(worker, "steps", lease(again)))["steps"]
    assert (kept["name"], kept["output"], kept["attempt"]) == ("one", [1, 2], 1)


async def test_progress_out_of_range_is_kept_within_it(ask: Asking, worker: httpx2.AsyncClient) -> None:
    """A cosmetic report of a worker in another language is not refused either."""
    made = await ask.app.enqueue("sums")
    (job,) = await take(worker, "sums")
    said = {"progress": {"percent": 120.5, "message": "y" * 2000}}
    assert await post(worker, "report", {"reports": [{**lease(job), **said}]}) == {"held": [True]}
    found = await ask.app.get(made.id)
    assert found.progress is not None
    assert (found.progress.percent, found.progress.message) == (100, "y" * 999 + "…")


async def test_a_request_to_stop_reaches_the_worker(ask: Asking, worker: httpx2.AsyncClient) -> None:
    made = await ask.app.enqueue("sums")
    (job,) = await take(worker, "sums")
    leases = {"leases": [lease(job)]}
    assert await post(worker, "cancellations", leases) == {"cancel_requested": [False]}
    assert not await ask.app.cancel(made.id)
    assert await post(worker, "cancellations", leases) == {"cancel_requested": [True]}
    assert await post(worker, "extend", leases) == {"held": [True], "cancel_requested": [True]}


async def test_a_start_makes_a_crash_count(ask: Asking, worker: httpx2.AsyncClient) -> None:
    made = await ask.app.enqueue("sums")
    (job,) = await take(worker, "sums")
    assert (await ask.app.get(made.id)).started_at is None
    assert await post(worker, "start", {"leases": [lease(job)]}) == {"held": [True]}
    assert (await ask.app.get(made.id)).started_at is not None


async def test_a_result_that_cannot_be_kept_fails_the_job(ask: Asking, worker: httpx2.AsyncClient) -> None:
    """As with a worker beside the store, and the answer says so; its neighbours are settled as they ended."""
    made = await ask.app.enqueue_many("sums", [{}, {}])
    large, small = await take(worker, "sums", limit=2)
    endings = [
        {**lease(large), "outcome": "complete", "result": "x" * 70_000},
        {**lease(small), "outcome": "complete", "result": "x"},
    ]
    answer = await post(worker, "settle", {"settlements": endings})
    why = "result is 70,002 bytes; the limit is 65,536 (max_result_bytes)"
    assert answer == {"accepted": [True, True], "invalid_results": [{"index": 0, "message": why}]}
    found = [await ask.app.get(job.id) for job in made]
    assert [job.state for job in found] == [State.FAILED, State.COMPLETED]
    assert found[0].error is not None
    assert found[0].error.code == "invalid_result"


async def test_half_a_character_spoils_no_more_than_its_own_job(
    ask: Asking, worker: httpx2.AsyncClient
) -> None:
    """Of a text that was cut in the wrong place: a result fails its job, an error tells it as an escape."""
    made = await ask.app.enqueue_many("sums", [{}, {}, {}])
    cut, told, whole = await take(worker, "sums", limit=3)
    error = {"code": "no", "message": "cut \ud83d"}
    endings = [
        {**lease(cut), "outcome": "complete", "result": ["\ud83d"]},
        {**lease(told), "outcome": "fail", "error": error},
        {**lease(whole), "outcome": "complete", "result": "\U0001f600"},
    ]
    body, headers = json.dumps({"settlements": endings}), {"Content-Type": "application/json"}
    answer = await worker.post("/api/jobs/work/settle", content=body, headers=headers)
    assert answer.status_code == 200
    assert answer.json()["accepted"] == [True, True, True]
    assert [invalid["index"] for invalid in answer.json()["invalid_results"]] == [0]
    found = [await ask.app.get(job.id) for job in made]
    assert [job.error and (job.error.code, job.error.message[-10:]) for job in found[1:]] == [
        ("no", "cut \\ud83d"),
        None,
    ]
    assert found[0].error is not None
    assert found[0].error.code == "invalid_result"
    first = json.dumps({**lease(cut), "outcome": "complete", "result": "\ud83d"})
    for wrong in ('{"\\ud83d": 1}', "NaN", "[" * 100_000):
        malformed = f'{{"settlements": [{first}, {wrong}]}}'
        answer = await worker.post("/api/jobs/work/settle", content=malformed, headers=headers)
        assert answer.status_code in {400, 422}


async def test_a_checkpoint_that_cannot_be_kept_is_refused_with_its_place(
    ask: Asking, worker: httpx2.AsyncClient
) -> None:
    """And nothing of the request is written."""
    made = await ask.app.enqueue("sums")
    (job,) = await take(worker, "sums")
    reports = [
        {**lease(job), "progress": {"percent": 1}},
        {**lease(job), "checkpoint": "x" * 70_000},
        {**lease(job), "step": {"name": "a\nb", "output": 1}},
    ]
    for place, wrong in ((1, "#/reports/1/checkpoint"), (2, "#/reports/1/step/name")):
        answer = await worker.post("/api/jobs/work/report", json={"reports": [reports[0], reports[place]]})
        assert answer.status_code == 422
        assert [part["pointer"] for part in answer.json()["errors"]] == [wrong]
    assert (await ask.app.get(made.id)).progress is None


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/topics"),
        ({"topics": ["a"], "lanes": [{"topic": "a"}]}, "#/topics"),
        ({"topics": []}, "#/topics"),
        ({"topics": ["no topic"]}, "#/topics/0"),
        ({"topics": ["a"], "limit": 0}, "#/limit"),
        ({"topics": ["a"], "lease": 1}, "#/lease"),
        ({"topics": ["a"], "worker": "two\nlines"}, "#/worker"),
        ({"topics": ["a"], "tenant": "shop"}, "#/tenant"),
        ({"lanes": [{"topic": "a", "task": ""}, {"topic": "a", "task": "b\0c"}]}, "#/lanes/1/task"),
    ],
)
async def test_a_wish_that_makes_no_sense_is_refused_with_its_place(
    worker: httpx2.AsyncClient, body: dict[str, Any], pointer: str
) -> None:
    answer = await worker.post("/api/jobs/work/reserve", json=body)
    assert answer.status_code == 422, answer.text
    assert [part["pointer"] for part in answer.json()["errors"]] == [pointer]


async def test_a_tenants_key_takes_no_jobs(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """Whatever its scopes: a worker has the jobs of all tenants."""
    await ask.app.enqueue("sums", tenant="shop")
    answer = await shop.post("/api/jobs/work/reserve", json={"topics": ["sums"]})
    assert (answer.status_code, answer.json()["code"]) == (403, "not_permitted")
    managing = await ask.with_key(superuser=True, scopes=["read", "enqueue", "manage"])
    answer = await managing.post("/api/jobs/work/reserve", json={"topics": ["sums"]})
    assert (answer.status_code, "scope work" in answer.json()["detail"]) == (403, True)


async def test_a_worker_elsewhere_is_on_the_list(ask: Asking, worker: httpx2.AsyncClient) -> None:
    """With the jobs that it reserved under its name in its slots."""
    await ask.app.enqueue_many("mail", [{}] * 2)
    wish = {"lanes": [{"topic": "mail"}], "limit": 2, "worker": "node-1"}
    assert len((await post(worker, "reserve", wish))["jobs"]) == 2
    started = (await worker.get("/api/jobs/time")).json()["now"]
    about = {"name": "node-1", "started_at": started, "host": "box", "pid": 7, "version": "0.1.0 (js)"}
    lanes = [{"topic": "mail", "task": "send"}]
    await post(worker, "beat", {**about, "lanes": lanes, "concurrency": 5})
    (info,) = await ask.app.workers()
    assert (info.name, info.host, info.version, info.topics) == (
        "node-1",
        "box",
        "0.1.0 (js), over HTTP",
        ("mail",),
    )
    assert (info.concurrency, info.running) == (5, 2)
    await post(worker, "leave", {"name": "node-1", "started_at": started})
    assert await ask.app.workers() == []


async def test_a_name_with_control_characters_is_on_no_list(ask: Asking, worker: httpx2.AsyncClient) -> None:
    """Operators look at it on terminals."""
    body = {"name": "x", "started_at": "2026-01-31T12:00:00Z", "host": "\x1b[2J"}
    answer = await worker.post("/api/jobs/work/beat", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/host")
    assert await ask.app.workers() == []


@pytest.mark.parametrize("when", ["9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00"])
async def test_a_time_that_is_none_in_utc_is_on_no_list(
    ask: Asking, worker: httpx2.AsyncClient, when: str
) -> None:
    """Whoever looked at the list, or at the metrics, would get an error."""
    answer = await worker.post("/api/jobs/work/beat", json={"name": "x", "started_at": when})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/started_at")
    assert await ask.app.workers() == []


async def test_headers_of_a_job_are_for_superusers(
    ask: Asking, root: httpx2.AsyncClient, shop: httpx2.AsyncClient
) -> None:
    """They become context variables of whoever runs the job. The context of a trace is anybody's to give."""
    one = {"topic": "mail_digest", "payload": {"userId": "1"}, "headers": {"locale": "de"}}
    answer = await shop.post("/api/jobs/enqueue", json=one)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/headers")
    traced = {**one, "headers": {"traceparent": "00-1-1-00"}, "delay": 60}
    assert (await shop.post("/api/jobs/enqueue", json=traced)).status_code == 201
    assert (await root.post("/api/jobs/enqueue", json=one)).status_code == 201
    many = await root.post("/api/jobs/enqueue-many", json={"jobs": [{**one, "headers": {}}, one]})
    assert many.status_code == 201
    worker = await ask.with_key(superuser=True, scopes=["work"])
    jobs = await take(worker, "mail_digest", limit=3)
    assert [job["headers"] for job in jobs] == [{"locale": "de"}, {}, {"locale": "de"}]


@pytest.mark.parametrize("topic", ["mail\n", "ma il", "", "x" * 201])
async def test_a_topic_that_cannot_be_is_refused(worker: httpx2.AsyncClient, topic: str) -> None:
    answer = await worker.post("/api/jobs/work/reserve", json={"topics": [topic]})
    assert answer.status_code == 422, answer.text


# -- many states ------------------------------------------------------------------------------------------


async def test_states_of_many_jobs_are_told_when_one_is_final(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """Those of other tenants are not there."""
    mine = [await ask.app.enqueue("sums", tenant="shop") for _ in range(2)]
    other = await ask.app.enqueue("sums", tenant="other")
    ids = [str(job.id) for job in (*mine, other)]
    answer = await shop.post("/api/jobs/states", json={"ids": ids})
    assert answer.json() == {"states": ["pending", "pending", None]}
    waiting = asyncio.create_task(shop.post("/api/jobs/states?wait=30", json={"ids": ids[:2]}, timeout=60))
    while not ask.app._connections.current().results._waiting:
        await asyncio.sleep(0)
    await ask.app.cancel(mine[1].id)
    assert (await waiting).json() == {"states": ["pending", "cancelled"]}


async def test_waiting_for_many_states_costs_no_task_for_each_of_them(ask: Asking) -> None:
    """Also when the same job is named a thousand times: whoever may read could stop the server with that."""
    job = await ask.app.enqueue("sums")
    results = ask.app._connections.current().results
    before = len(asyncio.all_tasks())
    waits = [asyncio.create_task(ask.app.remote.states([job.id] * 1000, 30)) for _ in range(5)]
    while len(results._waiting.get((None, job.id), ())) < 5:
        await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) - before < 10
    await ask.app.cancel(job.id)
    assert await asyncio.gather(*waits) == [[State.CANCELLED] * 1000] * 5
    assert not results._waiting


# -- over a socket ----------------------------------------------------------------------------------------


async def test_who_hangs_up_while_it_waits_is_given_nothing() -> None:
    """A job that comes after it is for the next who asks, at once and not when a lease ends."""
    async with serving() as (_, app, client):
        body = {"topics": ["mail"], "worker": "gone"}
        gone = asyncio.create_task(client.post("/api/jobs/work/reserve?wait=30", json=body))
        await waiting(app, 1)
        gone.cancel()
        await waiting(app, 0)
        made = await app.enqueue("mail")
        assert [job["id"] for job in await take(client, "mail", worker="here")] == [str(made.id)]
        found = await app.get(made.id)
        assert (found.worker, found.attempt) == ("here", 1)


async def test_who_is_gone_in_the_moment_of_the_grant_keeps_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs were on their way to the answer already. Others get them before the lease ends."""
    async with serving() as (server, app, client):
        original = ReserveRequests.reserve

        async def reserve(*arguments: Any) -> Any:
            answer = await original(*arguments)
            monkeypatch.undo()
            for connection in list(server.server_state.connections):
                assert isinstance(connection, HttpConnection)
                connection.reset_connection()
            return answer

        monkeypatch.setattr(ReserveRequests, "reserve", reserve)
        made = await app.enqueue("mail", {})
        with pytest.raises(httpx2.TransportError):
            await take(client, "mail", worker="gone")
        (job,) = await take(client, "mail", wait=20, worker="next")
        assert (job["id"], job["attempt"]) == (str(made.id), 1)


async def test_who_hangs_up_while_it_waits_for_states_is_not_waited_for() -> None:
    """A thousand jobs each could be watched for a minute on behalf of nobody."""
    async with serving() as (_, app, client):
        made = await app.enqueue("mail")
        watched = app._connections.current().results._waiting
        body = {"ids": [str(made.id)]}
        gone = asyncio.create_task(client.post("/api/jobs/states?wait=60", json=body))
        while not watched:
            await asyncio.sleep(0.001)
        gone.cancel()
        while watched:
            await asyncio.sleep(0.001)


async def test_a_server_that_stops_answers_those_who_wait() -> None:
    """With no jobs, at once: they ask the next one."""
    async with serving() as (server, app, client):
        held = asyncio.create_task(take(client, "mail", wait=30))
        await waiting(app, 1)
        server.stop()
        assert await held == []


async def test_a_key_that_was_revoked_while_it_waited_gets_no_job(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is for the next who asks, as if nobody had had it."""
    monkeypatch.setattr(reserve_routes, "RECHECK_AFTER_SECONDS", 0.0)
    made = await ask.app.access.create_key(superuser=True)
    asked = ask.client(made.key).post("/api/jobs/work/reserve?wait=30", json={"topics": ["sums"]})
    held = asyncio.create_task(asked)
    await waiting(ask.app, 1)
    await ask.app.access.revoke_key(made.info.id)
    job = await ask.app.enqueue("sums")
    assert (await held).status_code == 401
    while (await ask.app.get(job.id)).state is not State.PENDING:
        await asyncio.sleep(0.001)
    assert (await ask.app.queue.stats_job(job.id)).reserves == 0


async def test_stored_json_goes_out_as_it_is(ask: Asking, worker: httpx2.AsyncClient) -> None:
    """And is JSON for whoever reads it."""
    payload = {"text": 'ümläut " \\ \n', "n": 1.5, "deep": [[{}]], "none": None}
    await ask.app.enqueue("sums", payload)
    (job,) = await take(worker, "sums")
    assert job["payload"] == payload
