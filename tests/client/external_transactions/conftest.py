"""An app on each database, whose jobs get there by connections of other people's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.client.external_transactions.caller import TABLE
from tests.servers.shared import fresh_schema, shared_server
from tidewheel import Tidewheel
from tidewheel.tasks.task import BoundTask, Task


@dataclass
class Place:
    """A database with an app's jobs and a table of somebody else's."""

    app: Tidewheel
    greet: Task[..., str]
    where: str
    """a path, or a URL as drivers want it"""
    rows: Callable[[], int]
    """how many the other table has"""

    def greeting(self) -> tuple[BoundTask[..., str], str]:
        """The task with a mark, by which its jobs are found again."""
        mark = uuid4().hex
        return self.greet.options(correlation_id=mark), mark

    def jobs(self, mark: str) -> int:
        return self.app.sync.count(correlation_id=mark).total


def make(url: str, where: str, rows: Callable[[], int]) -> Place:
    app = Tidewheel(url)

    @app.task
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    app.sync.open()
    return Place(app, greet, where, rows)


@pytest.fixture(scope="module")
def sqlite_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path: Path = tmp_path_factory.mktemp("using") / "shop.db"
    with sqlite3.connect(path, isolation_level=None) as looking:
        place = make(
            f"sqlite:///{path}",
            str(path),
            lambda: int(looking.execute(f"SELECT count(*) FROM {TABLE}").fetchone()[0]),  # noqa: S608
        )
        looking.execute(f"CREATE TABLE {TABLE} (number INTEGER)")
        yield place
    place.app.sync.close()
    looking.close()


@pytest.fixture(scope="module")
def postgres_place() -> Iterator[Place]:
    schema, server = fresh_schema(), shared_server()
    with psycopg.connect(server.url(), autocommit=True) as looking:
        place = make(
            server.url(schema=schema),
            server.url(),
            lambda: int(looking.execute(f"SELECT count(*) FROM {TABLE}").fetchone()[0]),  # type: ignore[index] # noqa: S608
        )
        looking.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (number integer)")
        yield place
        place.app.sync.close()
        looking.execute(f"DROP TABLE {TABLE}; DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def place(request: pytest.FixtureRequest, kind: object) -> Place:
    found: Place = request.getfixturevalue(f"{kind.database}_place")  # type: ignore[attr-defined]
    return found
