"""Limits in the app: what tasks declare, what operators set, and the key a job is limited by."""

from __future__ import annotations

import pytest

from tidewheel import InvalidInput, LimitsOrigin, NotPermitted, Rate, Tidewheel, TopicLimits, by_fields
from tidewheel.core.security_context import SecurityContext, acting_as
from tidewheel.errors import ConfigurationError
from tidewheel.testing.clock import FrozenClock
from tidewheel.worker.declared_limits import limits_of_tasks

FIVE = TopicLimits(concurrency=5)


async def test_limits_are_set_told_and_removed(app: Tidewheel) -> None:
    """By topic, on every store."""
    await app.limits.set("mail", FIVE)
    assert await app.limits.get("mail") == FIVE
    assert await app.limits.get("other") is None
    assert await app.limits.list() == {"mail": FIVE}
    assert await app.limits.remove("mail")
    assert not await app.limits.remove("mail")
    assert await app.limits.list() == {}


async def test_bad_limits_are_refused_and_change_nothing() -> None:
    """Each with what would be right."""
    async with Tidewheel("memory://") as app:
        with pytest.raises(InvalidInput, match="give TopicLimits"):
            await app.limits.set("mail", {"concurrency": 5})  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="a topic is 1 to 200 characters"):
            await app.limits.set("no topic", FIVE)
        with pytest.raises(InvalidInput, match="leave origin out"):
            await app.limits.set("mail", FIVE.as_declared())
        assert await app.limits.list() == {}


async def test_limits_are_no_tenant_s_business() -> None:
    """They are about all tenants, and weights name them."""
    async with Tidewheel("memory://") as app:
        with acting_as(SecurityContext("acme")):
            for call in (
                app.limits.list(),
                app.limits.get("a"),
                app.limits.set("a", FIVE),
                app.limits.remove("a"),
            ):
                with pytest.raises(NotPermitted):
                    await call


def test_limits_have_blocking_twins() -> None:
    """As everything that is awaited."""
    app = Tidewheel("memory://limits-twins")
    with app.sync:
        app.sync.limits.set("mail", FIVE)
        assert app.sync.limits.list() == {"mail": FIVE}
        assert app.limits.sync.remove("mail")


def test_a_task_declares_limits_of_its_topic() -> None:
    """They are told by the lanes of a worker, and come from code."""
    app = Tidewheel("memory://")

    @app.task(topic="mail", limits=FIVE)
    def send() -> None: ...

    @app.task(topic="mail")
    def resend() -> None: ...

    declared = limits_of_tasks(app.registry, app.registry.lanes())
    assert declared == {"mail": FIVE.as_declared()}
    assert declared["mail"].origin is LimitsOrigin.CODE
    assert limits_of_tasks(app.registry, app.registry.lanes(exclude=["mail"])) == {}


def test_two_declarations_of_one_topic_must_agree() -> None:
    """Otherwise it would depend on which worker started last."""
    app = Tidewheel("memory://")

    @app.task(topic="mail", limits=FIVE)
    def send() -> None: ...

    @app.task(topic="mail", limits=TopicLimits(concurrency=5))
    def resend() -> None: ...

    with pytest.raises(ConfigurationError, match="two different limits"):

        @app.task(topic="mail", limits=TopicLimits(concurrency=6))
        def delete() -> None: ...


@pytest.mark.parametrize("options", [{"limits": FIVE}, {"limit_key": "k"}])
def test_a_task_that_is_not_durable_has_no_limits(options: dict[str, object]) -> None:
    """Its jobs are in no store."""
    app = Tidewheel("memory://")
    with pytest.raises(ConfigurationError, match="durable is False together with limits"):

        @app.task(durable=False, **options)  # type: ignore[call-overload, untyped-decorator]
        def work() -> None: ...


async def test_a_limit_key_comes_from_the_call_or_from_the_payload(clock: FrozenClock) -> None:
    """The nearest wins, and people can read it."""
    async with Tidewheel("memory://", clock=clock) as app:

        @app.task(limit_key=by_fields("customer", "region"))
        async def work(customer: int, region: str = "eu") -> None: ...

        [job, other, long] = [
            await work.enqueue(customer=42, region="eu"),
            await work.options(limit_key="given").enqueue(customer=42),
            await work.enqueue(customer=42, region="x" * 300),
        ]
        assert (await app.get(job.id)).limit_key == '{"customer":42,"region":"eu"}'
        assert (job.limit_key, other.limit_key) == ('{"customer":42,"region":"eu"}', "given")
        assert len(long.limit_key or "") == 64
        assert (await app.enqueue("bare", {}, limit_key="k")).limit_key == "k"
        copy = await app.enqueue_copy(other.id, patch={"customer": 43})
        assert copy.limit_key == '{"customer":43,"region":null}'


async def test_a_limit_key_that_cannot_be_is_refused(clock: FrozenClock) -> None:
    """Where it is given, before anything is written."""
    async with Tidewheel("memory://", clock=clock) as app:
        for bad in ("", "k" * 201, 5, "\x00"):
            with pytest.raises(InvalidInput, match="limit_key"):
                await app.enqueue("mail", {}, limit_key=bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="no object with fields"):
            await app.enqueue("mail", [1], limit_key=by_fields("a"))
        with pytest.raises(InvalidInput, match="bytes, which have no fields"):
            await app.enqueue("mail", b"1", limit_key=by_fields("a"))
        with pytest.raises(ConfigurationError, match="limit_key is by_fields"):

            @app.task(limit_key=by_fields("nowhere"))
            def work(a: int) -> None: ...

        assert (await app.count()).total == 0


async def test_a_pause_for_a_time_holds_a_limited_topic_too(app: Tidewheel, clock: FrozenClock) -> None:
    """Until its end, by itself."""
    await app.limits.set("mail", TopicLimits(rate=Rate(10)))
    await app.enqueue("mail", {})
    await app.pause("mail", 60)
    [topic] = await app.topics()
    assert topic.paused_until == clock.now() + 60_000_000
    clock.advance(60)
    [topic] = await app.topics()
    assert topic.paused_until is None
