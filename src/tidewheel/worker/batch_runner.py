"""One call for several jobs: a slot that gathers what is due of its first job's task, and runs it together.

Each job keeps its own lease, timeout, attempts and outcome. What is shared is the slot and the call: that is
told to stop when none of its jobs wants it any more. Before that, a job that is cancelled or lost is told
through its own context, and the others go on.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from msgspec.structs import replace

from tidewheel.core.model import ROOT_TENANT, Claim, ClaimRequest, Failed, JobError, Lane, Outcome, Released
from tidewheel.core.security_context import act_as_job_owner
from tidewheel.errors import StoreError, WrongState
from tidewheel.stores.protocol import HandlerTransaction, Store
from tidewheel.tasks.batches import Batch, BatchContext, BatchSignature
from tidewheel.tasks.context import Context
from tidewheel.tasks.registry import Registry
from tidewheel.tasks.task import Task
from tidewheel.worker import outcomes as outcome_rules
from tidewheel.worker.active_jobs import ActiveJob, StopReason
from tidewheel.worker.async_waits import join_futures, retrieve_exception
from tidewheel.worker.backoff import Backoff
from tidewheel.worker.executor import PRECISE_TIMEOUT_SECONDS, AttemptRun, JobExecutor
from tidewheel.worker.handler_calls import ABANDONED_MESSAGE, run_in_context
from tidewheel.worker.slot_runner import SlotRunner

CLAIM_TIMEOUT_SECONDS: Final = 10.0
"""How long a claim for more may take; the jobs at hand do not wait for longer."""
STOP_POLL_SECONDS: Final = 0.05
"""How often a batch that waits for more looks whether the worker is to stop."""

_log = logging.getLogger("tidewheel.worker")


class BatchClaims:
    """How a batch asks the store for more jobs of its task."""

    def __init__(
        self,
        worker: str,
        lanes: tuple[Lane, ...],
        registry: Registry,
        lease_seconds: float,
        take_in: Callable[[Claim, float], None],
    ) -> None:
        self._worker = worker
        self._lanes = lanes
        self._registry = registry
        self._lease_seconds = lease_seconds
        self.queue_claimed = take_in
        self._of_task: dict[Task[..., Any], tuple[Lane, ...]] = {}

    def request(self, task: Task[..., Any], limit: int, topic_limits: dict[str, int]) -> ClaimRequest:
        lanes = self._of_task.get(task)
        if lanes is None:
            resolve = self._registry.resolve
            lanes = tuple(lane for lane in self._lanes if resolve(lane.topic, lane.task or "") is task)
            self._of_task[task] = lanes
        return ClaimRequest(
            worker=self._worker,
            lanes=lanes,
            limit=limit,
            lease_seconds=self._lease_seconds,
            topic_limits=topic_limits,
            reports_starts=True,
        )


class BatchMemberRun(AttemptRun):
    """What the context of one job of a batch knows of its run."""

    __slots__ = ("_call",)

    def __init__(self, call: BatchCall, active: ActiveJob, store: Store, executor: JobExecutor) -> None:
        super().__init__(active, store, executor)
        self._call = call

    def _hold_slot_until(self, thread: asyncio.Future[Any]) -> None:
        self._call.track_thread(thread)

    async def begin_transaction(self) -> HandlerTransaction:
        raise WrongState(
            "ctx.transaction is not there in a batch: it would complete one job, and each of these completes "
            "by itself; use a connection of yours"
        )


class BatchMember:
    """Stands for the handler of one job (``ActiveJob.handler``) that shares its call with others."""

    __slots__ = ("_active", "_call")

    def __init__(self, call: BatchCall, active: ActiveJob) -> None:
        self._call = call
        self._active = active

    def cancel(self, msg: Any = None) -> bool:
        """Its job is to stop. The call goes on for the others; without any it is told."""
        self._call.request_stop(self._active, msg)
        return True

    def done(self) -> bool:
        """Of all jobs of a call that does not stop, one stands for its slot.

        One that was told to stop while the call goes on for others is none of those.
        """
        return self._call.stopped_for is not self._active or (
            self._call.finished and not self._call.has_running_thread
        )


class BatchCall:
    """One call of a batch handler, from its first job to its last outcome."""

    def __init__(self, first: ActiveJob, slot: asyncio.Task[Any]) -> None:
        self.task = first.task
        self.batch = cast("Batch", first.task.batch)
        self.tenant = first.job.tenant
        self._slot = slot
        self.jobs: list[ActiveJob] = []
        self.full = asyncio.Event()
        self.handler_running = False  # the handler is at work
        self.finished = False
        self._thread: asyncio.Future[Any] | None = None  # plain functions, which nothing can interrupt
        self.stopped_for: ActiveJob | None = None  # whose stop made it the call's
        self.add(first)

    @property
    def key(self) -> tuple[Task[..., Any], str]:
        """Jobs of another task or tenant have no place in it."""
        return self.task, self.tenant

    @property
    def free_places(self) -> int:
        return self.batch.size - len(self.jobs)

    def fits(self, active: ActiveJob) -> bool:
        """Not either what may kill its worker: that must not take others with it."""
        return (
            self.free_places > 0
            and active.task is self.task
            and active.job.tenant == self.tenant
            and active.stop_reason is None
            and not active.job.losses
        )

    @property
    def has_running_thread(self) -> bool:
        """Whether a function of it runs on a thread: its slot is taken then, whatever becomes of the jobs."""
        return self._thread is not None and not self._thread.done()

    def track_thread(self, thread: asyncio.Future[Any]) -> None:
        """Here and not with the job (``ActiveJob.thread``): one that is told to stop does not stop the
        call.
        """
        self._thread = join_futures(self._thread, thread)

    async def wait_for_threads(self) -> None:
        while self._thread is not None and not self._thread.done():
            await asyncio.wait((self._thread,))

    def add(self, active: ActiveJob) -> None:
        self.jobs.append(active)
        active.handler = BatchMember(self, active)
        if not self.free_places:
            self.full.set()

    def request_stop(self, active: ActiveJob, message: Any) -> None:
        """One of its jobs is to stop."""
        if not self.handler_running:
            return  # seen before it begins
        if message == ABANDONED_MESSAGE:
            if all(one.settling for one in self.jobs):
                self._slot.cancel(ABANDONED_MESSAGE)
        elif all(one.stop_reason is not None for one in self.jobs):
            self.stopped_for = self.stopped_for or active
            self._slot.cancel(message)


class BatchRunner(SlotRunner):
    """Runs the jobs of tasks with ``batch``, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.batch_claims: BatchClaims | None = None
        self._collecting: dict[tuple[Task[..., Any], str], BatchCall] = {}

    def _next(self) -> ActiveJob | None:
        """Likewise, but a job that a batch waits for joins that."""
        while (active := super()._next()) is not None:
            if active.task.batch is None or not self._collecting:
                return active
            gathering = self._collecting.get((active.task, active.job.tenant))
            if gathering is None or not gathering.fits(active):
                return active
            gathering.add(active)
        return None

    def _run(self, active: ActiveJob) -> Coroutine[Any, Any, None]:
        return super()._run(active) if active.task.batch is None else self._run_batch(active)

    async def _run_batch(self, first: ActiveJob) -> None:
        slot = asyncio.current_task()
        assert slot is not None  # noqa: S101 - a coroutine that runs, runs in a task
        call = BatchCall(first, slot)
        try:
            if not first.job.losses:
                await self._collect_jobs(call)
            await self._start(call)
            if call.jobs:
                await self._call(call)
        except Exception as error:
            # Not the handler's error, whose place is an outcome: ours. The jobs must not stay leased for it.
            _log.exception("running a batch of %s failed in the worker itself", call.task.name)
            why = JobError("internal_error", f"the worker failed: {type(error).__name__}")
            for active in call.jobs:
                self._end_one(active, outcome_rules.after_failure(active.job, None, why, error))
        finally:
            call.finished = True
            for active in (first, *call.jobs):
                if (
                    not call.has_running_thread or active is not call.stopped_for
                ):  # cancelled once more: the worker ends
                    active.handler = None
                active.context = None

    # -- gathering ----------------------------------------------------------------------------------------

    async def _collect_jobs(self, call: BatchCall) -> None:
        """More jobs of the same task and tenant: those at hand, those that are due, those that come soon."""
        self._collecting[call.key] = call
        try:
            self._take_waiting(call)
            if call.free_places and self._slots.may_be_more:  # else there was nothing further a moment ago
                await self._ask_for_more(call)
            if call.free_places and call.batch.wait > 0:
                await self._wait_for_more(call)
                await self._ask_for_more(call)
        finally:
            if self._collecting.get(call.key) is call:
                del self._collecting[call.key]

    def _take_waiting(self, call: BatchCall) -> None:
        waiting = self._slots.waiting
        others: list[ActiveJob] = []
        while waiting and call.free_places:
            active = waiting.popleft()
            if call.fits(active):
                call.add(active)
            else:
                others.append(active)
        waiting.extendleft(reversed(others))
        if len(waiting) <= self._slots.refill_at:
            self._changed()

    async def _wait_for_more(self, call: BatchCall) -> None:
        until = self._clock.monotonic() + call.batch.wait
        while call.free_places and not self.stopping and (left := until - self._clock.monotonic()) > 0:
            try:
                await asyncio.wait_for(call.full.wait(), min(left, STOP_POLL_SECONDS))
            except TimeoutError:
                continue

    async def _ask_for_more(self, call: BatchCall) -> None:
        """Claim for this batch alone: how many jobs the worker takes otherwise goes by its slots."""
        # What waits of the same task is of other tenants. Were it not counted, each of a thousand tenants'
        # batches would claim a thousand jobs of the others.
        room = call.free_places - sum(active.task is call.task for active in self._slots.waiting)
        if self.batch_claims is None or self.stopping or room <= 0 or self._settler.full:
            return
        request = self.batch_claims.request(call.task, room, self._slots.topic_limits())
        sent = self._clock.monotonic()
        claiming = asyncio.ensure_future(self._store.claim(request))
        claiming.add_done_callback(retrieve_exception)
        try:
            await asyncio.wait((claiming,), timeout=CLAIM_TIMEOUT_SECONDS)
        finally:
            if not claiming.done():
                claiming.cancel()  # its store gives back what it grants
        if claiming.cancelled() or not claiming.done():
            return
        error = claiming.exception()
        if isinstance(error, StoreError):
            _log.info("a batch of %s goes on with what it has: %s", call.task.name, error)
            return
        claim = claiming.result()
        self._slots.may_be_more = len(claim.jobs) >= request.limit
        self.batch_claims.queue_claimed(claim, sent)
        self._take_waiting(call)
        self._return_unfitting_jobs()

    def _return_unfitting_jobs(self) -> None:
        """Jobs that came along and have no place in the batch: of other tenants, or granted alone."""
        if not self.stopping:
            self.start_waiting_jobs()
            return
        for active in list(self._slots.waiting):
            self.return_job(active)

    # -- running ------------------------------------------------------------------------------------------

    async def _start(self, call: BatchCall) -> None:
        """Leave in ``call.jobs`` what is to be run now."""
        if len(call.jobs) > 1:
            for active in call.jobs:
                active.runs_alone = False
        first = [active for active in call.jobs if active.job.last_attempt or active.job.losses]
        if first:
            await self._record_starts(first)
        now = self._clock.monotonic()
        live: list[ActiveJob] = []
        for active in call.jobs:
            if active.settling:
                continue  # given up while it was gathered
            # The claim's answer may have come that late; the lease may still hold in the store.
            late = now >= active.deadline
            if (
                late
                or active.stop_reason is not None
                or self.stopping
                or (active in first and not active.start_recorded)
            ):
                active.handler = None
                self._end(active, Released())
                continue
            if now >= active.extend_at:
                self._extend_soon()
            active.started = now
            live.append(active)
        self._slots.started += len(live)
        call.jobs = live

    async def _record_starts(self, last: list[ActiveJob]) -> None:
        """Record the starts of several jobs of one call, as ``_record_start`` does for one."""
        for charged in (False, True):
            await self._record_each(
                [active for active in last if active.counts_attempt_if_lost is charged], charged
            )

    async def _record_each(self, last: list[ActiveJob], charged: bool) -> None:
        backoff = Backoff("recording the start of jobs", self._recovery)
        while live := [active for active in last if active.stop_reason is None]:
            try:
                answers = await self._store.mark_started([active.job.lease for active in live], alone=charged)
            except StoreError as error:
                await backoff.pause_after_failure(error)
                continue
            backoff.record_success()
            for active, recorded in zip(live, answers, strict=True):
                active.start_recorded = recorded
                if not recorded:
                    active.stop_reason = StopReason.LOST
            return

    async def _call(self, call: BatchCall) -> None:
        signature = cast("BatchSignature", call.task.signature)
        items: list[Any] = []
        good: list[ActiveJob] = []
        for active in call.jobs:
            try:
                items.append(signature.decode_item(active.job.payload))
                good.append(active)
            except Exception as error:
                active.handler = None
                self._end(active, outcome_rules.after_bad_payload(active.job, error))
        call.jobs = good
        if not good:
            return
        for active, outcome in zip(good, await self._outcomes_of(call, signature, items), strict=True):
            self._end_one(active, outcome)
        if call.has_running_thread:
            call.stopped_for = call.stopped_for or good[0]
            _log.warning(
                "a batch of %s was stopped, but its function still runs on a thread and keeps its slot",
                call.task.name,
            )
            self._stuck.track_handler(call.stopped_for, self._clock.monotonic())
            await call.wait_for_threads()

    async def _outcomes_of(
        self, call: BatchCall, signature: BatchSignature, items: list[Any]
    ) -> list[Outcome | None]:
        """What becomes of each job; None where its lease was lost."""
        timers = self._set_timers(call.jobs)
        outcomes: list[Outcome | None] = [None] * len(call.jobs)
        span = None
        if self._tracing is not None:
            jobs = [active.job for active in call.jobs]
            span = self._tracing.start_batch(jobs, call.task.name, self._executor.name)
        call.handler_running = True
        value, raised = None, None
        try:
            try:
                value = await self._invoke(call, signature, items)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a cancellation included: some job, or somebody else's
                raised = error
            finally:
                call.handler_running = False
                for timer in timers:
                    timer.cancel()
            decided = self._outcomes(call, value, raised)
            outcomes = [
                None if active.stop_reason is StopReason.LOST else outcome
                for active, outcome in zip(call.jobs, decided, strict=True)
            ]
        finally:
            if span is not None:
                span.end(*outcomes)
        return outcomes

    def _set_timers(self, jobs: list[ActiveJob]) -> list[asyncio.TimerHandle]:
        """One for each length: mostly all have the same. Longer ones are watched by the keeper."""
        by_length: dict[float, list[ActiveJob]] = {}
        for active in jobs:
            if active.job.timeout is not None and active.job.timeout < PRECISE_TIMEOUT_SECONDS:
                by_length.setdefault(active.job.timeout, []).append(active)

        def time_out(those: list[ActiveJob]) -> None:
            for active in those:
                active.expire()

        loop = self._executor.loop
        return [loop.call_later(seconds, time_out, those) for seconds, those in by_length.items()]

    async def _invoke(self, call: BatchCall, signature: BatchSignature, items: list[Any]) -> Any:
        executor, around, jobs = self._executor, self._executor.middleware, call.jobs
        context = None
        if signature.context is not None or (around is not None and around.wraps_runs):
            limit = executor.settings.max_result_bytes
            for active in jobs:
                run = BatchMemberRun(call, active, self._store, executor)
                active.context = Context(active.job, run, checkpoint_limit=limit)
            context = BatchContext([active.context for active in jobs if active.context is not None])
        variables = contextvars.copy_context()
        variables.run(_adopt_tenant, jobs)
        if around is not None:
            variables.run(around.restore_variables, *(active.job.headers for active in jobs))

        async def handler() -> Any:
            if call.task.is_async:
                return await signature.invoke_batch(context, items)
            thread = executor.threads.run(lambda: signature.invoke_batch(context, items))
            thread.add_done_callback(retrieve_exception)
            call.track_thread(thread)
            return await asyncio.shield(thread)

        if around is None or context is None:
            return await run_in_context(variables, handler())
        return await run_in_context(variables, around.run(context, handler))

    def _outcomes(self, call: BatchCall, value: Any, raised: BaseException | None) -> list[Outcome | None]:
        jobs, task = call.jobs, call.task
        values: list[Any]
        described: JobError | None = None
        if raised is not None:
            values = [raised] * len(jobs)
            if not isinstance(raised, asyncio.CancelledError) or any(
                active.stop_reason is None for active in jobs
            ):
                # Once: a traceback takes as long as a short job.
                described = outcome_rules.describe_exception(raised)
        elif value is None:
            values = [None] * len(jobs)
        elif isinstance(value, list | tuple) and len(value) == len(jobs):
            values = list(value)
        else:
            number = f"{len(value):,} results" if isinstance(value, list | tuple) else type(value).__name__
            why = f"the handler returned {number} for {len(jobs):,} jobs; return a result for each, or None"
            values = [None] * len(jobs)
            failed = Failed(JobError("invalid_result", why, retryable=False))
            return [_outcome_after_stop(active) or failed for active in jobs]
        return [self._outcome(task, active, one, described) for active, one in zip(jobs, values, strict=True)]

    def _outcome(
        self, task: Task[..., Any], active: ActiveJob, value: Any, described: JobError | None
    ) -> Outcome | None:
        if isinstance(value, BaseException):
            if active.stop_reason is not None:
                return outcome_rules.after_stop(active.job, task.retry, active.stop_reason)
            return outcome_rules.after_error(active.job, task.retry, value, described)
        # One that was finished although it was asked to stop has finished.
        if (stopped := _outcome_after_stop(active)) is not None:
            return stopped
        return outcome_rules.after_return(task, value, self._executor.settings.max_result_bytes)

    def _end_one(self, active: ActiveJob, outcome: Outcome | None) -> None:
        if not active.settling:  # it was given up before
            self._end(active, None if active.stop_reason is StopReason.LOST else outcome)


def _outcome_after_stop(active: ActiveJob) -> Outcome | None:
    """What becomes of a job that ran out of time, whatever its handler returned. A lost one is left alone."""
    if active.stop_reason is StopReason.TIMEOUT:
        return outcome_rules.after_stop(active.job, active.task.retry, active.stop_reason)
    return None


def _adopt_tenant(jobs: list[ActiveJob]) -> None:
    """Their tenant; and whoever enqueued them, where that was the same."""
    first = jobs[0].job
    if first.tenant != ROOT_TENANT:
        alike = {
            name: getattr(first, name)
            if all(getattr(active.job, name) == getattr(first, name) for active in jobs)
            else None
            for name in ("user_id", "service_id", "correlation_id")
        }
        act_as_job_owner(replace(first, **alike))
