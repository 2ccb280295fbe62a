"""A queue that is a number in a file, and misbehaves when told to."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.adapters.talk import System, serve, tally


class FakeSystem(System):
    async def open(self, url: str, options: dict[str, Any]) -> None:
        self.behaviour = options.get("behaviour", "good")
        self.file = Path(url.removeprefix("sqlite:///"))
        if self.behaviour == "crash":
            print("out of cheese", file=sys.stderr, flush=True)
            os._exit(3)
        if self.behaviour == "error":
            raise RuntimeError("no cheese today")

    async def setup(self) -> None:
        self.file.write_text("0 0")

    def _numbers(self) -> tuple[int, int]:
        waiting, done = self.file.read_text().split()
        return int(waiting), int(done)

    async def enqueue_one(self, _: dict[str, Any]) -> None:
        waiting, done = self._numbers()
        self.file.write_text(f"{waiting + 1} {done}")

    async def left(self) -> dict[str, int | None]:
        waiting, done = self._numbers()
        return {"unfinished": waiting, "completed": done}

    async def work(self, _: int) -> None:
        waiting, done = self._numbers()
        lost = 1 if self.behaviour == "forget" else 0
        self.file.write_text(f"0 {done + waiting - lost}")
        for number in range(waiting):  # last: as soon as all are noted, somebody reads the file
            tally.note(number, 0)
        await asyncio.Event().wait()

    async def do_sulk(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}


if __name__ == "__main__":
    serve(FakeSystem())
