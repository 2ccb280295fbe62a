"""Starting a fresh interpreter for handlers, as like to this one as can be.

Never a fork: this process has threads and event loops, and what they hold would be held for ever in a copy.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import tidewheel
from tidewheel.errors import ConfigurationError

_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv.pop()); from tidewheel.worker.processes.child import main; main()"
)
"""The last argument is where Tidewheel is: the worker may have found it in a place of its own."""


def start_interpreter(connection: socket.socket) -> tuple[subprocess.Popen[bytes], int]:
    """The interpreter, and where its fault handler's last words can be read (-1: nowhere)."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise ConfigurationError(
            'isolation="process" starts a Python interpreter, and this program has none of its own; '
            "run the worker with Python itself"
        )
    root = str(Path(tidewheel.__file__).parents[1])
    # What multiprocessing uses, too: -X, -W, -O and the like go along.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    if sys.platform == "win32":
        return _start_on_windows(connection, [*flags, "-P", "-c", _PROGRAM, "-1", "-1"], root)
    reader, writer = os.pipe()
    try:
        os.set_blocking(reader, False)
        numbers = (connection.fileno(), writer)
        popen = subprocess.Popen(  # noqa: S603 - our own interpreter
            # -P: nothing is imported from the working directory before the worker's own path is known.
            [sys.executable, *flags, "-P", "-c", _PROGRAM, *map(str, numbers), str(os.getpid()), root],
            stdin=subprocess.DEVNULL,
            pass_fds=numbers,
            # A group of its own: Ctrl-C does not reach it, and what it starts can be killed with it.
            process_group=0,
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return popen, reader


def _start_on_windows(
    connection: socket.socket, arguments: list[str], root: str
) -> tuple[subprocess.Popen[bytes], int]:
    # The base interpreter: that of a virtual environment starts another one, whose id we would not know.
    executable = getattr(sys, "_base_executable", sys.executable)
    popen = subprocess.Popen(  # noqa: S603 - our own interpreter
        [executable, *arguments, str(os.getpid()), root],
        stdin=subprocess.PIPE,
        env={**os.environ, "__PYVENV_LAUNCHER__": sys.executable},
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
    share: Callable[[int], bytes] = connection.share  # type: ignore[attr-defined,unused-ignore]
    with popen.stdin or contextlib.nullcontext() as stdin:
        if stdin is not None:
            stdin.write(share(popen.pid))
    return popen, -1
