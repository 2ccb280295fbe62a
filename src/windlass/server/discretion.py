"""What a filter may ask: nothing about what its caller is not shown.

Who may ask whether a hidden text begins with an *a* knows it after a few dozen questions.
"""

from __future__ import annotations

from windlass.conditions import Compare, ComparePayload, Condition, Field, HoldsText, leaves
from windlass.server.redaction import Redaction


class Discretion:
    """What one caller is shown of jobs, and so may ask for."""

    def __init__(self, redaction: Redaction, *, manages: bool, superuser: bool) -> None:
        self._redaction = redaction
        self._manages = manages
        self._superuser = superuser

    def objection(self, condition: Condition) -> str | None:
        """Why a condition may not be asked; None when it may."""
        for leaf in leaves(condition):
            match leaf:
                case Compare(Field.WORKER, _, _) if not self._superuser:
                    return "worker can be asked for by superusers only; leave it out"
                case ComparePayload() if not self._manages:
                    return _NOT_SHOWN
                case ComparePayload(path, _, _) if self._redaction.hides(path):
                    name = ".".join(map(str, path))
                    return f"payload.{name} is hidden by the setting redact, so nobody can filter by it"
                case HoldsText(_, in_payload=True) if (why := self.objection_to_text()) is not None:
                    return why
                case _:
                    continue
        return None

    def objection_to_text(self) -> str | None:
        """Why payloads may not be searched for a text."""
        if not self._manages:
            return _NOT_SHOWN
        if self._redaction.hides_something and not self._superuser:
            return (
                "payloads cannot be searched for a text, because the setting redact hides parts of them; "
                "ask for a member, as in payload.user_id:42, or for a text in errors, as in error:timeout"
            )
        return None


_NOT_SHOWN = "what is in payloads is shown to those with the scope manage only; leave it out"
