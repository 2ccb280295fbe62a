"""``@request.method`` of a rule says what a request does, whichever route and method it came by."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.conftest import Asking, asking, make_app
from tests.server.test_bulk import until_ended
from tidewheel import SecurityContext, acting_as

KEEP = "@request.method != 'DELETE' || @request.auth.service_id = 'admin'"
OWN_DELETES = "@request.method != 'DELETE' || user_id = @request.auth.user_id"
LOOK = "@request.method = 'GET' || @request.auth.service_id = 'admin'"


async def _cancelled(ask: Asking, user: str = "ann") -> str:
    with acting_as(SecurityContext("acme", user_id=user)):
        job = await ask.app.enqueue("mail_digest", {"userId": user}, delay=60)
        await job.cancel()
    return str(job.id)


WAYS: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("DELETE", "/api/jobs/{id}", None),
    ("POST", "/api/jobs/bulk", {"action": "delete", "filter": {"state": "cancelled"}}),
    ("POST", "/api/jobs/bulk", {"action": "delete", "filter": {"state": "cancelled"}, "preview": True}),
    ("POST", "/api/jobs/{id}/copy", {"delete_original": True, "delay": 60}),
)


@pytest.mark.parametrize(("method", "path", "body"), WAYS)
async def test_rule_against_delete_holds_for_every_way_to_delete(
    method: str, path: str, body: dict[str, Any] | None
) -> None:
    """A deletion through bulk, its preview or a copy is a DELETE for the rule; nothing is done before it."""
    async with make_app(manage_rule=KEEP) as app, asking(app) as ask:
        web, admin = [await ask.with_key(tenant="acme", service_id=one) for one in ("web", "admin")]
        job_id = await _cancelled(ask)
        refused = await web.request(method, path.format(id=job_id), json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_permitted")
        assert (await app.count()).total == 1
        assert (await web.post(f"/api/jobs/{job_id}/requeue")).status_code == 200
        await app.cancel(job_id)
        done = await admin.request(method, path.format(id=job_id), json=body)
        assert done.status_code in {200, 201, 202}, done.text


async def test_bulk_delete_takes_the_jobs_that_may_be_deleted_one_by_one() -> None:
    """A row filter for DELETE is that of a bulk deletion as well: the jobs of others stay."""
    async with make_app(manage_rule=OWN_DELETES) as app, asking(app) as ask:
        ann = await ask.with_key(tenant="acme", user_id="ann")
        own, others = await _cancelled(ask, "ann"), await _cancelled(ask, "ben")
        body = {"action": "delete", "filter": {"state": "cancelled"}}
        preview = await ann.post("/api/jobs/bulk", json={**body, "preview": True})
        assert preview.json()["matched"] == 1
        started = await ann.post("/api/jobs/bulk", json=body)
        ended = await until_ended(ann, started.headers["location"])
        assert (ended["state"], ended["done"]) == ("done", 1)
        assert [str(job.id) for job in (await app.jobs()).items] == [others]
        assert (await ann.get(f"/api/jobs/{own}")).status_code == 404
        copied = await ann.post(f"/api/jobs/{others}/copy", json={"delete_original": True})
        assert copied.status_code == 404
        assert (await app.count()).total == 1


async def test_looking_is_get_for_a_rule() -> None:
    """HEAD and the states of many jobs, which are asked for with POST, only look."""
    async with make_app(manage_rule=LOOK) as app, asking(app) as ask:
        reader = await ask.with_key(tenant="acme", service_id="web")
        job_id = await _cancelled(ask)
        assert (await reader.head(f"/api/jobs/{job_id}")).status_code == 200
        states = await reader.post("/api/jobs/states", json={"ids": [job_id]})
        assert (states.status_code, states.json()) == (200, {"states": ["cancelled"]})
        assert (await reader.post(f"/api/jobs/{job_id}/requeue")).status_code == 403


@pytest.mark.parametrize(
    ("rule", "changes", "deletes"), [(LOOK, False, False), (KEEP, True, False), ("true", True, True)]
)
async def test_explain_says_what_a_rule_about_the_method_refuses(
    rule: str, changes: bool, deletes: bool
) -> None:
    """A key that may look and not touch is not reported as one that may cancel or delete jobs."""
    async with make_app(manage_rule=rule) as app:
        key = (await app.access.create_key(tenant="acme", service_id="web")).key
        allowed = {one.what: one.allowed for one in (await app.access.explain(key)).abilities}
        assert allowed["see states, errors and results of jobs"]
        assert (allowed["requeue and cancel jobs"], allowed["delete jobs"]) == (changes, deletes)
