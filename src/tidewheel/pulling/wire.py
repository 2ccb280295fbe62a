"""The pull verbs for a server: it is called back instead of waiting, and knows what its clients do next."""

from __future__ import annotations

import asyncio

from tidewheel.middleware import prepare
from tidewheel.model import Enqueued, NewJob
from tidewheel.pulling.pulled import Pulled
from tidewheel.pulling.queue import Queue
from tidewheel.pulling.reservations import Waiter
from tidewheel.pulling.reserved import Reserved


class WireQueue(Queue):
    """``app.queue`` under the rules of a wire: it has its own names, and clients touch as they like."""

    def put_soon(self, job: NewJob, *, quick: bool) -> asyncio.Future[Enqueued]:
        """Put a job that was made from a template without a key. ``quick``: the client will put another."""
        if self._app.registry.around.enqueues:
            (job,) = prepare(self._app, (job,))
        return self._connections.reservations().put(job, quick=quick)

    def ask(self, topics: frozenset[str], timeout: float | None, *, quick: bool) -> Waiter:
        """Want a job of these topics, which are checked already. What the waiter gets is to be ``taken``.

        ``quick``: the client will end the job at once, as it did before.
        """
        return self._connections.reservations().ask(topics, timeout, quick=quick)

    def hurry(self, waiter: Waiter) -> None:
        """It gets a job that is ready now, or none."""
        self._connections.reservations().hurry(waiter)

    def withdraw(self, waiter: Waiter) -> None:
        """It gets none, unless it has one."""
        self._connections.reservations().withdraw(waiter)

    def taken(self, pulled: Pulled) -> Reserved:
        """What a waiter got."""
        return Reserved(self._app, self._connections, pulled, self._limits)

    @property
    def anything_ahead(self) -> bool:
        """Whether jobs are away from the others for clients who have not asked yet."""
        return self._connections.reservations().anything_ahead

    async def rescue_forever(self) -> None:
        """Let others have jobs whose time to run is over, until cancelled: a moment after it is over."""
        from tidewheel.worker.janitor import Janitor
        from tidewheel.worker.waiting import Recovery

        app = self._app
        await Janitor(app.store, app.settings.poll_interval, app.clock, Recovery()).run()

    async def let_go(self) -> None:
        """Of those, because somebody is about to look."""
        await self._connections.reservations().let_go()
