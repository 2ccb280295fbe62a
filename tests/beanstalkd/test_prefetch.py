"""Clients who always ask for the next job have it claimed with the end of the last, and nobody can tell."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.beanstalkd.session_client import Talk, app, clock, other, shared, talk, url
from tests.patience import PATIENCE
from tidewheel import Tidewheel
from tidewheel.beanstalkd.client_session import PendingReply
from tidewheel.beanstalkd.server_state import ServerState
from tidewheel.core.model import Claim, ClaimRequest, Lane
from tidewheel.pull import prefetch
from tidewheel.pull.dispatcher import reservations_of

__all__ = ["app", "clock", "other", "shared", "talk", "url"]


@pytest.fixture(autouse=True)
def long_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a busy machine does not make anybody late."""
    monkeypatch.setattr(prefetch, "KEEP_SECONDS", 60.0)


async def run_two(talk: Talk) -> None:
    """After this it is expected to ask again, and the next job is kept for it."""
    for _ in range(2):
        number = (await talk.say("reserve")).split()[1]
        assert await talk.say(f"delete {number}") == "DELETED"


async def put(talk: Talk, number: int) -> list[int]:
    return [await talk.put() for _ in range(number)]


async def kept(shared: ServerState) -> None:
    """The claim may take a little longer than the delete it was made with."""
    while not shared.queue.has_prefetched:
        await asyncio.sleep(0)


async def test_the_next_job_is_there_when_it_is_asked_for(talk: Talk, shared: ServerState) -> None:
    """It was claimed together with the delete, so nothing is waited for."""
    *_, third = await put(talk, 3)
    await run_two(talk)
    await kept(shared)
    answer = talk.session.answer(talk.command("reserve"))
    assert isinstance(answer, PendingReply)
    assert answer.future.done()
    assert talk.session.finish(answer) == b"RESERVED %d 1\r\nx\r\n" % third


async def test_one_claim_and_one_ending_serve_all_who_run_in_step(
    app: Tidewheel, shared: ServerState, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten clients who take fifty jobs cause a claim or two for each round, not one for each job."""
    numbers = set(await put(talk, 50))
    claims: list[int] = []
    claim = app.store.claim

    async def counted(request: ClaimRequest) -> Claim:
        claims.append(request.limit)
        return await claim(request)

    monkeypatch.setattr(app.store, "claim", counted)
    taken: list[int] = []

    async def client() -> None:
        mine = Talk(shared)
        for _ in range(5):
            number = int((await mine.say("reserve")).split()[1])
            taken.append(number)
            assert await mine.say(f"delete {number}") == "DELETED"
        await mine.session.close()

    await asyncio.gather(*(client() for _ in range(10)))
    assert sorted(taken) == sorted(numbers)
    assert len(claims) <= 15


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("peek-ready", "FOUND {number} 1\r\nx"),
        ("delete {number}", "DELETED"),
        ("reserve-job {number}", "RESERVED {number} 1\r\nx"),
    ],
)
async def test_a_job_that_is_kept_is_ready_to_whoever_looks(
    talk: Talk, other: Talk, shared: ServerState, line: str, reply: str
) -> None:
    """Somebody else's command sees what beanstalkd would show: nobody has asked for it."""
    *_, third = await put(talk, 3)
    await run_two(talk)
    await kept(shared)
    assert await other.say(line.format(number=third)) == reply.format(number=third)


async def test_a_job_that_is_kept_is_counted_as_ready(talk: Talk, other: Talk, shared: ServerState) -> None:
    """And not as reserved: neither now nor once."""
    *_, third = await put(talk, 3)
    await run_two(talk)
    await kept(shared)
    stats = await other.stats("stats-tube default")
    assert (stats["current-jobs-ready"], stats["current-jobs-reserved"]) == ("1", "0")
    job = await other.stats(f"stats-job {third}")
    assert (job["state"], job["reserves"], job["releases"]) == ("ready", "0", "0")


async def test_a_more_urgent_job_that_is_put_meanwhile_comes_first(
    talk: Talk, other: Talk, shared: ServerState
) -> None:
    """Whoever was told INSERTED may count on it; one that is no more urgent waits its turn."""
    *_, third = [await talk.put(priority=10) for _ in range(3)]
    await run_two(talk)
    await kept(shared)
    same = await other.put(priority=10)
    assert shared.queue.has_prefetched
    urgent = await other.put(priority=9)
    taken = [int((await talk.say("reserve")).split()[1]) for _ in range(3)]
    assert taken == [urgent, third, same]


async def test_a_more_urgent_job_that_is_put_during_a_claim_comes_first(
    app: Tidewheel, talk: Talk, other: Talk, shared: ServerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that did not see it may be told of after the put was: what it brings is not the next job."""
    *_, third = [await talk.put(priority=10) for _ in range(3)]
    number = int((await talk.say("reserve")).split()[1])
    await talk.say(f"delete {number}")
    number = int((await talk.say("reserve")).split()[1])
    claim, urgent = app.store.claim, 0

    async def slow_reply(request: ClaimRequest) -> Claim:
        nonlocal urgent
        answer = await claim(request)
        monkeypatch.setattr(app.store, "claim", claim)
        urgent = await other.put(priority=9)
        return answer

    monkeypatch.setattr(app.store, "claim", slow_reply)
    await talk.say(f"delete {number}")
    async with asyncio.timeout(PATIENCE):
        while not urgent:
            await asyncio.sleep(0.001)
    taken = [int((await talk.say("reserve")).split()[1]) for _ in range(2)]
    assert taken == [urgent, third]


async def test_a_paused_tube_gives_out_nothing_that_was_kept(
    talk: Talk, other: Talk, shared: ServerState
) -> None:
    """Not even to who it was kept for."""
    await put(talk, 3)
    await run_two(talk)
    await kept(shared)
    assert await other.say("pause-tube default 60") == "PAUSED"
    assert await talk.say("reserve-with-timeout 0") == "TIMED_OUT"


async def test_who_watches_another_tube_gets_nothing_of_the_old_one(talk: Talk, shared: ServerState) -> None:
    """What was kept was for another wish."""
    await put(talk, 3)
    await run_two(talk)
    await kept(shared)
    await talk.say("watch elsewhere")
    await talk.say("ignore default")
    assert await talk.say("reserve-with-timeout 0") == "TIMED_OUT"
    async with asyncio.timeout(PATIENCE):  # the job is given back in the background
        while (await talk.stats("stats-tube default"))["current-jobs-ready"] != "1":
            await asyncio.sleep(0.01)


async def test_who_ends_a_job_and_leaves_is_not_expected_for_ever(app: Tidewheel, talk: Talk) -> None:
    """Two who end at once and want different topics have nothing claimed for them, and nobody waits on."""
    numbers = await put(talk, 2)
    reservations = reservations_of(app._connections)
    held = [await app.queue.reserve_job(await app.queue.job_id(number) or "") for number in numbers]
    wishes = (frozenset({"default"}), frozenset({"default", "elsewhere"}))
    ending = [
        one.start_delete(next_topics=wish, calls_again=True) for one, wish in zip(held, wishes, strict=True)
    ]
    assert [await one for one in ending] == [True, True]
    assert reservations._prefetched.expected_topics() == []


async def test_somebody_who_waits_comes_before_somebody_who_is_expected(
    talk: Talk, other: Talk, shared: ServerState
) -> None:
    """A job that becomes ready goes to who asked for it."""
    await put(talk, 2)
    number = (await talk.say("reserve")).split()[1]
    await talk.say(f"delete {number}")
    number = (await talk.say("reserve")).split()[1]
    waiting = asyncio.create_task(other.say("reserve"))
    while not shared.counters.waiting:
        await asyncio.sleep(0)
    third = await talk.put()
    await talk.say(f"delete {number}")
    assert await waiting == f"RESERVED {third} 1\r\nx"


async def test_what_is_not_asked_for_in_time_is_everybodys_again(
    talk: Talk, shared: ServerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody at another server need not wait for a client that went away."""
    monkeypatch.setattr(prefetch, "KEEP_SECONDS", 0.0)
    *_, third = await put(talk, 3)
    await run_two(talk)
    store = shared.app.store
    async with asyncio.timeout(PATIENCE):
        while not (claim := await store.claim(ClaimRequest("another", (Lane("default"),), 10, 60.0))).jobs:
            await asyncio.sleep(0.001)
    assert [job.number for job in claim.jobs] == [third]


async def test_who_does_something_else_after_a_delete_has_nothing_kept_for_it(
    talk: Talk, shared: ServerState
) -> None:
    """A program that looks at a queue after each job finds it as it is, at no cost."""
    await put(talk, 4)
    for _ in range(3):
        number = (await talk.say("reserve")).split()[1]
        await talk.say(f"delete {number}")
        await talk.say("list-tube-used")
        assert not shared.queue.has_prefetched


async def test_jobs_that_are_kept_are_given_back_when_the_app_is_closed(tmp_path: Path) -> None:
    """Not when their leases end."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with Tidewheel(url) as app:
        shared = ServerState(app)
        talk = Talk(shared)
        *_, third = await put(talk, 3)
        await run_two(talk)
        await kept(shared)
    async with Tidewheel(url) as app:
        reserved = await app.queue.reserve("default", timeout=0)
        assert reserved.number == third
