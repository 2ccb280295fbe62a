"""How an adapter talks to the harness: one JSON object a line, on standard input and output.

The only module adapters share. Standard library only: it runs in the virtual environment of each peer.

A program plays one of two parts. The *producer* makes the schema, fills the queue and enqueues; a *worker*
runs jobs and counts handler calls. Every job's payload is ``{"x": padding, "number": n, "called": t}``, where
``t`` is the monotonic time of the call of enqueue when its way to the handler is to be measured, else 0.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import resource
import sys
import threading
import time
import traceback
from typing import Any

MOST_TIMES = 200_000
"""Of the times of single calls, the first so many are kept: they are for percentiles."""


class FailedOnce(Exception):
    """What a job of the retries workload raises on its first attempt."""


class Tally:
    """What the handlers of this process were called with."""

    def __init__(self) -> None:
        self.ran = 0
        self.first_ns = 0
        self.last_ns = 0
        self.pause = 0.0  # seconds a handler sleeps
        self.flaky = False  # every tenth job fails on its first attempt
        self._failed: set[int] = set()
        self._waits_ns: list[tuple[int, int]] = []  # the time of the call, and how long it took from there

    def note(self, number: int, called: int) -> None:
        """A handler call begins. May raise ``FailedOnce``; that call does not count."""
        now = time.monotonic_ns()
        if self.flaky and number % 10 == 0 and number not in self._failed:
            self._failed.add(number)
            raise FailedOnce(number)
        if not self.ran:
            self.first_ns = now
        self.ran += 1
        self.last_ns = now
        if called:
            self._waits_ns.append((called, now - called))

    def note_many(self, number: int) -> None:
        """For loops without handlers."""
        now = time.monotonic_ns()
        if not self.ran:
            self.first_ns = now
        self.ran += number
        self.last_ns = now

    def report(self) -> dict[str, Any]:
        return {
            "ran": self.ran,
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
            "cpu_seconds": time.process_time(),
            "rss_megabytes": _rss_megabytes(),
        }

    def waits(self) -> dict[str, Any]:
        waits = list(self._waits_ns)
        return {"seconds": [wait / 1e9 for _, wait in waits], "called": [called for called, _ in waits]}


tally = Tally()


def _rss_megabytes() -> float:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 1e6
    except OSError:  # not Linux: the peak is the next best
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


class System:
    """One job queue. Subclasses say how; timing is the same for all and is done here."""

    bulk = 1000  # jobs handed to ``enqueue_bulk`` at once

    async def open(self, url: str, options: dict[str, Any]) -> None:
        """Connect. ``options`` is the variant, ``options["kind"]`` what handlers do."""
        raise NotImplementedError

    async def setup(self) -> None:
        """Make the schema in an empty database."""

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        """Return once the job is as durable as it gets."""
        raise NotImplementedError

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        for payload in payloads:
            await self.enqueue_one(payload)

    async def left(self) -> dict[str, int | None]:
        """``unfinished``: jobs not yet done; ``completed``: jobs recorded as done, None without a history."""
        raise NotImplementedError

    async def work(self, concurrency: int) -> None:
        """Run jobs until the process ends."""
        raise NotImplementedError

    # -- commands of the harness ------------------------------------------------------------------------

    async def do_fill(self, jobs: int, payload: int) -> dict[str, Any]:
        padding = make_padding(payload)
        began = time.monotonic()
        for start in range(0, jobs, self.bulk):
            numbers = range(start, min(start + self.bulk, jobs))
            await self.enqueue_bulk([{"x": padding, "number": number, "called": 0} for number in numbers])
        return {"jobs": jobs, "seconds": time.monotonic() - began}

    async def do_enqueue(self, callers: int, seconds: float, payload: int) -> dict[str, Any]:
        """So many callers, each enqueueing again as soon as its last job is committed."""
        padding = make_padding(payload)
        times: list[float] = []
        jobs = 0
        began = time.monotonic()
        deadline = began + seconds

        async def caller() -> None:
            nonlocal jobs
            while (called := time.monotonic()) < deadline:
                jobs += 1
                await self.enqueue_one({"x": padding, "number": jobs, "called": 0})
                if len(times) < MOST_TIMES:
                    times.append(time.monotonic() - called)

        cpu = time.process_time()
        await asyncio.gather(*(caller() for _ in range(callers)))
        return {
            "jobs": jobs,
            "seconds": time.monotonic() - began,
            "cpu_seconds": time.process_time() - cpu,
            "times": times,
        }

    async def do_stamp(self, number: int, gap: float) -> dict[str, Any]:
        """Jobs one by one that carry the time of the call."""
        padding = make_padding(100)
        for index in range(number):
            await self.enqueue_one({"x": padding, "number": index + 1, "called": time.monotonic_ns()})
            await asyncio.sleep(gap)
        return {"jobs": number}


class BlockingSystem(System):
    """A queue whose calls block: its callers are threads."""

    def enqueue_now(self, payload: dict[str, Any]) -> None:
        raise NotImplementedError

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        self.enqueue_now(payload)

    async def do_enqueue(self, callers: int, seconds: float, payload: int) -> dict[str, Any]:
        padding = make_padding(payload)
        times: list[float] = []
        jobs = [0] * callers
        began = time.monotonic()
        deadline = began + seconds

        def caller(index: int) -> None:
            while (called := time.monotonic()) < deadline:
                self.enqueue_now({"x": padding, "number": jobs[index], "called": 0})
                jobs[index] += 1
                if len(times) < MOST_TIMES:
                    times.append(time.monotonic() - called)

        cpu = time.process_time()
        threads = [threading.Thread(target=caller, args=(index,)) for index in range(callers)]
        for thread in threads:
            thread.start()

        def wait() -> None:
            for thread in threads:
                thread.join()

        await _from_thread(wait)
        return {
            "jobs": sum(jobs),
            "seconds": time.monotonic() - began,
            "cpu_seconds": time.process_time() - cpu,
            "times": times,
        }


class GroupedSystem(System):
    """A baseline without callers: what they would come to if each commit carried the jobs of all of them."""

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.enqueue_bulk([payload])

    async def do_enqueue(self, callers: int, seconds: float, payload: int) -> dict[str, Any]:
        padding = make_padding(payload)
        times: list[float] = []
        jobs = 0
        cpu, began = time.process_time(), time.monotonic()
        while (called := time.monotonic()) < began + seconds:
            await self.enqueue_bulk(
                [{"x": padding, "number": number, "called": 0} for number in range(callers)]
            )
            jobs += callers
            times.append(time.monotonic() - called)
        return {
            "jobs": jobs,
            "seconds": time.monotonic() - began,
            "cpu_seconds": time.process_time() - cpu,
            "times": times,
        }


def make_padding(payload_bytes: int) -> str:
    """What makes a payload about so long, as JSON."""
    return "y" * max(1, payload_bytes - len('{"x":"","number":10000,"called":0}'))


def serve(system: System) -> None:
    """Do what the harness says until it hangs up."""
    output = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is for the log
    lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    lock = threading.Lock()

    def say(message: dict[str, Any]) -> None:
        with lock:
            output.write(json.dumps(message) + "\n")

    def listen() -> None:
        # On a thread of its own: a worker's main thread is busy, and counts must not wait for it.
        for line in sys.stdin:
            message = json.loads(line)
            match message["do"]:
                case "count":
                    say(tally.report())
                case "waits":
                    say(tally.waits())
                case _:
                    lines.put(message)
        os._exit(0)  # the harness is gone, and so are we, whatever we were doing

    threading.Thread(target=listen, name="listens to the harness", daemon=True).start()
    try:
        asyncio.run(_obey(system, lines, say))
    except BaseException:
        say({"error": traceback.format_exc(limit=-6)})
        raise
    finally:
        output.flush()
        os._exit(0)  # threads of the system that do not end must not keep the process


async def _obey(system: System, lines: queue.SimpleQueue[dict[str, Any]], say: Any) -> None:
    tasks: set[asyncio.Task[None]] = set()

    async def work(concurrency: int) -> None:
        try:
            await system.work(concurrency)
        except Exception:
            say({"error": traceback.format_exc(limit=-6)})
            raise

    while True:
        message = await _from_thread(lines.get)
        command = message.pop("do")
        match command:
            case "open":
                options = message["options"]
                tally.pause = 0.001 if options["kind"] == "pause" else 0.0
                tally.flaky = options["kind"] == "flaky"
                await system.open(message["url"], options)
                say({"versions": {"python": sys.version.split()[0]}})
            case "setup":
                await system.setup()
                say({})
            case "work":
                task = asyncio.create_task(work(message["concurrency"]))
                tasks.add(task)
                say({})
            case "left":
                say(await system.left())
            case _:
                say(await getattr(system, f"do_{command}")(**message))


async def _from_thread(call: Any) -> Any:
    """Not on the loop's own executor: a system's handlers may use all its threads, or close it."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    thread = threading.Thread(
        target=lambda: loop.call_soon_threadsafe(answer.set_result, call()), daemon=True, name="next command"
    )
    thread.start()
    return await answer
