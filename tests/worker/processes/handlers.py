"""Tasks that run in processes of their own, which import them from here."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE
from tidewheel import (
    Cancel,
    Context,
    Fail,
    Retry,
    RetryAfter,
    SecurityContext,
    Snooze,
    TaskError,
    Tidewheel,
)

app = Tidewheel(
    "memory://", lease=2, poll_interval=0.05, max_payload_bytes=20_000_000, max_result_bytes=20_000_000
)

once = Retry.fixed(0)
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")


class Odd(Exception):
    retryable = False


@app.task(isolation="process")
def pid() -> int:
    return os.getpid()


@app.task(isolation="process")
async def pid_of_async() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@app.task
async def neighbour(mark: str, until: str) -> str:
    """In the worker itself: started when ``mark`` is there, finished when ``until`` is."""
    Path(mark).touch()
    while not Path(until).exists():
        await asyncio.sleep(0.01)
    return "untouched"


@app.task(isolation="process")
def isolated_neighbour(mark: str, until: str) -> str:
    Path(mark).touch()
    while not Path(until).exists():
        time.sleep(0.01)
    return "untouched"


# -- how it may end -----------------------------------------------------------------------------------------


@app.task(isolation="process", max_attempts=1)
def dies(how: str) -> None:
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(13)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)


@app.task(isolation="process", max_attempts=1, memory_limit="48MB")
def leaks(how: str) -> None:
    hoard: list[Any] = []
    while True:
        hoard.append(bytearray(1_000_000) if how == "blocks" else [object() for _ in range(1000)])


@app.task(isolation="process", memory_limit="48MB")
def frugal() -> int:
    return len(bytearray(20_000_000))


@app.task(isolation="process", memory_limit="48MB")
def keeps() -> int:
    """Leaves more behind than a process should carry on."""
    _kept.append(bytearray(30_000_000))
    return os.getpid()


_kept: list[bytearray] = []


@app.task(isolation="process", max_attempts=1)
def stubborn(mark: str) -> None:
    """Ignores its context, SIGTERM and whatever is raised in it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(mark).write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)


@app.task(isolation="process", max_attempts=1)
async def stubborn_async(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(0.05)


@app.task(isolation="process", max_attempts=1)
def holds_the_interpreter(mark: str) -> None:
    """No thread of this process runs while the regular expression does, which is for ever."""
    Path(mark).write_text(str(os.getpid()))
    re.match(r"^(a+)+$", "a" * 40 + "!")


@app.task(isolation="process", max_attempts=1)
def obeys(ctx: Context, mark: str) -> str:
    Path(mark).write_text(str(os.getpid()))
    while not ctx.cancelled:
        time.sleep(0.005)
    return "was cancelled" if ctx.cancel_requested else "was told"


@app.task(isolation="process", max_attempts=1)
async def obeys_async(mark: str, told: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        Path(told).touch()
        raise


@app.task(isolation="process", max_attempts=1)
def cleans_up(mark: str, cleaned: str) -> None:
    """Looks at nothing, but has a finally."""
    Path(mark).write_text(str(os.getpid()))
    try:
        time.sleep(60)
    finally:
        Path(cleaned).touch()


@app.task(isolation="process", max_attempts=1)
def starts_a_program(mark: str) -> None:
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(mark).write_text(str(program.pid))
    program.wait()


@app.task(isolation="process", max_attempts=1)
def forks() -> str:
    """A fork inherits the connection and the signals of its process, and must not use them."""
    import logging
    import multiprocessing

    fork = multiprocessing.get_context("fork")
    asleep = fork.Process(target=time.sleep, args=(60,))
    asleep.start()
    speaks = fork.Process(target=logging.getLogger("fork").warning, args=("a fork speaks",))
    speaks.start()
    speaks.join()
    asleep.terminate()
    asleep.join(PATIENCE)
    return f"{speaks.exitcode} {asleep.exitcode}"


@app.task(isolation="process", max_attempts=1)
def forks_and_regrets() -> list[int | None]:
    """Forks that are to end before they have begun."""
    import multiprocessing

    fork = multiprocessing.get_context("fork")
    codes = []
    for _ in range(50):
        asleep = fork.Process(target=time.sleep, args=(60,))
        asleep.start()
        asleep.terminate()
        asleep.join(1)
        codes.append(asleep.exitcode)
        asleep.kill()
    return codes


@app.task(isolation="process", max_attempts=1)
def garbles() -> None:
    """Writes to every file descriptor it finds."""
    for descriptor in range(3, 256):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\xff" * 64)
    time.sleep(60)


@app.task(isolation="process", max_attempts=1)
def closes_everything() -> None:
    os.closerange(3, 256)


@app.task(isolation="process")
async def shuts_down(ctx: Context, mark: str) -> str:
    if ctx.checkpoint:
        return "went on"
    Path(mark).write_text(str(os.getpid()))
    while not ctx.shutting_down:
        await asyncio.sleep(0.005)
    await ctx.checkpoint({"page": 7})
    return ctx.release()


# -- what it may say ----------------------------------------------------------------------------------------


@app.task(isolation="process", max_attempts=2, retry=once)
def explodes() -> None:
    raise ValueError("boom \ud800")


@app.task(isolation="process", max_attempts=2, retry=once)
async def explodes_async() -> None:
    raise Odd("strange")


def _wait_longer(attempt: int, error: BaseException) -> float:
    return 500.0 if isinstance(error, LookupError) else 0.0


@app.task(isolation="process", max_attempts=2, retry=Retry.call(_wait_longer))
def chooses_its_delay() -> None:
    raise KeyError("gone")


@app.task(isolation="process")
async def directs(how: str) -> None:
    match how:
        case "retry":
            raise RetryAfter(500, "come back later")
        case "fail":
            raise Fail("card declined", code="declined")
        case "snooze":
            raise Snooze(100)
        case "cancel":
            raise Cancel("order withdrawn")
        case "exit":
            sys.exit(3)


@app.task(isolation="process")
async def reports(ctx: Context, mark: str) -> list[Any]:
    before = ctx.checkpoint.get("page")
    await ctx.progress(42.5, "rendering", stage="two")
    await ctx.checkpoint({"page": 7})
    while not Path(mark).exists():
        await asyncio.sleep(0.005)
    return [before, ctx.checkpoint["page"]]


def _note(mark: str, what: str) -> None:
    with Path(mark).open("a") as file:
        file.write(f"{what}\n")


def _plain_step(mark: str, what: str, dies: bool) -> tuple[str, bool]:
    _note(mark, what)
    if dies:
        os._exit(9)
    return what, threading.current_thread() is threading.main_thread()


async def _async_step(mark: str, what: str, dies: bool) -> tuple[str, bool]:
    return _plain_step(mark, what, dies)


@app.task(isolation="process", max_attempts=3, retry=once)
async def steps(ctx: Context, mark: str) -> list[Any]:
    """Dies in its second step, and then behind it."""
    first = await ctx.step("first", _async_step, mark, "first", dies=False)
    second = await ctx.step("second", _plain_step, mark, "second", dies=ctx.attempt == 1)
    if ctx.attempt == 2:
        os._exit(9)
    return [first, second]


@app.task(isolation="process", max_attempts=3, retry=once)
def blocking_steps(ctx: Context, mark: str) -> list[Any]:
    """The same as a plain function."""
    first = ctx.sync.step("first", _plain_step, mark, "first", dies=False)
    second = ctx.sync.step("second", _plain_step, mark, "second", dies=ctx.attempt == 1)
    if ctx.attempt == 2:
        os._exit(9)
    return [first, second]


@app.task(isolation="process", max_attempts=2, retry=once)
async def leaves_a_thread(ctx: Context, mark: str) -> int:
    """The first run ends while the function of a step goes on."""

    def stuck() -> None:
        _note(mark, str(os.getpid()))
        time.sleep(3600)

    if ctx.attempt == 1:
        step = asyncio.create_task(ctx.step("stuck", stuck))
        while not Path(mark).exists():
            await asyncio.sleep(0.005)
        step.cancel()
        raise ConnectionError
    return os.getpid()


@app.task(isolation="process")
def tells(ctx: Context, name: str) -> dict[str, Any]:
    """Everything a context knows, from a plain function."""
    ctx.sync.progress(10)
    ctx.sync.checkpoint([1])
    ctx.logger.warning("hello from %s", name)
    return {
        "id": str(ctx.job.id),
        "task": ctx.job.task,
        "topic": ctx.job.topic,
        "key": ctx.job.key,
        "attempt": ctx.attempt,
        "fence": ctx.fence,
        "worker": ctx.worker,
        "tenant": ctx.tenant,
        "user": ctx.user_id,
        "correlation": ctx.correlation_id,
        "flags": [ctx.cancelled, ctx.shutting_down],
        "thread": threading.current_thread().name,
    }


def _acting() -> list[str | None] | None:
    context = SecurityContext.current()
    if context is None:
        return None
    return [context.tenant, context.user_id, context.service_id, context.correlation_id]


@app.task(isolation="process")
def acts() -> tuple[list[str | None] | None, int]:
    """On whose behalf."""
    return _acting(), os.getpid()


@app.task(isolation="process")
async def acts_async() -> tuple[list[str | None] | None, int]:
    await asyncio.sleep(0)
    return _acting(), os.getpid()


@app.task(isolation="process")
def remembers() -> tuple[str, int]:
    seen = variable.get()
    variable.set("dirty")
    return seen, os.getpid()


@app.task(isolation="process")
def echoes(payload: bytes) -> str:
    return payload.decode()


@app.task(isolation="process", max_attempts=1)
def returns_nonsense() -> Any:
    return float("nan")


@app.task(isolation="process", max_attempts=1)
def prints(text: str) -> None:
    print(text)
    print(text, file=sys.stderr)
    os.write(1, b"\x00\x00\x00\x04" + text.encode() + b"\n")  # what a message looks like


@app.task(isolation="process", max_attempts=1)
def enqueues() -> None:
    pid.sync.enqueue()


def make_task(other: Tidewheel) -> Any:
    """A function inside a function, which no other process can import."""

    @other.task(isolation="process")
    def hidden() -> None: ...

    return hidden


@app.task(isolation="process", max_attempts=5)
def declines() -> None:
    raise TaskError("no money", code="card_declined", details={"left": 2**62, "tags": ["ä"]}, retryable=False)


told: list[tuple[str, int, Any]] = []
"""What callbacks were told; in the worker, whose list this is."""


def tell(ctx: Context, value: Any) -> None:
    told.append((ctx.job.task, os.getpid(), value))


@app.task(isolation="process", on_success=tell, on_failure=tell)
def calls_back(fail: bool) -> str:
    if fail:
        os._exit(3)
    return "well"
