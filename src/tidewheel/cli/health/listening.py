"""Where to listen, and the socket for it."""

from __future__ import annotations

import os
import socket
from typing import Final

from tidewheel.errors import ConfigurationError

LOOPBACK: Final = "127.0.0.1"
BACKLOG: Final = 1024
"""Connections that wait to be accepted. One too many is tried again by its kernel after a second, and that is
how long probes of Kubernetes wait."""


def listen(text: str) -> socket.socket:
    """A socket at ``PORT``, ``HOST:PORT`` or ``[IPV6]:PORT``; without a host nobody else can reach it."""
    host, port = _read(text)
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":  # elsewhere it would let two programs share a port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:  # the second: no host can have this name
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"cannot listen on {text!r} for questions about health: {reason}; choose another with "
            "--health-listen"
        ) from None
    return listener


def place_of(listener: socket.socket) -> str:
    """``127.0.0.1:9090``, with the port that was chosen for port 0."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _read(text: str) -> tuple[str, int]:
    text = text.strip()
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:  # an IPv6 address, and nobody can tell where it ends
        port = ""
    if not colon:
        host, port = "", text
    if not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(
            f"health_listen is {text[:100]!r}; give PORT, HOST:PORT or [IPV6]:PORT, with a port of 0 to 65535"
        )
    return host or LOOPBACK, int(port)
