"""A store that can be away: a real one behind a switch, for the worker under test and all its siblings."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

from tests.patience import PATIENCE
from tidewheel import StoreError, StoreUnavailable, Tidewheel
from tidewheel.core.model import Settlement
from tidewheel.stores.protocol import Store, Wakeups
from tidewheel.worker import Worker

VERBS = {
    "open", "migrate", "now", "enqueue", "claim", "mark_started", "extend", "settle", "report",
    "finished_steps",
    "cancel_requests", "rescue", "prune", "heartbeat", "deregister_worker", "workers", "get", "states",
    "write_documents", "document", "documents", "remove_document", "enqueue_with_document",
}  # fmt: skip
assert set(dir(Store)) >= VERBS  # a renamed method would no longer fail


class Switch:
    """Whether the store can be reached, and what was tried while it could not."""

    def __init__(self) -> None:
        self.down = False
        self.only: set[str] = set()  # when not empty, just these verbs fail
        self.refused: Counter[str] = Counter()
        self.poison: set[UUID] = set()  # the outcomes of these jobs are refused for good
        self.silent: set[str] = set()  # calls of these verbs never come back
        self.unheard: Counter[str] = Counter()

    async def hear(self, verb: str, arguments: Sequence[Any]) -> None:
        self.check(verb)
        if verb in self.silent:
            self.unheard[verb] += 1
            await asyncio.Event().wait()
        if verb == "settle":
            settlements: Sequence[Settlement] = arguments[0]
            if any(settlement.lease.job_id in self.poison for settlement in settlements):
                self.refused["poison"] += 1
                raise StoreError("no such outcome is taken here")

    def check(self, verb: str) -> None:
        if self.down and (not self.only or verb in self.only):
            self.refused[verb] += 1
            raise StoreUnavailable("the cable was pulled")


class SwitchedStore:
    """Every verb of ``inner``, as long as the switch is on."""

    def __init__(self, inner: Store, switch: Switch) -> None:
        self._inner = inner
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in VERBS:
            return value

        async def verb(*args: Any, **kwargs: Any) -> Any:
            await self._switch.hear(name, args)
            return await value(*args, **kwargs)

        return verb

    def sibling(self) -> SwitchedStore:
        return SwitchedStore(self._inner.sibling(), self._switch)

    @asynccontextmanager
    async def wakeups(
        self, *, topics: Collection[str] | None = (), finished: bool = False
    ) -> AsyncIterator[Wakeups]:
        self._switch.check("wakeups")
        async with self._inner.wakeups(topics=topics, finished=finished) as subscription:
            yield subscription
        self._switch.check("wakeups")


@asynccontextmanager
async def working_on(app: Tidewheel, switch: Switch, **options: Any) -> AsyncIterator[Worker]:
    """A worker behind the switch; the app itself always reaches the store."""
    store = cast("Store", SwitchedStore(app.store, switch))
    options = {"handle_signals": False, "clock": app.clock, **options}
    worker = Worker(store, app.registry, app.settings, **options)
    run = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(run, PATIENCE)
