"""Reading and managing jobs over HTTP: who sees what of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.patience import PATIENCE
from tests.server.conftest import KNOWN, Asking, asking, make_app
from tests.stores.all_stores.urls import STORES
from tidewheel.server.api import CursorCodec
from tidewheel.server.problems import Problem
from tidewheel.server.redaction import REDACTED, Redaction

JOBS = "/api/jobs"


@pytest.fixture(params=STORES)
async def stored(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Asking]:
    """The API on each store."""
    async with asking(make_app(STORES[request.param](tmp_path))) as made:
        yield made


async def made(client: httpx2.AsyncClient, user: str = "1", **options: Any) -> str:
    body = {"task": "mail_digest", "payload": {"userId": user}, **options}
    return str((await client.post(f"{JOBS}/enqueue", json=body)).json()["id"])


async def test_a_job_is_followed_from_its_start_to_its_end(stored: Asking) -> None:
    """On every store: listed, read, cancelled, requeued, run, read again, deleted."""
    shop = await stored.with_key(tenant="shop")
    job = await made(shop, delay=3600)
    assert (await shop.get(JOBS, params={"where": "state:delayed"})).json()["total"] == 1
    assert (await shop.post(f"{JOBS}/{job}/requeue")).json()["code"] == "wrong_state"
    assert (await shop.post(f"{JOBS}/{job}/cancel")).json() == {
        "id": job,
        "action": "cancel",
        "requested": False,
    }
    assert (await shop.post(f"{JOBS}/{job}/requeue")).status_code == 200
    await stored.app.run_until_idle()
    done = (await shop.get(f"{JOBS}/{job}")).json()
    assert (done["state"], done["result"]["sent"], done["attempt"]) == ("completed", "1", 1)
    assert [entry["what"] for entry in done["timeline"]][-1] == "completed"
    assert (await shop.get(f"{JOBS}/stats")).json()["completed"] == 1
    assert (await shop.get(f"{JOBS}/topics")).json()["items"][0]["completed"] == 1
    assert (await shop.delete(f"{JOBS}/{job}")).status_code == 200
    assert (await shop.get(f"{JOBS}/{job}")).status_code == 404


async def test_failures_are_told_and_kicked(stored: Asking) -> None:
    """Errors are there with their code; a kick gives them another chance."""
    shop = await stored.with_key(tenant="shop")
    body = {"task": "refuse", "payload": {"reason": "out of paper"}}
    job = (await shop.post(f"{JOBS}/enqueue", json=body)).json()["id"]
    await stored.app.run_until_idle()
    result = (await shop.get(f"{JOBS}/{job}/result")).json()
    assert (result["state"], result["finished"]) == ("failed", True)
    assert "out of paper" in result["error"]["message"]
    shown = (await shop.get(f"{JOBS}/{job}")).json()
    assert shown["attempts"][0]["error"]["traceback"] is None
    looking = await stored.with_key(tenant="shop", scopes=["read", "tracebacks"])
    shown = (await looking.get(f"{JOBS}/{job}")).json()
    assert "Traceback" in shown["attempts"][0]["error"]["traceback"]
    assert "out of paper" in shown["last_error"]
    found = await shop.get(JOBS, params={"where": 'state:failed error:"out of paper"'})
    assert [item["id"] for item in found.json()["items"]] == [job]
    assert (await shop.post(f"{JOBS}/topics/refuse/kick")).json() == {"topic": "refuse", "kicked": 1}
    assert (await shop.get(f"{JOBS}/{job}")).json()["state"] == "pending"


async def test_what_a_caller_may_not_see_is_as_if_it_were_not_there(ask: Asking) -> None:
    """Another tenant's job, a deleted one and one that never was are the same 404, the id aside."""
    shop, other = await ask.with_key(tenant="shop"), await ask.with_key(tenant="other")
    theirs, gone = await made(other), await made(shop)
    await shop.delete(f"{JOBS}/{gone}")
    routes = [
        ("GET", ""), ("GET", "/result"), ("GET", "/result?wait=0.01"), ("POST", "/requeue"),
        ("POST", "/cancel"), ("DELETE", ""),
    ]  # fmt: skip
    for method, path in routes:
        answers = set()
        for job in (theirs, gone, str(uuid4())):
            answer = await shop.request(method, f"{JOBS}/{job}{path}")
            answers.add((answer.status_code, answer.text.replace(job, "ID")))
        assert len(answers) == 1, answers
        assert next(iter(answers))[0] == 404
    assert (await other.get(f"{JOBS}/{theirs}")).json()["state"] == "pending"
    assert (await shop.get(JOBS)).json()["total"] == 0


async def test_a_manage_rule_is_a_row_filter() -> None:
    """Jobs outside of it are not listed, not counted, not found and not changed."""
    async with asking(make_app(manage_rule=f"{KNOWN} && user_id = @request.auth.user_id")) as ask:
        ann = await ask.with_key(tenant="shop", user_id="ann")
        bob = await ask.with_key(tenant="shop", user_id="bob")
        job = await made(ann)
        assert (await ann.get(JOBS)).json()["total"] == 1
        assert (await bob.get(JOBS)).json()["total"] == 0
        assert (await bob.get(f"{JOBS}/stats")).json()["pending"] == 0
        for method, path in (("GET", ""), ("POST", "/cancel"), ("DELETE", "")):
            assert (await bob.request(method, f"{JOBS}/{job}{path}")).status_code == 404
        preview = {"action": "cancel", "filter": {"topic": "mail_digest"}, "preview": True}
        assert (await bob.post(f"{JOBS}/bulk", json=preview)).json()["matched"] == 0
        assert (await ann.post(f"{JOBS}/bulk", json=preview)).json()["matched"] == 1


async def test_scopes_limit_what_a_key_is_good_for(ask: Asking) -> None:
    """One that may only read sees no bodies and no tracebacks, and changes nothing."""
    shop = await ask.with_key(tenant="shop")
    job = await made(shop)
    reader = await ask.with_key(tenant="shop", scopes=["read"])
    shown = (await reader.get(f"{JOBS}/{job}")).json()
    assert not {"payload", "result", "checkpoint"} & shown.keys()
    assert (await reader.post(f"{JOBS}/{job}/cancel")).status_code == 403
    assert (await reader.post(f"{JOBS}/enqueue", json={"task": "refuse"})).status_code == 403
    writer = await ask.with_key(tenant="shop", scopes=["enqueue"])
    assert (await writer.post(f"{JOBS}/enqueue", json={"task": "refuse"})).status_code == 201
    assert (await writer.get(JOBS)).status_code == 403


async def test_nothing_tells_of_the_store_or_of_other_tenants(ask: Asking, root: httpx2.AsyncClient) -> None:
    """No number, no fence, no worker for others than superusers, and no cursor that can be read."""
    shop, other = await ask.with_key(tenant="shop"), await ask.with_key(tenant="other")
    for index in range(3):
        await made(shop, str(index))
        await made(other, str(index))
    await ask.app.run_until_idle()
    page = (await shop.get(JOBS, params={"limit": 1})).json()
    assert not {"number", "fence", "payload"} & page["items"][0].keys()
    assert page["items"][0]["worker"] is None
    assert (await root.get(JOBS)).json()["items"][0]["worker"] is not None
    seen = []
    while True:
        seen += [item["id"] for item in page["items"]]
        if page["cursor"] is None:
            break
        page = (await shop.get(JOBS, params={"limit": 1, "cursor": page["cursor"]})).json()
    assert len(seen) == len(set(seen)) == 3
    assert (await shop.get(JOBS, params={"cursor": "3"})).status_code == 422
    assert (await shop.get(JOBS, params={"tenant": "other"})).json()["errors"][0]["parameter"] == "tenant"
    assert (await root.get(JOBS, params={"tenant": "other"})).json()["total"] == 3


def test_cursors_are_sealed() -> None:
    """A cursor is read by those who share the secret, for the caller it was given to, and a changed one by
    nobody. A place of one list is none of another kind.
    """
    mine, theirs = CursorCodec(b"one secret"), CursorCodec(b"another")
    for number in (0, 1, 2**63 - 1):
        text = mine.seal(number, "ann")
        assert mine.open(text, "ann") == number
        for bad in (
            theirs.seal(number, "ann"),
            mine.seal(number, "ben"),
            mine.seal_place("12345678", "ann"),
            text[:-1] + ("A" if text[-1] != "A" else "B"),
            "",
            text + "AAAA",
            "é",
        ):
            with pytest.raises(Problem):
                mine.open(bad, "ann")
    place = f"1700000000000000.{uuid4()}"
    text = mine.seal_place(place, "ann")
    assert mine.open_place(text, "ann") == place
    for bad in (
        mine.seal(1, "ann"),
        mine.seal_place(place, "ben"),
        theirs.seal_place(place, "ann"),
        text[:-1],
    ):
        with pytest.raises(Problem):
            mine.open_place(bad, "ann")
    assert str(12345) not in mine.seal(12345, "ann")


async def test_values_are_redacted_wherever_a_body_is_shown(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """What the setting hides is hidden in results, too."""
    job = await made(shop)
    await ask.app.run_until_idle()
    assert (await shop.get(f"{JOBS}/{job}")).json()["result"] == {"sent": "1", "password": REDACTED}
    assert (await shop.get(f"{JOBS}/{job}/result")).json()["result"]["password"] == REDACTED


def test_redaction_hides_names_at_any_depth_and_paths_where_they_lead() -> None:
    """Lists are looked into, case does not matter, and what is not meant stays."""
    hide = Redaction(["password", "user.address", "orders.*.iban"])
    shown = hide.apply(
        {
            "Password": 1,
            "user": {"address": {"street": "x"}, "name": "Ann", "deep": [{"password": "x"}]},
            "address": "kept",
            "orders": [{"iban": "DE", "sum": 2}, {"iban": "FR"}],
        }
    )
    assert shown == {
        "Password": REDACTED,
        "user": {"address": REDACTED, "name": "Ann", "deep": [{"password": REDACTED}]},
        "address": "kept",
        "orders": [{"iban": REDACTED, "sum": 2}, {"iban": REDACTED}],
    }
    assert hide.apply([1, "x", None]) == [1, "x", None]


async def test_a_result_can_be_waited_for(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """The answer comes when the job ends, not when the time is over."""
    job = await made(shop)
    waiting = asyncio.create_task(shop.get(f"{JOBS}/{job}/result", params={"wait": 60}))
    await asyncio.sleep(0)
    await ask.app.run_until_idle()
    async with asyncio.timeout(PATIENCE):
        answer = await waiting
    assert (answer.status_code, answer.json()["result"]["sent"]) == (200, "1")
    assert (await shop.get(f"{JOBS}/{job}/result", params={"wait": 61})).status_code == 422


async def test_a_wait_for_a_result_ends_with_the_server(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """A shutdown does not wait for jobs."""
    job = await made(shop, delay=3600)
    waiting = asyncio.create_task(shop.get(f"{JOBS}/{job}/result", params={"wait": 60}))
    await asyncio.sleep(0.05)
    ask.api.closing.set()
    async with asyncio.timeout(PATIENCE):
        assert (await waiting).json()["code"] == "not_open"


async def test_a_filter_that_cannot_be_read_is_pointed_at(shop: httpx2.AsyncClient) -> None:
    """The position is that of the character."""
    answer = (await shop.get(JOBS, params={"where": "state:failed topic:("})).json()
    assert (answer["status"], answer["position"]) == (422, 19)
    assert answer["errors"][0]["parameter"] == "where"


async def test_tasks_come_with_their_schemas(shop: httpx2.AsyncClient) -> None:
    """A form can be built from them."""
    tasks = {task["name"]: task for task in (await shop.get(f"{JOBS}/tasks")).json()["items"]}
    assert tasks["mail_digest"]["payload_schema"]["required"] == ["userId"]
    assert tasks["fleeting"]["payload_schema"] is None


async def test_topics_are_paused_by_superusers(root: httpx2.AsyncClient, shop: httpx2.AsyncClient) -> None:
    """For some time or without an end; a tenant may not, for it would stop others."""
    await made(shop)
    assert (await shop.post(f"{JOBS}/topics/mail_digest/pause")).status_code == 403
    assert (await root.post(f"{JOBS}/topics/mail_digest/pause", json={"seconds": 60})).status_code == 200
    (topic,) = (await root.get(f"{JOBS}/topics")).json()["items"]
    assert topic["paused"]
    assert topic["paused_until"] is not None
    assert (await root.post(f"{JOBS}/topics/mail_digest/pause", json={"seconds": 0})).status_code == 422
    assert (await root.post(f"{JOBS}/topics/mail_digest/resume")).status_code == 200
    assert not (await root.get(f"{JOBS}/topics")).json()["items"][0]["paused"]
    lines = (await root.get(f"{JOBS}/audit")).json()["items"]
    assert {"topic.pause", "topic.resume"} <= {line["action"] for line in lines}


@pytest.mark.parametrize("topic", ["mail/digest", "mail%2Fdigest", "mail/pause", "a/b/$(c);d+e."])
async def test_a_topic_of_the_wire_is_paused_by_its_name(root: httpx2.AsyncClient, topic: str) -> None:
    """beanstalkd allows slashes and more in names; none of them is taken for another path."""
    for verb in ("pause", "resume", "kick"):
        answer = await root.post(f"{JOBS}/topics/{topic}/{verb}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["topic"] == topic.replace("%2F", "/")


async def test_what_is_not_shown_cannot_be_searched_for(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """Whoever could ask for a payload's text again and again would read it; the same for workers' names."""
    await made(shop)
    reader = await ask.with_key(tenant="shop", scopes=["read"])
    for client, queries in (
        (reader, ({"where": "payload.userId:1"}, {"where": "NOT (topic:x OR secret)"}, {"text": "1"})),
        (shop, ({"where": "worker~box"},)),
    ):
        for query in queries:
            assert (await client.get(JOBS, params=query)).status_code == 403
            assert (await client.get(f"{JOBS}/failures", params=query)).status_code == 403
    assert (await reader.get(JOBS, params={"where": "topic:mail_digest error:timeout"})).status_code == 200
    assert (await shop.get(JOBS, params={"where": "payload.userId:1"})).json()["total"] == 1


async def test_every_question_has_an_answer(stored: Asking) -> None:
    """Each is one call, for superusers and for a tenant about its own."""
    shop, other = await stored.with_key(tenant="shop"), await stored.with_key(tenant="other")
    root = await stored.with_key(superuser=True)
    await shop.post(f"{JOBS}/enqueue", json={"task": "refuse", "payload": {"reason": "no paper"}})
    await stored.app.run_until_idle()
    await made(shop)
    listed = (await shop.get(f"{JOBS}/questions")).json()["items"]
    assert len(listed) == 6
    for question in listed:
        for client in (root, shop):
            answer = await client.get(question["path"])
            assert answer.status_code == 200, answer.text
            assert answer.json()["answer"]
    (group,) = (await shop.get(f"{JOBS}/failures")).json()["groups"]
    assert "no paper" in group["sample"]
    found = (await shop.get(JOBS, params={"where": group["where"]})).json()
    assert found["total"] == group["jobs"] == 1
    assert (await other.get(f"{JOBS}/failures")).json()["groups"] == []
    (failed,) = [
        lane for lane in (await root.get(f"{JOBS}/lanes")).json()["items"] if lane["task"] == "refuse"
    ]
    assert (failed["failed"], failed["failed_in_window"]) == (1, 1)
    assert (await other.get(f"{JOBS}/lanes")).json()["items"] == []
    fields = (await shop.get(f"{JOBS}/filter-fields")).json()["items"]
    assert {"state", "topic", "age"} <= {field["name"] for field in fields}
