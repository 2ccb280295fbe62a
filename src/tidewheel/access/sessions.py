"""Sessions of superusers who logged in: a random token in a cookie, its hash in the store.

The store keeps the SHA-256 of the token, the user's name and when the session ends. Reading the database is
therefore not enough to act as a user, and there is no signing key to protect. The record also carries a mark
that no longer fits once the password was changed or the user logged out everywhere. The mark and the CSRF
token are keyed with the token itself, which the store does not have.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from tidewheel.access.cache import LookupCache
from tidewheel.access.caller import Caller, CallerKind
from tidewheel.access.superusers import Account, SuperuserStore
from tidewheel.core.clock import seconds_to_microseconds, to_datetime
from tidewheel.core.model import NewDocument

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

DOCUMENT_KIND: Final = "session"

_token = re.compile(r"[A-Za-z0-9_-]{43}")  # 256 random bits


@dataclass(frozen=True, slots=True)
class Session:
    """A login: ``value`` is for the cookie, ``csrf`` for the header of requests that change something."""

    value: str = field(repr=False)
    csrf: str = field(repr=False)
    expires_at: datetime
    caller: Caller


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    expires_at: int
    mark: str


_bodies = msgspec.json.Decoder(_Body)


class SessionStore:
    """Begins, checks and ends sessions, for every process on the same store."""

    def __init__(self, app: Tidewheel, superusers: SuperuserStore) -> None:
        self._app = app
        self._superusers = superusers
        self._lookups: LookupCache[_Body] = LookupCache(self._load, app.clock)

    async def create(self, account: Account) -> Session:
        expires_at = self._app.clock.now() + seconds_to_microseconds(self._app.settings.session_seconds)
        token = secrets.token_urlsafe(32)
        body = msgspec.json.encode(_Body(account.name, expires_at, self._account_digest(token, account)))
        await self._app.store.write_documents([NewDocument(DOCUMENT_KIND, _id(token), body, expires_at, 0)])
        return Session(token, self.csrf(token), to_datetime(expires_at), _caller(account))

    async def authenticate(self, value: str) -> Caller | None:
        """Return whose session this is, or None. A look at the store is valid for a second."""
        if not _token.fullmatch(value):
            return None
        stored = await self._lookups.get(_id(value))
        if stored is None or self._app.clock.now() >= stored.expires_at:
            return None
        account = await self._superusers.account(stored.name)
        if account is None or not hmac.compare_digest(self._account_digest(value, account), stored.mark):
            return None
        return _caller(account)

    async def end(self, value: str) -> None:
        """Log out: here at once, in other processes within a second."""
        if _token.fullmatch(value):
            await self._app.store.remove_document(DOCUMENT_KIND, _id(value))
            self._lookups.invalidate(_id(value))

    def csrf(self, value: str) -> str:
        """Return the token that pages of this session know and pages of other sites cannot."""
        return _mac(value, "csrf")

    def is_csrf(self, value: str, token: str) -> bool:
        return token.isascii() and hmac.compare_digest(self.csrf(value), token)

    def _account_digest(self, token: str, account: Account) -> str:
        # Keyed with the token: the password of the setting ``superuser`` cannot be guessed from the store.
        return _mac(token, f"mark {self._superusers.session_secret(account)}")

    async def _load(self, session_id: str) -> _Body | None:
        document = await self._app.store.document(DOCUMENT_KIND, session_id)
        return None if document is None else _bodies.decode(document.body)


def _caller(account: Account) -> Caller:
    auth = {"id": account.name, "kind": "session", "name": account.name, "superuser": True}
    return Caller(CallerKind.SESSION, account.name, id=account.name, superuser=True, auth=auth)


def _id(token: str) -> str:
    # The token is 256 random bits: it cannot be guessed, so a slow hash would only cost time.
    return hashlib.sha256(token.encode()).hexdigest()


def _mac(token: str, text: str) -> str:
    digest = hmac.digest(token.encode(), text.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
