"""Schedules over HTTP."""

from __future__ import annotations

from datetime import datetime, timedelta

import httpx2
import pytest

from tests.server.conftest import Asking

pytestmark = pytest.mark.usefixtures("quick_passwords")

ROOT = "/api/jobs/schedules"


async def test_a_schedule_is_made_seen_paused_run_replaced_and_deleted(
    ask: Asking, root: httpx2.AsyncClient
) -> None:
    """With everything a page needs: next runs, the last one and its job, pause, origin, counts."""
    body = {"name": "nightly", "cron": "30 2 * * *", "zone": "Europe/Berlin", "topic": "later"}
    made = await root.post(ROOT, json={**body, "payload": {"password": "hunter2", "n": 1}, "priority": 3})
    assert (made.status_code, made.headers["location"]) == (201, f"{ROOT}/nightly")
    told = made.json()
    assert (told["cron"], told["zone"], told["every"], told["missed"]) == (
        *("30 2 * * *", "Europe/Berlin", None, "one"),
    )
    assert told["payload"] == {"password": "[redacted]", "n": 1}
    assert (len(told["next_runs"]), told["last_job_id"], told["origin"]) == (5, None, "created")
    assert (told["paused"], told["fired_count"], told["missed_count"]) == (False, 0, 0)
    assert told["options"]["priority"] == 3
    assert (await root.get(ROOT)).json() == {"items": [told], "total": 1, "limit": 200, "offset": 0}
    assert (await root.get(ROOT, params={"offset": 1})).json()["items"] == []
    assert (await root.get(f"{ROOT}/nightly")).json() == told
    paused = (await root.post(f"{ROOT}/nightly/pause")).json()
    assert (paused["paused"], paused["next_runs"]) == (True, [])
    ran = await root.post(f"{ROOT}/nightly/run")
    assert ran.status_code == 201
    job = (await root.get(f"/api/jobs/{ran.json()['id']}")).json()
    assert (job["topic"], job["priority"]) == ("later", 3)
    assert (job["schedule"], datetime.fromisoformat(job["scheduled_for"]).utcoffset()) == (
        *("nightly", timedelta()),
    )
    resumed = (await root.post(f"{ROOT}/nightly/resume")).json()
    assert (resumed["paused"], resumed["last_job_id"], resumed["fired_count"]) == (False, job["id"], 1)
    edited = {**told["payload"], "n": 2}  # as a page would send it back, with the mark of what is hidden
    await root.put(f"{ROOT}/nightly", json={"every": 60, "topic": "later", "payload": edited})
    assert (await ask.app.schedules.get("nightly")).payload == {"password": "hunter2", "n": 2}
    replaced = await root.put(f"{ROOT}/nightly", json={"every": 60, "task": "refuse", "missed": "skip"})
    assert (replaced.status_code, replaced.json()["every"], replaced.json()["task"]) == (200, 60.0, "refuse")
    assert (await root.delete(f"{ROOT}/nightly")).json() == {"schedule": "nightly", "action": "delete"}
    lines = (await root.get("/api/jobs/audit")).json()["items"]
    actions = [line["action"] for line in lines if line["action"].startswith("schedule.")]
    words = ("create", "pause", "run", "resume", "replace", "replace", "delete")
    assert actions[::-1] == [f"schedule.{word}" for word in words]
    assert await ask.app.schedules.all() == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"every": 60, "topic": "later", "name": "taken"}, 409, "wrong_state"),
        ({"topic": "later", "name": "a"}, 422, "invalid_input"),
        ({"every": 60, "cron": "0 3 * * *", "topic": "later", "name": "a"}, 422, "invalid_input"),
        ({"every": 60, "name": "a"}, 422, "invalid_input"),
        ({"every": 0.5, "topic": "later", "name": "a"}, 422, "invalid_input"),
        ({"every": 60, "topic": "later", "name": "a b"}, 422, "invalid_input"),
        ({"every": 60, "topic": "later", "name": ".."}, 422, "invalid_input"),
        ({"every": 60, "task": "unheard_of", "name": "a"}, 422, "handler_not_found"),
        ({"cron": "0 3 * * * *", "topic": "later", "name": "a"}, 422, "invalid_input"),
        ({"cron": "0 3 * * *", "zone": "Mars/Olympus", "topic": "later", "name": "a"}, 422, "invalid_input"),
        ({"every": 60, "topic": "later", "name": "a", "payload": "x" * 20_000}, 422, "limit_exceeded"),
        ({"every": 60, "topic": "later", "name": "a", "run_at": "2030-01-01T00:00Z"}, 422, "invalid_input"),
    ],
)
async def test_what_cannot_be_a_schedule_is_a_problem(
    ask: Asking, root: httpx2.AsyncClient, body: dict[str, object], status: int, code: str
) -> None:
    """And nothing is written."""
    await root.post(ROOT, json={"name": "taken", "every": 60, "topic": "later"})
    refused = await root.post(ROOT, json=body)
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert [one.name for one in await ask.app.schedules.all()] == ["taken"]


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"cron": "61 3 * * *"}, "#/cron"),
        ({"cron": "0 3 * *"}, "#/cron"),
        ({"cron": "0 3 * * *", "zone": "Mars/Olympus"}, "#/zone"),
        ({"every": 0.5}, "#/every"),
        ({"every": 60, "missed": "never"}, "#/missed"),
    ],
)
async def test_a_form_is_told_which_field_is_wrong(
    root: httpx2.AsyncClient, given: dict[str, object], pointer: str
) -> None:
    """Also where only the expression as a whole can be judged."""
    refused = await root.post(ROOT, json={"name": "a", "topic": "later", **given})
    assert [part["pointer"] for part in refused.json()["errors"]] == [pointer]


async def test_who_asks_for_one_that_is_not_there_is_told(root: httpx2.AsyncClient) -> None:
    """With every verb that needs one."""
    for method, path in (
        *(("GET", "none"), ("DELETE", "none"), ("POST", "none/pause")),
        *(("POST", "none/resume"), ("POST", "none/run")),
    ):
        got = await root.request(method, f"{ROOT}/{path}")
        assert (got.status_code, got.json()["code"]) == (404, "schedule_not_found")
