"""Who hears what: tenants, rules, credentials that end."""

from __future__ import annotations

import asyncio

import pytest

from tests.patience import PATIENCE
from tests.server.events.event_server import Served, served
from tests.server.events.test_events import finish
from tidewheel import SecurityContext, Tidewheel, acting_as
from tidewheel.core.conditions import AnyOf, Compare, ComparePayload, Comparison, Field
from tidewheel.core.ids import new_id
from tidewheel.server.events import broadcaster
from tidewheel.server.events.ring_buffer import TopicSubject
from tidewheel.server.events.subscription import JobScope, Subscription


async def enqueue(server: Served, tenant: str, topic: str) -> str:
    with acting_as(SecurityContext(tenant)):
        return str((await server.app.enqueue(topic)).id)


async def test_a_tenant_hears_of_its_own_jobs_alone(server: Served) -> None:
    """Not of others' topics, nor of others' jobs in its topics, however it asks."""
    server.gate.admit("acme", SecurityContext("acme"))
    server.gate.admit("other", SecurityContext("other"))
    # The others listen, too, so that there are events about their jobs.
    async with server.listen(), server.listen(who="other"), server.listen(who="acme") as client:
        await enqueue(server, "other", "mail")
        await enqueue(server, "other", "secret")
        await enqueue(server, "acme", "mail")
        told = await client.event()
        assert (told.data["topic"], told.data["pending"]) == ("mail", 1)
        assert "tenant" not in told.data


async def test_another_tenants_job_is_not_found(server: Served) -> None:
    """Just like one that never was; one among twenty is enough."""
    server.gate.admit("acme", SecurityContext("acme"))
    theirs, ours = await enqueue(server, "other", "t"), await enqueue(server, "acme", "t")
    for job in (theirs, str(new_id()), f"{ours},{theirs}"):
        async with server.listen({"job": job}, who="acme") as client:
            assert client.status == 404
            assert client.problem["code"] == "job_not_found"
    await server.until_nobody_listens()
    assert not server.api.event_broadcaster.poller._jobs


async def test_only_superusers_choose_a_tenant_and_see_workers(server: Served) -> None:
    """What is about the inside of the system is not in anybody else's events."""
    server.gate.admit("acme", SecurityContext("acme"))
    job = await enqueue(server, "acme", "t")
    await finish(server, "t")
    async with server.listen({"tenant": "other"}, who="acme") as client:
        assert client.status == 422
    async with server.listen({"job": job}, who="acme") as client:
        text = str((await client.event()).data)
        assert "w1" not in text
        assert "acme" not in text
    async with server.listen({"job": job}) as client:
        told = (await client.event()).data
        assert told["tenant"] == "acme"
        assert {entry.get("worker") for entry in told["entries"]} == {None, "w1"}
    async with server.listen({"tenant": "acme"}) as client:
        await enqueue(server, "other", "t")
        await enqueue(server, "acme", "u")
        assert (await client.event()).data["topic"] == "u"


async def test_a_rule_about_jobs_gives_jobs_and_no_counts(server: Served) -> None:
    """A job outside of it is not found, and one that leaves it is gone."""
    mine = ComparePayload(("user",), Comparison.EQUAL, 1)
    server.gate.admit("one", SecurityContext("acme", only=mine))
    async with server.listen(who="one") as client:
        assert client.status == 403
        assert client.problem["code"] == "not_permitted"
    with acting_as(SecurityContext("acme")):
        job = await server.app.enqueue("t", {"user": 1}, key="k")
        other = await server.app.enqueue("t", {"user": 2})
    async with server.listen({"job": str(other.id)}, who="one") as client:
        assert client.status == 404
    async with server.listen({"job": str(job.id)}, who="one") as client:
        assert (await client.event()).kind == "job"
        with acting_as(SecurityContext("acme")):
            await server.app.enqueue("t", {"user": 2}, key="k", on_duplicate="replace")
        assert [event.kind for event in await client.rest()] == ["gone", "end"]


async def test_keys_and_rules_decide_in_earnest(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a real key under a real rule: its topics, no others, until it is revoked."""
    monkeypatch.setattr(broadcaster, "HEARTBEAT_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(broadcaster, "CREDENTIAL_CHECK_SECONDS", 0.1)
    rule = 'topic = "mail" && tenant = @request.auth.tenant'
    async with Tidewheel("memory://", manage_rule=rule) as app, served(app, guarded=True) as server:
        key = await app.access.create_key(tenant="acme", scopes=["read"])
        writer = await app.access.create_key(tenant="acme", scopes=["enqueue"])
        async with server.listen(who="nonsense") as client:
            assert client.status == 401
        async with server.listen(who=writer.key) as client:
            assert client.status == 403
        async with server.listen(who=key.key) as client:
            assert client.status == 200
            await enqueue(server, "other", "mail")
            await enqueue(server, "acme", "secret")
            await enqueue(server, "acme", "mail")
            told = await client.event()
            assert (told.data["topic"], told.data["pending"]) == ("mail", 1)
            await app.access.revoke_key(key.info.id)
            assert await client.rest() == []
            assert client.comments == [broadcaster.CREDENTIAL_ENDED_REASON]


def test_a_rule_about_topics_narrows_them() -> None:
    """Counts are told of topics that are seen whole."""
    only = AnyOf(
        (Compare(Field.TOPIC, Comparison.EQUAL, "mail"), Compare(Field.TOPIC, Comparison.EQUAL, "sms"))
    )
    view = JobScope("acme", only)
    assert view.sees_whole_topics
    wish = Subscription(view)
    assert wish.matches_topic(TopicSubject("acme", "mail"))
    assert not wish.matches_topic(TopicSubject("acme", "other"))
    assert not wish.matches_topic(TopicSubject("other", "mail"))
    assert not wish.matches_topic(TopicSubject(None, "mail"))


@pytest.mark.parametrize(
    "only",
    [
        ComparePayload(("user",), Comparison.EQUAL, 1),
        Compare(Field.USER_ID, Comparison.EQUAL, "u1"),
        AnyOf((Compare(Field.TOPIC, Comparison.EQUAL, "t"), Compare(Field.KEY, Comparison.EQUAL, "k"))),
    ],
)
def test_a_rule_about_jobs_leaves_no_counts(only: ComparePayload | Compare | AnyOf) -> None:
    """They would tell how many jobs there are that the caller may not see."""
    assert not JobScope("acme", only).sees_whole_topics


async def test_a_wish_that_makes_no_sense_is_refused(server: Served) -> None:
    """With the parameter, and before a stream begins."""
    job = str(new_id())
    for query, parameter in (
        ({"job": "x" * 36}, "job"),
        ({"job": ",".join([job] * 21)}, "job"),
        ({"topic": "a,,b"}, "topic"),
        ({"topic": ",".join(f"t{n}" for n in range(101))}, "topic"),
        ({"topic": "a", "job": job}, "topic"),
        ({"state": "failed"}, "state"),
    ):
        async with server.listen(query) as client:
            assert client.status == 422
            assert client.problem["errors"][0]["parameter"] == parameter


async def test_a_revoked_key_ends_its_streams(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within seconds, with a word; others go on."""
    monkeypatch.setattr(broadcaster, "HEARTBEAT_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(broadcaster, "CREDENTIAL_CHECK_SECONDS", 0.1)
    server.gate.admit("acme", SecurityContext("acme"))
    server.gate.admit("beta", SecurityContext("beta"))
    async with server.listen(who="acme") as revoked, server.listen(who="beta") as other:
        del server.gate.callers["acme"]
        assert await revoked.rest() == []
        assert revoked.comments == [broadcaster.CREDENTIAL_ENDED_REASON]
        await enqueue(server, "beta", "t")
        assert (await other.event()).kind == "topic"


async def test_a_key_that_sees_something_else_has_to_come_again(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream shows what its caller could see when it began; when that changes it ends."""
    monkeypatch.setattr(broadcaster, "HEARTBEAT_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(broadcaster, "CREDENTIAL_CHECK_SECONDS", 0.1)
    server.gate.admit("acme", SecurityContext("acme"))
    async with server.listen(who="acme") as client:
        server.gate.admit("acme", SecurityContext("beta"))
        assert await client.rest() == []


async def test_a_store_that_is_away_ends_no_stream(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a key is good cannot be told then; listeners are told of the trouble, and of its end."""
    monkeypatch.setattr(broadcaster, "HEARTBEAT_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(broadcaster, "CREDENTIAL_CHECK_SECONDS", 0.1)
    asked = asyncio.Event()

    async def away(*_: object, **__: object) -> None:
        asked.set()
        raise ConnectionError("the store is away")

    async with server.listen() as client:
        with monkeypatch.context() as patched:
            patched.setattr(server.app, "topics", away)
            patched.setattr(server.gate, "authenticate", away)
            await asyncio.wait_for(asked.wait(), PATIENCE)
            assert (await client.event()).kind == "trouble"
        assert (await client.event()).kind == "recovered"
        await server.app.enqueue("mail")
        assert (await client.event()).kind == "topic"
