"""An app under test: its tasks on a store in memory, by the test's clock, at the test's command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import Any, Final

from tidewheel.app import Tidewheel
from tidewheel.client.job_handle import Job
from tidewheel.core.clock import Clock
from tidewheel.core.security_context import acting_as

POLL_SECONDS: Final = 0.005
"""How often an inline enqueue looks whether a job that another worker took has ended."""


class in_memory:  # noqa: N801 - used like a function
    """Use this app on an empty store in memory instead of its own, and throw that away afterwards.

    >>> async with in_memory(app):
    ...     await send_digest.enqueue(user_id="42")
    ...     await app.run_until_idle()

    With a plain ``with`` for tests that block: ``app.sync.run_until_idle()``.
    """

    def __init__(self, app: Tidewheel, *, clock: Clock | None = None) -> None:
        self._app = app
        self._clock = clock
        self._stack: list[ExitStack | AsyncExitStack] = []  # entered again inside of itself, another store

    async def __aenter__(self) -> Tidewheel:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._app.on_store("memory://", clock=self._clock))
            await stack.enter_async_context(self._app)
            self._stack.append(stack.pop_all())
        return self._app

    async def __aexit__(self, *raised: Any) -> None:
        stack = self._stack.pop()
        assert isinstance(stack, AsyncExitStack)
        await stack.__aexit__(*raised)

    def __enter__(self) -> Tidewheel:
        with ExitStack() as stack:
            stack.enter_context(self._app.on_store("memory://", clock=self._clock))
            stack.enter_context(self._app.sync)
            self._stack.append(stack.pop_all())
        return self._app

    def __exit__(self, *raised: Any) -> None:
        stack = self._stack.pop()
        assert isinstance(stack, ExitStack)
        stack.__exit__(*raised)


@contextmanager
def enqueued(app: Tidewheel) -> Iterator[list[Job[Any]]]:
    """The jobs that are enqueued meanwhile, in order, as their handles; duplicates are among them.

    >>> with enqueued(app) as jobs:
    ...     place_order("rope")
    >>> assert [(job.task, job.payload) for job in jobs] == [("send_receipt", {"order_id": 1})]

    Nothing is read from the store, so those in a transaction that was not committed, or will never be, are
    among them (``task.using``). Those that a handler enqueues in ``ctx.transaction`` are left out.
    """
    before = (app.after_enqueue, app.after_external_enqueue)
    jobs: list[Job[Any]] = []

    async def note(handles: list[Job[Any]]) -> None:
        jobs.extend(handles)
        if before[0] is not None:
            await before[0](handles)

    def note_uncommitted(handles: list[Job[Any]]) -> None:
        jobs.extend(handles)
        if before[1] is not None:
            before[1](handles)

    app.after_enqueue, app.after_external_enqueue = note, note_uncommitted
    try:
        yield jobs
    finally:
        app.after_enqueue, app.after_external_enqueue = before


@contextmanager
def inline(app: Tidewheel) -> Iterator[Tidewheel]:
    """Every enqueue runs its job before it returns, and raises ``JobFailed`` when the job failed for good.

    Everything else is as always: payloads are checked, keys are unique, retries wait for their time. Only
    tasks with ``isolation="process"`` run in this process like others, where mocks and debuggers reach them.
    """
    before = (app.after_enqueue, app.lane.manual)

    async def run_at_once(jobs: list[Job[Any]]) -> None:
        if before[0] is not None:
            await before[0](jobs)
        with acting_as(None):  # a worker serves all tenants, whoever enqueued
            await app.run_until_idle(handle_signals=False, isolate=False)
        for job in jobs:
            await job.refresh()
            # A job that a handler enqueued may have been taken by the worker that runs this handler. A
            # duplicate may be the very job that waits here.
            while job.state == "running" and not job.duplicate:
                await asyncio.sleep(POLL_SECONDS)
                await job.refresh()
            if job.state == "failed":
                await job.result(timeout=0)

    app.after_enqueue = run_at_once
    app.lane.set_manual(True)
    try:
        yield app
    finally:
        app.after_enqueue = before[0]
        app.lane.set_manual(before[1])
