"""What can go wrong between a program and its server, and what is never said about it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.stores.http.http_server import Served
from tests.stores.http.shop import Shop, client_side, server_side
from tidewheel import (
    ConfigurationError,
    LimitExceeded,
    NotOpen,
    NotOverHttp,
    StoreError,
    StoreUnavailable,
    Tidewheel,
)
from tidewheel.core.model import FOREVER
from tidewheel.errors import UsedAfterFork
from tidewheel.server import create_api
from tidewheel.server import problems as served_problems
from tidewheel.settings import load_settings
from tidewheel.stores import create_store
from tidewheel.stores.http import api_client as client_module
from tidewheel.stores.http.errors import ProblemDocument, problem_to_error

TOKEN = "tw_0123456789abcdef_seldomseen"  # noqa: S105 - that of nobody


@pytest_asyncio.fixture(loop_scope="module")
async def server(served: Served) -> AsyncIterator[Shop]:
    async with server_side(served) as shop:
        yield shop


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served, server: Shop) -> AsyncIterator[Shop]:
    async with client_side(served, server) as shop:
        yield shop


@pytest.fixture(autouse=True)
def repeats_come_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RETRY_DELAYS", (0.001, 0.002, 0.003))


@asynccontextmanager
async def something_else(answer: bytes) -> AsyncIterator[str]:
    """A server that is not Tidewheel, and says this to everybody."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def page(status: str, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "content-type: text/html", "content-length: 2", *headers, "", "hi"]
    return "\r\n".join(lines).encode()


def json_page(body: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )


def empty_page() -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 0\r\n\r\n"


# -- addresses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://ada:hunter2@host", "token= or TIDEWHEEL_TOKEN"),
        ("https://hunter2@host", "token= or TIDEWHEEL_TOKEN"),
        ("http:hunter2@host", "names no host"),
        ("http://", "names no host"),
        ("http://host:99999", "no URL"),
        ("http://host/?token=hunter2", "more than an address"),
        ("http://host/#hunter2", "more than an address"),
    ],
)
def test_an_address_that_cannot_work_is_refused(url: str, words: str) -> None:
    """When the app is made, and without repeating what may be a password."""
    with pytest.raises(ConfigurationError) as told:
        Tidewheel(url)
    assert words in str(told.value)
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize("token", ["two words", "line\nend", "schlüssel"])
def test_a_token_that_cannot_be_one_is_refused_unseen(token: str) -> None:
    """A header made of it would be another header."""
    with pytest.raises(ConfigurationError, match="characters that no API key has") as told:
        Tidewheel("http://host", token=token)
    assert token not in str(told.value)


def test_url_and_token_come_from_the_environment() -> None:
    """No line of code has to know them."""
    settings = load_settings({}, environment={"TIDEWHEEL_URL": "https://q", "TIDEWHEEL_TOKEN": TOKEN})
    assert (settings.url, settings.token) == ("https://q", TOKEN)
    assert TOKEN not in repr(settings)


def test_without_its_library_the_command_to_install_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra: most have a database."""
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'tidewheel\[http\]'"):
        create_store("http://host")


def test_a_store_is_shown_without_its_token() -> None:
    """In a traceback or a debugger."""
    app, store = Tidewheel("http://host", token=TOKEN), create_store("http://host", token=TOKEN)
    for shown in (repr(app), repr(store), repr(store.sibling()), str(vars(store))):
        assert TOKEN not in shown


def test_no_server_is_built_upon_a_server() -> None:
    """It would have no keys to let anybody in by, and none of the verbs of those who pull by hand."""
    app = Tidewheel("http://host")
    with pytest.raises(NotOverHttp, match="is a server already"):
        create_api(app)
    with pytest.raises(NotOverHttp, match="needs the database, too"):
        app.queue.on_wire()


async def test_an_api_is_found_where_it_is_mounted(served: Served, server: Shop) -> None:
    """With a path in front, with a slash at its end, or with the path that every route has."""
    token = (await server.app.access.create_key(superuser=True)).key
    for tail in ("/", "/api/jobs", "/api/jobs/"):
        async with Tidewheel(served.url + tail, token=token) as app:
            assert (await app.count()).total == 0
    app = Tidewheel(served.url + "/elsewhere", token=token)
    with pytest.raises(ConfigurationError, match="older Tidewheel"):
        await app.open()


# -- what answers there -----------------------------------------------------------------------------------


async def test_a_server_that_is_not_there_is_told() -> None:
    """As an outage, which may end."""
    async with something_else(b"") as url:
        pass
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await Tidewheel(url).open()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (page("200 OK"), ConfigurationError),
        (page("404 Not Found"), ConfigurationError),
        (page("301 Moved", "location: https://elsewhere/"), ConfigurationError),
        (page("502 Bad Gateway"), StoreUnavailable),
        (b"SSH-2.0-OpenSSH\r\n", StoreUnavailable),
        (b"", StoreUnavailable),
    ],
)
async def test_something_else_is_told_from_a_tidewheel(answer: bytes, kind: type[Exception]) -> None:
    """Before anything is enqueued there, and the token goes no further."""
    async with something_else(answer) as url:
        with pytest.raises(kind) as told:
            await Tidewheel(url, token=TOKEN).open()
        assert type(told.value) is kind


async def test_a_server_that_has_moved_tells_where_to() -> None:
    """Most often it is the same one with https; the token is not carried there by itself."""
    async with something_else(page("308 Moved", "location: https://u:hunter2@elsewhere/")) as url:
        with pytest.raises(ConfigurationError, match=r"on to 'https://u:\*\*\*@elsewhere/'"):
            await Tidewheel(url, token=TOKEN).open()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "gopher://u:hunter2@host"),
        ("HTTPS_PROXY", "http://u:hunter2@host:port"),
        ("SSL_CERT_FILE", "/nowhere/hunter2.pem"),
    ],
)
async def test_what_the_environment_names_in_vain_is_told(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As something to mend, and without the password that the address of a proxy may have."""
    client_module._certificates.cache_clear()
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name) as told:
        await Tidewheel("http://host").open()
    assert "hunter2" not in "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize("status", ["404 Not Found", "200 OK"])
async def test_a_page_of_a_proxy_is_an_outage_once_a_tidewheel_has_answered(
    status: str, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies say 404, or have a page for it, while what is behind them is replaced; that must not end a
    worker.
    """
    store = client.app.store
    async with something_else(page(status)) as url:
        monkeypatch.setattr(store._client, "_location", create_store(url)._location)  # type: ignore[attr-defined]
        with pytest.raises(StoreUnavailable, match="perhaps a proxy"):
            await client.app.count()


@pytest.mark.parametrize(
    "page",
    [json_page(b"{}"), json_page(b'{"message": "welcome"}'), empty_page()],
    ids=["nothing", "something", "empty"],
)
async def test_a_good_status_alone_is_no_word_that_something_was_done(
    page: bytes, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whatever answers there with 200: nothing was deleted, paused, or heard."""
    store, job = client.app.store, await client.greet.enqueue(name="Ada")
    async with something_else(page) as url:
        monkeypatch.setattr(store._client, "_location", create_store(url)._location)  # type: ignore[attr-defined]
        for told in (
            store.delete([job.id]),
            store.cancel([job.id]),
            store.requeue([job.id]),
            store.pause("greet", None),
            store.pause("greet", FOREVER),
            store.set_limits("greet", None),
            store.deregister_worker("w", 0),
        ):
            with pytest.raises(StoreError):
                await told


async def test_what_a_proxy_does_not_let_through_is_told_as_that(served: Served, client: Shop) -> None:
    """It is not the server that is away: the next request is answered."""
    served.switch.filtered = b"DROP TABLE"
    with pytest.raises(StoreUnavailable, match=r"answered 403 .* does not let this request through"):
        await client.greet.enqueue(name="Robert'); DROP TABLE students;--")
    assert (await client.greet.enqueue(name="Robert")).id


# -- answers that get lost --------------------------------------------------------------------------------


async def test_an_enqueue_whose_answer_gets_lost_is_done_once(served: Served, client: Shop) -> None:
    """It is sent again under the same id, and the server knows it."""
    served.switch.cut_after += ["/enqueue", "/enqueue-many"]
    job = await client.greet.enqueue(name="Ada")
    jobs = await client.greet.enqueue_many([{"name": "a"}, {"name": "b"}])
    assert (served.asked("/enqueue"), served.asked("/enqueue-many")) == (2, 2)
    assert {found.id for found in await client.app.jobs()} == {job.id, *(one.id for one in jobs)}


async def test_a_request_that_is_cut_off_is_sent_again(served: Served, client: Shop) -> None:
    """Also when nothing of it was done."""
    served.switch.cut_before += ["/enqueue", "/enqueue", "/stats"]
    await client.greet.enqueue(name="Ada")
    assert (await client.app.stats()).pending == 1


async def test_managing_is_done_once(served: Served, client: Shop) -> None:
    """A cancel that was done is not told as a job in the wrong state."""
    job = await client.greet.enqueue(name="Ada")
    served.switch.cut_after += [f"/{job.id}/cancel"]
    assert await job.cancel() is True
    served.switch.cut_after += [f"/{job.id}"]
    await client.app.delete(job.id)


async def test_an_outage_is_told_after_a_few_tries(served: Served, client: Shop) -> None:
    """And the next call finds the server again."""
    served.switch.away = True
    before = len(served.requests)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await client.greet.enqueue(name="Ada")
    assert len(served.requests) - before == 1 + len(client_module.RETRY_DELAYS)
    served.switch.away = False
    await client.greet.enqueue(name="Ada")


async def test_a_single_item_that_is_too_large_does_not_look_like_an_outage(client: Shop) -> None:
    """A server hangs up on it, and a worker that waited for its return would wait for ever."""
    with pytest.raises((LimitExceeded, StoreError)) as told:
        await client.app.store._client.send_idempotent("POST", "/enqueue", b" " * 6_000_000)  # type: ignore[attr-defined]
    assert not isinstance(told.value, StoreUnavailable)


async def test_a_large_item_for_a_server_that_is_away_is_told_as_an_outage(
    client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is not what is wrong, and the server may be back in a moment."""
    async with something_else(b"") as url:
        pass
    http = client.app.store._client  # type: ignore[attr-defined]
    monkeypatch.setattr(http, "_location", create_store(url)._location)  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await http.send_idempotent("POST", "/enqueue", b" " * 2_000_000)


async def test_managing_many_ends_with_the_first_error(
    served: Served, client: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing goes on in the background, and nothing is sent any more."""
    jobs = await client.greet.enqueue_many([{"name": "x"}] * 30)
    monkeypatch.setattr(client_module, "RETRY_DELAYS", ())
    served.requests.clear()
    served.switch.cut_before += [f"/{jobs[3].id}"]
    with pytest.raises(StoreUnavailable):
        await client.app.store.delete([job.id for job in jobs])
    asked = len(served.requests)
    assert asked < 30
    assert (await client.app.count()).total >= 30 - asked
    assert len(served.requests) == asked + 1


async def test_a_filter_that_fits_into_no_address_is_refused(client: Shop) -> None:
    """By the server's own limit, before or behind it."""
    with pytest.raises(LimitExceeded):
        await client.app.jobs(text="ä" * 1000, key="ö" * 255, correlation_id="ü" * 255)


# -- secrets ----------------------------------------------------------------------------------------------


async def told_by(call: Coroutine[Any, Any, object]) -> str:
    """What a failing call leaves in a traceback, with all variables on its way."""
    try:
        await call
    except StoreUnavailable as error:
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        return "".join(told.format())
    raise AssertionError("the call did not fail")


async def test_the_token_is_in_no_log_and_no_error(
    served: Served, server: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """At any level, of any library underneath, in any traceback."""
    key = (await server.app.access.create_key(superuser=True)).key
    with caplog.at_level(logging.DEBUG):
        shop = Shop(served.url, token=key)
        async with shop.app:
            await shop.greet.enqueue(name="Ada")
            await shop.app.run_until_idle(handle_signals=False)
            served.switch.away = True
            said = [await told_by(call) for call in (shop.greet.enqueue(name="x"), shop.app.count())]
            served.switch.away = False
    logged = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert key not in logged
    assert key[-20:] not in logged  # nor the secret without what goes before it
    for text in said:
        assert key not in text


async def test_our_requests_are_no_lines_in_the_programs_log(
    served: Served, client: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """One that the program makes with the same library is: it may want to read of those."""
    with caplog.at_level(logging.INFO), caplog.at_level(logging.INFO, logger="httpx2"):
        await client.app.count()
        assert "HTTP Request" not in caplog.text
        async with httpx2.AsyncClient() as own:
            await own.get(f"{served.url}/api/jobs/time")
        assert caplog.text.count("HTTP Request") == 1


# -- life -------------------------------------------------------------------------------------------------


async def test_a_store_that_is_not_open_says_so() -> None:
    with pytest.raises(NotOpen, match="http://host"):
        await create_store("http://host").now()


async def test_a_forked_child_is_told(client: Shop) -> None:
    """Two processes on one connection would read each other's answers."""
    pid = os.getpid()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: pid + 1)
        with pytest.raises(UsedAfterFork, match="before a fork"):
            await client.app.store.now()


@pytest.mark.parametrize("code", sorted(served_problems.PROBLEMS))
def test_every_problem_has_its_exception(code: str) -> None:
    """Whatever the server may say is one of ours, and 5xx is worth another try."""
    kind = served_problems.PROBLEMS[code]
    error = problem_to_error(ProblemDocument(code=code, detail="why it is", status=kind.status))
    assert code == "too_many_attempts" or "why it is" in str(error)
    transient = kind.status in {408, 503, 504} and code != "backpressure"
    assert isinstance(error, StoreUnavailable) == transient
    for base, problem in served_problems._BY_ERROR.items():
        if problem is kind and code != "not_open":
            assert isinstance(error, base)
