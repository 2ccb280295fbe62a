"""Credentials: why one is rejected, and what an accepted one may do.

The log and ``tidewheel access explain`` show the reason for a rejection. The caller never sees it, because it
would help to forge a credential. A reason holds no text of the credential, because that text is a secret or
comes from an attacker.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from tidewheel.access.caller import Caller
from tidewheel.core.clock import Clock

REPEAT_LOG_SECONDS: Final = 20.0
"""Seconds between two log lines with the same reason."""

_log = logging.getLogger("tidewheel.access")


class CredentialRejected(Exception):
    """A credential that proves nothing. ``reason`` is one of a fixed set, ``detail`` adds figures."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


class RejectionLog:
    """Logs each reason at most every 20 seconds, with the number of rejections since the line before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}  # when, and how many since; reasons are few

    def log(self, rejected: CredentialRejected) -> None:
        now = self._clock.monotonic()
        logged_at, unlogged = self._logged.get(rejected.reason, (None, 0))
        if logged_at is not None and now - logged_at < REPEAT_LOG_SECONDS:
            self._logged[rejected.reason] = (logged_at, unlogged + 1)
            return
        self._logged[rejected.reason] = (now, 0)
        since = f"; {unlogged:,} more since the last line about this" if unlogged else ""
        _log.warning("rejected a credential: %s%s", rejected, since)


@dataclass(frozen=True, slots=True)
class Ability:
    """One thing a caller may or may not do. ``why`` names the scope, the rule or the status that decides."""

    what: str
    allowed: bool
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The caller a credential proves and its abilities; or, without a caller, why it is rejected."""

    caller: Caller | None
    abilities: tuple[Ability, ...] = ()
    rejected: str | None = None
