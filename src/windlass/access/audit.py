"""The audit log: who did what to the queue, kept as documents."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from windlass.access import paging
from windlass.access.caller import Caller
from windlass.clock import seconds_to_microseconds, to_datetime
from windlass.errors import LimitExceeded, StoreError
from windlass.ids import new_id
from windlass.model import ROOT_TENANT, Document, NewDocument
from windlass.options import check_integer

if TYPE_CHECKING:
    from windlass.app import Windlass

_log = logging.getLogger("windlass.access")

KIND: Final = "audit"
MAX_DETAIL_BYTES: Final = 4_000
MAX_LOOKED_AT: Final = 2_000
"""Lines that one page of a search looks at."""
MAX_WORDS: Final = 300
"""Longest actor, target and address; longer ones are cut."""


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


class _Body(msgspec.Struct, omit_defaults=True):
    """Fields may be added: lines of another version of Windlass are read as far as they go."""

    action: str
    actor: str
    kind: str
    target: str = ""
    tenant: str = ROOT_TENANT
    details: dict[str, Any] = {}
    address: str | None = None


_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Lines, newest first, and where to go on; None at the end."""

    lines: tuple[AuditLine, ...]
    cursor: str | None


def by(
    caller: Caller,
    action: str,
    target: str = "",
    *,
    details: Mapping[str, Any] | None = None,
    address: str | None = None,
) -> AuditLine:
    """What a caller did."""
    return AuditLine(action, caller.name, caller.kind, target, caller.tenant, details or {}, address)


class Audit:
    """Writes lines and reads them back."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    async def record(self, *lines: AuditLine) -> None:
        """Keep these, at most 1,000 at once, for ``audit_retention``.

        They tell what has been done. Where the store cannot take them any more they go to the program's own
        log: to answer that it failed would be wrong, and to lose them worse.
        """
        retention = self._app.settings.audit_retention
        now = self._app.clock.now()
        expires_at = None if retention is None else now + seconds_to_microseconds(retention)
        bodies = [_encode(line) for line in lines]
        try:
            await self._app.store.write_documents(
                [NewDocument(KIND, str(new_id()), body, expires_at) for body in bodies]
            )
        except StoreError as error:
            for body in bodies:
                _log.error("done, but not in the audit log (%s): %s", error, body.decode())

    async def lines(
        self,
        *,
        limit: int = paging.DEFAULT_PAGE,
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
            found, further = await paging.page(self._app, KIND, limit=limit, cursor=cursor)
            return AuditPage(tuple(_decode(document) for document in found), further)
        limit = min(check_integer("limit", limit, 1, 2**31 - 1), paging.LARGEST_PAGE)
        kept: list[AuditLine] = []
        looked_at = 0
        while True:
            found, further = await paging.page(self._app, KIND, limit=paging.LARGEST_PAGE, cursor=cursor)
            for document in found:
                line = _decode(document)
                if all(getattr(line, name) == value for name, value in wanted.items()):
                    kept.append(line)
                    if len(kept) == limit:
                        last = document is found[-1] and further is None
                        return AuditPage(tuple(kept), None if last else paging.after(document))
            looked_at += len(found)
            if further is None or looked_at >= MAX_LOOKED_AT:
                return AuditPage(tuple(kept), further)
            cursor = further


def _encode(line: AuditLine) -> bytes:
    details = msgspec.json.encode(line.details)
    if len(details) > MAX_DETAIL_BYTES:
        raise LimitExceeded(
            f"details of {line.action} have {len(details):,} bytes; the limit is {MAX_DETAIL_BYTES:,}: "
            "say how many and which filter, not all of it"
        )
    return msgspec.json.encode(
        _Body(
            line.action,
            _cut(line.actor),
            line.kind,
            _cut(line.target),
            line.tenant,
            dict(line.details),
            None if line.address is None else _cut(line.address),
        )
    )


def _cut(text: str) -> str:
    """What strangers say of themselves, in a form that can be kept."""
    return text[:MAX_WORDS].encode("utf-8", "replace").decode()


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
    )
