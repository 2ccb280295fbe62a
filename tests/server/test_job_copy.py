"""Edit and requeue over HTTP: a document with hidden values in it goes out, is edited, and comes back."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import pytest

from tests.server.conftest import Asking
from tidewheel import SecurityContext, acting_as
from tidewheel.server.redaction import REDACTED, CannotRestore, Redaction


async def original(ask: Asking, payload: Any, topic: str = "notes") -> str:
    """A job that nobody of the app's tasks takes, made by the program itself."""
    return str((await ask.app.enqueue(topic, payload)).id)


@pytest.fixture
def open_topics(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs without a task may come from outside, too."""
    object.__setattr__(ask.app.settings, "allowed_topics", ("notes", "upload", "mail_digest", "refuse"))


@pytest.mark.usefixtures("open_topics")
async def test_what_was_hidden_is_carried_over(ask: Asking, root: httpx2.AsyncClient) -> None:
    """The page sends back what it was shown; the mark is never written, the secret is never shown."""
    job = await original(
        ask, {"to": "ann", "password": "hunter2", "logins": [{"token": "t1"}, {"token": "t2"}]}
    )
    shown = (await root.get(f"/api/jobs/{job}")).json()["payload"]
    assert shown["password"] == REDACTED
    answer = await root.post(f"/api/jobs/{job}/copy", json={"payload": {**shown, "to": "ben"}, "priority": 9})
    assert answer.status_code == 201
    told = answer.json()
    assert (told["copied_from"], told["original_deleted"], told["duplicate"]) == (job, False, False)
    assert answer.headers["location"].endswith(told["id"])
    copy = await ask.app.get(told["id"])
    logins = [{"token": "t1"}, {"token": "t2"}]
    assert copy.payload == {"to": "ben", "password": "hunter2", "logins": logins}
    assert (copy.priority, copy.correlation_id) == (9, job)
    patched = await root.post(f"/api/jobs/{job}/copy", json={"patch": {"to": "cat", "password": REDACTED}})
    assert (await ask.app.get(patched.json()["id"])).payload == {**copy.payload, "to": "cat"}
    changed = await root.post(f"/api/jobs/{job}/copy", json={"patch": {"password": "another"}})
    assert "another" in (await ask.app.get(changed.json()["id"])).payload.values()
    as_it_was = await root.post(f"/api/jobs/{job}/copy")
    assert (await ask.app.get(as_it_was.json()["id"])).payload == (await ask.app.get(job)).payload


@pytest.mark.usefixtures("open_topics")
async def test_a_mark_that_stands_for_nothing_is_refused(ask: Asking, root: httpx2.AsyncClient) -> None:
    """With the place it is at; nothing is written."""
    job = await original(ask, {"to": "ann", "logins": [{"token": "t1"}, {"token": "t2"}]})
    before = (await ask.app.count()).total
    for body, pointer in (
        ({"payload": {"secret": REDACTED}}, "#/payload/secret"),
        ({"payload": {"logins": [{"token": REDACTED}]}}, "#/payload/logins/0"),
        ({"patch": {"a/b": {"token": REDACTED}}}, "#/patch/a~1b/token"),
        ({"payload": {}, "patch": {}}, "#/patch"),
    ):
        answer = await root.post(f"/api/jobs/{job}/copy", json=body)
        assert answer.status_code == 422
        assert [part["pointer"] for part in answer.json()["errors"]] == [pointer]
    assert (await ask.app.count()).total == before


@pytest.mark.parametrize(
    ("edited", "before", "expected"),
    [
        ([{"id": 1, "token": REDACTED}], [{"id": 1, "token": "a"}], [{"id": 1, "token": "a"}]),
        # moved and removed: told apart by what is shown of them
        (
            [{"id": 2, "token": REDACTED}, {"id": 1, "token": REDACTED}],
            [{"id": 1, "token": "a"}, {"id": 2, "token": "b"}],
            [{"id": 2, "token": "b"}, {"id": 1, "token": "a"}],
        ),
        (
            [{"id": 2, "token": REDACTED}],
            [{"id": 1, "token": "a"}, {"id": 2, "token": "b"}],
            [{"id": 2, "token": "b"}],
        ),
        # edited in place
        ([{"id": 9, "token": REDACTED}], [{"id": 1, "token": "a"}], [{"id": 9, "token": "a"}]),
        # a mark where nothing is hidden is a text
        ({"note": REDACTED}, {"note": "x"}, {"note": REDACTED}),
        ([REDACTED, 1], [2, 3, 4], [REDACTED, 1]),
        ({"token": {"inner": "b"}}, {"token": {"inner": "a"}}, {"token": {"inner": "b"}}),
        ({"token": None}, {"token": "a"}, {"token": None}),
        (REDACTED, {"token": "a"}, REDACTED),
    ],
)
def test_marks_become_what_they_stand_for(edited: Any, before: Any, expected: Any) -> None:
    """By place, or by what only one item was shown as."""
    assert Redaction(["token"]).restore(edited, before) == expected


@pytest.mark.parametrize(
    ("edited", "before"),
    [
        ([{"token": REDACTED}], [{"token": "a"}, {"token": "b"}]),
        ([{"id": 9, "token": REDACTED}, {}], [{"id": 1, "token": "a"}]),
        ([{"id": 1, "token": REDACTED}] * 2, [{"id": 2, "token": "a"}, {"id": 3, "token": "b"}, {}]),
        ({"other": {"token": REDACTED}}, {"token": "a"}),
        ({"token": [REDACTED]}, {"other": 1}),
        ({"token": {"inner": REDACTED}}, {"token": {"inner": "a"}}),
        # one moved, another was edited: whose place is it?
        (
            [{"id": 2, "token": REDACTED}, {"id": 9, "token": REDACTED}],
            [{"id": 1, "token": "a"}, {"id": 2, "token": "b"}],
        ),
        # edited to look like its neighbour, or a copy of that
        ([{"id": 2, "token": REDACTED}] * 2, [{"id": 1, "token": "a"}, {"id": 2, "token": "b"}]),
        (
            [{"id": 2, "token": REDACTED}, 0, {"id": 2, "token": REDACTED}],
            [{"id": 1, "token": "a"}, {"id": 2, "token": "b"}, 1],
        ),
        # something without a secret took the place of something with one
        (
            [3, {"id": 9, "token": REDACTED}, {"id": 8, "token": REDACTED}],
            [{"id": 1, "token": "a"}, {"id": 2, "token": "b"}, 3],
        ),
    ],
)
def test_a_secret_never_ends_up_in_anothers_place(edited: Any, before: Any) -> None:
    """Where it cannot be told which is meant, nothing is."""
    with pytest.raises(CannotRestore):
        Redaction(["token"]).restore(edited, before)


def test_long_lists_are_restored_in_one_pass() -> None:
    """As many items as a payload has room for, all of them moved: no other request waits for that."""
    before = [{"id": number, "token": "a"} for number in range(10_000)]
    edited = [{"id": number, "token": REDACTED} for number in reversed(range(9_999))]
    began = time.thread_time()  # of this thread alone: other programs do not slow it down
    restored = Redaction(["token"]).restore(edited, before)
    used = time.thread_time() - began
    assert restored == before[-2::-1]
    assert used < 1, "each item was compared with each, which takes 2.7 s"


@pytest.mark.usefixtures("open_topics")
async def test_only_superusers_change_what_stands_beside_a_hidden_value(
    ask: Asking, root: httpx2.AsyncClient, shop: httpx2.AsyncClient
) -> None:
    """Others could have it sent wherever they like: the address beside a token is a member like any other."""
    with acting_as(SecurityContext("shop")):
        job = str((await ask.app.enqueue("notes", {"url": "good", "token": "t1"})).id)
        plain = str((await ask.app.enqueue("notes", {"url": "good"})).id)
    changes: list[Any] = [{"patch": {"url": "evil"}}, {"payload": {"url": "evil", "token": REDACTED}}]
    for body in changes:
        answer = await shop.post(f"/api/jobs/{job}/copy", json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "not_permitted")
        assert (await root.post(f"/api/jobs/{job}/copy", json=body)).status_code == 201
    own = {"payload": {"url": "x", "token": "own"}}
    for target, body in ((job, {}), (job, own), (plain, {"patch": {"url": "other"}})):
        assert (await shop.post(f"/api/jobs/{target}/copy", json=body)).status_code == 201


async def test_a_refused_copy_quotes_nothing_that_is_hidden(ask: Asking, root: httpx2.AsyncClient) -> None:
    """What does not fit any more may be what the first job was given, which nobody is shown."""
    job = await original(ask, {"password": "hunter2", "amount": 3}, "pay")

    @ask.app.task
    async def pay(password: int, amount: int) -> None:
        """As it was changed since."""

    for body in ({}, {"patch": {"amount": 4}}):
        answer = await root.post(f"/api/jobs/{job}/copy", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "#/payload/password"
        assert "expected int, got str" in answer.text
        assert "hunter2" not in answer.text


async def test_a_copy_is_checked_as_enqueue_is(ask: Asking, root: httpx2.AsyncClient) -> None:
    """Its task's schema, tasks that are not there any more, base64 for bytes."""
    job = await original(ask, {"userId": "a"}, "mail_digest")
    answer = await root.post(f"/api/jobs/{job}/copy", json={"patch": {"userId": 5}})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    stray = await original(ask, {}, "nobodys")
    answer = await root.post(f"/api/jobs/{stray}/copy")
    assert (answer.status_code, answer.json()["code"]) == (422, "handler_not_found")
    raw = str((await ask.app.enqueue("upload", b"abc")).id)
    assert (await root.post(f"/api/jobs/{raw}/copy", json={"payload": "no base64!"})).status_code == 422
    assert (await root.post(f"/api/jobs/{raw}/copy", json={"patch": {"a": 1}})).status_code == 422
    answer = await root.post(f"/api/jobs/{raw}/copy", json={"payload": "eHl6"})
    assert (await ask.app.get(answer.json()["id"])).payload == b"xyz"


async def test_the_original_goes_when_told_to_and_only_then(ask: Asking, root: httpx2.AsyncClient) -> None:
    """A finished one, after the copy is written, and never where there is none; the audit log has it."""
    job = str((await ask.app.enqueue("refuse", {})).id)
    refusal = await root.post(f"/api/jobs/{job}/copy", json={"delete_original": True})
    assert (refusal.status_code, refusal.json()["code"]) == (409, "wrong_state")
    await ask.app.run_until_idle()
    first = await root.post(f"/api/jobs/{job}/copy", json={"key": "once"})
    again = await root.post(
        f"/api/jobs/{job}/copy", json={"delete_original": True}, headers={"Idempotency-Key": "once"}
    )
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    assert (again.json()["duplicate"], again.json()["original_deleted"]) == (True, False)
    assert (await root.get(f"/api/jobs/{job}")).status_code == 200
    done = await root.post(f"/api/jobs/{job}/copy", json={"patch": {"reason": "x"}, "delete_original": True})
    assert done.json()["original_deleted"] is True
    assert (await root.get(f"/api/jobs/{job}")).status_code == 404
    lines = (await root.get("/api/jobs/audit", params={"target": job})).json()["items"]
    assert [line["action"] for line in lines] == ["job.copy"] * 3
    assert lines[0]["details"] == {
        "copy": done.json()["id"],
        "changed": ["payload"],
        "original_deleted": True,
    }


async def test_a_tenant_copies_its_own_jobs_only(ask: Asking, shop: httpx2.AsyncClient) -> None:
    """Another's is not there; a key that may not enqueue may not copy."""
    own = (await shop.post("/api/jobs/enqueue", json={"task": "refuse"})).json()["id"]
    copy = await shop.post(f"/api/jobs/{own}/copy")
    assert (await ask.app.get(copy.json()["id"])).tenant == "shop"
    other = await ask.with_key(tenant="other")
    assert (await other.post(f"/api/jobs/{own}/copy")).status_code == 404
    manager = await ask.with_key(tenant="shop", scopes=["manage", "read"])
    answer = await manager.post(f"/api/jobs/{own}/copy")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_permitted")
