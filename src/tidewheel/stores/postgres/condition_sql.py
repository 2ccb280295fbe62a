"""Conditions in PostgreSQL's words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from tidewheel.core.conditions import Condition, Field
from tidewheel.core.model import DerivedState, State
from tidewheel.stores.bounds import MAX_SUMMARY_LENGTH
from tidewheel.stores.condition_sql import ConditionDialect, condition_to_sql
from tidewheel.stores.sql_files import SqlFile

_sql = SqlFile("tidewheel.stores.postgres", "sql/job_queries.sql")

_STATES: Final = {
    State.PENDING: "j.state < 2",
    State.RUNNING: "j.state = 2",
    State.COMPLETED: "j.state = 3",
    State.FAILED: "j.state = 4",
    State.CANCELLED: "j.state = 5",
    DerivedState.DELAYED: "j.state = 0 AND j.blocked = 0 AND j.run_at > {now}",
    DerivedState.RETRYING: "j.attempt > 0 AND j.state < 2",
    DerivedState.BLOCKED: "j.blocked > 0 AND j.state = 0",
    DerivedState.CLAIMED: "j.state = 2 AND j.started_at IS NULL",
}


class PostgresDialect(ConditionDialect):
    """Of statements on unfinished or finished jobs: tables leave out columns that mean nothing there."""

    collation = ' COLLATE "C"'

    def __init__(self, add: Callable[[object, str], str], now: int, *, finished: bool = False) -> None:
        """``add`` takes a value and its type, and answers the parameter it became."""
        self._add = add
        self._now = now
        self._finished = finished

    def column(self, field: Field) -> str:
        unfinished_lacks = field is Field.FINISHED_AT and not self._finished
        return "NULL::bigint" if unfinished_lacks else super().column(field)

    def text(self, value: str) -> str:
        return self._add(value, "text")

    def number(self, value: int) -> str:
        return self._add(value, "bigint")

    def contains(self, column: str, value: str) -> str:
        return f"strpos({column}, {value}) > 0"

    def state(self, state: State | DerivedState) -> str:
        if self._finished and isinstance(state, DerivedState):
            return "false"
        condition = _STATES[state]
        return condition.replace("{now}", self.number(self._now)) if "{now}" in condition else condition

    def any_error_contains(self, text: str, *, in_payload: bool) -> str:
        parts = [_sql["in_summary"], _sql["in_attempts"]]
        wanted = self.text(text)
        if in_payload:
            parts.insert(0, _sql["in_payload"].replace("{bytes}", self._add(text.encode(), "bytea")))
        return f"coalesce({' OR '.join(parts)}, false)".replace("{text}", wanted)

    def last_error_contains(self, text: str) -> str:
        parts = [_sql["in_summary"], _sql["in_last_attempt"]]
        words = f"coalesce({' OR '.join(parts)}, false)".replace("{text}", self.text(text))
        return words.replace("{length}", str(MAX_SUMMARY_LENGTH))


class AllJobsDialect(PostgresDialect):
    """Of statements on the views of all jobs, which have every column."""

    def column(self, field: Field) -> str:
        return f"j.{field}"


class VisibilityConditions(AllJobsDialect):
    """For the function ``meets_condition``: values are a JSON array, the time is its own."""

    def __init__(self) -> None:
        super().__init__(self._add_value, 0)
        self._values: list[object] = []

    def _add_value(self, value: object, kind: str) -> str:
        self._values.append(value)
        return f"($2 ->> {len(self._values) - 1})::{kind}"

    def state(self, state: State | DerivedState) -> str:
        return _STATES[state].replace("{now}", "$3")

    @classmethod
    def to_sql(cls, condition: Condition | None) -> tuple[str | None, str | None]:
        """A condition on columns as its text and its values; None is no condition."""
        if condition is None:
            return None, None
        words = cls()
        return condition_to_sql(condition, words), json.dumps(words._values)
