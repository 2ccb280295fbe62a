"""The program of a handler process: import the tasks, run their handlers, end with the worker.

``handler_process`` starts it as a fresh interpreter with three numbers: its end of the socket, the file
descriptor for the traceback of a crash, and the worker's process id. It takes over the worker's import path
and arguments, and finds a task by importing the modules that register it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import os
import queue
import signal
import socket
import sys
import threading
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from tidewheel.errors import ConfigurationError
from tidewheel.tasks import task_location
from tidewheel.tasks.registration import TaskRegistration
from tidewheel.tasks.task import Task
from tidewheel.tasks.task_location import MAIN, SPAWNED_MAIN, MainModule, TaskLocation
from tidewheel.worker import outcomes
from tidewheel.worker.processes import log_records
from tidewheel.worker.processes.job_run import ChildEventLoops, ChildJobRun
from tidewheel.worker.processes.memory_limit import make_memory_limit
from tidewheel.worker.processes.messages import (
    OUT_OF_MEMORY_EXIT_CODE,
    ChildChannel,
    Exit,
    Load,
    Loaded,
    Prepare,
    Reply,
    RunJob,
    ShuttingDown,
    Started,
    StopHandler,
)

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

_GUARD = (
    'the main module does its work while it is imported by the process of a task with isolation="process". '
    'Put what the program does under: if __name__ == "__main__":'
)


def find_task(place: TaskLocation, store_url: str) -> Task[..., Any]:
    """The task, after importing what registers it."""
    importlib.invalidate_caches()  # a module may have been written since this process started
    if place.main is not None:
        import_main(place.main)
    for name in place.modules:
        importlib.import_module(name)
    found = getattr(sys.modules[place.modules[-1]], place.attribute, None)
    task = found.registry.tasks.get(place.task) if isinstance(found, TaskRegistration) else found
    if not isinstance(task, Task) or task.name != place.task:
        raise ConfigurationError(
            f"importing {place.modules[-1]} did not register task {place.task!r} as it did in the worker; "
            "register it at the top level of that module, not in code that runs later"
        )
    _refuse_other_store(task.app, store_url)
    return task


def import_main(main: MainModule) -> None:
    """The program's main module under another name, so that what it guards by its name does not run."""
    if SPAWNED_MAIN in sys.modules:
        return
    module = ModuleType(SPAWNED_MAIN)
    module.__file__ = main.path
    module.__package__ = main.package
    if main.package:
        importlib.import_module(main.package)  # for relative imports
    before = sys.modules[MAIN]
    sys.modules[SPAWNED_MAIN] = sys.modules[MAIN] = module
    task_location.cannot_open_reason = _GUARD
    try:
        loader = SourceFileLoader(SPAWNED_MAIN, main.path)
        # Not exec_module: that would leave byte code of a script beside it.
        exec(loader.source_to_code(loader.get_data(main.path), main.path), module.__dict__)  # noqa: S102
    except BaseException:
        sys.modules[MAIN] = before
        del sys.modules[SPAWNED_MAIN]
        raise
    finally:
        task_location.cannot_open_reason = None


def _refuse_other_store(app: Tidewheel, store_url: str) -> None:
    """A handler that enqueues must reach the worker's store or none: never, say, the real one from a test."""
    if store_url.startswith("memory:"):
        app.cannot_open_reason = (
            "this app's store is in the memory of the worker, which the process of a task with "
            'isolation="process" cannot reach; use a database, or run the worker with isolate=False'
        )
    elif store_url != app.url:
        app.cannot_open_reason = (
            "this app's worker runs on another store than the app has in the process of a task with "
            'isolation="process"; give both the same URL, or run the worker with isolate=False'
        )
    else:
        app.cannot_open_reason = None


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
    _die_with_parent(parent)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what a handler printed is not lost when it is killed
    Child(ChildChannel(connection)).serve()


class Child:
    """Takes jobs one by one."""

    def __init__(self, channel: ChildChannel) -> None:
        self._channel = channel
        self._tasks: dict[TaskLocation, Task[..., Any]] = {}
        self._loops = ChildEventLoops()
        self._memory = make_memory_limit()
        self._work: queue.SimpleQueue[Prepare | Load | ChildJobRun | None] = queue.SimpleQueue()
        self._job: ChildJobRun | None = None
        self._log_levels: dict[str, int] = {}

    def serve(self) -> None:
        """Work until told to leave. On the main thread."""
        self._install_signal_handlers()
        threading.Thread(target=self._receive, name="tidewheel-receive", daemon=True).start()
        while (message := self._work.get()) is not None:
            match message:
                case Prepare():
                    sys.path[:] = map(os.fsdecode, message.path)
                    sys.argv[:] = map(os.fsdecode, message.arguments)
                    self._log_levels = message.log_levels
                    log_records.install_forwarder(self._channel, self._log_levels)
                case Load():
                    self._channel.send(self._load(message))
                case ChildJobRun():
                    self._run(message)
                    del message  # its job's memory goes before the next one comes
        self._loops.close()

    def _load(self, message: Load) -> Loaded:
        try:
            self._tasks[message.place] = find_task(message.place, message.store_url)
        except BaseException as error:  # a module may do anything when it is imported, leaving included
            why = outcomes.describe_exception(error)
            return Loaded(replace(why, message=f"the task could not be imported: {why.message}"))
        finally:
            log_records.install_forwarder(self._channel, self._log_levels)
        return Loaded()

    def _run(self, job: ChildJobRun) -> None:
        self._channel.send(Started())
        try:
            ended = job.run()
        except MemoryError:
            os._exit(OUT_OF_MEMORY_EXIT_CODE)  # not even enough left to describe it
        self._job = None
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by whatever
                stream.flush()
        self._install_signal_handlers()  # a handler may have put its own in place
        self._channel.send(ended)

    # -- beside the main thread ---------------------------------------------------------------------------

    def _receive(self) -> None:
        try:
            for message in self._channel.messages():
                match message:
                    case Prepare() | Load():
                        self._work.put(message)
                    case RunJob():
                        # Made here, so that it can be told to stop before it has begun.
                        task = self._tasks[message.place]
                        job = ChildJobRun(message, task, self._channel, self._loops, self._memory)
                        self._job = job
                        self._work.put(job)
                        del job, message
                    case Exit():
                        self._work.put(None)
                        return
                    case _:
                        self._send(message)
        except MemoryError:
            os._exit(OUT_OF_MEMORY_EXIT_CODE)
        except BaseException:
            _kill_group()  # the connection broke, or makes no sense
        _kill_group()

    def _send(self, message: Reply | StopHandler | ShuttingDown) -> None:
        job = self._job
        if job is None:
            return
        match message:
            case Reply():
                job.receive_reply(message)
            case StopHandler():
                job.stop(requested=message.requested)
            case ShuttingDown():
                job.shutting_down = True

    def _install_signal_handlers(self) -> None:
        # Functions, not SIG_IGN: programs that a handler starts would inherit that.
        signal.signal(signal.SIGINT, _ignore_interrupt)
        signal.signal(signal.SIGTERM, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal wants it
        if self._job is not None:
            self._job.interrupt()


def _ignore_interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C reaches everybody at the terminal; what it means for a job the worker says."""


def _connect(descriptor: int) -> socket.socket:
    if sys.platform == "win32":
        shared = sys.stdin.buffer.read()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        return socket.fromshare(shared)
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def _die_with_parent(parent: int) -> None:
    """Not to outlive the worker, even while a handler holds the interpreter and no thread of ours runs."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # no such call in this C library
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
            score.write(str(OOM_SCORE))  # refused where somebody has set a higher one
    if sys.platform != "win32" and os.getppid() != parent:
        _kill_group()


def _kill_group() -> None:
    """The worker is gone: so is this, with everything it started."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
