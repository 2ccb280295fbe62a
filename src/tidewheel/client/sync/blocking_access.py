"""The twins behind ``.sync``, written by ``scripts/make_blocking_twins.py``: do not edit."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from tidewheel.access import document_pages
from tidewheel.access.caller import SYSTEM_CALLER
from tidewheel.client.sync.portal import BlockingWrapper

if TYPE_CHECKING:
    from tidewheel.access.access_control import Access
    from tidewheel.access.api_keys import ApiKey, NewApiKey
    from tidewheel.access.audit_log import AuditLine, AuditLog, AuditPage
    from tidewheel.access.caller import Caller
    from tidewheel.access.credentials import Explanation
    from tidewheel.access.sessions import Session
    from tidewheel.access.superusers import Superuser


class BlockingAuditLog(BlockingWrapper["AuditLog"]):
    """Blocking twin of :class:`~tidewheel.access.audit_log.AuditLog`."""

    def record(self, *lines: AuditLine) -> None:
        """Write lines about completed actions, at most 1,000 at once; kept for ``audit_retention``.

        If the store cannot take them, they are written to the program's log as errors.
        """
        self._portal.run(self._inner.record, *lines)

    def lines(
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
        return self._portal.run(
            self._inner.lines, limit=limit, cursor=cursor, target=target, actor=actor, action=action
        )


class BlockingAccess(BlockingWrapper["Access"]):
    """Blocking twin of :class:`~tidewheel.access.access_control.Access`."""

    @property
    def audit(self) -> BlockingAuditLog:
        """Who did what."""
        return BlockingAuditLog(self._inner.audit, self._portal)

    def authenticate(self, *, bearer: str | None = None, cookie: str | None = None) -> Caller:
        """Who showed this: an API key or a token, or else the value of the session's cookie.

        ``NotAuthenticated`` when something was shown and proves nothing; somebody who showed nothing is
        anonymous.
        """
        return self._portal.run(self._inner.authenticate, bearer=bearer, cookie=cookie)

    def explain(self, bearer: str) -> Explanation:
        """Return what an API key or a token may do, or why it is rejected. Not for the caller's eyes."""
        return self._portal.run(self._inner.explain, bearer)

    def log_in(
        self, name: str, password: str, *, address: str | None = None, cookie: str | None = None
    ) -> Session:
        """Begin a session of a superuser.

        ``TooManyAttempts`` after a few failures, and when too many logins wait. A client that has logged in
        before from this address, or shows the ``cookie`` of a session, is served before others.
        """
        return self._portal.run(self._inner.log_in, name, password, address=address, cookie=cookie)

    def log_out(
        self,
        caller: Caller,
        *,
        cookie: str | None = None,
        everywhere: bool = False,
        address: str | None = None,
    ) -> None:
        """End the session of this cookie, or with ``everywhere`` all sessions of the caller."""
        self._portal.run(self._inner.log_out, caller, cookie=cookie, everywhere=everywhere, address=address)

    def csrf(self, cookie: str) -> str:
        """The token that a page sends along with whatever changes something in this session."""
        return self._portal.run(self._inner.csrf, cookie)

    def is_csrf(self, cookie: str, token: str | None) -> bool:
        """Whether it is that token."""
        return self._portal.run(self._inner.is_csrf, cookie, token)

    def create_key(
        self,
        name: str = "",
        *,
        tenant: str | None = None,
        superuser: bool = False,
        scopes: Iterable[str] | None = None,
        user_id: str | None = None,
        service_id: str | None = None,
        expires: float | timedelta | None = None,
        by: Caller = SYSTEM_CALLER,
        address: str | None = None,
    ) -> NewApiKey:
        """Make an API key. Its text is in the answer, and nowhere else ever again.

        Without ``superuser`` it acts for one tenant, the root tenant unless told otherwise, as far as its
        scopes and the rules allow. ``by`` is for the audit log.
        """
        return self._portal.run(
            self._inner.create_key,
            name,
            tenant=tenant,
            superuser=superuser,
            scopes=scopes,
            user_id=user_id,
            service_id=service_id,
            expires=expires,
            by=by,
            address=address,
        )

    def keys(
        self, *, limit: int = document_pages.DEFAULT_PAGE_SIZE, cursor: str | None = None
    ) -> tuple[list[ApiKey], str | None]:
        """The keys, newest first, and the cursor of the next page; revoked and expired ones for a month."""
        return self._portal.run(self._inner.keys, limit=limit, cursor=cursor)

    def revoke_key(self, key_id: str, *, by: Caller = SYSTEM_CALLER, address: str | None = None) -> ApiKey:
        """End a key: here at once, in other processes within a second. It cannot be undone."""
        return self._portal.run(self._inner.revoke_key, key_id, by=by, address=address)

    def create_superuser(
        self,
        name: str,
        password: str,
        *,
        new: bool = False,
        by: Caller = SYSTEM_CALLER,
        address: str | None = None,
    ) -> None:
        """Make a superuser, or give the one there is another password, which ends all its sessions.

        ``new``: only where there is none of that name; otherwise ``WrongState``.
        """
        self._portal.run(self._inner.create_superuser, name, password, new=new, by=by, address=address)

    def change_password(
        self, name: str, password: str, *, by: Caller = SYSTEM_CALLER, address: str | None = None
    ) -> None:
        """Give a superuser another password, which ends all its sessions."""
        self._portal.run(self._inner.change_password, name, password, by=by, address=address)

    def has_superuser(self, name: str) -> bool:
        """Whether there is one of that name, stored or configured."""
        return self._portal.run(self._inner.has_superuser, name)

    def superusers(
        self, *, limit: int = document_pages.DEFAULT_PAGE_SIZE, cursor: str | None = None
    ) -> tuple[list[Superuser], str | None]:
        """Those that are stored, newest first; not the one of the setting ``superuser``."""
        return self._portal.run(self._inner.superusers, limit=limit, cursor=cursor)

    def remove_superuser(
        self, name: str, *, keep_last: bool = False, by: Caller = SYSTEM_CALLER, address: str | None = None
    ) -> None:
        """Forget a superuser, which ends its sessions.

        ``keep_last``: ``WrongState`` where nobody could log in then.
        """
        self._portal.run(self._inner.remove_superuser, name, keep_last=keep_last, by=by, address=address)

    def ensure_superuser(self) -> str | None:
        """Where nobody could log in: make ``admin``; its password, to be shown once. Otherwise None."""
        return self._portal.run(self._inner.ensure_superuser)
