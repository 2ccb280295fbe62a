"""Callers who were answered together share the next commit, and nobody waits for long or for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidewheel import Tidewheel
from tidewheel.core.model import Claim, ClaimRequest, Enqueued, NewJob, Settlement
from tidewheel.pull.write_batcher import CommitWindow

CLIENTS = 10
ROUNDS = 5


class Calls:
    """What the store is asked, by the turn of the event loop in which it is."""

    def __init__(self) -> None:
        self.enqueued: list[int] = []
        self.claims: list[int] = []
        self.settled: list[int] = []


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tidewheel]:
    async with Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


@pytest.fixture
def calls(app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    store = app.store
    enqueue, claim, settle = store.enqueue, store.claim, store.settle

    async def counted_enqueue(jobs: Sequence[NewJob]) -> list[Enqueued]:
        calls.enqueued.append(len(jobs))
        return await enqueue(jobs)

    async def counted_claim(request: ClaimRequest) -> Claim:
        calls.claims.append(request.limit)
        return await claim(request)

    async def counted_settle(settlements: Sequence[Settlement]) -> list[bool]:
        calls.settled.append(len(settlements))
        return await settle(settlements)

    monkeypatch.setattr(store, "enqueue", counted_enqueue)
    monkeypatch.setattr(store, "claim", counted_claim)
    monkeypatch.setattr(store, "settle", counted_settle)
    return calls


async def test_ten_who_pull_in_step_share_their_claims_and_endings(app: Tidewheel, calls: Calls) -> None:
    """Not one commit for the first and one for the others: after the first round all go together."""
    for number in range(CLIENTS * ROUNDS):
        await app.queue.put("mail", number)
    calls.claims.clear()

    async def client() -> None:
        for _ in range(ROUNDS):
            await (await app.queue.reserve("mail")).delete()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    assert sum(calls.settled) == CLIENTS * ROUNDS
    assert max(calls.settled) == CLIENTS
    # A busy machine may make somebody late, so not exactly one for each round.
    assert len(calls.settled) <= 2 * ROUNDS
    assert len(calls.claims) <= 2 * ROUNDS


async def test_one_who_pulls_alone_never_waits_for_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nobody else to come."""
    rounds = CommitWindow()
    for _ in range(3):
        rounds.record_call()
        gathering = asyncio.ensure_future(rounds.wait_for_callers())
        await asyncio.sleep(0)
        assert gathering.done()
        rounds.expect_callers(1)


async def test_those_who_do_not_call_again_are_waited_for_once_and_shortly() -> None:
    """Nine of ten went to work on their jobs; the tenth goes on alone after a moment."""
    rounds = CommitWindow()
    rounds.expect_callers(10)
    rounds.record_call()
    await rounds.wait_for_callers()  # ends, though nobody else comes
    rounds.record_call()
    gathering = asyncio.ensure_future(rounds.wait_for_callers())
    await asyncio.sleep(0)
    assert gathering.done()


async def test_a_caller_who_is_cancelled_leaves_the_others_waiting_in_peace() -> None:
    """What they wait for is nobody's own."""
    rounds = CommitWindow()
    rounds.expect_callers(3)
    rounds.record_call()
    first, second = (
        asyncio.ensure_future(rounds.wait_for_callers()),
        asyncio.ensure_future(rounds.wait_for_callers()),
    )
    await asyncio.sleep(0)
    first.cancel()
    rounds.record_call()
    rounds.record_call()
    await second
    assert first.cancelled()


async def test_who_comes_late_is_waited_for_as_long_as_others_come() -> None:
    """Ten commands take longer than the moment that nobody may be silent for."""
    rounds = CommitWindow()
    rounds.expect_callers(10)
    gathering = asyncio.ensure_future(rounds.wait_for_callers())
    for _ in range(9):
        await asyncio.sleep(0)
        rounds.record_call()
    assert not gathering.done()
    rounds.record_call()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert gathering.done()


async def test_the_clock_of_a_round_that_is_over_does_not_end_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has its own; else those in step would fall out of it again and again."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def noted(*arguments: Any) -> asyncio.TimerHandle:
        timers.append(call_later(*arguments))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", noted)
    rounds = CommitWindow()
    for _ in range(3):
        rounds.expect_callers(2)
        gathering = asyncio.ensure_future(rounds.wait_for_callers())
        await asyncio.sleep(0)
        rounds.record_call()
        rounds.record_call()
        await gathering
    assert len(timers) == 3
    assert all(timer.cancelled() for timer in timers)
