"""Translate a job filter into SQL statements on indexes, newest jobs first.

Each source is a statement that yields numbers in falling order and stops early; the sources are merged. The
filter and the counters decide which indexes are used, never the planner's statistics. Bounds on the creation
time become ranges of job numbers, found by sampling some jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from tidewheel.core.conditions import Condition
from tidewheel.core.model import FINAL_STATES, ROOT_TENANT, DerivedState, JobFilter, State
from tidewheel.stores.condition_sql import condition_to_sql
from tidewheel.stores.postgres.condition_sql import PostgresDialect
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.query_plan import (
    SAMPLES_PER_ROUND,
    NumberRange,
    RangeSearch,
    Sample,
    SampleRequest,
    find_number_range,
    split_filter,
)
from tidewheel.stores.sql_files import SqlFile

_sql = SqlFile("tidewheel.stores.postgres", "sql/query_plan.sql")


class NumberRangeSearch:
    """Looks at the jobs of one table."""

    def __init__(self, database: Database, connection: Any, table: str) -> None:
        self._connection = connection
        self._ends = database.qualify(_sql["first_and_last"].replace("{table}", table))
        self._samples = database.qualify(_sql["samples"].replace("{table}", table))

    async def run(self, asking: RangeSearch) -> NumberRange:
        """What it comes to, once everything it asks for was looked at."""
        try:
            wanted = next(asking)
            while True:
                wanted = asking.send(await self._read_samples(wanted))
        except StopIteration as told:
            found: NumberRange = told.value
            return found

    async def _read_samples(self, wanted: SampleRequest) -> list[Sample]:
        if wanted is None:
            rows = await self._connection.fetch(self._ends)
        else:
            rows = await self._connection.fetch(self._samples, *wanted, SAMPLES_PER_ROUND - 1)
        return [Sample(*row) for row in rows]


_read_sql = SqlFile("tidewheel.stores.postgres", "sql/job_queries.sql")

MAX_LANES_PER_PLAN: Final = 1000
MAX_ROWS_FROM_LANES: Final = 100_000
"""What many lanes may have to yield together, before walking through all jobs is the better way."""
ALWAYS_BY_LANE: Final = 4
"""So many lanes are always the better way."""
NO_CURSOR: Final = 2**63 - 1

_COLUMNS: Final = {
    # field of the filter: column, comparison, type
    "topic": ("j.topic", "=", "text"),
    "task": ("j.task", "=", "text"),
    "tenant": ("j.tenant", "=", "text"),
    "key": ("j.key", "=", "text"),
    "correlation_id": ("j.correlation_id", "=", "text"),
    "created_after": ("j.created_at", ">=", "bigint"),
    "created_before": ("j.created_at", "<", "bigint"),
}
_RUNNING: Final = (State.RUNNING, DerivedState.CLAIMED)
_INDEXED: Final = (DerivedState.RETRYING, DerivedState.BLOCKED)  # by number, in an index of their own
_FAILED_STATE_CODES: Final = {State.FAILED: "4", State.CANCELLED: "5"}


class ScannedJob(NamedTuple):
    """A job of the filter's fields; ``possible`` says whether its columns rule the condition out."""

    number: int
    created_at: int
    possible: bool


class PlannedQuery:
    """Statements that find the numbers of matching jobs."""

    def __init__(
        self, database: Database, connection: Any, sources: str, values: list[object], *, searching: bool
    ) -> None:
        self._connection = connection
        self._values = values  # from $3 on
        offset = f"${len(values) + 3}::bigint"
        # Not with ``qualify``, which remembers: there are as many statements as there are conditions.
        sources = sources.replace("{schema}", database.schema)
        numbers = _read_sql["numbers"].replace("{also}", ", created_at, possible" if searching else "")
        self._numbers = numbers.replace("{offset}", offset).replace("{sources}", sources)
        self._count = _read_sql["count"].replace("{sources}", sources)

    async def numbers(self, limit: int, cursor: int | None, offset: int = 0) -> list[int]:
        """The newest below the cursor, in falling order."""
        return [row[0] for row in await self._rows(limit, cursor, offset)]

    async def scan(self, limit: int, cursor: int | None) -> list[ScannedJob]:
        """The same with what a search wants to know of each."""
        return [ScannedJob(*row) for row in await self._rows(limit, cursor, 0)]

    async def _rows(self, limit: int, cursor: int | None, offset: int) -> list[Any]:
        below = NO_CURSOR if cursor is None else cursor
        values = (limit + offset, below, *self._values, offset)
        return cast("list[Any]", await self._connection.fetch(self._numbers, *values))

    async def count(self, limit: int) -> int:
        """How many there are, but not more than this."""
        return int(await self._connection.fetchval(self._count, limit, NO_CURSOR, *self._values))


@dataclass(frozen=True, slots=True)
class _RowEstimates:
    """How many jobs would have to be looked at."""

    unfinished: int
    running: int
    finished: int
    failed: int
    cancelled: int


class QueryPlanner:
    """One filter on its way to SQL. Every value is a parameter; only fixed text is put together."""

    def __init__(
        self,
        database: Database,
        connection: Any,
        where: JobFilter,
        now: int,
        *,
        column_condition: Condition | None = None,
    ) -> None:
        """``possible``: a condition on columns, for a search."""
        self._database = database
        self._connection = connection
        self._where = where  # the alternative at hand, once there are several
        self._now = now
        self._possible = column_condition
        self._wanted = 0
        self._values: list[object] = []
        self._placeholders: dict[tuple[str, object], str] = {}
        self._above = self._below = ""
        self._bounds: dict[str, tuple[str, str]] = {}  # by table
        self._counted: dict[str, list[Any]] = {}  # by statement and what it was asked
        self._estimates: _RowEstimates | None = None
        self._tenant_estimates: _RowEstimates | None = None
        self._lanes: list[Any] | None = None
        self._condition_columns_by_table: dict[str, str] = {}  # by table

    async def plan(self, wanted: int) -> PlannedQuery:
        """Where to look for jobs, when each lane has to yield up to ``wanted``."""
        self._wanted = wanted
        sources: list[str] = []
        for where in split_filter(self._where):
            self._where = where
            sources += await self._sources()
        together = " UNION ALL ".join(f"({source})" for source in sources)
        searching = self._possible is not None
        return PlannedQuery(self._database, self._connection, together, self._values, searching=searching)

    async def _sources(self) -> list[str]:
        """For one alternative."""
        where = self._where
        self._estimates = self._tenant_estimates = self._lanes = None
        if self._key_column() is None:
            await self._read_counters()
        sources: list[str] = []
        if where.state not in FINAL_STATES:
            sources += await self._unfinished()
        if where.key is None and (where.state is None or where.state in _RUNNING):
            sources.append(self._source("batched", []))
        if where.state is None or where.state in FINAL_STATES:
            sources += await self._finished()
        return sources

    async def _read_counters(self) -> None:
        where = self._where
        by_lane = where.topic is not None or where.task is not None or where.state is DerivedState.DELAYED
        by_tenant = where.tenant not in (None, ROOT_TENANT)
        if by_lane:
            delayed = where.state is DerivedState.DELAYED
            lanes = await self._count(
                "lanes", where.topic, where.task, where.tenant, delayed, MAX_LANES_PER_PLAN + 1
            )
            self._lanes = None if self._too_many(len(lanes)) else lanes
        if by_lane or by_tenant:
            [row] = await self._count("row_estimates", where.tenant)
            self._estimates = _RowEstimates(*row[:5])
            self._tenant_estimates = _RowEstimates(*row[5:]) if by_tenant else None

    async def _count(self, name: str, *values: object) -> list[Any]:
        """Once for all alternatives that ask the same."""
        asked = f"{name} {values}"
        if asked not in self._counted:
            statement = self._database.qualify(_sql[name])
            self._counted[asked] = await self._connection.fetch(statement, *values)
        return self._counted[asked]

    # -- unfinished jobs --------------------------------------------------------------------------------

    async def _unfinished(self) -> list[str]:
        state = self._where.state
        await self._limit_to_number_range("jobs")
        extra: list[str] = []
        if state is not None:
            extra.append(self._dialect("jobs").state(state))
        if (column := self._key_column()) is not None:
            return [self._column_source("jobs", column, extra)]
        ways: list[tuple[int, str]] = []
        if self._tenant_estimates is not None and self._database.sees_one_tenant:
            ways.append((0, "tenant"))  # the counters do not tell of others' jobs, which are in the way
        elif self._estimates is not None:
            if state in _RUNNING:
                ways.append((self._estimates.running, "running"))
            elif self._lanes is not None and state not in _INDEXED:
                ways.append((sum(lane["unfinished"] for lane in self._lanes), "lanes"))
            if self._tenant_estimates is not None:
                ways.append((self._tenant_estimates.unfinished, "tenant"))
            ways.append((MAX_ROWS_FROM_LANES if state in _INDEXED else self._estimates.unfinished, "number"))
        elif state in _RUNNING:
            ways.append((0, "running"))
        for _, way in sorted(ways, key=lambda way: way[0]):
            if way == "running":
                return [self._source("running", extra)]
            if way == "tenant":
                return [self._column_source("jobs", "tenant", [*extra, "j.tenant <> 'root'"])]
            if way == "lanes" and (sources := await self._unfinished_of_lanes(extra)) is not None:
                return sources
            if way == "number":
                break
        return [self._source("by_number", extra, table="jobs")]

    async def _unfinished_of_lanes(self, extra: list[str]) -> list[str] | None:
        """Ready, waiting and running jobs are kept in different orders; None when there are too many."""
        lanes = self._lanes or []
        levels = []
        if self._where.state is not DerivedState.DELAYED:
            levels = await self._connection.fetch(
                self._database.qualify(_sql["levels"]),
                [lane["topic"] for lane in lanes],
                [lane["task"] for lane in lanes],
                MAX_LANES_PER_PLAN + 1,
            )
            if self._too_many(len(levels)):
                return None
        covered = ("topic", "task")
        sources = []
        if levels:
            urgencies = self._add([level["urgency"] for level in levels], "bigint[]")
            arrays = self._arrays(levels)
            sources.append(self._source("by_level", extra, covered, urgencies=urgencies, **arrays))
        arrays = self._arrays(lanes)
        sources.append(self._source("by_lane", [*extra, "j.state = 0"], covered, table="jobs", **arrays))
        if self._where.state is None:
            sources.append(self._source("running", extra))
        return sources

    # -- finished jobs ----------------------------------------------------------------------------------

    async def _finished(self) -> list[str]:
        state = self._where.state
        await self._limit_to_number_range("finished_jobs")
        extra = [] if state is None else [self._dialect("finished_jobs").state(state)]
        if (column := self._key_column()) is not None:
            return [self._column_source("finished_jobs", column, extra)]
        ways: list[tuple[int, str]] = []
        bad = _FAILED_STATE_CODES.get(state) if isinstance(state, State) else None
        if self._tenant_estimates is not None and self._database.sees_one_tenant:
            ways.append((0, "tenant"))
        elif self._estimates is not None:
            if self._lanes is not None:
                ways.append((sum(lane["finished"] for lane in self._lanes), "lanes"))
            if bad is not None:
                ways.append(
                    (self._estimates.failed if state is State.FAILED else self._estimates.cancelled, "bad")
                )
            if self._tenant_estimates is not None:
                ways.append((self._tenant_estimates.finished, "tenant"))
            ways.append((self._estimates.finished, "number"))
        else:
            ways.append((0, "number" if bad is None else "bad"))
        way = min(ways, key=lambda way: way[0])[1]
        if way == "lanes":
            arrays = self._arrays(self._lanes or [])
            return [self._source("by_lane", extra, ("topic", "task"), table="finished_jobs", **arrays)]
        if way == "bad" and bad is not None:
            return [self._column_source("finished_jobs", "state", ["j.state > 3"], bad)]
        if way == "tenant":
            return [self._column_source("finished_jobs", "tenant", [*extra, "j.tenant <> 'root'"])]
        return [self._source("by_number", extra, table="finished_jobs")]

    # -- parts ------------------------------------------------------------------------------------------

    def _key_column(self) -> str | None:
        """A column that by itself leaves few jobs."""
        names = ("key", "correlation_id")
        return next((name for name in names if getattr(self._where, name) is not None), None)

    def _too_many(self, lanes: int) -> bool:
        return lanes > ALWAYS_BY_LANE and (
            lanes > MAX_LANES_PER_PLAN or lanes * self._wanted > MAX_ROWS_FROM_LANES
        )

    async def _limit_to_number_range(self, table: str) -> None:
        """Look only between the numbers that were given to jobs in the wanted time."""
        after, before = self._where.created_after, self._where.created_before
        if table not in self._bounds:
            above, below = "0::bigint", "$2::bigint"
            # Under row-level security the jobs in between, from which it is told, are mostly others'.
            if (after, before) != (None, None) and not self._database.sees_one_tenant:
                looking = NumberRangeSearch(self._database, self._connection, table)
                numbers = await looking.run(find_number_range(after, before))
                if numbers.above is not None:
                    above = self._add(numbers.above, "bigint")
                if numbers.below is not None:
                    below = f"least($2::bigint, {self._add(numbers.below, 'bigint')})"
            self._bounds[table] = above, below
        self._above, self._below = self._bounds[table]

    def _column_source(self, table: str, column: str, extra: list[str], value: str | None = None) -> str:
        if value is None:
            value = self._placeholder(column)
        return self._source("by_column", extra, (column,), table=table, column=column, value=value)

    def _source(self, name: str, extra: list[str], covered: tuple[str, ...] = (), **names: str) -> str:
        """A statement of ``query_plan.sql`` with all conditions but those it covers.

        Those must not be said again: after ``topic = …`` an order by topic means nothing, and the planner
        would be free to take another index.
        """
        conditions = [
            f"{column} {comparison} {self._placeholder(field)}"
            for field, (column, comparison, _) in _COLUMNS.items()
            if field not in covered and getattr(self._where, field) is not None
        ]
        text = _sql[name].replace("{and}", "".join(f" AND {part}" for part in (*conditions, *extra)))
        text = text.replace("{also}", self._condition_columns(names.get("table", "jobs")))
        for placeholder, value in (("above", self._above), ("below", self._below), *names.items()):
            text = text.replace(f"{{{placeholder}}}", value)
        return text

    def _condition_columns(self, table: str) -> str:
        """What is told of each job of this table beside its number."""
        if self._possible is None:
            return ""
        if table not in self._condition_columns_by_table:
            told = condition_to_sql(self._possible, self._dialect(table))
            self._condition_columns_by_table[table] = f", j.created_at, {told} AS possible"
        return self._condition_columns_by_table[table]

    def _dialect(self, table: str) -> PostgresDialect:
        return PostgresDialect(self._add, self._now, finished=table == "finished_jobs")

    def _arrays(self, lanes: list[Any]) -> dict[str, str]:
        return {
            "topics": self._add([lane["topic"] for lane in lanes], "text[]"),
            "tasks": self._add([lane["task"] for lane in lanes], "text[]"),
        }

    def _placeholder(self, field: str) -> str:
        """Added when first used: a parameter that is not used has no type."""
        value = getattr(self._where, field)
        if (field, value) not in self._placeholders:
            self._placeholders[field, value] = self._add(value, _COLUMNS[field][2])
        return self._placeholders[field, value]

    def _add(self, value: object, kind: str) -> str:
        self._values.append(value)
        return f"${len(self._values) + 2}::{kind}"
