"""Sessions, keys and the audit log over HTTP, and what a browser of somebody else cannot do."""

from __future__ import annotations

import httpx2
import pytest

from tests.server.conftest import Asking, asking, make_app
from tidewheel.testing import FrozenClock

SESSION = "/api/jobs/session"
PASSWORD = "correct horse battery"  # noqa: S105
LOGIN = {"name": "ann", "password": PASSWORD}


async def logged_in(ask: Asking) -> tuple[httpx2.AsyncClient, str]:
    """A browser with a session, and the token its pages know."""
    await ask.app.access.create_superuser("ann", PASSWORD)
    browser = ask.client()
    answer = await browser.post(SESSION, json=LOGIN)
    assert answer.status_code == 200, answer.text
    return browser, answer.json()["csrf_token"]


async def test_a_session_lasts_from_login_to_logout(ask: Asking) -> None:
    """The cookie is out of reach for scripts and other sites, and means nothing after a logout everywhere."""
    browser, token = await logged_in(ask)
    cookie = browser.cookies["tidewheel_session"]
    who = (await browser.get(SESSION)).json()
    assert (who["name"], who["superuser"], who["csrf_token"]) == ("ann", True, token)
    assert (await browser.get("/api/jobs/workers")).status_code == 200
    out = await browser.delete(SESSION, params={"everywhere": "true"}, headers={"X-CSRF-Token": token})
    assert out.status_code == 204
    assert "Max-Age=0" in out.headers["set-cookie"]
    stale = ask.client(None, Cookie=f"tidewheel_session={cookie}")
    assert (await stale.get(SESSION)).status_code == 401
    # Who still has the old cookie can log in all the same.
    again = await stale.post(SESSION, json=LOGIN)
    assert again.status_code == 200
    for word in ("HttpOnly", "SameSite=Strict", "Path=/"):
        assert word in again.headers["set-cookie"]
    actions = {
        line["action"]
        for line in (await (await ask.with_key(superuser=True)).get("/api/jobs/audit")).json()["items"]
    }
    assert {"login", "logout.everywhere"} <= actions


async def test_logging_out_is_the_end_of_the_cookie(ask: Asking) -> None:
    """A copy of it, kept by somebody else, is refused from then on; other sessions of the user stay."""
    browser, token = await logged_in(ask)
    cookie = browser.cookies["tidewheel_session"]
    other = ask.client()
    assert (await other.post(SESSION, json=LOGIN)).status_code == 200
    assert (await browser.delete(SESSION, headers={"X-CSRF-Token": token})).status_code == 204
    copy = ask.client(None, Cookie=f"tidewheel_session={cookie}")
    assert (await copy.get(SESSION)).status_code == 401
    assert (await other.get(SESSION)).status_code == 200


async def test_changes_of_a_session_come_from_our_own_pages(ask: Asking) -> None:
    """Without the token, with a wrong one, or from another origin nothing is changed."""
    browser, token = await logged_in(ask)
    pause = "/api/jobs/topics/mail_digest/pause"
    for headers in (
        {},
        {"X-CSRF-Token": "guess"},
        {"X-CSRF-Token": token, "Origin": "http://evil.test"},
        {"X-CSRF-Token": token, "Sec-Fetch-Site": "cross-site"},
    ):
        refused = await browser.post(pause, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "csrf_failed")
    fine = {"X-CSRF-Token": token, "Origin": "http://tidewheel.test", "Sec-Fetch-Site": "same-origin"}
    assert (await browser.post(pause, headers=fine)).status_code == 200
    assert (
        await ask.client().post(SESSION, json=LOGIN, headers={"Origin": "http://evil.test"})
    ).status_code == 403


async def test_wrong_passwords_are_counted() -> None:
    """The answer does not say what was wrong, and after a few it says when to come back."""
    async with asking(make_app(clock=FrozenClock())) as ask:  # so that no delay is over too early
        await ask.app.access.create_superuser("ann", PASSWORD)
        client = ask.client()
        answers = [await client.post(SESSION, json={**LOGIN, "password": "guess"}) for _ in range(4)]
        answers.append(await client.post(SESSION, json={"name": "nobody", "password": "guess"}))
        assert {(answer.status_code, answer.json()["detail"]) for answer in answers} == {
            (401, "the name or the password is wrong")
        }
        refused = await client.post(SESSION, json={**LOGIN, "password": "guess"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


async def test_keys_are_made_listed_and_revoked(ask: Asking, root: httpx2.AsyncClient) -> None:
    """The secret is in one answer only, and a revoked key is refused at once."""
    made = await root.post("/api/jobs/keys", json={"name": "ci", "tenant": "shop", "scopes": ["read"]})
    assert made.status_code == 201
    key, key_id = made.json()["key"], made.json()["id"]
    client = ask.client(key)
    assert (await client.get("/api/jobs")).status_code == 200
    listed = await root.get("/api/jobs/keys")
    assert key not in listed.text
    assert {item["name"] for item in listed.json()["items"]} == {"ci", ""}
    revoked = await root.delete(f"/api/jobs/keys/{key_id}")
    assert revoked.json()["revoked_at"] is not None
    assert (await client.get("/api/jobs")).status_code == 401
    for nobody in ("0" * 16, "x"):
        assert (await root.delete(f"/api/jobs/keys/{nobody}")).json()["code"] == "key_not_found"
    assert key not in (await root.get("/api/jobs/audit")).text


async def test_only_superusers_make_keys(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """Nobody can give away more than they have; a superuser's key that may only read makes none either."""
    for client, status in ((shop, 403), (ask.client(), 401)):
        assert (await client.post("/api/jobs/keys", json={"superuser": True})).status_code == status
    reader = await ask.with_key(superuser=True, scopes=["read"])
    assert (await reader.post("/api/jobs/keys", json={})).status_code == 403
    assert (await reader.get("/api/jobs/keys")).status_code == 200


@pytest.mark.parametrize("given", ["Basic YTpi", "Bearer", "Bearer tw_x", "Bearer a.b.c", "", "Bearer \xff"])
async def test_whatever_is_wrong_with_a_token_is_the_same_refusal(ask: Asking, given: str) -> None:
    """401 with WWW-Authenticate; also on routes that would let callers in who show nothing."""
    client = ask.client(None)
    headers = [(b"authorization", given.encode("latin-1"))]
    answer = await client.get("/api/jobs", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await client.get("/healthz", headers=headers)).status_code == 200


async def test_everything_is_closed_by_default() -> None:
    """Without rules a tenant's key opens nothing, a superuser's everything."""
    async with asking(make_app(enqueue_rule="", manage_rule="")) as ask:
        shop = await ask.with_key(tenant="shop")
        assert (await shop.get("/api/jobs")).status_code == 403
        assert (await shop.post("/api/jobs/enqueue", json={"task": "refuse"})).status_code == 403
        root = await ask.with_key(superuser=True)
        assert (await root.get("/api/jobs")).status_code == 200


async def test_a_rule_that_a_missing_value_passes_is_named_in_the_log_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once for each such rule, with the value and the remedy; other rules leave no line."""
    rules = {"enqueue_rule": "@request.auth.role != 'banned'", "manage_rule": "@request.auth.id != ''"}
    async with asking(make_app(**rules)):
        [told] = [record.getMessage() for record in caplog.records if record.name == "tidewheel.access"]
    assert told.startswith("enqueue_rule passes when @request.auth.role is missing")
    assert "Add @request.auth.role != '' &&" in told


async def test_the_api_can_be_switched_off() -> None:
    """Health stays; all else is not there."""
    async with asking(make_app(http_api=False)) as ask:
        root = await ask.with_key(superuser=True)
        for path in ("/api/jobs", "/jobs", "/metrics", "/openapi.json"):
            assert (await root.get(path)).status_code == 404
        for path in ("/healthz", "/readyz"):
            assert (await root.get(path)).status_code == 200


async def test_metrics_tell_depths_to_superusers(root: httpx2.AsyncClient, shop: httpx2.AsyncClient) -> None:
    """Text for Prometheus; other callers would learn of other tenants."""
    await shop.post("/api/jobs/enqueue", json={"task": "refuse"})
    told = await root.get("/metrics")
    assert 'tidewheel_queue_depth{topic="refuse",state="pending"} 1' in told.text
    assert 'tidewheel_jobs_submitted_total{task="refuse",topic="refuse"} 1' in told.text
    assert 'tidewheel_workers{health="missing"} 0' in told.text
    assert "tidewheel_stale_leases 0" in told.text
    assert "shop" not in told.text, "metrics know no tenants"
    assert told.headers["content-type"].startswith("text/plain")
    assert (await shop.get("/metrics")).status_code == 403
