"""Bodies without what is not to be shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

REDACTED: Final = "[redacted]"
MISSING: Final = object()
"""There is nothing."""
AMBIGUOUS: Final = -1
"""Instead of a place: it could be one or another."""

Path: TypeAlias = tuple[str | int, ...]


class CannotRestore(Exception):
    """It is not known which hidden value a mark stands for. ``path`` is where it is."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(why)
        self.path = path
        self.reason = why


class Redaction:
    """What the setting ``redact`` hides: names at any depth, and paths with ``*`` for every item."""

    def __init__(self, hidden: Sequence[str]) -> None:
        self._names = frozenset(item.lower() for item in hidden if "." not in item and "*" not in item)
        self._paths = tuple(tuple(item.lower().split(".")) for item in hidden if "." in item or "*" in item)

    def apply(self, value: Any) -> Any:
        """The same JSON, with the hidden values replaced. What was given is not changed."""
        return self._shown(value, self._paths)

    @property
    def is_active(self) -> bool:
        return bool(self._names or self._paths)

    def hides(self, path: Sequence[str | int]) -> bool:
        """Whether the value at this path of a body is not shown, or is inside of one that is not."""
        steps = [str(step).lower() for step in path]
        return any(step in self._names for step in steps) or any(
            len(hidden) <= len(steps)
            and all(part in {step, "*"} for part, step in zip(hidden, steps, strict=False))
            for hidden in self._paths
        )

    def restore(self, edited: Any, before: Any) -> Any:
        """``edited`` with the hidden values of ``before`` where it still has the mark for them.

        A mark where nothing is hidden is a text like any other. ``CannotRestore`` where it cannot be told
        which hidden value is meant, so that no secret ends up in another's place.
        """
        return self._restored(edited, before, self.apply(before), ())

    def _restored(self, edited: Any, before: Any, shown: Any, path: Path) -> Any:
        if self._is_mark(edited, path):
            if before is MISSING:
                raise CannotRestore(path, "the job has nothing there")
            return before
        if isinstance(edited, dict):
            there = isinstance(shown, dict)  # inside of what is hidden nothing was shown
            return {
                name: self._restored(
                    item,
                    before.get(name, MISSING) if there else MISSING,
                    shown.get(name) if there else None,
                    (*path, name),
                )
                for name, item in edited.items()
            }
        if isinstance(edited, list):
            there = isinstance(shown, list)
            return self._restored_list(edited, before if there else [], shown if there else [], path)
        return edited

    def _restored_list(self, edited: list[Any], before: list[Any], shown: list[Any], path: Path) -> list[Any]:
        """By place where nothing came, went or moved; otherwise by what only one of them was shown as."""
        origins = _origins(edited, shown)
        # What moved leaves its place to others: then no place tells anything of what was edited, too.
        in_place = len(edited) == len(before) and all(origin is None for origin in origins.values())
        restored = []
        for index, item in enumerate(edited):
            here = (*path, index)
            place = index
            if index in origins and self._holds_mark(item, here):
                origin = origins[index]
                if origin == AMBIGUOUS or (origin is None and not in_place):
                    raise CannotRestore(here, "items came, went or moved, and it cannot be told which it was")
                place = index if origin is None else origin
            known, seen = (before[place], shown[place]) if place < len(before) else (MISSING, None)
            restored.append(self._restored(item, known, seen, here))
        return restored

    def _holds_mark(self, value: Any, path: Path) -> bool:
        """Whether there is a mark in it for something hidden."""
        if isinstance(value, dict):
            return any(self._holds_mark(item, (*path, name)) for name, item in value.items())
        if isinstance(value, list):
            return any(self._holds_mark(item, (*path, index)) for index, item in enumerate(value))
        return self._is_mark(value, path)

    def _is_mark(self, value: Any, path: Path) -> bool:
        return isinstance(value, str) and value == REDACTED and self.hides(path)

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


def _origins(edited: Sequence[Any], shown: Sequence[Any]) -> dict[int, int | None]:
    """For each item that is not what was shown at its place: where it was shown; None is nowhere.

    By what items look like in JSON: comparing each with each would take a minute for a long list.
    """
    pairs = zip(edited, shown, strict=True) if len(edited) == len(shown) else ()
    kept = {index for index, (item, seen) in enumerate(pairs) if item == seen}
    if len(kept) == len(edited):
        return {}
    places: dict[bytes, list[int]] = {}
    for index, seen in enumerate(shown):
        places.setdefault(_canonical_json(seen), []).append(index)
    found = {
        index: places.get(_canonical_json(item), []) for index, item in enumerate(edited) if index not in kept
    }
    claims = Counter(there[0] for there in found.values() if len(there) == 1)

    def origin(there: list[int]) -> int | None:
        if not there:
            return None
        return AMBIGUOUS if len(there) > 1 or there[0] in kept or claims[there[0]] > 1 else there[0]

    return {index: origin(there) for index, there in found.items()}


def _canonical_json(item: Any) -> bytes:
    return msgspec.json.encode(item, order="sorted")
