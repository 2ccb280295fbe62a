from __future__ import annotations

import ast
import asyncio
import contextvars
import importlib.util
import inspect
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tidewheel import InvalidPayload, JobNotFound, NotOpen, ResultTimeout, Tidewheel, TidewheelError
from tidewheel.app import Tidewheel as App
from tidewheel.client.job_handle import Job
from tidewheel.client.sync.blocking_app import BlockingTidewheel
from tidewheel.client.sync.blocking_jobs import BlockingBoundTask, BlockingJob, BlockingTask
from tidewheel.tasks.task import BoundTask, Task

ROOT = Path(__file__).parents[2]

PortalThreads = Callable[[], list[threading.Thread]]


@pytest.fixture
def app(url: str) -> Any:
    app = Tidewheel(url, poll_interval=0.05)

    @app.task
    def add(a: int, b: int = 1) -> int:
        return a + b

    yield app
    app.sync.close()


def test_everything_works_without_an_event_loop(app: Tidewheel) -> None:
    """Scripts, Django views and notebooks use the same verbs, one word longer."""
    add = app.registry.tasks["add"]
    job = add.sync.enqueue(a=1)
    assert isinstance(job, BlockingJob)
    assert (job.state, job.payload, job.duplicate) == ("pending", {"a": 1}, False)
    assert app.sync.get(job.id) == job
    keyed = add.sync.options(key="k").enqueue(2)
    assert add.options(key="k").sync.enqueue(3).duplicate
    assert [found.id for found in app.sync.jobs()] == [keyed.id, job.id]
    assert len(add.sync.enqueue_many([{"a": 1}, {"a": 2}])) == 2
    assert app.sync.count(task="add").total == 4
    assert app.sync.cancel(job.id) is True
    assert job.refresh().state == "cancelled"
    assert app.sync.stats().cancelled == 1


def test_errors_travel_unchanged(app: Tidewheel) -> None:
    """The same types with the same messages as in async code."""
    with pytest.raises(InvalidPayload, match="a is missing"):
        app.sync.enqueue("add")
    with pytest.raises(ResultTimeout):
        app.sync.enqueue("other").result(timeout=0.01)
    job = app.sync.enqueue("other")
    job.delete()
    with pytest.raises(JobNotFound):
        job.refresh()


@pytest.fixture
def portal_threads() -> PortalThreads:
    """Those that run now and did not before the test: other apps of this process have their own."""
    before = threading.enumerate()
    return lambda: [
        thread for thread in threading.enumerate() if thread.name == "tidewheel-sync" and thread not in before
    ]


def test_many_threads_share_one_portal(app: Tidewheel, portal_threads: PortalThreads) -> None:
    """A threaded web server makes one connection, not one for each request."""
    with ThreadPoolExecutor(16) as threads:
        jobs = list(threads.map(lambda n: app.sync.enqueue("add", {"a": n}), range(200)))
    assert len({job.id for job in jobs}) == 200
    assert len(portal_threads()) == 1


async def test_blocking_calls_work_beside_an_open_app(app: Tidewheel) -> None:
    """The loop's store and the portal's store see the same jobs."""
    async with app:
        mine = app.store
        job = await asyncio.to_thread(app.sync.enqueue, "add", {"a": 1})
        assert (await app.get(job.id)).payload == {"a": 1}
        assert app.sync.get(job.id) == job  # blocks this loop, but does not hang
        assert app.store is mine
    assert app.sync.get(job.id) == job


def test_a_closed_portal_starts_anew(app: Tidewheel, portal_threads: PortalThreads) -> None:
    """Closing lets go of the thread; the next call works as the first did."""
    with app.sync as blocking:
        job = blocking.enqueue("add", {"a": 1})
    assert not portal_threads()
    assert app.sync.get(job.id) == job


def test_a_call_that_is_running_when_the_portal_closes_ends(app: Tidewheel) -> None:
    """No thread is left waiting for an answer that cannot come."""
    job = app.sync.enqueue("other")
    ended: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            job.result()
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    while not _is_waiting(app):
        threading.Event().wait(0.001)
    app.sync.close()
    thread.join(PATIENCE)
    assert [type(error) for error in ended] == [NotOpen]


def _is_waiting(app: Tidewheel) -> bool:
    return bool(app._connections.current().results._waiting)


def test_a_portal_that_cannot_open_says_why_and_tries_again(
    tmp_path: Path, portal_threads: PortalThreads
) -> None:
    """A missing directory is reported by the call that needed it; once it is there, calls work."""
    app = Tidewheel(f"sqlite:///{tmp_path / 'missing' / 'jobs.db'}")
    with pytest.raises(TidewheelError):
        app.sync.enqueue("t")
    assert not portal_threads()
    (tmp_path / "missing").mkdir()
    app.sync.enqueue("t")
    app.sync.close()


async def test_a_blocking_call_from_the_portals_own_thread_is_refused(app: Tidewheel) -> None:
    """It would wait for itself."""

    async def inside() -> None:
        app.sync.topics()

    with pytest.raises(TidewheelError, match="would never return"):
        await asyncio.to_thread(app.portal.run, inside)


def test_context_variables_are_carried_along(app: Tidewheel) -> None:
    """What the caller has set (a request id, a tenant) is seen by the async side."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    variable.set("mine")

    async def read() -> str:
        return variable.get()

    assert app.portal.run(read) == "mine"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_makes_a_portal_of_its_own(tmp_path: Path) -> None:
    """Pre-forking servers import and use the app in the parent; threads do not survive the fork."""
    app = Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}")
    before = app.sync.enqueue("t", {"who": "parent"})
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def child() -> None:
        sending.send(app.sync.enqueue("t", {"who": "child"}).id)
        app.sync.close()

    process = context.Process(target=child)
    process.start()
    assert receiving.poll(20)
    child_id = receiving.recv()
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert app.sync.get(child_id).payload == {"who": "child"}
    assert app.sync.get(before.id).payload == {"who": "parent"}
    app.sync.close()


@pytest.mark.skipif(os.name == "nt", reason="SIGINT cannot be sent to one process there")
def test_ctrl_c_interrupts_a_blocking_call(tmp_path: Path) -> None:
    """A script that waits for a result can be stopped, and the program ends cleanly."""
    script = tmp_path / "script.py"
    script.write_text(
        "import signal\n"
        "from tidewheel import Tidewheel\n"
        # Test runs started in the background inherit an ignored SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"app = Tidewheel('sqlite:///{(tmp_path / 'jobs.db').as_posix()}')\n"
        "job = app.sync.enqueue('t')\n"
        "try:\n"
        "    print('waiting', flush=True)\n"
        "    job.result()\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped', app.sync.get(job.id).state, flush=True)\n",
        "utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"waiting\n"
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (out, process.returncode) == (b"stopped pending\n", 0), err
    assert b"Traceback" not in err


@pytest.mark.skipif(os.name == "nt", reason="SIGINT cannot be sent to one process there")
def test_ctrl_c_before_the_call_has_begun_returns_too(app: Tidewheel) -> None:
    """Work that is cancelled before its first step still answers its caller."""
    app.sync.open()
    busy, go_on = threading.Event(), threading.Event()

    async def block() -> None:
        busy.set()
        go_on.wait(PATIENCE)

    def interrupt() -> None:
        busy.wait(PATIENCE)
        threading.Event().wait(0.05)  # by now the main thread waits for a loop that is busy
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        threading.Event().wait(0.05)
        go_on.set()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    blocker = threading.Thread(target=app.portal.run, args=(block,))
    interrupter = threading.Thread(target=interrupt)
    try:
        blocker.start()
        busy.wait(PATIENCE)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            app.sync.topics()
    finally:
        signal.signal(signal.SIGINT, before)
        interrupter.join(PATIENCE)
        blocker.join(PATIENCE)
    assert app.sync.topics() == []


def test_the_program_ends_without_closing(tmp_path: Path) -> None:
    """A script that forgets ``close`` neither hangs nor complains."""
    code = (
        "from tidewheel import Tidewheel\n"
        f"app = Tidewheel('sqlite:///{(tmp_path / 'jobs.db').as_posix()}')\n"
        "print(app.sync.enqueue('t').state)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], capture_output=True, timeout=PATIENCE, check=False
    )
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, b"pending", b"")


# -- the blocking classes match the async ones -----------------------------------------------------------

PAIRS = [(App, BlockingTidewheel), (Task, BlockingTask), (BoundTask, BlockingBoundTask), (Job, BlockingJob)]


def test_regenerating_the_blocking_api_changes_nothing() -> None:
    """The committed files are what the sources say; run scripts/make_blocking_api.py when this fails."""
    path = ROOT / "scripts" / "make_blocking_api.py"
    spec = importlib.util.spec_from_file_location("make_blocking_api", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    # Compared as syntax, so that neither formatter nor Python version matters.
    for target in module.TARGETS:
        assert _normal(module.generate(target)) == _normal(module.path_of(target).read_text("utf-8"))


def _normal(source: str) -> list[str]:
    tree = ast.parse(source)
    imports: set[str] = set()
    rest: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            imports |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.If):  # TYPE_CHECKING, and nothing but imports
            inner_imports = [inner for inner in node.body if isinstance(inner, ast.ImportFrom)]
            assert inner_imports == node.body
            imports |= {
                f"typing only: {inner.module}.{a.name}" for inner in inner_imports for a in inner.names
            }
        else:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    inner.value = inspect.cleandoc(inner.value)
            rest.append(ast.dump(node))
    return [*sorted(imports), *rest]


@pytest.mark.parametrize(("original", "twin"), PAIRS)
def test_every_async_call_has_a_blocking_one_of_the_same_signature(original: type, twin: type) -> None:
    """Also the ones added next year."""
    for name, method in inspect.getmembers(original, inspect.iscoroutinefunction):
        if name.startswith("_") or name in {"open", "close"}:
            continue
        blocking = getattr(twin, name)
        assert not inspect.iscoroutinefunction(blocking)
        assert list(inspect.signature(blocking).parameters) == list(inspect.signature(method).parameters)
        assert inspect.getdoc(blocking) == inspect.getdoc(method)
