"""New jobs in a transaction of somebody else's: everything is said in one text and answered in one.

Both are ASCII, whatever the jobs hold: a connection may have any client_encoding.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final
from uuid import UUID

import msgspec

from tidewheel.core.clock import Clock, SystemClock
from tidewheel.core.model import Enqueued, JobRecord, NewJob
from tidewheel.errors import LimitExceeded
from tidewheel.stores.bounds import MAX_ENQUEUE_BATCH, StoreLimits
from tidewheel.stores.enqueue import (
    check_store_limits,
    count_new_jobs_by_topic,
    key_in_use_error,
    parent_not_found_error,
)
from tidewheel.stores.external_transaction import (
    ExternalEnqueueResult,
    PgStatement,
    TransactionSteps,
    UncommittedEnqueue,
    lowest_numbers_by_topic,
)
from tidewheel.stores.postgres.enqueue import PARAMETER_NAMES, enqueue_arguments, enqueue_results
from tidewheel.stores.postgres.location import parse_url
from tidewheel.stores.postgres.row_mapping import COLUMN_COUNT, full_record
from tidewheel.stores.sql_files import SqlFile

_verbs = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")

MAX_TEXT_BYTES: Final = 32 * 1024 * 1024
"""Of the payloads in one text; more are said in several."""

_BINARY_PARAMETER: Final = PARAMETER_NAMES.index("raws")
_BINARY_COLUMN: Final = COLUMN_COUNT + 2


class PostgresExternalTransaction:
    """What is said to the functions of one schema."""

    dialect: ClassVar[str] = "postgresql"

    def __init__(self, url: str, clock: Clock, limits: StoreLimits) -> None:
        self._schema = f'"{parse_url(url).schema}"'
        self._clock = None if isinstance(clock, SystemClock) else clock
        self._limits = limits

    def enqueue(self, jobs: Sequence[NewJob]) -> TransactionSteps[ExternalEnqueueResult]:
        if (problem := (yield from self._limit_problem(jobs))) is not None:
            raise problem
        now = None if self._clock is None else self._clock.now()
        answers: list[Enqueued] = []
        holders: dict[UUID, JobRecord] = {}
        untold: list[UncommittedEnqueue] = []
        for part in _split_by_bytes(jobs):
            answer = msgspec.json.decode(
                (yield self._call_function(_verbs["enqueue_json"], _encode_jobs(part, now)))
            )
            if "missing" in answer:
                raise parent_not_found_error(answer["missing"])
            if "hidden" in answer:
                raise key_in_use_error(_decoded(answer["hidden"]))
            rows = [
                (UUID(own), None if holder is None else UUID(holder), *rest)
                for own, holder, *rest in answer["rows"]
            ]
            written = enqueue_results(part, rows)
            answers += written
            holders |= {record.id: record for record in map(_record, _decoded(answer["holders"]) or ())}
            if not answer["told"]:
                untold.append(
                    UncommittedEnqueue(answer["transaction"], lowest_numbers_by_topic(part, written))
                )
        return ExternalEnqueueResult(answers, holders, untold)

    def get(self, job_id: UUID, tenant: str | None) -> TransactionSteps[JobRecord | None]:
        row = _decoded((yield self._call_function(_verbs["get_json"], {"id": job_id, "tenant": tenant})))
        return None if row is None else _record(row)

    def _limit_problem(self, jobs: Sequence[NewJob]) -> TransactionSteps[LimitExceeded | None]:
        if not (self._limits.max_topics or self._limits.max_jobs_per_topic):
            return None
        keys = [
            {"tenant": job.tenant, "scope": job.task or job.topic, "key": job.key}
            for job in jobs
            if job.key is not None
        ]
        tenants = {job.tenant for job in jobs}
        # For jobs of several tenants it is what the transaction sees by itself.
        wanted = {"tenant": tenants.pop() if len(tenants) == 1 else None, "keys": keys}
        answer = _decoded((yield self._call_function(_verbs["store_limits_json"], wanted)))
        taken = {tuple(key) for key in answer["taken"] or ()}
        active = {topic: int(number) for topic, number in answer["topics"] or ()}
        return check_store_limits(
            self._limits,
            count_new_jobs_by_topic(jobs, taken),
            topics=active.keys,
            active=lambda topic: active.get(topic, 0),
        )

    def _call_function(self, statement: str, given: object) -> PgStatement:
        text = json.dumps(given, default=str, separators=(",", ":"))  # msgspec would not escape
        return PgStatement(statement.replace("{schema}", self._schema), text)


def _split_by_bytes(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """As many as are said in one text, which PostgreSQL takes up to a gigabyte of."""
    start = size = 0
    for end, job in enumerate(jobs):
        size += len(job.payload)
        if end > start and (end - start == MAX_ENQUEUE_BATCH or size > MAX_TEXT_BYTES):
            yield jobs[start:end]
            start, size = end, len(job.payload)
    yield jobs[start:]


def _decoded(text: str | None) -> Any:
    """Where an answer may hold any characters, it comes in base64."""
    return None if text is None else msgspec.json.decode(base64.b64decode(text))


def _record(row: list[Any]) -> JobRecord:
    row[0] = UUID(row[0])
    if row[_BINARY_COLUMN] is not None:
        row[_BINARY_COLUMN] = bytes.fromhex(row[_BINARY_COLUMN])
    return full_record(row)


def _encode_jobs(jobs: Sequence[NewJob], now: int | None) -> dict[str, Any]:
    values: list[Any] = list(enqueue_arguments(jobs, now, again=False))
    if values[_BINARY_PARAMETER] is not None:
        values[_BINARY_PARAMETER] = [
            None if raw is None else f"\\x{raw.hex()}" for raw in values[_BINARY_PARAMETER]
        ]
    return dict(zip(PARAMETER_NAMES, values, strict=True))
