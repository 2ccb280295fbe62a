"""What the page about backups says to type: while a worker is at work, and after it was killed."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

from tests.cli.processes import Project, wait_until
from tests.docs.pages import ROOT, Block, blocks
from tests.servers import FAST, PostgresServer
from tests.servers.accounts import server_account
from tests.servers.processes import start_process
from tidewheel import Tidewheel
from tidewheel.core.model import ClaimRequest, Completed, Lane, Lease, Settlement, State

PAGE = ROOT / "docs/how-to/backup.md"
DATABASE = "shop"  # as on the page
JOBS = 60

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGTERM to one process")

APP = """
import asyncio, os
from tidewheel import Tidewheel

app = Tidewheel(lease=2)


@app.task(max_attempts=3)
async def work(number: int) -> int:
    while number >= 20 and not os.path.exists("more"):
        await asyncio.sleep(0.01)
    return number


@app.task(max_attempts=3)
async def hang() -> None:
    while not os.path.exists("go on"):
        await asyncio.sleep(0.01)
"""


def block(beginning: str) -> Block:
    """The block of the page that begins so."""
    [found] = [one for one in blocks(PAGE) if one.text.startswith(beginning)]
    return found


def do(command: str, project: Project, path: str = "", **environment: str) -> str:
    """One line of the page."""
    words = shlex.split(command)
    if words[0] == "tidewheel":
        words = [sys.executable, "-m", "tidewheel.cli", *words[1:]]
    known = project.environment(**environment)
    known["PATH"] = os.pathsep.join([path, known["PATH"]])
    words[0] = shutil.which(words[0], path=known["PATH"]) or words[0]
    done = subprocess.run(
        words, cwd=project.directory, env=known, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 or "doctor" in words, f"{command}:\n{done.stdout}\n{done.stderr}"
    if "doctor" in words:  # as the page says: running jobs whose leases are over by now, and nothing else
        wrong = [line for line in done.stdout.splitlines() if line.startswith("- WRONG:")]
        assert all("ended without a word from the worker" in line for line in wrong), done.stdout
        assert "Its own check found nothing wrong" in done.stdout, done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "shop.py").write_text(APP)
    return Project(tmp_path)


def states(url: str) -> dict[str, int]:
    async def ask() -> dict[str, int]:
        async with Tidewheel(url, migrate=False) as app:
            return {state.value: (await app.count(state=state)).total for state in State}

    return asyncio.run(ask())


def enqueue(url: str) -> None:
    async def enqueue() -> None:
        async with Tidewheel(url) as app:
            await app.enqueue("hang", {})
            for number in range(JOBS):
                await app.enqueue("work", {"number": number})

    asyncio.run(enqueue())


def finish(project: Project, url: str) -> None:
    """A worker on what came back, until nothing is left of it."""
    project.write("go on", "")
    with project.start("worker", "shop:app", TIDEWHEEL_URL=url) as process:
        wait_until(lambda: states(url)["completed"] == JOBS + 1)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


@contextmanager
def at_work(project: Project, url: str) -> Iterator[None]:
    """A worker that has done some of its jobs, and has one that goes on. In the end it is killed."""
    with project.start("worker", "shop:app", "--concurrency", "2", TIDEWHEEL_URL=url):
        wait_until(lambda: states(url)["completed"] >= 3)
        yield


def go_on(project: Project, url: str, after: int) -> None:
    """Let the worker do more than it had done by then."""
    project.write("more", "")
    wait_until(lambda: states(url)["completed"] > after)


def page_backup(project: Project) -> None:
    source = block("import os\nimport sqlite3")
    project.write("backup.py", source.text)
    do("python backup.py", project, str(Path(sys.executable).parent))


def program_backup(project: Project) -> None:
    if shutil.which("sqlite3") is None:
        pytest.skip("there is no sqlite3 program here")
    do(block("sqlite3 jobs.db").text, project)


@pytest.mark.parametrize("back_up", [page_backup, program_backup], ids=["python", "sqlite3"])
def test_a_sqlite_backup_of_a_busy_queue_is_whole_and_comes_back(
    project: Project, back_up: Callable[[Project], None]
) -> None:
    """Made while a worker writes; after a kill and a restore every job of it ends, each exactly once."""
    enqueue(project.url)
    with at_work(project, project.url):
        back_up(project)
        then = states(f"sqlite:///{(project.directory / 'backup.db').as_posix()}")
        assert sum(then.values()) == JOBS + 1
        assert then["completed"] >= 3
        assert then["running"] >= 1
        go_on(project, project.url, then["completed"])
    for line in block("sqlite3 backup.db").text.splitlines():
        if line.startswith("tidewheel") or shutil.which("sqlite3") is not None:
            do(line, project)
    steps = PAGE.read_text("utf-8")
    for command in ("rm -f jobs.db jobs.db-wal jobs.db-shm", "cp backup.db jobs.db"):
        assert f"`{command}`" in steps
        do(command, project)
    assert states(project.url)["completed"] == then["completed"]
    finish(project, project.url)
    with sqlite3.connect(project.directory / "jobs.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database of its own."""

    async def run(statement: str) -> None:
        connection = await asyncpg.connect(postgres.url())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)"))
    asyncio.run(run(f"CREATE DATABASE {DATABASE}"))
    yield postgres.url(DATABASE)
    asyncio.run(run(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)"))


def test_a_postgresql_dump_of_a_busy_queue_comes_back(
    project: Project, shop: str, postgres: PostgresServer
) -> None:
    """Every command of the page in its order; a lease from before the restore can settle nothing after it."""
    programs = str(postgres.binaries.directory)
    connecting = {"PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "postgres"}
    enqueue(shop)
    with at_work(project, shop):
        do(block("pg_dump").text, project, programs, **connecting)
        at_the_dump = states(shop)["completed"]
        go_on(project, shop, at_the_dump)
    highest = asyncio.run(_fences(shop))
    for line in block('psql --dbname=shop --command="DROP').text.splitlines():
        do(line.replace("postgresql://localhost/shop", shop), project, programs, **connecting)
    then = states(shop)
    assert sum(then.values()) == JOBS + 1
    assert then["completed"] <= at_the_dump
    assert asyncio.run(_fences(shop)) > highest
    finish(project, shop)


def test_a_server_comes_back_as_of_a_moment(project: Project) -> None:
    """Base backup and archived log as on the page: jobs are as they were then, fences above all given out."""
    lost = PostgresServer()
    archive = lost.directory / "wal"
    base = lost.directory / "restored" / "data"
    _as_server(lost, "mkdir", "-p", str(archive), str(base.parent))
    before, recovery = (
        dict(re.findall(r"^(\w+) = '?(.*?)'?$", block(first).text, re.MULTILINE))
        for first in ("archive_mode", "restore_command")
    )
    before["archive_command"] = before["archive_command"].replace("/backup/wal", str(archive))
    recovery["restore_command"] = recovery["restore_command"].replace("/backup/wal", str(archive))
    lost.settings |= before
    with lost:
        then = asyncio.run(_before_and_after(lost, lambda: _back_up(lost, base)))
        lost.stop("immediate")
        recovery["recovery_target_time"] = then.moment
        _as_server(lost, "touch", str(base / "recovery.signal"))
        with PostgresServer(lost.binaries, base.parent, settings={**FAST, **recovery}) as restored:
            wait_until(lambda: not (base / "recovery.signal").exists())
            found = states(restored.url())
            assert {state: number for state, number in found.items() if number} == {
                "completed": 1,
                "running": 1,
                "pending": 1,
            }
            connecting = {"PGHOST": "127.0.0.1", "PGPORT": str(restored.port), "PGUSER": "postgres"}
            lift, doctor = block('psql --dbname=shop --command="SELECT').text.splitlines()
            lift = lift.replace("--dbname=shop", "--dbname=postgres")
            do(lift, project, str(lost.binaries.directory), **connecting)
            assert asyncio.run(_fences(restored.url())) > then.highest + 1000
            assert asyncio.run(_settle(restored.url(), then.lost)) == [False]
            do(doctor.replace("postgresql://localhost/shop", restored.url()), project)


class Then(NamedTuple):
    """What was so at the moment of choice, and what came of it."""

    moment: str
    highest: int
    lost: Lease  # given out after it


def _as_server(server: PostgresServer, *command: str) -> None:
    """The user that owns the server's files is not the one that runs the tests."""
    log = server.directory / "commands.log"
    program = shutil.which(command[0]) or command[0]
    process = start_process([program, *command[1:]], server_account(), log, death_signal=signal.SIGTERM)
    assert process.wait(60) == 0, log.read_text()


def _back_up(server: PostgresServer, base: Path) -> None:
    program, *options = shlex.split(block("pg_basebackup").text.replace("/backup/base", str(base)))
    where = ("--host", "127.0.0.1", "--port", str(server.port), "--username", "postgres", "--no-sync")
    _as_server(server, str(server.binaries.program(program)), *options, *where)


async def _before_and_after(server: PostgresServer, back_up: Callable[[], None]) -> Then:
    """One job is done and one runs at the moment that is chosen; then there is a mistake."""
    connection = await asyncpg.connect(server.url())
    try:
        async with Tidewheel(server.url()) as app:
            for _ in range(3):
                await app.enqueue("work", {"number": 1})
            done, runs = [await _claim_one(app) for _ in range(2)]
            await asyncio.to_thread(back_up)
            assert await app.store.settle([Settlement(done, Completed())]) == [True]
            moment = str(await connection.fetchval("SELECT clock_timestamp()"))
            last = await _claim_one(app)
            assert await app.store.settle([Settlement(runs, Completed())]) == [True]
            await app.enqueue("work", {"number": 2})
        highest = int(await connection.fetchval("SELECT last_value FROM tidewheel.fences"))
        wanted = await connection.fetchval("SELECT pg_walfile_name(pg_switch_wal())")
        archived = "SELECT last_archived_wal >= $1 FROM pg_stat_archiver"
        while not await connection.fetchval(archived, wanted):
            await asyncio.sleep(0.01)
        return Then(moment, highest, last)
    finally:
        await connection.close()


async def _claim_one(app: Tidewheel) -> Lease:
    claim = await app.store.claim(ClaimRequest("w", (Lane("work"),), 1, 600.0))
    return claim.jobs[0].lease


async def _settle(url: str, lease: Lease) -> list[bool]:
    async with Tidewheel(url) as app:
        await _claim_one(app)  # the same job again, under another fence
        return await app.store.settle([Settlement(lease, Completed())])


async def _fences(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT last_value FROM tidewheel.fences"))
    finally:
        await connection.close()
