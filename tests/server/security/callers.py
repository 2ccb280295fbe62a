"""Every kind of caller: what it shows, and what is true of it. The table the expectations are made from."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tidewheel.access.api_keys import KEY_PREFIX
from tidewheel.access.caller import DEFAULT_SCOPES, Scope
from tidewheel.app import Tidewheel
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import ROOT_TENANT
from tidewheel.server.authentication import SESSION_COOKIE
from tidewheel.testing.clock import FrozenClock

ACME: Final = "acme"
GLOBEX: Final = "globex"
JWT_SECRET: Final = "a shared secret of more than thirty-two bytes"  # noqa: S105 - of these tests
SUPERUSER: Final = "root:a password nobody guesses"
READ, ENQUEUE, MANAGE, WORK = Scope.READ, Scope.ENQUEUE, Scope.MANAGE, Scope.WORK

Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Caller:
    """What is true of somebody. ``known`` is None for who shows nothing, False for what proves nothing."""

    name: str
    headers: Headers
    known: bool | None = True
    tenant: str = ROOT_TENANT
    scopes: frozenset[Scope] = DEFAULT_SCOPES
    superuser: bool = False
    forged: bool = False  # a session's request that another site may have made
    session: bool = False
    topic: str | None = None  # its row filter: this topic only
    user: str | None = None  # or jobs of this user only
    bounded: bool = False  # the enqueue rule lets it say little


async def make_callers(app: Tidewheel, clock: FrozenClock, published: PublishedKey) -> tuple[Caller, ...]:
    """One of each kind, for this app."""
    return (
        Caller("nobody", {}, known=None),
        *await _former(app, clock),
        *_impostors(app, published),
        *await _keys(app),
        *_tokens(app, published),
        *await _sessions(app),
    )


def bearer(text: str) -> Headers:
    return {"authorization": f"Bearer {text}"}


def _impostors(app: Tidewheel, published: PublishedKey) -> Iterator[Caller]:
    """Who shows something that was never good."""
    now = app.clock.now() // MICROSECONDS
    claims = {"sub": "ann", "tenant": ACME, "exp": now + 3600, "scope": "tidewheel:superuser"}
    public = published.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    without_end = {name: value for name, value in claims.items() if name != "exp"}
    shown = {
        "nonsense": bearer("nonsense"),
        "an empty bearer": bearer(""),
        "basic": {"authorization": "Basic " + base64.b64encode(SUPERUSER.encode()).decode()},
        "an invented key": bearer(f"{KEY_PREFIX}{'0' * 16}_{'A' * 43}"),
        "a token signed by none": bearer(_unsigned(claims)),
        "a token of the public key as a secret": bearer(_confused(claims, public, published.kid)),
        "a token of a stranger's key": bearer(
            jwt.encode(claims, stranger, "RS256", headers={"kid": published.kid})
        ),
        "a token of an unknown key": bearer(jwt.encode(claims, published.key, "RS256", headers={"kid": "?"})),
        "a token of another secret": bearer(jwt.encode(claims, "x" * 48, "HS256")),
        "a token without an end": bearer(jwt.encode(without_end, JWT_SECRET, "HS256")),
        "a token without a tenant": bearer(jwt.encode({"exp": now + 3600}, JWT_SECRET, "HS256")),
        "an expired token": bearer(jwt.encode({**claims, "exp": now - 60}, JWT_SECRET, "HS256")),
        "an invented cookie": {"cookie": f"{SESSION_COOKIE}=eyJ9.AAAA", "x-csrf-token": "AAAA"},
    }
    for name, headers in shown.items():
        yield Caller(name, headers, known=False)


async def _former(app: Tidewheel, clock: FrozenClock) -> tuple[Caller, ...]:
    """Who shows something that was good once."""
    access = app.access
    revoked = await access.create_key("revoked", superuser=True)
    await access.revoke_key(revoked.info.id)
    wrong = await access.create_key("wrong secret", superuser=True)
    ended = await access.log_in(*SUPERUSER.split(":"))
    await access.log_out(ended.caller, everywhere=True)
    expired = await access.create_key("expired", superuser=True, expires=1)
    clock.advance(1)
    return (
        Caller("an expired key", bearer(expired.key), known=False),
        Caller("a revoked key", bearer(revoked.key), known=False),
        Caller("a key with another secret", bearer(wrong.key[:-43] + "A" * 43), known=False),
        Caller("half a key", bearer(wrong.key[:-1]), known=False),
        Caller(
            "an ended session",
            {"cookie": f"{SESSION_COOKIE}={ended.value}", "x-csrf-token": ended.csrf},
            False,
        ),
    )


async def _keys(app: Tidewheel) -> list[Caller]:
    callers = []
    for tenant in (ACME, GLOBEX):
        for scopes in (DEFAULT_SCOPES, {READ}, {ENQUEUE}, {MANAGE}, {READ, MANAGE}, {WORK}):
            made = await app.access.create_key("", tenant=tenant, scopes=scopes)
            name = f"{tenant}'s key to {' and '.join(sorted(scopes))}"
            callers.append(Caller(name, bearer(made.key), tenant=tenant, scopes=frozenset(scopes)))
    made = await app.access.create_key("", tenant=ACME, service_id="mailer")
    callers.append(Caller("acme's key for one topic", bearer(made.key), tenant=ACME, topic="mail"))
    made = await app.access.create_key("", tenant=ACME, service_id="personal", user_id="ann")
    callers.append(Caller("acme's key for one user", bearer(made.key), tenant=ACME, user="ann"))
    made = await app.access.create_key("", tenant=ACME, service_id="bounded")
    callers.append(Caller("acme's key for plain jobs", bearer(made.key), tenant=ACME, bounded=True))
    for scopes in (DEFAULT_SCOPES, {READ}, {ENQUEUE}, {WORK}):
        made = await app.access.create_key("", superuser=True, scopes=scopes)
        name = f"a superuser's key to {' and '.join(sorted(scopes))}"
        callers.append(Caller(name, bearer(made.key), superuser=True, scopes=frozenset(scopes)))
    return callers


def _tokens(app: Tidewheel, published: PublishedKey) -> Iterator[Caller]:
    now = app.clock.now() // MICROSECONDS
    claims = {"sub": "ann", "tenant": ACME, "exp": now + 10**9}
    status = frozenset({READ})
    yield Caller("acme's token", bearer(jwt.encode(claims, JWT_SECRET, "HS256")), tenant=ACME, scopes=status)
    working = {**claims, "scope": "tidewheel:read tidewheel:enqueue tidewheel:manage tidewheel:work"}
    yield Caller("acme's token to work", bearer(jwt.encode(working, JWT_SECRET, "HS256")), tenant=ACME)
    reading = {**claims, "scope": "openid tidewheel:read"}
    text = jwt.encode(reading, published.key, "RS256", headers={"kid": published.kid})
    yield Caller("acme's token to read", bearer(text), tenant=ACME, scopes=frozenset({READ}))
    # Claims with our words in them are still claims.
    boasting = {**claims, "superuser": True, "kind": "session", "scopes": ["manage"], "scope": "superuser"}
    text = jwt.encode(boasting, JWT_SECRET, "HS256")
    yield Caller("acme's boasting token", bearer(text), tenant=ACME, scopes=status)
    whole = {**claims, "scope": "tidewheel:superuser"}
    yield Caller("a superuser's token", bearer(jwt.encode(whole, JWT_SECRET, "HS256")), superuser=True)


async def _sessions(app: Tidewheel) -> tuple[Caller, ...]:
    session = await app.access.log_in(*SUPERUSER.split(":"))
    other = await app.access.log_in(*SUPERUSER.split(":"))
    cookie = {"cookie": f"theme=dark; {SESSION_COOKIE}={session.value}"}
    good = {**cookie, "x-csrf-token": session.csrf}

    def one(name: str, headers: Headers, *, forged: bool = False) -> Caller:
        return Caller(f"a session {name}", headers, superuser=True, session=True, forged=forged)

    return (
        one("of a program", good),
        one("of our page", {**good, "origin": "http://tidewheel.test", "sec-fetch-site": "same-origin"}),
        one("without a token", cookie, forged=True),
        one("with another session's token", {**cookie, "x-csrf-token": other.csrf}, forged=True),
        one("with an empty token", {**cookie, "x-csrf-token": ""}, forged=True),
        one("of another site", {**good, "origin": "http://evil.test"}, forged=True),
        one("of a sandboxed page", {**good, "origin": "null"}, forged=True),
        one("of a sibling site", {**good, "sec-fetch-site": "same-site"}, forged=True),
        one("of a cross-site form", {**good, "sec-fetch-site": "cross-site"}, forged=True),
        one("of a longer host", {**good, "origin": "http://tidewheel.test.evil.test"}, forged=True),
    )


# -- tokens that no library would make ------------------------------------------------------------------


def _part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _unsigned(claims: Mapping[str, Any]) -> str:
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims)}."


def _confused(claims: Mapping[str, Any], public: bytes, kid: str) -> str:
    """Signed with HMAC, and the secret is a key that everybody may know."""
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{_part(claims)}"
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    return f"{signed}.{_part(algorithm.sign(signed.encode(), public))}"


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """An issuer's key, and where it publishes the public half."""

    key: rsa.RSAPrivateKey
    kid: str
    url: str


@contextmanager
def published_key() -> Iterator[PublishedKey]:
    """An issuer on a port of its own."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    document = json.dumps({"keys": [{**public, "kid": "k1", "use": "sig", "alg": "RS256"}]}).encode()

    class Issuer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(document)))
            self.end_headers()
            self.wfile.write(document)

        def log_message(self, *args: Any) -> None:
            """Nothing to say."""

    with HTTPServer(("127.0.0.1", 0), Issuer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield PublishedKey(key, "k1", f"http://127.0.0.1:{server.server_port}/jwks.json")
        finally:
            server.shutdown()
            thread.join()
