"""Killed with SIGKILL at every single system call of a file task, and failing there."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.builtin.killed_file_tasks import LATER, START, Victims, app_at, victims
from tests.builtin.system_call_steps import step_through
from tidewheel import Tidewheel
from tidewheel.testing.clock import FrozenClock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked, and killed by signals")

NEW = "new content, long enough for two halves"
OLD = "what was there"


@dataclass(frozen=True)
class Story:
    """One job, what was there before it, and what may be there when it was killed."""

    task: str
    payload: dict[str, Any]
    before: str | None
    after: str | None
    path: str = "note"

    def prepare(self, root: Path) -> None:
        shutil.rmtree(root)
        root.mkdir()
        if self.before is not None:
            (root / self.path).write_text(self.before)

    def found(self, root: Path) -> str | None:
        target = root / self.path
        return target.read_text() if target.exists() else None


STORIES = {
    "new": Story("create_file", {"path": "a/b/note", "content": NEW}, None, NEW, "a/b/note"),
    "replaced": Story("create_file", {"path": "note", "content": NEW, "overwrite": True}, OLD, NEW),
    "deleted": Story("delete_file", {"path": "note", "require_exists": True}, OLD, None),
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Victims]:
    with victims() as found:
        yield found


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_killed_at_any_system_call_a_file_is_old_or_new_and_the_next_run_succeeds(
    nursery: Victims, tmp_path: Path, root: Path, story: Story
) -> None:
    """Never a part of it; and the next run leaves nothing behind but the file."""
    url, empty = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "empty.db"
    async with app_at(url, str(root), START) as app:
        job = await app.enqueue(story.task, story.payload)
    shutil.copyfile(tmp_path / "jobs.db", empty)

    story.prepare(root)
    status, calls = nursery.run(url, str(root), 0)
    assert status == 0
    assert story.found(root) == story.after
    assert len(calls) >= 5

    seen = set()
    for point in range(1, len(calls) + 1):
        for file in tmp_path.glob("jobs.db*"):
            file.unlink()
        shutil.copyfile(empty, tmp_path / "jobs.db")
        story.prepare(root)
        status, made = nursery.run(url, str(root), point)
        assert status == -signal.SIGKILL, f"not killed at call {point}"
        assert made == calls[:point]
        found = story.found(root)
        assert found in {story.before, story.after}, f"killed at call {point}, {made[-1]}"
        seen.add(found)
        async with app_at(url, str(root), LATER) as app:
            await app.run_until_idle()
            ended = await app.get(job.id)
        assert ended.state == "completed", f"killed at call {point}, {made[-1]}: {ended.error}"
        assert story.found(root) == story.after
        everything = [path for path in root.rglob("*") if path.is_file()]
        assert everything == ([root / story.path] if story.after is not None else [])
    assert seen == {story.before, story.after}
    print(f"{story.task}: killed at {len(calls)} system calls: {' '.join(calls)}")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=["full", "broken", "refused"])
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_a_disk_that_fails_at_any_system_call_costs_one_attempt(
    root: Path, story: Story, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has a code, the file is old or new, no temporary file stays, and the retry succeeds."""
    point, failed = 0, True
    async with app_at("memory://", str(root), START) as app:
        opened = None
        while failed:
            point, failed = point + 1, False
            story.prepare(root)

            def step(number: int, name: str, args: tuple[Any, ...], at: int = point) -> None:
                nonlocal failed
                if number == at and name != "close":  # a close that fails has closed, so nothing can be tried
                    failed = True
                    raise OSError(code, os.strerror(code))
                failed = failed or number == at

            with monkeypatch.context() as patch:
                step_through(patch, step)
                job = await app.enqueue(story.task, story.payload)
                await app.run_until_idle()
            assert story.found(root) in {story.before, story.after}
            ended = await _again(app, job.id)
            assert ended == "completed"
            assert story.found(root) == story.after
            assert [path.name for path in root.rglob("*") if path.is_file()] == (
                ["note"] if story.after is not None else []
            )
            opened = opened or _open_files()
            assert _open_files() == opened, "a descriptor was left open"
    assert point > 5


def _open_files() -> int:
    return len(os.listdir("/dev/fd"))


async def _again(app: Tidewheel, job_id: Any) -> str:
    job = await app.get(job_id)
    if job.state == "pending":
        assert job.error is not None
        assert job.error.code in {"no_space", "io_error", "permission_denied"}
        assert job.error.retryable
        assert isinstance(app.clock, FrozenClock)
        app.clock.advance(60)
        await app.run_until_idle()
        job = await app.get(job_id)
    return str(job.state)


async def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_job_ends(
    app: Tidewheel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut at any moment leaves the old file or the whole new one, and what a completed job says."""
    (root / "note").write_text(OLD)
    system = step_through(monkeypatch, lambda *_: None)
    await app.enqueue("create_file", {"path": "note", "content": NEW, "overwrite": True})
    await app.run_until_idle()
    order = [name for name in system.names if name in {"write", "fsync", "rename"}]
    assert order == ["write", "fsync", "rename", "fsync"]
    written, first, second = (args[0] for name, args in system.made if name in {"write", "fsync"})
    assert written == first != second

    system.made.clear()
    await app.enqueue("create_file", {"path": "note", "content": NEW})
    await app.run_until_idle()
    assert system.names.count("fsync") == 2, "a run that was killed may have left the same content unsynced"
    assert "write" not in system.names


async def test_a_file_system_without_hard_links_or_syncs_of_directories_will_do(
    app: Tidewheel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it cannot do is done in another way or left out; a file that is there is still not replaced."""
    files: set[int] = set()

    def step(_number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "write":
            files.add(args[0])
        if name == "link":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        if name == "fsync" and args[0] not in files:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if name == "close":
            files.discard(args[0])

    step_through(monkeypatch, step)
    job = await app.enqueue("create_file", {"path": "a/note", "content": NEW})
    late = await app.enqueue("create_file", {"path": "a/note", "content": OLD})
    await app.run_until_idle(concurrency=1)
    assert (await job.result(0)).written
    failed = (await app.get(late.id)).error
    assert failed is not None
    assert failed.code == "file_exists"
    assert (root / "a" / "note").read_text() == NEW
    assert os.listdir(root / "a") == ["note"]


async def test_a_file_that_appears_at_the_last_moment_is_not_replaced(
    app: Tidewheel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it has the same content, which is what was wanted: then that one is synced, and not ours."""
    content = ""

    def step(_number: int, name: str, _args: tuple[Any, ...]) -> None:
        if name == "link":
            (root / "note").write_text(content)

    system = step_through(monkeypatch, step)
    for content, state in ((OLD, "failed"), (NEW, "completed")):
        (root / "note").unlink(missing_ok=True)
        system.made.clear()
        job = await app.enqueue("create_file", {"path": "note", "content": NEW})
        await app.run_until_idle()
        assert (await app.get(job.id)).state == state
        assert (root / "note").read_text() == content
        assert os.listdir(root) == ["note"]
    assert not (await job.result(0)).written
    assert system.names.count("fsync") == 3, "of our file, of the one that was there, of the directory"


async def test_a_file_that_is_gone_again_at_the_last_moment_is_not_in_the_way(
    app: Tidewheel, root: Path, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put there and deleted by others while the job ran: it is tried again, and not said to be there."""
    note = root / "note"
    seen: list[str] = []

    def step(_number: int, name: str, _args: tuple[Any, ...]) -> None:
        if name == "link" and not seen:
            note.write_text(OLD)
        elif name == "unlink" and note.exists() and note.read_text() == OLD:
            note.unlink()
            seen.append(name)

    step_through(monkeypatch, step)
    job = await app.enqueue("create_file", {"path": "note", "content": NEW})
    await app.run_until_idle()
    clock.advance(60)
    await app.run_until_idle()
    assert seen == ["unlink"]
    assert ((await app.get(job.id)).state, (await app.get(job.id)).attempt) == ("completed", 2)
    assert note.read_text() == NEW


async def test_a_temporary_file_in_the_way_costs_one_attempt(
    app: Tidewheel, root: Path, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody knows its name before it is made: the job does not say that its target exists."""

    def step(number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "open" and str(args[0]).endswith("-1.tmp"):
            (root / args[0]).write_text("planted")

    step_through(monkeypatch, step)
    job = await app.enqueue("create_file", {"path": "note", "content": NEW})
    await app.run_until_idle()
    error = (await app.get(job.id)).error
    assert error is not None
    assert (error.code, error.retryable) == ("io_error", True)
    clock.advance(60)
    await app.run_until_idle()
    assert (await app.get(job.id)).state == "completed"
    assert (root / "note").read_text() == NEW
    assert os.listdir(root) == ["note"]
