"""The audit log: who did what to the queue, kept as documents.

An action is recorded in three steps. ``record_action`` writes a line with the outcome ``started``, then the
action runs, then the line gets its outcome. If the first write fails, the action does not run. Recording
never fails because of what is in a line: long texts are cut, and a hash of the whole text is kept.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidewheel.access import document_pages
from tidewheel.access.caller import Caller
from tidewheel.core.clock import seconds_to_microseconds, to_datetime
from tidewheel.core.ids import new_id
from tidewheel.core.model import ROOT_TENANT, Document, NewDocument
from tidewheel.core.validation import check_integer
from tidewheel.errors import NotOpen, StoreError, TidewheelError

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

_log = logging.getLogger("tidewheel.access")

DOCUMENT_KIND: Final = "audit"
MAX_DETAIL_BYTES: Final = 4_000
"""Max bytes of a line's details. Longer details are cut, member by member."""
MAX_MEMBER_BYTES: Final = 1_000
"""Max bytes of one member of details that are too long together."""
MAX_SCANNED_LINES: Final = 2_000
"""Lines that one page of a search looks at."""
MAX_TEXT_LENGTH: Final = 300
"""Longest actor, target and address; longer ones are cut."""

STARTED: Final = "started"
"""The action was about to run. A line that keeps this outcome belongs to a server that stopped, or to a
request that ran out of time, before the outcome was known."""
DONE: Final = "done"
FAILED: Final = "failed"
OUTCOMES: Final = (STARTED, DONE, FAILED)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """Somebody did something. Holds no payload and no secret."""

    action: str  # such as job.requeue, key.create, login.failed
    actor: str
    kind: str  # of the actor: key, token, session, anonymous, cli, system
    target: str = ""  # what it was done to: a job, a topic, a key
    tenant: str = ROOT_TENANT
    details: Mapping[str, Any] = field(default_factory=dict)
    address: str | None = None
    at: datetime | None = None  # filled in by the store
    id: str = ""
    outcome: str = DONE


class _Body(msgspec.Struct, omit_defaults=True):
    """Fields may be added: lines of another version of Tidewheel are read as far as they go."""

    action: str
    actor: str
    kind: str
    target: str = ""
    tenant: str = ROOT_TENANT
    details: dict[str, Any] = {}
    address: str | None = None
    outcome: str = DONE


_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Lines, newest first, and where to go on; None at the end."""

    lines: tuple[AuditLine, ...]
    cursor: str | None


def make_audit_line(
    caller: Caller,
    action: str,
    target: str = "",
    *,
    details: Mapping[str, Any] | None = None,
    address: str | None = None,
) -> AuditLine:
    """Return the line of an action of this caller."""
    return AuditLine(action, caller.name, caller.kind, target, caller.tenant, details or {}, address)


class AuditLog:
    """Writes lines and reads them back."""

    def __init__(self, app: Tidewheel) -> None:
        self._app = app

    async def record(self, *lines: AuditLine) -> None:
        """Write lines about completed actions, at most 1,000 at once; kept for ``audit_retention``.

        If the store cannot take them, they are written to the program's log as errors.
        """
        written = [(str(new_id()), line) for line in lines]
        try:
            await self._write(written)
        except TidewheelError as error:  # also NotOpen, where the program ends meanwhile
            _log_lost(error, *lines)

    async def _write(self, lines: Sequence[tuple[str, AuditLine]]) -> None:
        retention = self._app.settings.audit_retention
        now = self._app.clock.now()
        expires_at = None if retention is None else now + seconds_to_microseconds(retention)
        await self._app.store.write_documents(
            [NewDocument(DOCUMENT_KIND, line_id, _encode(line), expires_at) for line_id, line in lines]
        )

    async def _remove(self, line_id: str) -> None:
        await self._app.store.remove_document(DOCUMENT_KIND, line_id)

    async def lines(
        self,
        *,
        limit: int = document_pages.DEFAULT_PAGE_SIZE,
        cursor: str | None = None,
        target: str | None = None,
        actor: str | None = None,
        action: str | None = None,
    ) -> AuditPage:
        """The log, newest first, at most 200 lines a page.

        ``target``, ``actor`` and ``action`` leave only lines that have exactly these. For each page they are
        looked for among 2,000 lines, so that it may be short, or empty, and still have a cursor.
        """
        wanted = {
            name: value
            for name, value in (("target", target), ("actor", actor), ("action", action))
            if value is not None
        }
        if not wanted:
            found, further = await document_pages.list_documents(
                self._app, DOCUMENT_KIND, limit=limit, cursor=cursor
            )
            return AuditPage(tuple(_decode(document) for document in found), further)
        limit = min(check_integer("limit", limit, 1, 2**31 - 1), document_pages.MAX_PAGE_SIZE)
        kept: list[AuditLine] = []
        looked_at = 0
        while True:
            found, further = await document_pages.list_documents(
                self._app, DOCUMENT_KIND, limit=document_pages.MAX_PAGE_SIZE, cursor=cursor
            )
            for document in found:
                line = _decode(document)
                if all(getattr(line, name) == value for name, value in wanted.items()):
                    kept.append(line)
                    if len(kept) == limit:
                        last = document is found[-1] and further is None
                        return AuditPage(tuple(kept), None if last else document_pages.cursor_after(document))
            looked_at += len(found)
            if further is None or looked_at >= MAX_SCANNED_LINES:
                return AuditPage(tuple(kept), further)
            cursor = further


@dataclass(slots=True)
class AuditEntry:
    """A line whose action is running. The action may add the target and details it learns meanwhile."""

    target: str
    details: dict[str, Any]
    discard: bool = False  # the action turned out to change nothing


@asynccontextmanager
async def record_action(log: AuditLog, line: AuditLine) -> AsyncIterator[AuditEntry]:
    """Record the intent, run the block, record its outcome.

    A ``StoreError`` from the first write leaves the block unrun. A block that is refused (a
    ``TidewheelError`` other than ``StoreError`` and ``NotOpen``) has changed nothing, and leaves no line.
    After the block, nothing is raised: an outcome that cannot be recorded is written to the program's log.
    """
    line_id = str(new_id())
    entry = AuditEntry(line.target, dict(line.details))
    await log._write([(line_id, replace(line, outcome=STARTED))])
    try:
        yield entry
    except Exception as error:
        if isinstance(error, TidewheelError) and not isinstance(error, StoreError | NotOpen):
            await _write_outcome(log, line_id, None)
        else:
            entry.details["error"] = type(error).__name__
            await _write_outcome(log, line_id, _with_outcome(line, entry, FAILED))
        raise
    await _write_outcome(log, line_id, None if entry.discard else _with_outcome(line, entry, DONE))


def _with_outcome(line: AuditLine, entry: AuditEntry, outcome: str) -> AuditLine:
    return replace(line, target=entry.target, details=entry.details, outcome=outcome)


async def _write_outcome(log: AuditLog, line_id: str, line: AuditLine | None) -> None:
    """Give the line its outcome; None removes it."""
    try:
        if line is None:
            await log._remove(line_id)
        else:
            await log._write([(line_id, line)])
    except TidewheelError as error:  # also NotOpen, where the program ends meanwhile
        if line is not None:
            _log_lost(error, line)


def _log_lost(error: TidewheelError, *lines: AuditLine) -> None:
    for line in lines:
        _log.error("%s, but not in the audit log (%s): %s", line.outcome, error, _encode(line).decode())


def _encode(line: AuditLine) -> bytes:
    """Encode any line: details that are too long, or not JSON, are cut to what fits."""
    return msgspec.json.encode(
        _Body(
            line.action,
            _truncate(line.actor),
            line.kind,
            _truncate(line.target),
            line.tenant,
            _fit_details(line.details),
            None if line.address is None else _truncate(line.address),
            line.outcome,
        )
    )


def _fit_details(details: Mapping[str, Any]) -> dict[str, Any]:
    whole = _json(details)
    if len(whole) <= MAX_DETAIL_BYTES:
        return dict(msgspec.json.decode(whole))
    shortened = {_truncate(name): _shortened(value) for name, value in details.items()}
    whole = _json(shortened)
    return dict(msgspec.json.decode(whole)) if len(whole) <= MAX_DETAIL_BYTES else {"all": _summary(whole)}


def _shortened(value: Any) -> Any:
    whole = _json(value)
    return value if len(whole) <= MAX_MEMBER_BYTES else _summary(whole)


def _summary(whole: bytes) -> dict[str, Any]:
    """The beginning of a long value, its size, and a hash to compare it with the original."""
    beginning = whole[: MAX_MEMBER_BYTES // 2].decode("utf-8", "ignore")
    return {"cut": beginning, "bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest()}


def _json(value: Any) -> bytes:
    """JSON of any value; half characters and objects that JSON has no form for are replaced."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        return msgspec.json.encode(_to_json_types(value, depth=10))


def _to_json_types(value: Any, *, depth: int) -> Any:
    if isinstance(value, Mapping) and depth:
        return {_truncate(name): _to_json_types(member, depth=depth - 1) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [_to_json_types(item, depth=depth - 1) for item in value]
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    return _text(value) if isinstance(value, str) else f"({type(value).__name__})"


def _truncate(text: object) -> str:
    return _text(str(text)[:MAX_TEXT_LENGTH])


def _text(text: str) -> str:
    """Text that can be stored: half characters become question marks."""
    return text.encode("utf-8", "replace").decode()


def _decode(document: Document) -> AuditLine:
    body = _decoder.decode(document.body)
    return AuditLine(
        body.action,
        body.actor,
        body.kind,
        body.target,
        body.tenant,
        body.details,
        body.address,
        to_datetime(document.created_at),
        document.id,
        body.outcome,
    )
