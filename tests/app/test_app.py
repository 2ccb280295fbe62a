from __future__ import annotations

import asyncio
import inspect
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.app.conftest import Finish
from tests.patience import PATIENCE
from tidewheel import (
    BY_PAYLOAD,
    Context,
    HandlerNotFound,
    InvalidInput,
    InvalidPayload,
    JobError,
    JobNotFound,
    LimitExceeded,
    NotOpen,
    SchemaTooNew,
    Tidewheel,
    WrongState,
)
from tidewheel.core.clock import to_datetime
from tidewheel.core.model import FOREVER, Failed
from tidewheel.tasks.options import WorkerOptions
from tidewheel.testing.clock import FrozenClock
from tidewheel.worker import Worker

FAILED = Failed(JobError("boom", "it broke"))


async def test_an_app_is_used_only_while_open(url: str) -> None:
    """Before and after, every verb says so."""
    app = Tidewheel(url)
    with pytest.raises(NotOpen, match="async with app"):
        await app.enqueue("t")
    async with app:
        await app.enqueue("t")
    with pytest.raises(NotOpen):
        await app.jobs()
    with pytest.raises(NotOpen):
        _ = app.store


async def test_an_app_can_be_opened_twice_and_again(url: str) -> None:
    """Nested uses share one store, the last one closes it, and the jobs are there next time."""
    app = Tidewheel(url)
    async with app:
        store = app.store
        async with app:
            assert app.store is store
            job = await app.enqueue("t")
        assert (await app.get(job.id)) == job
    async with app:
        assert (await app.get(job.id)) == job


async def test_concurrent_opens_wait_for_the_one_that_opens(url: str) -> None:
    """Nobody gets a store that is still being migrated."""
    app = Tidewheel(url)
    await asyncio.gather(*(app.open() for _ in range(5)))
    await app.enqueue("t")
    for _ in range(5):
        await app.close()
    with pytest.raises(NotOpen):
        _ = app.store


async def test_enqueue_by_name_uses_the_tasks_topic_defaults_and_signature(app: Tidewheel) -> None:
    """A name is as good as the task itself, alias and lonely topic included."""

    @app.task(topic="mail", aliases=["old"], max_attempts=7)
    def send(to: str) -> None: ...

    for name in ("send", "old", "mail", send):
        job = await app.enqueue(name, {"to": "a"})
        assert (job.topic, job.task, job.max_attempts, job.payload) == ("mail", "send", 7, {"to": "a"})
    with pytest.raises(InvalidPayload, match="to is missing"):
        await app.enqueue("send")


async def test_unknown_names_are_topics_unless_tasks_are_strict(app: Tidewheel, url: str) -> None:
    """By default a job may wait for a worker that knows it."""
    job = await app.enqueue("elsewhere", [1, 2], priority=5)
    assert (job.topic, job.task, job.payload, job.priority) == ("elsewhere", "", [1, 2], 5)
    assert (await app.enqueue("elsewhere")).payload == {}
    assert (await (await app.enqueue("elsewhere", b"\x00raw")).refresh()).payload == b"\x00raw"

    strict = Tidewheel(url, strict_tasks=True)

    @strict.task
    def known() -> None: ...

    async with strict:
        with pytest.raises(
            HandlerNotFound, match=r"no task 'knwon' \(did you mean known\?\); the tasks are known"
        ):
            await strict.enqueue("knwon")


async def test_a_handle_shows_what_was_written(app: Tidewheel, clock: FrozenClock) -> None:
    """The handle of an enqueue equals what the store says, without asking it."""
    job = await app.enqueue(
        "t",
        {"a": 1},
        delay=60,
        priority=3,
        key="k",
        correlation_id="c",
        user_id="u",
        service_id="s",
        timeout=9,
    )
    assert job.created_at == to_datetime(clock.now())
    assert job.run_at == job.created_at + timedelta(seconds=60)
    assert (job.state, job.shown_state, job.attempt, job.duplicate) == ("pending", "delayed", 0, False)
    assert (await app.get(job.id)).record == job.record
    assert (await app.get(str(job.id))) == job


async def test_a_duplicate_answers_the_job_that_holds_the_key(app: Tidewheel, finish: Finish) -> None:
    """Nothing is written, and the handle shows the holder as it is now."""
    first = await app.enqueue("t", {"n": 1}, key="k")
    again = await app.enqueue("t", {"n": 2}, key="k")
    assert (again.id, again.duplicate, again.payload) == (first.id, True, {"n": 1})
    await finish(app, first)
    assert (await app.enqueue("t", key="k")).state == "completed"
    assert (await app.enqueue("t", key="k", tenant="other")).duplicate is False
    assert (await app.count()).total == 2


async def test_a_waiting_duplicate_can_be_replaced(app: Tidewheel) -> None:
    """Debounce: the latest payload wins until somebody starts on it."""
    first = await app.enqueue("t", {"n": 1}, key="k")
    again = await app.enqueue("t", {"n": 2}, key="k", on_duplicate="replace")
    assert (again.id, again.duplicate, again.replaced, again.payload) == (first.id, True, True, {"n": 2})


async def test_many_jobs_come_back_in_the_order_they_were_given(app: Tidewheel) -> None:
    """Also across the store's batches and among duplicates."""

    @app.task
    def task(n: int) -> None: ...

    jobs = await task.enqueue_many({"n": n} for n in range(10_050))
    assert [job.payload["n"] for job in jobs] == list(range(10_050))
    assert len({job.id for job in jobs}) == 10_050
    assert (await app.enqueue_many(task, [])) == []
    mixed = await task.options(key=BY_PAYLOAD).enqueue_many([{"n": 1}, {"n": 2}, {"n": 1}])
    assert [job.duplicate for job in mixed] == [False, False, True]
    assert mixed[0] == mixed[2]


async def test_one_bad_payload_among_many_writes_nothing(app: Tidewheel) -> None:
    """All are checked before the first is written, and the bad one is named."""

    @app.task
    def task(n: int) -> None: ...

    with pytest.raises(InvalidPayload, match=r"payload 2 of enqueue_many \(from 0\): .* n: expected int"):
        await task.enqueue_many([{"n": 1}, {"n": 2}, {"n": "x"}])
    with pytest.raises(InvalidPayload, match="give a list of payloads"):
        await app.enqueue_many("task", {"n": 1})
    assert (await app.count()).total == 0


async def test_a_job_pruned_while_its_duplicate_is_answered_frees_the_key(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is free again by then, so the new job is written instead of an error."""
    first = await app.enqueue("t", key="k")
    store, real_get = app.store, app.store.get

    async def vanish(job_id: Any, **kwargs: Any) -> Any:
        await store.delete([first.id])
        return await real_get(job_id, **kwargs)

    monkeypatch.setattr(store, "get", vanish)
    again = await app.enqueue("t", key="k")
    assert (again.duplicate, again.id == first.id) == (False, False)


async def test_store_limits_come_from_the_settings(url: str) -> None:
    """``max_topics`` and ``max_jobs_per_topic`` are enforced where the jobs are."""
    async with Tidewheel(url, max_topics=1, max_jobs_per_topic=1) as app:
        await app.enqueue("one")
        with pytest.raises(LimitExceeded, match="max_topics"):
            await app.enqueue("two")
        with pytest.raises(LimitExceeded, match="max_jobs_per_topic"):
            await app.enqueue("one")
        assert (await app.count()).total == 1


async def test_pages_are_newest_first_with_totals_and_cursors(app: Tidewheel) -> None:
    """Both ways of paging see every job once."""
    jobs = await app.enqueue_many("t", [{"n": n} for n in range(5)])
    page = await app.jobs(limit=2)
    assert [job.id for job in page] == [jobs[4].id, jobs[3].id]
    assert (len(page), page.total, page.total_exact, page.limit, page.offset) == (2, 5, True, 2, 0)
    assert page[0].payload is None
    rest = await app.jobs(limit=10, cursor=page.cursor)
    assert [job.id for job in rest] == [jobs[2].id, jobs[1].id, jobs[0].id]
    assert rest.cursor is None
    assert [job.id for job in await app.jobs(limit=2, offset=4)] == [jobs[0].id]
    assert (await app.jobs(limit=10_000)).limit == 200


async def test_totals_are_what_counters_tell_or_what_was_found(app: Tidewheel) -> None:
    """Several states or topics are counted beyond the page; a search says how many it has found so far."""
    for topic in ("a", "a", "b", "c"):
        await app.enqueue(topic, user_id="anna")
    for where, offset, expected in (
        ("topic:a,b", 0, (3, True)),
        ("topic:a,b", 5, (3, True)),
        ("-state:failed", 1, (4, True)),
        ("user:anna", 0, (1, False)),
        ("user:anna", 3, (4, True)),
        ("user:anna", 5, (0, False)),
        ("user:nobody", 0, (0, True)),
        (None, 4, (4, True)),
    ):
        page = await app.jobs(limit=1, offset=offset, where=where)
        assert (page.total, page.total_exact) == expected, (where, offset)


async def test_every_filter_narrows(app: Tidewheel, clock: FrozenClock, finish: Finish) -> None:
    """Lists and counts understand the same conditions."""

    @app.task
    def task() -> None: ...

    first = await app.enqueue("a", {"needle": "haystack"}, key="k", correlation_id="c", tenant="acme")
    clock.advance(10)
    second = await task.enqueue()
    third = await app.enqueue("b", delay=60)
    await finish(app, second, FAILED)
    middle = to_datetime(clock.now() - 5_000_000)
    for filters, expected in (
        ({"topic": "a"}, [first]),
        ({"task": "task"}, [second]),
        ({"task": ""}, [third, first]),
        ({"state": "failed"}, [second]),
        ({"state": "delayed"}, [third]),
        ({"tenant": "acme"}, [first]),
        ({"key": "k"}, [first]),
        ({"correlation_id": "c"}, [first]),
        ({"created_after": middle}, [third, second]),
        ({"created_before": middle}, [first]),
        ({"text": "haystack"}, [first]),
        ({"text": "it broke"}, [second]),
        ({"topic": "a", "state": "failed"}, []),
        ({"topic": None}, [third, second, first]),
    ):
        page = await app.jobs(**filters)
        assert list(page) == expected, filters
        assert page.total == len(expected)
        if "text" not in filters:
            assert (await app.count(**filters)).total == len(expected)


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (
            {"state": "faild"},
            r"state is 'faild' \(did you mean failed\?\); the states are pending, .*, claimed",
        ),
        ({"state": 3}, "state is 3; the states are"),
        ({"topic": "a b"}, "topic is 'a b'"),
        ({"tenant": ""}, "tenant is ''"),
        ({"key": "a\0"}, "NUL"),
        ({"text": ""}, "text is empty"),
        ({"text": "x" * 1001}, "text has 1,001 characters; the limit is 1,000"),
        ({"created_after": "today"}, "created_after is 'today'"),
        ({"limit": 0}, "limit is 0; 1 to"),
        ({"limit": True}, "limit is True"),
        ({"offset": -1}, "offset is -1; 0 to"),
        ({"cursor": "x"}, "cursor is 'x'"),
        ({"stat": "failed"}, r"'stat' is no filter \(did you mean state\?\)"),
    ],
)
async def test_bad_filters_are_refused(app: Tidewheel, filters: dict[str, Any], message: str) -> None:
    """A typo never means "all jobs"."""
    with pytest.raises(InvalidInput, match=message):
        await app.jobs(**filters)


async def test_one_job_is_requeued_cancelled_and_deleted(app: Tidewheel, finish: Finish) -> None:
    """The operator's verbs, and what they refuse."""
    job = await app.enqueue("t")
    with pytest.raises(WrongState, match=r"is pending and cannot be requeued; .* failed or cancelled"):
        await app.requeue(job.id)
    assert await app.cancel(job.id) is True
    with pytest.raises(WrongState, match="is cancelled and cannot be cancelled"):
        await app.cancel(job.id)
    await app.requeue(str(job.id))
    await finish(app, job, FAILED)
    assert (await app.get(job.id)).error == FAILED.error
    await app.delete(job.id)
    for verb in (app.get, app.requeue, app.cancel, app.delete):
        with pytest.raises(JobNotFound, match=str(job.id)):
            await verb(job.id)
    with pytest.raises(InvalidInput, match="job id is 'seven'"):
        await app.get("seven")


async def test_a_requeue_waits_for_the_key(app: Tidewheel) -> None:
    """Two active jobs never hold one key."""
    job = await app.enqueue("t", key="k", until="finished")
    await app.cancel(job.id)
    await app.enqueue("t", key="k", until="finished")
    with pytest.raises(WrongState, match="another job holds its key"):
        await app.requeue(job.id)


async def test_bulk_verbs_act_on_what_matches_and_count_it(app: Tidewheel, finish: Finish) -> None:
    """More jobs than one batch, and only those the verb can act on."""
    await app.enqueue_many("many", [None] * 1_205)
    failed = await app.enqueue("t")
    await finish(app, failed, FAILED)
    assert await app.cancel_all(topic="many") == 1_205
    assert await app.requeue_all(topic="t") == 1
    assert await app.requeue_all(topic="many", state="cancelled", key="none") == 0
    assert await app.delete_all(topic="many") == 1_205
    assert await app.delete_all(state="failed") == 0
    assert (await app.count()).total == 1


async def test_bulk_verbs_want_a_filter(app: Tidewheel) -> None:
    """Deleting every job is never the result of leaving something out."""
    await app.enqueue("t")
    for verb in (app.requeue_all, app.cancel_all, app.delete_all):
        with pytest.raises(InvalidInput, match="without a filter means every job"):
            await verb()
        with pytest.raises(InvalidInput, match="without a filter"):
            await verb(topic=None)
    assert (await app.count()).total == 1


async def test_jobs_run_until_none_is_due(url: str) -> None:
    """The whole walk of a job, by task and by name, with a typed result at its end."""
    app = Tidewheel(url)

    @app.task
    async def add(ctx: Context, a: int, b: int = 1) -> int:
        return a + b

    @app.task
    def double(n: int) -> int:
        return 2 * n

    async with app:
        jobs = [await add.enqueue(1), await double.enqueue(n=4), await app.enqueue("add", {"a": 1, "b": 2})]
        assert await app.run_until_idle(concurrency=2) == 3
        assert [await job.result(timeout=PATIENCE) for job in jobs] == [2, 8, 3]


async def test_a_rename_with_an_alias_does_not_strand_waiting_jobs(tmp_path: Path) -> None:
    """Jobs enqueued under the old name, in the topic of that name, are run by the renamed task."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    before, after = Tidewheel(url), Tidewheel(url)
    async with before:
        old = await before.task(name="notify")(lambda: 1).enqueue()

    @after.task(aliases=["notify"])
    def send_notice() -> int:
        return 2

    async with after:
        assert await after.run_until_idle() == 1
        assert await after.result(old.id, timeout=PATIENCE) == 2


def test_worker_options_are_the_workers_own() -> None:
    """The typed keywords and the worker's parameters are one list, but for what the app gives it."""
    parameters = inspect.signature(Worker).parameters.values()
    keywords = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    given = {"clock", "keeper_thread", "make_scheduler", "telemetry"}
    assert set(WorkerOptions.__annotations__) == keywords - given


async def test_topics_are_listed_paused_and_resumed(app: Tidewheel, clock: FrozenClock) -> None:
    """For a time, or until resumed."""
    await app.enqueue("t")
    await app.pause("t", 60)
    (topic,) = await app.topics()
    assert (topic.topic, topic.pending, topic.paused_until) == ("t", 1, clock.now() + 60_000_000)
    await app.pause("t")
    assert (await app.topics())[0].paused_until == FOREVER
    await app.resume("t")
    assert (await app.topics())[0].paused_until is None
    with pytest.raises(InvalidInput, match="seconds is -1"):
        await app.pause("t", -1)


async def test_stats_count_what_there_is(app: Tidewheel, finish: Finish) -> None:
    """Counts as of now, by state and topic."""
    job = await app.enqueue("t")
    await app.enqueue("t", delay=5)
    await finish(app, job)
    stats = await app.stats(window=timedelta(hours=1))
    assert (stats.pending, stats.delayed, stats.completed, stats.success_rate) == (1, 1, 1, 1.0)
    with pytest.raises(InvalidInput, match="window is nan"):
        await app.stats(float("nan"))


async def test_the_store_can_be_migrated_and_checked(app: Tidewheel) -> None:
    """An up-to-date, healthy store has nothing to say."""
    assert await app.migrate() == []
    assert await app.check() == []


async def test_opening_without_migration_leaves_the_schema_alone(tmp_path: Path) -> None:
    """Those who run DDL by hand get what they asked for."""
    async with Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}", migrate=False) as app:
        assert await app.migrate() != []


async def test_a_newer_schema_is_refused_by_those_who_do_not_migrate_too(tmp_path: Path) -> None:
    """Where the DDL is run by hand, an old program is as dangerous as anywhere."""
    path = tmp_path / "jobs.db"
    async with Tidewheel(f"sqlite:///{path}"):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO tidewheel_schema VALUES (99, 'from the future', 0)")
    app = Tidewheel(f"sqlite:///{path}", migrate=False)
    with pytest.raises(SchemaTooNew, match="99"):
        await app.open()
    assert not app.is_open


def test_the_schema_of_all_tasks_is_a_union_told_apart_by_name() -> None:
    """Other programs can know what this app takes, whatever its tasks are called."""
    app = Tidewheel("memory://")

    @app.task
    def one(a: int) -> None: ...

    @app.task(name="b/c {d}~", topic="bc")
    def two() -> None: ...

    schema = app.json_schema()
    assert [choice["properties"]["task"] for choice in schema["oneOf"]] == [
        {"const": "one"},
        {"const": "b/c {d}~"},
    ]
    assert schema["oneOf"][1]["properties"]["payload"] == {"$ref": "#/$defs/b~1c%20%7Bd%7D~0"}
    assert schema["$defs"]["one"]["properties"] == {"a": {"type": "integer"}}


def test_an_app_does_not_show_its_password() -> None:
    """Reprs end up in logs."""
    app = Tidewheel("memory://secret")
    assert "secret" not in repr(app)


async def test_a_missing_job_is_not_found(app: Tidewheel) -> None:
    """Whatever is asked about it."""
    with pytest.raises(JobNotFound):
        await app.result(uuid4(), timeout=PATIENCE)
