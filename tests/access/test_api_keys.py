"""API keys: shown once, kept as a hash, looked up rarely, refused at once."""

from __future__ import annotations

import asyncio
import hmac
from typing import Any

import pytest

from tidewheel import InvalidInput, NotAuthenticated, NotPermitted, SecurityContext, Tidewheel, acting_as
from tidewheel.access import api_keys, cache
from tidewheel.access.caller import DEFAULT_SCOPES, Caller, CallerKind, Scope
from tidewheel.core.clock import to_datetime
from tidewheel.core.model import Document
from tidewheel.testing.clock import FrozenClock

DAY = 86_400.0


async def who(app: Tidewheel, key: str) -> Caller:
    return await app.access.authenticate(bearer=key)


def watched(app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids the store is asked for, one after the other."""
    asked: list[str] = []
    store = app.store
    look = store.document

    async def document(kind: str, document_id: str) -> Document | None:
        asked.append(document_id)
        await asyncio.sleep(0)
        return await look(kind, document_id)

    monkeypatch.setattr(store, "document", document)
    return asked


async def test_a_key_tells_who_is_asking(app: Tidewheel) -> None:
    """Its tenant, its scopes and on whose behalf come from the key and from nowhere else."""
    made = await app.access.create_key(
        "billing", tenant="acme", scopes=["read", "enqueue"], user_id="u1", service_id="shop"
    )
    caller = await who(app, made.key)
    assert (caller.kind, caller.id, caller.tenant) == (CallerKind.KEY, made.info.id, "acme")
    assert caller.scopes == {Scope.READ, Scope.ENQUEUE}
    assert not caller.superuser
    assert caller.context() == SecurityContext("acme", "u1", "shop")
    assert caller.auth["tenant"] == "acme"
    boss = await who(app, (await app.access.create_key(superuser=True)).key)
    assert (boss.superuser, boss.scopes, boss.context()) == (True, DEFAULT_SCOPES, None)


async def test_a_key_is_long_random_and_url_safe(app: Tidewheel) -> None:
    """256 bits of secret behind an id that may be shown."""
    made = [await app.access.create_key() for _ in range(20)]
    assert len({one.key for one in made}) == len({one.info.id for one in made}) == 20
    for one in made:
        prefix, key_id, secret = one.key.split("_", 2)
        assert (prefix, key_id, len(secret)) == ("tw", one.info.id, 43)
        assert one.key.replace("-", "").replace("_", "").isalnum()


async def test_nothing_that_is_kept_or_shown_is_the_key(
    app: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in the store, not in a repr, not in the audit log, not in a log line."""
    caplog.set_level("DEBUG")
    made = await app.access.create_key("n")
    await who(app, made.key)
    await asyncio.sleep(0)
    secret = made.key.split("_", 2)[2]
    listed, _ = await app.access.keys()
    kept = [*await app.store.documents("key", limit=10), *await app.store.documents("audit", limit=10)]
    shown = [repr(made), repr(listed), repr(app.access), repr(app.access._keys), caplog.text]
    assert kept
    assert all(secret.encode() not in document.body for document in kept)
    assert all(secret not in text for text in shown)


@pytest.mark.parametrize("change", ["secret", "id", "case", "short", "long", "empty", "space"])
async def test_a_wrong_key_is_refused_with_one_message(app: Tidewheel, change: str) -> None:
    """Whatever is wrong with it: nobody learns which ids exist."""
    key = (await app.access.create_key()).key
    wrong = {
        "secret": key[:-2] + ("AA" if not key.endswith("AA") else "BB"),
        "id": "tw_" + "0" * 16 + key[19:],
        "case": key.upper(),
        "short": key[:-1],
        "long": key + "A",
        "empty": "",
        "space": f" {key}",
    }[change]
    with pytest.raises(NotAuthenticated) as caught:
        await who(app, wrong)
    assert str(caught.value) == "the key, token or session is not valid; it may be wrong, expired or revoked"


async def test_secrets_are_compared_in_constant_time(app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hmac.compare_digest, over hashes of one length."""
    compared: list[tuple[Any, Any]] = []

    def compare(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(api_keys, "hmac", type("watched", (), {"compare_digest": staticmethod(compare)}))
    await who(app, (await app.access.create_key()).key)
    assert [(len(one), len(other)) for one, other in compared] == [(32, 32)]


async def test_a_key_ends_when_it_was_told_to(app: Tidewheel, clock: FrozenClock) -> None:
    """At that instant; it stays on the list for a month."""
    made = await app.access.create_key(expires=60)
    assert made.info.expires_at == to_datetime(clock.now() + 60_000_000)
    clock.advance(59.999999)
    await who(app, made.key)
    clock.advance(0.000001)
    with pytest.raises(NotAuthenticated):
        await who(app, made.key)
    assert len((await app.access.keys())[0]) == 1
    clock.advance(31 * DAY)
    assert (await app.access.keys())[0] == []


async def test_a_revoked_key_is_refused_at_once_here_and_within_a_second_elsewhere(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """Also one that is in use, whose look-up is remembered."""
    made = await app.access.create_key()
    other = type(app.access)(app)  # as another process has it
    await who(app, made.key)
    await other.authenticate(bearer=made.key)
    await app.access.revoke_key(made.info.id)
    with pytest.raises(NotAuthenticated):
        await who(app, made.key)
    clock.advance(cache.CACHE_SECONDS)
    with pytest.raises(NotAuthenticated):
        await other.authenticate(bearer=made.key)
    [info], _ = await app.access.keys()
    assert info.revoked_at is not None
    again = await app.access.revoke_key(made.info.id)
    assert again.revoked_at == info.revoked_at, "a second time changes nothing"
    with pytest.raises(InvalidInput, match="no key"):
        await app.access.revoke_key("0" * 16)
    with pytest.raises(InvalidInput) as caught:
        await app.access.revoke_key(made.key)
    assert made.key not in str(caught.value), "who gives the key instead of its id does not see it in a log"


async def test_a_look_that_began_before_the_key_was_revoked_is_not_remembered(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer may still be the old one; whoever asks afterwards gets the new one."""
    made = await app.access.create_key()
    store, looked, go_on = app.store, asyncio.Event(), asyncio.Event()
    look = store.document

    async def slowly(kind: str, document_id: str) -> Document | None:
        monkeypatch.setattr(store, "document", look)
        found = await look(kind, document_id)
        looked.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(store, "document", slowly)
    first = asyncio.create_task(who(app, made.key))
    await looked.wait()
    await app.access.revoke_key(made.info.id)
    with pytest.raises(NotAuthenticated):
        await who(app, made.key)
    go_on.set()
    await first
    with pytest.raises(NotAuthenticated):
        await who(app, made.key)


async def test_a_key_is_looked_up_once_a_second_however_often_it_is_used(
    app: Tidewheel, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a hundred requests come at once, and for a key that is not there."""
    key = (await app.access.create_key()).key
    asked = watched(app, monkeypatch)
    await asyncio.gather(*(who(app, key) for _ in range(100)))
    for _ in range(100):
        await who(app, key)
    assert len(asked) == 1
    clock.advance(1)
    await who(app, key)
    assert len(asked) == 2
    nobody = "tw_" + "0" * 16 + "_" + "A" * 43
    for _ in range(3):
        with pytest.raises(NotAuthenticated):
            await who(app, nobody)
    assert len(asked) == 3
    with pytest.raises(NotAuthenticated):
        await who(app, "tw_no-such-shape")
    assert len(asked) == 3, "what cannot be a key is not looked up"


async def test_a_look_that_fails_is_not_remembered(app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away for a moment makes no key bad."""
    key = (await app.access.create_key()).key
    store = app.store
    look = store.document

    async def away(kind: str, document_id: str) -> Document | None:
        monkeypatch.setattr(store, "document", look)
        raise OSError("away")

    monkeypatch.setattr(store, "document", away)
    with pytest.raises(OSError, match="away"):
        await who(app, key)
    await who(app, key)


async def test_who_gives_up_waiting_leaves_the_answer_to_the_others(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look-up serves many; the first of them may be cancelled."""
    key = (await app.access.create_key()).key
    asked = watched(app, monkeypatch)
    first, second = asyncio.create_task(who(app, key)), asyncio.create_task(who(app, key))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).kind is CallerKind.KEY
    assert len(asked) == 1


async def test_nonsense_cannot_fill_memory_or_push_out_what_is_in_use(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that are not there are remembered apart, and few of them."""
    key = (await app.access.create_key()).key
    await who(app, key)
    asked = watched(app, monkeypatch)
    for number in range(cache.MAX_MISSING + 50):
        with pytest.raises(NotAuthenticated):
            await who(app, f"tw_{number:016x}_{'A' * 43}")
    known = app.access._keys._lookups
    assert (len(known._missing), len(known._found)) == (cache.MAX_MISSING, 1)
    asked.clear()
    await who(app, key)
    assert asked == []


async def test_when_a_key_was_used_is_noted_at_most_once_a_minute(app: Tidewheel, clock: FrozenClock) -> None:
    """In the background, and by whoever uses it first."""

    async def noted() -> Any:
        await asyncio.gather(*app.access._keys._note_tasks)
        return (await app.access.keys())[0][0].last_used_at

    key = (await app.access.create_key()).key
    await who(app, key)
    first = await noted()
    assert first == to_datetime(clock.now())
    clock.advance(59)
    await who(app, key)
    assert await noted() == first
    clock.advance(1)
    await who(app, key)
    assert await noted() == to_datetime(clock.now())


async def test_noting_a_use_does_not_bring_a_revoked_key_back(app: Tidewheel) -> None:
    """The use is noted over the version that was looked up, and no other."""
    made = await app.access.create_key()
    await who(app, made.key)  # its note is not written yet
    await app.access.revoke_key(made.info.id)
    await asyncio.gather(*app.access._keys._note_tasks)
    assert (await app.access.keys())[0][0].revoked_at is not None


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"scopes": ["write"]}, "the scopes are read, enqueue, manage"),
        ({"scopes": []}, "good for nothing"),
        ({"tenant": "a b"}, "tenant is 'a b'"),
        ({"tenant": "acme", "superuser": True}, "for all tenants"),
        ({"expires": 0}, "expires is 0"),
        ({"name": "n" * 201}, "201 characters"),
        ({"user_id": ""}, "user_id is empty"),
    ],
)
async def test_a_bad_key_is_not_made(app: Tidewheel, options: dict[str, Any], what: str) -> None:
    """An error with value, limit and remedy, and nothing is written."""
    with pytest.raises(InvalidInput, match=what):
        await app.access.create_key(**options)
    assert (await app.access.keys())[0] == []
    assert (await app.access.audit.lines()).lines == ()


async def test_keys_are_for_the_system_only(app: Tidewheel) -> None:
    """Code that acts for a tenant makes no keys."""
    with acting_as(SecurityContext("acme")):
        for call in (app.access.create_key(), app.access.keys(), app.access.revoke_key("0" * 16)):
            with pytest.raises(NotPermitted):
                await call


async def test_keys_are_listed_page_by_page(app: Tidewheel, clock: FrozenClock) -> None:
    """Newest first, with an opaque cursor that must be one of ours."""
    for number in range(5):
        clock.advance(1)
        await app.access.create_key(f"k{number}")
    first, cursor = await app.access.keys(limit=3)
    second, end = await app.access.keys(limit=3, cursor=cursor)
    assert [key.name for key in first + second] == ["k4", "k3", "k2", "k1", "k0"]
    assert end is None
    for nonsense in ("", "x", "1", "-1.a", "9" * 30 + ".a", "1." + "a" * 300):
        with pytest.raises(InvalidInput, match="cursor"):
            await app.access.keys(cursor=nonsense)
