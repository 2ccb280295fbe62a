"""The child's end of the socket. Any thread may send; one thread receives."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator

from tidewheel.worker.processes.messages import Frames, FromProcess, ToProcess, frame


class Channel:
    """What the worker and this process say to each other."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()
        self.open = True
        self._masks = threading.local()
        if sys.platform != "win32":
            os.register_at_fork(
                before=self._hold_signals, after_in_parent=self._let_signals_in, after_in_child=self._disown
            )

    def send(self, message: FromProcess) -> None:
        """Returns when the operating system has it, so that a crash right after this loses nothing."""
        data = frame(message)
        with self._lock:
            self._socket.sendall(data)

    def messages(self) -> Iterator[ToProcess]:
        """Everything the worker says, until it leaves or is gone."""
        frames = Frames(ToProcess)
        buffer = bytearray(65_536)
        while size := self._socket.recv_into(buffer):
            yield from frames.feed(memoryview(buffer)[:size])

    def _hold_signals(self) -> None:
        """A signal that reaches the fork before ``_disown`` would be taken for ours, and be lost."""
        if sys.platform != "win32":
            self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))

    def _let_signals_in(self) -> None:
        if sys.platform != "win32":
            signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _disown(self) -> None:
        """A handler forked. The fork must not speak for this process, nor keep its socket open; and whoever
        made it must be able to end it.
        """
        self.open = False
        self._socket.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._let_signals_in()
