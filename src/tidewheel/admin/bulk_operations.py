"""Verbs on everything a filter matches, in the background.

An operation walks batch by batch on an event loop of this process. How far it is, is kept as a document:
every process of the queue can show it, and ask it to stop. One whose process died says nothing any more, and
shows as ``interrupted``; what it had done stays done, and starting it again does the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from tidewheel.access import document_pages
from tidewheel.admin.bulk_actions import (
    ActionSelection,
    MatchCounts,
    apply_in_batches,
    count_selection,
    explain_skipped,
    select_jobs,
)
from tidewheel.client.job_actions import ACTIONS
from tidewheel.core.clock import DAY, MICROSECONDS, seconds_to_microseconds, to_datetime
from tidewheel.core.model import Document, JobFilter, NewDocument
from tidewheel.core.names import shorten, suggest
from tidewheel.core.security_context import SecurityContext
from tidewheel.core.validation import check_integer
from tidewheel.errors import Backpressure, InvalidInput, StoreUnavailable, TidewheelError

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

BULK_DOCUMENT_KIND: Final = "bulk"
STATES: Final = ("running", "done", "stopped", "failed", "interrupted")
"""What can be said of an operation."""
MAX_RUNNING: Final = 4
"""Max operations one process runs at a time."""
MAX_TENANT_RUNNING: Final = 2
"""Max operations of one tenant among them, so that it leaves room for others."""
MAX_SCANNED_OPERATIONS: Final = 10_000
"""Most operations of others that are read for one page of a list."""
HEARTBEAT_SECONDS: Final = 1.0
"""How often progress is written down."""
MAX_SILENT_SECONDS: Final = 15.0
"""An operation that has written nothing for this long was interrupted."""
CLOSE_SECONDS: Final = 1.0
"""How long operations may take to stop when the process ends; a batch may wait for a store that hangs."""
INITIAL_DELAY_SECONDS: Final = 0.1
MAX_DELAY_SECONDS: Final = 1.0
"""Between two tries to write down how one ended, while the store is away."""
RETENTION_SECONDS: Final = 7 * DAY

logger = logging.getLogger(__name__)


class _Body(msgspec.Struct, omit_defaults=True):
    action: str
    filter: dict[str, str]
    actor: str
    tenant: str
    state: str
    matched: int
    matched_exact: bool
    done: int = 0
    skipped: int = 0
    left_alone: dict[str, int] = {}
    stop_requested: bool = False
    error: str | None = None


_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOperation:
    """A verb on everything that matched, as far as it is."""

    id: str
    action: str
    filter: Mapping[str, str]
    """what it was meant for, as it was given"""
    actor: str
    """who started it"""
    tenant: str | None
    """whose jobs it is about; None is all"""
    state: str
    """running, done, stopped, failed or interrupted"""
    matched: int
    """how many jobs there were at the start that the verb can act on"""
    matched_exact: bool
    """False: there were at least so many"""
    done: int
    """jobs it took effect on"""
    skipped: int
    """jobs that had changed meanwhile, so that it could not"""
    left_alone: Mapping[str, int]
    """jobs that matched at the start in states it cannot act on, by state"""
    reason: str | None
    """why those were left alone, in words; None where there were none"""
    stop_requested: bool
    error: str | None
    started_at: datetime
    updated_at: datetime


class Bulk:
    """The bulk operations of an app. Made by ``app.bulk``."""

    def __init__(self, app: Tidewheel) -> None:
        self._app = app
        self._running: dict[str, asyncio.Task[None]] = {}
        self._slots: Counter[str] = Counter()  # taken by those that run or start here, by tenant
        self._stops: dict[str, asyncio.Event] = {}

    async def matching(self, verb: str, filters: Mapping[str, Any], *, lost: bool = False) -> MatchCounts:
        """How many jobs there are that the verb can act on, and how many match that it leaves alone.

        Exact for a filter of states, topics, tasks and tenants, of which counters are kept; else to 10,000 of
        each state. ``lost``: to take back jobs whose holder is gone.
        """
        return await count_selection(self._app.store, await self._select_jobs(verb, filters, lost=lost))

    async def _select_jobs(self, verb: str, filters: Mapping[str, Any], *, lost: bool) -> ActionSelection:
        app = self._app
        uuids = app.settings.tenant_uuids
        return await select_jobs(
            app.store, _check_verb(verb), filters, now=app.clock.now(), uuids=uuids, lost=lost
        )

    async def start(
        self,
        verb: str,
        filters: Mapping[str, Any],
        *,
        lost: bool = False,
        actor: str = "",
        on_end: Callable[[BulkOperation], Awaitable[None]] | None = None,
    ) -> BulkOperation:
        """Begin, and go on in the background, for whom the code that calls this acts.

        ``lost``: as in ``matching``.
        """
        # Once: relative times are not told batch by batch.
        chosen = await self._select_jobs(verb, filters, lost=lost)
        if lost:
            filters = {**filters, "lost": "true"}
        context = SecurityContext.current()
        tenant = "" if context is None else context.tenant
        self._take_slot(tenant)  # before the store is asked: many may be started at once
        try:
            return await self._start(verb, filters, chosen, actor, tenant, on_end)
        except BaseException:
            self._slots[tenant] -= 1
            raise

    def _take_slot(self, tenant: str) -> None:
        if tenant and self._slots[tenant] >= MAX_TENANT_RUNNING:
            raise Backpressure(
                f"{MAX_TENANT_RUNNING} bulk operations of this tenant are running, which is the limit; "
                "try again when one has ended"
            )
        if self._slots.total() >= MAX_RUNNING:
            if tenant:  # how much others use is for superusers
                raise Backpressure("there is no room for another bulk operation now; try again later")
            raise Backpressure(
                f"{MAX_RUNNING} bulk operations are running in this process, which is the limit; "
                "try again when one has ended"
            )
        self._slots[tenant] += 1

    async def _start(
        self,
        verb: str,
        filters: Mapping[str, Any],
        chosen: ActionSelection,
        actor: str,
        tenant: str,
        on_end: Callable[[BulkOperation], Awaitable[None]] | None,
    ) -> BulkOperation:
        matched = await count_selection(self._app.store, chosen)
        body = _Body(
            action=verb,
            filter={name: str(value) for name, value in filters.items() if value is not None},
            actor=actor,
            tenant=tenant,
            state="running",
            matched=matched.total,
            matched_exact=matched.exact,
            left_alone=dict(matched.left_alone),
        )
        operation_id = str(uuid4())
        now = await self._app.store.now()
        await self.write_progress(operation_id, body, 0)
        begun = await self.get(operation_id)
        self._stops[operation_id] = asyncio.Event()
        # A task has the context of whoever makes it: tenant and row filter hold for all of it.
        task = asyncio.create_task(
            self._run(operation_id, body, chosen.suitable, on_end), name=f"tidewheel-bulk-{operation_id}"
        )
        self._running[operation_id] = task
        task.add_done_callback(lambda _: self._forget(operation_id, tenant))
        # None: removed by hand in between.
        return begun or _operation(operation_id, body, now, now, now)

    async def get(self, operation_id: str) -> BulkOperation | None:
        """One operation, wherever it runs or ran; None when there is none that this code may see."""
        found = await self._find(operation_id)
        if found is None:
            return None
        document, body = found
        now = await self._app.store.now()
        return _operation(operation_id, body, document.created_at, document.updated_at, now)

    async def listed(
        self,
        *,
        limit: int = document_pages.DEFAULT_PAGE_SIZE,
        cursor: str | None = None,
        actor: str | None = None,
    ) -> tuple[list[BulkOperation], str | None]:
        """The operations of the last week that this code may see, newest first, and the next page's cursor.

        ``actor``: those that this one has started. Operations of others are passed over; after
        ``MAX_SCANNED_OPERATIONS`` of them the page ends with what it has, and its cursor names one of them.
        """
        limit = min(check_integer("limit", limit, 1, 2**31 - 1), document_pages.MAX_PAGE_SIZE)
        seen: list[tuple[Document, _Body]] = []
        passed_over = 0
        while True:
            found, cursor = await document_pages.list_documents(
                self._app, BULK_DOCUMENT_KIND, limit=document_pages.MAX_PAGE_SIZE, cursor=cursor
            )
            bodies = [(document, _visible_operation(document)) for document in found]
            own = [
                (document, body)
                for document, body in bodies
                if body is not None and actor in (None, body.actor)
            ]
            seen += own
            passed_over += len(found) - len(own)
            if len(seen) > limit:
                cursor = document_pages.cursor_after(seen[limit - 1][0])
                break
            if cursor is None or passed_over >= MAX_SCANNED_OPERATIONS:
                break
        now = await self._app.store.now()
        return [
            _operation(document.id, body, document.created_at, document.updated_at, now)
            for document, body in seen[:limit]
        ], cursor

    async def stop(self, operation_id: str) -> BulkOperation | None:
        """Ask it to stop after the batch at hand, whichever process runs it."""
        while True:
            found = await self._find(operation_id)
            if found is None:
                return None
            document, body = found
            if body.state != "running" or body.stop_requested:
                return await self.get(operation_id)
            body.stop_requested = True
            # Its own process may have written in between; then it is read again.
            if (
                await self.write_progress(operation_id, body, document.version)
                and operation_id in self._stops
            ):
                self._stops[operation_id].set()

    async def close(self) -> None:
        """Stop what runs here, and write down that it did, if the store answers in a moment."""
        for stop in self._stops.values():
            stop.set()
        running = list(self._running.values())
        if running:
            _, late = await asyncio.wait(running, timeout=CLOSE_SECONDS)
            for task in late:  # shows as interrupted, which it is
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _run(
        self,
        operation_id: str,
        body: _Body,
        suitable: Sequence[JobFilter],
        on_end: Callable[[BulkOperation], Awaitable[None]] | None,
    ) -> None:
        progress = _Progress(self, operation_id, body, self._stops[operation_id])
        try:
            body.state = "stopped" if await self._walk(progress, suitable) else "done"
        except TidewheelError as error:
            body.state, body.error = "failed", str(error)
            logger.warning("bulk operation %s failed: %s", operation_id, error)
        except Exception:
            body.state, body.error = "failed", "an error of its own; the server's log has more"
            logger.exception("bulk operation %s failed", operation_id)
        await self._end(progress, on_end)

    async def _end(
        self, progress: _Progress, on_end: Callable[[BulkOperation], Awaitable[None]] | None
    ) -> None:
        """Write down how it ended, and tell. An outage of the store, perhaps why it ended, is waited out."""
        pause = INITIAL_DELAY_SECONDS
        while True:
            try:
                operation = await progress.write_end()
                if on_end is not None:
                    await on_end(operation)
            except StoreUnavailable as error:
                if pause == INITIAL_DELAY_SECONDS:
                    logger.warning("how bulk operation %s ended is not written yet: %s", progress.id, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_DELAY_SECONDS)
            except Exception:
                logger.exception("how bulk operation %s ended cannot be written", progress.id)
                return
            else:
                return

    async def _walk(self, progress: _Progress, suitable: Sequence[JobFilter]) -> bool:
        """Whether it was stopped before its end."""
        body = progress.body
        async with contextlib.aclosing(apply_in_batches(self._app.store, body.action, suitable)) as batches:
            async for batch in batches:
                body.done += batch.changed
                body.skipped += batch.found - batch.changed
                if await progress.should_stop():
                    return True
        return False

    def _forget(self, operation_id: str, tenant: str) -> None:
        self._slots[tenant] -= 1
        self._running.pop(operation_id, None)
        self._stops.pop(operation_id, None)

    async def _find(self, operation_id: str) -> tuple[Document, _Body] | None:
        document = await self._app.store.document(BULK_DOCUMENT_KIND, operation_id)
        body = None if document is None else _visible_operation(document)
        return None if document is None or body is None else (document, body)

    async def write_progress(self, operation_id: str, body: _Body, only_version: int) -> bool:
        """Write down how far it is, over this version only; False when there is another."""
        expires_at = self._app.clock.now() + seconds_to_microseconds(RETENTION_SECONDS)
        new = NewDocument(
            BULK_DOCUMENT_KIND, operation_id, msgspec.json.encode(body), expires_at, only_version
        )
        (version,) = await self._app.store.write_documents([new])
        return version is not None

    async def now(self) -> int:
        return await self._app.store.now()

    async def read_stop_request(self, operation_id: str) -> tuple[int, bool]:
        """The version that is written, and whether somebody asked it to stop."""
        document = await self._app.store.document(BULK_DOCUMENT_KIND, operation_id)
        if document is None:  # removed by hand: nobody wants it any more
            return 0, True
        return document.version, _decoder.decode(document.body).stop_requested


class _Progress:
    """What one operation has written down of itself."""

    def __init__(self, bulk: Bulk, operation_id: str, body: _Body, stop: asyncio.Event) -> None:
        self.body = body
        self.id = operation_id
        self._bulk = bulk
        self._stop = stop
        self._written = asyncio.get_running_loop().time()

    async def should_stop(self) -> bool:
        """Once in a while, also look whether somebody in another process asked."""
        now = asyncio.get_running_loop().time()
        if now - self._written >= HEARTBEAT_SECONDS:
            self._written = now
            await self.write()
        return self._stop.is_set()

    async def write(self) -> None:
        """Write over what is there, but for a wish to stop that came in between."""
        while True:
            version, asked = await self._bulk.read_stop_request(self.id)
            if asked:
                self.body.stop_requested = True
                self._stop.set()
            if await self._bulk.write_progress(self.id, self.body, version):
                return

    async def write_end(self) -> BulkOperation:
        """The last words, and the operation they are about."""
        await self.write()
        now = await self._bulk.now()
        return _operation(self.id, self.body, now, now, now)


def _visible_operation(document: Document) -> _Body | None:
    """What is written, for those it is about."""
    body = _decoder.decode(document.body)
    context = SecurityContext.current()
    return None if context is not None and body.tenant != context.tenant else body


def _operation(operation_id: str, body: _Body, started_at: int, updated_at: int, now: int) -> BulkOperation:
    silent = now - updated_at > MAX_SILENT_SECONDS * MICROSECONDS
    return BulkOperation(
        id=operation_id,
        action=body.action,
        filter=body.filter,
        actor=body.actor,
        tenant=body.tenant or None,
        state="interrupted" if body.state == "running" and silent else body.state,
        matched=body.matched,
        matched_exact=body.matched_exact,
        done=body.done,
        skipped=body.skipped,
        left_alone=body.left_alone,
        reason=explain_skipped(body.action, body.left_alone),
        stop_requested=body.stop_requested,
        error=body.error,
        started_at=to_datetime(started_at),
        updated_at=to_datetime(updated_at),
    )


def _check_verb(verb: Any) -> str:
    if verb not in ACTIONS:
        hint = suggest(verb, ACTIONS) if isinstance(verb, str) else ""
        raise InvalidInput(f"action is {shorten(verb)}{hint}; the actions are {', '.join(ACTIONS)}")
    return str(verb)
