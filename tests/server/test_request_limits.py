"""What a request may be at most, and what becomes of errors nobody expected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from tests.patience import PATIENCE
from tests.server.conftest import Asking, asking, make_app
from tidewheel import Tidewheel, errors
from tidewheel.server import create_api
from tidewheel.server.problems import PROBLEMS, to_problem

ENQUEUE = "/api/jobs/enqueue"


async def test_bodies_have_a_maximum_whatever_they_say_of_their_length() -> None:
    """By Content-Length before a byte is read, in chunks once they are too many."""
    async with asking(make_app(max_request_bytes=1024)) as ask:
        shop = await ask.with_key(tenant="shop")
        said = await shop.post(ENQUEUE, json={"task": "refuse", "payload": {"reason": "x" * 2000}})

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b" " * 100

        grown = await shop.post(ENQUEUE, content=chunks(), headers={"Content-Type": "application/json"})
        for answer in (said, grown):
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
            assert answer.headers["connection"] == "close"
            assert "1,024 (max_request_bytes)" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"", "application/json", 400),
        (b'{"task": "refuse", "payload": ' + b"[" * 100_000, "application/json", 400),
        (
            b'{"task": "refuse", "payload": {"reason": ' + b"[" * 100 + b"]" * 100 + b"}}",
            "application/json",
            422,
        ),
        (b"{}", "text/plain", 415),
        (b"{}", "application/json; charset=latin-1", 415),
        (b"a=b", "application/x-www-form-urlencoded", 415),
        (b'{"task": "refuse"}', "application/json; charset=UTF-8", 201),
    ],
)
async def test_a_body_is_json_and_says_so(
    shop: httpx2.AsyncClient, content: bytes, kind: str, status: int
) -> None:
    """Anything else is refused with the status for it; nesting cannot exhaust the stack."""
    answer = await shop.post(ENQUEUE, content=content, headers={"Content-Type": kind})
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    "query",
    ["limit=x", "limit=0", "limit=-1", "offset=99999999999", "nothing=1", "limit=1&limit=2",
     "created_after=now", "state=nonsense", "where=%FF", "cursor=", "limit=1" + "&x=1" * 60,
     "created_after=2020-01-01T00:00:00"],
)  # fmt: skip
async def test_parameters_are_checked(shop: httpx2.AsyncClient, query: str) -> None:
    """Unknown, repeated and impossible ones are 422."""
    assert (await shop.get(f"/api/jobs?{query}")).status_code == 422


async def test_large_limits_are_cut_to_a_page(shop: httpx2.AsyncClient) -> None:
    """As everywhere in Tidewheel, and the answer says so."""
    assert (await shop.get("/api/jobs?limit=100000")).json()["limit"] == 200


async def test_addresses_and_headers_have_a_maximum(shop: httpx2.AsyncClient) -> None:
    """Nobody needs more."""
    assert (await shop.get("/api/jobs?text=" + "x" * 9000)).status_code == 414
    assert (await shop.get("/api/jobs", headers={"X-Long": "x" * 40_000})).status_code == 431


async def test_wrong_methods_and_paths_are_told_apart(shop: httpx2.AsyncClient) -> None:
    """405 lists what is possible; HEAD is GET without a body."""
    wrong = await shop.put("/api/jobs/stats")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")
    for path in ("/api/jobs/nothing", "/api", "/nothing", "/api/jobs/stats/"):
        assert (await shop.get(path)).json()["code"] == "not_found"
    head = await shop.head("/api/jobs/stats")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0


async def test_a_path_as_the_table_has_it_names_nothing(shop: httpx2.AsyncClient) -> None:
    """Parameters are filled in, or they are none: the braces of the table are no address."""
    for path in ("/api/jobs/{id:uuid}", "/api/jobs/{id:uuid}/result", "/api/jobs/bulk/{operation:uuid}"):
        answer = await shop.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_every_answer_has_the_headers_of_the_api(shop: httpx2.AsyncClient) -> None:
    """Errors, too: nothing is kept, guessed about or shown in a frame."""
    for path in ("/api/jobs", "/nothing", "/healthz"):
        headers = (await shop.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers


async def test_requests_end_after_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that hangs is a 504, a body that does not come a 408; neither takes others with it."""
    async with asking(make_app(request_seconds=1)) as ask:
        root = await ask.with_key(superuser=True)
        await root.get("/api/jobs/session")  # the key is known from here on
        never = asyncio.Event()

        async def hang(*args: Any, **kwargs: Any) -> Any:
            await never.wait()

        async def drip() -> AsyncIterator[bytes]:
            yield b"{"
            await never.wait()

        with monkeypatch.context() as patched:
            patched.setattr(ask.app.store, "stats", hang)
            slow = asyncio.create_task(root.get("/api/jobs/stats"))
            waiting = asyncio.create_task(
                root.post(ENQUEUE, content=drip(), headers={"Content-Type": "application/json"})
            )
            async with asyncio.timeout(PATIENCE):
                assert (await slow).json()["code"] == "timed_out"
                late = await waiting
        assert (late.json()["code"], late.headers["connection"]) == ("request_timeout", "close")
        assert (await root.get("/api/jobs/stats")).status_code == 200


async def test_an_unexpected_error_tells_the_log_and_not_the_client(
    ask: Asking, root: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """500 with an incident; the traceback is in the log under it."""

    async def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(ask.app.store, "stats", broken)
    answer = await root.get("/api/jobs/stats")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["incident"] in caplog.text
    assert "a secret of the inside" in caplog.text


async def test_a_store_out_of_reach_is_a_503(
    ask: Asking, root: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Retry-After, without the database's own words; readiness says the same, liveness does not."""

    async def away(*args: Any, **kwargs: Any) -> Any:
        raise errors.StoreUnavailable("postgresql://db.internal:5432 refused")

    await root.get("/api/jobs/session")
    for verb in ("stats", "states"):
        monkeypatch.setattr(ask.app.store, verb, away)
    answer = await root.get("/api/jobs/stats")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "internal" not in answer.text
    assert (await root.get("/readyz")).status_code == 503
    assert (await root.get("/healthz")).status_code == 200


def test_every_error_of_ours_that_a_request_can_cause_has_a_problem(caplog: pytest.LogCaptureFixture) -> None:
    """What is left is an error of the server's own."""
    caplog.set_level(logging.CRITICAL)
    inside = {
        "TidewheelError", "JobFailed", "JobCancelled", "ResultTimeout", "LeaseLost", "TransactionTimeout",
        "ConfigurationError", "NotOverHttp", "WorkerStuck", "StoreError", "SchemaTooNew", "UsedAfterFork",
        "NotReserved", "ReserveTimeout",
    }  # fmt: skip
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.TidewheelError) and name not in inside:
            error = kind.__new__(kind)
            Exception.__init__(error, "why")
            assert to_problem(error).kind.code != "internal_error", name
    assert to_problem(errors.StoreError("x")).kind is PROBLEMS["internal_error"]


async def test_it_can_be_mounted_in_another_program() -> None:
    """Below a prefix, and it opens the app where the program has not; addresses in answers fit."""
    app = make_app()
    host = Starlette()
    api = create_api(app)
    host.mount("/tidewheel", api)
    transport = httpx2.ASGITransport(app=host)
    async with httpx2.AsyncClient(transport=transport, base_url="http://host.test") as client:
        assert (await client.get("/tidewheel/healthz")).status_code == 200
        key = (await app.access.create_key(superuser=True)).key
        made = await client.post(
            f"/tidewheel{ENQUEUE}", json={"task": "refuse"}, headers={"Authorization": f"Bearer {key}"}
        )
        assert made.headers["location"].startswith("/tidewheel/api/jobs/")
        shown = await client.get(made.headers["location"], headers={"Authorization": f"Bearer {key}"})
        assert shown.json()["task"] == "refuse"
        assert (await client.get("/api/jobs")).status_code == 404
    await api.close()


async def test_a_rule_that_cannot_be_read_is_told_at_the_start() -> None:
    """Not to the first caller."""
    api = create_api(Tidewheel("memory://", manage_rule="topic ="))
    with pytest.raises(errors.ConfigurationError, match="manage_rule"):
        await api.open()
