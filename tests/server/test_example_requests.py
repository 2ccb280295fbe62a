"""The example requests of the first design, as they were written; comments and the id aside."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from tests.server.conftest import Asking

ENQUEUE = """
POST /api/jobs/enqueue
Content-Type: application/json
Authorization: Bearer <token>

{
    "topic": "mail_digest",
    "payload": {"userId": "123"},
    "runAt": "2026-01-08T12:00:00Z",
    "maxRetries": 5
}
"""
GET = """
GET /api/jobs/<id>
Authorization: Bearer <token>
"""
LIST = """
GET /api/jobs?topic=mail_digest&status=pending&limit=20&offset=0
Authorization: Bearer <token>
"""
STATS = """
GET /api/jobs/stats
Authorization: Bearer <token>
"""


async def send(client: httpx2.AsyncClient, text: str, key: str, job_id: str = "") -> Any:
    """A request as text, sent; its answer."""
    head, _, body = text.strip().partition("\n\n")
    first, *headers = head.replace("<token>", key).replace("<id>", job_id).splitlines()
    method, target = first.split(" ")
    given = dict(line.split(": ", 1) for line in headers)
    answer = await client.request(method, target, headers=given, content=body.encode())
    assert answer.is_success, answer.text
    return answer.json()


async def test_the_example_requests_work_as_written(ask: Asking) -> None:
    """Each of them is answered, with every field of the example's answer."""
    key = (await ask.app.access.create_key(tenant="shop")).key
    client = ask.client()
    made = await send(client, ENQUEUE, key)
    assert made.keys() >= {"id", "topic", "status", "run_at", "created"}
    assert (made["topic"], made["status"]) == ("mail_digest", "pending")
    listed = await send(client, LIST, key)
    assert (listed["total"], listed["limit"], listed["offset"]) == (1, 20, 0)
    assert [item["id"] for item in listed["items"]] == [made["id"]]
    await ask.app.run_until_idle()
    got = await send(client, GET, key, made["id"])
    assert got["payload"] == {"userId": "123"}
    assert (got["status"], got["retries"], got["max_retries"]) == ("completed", 0, 5)
    assert got.keys() >= {"id", "topic", "run_at", "created", "updated"}
    stats = await send(client, STATS, key)
    assert stats.keys() >= {"pending", "processing", "completed", "failed", "success_rate"}
    assert stats["completed"] == 1
    # Times are of the whole queue; a tenant is told its counts.
    assert stats["avg_execution_time"] is None
    root = await ask.with_key(superuser=True)
    whole = (await root.get("/api/jobs/stats")).json()
    assert type(whole["avg_execution_time"]) is int
    assert whole["success_rate"] == (await ask.app.stats()).success_rate == 1.0


async def test_the_service_design_s_paths_and_names_work(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """``/jobs``, ``handler_id`` and ``status`` mean what they meant there."""
    made = (
        await shop.post("/api/jobs/enqueue", json={"task": "mail_digest", "payload": {"userId": "1"}})
    ).json()
    listed = await shop.get(
        "/jobs",
        params={
            "handler_id": "mail_digest",
            "status": "pending",
            "created_after": "2020-01-01T00:00:00Z",
            "created_before": "9999-01-01T00:00:00Z",
        },
    )
    assert [item["id"] for item in listed.json()["items"]] == [made["id"]]
    assert (await shop.get(f"/jobs/{made['id']}")).json()["task"] == "mail_digest"
    waiting = await shop.get(f"/jobs/{made['id']}/result")
    assert (waiting.status_code, waiting.json()["finished"]) == (202, False)
    await ask.app.run_until_idle()
    done = await shop.get(f"/jobs/{made['id']}/result")
    assert (done.status_code, done.json()["result"]["sent"]) == (200, "1")
    assert json.loads((await shop.get("/jobs", params={"status": "processing"})).text)["items"] == []
