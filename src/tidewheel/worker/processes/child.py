"""The program of a process that runs handlers: started by a worker, gone when the worker is.

Started as a fresh interpreter (see ``process``) with three numbers: its end of the socket, where to leave a
traceback should it crash, and the worker's process id.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import queue
import signal
import socket
import sys
import threading
from dataclasses import replace
from types import FrameType
from typing import Any

from tidewheel.isolation import Place
from tidewheel.task import Task
from tidewheel.worker import deciding
from tidewheel.worker.processes import records
from tidewheel.worker.processes.channel import Channel
from tidewheel.worker.processes.loading import find_task
from tidewheel.worker.processes.memory import limit_of_platform
from tidewheel.worker.processes.messages import (
    OUT_OF_MEMORY,
    Answer,
    Leave,
    Load,
    Loaded,
    Prepare,
    Run,
    ShuttingDown,
    Started,
    Stop,
)
from tidewheel.worker.processes.running import JobRun, Loops

OOM_SCORE = 500
"""When the machine itself runs out of memory, Linux ends such a process rather than the worker."""
PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve one worker until it has nothing more to do."""
    descriptor, crash, parent = map(int, sys.argv[1:4])
    connection = _connect(descriptor)
    if crash >= 0:
        os.set_inheritable(crash, False)
        faulthandler.enable(crash, all_threads=False)
    else:
        faulthandler.enable()
    _end_with(parent)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what a handler printed is not lost when it is killed
    Child(Channel(connection)).serve()


class Child:
    """Takes jobs one by one."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._tasks: dict[Place, Task[..., Any]] = {}
        self._loops = Loops()
        self._memory = limit_of_platform()
        self._work: queue.SimpleQueue[Prepare | Load | JobRun | None] = queue.SimpleQueue()
        self._job: JobRun | None = None
        self._log_levels: dict[str, int] = {}

    def serve(self) -> None:
        """Work until told to leave. On the main thread."""
        self._listen_to_signals()
        threading.Thread(target=self._receive, name="tidewheel-receive", daemon=True).start()
        while (message := self._work.get()) is not None:
            match message:
                case Prepare():
                    sys.path[:] = map(os.fsdecode, message.path)
                    sys.argv[:] = map(os.fsdecode, message.arguments)
                    self._log_levels = message.log_levels
                    records.set_up(self._channel, self._log_levels)
                case Load():
                    self._channel.send(self._load(message))
                case JobRun():
                    self._run(message)
                    del message  # its job's memory goes before the next one comes
        self._loops.close()

    def _load(self, message: Load) -> Loaded:
        try:
            self._tasks[message.place] = find_task(message.place, message.store_url)
        except BaseException as error:  # a module may do anything when it is imported, leaving included
            why = deciding.describe(error)
            return Loaded(replace(why, message=f"the task could not be imported: {why.message}"))
        finally:
            records.set_up(self._channel, self._log_levels)
        return Loaded()

    def _run(self, job: JobRun) -> None:
        self._channel.send(Started())
        try:
            ended = job.run()
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # not even enough left to describe it
        self._job = None
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by whatever
                stream.flush()
        self._listen_to_signals()  # a handler may have put its own in place
        self._channel.send(ended)

    # -- beside the main thread ---------------------------------------------------------------------------

    def _receive(self) -> None:
        try:
            for message in self._channel.messages():
                match message:
                    case Prepare() | Load():
                        self._work.put(message)
                    case Run():
                        # Made here, so that it can be told to stop before it has begun.
                        task = self._tasks[message.place]
                        job = JobRun(message, task, self._channel, self._loops, self._memory)
                        self._job = job
                        self._work.put(job)
                        del job, message
                    case Leave():
                        self._work.put(None)
                        return
                    case _:
                        self._tell(message)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except BaseException:
            _die()  # the connection broke, or makes no sense
        _die()

    def _tell(self, message: Answer | Stop | ShuttingDown) -> None:
        job = self._job
        if job is None:
            return
        match message:
            case Answer():
                job.answer(message)
            case Stop():
                job.stop(requested=message.requested)
            case ShuttingDown():
                job.shutting_down = True

    def _listen_to_signals(self) -> None:
        # Functions, not SIG_IGN: programs that a handler starts would inherit that.
        signal.signal(signal.SIGINT, _leave_it_to_the_worker)
        signal.signal(signal.SIGTERM, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal wants it
        if self._job is not None:
            self._job.interrupt()


def _leave_it_to_the_worker(number: int, frame: FrameType | None) -> None:
    """Ctrl-C reaches everybody at the terminal; what it means for a job the worker says."""


def _connect(descriptor: int) -> socket.socket:
    if sys.platform == "win32":
        shared = sys.stdin.buffer.read()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        return socket.fromshare(shared)
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def _end_with(parent: int) -> None:
    """Not to outlive the worker, even while a handler holds the interpreter and no thread of ours runs."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # no such call in this C library
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
            score.write(str(OOM_SCORE))  # refused where somebody has set a higher one
    if sys.platform != "win32" and os.getppid() != parent:
        _die()


def _die() -> None:
    """The worker is gone: so is this, with everything it started."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
