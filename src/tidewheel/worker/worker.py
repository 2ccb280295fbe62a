"""A worker: slots for handlers, fed by claims, emptied by settlements, guarded by a keeper.

::

    store ──claim──▶ waiting ──▶ slot: attempt ──outcome──▶ settler ──settle──▶ store
                        keeper (own thread): extends every lease above, stops handlers that lost theirs
                        janitor: rescues dead workers' jobs (old ones are removed by ``maintenance``)
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from tidewheel.core.clock import Clock, SystemClock
from tidewheel.core.jitter import jitter
from tidewheel.core.model import Claim, ClaimRequest, Released, Settlement
from tidewheel.core.names import check_worker_name
from tidewheel.core.security_context import system_only
from tidewheel.core.urls import over_http
from tidewheel.errors import ConfigurationError, StoreError, StoreUnavailable, WorkerStuck
from tidewheel.settings import Settings, override_settings
from tidewheel.stores.protocol import Store, Wakeups
from tidewheel.tasks.registry import Registry
from tidewheel.tasks.task_location import find_places
from tidewheel.telemetry.metric_gauges import QueueFigures, TopicFigures
from tidewheel.telemetry.telemetry import Telemetry
from tidewheel.worker.active_jobs import Held, HeldJobs, Stop
from tidewheel.worker.async_waits import Recovery, end, first_of
from tidewheel.worker.backoff import Backoff
from tidewheel.worker.batch_runner import BatchRunner, MoreJobs
from tidewheel.worker.callback_runner import CallbackRunner
from tidewheel.worker.declared_limits import declare_limits, declared_limits
from tidewheel.worker.executor import Workplace
from tidewheel.worker.health import LoopLag, WorkerHealth, judge, starting
from tidewheel.worker.heartbeat import Registrar
from tidewheel.worker.lease_keeper import Beside, Keeper, KeeperThread, OnDeath
from tidewheel.worker.observers import observers_of
from tidewheel.worker.queue_sampler import Outlook
from tidewheel.worker.settler import Settler, Tally
from tidewheel.worker.signals import stop_signals
from tidewheel.worker.slot_runner import Runner
from tidewheel.worker.slots import Slots
from tidewheel.worker.store_maintenance import Janitor
from tidewheel.worker.stuck_handlers import Stuck
from tidewheel.worker.worker_run import STOPPED_SECONDS, Events

SHORTEST_REST = 0.02
"""Seconds an idle worker rests at least, unless it is woken: how late a delayed job may start for this."""
UNKNOWN_DELAY = 60.0
"""Seconds until a job whose task is not known here after all is offered again."""
ANSWER_SECONDS = 10.0
"""How long a claim may take: one connection that has gone silent must not stop a worker for longer."""
SETTLE_GRACE = 5.0
"""Seconds to get the last outcomes written when the worker ends."""
BLOCKED_SECONDS = 30.0
"""How long the event loop of a worker that is to make way may take to notice, before it counts as blocked."""
LAST_CALLS = 1.0
"""Seconds that callbacks have at least, when the grace period is over or nobody wants to wait for it."""

_log = logging.getLogger("tidewheel.worker")


class FiresSchedules(Protocol):
    """What a worker needs of a scheduler."""

    async def run(self) -> None:
        """Fire schedules until cancelled."""

    async def once(self) -> None:
        """Fire what is due now."""


class _FiresNone:
    """The scheduler of a worker that fires no schedules."""

    async def run(self) -> None:
        pass

    async def once(self) -> None:
        pass


class MakeScheduler(Protocol):
    """How a worker gets its scheduler: schedules are a package above."""

    def __call__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        clock: Clock,
        recovery: Recovery,
        telemetry: Telemetry | None = None,
    ) -> FiresSchedules: ...


class Worker:
    """Runs the jobs of an app's tasks until it is stopped.

    ``make_scheduler``: without one, this worker fires no schedules.
    ``clock`` and ``keeper_thread``: where time and the keeper's thread come from; a simulation has its own.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        *,
        name: str | None = None,
        concurrency: int | None = None,
        topics: Collection[str] | None = None,
        exclude_topics: Collection[str] = (),
        topic_concurrency: Mapping[str, int] | None = None,
        lease: float | None = None,
        prefetch: int | None = None,
        handle_signals: bool = True,
        isolate: bool = True,
        clock: Clock | None = None,
        telemetry: Telemetry | None = None,
        keeper_thread: Callable[[Keeper, OnDeath], Beside] = KeeperThread,
        make_scheduler: MakeScheduler | None = None,
    ) -> None:
        self.name = check_worker_name(
            name or f"{socket.gethostname()[:150]}:{os.getpid()}:{secrets.token_hex(2)}"
        )
        given = {"concurrency": concurrency, "lease": lease, "prefetch": prefetch}
        # What is done for all jobs, and not for one of them, is done where the database is.
        remote = over_http(store.url)
        settings = override_settings(settings, {**given, "schedules": False} if remote else given)
        self.lanes = registry.lanes(topics, exclude_topics)
        if not self.lanes:
            raise ConfigurationError(
                f"this worker has nothing to run: no {'durable ' if len(registry) else ''}task is registered"
                + (" on the topics it was given" if topics is not None or exclude_topics else "")
            )
        for topic, limit in (topic_concurrency or {}).items():
            if limit < 1:
                raise ConfigurationError(f"topic_concurrency of {topic!r} is {limit}; it must be at least 1")
        self._store = store
        self._registry = registry
        self._places = find_places(registry, self.lanes) if isolate else None
        self._settings = settings
        self._handle_signals = handle_signals
        self._clock = clock or SystemClock()
        self._keeper_thread = keeper_thread
        self._make_scheduler = make_scheduler
        self._slots = Slots(settings.concurrency, settings.prefetch, topic_concurrency or {}, self._clock)
        self._held = HeldJobs()
        self._observers = observers_of(self.name, settings, self._clock, telemetry)
        self._telemetry = telemetry
        # At the whole queue.
        self.looks = telemetry is not None and telemetry.metrics is not None and not remote
        if remote and registry.schedules:
            _log.warning("schedules are fired by the server, where its own app declares them, and not here")
        self._stopping = False
        self._asked = False  # to stop, by whoever runs this worker
        self._stop_now = False
        self._stuck = Stuck(self.name, self._slots.concurrency, self._clock, self._make_way)
        self._worn_at: float | None = None  # since when half its slots are stuck, monotonic
        self._finishing = False
        self.when_blocked: Callable[[], None] | None = None  # of who owns the process; on the keeper's thread
        self._events: Events | None = None
        self._died: BaseException | None = None

    # -- for callers --------------------------------------------------------------------------------------

    @property
    def tally(self) -> Tally:
        """What was settled so far."""
        return self._events.settler.tally if self._events is not None else Tally()

    @property
    def concurrency(self) -> int:
        return self._slots.concurrency

    @property
    def stuck(self) -> int:
        """How many of its slots are held by handlers that were told to stop and go on."""
        return self._stuck.number

    @property
    def lingers(self) -> bool:
        """Whether any of them, or of what was told to stop just now, still runs."""
        return self._stuck.any_left()

    def health(self) -> WorkerHealth:
        """How it is doing, as it knows without asking anybody. From any thread; never waits."""
        events = self._events
        if events is None:
            return starting(self.name)
        claimed_at = events.claimed_at
        return judge(
            name=self.name,
            stopping=self._asked,
            worn=self._worn_at is not None,
            failing=events.failing,
            claimed_ago=None if claimed_at is None else self._clock.monotonic() - claimed_at,
            full=events.full,
            poll_interval=self._settings.poll_interval,
            concurrency=self.concurrency,
            running=self._slots.running,
            stuck=self._stuck.number,
            silent=0.0 if self._stuck.lag is None else self._stuck.lag.silent_seconds(),
            ran=self.tally.ran,
            queue=self.queue,
        )

    @property
    def queue(self) -> QueueFigures | None:
        """The queue as it last saw it, where metrics are wanted; from any thread."""
        outlook = None if self._events is None else self._events.outlook
        return None if outlook is None else outlook.queue

    @property
    def topics(self) -> tuple[TopicFigures, ...]:
        """The busiest, at the same moment."""
        outlook = None if self._events is None else self._events.outlook
        return () if outlook is None else outlook.topics

    async def run(self) -> None:
        """Run jobs until ``stop`` or a signal; ``WorkerStuck`` when half the slots are stuck."""
        await self._run(until_idle=False)

    async def run_until_idle(self) -> int:
        """Run jobs until none is due; how many attempts that took. ``WorkerStuck`` as in ``run``."""
        await self._run(until_idle=True)
        return self.tally.ran

    def stop(self, *, now: bool = False) -> None:
        """Stop claiming, let running handlers finish, give the rest back. ``now``: release them at once.

        Safe from any thread and from signal handlers; a second call means ``now``.
        """
        self._stop_now |= now or self._asked
        self._asked = True
        self._stop_claiming()

    def _stop_claiming(self) -> None:
        self._stopping = True
        events = self._events  # read last: a run that is just starting sees the flags
        if events is not None:
            events.call_soon(events.wake)

    def _make_way(self) -> None:
        """Half the slots are stuck: let the others finish, and end. From the keeper's thread."""
        now = self._clock.monotonic()
        if self._worn_at is not None:
            if not self._finishing and now - self._worn_at >= BLOCKED_SECONDS:
                self._worn_at = now  # said again after as long, should nobody be able to help
                _log.critical(
                    "worker %s cannot even end: a handler blocks its event loop; its jobs come back when "
                    "their leases end",
                    self.name,
                )
                if self.when_blocked is not None:
                    self.when_blocked()
        elif not self._stopping:
            _log.warning(
                "worker %s: %d of %d slots are stuck; it takes no more jobs, lets running ones finish and "
                "makes way for a fresh worker",
                self.name,
                self._stuck.number,
                self.concurrency,
            )
            self._worn_at = now
            self._stop_claiming()

    # -- the main loop ------------------------------------------------------------------------------------

    async def _run(self, *, until_idle: bool) -> None:
        system_only("a worker")  # what is in force here would be in force for every handler
        loop = asyncio.get_running_loop()
        recovery = Recovery()
        workplace = Workplace(
            self.name, self._store, self._settings, loop, recovery, self._clock, self._places
        )
        workplace.around = self._registry.active_around
        changed = asyncio.Event()

        def freed() -> None:
            changed.set()
            runner.start_waiting()

        callbacks = CallbackRunner(self._registry, workplace, self._slots, self._stuck, freed)
        settler = Settler(
            self._store, self._held, self._settled, callbacks, self._clock, recovery, self._observers
        )
        runner = (BatchRunner if self._registry.has_batches else Runner)(
            self._store,
            workplace,
            settler,
            self._slots,
            self._held,
            self._clock,
            changed=changed.set,
            extend_soon=self._extend_soon,
            stuck=self._stuck,
            recovery=recovery,
            tracing=self._telemetry.tracing if self._telemetry is not None else None,
        )
        if isinstance(runner, BatchRunner):
            runner.more = MoreJobs(self.name, self.lanes, self._registry, self._settings.lease, self._take_in)
        events = self._events = Events(loop, workplace, settler, callbacks, runner, changed, recovery)
        keeper = events.keeper = Keeper(
            self._store,
            self._held,
            self._clock,
            stop_handler=self._stop_from_keeper,
            give_back=lambda held: events.call_soon(lambda: runner.give_back(held)),
            give_up=lambda held: events.call_soon(lambda: runner.give_up(held)),
            stuck=self._stuck,
            registrar=self._registrar(events),
            recovery=recovery,
        )
        keeping = self._keeper_thread(keeper, self._part_died)
        janitor = events.janitor = Janitor(self._store, self._settings.poll_interval, self._clock, recovery)
        scheduler = self._scheduler(recovery)
        topics = {lane.topic for lane in self.lanes}
        keeping.start()
        parts = (settler.run(), janitor.run(), *([] if until_idle else [scheduler.run()]))
        background = [self._background(part) for part in parts]
        events.settling = background[0]
        if self._telemetry is not None:
            self._telemetry.works(self)
        if self.looks:
            events.outlook = Outlook(self._store, self._clock, recovery)
            background.append(self._background(events.outlook.run()))
        try:
            with stop_signals(self.stop, enabled=self._handle_signals):
                async with self._listening(events, topics):
                    try:
                        limits = declared_limits(self._registry, self.lanes)
                        await declare_limits(self._store, limits, recovery, events.stopping)
                        if until_idle:
                            await scheduler.once()
                        await self._claim_until_stopped(events, janitor, until_idle=until_idle)
                        await self._finish(events)
                    except BaseException:
                        # Cancelled, most likely: no grace, but no job is left behind either.
                        self.stop(now=True)
                        await self._finish(events)
                        raise
            if self._died is not None:
                raise self._died
            if self._worn_at is not None and not self._asked:
                raise WorkerStuck(
                    f"worker {self.name} ended: {self._stuck.number} of its {self.concurrency} slots are "
                    "held by handlers that were told to stop and go on"
                )
        finally:
            if self._telemetry is not None:
                self._telemetry.rests(self)
            # Before anything is awaited: this may be cancelled again, and a keeper that is left would keep
            # leases for ever.
            keeper.stop()
            runner.stopping = True
            workplace.shut_down()
            await end(background)
            await runner.close()
            await keeping.join()
            await workplace.close()

    def _registrar(self, events: Events) -> Registrar:
        lag = self._stuck.lag = LoopLag(events.call_soon, self._clock)
        events.registrar = Registrar(
            self.name,
            self.lanes,
            self.concurrency,
            self._held,
            lambda: events.settler.tally,
            lag,
            self._stuck,
            self._store,
            self._clock,
            events.recovery,
        )
        return events.registrar

    @asynccontextmanager
    async def _listening(self, events: Events, topics: Collection[str]) -> AsyncIterator[None]:
        """Subscribed to hints as soon as the store lets us; one that is away is away for claims, too."""
        backoff = Backoff("listening for wake-ups", events.recovery)
        async with AsyncExitStack() as stack:
            while not self._stopping:
                try:
                    subscription = self._store.wakeups(topics=topics)
                    events.wakeups = await subscription.__aenter__()
                except StoreError as error:
                    _end_without_rights(error, events)
                    await first_of(backoff.pause(backoff.failed(error)), events.stopping.wait())
                else:
                    backoff.reset()
                    stack.push_async_callback(self._stop_listening, subscription)
                    break
            yield

    async def _stop_listening(self, subscription: AbstractAsyncContextManager[Wakeups]) -> None:
        try:
            await subscription.__aexit__(None, None, None)
        except StoreError as error:
            _log.warning("wake-ups could not be ended properly: %s", error)

    async def _claim_until_stopped(self, events: Events, janitor: Janitor, *, until_idle: bool) -> None:
        backoff = events.claims = Backoff("claiming jobs", events.recovery)
        while not self._stopping:
            limit = 0 if events.settler.full else self._slots.to_claim()
            events.full = limit == 0
            if limit == 0:
                events.changed.clear()
                await events.changed.wait()
                events.runner.start_waiting()
                continue
            # Asked before the claim: with jobs in hand it may come back empty for a topic's limit alone.
            was_idle = not self._held and events.idle
            try:
                claim = await self._claim(events, limit)
            except StoreError as error:
                if events.stopping.is_set():
                    _log.warning("the last claim failed: %s", error)
                    return
                _end_without_rights(error, events)
                await first_of(backoff.pause(backoff.failed(error)), events.stopping.wait())
                continue
            backoff.reset()
            events.claimed_at = self._clock.monotonic()
            janitor.claimed(events.claimed_at)
            if not self._stopping:
                events.runner.start_waiting()
            if claim.jobs and claim.next_due_in == 0.0:  # there may be more at once
                if len(claim.jobs) < limit:
                    await asyncio.sleep(0)  # let them start, before the next claim is made ready
                continue
            if until_idle and was_idle and not claim.jobs:
                return
            await self._rest(events, claim, until_idle=until_idle)

    async def _claim(self, events: Events, limit: int) -> Claim:
        request = ClaimRequest(
            worker=self.name,
            lanes=self.lanes,
            limit=limit,
            lease_seconds=self._settings.lease,
            topic_limits=self._slots.topic_limits(),
            free=self._slots.offer(),
            reports_starts=True,
        )
        sent = self._clock.monotonic()
        claiming = events.claiming = asyncio.ensure_future(self._store.claim(request))
        called_off = events.call_off_claim(ANSWER_SECONDS)
        try:
            claim = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            if claiming.cancelled() and not _being_cancelled():
                waited = self._clock.monotonic() - sent
                raise StoreUnavailable(f"the store did not answer a claim within {waited:.1f} s") from None
            # The store may grant all the same; take that in, so that it can be given back.
            events.call_off_claim(STOPPED_SECONDS)
            await asyncio.wait((claiming,))
            if not claiming.cancelled() and claiming.exception() is None:
                self._take_in(claiming.result(), sent)
            raise
        finally:
            if called_off is not None:
                called_off.cancel()
        waited = self._clock.monotonic() - sent
        self._slots.claimed(len(claim.jobs), waited, kept_back=claim.kept_back)
        events.kept_back = claim.kept_back
        self._take_in(claim, sent)
        return claim

    async def _rest(self, events: Events, claim: Claim, *, until_idle: bool) -> None:
        """Nothing is due: sleep until a hint, the next due moment, or the poll underneath."""
        # Jitter: a hundred idle workers must not ask in step.
        longest = self._settings.poll_interval * jitter(0.75, 1.25)
        if claim.next_due_in is not None:
            # The moment may be that of somebody else's job, and theirs may come every millisecond.
            longest = min(longest, max(claim.next_due_in + 0.001, SHORTEST_REST))
        if (share_in := self._slots.share_in(kept_back=claim.kept_back)) is not None:
            longest = min(longest, share_in)
        if until_idle:
            # Jobs still run, or their outcomes are being written; when they end there may be more to do, or
            # nothing any more. If they have ended since the claim was sent, there is nothing to wait for.
            events.changed.clear()
            if self._held or not events.idle:
                await first_of(events.changed.wait(), asyncio.sleep(longest))
        elif events.wakeups is not None:
            await events.wakeups.wait(longest)

    # -- jobs ---------------------------------------------------------------------------------------------

    def _take_in(self, claim: Claim, sent: float) -> None:
        unknown: list[Settlement] = []
        for job in claim.jobs:
            task = self._registry.resolve(job.topic, job.task)
            if task is None:
                # Its name became ambiguous after this worker started; others may know better.
                unknown.append(Settlement(job.lease, Released(UNKNOWN_DELAY)))
                continue
            held = Held.since(sent, job, task)
            self._held.add(held)
            self._slots.take_in(held)
        if self._observers is not None:
            self._observers.claimed(claim.jobs)
        if unknown:
            _log.error("%d jobs of %s have no task here any more; given back", len(unknown), self.name)
            self._background(self._give_back(unknown))

    def _extend_soon(self) -> None:
        """Some lease cannot wait for the keeper's next tick."""
        if self._events is not None and self._events.keeper is not None:
            self._events.keeper.look()

    async def _give_back(self, settlements: list[Settlement]) -> None:
        try:
            await self._store.settle(settlements)
        except StoreError as error:
            _log.warning("%d jobs stay leased until their lease ends: %s", len(settlements), error)

    def _settled(self, jobs: Sequence[Held]) -> None:
        """These are out of our hands."""
        events = self._events
        if events is None:
            return
        events.changed.set()
        events.runner.settled(jobs)
        self._slots.freed += len(jobs)
        for held in jobs if self._slots.limits_topics else ():
            self._slots.left(held)
        if (self._slots.limits_topics or events.kept_back) and events.wakeups is not None:
            # There is room again for what was passed over by the last claim.
            events.wakeups.nudge()

    def _scheduler(self, recovery: Recovery) -> FiresSchedules:
        if self._make_scheduler is None:
            return _FiresNone()
        return self._make_scheduler(
            self._store, self._registry, self._settings, self._clock, recovery, self._telemetry
        )

    # -- stopping -----------------------------------------------------------------------------------------

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._part_died(error)

        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(ended)
        return task

    def _part_died(self, error: BaseException) -> None:
        """A worker that cannot settle or keep leases must not go on as if it could. From any thread."""
        _log.critical("a part of this worker died, which is a bug; it stops", exc_info=error)
        self._died = error
        self.stop(now=True)

    def _stop_from_keeper(self, held: Held, stop: Stop) -> None:
        events = self._events
        if events is not None:
            events.call_soon(lambda: events.runner.stop_handler(held, stop))

    async def _finish(self, events: Events) -> None:
        """After the last claim: give back what has not started, wait for what has."""
        self._finishing = True
        runner = events.runner
        runner.stopping = True
        events.workplace.shut_down()
        for held in self._slots.waiting:
            events.settler.add(held, Settlement(held.job.lease, Released()))
        self._slots.waiting.clear()
        grace_ends = self._clock.monotonic() + self._settings.shutdown_grace
        while self._worth_waiting(events) and not self._stop_now:
            left = grace_ends - self._clock.monotonic()
            if left <= 0:
                break
            events.changed.clear()
            # A moment at a time: whether one of them is stuck by now is told by nobody.
            await first_of(events.changed.wait(), asyncio.sleep(min(left, 1.0)))
        for held in runner.running():
            runner.stop_handler(held, Stop.SHUTDOWN)
        # Cancelled handlers get a moment to clean up; one that will not stop loses its lease by release.
        patience = self._clock.monotonic() + 1.0
        while (running := runner.running()) and self._clock.monotonic() < patience:
            events.changed.clear()
            await first_of(events.changed.wait(), asyncio.sleep(0.05))
        for held in running:
            runner.give_up(held)
        settling = events.settling
        if settling is not None and settling.done():
            # An event loop that ends cancels everything at once, the settler included.
            settling = self._background(events.settler.run())
        unsettled = await events.settler.drain(SETTLE_GRACE)
        left = 0.0 if self._stop_now else grace_ends - self._clock.monotonic()
        await events.callbacks.finish(max(left, LAST_CALLS))
        if settling is not None and settling is not events.settling:
            settling.cancel()
        if unsettled:
            _log.error(
                "%d outcomes could not be written before the worker ended; their jobs run again when their "
                "leases end",
                unsettled,
            )

    def _worth_waiting(self, events: Events) -> bool:
        """Whether a handler is at work that may still end by itself."""
        return any(not self._stuck.holds(held) for held in events.runner.running())


def _end_without_rights(error: StoreError, events: Events) -> None:
    """Raise an error about missing rights before the first claim. Later it is tried again, as any outage:
    a role may be changed while workers run.
    """
    if error.lacks_rights and events.claimed_at is None:
        raise error


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
