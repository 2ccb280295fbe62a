"""Flask: an extension with a factory, handlers in an application context, commands, servers that fork."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from flask import Flask, current_app, g

from tests.cli.processes import Process, wait_until
from tests.docs.pages import ROOT
from tests.patience import PATIENCE
from tidewheel import ConfigurationError, SecurityContext, Tidewheel, acting_as
from tidewheel.integrations.flask import FlaskTidewheel, current_tidewheel
from tidewheel.testing import in_memory

REPORTS = ROOT / "examples/flask_app/reports.py"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{(tmp_path / 'jobs.db').as_posix()}"


@pytest.fixture
def queue() -> Iterator[FlaskTidewheel]:
    made = FlaskTidewheel("memory://", shutdown_grace=10)
    yield made
    made.sync.close()


def create_app(queue: FlaskTidewheel, **config: Any) -> Flask:
    app = Flask("shop")
    app.config.from_mapping(OWNER="Ada", **config)
    queue.init_app(app)

    @app.post("/jobs/<name>")
    def enqueue(name: str) -> str:
        return str(current_tidewheel.sync.enqueue(name).id)

    return app


def test_handlers_run_in_an_application_context_of_their_own(queue: FlaskTidewheel) -> None:
    """All kinds, and their callbacks, see ``current_app``; no job sees another's ``g``."""
    seen: list[Any] = []

    def visit(what: str) -> str:
        seen.append((what, current_app.config["OWNER"], g.setdefault("visitor", what)))
        return what

    async def visit_async(what: str) -> str:
        return visit(what)

    queue.task(on_success=lambda result: seen.append((f"after {result}", current_app.name)))(visit)
    queue.task(visit_async)
    queue.task(name="visit_partly")(functools.partial(visit))
    app = create_app(queue)
    with app.app_context():  # as under ``flask tidewheel worker``
        for name in ("visit", "visit_async", "visit_partly"):
            queue.sync.enqueue(name, {"what": name})
        queue.sync.run_until_idle()
    assert sorted(seen) == [
        ("after visit", "shop"),
        ("visit", "Ada", "visit"),
        ("visit_async", "Ada", "visit_async"),
        ("visit_partly", "Ada", "visit_partly"),
    ]


def test_a_task_keeps_its_name_its_types_and_its_checks(queue: FlaskTidewheel) -> None:
    """The context around a function changes nothing about the task that is made of it."""

    def send(user_id: int, note: str = "") -> list[int]:
        return [user_id]

    task, plain = queue.task(send), Tidewheel("memory://").task(send)
    assert (task.name, task.location) == (plain.name, plain.location)
    assert queue.json_schema() == plain.app.json_schema()
    with pytest.raises(ConfigurationError, match="is no function"):
        queue.task(name="thing")(object())  # type: ignore[call-overload]


def test_a_handler_without_an_application_says_what_to_do(
    queue: FlaskTidewheel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker that Flask did not start looks for FLASK_APP, and says so when there is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLASK_APP", raising=False)

    @queue.task
    def send() -> str:
        return current_app.name

    with pytest.raises(ConfigurationError, match=r"init_app\(app\), or name the application in FLASK_APP"):
        send()


def test_the_configuration_chooses_the_database(queue: FlaskTidewheel, url: str, tmp_path: Path) -> None:
    """A factory that makes an application for each test gives each its own jobs."""
    queue.task(name="hello")(_hello)
    app = create_app(queue, TIDEWHEEL_URL=url)
    assert app.test_client().post("/jobs/hello").status_code == 200
    assert (queue.url, queue.settings.url, queue.sync.count().total) == (url, url, 1)
    other = create_app(queue, TIDEWHEEL_URL=url.replace("jobs.db", "other.db"))
    assert queue.sync.count().total == 0
    assert other.test_client().post("/jobs/hello").status_code == 200
    create_app(queue, TIDEWHEEL_URL=url)
    assert queue.sync.count().total == 1


def test_an_application_that_names_no_database_gets_the_given_one(queue: FlaskTidewheel, url: str) -> None:
    """Not the one of an application before it."""
    create_app(queue, TIDEWHEEL_URL=url)
    create_app(queue)
    assert (queue.url, queue.settings.url) == ("memory://", "memory://")


def test_a_refused_database_leaves_the_queue_where_it_was(queue: FlaskTidewheel) -> None:
    """The next application works, whatever was wrong with this one."""
    with pytest.raises(ConfigurationError, match="names no store"):
        create_app(queue, TIDEWHEEL_URL="nonsense://")
    assert (queue.url, queue.settings.url) == ("memory://", "memory://")


def test_an_application_made_by_a_test_in_memory_stays_in_memory(url: str, tmp_path: Path) -> None:
    """Its configuration may name the real database: that is for later, and no test comes near it."""
    queue = FlaskTidewheel("memory://")
    queue.task(name="hello")(_hello)
    with in_memory(queue):
        app = create_app(queue, TIDEWHEEL_URL=url)
        assert app.test_client().post("/jobs/hello").status_code == 200
        assert queue.sync.count().total == 1
        assert queue.url == "memory://"
    assert queue.url == url
    assert not (tmp_path / "jobs.db").exists()


def test_an_application_without_the_extension_says_so(queue: FlaskTidewheel) -> None:
    """``current_tidewheel`` names the application that was forgotten."""
    with (
        Flask("forgotten").app_context(),
        pytest.raises(ConfigurationError, match=r"'forgotten' has no queue; call init_app"),
    ):
        current_tidewheel.sync.count()


def test_a_wrong_worker_setting_is_refused(queue: FlaskTidewheel) -> None:
    """With the application, not with every request: a text from the environment, a slip of the pen."""
    with pytest.raises(ConfigurationError, match="TIDEWHEEL_WORKER is 'yes'; give True"):
        create_app(queue, TIDEWHEEL_WORKER="yes")
    with pytest.raises(ConfigurationError, match=r"the option 'concurency'; those of a worker are concurr"):
        create_app(queue, TIDEWHEEL_WORKER={"concurency": 5})


def test_a_worker_in_the_web_process_starts_with_the_first_request(queue: FlaskTidewheel) -> None:
    """Not with the application: a server that forks afterwards, or a reloader's parent, would have it too."""
    ran = threading.Event()

    @queue.task
    def hello() -> None:
        ran.set()

    app = create_app(queue, TIDEWHEEL_WORKER={"concurrency": 1})
    threads = {thread.name for thread in threading.enumerate()}
    with acting_as(SecurityContext("acme")):
        assert app.test_client().post("/jobs/hello").status_code == 200
    assert ran.wait(PATIENCE)
    assert app.test_client().post("/jobs/hello").status_code == 200
    (worker,) = queue._worker_threads.values()
    worker.stop()
    assert "tidewheel-worker" not in threads
    assert queue.sync.count().total == 2


def test_commands_are_about_the_applications_queue(
    queue: FlaskTidewheel, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``flask tidewheel …`` is ``tidewheel …`` without saying which queue, in groups of commands as well."""
    queue.task(name="hello")(_hello)
    app = create_app(queue, TIDEWHEEL_URL=url)
    monkeypatch.setattr(sys, "argv", ["flask"])
    runner = app.test_cli_runner()
    assert runner.invoke(args=["tidewheel", "enqueue", "hello"]).exit_code == 0
    queue.sync.close()
    listed = runner.invoke(args=["tidewheel", "jobs", "list", "--json"])
    assert '"hello"' in listed.output
    assert runner.invoke(args=["tidewheel", "jobs", "--help"]).output.startswith("Usage: shop tidewheel jobs")
    assert "worker" in runner.invoke(args=["tidewheel", "--help"]).output
    assert runner.invoke(args=["tidewheel", "jobs", "lst"]).exit_code == 2


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(REPORTS, tmp_path)
    return tmp_path


def start(project: Path, program: str, *arguments: str, **environment: str) -> Process:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_")}
    command = [str(Path(sysconfig.get_path("scripts")) / program), *arguments]
    return Process.start(command, project, {**kept, "PYTHONPATH": str(project), **environment})


def test_each_database_has_its_worker(queue: FlaskTidewheel, url: str) -> None:
    """A queue that goes elsewhere, for another application or a test in memory, runs its jobs there."""

    @queue.task
    def hello() -> str:
        return queue.url

    def run(app: Flask) -> Any:
        return queue.sync.result(app.test_client().post("/jobs/hello").text, timeout=PATIENCE)

    for place in (url, url.replace("jobs.db", "other.db"), url):
        app = create_app(queue, TIDEWHEEL_URL=place, TIDEWHEEL_WORKER=True)
        assert run(app) == place
        with in_memory(queue):
            assert run(app) == "memory://"
        assert run(app) == place
    create_app(queue)  # back where it was given, and the worker of the last one stops
    assert queue._worker_threads == {}


@pytest.mark.skipif(os.name == "nt", reason="gunicorn forks")
@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3), reason="cannot start threads while the interpreter ends"
)
def test_a_server_that_forks_after_import_enqueues_and_runs(project: Path) -> None:
    """Each process opens what it needs, though its parent had used the queue; SIGTERM lets jobs finish."""
    (project / "preloaded.py").write_text(
        "import os\n"
        "import time\n"
        "from reports import create_app, queue\n"
        "@queue.task\n"
        "def slow() -> int:\n"
        "    open('begun', 'w').close()\n"
        "    time.sleep(0.4)\n"
        "    return os.getpid()\n"
        "app = create_app()\n"
        "app.post('/slow')(lambda: {'id': slow.sync.enqueue().id, 'pid': os.getpid()})\n"
        "queue.sync.count()  # before the fork\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = start(
        project,
        "gunicorn",
        *("preloaded:app", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}"),
        FLASK_TIDEWHEEL_WORKER="true",
    )
    try:
        server.wait_for("Booting worker")
        server.wait_for("Booting worker")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            jobs = [client.post("/reports/Rope").json()["id"] for _ in range(4)]
            wait_until(
                lambda: all(client.get(f"/reports/{job}").json()["state"] == "completed" for job in jobs)
            )
            slow = client.post("/slow").json()
        wait_until((project / "begun").exists)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "Traceback" not in server.text
    finally:
        server.kill()
    queue = Tidewheel(f"sqlite:///{(project / 'tidewheel.db').as_posix()}")
    with queue.sync as opened:
        assert opened.get(slow["id"]).state == "completed"


def test_flask_starts_several_worker_processes(project: Path) -> None:
    """The processes that ``--processes`` starts find the application that Flask was told of."""
    workers = start(
        project, "flask", "--app", "reports:create_app()", "tidewheel", "worker", "--processes", "2"
    )
    try:
        for _ in range(2):
            workers.wait_for("1 task, topic write_report")
        workers.signal(signal.SIGTERM)
        assert workers.wait() == 0
    finally:
        workers.kill()


def _hello() -> None:
    """A task's function."""
