"""Limits of topics over HTTP."""

from __future__ import annotations

import httpx2

MAIL = {"concurrency": 3, "key_rate": {"count": 5, "per": 60}, "fair": True, "weights": {"acme": 2}}


async def test_limits_are_set_listed_and_removed(root: httpx2.AsyncClient) -> None:
    """Each change is in the audit log."""
    done = await root.put("/api/jobs/limits/mail", json=MAIL)
    assert done.status_code == 200
    told = done.json()
    assert (told["origin"], told["key_rate"]) == ("operator", {"count": 5, "per": 60.0, "burst": None})
    assert told["text"].startswith("3 at once; 5 per 60 s of each key; fair between tenants")
    assert (await root.get("/api/jobs/limits")).json() == {"items": [told]}
    assert (await root.delete("/api/jobs/limits/mail")).json() == {"topic": "mail", "removed": True}
    assert (await root.delete("/api/jobs/limits/mail")).json() == {"topic": "mail", "removed": False}
    log = await root.get("/api/jobs/audit", params={"target": "mail"})
    assert [line["action"] for line in log.json()["items"]][-1] == "limits.set"


async def test_what_code_declares_does_not_change_what_an_operator_set(root: httpx2.AsyncClient) -> None:
    """The answer has what is in force."""
    declared = {"concurrency": 5, "origin": "code"}
    told = (await root.put("/api/jobs/limits/mail", json=declared)).json()
    assert (told["origin"], told["concurrency"]) == ("code", 5)
    await root.put("/api/jobs/limits/mail", json=MAIL)
    told = (await root.put("/api/jobs/limits/mail", json=declared)).json()
    assert (told["origin"], told["concurrency"]) == ("operator", 3)


async def test_limits_that_make_no_sense_are_refused(root: httpx2.AsyncClient) -> None:
    """With what is wrong, and nothing is set."""
    for body in (
        {},
        {"concurrency": 0},
        {"rate": {"count": 5, "per": 0}},
        {"weights": {"a": 1}},
        {"speed": 1},
    ):
        assert (await root.put("/api/jobs/limits/mail", json=body)).status_code == 422
    assert (await root.get("/api/jobs/limits")).json() == {"items": []}


async def test_a_job_is_enqueued_with_a_limit_key(shop: httpx2.AsyncClient) -> None:
    """And shows it."""
    made = await shop.post("/api/jobs/enqueue", json={"task": "refuse", "limit_key": "k"})
    shown = await shop.get(f"/api/jobs/{made.json()['id']}")
    assert shown.json()["limit_key"] == "k"


async def test_a_tenant_neither_sees_nor_sets_limits(shop: httpx2.AsyncClient) -> None:
    """They are about all tenants."""
    assert (await shop.get("/api/jobs/limits")).status_code == 403
    assert (await shop.put("/api/jobs/limits/mail", json=MAIL)).status_code == 403
    assert (await shop.delete("/api/jobs/limits/mail")).status_code == 403
