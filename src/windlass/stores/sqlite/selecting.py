"""From a filter to the statement that finds its jobs, newest first."""

from __future__ import annotations

import sqlite3

from windlass.model import JobFilter, Shown, State
from windlass.stores.queries import Queries
from windlass.stores.sqlite.compiling import Values

_sql = Queries("windlass.stores.sqlite.sql", "read.sql")


def hint(where: JobFilter) -> str:
    """What leaves few jobs is looked for first, whatever else they have to be.

    A tenant may have a million of them, and running ones are mostly old: walking from the newest would find
    them last.
    """
    if where.key is not None:
        return "INDEXED BY windlass_jobs_key"
    if where.correlation_id is not None:
        return "INDEXED BY windlass_jobs_correlation"
    return "INDEXED BY windlass_jobs_leased" if where.state in (State.RUNNING, Shown.CLAIMED) else ""


def conditions_of(connection: sqlite3.Connection, where: JobFilter, now: int) -> tuple[str, list[object]]:
    """A filter as SQL, its tenant aside. Every value is a parameter; only fixed text is put together."""
    parts: list[str] = ["1"]
    values = Values(now)
    if where.state is not None:
        parts.append(values.state(where.state))
    if where.topic is not None:
        parts.append(f"j.topic = {values.add(where.topic)}")
    if where.task is not None:
        parts.append(f"j.task = {values.add(where.task)}")
        if where.topic is None:
            # A task nearly always lives in one topic, and topics are indexed.
            topics = [row[0] for row in connection.execute(_sql["topics_of_task"], (where.task,))]
            if len(topics) == 1:
                parts.append(f"j.topic = {values.add(topics[0])}")
    if where.key is not None:
        parts.append(f"j.key = {values.add(where.key)}")
    if where.correlation_id is not None:
        parts.append(f"j.correlation_id = {values.add(where.correlation_id)}")
    if where.created_after is not None:
        parts.append(f"j.created_at >= {values.add(where.created_after)}")
    if where.created_before is not None:
        parts.append(f"j.created_at < {values.add(where.created_before)}")
    return " AND ".join(parts), values.all
