"""Jobs come in over HTTP: what is accepted, what is refused, and that nothing is written then."""

from __future__ import annotations

import base64
from typing import Any

import httpx2
import pytest

from tests.server.conftest import KNOWN, Asking, asking, make_app
from tidewheel import JobDraft, NotPermitted

ENQUEUE = "/api/jobs/enqueue"
GOOD: dict[str, Any] = {"task": "mail_digest", "payload": {"userId": "1"}}


async def test_a_job_is_made_with_everything_that_can_be_said_about_it(
    ask: Asking, shop: httpx2.AsyncClient
) -> None:
    """Options of the Python API have the same names here, and arrive."""
    answer = await shop.post(
        ENQUEUE,
        json={
            **GOOD,
            "delay": 60,
            "priority": 150,
            "max_attempts": None,
            "key": "k",
            "until": "finished",
            "timeout": None,
            "retry": {"kind": "fixed", "delay": 5},
            "expires": 3600,
        },
        headers={"X-Correlation-ID": "request-7"},
    )
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/jobs/{answer.json()['id']}"
    job = await ask.app.get(answer.json()["id"])
    assert (job.tenant, job.priority, job.max_attempts, job.timeout) == ("shop", 150, None, None)
    assert (job.key, job.correlation_id, job.shown_state) == ("k", "request-7", "delayed")


async def test_a_job_runs_after_others(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """Both directions are told; one that is not there, or is another tenant's, is refused."""
    parent = (await shop.post(ENQUEUE, json=GOOD)).json()["id"]
    answer = await shop.post(ENQUEUE, json={**GOOD, "after": [parent], "after_any": True})
    assert answer.status_code == 201
    child = (await shop.get(f"/api/jobs/{answer.json()['id']}")).json()
    assert (child["shown_state"], child["after_any"]) == ("blocked", True)
    assert child["after"] == [{"id": parent, "state": "pending", "waits": True}]
    assert child["timeline"][1]["what"] == "blocked"
    seen = (await shop.get(f"/api/jobs/{parent}")).json()["dependents"]
    assert seen == {
        "items": [{"id": child["id"], "state": "pending", "waits": True}],
        "total": 1,
        "total_exact": True,
    }
    theirs = await ask.app.enqueue("mail_digest", {"userId": "1"}, tenant="other")
    for missing in (str(theirs.id), "0199a8f2-7c11-7abc-8def-0123456789ab"):
        refused = await shop.post(ENQUEUE, json={**GOOD, "after": [missing]})
        assert refused.status_code == 422
        assert f"there is no job {missing} to run after" in refused.json()["detail"]
        assert [part["pointer"] for part in refused.json()["errors"]] == ["#/after"]
    together = {"jobs": [GOOD, {**GOOD, "after": [parent], "afterAny": True}]}
    assert (await shop.post("/api/jobs/enqueue-many", json=together)).status_code == 201
    assert (await shop.post(ENQUEUE, json={**GOOD, "after": [parent] * 1001})).status_code == 422


async def test_a_key_lets_one_job_in(shop: httpx2.AsyncClient) -> None:
    """The header is the key; the second answer is the first job, and says so."""
    first = await shop.post(ENQUEUE, json=GOOD, headers={"Idempotency-Key": "once"})
    second = await shop.post(ENQUEUE, json={**GOOD, "key": "once"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert (first.json()["id"], True) == (second.json()["id"], second.json()["duplicate"])
    differing = await shop.post(ENQUEUE, json={**GOOD, "key": "a"}, headers={"Idempotency-Key": "b"})
    assert differing.status_code == 422


async def test_a_superuser_says_for_whom_a_job_is(ask: Asking, root: httpx2.AsyncClient) -> None:
    """One by one and of many; others, for whom that is settled by their key, may say the same as it does."""
    whom = {"tenant": "shop", "user_id": "ada", "service_id": "till"}
    own = await ask.with_key(**whom)
    for client in (root, own):
        one = await client.post(ENQUEUE, json={**GOOD, **whom})
        many = await client.post(f"{ENQUEUE}-many", json={"jobs": [GOOD, {**GOOD, **whom}]})
        assert (one.status_code, many.status_code) == (201, 201)
        for job_id in (one.json()["id"], many.json()["items"][1]["id"]):
            job = await ask.app.get(job_id)
            assert (job.tenant, job.user_id, job.service_id) == ("shop", "ada", "till")
    for name in whom:
        for client in (own, await ask.with_key()):
            other = {**GOOD, name: "other"}
            one = await client.post(ENQUEUE, json=other)
            many = await client.post(f"{ENQUEUE}-many", json={"jobs": [GOOD, other]})
            for answer, pointer in ((one, f"#/{name}"), (many, f"#/jobs/1/{name}")):
                assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
                assert answer.json()["detail"] == f"{name} can be chosen by superusers only; leave it out"
    assert (await ask.app.count()).total == 6


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"maxRetries": 0}, {"max_attempts": 1}),
        ({"max_retries": 4}, {"max_attempts": 5}),
        ({"maxAttempts": 7}, {"max_attempts": 7}),
        ({"correlationId": "c"}, {"correlation_id": "c"}),
    ],
)
async def test_other_names_mean_the_same(
    ask: Asking, shop: httpx2.AsyncClient, said: dict[str, Any], meant: dict[str, Any]
) -> None:
    """Programs written for another design need not be changed."""
    job = await ask.app.get((await shop.post(ENQUEUE, json={**GOOD, **said})).json()["id"])
    assert {name: getattr(job, name) for name in meant} == meant


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({**GOOD, "state": "completed"}, "#/state"),
        ({**GOOD, "tenant": "no tenant"}, "#/tenant"),
        ({**GOOD, "fence": 9}, "#/fence"),
        ({**GOOD, "attempts": 0}, "#/attempts"),
        ({**GOOD, "user_id": ""}, "#/user_id"),
        ({"payload": {}}, "#/topic"),
        ({**GOOD, "topic": "no/topic"}, "#/topic"),
        ({**GOOD, "delay": -1}, "#/delay"),
        ({**GOOD, "run_at": "2030-01-01T00:00:00"}, "#/run_at"),
        ({**GOOD, "max_attempts": 3, "maxRetries": 2}, "#/maxRetries"),
        ({**GOOD, "ttr": 0.5}, "#/ttr"),
        ({**GOOD, "ttr": 1e10}, "#/ttr"),
        ({**GOOD, "retry": {"kind": "never"}}, "#/retry/kind"),
        ({**GOOD, "retry": {"kind": "fixed", "delay": 1, "more": 1}}, "#/retry/more"),
        ({"task": "upload", "payload": "!", "format": "bytes"}, "#/payload"),
        ({"task": "mail_digest", "payload": {"userid": 1}}, "#/payload/userid"),
        ({"task": "mail_digest", "payload": {"userId": 1}}, "#/payload/userId"),
        ({"task": "mail_digest", "payload": {}}, "#/payload/userId"),
        ({"task": "mail_digest", "payload": [1]}, "#/payload"),
        ({"task": "fleeting", "payload": {"thing": "x"}}, "#/task"),
        ([GOOD], "#"),
    ],
)
async def test_what_cannot_be_accepted_is_pointed_at(
    ask: Asking, root: httpx2.AsyncClient, body: Any, pointer: str
) -> None:
    """Mass assignment and bad values are 422 with a pointer, and nothing is written."""
    answer = await root.post(ENQUEUE, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert (await ask.app.count()).total == 0


async def test_unknown_tasks_are_refused_unless_their_topic_is_allowed() -> None:
    """Nobody can fill the queue with what nobody runs; allowed topics are for workers elsewhere."""
    async with asking(make_app(allowed_topics=["elsewhere"])) as ask:
        shop = await ask.with_key(tenant="shop")
        root = await ask.with_key(superuser=True)
        for client in (shop, root):
            answer = await client.post(ENQUEUE, json={"topic": "elsewhere", "payload": [1]})
            assert answer.status_code == 201
        unknown = await root.post(ENQUEUE, json={"topic": "nowhere"})
        assert (unknown.status_code, unknown.json()["code"]) == (422, "handler_not_found")
        assert (await shop.post(ENQUEUE, json={"topic": "nowhere"})).status_code == 403
        # With a list of topics, a task of the app's own is not for callers unless it is on it.
        assert (await shop.post(ENQUEUE, json=GOOD)).status_code == 403


async def test_bytes_travel_as_base64(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """In and out."""
    body = {"task": "upload", "payload": base64.b64encode(b"\x00\xff").decode(), "format": "bytes"}
    made = (await shop.post(ENQUEUE, json=body)).json()
    got = (await shop.get(f"/api/jobs/{made['id']}")).json()
    assert (got["format"], got["payload"]) == ("bytes", body["payload"])
    await ask.app.run_until_idle()
    assert (await shop.get(f"/api/jobs/{made['id']}/result")).json()["result"] == 2


async def test_many_jobs_are_made_together_or_not_at_all(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """One bad job keeps all of them out, and is pointed at."""
    bad = {"jobs": [GOOD, {"task": "refuse"}, {**GOOD, "task": "nobody"}]}
    refused = await shop.post("/api/jobs/enqueue-many", json=bad)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "#/jobs/2")
    worse = await shop.post("/api/jobs/enqueue-many", json={"jobs": [GOOD, {"task": "mail_digest"}]})
    assert (worse.status_code, worse.json()["errors"][0]["pointer"]) == (422, "#/jobs/1/payload/userId")
    assert (await ask.app.count()).total == 0
    good = await shop.post("/api/jobs/enqueue-many", json={"jobs": [GOOD, {"task": "refuse"}]})
    assert good.status_code == 201
    assert [item["task"] for item in good.json()["items"]] == ["mail_digest", "refuse"]
    too_many = await shop.post("/api/jobs/enqueue-many", json={"jobs": [GOOD] * 1001})
    assert (too_many.status_code, (await ask.app.count()).total) == (422, 2)


async def test_a_rule_sees_the_body_and_the_caller() -> None:
    """``@request.body`` is what was sent, ``topic`` the job's."""
    rule = f"{KNOWN} && topic = 'mail_digest' && @request.body.payload.userId = @request.auth.user_id"
    async with asking(make_app(enqueue_rule=rule)) as ask:
        client = await ask.with_key(tenant="shop", user_id="1")
        assert (await client.post(ENQUEUE, json=GOOD)).status_code == 201
        other = {"task": "mail_digest", "payload": {"userId": "2"}}
        assert (await client.post(ENQUEUE, json=other)).status_code == 403
        assert (await client.post(ENQUEUE, json={"task": "refuse"})).status_code == 403
        assert (await ask.client().post(ENQUEUE, json=GOOD)).status_code == 401


async def test_a_public_rule_lets_anybody_in_as_the_root_tenant() -> None:
    """Jobs of callers who showed nothing are nobody's in particular."""
    async with asking(make_app(enqueue_rule="true")) as ask:
        made = await ask.client().post(ENQUEUE, json=GOOD)
        assert made.status_code == 201
        assert (await ask.app.get(made.json()["id"])).tenant == "root"
        assert (await ask.client().get("/api/jobs")).status_code == 401


async def test_middleware_of_the_app_sees_what_comes_in(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """It may change a job, for its caller's tenant, or refuse it with a status of its own."""

    @ask.app.middleware
    def judge(job: JobDraft) -> None:
        if job.payload == {"userId": "2"}:
            raise NotPermitted("not for two")
        if job.payload == {"userId": "3"}:
            raise KeyError("a bug")
        job.change(priority=7, headers={"by": job.tenant})

    answer = await shop.post(ENQUEUE, json=GOOD)
    job = await ask.app.get(answer.json()["id"])
    assert (job.priority, job.record.headers) == (7, '{"by":"shop"}')
    refused = await shop.post(ENQUEUE, json={**GOOD, "payload": {"userId": "2"}})
    assert (refused.status_code, refused.json()["detail"]) == (403, "not for two")
    broken = await shop.post(ENQUEUE, json={**GOOD, "payload": {"userId": "3"}})
    assert broken.status_code == 500
    assert "a bug" not in broken.text
    assert (await ask.app.count()).total == 1
