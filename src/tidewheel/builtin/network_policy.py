"""Which hosts and addresses a task may connect to.

A URL in a payload comes from whoever may enqueue, and the worker stands inside the network: without this a
job could read what only insiders reach (server-side request forgery). What counts is the address a connection
is made to, not the name it was asked for by, because whoever owns a name decides what it means, and may
decide anew between a check and its use. So names are resolved once, and connections are made to addresses.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from tidewheel.core.names import shorten
from tidewheel.errors import ConfigurationError, TaskError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_ADDRESSES: Final = 8
"""Of one name that are tried, at most."""

# IPv6 addresses that carry an IPv4 address, by its last bit: a gateway would take the packet there.
_TUNNEL_NETWORKS: Final = (
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (IPv6Network("::/96"), 0),  # compatible, long out of use
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
)
# The special-purpose registries of IANA, whole: also blocks that are called reachable there, such as anycast
# addresses of the nearest relay. Python's own table differs from version to version.
_SPECIAL_V4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared, behind a provider's NAT; Alibaba's metadata
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # in no registry: Azure tells its machines their secrets from there
            "169.254.0.0/16",  # link-local; metadata of most clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; Oracle's metadata
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # 6to4 relays, deprecated
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
_UNICAST: Final = IPv6Network("2000::/3")
"""All of IPv6 that is given to anybody on the internet; everything else is special."""
_SPECIAL_V6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks, anycast relays
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, judged by what it carries
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)


class ConnectionForbidden(TaskError):
    """The task may not connect there. Another try would not be allowed either."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="forbidden_address", retryable=False)


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """How far connections may go: hosts by name, and networks that are allowed though they are not public."""

    hosts: tuple[str, ...]
    networks: tuple[Network, ...] = ()

    @classmethod
    def from_options(cls, hosts: Collection[str], networks: Collection[str]) -> NetworkPolicy:
        """As told by whoever runs the worker; a ``ConfigurationError`` for what cannot be meant."""
        for name, given in (("allowed_hosts", hosts), ("allowed_networks", networks)):
            if isinstance(given, str):
                raise ConfigurationError(f"{name} is {shorten(given)}; give a list, such as [{given!r}]")
        return cls(
            tuple(_checked_host(host) for host in hosts),
            tuple(_checked_network(network) for network in networks),
        )

    def check_host(self, host: str) -> None:
        """Refuse a host that is on no list. ``*.example.org`` means every name below it, ``*`` any host."""
        name = host.lower().rstrip(".")
        with suppress(ValueError):
            name = str(IPv6Address(name))  # one form of many
        for allowed in self.hosts:
            if allowed in ("*", name) or (allowed.startswith("*.") and name.endswith(allowed[1:])):
                return
        raise ConnectionForbidden(f"host {shorten(host)} is not among allowed_hosts")

    def check_address(self, address: Address, host: str) -> None:
        """Refuse an address that is not public, unless it lies in one of the allowed networks."""
        for meant in _tunnelled_addresses(address):
            inside = any(meant.version == net.version and meant in net for net in self.networks)
            if not inside and not is_public(meant):
                raise ConnectionForbidden(
                    f"host {shorten(host)} is {address}, which is not a public address; "
                    "allowed_networks has to name its network"
                )

    async def resolve(self, host: str, port: int) -> list[Address]:
        """The addresses of a host that may be connected to, in the resolver's order; never an empty list."""
        self.check_host(host)
        try:
            # Also for 127.1, 0x7f000001 and other ways to write an address: the system reads them its own
            # way, so that only what comes out of this can be judged.
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise TaskError(
                f"host {shorten(host)} cannot be resolved: {error}", code="host_not_found"
            ) from None
        refusal: ConnectionForbidden | None = None
        allowed: list[Address] = []
        for *_, place in found:
            address = ip_address(str(place[0]).partition("%")[0])
            try:
                self.check_address(address, host)
            except ConnectionForbidden as error:
                refusal = error
            else:
                if address not in allowed:
                    allowed.append(address)
        if not allowed:
            raise refusal or TaskError(f"host {shorten(host)} has no address", code="host_not_found")
        return allowed[:MAX_ADDRESSES]


def is_public(address: Address) -> bool:
    """Whether everybody on the internet would reach the same place under this address."""
    if isinstance(address, IPv6Address):
        return address in _UNICAST and not any(address in network for network in _SPECIAL_V6)
    return not any(address in network for network in _SPECIAL_V4)


def _tunnelled_addresses(address: Address) -> Iterator[Address]:
    """The address, or what it carries: a packet for a carrier ends up at the carried one."""
    if isinstance(address, IPv6Address):
        for network, shift in _TUNNEL_NETWORKS:
            if address in network and int(address) > 1:  # :: and ::1 are themselves
                yield IPv4Address((int(address) >> shift) & 0xFFFF_FFFF)
                return
    yield address


def _checked_host(host: str) -> str:
    if host == "*":
        return host
    bare = host.lower().removeprefix("*.").rstrip(".") if isinstance(host, str) else ""
    with suppress(ValueError):  # as a URL has it, in the one form that it is compared in
        return str(IPv6Address(bare.removeprefix("[").removesuffix("]")))
    with suppress(UnicodeError):
        name = bare.encode("idna").decode() if not bare.isascii() else bare
        if name and not set(name) & set("*/@?#:[] \\"):
            return f"*.{name}" if host.startswith("*.") else name
    raise ConfigurationError(
        f"allowed_hosts holds {shorten(host)}; give names without a port such as files.example.org, "
        "*.example.org, or * for every public host"
    )


def _checked_network(network: str) -> Network:
    try:
        return ip_network(network)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"allowed_networks holds {shorten(network)}: {error}; give networks such as 10.1.0.0/16"
        ) from None
