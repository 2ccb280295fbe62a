"""Jobs of one call are in the caller's transaction together, or none of them is."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import subprocess
import sys
from collections.abc import Callable

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext import asyncio as alchemy

from tests.client.external_transactions.caller import TABLE
from tests.client.external_transactions.conftest import Place
from tests.client.external_transactions.test_wakeups import listening
from tests.patience import PATIENCE
from tidewheel import JobNotFound, LimitExceeded, Tidewheel
from tidewheel.stores.bounds import MAX_ENQUEUE_BATCH
from tidewheel.tasks.task import BoundTask

MOST_TRIES = 2000


@pytest.mark.parametrize("autocommit", [False, True])
def test_many_jobs_that_pass_a_limit_leave_nothing(
    sqlite_place: Place, postgres_place: Place, autocommit: bool
) -> None:
    """Also where there are more of them than are written at a time. The transaction goes on."""
    payloads = [{"name": "Ada"}] * (MAX_ENQUEUE_BATCH + 1)
    level = None if autocommit else ""
    for place, connection in (
        (sqlite_place, sqlite3.connect(sqlite_place.where, isolation_level=level)),  # type: ignore[arg-type]
        (postgres_place, psycopg.connect(postgres_place.where, autocommit=autocommit)),
    ):
        before = place.rows()
        narrow = Tidewheel(place.app.url, max_jobs_per_topic=MAX_ENQUEUE_BATCH)
        connection.execute(f"INSERT INTO {TABLE} VALUES (1)")  # noqa: S608 - a name of ours
        with pytest.raises(LimitExceeded, match="max_jobs_per_topic"):
            narrow.enqueue_many("many", payloads, using=connection)
        connection.commit()
        connection.close()
        assert (place.app.sync.count(topic="many").total, place.rows()) == (0, before + 1)


def refusing(which: int) -> Callable[..., int]:
    """An authorizer of SQLite's that refuses one of the things it is asked for; savepoints do not count."""
    asked = itertools.count(1)

    def authorize(action: int, *_: object) -> int:
        refused = action != sqlite3.SQLITE_SAVEPOINT and next(asked) == which
        return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

    return authorize


def written(connection: sqlite3.Connection) -> list[list[object]]:
    tables = ("tidewheel_jobs", "tidewheel_bodies", "tidewheel_job_keys", "tidewheel_job_counts")
    return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]  # noqa: S608 - ours


def test_on_sqlite_whatever_fails_leaves_nothing(sqlite_place: Place) -> None:
    """The 1st, 2nd, 3rd… thing that a statement needs is refused: no job, no key; the caller's row stays."""
    greet, mark = sqlite_place.greeting()
    holder = sqlite_place.app.sync.enqueue("greet", {"name": "Ada"}, key=f"{mark}-taken")
    tasks = [greet.options(key=mark), greet.options(key=holder.key)]
    before = sqlite_place.rows()
    with contextlib.closing(sqlite3.connect(sqlite_place.where)) as connection:
        connection.execute(f"INSERT INTO {TABLE} VALUES (1)")  # noqa: S608 - a name of ours
        for task in tasks:
            there = written(connection)
            for which in range(1, MOST_TRIES):
                connection.set_authorizer(refusing(which))
                try:
                    task.using(connection).enqueue(name="Grace")
                except sqlite3.DatabaseError:
                    connection.set_authorizer(None)
                    assert written(connection) == there
                else:
                    break
            connection.set_authorizer(None)
            assert 20 < which < MOST_TRIES - 1
        connection.commit()
    assert (sqlite_place.jobs(mark), sqlite_place.rows()) == (1, before + 1)
    assert sqlite_place.app.sync.check() == []


OUT_OF_FILES = """
import resource, sqlite3, sys
from tidewheel import Tidewheel

url, path, mark = sys.argv[1:]
app = Tidewheel(url)
connection = sqlite3.connect(path)
app.enqueue("greet", {"name": "Ada"}, correlation_id=mark, using=connection)  # all files it needs are open
resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
app.enqueue("greet", {"name": "Grace"}, correlation_id=mark, using=connection)
connection.commit()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
async def test_on_sqlite_a_bell_that_cannot_ring_costs_no_job(sqlite_place: Place) -> None:
    """A process with too many open files gets no socket; an error would come after the job was written."""
    _, mark = sqlite_place.greeting()
    async with listening(sqlite_place):
        words = [sys.executable, "-c", OUT_OF_FILES, sqlite_place.app.url, sqlite_place.where, mark]
        told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert sqlite_place.jobs(mark) == 2


def test_a_handle_finds_its_job_once_that_is_committed(sqlite_place: Place, postgres_place: Place) -> None:
    """What was enqueued is in it at once; to ask for more is to ask for what nobody else can see."""
    for place, connection in (
        (sqlite_place, sqlite3.connect(sqlite_place.where)),
        (postgres_place, psycopg.connect(postgres_place.where)),
    ):
        job = place.greet.using(connection).enqueue(name="Ada")
        assert (job.state, job.payload) == ("pending", {"name": "Ada"})
        with pytest.raises(JobNotFound):
            job.result(timeout=PATIENCE)
        connection.commit()
        assert job.refresh().state == "pending"
        connection.close()


def enqueue(connection: object, task: BoundTask[..., str]) -> None:
    task.using(connection).enqueue(name="Ada")


async def test_on_sqlite_sqlalchemy_raises_errors_of_its_own(sqlite_place: Place) -> None:
    """Nobody who uses it looks for the driver's: code that tries again on a locked file does so here."""
    greet, mark = sqlite_place.greeting()
    locked = pytest.raises(sqlalchemy.exc.OperationalError, match="locked")
    engine = sqlalchemy.create_engine(f"sqlite:///{sqlite_place.where}", connect_args={"timeout": 0.05})
    threaded = alchemy.create_async_engine(
        f"sqlite+aiosqlite:///{sqlite_place.where}", connect_args={"timeout": 0.05}
    )
    with contextlib.closing(sqlite3.connect(sqlite_place.where, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with engine.connect() as connection, locked:
            greet.using(connection).enqueue(name="Ada")
        async with threaded.connect() as awaited:
            with locked:
                await greet.using(awaited).enqueue(name="Ada")
            with locked:
                await awaited.run_sync(enqueue, greet)
        writer.execute("ROLLBACK")
    engine.dispose()
    await threaded.dispose()
    assert sqlite_place.jobs(mark) == 0
