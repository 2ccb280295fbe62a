"""What steps may be called, how many there may be, and what they may return."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import run, until
from tidewheel import Context, InvalidInput, LimitExceeded, Retry, Tidewheel
from tidewheel.stores.bounds import MAX_STEPS
from tidewheel.tasks import steps

AT_ONCE = Retry.fixed(0)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "step name is empty"),
        ("x" * 201, "201 characters; the limit is 200"),
        (" a", "no spaces at its ends"),
        ("a\nb", "no control characters"),
        (7, "must be text"),
    ],
)
async def test_names_are_checked_before_anything_is_run(name: Any, complaint: str) -> None:
    """As those of tasks are."""
    async with Tidewheel("memory://") as app:

        @app.task
        async def work(ctx: Context) -> None:
            with pytest.raises(InvalidInput, match=complaint):
                await ctx.step(name, pytest.fail)
            with pytest.raises(InvalidInput, match="cannot be called; give the function and its arguments"):
                await ctx.step("fetch", "url")  # type: ignore[call-overload] # the mistake at hand

        assert (await run(app, await work.enqueue())).state == "completed"


async def test_a_job_has_so_many_steps_and_no_more(app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all its runs count; the one too many is not run."""
    monkeypatch.setattr(steps, "MAX_STEPS", 3)

    async def nothing() -> None: ...

    @app.task(max_attempts=2, retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            await asyncio.gather(*(ctx.step(f"old-{n}", nothing) for n in range(2)))
            raise ConnectionError
        await ctx.step("old-0", nothing)
        await ctx.step("new-0", nothing)
        with pytest.raises(LimitExceeded, match="'new-1' would be one too many; the limit is 3 steps a job"):
            await ctx.step("new-1", pytest.fail)

    job = await run(app, await work.enqueue())
    assert (job.state, len(job.steps)) == ("completed", 3)
    assert MAX_STEPS == 1000


@pytest.mark.parametrize(
    ("output", "code", "complaint"),
    [
        ("x" * 70_000, "limit_exceeded", "output of step 'big' is 70,002 bytes; the limit is 65,536"),
        (object(), "invalid_input", "output of step 'big' cannot be written as JSON"),
        ([float("nan")], "invalid_input", "not finite"),
    ],
    ids=["long", "object", "nan"],
)
async def test_an_output_that_cannot_be_kept_fails_the_job(
    app: Tidewheel, output: Any, code: str, complaint: str
) -> None:
    """At once: another attempt would do the step's work again, and fail again."""
    runs: list[int] = []

    def big() -> Any:
        runs.append(1)
        return output

    @app.task(max_attempts=5, retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("big", big)

    job = await run(app, await work.enqueue())
    assert job.error is not None
    assert (job.state, job.error.code, runs, job.steps) == ("failed", code, [1], ())
    assert complaint in job.error.message


async def test_all_outputs_of_a_job_together_have_a_limit(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run reads them all."""
    monkeypatch.setattr(steps, "MAX_OUTPUT_BYTES", 100)

    def some() -> str:
        return "x" * 40

    @app.task(max_attempts=3, retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        for n in range(ctx.attempt + 1):
            await ctx.step(f"{n}", some)
        raise ConnectionError

    job = await run(app, await work.enqueue())
    assert job.error is not None
    assert (job.attempt, len(job.steps)) == (2, 2)
    assert "42 bytes, and those before it 84; the limit for all steps of a job is 100" in job.error.message


async def test_so_many_plain_functions_of_a_job_run_at_once_and_no_more() -> None:
    """A thousand steps at once are not a thousand threads."""
    lock, go_on = threading.Lock(), threading.Event()
    inside: list[int] = []
    most = 0

    def crowd(n: int) -> int:
        nonlocal most
        with lock:
            inside.append(n)
            most = max(most, len(inside))
        assert go_on.wait(PATIENCE)
        with lock:
            inside.remove(n)
        return n

    async with Tidewheel("memory://") as app:

        @app.task
        async def work(ctx: Context) -> int:
            async def let_them_go() -> None:
                await until(lambda: len(inside) >= steps.MAX_THREADS)
                go_on.set()

            numbers = range(3 * steps.MAX_THREADS)
            await asyncio.gather(let_them_go(), *(ctx.step(f"{n}", crowd, n) for n in numbers))
            return len(numbers)

        job = await run(app, await work.enqueue())
        assert (await job.result(), most) == (96, steps.MAX_THREADS)
