"""Middleware around handlers in processes of their own, and variables that reach them."""

from __future__ import annotations

import os

from tests.patience import PATIENCE
from tests.worker.processes import middleware_app
from tidewheel.testing import in_memory


async def test_middleware_runs_in_the_worker_and_sees_what_came_of_it() -> None:
    """The result or the error; the carried variable is set on both sides."""
    app, work = middleware_app.app, middleware_app.work
    middleware_app.seen.clear()
    async with in_memory(app):
        token = middleware_app.request_id.set("r-1")
        well, ill = await work.enqueue(True), await work.enqueue(False)
        middleware_app.request_id.reset(token)
        await app.run_until_idle(concurrency=1, handle_signals=False)
        pid, carried = await well.result(timeout=PATIENCE)
        assert pid != os.getpid()
        assert carried == "r-1"
        await ill.refresh()
        assert ill.error is not None
        assert (ill.state, ill.error.message) == ("failed", "ValueError: not well")
        assert "in work" in (ill.error.traceback or "")
    here = os.getpid()
    assert [(one[0], one[1]) for one in middleware_app.seen] == [(here, "r-1"), (here, "r-1")]
    assert middleware_app.seen[1][2] == "ValueError: not well"
