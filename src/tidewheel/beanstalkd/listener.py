"""Where to listen, and the socket for it. Imports little, so that a command can listen before all else."""

import errno
import os
import socket
import stat

TYPE_CHECKING = False  # as type checkers know it; importing it takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from tidewheel.errors import ConfigurationError

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 11300
BACKLOG = 1024
"""Connections that wait to be accepted."""


class ListenAddress:
    """A host and a port, or the path of a socket on this machine."""

    __slots__ = ("host", "path", "port")

    def __init__(self, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT, path: str = "") -> None:
        self.host = host
        self.port = port
        self.path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListenAddress) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"<Address {self}>"

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return bool(self.path) or self.host in {"localhost", "::1"} or self.host.startswith("127.")


def read_address(text: str, port: "int | None" = None) -> ListenAddress:
    """``HOST``, ``HOST:PORT``, ``[IPV6]:PORT`` or ``unix:PATH``. ``port``: where the text has none."""
    if text.startswith("unix:"):
        if not text.removeprefix("unix:"):
            raise _configuration_error(
                "the address is 'unix:' without a path; give one, as in unix:/run/queue.sock"
            )
        return ListenAddress(path=text.removeprefix("unix:"))
    given = DEFAULT_PORT if port is None else port
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise _unreadable(text)
        return ListenAddress(host, _read_port(text, rest[1:]) if rest else given)
    if text.count(":") == 1:
        host, _, rest = text.partition(":")
        return ListenAddress(host or DEFAULT_HOST, _read_port(text, rest))
    return ListenAddress(text or DEFAULT_HOST, given)  # two colons or more: an IPv6 address without a port


def _read_port(text: str, port: str) -> int:
    if not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise _unreadable(text)
    return int(port)


def _unreadable(text: str) -> "ConfigurationError":
    return _configuration_error(
        f"the address is {text!r}; give HOST:PORT, [IPV6]:PORT or unix:PATH, with a port of 0 to 65535"
    )


def listen(address: ListenAddress) -> socket.socket:
    """A socket that clients can connect to from now on; they wait until somebody accepts them."""
    try:
        return _listen_on_path(address.path) if address.path else _listen_on_port(address)
    except (OSError, UnicodeError) as error:  # the second: no host can have this name
        reason = getattr(error, "strerror", None) or error
        raise _configuration_error(
            f"cannot listen on {address}: {reason}; choose another with --listen"
        ) from None


def _listen_on_port(address: ListenAddress) -> socket.socket:
    # As bytes where that is possible: for text Python loads all it knows about names in other alphabets.
    host = address.host.encode() if address.host.isascii() else address.host
    *others, last = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for place in others:
        try:
            return _listen_at(place)
        except OSError as error:
            # A name may have an IPv6 address that this machine cannot use, and another after it. But where
            # somebody else listens at the first, he gets the clients.
            if error.errno == errno.EADDRINUSE:
                raise
    return _listen_at(last)


def _listen_at(place: "tuple[int, int, int, str, Any]") -> socket.socket:
    family, kind, protocol, _, where = place
    # With its protocol named: asyncio turns Nagle's algorithm off for such sockets only.
    listener = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Whoever vanished without a word is noticed in the end, and its jobs are given back.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _listen_on_path(path: str) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise _configuration_error(f"there are no sockets like unix:{path} on this system; give HOST:PORT")
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _clear(path: str) -> None:
    """Remove the socket of a server that is gone; never one that still serves, nor another file."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise _configuration_error(f"{path} is there and no socket; give another path")
        if not _serves(path):
            os.unlink(path)
            return
    except FileNotFoundError:
        return
    raise _configuration_error(f"another server listens on unix:{path}; stop it, or give another path")


def _serves(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # one that accepts nobody for now has a full queue, and is alive
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            return True
    return True


def bound_address(listener: socket.socket, address: ListenAddress) -> ListenAddress:
    """Where it listens, with the port that was chosen for port 0."""
    return address if address.path else ListenAddress(*listener.getsockname()[:2])


def stop_listening(listener: socket.socket, address: ListenAddress) -> None:
    """Close it, and leave no socket behind at a path: unless somebody else listens there by now."""
    listener.close()
    if not address.path:
        return
    try:
        if stat.S_ISSOCK(os.stat(address.path).st_mode) and not _serves(address.path):
            os.unlink(address.path)
    except (
        OSError
    ):  # it is gone, or in a directory of root's and we are not root any more: the next start does it
        return


def _configuration_error(message: str) -> "ConfigurationError":
    from tidewheel.errors import ConfigurationError

    return ConfigurationError(message)
