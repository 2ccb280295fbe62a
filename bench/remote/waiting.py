"""Hundreds who wait for a job over HTTP: what the server does meanwhile, and how soon they have one."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from bench.machine import resident_megabytes, tree_cpu_seconds
from tidewheel import Tidewheel

TOPIC = "count"


@dataclass
class Waited:
    """What was seen."""

    idle_cpu: float  # of a core
    megabytes: float
    over_http: list[float] = field(default_factory=list)  # seconds from the enqueue's start to the job
    elsewhere: list[float] = field(default_factory=list)  # the same for jobs enqueued by another process


class Line:
    """One connection that is kept open, and speaks as little HTTP as it takes."""

    def __init__(self, address: str, key: str) -> None:
        host, _, port = address.removeprefix("http://").partition(":")
        self._host, self._port = host, int(port)
        self._head = f"Host: {host}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def ask(self, path: str, body: Any) -> Any:
        """One request, one answer."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(data)}\r\n\r\n"
        self._writer.write(head.encode() + data)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = next(
            int(line.partition(":")[2])
            for line in answer.split("\r\n")
            if line.lower().startswith("content-length:")
        )
        content = await self._reader.readexactly(length)
        if not answer.startswith("HTTP/1.1 20"):
            raise RuntimeError(f"{path}: {answer.splitlines()[0]} {content[:300]!r}")
        return json.loads(content)


async def measure(
    url: str, address: str, pid: int, key: str, *, waiters: int, seconds: float, jobs: int
) -> Waited:
    """``url`` is the store's, for enqueues of this process, which the server has to hear of."""
    arrived: dict[int, asyncio.Future[float]] = {}
    lines = [Line(address, key) for _ in range(waiters)]
    for line in lines:
        await line.open()
    tasks = [asyncio.create_task(_wait(line, f"waiter-{index}", arrived)) for index, line in enumerate(lines)]
    await asyncio.sleep(3.0)  # until all wait
    before = tree_cpu_seconds(pid)
    await asyncio.sleep(seconds)
    waited = Waited((tree_cpu_seconds(pid) - before) / seconds, resident_megabytes(pid))
    sender = Line(address, key)
    await sender.open()
    async with Tidewheel(url) as app:

        async def over_http(n: int) -> None:
            await sender.ask("/api/jobs/enqueue", {"topic": TOPIC, "payload": {"n": n}})

        async def elsewhere(n: int) -> None:
            await app.enqueue(TOPIC, {"n": n})

        for n in range(jobs):
            enqueue, times = ((over_http, waited.over_http), (elsewhere, waited.elsewhere))[n % 2]
            arrived[n] = asyncio.get_running_loop().create_future()
            sent = time.perf_counter()
            await enqueue(n)
            times.append(await asyncio.wait_for(arrived[n], 30) - sent)
            await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return waited


async def idle_apart(address: str, pid: int, key: str, *, waiters: int, seconds: float) -> float:
    """What it costs that each of them waits for a topic of its own, of a core."""
    lines = [Line(address, key) for _ in range(waiters)]
    for line in lines:
        await line.open()
    tasks = [
        asyncio.create_task(_wait(line, f"waiter-{index}", {}, f"{TOPIC}-{index}"))
        for index, line in enumerate(lines)
    ]
    await asyncio.sleep(3.0)
    before = tree_cpu_seconds(pid)
    await asyncio.sleep(seconds)
    cost = (tree_cpu_seconds(pid) - before) / seconds
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return cost


async def _wait(line: Line, name: str, arrived: dict[int, asyncio.Future[float]], topic: str = TOPIC) -> None:
    wish = {"topics": [topic], "worker": name}
    while True:
        for job in (await line.ask("/api/jobs/work/reserve?wait=60", wish))["jobs"]:
            arrived[job["payload"]["n"]].set_result(time.perf_counter())
            ending = {"id": job["id"], "fence": job["fence"], "outcome": "complete"}
            await line.ask("/api/jobs/work/settle", {"settlements": [ending]})
