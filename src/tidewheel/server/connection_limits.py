"""Limits on connections: what one of them may send, how fast it must read, and how many there may be."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidewheel.core.names import shorten
from tidewheel.core.open_files import raise_file_limit
from tidewheel.errors import ConfigurationError

if TYPE_CHECKING:
    from tidewheel.server.http_connection import HttpConnection
    from tidewheel.settings import Settings

CONNECTIONS_BESIDE_STREAMS: Final = 2000
"""How many connections there may be besides event streams."""
MAX_HEAD_BYTES: Final = 8 * 1024 * 1024
"""Max bytes of heads that all connections together hold of requests whose end has not arrived."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits in force, from the settings and from the number of files the process may open."""

    header_bytes: int
    trailer_bytes: int
    pipelined_requests: int
    send_rate: int
    seconds: float
    connections: int
    connections_per_address: int
    trusted_proxies: tuple[Network, ...]

    @classmethod
    def from_settings(cls, settings: Settings) -> ConnectionLimits:
        """Read the settings, and make room for the connections as far as the system allows."""
        return cls(
            header_bytes=settings.max_header_bytes,
            trailer_bytes=settings.max_trailer_bytes,
            pipelined_requests=settings.max_pipelined_requests,
            send_rate=settings.min_send_rate,
            seconds=settings.request_seconds,
            connections=max(1, raise_file_limit(wanted_connections(settings))),
            connections_per_address=settings.max_connections_per_address,
            trusted_proxies=_networks(settings.trusted_proxies),
        )


def wanted_connections(settings: Settings) -> int:
    """How many connections a server should be able to keep open."""
    return settings.max_event_streams + CONNECTIONS_BESIDE_STREAMS


class ConnectionTable:
    """The open connections: their number per address, and which of them wait for their client.

    A connection waits from its opening, and after each answer, until the next request has arrived whole. If
    the server is full, the one that has waited longest is closed for a new one: an attacker who only holds
    connections open loses them first. A trusted proxy carries many clients, so it has no limit per address.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: dict[HttpConnection, str | None] = {}
        self._count_by_address: dict[str, int] = {}
        self._waiting: dict[HttpConnection, None] = {}  # the longest wait first
        self._heads: dict[HttpConnection, int] = {}  # bytes of unfinished requests, the oldest first
        self._head_bytes = 0

    def admit(self, connection: HttpConnection, host: str | None) -> str:
        """Count a new connection. Returns why it is refused; an empty text means that it is not."""
        limits = self.limits
        address = self._address(host)
        number = 0 if address is None else self._count_by_address.get(address, 0)
        if number >= limits.connections_per_address:
            return (
                f"{number:,} connections are open from {address}; the limit is "
                f"{limits.connections_per_address:,} "
                "(max_connections_per_address; proxies belong into trusted_proxies)"
            )
        if len(self._open) >= limits.connections:
            if not self._waiting:
                return f"{len(self._open):,} connections are open; the limit is {limits.connections:,}"
            oldest = next(iter(self._waiting))
            self.remove(oldest)
            oldest.abort_connection()
        self._open[connection] = address
        self._waiting[connection] = None
        if address is not None:
            self._count_by_address[address] = number + 1
        return ""

    def holds(self, connection: HttpConnection, size: int) -> None:
        """Note how many bytes of head an unfinished request holds; 0 when it has arrived.

        If all of them together hold too much, the oldest are closed. A request that comes as it should is
        complete within moments, so an attacker loses its connections first.
        """
        if connection not in self._open:
            return
        self._head_bytes += size - self._heads.get(connection, 0)
        if size:
            self._heads[connection] = size
        else:
            self._heads.pop(connection, None)
        while self._head_bytes > MAX_HEAD_BYTES:
            oldest = next(iter(self._heads))
            self.remove(oldest)
            oldest.abort_connection()

    def remove(self, connection: HttpConnection) -> None:
        """Stop counting a connection. Harmless if it is not counted."""
        self._head_bytes -= self._heads.pop(connection, 0)
        if connection not in self._open:
            return
        address = self._open.pop(connection)
        self._waiting.pop(connection, None)
        if address is not None:
            self._count_by_address[address] -= 1
            if not self._count_by_address[address]:
                del self._count_by_address[address]

    def mark_waiting(self, connection: HttpConnection) -> None:
        """Note that a connection waits for its client from now on."""
        if connection in self._open:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def mark_working(self, connection: HttpConnection) -> None:
        """Note that a request of the connection has arrived, and waits for the server."""
        self._waiting.pop(connection, None)

    def _address(self, host: str | None) -> str | None:
        """What connections are counted by: an IPv4 address, or the /64 network of an IPv6 address."""
        if host is None:
            return None
        try:
            address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(host)
        except ValueError:
            return host
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self.limits.trusted_proxies):
            return None
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
        return str(address)


def _networks(given: Sequence[str]) -> tuple[Network, ...]:
    networks = []
    for item in given:
        try:
            networks.append(ipaddress.ip_network(item))
        except ValueError as error:
            raise ConfigurationError(
                f"trusted_proxies has {shorten(item)}: {error}; give addresses like 10.0.0.7 or "
                "networks like 10.0.0.0/8"
            ) from None
    return tuple(networks)
