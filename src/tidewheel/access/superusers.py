"""Superusers: people who see and manage everything, with a name and a password."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidewheel.access import document_pages
from tidewheel.access.cache import LookupCache
from tidewheel.access.passwords import check_password, hash_password, verify_password
from tidewheel.core.clock import to_datetime
from tidewheel.core.model import NewDocument
from tidewheel.core.names import check_text, shorten
from tidewheel.errors import ConfigurationError, InvalidInput, WrongState

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

DOCUMENT_KIND: Final = "superuser"
EPOCH_DOCUMENT_KIND: Final = "session_epoch"
MAX_SUPERUSER_NAME_LENGTH: Final = 100
FIRST_SUPERUSER_NAME: Final = "admin"


@dataclass(frozen=True, slots=True)
class Superuser:
    """Somebody who may do everything. Its password is known to nobody here."""

    name: str
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Account:
    """What a session and a login are checked against."""

    name: str
    hash: str = field(repr=False)
    epoch: int  # grows when somebody logs out everywhere


class _Body(msgspec.Struct):
    hash: str


class _Epoch(msgspec.Struct):
    epoch: int


_bodies = msgspec.json.Decoder(_Body)
_epochs = msgspec.json.Decoder(_Epoch)


class SuperuserStore:
    """Those that are stored, and the one of the setting ``superuser``, which is not."""

    def __init__(self, app: Tidewheel) -> None:
        self._app = app
        self._configured = _read_setting(app.settings.superuser)
        self._configured_hash: str | None = None
        self._lookups: LookupCache[Account] = LookupCache(self._load, app.clock)

    # -- managing ---------------------------------------------------------------------------------------

    async def create(self, name: str, password: str, *, only_version: int | None = None) -> bool:
        """Make one, or give the one there is another password, which ends its sessions.

        False where ``expected_version`` (0: there is none) did not let it.
        """
        self._check_not_configured(check_superuser_name(name))
        body = msgspec.json.encode(_Body(await hash_password(check_password(password))))
        new = NewDocument(DOCUMENT_KIND, name, body, None, only_version)
        [version] = await self._app.store.write_documents([new])
        self._lookups.invalidate(name)
        return version is not None

    async def change_password(self, name: str, password: str) -> bool:
        """Give the one there is another password; False where there is none."""
        self._check_not_configured(check_superuser_name(name))
        document = await self._app.store.document(DOCUMENT_KIND, name)
        if document is None:
            return False
        if not await self.create(name, password, only_version=document.version):
            raise WrongState(f"superuser {shorten(name)} was changed by somebody else just now; try again")
        return True

    @property
    def configured(self) -> str | None:
        """The name of the one of the setting ``superuser``."""
        return None if self._configured is None else self._configured[0]

    async def exists(self, name: str) -> bool:
        """Whether there is one of that name, looked up at once."""
        try:
            check_superuser_name(name)
        except InvalidInput:
            return False  # nobody is called like that, and not every store could be asked
        return self.configured == name or await self._app.store.document(DOCUMENT_KIND, name) is not None

    async def list_page(
        self, *, limit: int = document_pages.DEFAULT_PAGE_SIZE, cursor: str | None = None
    ) -> tuple[list[Superuser], str | None]:
        found, further = await document_pages.list_documents(
            self._app, DOCUMENT_KIND, limit=limit, cursor=cursor
        )
        return [
            Superuser(document.id, to_datetime(document.created_at), to_datetime(document.updated_at))
            for document in found
        ], further

    async def remove(self, name: str, *, keep_last: bool = False) -> bool:
        """Whether there was one. ``keep_last``: ``WrongState`` where nobody else could log in."""
        self._check_not_configured(check_superuser_name(name))
        store = self._app.store
        document = await store.document(DOCUMENT_KIND, name)
        if document is None:
            return False
        keep_last = keep_last and self._configured is None
        if keep_last and len(await store.documents(DOCUMENT_KIND, limit=2)) < 2:
            raise _last_superuser_error(name)
        removed = await store.remove_document(DOCUMENT_KIND, name)
        self._lookups.invalidate(name)
        if removed and keep_last and not await store.documents(DOCUMENT_KIND, limit=1):
            # The other one was removed at the same time. Both come back, rather than nobody.
            await store.write_documents([NewDocument(DOCUMENT_KIND, name, document.body, None, 0)])
            self._lookups.invalidate(name)
            raise _last_superuser_error(name)
        return removed

    async def has_any(self) -> bool:
        """Return whether there is a superuser, stored or configured."""
        return self._configured is not None or bool(await self._app.store.documents(DOCUMENT_KIND, limit=1))

    async def create_first(self) -> str | None:
        """Make ``admin``; return its password, to be shown once, or None if another server was first."""
        password = secrets.token_urlsafe(18)
        body = msgspec.json.encode(_Body(await hash_password(password)))
        # Several servers may start at once; one of them makes it.
        [version] = await self._app.store.write_documents(
            [NewDocument(DOCUMENT_KIND, FIRST_SUPERUSER_NAME, body, None, 0)]
        )
        self._lookups.invalidate(FIRST_SUPERUSER_NAME)
        return None if version is None else password

    async def end_sessions(self, name: str) -> None:
        """Log out everywhere."""
        epoch = await self._epoch(check_superuser_name(name))
        body = msgspec.json.encode(_Epoch(epoch + 1))
        await self._app.store.write_documents([NewDocument(EPOCH_DOCUMENT_KIND, name, body)])
        self._lookups.invalidate(name)

    # -- authenticating ---------------------------------------------------------------------------------

    async def account(self, name: str) -> Account | None:
        """Believed for a second."""
        try:
            return await self._lookups.get(check_superuser_name(name))
        except InvalidInput:
            return None  # nobody is called like that, and not every store could be asked

    async def verify_login(self, name: str, password: str) -> Account | None:
        """The account, if this is its password. It takes as long for a name that does not exist."""
        account = await self.account(name)
        good = await verify_password(None if account is None else account.hash, password)
        return account if good else None

    async def _load(self, name: str) -> Account | None:
        if self._configured is not None and self._configured[0] == name:
            if self._configured_hash is None:
                self._configured_hash = await hash_password(self._configured[1])
            # Sessions are bound to the password itself here: a hash differs from process to process.
            return Account(name, self._configured_hash, await self._epoch(name))
        document = await self._app.store.document(DOCUMENT_KIND, name)
        if document is None:
            return None
        return Account(name, _bodies.decode(document.body).hash, await self._epoch(name))

    async def _epoch(self, name: str) -> int:
        document = await self._app.store.document(EPOCH_DOCUMENT_KIND, name)
        return 0 if document is None else _epochs.decode(document.body).epoch

    def session_secret(self, account: Account) -> str:
        """What changes with the password and with the epoch; for signing, not for showing."""
        configured = self._configured
        secret = configured[1] if configured and configured[0] == account.name else account.hash
        return f"{account.epoch}:{secret}"

    def _check_not_configured(self, name: str) -> None:
        if self._configured is not None and self._configured[0] == name:
            raise WrongState(
                f"superuser {shorten(name)} is the one of the setting superuser; change it there"
            )


def _last_superuser_error(name: str) -> WrongState:
    return WrongState(
        f"{shorten(name)} is the only superuser, without whom nobody could log in; make another first"
    )


def check_superuser_name(name: Any) -> str:
    text = check_text("name of a superuser", name, MAX_SUPERUSER_NAME_LENGTH)
    if {":", "/"} & set(text) or text != text.strip() or not text.isprintable():
        # The setting ends a name at its colon, the API's addresses at a slash.
        raise InvalidInput(
            f"name of a superuser is {shorten(text)}; it may hold no colon, no slash and no control "
            "characters, and no spaces at its ends"
        )
    return text


def _read_setting(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, colon, password = text.partition(":")
    try:
        if not colon:
            raise InvalidInput("there is no colon in it")
        return check_superuser_name(name), check_password(password)
    except InvalidInput as error:
        raise ConfigurationError(f"superuser must be name:password; {error}") from None
