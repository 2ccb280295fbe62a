"""``tidewheel serve`` as a real process: what it says, whom it lets in, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Process, Project
from tests.patience import PATIENCE
from tidewheel import Tidewheel

APP = """
import asyncio
from tidewheel import Tidewheel

app = Tidewheel("sqlite:///jobs.db?synchronous=normal")

@app.task
async def double(number: int) -> int:
    return 2 * number

@app.task
async def slow() -> None:
    await asyncio.sleep(60)
"""


@contextlib.contextmanager
def serving(project: Project, *options: str, **environment: str) -> Iterator[tuple[Process, int]]:
    project.write("shop.py", APP)
    with project.start("serve", "shop:app", "--port", "0", *options, **environment) as process:
        yield process, int(process.wait_for(r"serves sqlite.* on http://127\.0\.0\.1:(\d+)")[1])


def key_of(project: Project) -> str:
    async def make() -> str:
        async with Tidewheel(project.url) as app:
            return (await app.access.create_key(superuser=True)).key

    return asyncio.run(make())


def ask(port: int, method: str, path: str, key: str | None = None, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    told = answer.read()
    assert answer.getheader("server") is None
    connection.close()
    return answer.status, json.loads(told) if told else None


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_it_serves_runs_jobs_and_ends_quickly_with_streams_open(project: Project) -> None:
    """The API, the UI, a worker, an open stream and an idle connection, gone soon after SIGTERM."""
    with serving(project, "--with-worker") as (process, port):
        process.wait_for(rf"the web UI is at http://127\.0\.0\.1:{port}/ui/$")
        key = key_of(project)
        body = {"task": "double", "payload": {"number": 21}}
        status, made = ask(port, "POST", "/api/jobs/enqueue", key, body)
        assert status == 201
        assert ask(port, "GET", f"/api/jobs/{made['id']}/result?wait=30", key)[1]["result"] == 42
        with contextlib.ExitStack() as stack:
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert idle.recv(100).startswith(b"HTTP/1.1 200")
            stream = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            stream.sendall(
                f"GET /api/jobs/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
            )
            assert stream.recv(100).startswith(b"HTTP/1.1 200")
            waiting = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            job = ask(port, "POST", "/api/jobs/enqueue", key, {**body, "delay": 3600})[1]["id"]
            waiting.sendall(
                f"GET /api/jobs/{job}/result?wait=60 HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: Bearer {key}\r\n\r\n".encode()
            )
            process.popen.send_signal(signal.SIGTERM)
            assert process.popen.wait(PATIENCE) == 0
        process.wait_for("stopped")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_second_signal_gives_running_jobs_back_at_once(project: Project) -> None:
    """The first lets handlers finish, for up to 30 seconds; the second does not."""
    with serving(project, "--with-worker") as (process, port):
        key = key_of(project)
        job = ask(port, "POST", "/api/jobs/enqueue", key, {"task": "slow"})[1]["id"]
        deadline = time.monotonic() + PATIENCE
        while ask(port, "GET", f"/api/jobs/{job}", key)[1]["shown_state"] != "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.popen.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.popen.wait(2)
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(PATIENCE) == 0


def test_the_first_superuser_is_shown_once(project: Project) -> None:
    """Its password is on the terminal of the first start, and nowhere after that."""
    with serving(project, "--log-json") as (process, port):
        password = next(line.split()[-1] for line in process.seen if line.strip().startswith("password"))
        login = {"name": "admin", "password": password}
        assert ask(port, "POST", "/api/jobs/session", body=login)[0] == 200
        assert ask(port, "GET", "/api/jobs")[0] == 401
    with serving(project, TIDEWHEEL_TRUSTED_PROXIES="127.0.0.1") as (process, port):
        assert not [line for line in process.seen if "password" in line]
        assert _log_in_through_a_proxy(port, login) == ("203.0.113.7", True)
    with serving(project, TIDEWHEEL_UI="false") as (process, port):
        assert _log_in_through_a_proxy(port, login) == ("127.0.0.1", False)
        assert ask(port, "GET", "/ui/")[0] == 404
        assert "web UI" not in process.text


def _log_in_through_a_proxy(port: int, login: dict[str, str]) -> tuple[str, bool]:
    """Where the audit log says it came from, and whether the cookie is for encrypted lines only."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"Content-Type": "application/json", "X-Forwarded-For": "203.0.113.7"}
    headers["X-Forwarded-Proto"] = "https"
    connection.request("POST", "/api/jobs/session", json.dumps(login), headers)
    answer = connection.getresponse()
    answer.read()
    cookie = answer.getheader("set-cookie") or ""
    connection.request("GET", "/api/jobs/audit", headers={"Cookie": cookie.partition(";")[0]})
    line = json.load(connection.getresponse())["items"][0]
    connection.close()
    assert line["action"] == "login"
    return line["address"], "; Secure" in cookie


def test_it_warns_of_open_doors(project: Project) -> None:
    """Rules that let anybody in, and plain HTTP beyond this machine, are said in plain words."""
    with project.start(
        "serve",
        "--port",
        "0",
        "--host",
        "0.0.0.0",  # noqa: S104 - that is the point
        "--url",
        project.url,
        TIDEWHEEL_ENQUEUE_RULE="true",
    ) as process:
        process.wait_for("serves sqlite")
        said = "\n".join(process.seen)
        assert "enqueue_rule is true" in said
        assert "plain HTTP" in said


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("jobs:app", "--url", "memory://"), "both name a store"),
        (("--with-worker",), "say which app"),
    ],
)
def test_what_makes_no_sense_is_said(run: Run, options: tuple[str, ...], why: str) -> None:
    """Exit code 2, as for every command."""
    answer = run("serve", *options)
    assert (answer.code, why in answer.errors) == (2, True)


def test_a_taken_port_is_said(run: Run, project: Project) -> None:
    """Before anything is opened."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = run("serve", "--url", project.url, "--port", str(taken.getsockname()[1]))
    assert (answer.code, "cannot listen on 127.0.0.1" in answer.errors) == (2, True)
    assert not (project.directory / "jobs.db").exists()
