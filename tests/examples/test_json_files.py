"""The example whose data are JSON files, killed: whatever happens when, its files agree."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.builtin.killed_file_tasks import LATER, START, Victims, victims
from tests.cli.processes import wait_until
from tests.examples.walkthrough import EXAMPLES, Walkthrough
from tests.patience import PATIENCE
from tidewheel.testing.clock import FrozenClock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked, and killed by signals")

SOURCE = EXAMPLES / "json_files_app" / "requirements.py"
OLD = {"name": "rope", "title": "Rope", "text": "List every knot."}
NEW = {"name": "rope", "title": "Ropes", "text": "List every knot, and who tied it."}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Victims]:
    with victims() as found:
        yield found


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, in a directory of its own."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(SOURCE, home)
    monkeypatch.chdir(home)
    spec = importlib.util.spec_from_file_location("json_files_example", home / "requirements.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "after", [pytest.param(NEW, id="edited", marks=pytest.mark.extended), pytest.param(None, id="deleted")]
)
async def test_killed_at_any_system_call_of_an_edit_the_files_agree_and_the_edit_is_done_later(
    nursery: Victims, example: ModuleType, tmp_path: Path, after: dict[str, Any] | None
) -> None:
    """A requirement is the old one or the new one, always with its prompt; then the new one, and no more."""
    database, url = tmp_path / "jobs.db", f"sqlite:///{tmp_path / 'jobs.db'}"
    with example.app.on_store(url, clock=FrozenClock(START)):
        async with example.app:
            await example.save_requirement.enqueue(**OLD)
            await example.app.run_until_idle()
            if after is None:
                job = await example.delete_requirement.enqueue(name="rope")
            else:
                job = await example.save_requirement.enqueue(**after)
    assert example.read("rope") == OLD
    shutil.copytree("data", tmp_path / "data")
    shutil.copyfile(database, tmp_path / "before.db")

    status, calls = nursery.run(url, str(Path.cwd()), 0, "requirements")
    assert status == 0
    seen = []
    for point in range(1, len(calls) + 1):
        for file in tmp_path.glob("jobs.db*"):
            file.unlink()
        shutil.copyfile(tmp_path / "before.db", database)
        shutil.rmtree("data")
        shutil.copytree(tmp_path / "data", "data")
        status, made = nursery.run(url, str(Path.cwd()), point, "requirements")
        assert (status, made) == (-signal.SIGKILL, calls[:point])
        assert example.disagreements() == [], f"killed at call {point}, {made[-1]}"
        seen.append(example.read("rope"))
        with example.app.on_store(url, clock=FrozenClock(LATER)):
            async with example.app:
                await example.app.run_until_idle()
                assert (await example.app.get(job.id)).state == "completed"
        assert example.read("rope") == after
        assert example.disagreements() == []
        assert example.leftovers() == [], f"killed at call {point}, {made[-1]}"
    changed = seen.index(after)
    assert seen == [OLD] * changed + [after] * (len(seen) - changed)
    assert 0 < changed < len(seen)
    print(f"killed at {len(calls)} system calls; the edit was visible from call {changed + 1} on")


async def test_an_older_edit_that_comes_late_changes_nothing(example: ModuleType) -> None:
    """One that was retried, or requeued by hand, after a newer one or after the end of the requirement."""
    with example.app.on_store("memory://"):
        async with example.app:
            first = await example.save_requirement.options(delay=3600).enqueue(**OLD)
            await example.save_requirement.enqueue(**NEW)
            await example.app.run_until_idle()
            late = await example.save_requirement.options(delay=3600).enqueue(**OLD)
            await example.delete_requirement.enqueue(name="rope")
            await example.app.run_until_idle()
            assert example.read("rope") is None
            for job in (first, late):
                await example.app.cancel(job.id)
                await example.app.requeue(job.id)
            await example.app.run_until_idle()
            assert [await job.result(0) for job in (first, late)] == ["overtaken", "overtaken"]
    assert example.read("rope") is None
    assert example.leftovers() == []


@pytest.mark.parametrize("length", ["-1", "many"])
def test_a_length_that_makes_no_sense_is_answered(example: ModuleType, length: str) -> None:
    """A negative one would have the server wait for the end of a connection that stays open."""
    with ThreadingHTTPServer(("127.0.0.1", 0), example.Door) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE)) as connection:
            connection.putrequest("POST", "/requirements/rope")
            connection.putheader("Content-Length", length)
            connection.endheaders()
            assert connection.getresponse().status == 400
        server.shutdown()


def test_its_processes_are_killed_while_edits_come_in_and_every_accepted_one_is_done(tmp_path: Path) -> None:
    """Web server and worker, by SIGKILL, again and again; what was answered with an id is there at last."""
    walkthrough = Walkthrough(
        "json_files_app", tmp_path, {"TIDEWHEEL_LEASE": "2", "TIDEWHEEL_CONCURRENCY": "2"}
    )
    port = walkthrough.port
    accepted: dict[str, dict[str, Any]] = {}
    with walkthrough.started():
        for turn in range(3):
            for number in range(6):
                name = f"r{number}"
                wanted = {"title": f"Turn {turn}", "text": f"{name} of turn {turn}"}
                _ask(port, f"/requirements/{name}", wanted)
                accepted[name] = {"name": name, **wanted}
            if turn < 2:
                wait_until(lambda: _ask(port, "/check")["outstanding"] < 6)
                walkthrough.kill_and_start_again()
                assert _ask(port, "/check")["disagreements"] == []
        wait_until(lambda: _ask(port, "/check") == {"disagreements": [], "outstanding": 0})
        for name, wanted in accepted.items():
            assert _ask(port, f"/requirements/{name}") == wanted


def _ask(port: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """A request, again and again until somebody listens."""
    deadline = time.monotonic() + PATIENCE
    sent = None if body is None else json.dumps(body)
    while True:
        connection = HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)
        with closing(connection), suppress(ConnectionError):
            connection.request("GET" if body is None else "POST", path, sent)
            return json.loads(connection.getresponse().read())
        assert time.monotonic() < deadline, f"nobody answers on port {port}"
        time.sleep(0.03)
