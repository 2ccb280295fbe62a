"""Messages between a worker and a handler process, their framing, and the child's end of the socket.

A frame is four bytes of length and a msgpack object. A handler may write to any file descriptor it finds, so
no frame is trusted: one that cannot be read ends the process, not the worker. In the child, any thread may
send and one thread receives.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tidewheel.core.model import (
    Cancelled,
    Claimed,
    Completed,
    Failed,
    JobError,
    NewStep,
    Outcome,
    Progress,
    Released,
    Retried,
    StepRecord,
)
from tidewheel.tasks.task_location import TaskLocation

MAX_FRAME_BYTES: Final = 2**31 + 2**20
"""Largest message: the largest payload or result a setting allows, and some room."""

OUT_OF_MEMORY_EXIT_CODE: Final = 77
"""Exit code of a process that could not even say that its memory limit was reached."""


class UnreadableMessage(Exception):
    """The other side sent something that is no message."""


# -- to the process ---------------------------------------------------------------------------------------


class Prepare(msgspec.Struct, tag=True, frozen=True):
    """Be as the worker is: same import path, same arguments, same levels of logging."""

    path: list[bytes]  # of file names, which need not be text
    arguments: list[bytes]
    log_levels: dict[str, int]


class Load(msgspec.Struct, tag=True, frozen=True):
    """Import what this task needs. ``store_url`` is the worker's store."""

    place: TaskLocation
    store_url: str


class RunJob(msgspec.Struct, tag=True, frozen=True):
    """Run a job. Its task has been loaded before."""

    job: Claimed
    place: TaskLocation
    max_result_bytes: int
    memory_limit: int | None
    shutting_down: bool
    worker: str


class Reply(msgspec.Struct, tag=True, frozen=True):
    """To a report or a question: whether the lease held, or why the store could not be asked."""

    number: int
    accepted: bool = False
    error: str | None = None
    steps: tuple[StepRecord, ...] = ()


class StopHandler(msgspec.Struct, tag=True, frozen=True):
    """The handler must end: cancelled, or out of time."""

    requested: bool = False  # by somebody who cancelled the job


class ShuttingDown(msgspec.Struct, tag=True, frozen=True):
    """The worker has been told to stop."""


class Exit(msgspec.Struct, tag=True, frozen=True):
    """There is nothing more to do: end in peace."""


# -- from the process -------------------------------------------------------------------------------------


class Loaded(msgspec.Struct, tag=True, frozen=True):
    """The task can be run; or why not."""

    error: JobError | None = None


class Started(msgspec.Struct, tag=True, frozen=True):
    """The job has arrived; what happens to the process from now on is its doing."""


class Reported(msgspec.Struct, tag=True, frozen=True):
    """What the handler wants remembered under the job's lease."""

    number: int
    progress: Progress | None
    checkpoint: bytes | None
    step: NewStep | None


class StepsRequested(msgspec.Struct, tag=True, frozen=True):
    """The handler comes to its first step, and wants to know which ones earlier runs have finished."""

    number: int


class Logged(msgspec.Struct, tag=True, frozen=True):
    """A log record: its attributes, without what only Python objects can carry."""

    attributes: dict[str, Any]


class Ended(msgspec.Struct, tag=True, frozen=True):
    """The handler ended; no outcome when it was stopped. ``needs_restart``: this process should not be used
    again.
    """

    kind: str | None
    outcome: bytes = b""
    needs_restart: bool = False

    @classmethod
    def from_outcome(cls, outcome: Outcome | None, *, worn: bool) -> Ended:
        if outcome is None:
            return cls(None, needs_restart=worn)
        return cls(type(outcome).__name__, _encoder.encode(outcome), worn)

    def read(self) -> Outcome | None:
        if self.kind is None:
            return None
        try:
            return _outcomes[self.kind].decode(self.outcome)
        except (KeyError, msgspec.MsgspecError) as error:
            raise UnreadableMessage(f"an outcome of kind {self.kind!r}: {error}") from None


ToProcess = Prepare | Load | RunJob | Reply | StopHandler | ShuttingDown | Exit
ChildRequest = Reported | StepsRequested
FromProcess = Loaded | Started | ChildRequest | Logged | Ended

_length = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()
_outcomes: Final[dict[str, msgspec.msgpack.Decoder[Outcome]]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind) for kind in (Completed, Retried, Failed, Released, Cancelled)
}


def encode_frame(message: ToProcess | FromProcess) -> bytes:
    """A message as it goes over the socket."""
    body = _encoder.encode(message)
    return _length.pack(len(body)) + body


class FrameDecoder:
    """Cuts what arrives into messages."""

    def __init__(self, kinds: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kinds)
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Any]:
        """The messages that are complete now; ``UnreadableMessage`` when these are none."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _length.size:
            (size,) = _length.unpack_from(buffer)
            if size > MAX_FRAME_BYTES:
                raise UnreadableMessage(f"a message of {size:,} bytes; the limit is {MAX_FRAME_BYTES:,}")
            end = _length.size + size
            if len(buffer) < end:
                return
            body = bytes(memoryview(buffer)[_length.size : end])
            del buffer[:end]
            try:
                message = self._decoder.decode(body)
            except msgspec.MsgspecError as error:
                raise UnreadableMessage(str(error)) from None
            yield message


class ChildChannel:
    """What the worker and this process say to each other."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()
        self.open = True
        self._masks = threading.local()
        if sys.platform != "win32":
            os.register_at_fork(
                before=self._block_signals,
                after_in_parent=self._unblock_signals,
                after_in_child=self._close_in_fork,
            )

    def send(self, message: FromProcess) -> None:
        """Returns when the operating system has it, so that a crash right after this loses nothing."""
        data = encode_frame(message)
        with self._lock:
            self._socket.sendall(data)

    def messages(self) -> Iterator[ToProcess]:
        """Everything the worker says, until it leaves or is gone."""
        frames = FrameDecoder(ToProcess)
        buffer = bytearray(65_536)
        while size := self._socket.recv_into(buffer):
            yield from frames.feed(memoryview(buffer)[:size])

    def _block_signals(self) -> None:
        """A signal that reaches the fork before ``_close_in_fork`` would be taken for ours, and be lost."""
        if sys.platform != "win32":
            self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))

    def _unblock_signals(self) -> None:
        if sys.platform != "win32":
            signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _close_in_fork(self) -> None:
        """A handler forked. The fork must not speak for this process, nor keep its socket open; and whoever
        made it must be able to end it.
        """
        self.open = False
        self._socket.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._unblock_signals()
