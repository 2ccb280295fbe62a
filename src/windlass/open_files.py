"""How many files this process may have open: each connection is one."""

from __future__ import annotations

import sys

OWN_FILES = 200
"""What a server has open besides connections: its database, its log, its modules."""


def allow_connections(wanted: int) -> int:
    """Make room for so many connections, as far as the system lets us; for how many there is."""
    if sys.platform == "win32":
        return wanted  # there is no such limit
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OWN_FILES
    if soft not in (resource.RLIM_INFINITY, -1) and soft < needed:
        # Programs start with a low one for the sake of old ones that cannot count beyond it.
        soft = needed if hard in (resource.RLIM_INFINITY, -1) else min(needed, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (OSError, ValueError):  # macOS has a second limit, which it does not tell
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft in (resource.RLIM_INFINITY, -1):
        return wanted
    return min(wanted, max(0, soft - OWN_FILES))
