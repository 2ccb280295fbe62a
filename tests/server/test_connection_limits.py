"""The table of connections: who is counted with whom, and who makes room."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from tidewheel.server.connection_limits import MAX_HEAD_BYTES, ConnectionLimits, ConnectionTable


class Line:
    """A connection that remembers whether it was hung up on."""

    def __init__(self) -> None:
        self.ended = False

    def abort_connection(self) -> None:
        self.ended = True


def table(total: int = 100, per_address: int = 100) -> ConnectionTable:
    limits = ConnectionLimits(
        header_bytes=1,
        trailer_bytes=1,
        pipelined_requests=1,
        send_rate=1,
        seconds=1,
        connections=total,
        connections_per_address=per_address,
        trusted_proxies=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")),
    )
    return ConnectionTable(limits)


def admitted(connections: ConnectionTable, number: int, host: str | None) -> list[Any]:
    lines: list[Any] = [Line() for _ in range(number)]
    return [line for line in lines if not connections.admit(line, host)]


def test_addresses_are_limited_one_by_one() -> None:
    """One that has its number takes nothing from another, and gets room again when it leaves."""
    connections = table(per_address=3)
    first = admitted(connections, 5, "192.0.2.1")
    assert len(first) == 3
    assert len(admitted(connections, 5, "192.0.2.2")) == 3
    connections.remove(first[0])
    connections.remove(first[0])
    assert len(admitted(connections, 5, "::ffff:192.0.2.1")) == 1


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    """A host can choose among 2^64 addresses."""
    connections = table(per_address=3)
    assert len(admitted(connections, 2, "2001:db8::1")) == 2
    assert len(admitted(connections, 2, "2001:db8::ffff")) == 1
    assert len(admitted(connections, 2, "2001:db8:0:1::1")) == 2


def test_trusted_proxies_have_no_limit_per_address() -> None:
    """All clients come from there, thousands of event streams among them."""
    connections = table(total=10_000, per_address=3)
    for host in ("10.1.2.3", "fd00::1", None):
        assert len(admitted(connections, 2000, host)) == 2000


def test_a_full_server_closes_what_has_waited_longest() -> None:
    """Requests that are being answered stay; with nothing but those, the new connection is refused."""
    connections = table(total=3)
    working, first, second = admitted(connections, 3, "192.0.2.1")
    connections.mark_working(working)
    connections.mark_waiting(first)  # it was heard of after the second
    assert len(admitted(connections, 1, "192.0.2.2")) == 1
    assert [line.ended for line in (working, first, second)] == [False, False, True]
    (last,) = admitted(connections, 1, "192.0.2.2")
    assert [line.ended for line in (working, first, second)] == [False, True, True]
    connections.mark_working(last)
    (other,) = admitted(connections, 1, "192.0.2.3")
    connections.mark_working(other)
    refused: Any = Line()
    assert "the limit is 3" in connections.admit(refused, "192.0.2.3")
    connections.mark_waiting(refused)  # of no account: it was never counted
    assert connections.admit(refused, "192.0.2.3")


def test_unfinished_requests_hold_a_limited_number_of_bytes_together() -> None:
    """The oldest are closed. A request that was completed, or whose connection ended, holds nothing."""
    connections = table()
    first, second, third, complete, gone = admitted(connections, 5, "192.0.2.1")
    for line in (complete, gone, first, second):
        connections.holds(line, MAX_HEAD_BYTES // 4)
    connections.holds(complete, 0)
    connections.remove(gone)
    connections.holds(gone, MAX_HEAD_BYTES)  # too late: it is not counted any more
    connections.holds(second, MAX_HEAD_BYTES // 2)
    connections.holds(third, MAX_HEAD_BYTES // 4)
    assert not any(line.ended for line in (first, second, third, complete, gone))
    connections.holds(third, MAX_HEAD_BYTES // 4 + 1)
    assert [line.ended for line in (first, second, third)] == [True, False, False]
    connections.holds(third, MAX_HEAD_BYTES // 2)
    connections.holds(complete, 1)
    assert [line.ended for line in (second, third, complete)] == [True, False, False]
