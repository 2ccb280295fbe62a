"""Caches for callers: store lookups for one second, derived values per caller.

``LookupCache`` keeps each answer for a second: a server asks the store once a second for each key in use
instead of 10,000 times. Missing entries have a cache of their own, so that made-up keys cannot evict real
ones. During that second a key is the same ``Caller`` object. ``CallerCache`` therefore caches by caller, so
that the result of a rule and the context of a caller are computed once and not thousands of times.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from tidewheel.access.caller import Caller
from tidewheel.core.clock import Clock

T = TypeVar("T")

CACHE_SECONDS: Final = 1.0
MAX_FOUND: Final = 10_000
MAX_MISSING: Final = 1_000
"""How many things are remembered; those used least recently are forgotten first."""


class LookupCache(Generic[T]):
    """Answers of ``look``, each believed for a second; one look at a time for each name."""

    def __init__(self, look: Callable[[str], Awaitable[T | None]], clock: Clock) -> None:
        self._load = look
        self._clock = clock
        self._found: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._missing: OrderedDict[str, float] = OrderedDict()
        self._loading: dict[str, asyncio.Task[T | None]] = {}

    async def get(self, name: str) -> T | None:
        now = self._clock.monotonic()
        known = self._found.get(name)
        if known is not None and known[0] > now:
            return known[1]
        if self._missing.get(name, now) > now:
            return None
        task = self._loading.get(name)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._loading[name] = asyncio.create_task(self._load_and_store(name))
        # Shielded: one who gives up waiting must not take the answer from the others.
        return await asyncio.shield(task)

    def invalidate(self, name: str) -> None:
        """It has changed: whoever asks from now on gets what is true from now on."""
        self._found.pop(name, None)
        self._missing.pop(name, None)
        self._loading.pop(name, None)

    async def _load_and_store(self, name: str) -> T | None:
        me = asyncio.current_task()
        until = self._clock.monotonic() + CACHE_SECONDS  # counted from before the look
        try:
            answer = await self._load(name)
        except BaseException:
            self._finish_loading(name, me)
            raise
        if self._finish_loading(name, me):
            self._remember(name, answer, until)
        return answer

    def _finish_loading(self, name: str, me: asyncio.Task[T | None] | None) -> bool:
        """Whether this look is still the one that counts."""
        if self._loading.get(name) is not me:
            return False
        del self._loading[name]
        return True

    def _remember(self, name: str, answer: T | None, until: float) -> None:
        self._found.pop(name, None)
        self._missing.pop(name, None)
        if answer is None:
            self._missing[name] = until
            while len(self._missing) > MAX_MISSING:
                self._missing.popitem(last=False)
        else:
            self._found[name] = (until, answer)
            while len(self._found) > MAX_FOUND:
                self._found.popitem(last=False)


MAX_CALLERS: Final = 1000
"""Then all are forgotten: those in use are back at once."""


class CallerCache(Generic[T]):
    """Answers of ``find``, by caller."""

    def __init__(self, find: Callable[[Caller], T]) -> None:
        self._compute = find
        self._known: dict[int, tuple[Caller, T]] = {}

    def get(self, caller: Caller) -> T:
        """The answer about this caller."""
        known = self._known.get(id(caller))
        if known is not None:  # it holds the caller, so no other one can have its id
            return known[1]
        answer = self._compute(caller)
        if len(self._known) >= MAX_CALLERS:
            self._known.clear()
        self._known[id(caller)] = (caller, answer)
        return answer
