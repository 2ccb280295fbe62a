"""A server as a child process: started under another account, ended with us, its last words kept."""

from __future__ import annotations

import atexit
import os
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from tests.patience import PATIENCE
from tests.servers.accounts import Account


class ServerError(Exception):
    """A server could not be found, started or stopped."""


class Server(Protocol):
    def close(self) -> None: ...


def start_process(
    command: Sequence[str | Path],
    account: Account,
    log: Path,
    *,
    death_signal: int,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Run a server; Linux sends it ``death_signal`` should this process die without a word."""
    words = [str(word) for word in command]
    if os.name == "posix":
        user, group = (-1 if number is None else number for number in (account.user, account.group))
        launcher = Path(__file__).with_name("launch.py")
        words = [
            sys.executable,
            "-I",
            "-S",
            str(launcher),
            *map(str, (user, group, int(death_signal))),
            *words,
        ]

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env={**os.environ, **(environment or {})},
                # A Ctrl-C in the terminal is for us; we stop the server after those who use it.
                start_new_session=True,
            )

    return _on_lasting_thread(start)


_requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
_thread_lock = threading.Lock()
_thread: tuple[int, threading.Thread] | None = None


def _on_lasting_thread(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Call it on a thread that lives as long as we do: for Linux the parent that dies is a *thread*."""
    global _thread
    with _thread_lock:
        if _thread is None or _thread[0] != os.getpid():
            _thread = (os.getpid(), threading.Thread(target=_serve, name="starts servers", daemon=True))
            _thread[1].start()
    answer: Future[subprocess.Popen[bytes]] = Future()
    _requests.put((start, answer))
    return answer.result(PATIENCE)


def _serve() -> None:
    while True:
        request, answer = _requests.get()
        try:
            answer.set_result(request())
        except BaseException as error:  # whoever asked is told
            answer.set_exception(error)


_running: weakref.WeakSet[Any] = weakref.WeakSet()
_owner = os.getpid()


def close_at_exit(server: Server) -> None:
    """Remember a server, so that it does not outlive us."""
    _running.add(server)


def close_all() -> None:
    """Close every server this process started and did not close."""
    if os.getpid() != _owner:  # a forked child leaves its parent's servers alone
        return
    for server in list(_running):
        server.close()


atexit.register(close_all)


def end_process(process: subprocess.Popen[bytes], number: int, patience: float = PATIENCE) -> None:
    """Signal a process and wait for its end; one that does not listen is killed, and that is an error."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(patience)
        raise ServerError(
            f"process {process.pid} did not end within {patience:.0f} s of signal {number}; it was killed"
        ) from None


def last_lines(log: Path, number: int = 20) -> str:
    """The end of a log, to be shown with an error."""
    if not log.exists():
        return f"(there is no {log})"
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-number:])


DIE_AT_ONCE = getattr(signal, "SIGQUIT", signal.SIGTERM)
