"""What a handler knows about its run, and what it can say while running.

A handler asks for it by annotation: ``async def send(ctx: Context, user_id: str)``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, SupportsFloat, TypeVar, overload
from uuid import UUID

from tidewheel.client.handler_transaction import BlockingTransaction, Transaction
from tidewheel.core import headers, payload
from tidewheel.core.clock import to_datetime
from tidewheel.core.headers import SCHEDULE_HEADER
from tidewheel.core.model import Claimed, Lease, Progress, Report, StepRecord
from tidewheel.core.names import shorten
from tidewheel.core.text_format import storable_text
from tidewheel.errors import Directive, InvalidInput, LeaseLost, WrongState
from tidewheel.tasks.steps import Steps

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.stores.protocol import HandlerTransaction

T = TypeVar("T")

MAX_MESSAGE = 1000
"""Max characters of a progress message or stage; longer ones are cut."""

_log = logging.getLogger("tidewheel.job")

P = ParamSpec("P")


class ReleaseRequested(Directive):
    """Raised by ``ctx.release()``: give the job back, not counted."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        super().__init__("given back by its handler")


class RunControl(Protocol):
    """What the worker tells a context about the run it belongs to."""

    @property
    def cancelled(self) -> bool:
        """Somebody asked for the job to be cancelled, its time is over, or its lease is lost."""

    @property
    def cancel_requested(self) -> bool:
        """Whether that is because somebody cancelled it."""

    @property
    def shutting_down(self) -> bool:
        """The worker has been told to stop."""

    @property
    def worker(self) -> str:
        """The name of the worker, as jobs and the list of workers have it."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop the handler's calls are answered on."""

    @property
    def lost(self) -> bool:
        """Nothing this run says counts any more: the lease is gone, or the outcome on its way."""

    @property
    def app(self) -> Tidewheel:
        """The app whose task runs."""

    async def report(self, report: Report) -> bool:
        """Remember this under the lease; False when the lease is no longer held."""

    async def steps(self) -> tuple[StepRecord, ...] | None:
        """What runs of this job have finished; None when the lease is no longer held."""

    async def run_on_thread(self, call: Callable[[], Any]) -> Any:
        """Call it where it does not hold up the event loop, with the caller's context variables."""

    async def begin_transaction(self) -> HandlerTransaction:
        """Open a transaction that ends with the lease."""


class JobInfo:
    """The job a handler runs for, as it was when it was claimed."""

    __slots__ = ("_job",)

    def __init__(self, job: Claimed) -> None:
        self._job = job

    @property
    def id(self) -> UUID:
        return self._job.lease.job_id

    @property
    def topic(self) -> str:
        return self._job.topic

    @property
    def task(self) -> str:
        return self._job.task

    @property
    def priority(self) -> int:
        return self._job.priority

    @property
    def key(self) -> str | None:
        return self._job.key

    @property
    def max_attempts(self) -> int | None:
        return self._job.max_attempts

    @property
    def created_at(self) -> datetime:
        return to_datetime(self._job.created_at)

    @property
    def run_at(self) -> datetime:
        return to_datetime(self._job.run_at)

    def __repr__(self) -> str:
        return f"<JobInfo {self.id} {self.task or self.topic}>"


class Checkpoint:
    """What an earlier attempt left for this one, and how to leave something for the next.

    ``await ctx.checkpoint({"done": 40})`` saves; ``ctx.checkpoint.value`` is what was saved last (None at
    first), and for objects ``ctx.checkpoint["done"]`` and ``ctx.checkpoint.get("done", 0)`` look into it.
    False while there is none.
    """

    __slots__ = ("_context", "_loaded", "_raw", "_value")

    def __init__(self, context: Context, raw: bytes | None) -> None:
        self._context = context
        self._raw = raw
        self._loaded = False
        self._value: Any = None

    async def __call__(self, data: Any) -> None:
        """Save ``data`` (JSON) durably. Raises ``LeaseLost`` when this run no longer owns the job."""
        raw = payload.encode(
            data, limit=self._context.checkpoint_limit, what="checkpoint", limit_name="max_result_bytes"
        )
        await self._context.save_report(Report(self._context.lease, checkpoint=raw))
        self._raw, self._loaded = raw, False

    @property
    def value(self) -> Any:
        if not self._loaded:
            self._value = None if self._raw is None else payload.decode(self._raw)
            self._loaded = True
        return self._value

    def get(self, name: str, default: Any = None) -> Any:
        """A field of the saved object; ``default`` when nothing was saved or it has no such field."""
        return self.value.get(name, default) if isinstance(self.value, dict) else default

    def __getitem__(self, name: Any) -> Any:
        if self._raw is None:
            raise KeyError(name)
        return self.value[name]

    def __bool__(self) -> bool:
        return self._raw is not None

    def __repr__(self) -> str:
        return f"<Checkpoint {self.value!r}>"


class Context:
    """The run of one attempt, as its handler sees it."""

    __slots__ = ("_checkpoint", "_job", "_logger", "_run", "_steps", "_transaction", "checkpoint_limit")

    def __init__(self, job: Claimed, run: RunControl, *, checkpoint_limit: int = 65_536) -> None:
        self._job = job
        self._run = run
        self._checkpoint: Checkpoint | None = None
        self._steps: Steps | None = None
        self._transaction: Transaction | None = None
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        self.checkpoint_limit = checkpoint_limit

    # -- who, what, for whom ----------------------------------------------------------------------------

    @property
    def job(self) -> JobInfo:
        """The job this run is for."""
        return JobInfo(self._job)

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._job.attempt

    @property
    def last_attempt(self) -> bool:
        """Whether an error now would fail the job."""
        return self._job.last_attempt

    @property
    def fence(self) -> int:
        """Grows with every claim: hand it to other systems to let them refuse a run that was overtaken."""
        return self._job.lease.fence

    @property
    def lease(self) -> Lease:
        """The lease this run holds."""
        return self._job.lease

    @property
    def worker(self) -> str:
        """The name of the worker that runs it."""
        return self._run.worker

    @property
    def tenant(self) -> str:
        return self._job.tenant

    @property
    def user_id(self) -> str | None:
        return self._job.user_id

    @property
    def service_id(self) -> str | None:
        return self._job.service_id

    @property
    def correlation_id(self) -> str | None:
        return self._job.correlation_id

    @property
    def scheduled_for(self) -> datetime | None:
        """The moment this job was scheduled for, in UTC; None for a job that no schedule made."""
        return headers.fire_time(self.headers)

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that made this job."""
        return self.headers.get(SCHEDULE_HEADER)

    @property
    def headers(self) -> dict[str, str]:
        """The texts that came along with the job, carried context variables among them; a copy."""
        return headers.read_headers(self._job.headers)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry job_id, task, topic, tenant, correlation_id and attempt."""
        if self._logger is None:
            job = self._job
            fields = {
                "job_id": str(job.lease.job_id),
                "task": job.task,
                "topic": job.topic,
                "tenant": job.tenant,
                "correlation_id": job.correlation_id,
                "attempt": job.attempt,
            }
            self._logger = logging.LoggerAdapter(_log, fields)
        return self._logger

    # -- what to watch ----------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """True once the job should stop: somebody cancelled it, its time is over, or its lease is lost."""
        return self._run.cancelled

    @property
    def cancel_requested(self) -> bool:
        """True once somebody cancelled the job: no other run will go on with what this one leaves behind."""
        return self._run.cancel_requested

    @property
    def shutting_down(self) -> bool:
        """True once the worker has been told to stop; a good moment to save a checkpoint and ``release``."""
        return self._run.shutting_down

    # -- what to say ------------------------------------------------------------------------------------

    async def progress(self, percent: float, message: str | None = None, stage: str | None = None) -> None:
        """Report how far the job is: a percentage, clamped to 0 to 100, and texts, cut to 1,000 characters.

        Raises ``LeaseLost`` if this run no longer holds the job's lease.
        """
        await self.save_report(Report(self.lease, progress=make_progress(percent, message, stage)))

    @property
    def checkpoint(self) -> Checkpoint:
        """What an earlier attempt saved; call it to save: ``await ctx.checkpoint({"done": 40})``."""
        if self._checkpoint is None:
            self._checkpoint = Checkpoint(self, self._job.checkpoint)
        return self._checkpoint

    @overload
    async def step(
        self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run ``fn(*args, **kwargs)`` as a step of this job, or answer what it returned in an earlier run.

        What it returns (JSON, read back as the type it is annotated with) is saved durably first; with an
        open transaction, when that is committed. A step that raises is not saved. Raises ``LeaseLost`` when
        this run no longer owns the job.
        """
        return await self._all_steps().run(name, fn, args, kwargs)

    def _all_steps(self) -> Steps:
        if self._steps is None:
            self._steps = Steps(self, self._run)
        return self._steps

    @property
    def transaction(self) -> Transaction:
        """The job's own database, in a transaction that is committed with the job's completion or not at all.

        ``await ctx.transaction.execute("UPDATE …", …)``; it is opened by its first use.
        """
        if self._transaction is None:
            self._transaction = Transaction(self._run.begin_transaction, self._run.loop)
        return self._transaction

    @property
    def open_transaction(self) -> Transaction | None:
        """The transaction, if it was used and has not ended."""
        transaction = self._transaction
        return transaction if transaction is not None and transaction.is_open else None

    def transaction_for(self, app: Tidewheel) -> Transaction | None:
        """The transaction, where it is open and in this app's database."""
        transaction = self._transaction
        return (
            transaction if transaction is not None and transaction.is_open and self._run.app is app else None
        )

    def release(self, delay: float = 0.0) -> NoReturn:
        """Give the job back now: another run starts later, this one is not counted as an attempt."""
        raise ReleaseRequested(delay)

    @property
    def sync(self) -> BlockingContext:
        """The same for plain functions, which run on a thread: ``ctx.sync.progress(50)``."""
        return BlockingContext(self)

    async def save_report(self, report: Report) -> None:
        """Have something remembered under the lease; with an open transaction, at its end."""
        if self._transaction is not None and self._transaction.is_open:
            self._transaction.keep_report(report)
            return
        if not await self._run.report(report):
            raise self.lease_lost()

    def lease_lost(self) -> LeaseLost:
        """What to raise when this run no longer owns the job."""
        return LeaseLost(
            f"job {self.job.id} is no longer held by this run (fence {self.fence}); nothing was written"
        )

    def __repr__(self) -> str:
        return f"<Context of job {self.job.id}, attempt {self.attempt}>"

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a call of this context from a handler's thread and wait for it."""
        loop = self._run.loop
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            coroutine.close()
            raise WrongState("ctx.sync blocks, and this is the worker's event loop; await ctx itself instead")
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


class BlockingContext:
    """Blocking versions of a context's calls, for handlers that are plain functions."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def progress(self, percent: float, message: str | None = None, stage: str | None = None) -> None:
        """See ``Context.progress``."""
        self._context.wait_for(self._context.progress(percent, message, stage))

    def checkpoint(self, data: Any) -> None:
        """Save a checkpoint; see ``Context.checkpoint``."""
        self._context.wait_for(self._context.checkpoint(data))

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a plain function as a step, on this thread; see ``Context.step``."""
        value: T = self._context._all_steps().run_here(name, fn, args, kwargs)
        return value

    @property
    def transaction(self) -> BlockingTransaction:
        """See ``Context.transaction``."""
        return BlockingTransaction(self._context)


def make_progress(percent: Any, message: Any = None, stage: Any = None) -> Progress:
    """Return a report of progress that can be stored.

    A report is cosmetic and must not fail its job: a percentage outside 0 to 100 is clamped, a long text is
    cut, and characters that no store can keep are replaced. Only values of a wrong type are refused.
    """
    if isinstance(percent, bool | str) or not isinstance(percent, SupportsFloat):
        raise InvalidInput(f"percent is {shorten(percent)}; it must be a number, 0 to 100")
    return Progress(
        _to_percent(float(percent)), _truncate_text("message", message), _truncate_text("stage", stage)
    )


def _to_percent(percent: float) -> float:
    if percent >= 100:
        return 100.0
    # Two decimals; 100 is for jobs that are done. NaN compares as False and becomes 0.
    return min(round(percent, 2), 99.99) if percent > 0 else 0.0


def _truncate_text(name: str, text: Any) -> str | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidInput(f"{name} is {shorten(text)}; it must be text")
    return storable_text(text, MAX_MESSAGE)
