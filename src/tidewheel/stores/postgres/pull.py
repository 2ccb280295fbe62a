"""What those need who pull jobs by hand: touches, kicks, peeks, and how much is in a topic."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final
from uuid import UUID

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.model import URGENT_ABOVE, ActionResult, JobRecord, Lease, TopicHead
from tidewheel.core.reports import TopicDepth
from tidewheel.stores.bounds import MAX_COUNT, MAX_SCANNED_JOBS
from tidewheel.stores.postgres.database import Database, Record
from tidewheel.stores.postgres.dependencies import ReleaseResult
from tidewheel.stores.postgres.row_mapping import full_record
from tidewheel.stores.postgres.settlements import unique_leases_by_id
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.terminal_errors import CANCELLED_ON_REQUEST, summarise_error

_sql = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")
_read_sql = SqlFile("tidewheel.stores.postgres", "sql/job_queries.sql")

MAX_SCANNED_OF_TENANT: Final = 1000
"""So many unfinished jobs of a tenant are looked at one by one."""
MAX_INTEGER: Final = 2**63 - 1

# As ``get`` shows it, in the same statement: meanwhile nobody can take the job away.
_peek: Final = _sql["first_job_of_topic"] + _read_sql["get"].replace(
    "{columns}", _read_sql["columns"]
).replace("{parents}", _read_sql["parents"]).replace("$1::uuid", "(SELECT id FROM head)").replace(
    "ARRAY[$1]", "ARRAY[(SELECT id FROM head)]"
)


async def touch(database: Database, leases: Sequence[Lease], lease_seconds: float) -> list[float | None]:
    ordered = unique_leases_by_id(leases)
    rows = await database.fetch(
        _sql["touch"],
        database.now,
        [lease.job_id for lease in ordered],
        [lease.fence for lease in ordered],
        seconds_to_microseconds(lease_seconds),
    )
    touched = {ordered[position - 1]: lease_us / MICROSECONDS for position, lease_us in rows}
    return [touched.get(lease) for lease in leases]


async def kick(database: Database, topic: str, limit: int, tenant: str | None, *, failed_only: bool) -> int:
    values = (database.now, topic, limit, MAX_SCANNED_JOBS, tenant, failed_only)
    [row] = await database.fetch_for(tenant, _sql["kick"], *values)
    return int(row[0])


async def change(database: Database, verb: str, job_ids: Sequence[UUID], tenant: str | None) -> list[Record]:
    """Requeue, kick or remove jobs; return the position and verdict of each, and what else the verb tells."""
    return await database.fetch_for(tenant, _sql[verb], database.now, list(job_ids), tenant)


async def take_back(
    database: Database, job_ids: Sequence[UUID], tenant: str | None, released: ReleaseResult
) -> tuple[list[ActionResult], list[str]]:
    """A verdict for each, and the topics of those that are ready again."""
    summary = summarise_error(CANCELLED_ON_REQUEST)
    values = (database.now, list(job_ids), tenant, summary)
    rows = sorted(
        released.split_rows(await database.fetch_for(tenant, _sql["take_back"], *values)), key=itemgetter(0)
    )
    return [ActionResult(verdict) for _, verdict, _ in rows], [
        topic for _, _, topic in rows if topic is not None
    ]


async def job_ids(database: Database, numbers: Sequence[int], tenant: str | None) -> list[UUID | None]:
    asked = [number if 0 < number <= MAX_INTEGER else 0 for number in numbers]  # no job has number 0
    rows = await database.fetch_for(tenant, _read_sql["job_ids"], asked, tenant)
    return [row[0] for row in rows]


async def peek(database: Database, topic: str, head: TopicHead, tenant: str | None) -> JobRecord | None:
    values = (topic, tenant, database.now, head.value, MAX_SCANNED_OF_TENANT, MAX_SCANNED_JOBS)
    rows = await database.fetch_for(tenant, _peek, *values)
    return full_record(rows[0]) if rows else None


async def depths(database: Database, topics: Sequence[str] | None, tenant: str | None) -> list[TopicDepth]:
    wanted = None if topics is None else list(topics)
    values = (database.now, wanted, tenant, URGENT_ABOVE, MAX_COUNT, MAX_SCANNED_JOBS)
    [(names, ready, delayed, running, failed, urgent, paused, until)] = await database.fetch_for(
        tenant, _sql["topic_depths"], *values
    )
    pauses: dict[str, int] = dict(zip(paused, until, strict=True))
    if tenant is not None:  # the pause of a topic without jobs of this tenant is none of its business
        pauses = {topic: pauses[topic] for topic in names if topic in pauses}
    found = {topic: TopicDepth(topic, paused_until=until) for topic, until in pauses.items()}
    for place, topic in enumerate(names):
        found[topic] = TopicDepth(
            topic,
            ready=ready[place],
            delayed=delayed[place],
            running=running[place],
            failed=failed[place],
            urgent=min(urgent[place], MAX_COUNT),
            paused_until=pauses.get(topic),
        )
    if topics is None:
        return [found[topic] for topic in sorted(found)]
    return [found.get(topic, TopicDepth(topic)) for topic in topics]
