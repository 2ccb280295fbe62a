"""One attempt: decode, call the handler, turn what happened into an outcome."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import replace
from types import CoroutineType

from windlass.context import Context
from windlass.errors import InvalidPayload
from windlass.model import Report
from windlass.outcome import Completed, Failed, Outcome
from windlass.settings import Settings
from windlass.stores.protocol import Store
from windlass.worker import deciding
from windlass.worker.contexts import in_context
from windlass.worker.held import Held, Stop
from windlass.worker.threads import HandlerThreads

PRECISE_TIMEOUT = 10.0
"""Timeouts shorter than this many seconds end on time; longer ones within the keeper's half second."""


class Run:
    """What a context needs to know of its run (``windlass.context.Run``)."""

    __slots__ = ("_held", "_store", "_worker", "loop")

    def __init__(self, held: Held, store: Store, worker: Workplace) -> None:
        self._held = held
        self._store = store
        self._worker = worker
        self.loop = worker.loop

    @property
    def cancelled(self) -> bool:
        return self._held.stop is not None

    @property
    def shutting_down(self) -> bool:
        return self._worker.shutting_down

    async def report(self, report: Report) -> bool:
        if self._held.stop is Stop.LOST or self._held.settling:
            return False
        return (await self._store.report([report]))[0]


class Workplace:
    """What the attempts of one worker share."""

    def __init__(self, store: Store, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.store = store
        self.settings = settings
        self.loop = loop
        self.threads = HandlerThreads("handler")
        self.shutting_down = False

    async def attempt(self, held: Held) -> Outcome | None:
        """Run the handler under this lease. None when the lease was lost and nobody wants the outcome.

        Runs in its slot's task, ``held.handler``. Whoever wants the handler to stop sets ``held.stop`` and
        cancels that task; a handler that returns normally all the same is taken at ``held.stop``'s word.
        """
        job, task = held.job, held.task
        policy = task.retry
        try:
            args, kwargs = task.decode(job.payload, job.format)
        except InvalidPayload as error:
            return deciding.after_error(job, policy, error)
        except Exception as error:  # the user's own types are made here, and may raise anything
            return Failed(replace(deciding.describe(error), code="invalid_input", retryable=False))
        context = None
        if task.signature.context is not None:
            limit = self.settings.max_result_bytes
            context = Context(job, Run(held, self.store, self), checkpoint_limit=limit)
        timer = None
        # Longer timeouts are watched by the keeper: a timer of its own would be a tax on every short job.
        if job.timeout is not None and job.timeout < PRECISE_TIMEOUT:
            timer = self.loop.call_later(job.timeout, _time_out, held)
        try:
            if task.is_async:
                variables = contextvars.copy_context()
                started = variables.run(task.invoke, context, args, kwargs)
                value = await (
                    in_context(variables, started) if isinstance(started, CoroutineType) else started
                )
            else:
                value = await self._on_thread(held, context, args, kwargs)
        except asyncio.CancelledError as error:
            if held.stop is not None:
                return deciding.after_stop(job, policy, held.stop)
            # Cancelled from inside: the handler let somebody else's cancellation escape.
            return deciding.after_error(job, policy, error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if held.stop is not None:
                return deciding.after_stop(job, policy, held.stop)
            return deciding.after_error(job, policy, error)
        finally:
            if timer is not None:
                timer.cancel()
        if held.stop in (Stop.LOST, Stop.TIMEOUT):
            return deciding.after_stop(job, policy, held.stop)
        # A handler that finished although it was asked to stop has finished.
        try:
            return Completed(task.encode_result(value, self.settings.max_result_bytes))
        except Exception as error:  # likewise written by the user's own types
            return Failed(replace(deciding.describe(error), code="invalid_result", retryable=False))

    async def _on_thread(
        self, held: Held, context: Context | None, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        held.thread = self.threads.run(lambda: held.task.invoke(context, args, kwargs))
        held.thread.add_done_callback(_look_at)
        # Shielded: cancelling the wait cannot stop the thread, and its answer must find its future.
        return await asyncio.shield(held.thread)


def _look_at(call: asyncio.Future[object]) -> None:
    """A thread that ends after its handler was given up has its error looked at by nobody else."""
    if not call.cancelled():
        call.exception()


def _time_out(held: Held) -> None:
    """A timer's end, on the event loop."""
    if held.stop is None and held.handler is not None:
        held.stop = Stop.TIMEOUT
        held.handler.cancel()
