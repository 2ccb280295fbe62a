"""A user's project in a directory of its own, and ways to run the command line in it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest

from tests.cli.processes import Project
from tidewheel import Tidewheel
from tidewheel.cli.command_group import tidewheel

JOBS = """
import asyncio
from tidewheel import Fail, RetryAfter, Tidewheel
from tidewheel.tasks.context import Context

app = Tidewheel("sqlite:///jobs.db")


@app.task(max_attempts=5)
async def send_digest(ctx: Context, user_id: str) -> dict[str, str]:
    ctx.logger.info("a line from the handler")
    if user_id == "nobody":
        raise Fail("nobody lives here", code="no_user")
    if user_id == "busy" and ctx.attempt == 1:
        raise RetryAfter(0.05, "the mailbox is busy")
    await ctx.progress(50, "rendering")
    await ctx.checkpoint({"rendered": True})
    return {"sent_to": user_id}


def fetch(rows: int) -> list[int]:
    return list(range(rows))


@app.task
async def stepwise(ctx: Context) -> int:
    rows = await ctx.step("fetch all", fetch, 3)
    await ctx.step("long", fetch, 500)
    return await ctx.step("total", sum, rows)


@app.task(topic="slow", max_attempts=2)
async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)
"""


class Answer:
    """What a command line did."""

    def __init__(self, result: click.testing.Result) -> None:
        self.code = result.exit_code
        self.out = result.stdout
        self.errors = result.stderr
        # A command that ends by an exception other than SystemExit would have shown a traceback.
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Answer]
Within = Callable[[Callable[[Tidewheel], Awaitable[Any]]], Any]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """The working directory: an app in jobs.py, nothing in the environment, nothing imported before."""
    (tmp_path / "jobs.py").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    for name in ("TIDEWHEEL_URL", "TIDEWHEEL_DEBUG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield Project(tmp_path)
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin is not None and Path(origin).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def run(project: Project) -> Run:
    """Runs a command line in this process, its output not a terminal."""

    def run(*arguments: str, input: str | bytes | None = None) -> Answer:  # noqa: A002 - as click calls it
        return Answer(click.testing.CliRunner().invoke(tidewheel, arguments, input=input))

    return run


@pytest.fixture
def within(project: Project) -> Within:
    """Opens an app without tasks on the project's store, to look or to prepare."""

    def within(work: Callable[[Tidewheel], Awaitable[Any]]) -> Any:
        async def opened() -> Any:
            async with Tidewheel(project.url) as app:
                return await work(app)

        return asyncio.run(opened())

    return within


@pytest.fixture
def work_off(run: Run, project: Project) -> Callable[[], None]:
    """Runs every due job of the project's app."""

    def work_off() -> None:
        from tidewheel.cli.app_loader import load_app

        app = load_app("jobs:app")

        async def opened() -> None:
            async with app:
                await app.run_until_idle()

        asyncio.run(opened())

    return work_off
