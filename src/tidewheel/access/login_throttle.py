"""Login throttle: a few free attempts, then delays that double, and a bounded queue.

The limit per address (/64 for IPv6) is strict. The limit per user name is loose: it stops guessing from many
addresses, but must not lock the owner out. A client with an earlier login from its address skips it.
A delay starts when an attempt ends, because a password check can take longer than the delay.
A hash takes 64 MiB and 0.1 s, two at a time: unbounded, 1,500 logins from 300 addresses would delay all by
minutes. Known clients go first; others queue by network, in turn. If the queue is full, the network with the
most logins gives way, or the new login is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from tidewheel.access.passwords import MAX_CONCURRENT_HASHES
from tidewheel.core.clock import Clock
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


def client_network(address: str) -> str:
    """Return what one client has of an address: all of IPv4, the /64 of IPv6. Other texts stay."""
    return _network(address, 32)


def queue_network(address: str | None) -> str:
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
    count: int = 0
    allowed_at: float = 0.0
    last_at: float = 0.0

    def start_delay(self, now: float) -> None:
        """Let the next attempt wait, if there were too many."""
        excess = self.count - self.limit.free_failures
        if excess >= 0:
            seconds = min(INITIAL_DELAY_SECONDS * 2 ** min(excess, 20), self.limit.max_delay_seconds)
            self.allowed_at = max(self.allowed_at, now + seconds)


class LoginThrottle:
    """Failed logins by name and by address, in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: OrderedDict[str, _Failures] = OrderedDict()
        self._by_address: OrderedDict[str, _Failures] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def begin(self, name: str, address: str | None) -> LoginAttempt:
        """Count an attempt as failed until it has succeeded: a thousand at once are a thousand."""
        now = self._clock.monotonic()
        client = None if address is None else client_network(address)
        found = list(self._found(name, client))
        wait = max((one.allowed_at - now for one in found), default=0.0)
        if wait > 0:
            raise TooManyAttempts(wait)
        for one in found:
            if now - one.last_at > RESET_AFTER_SECONDS:
                one.count = 0
            one.count += 1
            one.last_at = now
            one.start_delay(now)
        return LoginAttempt(self, name, client, tuple(found))

    def is_known(self, name: str, address: str | None) -> bool:
        """Return whether this name has logged in from this address before."""
        return address is not None and (name, client_network(address)) in self._known

    def _found(self, name: str, client: str | None) -> Iterator[_Failures]:
        if client is not None:
            yield _touch(self._by_address, client, _Failures(PER_ADDRESS))
        if client is None or (name, client) not in self._known:
            yield _touch(self._by_name, name, _Failures(PER_NAME))

    def _failed(self, counted: tuple[_Failures, ...]) -> None:
        now = self._clock.monotonic()
        for one in counted:
            one.last_at = now
            one.start_delay(now)

    def _succeeded(self, name: str, client: str | None) -> None:
        self._by_name.pop(name, None)
        if client is None:
            return
        _touch(self._known, (name, client), None)
        failures = self._by_address.get(client)
        if failures is not None:
            failures.count -= 1
            failures.allowed_at = 0.0


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One login that is being tried."""

    _throttle: LoginThrottle
    _name: str
    _client: str | None
    _counted: tuple[_Failures, ...]

    def mark_failed(self) -> None:
        """It was not the password: delays are counted from now."""
        self._throttle._failed(self._counted)

    def mark_succeeded(self) -> None:
        """It was the password. Other names that were tried from this address stay counted there."""
        self._throttle._succeeded(self._name, self._client)

    def withdraw(self) -> None:
        """The password was not looked at, so nothing was guessed."""
        for one in self._counted:
            one.count -= 1


def _touch(table: OrderedDict[K, V], key: K, new: V) -> V:
    """What is there, or ``new``; it is the last to be dropped."""
    value = table.setdefault(key, new)
    table.move_to_end(key)
    while len(table) > MAX_TRACKED:
        table.popitem(last=False)
    return value


MAX_WAITING_LOGINS: Final = 32
"""Max logins that wait: of unknown clients, and as many of known ones."""
RETRY_AFTER_SECONDS: Final = 5.0
"""When a refused client should come back."""

_Queue = deque["asyncio.Future[None]"]


class LoginQueue:
    """Logins that wait for their turn. For one event loop."""

    def __init__(self) -> None:
        self._running = 0
        self._known: _Queue = deque()
        self._unknown_by_network: OrderedDict[str, _Queue] = OrderedDict()  # by network, the next one first

    @asynccontextmanager
    async def turn(self, network: str, *, known: bool) -> AsyncIterator[None]:
        """Wait for a turn and hold it. ``TooManyAttempts`` if there is no room to wait."""
        if self._running < MAX_CONCURRENT_HASHES:
            self._running += 1
        else:
            await self._wait(network, known=known)
        try:
            yield
        finally:
            self._release_turn()

    @property
    def waiting(self) -> int:
        return len(self._known) + sum(map(len, self._unknown_by_network.values()))

    async def _wait(self, network: str, *, known: bool) -> None:
        queue = self._known if known else self._unknown_by_network.get(network, deque())
        if known:
            if len(queue) >= MAX_WAITING_LOGINS:
                raise TooManyAttempts(RETRY_AFTER_SECONDS)
        else:
            self._make_room(len(queue))
            queue = self._unknown_by_network.setdefault(network, queue)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._release_turn()  # it had the turn already
            elif turn in queue:
                queue.remove(turn)
                if not known and not queue:
                    del self._unknown_by_network[network]
            raise

    def _make_room(self, own: int) -> None:
        """Refuse the newest login of the network with the most, if that leaves it more than the new one's."""
        if sum(map(len, self._unknown_by_network.values())) < MAX_WAITING_LOGINS:
            return
        longest = max(self._unknown_by_network.values(), key=len)
        if len(longest) <= own + 1:
            raise TooManyAttempts(RETRY_AFTER_SECONDS)
        refused = longest.pop()
        if not refused.done():  # else it is being cancelled
            refused.set_exception(TooManyAttempts(RETRY_AFTER_SECONDS))

    def _release_turn(self) -> None:
        """Give the turn to the next that waits."""
        turn = self._next()
        while turn is not None and turn.done():  # it is being cancelled
            turn = self._next()
        if turn is None:
            self._running -= 1
        else:
            turn.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        if self._known:
            return self._known.popleft()
        if not self._unknown_by_network:
            return None
        network, queue = self._unknown_by_network.popitem(last=False)
        turn = queue.popleft()
        if queue:
            self._unknown_by_network[network] = queue  # behind the other networks
        return turn
