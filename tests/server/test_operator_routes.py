"""What pages for operators need besides jobs: this server, superusers, lists that are looked through."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from tests.server.conftest import Asking, asking, make_app
from tidewheel import Batch
from tidewheel.tasks.task_schemas import task_types_document

pytestmark = pytest.mark.usefixtures("quick_passwords")

PASSWORD = "correct horse battery"  # noqa: S105 - nobody's


async def test_a_server_tells_about_itself(root: httpx2.AsyncClient, shop: httpx2.AsyncClient) -> None:
    """Versions, the store without its password, and the settings that pages go by; for superusers."""
    told = (await root.get("/api/jobs/about")).json()
    assert (told["store"], told["url"], told["tasks"]) == ("memory", "memory://", 4)
    assert told["limits"]["max_payload_bytes"] == 65_536
    assert told["access"]["redacted"] == "[redacted]"
    assert "password" in told["access"]["redact"]
    assert told["started_at"] <= told["now"]
    assert (await shop.get("/api/jobs/about")).status_code == 403


async def test_what_needs_attention_is_told_to_those_it_is_for(
    ask: Asking, root: httpx2.AsyncClient, shop: httpx2.AsyncClient
) -> None:
    """A superuser is told of everything, a tenant of its own jobs; both with what to do."""
    await shop.post("/api/jobs/enqueue", json={"task": "refuse"})
    [told] = (await root.get("/api/jobs/attention")).json()["findings"]
    assert (told["kind"], told["severity"], told["jobs"]) == ("no_worker", "critical", 1)
    assert "tidewheel worker" in told["remedy"]
    assert (await shop.get("/api/jobs/attention")).json()["findings"] == []
    await ask.app.pause("refuse")
    [told] = (await shop.get("/api/jobs/attention")).json()["findings"]
    assert (told["kind"], told["topic"], told["where"]) == (
        "paused",
        "refuse",
        "state:pending topic:refuse task:refuse",
    )
    assert (await shop.get("/api/jobs", params={"where": told["where"]})).json()["total"] == 1
    assert (await shop.get("/api/jobs/attention", params={"tenant": "shop"})).status_code == 422


async def test_superusers_are_made_changed_and_removed(root: httpx2.AsyncClient) -> None:
    """Each of which is in the audit log, without a password anywhere."""
    ann = {"name": "ann", "password": PASSWORD}
    assert (await root.post("/api/jobs/superusers", json=ann)).status_code == 201
    again = await root.post("/api/jobs/superusers", json={**ann, "password": "another one"})
    assert (again.status_code, again.json()["code"]) == (409, "wrong_state")
    assert (await root.post("/api/jobs/session", json=ann)).status_code == 200
    [listed] = (await root.get("/api/jobs/superusers")).json()["items"]
    assert (listed["name"], listed["configured"], "hash" in listed) == ("ann", False, False)
    last = await root.delete("/api/jobs/superusers/ann")
    assert (last.status_code, last.json()["code"]) == (409, "wrong_state")
    changed = await root.post("/api/jobs/superusers/ann/password", json={"password": "quite another"})
    assert changed.json() == {"name": "ann", "action": "password"}
    assert (await root.post("/api/jobs/session", json=ann)).status_code == 401
    await root.post("/api/jobs/superusers", json={"name": "ben", "password": PASSWORD})
    assert (await root.delete("/api/jobs/superusers/ann")).status_code == 200
    for method, path in (("DELETE", "ann"), ("DELETE", "a:b"), ("POST", "ann/password")):
        body = {"password": PASSWORD} if method == "POST" else None
        gone = await root.request(method, f"/api/jobs/superusers/{path}", json=body)
        assert (gone.status_code, gone.json()["code"]) == (404, "superuser_not_found")
    log = await root.get("/api/jobs/audit", params={"target": "ann"})
    assert [line["action"] for line in log.json()["items"]] == [
        "superuser.remove",
        "superuser.password",
        "superuser.create",
    ]
    assert PASSWORD not in (await root.get("/api/jobs/audit")).text


async def test_two_superusers_cannot_remove_each_other(tmp_path: Path) -> None:
    """Not even at the same moment, when each of them sees the other: nobody could log in then."""
    async with asking(make_app(f"sqlite:///{tmp_path.as_posix()}/jobs.db")) as ask:
        root = await ask.with_key(superuser=True)
        for name in ("ann", "ben"):
            await root.post("/api/jobs/superusers", json={"name": name, "password": PASSWORD})
        removals = [root.delete(f"/api/jobs/superusers/{name}") for name in ("ann", "ben")]
        answers = [answer.status_code for answer in await asyncio.gather(*removals)]
        left = [one["name"] for one in (await root.get("/api/jobs/superusers")).json()["items"]]
        assert left
        assert answers.count(200) == 2 - len(left)
        for name in left:
            entered = await root.post("/api/jobs/session", json={"name": name, "password": PASSWORD})
            assert entered.status_code == 200


async def test_the_superuser_of_the_settings_stays_as_it_is_set() -> None:
    """It is listed, and can be changed in the settings only; with it nobody is the last."""
    async with asking(make_app(superuser=f"eva:{PASSWORD}")) as ask:
        root = await ask.with_key(superuser=True)
        await root.post("/api/jobs/superusers", json={"name": "ann", "password": PASSWORD})
        listed = (await root.get("/api/jobs/superusers")).json()["items"]
        assert [(one["name"], one["configured"]) for one in listed] == [("eva", True), ("ann", False)]
        for method, path in (("DELETE", "eva"), ("POST", "eva/password")):
            body = {"password": "quite another"} if method == "POST" else None
            answer = await root.request(method, f"/api/jobs/superusers/{path}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")
        assert (await root.delete("/api/jobs/superusers/ann")).status_code == 200


async def test_the_audit_log_is_looked_through_page_by_page(
    ask: Asking, root: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly the lines asked for, each once; a page looks at a bounded number of others."""
    monkeypatch.setattr("tidewheel.access.document_pages.MAX_PAGE_SIZE", 3)
    monkeypatch.setattr("tidewheel.access.audit_log.MAX_SCANNED_LINES", 4)
    for number in range(10):
        await root.post(f"/api/jobs/topics/{'even' if number % 2 == 0 else 'odd'}/pause")
    found, cursor, pages = [], "", 0
    while True:
        address = f"/api/jobs/audit?target=odd&action=topic.pause&limit=2{cursor}"
        page = (await root.get(address)).json()
        found += page["items"]
        pages += 1
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    assert [line["target"] for line in found] == ["odd"] * 5
    assert len({line["id"] for line in found}) == 5
    assert pages > 2
    assert (await root.get("/api/jobs/audit", params={"actor": "nobody", "limit": 1})).json()["items"] == []


async def test_bulk_operations_are_found_again(
    ask: Asking, root: httpx2.AsyncClient, shop: httpx2.AsyncClient
) -> None:
    """After a page was reloaded: one's own, newest first; superusers see all."""
    body = {"action": "cancel", "filter": {"key": "of no job"}}
    first, second = [(await shop.post("/api/jobs/bulk", json=body)).json()["id"] for _ in range(2)]
    third = (await root.post("/api/jobs/bulk", json=body)).json()["id"]
    own = (await shop.get("/api/jobs/bulk")).json()
    assert ([one["id"] for one in own["items"]], own["cursor"]) == ([second, first], None)
    page = (await root.get("/api/jobs/bulk", params={"limit": 2})).json()
    rest = (await root.get("/api/jobs/bulk", params={"limit": 2, "cursor": page["cursor"]})).json()
    assert {one["id"] for one in (*page["items"], *rest["items"])} == {first, second, third}
    other = await ask.with_key(tenant="shop")
    assert (await other.get("/api/jobs/bulk")).json()["items"] == []


async def test_topics_tell_what_is_due_and_how_fast_it_goes(
    ask: Asking, root: httpx2.AsyncClient, shop: httpx2.AsyncClient
) -> None:
    """With one request: depth, what is delayed, and what happened in the window."""
    await ask.app.enqueue_many("refuse", [{}, {}])
    await ask.app.run_until_idle()
    await ask.app.enqueue("refuse", {})
    await ask.app.enqueue("refuse", {}, delay=60)
    [topic] = (await root.get("/api/jobs/topics", params={"window": 600})).json()["items"]
    assert (topic["pending"], topic["due"], topic["delayed"]) == (2, 1, 1)
    assert (topic["enqueued_in_window"], topic["failed_in_window"]) == (4, 2)
    await shop.post("/api/jobs/enqueue", json={"task": "refuse"})
    [own] = (await shop.get("/api/jobs/topics")).json()["items"]
    assert (own["due"], own["enqueued_in_window"]) == (1, None)


async def test_tasks_tell_what_they_return(root: httpx2.AsyncClient) -> None:
    """As a schema, where there is one."""
    tasks = {task["name"]: task for task in (await root.get("/api/jobs/tasks")).json()["items"]}
    assert tasks["mail_digest"]["result_schema"] == {
        "type": "object",
        "additionalProperties": {"type": "string"},
    }
    assert tasks["upload"]["result_schema"] == {"type": "integer"}
    assert (tasks["refuse"]["result_schema"], tasks["fleeting"]["result_schema"]) == (None, None)


async def test_tasks_can_be_had_as_types(root: httpx2.AsyncClient, ask: Asking) -> None:
    """As a document of OpenAPI, from which other languages make types."""
    told = await root.get("/api/jobs/tasks/openapi.json")
    assert told.json() == task_types_document(ask.app.registry)
    assert "mail_digest" in told.json()["components"]["schemas"]["Tasks"]["required"]


async def test_tasks_tell_how_many_jobs_they_take_at_a_time(ask: Asking, root: httpx2.AsyncClient) -> None:
    """The schema is that of one job."""

    @ask.app.task(batch=Batch(size=50, wait=0.5))
    async def index(words: list[str]) -> None: ...

    tasks = {task["name"]: task for task in (await root.get("/api/jobs/tasks")).json()["items"]}
    assert tasks["index"]["batch"] == {"size": 50, "wait": 0.5}
    assert tasks["index"]["payload_schema"]["properties"] == {"words": {"type": "string"}}
    assert tasks["upload"]["batch"] is None
