"""Becomes a server: drops root, asks to be killed with its parent, then executes the command in its place.

Run as ``python -I -S launch.py UID GID SIGNAL COMMAND…`` (an id of -1 stays as it is). A program of its own,
because what runs between fork and exec in a process with threads may not run Python.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    user, group, death_signal = (int(argument) for argument in sys.argv[1:4])
    command = sys.argv[4:]
    if user >= 0:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
    if sys.platform == "linux":
        # After the ids, because changing them forgets it. Elsewhere a killed test run leaves servers behind.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death_signal)
    os.execv(command[0], command)  # noqa: S606 - that is what it is for


main()
