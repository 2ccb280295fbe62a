"""download_file: stopped, killed around its last steps, frozen, out of room; and what the next run does."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.builtin.killed_downloads import MB
from tests.builtin.network_task_apps import error_of, fetching_app, hidden, run
from tests.builtin.web_server import Web, bytes_of, redirecting, saying
from tests.patience import PATIENCE
from tests.worker.worker_processes import Site, stop
from tidewheel import State
from tidewheel.builtin.partial_files import PartialFile
from tidewheel.builtin.roots import Roots
from tidewheel.tasks.context import Checkpoint


async def test_a_cancelled_download_stops_in_the_middle(tmp_path: Path) -> None:
    """Cancelling takes effect while the server is silent, no file appears, and nothing stays behind."""
    with Web(bytes_of(2 * MB), hold_at=[1 * MB]).serving() as web:
        async with fetching_app(tmp_path) as app:
            job = await app.enqueue("download_file", {"url": web.url, "dest": "file.bin"})
            worker = asyncio.create_task(app.run_until_idle())
            await asyncio.to_thread(web.hold)
            await app.cancel(job.id)
            await asyncio.wait_for(worker, PATIENCE)
            job = await app.get(job.id)
    assert job.state is State.CANCELLED
    assert os.listdir(tmp_path) == []


async def test_a_download_has_the_mode_that_was_configured_once_it_is_whole(tmp_path: Path) -> None:
    """Whatever the umask; until then its own worker may write to it, because the next run has to."""
    with Web(bytes_of(2 * MB), hold_at=[1 * MB]).serving() as web:
        async with fetching_app(tmp_path, file_mode=0o466) as app:
            await app.enqueue("download_file", {"url": web.url, "dest": "file.bin"})
            worker = asyncio.create_task(app.run_until_idle())
            await asyncio.to_thread(web.hold)
            [draft] = hidden(tmp_path)
            assert (tmp_path / draft).stat().st_mode & 0o700 == 0o600
            web.release()
            await asyncio.wait_for(worker, PATIENCE)
    assert (tmp_path / "file.bin").stat().st_mode & 0o777 == 0o466


async def test_a_download_that_takes_too_long_is_timed_out_and_gone_on_with(tmp_path: Path) -> None:
    """job_timeout is an attempt like any other: the next one asks for the rest."""
    with Web(bytes_of(20 * MB), hold_at=[15 * MB]).serving() as web:
        app = fetching_app(tmp_path)
        job = await run(app, "download_file", {"url": web.url, "dest": "file.bin"}, timeout=2)
    assert job.state is State.COMPLETED, job.error
    assert job.attempt == 2
    assert [one.error.code for one in job.attempts if one.error] == ["job_timeout"]
    assert (tmp_path / "file.bin").read_bytes() == web.content
    assert int(web.requests[1]["Range"].removeprefix("bytes=").removesuffix("-")) >= 8 * MB


async def test_a_worker_that_shuts_down_gives_the_download_back(tmp_path: Path) -> None:
    """What has arrived is saved first, and the attempt does not count."""
    with Web(bytes_of(8 * MB), drop_every=2 * MB, hold_at=[3 * MB]).serving() as web:
        async with fetching_app(tmp_path) as app:
            job = await app.enqueue("download_file", {"url": web.url, "dest": "file.bin"})
            worker = app.worker(concurrency=1)
            running = asyncio.create_task(worker.run())
            await asyncio.to_thread(web.hold)
            worker.stop()
            web.release()
            await asyncio.wait_for(running, PATIENCE)
            job = await app.get(job.id)
            assert (job.state, job.attempt) == (State.PENDING, 0)
            saved = job.checkpoint["bytes_downloaded"]
            assert saved >= 2 * MB
            sent = web.sent
            await app.run_until_idle()
            job = await app.get(job.id)
    assert (job.state, job.attempt) == (State.COMPLETED, 1)
    assert (tmp_path / "file.bin").read_bytes() == web.content
    assert web.sent - sent <= 8 * MB - saved


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_run_that_ends_around_the_rename_is_not_repeated(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bytes were there: the next run puts the file in place, or finds it there, and asks nobody."""
    publish = PartialFile.publish

    def dies(draft: PartialFile) -> None:
        monkeypatch.setattr(PartialFile, "publish", publish)
        if when == "after":
            publish(draft)
        raise OSError("the power is gone")

    monkeypatch.setattr(PartialFile, "publish", dies)
    with Web(bytes_of(1 * MB)).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert (job.state, job.attempt) == (State.COMPLETED, 2), job.error
    assert len(web.requests) == 1
    assert (tmp_path / "file.bin").read_bytes() == web.content
    assert hidden(tmp_path) == []


async def test_a_frozen_worker_that_goes_on_does_not_spoil_the_file(tmp_path: Path) -> None:
    """SIGSTOP past the lease, a successor at work, SIGCONT: the file is whole and nothing else stays."""
    root = tmp_path / "root"
    root.mkdir()
    site = Site(tmp_path, program="tests.builtin.network_task_victim")
    web = Web(bytes_of(6 * MB), drop_every=2 * MB, hold_at=[3 * MB, 5 * MB])
    with web.serving():
        async with fetching_app(root, site.url) as app:
            payload = {"url": web.url, "dest": "file.bin", "sha256": web.sha256}
            job = await app.enqueue("download_file", payload)
            with site.workers(1, ROOT=str(root)) as (frozen,):
                await asyncio.to_thread(web.hold)
                await asyncio.to_thread(site.freeze, frozen)
                web.release()
                successor = await asyncio.to_thread(site.start, ROOT=str(root))
                try:
                    await asyncio.to_thread(web.hold)
                    frozen.send_signal(signal.SIGCONT)  # both are at it now
                    web.release()
                    result = await job.result(timeout=PATIENCE)
                    assert (root / "file.bin").read_bytes() == web.content
                    await asyncio.to_thread(stop, frozen)
                    await asyncio.to_thread(stop, successor)
                finally:
                    successor.kill()
                    successor.communicate()
    assert result.bytes == 6 * MB
    assert (root / "file.bin").read_bytes() == web.content
    assert hidden(root) == []


async def test_a_full_disk_is_an_error_that_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """no_space, with what has arrived kept: the attempt after the clean-up goes on."""
    write, room = os.write, [1_500_000]

    def full(descriptor: int, data: Any) -> int:
        if ".tidewheel-" not in os.readlink(f"/proc/self/fd/{descriptor}"):
            return write(descriptor, data)
        if not room[0]:
            room[0] = 10 * MB  # somebody cleans up
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", full)
    with Web(bytes_of(4 * MB), drop_every=1 * MB).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert (job.state, job.attempt) == (State.COMPLETED, 2), job.error
    assert [one.error.code for one in job.attempts if one.error] == ["no_space"]
    assert (tmp_path / "file.bin").read_bytes() == web.content


async def test_only_bytes_that_were_synced_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut the rest may be zeros of the right length; nobody would notice."""
    synced, counted = [0], []
    flush, save = PartialFile.flush, Checkpoint.__call__

    def flushing(draft: PartialFile) -> None:
        size = draft.size
        flush(draft)
        synced.append(size)

    async def saving(checkpoint: Checkpoint, data: Any) -> None:
        counted.append((data["bytes_downloaded"], synced[-1]))
        await save(checkpoint, data)

    monkeypatch.setattr(PartialFile, "flush", flushing)
    monkeypatch.setattr(Checkpoint, "__call__", saving)
    with Web(bytes_of(20 * MB), drop_every=7 * MB).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert job.state is State.COMPLETED, job.error
    assert len(counted) > 3
    assert all(bytes_downloaded <= on_disk for bytes_downloaded, on_disk in counted)
    assert counted[-1][0] == 20 * MB


@pytest.mark.parametrize("left", [None, 1 * MB])
async def test_a_draft_that_lost_bytes_is_not_gone_on_with(left: int | None, tmp_path: Path) -> None:
    """A disk that was cleaned, or lied about its syncs: the download starts over."""
    with Web(bytes_of(4 * MB), drop_every=3 * MB).serving() as web:

        def lose(handler: BaseHTTPRequestHandler) -> bool:
            if len(web.requests) != 2:
                return False
            (draft,) = tmp_path.glob(".tidewheel-*")
            if left is None:
                draft.unlink()
            else:
                os.truncate(draft, left)
            return saying(503)(handler)

        web.answer = lose
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert (job.state, job.attempt) == (State.COMPLETED, 2), job.error
    assert "Range" not in web.requests[2]
    assert (tmp_path / "file.bin").read_bytes() == web.content
    assert hidden(tmp_path) == []


async def test_what_a_signed_url_hides_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Errors, progress and log lines have the address without its query, after redirects, too."""
    caplog.set_level("DEBUG")

    def lead(handler: BaseHTTPRequestHandler) -> bool:
        if handler.path.startswith("/file.bin"):
            return redirecting("/else?token=sesame")(handler)
        if len(web.requests) == 4:
            return saying(404)(handler)
        return False

    with Web(bytes_of(3 * MB), drop_every=2 * MB, answer=lead).serving() as web:
        payload = {"url": f"{web.url}?signature=sesame", "dest": "file.bin"}
        job = await run(fetching_app(tmp_path), "download_file", payload)
    assert error_of(job) == (State.FAILED, "http_error", False)
    assert "goes on at byte 2000000" in caplog.text
    assert "sesame" not in caplog.text
    assert "sesame" not in str(job.error)
    assert "sesame" not in str(job.progress)


async def test_two_jobs_for_one_file_do_not_mix(tmp_path: Path) -> None:
    """Each has a draft of its own; the file is that of one of them."""
    one, two = (Web(bytes_of(3 * MB, seed), drop_every=1 * MB) for seed in (1, 2))
    with one.serving(), two.serving():
        async with fetching_app(tmp_path) as app:
            for web in (one, two):
                await app.enqueue("download_file", {"url": web.url, "dest": "file.bin"})
            await app.run_until_idle()
            assert (await app.stats()).completed == 2
    assert (tmp_path / "file.bin").read_bytes() in (one.content, two.content)
    assert hidden(tmp_path) == []


class Run:
    """As much of a context as a draft looks at."""

    def __init__(self, fence: int) -> None:
        self.fence = fence
        self.job = self
        self.id = "01890000-0000-7000-8000-000000000000"


def test_a_draft_that_somebody_still_writes_to_is_not_taken_over(tmp_path: Path) -> None:
    """A run that lost its job, and does not know, writes where nobody looks and puts nothing in place."""
    with Roots([tmp_path]).open_location("file.bin") as place:
        old = PartialFile.open(place, Run(1), None, None)  # type: ignore[arg-type]
        old.write(b"stale")
        new = PartialFile.open(place, Run(2), old.name, None)  # type: ignore[arg-type]
        assert new.size == 0
        new.write(b"fresh")
        old.write(b" and more")
        with pytest.raises(FileNotFoundError):
            old.publish()
        old.close()
        new.publish()
        new.close()
    assert (tmp_path / "file.bin").read_bytes() == b"fresh"
    assert os.listdir(tmp_path) == ["file.bin"]


def test_a_draft_of_a_dead_run_is_taken_over(tmp_path: Path) -> None:
    """Nobody holds it any more, so its bytes are of use."""
    with Roots([tmp_path]).open_location("file.bin") as place:
        old = PartialFile.open(place, Run(1), None, None)  # type: ignore[arg-type]
        old.write(b"half")
        old.close()
        new = PartialFile.open(place, Run(2), old.name, None)  # type: ignore[arg-type]
        assert (new.size, os.listdir(tmp_path)) == (4, [new.name])
        new.close()


def test_a_draft_that_was_taken_over_by_a_run_that_died_at_once_is_found(tmp_path: Path) -> None:
    """Killed between the new name and the checkpoint that tells it: the bytes are of use all the same."""
    with Roots([tmp_path]).open_location("file.bin") as place:
        first = PartialFile.open(place, Run(1), None, None)  # type: ignore[arg-type]
        first.write(b"half")
        first.close()
        PartialFile.open(place, Run(64), first.name, None).close()  # type: ignore[arg-type]
        third = PartialFile.open(place, Run(128), first.name, None)  # type: ignore[arg-type]
        assert (third.size, os.listdir(tmp_path)) == (4, [third.name])
        third.close()


@pytest.mark.parametrize("name", ["../outside", "file.bin", ".tidewheel-x-1.part"])
def test_a_checkpoint_cannot_name_another_file_as_a_draft(name: str, tmp_path: Path) -> None:
    """Only names that runs of this job give are taken over."""
    (tmp_path / "file.bin").write_bytes(b"precious")
    with Roots([tmp_path]).open_location("other.bin") as place:
        draft = PartialFile.open(place, Run(2), name, None)  # type: ignore[arg-type]
        assert draft.size == 0
        draft.discard()
        draft.close()
    assert (tmp_path / "file.bin").read_bytes() == b"precious"
