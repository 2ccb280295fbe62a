"""JSON Web Tokens: what they prove, and everything that proves nothing."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.patience import PATIENCE
from tidewheel import ConfigurationError, NotAuthenticated, SecurityContext, Tidewheel
from tidewheel.access import jwks
from tidewheel.access.caller import ALL_SCOPES, Caller, CallerKind, Scope
from tidewheel.access.jwks import parse_jwks
from tidewheel.testing.clock import FrozenClock

SECRET = "s" * 32
NOW = 1767225600  # where a frozen clock stands
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
P384_KEY = ec.generate_private_key(ec.SECP384R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def made(clock: FrozenClock, **settings: Any) -> Tidewheel:
    return Tidewheel("memory://", clock=clock, **({"jwt_secret": SECRET} | settings))


def token(
    claims: dict[str, Any] | None = None, *, key: Any = SECRET, alg: str = "HS256", **header: Any
) -> str:
    return jwt.encode({"sub": "ada", "exp": NOW + 60} | (claims or {}), key, alg, headers=header or None)


def by_hand(header: dict[str, Any], claims: dict[str, Any], key: bytes | None = None) -> str:
    """A token a library would not make."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    signed = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
    signature = b"" if key is None else hmac.digest(key, signed.encode(), hashlib.sha256)
    return f"{signed}.{part(signature)}"


async def who(app: Tidewheel, text: str) -> Caller:
    return await app.access.authenticate(bearer=text)


async def refused(app: Tidewheel, text: str) -> None:
    with pytest.raises(NotAuthenticated, match="is not valid; it may be wrong, expired or revoked"):
        await who(app, text)


# -- a shared secret ------------------------------------------------------------------------------------


async def test_a_good_token_tells_who_is_asking(clock: FrozenClock) -> None:
    """Who it is about, its tenant from the claim that was named, and its claims for rules."""
    app = made(clock, jwt_tenant_claim="org")
    caller = await who(app, token({"org": "acme", "role": "staff", "kind": "forged", "superuser": True}))
    assert (caller.kind, caller.id, caller.tenant) == (CallerKind.TOKEN, "ada", "acme")
    assert (caller.superuser, set(caller.scopes)) == (False, {Scope.READ})
    assert caller.context() == SecurityContext("acme", "ada")
    assert (caller.auth["role"], caller.auth["id"], caller.auth["tenant"]) == ("staff", "ada", "acme")
    assert (caller.auth["kind"], caller.auth["superuser"]) == ("token", False), "no claim forges what is ours"


@pytest.mark.parametrize(
    ("scope", "scopes", "superuser"),
    [
        (None, {Scope.READ}, False),
        ("", {Scope.READ}, False),
        ("openid email superuser", {Scope.READ}, False),
        ("tidewheel:tracebacks tidewheel:read", {Scope.READ, Scope.TRACEBACKS}, False),
        ("tidewheel:read", {Scope.READ}, False),
        ("openid tidewheel:read tidewheel:enqueue", {Scope.READ, Scope.ENQUEUE}, False),
        ("tidewheel:superuser", ALL_SCOPES, True),
        ("tidewheel:superuser tidewheel:read", {Scope.READ}, True),
        ("tidewheel:unheard-of", set(), False),
        ("tidewheel:", set(), False),
    ],
)
async def test_scopes_narrow_what_a_token_is_good_for(
    clock: FrozenClock, scope: str | None, scopes: set[Scope], superuser: bool
) -> None:
    """One that says nothing of Tidewheel may read states, and only one that says superuser is one."""
    caller = await who(made(clock), token({} if scope is None else {"scope": scope}))
    assert (set(caller.scopes), caller.superuser) == (set(scopes), superuser)


CLAIMS: dict[str, Any] = {"sub": "ada", "exp": NOW + 60}
BAD: dict[str, str] = {
    "nothing": "",
    "no token": "abc",
    "two parts": "a.b",
    "not ascii": "é.é.é",
    "alg none": by_hand({"alg": "none", "typ": "JWT"}, CLAIMS),
    "alg None": by_hand({"alg": "None"}, CLAIMS),
    "alg none, signed": by_hand({"alg": "none"}, CLAIMS, SECRET.encode()),
    "no alg": by_hand({"typ": "JWT"}, CLAIMS, SECRET.encode()),
    "alg is a list": by_hand({"alg": ["HS256"]}, CLAIMS, SECRET.encode()),
    "another alg": token(key="s" * 64, alg="HS512"),
    "a public alg": token(key=RSA_KEY, alg="RS256"),
    "no signature": token().rpartition(".")[0] + ".",
    "another secret": token(key="t" * 32),
    "an empty secret": by_hand({"alg": "HS256"}, CLAIMS, b""),
    "critical extension": by_hand({"alg": "HS256", "crit": ["x"], "x": 1}, CLAIMS, SECRET.encode()),
    "no exp": by_hand({"alg": "HS256"}, {"sub": "ada"}, SECRET.encode()),
    "exp null": by_hand({"alg": "HS256"}, {"exp": None}, SECRET.encode()),
    "exp text": by_hand({"alg": "HS256"}, {"exp": "9999999999"}, SECRET.encode()),
    "exp true": by_hand({"alg": "HS256"}, {"exp": True}, SECRET.encode()),
    "exp for ever": by_hand({"alg": "HS256"}, {"exp": float("inf")}, SECRET.encode()),
    "exp huge": by_hand({"alg": "HS256"}, {"exp": 10**400}, SECRET.encode()),
    "expired": token({"exp": NOW - 10}),
    "not yet": token({"nbf": NOW + 11}),
    "from the future": token({"iat": NOW + 11}),
    "for somebody": token({"aud": "another"}),
    "sub is a number": by_hand({"alg": "HS256"}, {"sub": 1, "exp": NOW + 60}, SECRET.encode()),
    "sub is empty": token({"sub": ""}),
    "sub is long": token({"sub": "a" * 256}),
    "sub has a NUL": token({"sub": "a\x00"}),
    "scope is a list": token({"scope": ["tidewheel:superuser"]}),
    "claims are a list": by_hand({"alg": "HS256"}, [], SECRET.encode()),  # type: ignore[arg-type]
    "too large": token({"padding": "x" * 8200}),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_token_is_refused(clock: FrozenClock, what: str) -> None:
    """With the one message there is, whatever is wrong."""
    await refused(made(clock), BAD[what])


REASONS = {
    "no token": "neither an API key nor a JSON Web Token",
    "not ascii": "not ASCII",
    "alg none": "algorithm (alg) of a token is not accepted (accepted are HS256)",
    "a public alg": "algorithm (alg)",
    "another secret": "signature of a token is wrong",
    "no signature": "signature of a token is wrong",
    "critical extension": "critical extensions",
    "no exp": "no end (exp)",
    "exp text": "a time (exp, nbf, iat) of a token is not a number",
    "expired": "expired (exp) (10 s ago)",
    "not yet": "not valid yet (nbf, iat) (in 11 s)",
    "for somebody": "jwt_audience is not set",
    "scope is a list": "scopes (scope) of a token are not a text",
    "too large": "longer than 8,192 bytes",
}


@pytest.mark.parametrize("what", BAD)
async def test_the_log_says_why_a_token_is_refused(
    clock: FrozenClock, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In one line, without any part of the token; ``explain`` gives the same reason."""
    app = made(clock)
    await refused(app, BAD[what])
    [line] = [record.getMessage() for record in caplog.records if record.name == "tidewheel.access"]
    assert line.startswith("rejected a credential: ")
    assert REASONS.get(what, "a ") in line
    for part in BAD[what].split("."):
        assert len(part) < 8 or part not in line
    explained = await app.access.explain(BAD[what])
    assert explained.caller is None
    assert (explained.rejected or "?") in line


async def test_a_flood_of_bad_tokens_is_a_few_lines(
    clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each reason at most every 20 seconds, with the number of those in between."""
    app = made(clock)
    for _ in range(100):
        await refused(app, BAD["another secret"])
    await refused(app, BAD["expired"])
    assert len(caplog.records) == 2
    clock.advance(20)
    await refused(app, BAD["another secret"])
    assert "99 more since the last line about this" in caplog.records[-1].getMessage()


async def test_default_scopes_are_those_of_the_setting(clock: FrozenClock) -> None:
    """For tokens that name none of ours; a wrong name is refused at the start."""
    app = made(clock, jwt_default_scopes=("read", "enqueue"))
    assert set((await who(app, token())).scopes) == {Scope.READ, Scope.ENQUEUE}
    assert set((await who(app, token({"scope": "tidewheel:manage"}))).scopes) == {Scope.MANAGE}
    assert (await who(made(clock, jwt_default_scopes=()), token())).scopes == frozenset()
    for name in ("superuser", "tidewheel:read", "raed"):
        with pytest.raises(ConfigurationError, match="jwt_default_scopes has"):
            _ = made(clock, jwt_default_scopes=(name,)).access


async def test_what_a_token_may_do_is_explained(clock: FrozenClock) -> None:
    """By its scopes and the rules, without noting a key's use."""
    app = made(clock, manage_rule="user_id = @request.auth.id", enqueue_rule="@request.auth.role = 'staff'")
    async with app:

        async def may(text: str) -> dict[str, tuple[bool, str]]:
            found = await app.access.explain(text)
            return {ability.what.split()[-1]: (ability.allowed, ability.why) for ability in found.abilities}

        plain = await may(token())
        assert plain["jobs"] == (False, "needs the scope manage")
        assert plain["payloads"] == (False, "needs the scope manage")
        assert plain["tracebacks"] == (False, "needs the scope tracebacks")
        [seen] = [
            one for one in (await app.access.explain(token())).abilities if one.what.startswith("see st")
        ]
        assert (seen.allowed, seen.why) == (True, "the jobs that manage_rule shows")
        whole = await may(token({"scope": "tidewheel:superuser"}))
        assert all(allowed for allowed, _ in whole.values())
        key = await app.access.create_key("ci", scopes=["enqueue", "work"])
        found = {one.what: one for one in (await app.access.explain(key.key)).abilities}
        assert (found["enqueue jobs"].allowed, found["enqueue jobs"].why) == (False, "enqueue_rule")
        assert found["run jobs as a worker"].why == "for superusers only"
        assert (await app.access.keys())[0][0].last_used_at is None


async def test_clocks_may_be_off_by_ten_seconds(clock: FrozenClock) -> None:
    """Not by more; and a token that was believed ends all the same."""
    app = made(clock)
    await who(app, token({"exp": NOW - 9}))
    await who(app, token({"nbf": NOW + 10, "iat": NOW + 10}))
    good = token({"exp": NOW + 5})
    await who(app, good)
    clock.advance(15)
    await refused(app, good)


async def test_audience_and_issuer_are_checked_where_they_are_configured(clock: FrozenClock) -> None:
    """A token for others, of others or of nobody proves nothing."""
    app = made(clock, jwt_audience="tidewheel", jwt_issuer="https://id.example")
    good = {"aud": "tidewheel", "iss": "https://id.example"}
    await who(app, token(good))
    await who(app, token(good | {"aud": ["others", "tidewheel"]}))
    changes: list[dict[str, Any]] = [
        {"aud": "others"},
        {"aud": []},
        {"aud": None},
        {"iss": "evil"},
        {"iss": None},
    ]
    for change in changes:
        claims = {name: value for name, value in (good | change).items() if value is not None}
        await refused(app, token(claims))


@pytest.mark.parametrize("tenant", [None, "", "a b", "*", 7, ["acme"], {"id": "acme"}])
async def test_a_token_without_a_good_tenant_is_refused(clock: FrozenClock, tenant: Any) -> None:
    """Where the claim is configured; it does not become one of the root tenant."""
    app = made(clock, jwt_tenant_claim="org")
    await refused(app, token({} if tenant is None else {"org": tenant}))


async def test_a_token_cannot_name_the_root_tenant(
    clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is that of jobs without a tenant, which are nobody's but the operator's."""
    await refused(made(clock, jwt_tenant_claim="org"), token({"org": "root"}))
    assert "root, which is reserved" in caplog.text


async def test_tenants_of_tokens_are_uuids_where_tenants_are(clock: FrozenClock) -> None:
    """The setting holds for every door."""
    app = made(clock, jwt_tenant_claim="org", tenant_uuids=True)
    await refused(app, token({"org": "acme"}))


async def test_a_verified_token_is_not_verified_again_for_a_while(
    clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its hash; few are remembered, and none that was refused."""
    from tidewheel.access import tokens

    app = made(clock)
    verified = []
    decode = jwt.decode

    def watched(*given: Any, **options: Any) -> Any:
        verified.append(1)
        return decode(*given, **options)

    monkeypatch.setattr(jwt, "decode", watched)
    monkeypatch.setattr(tokens, "MAX_CACHED_TOKENS", 3)
    text = token({"exp": NOW + 600})
    for _ in range(5):
        await who(app, text)
    assert len(verified) == 1
    clock.advance(tokens.VERIFIED_CACHE_SECONDS)
    await who(app, text)
    assert len(verified) == 2
    for number in range(10):
        await who(app, token({"exp": NOW + 600, "jti": str(number)}))
    believed = app.access._tokens._verified  # type: ignore[union-attr]
    assert len(believed) == 3
    assert all(text.encode() not in key for key in believed)


async def test_tokens_are_refused_where_none_are_configured(clock: FrozenClock) -> None:
    """Also those signed with an empty secret."""
    app = Tidewheel("memory://", clock=clock)
    for text in (token(), by_hand({"alg": "HS256"}, CLAIMS, b""), by_hand({"alg": "none"}, CLAIMS)):
        await refused(app, text)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"jwt_secret": "s" * 31}, "jwt_secret has 31 bytes; HS256 needs 32"),
        ({"jwt_secret": "s" * 32, "jwt_algorithms": ["HS512"]}, "HS512 needs 64"),
        ({"jwt_algorithms": ["none"]}, "'none'"),
        ({"jwt_algorithms": ["RS256"]}, "'RS256'"),
        ({"jwt_secret": None, "jwt_jwks_url": "https://x.example/", "jwt_algorithms": ["HS256"]}, "'HS256'"),
        ({"jwt_jwks_url": "https://x.example/", "jwt_algorithms": ["RS256"]}, "has none of HS256"),
        ({"jwt_secret": None, "jwt_jwks_url": "http://x.example/jwks"}, "must be https"),
        ({"jwt_secret": None, "jwt_jwks_url": "file:///etc/passwd"}, "must be https"),
        ({"jwt_secret": None, "jwt_jwks_url": "http://localhost.evil.example/"}, "must be https"),
    ],
)
def test_what_cannot_be_safe_is_refused_before_anything_starts(
    clock: FrozenClock, settings: dict[str, Any], what: str
) -> None:
    """Short secrets, algorithms for other keys, keys from anywhere; and no secret is in the message."""
    with pytest.raises(ConfigurationError, match=what) as caught:
        _ = made(clock, **settings).access
    assert "sss" not in str(caught.value)


def test_no_secret_is_shown(clock: FrozenClock) -> None:
    """What has a repr ends up in a log."""
    app = made(clock, superuser="ada:hunter2hunter2")
    assert app.access._tokens is not None
    for thing in (app, app.access, app.access._tokens, app.access._superusers, app.access._sessions):
        assert SECRET not in repr(thing)
        assert "hunter2" not in repr(thing)


# -- published keys -------------------------------------------------------------------------------------


def public(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    kinds: dict[type, Any] = {
        rsa.RSAPrivateKey: RSAAlgorithm,
        ec.EllipticCurvePrivateKey: ECAlgorithm,
        ed25519.Ed25519PrivateKey: OKPAlgorithm,
    }
    to_jwk = next(algorithm.to_jwk for kind, algorithm in kinds.items() if isinstance(key, kind))
    data: dict[str, Any] = json.loads(to_jwk(key.public_key()))
    return data | ({} if kid is None else {"kid": kid}) | more


class Issuer:
    """A server that publishes keys, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.status = 200
        self.keys: list[dict[str, Any]] = []
        self.body: bytes | None = None
        self.drips = False
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                self.send_response(issuer.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                while issuer.drips:
                    self.wfile.write(b" ")
                    time.sleep(0.05)
                self.wfile.write(issuer.body or json.dumps({"keys": issuer.keys}).encode())

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    issuer.thread.start()
    issuer.keys = [public(RSA_KEY, "r"), public(EC_KEY, "e"), public(ED_KEY, "d"), public(P384_KEY, "p")]
    yield issuer
    issuer.server.shutdown()
    issuer.server.server_close()
    issuer.thread.join()


def published(clock: FrozenClock, issuer: Issuer, **settings: Any) -> Tidewheel:
    return made(clock, **({"jwt_secret": None, "jwt_jwks_url": issuer.url} | settings))


async def test_tokens_are_verified_with_published_keys(clock: FrozenClock, issuer: Issuer) -> None:
    """RSA, elliptic curves and Edwards curves; one fetch for all of them."""
    app = published(clock, issuer)
    for key, alg, kid in ((RSA_KEY, "RS256", "r"), (EC_KEY, "ES256", "e"), (ED_KEY, "EdDSA", "d")):
        caller = await who(app, token(key=key, alg=alg, kid=kid))
        assert caller.id == "ada"
    assert issuer.asked == 1


async def test_a_public_key_is_no_secret(clock: FrozenClock, issuer: Issuer) -> None:
    """HS256 over the text of a published key, the classic confusion, in both set-ups."""
    pem = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for app in (published(clock, issuer), published(clock, issuer, jwt_secret=SECRET)):
        for key in (pem, pem.strip(), json.dumps(public(RSA_KEY, "r")).encode(), b""):
            await refused(app, by_hand({"alg": "HS256", "kid": "r"}, CLAIMS, key))
        await refused(app, by_hand({"alg": "none", "kid": "r"}, CLAIMS))


async def test_secret_and_published_keys_stay_apart_where_both_are_configured(
    clock: FrozenClock, issuer: Issuer
) -> None:
    """Each algorithm has its kind of key."""
    app = published(clock, issuer, jwt_secret=SECRET)
    await who(app, token())
    await who(app, token(key=RSA_KEY, alg="RS256", kid="r"))
    await refused(app, token(key=OTHER_RSA_KEY, alg="RS256", kid="r"))


async def test_a_key_is_used_with_its_own_algorithm_only(clock: FrozenClock, issuer: Issuer) -> None:
    """An algorithm that is not on the list, or not that of the key, proves nothing."""
    issuer.keys = [public(RSA_KEY, "r", alg="RS256"), public(EC_KEY, "e"), public(P384_KEY, "p")]
    app = published(clock, issuer, jwt_algorithms=["RS256", "PS256", "ES256", "ES384"])
    await who(app, token(key=RSA_KEY, alg="RS256", kid="r"))
    await who(app, token(key=P384_KEY, alg="ES384", kid="p"))
    await refused(app, token(key=RSA_KEY, alg="PS256", kid="r"))
    await refused(app, token(key=RSA_KEY, alg="RS512", kid="r"))
    await refused(app, token(key=RSA_KEY, alg="RS256", kid="e"))


@pytest.mark.parametrize("kid", ["unknown", "../../etc/passwd", "' OR 1=1 --", "r\x00", ""])
async def test_a_bad_kid_is_refused_and_asks_the_issuer_once_in_thirty_seconds(
    clock: FrozenClock, issuer: Issuer, kid: str
) -> None:
    """It is a name in a table, and no reason to call anybody more often."""
    app = published(clock, issuer)
    await who(app, token(key=RSA_KEY, alg="RS256", kid="r"))
    for _ in range(5):
        await refused(app, token(key=RSA_KEY, alg="RS256", kid=kid))
    assert issuer.asked == 1
    clock.advance(30)
    for _ in range(5):
        await refused(app, token(key=RSA_KEY, alg="RS256", kid=kid))
    assert issuer.asked == 2


async def test_a_kid_that_is_no_text_or_endless_is_refused(clock: FrozenClock, issuer: Issuer) -> None:
    """Whatever JSON has."""
    app = published(clock, issuer)
    for kid in (1, ["r"], {"kid": "r"}, True, "x" * 201):
        await refused(app, by_hand({"alg": "RS256", "kid": kid}, CLAIMS, b"x"))
    assert issuer.asked == 0


async def test_without_a_kid_the_only_key_is_meant(clock: FrozenClock, issuer: Issuer) -> None:
    """With several there is no telling which."""
    text = token(key=RSA_KEY, alg="RS256")
    await refused(published(clock, issuer), text)
    issuer.keys = [public(RSA_KEY, None)]
    await who(published(clock, issuer), text)


async def test_keys_are_fetched_again_and_old_ones_serve_while_the_issuer_is_away(
    clock: FrozenClock, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """A new key is known within half a minute; after an hour nothing old is believed."""
    app = published(clock, issuer)

    def text(key: Any, kid: str) -> str:
        return token({"exp": NOW + 10**6}, key=key, alg="RS256", kid=kid)

    await who(app, text(RSA_KEY, "r"))
    issuer.keys.append(public(OTHER_RSA_KEY, "new"))
    clock.advance(30)
    await who(app, text(OTHER_RSA_KEY, "new"))
    issuer.status = 500
    clock.advance(jwks.REFRESH_SECONDS)
    await who(app, text(RSA_KEY, "r"))
    assert "no keys from http://127.0.0.1" in caplog.text
    clock.advance(jwks.MAX_AGE_SECONDS)
    await refused(app, text(RSA_KEY, "r"))
    issuer.status = 200
    issuer.keys = [public(OTHER_RSA_KEY, "new")]
    clock.advance(30)
    await refused(app, text(RSA_KEY, "r"))
    await who(app, text(OTHER_RSA_KEY, "new"))


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"<html>", b'{"keys": 1}', b" " * (jwks.MAX_DOCUMENT_BYTES + 1), b"[" * 99_999],
)
async def test_what_is_no_set_of_keys_is_not_believed(
    clock: FrozenClock, issuer: Issuer, body: bytes
) -> None:
    """Nor is one that is too large."""
    issuer.body = body or b" "
    await refused(published(clock, issuer), token(key=RSA_KEY, alg="RS256", kid="r"))


async def test_a_redirect_is_not_followed(clock: FrozenClock, issuer: Issuer) -> None:
    """It could lead anywhere."""
    issuer.status = 302
    await refused(published(clock, issuer), token(key=RSA_KEY, alg="RS256", kid="r"))
    assert issuer.asked == 1


async def test_an_issuer_who_sends_byte_by_byte_is_not_waited_for(
    clock: FrozenClock, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each byte comes in time, and the last one never: nobody waits longer, no second thread does either."""
    monkeypatch.setattr(jwks, "FETCH_TIMEOUT_SECONDS", 0.2)
    issuer.drips = True
    app = published(clock, issuer)
    async with asyncio.timeout(PATIENCE):
        await refused(app, token(key=RSA_KEY, alg="RS256", kid="r"))
        assert "no answer within 0.2 s" in caplog.text
        clock.advance(jwks.RETRY_SECONDS)
        await refused(app, token(key=RSA_KEY, alg="RS256", kid="r"))
    assert "the last fetch has not ended yet" in caplog.text
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "tidewheel-jwks"] == [True]
    issuer.drips = False


def test_only_public_keys_for_signatures_are_taken_from_a_set() -> None:
    """No shared secret that was published, none for encryption, nothing broken; and not endlessly many."""
    secret = {
        "kty": "oct",
        "k": base64.urlsafe_b64encode(SECRET.encode()).decode(),
        "kid": "s",
        "alg": "HS256",
    }
    listed = [
        secret,
        public(RSA_KEY, "enc", use="enc"),
        {"kty": "RSA", "kid": "broken"},
        7,
        public(EC_KEY, "e"),
    ]
    assert list(parse_jwks(json.dumps({"keys": listed}).encode())) == ["e"]
    many = [public(EC_KEY, str(number)) for number in range(jwks.MAX_KEYS + 5)]
    assert len(parse_jwks(json.dumps({"keys": many}).encode())) == jwks.MAX_KEYS
