"""A task written as named steps: what each returned is kept, and a later run of the job goes on after it.

The first ``ctx.step`` of a run asks the store what earlier runs have finished; a task without steps never
asks. A step that is among them is not run again. Any other is run, and what it returned is written under the
lease before the handler sees it. What a handler gets was always read from JSON, in the first run as well.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidewheel.core import payload
from tidewheel.core.model import NewStep, Report
from tidewheel.core.names import check_step_name, shorten
from tidewheel.errors import InvalidInput, InvalidPayload, LimitExceeded
from tidewheel.stores.bounds import MAX_STEPS
from tidewheel.tasks.annotations import called_function
from tidewheel.tasks.payload_types import ReturnType

if TYPE_CHECKING:
    from tidewheel.tasks.context import Context, RunControl

MAX_OUTPUT_BYTES: Final = MAX_STEPS * 65_536
"""Most that the outputs of one job's steps may take together: the next run reads all of them at once."""
MAX_THREADS: Final = 32
"""Plain functions of one async handler that run at the same time; further steps wait for a thread."""


class Steps:
    """The steps of one run: those that earlier runs finished, and those of this one."""

    __slots__ = ("_bytes", "_context", "_earlier", "_new", "_reading", "_repeated", "_run", "_slots")

    def __init__(self, context: Context, run: RunControl) -> None:
        self._context = context
        self._run = run
        self._earlier: dict[str, bytes] | None = None  # outputs by name; None until they are needed
        self._repeated: set[str] = set()  # of those, the ones this run has asked for
        self._new: set[str] = set()  # at work, or finished by this run
        self._bytes = 0
        self._reading = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_THREADS)

    async def run(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The step for an async handler: an async function is awaited, a plain one called on a thread."""
        _check_callable(name, fn)
        output = await self._stored_output(name)
        if output is None:
            clock = asyncio.get_running_loop()
            began = clock.time()
            try:
                value = await self._call(fn, args, kwargs)
                output = self._encode(name, value)
                await self._finish(name, output, clock.time() - began)
            except BaseException:
                self._new.discard(name)  # not recorded: the handler may try it again
                raise
        return ReturnType.from_function(fn).read(output)

    def run_here(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The step for a plain handler: the function is called on this thread."""
        _check_callable(name, fn)
        if inspect.iscoroutinefunction(called_function(fn)):
            raise InvalidInput(_why_not_async(name))
        wait_for = self._context.wait_for
        output = wait_for(self._stored_output(name))
        if output is None:
            clock = self._run.loop
            began = clock.time()
            try:
                value = fn(*args, **kwargs)
                if inspect.iscoroutine(value):
                    value.close()
                    raise InvalidInput(_why_not_async(name))
                output = self._encode(name, value)
                wait_for(self._finish(name, output, clock.time() - began))
            except BaseException:
                self._new.discard(name)
                raise
        return ReturnType.from_function(fn).read(output)

    async def _stored_output(self, name: str) -> bytes | None:
        """What an earlier run has stored; None when this step is to be run now."""
        check_step_name(name)
        if name in self._new or name in self._repeated:
            raise InvalidInput(
                f"step {name!r} was used before in this run; every step needs a name of its own, "
                'in a loop for example f"page-{n}"'
            )
        self._new.add(name)  # before anything is awaited: a step of the same name may begin meanwhile
        try:
            earlier = await self._read()
            if name in earlier:
                self._repeated.add(name)
                self._new.discard(name)
                return earlier[name]
            if len(earlier) + len(self._new) > MAX_STEPS:
                raise LimitExceeded(
                    f"step {name!r} would be one too many; the limit is {MAX_STEPS:,} steps a job. "
                    "Do more in each (a checkpoint tells how far it came), or enqueue further jobs"
                )
            if self._run.lost:
                raise self._context.lease_lost()
        except BaseException:
            self._new.discard(name)
            raise
        return None

    async def _read(self) -> dict[str, bytes]:
        if self._earlier is None:
            async with self._reading:
                if self._earlier is None:
                    found = await self._run.steps()
                    if found is None:
                        raise self._context.lease_lost()
                    self._bytes += sum(len(step.output) for step in found)
                    self._earlier = {step.name: step.output for step in found}
        return self._earlier

    async def _call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(called_function(fn)):
            return await fn(*args, **kwargs)
        async with self._slots:
            value = await self._run.run_on_thread(functools.partial(fn, *args, **kwargs))
        # A lambda around an async function, for example.
        return await value if inspect.isawaitable(value) else value

    def _encode(self, name: str, value: Any) -> bytes:
        """As stored. What cannot be is an error that is not tried again: the step would do its work twice."""
        what = f"output of step {name!r}"
        try:
            output = payload.encode(
                value, limit=self._context.checkpoint_limit, what=what, limit_name="max_result_bytes"
            )
            if self._bytes + len(output) > MAX_OUTPUT_BYTES:
                raise LimitExceeded(
                    f"{what} is {len(output):,} bytes, and those before it {self._bytes:,}; the limit for "
                    f"all steps of a job is {MAX_OUTPUT_BYTES:,}. Return where the data are, not the data"
                )
        except InvalidInput as error:
            error.retryable = False
            raise
        except Exception as error:  # the user's own types write themselves
            raise InvalidPayload(f"{what} cannot be written as JSON: {error!r}") from error
        return output

    async def _finish(self, name: str, output: bytes, run_seconds: float) -> None:
        self._bytes += len(output)
        await self._context.save_report(
            Report(self._context.lease, step=NewStep(name, output, max(0.0, run_seconds)))
        )


def _check_callable(name: str, fn: Any) -> None:
    if not callable(fn):
        raise InvalidInput(
            f"step {shorten(name)} was given {shorten(fn)}, which cannot be called; give the function and "
            'its arguments: ctx.step("fetch", fetch, url)'
        )


def _why_not_async(name: str) -> str:
    return (
        f"step {shorten(name)} is async, and ctx.sync.step calls plain functions only; make the handler "
        "async and await ctx.step"
    )
