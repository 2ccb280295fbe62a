"""An app over HTTP: the same calls, and the server's jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.patience import PATIENCE
from tests.stores.http.http_server import Served
from tests.stores.http.shop import Shop, client_side, server_side
from tidewheel import (
    HandlerNotFound,
    InvalidFilter,
    InvalidPayload,
    JobFailed,
    JobNotFound,
    NotOverHttp,
    NotPermitted,
    ParentNotFound,
    ResultTimeout,
    Retry,
    Tidewheel,
    TopicLimits,
    WrongState,
)
from tidewheel.client import results
from tidewheel.core.model import State


@pytest_asyncio.fixture(loop_scope="module")
async def server(served: Served) -> AsyncIterator[Shop]:
    async with server_side(served) as shop:
        yield shop


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served, server: Shop) -> AsyncIterator[Shop]:
    async with client_side(served, server) as shop:
        yield shop


async def test_a_job_is_enqueued_run_and_its_result_is_typed(server: Shop, client: Shop) -> None:
    """The one who enqueues has no database, the one who runs it has."""
    job = await client.greet.enqueue(name="Ada")
    assert (await server.app.get(job.id)).payload == {"name": "Ada"}
    await server.app.run_until_idle(handle_signals=False)
    assert await job.result(timeout=PATIENCE) == "hello Ada"
    await job.refresh()
    assert (job.state, job.payload, job.attempt) == ("completed", {"name": "Ada"}, 1)


async def test_allowed_topics_are_for_jobs_of_no_task_registered_here(served: Served) -> None:
    """The name of one that is travels with its jobs, and the server has to know it; whose topics they are
    matters to others than superusers.
    """
    async with (
        server_side(served, allowed_topics=("loose",)) as server,
        client_side(served, server) as client,
        client_side(served, server, superuser=False, tenant="shop") as tenant,
    ):

        @client.app.task(topic="loose")
        async def unknown() -> None: ...

        job = await tenant.app.enqueue("loose", {})
        assert (job.topic, job.task) == ("loose", "")
        with pytest.raises(HandlerNotFound, match="unknown"):
            await unknown.enqueue()
        with pytest.raises(HandlerNotFound, match="nowhere"):
            await client.app.enqueue("nowhere", {})
        assert (await client.greet.enqueue(name="Ada")).topic == "greet"
        with pytest.raises(NotPermitted, match="allowed_topics"):
            await tenant.greet.enqueue(name="Ada")


async def test_everything_said_about_a_job_arrives(server: Shop, client: Shop) -> None:
    """Options are the caller's, whatever the server would have filled in."""
    when = datetime.now(UTC) + timedelta(hours=1)
    parent = await client.greet.enqueue(name="first")
    job = await client.greet.options(
        priority=7, run_at=when, max_attempts=None, timeout=None, key="k", until="finished",
        correlation_id="c", limit_key="l", retry=Retry.fixed(9), retention=60, retention_failed=None,
        after=[parent], after_any=True,
    ).enqueue(name="Ada")  # fmt: skip
    record = (await server.app.get(job.id)).record
    assert (record.priority, record.max_attempts, record.timeout, record.key) == (7, None, None, "k")
    assert (record.correlation_id, record.limit_key, record.after_any) == ("c", "l", True)
    assert record.run_at == job.record.run_at
    assert (await server.app.get(job.id)).run_at == when
    assert record.retry is not None
    assert Retry.load(record.retry) == Retry.fixed(9)
    assert [one.job_id for one in record.after] == [parent.id]
    assert (await client.app.get(job.id)).shown_state == "blocked"
    children = await parent.dependents()
    assert [child.job_id for child in children.jobs] == [job.id]


async def test_bytes_go_both_ways(server: Shop, client: Shop) -> None:
    """A payload of bytes is the same bytes on the other side."""
    job = await client.upload.enqueue(b"\x00\xff")
    assert (await server.app.get(job.id)).payload == b"\x00\xff"
    assert (await client.app.get(job.id)).payload == b"\x00\xff"


async def test_a_put_over_http_keeps_its_ttr(served: Served) -> None:
    """A reservation lasts as long as the program said that put the job."""
    async with (
        server_side(served, allowed_topics=("loose",)) as server,
        client_side(served, server) as client,
    ):
        queue = server.app.queue
        [plain, long] = [
            await client.app.queue.put("loose", b"x"),
            await client.app.queue.put("loose", 1, ttr=7),
        ]
        assert (await queue.stats_job(plain.id)).ttr == client.app.settings.default_ttr
        reserved = [await queue.reserve("loose", timeout=0) for _ in range(2)]
        assert [(one.id, one.body, one.ttr) for one in reserved] == [
            (plain.id, b"x", client.app.settings.default_ttr),
            (long.id, 1, 7.0),
        ]
        together = [await client.app.queue.put("loose", number, ttr=3600.5) for number in range(3)]
        assert {(await queue.stats_job(one.id)).ttr for one in together} == {3600.5}
        assert (await queue.stats_job((await client.app.enqueue("loose", 1)).id)).ttr is None


async def test_many_are_enqueued_in_requests_of_a_thousand(served: Served, client: Shop) -> None:
    """2,500 jobs are three requests, and as many handles in the same order."""
    jobs = await client.greet.enqueue_many([{"name": str(number)} for number in range(2500)])
    assert [job.payload["name"] for job in jobs] == [str(number) for number in range(2500)]
    assert served.asked("/enqueue-many") == 3
    assert (await client.app.count(topic="greet")).total == 2500


async def test_many_large_ones_are_enqueued_in_smaller_parts(served: Served, client: Shop) -> None:
    """A request is kept below what servers take, however few jobs that are."""
    await client.greet.enqueue_many([{"name": "x" * 60_000} for _ in range(40)])
    assert served.asked("/enqueue-many") == 3


async def test_a_key_lets_one_in(client: Shop) -> None:
    """The second enqueue is answered with the first job."""
    first = await client.greet.options(key="once").enqueue(name="Ada")
    second = await client.greet.options(key="once").enqueue(name="Bob")
    assert (second.id, second.duplicate, second.payload) == (first.id, True, {"name": "Ada"})


async def test_a_result_is_told_when_it_is_there(served: Served, server: Shop, client: Shop) -> None:
    """No polling: the request that waits at the server is answered by the job's end."""
    job = await client.greet.enqueue(name="Ada")
    waiting = asyncio.create_task(job.result(timeout=PATIENCE))
    while served.asked("/states") < 2:  # one look, and one that waits
        await asyncio.sleep(0.001)
    await server.app.run_until_idle(handle_signals=False)
    assert await waiting == "hello Ada"
    assert served.asked("/states") == 2


async def test_waiting_for_a_result_costs_no_polls(served: Served, client: Shop) -> None:
    """However long it waits, and however short the poll interval is here."""
    job = await client.greet.enqueue(name="Ada")
    client.app._connections.current().results._poll_interval = 0.3
    with pytest.raises(ResultTimeout):
        await job.result(timeout=1.5)
    assert served.asked("/states") == 2


async def test_a_server_that_hangs_is_not_waited_for_longer_than_the_caller_would(
    served: Served, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for a last look, which has to be over in a few seconds."""
    monkeypatch.setattr(results, "FINAL_READ_SECONDS", 0.1)
    job = await client.greet.enqueue(name="Ada")
    let_go = served.switch.held[f"/{job.id}"] = served.switch.held["/states"] = asyncio.Event()
    for seconds in (0.1, 0):
        with pytest.raises(ResultTimeout, match="does not answer"):
            await asyncio.wait_for(job.result(timeout=seconds), PATIENCE)
    let_go.set()


async def test_a_wait_that_breaks_keeps_nobody_from_looking_again(
    server: Shop, client: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By whatever error: what was known before it must not be told for ever."""
    store = client.app.store
    job = await client.greet.enqueue(name="Ada")
    reading = store._reading  # type: ignore[attr-defined]
    looked = reading.states

    async def breaking(*about: Any, wait: float = 0.0) -> list[State | None]:
        if wait:
            raise RuntimeError("a bug")
        found: list[State | None] = await looked(*about)
        return found

    monkeypatch.setattr(reading, "states", breaking)
    async with store.wakeups(finished=True) as hints:
        assert await store.states([job.id]) == [State.PENDING]
        assert await hints.wait(PATIENCE)
        await server.app.cancel(job.id)
        assert await store.states([job.id]) == [State.CANCELLED]
    assert "which is a bug" in caplog.text


async def test_two_wait_for_different_jobs(server: Shop, client: Shop) -> None:
    """Whoever comes later ends the wait of the first, and then they wait together."""
    first, second = await client.greet.enqueue_many([{"name": "a"}, {"name": "b"}])
    waiting = [asyncio.create_task(job.result(timeout=PATIENCE)) for job in (first, second)]
    await asyncio.sleep(0)
    await server.app.run_until_idle(handle_signals=False)
    assert await asyncio.gather(*waiting) == ["hello a", "hello b"]


async def test_a_failure_is_raised_with_its_reason(server: Shop, client: Shop) -> None:
    """``JobFailed`` as beside the database, with code and message."""
    job = await client.refuse.enqueue(reason="too late")
    await server.app.run_until_idle(handle_signals=False)
    with pytest.raises(JobFailed, match="too late"):
        await job.result(timeout=PATIENCE)
    assert job.error is None
    assert (await job.refresh()).error is not None
    assert job.attempts[0].error.message == "too late"


async def test_jobs_are_listed_filtered_and_paged(client: Shop) -> None:
    """Filters of every kind, and a cursor that goes on where a page ended."""
    await client.greet.enqueue_many([{"name": f"n{number}"} for number in range(5)])
    await client.refuse.options(priority=9, correlation_id="c-1").enqueue(reason="r")
    page = await client.app.jobs(limit=4)
    assert (len(page), page.total, page[0].task) == (4, 6, "refuse")
    rest = await client.app.jobs(limit=4, cursor=page.cursor)
    assert len({job.id for job in (*page, *rest)}) == 6
    assert rest.cursor is None
    found = await client.app.jobs(where='payload.name:"n3" OR priority>5')
    assert {job.task for job in found} == {"greet", "refuse"}
    assert len(found) == 2
    assert (await client.app.count(correlation_id="c-1", state="pending")).total == 1
    assert (await client.app.count(where="payload.name~n")).total == 5
    assert (await client.app.count(text="n4")).total == 1
    assert (await client.app.count(where="state:failed state:pending")).total == 0


async def test_a_cursor_of_somebody_else_is_refused(client: Shop) -> None:
    """A number somebody made up is no place in a list."""
    with pytest.raises(ValueError, match="cursor"):
        await client.app.jobs(cursor=12345)


async def test_jobs_are_managed(server: Shop, client: Shop) -> None:
    """Cancel, requeue and delete, one by one and by filter, with the errors of each."""
    job = await client.greet.enqueue(name="Ada")
    assert await job.cancel() is True
    assert job.state == "cancelled"
    await job.requeue()
    assert job.state == "pending"
    with pytest.raises(WrongState, match=r"pending and cannot be requeued"):
        await job.requeue()
    await client.greet.enqueue_many([{"name": "a"}, {"name": "b"}])
    assert await client.app.cancel_all(task="greet") == 3
    assert await client.app.delete_all(state="cancelled") == 3
    with pytest.raises(JobNotFound):
        await job.refresh()
    assert (await server.app.count()).total == 0


async def test_a_requeue_while_the_key_is_taken_says_so(client: Shop) -> None:
    """The server's refusal is told apart from that of a wrong state."""
    first = await client.greet.options(key="k", until="finished").enqueue(name="a")
    await first.cancel()
    await client.greet.options(key="k", until="finished").enqueue(name="b")
    with pytest.raises(WrongState, match="holds its key"):
        await first.requeue()


async def test_the_queue_is_read_and_operated(server: Shop, client: Shop) -> None:
    """Statistics, topics, pauses, limits and workers."""
    await client.greet.enqueue(name="Ada")
    app = client.app
    stats = await app.stats()
    assert (stats.pending, [topic.topic for topic in stats.topics]) == (1, ["greet"])
    assert stats == await server.app.stats()
    await app.pause("greet", 3600)
    [topic] = await app.topics()
    assert [topic] == await server.app.topics()
    assert topic.paused_until is not None
    await app.resume("greet")
    assert (await app.topics())[0].paused_until is None
    limits = TopicLimits(concurrency=3, fair=True, weights={"a": 2})
    await app.limits.set("greet", limits)
    assert await app.limits.list() == await server.app.limits.list() == {"greet": limits}
    assert await app.limits.remove("greet")
    [lane] = await app.task_stats()
    assert (lane.topic, lane.task, lane.pending) == ("greet", "greet", 1)
    assert await app.workers() == []
    assert app.describe()["store"] == "http"
    await app.ping()


@pytest.mark.parametrize("topic", ["a/../greet", "./greet", "..", ".", "a//b", "x/", "(a);b+$.c"])
async def test_a_topic_is_named_by_its_own_name(topic: str, server: Shop, client: Shop) -> None:
    """Those of beanstalkd clients may have dots and slashes, which are a way to elsewhere in addresses."""
    await client.app.pause(topic)
    assert [paused.topic for paused in await server.app.topics()] == [topic]
    await client.app.resume(topic)


async def test_what_is_wrong_is_told_by_the_same_exceptions(client: Shop) -> None:
    """An error of the server is the one that would have been raised here."""
    bare = Tidewheel(client.app.url, token=client.app.settings.token)
    async with bare:
        with pytest.raises(HandlerNotFound, match="'nobody'"):
            await bare.enqueue("nobody", {})
        with pytest.raises(InvalidPayload) as told:
            await bare.enqueue("greet", {"nam": "Ada"})
        assert told.value.places
        with pytest.raises(InvalidPayload) as told:
            await bare.enqueue_many("greet", [{"name": "a"}, {"name": 1}])
        assert told.value.job == 1
        for payloads in ([{"name": "a"}], [{"name": "a"}, {"name": "b"}]):
            with pytest.raises(ParentNotFound):
                await bare.enqueue_many("greet", payloads, after=uuid4())
        with pytest.raises(JobNotFound):
            await bare.get(uuid4())
        with pytest.raises(InvalidFilter):
            await bare.jobs(where="nonsense:1")


async def test_a_key_of_a_tenant_has_that_tenants_jobs(served: Served, server: Shop, client: Shop) -> None:
    """What is enqueued is the tenant's, and what is another's is not there; handles work all the same."""
    async with client_side(served, server, superuser=False, tenant="shop") as other:
        theirs = await client.greet.enqueue(name="Ada")
        job = await other.greet.enqueue(name="Bob")
        assert (await server.app.get(job.id)).tenant == "shop"
        assert (await job.dependents()).total.total == 0
        after = await other.greet.options(after=job).enqueue(name="Eve")
        assert (await job.dependents()).total.total == 1
        await after.delete()
        assert (await job.refresh()).tenant == "shop"
        assert [found.id for found in await other.app.jobs()] == [job.id]
        with pytest.raises(JobNotFound):
            await other.app.get(theirs.id)
        await server.app.run_until_idle(handle_signals=False)
        assert await job.result(timeout=PATIENCE) == "hello Bob"
        with pytest.raises(NotPermitted):
            await other.app.workers()
    narrowed = await client.app.jobs(tenant="shop")
    assert [found.id for found in narrowed] == [job.id]
    assert await narrowed[0].result(timeout=PATIENCE) == "hello Bob"


async def test_who_may_only_read_gets_results(served: Served, server: Shop, client: Shop) -> None:
    """Payloads are for those who manage jobs; a result is what one waits for."""
    job = await client.greet.enqueue(name="Ada")
    await server.app.run_until_idle(handle_signals=False)
    async with client_side(served, server, scopes=["read"]) as reader:
        assert await reader.app.result(job.id, timeout=PATIENCE) == "hello Ada"


async def test_what_cannot_be_said_over_http_is_refused(client: Shop) -> None:
    """With what to do instead, and nothing done."""
    app = client.app
    job = await client.greet.enqueue(name="a")
    with pytest.raises(NotOverHttp, match=f"{job.id}/copy"):
        await app.enqueue_copy(job.id)
    with pytest.raises(NotOverHttp, match="transaction"):
        _ = app.external_transaction
    with pytest.raises(NotOverHttp, match="where the database is"):
        await app.migrate()
    with pytest.raises(NotOverHttp, match="doctor"):
        await app.check()
    with pytest.raises(NotOverHttp, match="server's own API"):
        await app.schedules.get("nightly")
    with pytest.raises(NotOverHttp, match="server's own API"):
        await app.access.create_key()
    with pytest.raises(NotOverHttp, match="web UI"):
        await app.questions.durations()
    assert (await app.count()).total == 1
