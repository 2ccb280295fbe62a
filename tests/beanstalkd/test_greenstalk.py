"""A client that others wrote, against the command as people start it, on SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import greenstalk
import pytest

from tests.cli.processes import Process, Project
from tests.patience import PATIENCE
from tests.servers.shared import empty_url

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it is stopped by signals of other systems")

Client = greenstalk.Client[str]


class Started:
    """A server in a process of its own."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self._port = port
        self._clients: list[Client] = []

    def client(self, use: str = "default", watch: str | list[str] = "default") -> Client:
        client: Client = greenstalk.Client(("127.0.0.1", self._port), use=use, watch=watch)
        self._clients.append(client)
        return client

    def signal(self, number: int) -> None:
        self.process.popen.send_signal(number)

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextlib.contextmanager
def started(project: Project, url: str, *options: str) -> Iterator[Started]:
    with project.start("beanstalkd", "--listen", "127.0.0.1:0", "--url", url, *options) as process:
        server = Started(process, int(process.wait_for(r"on 127\.0\.0\.1:(\d+)")[1]))
        try:
            yield server
        finally:
            server.close()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, project: Project) -> str:
    return project.url if request.param == "sqlite" else empty_url()


@pytest.fixture
def server(project: Project, url: str) -> Iterator[Started]:
    with started(project, url) as server:
        yield server


def test_a_day_of_a_worker(server: Started) -> None:
    """Every verb the client has, as its documentation shows them."""
    client = server.client(use="emails", watch=["emails", "default"])
    assert client.using() == "emails"
    assert sorted(client.watching()) == ["default", "emails"]
    number = client.put("测试@example.com", priority=10, ttr=30)
    assert client.peek(number).body == "测试@example.com"
    assert client.peek_ready().id == number
    job = client.reserve()
    assert (job.id, job.body) == (number, "测试@example.com")
    client.touch(job)
    client.release(job, priority=5, delay=100)
    assert client.peek_delayed().id == number
    stats = client.stats_job(job)
    assert (stats["state"], stats["pri"], stats["ttr"], stats["releases"]) == ("delayed", 5, 30, 1)
    client.kick_job(job)
    client.bury(client.reserve_job(number))
    assert client.peek_buried().id == number
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)
    assert client.kick(10) == 1
    client.pause_tube("emails", 3600)
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)
    assert client.stats_tube("emails")["pause"] == 3600
    client.pause_tube("emails", 0)
    client.delete(client.reserve(timeout=PATIENCE))
    for verb in (client.delete, client.peek, client.stats_job, client.kick_job, client.reserve_job):
        with pytest.raises(greenstalk.NotFoundError):
            verb(number)
    assert sorted(client.tubes()) == ["default", "emails"]
    assert client.stats()["cmd-delete"] == 2


def test_who_waits_is_woken_by_a_put(server: Started) -> None:
    """Ten wait, one puts: each gets a job of its own."""
    producer, workers = server.client(), [server.client() for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(worker.reserve) for worker in workers]
        numbers = {producer.put(str(number)) for number in range(10)}
        assert {job.result(30).id for job in waiting} == numbers


def test_a_dropped_connection_gives_its_job_to_who_waits(server: Started) -> None:
    """At once: its time to run was an hour."""
    producer, dropped, other = server.client(), server.client(), server.client()
    number = producer.put("x", ttr=3600)
    assert dropped.reserve().id == number
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.reserve, timeout=30)
        dropped.close()
        assert waiting.result(30).id == number


def test_the_last_second_and_the_end_of_a_reservation_are_told(server: Started) -> None:
    """While waiting, and to whoever is next."""
    client, other = server.client(), server.client()
    number = client.put("x", ttr=2)
    client.reserve()
    with pytest.raises(greenstalk.DeadlineSoonError):
        client.reserve()
    assert other.reserve(timeout=PATIENCE).id == number
    with pytest.raises(greenstalk.NotFoundError):
        client.touch(greenstalk.Job(number, "x"))
    assert client.stats()["job-timeouts"] == 1
    assert client.stats_job(number)["timeouts"] == 1


def test_a_signal_makes_it_refuse_new_jobs(server: Started) -> None:
    """Those that are there are still given out."""
    client = server.client()
    number = client.put("x")
    server.signal(signal.SIGUSR1)
    while client.stats()["draining"] != "true":
        pass
    with pytest.raises(greenstalk.DrainingError):
        client.put("y")
    client.delete(client.reserve_job(number))


def test_stopped_in_order_it_gives_reserved_jobs_back(project: Project, url: str) -> None:
    """The next server hands them out at once."""
    with started(project, url) as server:
        client = server.client()
        numbers = {client.put("x", ttr=3600) for _ in range(3)}
        for _ in numbers:
            client.reserve()
        server.signal(signal.SIGTERM)
        assert server.process.popen.wait(PATIENCE) == 0
    with started(project, url) as server:
        client = server.client()
        assert {client.reserve(timeout=PATIENCE).id for _ in numbers} == numbers


def test_killed_in_the_middle_of_puts_it_has_lost_nothing_it_acknowledged(project: Project, url: str) -> None:
    """Ten clients put until it is killed: whatever was INSERTED is there, in order of its number."""
    acknowledged: dict[int, str] = {}
    enough = threading.Event()

    def put_until_it_dies(server: Started, name: int) -> None:
        client = server.client()
        try:
            for count in range(10_000):
                body = f"{name}-{count}"
                acknowledged[client.put(body)] = body
                if len(acknowledged) > 500:
                    enough.set()
        except OSError:
            return

    with started(project, url) as server, ThreadPoolExecutor(10) as pool:
        for name in range(10):
            pool.submit(put_until_it_dies, server, name)
        assert enough.wait(60)
        server.signal(signal.SIGKILL)
    assert len(acknowledged) > 500
    with started(project, url) as server:
        client = server.client()
        for number, body in sorted(acknowledged.items()):
            assert client.peek(number).body == body
        assert client.stats()["current-jobs-ready"] >= len(acknowledged)
        assert client.put("next") > max(acknowledged)
