"""Sessions of people who logged in: a signed value in a cookie, kept nowhere.

The value names the user and when it ends, is signed with a secret of the store, and carries a mark that is
another one once the password was changed or the user has logged out everywhere. So there is nothing to look
up but the user, and that only for values we have signed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from windlass.access.caller import Caller, CallerKind
from windlass.access.superusers import Account, Superusers
from windlass.clock import seconds_to_microseconds, to_datetime
from windlass.errors import StoreError
from windlass.model import NewDocument

if TYPE_CHECKING:
    from windlass.app import Windlass

SECRET_KIND: Final = "secret"  # noqa: S105 - the name of a kind
SECRET_ID: Final = "session"  # noqa: S105 - its name
MAX_COOKIE: Final = 1000


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody is logged in: ``value`` is for the cookie, ``csrf`` for the header of requests that change."""

    value: str = field(repr=False)
    csrf: str = field(repr=False)
    expires_at: datetime
    caller: Caller


class _Claims(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    name: str
    issued_at: int
    expires_at: int
    mark: str
    nonce: str


class _Secret(msgspec.Struct):
    secret: str


_claims = msgspec.json.Decoder(_Claims)
_secrets = msgspec.json.Decoder(_Secret)


class Sessions:
    """Makes sessions and believes those it has made, in whichever process."""

    def __init__(self, app: Windlass, superusers: Superusers) -> None:
        self._app = app
        self._superusers = superusers
        self._secret: bytes | None = None

    async def begin(self, account: Account) -> Session:
        now = self._app.clock.now()
        expires_at = now + seconds_to_microseconds(self._app.settings.session_seconds)
        key = await self._key()
        claims = _Claims(account.name, now, expires_at, self._mark(key, account), secrets.token_urlsafe(12))
        body = _encode(msgspec.json.encode(claims))
        value = f"{body}.{_mac(key, 'session', body)}"
        return Session(value, await self.csrf(value), to_datetime(expires_at), _caller(account))

    async def caller(self, value: str) -> Caller | None:
        """Whose session this is; None when it is nobody's, or no longer."""
        body, dot, signature = value.partition(".")
        if not dot or len(value) > MAX_COOKIE or not value.isascii():
            return None
        key = await self._key()
        if not hmac.compare_digest(_mac(key, "session", body), signature):
            return None
        claims = _claims.decode(_decode(body))
        if self._app.clock.now() >= claims.expires_at:
            return None
        account = await self._superusers.account(claims.name)
        if account is None or not hmac.compare_digest(self._mark(key, account), claims.mark):
            return None
        return _caller(account)

    async def csrf(self, value: str) -> str:
        """What a page of ours knows and a page of others cannot: it goes with one session."""
        return _mac(await self._key(), "csrf", value)

    async def is_csrf(self, value: str, token: str) -> bool:
        return token.isascii() and hmac.compare_digest(await self.csrf(value), token)

    async def secret(self, purpose: str) -> bytes:
        """A secret for something else that servers of this store share."""
        return _mac(await self._key(), "secret", purpose).encode()

    def _mark(self, key: bytes, account: Account) -> str:
        return _mac(key, "mark", self._superusers.proof(account))

    async def _key(self) -> bytes:
        """The secret of this store, made by whoever needs it first."""
        if self._secret is None:
            store = self._app.store
            body = msgspec.json.encode(_Secret(secrets.token_urlsafe(32)))
            await store.write_documents([NewDocument(SECRET_KIND, SECRET_ID, body, None, 0)])
            document = await store.document(SECRET_KIND, SECRET_ID)
            if document is None:
                raise StoreError("the secret of sessions was removed while it was made; try again")
            self._secret = _secrets.decode(document.body).secret.encode()
        return self._secret


def _caller(account: Account) -> Caller:
    auth = {"id": account.name, "kind": "session", "name": account.name, "superuser": True}
    return Caller(CallerKind.SESSION, account.name, id=account.name, superuser=True, auth=auth)


def _mac(key: bytes, *parts: str) -> str:
    # Lengths first: no two lists of parts are signed as the same text.
    text = "".join(f"{len(part.encode())}:{part}" for part in parts)
    return _encode(hmac.digest(key, text.encode(), hashlib.sha256))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
