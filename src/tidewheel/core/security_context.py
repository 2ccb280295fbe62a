"""On whose behalf code acts: a tenant, and whoever in it.

A framework's middleware says so once for a request, ``with acting_as(SecurityContext("acme")): ...``, and
everything below sees and writes that tenant's jobs only. Code that never says so acts in the *system
context*: it sees all tenants. The context is a context variable: every asyncio task, every thread behind
``.sync`` and every handler has its own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from tidewheel.core.conditions import Condition
from tidewheel.core.model import ROOT_TENANT, Claimed
from tidewheel.core.names import check_given_tenant, check_tenant, check_text, shorten
from tidewheel.errors import InvalidInput, NotPermitted, WrongState


@dataclass(frozen=True, slots=True)
class SecurityContext:
    """A tenant, and who acts in it. New jobs carry all of it; whatever is read is the tenant's.

    ``only``: a condition on top of that. Jobs that do not meet it are not there for whoever acts so.
    ``allow_root``: the tenant may be ``root``, whose jobs run for all tenants. Without it that name is
    refused, because a tenant's name often comes from data of users.
    """

    tenant: str
    user_id: str | None = None
    service_id: str | None = None
    correlation_id: str | None = None
    only: Condition | None = None
    allow_root: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_tenant(self.tenant) if self.allow_root else check_given_tenant(self.tenant)
        for name in ("user_id", "service_id", "correlation_id"):
            value = getattr(self, name)
            if value is not None:
                check_text(name, value)

    @staticmethod
    def current() -> SecurityContext | None:
        """The one in force here; None in the system context."""
        return _current_context.get()


_current_context: ContextVar[SecurityContext | None] = ContextVar("tidewheel_security_context", default=None)
current_context = _current_context.get
"""The same as ``SecurityContext.current``, for every enqueue."""


def acting_as(context: SecurityContext | None) -> AbstractContextManager[SecurityContext | None, None]:
    """For a ``with`` block that acts for this tenant only, together with everything it starts.

    None leaves a tenant on purpose, for code that is meant to act on all of them.
    """
    if context is not None and not isinstance(context, SecurityContext):
        raise InvalidInput(
            f"acting_as was given {shorten(context)} ({type(context).__name__}); "
            "give a SecurityContext, or None for the system context"
        )
    return _ContextScope(context)


class _ContextScope(AbstractContextManager[SecurityContext | None, None]):
    """Not made with ``contextmanager``: that would also decorate, and a decorated coroutine function would
    have left the context before its first line runs.
    """

    def __init__(self, context: SecurityContext | None) -> None:
        self._context = context
        self._tokens: list[Token[SecurityContext | None]] = []

    def __enter__(self) -> SecurityContext | None:
        self._tokens.append(_current_context.set(self._context))
        return self._context

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _current_context.reset(self._tokens.pop())
        except ValueError:
            # What ran in between did not run under this context, and must not look as if it had.
            raise WrongState(
                "acting_as was left in another asyncio context than it was entered in, so the code between "
                "did not act as told; enter it where the request is handled, in an async function"
            ) from error


def act_as_job_owner(job: Claimed) -> None:
    """Act as the job's owner from here on. For a copied context that ends with the job's handler.

    Jobs of the root tenant are system jobs: they act for all.
    """
    if job.tenant == ROOT_TENANT:
        return
    _current_context.set(SecurityContext(job.tenant, job.user_id, job.service_id, job.correlation_id))


def effective_tenant(given: Any = None, *, uuids: bool = False) -> str | None:
    """The tenant a call is about: the given one, which must be that of the context in force; None is all."""
    context = _current_context.get()
    if given is not None:
        check_tenant(given, uuids=uuids)
        if context is not None and given != context.tenant:
            raise other_tenant_error(given, context)
        return str(given)
    return None if context is None else check_tenant(context.tenant, uuids=uuids)


def row_filter() -> Condition | None:
    """What jobs have to meet to be there for the code at hand; None is no condition."""
    context = _current_context.get()
    return None if context is None else context.only


def require_no_row_filter(what: str) -> None:
    """Refuse under a row filter what is about all jobs of a topic."""
    if row_filter() is not None:
        raise NotPermitted(
            f"{what} is about all jobs of a topic, and this code sees only some of them; call it where no "
            "row filter is in force"
        )


def other_tenant_error(given: str, context: SecurityContext) -> InvalidInput:
    """Code that acts for one tenant named another one."""
    return InvalidInput(
        f"tenant is {shorten(given)}, but this code acts as tenant {shorten(context.tenant)}; leave tenant "
        "out, or leave the context with acting_as(None) where another tenant is meant"
    )


def require_system_context(what: str) -> None:
    """Refuse under a context what is about all tenants."""
    context = _current_context.get()
    if context is not None:
        raise NotPermitted(
            f"{what} is about all tenants, and this code acts as tenant {shorten(context.tenant)}; call it "
            "in the system context: outside of acting_as, or inside `with acting_as(None):`"
        )
