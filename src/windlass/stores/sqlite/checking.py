"""The store's own integrity check: the file, and the rules the code relies on."""

from __future__ import annotations

import sqlite3

from windlass.stores.queries import Queries

_sql = Queries("windlass.stores.sqlite.sql", "check.sql")


def check(connection: sqlite3.Connection) -> list[str]:
    """One line for each problem; nothing is repaired."""
    problems = [
        f"SQLite: {row[0]}" for row in connection.execute("PRAGMA quick_check").fetchall() if row[0] != "ok"
    ]
    for name in _sql.names():
        problems.extend(row[0] for row in connection.execute(_sql[name]).fetchmany(20))
    return problems
