"""Bodies without what is not to be shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

REDACTED: Final = "[redacted]"


class Redaction:
    """What the setting ``redact`` hides: names at any depth, and paths with ``*`` for every item."""

    def __init__(self, hidden: Sequence[str]) -> None:
        self._names = frozenset(item.lower() for item in hidden if "." not in item and "*" not in item)
        self._paths = tuple(tuple(item.lower().split(".")) for item in hidden if "." in item or "*" in item)

    def apply(self, value: Any) -> Any:
        """The same JSON, with the hidden values replaced. What was given is not changed."""
        return self._shown(value, self._paths)

    @property
    def hides_something(self) -> bool:
        return bool(self._names or self._paths)

    def hides(self, path: Sequence[str | int]) -> bool:
        """Whether the value at this path of a body is not shown, or is inside of one that is not."""
        steps = [str(step).lower() for step in path]
        return any(step in self._names for step in steps) or any(
            len(hidden) <= len(steps)
            and all(part in {step, "*"} for part, step in zip(hidden, steps, strict=False))
            for hidden in self._paths
        )

    def _shown(self, value: Any, paths: tuple[tuple[str, ...], ...]) -> Any:
        # Bodies are at most 64 levels deep (``payload``), so the stack is no concern.
        if isinstance(value, dict):
            return {name: self._member(str(name).lower(), item, paths) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._member(str(index), item, paths) for index, item in enumerate(value)]
        return value

    def _member(self, name: str, value: Any, paths: tuple[tuple[str, ...], ...]) -> Any:
        if name in self._names:
            return REDACTED
        inner = [path[1:] for path in paths if path[0] in {name, "*"}]
        if any(not path for path in inner):
            return REDACTED
        return self._shown(value, tuple(inner))
