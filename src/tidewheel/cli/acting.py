"""Who uses the command line, for the audit log."""

from __future__ import annotations

import getpass
import socket

from tidewheel.access.caller import Caller, CallerKind


def operator() -> Caller:
    """The person, as far as the machine knows."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run as a number without a name
        user = "unknown"
    return Caller(CallerKind.CLI, f"cli: {user}@{socket.gethostname()}", superuser=True)
