"""Completed file jobs against the disk: it looks, on every store, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windlass import Windlass
from windlass.model import JobFilter, Page, State
from windlass.reconciliation import reconcile_files


async def compared(app: Windlass, most: int = 100) -> tuple[int, list[str]]:
    found = await reconcile_files(app, most=most)
    assert found is not None
    return found.files, sorted(one.text for one in found.disagreements)


async def create(app: Windlass, path: str, content: str) -> None:
    await app.enqueue("create_file", {"path": path, "content": content, "overwrite": True})
    await app.run_until_idle()


async def delete(app: Windlass, path: str) -> None:
    await app.enqueue("delete_file", {"path": path})
    await app.run_until_idle()


async def test_what_was_created_is_there_and_what_was_deleted_is_gone(
    everywhere: Windlass, root: Path
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


async def test_the_last_job_about_a_file_counts(app: Windlass, root: Path) -> None:
    """However often it was written before, and however its path was spelled."""
    await create(app, "a", "one")
    await create(app, f"{root}/a", "two")
    await create(app, "./a", "three")
    assert await compared(app) == (1, [])
    await delete(app, "a")
    assert await compared(app) == (1, [])
    (root / "a").write_text("three")
    assert await compared(app) == (1, [f"{root}/a is there again"])


async def test_a_file_that_an_unfinished_job_is_about_is_left_alone(app: Windlass, root: Path) -> None:
    """It may be written at this very moment."""
    await create(app, "a", "one")
    (root / "a").write_text("half way")
    await app.enqueue("create_file", {"path": "a", "content": "two", "overwrite": True})
    found = await reconcile_files(app)
    assert found is not None
    assert (found.busy, found.disagreements) == (1, ())


async def test_a_job_that_runs_during_the_look_makes_no_false_alarm(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is newer than the jobs that were read; a second look knows."""
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


async def test_older_jobs_than_are_looked_at_are_said_to_be_there(app: Windlass, root: Path) -> None:
    """A comparison that ends early does not look like a whole one."""
    for number in range(5):
        await create(app, f"f{number}", "")
    (root / "f0").unlink()
    found = await reconcile_files(app, most=3)
    assert found is not None
    assert (found.jobs, found.complete, found.disagreements) == (3, False, ())
    found = await reconcile_files(app)
    assert found is not None
    assert (found.complete, len(found.disagreements)) == (True, 1)


async def test_what_cannot_be_looked_at_is_told_as_such(app: Windlass, root: Path) -> None:
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
    assert (len(found.unknown), found.disagreements) == (2, ())


async def test_a_task_of_ones_own_with_the_same_name_is_not_compared() -> None:
    """What its payload means nobody knows."""
    app = Windlass("memory://")

    @app.task(name="create_file")
    async def own(path: str) -> None:
        pass

    async with app:
        await own.enqueue(path="/etc/passwd")
        await app.run_until_idle()
        assert await reconcile_files(app) is None


@pytest.mark.parametrize("payload", [b"[]", b'{"path": 3}', b'{"path": "a", "content": 3}', b"\xff"])
async def test_a_payload_that_makes_no_sense_is_told(app: Windlass, payload: bytes) -> None:
    """It cannot have been written by us, and spoils nothing."""
    from dataclasses import replace

    import msgspec

    from windlass.reconciliation import disk_of, reconcile

    await create(app, "a", "one")
    [job] = (await app.jobs()).items
    record = msgspec.structs.replace((await app.get(job.id)).record, payload=payload)
    disk = disk_of(app)
    assert disk is not None
    found = reconcile([record], [record], disk)
    assert [one.text for one in found.unknown] == ["its payload is not that of a file job"]
    assert replace(found, unknown=()).files == 0
