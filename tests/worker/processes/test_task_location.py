"""Which tasks another process can import, and what is said about those it cannot."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.worker.processes import handlers
from tidewheel import ConfigurationError, Tidewheel
from tidewheel.tasks.task_location import find_task_location
from tidewheel.testing import in_memory, inline
from tidewheel.worker.processes.child import find_task


def work() -> None: ...


def test_a_task_of_a_module_is_found_by_its_name_there() -> None:
    """The module is imported, the task is an attribute of it."""
    place = find_task_location(handlers.pid)
    assert (place.modules, place.attribute, place.main) == (("tests.worker.processes.handlers",), "pid", None)


def test_a_task_without_a_name_of_its_own_is_found_through_its_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registered in a loop, from functions of another module, on an app of a third: all found by import."""
    (tmp_path / "iso_core.py").write_text("from tidewheel import Tidewheel\napp = Tidewheel('memory://')\n")
    (tmp_path / "iso_library.py").write_text("def one(): ...\ndef two(): ...\n")
    (tmp_path / "iso_tasks.py").write_text(
        "import iso_core, iso_library\n"
        "for function in (iso_library.one, iso_library.two):\n"
        "    iso_core.app.task(isolation='process')(function)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("iso_tasks")
    task = module.iso_core.app.registry.tasks["two"]
    place = find_task_location(task)
    assert place.modules[0] == "iso_tasks"
    assert (place.modules[-1], place.attribute) == ("iso_core", "app")
    assert find_task(place, "sqlite:///elsewhere.db") is task


async def test_a_function_inside_a_function_is_refused_when_a_worker_starts() -> None:
    """The message names the task, the place and the remedy."""
    other = Tidewheel("memory://")
    handlers.make_task(other)
    async with other:
        with pytest.raises(ConfigurationError, match=r"'hidden' \(tests.*inside a function.*top level"):
            other.worker()
        other.worker(isolate=False)
        with pytest.raises(ConfigurationError, match="nothing to run"):
            other.worker(exclude_topics=["hidden"])


def test_a_task_that_is_registered_later_is_not_found_by_import() -> None:
    """The process says so instead of running something else."""
    place = find_task_location(handlers.pid)
    missing = type(place)("no_such_task", place.modules, "app")
    with pytest.raises(ConfigurationError, match="did not register task 'no_such_task'"):
        find_task(missing, "memory://")


async def test_tests_may_keep_everything_in_their_own_process() -> None:
    """Where mocks and debuggers reach the handler: always when inline, on request otherwise."""
    async with in_memory(handlers.app) as app:
        with inline(app):
            job = await handlers.pid.enqueue()
            assert await job.result(timeout=0) == os.getpid()
        job = await handlers.pid.enqueue()
        await app.run_until_idle(isolate=False)
        assert await job.result(timeout=0) == os.getpid()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"isolation": "thread"}, "isolation is 'thread'; it can be 'process'"),
        ({"isolation": "process", "memory_limit": "lots"}, "memory_limit is 'lots'; give bytes"),
        ({"isolation": "process", "memory_limit": True}, "memory_limit is True; give bytes"),
        ({"isolation": "process", "memory_limit": "1MB"}, "memory_limit is '1MB'; 16 MB to 1 TB"),
        ({"isolation": "process", "memory_limit": 2**50}, "16 MB to 1 TB are possible"),
        ({"memory_limit": "64MB"}, "memory_limit is '64MB', but .* add isolation=\"process\""),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object], said: str) -> None:
    """Value, limit, remedy, when the task is registered."""
    with pytest.raises(ConfigurationError, match=said):
        Tidewheel("memory://").task(**options)(work)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("written", "means"),
    [("256MB", 2**28), ("256 MiB", 2**28), ("1.5g", 3 * 2**29), (2**28, 2**28), ("67108864", 2**26)],
)
def test_a_memory_limit_is_bytes_or_words(written: str | int, means: int) -> None:
    """K, M, G and T count by 1024, with or without B or iB."""
    app = Tidewheel("memory://")
    task = app.task(isolation="process", memory_limit=written, name="limited")(work)
    assert (task.isolation, task.memory_limit) == ("process", means)


def test_a_program_without_such_tasks_loads_nothing_of_this() -> None:
    """Who does not use processes of their own pays nothing for them."""
    program = """
        import asyncio, sys
        from tidewheel import Tidewheel
        app = Tidewheel("memory://")
        @app.task
        async def plain() -> None: ...
        async def main():
            async with app:
                await plain.enqueue()
                await app.run_until_idle()
        asyncio.run(main())
        assert not [name for name in sys.modules if name.startswith("tidewheel.worker.processes")]
        assert "ctypes" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)


async def test_code_without_a_file_is_refused() -> None:
    """An interactive session cannot be imported by anybody."""
    program = """
        from tidewheel import Tidewheel, ConfigurationError
        from tidewheel.tasks.task_location import find_task_location
        app = Tidewheel("memory://")
        @app.task(isolation="process")
        def work() -> None: ...
        try:
            find_task_location(work)
        except ConfigurationError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    said = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout
    assert "in an interactive session, or in code without a file" in said
