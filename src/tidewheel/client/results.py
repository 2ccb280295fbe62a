"""Waiting for jobs to finish: one waiter for everybody on an event loop.

A thousand callers of ``job.result()`` share one subscription and one query per round instead of asking a
thousand times. Hints make it quick; the poll underneath makes it sure.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tidewheel.client import job_actions
from tidewheel.core import payload
from tidewheel.core.model import JobRecord, State
from tidewheel.core.security_context import row_filter
from tidewheel.errors import JobCancelled, JobFailed, JobNotFound, NotOpen, ResultTimeout, StoreUnavailable
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import Store, Wakeups

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.client.connections import LoopConnection
    from tidewheel.stores.memory.local_store import LocalStore

logger = logging.getLogger(__name__)


class ResultWaiter:
    """Tells callers when their jobs are in a final state. Lives on one event loop, next to its store."""

    def __init__(self, store: Store, poll_interval: float) -> None:
        self.store = store
        self._poll_interval = poll_interval
        self._waiting: dict[tuple[str | None, UUID], set[asyncio.Future[None]]] = {}  # by tenant and job
        self._task: asyncio.Task[None] | None = None
        self._wakeups: Wakeups | None = None

    async def wait(self, job_id: UUID, timeout: float | None, tenant: str | None) -> bool:
        """True when the job is final, False after ``timeout`` seconds; ``JobNotFound`` when this tenant
        (None = any) has no such job.
        """
        return await self._wait([(tenant, job_id)], timeout)

    async def wait_for_any(self, job_ids: Sequence[UUID], timeout: float, tenant: str | None) -> None:
        """Until one of them is final, or is not there any more, or the time is over."""
        with contextlib.suppress(JobNotFound):
            await self._wait([(tenant, job_id) for job_id in dict.fromkeys(job_ids)], timeout)

    async def _wait(self, wanted: Sequence[tuple[str | None, UUID]], timeout: float | None) -> bool:
        """One future for all of them: others may ask about a thousand jobs again and again."""
        future = asyncio.get_running_loop().create_future()
        for one in wanted:
            self._waiting.setdefault(one, set()).add(future)
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="tidewheel-results")
        elif self._wakeups is not None:
            self._wakeups.nudge()  # the newcomer may be finished already
        try:
            await asyncio.wait((future,), timeout=timeout)
            if not future.done():
                return False
            future.result()
            return True
        finally:
            future.cancel()
            for one in wanted:
                waiting = self._waiting.get(one)
                if waiting is not None:
                    waiting.discard(future)
                    if not waiting:
                        del self._waiting[one]

    async def close(self) -> None:
        """Let go. Callers still waiting are told that the app was closed."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        self._fail_all(NotOpen("the app was closed while this result was awaited"))

    async def _watch(self) -> None:
        try:
            async with self.store.wakeups(finished=True) as hints:
                self._wakeups = hints
                while self._waiting:
                    began = time.monotonic()
                    await self._look()
                    # At most half the time goes into looking, however fast jobs finish and hints arrive.
                    await asyncio.sleep(time.monotonic() - began)
                    if self._waiting:
                        await hints.wait(self._poll_interval)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # handed to every caller: there is nobody else to tell
            self._fail_all(error)
        finally:
            self._wakeups = None
            if self._task is asyncio.current_task():
                self._task = None

    async def _look(self) -> None:
        by_tenant: defaultdict[str | None, list[UUID]] = defaultdict(list)
        for tenant, job_id in self._waiting:
            by_tenant[tenant].append(job_id)
        try:
            for tenant, job_ids in by_tenant.items():
                for start in range(0, len(job_ids), MAX_BATCH):
                    await self._look_at(tenant, job_ids[start : start + MAX_BATCH])
        except StoreUnavailable as error:
            # The jobs go on without us, and callers have timeouts of their own.
            logger.warning("results cannot be looked up, trying again: %s", error)

    async def _look_at(self, tenant: str | None, job_ids: list[UUID]) -> None:
        states = await self.store.states(job_ids, tenant=tenant)
        for job_id, state in zip(job_ids, states, strict=True):
            if state is None:
                self._resolve((tenant, job_id), job_actions.job_not_found(job_id))
            elif state.final:
                self._resolve((tenant, job_id), None)

    def _resolve(self, wanted: tuple[str | None, UUID], error: Exception | None) -> None:
        for future in self._waiting.pop(wanted, ()):
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def _fail_all(self, error: Exception) -> None:
        for wanted in list(self._waiting):
            self._resolve(wanted, error)


FINAL_READ_SECONDS: Final = 5.0
"""How long a look at a job may take when the time to wait for it is over: a store that hangs must not keep
whoever said how long."""


async def wait_for_result(
    app: Tidewheel, connection: LoopConnection, wanted: UUID, seconds: float | None, tenant: str | None
) -> Any:
    """What a job's handler returned, once it has finished."""
    lane = app.lane.store_with(wanted)
    store = lane or connection.store
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def look() -> JobRecord:
        if seconds is None:
            return await job_actions.get_visible_job(store, wanted, tenant)
        try:
            async with asyncio.timeout(max(FINAL_READ_SECONDS, seconds - (loop.time() - started))):
                return await job_actions.get_visible_job(store, wanted, tenant)
        except TimeoutError:
            raise ResultTimeout(
                f"whether job {wanted} finished within {seconds:g} s is not known: the store does not answer"
            ) from None

    if row_filter() is not None:
        await look()  # not to wait for what cannot be seen
    results = connection.waiter(store, app.settings.poll_interval)
    while True:
        remaining = None if seconds is None else max(0.0, seconds - (loop.time() - started))
        # With no time left to wait, one look is all there is.
        ended = remaining != 0 and await results.wait(wanted, remaining, tenant)
        record = await look()
        if record.state.final:
            return decode_job_result(app, record, lane)
        if not ended:  # otherwise it was final and has been requeued since: wait on
            raise ResultTimeout(f"job {wanted} did not finish within {seconds:g} s; it goes on")


def decode_job_result(app: Tidewheel, record: JobRecord, lane: LocalStore | None) -> Any:
    """What the handler of a finished job returned, or ``JobFailed`` or ``JobCancelled``."""
    error = record.newest_error
    if record.state is State.FAILED:
        raise JobFailed(record.id, error)
    if record.state is State.CANCELLED:
        raise JobCancelled(record.id, error)
    if lane is not None:
        return lane.result_of(record.id)
    task = app.registry.resolve(record.topic, record.task)
    if task is not None:
        return task.decode_result(record.result)
    return None if record.result is None else payload.decode(record.result)
