"""The demo's customers: they keep the queue busy with varied work."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Final

from tidewheel.cli import formats
from tidewheel.cli.demo.activity_log import ActivityKind, ActivityLog
from tidewheel.cli.demo.shop_app import Shop

TICK_SECONDS: Final = 0.1
NEWSLETTER_SECONDS: Final = 7.0
NEWSLETTER_SIZE: Final = 150
PAUSE_EVERY_SECONDS: Final = 40.0
FIRST_PAUSE_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 12.0
LONG_REPORT_PAGES: Final = 120
"""About half a minute: time to look at it while it runs."""

_NAMES: Final = (
    "ada",
    "grace",
    "linus",
    "margaret",
    "dennis",
    "barbara",
    "edsger",
    "radia",
    "ken",
    "frances",
)
_EVENTS: Final = ("order.created", "order.shipped", "invoice.paid", "user.joined", "stock.low")
_MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August")
_SOURCES: Final = ("products.csv", "prices.csv", "stock.csv", "customers.csv")
_FILES: Final = (
    "cover.png",
    "hero.jpg",
    "team.webp",
    "map.png",
    "logo.svg",
    "mug.jpg",
    "scan.tiff",
    "banner.gif",
)
"""Two kinds that the shop cannot read, so that there is one task to find, understand and put right. Whatever
else fails stays below a tenth of its attempts, as in a shop that works.
"""
_REMINDER_TEXTS: Final = ("call the bank", "renew the domain", "water the plants", "review the budget")

_random = random.Random()  # noqa: S311 - makes the demo varied, guards nothing


class Producer:
    """Enqueues what the shop's customers ask for."""

    def __init__(self, shop: Shop, activity_log: ActivityLog) -> None:
        self._shop = shop
        self._journal = activity_log
        self._orders = itertools.count(1010)  # soon one the carrier is closed for, and one that is declined
        self._newsletters = itertools.count(1)

    async def run(self) -> None:
        """One of everything at once, so that there is something to see; then on and on."""
        await self._emails(12)
        await asyncio.gather(
            self._payment(),
            *(self._webhook(troubles) for troubles in (0, 0, 0, 1, 0, 0, 0, 9, 0, 0)),
            self._report(),
            self._report(pages=LONG_REPORT_PAGES),
            self._month(),
            self._import(fails_once=True),
            self._image("scan.tiff"),
            self._reminder(2.0),
            self._reminder(3600.0),
        )
        await self._payment(twice=True)
        for tick in itertools.count(1):
            await asyncio.sleep(TICK_SECONDS)
            if tick % _ticks(NEWSLETTER_SECONDS) == 0:
                await self._newsletter()
            if tick % _ticks(PAUSE_EVERY_SECONDS) == _ticks(FIRST_PAUSE_SECONDS):
                await self._pause_imports()
            for chance, act in self._tick_probabilities():
                if _random.random() < chance:
                    await act()

    def _tick_probabilities(self) -> tuple[tuple[float, Callable[[], Awaitable[None]]], ...]:
        """How likely each kind of work is in one tick."""
        return (
            (0.55, lambda: self._emails(_random.randint(1, 3))),
            (0.09, self._payment),
            (0.02, lambda: self._payment(twice=True)),
            (0.14, lambda: self._webhook(0)),
            (0.006, lambda: self._webhook(_random.choice((1, 1, 2, 9)))),
            (0.09, self._report),
            (0.005, lambda: self._report(pages=LONG_REPORT_PAGES)),
            (0.01, self._month),
            (0.07, self._image),
            (0.04, lambda: self._reminder(_random.uniform(2, 6))),
            (0.04, lambda: self._import(fails_once=_random.random() < 0.1)),
        )

    async def _emails(self, number: int) -> None:
        await self._shop.send_email.enqueue_many(
            [{"to": _address(), "template": _random.choice(("welcome", "receipt"))} for _ in range(number)]
        )

    async def _newsletter(self) -> None:
        """Jobs that belong together share a correlation id."""
        send = self._shop.send_email.options(correlation_id=f"newsletter-{next(self._newsletters)}")
        await send.enqueue_many([{"to": _address()} for _ in range(NEWSLETTER_SIZE)])

    async def _payment(self, *, twice: bool = False) -> None:
        """The key makes an impatient double click one payment."""
        order = next(self._orders)
        name = f"order-{order}"
        pay = self._shop.charge_card.options(key=name, correlation_id=name, priority=100)
        payment = {
            "order": order,
            "amount": round(_random.uniform(5, 250), 2),
            "card_number": f"4242 4242 4242 {_random.randint(1000, 9999)}",
        }
        await pay.enqueue(**payment)
        if twice and (await pay.enqueue(**payment)).duplicate:
            self._journal.add(
                ActivityKind.DUPLICATE, "payments", f"order {order} was sent twice and is one job"
            )

    async def _webhook(self, failures: int) -> None:
        await self._shop.call_webhook.enqueue(
            event=_random.choice(_EVENTS),
            troubles=failures,
            headers={"Content-Type": "application/json", "Authorization": "Bearer 7f3a…"},
        )

    async def _report(self, *, pages: int | None = None) -> None:
        await self._shop.build_report.enqueue(
            month=_random.choice(_MONTHS), pages=pages or _random.randint(5, 10)
        )

    async def _month(self) -> None:
        """A job that runs after others: it is blocked until both reports are there."""
        month = _random.choice(_MONTHS)
        reports = await self._shop.build_report.enqueue_many(
            [{"month": month, "pages": 4}, {"month": month, "pages": 60}]
        )
        await self._shop.close_month.options(after=reports).enqueue(month=month)

    async def _image(self, file: str | None = None) -> None:
        await self._shop.resize_image.enqueue(
            file=file or _random.choice(_FILES), width=_random.choice((320, 640, 1280))
        )

    async def _reminder(self, delay: float) -> None:
        who = _random.choice(_NAMES)
        about = _random.choice(_REMINDER_TEXTS)
        await self._shop.remind.options(delay=delay, user_id=who).enqueue(who=who, about=about)
        self._journal.add(
            ActivityKind.PLANNED, "reminders", f"{who}: {about}, due in {formats.duration(delay)}"
        )

    async def _import(self, *, fails_once: bool) -> None:
        await self._shop.import_rows.enqueue(
            source=_random.choice(_SOURCES), rows=_random.choice((400, 600, 800)), breaks=fails_once
        )

    async def _pause_imports(self) -> None:
        """Workers leave a paused topic alone; what waits there runs when the pause is over."""
        await self._shop.app.pause("imports", PAUSE_SECONDS)
        self._journal.add(ActivityKind.PAUSED, "imports", f"paused for {formats.duration(PAUSE_SECONDS)}")


def _address() -> str:
    host = "example.invalid" if _random.random() < 0.004 else "example.com"
    return f"{_random.choice(_NAMES)}@{host}"


def _ticks(seconds: float) -> int:
    return round(seconds / TICK_SECONDS)
