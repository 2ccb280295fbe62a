"""The demo's app: six tasks that behave like the work of a small shop."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from windlass.app import Windlass
from windlass.cli.demo.journal import Journal, Kind, Running
from windlass.context import Context
from windlass.errors import Fail, RetryAfter
from windlass.retry import Retry
from windlass.task import Task

CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class Shop:
    """The app and its tasks."""

    app: Windlass
    send_email: Task[..., Any]
    charge_card: Task[..., Any]
    call_webhook: Task[..., Any]
    build_report: Task[..., Any]
    import_rows: Task[..., Any]
    remind: Task[..., Any]


def make_shop(url: str, journal: Journal) -> Shop:
    """An app as a user would write it; the journal is the only thing a real one would not have."""
    app = Windlass(url, concurrency=CONCURRENCY, shutdown_grace=2.0, strict_tasks=True)

    @app.task(topic="mail")
    async def send_email(ctx: Context, to: str) -> None:
        """Quick work, and a lot of it."""
        async with journal.attempt(ctx, f"to {to}", group="email"):
            await asyncio.sleep(random.uniform(0.01, 0.06))  # noqa: S311 - the demo's pace, no secret

    @app.task(topic="payments", max_attempts=5)
    async def charge_card(ctx: Context, order: int, amount: float) -> str:
        """Some cards are declined: trying again would not help, so the task says Fail."""
        async with journal.attempt(ctx, f"order {order}, {amount:.2f} EUR"):
            await asyncio.sleep(random.uniform(0.15, 0.5))  # noqa: S311
            if order % 7 == 0:
                raise Fail("card declined", code="card_declined")
            return f"receipt-{order}"

    @app.task(topic="webhooks", max_attempts=4, retry=Retry.exponential(0.6, maximum=4))
    async def call_webhook(ctx: Context, event: str, troubles: int = 0) -> int:
        """Other people's servers: busy ones say when to come back, broken ones are retried with backoff."""
        async with journal.attempt(ctx, event):
            await asyncio.sleep(random.uniform(0.05, 0.3))  # noqa: S311
            if ctx.attempt <= troubles:
                if ctx.attempt % 2:
                    raise RetryAfter(1.0, "429 too many requests")
                raise ConnectionError("connection refused")
            return 204

    @app.task(topic="reports")
    async def build_report(ctx: Context, month: str, pages: int) -> dict[str, int]:
        """Long work that tells how far it is."""
        async with journal.attempt(ctx, f"report {month}, {pages} pages") as running:
            for page in range(1, pages + 1):
                await _pause(ctx, random.uniform(0.15, 0.35))  # noqa: S311
                await _progress(ctx, running, 100 * page / pages, f"page {page} of {pages}")
            return {"pages": pages}

    @app.task(topic="imports", max_attempts=3, retry=Retry.fixed(0.8))
    async def import_rows(ctx: Context, source: str, rows: int, breaks: bool = False) -> int:
        """Long work that resumes where the attempt before it stopped."""
        async with journal.attempt(ctx, f"{source}, {rows} rows") as running:
            done: int = ctx.checkpoint.get("rows", 0)
            if done:
                journal.add(Kind.RESUMED, "imports", f"{source} goes on at row {done} from its checkpoint")
            while done < rows:
                await _pause(ctx, 0.12)
                done = min(rows, done + 50)
                await ctx.checkpoint({"rows": done})
                await _progress(ctx, running, 100 * done / rows, f"row {done} of {rows}")
                if breaks and ctx.attempt == 1 and done >= rows / 2:
                    raise ConnectionResetError(f"connection lost at row {done}")
            return rows

    @app.task(topic="reminders")
    async def remind(ctx: Context, who: str, about: str) -> None:
        """Work for later: enqueued with a delay."""
        async with journal.attempt(ctx, f"{who}: {about}"):
            await asyncio.sleep(0.02)

    return Shop(app, send_email, charge_card, call_webhook, build_report, import_rows, remind)


async def _pause(ctx: Context, seconds: float) -> None:
    """A step of long work. A worker that is told to stop gets its job back between two steps."""
    await asyncio.sleep(seconds)
    if ctx.shutting_down:
        ctx.release()


async def _progress(ctx: Context, running: Running, percent: float, message: str) -> None:
    running.percent, running.message = percent, message
    await ctx.progress(percent, message)
