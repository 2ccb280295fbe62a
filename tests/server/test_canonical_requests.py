"""A rule sees one canonical request, whichever way it is spelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import AliasChoices, BaseModel, Field, RootModel, SecretStr, StringConstraints, model_serializer

from tests.server.conftest import KNOWN, Asking, asking, make_app
from tidewheel import SecurityContext, acting_as

ENQUEUE = "/api/jobs/enqueue"
MANY = "/api/jobs/enqueue-many"
LATER = "2031-05-01T12:00:00+02:00"


class Order(BaseModel):
    amount: int = 0
    express: bool = False
    plan: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)] = "free"


class Transfer(BaseModel):
    """Members that pydantic reads by one name and writes by another, as something else, or not at all."""

    to: str = Field("", validation_alias=AliasChoices("to", "recipient"))
    purpose: str = Field("", serialization_alias="reason")
    voucher: str = Field("", exclude=True)
    token: SecretStr = SecretStr("")


class Wrapped(BaseModel):
    kind: str = ""

    @model_serializer
    def _written(self) -> dict[str, str]:
        return {"k": self.kind}


class Names(RootModel[list[Transfer]]): ...


@dataclass
class Plan:
    plan: str = "gold"


class Quota(msgspec.Struct, omit_defaults=True, rename="camel"):
    plan_name: str = "gold"


@asynccontextmanager
async def _bounded(rule: str, **settings: Any) -> AsyncIterator[Asking]:
    """A server whose rule lets nothing through of which ``rule`` does not hold."""
    app = make_app(enqueue_rule=f"{KNOWN} && ({rule})", **settings)

    @app.task
    async def order(order: Order) -> None: ...

    @app.task
    async def transfer(transfer: Transfer) -> None: ...

    @app.task
    async def transfers(first: Transfer, others: list[Transfer] | None = None) -> None: ...

    @app.task
    async def names(names: Names) -> None: ...

    @app.task
    async def wrapped(wrapped: Wrapped) -> None: ...

    @app.task
    async def plan(plan: Plan) -> None: ...

    @app.task
    async def quota(quota: Quota) -> None: ...

    @app.task
    async def subscribe(plan: str = "gold") -> None: ...

    @app.task(topic="ops")
    async def wipe_customer(customer: str = "") -> None: ...

    @app.task(priority=50, key="one at a time")
    async def urgent() -> None: ...

    async with app, asking(app) as ask:
        yield ask


SPELLINGS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("@request.body.run_at = null", {"run_at": LATER}, {}),
    ("@request.body.run_at = null", {"runAt": LATER}, {}),
    ("@request.body.run_at = null", {"delay": 60}, {}),
    ("@request.body.run_at < '2031-05-01T10:00:00' || @request.body.run_at = null", {"runAt": LATER}, {}),
    ("@request.body.delay = null", {"runAt": LATER}, {}),
    ("@request.body.delay <= 3600 || @request.body.delay = null", {"run_at": LATER}, {}),
    ("@request.body.max_attempts <= 3 || @request.body.max_attempts = null", {"max_attempts": 4}, {}),
    ("@request.body.max_attempts <= 3 || @request.body.max_attempts = null", {"maxAttempts": 4}, {}),
    ("@request.body.max_attempts <= 3 || @request.body.max_attempts = null", {"max_retries": 3}, {}),
    ("@request.body.max_attempts <= 3 || @request.body.max_attempts = null", {"maxRetries": 3}, {}),
    ("@request.body.max_attempts <= 3 || @request.body.max_attempts = null", {"max_attempts": None}, {}),
    ("@request.body.timeout <= 60 || @request.body.timeout = null", {"timeout": None}, {}),
    ("@request.body.retention <= 60 || @request.body.retention = null", {"retention": None}, {}),
    ("@request.body.ttr <= 60 || @request.body.ttr = null", {"ttr": 61}, {}),
    ("@request.body.key = null", {"key": "k"}, {}),
    ("@request.body.key = null", {}, {"Idempotency-Key": "k"}),
    ("key = ''", {}, {"Idempotency-Key": "k"}),
    ("key = ''", {"task": "urgent"}, {}),
    ("@request.body.correlation_id = null", {"correlation_id": "c"}, {}),
    ("@request.body.correlation_id = null", {"correlationId": "c"}, {}),
    ("@request.body.correlation_id = null", {}, {"X-Correlation-ID": "c"}),
    ("correlation_id = ''", {}, {"X-Correlation-ID": "c"}),
    ("@request.body.on_duplicate = null", {"on_duplicate": "replace"}, {}),
    ("@request.body.on_duplicate = null", {"onDuplicate": "replace"}, {}),
    ("@request.body.after_any = null", {"after_any": True}, {}),
    ("@request.body.after_any = null", {"afterAny": True}, {}),
    ("@request.body.retry.kind != 'fixed'", {"retry": {"kind": "fixed", "delay": 1}}, {}),
    ("priority <= 10", {"task": "urgent"}, {}),
    ("@request.body.task != 'wipe_customer'", {"task": "wipe_customer"}, {}),
    ("@request.body.task != 'wipe_customer'", {"topic": "wipe_customer"}, {}),
    ("@request.body.task != 'wipe_customer'", {"topic": "ops"}, {}),
    ("@request.body.topic != 'ops'", {"task": "wipe_customer"}, {}),
    ("task != 'wipe_customer'", {"topic": "ops"}, {}),
    ("@request.body.payload.plan != 'gold'", {"task": "order", "payload": {"plan": "  GOLD"}}, {}),
    ("@request.body.payload.amount != 5000", {"task": "order", "payload": {"amount": "5000"}}, {}),
    (
        "@request.body.payload.express != true",
        {"task": "order", "payload": {"amount": 1, "express": "on"}},
        {},
    ),
    (
        "@request.body.payload.customer = ''",
        {"task": "wipe_customer", "format": "bytes", "payload": "eyJjdXN0b21lciI6IjEifQ=="},
        {},
    ),
]
"""A rule, a body that breaks it in one spelling, and headers."""


def _plain(rule: str) -> dict[str, Any]:
    """A request that keeps the rule, to show that it is not closed."""
    if "payload.customer" in rule:
        return {"task": "wipe_customer"}
    return {"task": "order", "payload": {"amount": 5, "plan": "free"}}


@pytest.mark.parametrize(
    ("rule", "body", "headers"),
    [pytest.param(*one, id=f"{one[0]} {one[1] or one[2]}"[:90]) for one in SPELLINGS],
)
async def test_no_spelling_passes_by_a_rule(rule: str, body: dict[str, Any], headers: dict[str, str]) -> None:
    """Aliases, headers, defaults of tasks, payloads that a task reads as something else: the rule sees what
    becomes of them, one by one and in enqueue-many.
    """
    async with _bounded(rule) as ask:
        client = await ask.with_key(tenant="acme")
        sent = {"task": "order", "payload": {}, **body} if "topic" not in body else body
        refused = await client.post(ENQUEUE, json=sent, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_permitted"), refused.text
        if not headers:
            together = await client.post(MANY, json={"jobs": [sent]})
            assert together.status_code == 403
        assert (await ask.app.count()).total == 0
        kept = await client.post(ENQUEUE, json=_plain(rule))
        assert kept.status_code == 201, kept.text


READINGS: tuple[tuple[str, str, Any], ...] = (
    ("to != 'x'", "transfer", {"to": "x"}),
    ("to != 'x'", "transfer", {"recipient": "x"}),
    ("recipient != 'x'", "transfer", {"to": "x"}),
    ("purpose != 'x'", "transfer", {"purpose": "x"}),
    ("voucher != 'x'", "transfer", {"voucher": "x"}),
    ("token != 'x'", "transfer", {"token": "x"}),
    ("first.voucher != 'x'", "transfers", {"first": {"voucher": "x"}}),
    ("others.0.recipient != 'x'", "transfers", {"first": {}, "others": [{"to": "x"}]}),
    ("0.token != 'x'", "names", [{"token": "x"}]),
    ("kind != 'x'", "wrapped", {"kind": "x"}),
    ("plan != 'gold'", "plan", {}),
    ("plan_name != 'gold'", "quota", {"planName": "gold"}),
    ("planName != 'gold'", "quota", {}),
    ("plan != 'gold'", "subscribe", {}),
)
"""A rule about a member of a payload, a task, and a payload that the task reads as what the rule refuses."""


@pytest.mark.parametrize(("rule", "task", "sent"), READINGS)
async def test_rule_sees_what_the_task_reads(rule: str, task: str, sent: Any) -> None:
    """A member under each of its names, also one that its model hides or writes differently, and defaults."""
    async with _bounded(f"@request.body.payload.{rule}") as ask:
        client = await ask.with_key(tenant="acme")
        refused = await client.post(ENQUEUE, json={"task": task, "payload": sent})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_permitted"), refused.text
        other = msgspec.json.decode(msgspec.json.encode(sent).replace(b'"x"', b'"y"'))
        if other != sent:
            assert (await client.post(ENQUEUE, json={"task": task, "payload": other})).status_code == 201


async def test_copy_shows_a_rule_the_whole_new_job() -> None:
    """A copy takes over what its caller could not ask for: the rule is asked as if all of that were said."""
    rule = "@request.body.max_attempts <= 3 && @request.body.payload.amount <= 100 && priority <= 5"
    async with _bounded(rule) as ask:
        client = await ask.with_key(tenant="acme")
        jobs = []
        made: list[tuple[int, dict[str, Any]]] = [
            (5, {}),
            (5, {"max_attempts": 9}),
            (5, {"priority": 7}),
            (500, {}),
        ]
        for amount, options in made:
            with acting_as(SecurityContext("acme")):
                jobs.append(await ask.app.enqueue("order", {"amount": str(amount)}, **options))
        copied = [(await client.post(f"/api/jobs/{job.id}/copy")).status_code for job in jobs]
        assert copied == [201, 403, 403, 403]
        edited = await client.post(f"/api/jobs/{jobs[0].id}/copy", json={"patch": {"amount": "101"}})
        assert edited.status_code == 403
        assert (await client.post(f"/api/jobs/{jobs[2].id}/copy", json={"priority": 1})).status_code == 201


async def test_who_may_not_enqueue_is_not_told_what_is_wrong() -> None:
    """Payloads are checked before a rule can be asked about them; the refusal of the rule comes first."""
    async with _bounded("@request.body.payload.amount <= 100") as ask:
        client = await ask.with_key(tenant="acme")
        bad = [
            {"task": "order", "payload": {"amount": "a lot"}},
            {"task": "order", "payload": "?", "format": "bytes"},
            {"task": "wipe_customers"},
            {"topic": "unknown"},
            {"task": "fleeting", "payload": {"thing": "x"}},
        ]
        for body in bad:
            assert (await client.post(ENQUEUE, json=body)).json()["code"] == "not_permitted", body
            assert (await ask.client().post(ENQUEUE, json=body)).json()["code"] == "not_authenticated", body
        invalid = await client.post(ENQUEUE, json={"task": "order", "payload": {"amount": 7, "plan": 1}})
        assert (invalid.status_code, invalid.json()["errors"][0]["pointer"]) == (422, "#/payload/plan")


TASK_ELSEWHERE = {"task": "wipe_customer", "topic": "express"}


async def test_task_is_enqueued_to_its_own_topic_only() -> None:
    """A rule for a topic bounds the tasks that run there: none can be brought from another topic, one by one,
    together or as a copy. Superusers may.
    """
    async with _bounded("topic = 'express' || topic = 'ops'", allowed_topics=("express", "ops")) as ask:
        client, root = await ask.with_key(tenant="acme"), await ask.with_key(superuser=True)
        refused = await client.post(ENQUEUE, json=TASK_ELSEWHERE)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_permitted")
        assert "allowed_tasks" in refused.json()["detail"]
        assert (await client.post(MANY, json={"jobs": [TASK_ELSEWHERE]})).status_code == 403
        assert (await client.post(ENQUEUE, json={"task": "wipe_customer", "topic": "ops"})).status_code == 201
        assert (await root.post(ENQUEUE, json=TASK_ELSEWHERE)).status_code == 201
        with acting_as(SecurityContext("acme")):
            there = await ask.app.enqueue("wipe_customer", topic="express")
        assert (await client.post(f"/api/jobs/{there.id}/copy")).status_code == 403
        assert (await root.post(f"/api/jobs/{there.id}/copy")).status_code == 201


async def test_allowed_tasks_go_to_every_allowed_topic() -> None:
    """What ``allowed_tasks`` names can be enqueued elsewhere, to topics that jobs may come in by."""
    settings = {"allowed_topics": ("express",), "allowed_tasks": ("wipe_customer",)}
    async with _bounded("true", **settings) as ask:
        client = await ask.with_key(tenant="acme")
        assert (await client.post(ENQUEUE, json=TASK_ELSEWHERE)).status_code == 201
        assert (await client.post(ENQUEUE, json={"task": "wipe_customer"})).status_code == 403
        assert (await client.post(ENQUEUE, json={"task": "urgent", "topic": "express"})).status_code == 403
