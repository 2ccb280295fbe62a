"""Bulk operations over HTTP: counted first, done in the background, followed and stopped."""

from __future__ import annotations

import asyncio
import base64
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.patience import PATIENCE
from tests.server.conftest import Asking, asking, make_app
from tests.stores.all_stores.urls import STORES
from tidewheel import Tidewheel
from tidewheel.admin import bulk_operations
from tidewheel.errors import StoreUnavailable
from tidewheel.testing import FrozenClock

BULK = "/api/jobs/bulk"


async def fill(client: httpx2.AsyncClient, number: int) -> None:
    job = {"task": "mail_digest", "payload": {"userId": "1"}, "delay": 3600}
    assert (await client.post("/api/jobs/enqueue-many", json={"jobs": [job] * number})).status_code == 201


async def until_ended(client: httpx2.AsyncClient, place: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            shown = (await client.get(place)).json()
            if shown["state"] != "running":
                return shown
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("store", STORES)
async def test_everything_that_matches_is_acted_on_in_the_background(store: str, tmp_path: Path) -> None:
    """Preview, operation, progress, audit; other tenants' jobs are left alone."""
    async with asking(make_app(STORES[store](tmp_path))) as ask:
        shop, other = await ask.with_key(tenant="shop"), await ask.with_key(tenant="other")
        root = await ask.with_key(superuser=True)
        await fill(shop, 5)
        await fill(other, 2)
        body = {"action": "cancel", "filter": {"where": "topic:mail_digest"}}
        preview = await shop.post(BULK, json={**body, "preview": True})
        told = {
            "action": "cancel",
            "matched": 5,
            "exact": True,
            "times": [],
            "left_alone": {},
            "reason": None,
        }
        assert preview.json() == told
        started = await shop.post(BULK, json=body)
        assert (started.status_code, started.json()["state"]) == (202, "running")
        ended = await until_ended(shop, started.headers["location"])
        assert (ended["state"], ended["matched"], ended["done"], ended["skipped"]) == ("done", 5, 5, 0)
        assert (await other.get("/api/jobs/stats")).json()["pending"] == 2
        assert (await shop.get("/api/jobs/stats")).json()["cancelled"] == 5
        # Neither another tenant nor another key of this one is told of it.
        colleague = await ask.with_key(tenant="shop")
        for client in (other, colleague):
            assert (await client.get(started.headers["location"])).json()["code"] == "bulk_not_found"
        assert (await root.get(started.headers["location"])).json()["done"] == 5
        assert (await root.get(f"{BULK}/{uuid4()}")).status_code == 404
        actions = [line["action"] for line in (await root.get("/api/jobs/audit")).json()["items"]]
        assert actions.count("bulk.start") == actions.count("bulk.end") == 1


async def test_a_long_filter_is_in_the_audit_log_before_anything_is_done(
    root: httpx2.AsyncClient, shop: httpx2.AsyncClient
) -> None:
    """Start and end are recorded, with the beginning of the filter and a hash; the answer is 202."""
    await fill(shop, 3)
    characters = "\U0001d11e" * 200  # of four bytes each
    where = " ".join(f'-user:"{characters}"' for _ in range(4))
    for filters in ({"where": where, "text": characters}, {"where": where, "text": "\u0001" * 900}):
        started = await root.post(BULK, json={"action": "cancel", "filter": filters})
        assert started.status_code == 202, started.text
        ended = await until_ended(root, started.headers["location"])
        lines = (await root.get("/api/jobs/audit", params={"target": ended["id"]})).json()["items"]
        assert {(line["action"], line["outcome"]) for line in lines} == {
            ("bulk.start", "done"),
            ("bulk.end", "done"),
        }


async def test_a_preview_counts_what_the_verb_can_act_on(shop: httpx2.AsyncClient) -> None:
    """Who asks to requeue what has completed is told of no job before, and of none skipped after."""
    await fill(shop, 3)
    for verb, state, matched in (
        ("requeue", "delayed", 0),
        ("delete", "running", 0),
        ("cancel", "delayed", 3),
    ):
        body = {"action": verb, "filter": {"state": state}}
        assert (await shop.post(BULK, json={**body, "preview": True})).json()["matched"] == matched
        started = await shop.post(BULK, json=body)
        ended = await until_ended(shop, started.headers["location"])
        assert (ended["matched"], ended["done"], ended["skipped"]) == (matched, matched, 0)
        assert ended["started_at"] == started.json()["started_at"]


async def test_a_preview_spells_out_the_times_that_are_meant(shop: httpx2.AsyncClient) -> None:
    """Which side of which moment: the wrong one deletes what should have been kept."""
    given = {"where": "age>1h -finished<2h", "created_before": "2030-01-31T09:00:00Z"}
    body = {"action": "delete", "filter": given, "preview": True}
    times = (await shop.post(BULK, json=body)).json()["times"]
    assert [time["term"] for time in times] == ["created_before", "age>1h", "finished<2h"]
    before, older, newer = (time["meaning"] for time in times)
    assert before == "created before 2030-01-31 09:00:00 UTC"
    assert re.fullmatch(r"created before \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(more than 1h ago\)", older)
    assert re.fullmatch(r"finished after [\d :-]+ UTC \(less than 2h ago\)", newer)


async def test_jobs_in_unsuitable_states_are_told_with_the_reason(shop: httpx2.AsyncClient) -> None:
    """A bulk action that leaves matching jobs alone says how many, in which state, and why."""
    await fill(shop, 3)
    body = {"action": "requeue", "filter": {"where": "topic:mail_digest"}}
    preview = (await shop.post(BULK, json={**body, "preview": True})).json()
    assert (preview["matched"], preview["left_alone"]) == (0, {"pending": 3})
    assert preview["reason"] == "3 pending jobs are left alone: only failed or cancelled jobs can be requeued"
    started = await shop.post(BULK, json=body)
    ended = await until_ended(shop, started.headers["location"])
    assert (ended["done"], ended["left_alone"], ended["reason"]) == (0, {"pending": 3}, preview["reason"])


async def test_counters_say_how_many_it_will_be(
    shop: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many: who requeues a hundred thousand wants to see how far it is. Others are "at least"."""
    monkeypatch.setattr("tidewheel.stores.memory.store.MAX_COUNT", 2)
    await fill(shop, 5)
    for where, told in (("topic:mail_digest task:mail_digest", (5, True)), ("age<1h", (2, False))):
        body = {"action": "cancel", "filter": {"where": where}, "preview": True}
        preview = (await shop.post(BULK, json=body)).json()
        assert (preview["matched"], preview["exact"]) == told
    started = await shop.post(BULK, json={"action": "cancel", "filter": {"topic": "mail_digest"}})
    assert (started.json()["matched"], started.json()["matched_exact"]) == (5, True)


async def test_all_jobs_are_nobodys_wish(shop: httpx2.AsyncClient) -> None:
    """Without a filter nothing is done."""
    for given in ({}, {"where": " "}, {"unknown": 1}):
        answer = await shop.post(BULK, json={"action": "delete", "filter": given})
        assert answer.status_code == 422
    assert (await shop.post(BULK, json={"action": "run", "filter": {"topic": "x"}})).status_code == 422


async def test_an_operation_stops_when_asked_from_another_process(
    ask: Asking, shop: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wish is in the store: whoever runs it sees it with the next batch, and says that it stopped."""
    monkeypatch.setattr("tidewheel.admin.bulk_actions.MAX_BATCH", 1)
    monkeypatch.setattr(bulk_operations, "HEARTBEAT_SECONDS", 0.0)
    await fill(shop, 30)
    reached, go_on = asyncio.Event(), asyncio.Event()
    cancel = ask.app.store.cancel

    async def slowly(*args: Any, **kwargs: Any) -> Any:
        reached.set()
        await go_on.wait()
        return await cancel(*args, **kwargs)

    monkeypatch.setattr(ask.app.store, "cancel", slowly)
    started = await shop.post(BULK, json={"action": "cancel", "filter": {"topic": "mail_digest"}})
    await reached.wait()
    ask.app.bulk._stops.clear()  # as in another process, which can only write it down
    stopped = await shop.post(f"{started.headers['location']}/stop")
    assert (stopped.status_code, stopped.json()["stop_requested"]) == (202, True)
    go_on.set()
    ended = await until_ended(shop, started.headers["location"])
    assert ended["state"] == "stopped"
    assert 0 < ended["done"] < 30


async def test_a_shutdown_stops_operations_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was done stays done, and whoever asks later is told that it was not all."""
    monkeypatch.setattr("tidewheel.admin.bulk_actions.MAX_BATCH", 1)
    app = make_app()
    async with app:
        async with asking(app) as ask:
            shop = await ask.with_key(tenant="shop")
            await fill(shop, 50)
            started = await shop.post(BULK, json={"action": "cancel", "filter": {"topic": "mail_digest"}})
        operation = await app.bulk.get(started.json()["id"])
        assert operation is not None
        assert operation.state == "stopped"


async def test_an_operation_whose_process_died_shows_as_interrupted() -> None:
    """Progress that is not renewed is no progress."""
    clock = FrozenClock()
    async with Tidewheel("memory://", clock=clock) as app:
        operation = await app.bulk.start("cancel", {"topic": "mail_digest"})
        for task in list(app.bulk._running.values()):
            task.cancel()
        clock.advance(bulk_operations.MAX_SILENT_SECONDS + 1)
        found = await app.bulk.get(operation.id)
        assert found is not None
        assert found.state == "interrupted"


@pytest.mark.parametrize("hangs", ["in a batch", "at its end"])
async def test_a_shutdown_does_not_wait_for_a_store_that_hangs(
    hangs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operation shows as interrupted then; the process ends in time."""
    monkeypatch.setattr(bulk_operations, "CLOSE_SECONDS", 0.05)
    async with Tidewheel("memory://") as app:
        await app.enqueue("mail", topic="mail")
        reached = asyncio.Event()

        async def hang(*_: Any, **__: Any) -> None:
            reached.set()
            await asyncio.Event().wait()

        ended = None if hangs == "in a batch" else hang
        if ended is None:
            monkeypatch.setattr(app.store, "cancel", hang)
        await app.bulk.start("cancel", {"topic": "mail"}, on_end=ended)
        async with asyncio.timeout(PATIENCE):
            await reached.wait()
            await app.bulk.close()
        assert not app.bulk._running


async def test_how_an_operation_ended_is_told_after_an_outage(
    ask: Asking, shop: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store goes away in the middle: once it is back the operation is failed, and in the audit log."""
    monkeypatch.setattr(bulk_operations, "INITIAL_DELAY_SECONDS", 0.001)
    await fill(shop, 1)
    store, tried = ask.app.store, asyncio.Event()
    write = store.write_documents
    away = True

    async def gone(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("it is away")

    async def write_if_there(documents: Any) -> Any:
        if away and documents[0].kind == bulk_operations.BULK_DOCUMENT_KIND and documents[0].expected_version:
            tried.set()
            await gone()
        return await write(documents)

    monkeypatch.setattr(store, "cancel", gone)
    monkeypatch.setattr(store, "write_documents", write_if_there)
    started = await shop.post(BULK, json={"action": "cancel", "filter": {"topic": "mail_digest"}})
    await tried.wait()
    away = False
    ended = await until_ended(shop, started.headers["location"])
    assert (ended["state"], ended["error"]) == ("failed", "it is away")
    await asyncio.wait(ask.app.bulk._running.values() or [asyncio.create_task(asyncio.sleep(0))])
    actions = [line.action for line in (await ask.app.access.audit.lines()).lines]
    assert actions.count("bulk.end") == 1


async def test_no_more_run_when_many_are_started_at_once(tmp_path: Path) -> None:
    """A place is taken before the store is asked for anything."""
    async with asking(make_app(f"sqlite:///{(tmp_path / 'q.db').as_posix()}")) as ask:
        root = await ask.with_key(superuser=True)
        body = {"action": "cancel", "filter": {"topic": "mail_digest"}}
        answers = await asyncio.gather(
            *(root.post(BULK, json=body) for _ in range(3 * bulk_operations.MAX_RUNNING))
        )
        started = [answer for answer in answers if answer.status_code == 202]
        assert len(started) == bulk_operations.MAX_RUNNING


async def test_one_tenant_leaves_places_for_others(tmp_path: Path) -> None:
    """It is refused without a word about what others run, and its places are free again afterwards."""
    async with asking(make_app(f"sqlite:///{(tmp_path / 'q.db').as_posix()}")) as ask:
        shop, other = await ask.with_key(tenant="shop"), await ask.with_key(tenant="other")
        body = {"action": "cancel", "filter": {"topic": "mail_digest"}}
        answers = await asyncio.gather(
            *(client.post(BULK, json=body) for client in (shop, shop, shop, shop, other))
        )
        codes = [answer.status_code for answer in answers]
        assert (codes.count(202), codes[-1]) == (bulk_operations.MAX_TENANT_RUNNING + 1, 202)
        [refused, _] = [answer.json()["detail"] for answer in answers if answer.status_code == 503]
        assert refused.startswith(
            f"{bulk_operations.MAX_TENANT_RUNNING} bulk operations of this tenant are running"
        )
        for answer in answers:
            if answer.status_code == 202:
                await until_ended(other if answer is answers[-1] else shop, answer.headers["location"])
        await asyncio.gather(*ask.app.bulk._running.values())
        assert ask.app.bulk._slots.total() == 0


async def test_a_process_runs_a_few_operations_at_a_time(
    ask: Asking, shop: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More are refused with a hint to come back."""
    monkeypatch.setattr(bulk_operations, "MAX_RUNNING", 0)
    await fill(shop, 1)
    answer = await shop.post(BULK, json={"action": "cancel", "filter": {"topic": "mail_digest"}})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_list_of_operations_has_the_callers_own_and_tells_of_no_others() -> None:
    """Pages are full, and cursors lead from one of the caller's operations to the next: how many others there
    are, of the same tenant or another, is not told, nor are their ids and times.
    """
    async with asking(make_app()) as ask:
        names = {"own": "acme", "colleague": "acme", "stranger": "globex"}
        clients = {name: await ask.with_key(tenant=tenant) for name, tenant in names.items()}
        clients["root"] = await ask.with_key(superuser=True)
        started: dict[str, list[str]] = {name: [] for name in clients}
        body = {"action": "cancel", "filter": {"key": "of no job"}}
        for name in ("stranger", "own", "colleague", "own", "root", "stranger", "own", "colleague"):
            made = await clients[name].post("/api/jobs/bulk", json=body)
            started[name].append(made.json()["id"])
            await ask.app.bulk.close()
        for size in (1, 2, 3, 50):
            found, cursor, pages = [], "", 0
            while pages == 0 or cursor:
                query = f"?limit={size}" + (f"&cursor={cursor}" if cursor else "")
                page = (await clients["own"].get(f"/api/jobs/bulk{query}")).json()
                found += [one["id"] for one in page["items"]]
                assert len(page["items"]) == size or page["cursor"] is None
                cursor, pages = page["cursor"], pages + 1
                plain = base64.urlsafe_b64decode((cursor or "") + "==")
                assert not any(one.encode() in plain for ids in started.values() for one in ids)
            assert found == started["own"][::-1]
            assert pages == -(-3 // size)
        everything = (await clients["root"].get("/api/jobs/bulk")).json()["items"]
        assert len(everything) == 8


async def test_callers_without_an_id_do_not_list_the_operations_of_each_other() -> None:
    """Anonymous callers, and tokens without a subject, cannot be told apart: each has the id of its own
    operation, and lists none.
    """
    async with asking(make_app(manage_rule="true", enqueue_rule="true")) as ask:
        one, other = ask.client(), ask.client()
        await fill(one, 2)
        body = {"action": "cancel", "filter": {"where": "payload.userId:1"}}
        started = await one.post(BULK, json=body)
        assert (await until_ended(one, started.headers["location"]))["done"] == 2
        assert (await other.get(BULK)).json() == {"items": [], "cursor": None}
