"""One handler process, seen from the worker: start it, exchange messages with it, end it.

The process is a fresh interpreter, as similar to this one as possible. It is never a fork: a copy would keep
the locks that this process's threads and event loops hold. Everything here runs on the worker's event loop,
the start included: Linux ends the process together with the *thread* that started it, so that thread must
live as long as the worker. Only this module waits for the process, so its id cannot belong to another process
when it is signalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, cast

from tidewheel.errors import ConfigurationError, StoreError
from tidewheel.tasks.task_location import TaskLocation
from tidewheel.worker.active_jobs import StopReason
from tidewheel.worker.async_waits import retrieve_exception
from tidewheel.worker.outcomes import MAX_TRACEBACK_LENGTH
from tidewheel.worker.processes import log_records, messages
from tidewheel.worker.processes.messages import (
    ChildRequest,
    Ended,
    Exit,
    FrameDecoder,
    FromProcess,
    Load,
    Loaded,
    Logged,
    Prepare,
    Reply,
    Reported,
    RunJob,
    Started,
    StepsRequested,
    ToProcess,
    UnreadableMessage,
    encode_frame,
)

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
    root = str(Path(__file__).parents[3])
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


STOP_GRACE_SECONDS: Final = {
    StopReason.CANCEL: (2.0, 1.0),
    StopReason.TIMEOUT: (2.0, 1.0),
    StopReason.SHUTDOWN: (0.3, 0.4),
}
"""Seconds a handler has to obey before SIGTERM interrupts it, and then to clean up before it is killed. At a
worker's end they are few: there handlers were given time before."""
EXIT_GRACE_SECONDS: Final = 2.0
"""How long a process that is not needed any more may take to end."""
REAP_TIMEOUT_SECONDS: Final = 1.0
"""How long a process that has closed its end of the socket may take to end."""

_log = logging.getLogger("tidewheel.worker")

ReplyToChild = Callable[[ChildRequest], Awaitable[Reply]]


class ProcessDied(Exception):
    """The process ended before it was done."""

    def __init__(self, pid: int, code: int, crash: str, fault: str | None) -> None:
        self.code = code
        self.crash = crash
        if fault is not None:
            how = f"was killed by its worker because it {fault}"
        elif code >= 0:
            how = f"ended with exit code {code} before the handler did"
        else:
            name = _signal_name(-code)
            how = f"was killed by {name}"
            if name == "SIGKILL":
                how += "; not by its worker, so perhaps because the machine ran out of memory"
        super().__init__(f"the process of this handler ({pid}) {how}")


class HandlerProcess(asyncio.Protocol):
    """One interpreter that runs handlers, one at a time."""

    def __init__(self, popen: subprocess.Popen[bytes], crash: int, loop: asyncio.AbstractEventLoop) -> None:
        self.pid = popen.pid
        self.loaded: set[TaskLocation] = set()
        self.jobs = 0
        self.started = False  # the job it was given last has arrived there
        self.stop_requested = False
        self.exiting = False
        self.exited: asyncio.Future[ProcessDied] = loop.create_future()
        self._popen = popen
        self._reaping = False
        self._crash = crash
        self._loop = loop
        self._transport: asyncio.WriteTransport | None = None
        self._frames = FrameDecoder(FromProcess)
        self._answer: asyncio.Future[Any] | None = None  # to what was asked last: Loaded or Ended
        self._answering: ReplyToChild | None = None
        self._fault: str | None = None  # why it had to be killed, when nobody asked for that
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, loop: asyncio.AbstractEventLoop) -> HandlerProcess:
        """A fresh interpreter, as like to this one as can be; ``OSError`` when there is none to be had."""
        ours, theirs = socket.socketpair()
        try:
            popen, crash = start_interpreter(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        process = cls(popen, crash, loop)
        try:
            ours.setblocking(False)
            await loop.create_connection(lambda: process, sock=ours)
        except BaseException:
            ours.close()
            process.kill()
            process.connection_lost(None)
            raise
        path, arguments = ([os.fsencode(str(item)) for item in items] for items in (sys.path, sys.argv))
        process.send(Prepare(path, arguments, log_records.logger_levels()))
        return process

    # -- work ---------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and not self._exited()

    async def load(self, place: TaskLocation, store_url: str) -> Loaded:
        """Have a task imported; ``ProcessDied`` when the process does not survive it."""
        loaded: Loaded = await self._ask(Load(place, store_url))
        if loaded.error is None:
            self.loaded.add(place)
        return loaded

    def run(self, message: RunJob, answering: ReplyToChild) -> asyncio.Future[Ended]:
        """Start a job. The answer comes when its handler has ended, or is ``ProcessDied``."""
        self._answering = answering
        self.jobs += 1
        self.started = False
        return self._ask(message)

    def _ask(self, message: ToProcess) -> asyncio.Future[Any]:
        answer = self._answer = self._loop.create_future()
        answer.add_done_callback(retrieve_exception)
        if self.exited.done():
            answer.set_exception(self.exited.result())
        else:
            self.send(message)
        return answer

    def send(self, message: ToProcess) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(message))

    # -- its end ------------------------------------------------------------------------------------------

    def stop(self, why: StopReason) -> None:
        """End the handler: politely, then firmly. The process is not to be used afterwards."""
        if why is StopReason.LOST:
            self.kill()  # somebody else may be running this job already
            return
        if not self.stop_requested:
            self.stop_requested = True
            self.send(messages.StopHandler(requested=why is StopReason.CANCEL))
        obey, clean_up = STOP_GRACE_SECONDS[why]
        self._timers.append(self._loop.call_later(obey, self._terminate))
        self._timers.append(self._loop.call_later(obey + clean_up, self.kill))

    def request_exit(self) -> None:
        """Not needed any more."""
        self.exiting = True
        self.send(Exit())
        self._timers.append(self._loop.call_later(EXIT_GRACE_SECONDS, self.kill))

    def _terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """At once, with everything it started."""
        self._kill_group()
        self._signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.exited.done():
            return
        if sys.platform == "win32":
            self._popen.terminate()  # the only way to end one there
        else:
            with contextlib.suppress(ProcessLookupError):  # somebody else has waited for it
                os.kill(self.pid, number)  # not by Popen, which would reap it on the way

    def _kill_group(self) -> None:
        if sys.platform != "win32" and not self.exited.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody left
                os.killpg(self.pid, signal.SIGKILL)

    def _exited(self) -> bool:
        """Whether it has ended. If possible it is not reaped yet: its group can then still be signalled."""
        if sys.platform == "linux" and self._popen.returncode is None:
            try:
                return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            except ChildProcessError:  # somebody else in this program waits for every child
                return True
        return self._popen.poll() is not None

    def _reap(self, deadline: float) -> None:
        """Called again until it has ended. No task: an event loop that ends would cancel it, too soon."""
        if not self._exited():
            if self._loop.time() >= deadline:
                self._fault = self._fault or "closed its connection"
                self.kill()
            self._loop.call_later(0.01, self._reap, deadline)
            return
        self._kill_group()
        code = self._popen.wait()
        for timer in self._timers:
            timer.cancel()
        died = ProcessDied(self.pid, code, self._take_crash(), self._fault)
        self.exited.set_result(died)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(died)

    def _take_crash(self) -> str:
        """What Python's fault handler left, if it was a crash."""
        crash, self._crash = self._crash, -1
        if crash < 0:
            return ""
        text = b""
        # Not blocking: something that the process started may hold the other end open.
        with contextlib.suppress(BlockingIOError):
            while len(text) < MAX_TRACEBACK_LENGTH and (piece := os.read(crash, MAX_TRACEBACK_LENGTH)):
                text += piece
        os.close(crash)
        return text[:MAX_TRACEBACK_LENGTH].decode("utf-8", "replace").replace("\x00", "")

    # -- what asyncio calls -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's have no common base

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._frames.feed(data):
                self._received(message)
        except UnreadableMessage as error:
            _log.error("process %d sent what cannot be read and is killed: %s", self.pid, error)
            self._fault = "sent something unreadable"
            self.kill()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - how does not matter
        if not self._reaping:  # a start that is cancelled calls this, and so may asyncio
            self._reaping = True
            self._reap(self._loop.time() + REAP_TIMEOUT_SECONDS)

    def _received(self, message: FromProcess) -> None:
        match message:
            case Reported() | StepsRequested():
                task = self._loop.create_task(self._forward_request(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Started():
                self.started = True
            case Logged():
                log_records.log_forwarded_record(message.attributes)
            case _:
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(message)

    async def _forward_request(self, message: ChildRequest) -> None:
        answer = Reply(message.number)
        try:
            if self._answering is not None:
                answer = await self._answering(message)
        except StoreError as error:
            answer = Reply(message.number, error=str(error))
        self.send(answer)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
