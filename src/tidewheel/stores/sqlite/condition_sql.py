"""Conditions in SQLite's words."""

from __future__ import annotations

from tidewheel.core.model import Shown, State
from tidewheel.stores.condition_sql import Dialect
from tidewheel.stores.protocol import SUMMARY_LENGTH
from tidewheel.stores.sql_files import Queries

_sql = Queries("tidewheel.stores.sqlite", "sql/job_queries.sql")

# Written so that the planner recognises the partial indexes.
_STATES = {
    State.PENDING: "j.state < 2",
    State.RUNNING: "j.state = 2",
    State.COMPLETED: "j.state = 3",
    State.FAILED: "j.state = 4 AND j.state > 3",
    State.CANCELLED: "j.state = 5 AND j.state > 3",
    Shown.DELAYED: "j.state < 2 AND j.state = 0 AND j.blocked = 0 AND j.run_at > {now}",
    Shown.RETRYING: "j.state < 2 AND j.attempt > 0",
    Shown.BLOCKED: "j.blocked > 0 AND j.state = 0",
    Shown.CLAIMED: "j.state = 2 AND j.started_at IS NULL",
}


class Values(Dialect):
    """Collects the parameters of a statement, in the order in which they are written into it."""

    def __init__(self, now: int) -> None:
        self._now = now
        self.all: list[object] = []

    def add(self, value: object) -> str:
        self.all.append(value)
        return "?"

    def text(self, value: str) -> str:
        return self.add(value)

    def number(self, value: int) -> str:
        return self.add(value)

    def contains(self, column: str, value: str) -> str:
        return f"instr({column}, {value}) > 0"

    def state(self, state: State | Shown) -> str:
        condition = _STATES[state]
        return condition.format(now=self.add(self._now)) if "{now}" in condition else condition

    def holds_text(self, text: str, *, in_payload: bool) -> str:
        # Bytes in bytes: a payload may be anything.
        parts = [_sql["in_payload"].format(text=self.add(text.encode()))] if in_payload else []
        parts += [_sql[name].format(text=self.add(text)) for name in ("in_summary", "in_attempts")]
        return " OR ".join(parts)

    def last_error_holds(self, text: str) -> str:
        in_summary = _sql["in_summary"].format(text=self.add(text))
        in_rest = _sql["in_last_attempt"].format(text=self.add(text), length=SUMMARY_LENGTH)
        return f"{in_summary} OR {in_rest}"
