"""Processes for one traced run each, forked from one that has imported everything already.

An interpreter's start costs half a second of a shared processor; a fork and strace's attachment to it cost
fifteen milliseconds, so every single point of a sweep can have a process of its own.

The part below ``serve`` runs in the nursery's process. It answers one line of JSON with one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tests.faults.sqlite.strace import Tracing, refused, strace
from tests.faults.sqlite.workloads import WORKLOADS, Stage, said_of
from tests.patience import PATIENCE

PR_SET_PTRACER = 0x59616D61
ANYBODY = ctypes.c_ulong(-1 & 0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a traced process ended, and what it had said until then."""

    status: int
    said: list[tuple[str, list[UUID], str]]

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    def ids(self, what: str) -> set[UUID]:
        return {job_id for said, ids, _ in self.said if said == what for job_id in ids}

    def errors(self) -> list[str]:
        return [error for what, _, error in self.said if what == "refused"]


class Nursery:
    """The way to the process that forks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, workload: str, url: str, tracing: Tracing) -> Ending:
        """Fork, attach strace where the workload says it is ready, and wait for the end of both."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {
            "workload": workload,
            "url": url,
            "log": str(tracing.log),
            "paths": list(map(str, tracing.paths)),
            "inject": list(tracing.inject),
        }
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the nursery has died"
        answer = json.loads(line)
        if answer["refused"]:
            raise refused(answer["refused"])
        return Ending(answer["status"], said_of(answer["said"]))


@contextlib.contextmanager
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.faults.sqlite.fork_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def serve() -> None:
    for line in sys.stdin:
        question = json.loads(line)
        tracing = Tracing(
            paths=tuple(map(Path, question["paths"])),
            log=Path(question["log"]),
            inject=tuple(question["inject"]),
        )
        print(json.dumps(_run(question["workload"], question["url"], tracing)), flush=True)


def _run(workload: str, url: str, tracing: Tracing) -> dict[str, object]:
    ear, mouth = os.pipe()
    go, push = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ear)
        os.close(push)
        _perform(workload, Stage(url, mouth, go))
    os.close(mouth)
    os.close(go)
    with os.fdopen(ear, "rb", buffering=0) as heard, os.fdopen(push, "wb", buffering=0) as pushed:
        try:
            before = _hear(heard.fileno(), until=b'"ready"')
            command = tracing.attach_to(child)
            with subprocess.Popen(command, env=strace()[1], stderr=subprocess.PIPE, text=True) as tracer:
                assert tracer.stderr is not None
                first = tracer.stderr.readline()
                if "attached" not in first:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    return {"refused": first + tracer.stderr.read(), "status": 0, "said": []}
                pushed.write(b"!")
                said = before + _hear(heard.fileno(), until=None)
                _, status = os.waitpid(child, 0)
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            raise
    return {"refused": "", "status": os.waitstatus_to_exitcode(status), "said": said.decode().splitlines()}


def _hear(ear: int, *, until: bytes | None) -> bytes:
    """What the child says until these words, or until its end."""
    heard = b""
    deadline = time.monotonic() + PATIENCE
    while until is None or until not in heard:
        if not select.select([ear], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"the traced process has said nothing for {PATIENCE:g} s: {heard!r}")
        part = os.read(ear, 65536)
        if not part:
            assert until is None, f"the workload ended before it was ready: {heard!r}"
            break
        heard += part
    return heard


def _perform(workload: str, stage: Stage) -> None:
    """In the child: never returns."""
    status = 1
    try:
        # Where only parents may trace (Yama), allow our sibling to.
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANYBODY, 0, 0, 0)
        asyncio.run(_awaited(workload, stage))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


async def _awaited(workload: str, stage: Stage) -> None:
    await WORKLOADS[workload](stage)


if __name__ == "__main__":
    serve()
