"""The store goes away under a running server, and comes back, or does not."""

from __future__ import annotations

import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import greenstalk
import pytest

from tests.servers.postgres import FAST, PostgresServer
from tests.servers.tidewheel_beanstalkd import Door

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it is stopped by signals of other systems")

Client = greenstalk.Client[str]


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(settings=FAST) as server:
        yield server


def test_jobs_of_clients_that_leave_in_an_outage_are_given_back_after_it(postgres: PostgresServer) -> None:
    """Their time to run is a year, so nobody would see them for as long. The log says so once."""
    with Door(url=postgres.url()) as door:
        client: Client = greenstalk.Client(door.address)
        numbers = {client.put("x", ttr=365 * 86_400) for _ in range(50)}
        for _ in numbers:
            client.reserve(timeout=0)
        postgres.stop()
        with pytest.raises(greenstalk.OutOfMemoryError):
            client.delete(min(numbers))
        client.close()
        other: Client = greenstalk.Client(door.address)
        postgres.start()
        assert {other.reserve(timeout=60).id for _ in numbers} == numbers
        other.close()
        said = door.log.read_text()
    assert said.count("clients are told OUT_OF_MEMORY") == 1
    assert "stay reserved" not in said


def test_a_second_signal_does_not_wait_for_a_store_that_does_not_answer(tmp_path: Path) -> None:
    """The first gives jobs back, which somebody who keeps the file locked makes impossible for long."""
    path = tmp_path / "jobs.db"
    with Door(url=f"sqlite:///{path}") as door, Client(door.address) as client:
        client.put("x", ttr=3600)
        client.reserve()
        with closing(sqlite3.connect(path)) as locking:
            locking.execute("BEGIN IMMEDIATE")
            door.signal(signal.SIGTERM)
            for _ in range(3000):  # until it has heard the first
                try:
                    socket.create_connection(door.address, 1).close()
                except OSError:
                    break
                time.sleep(0.01)
            assert door.running
            door.signal(signal.SIGTERM)
            assert door.await_end() == -signal.SIGTERM
            locking.rollback()
        door.start()
        with Client(door.address) as other:
            assert other.stats()["current-jobs-reserved"] == 1
