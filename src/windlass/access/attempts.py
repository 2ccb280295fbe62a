"""How often somebody may try a password: five times, then after growing pauses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from windlass.clock import Clock
from windlass.errors import TooManyAttempts

FREE: Final = 5
"""Failures without a pause."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
FORGOTTEN_SECONDS: Final = 3600.0
MOST_REMEMBERED: Final = 10_000
"""Names, and as many addresses; those that tried least recently are forgotten first."""


@dataclass(slots=True)
class _Failures:
    number: int = 0
    free_at: float = 0.0
    last_at: float = 0.0


class Attempts:
    """Failed logins by name and by address, in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: OrderedDict[str, _Failures] = OrderedDict()
        self._by_address: OrderedDict[str, _Failures] = OrderedDict()

    def begin(self, name: str, address: str | None) -> None:
        """Somebody tries. Counted as failed until it has ``succeeded``: a thousand at once are a thousand."""
        now = self._clock.monotonic()
        found = list(self._found(name, address))
        wait = max((one.free_at - now for one in found), default=0.0)
        if wait > 0:
            raise TooManyAttempts(wait)
        for one in found:
            if now - one.last_at > FORGOTTEN_SECONDS:
                one.number = 0
            one.number += 1
            one.last_at = now
            if one.number >= FREE:
                exponent = min(one.number - FREE, 20)
                one.free_at = now + min(FIRST_PAUSE * 2**exponent, LONGEST_PAUSE)

    def succeeded(self, name: str, address: str | None) -> None:
        """It was the password. Other names that were tried from this address stay counted there."""
        self._by_name.pop(name, None)
        failures = self._by_address.get(address or "")
        if failures is not None:
            failures.number -= 1
            failures.free_at = 0.0

    def _found(self, name: str, address: str | None) -> Iterator[_Failures]:
        yield _entry(self._by_name, name)
        if address:
            yield _entry(self._by_address, address)


def _entry(table: OrderedDict[str, _Failures], key: str) -> _Failures:
    failures = table.setdefault(key, _Failures())
    table.move_to_end(key)
    while len(table) > MOST_REMEMBERED:
        table.popitem(last=False)
    return failures
