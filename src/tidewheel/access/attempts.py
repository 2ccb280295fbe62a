"""Login throttle: a few free attempts, then delays that double.

Two limits apply. The limit per client address is strict; IPv6 addresses count by their /64, which is what one
client has. The limit per user name is loose, because anyone who knows a name could otherwise lock its owner
out; it only stops guessing from many addresses. A client that has logged in before from the same address
skips the limit per name.

A delay begins when an attempt has ended: a server that takes longer for a password than a delay lasts would
otherwise have no delays.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from tidewheel.clock import Clock
from tidewheel.errors import TooManyAttempts

INITIAL_DELAY_SECONDS: Final = 1.0
RESET_AFTER_SECONDS: Final = 3600.0
MAX_TRACKED: Final = 10_000
"""Max entries per limit; the least recently used is dropped first."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ThrottleLimit:
    """Failures allowed without delay, and the longest delay after that."""

    free_failures: int
    max_delay_seconds: float


PER_ADDRESS: Final = ThrottleLimit(5, 300.0)
PER_NAME: Final = ThrottleLimit(20, 10.0)


def client_of(address: str) -> str:
    """Return what one client has of an address: all of IPv4, the /64 of IPv6. Other texts stay."""
    return _network(address, 32)


def neighbourhood_of(address: str | None) -> str:
    """Return the network that shares a place in the login queue: the /24 of IPv4, the /64 of IPv6."""
    return "" if address is None else _network(address, 24)


def _network(address: str, ipv4_bits: int) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    bits = 64 if found.version == 6 else ipv4_bits
    return str(ipaddress.ip_network((found, bits), strict=False))


@dataclass(slots=True)
class _Failures:
    limit: ThrottleLimit
    number: int = 0
    free_at: float = 0.0
    last_at: float = 0.0

    def delay(self, now: float) -> None:
        """Let the next attempt wait, if there were too many."""
        excess = self.number - self.limit.free_failures
        if excess >= 0:
            seconds = min(INITIAL_DELAY_SECONDS * 2 ** min(excess, 20), self.limit.max_delay_seconds)
            self.free_at = max(self.free_at, now + seconds)


class Attempts:
    """Failed logins by name and by address, in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: OrderedDict[str, _Failures] = OrderedDict()
        self._by_address: OrderedDict[str, _Failures] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def begin(self, name: str, address: str | None) -> Attempt:
        """Count an attempt as failed until it has succeeded: a thousand at once are a thousand."""
        now = self._clock.monotonic()
        client = None if address is None else client_of(address)
        found = list(self._found(name, client))
        wait = max((one.free_at - now for one in found), default=0.0)
        if wait > 0:
            raise TooManyAttempts(wait)
        for one in found:
            if now - one.last_at > RESET_AFTER_SECONDS:
                one.number = 0
            one.number += 1
            one.last_at = now
            one.delay(now)
        return Attempt(self, name, client, tuple(found))

    def is_known(self, name: str, address: str | None) -> bool:
        """Return whether this name has logged in from this address before."""
        return address is not None and (name, client_of(address)) in self._known

    def _found(self, name: str, client: str | None) -> Iterator[_Failures]:
        if client is not None:
            yield _remember(self._by_address, client, _Failures(PER_ADDRESS))
        if client is None or (name, client) not in self._known:
            yield _remember(self._by_name, name, _Failures(PER_NAME))

    def _failed(self, counted: tuple[_Failures, ...]) -> None:
        now = self._clock.monotonic()
        for one in counted:
            one.last_at = now
            one.delay(now)

    def _succeeded(self, name: str, client: str | None) -> None:
        self._by_name.pop(name, None)
        if client is None:
            return
        _remember(self._known, (name, client), None)
        failures = self._by_address.get(client)
        if failures is not None:
            failures.number -= 1
            failures.free_at = 0.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One login that is being tried."""

    _attempts: Attempts
    _name: str
    _client: str | None
    _counted: tuple[_Failures, ...]

    def failed(self) -> None:
        """It was not the password: delays are counted from now."""
        self._attempts._failed(self._counted)

    def succeeded(self) -> None:
        """It was the password. Other names that were tried from this address stay counted there."""
        self._attempts._succeeded(self._name, self._client)

    def withdrawn(self) -> None:
        """The password was not looked at, so nothing was guessed."""
        for one in self._counted:
            one.number -= 1


def _remember(table: OrderedDict[K, V], key: K, new: V) -> V:
    """What is there, or ``new``; it is the last to be dropped."""
    value = table.setdefault(key, new)
    table.move_to_end(key)
    while len(table) > MAX_TRACKED:
        table.popitem(last=False)
    return value
