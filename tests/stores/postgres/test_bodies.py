"""Whatever goes in comes out, byte by byte: bodies, names, words of errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from tests.patience import PATIENCE
from tests.stores.postgres.stores import opened, raw
from tidewheel.core.model import (
    BodyFormat,
    Cancelled,
    Completed,
    Enqueued,
    Failed,
    JobError,
    JobFilter,
    KeyLifetime,
    Lane,
    NewJob,
    OnDuplicate,
    Outcome,
    Progress,
    Report,
    Retried,
    State,
)
from tidewheel.errors import StoreError, StoreUnavailable
from tidewheel.stores.postgres import PostgresStore
from tidewheel.stores.postgres.enqueue import BYTES_PER_WRITE, LARGE_BYTES
from tidewheel.testing.conformance.helpers import (
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    job,
    settle_one,
)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as [store]:
        yield store
        assert await store.check() == []


JSON = [
    b"1e400",
    b"-0.0",
    b"-0",
    b"123456789012345678901234567890.12345678901234567890",
    b'"\\u0000"',
    b'{"\\u0000": "\\u0000\\u0000"}',
    b'"\\ud800"',
    b'"\\ud83d\\ude00"',
    '"😀 ﷽ \u202e \u2028 é é"'.encode(),
    b'"\x7f"',
    b'{ "spaces":\t[ 1 ,\n2 ],\r\n"b": 1, "a": 2, "b": 3 }',
    b'"$1 %s {schema} \\\\ \' \\" ; DROP TABLE jobs; --"',
    b"",
    b"null",
    b"not json at all",
    b"\xff\xfe not UTF-8, whatever it says it is",
    b'"a raw NUL: \x00"',
]
LENGTHS = [LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 2 * LARGE_BYTES, 10_240, 61_440, 300_000]


async def test_json_comes_back_as_it_was_put_in(store: PostgresStore) -> None:
    """Numbers beyond every range, escapes of NUL and of half a surrogate pair, spaces, order: all kept."""
    ids = [await enqueue_one(store, payload=body) for body in JSON]
    assert [claimed.payload for claimed in await claim_jobs(store)] == JSON
    assert [(await get_job(store, job_id)).payload for job_id in ids] == JSON


@pytest.mark.parametrize("kind", BodyFormat)
async def test_a_body_of_any_length_comes_back(store: PostgresStore, kind: BodyFormat) -> None:
    """Also around the length from which on a body is kept apart from its row."""
    pattern = bytes(range(256)) if kind is BodyFormat.BYTES else '"0123456789abcdefé'.encode()
    bodies = [(pattern * (length // len(pattern) + 1))[:length] for length in LENGTHS]
    bodies += ["é".encode() * (LARGE_BYTES // 2), "é".encode() * (LARGE_BYTES // 2) + b"x", b"\x00"]
    answers = await store.enqueue([job(payload=body, format=kind) for body in bodies])
    claimed = await claim_jobs(store)
    assert [one.payload for one in claimed] == bodies
    assert {one.format for one in claimed} == {kind}
    assert [(await get_job(store, answer.job_id)).payload for answer in answers] == bodies


async def test_a_replacement_may_grow_shrink_and_change_its_format(store: PostgresStore) -> None:
    """A job that is debounced from a small body to a large one and back has one body, the newest."""
    job_id = await enqueue_one(store, key="k")
    small, large = b'"small"', b'"%s"' % (b"l" * 5000)
    for body, kind in [
        (large, BodyFormat.JSON),
        (b"\x00" * 3000, BodyFormat.BYTES),
        (b"\x00", BodyFormat.BYTES),
        (small, BodyFormat.JSON),
        (b"\xff" * 2000, BodyFormat.BYTES),
        (large, BodyFormat.JSON),
        (small, BodyFormat.JSON),
    ]:
        [answer] = await store.enqueue(
            [job(key="k", on_duplicate=OnDuplicate.REPLACE, payload=body, format=kind)]
        )
        assert answer.replaced
        record = await get_job(store, job_id)
        assert (record.payload, record.format) == (body, kind)
        assert await store.check() == []
    assert (await claim_one(store)).payload == small


async def test_results_and_checkpoints_come_back(store: PostgresStore) -> None:
    """A checkpoint reaches the next attempt, a result those who wait, whatever their size and escapes."""
    bodies = [b'"\\u0000 \\ud800"', '"😀"'.encode(), b'"%s"' % (b"x" * 60_000), b"1e400", b"null"]
    for body in bodies:
        job_id = await enqueue_one(store)
        claimed = await claim_one(store)
        assert await store.report([Report(claimed.lease, checkpoint=body)]) == [True]
        assert await settle_one(store, claimed.lease, Retried(0.0, JobError("again", "please")))
        claimed = await claim_one(store)
        assert claimed.checkpoint == body
        assert await settle_one(store, claimed.lease, Completed(body))
        record = await get_job(store, job_id)
        assert (record.result, record.checkpoint) == (body, body)


async def test_a_large_body_survives_every_move_of_its_job(store: PostgresStore) -> None:
    """Failed, requeued, cancelled, requeued, completed: the body stays where it is and is found each time."""
    body = b'"%s"' % (b"x" * 9000)
    job_id = await enqueue_one(store, payload=body)
    assert await settle_one(store, (await claim_one(store)).lease, Failed(JobError("boom", "once")))
    assert (await get_job(store, job_id)).payload == body
    await store.requeue([job_id])
    await store.cancel([job_id])
    await store.requeue([job_id])
    claimed = await claim_one(store)
    assert claimed.payload == body
    assert await settle_one(store, claimed.lease, Completed(body))
    assert (await get_job(store, job_id)).payload == body
    await store.delete([job_id])


ODD = [
    "quote ' double \" back\\slash % %s %1$s $1 {schema} ; --",
    "élève 😀 \u202egnippilf\u202c 中文",
    "tab\tnewline\nreturn\r",
    "x" * 200,
    "\u00e9" * 200,
    "NULL",
    "*",
    "_",
]


@pytest.mark.parametrize("word", ODD, ids=range(len(ODD)))
async def test_odd_words_are_only_words(store: PostgresStore, word: str) -> None:
    """Topics, tasks, tenants, keys and ids that look like SQL, patterns or formats are taken literally."""
    other = await enqueue_one(store, "plain", task="plain", key="plain")
    job_id = await enqueue_one(
        store,
        word,
        task=word,
        tenant=word,
        key=word,
        correlation_id=word,
        user_id=word,
        service_id=word,
        headers=word,
        retry=word,
    )
    [again] = await store.enqueue([job(word, task=word, tenant=word, key=word)])
    assert (again.job_id, again.duplicate) == (job_id, True)
    page = await store.list_jobs(
        JobFilter(topic=word, task=word, tenant=word, key=word, correlation_id=word), limit=10
    )
    assert [record.id for record in page.items] == [job_id]
    await store.pause(word, 2**60)
    assert await claim_jobs(store, Lane(word, word)) == []
    assert word in {topic.topic for topic in await store.topics()}
    await store.pause(word, None)
    [claimed] = await claim_jobs(store, Lane(word, word), worker=word)
    assert (claimed.lease.job_id, claimed.tenant, claimed.key, claimed.retry) == (job_id, word, word, word)
    assert (claimed.correlation_id, claimed.user_id, claimed.service_id, claimed.headers) == (word,) * 4
    assert await store.report([Report(claimed.lease, Progress(1.0, word, word))]) == [True]
    assert await settle_one(
        store, claimed.lease, Failed(JobError(word, word, details={word: word}, traceback=word))
    )
    record = await get_job(store, job_id)
    assert record.worker == word
    assert record.progress is not None
    assert (record.progress.message, record.progress.stage) == (word, word)
    assert record.attempts[0].error == JobError(word, word, details={word: word}, traceback=word)
    assert record.error_summary == f"{word}: {word}"[:200]
    assert await store.get(job_id, tenant="root") is None
    assert await store.get(job_id, tenant="%") is None
    assert (await get_job(store, other)).state is State.PENDING


async def test_a_lost_worker_with_an_odd_name_is_named_in_its_attempt_only(
    store: PostgresStore, postgres_url: str
) -> None:
    """More people read a job's errors than may know its workers."""
    name = "%s %1$s %% \\ ' \" 😀"
    job_id = await enqueue_one(store)
    await claim_one(store, worker=name)
    async with raw(postgres_url) as connection:
        await connection.execute("UPDATE jobs SET leased_until = 1")
    assert (await store.rescue()).returned == 1
    [attempt] = (await get_job(store, job_id)).attempts
    assert attempt.worker == name
    assert "lease ended during attempt 1;" in attempt.error.message
    assert name not in attempt.error.message


@pytest.mark.parametrize("kind", [Failed, Cancelled, lambda error: Retried(0.0, error)])
async def test_an_error_with_a_nul_can_be_settled(
    store: PostgresStore, kind: type[Failed] | type[Cancelled]
) -> None:
    """An outcome that could never be written would hold up all others of its worker."""
    error = JobError("nul\x00", "before \x00 after", details={"\x00": "\x00"}, traceback="\x00")
    job_id = await enqueue_one(store)
    outcome: Outcome = kind(error)
    assert await settle_one(store, (await claim_one(store)).lease, outcome)
    record = await get_job(store, job_id)
    assert record.attempts[0].error == error
    assert record.error_summary == "nul\\x00: before \\x00 after"


UNSTORABLE = {
    "a NUL in a topic": {"topic": "a\x00b"},
    "a NUL in a key": {"key": "a\x00b"},
    "half a surrogate pair": {"correlation_id": "\ud800 hunter2"},
    "a number too large": {"priority": 2**63},
    "the smallest number": {"priority": -(2**63)},
    "a key too long for an index": {"key": "".join(chr(0x10000 + n * 7919 % 50_000) for n in range(1000))},
}


@pytest.mark.parametrize("options", UNSTORABLE.values(), ids=UNSTORABLE)
async def test_a_job_that_cannot_be_stored_is_refused_at_once_and_alone(
    store: PostgresStore, options: dict[str, object]
) -> None:
    """Neither the caller is told to try again, nor do those suffer whose jobs were to be written with it."""
    bad = job(**{"topic": "mail", **options})  # type: ignore[arg-type]
    calls = [store.enqueue([job()]), store.enqueue([bad, job()]), store.enqueue([job()])]
    async with asyncio.timeout(PATIENCE):
        first, refused, last = await asyncio.gather(*calls, return_exceptions=True)
    assert not isinstance(first, BaseException)
    assert not isinstance(last, BaseException)
    assert isinstance(refused, StoreError)
    assert not isinstance(refused, StoreUnavailable)
    assert "hunter2" not in str(refused)
    assert (await store.count(JobFilter())).total == 2


async def test_those_behind_a_failing_write_are_written(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug that breaks one write is told to its callers; the next in line do not wait for ever."""
    async with opened(postgres_url) as [store]:
        insert = store._writer._insert
        broken = job("broken")

        async def fail_once(jobs: list[NewJob]) -> list[Enqueued]:
            if broken in jobs:
                await asyncio.sleep(0.05)
                raise ArithmeticError("a bug")
            return await insert(jobs)

        monkeypatch.setattr(store._writer, "_insert", fail_once)
        failing = [asyncio.create_task(store.enqueue([broken])) for _ in range(2)]
        await asyncio.sleep(0.01)
        with caplog.at_level(logging.CRITICAL, "tidewheel.postgres"):
            async with asyncio.timeout(PATIENCE):
                await store.enqueue([job()])
                for task in failing:
                    with pytest.raises(StoreUnavailable, match="ArithmeticError"):
                        await task
        assert (await store.count(JobFilter())).total == 1


async def test_the_key_of_a_job_that_was_taken_out_by_hand_is_free(
    store: PostgresStore, postgres_url: str
) -> None:
    """An operator who deletes rows in psql leaves keys behind; they must not stop anybody."""
    for until in KeyLifetime:
        await enqueue_one(store, key=f"k-{until}", key_until=until)
    async with raw(postgres_url) as connection:
        await connection.execute("DELETE FROM jobs; DELETE FROM counter_deltas; DELETE FROM job_counts")
    async with asyncio.timeout(PATIENCE):
        answers = await store.enqueue([job(key=f"k-{until}", key_until=until) for until in KeyLifetime])
    assert not any(answer.duplicate for answer in answers)
    assert len(await claim_jobs(store)) == 2


async def test_a_group_of_large_bodies_is_written_in_portions(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many callers with large bodies at once do not make one statement of a hundred megabytes."""
    insert = store._writer._insert
    sizes = []

    async def watch(jobs: list[NewJob]) -> list[Enqueued]:
        sizes.append(sum(len(one.payload) for one in jobs))
        return await insert(jobs)

    monkeypatch.setattr(store._writer, "_insert", watch)
    body = b'"%s"' % (b"x" * 60_000)
    answers = await asyncio.gather(*(store.enqueue([job(payload=body)]) for _ in range(300)))
    assert len({answer[0].job_id for answer in answers}) == 300
    assert max(sizes) <= BYTES_PER_WRITE < sum(sizes)


async def test_a_batch_of_the_largest_size_is_written(store: PostgresStore) -> None:
    """Ten thousand jobs in one call are one transaction."""
    ids = await enqueue_many(store, 10_000)
    assert len(set(ids)) == 10_000
    assert (await store.count(JobFilter())).total == 10_000
