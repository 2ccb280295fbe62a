"""Workers that die by SIGKILL at a given system call of a file task.

Forked from a process that has imported everything already, because each point of a sweep has a process of its
own. The part below ``serve`` runs there: it answers one line of JSON with one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import tidewheel
from tests.builtin.system_call_steps import SteppedSystem, put_in_place
from tests.patience import PATIENCE
from tidewheel import Tidewheel
from tidewheel.testing.clock import FrozenClock

START = datetime(2026, 1, 1, tzinfo=UTC)
LATER = START + timedelta(hours=1)
"""When the lease of a worker that was killed has ended."""


class Victims:
    """The way to the process that forks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, url: str, root: str, call: int, module: str = "") -> tuple[int, list[str]]:
        """Run what is due until this system call; how the process ended, and the calls it has made.

        ``module`` has the app, and is looked for in the root; without one it is an app with file tasks.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"url": url, "root": root, "call": call, "module": module}
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["status"], answer["calls"]


@contextlib.contextmanager
def victims() -> Iterator[Victims]:
    command = [sys.executable, "-m", "tests.builtin.killed_file_tasks"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Victims(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def app_at(url: str, root: str, moment: datetime) -> Tidewheel:
    app = Tidewheel(url, clock=FrozenClock(moment))
    app.include(tidewheel.builtin, roots=root)
    return app


def serve() -> None:
    for line in sys.stdin:
        question = json.loads(line)
        ear, mouth = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ear)
            _perform(question, mouth)
        os.close(mouth)
        with os.fdopen(ear) as heard:
            calls = heard.read().split()
        _, status = os.waitpid(child, 0)
        answer = {"status": os.waitstatus_to_exitcode(status), "calls": calls}
        print(json.dumps(answer), flush=True)


def _perform(question: dict[str, Any], mouth: int) -> None:
    """In the child: never returns."""

    def step(number: int, name: str, args: tuple[Any, ...]) -> None:
        os.write(mouth, f"{name}\n".encode())
        if number == question["call"]:
            if name == "write":  # killed in the middle of it
                os.write(args[0], bytes(args[1])[: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()  # it is delivered to the process, not to this thread

    status = 1
    try:
        put_in_place(SteppedSystem(step))
        asyncio.run(_run(question["url"], question["root"], question["module"]))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


async def _run(url: str, root: str, module: str) -> None:
    if not module:
        async with app_at(url, root, START) as app:
            await app.run_until_idle()
        return
    os.chdir(root)
    sys.path.insert(0, root)
    found: Tidewheel = importlib.import_module(module).app
    with found.on_store(url, clock=FrozenClock(START)):
        async with found:
            await found.run_until_idle()


if __name__ == "__main__":
    serve()
