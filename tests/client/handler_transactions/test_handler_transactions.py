"""``ctx.transaction``: what a handler does to its own tables, and the end of its job, are one (Q18)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from tests.client.handler_transactions.ledger import ACCOUNTS, OPENING, Ledger, mark
from tests.patience import PATIENCE
from tests.worker.helpers import working
from tidewheel import Context, Fail, JobFailed, LeaseLost, LimitExceeded, Snooze, Tidewheel, WrongState
from tidewheel.core.model import Released, Settlement


def _take(url: str, ledger: Ledger) -> str:
    return f"UPDATE {ledger.accounts} SET balance = balance - {mark(url, 1)} WHERE id = {mark(url, 2)}"


async def test_effects_and_completion_are_committed_together(
    app: Tidewheel, url: str, ledger: Ledger
) -> None:
    """The result is there, the money has moved, and the job enqueued inside runs next."""

    @app.task
    async def receipt(amount: int) -> int:
        return amount

    @app.task
    async def pay(ctx: Context, amount: int) -> int:
        assert await ctx.transaction.execute(_take(url, ledger), amount, 0) == 1
        await receipt.enqueue(amount=amount)
        row = await ctx.transaction.fetchrow(f"SELECT id, balance FROM {ledger.accounts} WHERE id = 0")
        assert (row[0], row["balance"]) == (0, OPENING - amount)
        assert await ctx.transaction.fetchrow(f"SELECT 1 FROM {ledger.accounts} WHERE id = 77") is None
        return int(await ctx.transaction.fetchval(f"SELECT count(*) FROM {ledger.accounts}"))

    job = await pay.enqueue(amount=7)
    assert await app.run_until_idle() == 2
    assert await job.result(timeout=0) == ACCOUNTS
    assert (await ledger.balances())[0] == OPENING - 7
    assert (await app.count(task="receipt", state="completed")).total == 1
    assert await app.check() == []


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_handler_that_raises_has_done_nothing(
    app: Tidewheel, url: str, ledger: Ledger, plain: bool
) -> None:
    """Neither to its tables nor to the queue, however often it is tried; with its last try it fails."""

    @app.task
    async def receipt(amount: int) -> None: ...

    if plain:

        @app.task(name="pay", max_attempts=2)
        def pay(ctx: Context) -> None:
            ctx.sync.transaction.execute(_take(url, ledger), 7, 0)
            receipt.sync.enqueue(amount=7)
            raise ValueError("no funds")

    else:

        @app.task(name="pay", max_attempts=2)
        async def pay(ctx: Context) -> None:
            await ctx.transaction.execute(_take(url, ledger), 7, 0)
            await receipt.enqueue(amount=7)
            raise ValueError("no funds")

    job = await app.enqueue("pay", max_attempts=1)
    await app.run_until_idle()
    with pytest.raises(JobFailed, match="no funds"):
        await job.result(timeout=0)
    assert await ledger.balances() == [OPENING] * ACCOUNTS
    assert (await app.count(task="receipt")).total == 0
    assert await app.check() == []


async def test_plain_functions_have_the_same_transaction_under_sync(
    app: Tidewheel, url: str, ledger: Ledger
) -> None:
    """Blocking calls, of the transaction and of the app, join it from the handler's thread."""

    @app.task
    async def receipt(amount: int) -> None: ...

    @app.task
    def pay(ctx: Context, amount: int) -> int:
        transaction = ctx.sync.transaction
        transaction.execute(_take(url, ledger), amount, 0)
        transaction.executemany(_take(url, ledger), [(1, 1), (2, 2)])
        receipt.sync.enqueue(amount=amount)
        assert len(transaction.fetch(f"SELECT id FROM {ledger.accounts}")) == ACCOUNTS
        assert transaction.fetchrow(f"SELECT balance FROM {ledger.accounts} WHERE id = 2")[0] == OPENING - 2
        return int(transaction.fetchval(f"SELECT balance FROM {ledger.accounts} WHERE id = 0"))

    job = await pay.enqueue(amount=5)
    await app.run_until_idle()
    assert await job.result(timeout=0) == OPENING - 5
    assert (await ledger.balances())[:3] == [OPENING - 5, OPENING - 1, OPENING - 2]
    assert (await app.count(task="receipt", state="completed")).total == 1


@pytest.mark.parametrize("ending", [Fail("no"), Snooze(60), "release"], ids=["fail", "snooze", "release"])
async def test_every_other_ending_rolls_back(
    app: Tidewheel, url: str, ledger: Ledger, ending: Exception | str
) -> None:
    """Only a completion commits."""

    @app.task
    async def pay(ctx: Context) -> None:
        await ctx.transaction.execute(_take(url, ledger), 7, 0)
        if isinstance(ending, Exception):
            raise ending
        ctx.release(60)

    job = await pay.enqueue()
    async with working(app):
        while (await job.refresh()).state == "running" or not (job.error or job.run_at > job.created_at):
            await asyncio.sleep(0.01)
    assert await ledger.balances() == [OPENING] * ACCOUNTS


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
async def test_a_job_that_is_stopped_in_the_middle_has_done_nothing(
    app: Tidewheel, url: str, ledger: Ledger, how: str
) -> None:
    """On SQLite a request to cancel waits for the lock that the handler has, and comes after its end."""
    inside = asyncio.Event()

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        await ctx.transaction.execute(_take(url, ledger), 7, 0)
        inside.set()
        await asyncio.sleep(60)

    job = await pay.options(timeout=1.0 if how == "out of time" else None).enqueue()
    async with working(app):
        await inside.wait()
        if how == "cancelled" and not url.startswith("sqlite:"):
            await job.cancel()
        while not (await job.refresh()).error:
            await asyncio.sleep(0.01)
    expected = {"out of time": "job_timeout", "cancelled": "job_canceled"}[how]
    if how == "cancelled" and url.startswith("sqlite:"):
        expected = "transaction_timeout"
    assert job.error is not None
    assert job.error.code == expected
    assert await ledger.balances() == [OPENING] * ACCOUNTS


async def test_limits_of_topics_hold_inside(url: str, ledger: Ledger) -> None:
    """What was enqueued in the same transaction counts."""
    app = Tidewheel(url, lease=6, max_jobs_per_topic=2, poll_interval=0.05)

    @app.task
    async def receipt() -> None: ...

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> int:
        await ctx.transaction.execute(_take(url, ledger), 7, 0)
        await receipt.options(delay=60).enqueue()
        await receipt.options(delay=60).enqueue()
        with pytest.raises(LimitExceeded, match="max_jobs_per_topic"):
            await receipt.enqueue()
        return 2

    async with app:
        job = await pay.enqueue()
        await app.run_until_idle()
        assert await job.result(timeout=0) == 2
        assert (await app.count(task="receipt")).total == 2
        assert await app.check() == []


async def test_a_task_that_was_left_behind_cannot_begin_one(app: Tidewheel, url: str, ledger: Ledger) -> None:
    """Nobody would end it."""
    left: list[asyncio.Task[Any]] = []

    async def late(ctx: Context) -> None:
        await ctx.transaction.execute(_take(url, ledger), 7, 0)

    @app.task
    async def pay(ctx: Context) -> None:
        left.append(asyncio.create_task(late(ctx)))

    job = await pay.enqueue()
    await app.run_until_idle()
    await job.result(timeout=0)
    with pytest.raises(LeaseLost):
        await left[0]
    assert await ledger.balances() == [OPENING] * ACCOUNTS


async def test_a_transaction_open_for_too_long_is_rolled_back_and_its_job_retried(
    url: str, ledger: Ledger
) -> None:
    """Also when its handler thinks about something else; the others go on."""
    app = Tidewheel(url, lease=6, transaction_seconds=0.3, poll_interval=0.05)
    runs: list[int] = []

    @app.task(retry=_at_once())
    async def pay(ctx: Context) -> str:
        runs.append(ctx.attempt)
        await ctx.transaction.execute(_take(url, ledger), 7, 0)
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return "paid"

    async with app:
        job = await pay.enqueue()
        async with working(app):
            assert await job.result(timeout=PATIENCE) == "paid"
        assert runs == [1, 2]
        await job.refresh()
        assert [attempt.error.code for attempt in job.attempts] == ["transaction_timeout"]
    assert (await ledger.balances())[0] == OPENING - 7


async def test_a_transaction_is_ended_though_the_event_loop_is_blocked(
    url: str, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody else would get the write lock of SQLite, or the locks of PostgreSQL, as long as it blocks."""
    caplog.set_level(logging.CRITICAL)
    app = Tidewheel(url, lease=6, transaction_seconds=0.3, poll_interval=0.05)
    free_after: list[float] = []

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        await ctx.transaction.execute(_take(url, ledger), 7, 0)
        blocked = time.monotonic()

        def look() -> None:
            asyncio.run(_write_outside(url, ledger))
            free_after.append(time.monotonic() - blocked)

        other = threading.Thread(target=look)
        other.start()
        other.join(PATIENCE)  # blocks the event loop until the other one got through

    async with app:
        job = await pay.enqueue()
        await app.run_until_idle()
        await job.refresh()
    assert (job.state, job.error and job.error.code) == ("failed", "transaction_timeout")
    assert free_after
    assert (await ledger.balances())[0] == OPENING + 1


async def _write_outside(url: str, ledger: Ledger) -> None:
    """As another program would, of the row that the handler has changed."""
    statement = f"UPDATE {ledger.accounts} SET balance = balance + 1 WHERE id = 0"
    if url.startswith("sqlite:"):
        with ledger._connection() as connection:  # type: ignore[attr-defined]
            connection.execute(statement)
    else:
        await ledger._run("execute", statement)  # type: ignore[attr-defined]


async def test_progress_and_checkpoints_inside_are_written_with_the_end(
    app: Tidewheel, url: str, ledger: Ledger
) -> None:
    """A checkpoint that says "half is done" must not outlive the half that was rolled back."""

    @app.task(max_attempts=2)
    async def pay(ctx: Context) -> Any:
        before = ctx.checkpoint.value
        await ctx.transaction.execute(_take(url, ledger), 7, 0)
        await ctx.progress(50, "half")
        await ctx.checkpoint({"half": True})
        assert ctx.checkpoint.value == {"half": True}
        if ctx.attempt == 1:
            raise ValueError("once")
        return before

    job = await pay.options(retry=_at_once()).enqueue()
    async with working(app):
        assert await job.result(timeout=PATIENCE) is None
    await job.refresh()
    assert job.checkpoint == {"half": True}
    assert (await ledger.balances())[0] == OPENING - 7


def _at_once() -> Any:
    from tidewheel import Retry

    return Retry.fixed(0)


async def test_what_cannot_be_part_of_it_is_refused_instead_of_waiting_for_its_end(
    app: Tidewheel, url: str, ledger: Ledger
) -> None:
    """On SQLite it would wait until the transaction's time is over."""

    @app.task
    async def other() -> None: ...

    waiting = await other.options(delay=60).enqueue()
    refused: list[str] = []

    @app.task
    async def pay(ctx: Context) -> None:
        await ctx.transaction.execute(_take(url, ledger), 7, 0)
        for call in (
            app.cancel(waiting.id),
            app.requeue(waiting.id),
            app.delete(waiting.id),
            app.cancel_all(task="other"),
            app.pause("other"),
            app.resume("other"),
        ):
            with pytest.raises(WrongState, match="part of this handler's open transaction"):
                await call
            refused.append("")

    job = await pay.enqueue()
    await app.run_until_idle()
    await job.result(timeout=0)
    assert len(refused) == 6


async def test_another_app_does_not_join(app: Tidewheel, url: str, ledger: Ledger) -> None:
    """A transaction is one of its own app's database."""
    elsewhere = Tidewheel("memory://")

    @elsewhere.task
    async def note() -> None: ...

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        await ctx.transaction.execute(_take(url, ledger), 7, 0)
        await note.enqueue()
        raise ValueError("no")

    async with elsewhere:
        await pay.enqueue()
        await app.run_until_idle()
        assert (await elsewhere.count(task="note")).total == 1


async def test_a_constraint_that_is_checked_last_fails_the_attempt(app: Tidewheel, ledger: Ledger) -> None:
    """The commit itself may be refused; then nothing has happened, and the reason is kept."""

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        await ctx.transaction.execute(f"INSERT INTO {ledger.deferred} (account) VALUES (4711)")

    job = await pay.enqueue()
    await app.run_until_idle()
    with pytest.raises(JobFailed, match=r"(?i)foreign key"):
        await job.result(timeout=0)


async def test_many_handlers_with_transactions_share_a_worker(
    app: Tidewheel, url: str, ledger: Ledger
) -> None:
    """They take turns on SQLite and run side by side on PostgreSQL; nobody loses a lease or a transfer."""

    @app.task
    async def pay(ctx: Context, account: int) -> None:
        await ctx.transaction.execute(_take(url, ledger), 1, account)
        await asyncio.sleep(0.01)

    @app.task
    async def other() -> None: ...

    await pay.enqueue_many([{"account": number % ACCOUNTS} for number in range(50)])
    await other.enqueue_many([{} for _ in range(50)])
    assert await app.run_until_idle(concurrency=10) == 100
    assert await ledger.balances() == [OPENING - 5] * ACCOUNTS


async def test_what_is_enqueued_while_it_is_being_opened_belongs_to_it(
    app: Tidewheel, url: str, ledger: Ledger
) -> None:
    """On SQLite it would otherwise stand in line behind the transaction that waits for it."""

    @app.task
    async def receipt() -> None: ...

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        await asyncio.gather(
            ctx.transaction.execute(_take(url, ledger), 7, 0), receipt.enqueue(), receipt.enqueue()
        )
        raise ValueError("no")

    job = await pay.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert job.error is not None
    assert "no" in job.error.message
    assert (await app.count(task="receipt")).total == 0


async def test_what_a_handler_leaves_behind_is_not_part_of_it(
    app: Tidewheel, url: str, ledger: Ledger
) -> None:
    """A task that goes on after its handler enqueues like anybody else."""
    left: list[asyncio.Task[Any]] = []
    over = asyncio.Event()

    @app.task
    async def receipt() -> None: ...

    async def later() -> None:
        await over.wait()
        await receipt.enqueue()

    @app.task
    async def pay(ctx: Context) -> None:
        await ctx.transaction.execute(_take(url, ledger), 7, 0)
        left.append(asyncio.create_task(later()))

    await pay.enqueue()
    await app.run_until_idle()
    over.set()
    await left[0]
    assert (await app.count(task="receipt")).total == 1


async def test_a_transaction_that_cannot_be_opened_fails_the_attempt_and_nothing_else(
    app: Tidewheel, url: str, ledger: Ledger
) -> None:
    """The error is the handler's to catch; here it is right, and the outcome is refused like any other."""

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> str:
        await app.store.settle([Settlement(ctx.lease, Released())])  # somebody else has the job now
        try:
            await ctx.transaction.execute(_take(url, ledger), 7, 0)
        except LeaseLost:
            return "lost"
        return "held"

    job = await pay.options(topic="once").enqueue()
    worker = app.worker(topics=["once"], handle_signals=False)
    run = asyncio.create_task(worker.run())
    while not worker.tally.lost:
        await asyncio.sleep(0.01)
    await app.pause("once")
    worker.stop()
    await run
    assert (await job.refresh()).state in {"pending", "running"}
    assert await ledger.balances() == [OPENING] * ACCOUNTS


async def test_handlers_that_never_touch_it_open_nothing(app: Tidewheel) -> None:
    """It is opened by its first use: looking at it is none."""
    seen: list[bool] = []

    @app.task
    async def idle(ctx: Context) -> None:
        seen.append(ctx.transaction.is_open)

    await idle.enqueue()
    await app.run_until_idle()
    assert seen == [False]


async def test_a_store_in_memory_has_none_and_says_what_to_do() -> None:
    """Instead of effects that are not there after a crash."""
    app = Tidewheel("memory://")

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        await ctx.transaction.execute("SELECT 1")

    async with app:
        job = await pay.enqueue()
        await app.run_until_idle()
        with pytest.raises(JobFailed, match="needs a database"):
            await job.result(timeout=0)
