"""The app that is served: one task, whose jobs say what ran them."""

from __future__ import annotations

from tidewheel import Tidewheel

app = Tidewheel()


@app.task(max_attempts=100)
async def count(n: int, seconds: float = 0.0) -> str:
    """Run by all kinds of workers, each in its own program."""
    raise NotImplementedError
