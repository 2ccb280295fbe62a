"""create_file and delete_file: what they do, on every store."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import tidewheel
from tidewheel import ConfigurationError, InvalidPayload, Job, TaskError, Tidewheel
from tidewheel.builtin import directories, roots
from tidewheel.builtin.file_reconciliation import FileContent
from tidewheel.builtin.files import FileCreated, FileDeleted, FileTasks
from tidewheel.builtin.roots import os_errors_as_task_errors
from tidewheel.testing.clock import FrozenClock


async def ran(app: Tidewheel, task: str, **payload: Any) -> Job[Any]:
    """A job of this task, after as many attempts as it takes."""
    job = await app.enqueue(task, payload)
    await app.run_until_idle()
    return await app.get(job.id)


async def refused(app: Tidewheel, task: str, **payload: Any) -> str:
    """The code with which a job failed at its first attempt."""
    job = await ran(app, task, **payload)
    assert job.state == "failed"
    assert job.error is not None
    assert not job.error.retryable
    assert job.attempt == 1
    return job.error.code


def test_a_task_that_is_not_configured_is_not_there() -> None:
    """Nothing can be asked for that nobody has allowed, and the error says what to configure."""
    app = Tidewheel("memory://")
    with pytest.raises(ConfigurationError, match=r"create_file, delete_file: roots, the directories"):
        app.include(tidewheel.builtin)
    with pytest.raises(
        ConfigurationError, match=r"create_file is asked for but not configured; it needs roots"
    ):
        app.include(tidewheel.builtin, only=["create_file"])
    assert len(app.registry) == 0


async def test_a_file_is_written_with_the_directories_on_its_way(everywhere: Tidewheel, root: Path) -> None:
    """The result says where, how much, and that it was written."""
    job = await ran(everywhere, "create_file", path="models/rope/1.json", content='{"length": "12 µ"}')
    target = root / "models" / "rope" / "1.json"
    assert target.read_text("utf-8") == '{"length": "12 µ"}'
    assert await job.result(0) == FileCreated(str(target), 19, written=True)
    assert os.listdir(target.parent) == ["1.json"]


async def test_the_same_content_already_there_is_success(everywhere: Tidewheel, root: Path) -> None:
    """An attempt that succeeded and could not say so is not made to fail by the next, and nothing is
    written."""
    await ran(everywhere, "create_file", path="note", content="same")
    before = (root / "note").stat()
    job = await ran(everywhere, "create_file", path="note", content="same")
    assert await job.result(0) == FileCreated(str(root / "note"), 4, written=False)
    after = (root / "note").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


async def test_other_content_is_not_clobbered_unless_told(everywhere: Tidewheel, root: Path) -> None:
    """Without ``overwrite`` the job fails at once and the file stays; with it the file is replaced."""
    (root / "note").write_text("mine")
    assert await refused(everywhere, "create_file", path="note", content="new") == "file_exists"
    assert (root / "note").read_text() == "mine"
    job = await ran(everywhere, "create_file", path="note", content="new", overwrite=True)
    assert job.state == "completed"
    assert (root / "note").read_text() == "new"
    assert os.listdir(root) == ["note"]


async def test_a_file_is_deleted_and_a_missing_one_is_no_error(everywhere: Tidewheel, root: Path) -> None:
    """Nor is a missing directory on its way."""
    (root / "note").write_text("x")
    job = await ran(everywhere, "delete_file", path="note")
    assert await job.result(0) == FileDeleted(str(root / "note"), deleted=True)
    assert os.listdir(root) == []
    job = await ran(everywhere, "delete_file", path="note")
    assert await job.result(0) == FileDeleted(str(root / "note"), deleted=False)
    job = await ran(everywhere, "delete_file", path="no/such/note")
    assert await job.result(0) == FileDeleted(str(root / "no/such/note"), deleted=False)
    assert os.listdir(root) == []


@pytest.mark.parametrize("name", ["require_exists", "requireExists"])
async def test_a_missing_file_is_an_error_where_it_must_exist(everywhere: Tidewheel, name: str) -> None:
    """By both names of the field; the payload is kept under its own."""
    assert await refused(everywhere, "delete_file", **{"path": "note", name: True}) == "file_not_found"
    page = await everywhere.jobs(task="delete_file")
    job = await everywhere.get(page.items[0].id)
    assert job.payload == {"path": "note", "require_exists": True}


async def test_an_absolute_path_beneath_a_root_is_that_root_s(root: Path, tmp_path: Path) -> None:
    """A relative one is the first root's; of two roots, one in the other, the inner one is meant."""
    inner = root / "inner"
    inner.mkdir()
    link = tmp_path / "link"
    link.symlink_to(root)
    app = Tidewheel("memory://")
    app.include(tidewheel.builtin, roots=[root, inner, link])
    async with app:
        await ran(app, "create_file", path=str(inner / "a"), content="a")
        await ran(app, "create_file", path="b", content="b")
        await ran(app, "create_file", path=str(link / "c"), content="c")
    assert [(inner / "a").read_text(), (root / "b").read_text(), (root / "c").read_text()] == ["a", "b", "c"]


async def test_a_root_in_another_is_not_made_either(root: Path) -> None:
    """A path that is relative to the outer one means the inner one, whose disk may not be mounted."""
    app = Tidewheel("memory://", clock=FrozenClock())
    app.include(tidewheel.builtin, roots=[root, root / "disk"])
    async with app:
        job = await ran(app, "create_file", path="disk/note", content="x")
    assert job.error is not None
    assert (job.error.code, job.error.retryable) == ("root_missing", True)
    assert os.listdir(root) == []


@pytest.mark.parametrize(
    "name",
    ["日本語.txt", "ملف", "é", "e\u0301", "🧶", "a b", "-rf", "a\nb", "x" * 255, "é" * 127, "...", "~"],
)
async def test_any_name_the_system_takes_will_do(app: Tidewheel, root: Path, name: str) -> None:
    """Names in all scripts, long ones and odd ones: each is a file of just this name."""
    job = await ran(app, "create_file", path=f"{name}d/{name}" if len(name) < 100 else name, content="x")
    assert job.state == "completed"
    [path] = [path for path in root.rglob("*") if path.is_file()]
    assert path.name == name
    assert (await (await ran(app, "delete_file", path=str(path))).result(0)).deleted


def test_a_name_that_the_worker_s_locale_does_not_have_says_what_to_do() -> None:
    """In the locale C the system's calls take ASCII only."""
    with (
        pytest.raises(TaskError, match="for this worker; start it in a UTF-8 locale") as caught,
        os_errors_as_task_errors("é"),
    ):
        "é".encode("ascii")
    assert (caught.value.code, caught.value.retryable) == ("io_error", True)


async def test_jobs_about_one_file_at_the_same_time_leave_it_whole(app: Tidewheel, root: Path) -> None:
    """Two workers, sixteen threads, and a reader who never sees a part of one or a mixture."""
    contents = [str(number) * 10_000 for number in range(10)]
    ended = threading.Event()

    def read() -> set[str]:
        seen = set()
        while not ended.is_set():
            with suppress(FileNotFoundError):
                seen.add((root / "note").read_text())
        return seen

    for content in contents * 4:
        await app.enqueue("create_file", {"path": "note", "content": content, "overwrite": True})
    reader = asyncio.ensure_future(asyncio.to_thread(read))
    try:
        await asyncio.gather(*(app.run_until_idle(concurrency=8, name=name) for name in ("one", "two")))
    finally:
        ended.set()
    assert await reader <= set(contents)
    assert (await app.count(state="completed")).total == 40
    assert os.listdir(root) == ["note"]


async def test_a_root_that_is_missing_is_tried_again_and_never_made(app: Tidewheel, root: Path) -> None:
    """A disk that is not mounted must not be written beside."""
    root.rmdir()
    job = await app.enqueue("create_file", {"path": "note", "content": "x"})
    await app.run_until_idle()
    job = await app.get(job.id)
    assert job.state == "pending"
    assert job.error is not None
    assert (job.error.code, job.error.retryable) == ("root_missing", True)
    assert not root.exists()


async def test_more_than_a_file_may_have_is_refused(root: Path) -> None:
    """The message has the size, the limit and its name, and nothing is written."""
    app = Tidewheel("memory://")
    app.include(tidewheel.builtin, roots=root, max_file_bytes=3)
    async with app:
        assert await refused(app, "create_file", path="note", content="four") == "file_too_large"
        assert (await ran(app, "create_file", path="note", content="3 b")).state == "completed"
    assert os.listdir(root) == ["note"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
async def test_a_file_has_the_mode_that_was_configured_and_keeps_the_one_it_has(root: Path) -> None:
    """The umask decides where nothing is configured; whoever narrowed a file's mode finds it narrow."""
    app = Tidewheel("memory://")
    app.include(tidewheel.builtin, roots=root, file_mode=0o606)
    async with app:
        await ran(app, "create_file", path="new", content="x")
        (root / "old").write_text("x")
        (root / "old").chmod(0o640)
        await ran(app, "create_file", path="old", content="y", overwrite=True)
    assert stat.S_IMODE((root / "new").stat().st_mode) == 0o606
    assert stat.S_IMODE((root / "old").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "names no file"),
        ("/", "names no file"),
        ("a/", "names no file"),
        ("a/.", "names no file"),
        (".", "names no file"),
        ("..", r"has '\.\.' in it"),
        ("a/../../b", r"has '\.\.' in it"),
        ("a/../b", r"has '\.\.' in it"),
        ("x" * 5000, "is longer than 4,096 bytes"),
        ("é" * 2049, "is longer than 4,096 bytes"),
        ("a/" * 150 + "b", "is 151 directories deep; the limit is 100"),
    ],
)
async def test_a_path_that_cannot_be_right_is_refused_at_enqueue(app: Tidewheel, path: str, why: str) -> None:
    """Nothing is written, neither to the queue nor to the disk."""
    for task, more in (("create_file", {"content": "x"}), ("delete_file", {})):
        with pytest.raises(InvalidPayload, match=f"path: {why}"):
            await app.enqueue(task, {"path": path, **more})
    assert (await app.count()).total == 0


async def test_a_path_with_a_nul_in_it_is_refused_at_enqueue(app: Tidewheel) -> None:
    """A system call would see its first half."""
    with pytest.raises(InvalidPayload, match="NUL"):
        await app.enqueue("create_file", {"path": "note\0.txt", "content": "x"})
    with pytest.raises(ValueError, match="has a NUL character in it"):
        roots.split_path("note\0.txt")


async def test_a_file_name_that_the_system_has_no_room_for_fails_at_once(app: Tidewheel, root: Path) -> None:
    """Trying again would not make it shorter."""
    assert await refused(app, "create_file", path="x" * 300, content="x") == "invalid_path"
    assert os.listdir(root) == []


async def test_what_the_disk_has_against_a_completed_job_is_told(app: Tidewheel, root: Path) -> None:
    """For reconciliation, which looks and repairs nothing."""
    tasks = getattr(app.registry.tasks["create_file"].fn, "__self__", None)
    assert isinstance(tasks, FileTasks)
    wanted = FileContent(1, sha256(b"x").digest())
    assert tasks.describe_mismatch("a/note", wanted) == f"{root / 'a/note'} is gone"
    assert tasks.describe_mismatch("a/note", None) is None
    await ran(app, "create_file", path="a/note", content="x")
    assert tasks.describe_mismatch("a/note", wanted) is None
    assert tasks.describe_mismatch("a/note", None) == f"{root / 'a/note'} is there again"
    for other in ("y", "xx", ""):
        (root / "a" / "note").write_text(other)
        assert tasks.describe_mismatch("a/note", wanted) == f"{root / 'a/note'} has other content"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"roots": [""]}, r"roots holds ''; give paths of directories"),
        ({"roots": ["a"] * 101}, r"roots has 101 directories; the limit is 100"),
        ({"roots": None}, r"roots is None; give the path of a directory, or several"),
        ({"roots": b"a"}, r"roots is b'a'; give the path of a directory, or several"),
        ({"roots": [b"a"]}, r"roots holds b'a'; give paths of directories"),
        ({"roots": [__file__]}, r"the root .*test_files\.py is a file; give the path of a directory"),
        ({"roots": ["a"], "file_mode": 0o1777}, r"file_mode is 1023; give one from 0o400 to 0o777"),
        ({"roots": ["a"], "file_mode": 0o200}, r"file_mode is 128; give one from 0o400 to 0o777"),
        ({"roots": ["a"], "max_file_bytes": 0}, r"max_file_bytes is 0; 1 to 1,073,741,824 are possible"),
        ({"root": ["a"]}, r"'root' is no option of tidewheel.builtin.*roots"),
        (
            {"roots": ["a"], "only": ["create_fil"]},
            r"'create_fil' is no task of tidewheel.builtin.*create_file",
        ),
        ({"roots": ["a"], "only": 5}, r"only is 5; give names of tasks, or leave it out for all"),
        ({"roots": ["a"], "only": []}, r"only is \[\]; give names of tasks, or leave it out for all"),
        ({"roots": ["a"], "only": [5]}, r"5 is no task of tidewheel.builtin; there are create_file"),
        ({"roots": ["a"], "options": {"create_file": {"max_attempt": 2}}}, r"'max_attempt' is no option"),
        ({"roots": ["a"], "options": {"create_file": 5}}, r"options is {'create_file': 5}; give options by"),
        ({"roots": ["a"], "options": {"create_file": {"name": "x"}}}, r"another name; give it aliases"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(given: Any, why: str) -> None:
    """And no task comes into the app."""
    app = Tidewheel("memory://")
    with pytest.raises((ConfigurationError), match=why):
        app.include(tidewheel.builtin, **given)
    assert len(app.registry) == 0


def test_some_of_the_tasks_with_options_of_their_own(root: Path) -> None:
    """``only`` chooses, ``options`` says what ``@app.task`` would."""
    app = Tidewheel("memory://")
    tasks = app.include(
        tidewheel.builtin,
        roots=root,
        only=["create_file"],
        options={"create_file": {"max_attempts": 9, "topic": "files"}},
    )
    assert list(tasks) == ["create_file"]
    assert tasks["create_file"].topic == "files"
    assert tasks["create_file"].defaults["max_attempts"] == 9


async def test_without_calls_relative_to_a_descriptor_the_tasks_do_the_same(
    app: Tidewheel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, which has none."""
    monkeypatch.setattr(roots, "open_directory", directories.PathDirectory.open)
    job = await ran(app, "create_file", path="a/b/note", content="old")
    assert await job.result(0) == FileCreated(str(root / "a/b/note"), 3, written=True)
    job = await ran(app, "create_file", path="a/b/note", content="old")
    assert not (await job.result(0)).written
    assert await refused(app, "create_file", path="a/b/note", content="new") == "file_exists"
    assert (
        await ran(app, "create_file", path="a/b/note", content="new", overwrite=True)
    ).state == "completed"
    assert (root / "a/b/note").read_text() == "new"
    assert os.listdir(root / "a/b") == ["note"]
    assert (await (await ran(app, "delete_file", path="a/b/note")).result(0)).deleted
    assert await refused(app, "delete_file", path="a/b/note", require_exists=True) == "file_not_found"
    assert await refused(app, "create_file", path="a/b", content="x") == "not_a_file"
    root.rename(root.with_name("moved"))
    job = await ran(app, "delete_file", path="note")
    assert job.error is not None
    assert job.error.code == "root_missing"
