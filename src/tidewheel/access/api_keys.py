"""API keys: made once, shown once, kept as a hash."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidewheel.access import document_pages
from tidewheel.access.cache import MAX_FOUND, LookupCache
from tidewheel.access.caller import DEFAULT_SCOPES, Caller, CallerKind, Scope
from tidewheel.access.credentials import CredentialRejected
from tidewheel.core.clock import DAY, MICROSECONDS, seconds_to_microseconds, to_datetime
from tidewheel.core.model import ROOT_TENANT, Document, NewDocument
from tidewheel.core.names import MAX_NAME_LENGTH, check_given_tenant, check_text, shorten, suggest
from tidewheel.core.validation import check_seconds
from tidewheel.errors import InvalidInput, StoreError, StoreUnavailable, TidewheelError

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

DOCUMENT_KIND: Final = "key"
KEY_PREFIX: Final = "tw_"
LAST_USED_PRECISION_SECONDS: Final = 60.0
"""How exactly ``last_used_at`` is known."""
KEEP_ENDED_KEYS_SECONDS: Final = 30 * DAY
"""How long a key that was revoked or has expired stays on the list."""
MAX_WRITE_TRIES: Final = 10

_key = re.compile(r"tw_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_log = logging.getLogger("tidewheel.access")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key. Not the key: that was shown when it was made."""

    id: str
    name: str
    tenant: str
    superuser: bool
    scopes: frozenset[Scope]
    user_id: str | None
    service_id: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None  # to the minute


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key that was just made. ``key`` is the only copy there is."""

    key: str = field(repr=False)
    info: ApiKey


class _Body(msgspec.Struct, omit_defaults=True):
    hash: str
    created_at: int
    name: str = ""
    tenant: str = ROOT_TENANT
    superuser: bool = False
    scopes: list[str] = []
    user_id: str | None = None
    service_id: str | None = None
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None


_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class _StoredKey:
    """A key as it is kept, ready to be compared and to be believed."""

    id: str
    version: int
    body: _Body = field(repr=False)
    hash: bytes = field(repr=False)
    caller: Caller


class ApiKeyStore:
    """The keys of an app: making, listing, revoking them, and finding out whose one is."""

    def __init__(self, app: Tidewheel) -> None:
        self._app = app
        self._lookups: LookupCache[_StoredKey] = LookupCache(self._load, app.clock)
        self._last_use_noted: OrderedDict[str, int] = OrderedDict()
        self._note_tasks: set[asyncio.Task[None]] = set()

    # -- managing ---------------------------------------------------------------------------------------

    async def create(
        self,
        name: str = "",
        *,
        tenant: str | None = None,
        superuser: bool = False,
        scopes: Iterable[str] | None = None,
        user_id: str | None = None,
        service_id: str | None = None,
        expires: float | timedelta | None = None,
    ) -> NewApiKey:
        given = _check_scopes(scopes)
        if name:
            check_text("name of a key", name, MAX_NAME_LENGTH)
        for what, value in (("user_id", user_id), ("service_id", service_id)):
            if value is not None:
                check_text(what, value)
        if superuser and tenant is not None:
            raise InvalidInput(
                f"tenant is {shorten(tenant)} and superuser is true; a superuser's key is for all tenants, "
                "leave one of them out"
            )
        if tenant is not None:
            check_given_tenant(tenant, uuids=self._app.settings.tenant_uuids)
        now = self._app.clock.now()
        expires_at = None
        if expires is not None:
            expires_at = now + seconds_to_microseconds(check_seconds("expires", expires, 1))
        secret = secrets.token_urlsafe(32)
        body = _Body(
            # The secret is 256 random bits: nobody guesses it, so a slow hash would only slow us down.
            hash=_hash(secret).hex(),
            created_at=now,
            name=name,
            tenant=tenant or ROOT_TENANT,
            superuser=superuser,
            scopes=sorted(given),
            user_id=user_id,
            service_id=service_id,
            expires_at=expires_at,
        )
        while True:
            key_id = secrets.token_hex(8)
            if await self._write(key_id, body, only_version=0):
                return NewApiKey(f"{KEY_PREFIX}{key_id}_{secret}", _key_info(key_id, body))

    async def list_page(
        self, *, limit: int = document_pages.DEFAULT_PAGE_SIZE, cursor: str | None = None
    ) -> tuple[list[ApiKey], str | None]:
        found, further = await document_pages.list_documents(
            self._app, DOCUMENT_KIND, limit=limit, cursor=cursor
        )
        return [_key_info(document.id, _decoder.decode(document.body)) for document in found], further

    async def revoke(self, key_id: str) -> ApiKey | None:
        """None when there is no such key. One that is revoked already stays as it is."""
        for _ in range(MAX_WRITE_TRIES):
            document = await self._app.store.document(DOCUMENT_KIND, check_key_id(key_id))
            if document is None:
                return None
            body = _decoder.decode(document.body)
            if body.revoked_at is None:
                body.revoked_at = self._app.clock.now()
                # Its use may be noted at this moment; then it is read again.
                if not await self._write(key_id, body, only_version=document.version):
                    continue
            self._lookups.invalidate(key_id)
            return _key_info(key_id, body)
        raise StoreUnavailable(f"key {key_id} is written by others all the time; try again")

    async def _write(self, key_id: str, body: _Body, *, only_version: int) -> bool:
        ends = [moment for moment in (body.expires_at, body.revoked_at) if moment is not None]
        expires_at = min(ends) + seconds_to_microseconds(KEEP_ENDED_KEYS_SECONDS) if ends else None
        new = NewDocument(DOCUMENT_KIND, key_id, msgspec.json.encode(body), expires_at, only_version)
        [version] = await self._app.store.write_documents([new])
        return version is not None

    # -- authenticating ---------------------------------------------------------------------------------

    async def authenticate(self, key: str, *, note_use: bool = True) -> Caller:
        """Return whose key this is. Raises ``CredentialRejected`` if it is not valid."""
        parts = _key.fullmatch(key)
        if parts is None:
            raise CredentialRejected("an API key is not complete: tw_, 16 characters, _ and 43 characters")
        stored = await self._lookups.get(parts[1])
        if stored is None:
            raise CredentialRejected("there is no API key with this id", f"key {parts[1]}")
        if not hmac.compare_digest(stored.hash, _hash(parts[2])):
            raise CredentialRejected("the secret of an API key is wrong", f"key {parts[1]}")
        now = self._app.clock.now()
        body = stored.body
        if body.revoked_at is not None:
            raise CredentialRejected("an API key was revoked", f"key {parts[1]}")
        if body.expires_at is not None and body.expires_at <= now:
            raise CredentialRejected("an API key has expired", f"key {parts[1]}")
        if note_use:
            self._note_use(stored, now)
        return stored.caller

    async def _load(self, key_id: str) -> _StoredKey | None:
        document = await self._app.store.document(DOCUMENT_KIND, key_id)
        return None if document is None else _decode_key(document)

    def _note_use(self, stored: _StoredKey, now: int) -> None:
        """Remember that it was used, at most once a minute and never in the way of whoever uses it."""
        last = max(self._last_use_noted.get(stored.id, 0), stored.body.last_used_at or 0)
        if now - last < LAST_USED_PRECISION_SECONDS * MICROSECONDS:
            return
        self._last_use_noted[stored.id] = now
        self._last_use_noted.move_to_end(stored.id)
        while len(self._last_use_noted) > MAX_FOUND:
            self._last_use_noted.popitem(last=False)
        task = asyncio.create_task(self._write_use(stored, now))
        self._note_tasks.add(task)
        task.add_done_callback(self._note_tasks.discard)

    async def _write_use(self, stored: _StoredKey, now: int) -> None:
        try:
            # Not over another version: it may have been revoked since, which must stand.
            body = msgspec.structs.replace(stored.body, last_used_at=now)
            await self._write(stored.id, body, only_version=stored.version)
        except TidewheelError as error:
            level = logging.WARNING if isinstance(error, StoreError) else logging.DEBUG
            _log.log(level, "the use of key %s is not noted: %s", stored.id, error)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _decode_key(document: Document) -> _StoredKey:
    body = _decoder.decode(document.body)
    info = _key_info(document.id, body)
    caller = Caller(
        CallerKind.KEY,
        f"key {info.id}" + (f" ({info.name})" if info.name else ""),
        id=info.id,
        tenant=info.tenant,
        superuser=info.superuser,
        scopes=info.scopes,
        user_id=info.user_id,
        service_id=info.service_id,
    )
    auth: dict[str, Any] = {
        "id": info.id,
        "kind": "key",
        "name": info.name,
        "tenant": info.tenant,
        "user_id": info.user_id,
        "service_id": info.service_id,
        "superuser": info.superuser,
    }
    return _StoredKey(
        document.id, document.version, body, bytes.fromhex(body.hash), replace(caller, auth=auth)
    )


def _key_info(key_id: str, body: _Body) -> ApiKey:
    return ApiKey(
        key_id,
        body.name,
        body.tenant,
        body.superuser,
        # A scope of a newer Tidewheel means nothing to this one.
        frozenset(Scope(scope) for scope in body.scopes if scope in set(Scope)),
        body.user_id,
        body.service_id,
        to_datetime(body.created_at),
        _optional_datetime(body.expires_at),
        _optional_datetime(body.revoked_at),
        _optional_datetime(body.last_used_at),
    )


def _optional_datetime(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else to_datetime(microseconds)


def check_key_id(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{16}", value):
        hint = "; that is a key, and its id are the 16 characters after tw_" if _is_key(value) else ""
        shown = "tw_…" if hint else shorten(value)
        raise InvalidInput(f"id of a key is {shown}{hint}; an id is 16 characters of 0-9 a-f")
    return value


def _is_key(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(KEY_PREFIX)


def _check_scopes(given: Iterable[str] | None) -> frozenset[Scope]:
    if given is None:
        return DEFAULT_SCOPES
    names = [given] if isinstance(given, str) else list(given)
    scopes = set()
    for name in names:
        if name not in set(Scope):
            hint = suggest(name, Scope) if isinstance(name, str) else ""
            raise InvalidInput(f"scope is {shorten(name)}{hint}; the scopes are {', '.join(Scope)}")
        scopes.add(Scope(name))
    if not scopes:
        raise InvalidInput(f"a key without a scope is good for nothing; the scopes are {', '.join(Scope)}")
    return frozenset(scopes)
