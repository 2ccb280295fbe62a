"""The limit of SQLite: a table with the least a queue needs, 500 jobs claimed and completed in one commit."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from talk import GroupedSystem, serve, tally

BATCH = 500


class BareSqliteSystem(GroupedSystem):
    bulk = 10_000

    async def open(self, url: str, options: dict[str, Any]) -> None:
        path = url.removeprefix("sqlite:///")
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")

    async def setup(self) -> None:
        self.connection.execute(
            "CREATE TABLE jobs (id INTEGER PRIMARY KEY, state INTEGER NOT NULL DEFAULT 0, payload TEXT)"
        )
        self.connection.execute("CREATE INDEX ready ON jobs (id) WHERE state = 0")

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(
            "INSERT INTO jobs (payload) VALUES (?)", [(json.dumps(payload),) for payload in payloads]
        )
        self.connection.execute("COMMIT")

    async def left(self) -> dict[str, int | None]:
        unfinished, completed = self.connection.execute(
            "SELECT count(*) FILTER (WHERE state < 2), count(*) FILTER (WHERE state = 2) FROM jobs"
        ).fetchone()
        return {"unfinished": unfinished, "completed": completed}

    async def work(self, concurrency: int) -> None:
        done: list[tuple[int]] = []
        while True:
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.executemany("UPDATE jobs SET state = 2 WHERE id = ?", done)
            rows = self.connection.execute(
                "SELECT id, payload FROM jobs WHERE state = 0 ORDER BY id LIMIT ?", (BATCH,)
            ).fetchall()
            self.connection.executemany("UPDATE jobs SET state = 1 WHERE id = ?", [(row[0],) for row in rows])
            self.connection.execute("COMMIT")
            if not rows:
                return
            done = [(row[0],) for row in rows]
            tally.note_many(len(rows))


if __name__ == "__main__":
    serve(BareSqliteSystem())
