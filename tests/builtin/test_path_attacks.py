"""Paths and links that would lead out of a root, there from the start or planted between check and use."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tidewheel
from tests.builtin.system_call_steps import step_through
from tests.builtin.test_files import ran, refused
from tidewheel import TaskError, Tidewheel
from tidewheel.builtin import directories, roots

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")

KEPT = "nobody may touch this"
TASKS: list[tuple[str, dict[str, Any]]] = [
    ("create_file", {"content": "new"}),
    ("create_file", {"content": "new", "overwrite": True}),
    ("delete_file", {}),
    ("delete_file", {"require_exists": True}),
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that is no root, with a file in it."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "note").write_text(KEPT)
    return directory


def untouched(outside: Path) -> bool:
    return os.listdir(outside) == ["note"] and (outside / "note").read_text() == KEPT


@pytest.fixture(params=["descriptors", "paths"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With calls relative to a descriptor, and as on a system that has none."""
    if request.param == "paths":
        monkeypatch.setattr(roots, "open_directory", directories.PathDirectory.open)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("task", "more"), TASKS)
async def test_links_beneath_a_root_are_refused(
    app: Tidewheel, root: Path, outside: Path, task: str, more: dict[str, Any]
) -> None:
    """As a directory on the way and as the file itself, to outside, to inside and to nowhere."""
    (root / "inside").mkdir()
    (root / "inside" / "note").write_text(KEPT)
    (root / "away").symlink_to(outside)
    (root / "note").symlink_to(outside / "note")
    (root / "near").symlink_to("inside")
    (root / "nowhere").symlink_to(outside / "none")
    for path in ("away/note", "away/more/note", "note", "near/note", "nowhere", "nowhere/note"):
        assert await refused(app, task, path=path, **more) == "path_is_link", path
    assert untouched(outside)
    assert (root / "inside" / "note").read_text() == KEPT
    assert sorted(os.listdir(root)) == ["away", "inside", "near", "note", "nowhere"]


@pytest.mark.parametrize(("task", "more"), TASKS)
async def test_a_path_outside_all_roots_is_refused(
    app: Tidewheel, root: Path, outside: Path, task: str, more: dict[str, Any]
) -> None:
    """Also one that begins with the letters of a root, and the root itself."""
    (beside := root.with_name("root-2")).mkdir()
    for path in (outside / "note", beside / "note", Path("/etc/passwd"), root):
        assert await refused(app, task, path=str(path), **more) == "path_outside_roots", path
    assert untouched(outside)
    assert os.listdir(beside) == []


@pytest.mark.parametrize(("task", "more"), TASKS)
async def test_what_is_no_regular_file_is_refused(
    app: Tidewheel, root: Path, task: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories, pipes (which would hold the handler up for ever), sockets and devices."""
    (root / "directory").mkdir()
    os.mkfifo(root / "pipe")
    names = ["directory", "pipe", "socket"]
    with suppress(PermissionError):  # only root may
        os.mknod(root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        names.append("zero")
    monkeypatch.chdir(root)  # the path of a socket may be too long otherwise
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for name in names:
            assert await refused(app, task, path=name, **more) == "not_a_file", name
        assert await refused(app, task, path="pipe/note", **more) == "not_a_directory"
    assert sorted(os.listdir(root)) == names


async def test_a_hard_link_to_a_file_outside_is_replaced_and_not_written_through(
    app: Tidewheel, root: Path, outside: Path
) -> None:
    """Its name here gets the new content, the file it was another name of keeps its own."""
    os.link(outside / "note", root / "note")
    job = await ran(app, "create_file", path="note", content="new", overwrite=True)
    assert job.state == "completed"
    assert untouched(outside)
    assert (root / "note").read_text() == "new"


@pytest.mark.parametrize("planted", ["link", "hard link", "pipe"])
def test_a_draft_that_was_planted_is_not_written_to(
    root: Path, outside: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knows its name could have it lead to a file of theirs, also in the last moment."""
    draft = root / "draft"

    def plant() -> None:
        draft.unlink(missing_ok=True)
        match planted:
            case "link":
                draft.symlink_to(outside / "note")
            case "hard link":
                os.link(outside / "note", draft)
            case "pipe":
                os.mkfifo(draft)

    def step(_number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "open" and args[0] == "draft":
            plant()

    plant()
    with directories.open_directory(str(root)) as directory:
        with pytest.raises(TaskError):
            directory.open_to_append("draft")
        draft.unlink()
        draft.write_text("ours")
        step_through(monkeypatch, step)
        with pytest.raises(TaskError):
            directory.open_to_append("draft")
    assert untouched(outside)


Plant = Callable[[Path, Path], None]


def _directory_becomes_a_link(root: Path, outside: Path) -> None:
    if not (root / "a").is_symlink():
        if (root / "a").exists():
            os.rename(root / "a", root / "moved")
        (root / "a").symlink_to(outside)


def _file_becomes_a_link(root: Path, outside: Path) -> None:
    target = root / "a" / "note"
    if target.parent.is_dir() and not target.is_symlink():
        target.unlink(missing_ok=True)
        target.symlink_to(outside / "note")


@pytest.mark.parametrize("plant", [_directory_becomes_a_link, _file_becomes_a_link])
@pytest.mark.parametrize("there", [True, False], ids=["existing", "new"])
@pytest.mark.parametrize(("task", "more"), TASKS)
async def test_a_link_planted_before_any_system_call_leads_nowhere(
    app: Tidewheel,
    root: Path,
    outside: Path,
    task: str,
    more: dict[str, Any],
    there: bool,
    plant: Plant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between every check and its use there is a moment; a link planted in any of them is never followed."""
    at = 0
    planted = 1
    while planted:
        at += 1
        planted = 0
        before = set(os.listdir(root))
        for name in before:
            _clear(root / name)
        if there:
            (root / "a").mkdir()
            (root / "a" / "note").write_text("old")

        def step(number: int, _name: str, _args: tuple[Any, ...], when: int = at) -> None:
            nonlocal planted
            if number == when:
                plant(root, outside)
                planted += 1

        with monkeypatch.context() as patch:
            system = step_through(patch, step)
            job = await app.enqueue(task, {"path": "a/note", **more})
            await app.run_until_idle()
        assert untouched(outside), f"{task} touched it when planted before call {at} of {system.names}"
        if planted:
            ended = await app.get(job.id)
            assert ended.state in {"completed", "failed"}
    assert at > 3


def _clear(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        for inner in path.iterdir():
            _clear(inner)
        path.rmdir()


async def test_two_roots_do_not_open_each_other(root: Path, tmp_path: Path, outside: Path) -> None:
    """A link from one root into another is a link like any other."""
    (root / "other").symlink_to(outside)
    app = Tidewheel("memory://")
    app.include(tidewheel.builtin, roots=[root, outside])
    async with app:
        assert await refused(app, "create_file", path="other/new", content="x") == "path_is_link"
        assert (await ran(app, "create_file", path=str(outside / "new"), content="x")).state == "completed"


async def test_a_file_outside_with_the_same_content_is_no_success(
    app: Tidewheel, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link planted between the look at a file and its reading is not read through."""
    target = root / "note"
    target.write_text("old")

    def step(_number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "open" and args[0] == "note":
            target.unlink()
            target.symlink_to(outside / "note")

    step_through(monkeypatch, step)
    assert await refused(app, "create_file", path="note", content=KEPT) == "path_is_link"
