"""The health port of ``tidewheel worker``: real processes, real sockets, real trouble."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli.conftest import Run
from tests.cli.processes import Process, Project, wait_until
from tests.patience import PATIENCE
from tests.servers import DURABLE, PostgresServer
from tidewheel.cli import health_port
from tidewheel.cli.health_port import MAX_CONNECTIONS, HealthPort, listener_address, open_listener
from tidewheel.cli.health_reports import (
    DEAD_AFTER_SECONDS,
    UNREADY_AFTER_SECONDS,
    HealthReport,
    HealthReporter,
    HealthReports,
)
from tidewheel.errors import ConfigurationError
from tidewheel.worker.health import CLAIM_OVERDUE_SECONDS, WorkerHealth, assess_health, starting_health

needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGTERM to one process")

APP = """
import asyncio, os, time
from tidewheel import Tidewheel

app = Tidewheel(lease=10, shutdown_grace=20)


@app.task
async def block(seconds: float) -> None:
    time.sleep(seconds)


@app.task
async def wait_to_be_told() -> None:
    while not os.path.exists("go on"):
        await asyncio.sleep(0.01)
"""


@pytest.fixture
def healthy(project: Project) -> Project:
    project.write("healthy.py", APP)
    return project


def place(process: Process) -> tuple[str, int]:
    told = process.wait_for(r"health is told at http://(\S+):(\d+)/healthz and /readyz")
    return told[1], int(told[2])


def ask(where: tuple[str, int], path: str, method: str = "GET") -> tuple[int, Any]:
    """Status and body; a new connection each time."""
    connection = http.client.HTTPConnection(*where, timeout=PATIENCE)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "application/json"
        body = answer.read()
        return answer.status, json.loads(body) if body else None
    finally:
        connection.close()


def becomes(where: tuple[str, int], path: str, status: int) -> Any:
    """The body, once the answer has this status."""
    last: list[Any] = [None, None]

    def so() -> bool:
        last[:] = ask(where, path)
        return bool(last[0] == status)

    wait_until(so)
    return last[1]


def refused(where: tuple[str, int]) -> bool:
    try:
        socket.create_connection(where, timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


@contextmanager
def worker(project: Project, *arguments: str, **environment: str) -> Iterator[Process]:
    environment = {"TIDEWHEEL_URL": project.url, **environment}
    with project.start(
        "worker", "healthy:app", "--name", "ada", "--health-listen", "0", *arguments, **environment
    ) as process:
        yield process


# -- one worker ---------------------------------------------------------------------------------------------


@needs_signals
def test_a_worker_tells_that_it_lives_and_works_until_it_is_asked_to_stop(healthy: Project, run: Run) -> None:
    """Ready while it claims; not from the signal on, while its last jobs finish; refused once it is gone."""
    with worker(healthy) as process:
        where = place(process)
        assert where[0] == "127.0.0.1"
        told = becomes(where, "/readyz", 200)
        assert told["name"] == "ada"
        assert told["status"] == "working"
        assert (told["store"], told["reasons"], told["concurrency"]) == (True, [], 10)
        assert told["last_claim_seconds"] < CLAIM_OVERDUE_SECONDS
        assert ask(where, "/healthz")[0] == 200
        run("enqueue", "wait_to_be_told", "--url", healthy.url)
        wait_until(lambda: ask(where, "/readyz")[1]["running"] == 1)
        process.signal(signal.SIGTERM)
        told = becomes(where, "/readyz", 503)
        assert told["status"] == "stopping"
        assert told["reasons"] == ["it was asked to stop"]
        assert ask(where, "/healthz")[0] == 200, "killing it now would cost its last job"
        healthy.write("go on", "")
        assert process.wait() == 0
        assert refused(where)


@needs_signals
def test_a_worker_without_its_store_lives_and_is_not_ready(healthy: Project) -> None:
    """A restart would not bring the database back; work is sent elsewhere, or waits."""
    with worker(healthy, TIDEWHEEL_URL="postgresql://127.0.0.1:1/jobs") as process:
        where = place(process)
        process.wait_for("the store is not available, trying until it is")
        status, told = ask(where, "/readyz")
        assert (status, told["status"]) == (503, "starting")
        assert told["reasons"] == ["the store is not open yet"]
        assert ask(where, "/healthz")[0] == 200
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def test_a_worker_whose_store_goes_away_says_so_and_comes_back(healthy: Project) -> None:
    """As it last saw it: the port itself asks the store nothing."""
    with worker(healthy) as process:
        where = place(process)
        becomes(where, "/readyz", 200)
        database = healthy.directory / "jobs.db"
        database.rename(healthy.directory / "elsewhere.db")
        told = becomes(where, "/readyz", 503)
        assert told["store"] is False
        assert told["reasons"] == ["the store does not answer"]
        assert ask(where, "/healthz")[0] == 200
        (healthy.directory / "elsewhere.db").rename(database)
        assert becomes(where, "/readyz", 200)["store"] is True


def test_a_server_that_is_stopped_and_started_is_told_both_times(healthy: Project) -> None:
    """On PostgreSQL, where connections break instead of files; nobody has to restart the worker."""
    with PostgresServer(settings=DURABLE) as server, worker(healthy, TIDEWHEEL_URL=server.url()) as process:
        where = place(process)
        becomes(where, "/readyz", 200)
        server.stop("immediate")
        assert becomes(where, "/readyz", 503)["store"] is False
        assert ask(where, "/healthz")[0] == 200
        server.start()
        assert becomes(where, "/readyz", 200)["store"] is True


def test_a_blocked_event_loop_is_told_by_the_port_beside_it(healthy: Project, run: Run) -> None:
    """Who asks is answered at once, and reads how long the loop has been silent."""
    with worker(healthy) as process:
        where = place(process)
        becomes(where, "/readyz", 200)
        run("enqueue", "block", '{"seconds": 3}', "--url", healthy.url)
        wait_until(lambda: ask(where, "/healthz")[1]["loop_lag_seconds"] > 1)
        assert ask(where, "/healthz")[0] == 200, "a moment is no reason to kill it"
        wait_until(lambda: ask(where, "/healthz")[1]["loop_lag_seconds"] < 0.5)


def test_the_environment_and_the_app_may_say_where(healthy: Project) -> None:
    """As with every setting; the command line has the last word, also for nowhere."""
    healthy.write("healthy.py", APP.replace("lease=10", "health_listen='127.0.0.1:0', lease=10"))
    environment = {"TIDEWHEEL_URL": healthy.url, "TIDEWHEEL_HEALTH_LISTEN": "localhost:0"}
    with healthy.start("worker", "healthy:app", TIDEWHEEL_URL=healthy.url) as process:
        assert ask(place(process), "/healthz")[0] == 200
    with healthy.start("worker", "healthy:app", **environment) as process:
        assert ask(place(process), "/healthz")[0] == 200
    with healthy.start("worker", "healthy:app", "--health-listen", "", **environment) as process:
        process.wait_for("Ctrl-C stops")
        assert "health is told" not in process.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("here", "give PORT, HOST:PORT"),
        ("127.0.0.1:", "give PORT, HOST:PORT"),
        ("127.0.0.1:65536", "give PORT, HOST:PORT"),
        ("::1", "give PORT, HOST:PORT"),
        ("no such host.invalid:1", "cannot listen on"),
    ],
)
def test_a_place_that_cannot_be_is_told_before_anything_is_done(
    healthy: Project, text: str, message: str
) -> None:
    """Value and remedy, exit code 2 as for every configuration mistake, and no worker."""
    with healthy.start("worker", "healthy:app", "--health-listen", text) as process:
        assert process.wait() == 2
        assert message in process.text
        assert text in process.text
        assert "Traceback" not in process.text


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_that_is_taken_is_told(healthy: Project, processes: str) -> None:
    """Two workers with one port are a mistake of whoever wrote the unit file."""
    with open_listener("0") as taken:
        arguments = ("--health-listen", listener_address(taken), "--processes", processes)
        with healthy.start("worker", "healthy:app", *arguments) as process:
            assert process.wait() == 2
            assert "choose another with --health-listen" in process.text


# -- several processes --------------------------------------------------------------------------------------


@needs_signals
def test_several_processes_have_one_port_for_all(healthy: Project) -> None:
    """The parent sums up what each tells; it is ready while any is, and says which is not."""
    with worker(healthy, "--processes", "2") as process:
        where = place(process)
        wait_until(lambda: ask(where, "/readyz")[1]["processes_ready"] == 2)
        status, told = ask(where, "/readyz")
        assert status == 200
        assert (told["processes"], told["status"], told["reasons"]) == (2, "working", [])
        assert [one["name"] for one in told["workers"]] == ["ada-1", "ada-2"]
        assert all(one["store"] for one in told["workers"])
        assert "TIDEWHEEL_HEALTH_REPORTS" not in os.environ
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert refused(where)


@needs_signals
def test_a_process_that_stands_still_is_not_ready(healthy: Project, run: Run) -> None:
    """Who tells nothing is not taken for well; the other one keeps the port ready."""
    with worker(healthy, "--processes", "2") as process:
        where = place(process)
        wait_until(lambda: ask(where, "/readyz")[1]["processes_ready"] == 2)
        wait_until(lambda: len(run("workers", "--json", "--url", healthy.url).json) == 2)
        listed = {one["name"]: one["pid"] for one in run("workers", "--json", "--url", healthy.url).json}
        os.kill(listed["ada-2"], signal.SIGSTOP)
        try:
            wait_until(lambda: ask(where, "/readyz")[1]["processes_ready"] == 1)
            status, told = ask(where, "/readyz")
            assert status == 200
            assert "a process has told nothing for" in told["reasons"][0]
            assert ask(where, "/healthz")[0] == 200
        finally:
            os.kill(listed["ada-2"], signal.SIGCONT)
        wait_until(lambda: ask(where, "/readyz")[1]["processes_ready"] == 2)


def test_an_address_that_only_the_app_knows_is_no_good_to_several_processes(healthy: Project) -> None:
    """The parent does not import the app: said once, instead of two processes that fight for a port."""
    healthy.write("healthy.py", APP.replace("lease=10", "health_listen='0', lease=10"))
    with healthy.start("worker", "healthy:app", "--processes", "2", TIDEWHEEL_URL=healthy.url) as process:
        process.wait_for("health_listen is '0', which only the app knows")
        for _ in range(2):
            process.wait_for("Ctrl-C stops$")
        assert process.text.count("which only the app knows") == 1
        assert "health is told at" not in process.text


@pytest.fixture
def reports() -> Iterator[HealthReports]:
    reports = HealthReports(2, lambda member: f"ada-{member}")
    yield reports
    reports.socket.close()


def well(name: str) -> WorkerHealth:
    return WorkerHealth(name=name, status="working", alive=True, ready=True, store=True)


def send(reports: HealthReports, report: HealthReport, where: str | None = None) -> None:
    place = where or reports.environment["TIDEWHEEL_HEALTH_REPORTS"]
    reporter = HealthReporter(report.member, lambda: report.health, lambda: None, place)
    reporter.start()
    reporter.stop()


def test_a_report_of_an_earlier_life_does_not_count(reports: HealthReports) -> None:
    """A process that was just started again is not ready because its predecessor was."""
    reports.mark_running(1, os.getpid())
    send(reports, HealthReport(1, os.getpid(), well("ada-1")))
    assert reports.summarize().processes_ready == 1
    reports.mark_running(1, os.getpid() + 1)
    assert reports.summarize().processes_ready == 0
    reports.mark_ended(1)
    summary = reports.summarize()
    assert summary.workers[0].status == "not running"
    assert summary.alive


def test_a_store_that_is_away_does_not_make_old_workers_look_new(reports: HealthReports) -> None:
    """All of them unready is not all of them starting."""
    assert reports.summarize().status == "starting"
    reports.mark_running(1, os.getpid())
    send(reports, HealthReport(1, os.getpid(), replace(well("ada-1"), ready=False, store=False)))
    assert reports.summarize().status == "working"
    assert not reports.summarize().ready


def test_reports_of_strangers_are_thrown_away(reports: HealthReports) -> None:
    """Whoever is on this machine may send a datagram; only who knows the secret is believed."""
    reports.mark_running(1, os.getpid())
    port = reports.environment["TIDEWHEEL_HEALTH_REPORTS"].partition(":")[0]
    send(reports, HealthReport(1, os.getpid(), well("ada-1")), f"{port}:" + "0" * 32)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for junk in (
            b"",
            b" ",
            b"\xff" * 9000,
            reports.environment["TIDEWHEEL_HEALTH_REPORTS"][6:].encode() + b" {",
        ):
            sender.sendto(junk, ("127.0.0.1", int(port)))
    summary = reports.summarize()
    assert summary.processes_ready == 0
    assert summary.alive


def test_a_process_that_is_silent_for_good_is_a_reason_to_start_anew(
    reports: HealthReports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not ready after seconds, not alive after minutes; another process does not hide it."""
    for member in (1, 2):
        reports.mark_running(member, os.getpid())
        send(reports, HealthReport(member, os.getpid(), well(f"ada-{member}")))
    reports.read()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + UNREADY_AFTER_SECONDS + 1)
    assert (reports.summarize().alive, reports.summarize().ready) == (True, False)
    monkeypatch.setattr(time, "monotonic", lambda: now + DEAD_AFTER_SECONDS + 1)
    send(reports, HealthReport(1, os.getpid(), well("ada-1")))
    assert (reports.summarize().alive, reports.summarize().ready) == (False, True)


# -- what a worker makes of what it sees --------------------------------------------------------------------


def seen(**changes: Any) -> WorkerHealth:
    usual: dict[str, Any] = {
        "name": "ada", "stopping": False, "degraded": False, "failing": False, "seconds_since_claim": 0.5,
        "has_enough_jobs": False, "poll_interval": 1.0, "concurrency": 10, "running": 3, "stuck": 0,
        "loop_silent_seconds": 0.0, "ran": 7,
    }  # fmt: skip
    return assess_health(**{**usual, **changes})


@pytest.mark.parametrize(
    ("changes", "alive", "ready", "reason"),
    [
        ({}, True, True, ""),
        ({"seconds_since_claim": 16.0}, True, True, ""),
        ({"seconds_since_claim": 17.0}, True, False, "no claim for 17 s"),
        ({"seconds_since_claim": 17.0, "has_enough_jobs": True}, True, True, ""),
        ({"seconds_since_claim": 60.0, "poll_interval": 60.0}, True, True, ""),
        ({"seconds_since_claim": None}, True, False, "no claim was answered yet"),
        ({"failing": True}, True, False, "the store does not answer"),
        ({"degraded": True, "stuck": 5}, True, False, "half the slots are stuck"),
        ({"stuck": 1}, True, True, ""),
        ({"stopping": True}, True, False, "it was asked to stop"),
        ({"loop_silent_seconds": 9.0}, True, True, ""),
        ({"loop_silent_seconds": 11.0}, True, False, "a handler blocks the event loop, for 11 s by now"),
        ({"loop_silent_seconds": 601.0}, False, False, "the event loop has been blocked for 601 s"),
    ],
)
def test_what_makes_a_worker_unready_or_dead(
    changes: dict[str, Any], alive: bool, ready: bool, reason: str
) -> None:
    """Dead only where nothing but a new process helps; unready wherever jobs had better go elsewhere."""
    told = seen(**changes)
    assert (told.alive, told.ready) == (alive, ready)
    assert told.reasons == ((reason,) if reason else ())


# -- clients ------------------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[tuple[str, int]]:
    listener = open_listener("0")
    where: tuple[str, int] = listener.getsockname()
    port = HealthPort(listener, lambda: starting_health("ada"), lambda: "# none\n")
    port.start()
    yield where
    port.stop()
    assert refused(where)


def say(where: tuple[str, int], data: bytes) -> bytes:
    with socket.create_connection(where, timeout=PATIENCE) as client:
        client.sendall(data)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(65_536):
                answer += piece
        return answer


WITHOUT_FILES = """
import contextlib, logging, os, resource, socket, time
from tidewheel.cli.health_port import open_listener
from tidewheel.cli.health_port import HealthPort
from tidewheel.worker.health import starting_health

logging.basicConfig(format="LINE %(message)s")
listener = open_listener("0")
first, second = socket.socket(), socket.socket()
port = HealthPort(listener, lambda: starting_health("ada"), lambda: "# none")
port.start()
first.connect(listener.getsockname())
first.sendall(b"GET /healthz HTTP/1.1")
while not port._connections:
    time.sleep(0.01)
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
with contextlib.suppress(OSError):
    while True:
        os.dup(0)
second.connect(listener.getsockname())
while not port._accepts_from:
    time.sleep(0.01)
first.sendall(bytes((13, 10, 13, 10)))
print(first.recv(12).decode())
rest = port._accepts_from
while port._accepts_from in (0.0, rest):  # it has tried again
    time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
second.sendall(b"GET /healthz HTTP/1.1" + bytes((13, 10, 13, 10)))
print(second.recv(12).decode())
port.stop()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits open files as Linux does")
def test_without_files_the_port_answers_whom_it_has_accepted() -> None:
    """It does not pause as a whole, says so once, and accepts the others when there are files again."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FILES], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert done.stdout.split("\n")[:2] == ["HTTP/1.1 200"] * 2
    assert done.stderr.count("LINE") == 1


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", 200),
        (b"GET /healthz?a=b HTTP/1.0\n\n", 200),
        (b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", 503),
        (b"HEAD /readyz HTTP/1.1\r\n\r\n", 503),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /healthz/../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"stats\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\xff\xfe\n\n", 400),
        (b"GET /" + b"a" * 10_000, 431),
        (b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 2000 + b"\r\n", 200),
    ],
)
def test_every_request_gets_one_short_answer(served: tuple[str, int], data: bytes, status: int) -> None:
    """Whatever it is, and the connection ends with it."""
    answer = say(served, data)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\n\r\n" in answer
    assert len(answer) < 1500
    assert answer.endswith(b"\r\n\r\n") == data.startswith(b"HEAD")


def test_clients_that_dawdle_keep_nobody_out(served: tuple[str, int]) -> None:
    """With every place taken by somebody who says nothing, whoever asks is answered at once."""
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(served, timeout=PATIENCE))
            for _ in range(MAX_CONNECTIONS + 5)
        ]
        silent[-1].sendall(b"GET /heal")
        assert ask(served, "/healthz")[0] == 200
        assert silent[0].recv(1) == b"", "the oldest made room"


def test_a_crowd_waits_at_the_port_and_is_not_sent_away() -> None:
    """A connection that finds no room is tried again after a second, when a probe has given up."""
    with contextlib.ExitStack() as clients, open_listener("0") as listener:
        for _ in range(100):  # nobody accepts one
            clients.enter_context(socket.create_connection(listener.getsockname(), timeout=0.9))


def test_a_client_that_never_finishes_is_cut_off(
    served: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is needed, and five seconds are long for a line."""
    monkeypatch.setattr(health_port, "CONNECTION_TIMEOUT_SECONDS", 0.1)
    with socket.create_connection(served, timeout=PATIENCE) as client:
        client.sendall(b"GET /healthz HT")
        assert client.recv(1) == b""


@pytest.mark.parametrize("text", ["[::1]:0", "localhost:0", ":0", " 0 "])
def test_places_may_be_written_in_several_ways(text: str) -> None:
    """Without a host it is the loopback interface."""
    try:
        with open_listener(text) as listener:
            assert listener_address(listener).startswith(("127.0.0.1:", "[::1]:"))
    except ConfigurationError:
        if text != "[::1]:0":  # which not every machine has
            raise
