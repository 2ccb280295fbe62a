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
from tidewheel.core.security_context import require_system_context
from tidewheel.core.urls import is_http_url
from tidewheel.errors import ConfigurationError, StoreError, StoreUnavailable, WorkerStuck
from tidewheel.settings import Settings, override_settings
from tidewheel.stores.protocol import Store, Wakeups
from tidewheel.tasks.registry import Registry
from tidewheel.tasks.task_location import find_task_locations
from tidewheel.telemetry.metric_gauges import QueueSnapshot, TopicCounts
from tidewheel.telemetry.telemetry import Telemetry
from tidewheel.worker.active_jobs import ActiveJob, ActiveJobs, StopReason
from tidewheel.worker.async_waits import cancel_and_wait, wait_for_first
from tidewheel.worker.backoff import Backoff, RecoverySignal
from tidewheel.worker.batch_runner import BatchClaims, BatchRunner
from tidewheel.worker.callback_runner import CallbackRunner
from tidewheel.worker.declared_limits import limits_of_tasks, write_declared_limits
from tidewheel.worker.executor import JobExecutor
from tidewheel.worker.health import LoopLag, WorkerHealth, assess_health, starting_health
from tidewheel.worker.heartbeat import WorkerHeartbeat
from tidewheel.worker.lease_keeper import BackgroundThread, LeaseKeeper, LeaseKeeperThread, OnDeath
from tidewheel.worker.observers import make_observers
from tidewheel.worker.queue_sampler import QueueSampler
from tidewheel.worker.settler import OutcomeCounts, Settler
from tidewheel.worker.signals import stop_signals
from tidewheel.worker.slot_runner import SlotRunner
from tidewheel.worker.slots import Slots
from tidewheel.worker.store_maintenance import Rescuer
from tidewheel.worker.stuck_handlers import StuckHandlers
from tidewheel.worker.worker_run import STOP_CLAIM_TIMEOUT_SECONDS, WorkerRun

MIN_IDLE_SECONDS = 0.02
"""Seconds an idle worker rests at least, unless it is woken: how late a delayed job may start for this."""
UNKNOWN_TASK_DELAY_SECONDS = 60.0
"""Seconds until a job whose task is not known here after all is offered again."""
CLAIM_TIMEOUT_SECONDS = 10.0
"""How long a claim may take: one connection that has gone silent must not stop a worker for longer."""
SETTLE_GRACE_SECONDS = 5.0
"""Seconds to get the last outcomes written when the worker ends."""
LOOP_BLOCKED_SECONDS = 30.0
"""How long the event loop of a worker that is to make way may take to notice, before it counts as blocked."""
CALLBACK_GRACE_SECONDS = 1.0
"""Seconds that callbacks have at least, when the grace period is over or nobody wants to wait for it."""

_log = logging.getLogger("tidewheel.worker")


class FiresSchedules(Protocol):
    """What a worker needs of a scheduler."""

    async def run(self) -> None:
        """Fire schedules until cancelled."""

    async def run_once(self) -> None:
        """Fire what is due now."""


class _FiresNone:
    """The scheduler of a worker that fires no schedules."""

    async def run(self) -> None:
        pass

    async def run_once(self) -> None:
        pass


class MakeScheduler(Protocol):
    """How a worker gets its scheduler: schedules are a package above."""

    def __call__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        clock: Clock,
        recovery: RecoverySignal,
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
        keeper_thread: Callable[[LeaseKeeper, OnDeath], BackgroundThread] = LeaseKeeperThread,
        make_scheduler: MakeScheduler | None = None,
    ) -> None:
        self.name = check_worker_name(
            name or f"{socket.gethostname()[:150]}:{os.getpid()}:{secrets.token_hex(2)}"
        )
        given = {"concurrency": concurrency, "lease": lease, "prefetch": prefetch}
        # What is done for all jobs, and not for one of them, is done where the database is.
        remote = is_http_url(store.url)
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
        self._places = find_task_locations(registry, self.lanes) if isolate else None
        self._settings = settings
        self._handle_signals = handle_signals
        self._clock = clock or SystemClock()
        self._keeper_thread = keeper_thread
        self._make_scheduler = make_scheduler
        self._slots = Slots(settings.concurrency, settings.prefetch, topic_concurrency or {}, self._clock)
        self._active_jobs = ActiveJobs()
        self._observers = make_observers(self.name, settings, self._clock, telemetry)
        self._telemetry = telemetry
        # At the whole queue.
        self.samples_queue = telemetry is not None and telemetry.metrics is not None and not remote
        if remote and registry.schedules:
            _log.warning("schedules are fired by the server, where its own app declares them, and not here")
        self._stopping = False
        self._stop_requested = False  # to stop, by whoever runs this worker
        self._stop_now = False
        self._stuck = StuckHandlers(self.name, self._slots.concurrency, self._clock, self._stop_degraded)
        self._degraded_since: float | None = None  # since when half its slots are stuck, monotonic
        self._finishing = False
        self.on_blocked: Callable[[], None] | None = None  # of who owns the process; on the keeper's thread
        self._run_state: WorkerRun | None = None
        self._failure: BaseException | None = None

    # -- for callers --------------------------------------------------------------------------------------

    @property
    def tally(self) -> OutcomeCounts:
        """What was settled so far."""
        return self._run_state.settler.tally if self._run_state is not None else OutcomeCounts()

    @property
    def concurrency(self) -> int:
        return self._slots.concurrency

    @property
    def stuck(self) -> int:
        """How many of its slots are held by handlers that were told to stop and go on."""
        return self._stuck.count

    @property
    def lingers(self) -> bool:
        """Whether any of them, or of what was told to stop just now, still runs."""
        return self._stuck.any_running()

    def health(self) -> WorkerHealth:
        """How it is doing, as it knows without asking anybody. From any thread; never waits."""
        events = self._run_state
        if events is None:
            return starting_health(self.name)
        claimed_at = events.last_claim_at
        return assess_health(
            name=self.name,
            stopping=self._stop_requested,
            degraded=self._degraded_since is not None,
            failing=events.failing,
            seconds_since_claim=None if claimed_at is None else self._clock.monotonic() - claimed_at,
            has_enough_jobs=events.has_enough_jobs,
            poll_interval=self._settings.poll_interval,
            concurrency=self.concurrency,
            running=self._slots.running,
            stuck=self._stuck.count,
            loop_silent_seconds=0.0 if self._stuck.lag is None else self._stuck.lag.silent_seconds(),
            ran=self.tally.ran,
            queue=self.queue_snapshot,
        )

    @property
    def queue_snapshot(self) -> QueueSnapshot | None:
        """The queue as it last saw it, where metrics are wanted; from any thread."""
        outlook = None if self._run_state is None else self._run_state.queue_sampler
        return None if outlook is None else outlook.latest

    @property
    def topic_counts(self) -> tuple[TopicCounts, ...]:
        """The busiest, at the same moment."""
        outlook = None if self._run_state is None else self._run_state.queue_sampler
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
        self._stop_now |= now or self._stop_requested
        self._stop_requested = True
        self._stop_claiming()

    def _stop_claiming(self) -> None:
        self._stopping = True
        events = self._run_state  # read last: a run that is just starting sees the flags
        if events is not None:
            events.call_soon(events.wake)

    def _stop_degraded(self) -> None:
        """Half the slots are stuck: let the others finish, and end. From the keeper's thread."""
        now = self._clock.monotonic()
        if self._degraded_since is not None:
            if not self._finishing and now - self._degraded_since >= LOOP_BLOCKED_SECONDS:
                self._degraded_since = now  # said again after as long, should nobody be able to help
                _log.critical(
                    "worker %s cannot even end: a handler blocks its event loop; its jobs come back when "
                    "their leases end",
                    self.name,
                )
                if self.on_blocked is not None:
                    self.on_blocked()
        elif not self._stopping:
            _log.warning(
                "worker %s: %d of %d slots are stuck; it takes no more jobs, lets running ones finish and "
                "makes way for a fresh worker",
                self.name,
                self._stuck.count,
                self.concurrency,
            )
            self._degraded_since = now
            self._stop_claiming()

    # -- the main loop ------------------------------------------------------------------------------------

    async def _run(self, *, until_idle: bool) -> None:
        require_system_context("a worker")  # what is in force here would be in force for every handler
        loop = asyncio.get_running_loop()
        recovery = RecoverySignal()
        executor = JobExecutor(
            self.name, self._store, self._settings, loop, recovery, self._clock, self._places
        )
        executor.middleware = self._registry.active_middleware
        changed = asyncio.Event()

        def freed() -> None:
            changed.set()
            runner.start_waiting_jobs()

        callbacks = CallbackRunner(self._registry, executor, self._slots, self._stuck, freed)
        settler = Settler(
            self._store,
            self._active_jobs,
            self._on_settled,
            callbacks,
            self._clock,
            recovery,
            self._observers,
        )
        runner = (BatchRunner if self._registry.has_batches else SlotRunner)(
            self._store,
            executor,
            settler,
            self._slots,
            self._active_jobs,
            self._clock,
            changed=changed.set,
            extend_soon=self._extend_soon,
            stuck_handlers=self._stuck,
            recovery=recovery,
            tracing=self._telemetry.tracing if self._telemetry is not None else None,
        )
        if isinstance(runner, BatchRunner):
            runner.batch_claims = BatchClaims(
                self.name, self.lanes, self._registry, self._settings.lease, self._queue_claimed
            )
        events = self._run_state = WorkerRun(loop, executor, settler, callbacks, runner, changed, recovery)
        keeper = events.lease_keeper = LeaseKeeper(
            self._store,
            self._active_jobs,
            self._clock,
            stop_handler=self._stop_from_keeper,
            give_back=lambda active: events.call_soon(lambda: runner.return_job(active)),
            give_up=lambda active: events.call_soon(lambda: runner.abandon(active)),
            stuck_handlers=self._stuck,
            registrar=self._make_heartbeat(events),
            recovery=recovery,
        )
        keeping = self._keeper_thread(keeper, self._on_part_failure)
        janitor = events.rescuer = Rescuer(self._store, self._settings.poll_interval, self._clock, recovery)
        scheduler = self._scheduler(recovery)
        topics = {lane.topic for lane in self.lanes}
        keeping.start()
        parts = (settler.run(), janitor.run(), *([] if until_idle else [scheduler.run()]))
        background = [self._background(part) for part in parts]
        events.settler_task = background[0]
        if self._telemetry is not None:
            self._telemetry.add_worker(self)
        if self.samples_queue:
            events.queue_sampler = QueueSampler(self._store, self._clock, recovery)
            background.append(self._background(events.queue_sampler.run()))
        try:
            with stop_signals(self.stop, enabled=self._handle_signals):
                async with self._listening(events, topics):
                    try:
                        limits = limits_of_tasks(self._registry, self.lanes)
                        await write_declared_limits(self._store, limits, recovery, events.stopping)
                        if until_idle:
                            await scheduler.run_once()
                        await self._claim_until_stopped(events, janitor, until_idle=until_idle)
                        await self._finish(events)
                    except BaseException:
                        # Cancelled, most likely: no grace, but no job is left behind either.
                        self.stop(now=True)
                        await self._finish(events)
                        raise
            if self._failure is not None:
                raise self._failure
            if self._degraded_since is not None and not self._stop_requested:
                raise WorkerStuck(
                    f"worker {self.name} ended: {self._stuck.count} of its {self.concurrency} slots are "
                    "held by handlers that were told to stop and go on"
                )
        finally:
            if self._telemetry is not None:
                self._telemetry.remove_worker(self)
            # Before anything is awaited: this may be cancelled again, and a keeper that is left would keep
            # leases for ever.
            keeper.stop()
            runner.stopping = True
            executor.announce_shutdown()
            await cancel_and_wait(background)
            await runner.close()
            await keeping.join()
            await executor.close()

    def _make_heartbeat(self, run: WorkerRun) -> WorkerHeartbeat:
        lag = self._stuck.lag = LoopLag(run.call_soon, self._clock)
        run.heartbeat = WorkerHeartbeat(
            self.name,
            self.lanes,
            self.concurrency,
            self._active_jobs,
            lambda: run.settler.tally,
            lag,
            self._stuck,
            self._store,
            self._clock,
            run.recovery,
        )
        return run.heartbeat

    @asynccontextmanager
    async def _listening(self, run: WorkerRun, topics: Collection[str]) -> AsyncIterator[None]:
        """Subscribed to hints as soon as the store lets us; one that is away is away for claims, too."""
        backoff = Backoff("listening for wake-ups", run.recovery)
        async with AsyncExitStack() as stack:
            while not self._stopping:
                try:
                    subscription = self._store.wakeups(topics=topics)
                    run.wakeups = await subscription.__aenter__()
                except StoreError as error:
                    _raise_missing_rights(error, run)
                    await wait_for_first(backoff.pause(backoff.record_failure(error)), run.stopping.wait())
                else:
                    backoff.record_success()
                    stack.push_async_callback(self._stop_listening, subscription)
                    break
            yield

    async def _stop_listening(self, subscription: AbstractAsyncContextManager[Wakeups]) -> None:
        try:
            await subscription.__aexit__(None, None, None)
        except StoreError as error:
            _log.warning("wake-ups could not be ended properly: %s", error)

    async def _claim_until_stopped(self, run: WorkerRun, janitor: Rescuer, *, until_idle: bool) -> None:
        backoff = run.claim_backoff = Backoff("claiming jobs", run.recovery)
        while not self._stopping:
            limit = 0 if run.settler.full else self._slots.claim_limit()
            run.has_enough_jobs = limit == 0
            if limit == 0:
                run.state_changed.clear()
                await run.state_changed.wait()
                run.runner.start_waiting_jobs()
                continue
            # Asked before the claim: with jobs in hand it may come back empty for a topic's limit alone.
            was_idle = not self._active_jobs and run.idle
            try:
                claim = await self._claim(run, limit)
            except StoreError as error:
                if run.stopping.is_set():
                    _log.warning("the last claim failed: %s", error)
                    return
                _raise_missing_rights(error, run)
                await wait_for_first(backoff.pause(backoff.record_failure(error)), run.stopping.wait())
                continue
            backoff.record_success()
            run.last_claim_at = self._clock.monotonic()
            janitor.record_claim(run.last_claim_at)
            if not self._stopping:
                run.runner.start_waiting_jobs()
            if claim.jobs and claim.next_due_in == 0.0:  # there may be more at once
                if len(claim.jobs) < limit:
                    await asyncio.sleep(0)  # let them start, before the next claim is made ready
                continue
            if until_idle and was_idle and not claim.jobs:
                return
            await self._wait_for_work(run, claim, until_idle=until_idle)

    async def _claim(self, run: WorkerRun, limit: int) -> Claim:
        request = ClaimRequest(
            worker=self.name,
            lanes=self.lanes,
            limit=limit,
            lease_seconds=self._settings.lease,
            topic_limits=self._slots.topic_limits(),
            free_slots=self._slots.take_offer(),
            reports_starts=True,
        )
        sent = self._clock.monotonic()
        claiming = run.pending_claim = asyncio.ensure_future(self._store.claim(request))
        called_off = run.cancel_claim_after(CLAIM_TIMEOUT_SECONDS)
        try:
            claim = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            if claiming.cancelled() and not _being_cancelled():
                waited = self._clock.monotonic() - sent
                raise StoreUnavailable(f"the store did not answer a claim within {waited:.1f} s") from None
            # The store may grant all the same; take that in, so that it can be given back.
            run.cancel_claim_after(STOP_CLAIM_TIMEOUT_SECONDS)
            await asyncio.wait((claiming,))
            if not claiming.cancelled() and claiming.exception() is None:
                self._queue_claimed(claiming.result(), sent)
            raise
        finally:
            if called_off is not None:
                called_off.cancel()
        waited = self._clock.monotonic() - sent
        self._slots.record_claim(len(claim.jobs), waited, kept_back=claim.needs_more_slots)
        run.limited_jobs_waiting = claim.needs_more_slots
        self._queue_claimed(claim, sent)
        return claim

    async def _wait_for_work(self, run: WorkerRun, claim: Claim, *, until_idle: bool) -> None:
        """Nothing is due: sleep until a hint, the next due moment, or the poll underneath."""
        # Jitter: a hundred idle workers must not ask in step.
        longest = self._settings.poll_interval * jitter(0.75, 1.25)
        if claim.next_due_in is not None:
            # The moment may be that of somebody else's job, and theirs may come every millisecond.
            longest = min(longest, max(claim.next_due_in + 0.001, MIN_IDLE_SECONDS))
        if (share_in := self._slots.next_offer_in(kept_back=claim.needs_more_slots)) is not None:
            longest = min(longest, share_in)
        if until_idle:
            # Jobs still run, or their outcomes are being written; when they end there may be more to do, or
            # nothing any more. If they have ended since the claim was sent, there is nothing to wait for.
            run.state_changed.clear()
            if self._active_jobs or not run.idle:
                await wait_for_first(run.state_changed.wait(), asyncio.sleep(longest))
        elif run.wakeups is not None:
            await run.wakeups.wait(longest)

    # -- jobs ---------------------------------------------------------------------------------------------

    def _queue_claimed(self, claim: Claim, sent: float) -> None:
        unknown: list[Settlement] = []
        for job in claim.jobs:
            task = self._registry.resolve(job.topic, job.task)
            if task is None:
                # Its name became ambiguous after this worker started; others may know better.
                unknown.append(Settlement(job.lease, Released(UNKNOWN_TASK_DELAY_SECONDS)))
                continue
            active = ActiveJob.from_claim(sent, job, task)
            self._active_jobs.add(active)
            self._slots.queue_job(active)
        if self._observers is not None:
            self._observers.on_claimed(claim.jobs)
        if unknown:
            _log.error("%d jobs of %s have no task here any more; given back", len(unknown), self.name)
            self._background(self._return_jobs(unknown))

    def _extend_soon(self) -> None:
        """Some lease cannot wait for the keeper's next tick."""
        if self._run_state is not None and self._run_state.lease_keeper is not None:
            self._run_state.lease_keeper.check_now()

    async def _return_jobs(self, settlements: list[Settlement]) -> None:
        try:
            await self._store.settle(settlements)
        except StoreError as error:
            _log.warning("%d jobs stay leased until their lease ends: %s", len(settlements), error)

    def _on_settled(self, jobs: Sequence[ActiveJob]) -> None:
        """These are out of our hands."""
        events = self._run_state
        if events is None:
            return
        events.state_changed.set()
        events.runner.on_settled(jobs)
        self._slots.freed += len(jobs)
        for active in jobs if self._slots.limits_topics else ():
            self._slots.job_left(active)
        if (self._slots.limits_topics or events.limited_jobs_waiting) and events.wakeups is not None:
            # There is room again for what was passed over by the last claim.
            events.wakeups.nudge()

    def _scheduler(self, recovery: RecoverySignal) -> FiresSchedules:
        if self._make_scheduler is None:
            return _FiresNone()
        return self._make_scheduler(
            self._store, self._registry, self._settings, self._clock, recovery, self._telemetry
        )

    # -- stopping -----------------------------------------------------------------------------------------

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._on_part_failure(error)

        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(ended)
        return task

    def _on_part_failure(self, error: BaseException) -> None:
        """A worker that cannot settle or keep leases must not go on as if it could. From any thread."""
        _log.critical("a part of this worker died, which is a bug; it stops", exc_info=error)
        self._failure = error
        self.stop(now=True)

    def _stop_from_keeper(self, active: ActiveJob, stop: StopReason) -> None:
        events = self._run_state
        if events is not None:
            events.call_soon(lambda: events.runner.stop_handler(active, stop))

    async def _finish(self, run: WorkerRun) -> None:
        """After the last claim: give back what has not started, wait for what has."""
        self._finishing = True
        runner = run.runner
        runner.stopping = True
        run.executor.announce_shutdown()
        for active in self._slots.waiting:
            run.settler.add(active, Settlement(active.job.lease, Released()))
        self._slots.waiting.clear()
        grace_ends = self._clock.monotonic() + self._settings.shutdown_grace
        while self._worth_waiting(run) and not self._stop_now:
            left = grace_ends - self._clock.monotonic()
            if left <= 0:
                break
            run.state_changed.clear()
            # A moment at a time: whether one of them is stuck by now is told by nobody.
            await wait_for_first(run.state_changed.wait(), asyncio.sleep(min(left, 1.0)))
        for active in runner.running_jobs():
            runner.stop_handler(active, StopReason.SHUTDOWN)
        # Cancelled handlers get a moment to clean up; one that will not stop loses its lease by release.
        patience = self._clock.monotonic() + 1.0
        while (running := runner.running_jobs()) and self._clock.monotonic() < patience:
            run.state_changed.clear()
            await wait_for_first(run.state_changed.wait(), asyncio.sleep(0.05))
        for active in running:
            runner.abandon(active)
        settling = run.settler_task
        if settling is not None and settling.done():
            # An event loop that ends cancels everything at once, the settler included.
            settling = self._background(run.settler.run())
        unsettled = await run.settler.drain(SETTLE_GRACE_SECONDS)
        left = 0.0 if self._stop_now else grace_ends - self._clock.monotonic()
        await run.callbacks.finish(max(left, CALLBACK_GRACE_SECONDS))
        if settling is not None and settling is not run.settler_task:
            settling.cancel()
        if unsettled:
            _log.error(
                "%d outcomes could not be written before the worker ended; their jobs run again when their "
                "leases end",
                unsettled,
            )

    def _worth_waiting(self, run: WorkerRun) -> bool:
        """Whether a handler is at work that may still end by itself."""
        return any(not self._stuck.is_stuck(active) for active in run.runner.running_jobs())


def _raise_missing_rights(error: StoreError, run: WorkerRun) -> None:
    """Raise an error about missing rights before the first claim. Later it is tried again, as any outage:
    a role may be changed while workers run.
    """
    if error.lacks_rights and run.last_claim_at is None:
        raise error


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
