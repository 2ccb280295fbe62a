"""Running a handler's coroutine in a context of its own, inside the slot that awaits it.

A task per job would do the same for twice the price. What a handler sets in a context variable must be gone
with it: the next job in the slot may belong to somebody else.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final

from tidewheel.worker.forks import Forks, end_child

ABANDON: Final = "given up by its worker"
"""The message of a cancellation that is not offered to the handler any more: it has ignored others."""

_log = logging.getLogger("tidewheel.worker")


@types.coroutine
def in_context(context: contextvars.Context, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Await ``coroutine``, with every step of it run in ``context``."""
    step: Callable[[Any], Any] = coroutine.send
    value: Any = None
    forks = Forks.count
    while True:
        try:
            waits_for = context.run(step, value)
        except StopIteration as done:
            return done.value
        finally:
            if Forks.count != forks:
                end_child(sys.exception())
        try:
            value = yield waits_for
            step = coroutine.send
        except BaseException as error:  # a cancellation, mostly: it belongs to the handler
            if isinstance(error, asyncio.CancelledError) and ABANDON in error.args:
                _close(context, coroutine)
                raise
            step, value = coroutine.throw, error


def _close(context: contextvars.Context, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Let it run what it has to run at its end, as far as that needs no waiting; it is never resumed."""
    try:
        context.run(coroutine.close)
    except BaseException as error:  # it waits even now, or its clean-up failed
        _log.warning("a handler that was given up did not end well: %r", error)


async def as_coroutine(started: Awaitable[Any]) -> Any:
    """What else can be awaited (a compiled handler's coroutine, a future), so that its steps, too, are run in
    the handler's context: in the slot's own it would act for all tenants.
    """
    return await started
