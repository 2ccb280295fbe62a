"""Every example, started as its README says, asked over HTTP, its job seen completed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from tests.examples.walkthrough import EXAMPLES, Walkthrough
from tests.servers.postgres import PostgresServer

NAMES = sorted(
    path.parent.name for path in EXAMPLES.glob("*/README.md") if "<!-- start -->" in path.read_text("utf-8")
)


def walk(name: str, directory: Path, *more: str, **environment: str) -> None:
    walkthrough = Walkthrough(name, directory, environment)
    with walkthrough.started(*more):
        walkthrough.walk()
        for process in reversed(walkthrough.processes):
            process.signal(signal.SIGTERM)
        for process in walkthrough.processes:
            process.wait()
        assert "Traceback" not in walkthrough.said()


@pytest.mark.parametrize("name", NAMES)
def test_an_example_does_what_its_readme_says(name: str, tmp_path: Path) -> None:
    """Whoever copies the commands sees what the page shows, and no traceback when it ends."""
    walk(name, tmp_path)


@pytest.mark.parametrize(("name", "more"), [("fastapi_app", ("--workers", "2")), ("sqlalchemy_app", ())])
def test_an_example_runs_on_postgresql(
    name: str, more: tuple[str, ...], tmp_path: Path, postgres_url: str
) -> None:
    """One environment variable is all it takes; of several processes of a server, each may run the jobs."""
    walk(name, tmp_path, *more, TIDEWHEEL_URL=postgres_url)


def test_the_django_example_runs_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    """The same project, told by PostgreSQL's own variables, in a database of its own."""
    name = f"shop_{uuid4().hex}"
    place = urlsplit(postgres.url())

    async def say(statement: str) -> None:
        connection = await asyncpg.connect(postgres.url())
        await connection.execute(statement)
        await connection.close()

    asyncio.run(say(f"CREATE DATABASE {name}"))
    walk(
        "django_app",
        tmp_path,
        PGDATABASE=name,
        PGHOST=str(place.hostname),
        PGPORT=str(place.port),
        PGUSER=str(place.username),
    )
    asyncio.run(say(f"DROP DATABASE {name} WITH (FORCE)"))
