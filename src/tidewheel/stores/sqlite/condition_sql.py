"""Conditions in SQLite's words."""

from __future__ import annotations

from tidewheel.core.model import DerivedState, State
from tidewheel.stores.bounds import MAX_SUMMARY_LENGTH
from tidewheel.stores.condition_sql import ConditionDialect
from tidewheel.stores.sql_files import SqlFile

_sql = SqlFile("tidewheel.stores.sqlite", "sql/job_queries.sql")

# Written so that the planner recognises the partial indexes.
_STATES = {
    State.PENDING: "j.state < 2",
    State.RUNNING: "j.state = 2",
    State.COMPLETED: "j.state = 3",
    State.FAILED: "j.state = 4 AND j.state > 3",
    State.CANCELLED: "j.state = 5 AND j.state > 3",
    DerivedState.DELAYED: "j.state < 2 AND j.state = 0 AND j.blocked = 0 AND j.run_at > {now}",
    DerivedState.RETRYING: "j.state < 2 AND j.attempt > 0",
    DerivedState.BLOCKED: "j.blocked > 0 AND j.state = 0",
    DerivedState.CLAIMED: "j.state = 2 AND j.started_at IS NULL",
}


class SqliteDialect(ConditionDialect):
    """Collects the parameters of a statement, in the order in which they are written into it."""

    def __init__(self, now: int) -> None:
        self._now = now
        self.parameters: list[object] = []

    def add(self, value: object) -> str:
        self.parameters.append(value)
        return "?"

    def text(self, value: str) -> str:
        return self.add(value)

    def number(self, value: int) -> str:
        return self.add(value)

    def contains(self, column: str, value: str) -> str:
        return f"instr({column}, {value}) > 0"

    def state(self, state: State | DerivedState) -> str:
        condition = _STATES[state]
        return condition.format(now=self.add(self._now)) if "{now}" in condition else condition

    def any_error_contains(self, text: str, *, in_payload: bool) -> str:
        # Bytes in bytes: a payload may be anything.
        parts = [_sql["in_payload"].format(text=self.add(text.encode()))] if in_payload else []
        parts += [_sql[name].format(text=self.add(text)) for name in ("in_summary", "in_attempts")]
        return " OR ".join(parts)

    def last_error_contains(self, text: str) -> str:
        in_summary = _sql["in_summary"].format(text=self.add(text))
        in_rest = _sql["in_last_attempt"].format(text=self.add(text), length=MAX_SUMMARY_LENGTH)
        return f"{in_summary} OR {in_rest}"
