"""Listening before anything else is imported, for programs that start a beanstalkd and connect at once.

Loading the command line and the store takes a few times as long as beanstalkd needs for all. Clients that
connect meanwhile wait in the socket's queue instead of being refused. This only looks at the three options
that say where; whatever it does not understand is left to the command, which says what is wrong.
"""

import socket

from tidewheel.beanstalkd.listener import ListenAddress, listen, read_address, stop_listening

TYPE_CHECKING = False  # as type checkers know it; importing it takes as long as all of this
if TYPE_CHECKING:
    from collections.abc import Sequence

_listeners: "list[tuple[ListenAddress, socket.socket]]" = []


def listen_early(arguments: "Sequence[str]") -> None:
    """Listen where this command line says."""
    try:
        address = _address(arguments)
        if address is not None:
            _listeners.append((address, listen(address)))
    except Exception:  # the command does the same again, and tells what is wrong
        return


def take_listener(address: ListenAddress) -> "socket.socket | None":
    """The socket for just this address, if there is one. Nobody listens anywhere else after that."""
    found = None
    while _listeners:
        early, listener = _listeners.pop()
        if early == address:
            found = listener
        else:
            stop_listening(listener, early)
    return found


def close_unused_listeners() -> None:
    """The command has ended without it, because of its options or because it only tells something."""
    while _listeners:
        early, listener = _listeners.pop()
        stop_listening(listener, early)


def _address(arguments: "Sequence[str]") -> "ListenAddress | None":
    listen_on: str | None = None
    host, port = "", ""
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word in {"-h", "--help", "-v"}:
            return None
        if word == "--listen" or word.startswith("--listen="):
            listen_on = word[9:] if "=" in word else left.pop(0)
        elif word.startswith("-l"):
            host = word[2:] or left.pop(0)
        elif word.startswith("-p"):
            port = word[2:] or left.pop(0)
    if listen_on is not None:
        return read_address(listen_on)
    return read_address(host, int(port) if port else None)
