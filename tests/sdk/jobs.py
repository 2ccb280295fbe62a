"""The app that the tests of the SDK talk to. Some tasks run here, others wait for workers in JavaScript."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Literal

from tidewheel import Context, Fail, Tidewheel

ELSEWHERE: Final = (
    "pages",
    "paused",
    "events",
    "bytes",
    "browser",
    "example",
    *(f"js-{n}" for n in range(50)),
)
"""Topics that are home to no task here: jobs there wait for somebody in JavaScript, or for nobody."""
HERE: Final = ("add", "refuse", "sleep", "measure", "send_digest", "charge")

app = Tidewheel("sqlite:///jobs.db", allowed_topics=(*HERE, *ELSEWHERE), lease=2.0)


@app.task
async def add(a: int, b: int = 1) -> int:
    """The sum of two numbers."""
    return a + b


@app.task(max_attempts=1)
async def refuse(reason: str) -> None:
    raise Fail(reason, code="refused")


@app.task
async def sleep(ctx: Context, seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.task
async def measure(body: bytes) -> int:
    """How many bytes there are."""
    return len(body)


@dataclass(frozen=True)
class Address:
    """Where somebody lives."""

    street: str
    city: str = "Berlin"


@app.task
async def send_digest(
    user_id: str, addresses: list[Address], kind: Literal["daily", "weekly"] = "daily"
) -> int:
    return len(addresses)


@app.task
async def charge(order: int, amount: float, notes: dict[str, Any] | None = None) -> dict[str, float]:
    return {"charged": amount}
