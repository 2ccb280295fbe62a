"""One connection of the server: what goes out together, and that nothing is kept back."""

from __future__ import annotations

import asyncio
from typing import Any

from windlass.server.connection import Together


class Line:
    """A transport that remembers what became of it."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.told


async def test_head_and_body_leave_together_and_nothing_is_kept() -> None:
    """An answer is one write; one without a body leaves in the same turn, or with the end of the line."""
    line: Any = Line()
    together = Together(line)
    together.write(b"HTTP/1.1 200 OK\r\n\r\n")
    together.write(b"body")
    together.write(b"more")
    assert line.told == [b"HTTP/1.1 200 OK\r\n\r\nbody", b"more"]
    together.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    await asyncio.sleep(0)
    assert line.told[2:] == [b"HTTP/1.1 204 No Content\r\n\r\n"]
    together.write(b"HTTP/1.1 500 Oh\r\n\r\n")
    together.close()
    await asyncio.sleep(0)
    assert line.told[3:] == [b"HTTP/1.1 500 Oh\r\n\r\n", "closed"]
    assert together.is_closing()
