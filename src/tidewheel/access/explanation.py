"""What a key or a token may do, or why it is rejected: the answer of ``tidewheel access explain``."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel.access.caller import Caller


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
