"""The kill run of downloads: a server that hangs up all the time, a worker that is killed all the time.

``python -m tests.builtin.killed_downloads --size 200 --drop 10 --kills 2`` tells what it came to;
sizes are in MB.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import tidewheel
from tests.builtin.web_server import Web, bytes_of
from tests.worker.worker_processes import Site
from tidewheel import Tidewheel

MB = 1_000_000


@dataclass
class Sum:
    """What a run came to."""

    size: int
    sent: int
    connections: int
    kills: int
    attempt: int
    seconds: float
    right: bool
    leftovers: list[str]

    @property
    def overhead(self) -> float:
        return self.sent / self.size


async def fetch(
    directory: Path, *, size: int, drop_every: int, kills: int, url: str | None = None, checksum: bool = True
) -> Sum:
    """Download ``size`` bytes while the worker is killed at even distances."""
    root = directory / "root"
    root.mkdir()
    site = Site(directory, store_url=url, program="tests.builtin.network_task_victim")
    web = Web(content=bytes_of(size), drop_every=drop_every)
    web.hold_at = [size * number // (kills + 1) + drop_every // 2 for number in range(1, kills + 1)]
    app = Tidewheel(site.url)
    app.include(tidewheel.builtin, roots=[root], allowed_hosts=["*"])
    began = time.monotonic()
    with web.serving():
        async with app:
            payload = {"url": web.url, "dest": "in/file.bin", "sha256": web.sha256 if checksum else None}
            job = await app.enqueue("download_file", payload)
            process = await asyncio.to_thread(site.start, ROOT=str(root))
            try:
                for _ in range(kills):
                    await asyncio.to_thread(web.hold)
                    process.kill()
                    process.communicate()
                    web.release()
                    process = await asyncio.to_thread(site.start, ROOT=str(root))
                result = await job.result(timeout=120)
            finally:
                process.kill()
                process.communicate()
            job = await app.get(job.id)
    target = root / "in" / "file.bin"
    assert (result.path, result.bytes) == (str(target), size)
    assert 0 < result.duration_secs < time.monotonic() - began
    return Sum(
        size=size,
        sent=web.sent,
        connections=len(web.requests),
        kills=kills,
        attempt=job.attempt,
        seconds=round(time.monotonic() - began, 1),
        right=hashlib.sha256(target.read_bytes()).hexdigest() == web.sha256,
        leftovers=[path.name for path in target.parent.iterdir() if path != target],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--drop", type=int, default=10)
    parser.add_argument("--kills", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(
            fetch(Path(directory), size=options.size * MB, drop_every=options.drop * MB, kills=options.kills)
        )
    print(json.dumps({**asdict(found), "overhead": round(found.overhead, 4)}, indent=2))


if __name__ == "__main__":
    main()
