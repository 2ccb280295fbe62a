"""Run jobs in slots: coroutines that run one waiting job after another.

A slot opens when a job waits and there is room, and closes when no job waits. Between two jobs it does not
return to the event loop. One slot is enough for handlers that never await: it runs their jobs in turn and
yields after 1 ms. More slots open as soon as a handler awaits. When a handler with a transaction of its own
ends, the job is completed inside that transaction, or the transaction is rolled back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tidewheel.client.handler_transaction import Transaction
from tidewheel.core.clock import Clock
from tidewheel.core.model import Completed, JobError, Outcome, Released, Settlement
from tidewheel.errors import StoreError
from tidewheel.stores.protocol import Store
from tidewheel.telemetry.telemetry import Tracing
from tidewheel.worker import outcomes
from tidewheel.worker.active_jobs import ActiveJob, ActiveJobs, StopReason
from tidewheel.worker.backoff import Backoff, RecoverySignal
from tidewheel.worker.executor import JobExecutor
from tidewheel.worker.handler_calls import ABANDONED_MESSAGE
from tidewheel.worker.lease_keeper import RECORD_START_AFTER_SECONDS
from tidewheel.worker.outcomes import after_failure, after_stop
from tidewheel.worker.settler import Settler
from tidewheel.worker.slots import Slots
from tidewheel.worker.stuck_handlers import StuckHandlers

_log = logging.getLogger("tidewheel.worker")

T = TypeVar("T")


async def end_handler_transaction(
    active: ActiveJob, transaction: Transaction, outcome: Outcome | None, clock: Clock
) -> Outcome | None:
    """What became of the job. A completion is settled here, alone; ``held.settled`` says what came of it."""
    # Not either when the handler was given up before it ended, or did not wait for its transaction's turn.
    if type(outcome) is not Completed or active.settling or transaction.is_waited_for:
        try:
            await _uninterrupted(transaction.roll_back())
        except StoreError as error:
            # Then the database does it, when the connection is gone. The outcome stands.
            _log.warning("the transaction of job %s was not rolled back: %s", active.job.lease.job_id, error)
        return outcome
    active.settling = active.committing_transaction = True  # from here on nobody may stop it
    run_seconds = None if active.started is None else clock.monotonic() - active.started
    try:
        active.settled_in_transaction = await _uninterrupted(
            transaction.complete(Settlement(active.job.lease, outcome, run_seconds))
        )
    except Exception as error:
        active.settling = active.committing_transaction = False
        if active.stop_reason is StopReason.TRANSACTION:
            return outcomes.after_stop(active.job, active.task.retry, active.stop_reason)
        return outcomes.after_error(active.job, active.task.retry, error)
    return outcome


async def _uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Whatever happens to the slot meanwhile: half a commit is none, and nobody would know which."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            continue  # forgotten before the slot's next job, see Runner._forget_cancellation
    return task.result()


INITIAL_DRAIN_SECONDS = 1.0
"""Seconds a worker starts nothing, so that a suspect gets room; doubled each time that this is not enough."""
RETURN_DELAY_FACTOR = 4.0
"""A suspect that got no room is given back for this many times the patience."""
MAX_RETURN_DELAY_SECONDS = 60.0
"""Max seconds until then."""
MAX_TURN_SECONDS = 0.001
"""How long jobs are run one after another before others have the event loop, whatever their handlers do."""


class SlotRunner:
    """Runs the jobs that wait in ``slots`` and hands their outcomes to the settler."""

    def __init__(
        self,
        store: Store,
        executor: JobExecutor,
        settler: Settler,
        slots: Slots,
        active_jobs: ActiveJobs,
        clock: Clock,
        changed: Callable[[], None],
        extend_soon: Callable[[], None],
        stuck_handlers: StuckHandlers,
        recovery: RecoverySignal,
        tracing: Tracing | None = None,
    ) -> None:
        self._store = store
        self._executor = executor
        self._settler = settler
        self._slots = slots
        self._active_jobs = active_jobs
        self._clock = clock
        self._changed = changed
        self._extend_soon = extend_soon
        self._stuck = stuck_handlers
        self._recovery = recovery
        self._tracing = tracing
        self._working: dict[asyncio.Task[None], None] = {}  # a set that keeps its order
        self._always_alone = slots.concurrency == 1
        self._settlements = asyncio.Event()
        self._drain_seconds = INITIAL_DRAIN_SECONDS
        self._drain_timer: asyncio.TimerHandle | None = None
        self._last_ended_at = 0.0  # when the last job ended, by the clock's monotonic time
        self._turn_ends = 0.0
        self._yielding = False  # a slot has stepped aside, and goes on in the next turn of the event loop
        self.stopping = False

    def start_waiting_jobs(self) -> None:
        """See to it that the jobs that wait are run, as far as there is room."""
        if not self._yielding:
            self._open_slots(1)
            self._executor.loop.call_soon(self._open_remaining_slots)

    def _open_remaining_slots(self) -> None:
        """After a slot had its turn. Unless that goes on by itself, its handler waits: open the others."""
        if not self._yielding:
            self._open_slots(self._slots.concurrency)

    def _open_slots(self, number: int) -> None:
        slots = self._slots
        if slots.draining_for is not None and not self._has_capacity(slots.draining_for, slots.running + 1):
            return  # a slot would find nothing that it may start
        for _ in range(min(number, len(slots.waiting), slots.free)):
            slots.running += 1
            task = self._executor.loop.create_task(self._work())
            self._working[task] = None
            task.add_done_callback(self._working.pop)

    def running_jobs(self) -> list[ActiveJob]:
        """The jobs whose handlers are at work."""
        return [
            active
            for active in self._active_jobs.snapshot()
            if active.handler is not None and (not active.settling or active.committing_transaction)
        ]

    def stop_handler(self, active: ActiveJob, stop: StopReason) -> None:
        """Have a job's handler stopped; a job that still waits leaves at once."""
        if (
            active.settling
            or active.stop_reason is stop
            or active.stop_reason is StopReason.LOST
            or active not in self._active_jobs
        ):
            return
        if active.stop_reason is None or stop is StopReason.LOST:
            # The first word counts: a job that ran out of time is not given back uncounted at a shutdown.
            active.stop_reason = stop
        if active.handler is not None:
            active.handler.cancel()
        else:
            # It waits for a slot, maybe for long, and the caller should not wait with it.
            self._give_back(active)

    def abandon(self, active: ActiveJob) -> None:
        """End a job whose handler was told to stop and goes on; what that still does counts for nothing.

        Its slot comes free if cancelling it can still reach it, and otherwise when it ends by itself.
        """
        if active.settling or active.stop_reason is None or active not in self._active_jobs:
            return
        if active.stop_reason is not StopReason.LOST:
            _log.warning(
                "job %s (%s) was stopped, but its handler does not end; it is given up",
                active.job.lease.job_id,
                active.task.name,
            )
        self._end(active, after_stop(active.job, active.task.retry, active.stop_reason))
        active.settling = True  # also when there was nothing to write
        if active.handler is not None:
            active.handler.cancel(ABANDONED_MESSAGE)

    def return_job(self, active: ActiveJob) -> None:
        """Let others have a job that still waits here."""
        self._give_back(active)

    def _give_back(self, active: ActiveJob, delay: float = 0.0) -> None:
        try:
            self._slots.waiting.remove(active)
        except ValueError:
            return  # it has started meanwhile
        if self._slots.draining_for is active:
            self._stop_draining()
        self._end(active, Released(delay))

    async def close(self) -> None:
        """Let go of slots whose handlers do not end; their jobs have been given back."""
        for task in list(self._working):
            task.cancel(ABANDONED_MESSAGE)
        if self._working:
            await asyncio.wait(self._working, timeout=0.1)

    # -- one slot -----------------------------------------------------------------------------------------

    async def _work(self) -> None:
        me = asyncio.current_task()
        assert me is not None  # noqa: S101 - a coroutine that runs, runs in a task
        try:
            while (active := self._next()) is not None:
                active.handler = me
                await self._run(active)
                active.handler = None
                if active.runs_alone and active in self._active_jobs and self._counts_if_lost(active):
                    await self._until_settled(active)
                if me.cancelling():
                    await self._forget_cancellation(me)
                if self._last_ended_at >= self._turn_ends:
                    if self._yielding:
                        break  # the slot that stepped aside goes on with what waits
                    await self._yield_to_loop()
        finally:
            self._slots.running -= 1
            self._changed()

    async def _yield_to_loop(self) -> None:
        self._yielding = True
        try:
            await asyncio.sleep(0)
        finally:
            self._yielding = False
        self._turn_ends = self._clock.monotonic() + MAX_TURN_SECONDS
        self._executor.loop.call_soon(self._open_remaining_slots)

    async def _forget_cancellation(self, me: asyncio.Task[None]) -> None:
        """A cancellation meant for the job that is over must not hit the next one.

        Before Python 3.13 ``uncancel`` leaves one that has not been delivered yet; it is taken here.
        """
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        while me.cancelling():
            me.uncancel()

    def _next(self) -> ActiveJob | None:
        """The next job to run; those that must not run any more are dealt with on the way."""
        waiting = self._slots.waiting
        while waiting and not self.stopping and not self._settler.full:
            active = waiting.popleft()
            if len(waiting) <= self._slots.refill_at:
                self._changed()  # time for the next claim, while there is still something to do
            if active.stop_reason is not None:
                self._end(active, Released())
                continue
            if not active.job.losses:
                active.runs_alone = self._always_alone
                return active
            if self._has_capacity(active, self._slots.running):
                self._stop_draining()
                self._drain_seconds = INITIAL_DRAIN_SECONDS
                self._slots.add_suspect(active)
                return active
            waiting.appendleft(active)
            self._drain_for(active)
            break
        return None

    # -- suspects ------------------------------------------------------------------------------------------

    def _has_capacity(self, suspect: ActiveJob, running: int) -> bool:
        """Whether few enough handlers run; those that ignore their stop would be waited for in vain."""
        return running - self._stuck.count <= self._slots.max_concurrent_with(suspect)

    def _drain_for(self, suspect: ActiveJob) -> None:
        """Start nothing until enough handlers have ended, or for as long as patience lasts."""
        if self._slots.draining_for is not suspect:
            self._stop_draining()
            self._slots.draining_for = suspect
            suspect.awaits_capacity = True
            self._drain_timer = self._executor.loop.call_later(
                self._drain_seconds, self._return_suspect, suspect
            )

    def _stop_draining(self) -> None:
        if self._slots.draining_for is not None:
            self._slots.draining_for.awaits_capacity = False
            self._slots.draining_for = None
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None

    def _return_suspect(self, suspect: ActiveJob) -> None:
        """Go on with other jobs, because handlers run for long here; another worker may have room."""
        delay = min(RETURN_DELAY_FACTOR * self._drain_seconds, MAX_RETURN_DELAY_SECONDS)
        self._drain_seconds *= 2
        self._give_back(suspect, delay)
        self.start_waiting_jobs()
        self._changed()

    def on_settled(self, jobs: Sequence[ActiveJob]) -> None:
        """The store has taken these outcomes, or never will: only now may more jobs run beside suspects."""
        self._settlements.set()
        if self._slots.narrowed and [
            active for active in jobs if active.job.losses and self._slots.remove_suspect(active)
        ]:
            self.start_waiting_jobs()
            self._changed()

    def _counts_if_lost(self, active: ActiveJob) -> bool:
        """Whether the store may know of its start by now."""
        return active.start_recorded or (
            active.started is not None and self._last_ended_at - active.started >= RECORD_START_AFTER_SECONDS
        )

    async def _until_settled(self, active: ActiveJob) -> None:
        """Start nothing before this outcome is written: a crash by the next job would count for this one."""
        while active in self._active_jobs and not self.stopping:
            self._settlements.clear()
            await self._settlements.wait()

    # -- one job -------------------------------------------------------------------------------------------

    async def _run(self, active: ActiveJob) -> None:
        """The life of one job in its slot."""
        outcome: Outcome | None = None
        span = None
        try:
            if not (active.job.last_attempt or active.job.losses) or await self._record_start(active):
                now = self._clock.monotonic()
                if now < active.deadline:
                    if now >= active.extend_at:
                        # The claim's answer came late, or another handler blocked the event loop: what is
                        # left of the lease may be less than the time to the keeper's next look.
                        self._extend_soon()
                    active.started = now
                    self._slots.started += 1
                    if self._tracing is not None:
                        span = self._tracing.start_attempt(active.job, active.task.name, self._executor.name)
                    outcome = await self._executor.execute(active)
                    if active.context is not None and (begun := active.context.open_transaction) is not None:
                        outcome = await end_handler_transaction(active, begun, outcome, self._clock)
                    active.context = None  # it knows its run, and that knows us: nobody would be let go of
                else:
                    # The claim's answer was that late, or this process stood still. The lease may still hold,
                    # because the store counts from a later moment: then the job is free at once.
                    outcome = Released()
            elif active.stop_reason is not StopReason.LOST:
                outcome = Released()
        except asyncio.CancelledError:
            # Stopped before the handler began.
            outcome = Released()
        except Exception as error:
            # Not the handler's error, whose place is an outcome: ours. The job must not stay leased for it.
            _log.exception(
                "running job %s (%s) failed in the worker itself", active.job.lease.job_id, active.task.name
            )
            why = JobError("internal_error", f"the worker failed: {type(error).__name__}")
            outcome = after_failure(active.job, None, why, error)
        finally:
            if span is not None:
                span.end(None if active.stop_reason is StopReason.LOST else outcome)
        if active.settled_in_transaction is not None and outcome is not None:
            settlement = Settlement(active.job.lease, outcome, self._run_seconds(active))
            self._settler.record_written(active, settlement, accepted=active.settled_in_transaction)
        elif active.stop_reason is None:
            self._end(active, outcome)
        elif not active.settling:  # it was given up before
            self._end(
                active,
                None if active.stop_reason is StopReason.LOST and active.started is not None else outcome,
            )
        if active.thread is not None and not active.thread.done():
            _log.warning(
                "job %s (%s) was stopped, but its function still runs on a thread and keeps its slot",
                active.job.lease.job_id,
                active.task.name,
            )
            self._stuck.track_handler(active, self._clock.monotonic())
            await asyncio.wait((active.thread,))

    async def _record_start(self, active: ActiveJob) -> bool:
        """Record that a last attempt or a suspect starts, before it does: no crash may repeat it for ever."""
        backoff = Backoff("recording the start of a job", self._recovery)
        while active.stop_reason is None:
            try:
                active.start_recorded = (
                    await self._store.mark_started([active.job.lease], alone=active.counts_attempt_if_lost)
                )[0]
            except StoreError as error:
                await backoff.pause_after_failure(error)
            else:
                backoff.record_success()
                if not active.start_recorded:
                    active.stop_reason = StopReason.LOST
                return active.start_recorded
        return False

    def _run_seconds(self, active: ActiveJob) -> float | None:
        self._last_ended_at = self._clock.monotonic()
        return None if active.started is None else self._last_ended_at - active.started

    def _end(self, active: ActiveJob, outcome: Outcome | None) -> None:
        """The job leaves its slot. None: its lease is gone, and whoever holds it now decides."""
        if outcome is not None:
            self._settler.add(active, Settlement(active.job.lease, outcome, self._run_seconds(active)))
            return
        self._settler.drop_lost(active)
        _log.warning(
            "job %s (%s, attempt %d) was taken from this worker: its lease ended",
            active.job.lease.job_id,
            active.task.name,
            active.job.attempt,
        )
