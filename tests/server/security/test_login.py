"""Logging in and out: no name is told apart from another, nobody tries for long, and what ends has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server.security.callers import SUPERUSER, PublishedKey
from tests.server.security.client import Got, ask
from tests.server.security.world import Rules, World, world
from tidewheel.server.authentication import SESSION_COOKIE

NAME, PASSWORD = SUPERUSER.split(":")


@pytest.fixture
async def made(published: PublishedKey) -> AsyncIterator[World]:
    async with world(Rules.CLOSED, published) as one:
        yield one


async def _log_in(made: World, name: str, password: str, **more: str) -> Got:
    scheme, address = more.pop("scheme", "http"), more.pop("address", "192.0.2.7")
    return await ask(
        made.api,
        "POST",
        "/api/jobs/session",
        body={"name": name, "password": password},
        headers=more,
        scheme=scheme,
        address=address,
    )


def _cookie(got: Got) -> tuple[str, set[str]]:
    """The value, and what else is said of it."""
    text = got.header("set-cookie")
    assert text is not None
    value, *attributes = text.split("; ")
    return value.removeprefix(f"{SESSION_COOKIE}="), {one.lower() for one in attributes}


async def test_a_name_that_does_not_exist_is_answered_like_one_that_does(made: World) -> None:
    """Same status, same words, same headers, whoever does not know the password."""
    await made.app.access.create_superuser("ann", "a good password")
    answers = [
        await _log_in(made, name, "not the password", address=f"192.0.2.{number}")
        for number, name in enumerate((NAME, "ann", "nobody", "' OR 1=1 --", "\u202e", "x" * 200))
    ]
    assert {(got.status, got.headers, got.body) for got in answers} == {
        (401, answers[0].headers, answers[0].body)
    }


async def test_after_a_few_failures_one_has_to_wait(made: World) -> None:
    """By name from anywhere, and by address for any name; the right password does not help until then."""
    for number in range(21):
        got = await _log_in(made, NAME, "wrong", address=f"192.0.2.{number}")
    assert (got.status, got.code) == (429, "too_many_attempts")
    assert int(got.header("retry-after") or 0) >= 1
    assert (await _log_in(made, NAME, PASSWORD, address="198.51.100.1")).status == 429
    for number in range(20):
        got = await _log_in(made, f"name-{number}", "wrong", address="203.0.113.9")
    assert got.status == 429
    made.clock.advance(3600)
    assert (await _log_in(made, NAME, PASSWORD, address="198.51.100.1")).status == 200


async def test_who_waits_is_told_the_same_whether_the_name_exists(made: World) -> None:
    """A name that is locked and one that is not there differ in nothing."""
    told = []
    for name in (NAME, "nobody"):
        for number in range(25):
            got = await _log_in(
                made, name, "wrong", address=f"192.0.2.{number}" if name == NAME else f"198.51.100.{number}"
            )
        told.append((got.status, got.headers, got.body))
    assert told[0] == told[1]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_sessions_cookie_is_for_this_server_alone(made: World, scheme: str) -> None:
    """No script reads it, no other site makes a browser send it, and it does not leave an encrypted line."""
    value, attributes = _cookie(await _log_in(made, NAME, PASSWORD, scheme=scheme))
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert ("secure" in attributes) == (scheme == "https")
    assert not any(one.startswith("domain") for one in attributes)
    assert PASSWORD not in value
    assert len(value) == 43, "256 random bits"


async def test_nobody_can_give_somebody_a_session(made: World) -> None:
    """Session fixation: a value from before a login is worth nothing after it; each login has its own."""
    planted = "planted-by-somebody-else"
    first, _ = _cookie(await _log_in(made, NAME, PASSWORD, cookie=f"{SESSION_COOKIE}={planted}"))
    second, _ = _cookie(await _log_in(made, NAME, PASSWORD, cookie=f"{SESSION_COOKIE}={first}"))
    assert len({planted, first, second}) == 3
    got = await ask(made.api, "GET", "/api/jobs", headers={"cookie": f"{SESSION_COOKIE}={planted}"})
    assert got.status == 401


async def test_logging_out_ends_the_session(made: World) -> None:
    """The browser forgets the cookie; everywhere, also what was copied from it is worth nothing."""
    got = await _log_in(made, NAME, PASSWORD)
    value, _ = _cookie(got)
    mine = {"cookie": f"{SESSION_COOKIE}={value}", "x-csrf-token": got.json()["csrf_token"]}
    out = await ask(made.api, "DELETE", "/api/jobs/session", headers=mine)
    assert out.status == 204
    cleared, attributes = _cookie(out)
    assert (cleared, "max-age=0" in attributes) == ("", True)
    got = await _log_in(made, NAME, PASSWORD)
    value, _ = _cookie(got)
    mine = {"cookie": f"{SESSION_COOKIE}={value}", "x-csrf-token": got.json()["csrf_token"]}
    out = await ask(made.api, "DELETE", "/api/jobs/session?everywhere=true", headers=mine)
    assert out.status == 204
    assert (await ask(made.api, "GET", "/api/jobs", headers=mine)).status == 401


async def test_a_session_ends_with_its_time_and_with_its_password(made: World) -> None:
    """Neither a clock that goes on nor a new password leaves an old session in place."""
    await made.app.access.create_superuser("ann", "a good password")
    value, _ = _cookie(await _log_in(made, "ann", "a good password"))
    mine = {"cookie": f"{SESSION_COOKIE}={value}"}
    assert (await ask(made.api, "GET", "/api/jobs", headers=mine)).status == 200
    await made.app.access.create_superuser("ann", "another password")
    assert (await ask(made.api, "GET", "/api/jobs", headers=mine)).status == 401
    value, _ = _cookie(await _log_in(made, "ann", "another password"))
    mine = {"cookie": f"{SESSION_COOKIE}={value}"}
    made.clock.advance(made.app.settings.session_seconds)
    assert (await ask(made.api, "GET", "/api/jobs", headers=mine)).status == 401


async def test_failed_and_good_logins_are_in_the_audit_log(made: World) -> None:
    """Who tried, from where; not with what."""
    await _log_in(made, "nobody", "wrong", address="203.0.113.5")
    await _log_in(made, NAME, PASSWORD, address="203.0.113.6")
    lines = (await made.app.access.audit.lines(limit=2)).lines
    assert [(line.action, line.actor, line.address) for line in lines] == [
        ("login", NAME, "203.0.113.6"),
        ("login.failed", "(nobody of that name)", "203.0.113.5"),
    ]
