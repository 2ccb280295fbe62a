"""The demo's app: ten tasks that behave like the work of a small shop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from tidewheel.app import Tidewheel
from tidewheel.cli.demo.activity_log import ActivityKind, ActivityLog, RunningHandler
from tidewheel.core.cron import Cron, Every
from tidewheel.core.jitter import GENERATOR, jitter
from tidewheel.core.retry import Retry
from tidewheel.core.topic_limits import Rate, TopicLimits
from tidewheel.errors import Fail, RetryAfter
from tidewheel.tasks.context import Context
from tidewheel.tasks.task import Task

WORKER_NAMES: Final = ("front-desk", "back-office")
CONCURRENCY: Final = 6
"""Jobs at a time, in each of the workers."""

Order = Annotated[int, Meta(ge=1, description="The number of the order")]
Amount = Annotated[float, Meta(gt=0, le=10_000, description="In euros")]
Address = Annotated[str, Meta(pattern="@", max_length=200, description="To whom")]
Template = Literal["welcome", "receipt", "newsletter"]
Width = Annotated[int, Meta(ge=16, le=4096, description="In pixels; the height follows")]


@dataclass(frozen=True, slots=True)
class Shop:
    """The app and its tasks."""

    app: Tidewheel
    send_email: Task[..., Any]
    charge_card: Task[..., Any]
    fulfil_order: Task[..., Any]
    call_webhook: Task[..., Any]
    build_report: Task[..., Any]
    import_rows: Task[..., Any]
    resize_image: Task[..., Any]
    remind: Task[..., Any]
    tidy_up: Task[..., Any]
    close_month: Task[..., Any]


def make_shop(url: str, activity_log: ActivityLog, superuser: str) -> Shop:
    """An app as a user would write it; the journal is the only thing a real one would not have."""
    app = Tidewheel(
        url,
        concurrency=CONCURRENCY,
        shutdown_grace=2.0,
        strict_tasks=True,
        superuser=superuser,
        # Whatever the settings of this directory's own project are: served, and closed to all others.
        http_api=True,
        ui=True,
        enqueue_rule="",
        manage_rule="",
    )

    @app.task(topic="mail")
    async def send_email(ctx: Context, to: Address, template: Template = "newsletter") -> None:
        """Send one email. Quick work, and a lot of it."""
        async with activity_log.track_attempt(ctx, f"to {to}", group="email"):
            await asyncio.sleep(jitter(0.01, 0.06))
            if to.endswith(".invalid"):
                raise Fail(f"550 no such mailbox: {template} for {to}", code="bounced")

    @app.task(topic="payments", max_attempts=5)
    async def charge_card(ctx: Context, order: Order, amount: Amount, card_number: str) -> dict[str, Any]:
        """Charge a card, then send the order on its way.

        Some cards are declined: trying again would not help, so the task says Fail.
        """
        async with activity_log.track_attempt(ctx, f"order {order}, {amount:.2f} EUR"):
            await asyncio.sleep(jitter(0.15, 0.5))
            if order % 13 == 0:
                raise Fail(f"card ending in {card_number[-4:]} was declined", code="card_declined")
            await fulfil_order.options(correlation_id=f"order-{order}").enqueue(order=order)
            return {"receipt": f"receipt-{order}", "charged": amount}

    @app.task(topic="orders", max_attempts=3, retry=Retry.fixed(1.5))
    async def fulfil_order(ctx: Context, order: Order, express: bool = False) -> str:
        """Pack and send an order, in steps: what is done is not done again when the carrier is away."""
        async with activity_log.track_attempt(ctx, f"order {order}") as running:
            await ctx.step("reserve stock", _work, f"3 items for order {order}", 0.15)
            await _progress(ctx, running, 33, "packing")
            await ctx.step("print label", _work, f"label-{order}.pdf", 0.3)
            await _progress(ctx, running, 66, "waiting for the carrier")
            parcel = await ctx.step("hand over", _hand_over, order, ctx.attempt, express)
            await _progress(ctx, running, 100, "on its way")
            return parcel

    @app.task(
        topic="webhooks",
        max_attempts=4,
        retry=Retry.exponential(0.6, maximum=4),
        limits=TopicLimits(concurrency=3, rate=Rate(10)),
    )
    async def call_webhook(
        ctx: Context, event: str, troubles: int = 0, headers: dict[str, str] | None = None
    ) -> int:
        """Call other people's servers: busy ones say when to come back, broken ones are retried later."""
        del headers
        async with activity_log.track_attempt(ctx, event):
            await asyncio.sleep(jitter(0.05, 0.3))
            if ctx.attempt <= troubles:
                if ctx.attempt % 2:
                    raise RetryAfter(1.0, "429 too many requests")
                if troubles > (ctx.job.max_attempts or 0):
                    raise TimeoutError(f"hooks.example.com did not answer {event} within 5 s")
                raise ConnectionError("connection refused")
            return 204

    @app.task(topic="reports")
    async def build_report(ctx: Context, month: str, pages: int) -> dict[str, int]:
        """Build a report page by page. Long work that tells how far it is."""
        async with activity_log.track_attempt(ctx, f"report {month}, {pages} pages") as running:
            for page in range(1, pages + 1):
                await _pause(ctx, jitter(0.15, 0.35))
                await _progress(ctx, running, 100 * page / pages, f"page {page} of {pages}")
            return {"pages": pages}

    @app.task(topic="imports", max_attempts=3, retry=Retry.fixed(0.8))
    async def import_rows(ctx: Context, source: str, rows: int, breaks: bool = False) -> int:
        """Import a file. Long work that resumes where the attempt before it stopped."""
        async with activity_log.track_attempt(ctx, f"{source}, {rows} rows") as running:
            done: int = ctx.checkpoint.get("rows", 0)
            if done:
                activity_log.add(
                    ActivityKind.RESUMED, "imports", f"{source} goes on at row {done} from its checkpoint"
                )
            while done < rows:
                await _pause(ctx, 0.12)
                done = min(rows, done + 50)
                await ctx.checkpoint({"rows": done})
                await _progress(ctx, running, 100 * done / rows, f"row {done} of {rows}")
                if breaks and ctx.attempt == 1 and done >= rows / 2:
                    raise ConnectionResetError(f"connection lost at row {done}")
            return rows

    @app.task(topic="images", max_attempts=2, retry=Retry.fixed(0.7))
    async def resize_image(ctx: Context, file: str, width: Width = 640) -> str:
        """Make a smaller picture. Some files are not what their names say, and fail again and again."""
        async with activity_log.track_attempt(ctx, f"{file} to {width} px"):
            await asyncio.sleep(jitter(0.05, 0.25))
            return f"{_decode(file)}-{width}.webp"

    @app.task(topic="reminders")
    async def remind(ctx: Context, who: str, about: str) -> None:
        """Remind somebody of something. Work for later: enqueued with a delay."""
        async with activity_log.track_attempt(ctx, f"{who}: {about}"):
            await asyncio.sleep(0.02)

    @app.task(topic="upkeep", schedule=Every(60))
    async def tidy_up(ctx: Context) -> int:
        """Throw away what nobody needs any more. A schedule makes its job, every minute."""
        async with activity_log.track_attempt(ctx, "every minute"):
            await asyncio.sleep(0.2)
            return GENERATOR.randint(3, 40)

    @app.task(topic="reports")
    async def close_month(ctx: Context, month: str) -> str:
        """Close the books of a month: enqueued to run after the reports it sums up."""
        async with activity_log.track_attempt(ctx, month):
            await asyncio.sleep(0.3)
            return f"{month} is closed"

    app.schedule(
        "report:monthly",
        build_report,
        Cron("0 6 1 * *", zone="Europe/Berlin"),
        {"month": "last month", "pages": 8},
    )

    return Shop(
        app,
        send_email,
        charge_card,
        fulfil_order,
        call_webhook,
        build_report,
        import_rows,
        resize_image,
        remind,
        tidy_up,
        close_month,
    )


async def _work(what: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return what


async def _hand_over(order: int, attempt: int, express: bool) -> str:
    await asyncio.sleep(0.1 if express else 0.4)
    if order % 11 == 0 and attempt == 1:
        raise ConnectionError("the carrier's office is closed")
    return f"parcel-{order}"


def _decode(file: str) -> str:
    name, _, kind = file.rpartition(".")
    return _decoder_of(kind, file) + name


def _decoder_of(kind: str, file: str) -> str:
    if kind == "tiff":
        raise ValueError(f"cannot identify image file {file!r}")
    if kind == "gif":
        return {"frame": ""}["frames"]
    return ""


async def _pause(ctx: Context, seconds: float) -> None:
    """A step of long work. A worker that is told to stop gets its job back between two steps."""
    await asyncio.sleep(seconds)
    if ctx.shutting_down:
        ctx.release()


async def _progress(ctx: Context, running: RunningHandler, percent: float, message: str) -> None:
    running.percent, running.message = percent, message
    await ctx.progress(percent, message)
