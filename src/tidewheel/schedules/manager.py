"""``app.schedules``: making, listing, pausing and running schedules."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Unpack

from msgspec import structs

from tidewheel.client import job_actions
from tidewheel.client.handler_transaction import refuse_in_transaction
from tidewheel.client.job_handle import EnqueuedJob, Job
from tidewheel.core.cron import MAX_SCHEDULES, Timing, check_timing
from tidewheel.core.model import Document
from tidewheel.core.names import shorten, suggest
from tidewheel.core.security_context import require_system_context
from tidewheel.errors import LimitExceeded, ScheduleNotFound, StoreUnavailable, WrongState
from tidewheel.schedules.declarations import make_schedule_job
from tidewheel.schedules.schedule import (
    DOCUMENT_KIND,
    Schedule,
    ScheduleOrigin,
    StoredSchedule,
    check_payload,
    check_schedule_name,
    decode_schedule,
    encode_schedule,
    make_firing_job,
    record_run,
    to_schedule,
)
from tidewheel.tasks.options import EnqueueOptions
from tidewheel.telemetry import job_log

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.stores.protocol import Store
    from tidewheel.tasks.task import Task

MAX_TRIES: Final = 10
"""A schedule is read again when it fired between a look and a write: never so often."""

YIELD_EVERY: Final = 50
"""So many schedules are made ready to be shown before others have their turn."""


class Schedules:
    """The schedules of an app's store, declared ones included. For the system context only."""

    def __init__(self, app: Tidewheel) -> None:
        self._app = app

    async def create(
        self,
        name: str,
        task_or_topic: str | Task[..., Any],
        when: Timing,
        payload: Any = None,
        *,
        replace: bool = False,
        **options: Unpack[EnqueueOptions],
    ) -> Schedule:
        """Make a schedule: a job of this task, or for whoever takes jobs of this topic, at these times.

        Checked as an enqueue is, options included. ``WrongState`` when the name is taken; ``replace`` then
        puts it in the place of the other one, which keeps its counts, and its pause. One that code declares
        is changed in the code.
        """
        store = self._store("create a schedule")
        check_schedule_name(name)
        wanted = StoredSchedule(
            when=check_timing(when).dump(),
            job=make_schedule_job(self._app.registry, self._app.settings, task_or_topic, payload, options),
            origin=ScheduleOrigin.CREATED,
            fired_until=await store.now(),
        )
        for _ in range(MAX_TRIES):
            document = await store.document(DOCUMENT_KIND, name)
            if document is None:
                await self._refuse_too_many(store)
                body, version = wanted, 0
            else:
                body, version = (
                    _replaced(name, decode_schedule(document), wanted, replace=replace),
                    document.version,
                )
            if await self._write(store, name, body, version):
                return await self.get(name)
        raise _too_many_conflicts(name)

    async def all(self) -> list[Schedule]:
        """Every schedule, by name; there are at most 1,000."""
        require_system_context("schedules")
        store = self._app.store
        now = await store.now()
        documents = await store.documents(DOCUMENT_KIND, limit=MAX_SCHEDULES)
        found: list[Schedule] = []
        for document in sorted(documents, key=lambda one: one.id):
            found.append(to_schedule(document, now))
            if len(found) % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # to find the next runs of a thousand takes a second
        return found

    async def get(self, name: str) -> Schedule:
        """One schedule, or ``ScheduleNotFound``."""
        require_system_context("schedules")
        store = self._app.store
        document = await self._found(store, name)
        return to_schedule(document, await store.now())

    async def pause(self, name: str) -> Schedule:
        """Let it make no jobs until ``resume``, whatever restarts meanwhile."""
        return await self._change(
            "pause a schedule", name, lambda body, _: structs.replace(body, paused=True)
        )

    async def resume(self, name: str) -> Schedule:
        """Let it make jobs again, from now on: what passed while it was paused is not made up for."""
        return await self._change(
            "resume a schedule",
            name,
            lambda body, now: structs.replace(body, paused=False, fired_until=now) if body.paused else body,
        )

    async def run(self, name: str) -> Job[Any]:
        """Make a job of it now, also while it is paused. Its own times are not changed by it."""
        store = self._store("run a schedule")
        for _ in range(MAX_TRIES):
            document = await self._found(store, name)
            body = decode_schedule(document)
            check_payload(self._app.registry, body)
            now = await store.now()
            [job] = self._app.registry.prepare_jobs(self._app, [make_firing_job(name, body, now)])
            new = encode_schedule(name, record_run(body, [job], now, now), document.version)
            write = functools.partial(store.enqueue_with_document, new)
            telemetry = self._app.telemetry
            answers = await (write([job]) if telemetry.off else telemetry.enqueue(write, [job]))
            if answers is None:
                continue  # it fired just now, or was changed
            if self._app.settings.log_jobs:
                job_log.log_enqueued(zip([job], answers, strict=True))
            handle: Job[Any]
            if answers[0].duplicate:
                record = await job_actions.get_visible_job(store, answers[0].job_id, None)
                handle = Job(self._app, record, duplicate=True, replaced=answers[0].replaced)
            else:
                handle = Job(self._app, EnqueuedJob(job, answers[0]))
            if self._app.after_enqueue is not None:
                await self._app.after_enqueue([handle])
            return handle
        raise _too_many_conflicts(name)

    async def delete(self, name: str) -> None:
        """Forget it. Its jobs stay. One that code declares comes back with the next worker that starts."""
        store = self._store("delete a schedule")
        if not await store.remove_document(DOCUMENT_KIND, check_schedule_name(name)):
            raise await self._not_found(store, name)
        self._app.registry.schedule_changes.announce()

    # -- inside -----------------------------------------------------------------------------------------

    def _store(self, verb: str) -> Store:
        require_system_context(verb)
        refuse_in_transaction(self._app, verb)
        return self._app.store

    async def _change(
        self, verb: str, name: str, change: Callable[[StoredSchedule, int], StoredSchedule]
    ) -> Schedule:
        store = self._store(verb)
        for _ in range(MAX_TRIES):
            document = await self._found(store, name)
            body = change(decode_schedule(document), await store.now())
            if await self._write(store, name, body, document.version):
                return await self.get(name)
        raise _too_many_conflicts(name)

    async def _write(self, store: Store, name: str, stored: StoredSchedule, version: int) -> bool:
        [written] = await store.write_documents([encode_schedule(name, stored, version)])
        self._app.registry.schedule_changes.announce()
        return written is not None

    async def _found(self, store: Store, name: str) -> Document:
        document = await store.document(DOCUMENT_KIND, check_schedule_name(name))
        if document is None:
            raise await self._not_found(store, name)
        return document

    async def _not_found(self, store: Store, name: str) -> ScheduleNotFound:
        known = [document.id for document in await store.documents(DOCUMENT_KIND, limit=MAX_SCHEDULES)]
        return ScheduleNotFound(f"there is no schedule {shorten(name)}{suggest(name, known)}")

    async def _refuse_too_many(self, store: Store) -> None:
        if len(await store.documents(DOCUMENT_KIND, limit=MAX_SCHEDULES)) >= MAX_SCHEDULES:
            raise LimitExceeded(
                f"there are {MAX_SCHEDULES:,} schedules, which is the limit; delete one, or let one that "
                "fires more often decide what to do"
            )


def _replaced(name: str, stored: StoredSchedule, wanted: StoredSchedule, *, replace: bool) -> StoredSchedule:
    if stored.origin is ScheduleOrigin.DECLARED:
        raise WrongState(
            f"schedule {name} is declared in code, and workers would write it again; change it there, or "
            "choose another name"
        )
    if not replace:
        raise WrongState(f"there is a schedule {name} already; replace it, or choose another name")
    return replace_work(stored, wanted)


def replace_work(stored: StoredSchedule, wanted: StoredSchedule) -> StoredSchedule:
    """The same schedule with other work. Its next firing is computed anew where its times are others."""
    fired_until = stored.fired_until if stored.when == wanted.when else wanted.fired_until
    return structs.replace(
        stored, when=wanted.when, job=wanted.job, fired_until=fired_until, trouble=None, trouble_at=None
    )


def _too_many_conflicts(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"schedule {shorten(name)} is written by others all the time; try again")
