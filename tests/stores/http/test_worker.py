"""A worker over HTTP: its jobs come by a request that waits, and none gets lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.patience import PATIENCE
from tests.stores.http.http_server import Served
from tests.stores.http.shop import Shop, client_side, server_side
from tests.worker.helpers import state_is, take_away, until, working
from tidewheel import (
    ConfigurationError,
    Context,
    Cron,
    Job,
    NotAuthenticated,
    NotOpen,
    NotPermitted,
    StoreUnavailable,
    Tidewheel,
    TopicLimits,
)
from tidewheel.core.model import Claim, ClaimRequest, Completed, Lane, NewStep, Released, Report, Settlement
from tidewheel.core.topic_limits import LimitsOrigin
from tidewheel.stores.http import api_client as client_module
from tidewheel.stores.http import claim_requests, claims
from tidewheel.stores.http.claim_requests import ReserveClient
from tidewheel.stores.http.claims import JobReturns
from tidewheel.stores.http.settlements import WORK_PATH

RESERVE, EXTEND, SETTLE = f"{WORK_PATH}/reserve", f"{WORK_PATH}/extend", f"{WORK_PATH}/settle"


@pytest_asyncio.fixture(loop_scope="module")
async def server(served: Served) -> AsyncIterator[Shop]:
    async with server_side(served) as shop:
        yield shop


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served, server: Shop) -> AsyncIterator[Shop]:
    async with client_side(served, server, scopes=["work"]) as shop:
        yield shop


async def waits_at(served: Served, times: int = 2) -> None:
    """Until a worker has claimed, found nothing, and waits at the server."""
    await until(lambda: served.asked(RESERVE) >= times)


async def test_a_job_is_picked_up_at_once(served: Served, server: Shop, client: Shop) -> None:
    """By the request that waits at the server, and not by the next look: that would be a minute away."""
    client.app.settings = replace(client.app.settings, poll_interval=10 * PATIENCE)
    async with working(client.app):
        await waits_at(served)
        job = await server.greet.enqueue(name="Ada")
        assert await job.result(timeout=PATIENCE) == "hello Ada"


async def test_workers_of_one_app_wait_side_by_side(served: Served, server: Shop, client: Shop) -> None:
    """Each has a request of its own at the server: one that had to do without would look once a minute."""
    client.app.settings = replace(client.app.settings, poll_interval=60.0)
    async with working(client.app, topics=["greet"]), working(client.app, topics=["upload"]):
        await waits_at(served, 4)
        greeting, upload = await server.greet.enqueue(name="Ada"), await server.upload.enqueue(b"four")
        assert await greeting.result(timeout=PATIENCE) == "hello Ada"
        assert await upload.result(timeout=PATIENCE) == 4


async def test_workers_with_the_same_topics_wait_each_under_its_own_name(
    served: Served, server: Shop, client: Shop
) -> None:
    """What comes for one is not another's, and one that is busy takes no job from one that is not."""
    client.app.settings = replace(client.app.settings, poll_interval=60.0)
    names = {"one", "two"}
    async with working(client.app, name="one", concurrency=1), working(client.app, name="two", concurrency=1):
        await until(lambda: server.app.remote.waiting == 2)
        busy = await server.wait.enqueue(note="x")
        await client.begun.wait()
        await busy.refresh()
        assert busy.worker in names
        for name in ("Ada", "Bob", "Eve"):
            await until(lambda: server.app.remote.waiting == 1)
            served.requests.clear()
            job = await server.greet.enqueue(name=name)
            assert await job.result(timeout=PATIENCE) == f"hello {name}"
            assert {(await job.refresh()).worker} == names - {busy.worker}
            assert served.asked(RESERVE) <= 2
        client.let_go.set()
        assert await busy.result(timeout=PATIENCE) == "x"


async def test_a_claim_for_something_else_does_not_change_what_is_waited_for(
    served: Served, server: Shop, client: Shop
) -> None:
    """A worker claims for a batch of one task, too; what it waits for is the jobs of all."""
    store = client.app.store
    request = ClaimRequest("w", (Lane("greet"),), 5, 60.0)
    async with store.wakeups(topics=["greet"]) as hints:
        for other in (replace(request, lanes=(Lane("greet", "other"),)), replace(request, worker="another")):
            await store.claim(request)
            await store.claim(other)
            waiting = asyncio.create_task(hints.wait(10))
            await until(lambda: server.app.remote.waiting == 1)
            await server.greet.enqueue(name="Ada")
            assert await waiting
            assert len((await store.claim(request)).jobs) == 1


async def test_an_idle_worker_asks_rarely(served: Served, client: Shop) -> None:
    """One request waits at the server for as long as there is nothing, however often the worker looks."""
    client.app.settings = replace(client.app.settings, poll_interval=0.02)
    async with working(client.app) as worker:
        await waits_at(served)
        await asyncio.sleep(0.5)
        assert served.asked(RESERVE) == 2
        assert worker.health().ready


async def test_a_poll_that_ends_without_a_job_is_followed_by_the_next(
    served: Served, server: Shop, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the worker makes no claim of its own in between."""
    monkeypatch.setattr(claim_requests, "POLL_SECONDS", 0.1)
    async with working(client.app):
        await waits_at(served, 6)
        job = await server.greet.enqueue(name="Ada")
        assert await job.result(timeout=PATIENCE) == "hello Ada"


async def test_a_delayed_job_runs_when_it_is_due(served: Served, server: Shop, client: Shop) -> None:
    """The server knows when that is."""
    async with working(client.app):
        await waits_at(served)
        job = await server.greet.options(delay=0.3).enqueue(name="Ada")
        assert await job.result(timeout=PATIENCE) == "hello Ada"


async def test_what_a_handler_does_arrives(served: Served, server: Shop, client: Shop) -> None:
    """Progress, checkpoints, steps, results and errors, under the name of the worker."""
    walk, wait = await server.walk.enqueue(), await server.wait.enqueue(note="half way")
    upload, refuse = await server.upload.enqueue(b"\x00\xff"), await server.refuse.enqueue(reason="no")
    async with working(client.app, name="far-away"):
        assert await walk.result(timeout=PATIENCE) == 21
        assert await upload.result(timeout=PATIENCE) == 2
        await client.begun.wait()
        await wait.refresh()
        assert wait.progress is not None
        assert (wait.progress.percent, wait.progress.message, wait.worker) == (40, "half way", "far-away")
        client.let_go.set()
        assert await wait.result(timeout=PATIENCE) == "half way"
        await until(lambda: state_is(refuse, "failed"))
    await walk.refresh()
    assert [(step.name, step.output, step.worker) for step in walk.steps] == [("first", 20, "far-away")]
    assert walk.checkpoint == {"reached": 20}
    assert refuse.attempts[0].error.message == "no"


async def test_steps_that_are_finished_are_not_run_again(server: Shop, client: Shop) -> None:
    """Whoever ran them: this worker goes on where one beside the database ended."""
    job, store = await server.walk.enqueue(), server.app.store
    [held] = (await store.claim(ClaimRequest("beside", (Lane("walk"),), 1, 60.0))).jobs
    assert await store.report([Report(held.lease, step=NewStep("first", b"40", 0.1))]) == [True]
    assert await store.settle([Settlement(held.lease, Released())]) == [True]
    await client.app.run_until_idle(handle_signals=False)
    assert await job.result(timeout=PATIENCE) == 41


async def test_many_jobs_are_drained(served: Served, server: Shop, client: Shop) -> None:
    """In batches: far fewer requests than jobs."""
    jobs = await server.greet.enqueue_many([{"name": str(number)} for number in range(300)])
    assert await client.app.run_until_idle(handle_signals=False) == 300
    assert (await server.app.count(state="completed")).total == 300
    assert await jobs[-1].result(timeout=PATIENCE) == "hello 299"
    assert len(served.requests) < 200


async def test_cancelling_reaches_it(server: Shop, client: Shop) -> None:
    """The keeper asks, and the handler is told."""
    job = await server.wait.enqueue(note="x")
    async with working(client.app):
        await client.begun.wait()
        assert await job.cancel() is False
        await until(lambda: state_is(job, "cancelled"))


async def test_a_lease_that_was_lost_is_told(server: Shop, client: Shop) -> None:
    """The handler is stopped, and what it would have written is refused."""
    job = await server.wait.enqueue(note="x")
    async with working(client.app, lease=2) as worker:
        await client.begun.wait()
        await take_away(server.app, job)
        await until(lambda: worker.tally.lost == 1)
    assert (await job.refresh()).state == "pending"


async def test_a_finished_result_survives_an_outage(served: Served, server: Shop, client: Shop) -> None:
    """It is kept while the server is away, and written when that is back."""
    job = await server.wait.enqueue(note="kept")
    async with working(client.app) as worker:
        await client.begun.wait()
        served.switch.away = True
        client.let_go.set()
        await until(lambda: not worker.health().ready)
        assert (await job.refresh()).state == "running"
        served.switch.away = False
        assert await job.result(timeout=PATIENCE) == "kept"
        assert (await server.greet.enqueue(name="next")).id
        await until(lambda: state_is(job, "completed"))
    assert job.attempt == 1


async def test_a_finished_result_survives_a_server_of_another_version(
    served: Served, server: Shop, client: Shop
) -> None:
    """One without these routes, which answers for some seconds: what is done is not thrown away."""
    job = await server.wait.enqueue(note="kept")
    async with working(client.app) as worker:
        await client.begun.wait()
        served.switch.unknown.add(SETTLE)
        client.let_go.set()
        await until(lambda: served.asked(SETTLE) >= 1)
        served.switch.unknown.clear()
        assert await job.result(timeout=PATIENCE) == "kept"
        assert worker.tally.lost == 0
    assert (await job.refresh()).attempt == 1


async def test_a_server_without_workers_is_told_by_a_claim(
    served: Served, server: Shop, client: Shop
) -> None:
    """It ends the worker, with what may be wrong."""
    del server
    served.switch.unknown.add(RESERVE)
    with pytest.raises(ConfigurationError, match="older Tidewheel"):
        await client.app.run_until_idle(handle_signals=False)


async def test_a_result_that_a_filter_turns_away_costs_its_neighbours_nothing(
    served: Served, server: Shop, client: Shop
) -> None:
    """They are settled; it is tried again by itself, and settled when the filter lets it through."""
    blocked, *others = await server.greet.enqueue_many(
        [{"name": name} for name in ("<script>", "Ada", "Eve")]
    )
    served.switch.filtered = b"hello <script>"
    async with working(client.app) as worker:
        for job in others:
            assert (await job.result(timeout=PATIENCE)).startswith("hello")
        later = await server.greet.enqueue(name="later")
        assert await later.result(timeout=PATIENCE) == "hello later"
        assert (await blocked.refresh()).state == "running"
        assert worker.health().ready
        served.switch.filtered = None
        assert await blocked.result(timeout=PATIENCE) == "hello <script>"
    await blocked.refresh()
    assert (blocked.state, blocked.attempt) == ("completed", 1)


async def test_a_proxy_that_ends_long_requests_is_no_outage(
    served: Served, server: Shop, client: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker asks again, and a claim of its own tells that the server is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_module, "RETRY_DELAYS", ())
        patch.setattr(claim_requests, "EARLY_ANSWER_SECONDS", 0.0)  # as if they had waited for long
        async with working(client.app) as worker:
            for times in (2, 4, 6):
                await waits_at(served, times)
                await until(lambda: served.switch.cut(RESERVE) == 1)
            await waits_at(served, 8)
            assert worker.health().ready
            job = await server.greet.enqueue(name="Ada")
            assert await job.result(timeout=PATIENCE) == "hello Ada"
    assert "failed" not in caplog.text


async def test_answers_that_get_lost_are_asked_for_again(served: Served, server: Shop, client: Shop) -> None:
    """Under the same id: each job is granted and settled once."""
    job = await server.greet.enqueue(name="Ada")
    served.switch.cut_after += [RESERVE, SETTLE]
    served.switch.cut_before += [RESERVE]
    assert await client.app.run_until_idle(handle_signals=False) == 1
    await job.refresh()
    assert (job.state, job.attempt, job.record.reserves) == ("completed", 1, 1)
    assert served.switch.cut_after == []


async def test_a_worker_that_stops_while_it_waits_loses_nothing(
    served: Served, server: Shop, client: Shop
) -> None:
    """A job that comes in the very moment runs, or is there for the next one at once and uncounted."""
    for number in range(12):
        served.requests.clear()
        async with working(client.app) as worker:
            await waits_at(served)
            writing = asyncio.create_task(server.greet.enqueue(name=str(number)))
            for _ in range(number):
                await asyncio.sleep(0)
            worker.stop()
            job = await writing
        await job.refresh()
        assert (job.state, job.attempt) in {("completed", 1), ("pending", 0)}
        if job.state == "pending":
            assert (job.record.reserves, job.record.releases) == (0, 0)
    await client.app.run_until_idle(handle_signals=False)
    assert (await server.app.count(state="completed")).total == 12


async def test_what_comes_for_nobody_is_given_back(served: Served, server: Shop, client: Shop) -> None:
    """A job that was granted while nobody claims is another worker's a second later, as if it had never
    been taken.
    """
    store = client.app.store
    request = ClaimRequest("w", (Lane("greet"),), 5, 60.0)
    assert (await store.claim(request)).jobs == ()
    async with store.wakeups(topics=["greet"]) as hints:
        assert await hints.wait(0.3) is False
        job = await server.greet.enqueue(name="Ada")
        assert await hints.wait(PATIENCE) is True
        assert (await job.refresh()).state == "running"
        await until(lambda: state_is(job, "pending"))
    assert (job.attempt, job.record.reserves, job.record.releases) == (0, 0, 0)


async def test_who_has_no_use_for_jobs_any_more_does_not_wait_for_them(
    served: Served, server: Shop, client: Shop
) -> None:
    """A worker that has become full makes no claim: what came for it would be kept from others."""
    store = client.app.store
    await store.claim(ClaimRequest("w", (Lane("greet"),), 5, 60.0))
    async with store.wakeups(topics=["greet"]) as hints:
        assert not await hints.wait(0.3)
        assert server.app.remote.waiting == 1
        await until(lambda: server.app.remote.waiting == 0, patience=PATIENCE)
        job = await server.greet.enqueue(name="Ada")
        await job.refresh()
        assert (job.state, job.worker) == ("pending", None)


async def test_a_nudge_ends_the_wait_and_its_jobs_are_kept(
    served: Served, server: Shop, client: Shop
) -> None:
    """Whoever is told to look gets what was on its way."""
    store = client.app.store
    request = ClaimRequest("w", (Lane("greet"),), 5, 60.0)
    await store.claim(request)
    async with store.wakeups(topics=["greet"]) as hints:
        assert await hints.wait(0.3) is False
        assert (await store.claim(request)).jobs == ()  # answered here: one waits at the server already
        assert served.asked(RESERVE) == 2
        hints.nudge()
        assert await hints.wait(PATIENCE) is True
        await server.greet.enqueue(name="Ada")
        [job] = (await store.claim(request)).jobs
        assert job.attempt == 1


async def test_a_server_that_answers_at_once_with_nothing_is_not_asked_without_a_pause(
    served: Served, server: Shop, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that shuts down does. Whoever is told to look looks at once all the same."""
    monkeypatch.setattr(claims, "EARLY_ANSWER_SECONDS", 600.0)
    store = client.app.store
    request = ClaimRequest("w", (Lane("greet"),), 5, 60.0)
    assert served.switch.api is not None
    served.switch.api.closing.set()
    await store.claim(request)
    async with store.wakeups(topics=["greet"]) as hints:
        assert await hints.wait(PATIENCE)
        assert (await store.claim(request)).jobs == ()  # what the poll said
        assert not await hints.wait(0.1)
        assert served.asked(RESERVE) == 2
        served.switch.api.closing.clear()
        await server.greet.enqueue(name="Ada")
        hints.nudge()
        assert await hints.wait(PATIENCE)
        assert len((await store.claim(request)).jobs) == 1


async def test_after_the_pause_it_is_asked_again(
    served: Served, server: Shop, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who listens, and not by the next look of the worker: that would be a minute away."""
    monkeypatch.setattr(claims, "EARLY_ANSWER_SECONDS", 0.1)
    client.app.settings = replace(client.app.settings, poll_interval=60.0)
    assert served.switch.api is not None
    served.switch.api.closing.set()
    async with working(client.app):
        await waits_at(served, 4)
        served.switch.api.closing.clear()
        job = await server.greet.enqueue(name="Ada")
        assert await job.result(timeout=PATIENCE) == "hello Ada"


async def test_a_worker_that_pauses_stops_at_once(
    served: Served, server: Shop, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause is no part of its shutdown, which ``working`` waits for."""
    monkeypatch.setattr(claims, "EARLY_ANSWER_SECONDS", 600.0)
    client.app.settings = replace(client.app.settings, poll_interval=600.0)
    assert served.switch.api is not None
    served.switch.api.closing.set()
    async with working(client.app):
        await until(lambda: served.asked(RESERVE) == 2 and server.app.remote.waiting == 0)


async def test_a_wait_that_was_ended_here_is_followed_by_the_next_at_once(
    served: Served, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered early and with nothing because that was asked for."""
    monkeypatch.setattr(claims, "EARLY_ANSWER_SECONDS", 600.0)
    store = client.app.store
    request = ClaimRequest("w", (Lane("greet"),), 5, 60.0)
    await store.claim(request)
    async with store.wakeups(topics=["greet"]) as hints:
        for times in (2, 5, 8):  # the wait, its end, and a claim
            assert not await hints.wait(0.05)
            await waits_at(served, times)
            hints.nudge()
            assert await hints.wait(PATIENCE)
            await asyncio.sleep(0.05)  # until the answer is here
            assert (await store.claim(request)).jobs == ()
        assert served.asked(RESERVE) == 10


@asynccontextmanager
async def job_in_hand(
    served: Served, server: Shop, client: Shop, request: ClaimRequest
) -> AsyncIterator[Job[str]]:
    """One that came by itself, and waits here for a claim."""
    store = client.app.store
    await store.claim(request)
    async with store.wakeups(topics=["greet"]) as hints:
        await hints.wait(0.01)
        await waits_at(served)
        job = await server.greet.enqueue(name="Ada")
        assert await hints.wait(PATIENCE) is True
        served.requests.clear()
        yield job


async def test_jobs_that_came_while_the_loop_stood_still_get_their_leases_anew(
    served: Served, server: Shop, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows for how long the answer lay there; a lease that seemed longer than it is would have two
    run one job.
    """
    request = ClaimRequest("w", (Lane("greet"),), 5, 60.0)
    async with job_in_hand(served, server, client, request):
        monkeypatch.setattr(claims, "MAX_UNREFRESHED_SECONDS", -1.0)  # as if it had stood still
        [late] = (await client.app.store.claim(request)).jobs
        assert (served.asked(EXTEND), served.asked(RESERVE)) == (1, 0)
        assert late.lease_seconds == 60


async def test_jobs_that_came_by_themselves_have_leases_of_one_length(
    served: Served, server: Shop, client: Shop
) -> None:
    """A little shorter than they are, however long ago they came: the keeper extends those of one length in
    one request.
    """
    store, leases = client.app.store, []
    request = ClaimRequest("w", (Lane("greet"),), 5, 60.0)
    await store.claim(request)
    async with store.wakeups(topics=["greet"]) as hints:
        for times in (2, 3, 4):
            await hints.wait(0.01)
            await waits_at(served, times)
            await server.greet.enqueue(name="Ada")
            assert await hints.wait(PATIENCE) is True
            leases += [job.lease_seconds for job in (await store.claim(request)).jobs]
    assert leases == [60 - claims.MAX_UNREFRESHED_SECONDS - claims.MAX_TRANSIT_SECONDS] * 3


async def test_jobs_in_hand_are_kept_when_another_server_answers(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a load balancer: it knows nothing of the claim that brought them, and extends their leases."""
    monkeypatch.setattr(claims, "MAX_UNREFRESHED_SECONDS", -1.0)
    url, request = f"sqlite:///{tmp_path}/queue.db", ClaimRequest("w", (Lane("greet"),), 5, 60.0)
    async with (
        server_side(served, url) as server,
        client_side(served, server) as client,
        job_in_hand(served, server, client, request) as job,
        server_side(served, url),
    ):
        [held] = (await client.app.store.claim(request)).jobs
        assert held.lease.job_id == job.id
        assert await client.app.store.settle([Settlement(held.lease, Completed())]) == [True]


async def test_jobs_in_hand_whose_leases_cannot_be_made_anew_are_given_back(
    served: Served, server: Shop, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows how long they last: whoever claims next has them, and not only when the leases end."""
    monkeypatch.setattr(claims, "MAX_UNREFRESHED_SECONDS", -1.0)
    monkeypatch.setattr(client_module, "RETRY_DELAYS", ())
    request = ClaimRequest("w", (Lane("greet"),), 5, 60.0)
    async with job_in_hand(served, server, client, request) as job:
        served.switch.cut_before += [EXTEND]
        found = (await client.app.store.claim(request)).jobs
        await until(lambda: served.asked(SETTLE) == 1)
        while not found:
            found = (await client.app.store.claim(request)).jobs
        assert [(one.lease.job_id, one.attempt) for one in found] == [(job.id, 1)]


@pytest.mark.parametrize("lost", [True, False])
async def test_what_a_claim_brings_while_it_is_asked_to_end_is_kept(
    lost: bool, server: Shop, client: Shop
) -> None:
    """Although who was asked did not answer, or was a server that knows nothing of it."""
    request = ClaimRequest("w", (Lane("greet"),), 5, 60.0)
    await server.greet.enqueue(name="Ada")
    brought = await client.app.store.claim(request)
    asked, answered = asyncio.Event(), asyncio.Event()

    class TwoServers(ReserveClient):
        async def reserve(self, request: ClaimRequest, request_id: str, wait: float) -> Claim:
            del request, request_id
            if wait:
                await asked.wait()
                answered.set()
                return brought
            asked.set()
            await answered.wait()
            if lost:
                raise StoreUnavailable("no answer")
            return Claim(())

    poll = claim_requests.LongPoll(TwoServers(client.app.store._client), request, lambda _: None)  # type: ignore[attr-defined]
    assert (await poll.end()).jobs == brought.jobs


async def test_a_claim_that_is_called_off_leaves_nothing_behind(
    served: Served, server: Shop, client: Shop
) -> None:
    """What it was granted is given back, although nobody waits for the answer any more."""
    job = await server.greet.enqueue(name="Ada")
    let_go = served.switch.held[RESERVE] = asyncio.Event()
    called_off = asyncio.create_task(client.app.store.claim(ClaimRequest("w", (Lane("greet"),), 5, 60.0)))
    await until(lambda: state_is(job, "running"))
    called_off.cancel()
    await asyncio.wait((called_off,))
    assert called_off.cancelled()
    let_go.set()
    await until(lambda: state_is(job, "pending"))
    assert (job.attempt, job.record.reserves) == (0, 0)


async def test_who_leaves_and_is_cancelled_meanwhile_leaves_nothing_behind(
    served: Served, server: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """What came is on its way back all the same, and the store stays open for it: for all who close it."""

    async def listen() -> None:
        async with store.wakeups(topics=["greet"]) as hints:
            await hints.wait(60)

    async with client_side(served, server) as shop:
        store = shop.app.store
        await store.claim(ClaimRequest("w", (Lane("greet"),), 5, 60.0))
        let_go = served.switch.held[RESERVE] = asyncio.Event()
        listening = asyncio.create_task(listen())
        await waits_at(served)
        job = await server.greet.enqueue(name="Ada")
        await until(lambda: state_is(job, "running"))
        listening.cancel()
        await waits_at(served, 3)  # it asks what came
        listening.cancel()
        await asyncio.wait((listening,))
        closing = [asyncio.create_task(store.close()) for _ in range(2)]
        ended, _ = await asyncio.wait(closing, timeout=0.05)
        assert not ended
        let_go.set()
        await asyncio.gather(*closing)
    assert await state_is(job, "pending")
    assert (job.attempt, job.record.reserves) == (0, 0)
    assert "nobody took" not in caplog.text


@dataclass
class Greeting:
    name: str


async def test_batches_are_gathered(server: Shop, served: Served) -> None:
    """One call for several jobs, each settled by itself."""
    calls: list[int] = []
    client = Tidewheel(served.url, token=(await server.app.access.create_key(superuser=True)).key)

    @client.task(batch=10)
    async def greet(jobs: list[Greeting]) -> list[str]:
        calls.append(len(jobs))
        return [job.name for job in jobs]

    await server.greet.enqueue_many([{"name": str(number)} for number in range(20)])
    async with client:
        assert await client.run_until_idle(handle_signals=False) == 20
    assert sum(calls) == 20
    assert len(calls) < 20


async def test_it_is_on_the_list_of_workers(server: Shop, client: Shop) -> None:
    """While it works, and not after it has left."""
    async with working(client.app, name="far-away", concurrency=3):
        await until(lambda: _listed(server.app, ["far-away"]))
        [info] = await server.app.workers()
        assert (info.concurrency, info.polling, "greet" in info.topics) == (3, False, True)
    await until(lambda: _listed(server.app, []))


async def _listed(app: Tidewheel, names: list[str]) -> bool:
    return [info.name for info in await app.workers()] == names


async def test_limits_that_tasks_declare_are_written(server: Shop, served: Served) -> None:
    """As by a worker beside the database; what an operator has set stands."""
    token = (await server.app.access.create_key(superuser=True)).key
    client = Tidewheel(served.url, token=token)

    @client.task(limits=TopicLimits(concurrency=2))
    async def greet(name: str) -> str:
        return name

    async with client:
        await client.run_until_idle(handle_signals=False)
        [declared] = (await server.app.limits.list()).values()
        assert declared == TopicLimits(concurrency=2, origin=LimitsOrigin.CODE)
        await server.app.limits.set("greet", TopicLimits(concurrency=1))
        await client.run_until_idle(handle_signals=False)
        assert (await client.limits.get("greet")) == TopicLimits(concurrency=1)


async def test_schedules_are_left_to_the_server(
    served: Served, server: Shop, client: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """They are documents, which no worker over HTTP reads; it says so once."""
    client.app.schedule("nightly", "greet", Cron("0 3 * * *"), {"name": "x"})
    await client.app.run_until_idle(handle_signals=False)
    assert "schedules are fired by the server" in caplog.text


async def test_transactions_say_that_there_are_none(server: Shop, served: Served) -> None:
    """A handler that wants one fails with what to do instead."""
    token = (await server.app.access.create_key(superuser=True)).key
    client = Tidewheel(served.url, token=token)

    @client.task(name="greet", max_attempts=1)
    async def wants_a_transaction(ctx: Context, name: str) -> None:
        await ctx.transaction.execute("SELECT 1")

    job = await server.greet.enqueue(name="x")
    async with client:
        await client.run_until_idle(handle_signals=False)
    await job.refresh()
    assert "over HTTP only" in (job.error_summary or "")


async def test_a_server_without_room_for_more_workers_is_come_back_to(served: Served) -> None:
    """``max_waiters`` is no reason to end: there may be room in a moment."""
    request = ClaimRequest("w", (Lane("greet"),), 1, 60.0)
    async with server_side(served, max_waiters=1) as server, client_side(served, server) as first:
        async with client_side(served, server) as second, first.app.store.wakeups(topics=["greet"]) as hints:
            await first.app.store.claim(request)
            await hints.wait(0.01)
            await waits_at(served)
            with pytest.raises(StoreUnavailable, match="max_waiters"):
                await second.app.store.claim(request)
        assert (await first.app.store.claim(request)).jobs == ()


async def test_a_short_lease_of_a_job_of_its_own_is_extended(server: Shop, client: Shop) -> None:
    """One that came by itself is made anew: counted as a little shorter there would be nothing left of it."""
    store = client.app.store
    await store.claim(ClaimRequest("w", (Lane("greet"),), 1, 60.0))
    await server.app.queue.put("greet", {"name": "Ada"}, ttr=1)
    async with store.wakeups(topics=["greet"]) as hints:
        assert await hints.wait(PATIENCE)
        [job] = (await store.claim(ClaimRequest("w", (Lane("greet"),), 1, 60.0))).jobs
        assert job.lease_seconds == 1
        assert await store.extend([job.lease], job.lease_seconds) == [True]


@pytest.mark.parametrize(
    ("key", "error"),
    [({"superuser": False, "tenant": "shop"}, NotPermitted), ({"scopes": ["read"]}, NotPermitted)],
)
async def test_a_key_that_is_not_for_workers_ends_it(
    served: Served, server: Shop, key: dict[str, object], error: type[Exception]
) -> None:
    """At the first claim, with what is missing."""
    async with client_side(served, server, **key) as shop:
        with pytest.raises(error):
            await shop.app.run_until_idle(handle_signals=False)


async def test_a_wrong_token_is_told(served: Served, server: Shop) -> None:
    """By the first call that needs one, whatever it is."""
    del server
    shop = Shop(served.url, token="tw_0123456789abcdef_wrong")  # noqa: S106 - that of nobody
    async with shop.app:
        with pytest.raises(NotAuthenticated, match="TIDEWHEEL_TOKEN"):
            await shop.greet.enqueue(name="Ada")
        with pytest.raises(NotAuthenticated):
            await shop.app.run_until_idle(handle_signals=False)


@pytest.mark.parametrize("error", [NotAuthenticated("no token"), NotOpen("closed"), StoreUnavailable("away")])
async def test_who_cannot_ask_what_came_does_not_tell_of_jobs(
    error: Exception, client: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that ends at once, for its token is refused, never had one."""

    async def ask() -> Claim:
        raise error

    returning = JobReturns(client.app.store._working)  # type: ignore[attr-defined]
    returning.release_answer(ask, None)
    await returning.close()
    assert "nobody took" not in caplog.text


async def test_a_token_that_is_revoked_ends_the_worker(
    served: Served, server: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a message, as soon as it asks for more."""
    monkeypatch.setattr(claim_requests, "POLL_SECONDS", 0.1)
    made = await server.app.access.create_key(superuser=True)
    shop = Shop(served.url, token=made.key)
    async with shop.app:
        worker = shop.app.worker(handle_signals=False)
        run = asyncio.create_task(worker.run())
        await waits_at(served)
        await server.app.access.revoke_key(made.info.id)
        with pytest.raises(NotAuthenticated):
            await asyncio.wait_for(run, 40)
