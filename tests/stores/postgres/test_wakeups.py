"""Hints between processes: heard, few, and back soon after the ear was lost."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tests.patience import PATIENCE
from tests.servers import PgBouncer
from tests.servers.shared import empty_url, fresh_schema
from tests.stores.postgres.proxy import Proxy
from tests.stores.postgres.stores import opened, raw, schema_of
from tidewheel import TopicLimits
from tidewheel.core.model import Completed
from tidewheel.stores.postgres import PostgresStore
from tidewheel.stores.postgres import wakeups as postgres_wakeups
from tidewheel.stores.postgres.wakeups import MAX_AT_ONCE, MAX_TOPICS_PER_HINT, NOTIFY_INTERVAL_SECONDS
from tidewheel.stores.protocol import Wakeups
from tidewheel.testing.conformance.helpers import TOPIC, claim_one, enqueue_one, job, make_failed, settle_one

NEVER = 0.1


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    async with opened(postgres_url, postgres_url) as stores:
        yield stores


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Ask again until the answer is good."""
    async with asyncio.timeout(PATIENCE):
        while not (answer := await condition()):
            await asyncio.sleep(0.01)
        return answer


async def heard_again(store: PostgresStore, wakeups: Wakeups, topic: str = "mail") -> None:
    """Returns once jobs enqueued elsewhere are hinted at again."""

    async def enqueue_and_listen() -> bool:
        while await wakeups.wait(0):
            pass  # older hints
        await enqueue_one(store, topic)
        return await wakeups.wait(0.2)

    await until(enqueue_and_listen)


async def kill_listener(url: str) -> int:
    """End the backends that listen on the schema's channels, as an administrator would; how many."""
    async with raw(url) as connection:
        killed = await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query ILIKE $1 AND pid <> pg_backend_pid()",
            f'LISTEN "{schema_of(url)}%',
        )
        return len(killed)


async def test_a_listener_whose_backend_is_killed_hears_again_soon(
    stores: list[PostgresStore], postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Everybody is woken once, because something may have been missed, and hints go on as before."""
    caplog.set_level(logging.CRITICAL, "tidewheel.postgres")
    async with (
        stores[0].wakeups(topics=["mail"]) as mail,
        stores[0].wakeups(topics=["other"]) as other,
        stores[0].wakeups(finished=True) as finished,
    ):
        for _ in range(2):
            assert await kill_listener(postgres_url) == 1
            for wakeups in (mail, other, finished):
                assert await wakeups.wait(PATIENCE)
            assert not await other.wait(NEVER)
            await enqueue_one(stores[1])
            assert await mail.wait(PATIENCE)
            assert not await other.wait(0)


class Ear:
    """Listens to a schema's hints on a thread, so it hears while the event loop of the test is blocked."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._listening = threading.Event()
        self._ended = threading.Event()
        self._heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen()))

    async def _listen(self) -> None:
        async with raw(self._url) as connection:
            await connection.add_listener(schema_of(self._url), self._hear)
            self._listening.set()
            await asyncio.to_thread(self._ended.wait)

    def _hear(self, *arguments: Any) -> None:
        self._heard.put(arguments[-1])

    def topics(self) -> set[str]:
        """Wait for the next hint, and return the topics it names. Blocks the event loop of the caller."""
        return set(msgspec.json.decode(self._heard.get(timeout=PATIENCE))[1])

    def count(self) -> int:
        """Return how many hints were heard that ``topics`` has not returned."""
        return self._heard.qsize()

    def __enter__(self) -> Ear:
        self._thread.start()
        assert self._listening.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have enqueues wait for their hints, however slow the machine is."""
    monkeypatch.setattr(postgres_wakeups, "FIRST_NOTIFY_SECONDS", PATIENCE)


def burst(number: int) -> list[str]:
    """Return a topic for each enqueue of a burst."""
    return [f"topic-{number}-{place}" for place in range(MAX_AT_ONCE)]


@pytest.mark.usefixtures("patient")
async def test_hints_have_left_when_their_enqueues_return(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """A producer may enqueue a few jobs and block its event loop, and workers hear of all of them."""
    with Ear(postgres_url) as ear:
        for number in range(3):
            for topic in burst(number):
                await enqueue_one(stores[0], topic)
            heard = [ear.topics() for _ in range(MAX_AT_ONCE)]  # blocks the loop: nothing is sent meanwhile
            assert heard == [{topic} for topic in burst(number)]
            await asyncio.sleep((MAX_AT_ONCE + 1) * NOTIFY_INTERVAL_SECONDS)


@pytest.mark.usefixtures("patient")
async def test_a_hint_leaves_right_after_one_of_another_kind(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Hints of finished jobs do not make an enqueue wait for the pause after them."""
    await enqueue_one(stores[0], "first")
    await asyncio.sleep((MAX_AT_ONCE + 1) * NOTIFY_INTERVAL_SECONDS)
    with Ear(postgres_url) as ear:
        await settle_one(stores[0], (await claim_one(stores[0], "first")).lease, Completed())
        await enqueue_one(stores[0], "second")
        assert ear.topics() == {"second"}


async def _claimed(store: PostgresStore) -> UUID:
    await enqueue_one(store)
    return (await claim_one(store, TOPIC)).lease.job_id


OPERATIONS: dict[
    str, tuple[Callable[[PostgresStore], Awaitable[UUID]], Callable[[PostgresStore, UUID], Awaitable[Any]]]
] = {
    "requeue": (make_failed, lambda store, job_id: store.requeue([job_id])),
    "kick": (make_failed, lambda store, _: store.kick(TOPIC, 1)),
    "kick_jobs": (make_failed, lambda store, job_id: store.kick_jobs([job_id])),
    "take_back": (_claimed, lambda store, job_id: store.take_back([job_id])),
    "resume": (enqueue_one, lambda store, _: store.pause(TOPIC, None)),
    "set_limits": (enqueue_one, lambda store, _: store.set_limits(TOPIC, TopicLimits(concurrency=1))),
}
"""Verbs that make a job ready, and the job that they are about."""


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("name", OPERATIONS)
async def test_hints_of_operators_have_left_when_their_verbs_return(
    stores: list[PostgresStore], postgres_url: str, name: str
) -> None:
    """A job that may run again is news, too, and the caller may block its event loop."""
    prepare, operate = OPERATIONS[name]
    job_id = await prepare(stores[0])
    await until(lambda: _sent(stores[0]))
    with Ear(postgres_url) as ear:
        await operate(stores[0], job_id)
        assert ear.topics() == {TOPIC}


async def test_a_busy_producer_sends_a_hint_per_pause(stores: list[PostgresStore], postgres_url: str) -> None:
    """More hints would cost more than they help. The last one names the last job."""
    loop = asyncio.get_running_loop()
    with Ear(postgres_url) as ear:
        began = loop.time()
        for _ in range(300):
            await enqueue_one(stores[0], "mail")
        await enqueue_one(stores[0], "last")
        await until(lambda: _sent(stores[0]))
        allowed = MAX_AT_ONCE + (loop.time() - began) / NOTIFY_INTERVAL_SECONDS
        heard = 1
        while "last" not in ear.topics():
            heard += 1
        assert heard + ear.count() <= allowed + 1


async def test_an_enqueue_does_not_wait_for_a_hint_that_cannot_be_sent(
    stores: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is written; a hint that hangs is given a moment."""
    database = stores[0]._notifier._database
    fetch = database.fetch

    async def hang(statement: str, *arguments: Any) -> Any:
        if "pg_notify" in statement:
            await asyncio.Event().wait()
        return await fetch(statement, *arguments)

    monkeypatch.setattr(database, "fetch", hang)
    job_ids = [await enqueue_one(stores[0]) for _ in range(3)]
    assert all(await stores[1].states(job_ids))


async def test_a_half_open_listener_is_found_out_and_replaced(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that looks alive and hears nothing is asked for an answer now and then."""
    caplog.set_level(logging.CRITICAL, "tidewheel.postgres")
    monkeypatch.setattr(postgres_wakeups, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(postgres_wakeups, "START_SECONDS", 0.1)
    async with (
        opened(postgres_url) as [other],
        Proxy(postgres_url) as proxy,
        opened(proxy.url) as [store],
        store.wakeups(topics=["mail"]) as wakeups,
    ):
        proxy.blackhole()
        before = proxy.accepted
        await enqueue_one(other)
        await until(lambda: _more(proxy, before))  # it has given up the old connection
        # A new connection may take longer than that.
        monkeypatch.setattr(postgres_wakeups, "START_SECONDS", PATIENCE)
        proxy.restore()
        assert await wakeups.wait(PATIENCE)
        await heard_again(other, wakeups)


async def _more(proxy: Proxy, before: int) -> bool:
    return proxy.accepted > before


async def test_a_listener_survives_a_server_that_is_away(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It tries again until there is one, complaining once, and subscriptions made meanwhile hear it, too."""
    caplog.set_level(logging.WARNING, "tidewheel.postgres")
    monkeypatch.setattr(postgres_wakeups, "START_SECONDS", 0.2)
    monkeypatch.setattr(postgres_wakeups, "MIN_RECONNECT_SECONDS", 0.02)
    async with (
        opened(postgres_url) as [other],
        Proxy(postgres_url) as proxy,
        opened(proxy.url) as [store],
        store.wakeups(topics=["mail"]) as early,
    ):
        proxy.refuse = True
        proxy.cut()
        before = proxy.accepted
        async with store.wakeups(topics=["mail"]) as late:
            await until(lambda: _more(proxy, before + 3))
            proxy.refuse = False
            assert await early.wait(PATIENCE)
            assert await late.wait(PATIENCE)
            await heard_again(other, late)
    assert len([record for record in caplog.records if record.name == "tidewheel.postgres"]) == 1


async def test_schemas_do_not_hear_each_other(stores: list[PostgresStore]) -> None:
    """Two applications in one database, with the same topics, leave each other's workers asleep."""
    async with (
        opened(empty_url()) as [stranger],
        stores[0].wakeups(topics=["mail"], finished=True) as ours,
        stranger.wakeups(topics=["mail"], finished=True) as theirs,
    ):
        await enqueue_one(stranger)
        assert await settle_one(stranger, (await claim_one(stranger)).lease, Completed(None))
        assert await theirs.wait(PATIENCE)
        assert not await ours.wait(NEVER)
        await enqueue_one(stores[1])
        assert await ours.wait(PATIENCE)


async def test_names_of_schemas_are_exact(postgres_url: str) -> None:
    """A channel is not folded to lower case: the applications ``x`` and ``X`` are two."""
    lower, upper = fresh_schema(), fresh_schema().upper()
    base = postgres_url.partition("?")[0]
    async with (
        opened(f"{base}?schema={lower}") as [small],
        opened(f"{base}?schema={upper}", f"{base}?schema={upper}") as [large, same],
        small.wakeups(topics=["mail"]) as for_small,
        large.wakeups(topics=["mail"]) as for_large,
    ):
        await enqueue_one(same)
        assert await for_large.wait(PATIENCE)
        assert not await for_small.wait(NEVER)


JUNK = [
    "",
    "x",
    "[]",
    "[1, 2, 3]",
    "null",
    '{"topics": ["mail"]}',
    '["x", "mail", false]',
    '["x", [1], 1]',
    "é" * 3000,
]


@pytest.mark.parametrize("message", JUNK, ids=range(len(JUNK)))
async def test_junk_on_the_channel_costs_a_look_and_nothing_else(
    stores: list[PostgresStore], postgres_url: str, message: str
) -> None:
    """Anybody may NOTIFY; what cannot be read may be a newer Tidewheel's, so everybody looks."""
    async with stores[0].wakeups(topics=["mail"]) as mail, raw(postgres_url) as connection:
        await connection.execute("SELECT pg_notify($1, $2)", schema_of(postgres_url), message)
        assert await mail.wait(PATIENCE)
        await heard_again(stores[1], mail)


async def test_a_newer_hint_with_more_fields_is_understood(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """During a rolling upgrade, workers of the version before hear what the newer ones say."""
    async with stores[0].wakeups(topics=["mail"]) as mail, stores[0].wakeups(topics=["x"]) as other:
        async with raw(postgres_url) as connection:
            message = msgspec.json.encode(["somebody", {"mail": 7}, False, {"more": 1}]).decode()
            await connection.execute("SELECT pg_notify($1, $2)", schema_of(postgres_url), message)
        assert await mail.wait(PATIENCE)
        assert not await other.wait(0)


async def test_a_storm_of_topics_wakes_everybody(stores: list[PostgresStore]) -> None:
    """A thousand topics do not fit into a message; it says that it may be any."""
    async with (
        stores[0].wakeups(topics=["topic-17"]) as first,
        stores[0].wakeups(topics=["topic-999"]) as last,
        stores[0].wakeups(topics=None) as any_topic,
    ):
        await stores[1].enqueue([job(f"topic-{number}") for number in range(1000)])
        for wakeups in (first, last, any_topic):
            assert await wakeups.wait(PATIENCE)


async def test_topics_with_long_names_are_hinted_at(stores: list[PostgresStore]) -> None:
    """A message has room for 8,000 bytes, whatever the topics are called."""
    topics = [f"{number:03}" + "😀" * 197 for number in range(MAX_TOPICS_PER_HINT)]
    async with stores[0].wakeups(topics=topics[:1]) as wakeups:
        await stores[1].enqueue([job(topic) for topic in topics])
        assert await wakeups.wait(PATIENCE)


async def test_hints_are_few_however_many_jobs_come_in(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Two thousand jobs, one by one from fifty callers, are some dozen notifications."""
    messages = []
    async with raw(postgres_url) as connection:
        await connection.add_listener(
            schema_of(postgres_url), lambda *arguments: messages.append(arguments[3])
        )

        async def enqueue() -> None:
            for _ in range(40):
                await enqueue_one(stores[1])

        await asyncio.gather(*(enqueue() for _ in range(50)))
        await until(lambda: _sent(stores[1]))
        await connection.fetchval("SELECT 1")
        assert 1 <= len(messages) < 300
        assert {tuple(msgspec.json.decode(message)[1]) for message in messages} == {("mail",)}


async def _sent(store: PostgresStore) -> bool:
    return store._notifier._following is None and not store._notifier._sending


async def test_nobody_listens_behind_a_pooler(
    stores: list[PostgresStore], pgbouncer: PgBouncer, postgres_url: str
) -> None:
    """Subscribing works and costs no connection; whoever is told nothing polls."""
    url = pgbouncer.url(schema=schema_of(postgres_url))
    async with opened(url) as [pooled], pooled.wakeups(topics=["mail"]) as wakeups:
        assert pooled._listener._task is None
        await enqueue_one(stores[1])
        assert not await wakeups.wait(NEVER)
        await enqueue_one(pooled)
        assert await wakeups.wait(0)  # from its own process
        async with stores[0].wakeups(topics=["mail"]) as direct:
            await enqueue_one(pooled)
            assert await direct.wait(PATIENCE)  # but others hear it
