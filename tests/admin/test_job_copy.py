"""A new job like an existing one, as it was or with changes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.app.conftest import Finish
from tidewheel import (
    BY_PAYLOAD,
    HandlerNotFound,
    InvalidInput,
    InvalidPayload,
    JobError,
    JobNotFound,
    Retry,
    SecurityContext,
    Tidewheel,
    WrongState,
    acting_as,
)
from tidewheel.core.model import Failed
from tidewheel.core.payload import merge_patch
from tidewheel.testing.clock import FrozenClock


async def test_a_copy_has_what_made_the_job_and_nothing_of_what_became_of_it(
    app: Tidewheel, finish: Finish
) -> None:
    """On every store: lane, tenant, owner and options; not the key, the attempts and the error."""

    @app.task
    async def send(to: str, copies: int = 1) -> None: ...

    job = await app.enqueue(
        send,
        {"to": "ann", "copies": 2},
        tenant="acme",
        user_id="mia",
        priority=7,
        max_attempts=1,
        timeout=12.5,
        retry=Retry.fixed(3),
        key="only one",
    )
    await finish(app, job, Failed(BOOM))
    copy = await (await app.enqueue_copy(job.id)).refresh()
    assert copy.id != job.id
    same = ("topic", "task", "tenant", "user_id", "priority", "max_attempts", "timeout", "payload")
    assert [getattr(copy, name) for name in same] == [getattr(job, name) for name in same]
    assert copy.record.retry is not None
    assert Retry.load(copy.record.retry) == Retry.fixed(3)
    assert (copy.state, copy.attempt, copy.key, copy.error) == ("pending", 0, None, None)
    assert copy.correlation_id == str(job.id)
    assert (await job.refresh()).state == "failed"
    third = await app.enqueue_copy(copy.id)
    assert third.correlation_id == str(job.id)


async def test_what_is_said_is_another(app: Tidewheel, clock: FrozenClock) -> None:
    """Payload, whole or in part, due time, priority, attempts, timeout, key."""
    job = await app.enqueue("mail", {"to": "ann", "cc": ["ben"], "deep": {"a": 1, "b": 2}})
    patched = await app.enqueue_copy(
        job.id, patch={"cc": None, "deep": {"b": 3}}, delay=60, priority=-3, max_attempts=None, key="k"
    )
    assert patched.payload == {"to": "ann", "deep": {"a": 1, "b": 3}}
    assert (patched.priority, patched.max_attempts, patched.key) == (-3, None, "k")
    assert (patched.run_at - patched.created_at).total_seconds() == 60
    replaced = await app.enqueue_copy(str(job.id), payload=["whole"], timeout=5, correlation_id="mine")
    assert (replaced.payload, replaced.timeout, replaced.correlation_id) == (["whole"], 5, "mine")
    assert (await app.enqueue_copy(job.id, key="k")).duplicate


BOOM = JobError("boom", "it does not work")


@pytest.fixture
async def memory() -> Any:
    async with Tidewheel("memory://") as app:
        yield app


async def test_a_copy_is_checked_like_any_other_job(memory: Tidewheel) -> None:
    """Against its task, the limits and the options; then nothing is written."""

    @memory.task
    async def send(to: str) -> None: ...

    job = await send.enqueue(to="ann")
    with pytest.raises(InvalidPayload):
        await memory.enqueue_copy(job.id, payload={"to": 5})
    with pytest.raises(InvalidPayload):
        await memory.enqueue_copy(job.id, patch={"to": None})
    with pytest.raises(InvalidInput, match="payload and patch"):
        await memory.enqueue_copy(job.id, payload={}, patch={})
    with pytest.raises(InvalidInput, match="'topic' cannot be changed"):
        await memory.enqueue_copy(job.id, topic="other")  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="run_at and delay"):
        await memory.enqueue_copy(job.id, delay=1, run_at=job.created_at)
    with pytest.raises(JobNotFound):
        await memory.enqueue_copy(uuid4())
    assert (await memory.count()).total == 1


async def test_the_key_of_a_task_is_not_for_copies(memory: Tidewheel) -> None:
    """A copy that found its own original under the key would never run."""

    @memory.task(key=BY_PAYLOAD)
    async def send(to: str) -> None: ...

    job = await send.enqueue(to="ann")
    copy = await memory.enqueue_copy(job.id)
    assert (copy.duplicate, copy.key, copy.id != job.id) == (False, None, True)


async def test_bytes_stay_bytes(memory: Tidewheel) -> None:
    """And have no members to patch."""
    job = await memory.enqueue("raw", b"\x00\x01")
    assert (await memory.enqueue_copy(job.id)).payload == b"\x00\x01"
    assert (await memory.enqueue_copy(job.id, payload=b"\x02")).payload == b"\x02"
    with pytest.raises(InvalidInput, match="bytes"):
        await memory.enqueue_copy(job.id, patch={"a": 1})


async def test_only_durable_jobs_of_known_tasks_are_copied() -> None:
    """What a job of the lane was given is in no store; a task nobody knows is refused where it would be."""
    async with Tidewheel("memory://", strict_tasks=True) as app:

        @app.task(durable=False)
        async def fleeting(thing: str) -> None: ...

        job = await fleeting.enqueue("x")
        with pytest.raises(WrongState, match="not durable"):
            await app.enqueue_copy(job.id)

        @app.task
        async def soon_gone() -> None: ...

        old = await soon_gone.enqueue()
        app.registry = type(app.registry)()
        with pytest.raises(HandlerNotFound, match="soon_gone"):
            await app.enqueue_copy(old.id)


async def test_a_copy_is_made_for_whoever_makes_it(memory: Tidewheel) -> None:
    """Within the tenant: nobody lets another user's name stand under a payload of its own."""
    with acting_as(SecurityContext("acme", user_id="ben")):
        job = await memory.enqueue("mail", {})
    with acting_as(SecurityContext("acme", user_id="ann", correlation_id="request 7")):
        copy = await memory.enqueue_copy(job.id, payload={"edited": True})
        assert (copy.tenant, copy.user_id, copy.correlation_id) == ("acme", "ann", str(job.id))
    with acting_as(SecurityContext("globex")), pytest.raises(JobNotFound):
        await memory.enqueue_copy(job.id)


@pytest.mark.parametrize(
    ("value", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [1]}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
        (["a"], {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "b"}, ["c"], ["c"]),
    ],
)
def test_a_patch_merges_as_rfc_7396_says(value: Any, patch: Any, expected: Any) -> None:
    """The examples of its appendix; what is patched stays as it was."""
    before = repr(value)
    assert merge_patch(value, patch) == expected
    assert repr(value) == before
