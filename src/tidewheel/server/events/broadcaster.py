"""All listeners of a server, and the tasks that serve them.

A listener is a wish and a position in the ring; ``read`` returns the events to send next. The first listener
starts the watcher and the last one stops it, so that a server without listeners does not query its store.
Streams are limited per server, tenant and credential, watched jobs per server and tenant. Credentials are
checked again every 5 seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Final

from tidewheel.app import Tidewheel
from tidewheel.core.security_context import acting_as
from tidewheel.errors import Backpressure
from tidewheel.server.events.change_poller import (
    MAX_WATCHED_JOBS,
    MAX_WATCHED_TENANTS,
    ChangePoller,
    WatchedJob,
    WatchedTopics,
)
from tidewheel.server.events.event_json import Notice, encode, job_event
from tidewheel.server.events.ring_buffer import EventKind, EventRing
from tidewheel.server.events.subscription import Subscription

HEARTBEAT_SECONDS: Final = 15.0
"""After so long without an event a comment is sent."""
MAX_WRITE_BYTES: Final = 64 * 1024
"""Events are put together up to about this size."""
RETRY_MILLISECONDS: Final = 2000
"""How long a client should wait before it comes back."""

_RESET: Final = Notice("what happened since the last event is not known any more; read again what you show")
_END: Final = Notice("all of these jobs have finished")


@dataclass(frozen=True, slots=True)
class ListenerCredential:
    """What a listener showed, and whether it is still good. Listeners with equal names are asked for once."""

    name: Hashable
    is_valid: Callable[[], Awaitable[bool]]


class Listener:
    """A position in the ring, for somebody with a wish. ``next_events`` says what to send next."""

    def __init__(
        self,
        ring: EventRing,
        subscription: Subscription,
        credential: ListenerCredential,
        *,
        limited: bool = True,
    ) -> None:
        self.subscription = subscription
        self.counts_for_tenant = limited  # counted for its tenant; False for superusers
        self.credential = credential
        self.position = ring.head
        self.last_sent_at = 0.0  # on the event loop's clock, when something was last sent
        self.end_reason: str | None = None  # why it ends, once it does
        self.reset_connection: Callable[[], None] | None = (
            None  # ends a connection that cannot be ended in order
        )
        self.watched_topics: WatchedTopics | None = None
        self.watched_jobs: list[WatchedJob] = []
        self._ring = ring
        self._woken: asyncio.Future[None] | None = None

    # -- when ---------------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Until it is woken."""
        self._woken = asyncio.get_running_loop().create_future()
        try:
            await self._woken
        finally:
            self._woken = None

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def end(self, why: str) -> None:
        """Let it say goodbye and go. The first reason stands."""
        self.end_reason = self.end_reason or why
        self.wake()

    # -- what ---------------------------------------------------------------------------------------------

    def first_events(self, last_event_id: str | None) -> bytes:
        """The first words: where it stands, and what it has to know before it can follow."""
        ring = self._ring
        resumed = None if last_event_id is None else ring.position_of(last_event_id)
        if (
            resumed is not None
            and self.watched_topics is not None
            and resumed < self.watched_topics.since_position
        ):
            resumed = None
        words = [b"retry: %d\n" % RETRY_MILLISECONDS]
        if resumed is not None:
            self.position = resumed
            words += [b"id: %s\n\n" % ring.id_at(resumed)]
            return b"".join(words)
        self.position = ring.head
        words += [b"id: %s\n\n" % ring.id_at(ring.head)]
        if last_event_id is not None:
            words.append(self._private_event(EventKind.RESET, encode(_RESET)))
        for watched in self.watched_jobs:
            if (job := watched.job) is not None:
                told = job_event(job, list(job.timeline), superuser=self.subscription.scope.superuser)
                words.append(self._private_event(EventKind.JOB, told))
        return b"".join(words)

    def next_events(self) -> bytes:
        """What comes next in the ring that it wants, and step over the rest; empty when it is up to date."""
        if not self._ring.holds(self.position):
            return self.first_events("")  # it slept too long: this is no id, so it starts anew
        texts: list[bytes] = []
        size = 0
        for event in self._ring.after(self.position):
            if size >= MAX_WRITE_BYTES:
                return b"".join(texts)
            self.position = event.number
            if self.subscription.matches(event):
                texts.append(event.text)
                size += len(event.text)
        self.position = self._ring.head
        return b"".join(texts)

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing more to come: it listens to jobs alone, and all of them have ended."""
        return bool(self.watched_jobs) and all(watched.is_finished for watched in self.watched_jobs)

    def end_event(self) -> bytes:
        """The event that says so."""
        return self._private_event(EventKind.END, encode(_END))

    def heartbeat(self) -> bytes:
        """A sign of life, with its place in the ring: quiet streams can be resumed like busy ones."""
        return b": still here\nid: %s\n\n" % self._ring.id_at(self.position)

    def _private_event(self, kind: EventKind, data: bytes) -> bytes:
        """An event for this listener alone, under the id of where it is."""
        at = self._ring.id_at(self.position)
        return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), at, data)


MAX_PER_CREDENTIAL: Final = 100
"""Most streams of one key, token or session; superusers are not held to it."""
MAX_TENANT_JOBS: Final = MAX_WATCHED_JOBS // 4
"""Max jobs that the callers of one tenant listen to; superusers are not held to it."""
HEARTBEAT_CHECK_SECONDS: Final = 1.0
"""How often it is looked for who has not been sent anything for a while."""
CREDENTIAL_CHECK_SECONDS: Final = 5.0
"""How often it is asked whether a credential is still good."""

SHUTDOWN_GRACE_SECONDS: Final = 0.5
"""How long a client may take to be told that the server shuts down."""

SHUTDOWN_REASON: Final = "the server is shutting down"
CREDENTIAL_ENDED_REASON: Final = "the key, token or session is no longer good"

logger = logging.getLogger(__name__)


class EventBroadcaster:
    """Listeners, the ring they read and the watcher that fills it. Lives on one event loop."""

    def __init__(self, app: Tidewheel, closing: asyncio.Event) -> None:
        self.ring = EventRing()
        self.poller = ChangePoller(app, self.ring, self._wake_listeners)
        self.listeners: set[Listener] = set()
        self._limit = app.settings.max_event_streams
        self._tenant_limit = app.settings.max_tenant_event_streams
        self._closing = closing
        self._joining = 0  # those who wait for their first look
        self._by_credential: Counter[Hashable] = Counter()
        self._by_tenant: Counter[str | None] = Counter()
        self._jobs_by_tenant: Counter[str | None] = Counter()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_polling(self) -> bool:
        return bool(self._tasks)

    async def join(
        self, subscription: Subscription, credential: ListenerCredential, *, limited: bool = True
    ) -> Listener:
        """Let somebody listen, until ``leave``. ``Backpressure`` when there is no room, ``JobNotFound``."""
        self._check_limits(subscription, credential, limited=limited)
        listener = Listener(self.ring, subscription, credential, limited=limited)
        self._joining += 1
        self._count(listener, 1)
        try:
            if subscription.job_ids:
                listener.watched_jobs = await self.poller.watch_jobs(subscription.scope, subscription.job_ids)
            else:
                listener.watched_topics = await self.poller.watch_topics(subscription.scope.tenant)
        except BaseException:
            self._count(listener, -1)
            raise
        finally:
            self._joining -= 1
        self.listeners.add(listener)
        if not self._tasks:
            self._tasks = [
                self._start(self.poller.run(), "tidewheel-events-watcher"),
                self._start(self._check_listeners(), "tidewheel-events-pulse"),
                self._start(self._end_on_shutdown(), "tidewheel-events-closing"),
            ]
        return listener

    async def leave(self, listener: Listener) -> None:
        """It is gone. Nothing of it stays."""
        self.listeners.discard(listener)
        self._count(listener, -1)
        if listener.watched_topics is not None:
            self.poller.unwatch_topics(listener.watched_topics)
        self.poller.unwatch_jobs(listener.watched_jobs)
        if not self.listeners:
            tasks, self._tasks = self._tasks, []
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    def _count(self, listener: Listener, change: int) -> None:
        """Count a stream and its jobs for its credential and its tenant, from before its first look."""
        wish = listener.subscription
        _add(self._by_credential, listener.credential.name, change)
        if listener.counts_for_tenant:
            _add(self._by_tenant, wish.scope.tenant, change)
            _add(self._jobs_by_tenant, wish.scope.tenant, change * len(wish.job_ids))

    def _check_limits(
        self, subscription: Subscription, credential: ListenerCredential, *, limited: bool
    ) -> None:
        number = len(self.listeners) + self._joining
        if self._closing.is_set():
            raise Backpressure(f"{SHUTDOWN_REASON}; come back in a moment")
        if limited:
            self._check_tenant_limits(subscription)
        if number >= self._limit:
            raise _no_room_error(
                f"{number:,} event streams are open; the limit is {self._limit:,} (max_event_streams)",
                limited=limited,
            )
        if limited and self._by_credential[credential.name] >= MAX_PER_CREDENTIAL:
            raise Backpressure(
                f"this caller has {MAX_PER_CREDENTIAL} event streams open, which is the limit; "
                "close some, or share one"
            )
        if subscription.job_ids and not self.poller.has_room_for_jobs(len(subscription.job_ids)):
            raise _no_room_error(
                f"{MAX_WATCHED_JOBS:,} jobs are listened to, which is the limit", limited=limited
            )
        if not subscription.job_ids and self.poller.is_full_of_tenants:
            raise _no_room_error(
                f"{MAX_WATCHED_TENANTS:,} tenants are listened to, which is the limit", limited=limited
            )

    def _check_tenant_limits(self, subscription: Subscription) -> None:
        """Leave room for other tenants; without a word about them."""
        tenant = subscription.scope.tenant
        if self._by_tenant[tenant] >= self._tenant_limit:
            raise Backpressure(
                f"this tenant has {self._tenant_limit:,} event streams open, which is the limit "
                "(max_tenant_event_streams); close some, or share one"
            )
        jobs = self._jobs_by_tenant[tenant]
        if subscription.job_ids and jobs + len(subscription.job_ids) > MAX_TENANT_JOBS:
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

    def _wake_listeners(self) -> None:
        """After a look: wake those for whom there is something, and take the others along."""
        head = self.ring.head
        known: dict[
            tuple[Subscription, int], bool
        ] = {}  # most have the same wish and stand at the same place
        for listener in self.listeners:
            if listener.position == head and not listener.watched_jobs:
                continue
            asked = (listener.subscription, listener.position)
            wanted = known.get(asked)
            if wanted is None:
                wanted = known[asked] = not self.ring.holds(listener.position) or any(
                    map(listener.subscription.matches, self.ring.after(listener.position))
                )
            if wanted or listener.is_finished:
                listener.wake()
            else:
                listener.position = head

    async def _check_listeners(self) -> None:
        """Heartbeats, and whether everybody may still listen."""
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        with acting_as(None):  # started by a request, which acts for its caller
            while True:
                await asyncio.sleep(HEARTBEAT_CHECK_SECONDS)
                now = loop.time()
                for listener in self.listeners:
                    if now - listener.last_sent_at >= HEARTBEAT_SECONDS:
                        listener.wake()
                if now - checked_at >= CREDENTIAL_CHECK_SECONDS:
                    checked_at = now
                    await self._check_credentials()

    async def _check_credentials(self) -> None:
        credentials = {listener.credential.name: listener.credential for listener in self.listeners}
        for name, credential in credentials.items():
            try:
                good = await credential.is_valid()
            except Exception as error:  # nobody can tell: the store is away, say, and nothing can be heard
                logger.warning("whether a credential is still good cannot be looked up: %s", error)
                continue
            if not good:
                for listener in [one for one in self.listeners if one.credential.name == name]:
                    listener.end(CREDENTIAL_ENDED_REASON)

    async def _end_on_shutdown(self) -> None:
        await self._closing.wait()
        for listener in self.listeners:
            listener.end(SHUTDOWN_REASON)
        await asyncio.sleep(SHUTDOWN_GRACE_SECONDS)
        for listener in list(self.listeners):
            if listener.reset_connection is not None:
                listener.reset_connection()
        await asyncio.Event().wait()  # until the last has left


def _add(counts: Counter[Any], name: Hashable, change: int) -> None:
    counts[name] += change
    if not counts[name]:
        del counts[name]


def _no_room_error(what: str, *, limited: bool) -> Backpressure:
    """How much others use is for superusers."""
    return Backpressure(
        f"{'the server has no room for another event stream now' if limited else what}; come back later"
    )
