"""Completed file jobs against the disk: it looks, on every store, and changes nothing."""

from __future__ import annotations

import errno
import os
import tracemalloc
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

import tidewheel
from tests.builtin.system_call_steps import step_through
from tidewheel import Job, Tidewheel
from tidewheel.builtin.file_reconciliation import reconcile_files
from tidewheel.builtin.partial_files import hidden_name
from tidewheel.core.model import JobFilter, Page, State
from tidewheel.testing.clock import FrozenClock


async def compared(app: Tidewheel, most: int = 100) -> tuple[int, list[str]]:
    found = await reconcile_files(app, most=most)
    assert found is not None
    return found.files, sorted(one.text for one in found.mismatches)


async def run(app: Tidewheel, task: str, **payload: Any) -> Job[Any]:
    """Alone, in a second of its own."""
    job = await app.enqueue(task, payload)
    await app.run_until_idle()
    assert isinstance(app.clock, FrozenClock)
    app.clock.advance(1)
    return await app.get(job.id)


async def create(app: Tidewheel, path: str, content: str) -> None:
    await run(app, "create_file", path=path, content=content, overwrite=True)


async def delete(app: Tidewheel, path: str) -> None:
    await run(app, "delete_file", path=path)


async def test_what_was_created_is_there_and_what_was_deleted_is_gone(
    everywhere: Tidewheel, root: Path
) -> None:
    """Until somebody else changes it."""
    for name in ("a", "b", "c/d"):
        await create(everywhere, name, name)
    await delete(everywhere, "b")
    assert await compared(everywhere) == (3, [])
    (root / "a").write_text("other")
    (root / "b").write_text("back")
    (root / "c" / "d").unlink()
    assert await compared(everywhere) == (
        3,
        [f"{root}/a has other content", f"{root}/b is there again", f"{root}/c/d is gone"],
    )
    (root / "c").rmdir()
    assert f"{root}/c/d is gone" in (await compared(everywhere))[1]


async def test_the_last_job_about_a_file_counts(app: Tidewheel, root: Path) -> None:
    """However often it was written before, and however its path was spelled."""
    await create(app, "a", "one")
    await create(app, f"{root}/a", "two")
    await create(app, "./a", "three")
    assert await compared(app) == (1, [])
    await delete(app, "a")
    assert await compared(app) == (1, [])
    (root / "a").write_text("three")
    assert await compared(app) == (1, [f"{root}/a is there again"])


async def test_a_file_that_an_unfinished_job_is_about_is_left_alone(app: Tidewheel, root: Path) -> None:
    """It may be written at this very moment."""
    await create(app, "a", "one")
    (root / "a").write_text("half way")
    await app.enqueue("create_file", {"path": "a", "content": "two", "overwrite": True})
    found = await reconcile_files(app)
    assert found is not None
    assert (found.busy, found.mismatches) == (1, ())


async def test_a_job_that_runs_during_the_look_makes_no_false_alarm(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is newer than the jobs that were read; a look for other jobs finds it."""
    await create(app, "a", "one")
    list_jobs = app.store.list_jobs
    ran = False

    async def then_another_runs(where: JobFilter, **options: Any) -> Page:
        nonlocal ran
        page = await list_jobs(where, **options)
        if where.task == "create_file" and where.state is State.COMPLETED and not ran:
            ran = True
            await create(app, "a", "two")
        return page

    monkeypatch.setattr(app.store, "list_jobs", then_another_runs)
    assert await compared(app) == (1, [])
    assert ran


async def test_of_jobs_that_ran_at_once_any_may_have_the_last_word(
    everywhere: Tidewheel, root: Path, clock: FrozenClock
) -> None:
    """Which of two settled last says nothing about who wrote last."""
    for content in ("one", "two"):
        await everywhere.enqueue("create_file", {"path": "a", "content": content, "overwrite": True})
    await everywhere.run_until_idle()
    for content in ("one", "two"):
        (root / "a").write_text(content)
        assert await compared(everywhere) == (1, [])
    (root / "a").write_text("three")
    assert await compared(everywhere) == (1, [f"{root}/a has other content"])


async def test_a_later_job_counts_though_it_is_not_among_the_newest(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """Many deletions later, or enqueued long before and due only now: it did it, and nothing is wrong."""
    late = await app.enqueue("delete_file", {"path": "b"}, delay=60)
    await create(app, "a", "one")
    await create(app, "b", "one")
    await delete(app, "a")
    clock.advance(60)
    await app.run_until_idle()
    assert (await app.get(late.id)).state == "completed"
    for number in range(4):
        await delete(app, f"n{number}")
    assert (await compared(app, most=3))[1] == []


async def test_where_other_jobs_are_too_many_to_look_at_nothing_is_certain(
    app: Tidewheel, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs is told as doubtful then, and not as wrong."""
    await create(app, "a", "one")
    for number in range(5):
        await delete(app, f"n{number}")
    (root / "a").unlink()
    found = await reconcile_files(app, most=2)
    assert found is not None
    assert found.mismatches == ()
    assert [one.text for one in found.unknown] == [
        f"{root}/a is gone, and there are too many jobs to tell whether another one changed it"
    ]


@pytest.mark.parametrize("ending", ["retried", "failed", "cancelled"])
async def test_a_job_that_errored_after_its_work_may_have_changed_its_file(
    app: Tidewheel, root: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits, failed or was cancelled: nobody knows how far it came, so nobody is alarmed."""
    await create(app, "a", "one")
    renamed = False

    def step(_number: int, name: str, _args: tuple[Any, ...]) -> None:
        nonlocal renamed
        if renamed and name == "fsync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        renamed = renamed or name == "rename"

    with monkeypatch.context() as patch:
        step_through(patch, step)
        payload = {"path": "a", "content": "two", "overwrite": True}
        job = await app.enqueue("create_file", payload, max_attempts=1 if ending == "failed" else 2)
        await app.run_until_idle()
    if ending == "cancelled":
        await app.cancel(job.id)
    assert (await app.get(job.id)).state == {"retried": "pending"}.get(ending, ending)
    assert (root / "a").read_text() == "two"
    found = await reconcile_files(app)
    assert found is not None
    assert (found.busy, found.mismatches) == (1, ())


async def test_a_download_into_the_same_file_is_the_last_word(app: Tidewheel, root: Path) -> None:
    """What it brought nobody knows here, but that the file is no longer the older job's."""

    @app.task(name="download_file")
    def download(url: str, dest: str) -> None:
        (root / dest).write_text("from the web")

    await create(app, "a", "one")
    await run(app, "download_file", url="https://example.org/a", dest="a")
    assert await compared(app) == (1, [])
    await create(app, "a", "two")
    (root / "a").unlink()
    assert await compared(app) == (1, [f"{root}/a is gone"])


async def test_a_relative_path_is_that_of_the_root_it_was_run_with(root: Path, tmp_path: Path) -> None:
    """Roots that were configured anew lead it elsewhere; its file is where its result says."""
    (other := tmp_path / "other").mkdir()
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    first = Tidewheel(url, clock=FrozenClock())
    first.include(tidewheel.builtin, roots=[root])
    async with first:
        await create(first, "a", "one")
    for roots, wrong, unknown in (([other, root], 0, 0), ([other], 0, 1)):
        app = Tidewheel(url)
        app.include(tidewheel.builtin, roots=roots)
        async with app:
            found = await reconcile_files(app)
        assert found is not None
        assert (len(found.mismatches), len(found.unknown)) == (wrong, unknown)


async def test_a_file_that_is_reached_through_two_roots_is_one_file(root: Path, tmp_path: Path) -> None:
    """One root in another, and one that is a link to another."""
    (inner := root / "inner").mkdir()
    (link := tmp_path / "link").symlink_to(root)
    app = Tidewheel("memory://", clock=FrozenClock())
    app.include(tidewheel.builtin, roots=[root, inner, link])
    async with app:
        for number, path in enumerate(("inner/a", f"{inner}/a", f"{link}/inner/a", "inner/a")):
            await create(app, path, str(number))
        assert await compared(app) == (1, [])
        (inner / "a").unlink()
        assert await compared(app) == (1, [f"{inner}/a is gone"])


async def test_contents_are_not_kept_while_jobs_are_compared(app: Tidewheel) -> None:
    """Memory does not grow with what jobs wrote."""
    for number in range(20):
        await create(app, f"f{number}", "x" * 60_000)
    tracemalloc.start()
    try:
        assert await compared(app) == (20, [])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * 60_000


async def test_hidden_files_of_killed_runs_are_told_when_their_jobs_are_over(
    everywhere: Tidewheel, root: Path
) -> None:
    """Not those that a next run will take up, nor what others have put there."""
    over = await run(everywhere, "create_file", path="a/b", content="x")
    waiting = await everywhere.enqueue("create_file", {"path": "a/c", "content": "x"}, delay=60)
    gone = uuid4()
    for number, job_id in enumerate((over.id, waiting.id, gone)):
        (root / "a" / hidden_name(job_id, 7, "part")).write_text("x" * number)
    (root / hidden_name(over.id, 8, "tmp")).write_text("xxx")
    (root / ".tidewheel-notes.tmp").write_text("mine")
    (root / hidden_name(over.id, 9, "tmp")).symlink_to(root / "a" / "b")
    (root / "loop").symlink_to(root)
    found = await reconcile_files(everywhere)
    assert found is not None
    assert [(one.path, one.job_id, one.size) for one in found.leftovers] == [
        (str(root / hidden_name(over.id, 8, "tmp")), over.id, 3),
        (str(root / "a" / hidden_name(gone, 7, "part")), gone, 2),
        (str(root / "a" / hidden_name(over.id, 7, "part")), over.id, 0),
    ]
    assert found.searched
    found = await reconcile_files(everywhere, names=3)
    assert found is not None
    assert not found.searched
    assert (root / hidden_name(over.id, 8, "tmp")).exists(), "it only looks"


async def test_older_jobs_than_are_looked_at_are_said_to_be_there(app: Tidewheel, root: Path) -> None:
    """A comparison that ends early does not look like a whole one."""
    for number in range(5):
        await create(app, f"f{number}", "")
    (root / "f0").unlink()
    found = await reconcile_files(app, most=3)
    assert found is not None
    assert (found.jobs, found.complete, found.mismatches) == (3, False, ())
    found = await reconcile_files(app)
    assert found is not None
    assert (found.complete, len(found.mismatches)) == (True, 1)


async def test_what_cannot_be_looked_at_is_told_as_such(app: Tidewheel, root: Path) -> None:
    """A root that is not mounted is no proof that its files are gone, and a link is not followed."""
    await create(app, "a", "one")
    await create(app, "b/c", "one")
    (root / "b" / "c").unlink()
    (root / "b").rmdir()
    (root / "b").symlink_to(root.parent)
    found = await reconcile_files(app)
    assert found is not None
    assert [one.text for one in found.unknown] == [
        f"{root}/b is a link, which may lead anywhere; links beneath a root are refused"
    ]
    root.rename(root.parent / "unmounted")
    found = await reconcile_files(app)
    assert found is not None
    assert (len(found.unknown), found.mismatches) == (2, ())


async def test_a_task_of_ones_own_with_the_same_name_is_not_compared() -> None:
    """What its payload means nobody knows."""
    app = Tidewheel("memory://")

    @app.task(name="create_file")
    async def own(path: str) -> None:
        pass

    async with app:
        await own.enqueue(path="/etc/passwd")
        await app.run_until_idle()
        assert await reconcile_files(app) is None


@pytest.mark.parametrize("payload", [b"[]", b'{"path": 3}', b'{"path": "a", "content": 3}', b"\xff"])
async def test_a_payload_that_makes_no_sense_is_told(
    app: Tidewheel, payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot have been written by us, and spoils nothing."""
    await create(app, "a", "one")
    get = app.store.get

    async def spoiled(job_id: UUID) -> Any:
        record = await get(job_id)
        assert record is not None
        return msgspec.structs.replace(record, payload=payload)

    monkeypatch.setattr(app.store, "get", spoiled)
    found = await reconcile_files(app)
    assert found is not None
    assert [one.text for one in found.unknown] == ["its payload is not that of a file job"]
    assert (found.jobs, found.files, found.mismatches) == (1, 0, ())
