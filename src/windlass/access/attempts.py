"""How often somebody may try a password: a few times, then after growing pauses.

Addresses are judged strictly. Names only so far that many addresses together cannot guess: whoever knows a
name could otherwise keep its owner out by failing on purpose. An owner who comes from where it logged in
before does not wait for what others do to its name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from windlass.clock import Clock
from windlass.errors import TooManyAttempts

FIRST_PAUSE: Final = 1.0
FORGOTTEN_SECONDS: Final = 3600.0
MOST_REMEMBERED: Final = 10_000
"""Names, and as many addresses; those that tried least recently are forgotten first."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Limit:
    """So many failures without a pause; pauses grow up to the longest."""

    free: int
    longest_pause: float


OF_ADDRESS: Final = Limit(5, 300.0)
OF_NAME: Final = Limit(20, 10.0)


@dataclass(slots=True)
class _Failures:
    limit: Limit
    number: int = 0
    free_at: float = 0.0
    last_at: float = 0.0


class Attempts:
    """Failed logins by name and by address, in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: OrderedDict[str, _Failures] = OrderedDict()
        self._by_address: OrderedDict[str, _Failures] = OrderedDict()
        self._at_home: OrderedDict[tuple[str, str], None] = OrderedDict()

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
            if one.number >= one.limit.free:
                exponent = min(one.number - one.limit.free, 20)
                one.free_at = now + min(FIRST_PAUSE * 2**exponent, one.limit.longest_pause)

    def succeeded(self, name: str, address: str | None) -> None:
        """It was the password. Other names that were tried from this address stay counted there."""
        self._by_name.pop(name, None)
        if address is None:
            return
        _remember(self._at_home, (name, address), None)
        failures = self._by_address.get(address)
        if failures is not None:
            failures.number -= 1
            failures.free_at = 0.0

    def _found(self, name: str, address: str | None) -> Iterator[_Failures]:
        if address is not None:
            yield _remember(self._by_address, address, _Failures(OF_ADDRESS))
        if (name, address) not in self._at_home:
            yield _remember(self._by_name, name, _Failures(OF_NAME))


def _remember(table: OrderedDict[K, V], key: K, new: V) -> V:
    """What is there, or ``new``; it is the last to be forgotten."""
    value = table.setdefault(key, new)
    table.move_to_end(key)
    while len(table) > MOST_REMEMBERED:
        table.popitem(last=False)
    return value
