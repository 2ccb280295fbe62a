"""download_file: the download section of the sources, and everything a server can do wrong."""

from __future__ import annotations

import hashlib
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from time import time
from typing import Any

import pytest

from tests.builtin.killed_downloads import MB, fetch
from tests.builtin.network_task_apps import error_of, fetching_app, hidden, run
from tests.builtin.web_server import Web, bytes_of, redirecting, saying
from tests.servers.shared import empty_url
from tidewheel import InvalidPayload, State
from tidewheel.builtin.download_transfer import Transfer

MIB = 2**20


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_a_download_is_a_file_with_these_bytes(store: str, tmp_path: Path) -> None:
    """The result tells path, bytes and duration_secs; the job tells its progress; no draft stays."""
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'jobs.db'}"}.get(store) or empty_url()
    root = tmp_path / "root"
    root.mkdir()
    with Web(bytes_of(3 * MIB)).serving() as web:
        app = fetching_app(root, url)
        job = await run(app, "download_file", {"url": web.url, "dest": "a/b.bin", "sha256": web.sha256})
    assert job.state is State.COMPLETED, job.error
    assert (root / "a" / "b.bin").read_bytes() == web.content
    assert job.progress is not None
    assert job.progress.percent == 100
    assert hidden(root) == []


async def test_the_result_has_path_bytes_and_duration_secs(tmp_path: Path) -> None:
    """As the source names them, also for who reads the result as JSON."""
    app = fetching_app(tmp_path)
    with Web(b"hello").serving() as web:
        async with app:
            job = await app.enqueue("download_file", {"url": web.url, "dest": "hello.txt"})
            await app.run_until_idle()
            result = await job.result()
    assert (result.path, result.bytes) == (str(tmp_path / "hello.txt"), 5)
    assert 0 < result.duration_secs < 60


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_killed_workers_and_dropped_connections_cost_few_bytes(store: str, tmp_path: Path) -> None:
    """A worker that is killed twice and a server that hangs up all the time: the right bytes, once."""
    found = await fetch(
        tmp_path,
        size=12 * MB,
        drop_every=1 * MB,
        kills=2,
        url=empty_url() if store == "postgres" else None,
    )
    assert found.right
    assert found.overhead < 1.2
    assert found.attempt <= 3  # a run that ended with its worker counts only if it ran alone
    assert found.leftovers == []


@pytest.mark.long
async def test_two_hundred_megabytes_through_drops_and_kills(tmp_path: Path) -> None:
    """200 MB, dropped every 10 MB, worker killed twice: under 1.2 times the size goes over the wire."""
    found = await fetch(tmp_path, size=200 * MB, drop_every=10 * MB, kills=2)
    assert found.right
    assert found.overhead < 1.2
    assert found.leftovers == []


async def test_the_next_attempt_asks_for_the_rest_from_the_checkpoint(tmp_path: Path) -> None:
    """bytes_downloaded is 5,000,000, so ``Range: bytes=5000000-`` is sent, and 206 goes on from there."""
    app = fetching_app(tmp_path)
    with Web(bytes_of(8 * MB), drop_every=5 * MB).serving() as web:

        def refuse_once(handler: BaseHTTPRequestHandler) -> bool:
            if len(web.requests) != 2:
                return False
            return saying(503)(handler)

        web.answer = refuse_once
        async with app:
            job = await app.enqueue("download_file", {"url": web.url, "dest": "file.bin"})
            await app.run_until_idle()
            job = await app.get(job.id)
    assert job.state is State.COMPLETED, job.error
    assert job.attempt == 2
    assert (tmp_path / "file.bin").read_bytes() == web.content
    assert "Range" not in web.requests[0]
    assert [request["Range"] for request in web.requests[1:]] == ["bytes=5000000-", "bytes=5000000-"]
    assert web.requests[2]["If-Range"] == '"one"'
    assert web.sent == 8 * MB
    assert job.checkpoint["bytes_downloaded"] == 8 * MB


@pytest.mark.parametrize(("given", "least"), [({}, 2**20), ({"chunk_size": 2**16}, 2**16)])
async def test_a_piece_that_is_written_is_a_megabyte_unless_told(
    given: dict[str, int], least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """chunk_size: so much is gathered before it goes to the disk, and little more."""
    pieces: list[int] = []
    write = Transfer._write

    def counting(self: Transfer, data: bytes) -> None:
        pieces.append(len(data))
        write(self, data)

    monkeypatch.setattr(Transfer, "_write", counting)
    with Web(bytes_of(3 * MB)).serving() as web:
        job = await run(
            fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin", **given}
        )
    assert job.state is State.COMPLETED, job.error
    assert sum(pieces) == 3 * MB
    assert min(pieces[:-1]) >= least
    assert max(pieces) < 2 * least + 2**18


async def test_a_file_that_changed_meanwhile_is_fetched_from_its_beginning(tmp_path: Path) -> None:
    """If-Range: never the beginning of one file with the end of another."""
    with Web(bytes_of(3 * MB), drop_every=2 * MB).serving() as web:

        def change(handler: BaseHTTPRequestHandler) -> bool:
            if len(web.requests) == 2:
                web.content, web.etag, web.drop_every = bytes_of(3 * MB, seed=2), '"two"', None
            return False

        web.answer = change
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert job.state is State.COMPLETED, job.error
    assert web.requests[1]["If-Range"] == '"one"'
    assert (tmp_path / "file.bin").read_bytes() == bytes_of(3 * MB, seed=2)


@pytest.mark.parametrize(
    "rest",
    [
        {"Content-Range": "bytes 0-9/3000000", "ETag": '"one"'},  # another piece than asked for
        {"Content-Range": "bytes 2000000-2999999/4000000", "ETag": '"one"'},  # of a longer file
        {"Content-Range": "bytes 2000000-2999999/3000000", "ETag": '"two"'},  # of another version
        {"Content-Range": "nonsense"},
    ],
)
async def test_a_piece_that_is_not_the_rest_is_refused(rest: dict[str, str], tmp_path: Path) -> None:
    """A server that answers 206 with something else does not get it into the file."""
    with Web(bytes_of(3 * MB), drop_every=2 * MB).serving() as web:

        def lie(handler: BaseHTTPRequestHandler) -> bool:
            if len(web.requests) == 2:
                handler.send_response(206)
                for name, value in rest.items():
                    handler.send_header(name, value)
                handler.send_header("Content-Length", "1000000")
                handler.end_headers()
                handler.wfile.write(b"x" * MB)
                web.drop_every = None
                return True
            return False

        web.answer = lie
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert job.state is State.COMPLETED, job.error
    assert (tmp_path / "file.bin").read_bytes() == web.content


async def test_a_server_without_ranges_is_asked_for_all_of_it(tmp_path: Path) -> None:
    """200 instead of 206 means: this is the beginning."""
    with Web(bytes_of(2 * MB), ranges=False, drop_every=1 * MB).serving() as web:

        def stay(handler: BaseHTTPRequestHandler) -> bool:
            if len(web.requests) == 2:
                web.drop_every = None
            return False

        web.answer = stay
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert job.state is State.COMPLETED, job.error
    assert (tmp_path / "file.bin").read_bytes() == web.content
    assert web.sent == 3 * MB


@pytest.mark.parametrize(("tag", "checksum", "goes_on"), [
    (None, False, False),
    ('W/"weak"', False, False),
    (None, True, True),
])  # fmt: skip
async def test_only_what_can_be_recognised_is_gone_on_with(
    tag: str | None, checksum: bool, goes_on: bool, tmp_path: Path
) -> None:
    """Without a strong validator or a checksum nobody could tell that the file became another one."""
    with Web(bytes_of(2 * MB), etag=tag, drop_every=1_500_000).serving() as web:

        def stay(handler: BaseHTTPRequestHandler) -> bool:
            if len(web.requests) == 2:
                web.drop_every = None
            return False

        web.answer = stay
        payload = {"url": web.url, "dest": "file.bin", "sha256": web.sha256 if checksum else None}
        job = await run(fetching_app(tmp_path), "download_file", payload)
    assert job.state is State.COMPLETED, job.error
    assert (tmp_path / "file.bin").read_bytes() == web.content
    assert ("Range" in web.requests[1]) is goes_on


@pytest.mark.parametrize(("age", "goes_on"), [(-10, False), (10, True)])
async def test_a_date_is_a_validator_once_it_is_a_second_old(age: int, goes_on: bool, tmp_path: Path) -> None:
    """A file may change twice within a second, and have the same date."""
    modified = formatdate(time() - age, usegmt=True)
    with Web(
        bytes_of(2 * MB), etag=None, headers={"Last-Modified": modified}, drop_every=1_500_000
    ).serving() as web:

        def stay(handler: BaseHTTPRequestHandler) -> bool:
            web.drop_every = None if len(web.requests) == 2 else web.drop_every
            return False

        web.answer = stay
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert job.state is State.COMPLETED, job.error
    assert web.requests[1].get("If-Range") == (modified if goes_on else None)


async def test_pieces_that_do_not_fit_together_are_fetched_anew(tmp_path: Path) -> None:
    """The checksum finds it out where the server gave no validator, and the download starts over."""
    right = bytes_of(2 * MB)
    with Web(bytes_of(2 * MB, seed=2), etag=None, drop_every=1 * MB).serving() as web:

        def change(handler: BaseHTTPRequestHandler) -> bool:
            if len(web.requests) == 2:
                web.content, web.drop_every = right, None
            return False

        web.answer = change
        payload = {"url": web.url, "dest": "file.bin", "sha256": hashlib.sha256(right).hexdigest()}
        job = await run(fetching_app(tmp_path), "download_file", payload)
    assert job.state is State.COMPLETED, job.error
    assert (tmp_path / "file.bin").read_bytes() == right
    assert len(web.requests) == 3


async def test_nothing_after_the_last_byte_is_the_end(tmp_path: Path) -> None:
    """416 for the byte after what is there: a body without its end mark was whole all the same."""
    with Web(bytes_of(1 * MB), framing="chunked", ends=False).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert job.state is State.COMPLETED, job.error
    assert (tmp_path / "file.bin").read_bytes() == web.content
    assert web.requests[1]["Range"] == "bytes=1000000-"


# -- sizes and checksums ----------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_more_than_the_limit_is_refused(framing: str, tmp_path: Path) -> None:
    """An endless body ends at max_download_bytes, for good, and leaves nothing; an announced one at once."""
    with Web(bytes_of(4 * MB), framing=framing).serving() as web:
        app = fetching_app(tmp_path, max_download_bytes=1 * MB)
        job = await run(app, "download_file", {"url": web.url, "dest": "file.bin"})
    assert error_of(job) == (State.FAILED, "too_large", False)
    assert job.error is not None
    assert "1,000,000 (max_download_bytes)" in job.error.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "code"), [({"size": 5}, "size_mismatch"), ({"sha256": "0" * 64}, "checksum_mismatch")]
)
async def test_other_bytes_than_wanted_do_not_replace_the_file(
    wrong: dict[str, Any], code: str, tmp_path: Path
) -> None:
    """A wrong size or checksum fails the job at once and leaves the old file alone."""
    (tmp_path / "file.bin").write_bytes(b"old")
    with Web(bytes_of(1000)).serving() as web:
        payload = {"url": web.url, "dest": "file.bin", **wrong}
        job = await run(fetching_app(tmp_path), "download_file", payload)
    assert error_of(job) == (State.FAILED, code, False)
    assert job.attempt == 1
    assert (tmp_path / "file.bin").read_bytes() == b"old"
    assert hidden(tmp_path) == []


async def test_a_body_shorter_than_announced_never_becomes_a_file(tmp_path: Path) -> None:
    """A server that promises more than it has is tried again, and believed never."""
    with Web(bytes_of(1000), announce=2000).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert error_of(job) == (State.FAILED, "connection_failed", True)
    assert job.attempt == 3
    assert not (tmp_path / "file.bin").exists()


@pytest.mark.parametrize("size", [None, 1000])
async def test_a_body_without_a_length_needs_a_size_or_checksum(size: int | None, tmp_path: Path) -> None:
    """One that ends with its connection could be cut anywhere and nobody would notice."""
    with Web(bytes_of(1000), framing="close").serving() as web:
        payload = {"url": web.url, "dest": "file.bin", "size": size}
        job = await run(fetching_app(tmp_path), "download_file", payload)
    if size is None:
        assert error_of(job) == (State.FAILED, "unknown_length", False)
    else:
        assert job.state is State.COMPLETED, job.error
    assert (tmp_path / "file.bin").exists() is (size is not None)


async def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    """No bytes are all bytes of a file that has none."""
    with Web(b"").serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "empty"})
    assert job.state is State.COMPLETED, job.error
    assert (tmp_path / "empty").read_bytes() == b""


# -- what servers say -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (403, 1), (410, 1), (500, 3), (503, 3), (408, 3)])
async def test_a_refusal_is_tried_again_where_that_may_help(status: int, tries: int, tmp_path: Path) -> None:
    """What a server says about the request stays true; what it says about itself passes."""
    with Web(answer=saying(status)).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert error_of(job) == (State.FAILED, "http_error", tries > 1)
    assert job.error is not None
    assert job.error.details == {"status": status}
    assert len(web.requests) == tries


async def test_a_server_that_asks_for_patience_gets_it(tmp_path: Path) -> None:
    """Retry-After says when the next attempt is due."""
    with Web(answer=saying(429, Retry_After="120")).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert job.state is State.PENDING
    assert job.attempt == 1
    assert job.error is not None
    assert 100 < (job.run_at - job.created_at).total_seconds() < 130


async def test_a_silent_server_is_given_up(tmp_path: Path) -> None:
    """A connection that brings nothing for download_idle_seconds is over; the next attempt may do better."""
    with Web(bytes_of(2 * MB), hold_at=[1 * MB]).serving() as web:
        app = fetching_app(tmp_path, download_idle_seconds=0.3)
        job = await run(app, "download_file", {"url": web.url, "dest": "file.bin"})
        assert web.held.is_set()
    assert job.state is State.COMPLETED, job.error
    assert (tmp_path / "file.bin").read_bytes() == web.content
    assert "Range" in web.requests[1]


@pytest.mark.parametrize("noise", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000])
async def test_what_is_no_http_is_an_error_with_an_end(noise: bytes, tmp_path: Path) -> None:
    """Another protocol, or headers without end, are refused after a bounded number of bytes."""

    def talk(handler: BaseHTTPRequestHandler) -> bool:
        handler.wfile.write(noise)
        handler.close_connection = True
        return True

    with Web(answer=talk).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert error_of(job) == (State.FAILED, "connection_failed", True)


# -- where it may go --------------------------------------------------------------------------------------


async def test_redirects_are_followed_a_few_times(tmp_path: Path) -> None:
    """A file that moved is found, also by a relative address."""

    def lead(handler: BaseHTTPRequestHandler) -> bool:
        steps = {"/file.bin": "/b", "/b": "c?d=1", "/c?d=1": f"http://127.0.0.1:{web.port}/d"}
        return handler.path in steps and redirecting(steps[handler.path], 307)(handler)

    with Web(b"moved", answer=lead).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert job.state is State.COMPLETED, job.error
    assert [request["path"] for request in web.requests] == ["/file.bin", "/b", "/c?d=1", "/d"]


async def test_redirects_without_end_are_not_followed(tmp_path: Path) -> None:
    """Five are enough for anybody."""
    with Web(answer=redirecting("/file.bin")).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert error_of(job) == (State.FAILED, "too_many_redirects", False)
    assert len(web.requests) == 6


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.2:{port}/secret",
        "http://[::ffff:127.0.0.2]:{port}/secret",
        "http://0x7f000002:{port}/",
    ],
)
async def test_a_redirect_to_a_forbidden_address_is_not_followed(location: str, tmp_path: Path) -> None:
    """The address is checked on every hop, and nothing is connected to it."""
    with Web(b"secret", host="127.0.0.2").serving() as inside:
        with Web(answer=redirecting(location.format(port=inside.port))).serving() as web:
            job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
        assert inside.requests == []
    assert error_of(job) == (State.FAILED, "forbidden_address", False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "gopher://127.0.0.1/", "http://u:p@127.0.0.1/"])
async def test_a_redirect_to_another_protocol_is_not_followed(location: str, tmp_path: Path) -> None:
    """Only http and https, and nobody's passwords."""
    with Web(answer=redirecting(location)).serving() as web:
        job = await run(fetching_app(tmp_path), "download_file", {"url": web.url, "dest": "file.bin"})
    assert error_of(job) == (State.FAILED, "invalid_input", False)


async def test_a_host_that_is_not_allowed_is_not_asked(tmp_path: Path) -> None:
    """allowed_hosts is a list of names; an address is on it only if it stands there."""
    with Web(b"secret").serving() as web:
        app = fetching_app(tmp_path, allowed_hosts=["files.example.org"])
        job = await run(app, "download_file", {"url": web.url, "dest": "file.bin"})
    assert error_of(job) == (State.FAILED, "forbidden_address", False)
    assert web.requests == []


async def test_by_default_nothing_on_this_machine_or_network_is_reached(tmp_path: Path) -> None:
    """Without allowed_networks only public addresses are connected to."""
    with Web(b"secret").serving() as web:
        app = fetching_app(tmp_path, allowed_networks=[])
        job = await run(app, "download_file", {"url": web.url, "dest": "file.bin"})
    assert error_of(job) == (State.FAILED, "forbidden_address", False)
    assert web.requests == []


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "gopher://127.0.0.1/", "http://user:password@example.org/", "http:///x",
     "example.org/x", "http://example.org/a b", "http://example.org:99999/", "http://example.org/\r\nX: y"],
)  # fmt: skip
async def test_a_bad_url_is_refused_at_enqueue(url: str, tmp_path: Path) -> None:
    """Nothing is written."""
    async with fetching_app(tmp_path) as app:
        with pytest.raises(InvalidPayload, match="url"):
            await app.enqueue("download_file", {"url": url, "dest": "file.bin"})
        assert (await app.stats()).pending == 0


@pytest.mark.parametrize(
    "wrong",
    [{"dest": "../x"}, {"dest": ""}, {"chunk_size": 10}, {"size": -1}, {"sha256": "abc"}, {"to": "x"}],
)
async def test_a_bad_payload_is_refused_at_enqueue(wrong: dict[str, Any], tmp_path: Path) -> None:
    """Paths, sizes and checksums that cannot be meant never become a job."""
    async with fetching_app(tmp_path) as app:
        with pytest.raises(InvalidPayload):
            await app.enqueue("download_file", {"url": "http://example.org/", "dest": "file.bin", **wrong})
        assert (await app.stats()).pending == 0


async def test_a_link_on_the_way_is_not_written_through(tmp_path: Path) -> None:
    """A directory that leads out of the root is refused before anybody is asked for anything."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "way").symlink_to(outside)
    with Web(b"data").serving() as web:
        job = await run(fetching_app(root), "download_file", {"url": web.url, "dest": "way/file.bin"})
    assert error_of(job) == (State.FAILED, "path_is_link", False)
    assert list(outside.iterdir()) == []
    assert web.requests == []
