"""The demo's customers: they keep the queue busy with varied work."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from windlass.cli.demo.journal import Journal, Kind
from windlass.cli.demo.tasks import Shop

TICK_SECONDS: Final = 0.1
NEWSLETTER_SECONDS: Final = 7.0
NEWSLETTER_SIZE: Final = 150

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
_ERRANDS: Final = ("call the bank", "renew the domain", "water the plants", "review the budget")

_dice = random.Random()  # noqa: S311 - makes the demo varied, guards nothing


class Producer:
    """Enqueues what the shop's customers ask for."""

    def __init__(self, shop: Shop, journal: Journal) -> None:
        self._shop = shop
        self._journal = journal
        self._orders = itertools.count(1003)

    async def run(self) -> None:
        """One of everything at once, so that there is something to see; then on and on."""
        await self._emails(12)
        await asyncio.gather(
            self._payment(),
            self._webhook(2),
            self._report(),
            self._report(),
            self._import(breaks=True),
            self._reminder(2.0),
        )
        await self._payment(twice=True)
        for tick in _ticks():
            await asyncio.sleep(TICK_SECONDS)
            if tick % round(NEWSLETTER_SECONDS / TICK_SECONDS) == 0:
                await self._emails(NEWSLETTER_SIZE)
            for chance, act in self._habits():
                if _dice.random() < chance:
                    await act()

    def _habits(self) -> tuple[tuple[float, Callable[[], Awaitable[None]]], ...]:
        """How likely each kind of work is in one tick."""
        return (
            (0.55, lambda: self._emails(_dice.randint(1, 3))),
            (0.09, self._payment),
            (0.02, lambda: self._payment(twice=True)),
            (0.08, lambda: self._webhook(0)),
            (0.04, lambda: self._webhook(_dice.choice((1, 1, 2, 3)))),
            (0.09, self._report),
            (0.04, lambda: self._reminder(_dice.uniform(2, 6))),
            (0.04, lambda: self._import(breaks=_dice.random() < 0.5)),
        )

    async def _emails(self, number: int) -> None:
        await self._shop.send_email.enqueue_many(
            [{"to": f"{_dice.choice(_NAMES)}@example.com"} for _ in range(number)]
        )

    async def _payment(self, *, twice: bool = False) -> None:
        """The key makes an impatient double click one payment."""
        order = next(self._orders)
        pay = self._shop.charge_card.options(key=f"order-{order}", priority=100)
        amount = round(_dice.uniform(5, 250), 2)
        await pay.enqueue(order=order, amount=amount)
        if twice and (await pay.enqueue(order=order, amount=amount)).duplicate:
            self._journal.add(Kind.DUPLICATE, "payments", f"order {order} was sent twice and is one job")

    async def _webhook(self, troubles: int) -> None:
        await self._shop.call_webhook.enqueue(event=_dice.choice(_EVENTS), troubles=troubles)

    async def _report(self) -> None:
        await self._shop.build_report.enqueue(month=_dice.choice(_MONTHS), pages=_dice.randint(5, 10))

    async def _reminder(self, delay: float) -> None:
        who = _dice.choice(_NAMES)
        about = _dice.choice(_ERRANDS)
        await self._shop.remind.options(delay=delay).enqueue(who=who, about=about)
        self._journal.add(Kind.PLANNED, "reminders", f"{who}: {about}, due in {delay:.0f} s")

    async def _import(self, *, breaks: bool) -> None:
        await self._shop.import_rows.enqueue(
            source=_dice.choice(_SOURCES), rows=_dice.choice((400, 600, 800)), breaks=breaks
        )


def _ticks() -> Iterator[int]:
    return itertools.count(1)
