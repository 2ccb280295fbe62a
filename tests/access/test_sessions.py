"""Superusers who log in, and how long that lasts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from argon2 import PasswordHasher

from tidewheel import (
    ConfigurationError,
    InvalidInput,
    NotAuthenticated,
    NotPermitted,
    SecurityContext,
    Tidewheel,
    TooManyAttempts,
    WrongState,
    acting_as,
)
from tidewheel.access import login_throttle, passwords
from tidewheel.access.access_control import Access
from tidewheel.access.caller import CallerKind
from tidewheel.access.sessions import Session
from tidewheel.server.api import create_api
from tidewheel.testing.clock import FrozenClock

PASSWORD = "correct horse"  # noqa: S105 - of a user of these tests


@pytest.fixture
async def access(app: Tidewheel) -> Access:
    await app.access.create_superuser("ada", PASSWORD)
    return app.access


async def logged_in(access: Access, value: str) -> bool:
    try:
        caller = await access.authenticate(cookie=value)
    except NotAuthenticated:
        return False
    return caller.superuser


def elsewhere(app: Tidewheel) -> Access:
    """As another process has it: the same store, nothing remembered."""
    return Access(app)


async def test_who_logs_in_is_a_superuser_until_the_session_ends(
    app: Tidewheel, access: Access, clock: FrozenClock
) -> None:
    """In every process of the store, for session_seconds and not longer."""
    session = await access.log_in("ada", PASSWORD, address="192.0.2.1")
    for one in (access, elsewhere(app)):
        caller = await one.authenticate(cookie=session.value)
        assert (caller.kind, caller.name, caller.superuser) == (CallerKind.SESSION, "ada", True)
    clock.advance(app.settings.session_seconds - 0.000001)
    assert await logged_in(access, session.value)
    clock.advance(0.000001)
    assert not await logged_in(access, session.value)


async def test_a_wrong_password_and_an_unknown_name_get_the_same_answer_and_the_same_work(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message, and one hash is verified either way."""
    verified: list[str] = []
    hasher = passwords._hasher()

    class Watched:
        def verify(self, hashed: str, password: str) -> bool:
            verified.append(hashed)
            return hasher.verify(hashed, password)

        hash = staticmethod(hasher.hash)

    monkeypatch.setattr(passwords, "_hasher", Watched)
    said = []
    for name in ("ada", "nobody"):
        with pytest.raises(NotAuthenticated) as caught:
            await access.log_in(name, "wrong")
        said.append(str(caught.value))
    assert said == ["the name or the password is wrong"] * 2
    assert len(set(verified)) == 2


@pytest.mark.parametrize("name", ["", "a" * 5000, "a\x00", "\ud800", "ada "])
async def test_names_and_passwords_of_any_kind_are_just_wrong(access: Access, name: str) -> None:
    """They come from outside, and may be anything."""
    for password in (PASSWORD, "", "x" * 10_000, "\x00", "\ud800"):
        with pytest.raises((NotAuthenticated, TooManyAttempts)):
            await access.log_in(name, password)


async def test_a_session_cannot_be_forged(app: Tidewheel, access: Access) -> None:
    """Not by changing a character, not by shortening, not with the token of another store."""
    session = await access.log_in("ada", PASSWORD)
    value = session.value
    flipped = "A" if value[-1] != "A" else "B"
    forged = [
        "", ".", "a.b", "é" * 43, value[:-1], value + "=", value + "A", value[:-1] + flipped, " " + value,
        value + "\n", session.csrf, "x" * 43, "x" * 5000,
    ]  # fmt: skip
    assert [text for text in forged if await logged_in(access, text)] == []
    async with Tidewheel("memory://", clock=app.clock) as stranger:
        await stranger.access.create_superuser("ada", PASSWORD)
        assert not await logged_in(stranger.access, value)


async def test_reading_the_database_is_not_enough_to_act_as_a_user(tmp_path: Path) -> None:
    """No text of the file opens a door, as it is or as the key of a signature under a superuser's name."""
    path = tmp_path / "jobs.db"
    async with Tidewheel(f"sqlite:///{path}") as app:
        await app.access.create_superuser("ada", PASSWORD)
        session = await app.access.log_in("ada", PASSWORD)
        key = await app.access.create_key(superuser=True)
        assert await logged_in(app.access, session.value)
        async with Tidewheel(f"sqlite:///{path}") as server:
            await create_api(server).open()
        texts = _texts_of(path)
        assert not {session.value, session.csrf, key.key, key.key.rpartition("_")[2], PASSWORD} & texts
        for text in sorted(texts):
            for forged in (text, *_signed_with(text, "ada", texts)):
                assert not await logged_in(app.access, forged), forged
                with pytest.raises(NotAuthenticated):
                    await app.access.authenticate(bearer=forged)
                with pytest.raises(NotAuthenticated):
                    await app.access.authenticate(bearer=f"tw_{key.info.id}_{text}")


def _texts_of(path: Path) -> set[str]:
    """Every text of the documents in a file, and every text in their JSON."""
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = reader.execute("SELECT kind, id, body FROM tidewheel_documents").fetchall()
    reader.close()
    found: set[str] = set()
    for kind, name, body in rows:
        found |= {kind, name, body.decode()}
        with contextlib.suppress(ValueError):
            found |= {str(value) for value in json.loads(body).values()}
    return found


def _signed_with(key: str, name: str, texts: set[str]) -> Iterator[str]:
    """Cookies as they were signed once: the claims, and an HMAC of them under a secret of the store."""

    def encoded(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    def signature(*parts: str) -> str:
        text = "".join(f"{len(part.encode())}:{part}" for part in parts)
        return encoded(hmac.digest(key.encode(), text.encode(), hashlib.sha256))

    for proof in (text for text in texts if text.startswith("$argon2id$")):
        claims = [name, 0, 2**53, signature("mark", f"0:{proof}"), "nonce"]
        body = encoded(json.dumps(claims, separators=(",", ":")).encode())
        yield f"{body}.{signature('session', body)}"


async def test_cookies_of_another_form_ask_the_store_nothing(
    app: Tidewheel, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a text that could be a token is looked up."""
    session = await access.log_in("ada", PASSWORD)
    monkeypatch.setattr(app.store, "document", None)
    assert not await logged_in(elsewhere(app), session.value[:-1])


async def test_logging_out_ends_the_session_and_no_other(
    app: Tidewheel, access: Access, clock: FrozenClock
) -> None:
    """A copy of the cookie is worth nothing afterwards: here at once, elsewhere within a second."""
    one, two = await access.log_in("ada", PASSWORD), await access.log_in("ada", PASSWORD)
    other = elsewhere(app)
    assert await logged_in(other, one.value)
    await access.log_out(one.caller, cookie=one.value)
    assert not await logged_in(access, one.value)
    clock.advance(1)
    assert not await logged_in(other, one.value)
    assert await logged_in(other, two.value)
    for text in ("", "nonsense", one.value):  # whatever a cookie holds
        await access.log_out(one.caller, cookie=text)


async def test_sessions_that_are_over_leave_the_store(
    app: Tidewheel, access: Access, clock: FrozenClock
) -> None:
    """They are pruned with everything else that has expired."""
    await access.log_in("ada", PASSWORD)
    clock.advance(app.settings.session_seconds)
    fresh = await access.log_in("ada", PASSWORD)
    await app.store.prune()
    assert len(await app.store.documents("session", limit=10)) == 1
    assert await logged_in(access, fresh.value)


async def change_password(access: Access) -> None:
    await access.create_superuser("ada", "another password")


async def log_out_everywhere(access: Access) -> None:
    session = await access.log_in("ada", PASSWORD)
    await access.log_out(session.caller, everywhere=True)


async def remove(access: Access) -> None:
    await access.remove_superuser("ada")


@pytest.mark.parametrize("end", [change_password, log_out_everywhere, remove], ids=lambda end: end.__name__)
async def test_sessions_end_with_the_password_everywhere_or_with_the_user(
    app: Tidewheel, access: Access, clock: FrozenClock, end: object
) -> None:
    """Here at once, in other processes within a second; those of others go on."""
    await access.create_superuser("bob", PASSWORD)
    sessions = [(await access.log_in("ada", PASSWORD)).value for _ in range(2)]
    bobs = (await access.log_in("bob", PASSWORD)).value
    other = elsewhere(app)
    assert await logged_in(other, sessions[0])
    await end(access)  # type: ignore[operator]
    assert [await logged_in(access, value) for value in sessions] == [False, False]
    clock.advance(1)
    assert not await logged_in(other, sessions[0])
    assert await logged_in(access, bobs)


async def test_a_user_made_again_under_the_same_name_has_no_old_sessions(access: Access) -> None:
    """Also with the same password: its hash has another salt."""
    session = await access.log_in("ada", PASSWORD)
    await access.remove_superuser("ada")
    await access.create_superuser("ada", PASSWORD)
    assert not await logged_in(access, session.value)


async def test_a_csrf_token_goes_with_one_session(access: Access) -> None:
    """That of another session, of nobody or none at all is not it."""
    one, other = await access.log_in("ada", PASSWORD), await access.log_in("ada", PASSWORD)
    assert one.csrf == await access.csrf(one.value)
    assert await access.is_csrf(one.value, one.csrf)
    for token in (None, "", "é", other.csrf, one.csrf[:-1], one.value):
        assert not await access.is_csrf(one.value, token)


async def test_nothing_secret_is_shown(
    app: Tidewheel, access: Access, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in a repr, a log line, the audit log; and the store has a hash."""
    caplog.set_level("DEBUG")
    session: Session = await access.log_in("ada", PASSWORD)
    account = await access._superusers.account("ada")
    shown = [
        repr(session),
        repr(account),
        repr(access._sessions),
        repr(await access.superusers()),
        caplog.text,
    ]
    for text in (PASSWORD, session.value, session.csrf, "argon2"):
        assert all(text not in one for one in shown)
    [user] = await app.store.documents("superuser", limit=10)
    assert b"$argon2id$" in user.body
    for line in await app.store.documents("audit", limit=10):
        assert PASSWORD.encode() not in line.body


# -- the first one, and the one of the setting ----------------------------------------------------------


async def test_at_the_first_start_there_is_an_admin_with_a_password_that_is_told_once(app: Tidewheel) -> None:
    """To one of those who start at once."""
    several = [elsewhere(app) for _ in range(3)]
    told = [
        password
        for password in await asyncio.gather(*(one.ensure_superuser() for one in several))
        if password
    ]
    assert len(told) == 1
    assert len(told[0]) >= 20
    await app.access.log_in("admin", told[0])
    assert await app.access.ensure_superuser() is None


async def test_the_superuser_of_the_setting_is_not_stored(clock: FrozenClock) -> None:
    """Its password may hold colons; its sessions are good in every process, until the setting changes."""
    async with Tidewheel("memory://shared-setting", clock=clock, superuser="ada:one:two:three") as app:
        assert await app.access.ensure_superuser() is None
        session = await app.access.log_in("ada", "one:two:three")
        assert await logged_in(elsewhere(app), session.value)
        assert await app.store.documents("superuser", limit=1) == []
        for change in (app.access.create_superuser("ada", PASSWORD), app.access.remove_superuser("ada")):
            with pytest.raises(WrongState, match="change it there"):
                await change
        async with Tidewheel("memory://shared-setting", clock=clock, superuser="ada:another one") as changed:
            assert not await logged_in(changed.access, session.value)
        await app.access.log_out(session.caller, everywhere=True)
        assert not await logged_in(app.access, session.value)
        await app.access.log_in("ada", "one:two:three")


@pytest.mark.parametrize(
    "text", ["ada", "ada:", ":password", "ada:short", " ada:password1", "ada:" + "x" * 1001]
)
def test_a_setting_that_names_no_superuser_is_refused(text: str) -> None:
    """Before anything starts, and without the password in the message."""
    with pytest.raises(ConfigurationError, match="name:password") as caught:
        _ = Tidewheel("memory://", superuser=text).access
    assert "short" not in str(caught.value)


async def test_bad_names_and_passwords_are_not_stored(app: Tidewheel) -> None:
    """An error with the limit, and nothing is written."""
    for name, password in (("", PASSWORD), ("a:b", PASSWORD), ("a" * 101, PASSWORD), ("a\n", PASSWORD)):
        with pytest.raises(InvalidInput, match="name of a superuser"):
            await app.access.create_superuser(name, password)
    for password in ("", "1234567", "x" * 1001):
        with pytest.raises(InvalidInput, match="8 to 1,000 are possible"):
            await app.access.create_superuser("ada", password)
    assert await app.access.superusers() == ([], None)
    with pytest.raises(InvalidInput, match="no superuser"):
        await app.access.remove_superuser("ada")
    with acting_as(SecurityContext("acme")), pytest.raises(NotPermitted):
        await app.access.create_superuser("ada", PASSWORD)


# -- trying passwords -----------------------------------------------------------------------------------


async def fail(access: Access, name: str = "ada", address: str | None = "192.0.2.1") -> float:
    """Try a wrong password; how long to wait when it was not even tried."""
    try:
        await access.log_in(name, "wrong", address=address)
    except NotAuthenticated:
        return 0.0
    except TooManyAttempts as error:
        return error.retry_after
    raise AssertionError("it was the password")


async def test_after_five_failures_each_try_takes_a_pause_twice_as_long(
    access: Access, clock: FrozenClock
) -> None:
    """Also the right password has to wait at that address; then it is forgotten."""
    assert [await fail(access) for _ in range(5)] == [0.0] * 5
    for pause in (1.0, 2.0, 4.0):
        assert await fail(access) == pause
        with pytest.raises(TooManyAttempts):
            await access.log_in("ada", PASSWORD, address="192.0.2.1")
        clock.advance(pause)
        assert await fail(access) == 0.0
    clock.advance(login_throttle.PER_ADDRESS.max_delay_seconds)
    await access.log_in("ada", PASSWORD, address="192.0.2.1")


async def test_pauses_have_an_end(access: Access, clock: FrozenClock) -> None:
    """An address is not locked out for ever."""
    for _ in range(100):
        clock.advance(await fail(access))
    assert await fail(access) <= login_throttle.PER_ADDRESS.max_delay_seconds


async def test_many_addresses_together_cannot_guess(access: Access, clock: FrozenClock) -> None:
    """After twenty failures a name can be tried every ten seconds at most, from wherever."""
    tried = [await fail(access, address=f"192.0.2.{number}") for number in range(100)]
    assert tried.count(0.0) == login_throttle.PER_NAME.free_failures
    for number in range(20):
        clock.advance(await fail(access, address=f"198.51.100.{number}"))
    assert await fail(access, address="203.0.113.1") == login_throttle.PER_NAME.max_delay_seconds


async def test_who_logged_in_before_is_not_kept_out_by_others(access: Access) -> None:
    """Whoever knows a name can make it wait, but not where its owner is at home."""
    await access.log_in("ada", PASSWORD, address="192.0.2.7")
    for number in range(100):
        await fail(access, address=f"198.51.100.{number}")
    with pytest.raises(TooManyAttempts):
        await access.log_in("ada", PASSWORD, address="203.0.113.1")
    await access.log_in("ada", PASSWORD, address="192.0.2.7")


async def test_one_address_does_not_try_many_names(access: Access) -> None:
    """And whoever has a name of its own does not wait for that address."""
    assert [await fail(access, f"user{number}") for number in range(5)] == [0.0] * 5
    assert await fail(access, "ada") > 0
    await access.log_in("ada", PASSWORD, address="198.51.100.7")


async def test_many_tries_at_once_are_many_tries(access: Access) -> None:
    """They are counted before the password is looked at."""
    tried = await asyncio.gather(*(fail(access) for _ in range(50)))
    assert tried.count(0.0) == 5


async def test_a_slow_server_is_not_guessed_against_without_delays(
    access: Access, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delay begins when an attempt has ended, however long the password took."""

    class Slow(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002
            clock.advance(20)
            return super().verify(hash, password)

    slow = Slow(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", lambda: slow)
    assert [await fail(access) for _ in range(5)] == [0.0] * 5
    assert await fail(access) == 1.0
    tried = [await fail(access, address=f"192.0.2.{number}") for number in range(2, 100)]
    assert tried.count(0.0) == login_throttle.PER_NAME.free_failures - 5
    assert tried[-1] == 1.0


@pytest.mark.parametrize(
    ("addresses", "together"),
    [
        ([f"2001:db8:1:2::{number:x}" for number in range(6)], True),
        ([f"2001:db8:1:2:{number:x}::1" for number in range(6)], True),
        ([f"2001:db8:1:{number:x}::1" for number in range(6)], False),
        ([f"fe80::{number:x}%eth0" for number in range(6)], True),
        (["192.0.2.1", "::ffff:192.0.2.1"] * 3, True),
        ([f"192.0.2.{number}" for number in range(6)], False),
    ],
)
async def test_addresses_of_one_ipv6_client_are_one(
    access: Access, addresses: list[str], together: bool
) -> None:
    """By their /64; an IPv4 address is the same one in its IPv6 spelling."""
    tried = [await fail(access, f"user{index}", address) for index, address in enumerate(addresses)]
    assert tried[:5] == [0.0] * 5
    assert (tried[5] > 0) is together


async def test_a_flood_of_logins_does_not_lock_everyone_out(access: Access) -> None:
    """1,500 tries from 300 addresses: a few wait, the rest is refused at once; known clients get through."""
    await access.log_in("ada", PASSWORD, address="192.0.2.7")
    session = await access.log_in("ada", PASSWORD, address="198.51.100.7")
    queue = access._login_queue
    addresses = [f"203.0.{number // 250}.{number % 250}" for number in range(300)]
    flood = [
        asyncio.create_task(fail(access, f"user{number}", address))
        for number in range(5)
        for address in addresses
    ]
    await asyncio.sleep(0)
    assert 0 < queue.waiting <= login_throttle.MAX_WAITING_LOGINS
    await access.log_in("ada", PASSWORD, address="192.0.2.7")
    assert not all(task.done() for task in flood), "it did not wait for the flood"
    await access.log_in("ada", PASSWORD, address="2001:db8::1", cookie=session.value)
    tried = await asyncio.gather(*flood)
    assert tried.count(0.0) <= login_throttle.MAX_WAITING_LOGINS + 2 * passwords.MAX_CONCURRENT_HASHES + 2
    assert queue.waiting == 0
    assert await fail(access, "bob", "192.0.2.99") == 0.0, "a refused try is no failure of the next"


async def test_the_login_queue_is_shared_by_networks(access: Access) -> None:
    """The network with the most gives way, and turns go round; a cancelled one gives its turn on."""
    queue = login_throttle.LoginQueue()
    served: list[str] = []
    release = asyncio.Event()

    async def wait(network: str) -> None:
        async with queue.turn(network, known=network == "known"):
            served.append(network)
            await release.wait()

    first = [asyncio.create_task(wait("first")) for _ in range(passwords.MAX_CONCURRENT_HASHES)]
    await asyncio.sleep(0)
    crowd = [asyncio.create_task(wait("crowd")) for _ in range(login_throttle.MAX_WAITING_LOGINS + 5)]
    await asyncio.sleep(0)
    others = [asyncio.create_task(wait(name)) for name in ("one", "two", "known")]
    await asyncio.sleep(0)
    assert queue.waiting == login_throttle.MAX_WAITING_LOGINS + 1
    crowd[0].cancel()
    await asyncio.sleep(0)
    release.set()
    ended = await asyncio.gather(*first, *crowd, *others, return_exceptions=True)
    assert sum(isinstance(one, TooManyAttempts) for one in ended) == 5 + 2
    assert served[:6] == ["first", "first", "known", "crowd", "one", "two"]
    assert (queue.waiting, queue._running) == (0, 0)


async def test_names_and_addresses_cannot_fill_memory(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that tried least recently are forgotten."""
    monkeypatch.setattr(login_throttle, "MAX_TRACKED", 5)
    for number in range(20):
        await fail(access, f"user{number}", f"192.0.2.{number}")
    remembered = access._login_throttle
    assert (len(remembered._by_name), len(remembered._by_address)) == (5, 5)
