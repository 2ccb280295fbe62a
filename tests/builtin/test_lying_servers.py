"""download_file: servers that send less, more or something else than they say."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.builtin.network_task_apps import error_of, fetching_app, hidden, run
from tests.builtin.web_server import Web, bytes_of, redirecting, saying
from tests.patience import PATIENCE
from tidewheel import State
from tidewheel.builtin import download_transfer
from tidewheel.builtin.partial_files import PartialFile
from tidewheel.tasks.context import Checkpoint

Answering = Callable[[BaseHTTPRequestHandler], bool]
PART = 100_000
CONTENT = bytes_of(3 * PART)
OLD, NEW = "Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT"


def wire(*parts: bytes) -> Answering:
    """Bytes as they are, and then the end of the connection."""

    def answer(handler: BaseHTTPRequestHandler) -> bool:
        handler.close_connection = True
        for part in parts:
            handler.wfile.write(part)
        return True

    return answer


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def second(web: Web, answer: Answering) -> Answering:
    """That, when it is asked for the second time; before and after what it has."""
    return lambda handler: len(web.requests) == 2 and answer(handler)


def piece(body: bytes, **headers: str) -> Answering:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return wire(f"HTTP/1.1 206 Partial Content\r\n{lines}\r\n".encode(), body)


async def fetch(web: Web, root: Path, *, max_attempts: int = 3, **given: Any) -> Any:
    payload = {"url": web.url, "dest": "file.bin", **given}
    return await run(fetching_app(root), "download_file", payload, max_attempts=max_attempts)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        # shorter than asked for, as a server may, and says so
        ({"Content_Range": "bytes 200000-249999/300000", "Content_Length": "50000"},
         CONTENT[200000:250000]),
        # shorter than it says
        ({"Content_Range": "bytes 200000-299999/300000", "Transfer_Encoding": "chunked"},
         chunked(CONTENT[200000:250000])),
        # and ended by the end of the connection
        ({"Content_Range": "bytes 200000-299999/300000"}, CONTENT[200000:250000]),
        # longer than it says
        ({"Content_Range": "bytes 200000-299999/300000", "Transfer_Encoding": "chunked"},
         chunked(b"x" * 150_000)),
        # all that is missing, but nobody knows that
        ({"Content_Range": "bytes 200000-249999/*", "Content_Length": "50000"}, CONTENT[200000:250000]),
        # beyond the end
        ({"Content_Range": "bytes 200000-349999/300000", "Content_Length": "150000"}, b"x" * 150_000),
    ],
    ids=["short", "shorter than told", "cut", "longer than told", "of no length", "beyond"],
)  # fmt: skip
async def test_a_piece_is_not_taken_for_the_rest(
    headers: Mapping[str, str], body: bytes, tmp_path: Path
) -> None:
    """A file is whole when all of its bytes are there, not when a server ends an answer in good order."""
    with Web(CONTENT, drop_every=2 * PART).serving() as web:
        web.answer = second(web, piece(body, ETag='"one"', **headers))
        job = await fetch(web, tmp_path)
    assert job.state is State.COMPLETED, job.error
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert len(web.requests) >= 3


async def test_a_piece_with_another_date_is_not_the_rest(tmp_path: Path) -> None:
    """A server that does not know If-Range tells by its Last-Modified that the file is another one."""
    with Web(CONTENT, etag=None, headers={"Last-Modified": OLD}, drop_every=2 * PART).serving() as web:
        lie = piece(
            b"x" * PART,
            Last_Modified=NEW,
            Content_Range="bytes 200000-299999/300000",
            Content_Length="100000",
        )
        web.answer = second(web, lie)
        job = await fetch(web, tmp_path)
    assert web.requests[1]["If-Range"] == OLD
    assert job.state is State.COMPLETED, job.error
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("by", ["size", "sha256"])
async def test_a_body_without_a_length_that_is_cut_is_gone_on_with(by: str, tmp_path: Path) -> None:
    """It ended with its connection, but size or sha256 say that this was not the end."""
    with Web(CONTENT, framing="close", drop_every=2 * PART).serving() as web:
        known: dict[str, Any] = {by: len(CONTENT) if by == "size" else web.sha256}
        job = await fetch(web, tmp_path, **known)
    assert (job.state, job.attempt) == (State.COMPLETED, 1), job.error
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert web.requests[1]["Range"] == "bytes=200000-"


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (HEAD + b"\r\n1\r\nx\r\n0\r\n" + b"x: y\r\n" * 60_000, "bytes of headers"),
        (HEAD + b"\r\n1;" + b"e" * 400_000, "bytes of headers"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000, "bytes of headers"),
        (HEAD + b"a:b\r\n" * 2_000 + b"\r\n0\r\n\r\n", "speaks no HTTP"),
    ],
    ids=["behind the body", "between its pieces", "before the answer", "many"],
)  # fmt: skip
async def test_what_is_not_of_the_body_has_an_end(
    noise: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that come without end are neither kept nor read for as long as a job may take."""
    monkeypatch.setattr(download_transfer, "MAX_IDLE_CONNECTIONS", 1)
    with Web(answer=wire(noise)).serving() as web:
        job = await fetch(web, tmp_path, max_attempts=1)
    assert error_of(job) == (State.FAILED, "connection_failed", True)
    assert words in job.error.message


async def test_a_body_in_a_coding_that_nobody_asked_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that somebody would have to unpack are not the file's."""
    monkeypatch.setattr(download_transfer, "MAX_IDLE_CONNECTIONS", 1)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
    with Web(answer=wire(head, chunked(gzip.compress(b"hello")))).serving() as web:
        job = await fetch(web, tmp_path, max_attempts=1)
    assert error_of(job) == (State.FAILED, "connection_failed", True)
    assert "'gzip, chunked'" in job.error.message
    assert not (tmp_path / "file.bin").exists()


@pytest.mark.parametrize("location", ["http://[::1/", "http://u:sesame/@127.0.0.1/"])
async def test_a_redirect_that_is_no_url_fails_the_job(location: str, tmp_path: Path) -> None:
    """It would be none the next time either; and what it is is not repeated."""
    with Web(answer=redirecting(location)).serving() as web:
        job = await fetch(web, tmp_path)
    assert error_of(job) == (State.FAILED, "invalid_input", False)
    assert "sesame" not in job.error.message


async def test_a_redirect_beyond_ascii_is_followed_as_it_is_meant(tmp_path: Path) -> None:
    """Servers write names as bytes of UTF-8, though a header should have none."""
    lead = wire("HTTP/1.1 302 Found\r\nLocation: /größe\r\nContent-Length: 0\r\n\r\n".encode())
    with Web(b"moved").serving() as web:
        web.answer = lambda handler: len(web.requests) == 1 and lead(handler)
        await fetch(web, tmp_path)
    assert web.requests[1]["path"] == "/gr%C3%B6%C3%9Fe"


async def test_a_server_may_ask_for_patience_until_a_moment(tmp_path: Path) -> None:
    """Retry-After as a date."""
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=120), usegmt=True)
    with Web(answer=saying(503, Retry_After=moment)).serving() as web:
        job = await fetch(web, tmp_path)
    assert (job.state, job.attempt) == (State.PENDING, 1)
    assert 100 < (job.run_at - job.created_at).total_seconds() < 130


async def test_a_slow_server_s_bytes_count_before_a_chunk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved by the second: or who is killed every minute would never get through a large chunk."""
    monkeypatch.setattr(download_transfer, "SAVE_SECONDS", 0.0)
    saved = asyncio.Event()
    save = Checkpoint.__call__

    async def saving(checkpoint: Checkpoint, data: Any) -> None:
        await save(checkpoint, data)
        if data["bytes_downloaded"]:
            saved.set()

    monkeypatch.setattr(Checkpoint, "__call__", saving)
    with Web(bytes_of(300_000), hold_at=[100_000]).serving() as web:
        async with fetching_app(tmp_path) as app:
            await app.enqueue("download_file", {"url": web.url, "dest": "file.bin"})
            worker = asyncio.create_task(app.run_until_idle())
            await asyncio.to_thread(web.hold)
            await asyncio.wait_for(saved.wait(), PATIENCE)
            web.release()
            await worker
    assert (tmp_path / "file.bin").read_bytes() == web.content


async def test_bytes_do_not_count_any_more_before_they_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed on the way to another version, nobody may take its bytes for those of the first."""
    counted, dropped = [0], []
    keep, save = PartialFile.truncate, Checkpoint.__call__

    async def saving(checkpoint: Checkpoint, data: Any) -> None:
        await save(checkpoint, data)
        counted.append(data["bytes_downloaded"])

    def keeping(draft: PartialFile, size: int) -> None:
        dropped.append((draft.size, counted[-1]))
        keep(draft, size)

    monkeypatch.setattr(Checkpoint, "__call__", saving)
    monkeypatch.setattr(PartialFile, "truncate", keeping)
    with Web(CONTENT, drop_every=2 * PART).serving() as web:

        def change(_: BaseHTTPRequestHandler) -> bool:
            if len(web.requests) == 2:
                web.content, web.etag, web.drop_every = bytes_of(3 * PART, seed=2), '"two"', None
            return False

        web.answer = change
        job = await fetch(web, tmp_path)
    assert job.state is State.COMPLETED, job.error
    assert 2 * PART in counted
    assert dropped == [(0, 0), (2 * PART, 0)]
    assert hidden(tmp_path) == []
