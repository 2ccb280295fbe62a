"""An app with middleware and a carried variable, whose handlers run in processes of their own."""

from __future__ import annotations

import os
from contextvars import ContextVar

from tidewheel import BatchContext, CallNext, Context, Tidewheel

app = Tidewheel("memory://", lease=2, poll_interval=0.05)

request_id: ContextVar[str] = ContextVar("request_id", default="none")
app.carry(request_id)

seen: list[tuple[int, str, object]] = []


@app.middleware
async def note(ctx: Context | BatchContext, call_next: CallNext) -> object:
    """In the worker's process, whatever the handler does in its own."""
    try:
        answer = await call_next()
    except Exception as error:
        seen.append((os.getpid(), request_id.get(), str(error)))
        raise
    seen.append((os.getpid(), request_id.get(), answer))
    return answer


@app.task(isolation="process", max_attempts=1)
def work(well: bool) -> tuple[int, str]:
    if not well:
        raise ValueError("not well")
    return os.getpid(), request_id.get()
