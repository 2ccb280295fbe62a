"""Who is asking, as far as it was proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from tidewheel.core.model import ROOT_TENANT
from tidewheel.core.security_context import SecurityContext


class CallerKind(StrEnum):
    ANONYMOUS = "anonymous"
    """showed nothing"""
    KEY = "key"
    """an API key"""
    TOKEN = "token"  # noqa: S105 - the name of a kind
    """a JSON Web Token"""
    SESSION = "session"
    """somebody who logged in, with a cookie"""
    CLI = "cli"
    """somebody on the command line, who has the store itself"""
    SYSTEM = "system"
    """the program's own code"""


class Scope(StrEnum):
    """What a key or a token is good for at most. Rules decide whether its bearer may."""

    READ = "read"
    ENQUEUE = "enqueue"
    MANAGE = "manage"
    WORK = "work"
    """taking jobs and ending them, over HTTP; for superusers, as a worker has the jobs of all tenants"""
    TRACEBACKS = "tracebacks"
    """seeing tracebacks, which have file paths and source lines; superusers see them without"""


ALL_SCOPES: Final = frozenset(Scope)
DEFAULT_SCOPES: Final = ALL_SCOPES - {Scope.TRACEBACKS}
"""The scopes of a key that names none, and of callers without a credential."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who asks for something. ``auth`` is what a rule sees as ``@request.auth``."""

    kind: CallerKind
    name: str  # for the audit log; holds nothing secret
    id: str | None = None  # of the key, the token's subject or the user
    tenant: str = ROOT_TENANT
    superuser: bool = False
    scopes: frozenset[Scope] = DEFAULT_SCOPES
    user_id: str | None = None
    service_id: str | None = None
    auth: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sees_payloads(self) -> bool:
        """Whether payloads, results in lists, checkpoints and outputs of steps are shown."""
        return self.superuser or Scope.MANAGE in self.scopes

    @property
    def sees_tracebacks(self) -> bool:
        """Whether tracebacks are shown, with their file paths and source lines."""
        return self.superuser or Scope.TRACEBACKS in self.scopes

    def context(self, correlation_id: str | None = None) -> SecurityContext | None:
        """On whose behalf its requests act: its tenant, or all of them for a superuser."""
        if self.superuser:
            return None
        return SecurityContext(self.tenant, self.user_id, self.service_id, correlation_id, allow_root=True)


ANONYMOUS: Final = Caller(CallerKind.ANONYMOUS, "anonymous")
SYSTEM_CALLER: Final = Caller(CallerKind.SYSTEM, "system", superuser=True)
"""Code of the program itself, for the audit log."""
