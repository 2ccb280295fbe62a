"""All listeners of a server, and what is done for them while there are any.

The first to come starts the watcher, the last to leave ends it: a server nobody listens to looks at nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Hashable
from typing import Any, Final

from tidewheel.app import Tidewheel
from tidewheel.errors import Backpressure
from tidewheel.security import acting_as
from tidewheel.server.events.listener import HEARTBEAT_SECONDS, Credential, Listener
from tidewheel.server.events.ring import Ring
from tidewheel.server.events.view import Wish
from tidewheel.server.events.watcher import MAX_JOBS, MAX_TENANTS, Watcher

MAX_PER_CREDENTIAL: Final = 100
"""Most streams of one key, token or session; superusers are not held to it."""
MAX_TENANT_JOBS: Final = MAX_JOBS // 4
"""Max jobs that the callers of one tenant listen to; superusers are not held to it."""
PULSE_SECONDS: Final = 1.0
"""How often it is looked for who has not been sent anything for a while."""
CHECK_SECONDS: Final = 5.0
"""How often it is asked whether a credential is still good."""

LAST_SECONDS: Final = 0.5
"""How long a client may take to be told that the server shuts down."""

GOOD_BYE: Final = "the server is shutting down"
NOT_GOOD: Final = "the key, token or session is no longer good"

logger = logging.getLogger(__name__)


class Broadcast:
    """Listeners, the ring they read and the watcher that fills it. Lives on one event loop."""

    def __init__(self, app: Tidewheel, closing: asyncio.Event) -> None:
        self.ring = Ring()
        self.watcher = Watcher(app, self.ring, self._tell)
        self.listeners: set[Listener] = set()
        self._limit = app.settings.max_event_streams
        self._tenant_limit = app.settings.max_tenant_event_streams
        self._closing = closing
        self._coming = 0  # those who wait for their first look
        self._by_credential: Counter[Hashable] = Counter()
        self._by_tenant: Counter[str | None] = Counter()
        self._jobs_by_tenant: Counter[str | None] = Counter()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def watching(self) -> bool:
        return bool(self._tasks)

    async def join(self, wish: Wish, credential: Credential, *, limited: bool = True) -> Listener:
        """Let somebody listen, until ``leave``. ``Backpressure`` when there is no room, ``JobNotFound``."""
        self._refuse_too_many(wish, credential, limited=limited)
        listener = Listener(self.ring, wish, credential, limited=limited)
        self._coming += 1
        self._count(listener, 1)
        try:
            if wish.job_ids:
                listener.jobs = await self.watcher.watch_jobs(wish.view, wish.job_ids)
            else:
                listener.topics = await self.watcher.watch_topics(wish.view.tenant)
        except BaseException:
            self._count(listener, -1)
            raise
        finally:
            self._coming -= 1
        self.listeners.add(listener)
        if not self._tasks:
            self._tasks = [
                self._start(self.watcher.run(), "tidewheel-events-watcher"),
                self._start(self._pulse(), "tidewheel-events-pulse"),
                self._start(self._end_with_the_server(), "tidewheel-events-closing"),
            ]
        return listener

    async def leave(self, listener: Listener) -> None:
        """It is gone. Nothing of it stays."""
        self.listeners.discard(listener)
        self._count(listener, -1)
        if listener.topics is not None:
            self.watcher.leave_topics(listener.topics)
        self.watcher.leave_jobs(listener.jobs)
        if not self.listeners:
            tasks, self._tasks = self._tasks, []
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    def _count(self, listener: Listener, change: int) -> None:
        """Count a stream and its jobs for its credential and its tenant, from before its first look."""
        wish = listener.wish
        _add(self._by_credential, listener.credential.name, change)
        if listener.limited:
            _add(self._by_tenant, wish.view.tenant, change)
            _add(self._jobs_by_tenant, wish.view.tenant, change * len(wish.job_ids))

    def _refuse_too_many(self, wish: Wish, credential: Credential, *, limited: bool) -> None:
        number = len(self.listeners) + self._coming
        if self._closing.is_set():
            raise Backpressure(f"{GOOD_BYE}; come back in a moment")
        if limited:
            self._refuse_tenant(wish)
        if number >= self._limit:
            raise _full(
                f"{number:,} event streams are open; the limit is {self._limit:,} (max_event_streams)",
                limited=limited,
            )
        if limited and self._by_credential[credential.name] >= MAX_PER_CREDENTIAL:
            raise Backpressure(
                f"this caller has {MAX_PER_CREDENTIAL} event streams open, which is the limit; "
                "close some, or share one"
            )
        if wish.job_ids and not self.watcher.room_for_jobs(len(wish.job_ids)):
            raise _full(f"{MAX_JOBS:,} jobs are listened to, which is the limit", limited=limited)
        if not wish.job_ids and self.watcher.full_of_tenants:
            raise _full(f"{MAX_TENANTS:,} tenants are listened to, which is the limit", limited=limited)

    def _refuse_tenant(self, wish: Wish) -> None:
        """Leave room for other tenants; without a word about them."""
        tenant = wish.view.tenant
        if self._by_tenant[tenant] >= self._tenant_limit:
            raise Backpressure(
                f"this tenant has {self._tenant_limit:,} event streams open, which is the limit "
                "(max_tenant_event_streams); close some, or share one"
            )
        jobs = self._jobs_by_tenant[tenant]
        if wish.job_ids and jobs + len(wish.job_ids) > MAX_TENANT_JOBS:
            raise Backpressure(
                f"this tenant listens to {jobs:,} jobs; the limit is {MAX_TENANT_JOBS:,}, close some streams"
            )

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """None of these ends by itself: without it streams would be silent for ever, so they end, too."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s ended", task.get_name(), exc_info=error)
            for listener in self.listeners:
                listener.end("an error of the server's own")

    # -- what is done for listeners -----------------------------------------------------------------------

    def _tell(self) -> None:
        """After a look: wake those for whom there is something, and take the others along."""
        head = self.ring.head
        known: dict[tuple[Wish, int], bool] = {}  # most have the same wish and stand at the same place
        for listener in self.listeners:
            if listener.position == head and not listener.jobs:
                continue
            asked = (listener.wish, listener.position)
            wanted = known.get(asked)
            if wanted is None:
                wanted = known[asked] = not self.ring.holds(listener.position) or any(
                    map(listener.wish.wants, self.ring.after(listener.position))
                )
            if wanted or listener.over:
                listener.wake()
            else:
                listener.position = head

    async def _pulse(self) -> None:
        """Heartbeats, and whether everybody may still listen."""
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        with acting_as(None):  # started by a request, which acts for its caller
            while True:
                await asyncio.sleep(PULSE_SECONDS)
                now = loop.time()
                for listener in self.listeners:
                    if now - listener.heard_at >= HEARTBEAT_SECONDS:
                        listener.wake()
                if now - checked_at >= CHECK_SECONDS:
                    checked_at = now
                    await self._check_credentials()

    async def _check_credentials(self) -> None:
        credentials = {listener.credential.name: listener.credential for listener in self.listeners}
        for name, credential in credentials.items():
            try:
                good = await credential.still_good()
            except Exception as error:  # nobody can tell: the store is away, say, and nothing can be heard
                logger.warning("whether a credential is still good cannot be looked up: %s", error)
                continue
            if not good:
                for listener in [one for one in self.listeners if one.credential.name == name]:
                    listener.end(NOT_GOOD)

    async def _end_with_the_server(self) -> None:
        await self._closing.wait()
        for listener in self.listeners:
            listener.end(GOOD_BYE)
        await asyncio.sleep(LAST_SECONDS)
        for listener in list(self.listeners):
            if listener.cut is not None:
                listener.cut()
        await asyncio.Event().wait()  # until the last has left


def _add(counts: Counter[Any], name: Hashable, change: int) -> None:
    counts[name] += change
    if not counts[name]:
        del counts[name]


def _full(what: str, *, limited: bool) -> Backpressure:
    """How much others use is for superusers."""
    return Backpressure(
        f"{'the server has no room for another event stream now' if limited else what}; come back later"
    )
