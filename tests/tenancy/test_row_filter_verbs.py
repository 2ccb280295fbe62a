"""A verb under a row filter acts on a job as the caller saw it."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidewheel import SecurityContext, Tidewheel, WrongState, acting_as
from tidewheel.core.conditions import InState, negate
from tidewheel.core.model import JobRecord, State


@pytest.mark.parametrize("verb", ["requeue", "delete"])
async def test_verb_does_not_reach_a_state_that_the_filter_hides(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A caller who cannot see failed jobs sends the verb while the job runs, and the job fails between the
    look and the act: nothing is done, however often that is tried.
    """
    async with Tidewheel("memory://") as app:
        with acting_as(SecurityContext("acme")):
            job = await app.queue.put("letters", {"to": "ann"})
        reserved = await app.queue.reserve("letters", timeout=0)
        assert reserved is not None
        look = app.store.get
        looks = 0

        async def get(job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
            nonlocal looks
            looks += 1
            found = await look(job_id, tenant=tenant)
            if looks == 1:
                await reserved.bury()
            return found

        monkeypatch.setattr(app.store, "get", get)
        unfailed = SecurityContext("acme", only=negate(InState(State.FAILED)))
        with acting_as(unfailed), pytest.raises(WrongState, match="is running"):
            await getattr(app, verb)(job.id)
        monkeypatch.undo()
        assert (await app.get(job.id)).state is State.FAILED
