"""The disk is full, the process dies: what was acknowledged is there, what failed left nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from uuid import UUID

import pytest

from tidewheel.core.model import JobFilter
from tidewheel.stores.sqlite import SqliteStore

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and resource limits are POSIX")

PREAMBLE = """
import asyncio, os, signal, sys
from tidewheel.errors import StoreError
from tidewheel.core.ids import new_id
from tidewheel.core.model import NewJob
from tidewheel.stores.sqlite import SqliteStore

def job(size=100):
    return NewJob(id=new_id(), topic="mail", payload=b'"' + b"x" * size + b'"')

async def opened():
    store = SqliteStore(sys.argv[1])
    await store.open()
    await store.migrate()
    return store
"""


def _start(path: Path, program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(program), f"sqlite:///{path}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def _jobs_in(path: Path) -> set[UUID]:
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    await store.migrate()
    assert await store.check() == []
    page = await store.list_jobs(JobFilter(), limit=100_000)
    await store.close()
    return {record.id for record in page.items}


@pytest.mark.parametrize("after", [1, 7, 40])
async def test_what_was_acknowledged_survives_a_kill(path: Path, after: int) -> None:
    """An id is printed only after its enqueue returned; every printed id is there afterwards."""
    process = _start(
        path,
        """
        async def main():
            store = await opened()
            async def caller():
                while True:
                    [answer] = await store.enqueue([job()])
                    os.write(1, f"{answer.job_id}\\n".encode())
            await asyncio.gather(*(caller() for _ in range(10)))
        asyncio.run(main())
        """,
    )
    assert process.stdout is not None
    acknowledged = [process.stdout.readline() for _ in range(after)]
    process.send_signal(signal.SIGKILL)
    acknowledged += process.communicate()[0].splitlines()
    ids = {UUID(line.strip()) for line in acknowledged if len(line.strip()) == 36}
    assert len(ids) >= after
    assert ids <= await _jobs_in(path)


async def test_a_full_disk_is_an_error_for_the_caller_and_leaves_nothing_of_that_call(path: Path) -> None:
    """Files may not grow past a limit; enqueues fail clearly until there is room again."""
    process = _start(
        path,
        """
        import resource

        async def main():
            store = await opened()
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
            failures = 0
            for _ in range(60):
                try:
                    [answer] = await store.enqueue([job(40_000)])
                    print("ok", answer.job_id)
                except StoreError as error:
                    failures += 1
                    message = f"{type(error).__name__}: {error}"
            print("failed", failures, message)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            [answer] = await store.enqueue([job(40_000)])
            print("ok", answer.job_id)
            print("problems", await store.check())
            await store.close()
        asyncio.run(main())
        """,
    )
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    lines = output.splitlines()
    accepted = {UUID(line.split()[1]) for line in lines if line.startswith("ok ")}
    assert "problems []" in lines
    [failed] = [line for line in lines if line.startswith("failed ")]
    assert int(failed.split()[1]) > 10
    assert "StoreUnavailable" in failed
    assert str(path) in failed
    assert await _jobs_in(path) == accepted


async def test_a_process_killed_while_it_starts_leaves_the_schema_whole_or_absent(path: Path) -> None:
    """Killed at many moments of its first start; the next one starts as if nothing had been."""
    for moment in range(12):
        process = _start(path, "os.write(1, b'go\\n')\nasyncio.run(opened())\nsignal.pause()")
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.003 * moment)
        process.kill()
        process.communicate()
    assert await _jobs_in(path) == set()


async def test_writers_killed_while_they_commit_and_checkpoint_never_damage_the_file(path: Path) -> None:
    """Two processes write and checkpoint at once and are killed, several times; the file stays sound."""
    program = """
        from tidewheel.stores.sqlite import checkpoint
        checkpoint.CHECKPOINT_BYTES = 50_000
        async def main():
            store = await opened()
            os.write(1, b"go\\n")
            async def caller():
                while True:
                    [answer] = await store.enqueue([job(2000)])
                    os.write(1, f"{answer.job_id}\\n".encode())
            await asyncio.gather(*(caller() for _ in range(5)))
        asyncio.run(main())
        """
    ids: set[UUID] = set()
    for _ in range(4):
        processes = [_start(path, program) for _ in range(2)]
        for process in processes:
            assert process.stdout is not None
            for _ in range(60):
                process.stdout.readline()
        for process in processes:
            process.kill()
            lines = process.communicate()[0].splitlines()
            ids |= {UUID(line) for line in lines if len(line) == 36}
    assert ids <= await _jobs_in(path)
