"""A job that the manage rule hides is absent, whichever way a request leads to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.server.conftest import KNOWN, Asking, asking, make_app
from tidewheel import SecurityContext, acting_as

OWN = "user_id = @request.auth.user_id"
ENQUEUE = "/api/jobs/enqueue"
NOBODYS_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


@dataclass
class Scene:
    """Two users of one tenant, each of whom sees jobs of their own only."""

    ask: Asking
    ann: httpx2.AsyncClient
    ben: httpx2.AsyncClient

    async def hidden(self, **options: Any) -> str:
        """A job of ben's that waits, with the key ``order-7``; its id."""
        with acting_as(SecurityContext("acme", user_id="ben")):
            job = await self.ask.app.enqueue(
                "mail_digest", {"userId": "ben"}, **{"key": "order-7", "delay": 60, **options}
            )
        return str(job.id)

    async def payload(self, job_id: str) -> Any:
        return (await self.ask.app.get(job_id)).payload


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with make_app(manage_rule=OWN) as app, asking(app) as ask:
        ann, ben = [await ask.with_key(tenant="acme", user_id=user) for user in ("ann", "ben")]
        yield Scene(ask, ann, ben)


def _body(**more: Any) -> dict[str, Any]:
    return {"task": "mail_digest", "payload": {"userId": "ann"}, "key": "order-7", **more}


WAYS = ("keep", "replace", "onDuplicate", "header", "many", "copy")


async def _ask(scene: Scene, way: str) -> httpx2.Response:
    """A request of ann's that meets the key ``order-7``, in each way that one can."""
    match way:
        case "header":
            body = {name: value for name, value in _body().items() if name != "key"}
            return await scene.ann.post(ENQUEUE, json=body, headers={"Idempotency-Key": "order-7"})
        case "many":
            jobs = [_body(key="free"), _body(on_duplicate="replace")]
            return await scene.ann.post("/api/jobs/enqueue-many", json={"jobs": jobs})
        case "copy":
            made = (await scene.ann.post(ENQUEUE, json=_body(key="mine", delay=60))).json()
            return await scene.ann.post(f"/api/jobs/{made['id']}/copy", json={"key": "order-7"})
        case "onDuplicate":
            return await scene.ann.post(ENQUEUE, json=_body(onDuplicate="replace"))
        case _:
            return await scene.ann.post(ENQUEUE, json=_body(on_duplicate=way))


@pytest.mark.parametrize("way", WAYS)
async def test_hidden_holder_of_a_key_is_neither_changed_nor_named(scene: Scene, way: str) -> None:
    """Whichever way a key is given, and whatever is to be done with its holder: the answer has neither its id
    nor its state, and the job is as it was.
    """
    held = await scene.hidden()
    assert (await scene.ann.get(f"/api/jobs/{held}")).status_code == 404
    refused = await _ask(scene, way)
    assert (refused.status_code, refused.json()["code"]) == (409, "key_in_use")
    assert held not in refused.text
    assert "pending" not in refused.text
    assert await scene.payload(held) == {"userId": "ben"}
    assert (await scene.ann.get("/api/jobs?key=free")).json()["items"] == []  # all or none


@pytest.mark.parametrize("way", WAYS)
async def test_answer_does_not_tell_what_became_of_a_hidden_holder(scene: Scene, way: str) -> None:
    """Waiting, cancelled or long done: the refusal is the same to the byte."""
    held = await scene.hidden()
    waiting = await _ask(scene, way)
    await scene.ask.app.cancel(held)
    over = await _ask(scene, way)
    assert [waiting.status_code, _bare(waiting)] == [over.status_code, _bare(over)]


def _bare(response: httpx2.Response) -> dict[str, Any]:
    return {name: value for name, value in response.json().items() if name != "instance"}


@pytest.mark.parametrize("many", [False, True])
async def test_after_does_not_tell_a_hidden_job_from_none(scene: Scene, many: bool) -> None:
    """``after`` with the id of a hidden job is refused in the words for an id that never was."""
    held = await scene.hidden()
    answers = []
    for parent in (held, NOBODYS_ID):
        body = _body(key=None, after=[parent])
        path, sent = (f"{ENQUEUE}-many", {"jobs": [body]}) if many else (ENQUEUE, body)
        refused = await scene.ann.post(path, json=sent)
        assert refused.status_code == 422
        answers.append(refused.text.replace(parent, "<id>"))
    assert answers[0] == answers[1]
    assert (await scene.ann.get("/api/jobs")).json()["total"] == 0


async def test_own_jobs_are_met_by_key_and_after(scene: Scene) -> None:
    """What the rule shows is kept, replaced and waited for as ever."""
    made = await scene.ann.post(ENQUEUE, json=_body(delay=60))
    kept = await scene.ann.post(ENQUEUE, json=_body())
    assert (kept.status_code, kept.json()["id"], kept.json()["duplicate"]) == (200, made.json()["id"], True)
    replaced = await scene.ann.post(ENQUEUE, json=_body(on_duplicate="replace", payload={"userId": "a"}))
    assert (replaced.status_code, replaced.json()["replaced"]) == (200, True)
    after = await scene.ann.post(ENQUEUE, json=_body(key=None, after=[made.json()["id"]]))
    assert after.status_code == 201
    assert (await scene.ask.app.get(made.json()["id"])).payload == {"userId": "a"}


async def test_job_that_can_be_seen_but_not_changed_is_kept_and_not_replaced() -> None:
    """A rule that asks for the method: who may look is told of the holder, who may change replaces it."""
    rule = "@request.method = 'GET' || @request.auth.service_id = 'admin'"
    async with make_app(manage_rule=rule) as app, asking(app) as ask:
        reader, admin = [await ask.with_key(tenant="acme", service_id=one) for one in ("web", "admin")]
        made = await admin.post(ENQUEUE, json=_body(delay=60))
        kept = await reader.post(ENQUEUE, json=_body())
        assert (kept.status_code, kept.json()["id"]) == (200, made.json()["id"])
        refused = await reader.post(ENQUEUE, json=_body(on_duplicate="replace"))
        assert (refused.status_code, refused.json()["code"]) == (409, "key_in_use")
        assert (await admin.post(ENQUEUE, json=_body(on_duplicate="replace"))).json()["replaced"]


async def test_superusers_and_callers_who_see_everything_meet_every_job() -> None:
    """Without a row filter nothing is different, whatever scopes a key has."""
    async with make_app(manage_rule=KNOWN) as app, asking(app) as ask:
        only_enqueues = await ask.with_key(tenant="acme", scopes=["enqueue"])
        root = await ask.with_key(superuser=True)
        made = await only_enqueues.post(ENQUEUE, json=_body(delay=60))
        assert (await only_enqueues.post(ENQUEUE, json=_body())).json()["id"] == made.json()["id"]
        again = await root.post(ENQUEUE, json=_body(tenant="acme", on_duplicate="replace"))
        assert again.json()["replaced"]
