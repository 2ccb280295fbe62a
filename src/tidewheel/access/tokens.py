"""JSON Web Tokens: verify them, and read who the caller is and what it may do."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt

from tidewheel.access.caller import ALL_SCOPES, Caller, CallerKind, Scope
from tidewheel.access.credentials import CredentialRejected
from tidewheel.access.jwks import JwksCache, check_crypto_installed
from tidewheel.core.clock import MICROSECONDS, Clock
from tidewheel.core.model import ROOT_TENANT
from tidewheel.core.names import check_tenant, check_text, shorten, suggest
from tidewheel.errors import ConfigurationError, InvalidInput
from tidewheel.settings import Settings

MAX_TOKEN_BYTES: Final = 8 * 1024
MAX_KID_LENGTH: Final = 200
LEEWAY_SECONDS: Final = 10.0
"""How far the issuer's clock may be off."""
VERIFIED_CACHE_SECONDS: Final = 30.0
MAX_CACHED_TOKENS: Final = 10_000
"""A token that was verified is not verified again for so long; so many are remembered, by their hash."""
MIN_SECRET_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Algorithms for a shared secret, and how long it must be: as long as the hash."""
PUBLIC_KEY_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
"""Algorithms for public keys."""
SCOPE_PREFIX: Final = "tidewheel:"
SUPERUSER_SCOPE: Final = "superuser"


class TokenVerifier:
    """Verifies tokens against one secret, one set of published keys, or both."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        check_crypto_installed(settings.jwt_jwks_url)
        self._secret = None if settings.jwt_secret is None else settings.jwt_secret.encode()
        self._published = None if settings.jwt_jwks_url is None else JwksCache(settings.jwt_jwks_url, clock)
        self._algorithms = self._check_algorithms()
        self._default_scopes = _default_scopes(settings.jwt_default_scopes)
        self._verified: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Tokens of {', '.join(sorted(self._algorithms))}>"  # the secret is nobody's business

    def _check_algorithms(self) -> frozenset[str]:
        """The allow-list. Each is good for one kind of key only, so that none can be used with the other."""
        usable: list[str] = []
        chosen = list(self._settings.jwt_algorithms)
        if self._secret is not None:
            usable += MIN_SECRET_BYTES
            chosen += [] if self._settings.jwt_algorithms else ["HS256"]
        if self._published is not None:
            usable += PUBLIC_KEY_ALGORITHMS
            chosen += [] if self._settings.jwt_algorithms else ["RS256", "ES256", "EdDSA"]
        for name in chosen:
            if name not in usable:
                raise ConfigurationError(
                    f"jwt_algorithms has {name!r}, which is not for the keys that are configured; "
                    f"possible are {', '.join(usable)}: HS… with jwt_secret, others with jwt_jwks_url"
                )
        if self._secret is not None:
            self._check_secret(self._secret, chosen)
        return frozenset(chosen)

    def _check_secret(self, secret: bytes, chosen: list[str]) -> None:
        needed = max((MIN_SECRET_BYTES.get(name, 0) for name in chosen), default=0)
        if not needed:
            raise ConfigurationError("jwt_secret is given, but jwt_algorithms has none of HS256 to HS512")
        if len(secret) < needed:
            raise ConfigurationError(
                f"jwt_secret has {len(secret)} bytes; HS{needed * 8} needs {needed} or more, for example "
                'python -c "import secrets; print(secrets.token_urlsafe(48))"'
            )

    async def authenticate(self, token: str) -> Caller:
        """Return whom a token is about. Raises ``CredentialRejected`` if it proves nothing."""
        if len(token) > MAX_TOKEN_BYTES or not token.isascii():
            raise CredentialRejected(f"a token is longer than {MAX_TOKEN_BYTES:,} bytes, or not ASCII")
        digest = hashlib.sha256(token.encode()).digest()
        known = self._verified.get(digest)
        now = self._now()
        if known is not None and known[0] > now:
            return known[1]
        try:
            claims = await self._verify(token, now)
            caller = self._read(claims)
        except jwt.PyJWTError as error:
            raise CredentialRejected(self._reason(error)) from None
        except (InvalidInput, ValueError, TypeError, OverflowError):
            # What libraries say to a forged token is not always their own error.
            raise CredentialRejected("a token cannot be read") from None
        self._verified.pop(digest, None)
        self._verified[digest] = (min(now + VERIFIED_CACHE_SECONDS, claims["exp"]), caller)
        while len(self._verified) > MAX_CACHED_TOKENS:
            self._verified.popitem(last=False)
        return caller

    def _reason(self, error: jwt.PyJWTError) -> str:
        """Say why the library rejected a token, in words of our own: its messages may quote the token."""
        match error:
            case jwt.InvalidSignatureError():
                return "the signature of a token is wrong: it was signed with another key, or changed"
            case jwt.MissingRequiredClaimError():
                return "a token has no end (exp), or no audience (aud) or issuer (iss) where one is set"
            case jwt.InvalidAudienceError() if self._settings.jwt_audience is None:
                return "a token has an audience (aud), and jwt_audience is not set"
            case jwt.InvalidAudienceError():
                return "the audience (aud) of a token is not jwt_audience"
            case jwt.InvalidIssuerError():
                return "the issuer (iss) of a token is not jwt_issuer"
            case jwt.DecodeError():
                return "a credential is neither an API key nor a JSON Web Token"
            case _:
                return "a token has critical extensions (crit) or claims that are not supported"

    def _now(self) -> float:
        return self._clock.now() / MICROSECONDS

    async def _verify(self, token: str, now: float) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in self._algorithms:
            raise CredentialRejected(
                "the algorithm (alg) of a token is not accepted",
                f"accepted are {', '.join(sorted(self._algorithms))}",
            )
        if "crit" in header:
            raise CredentialRejected("a token has critical extensions (crit), and none is known")
        claims: dict[str, Any] = jwt.decode(
            token,
            await self._key(algorithm, header),
            algorithms=[algorithm],
            audience=self._settings.jwt_audience,
            issuer=self._settings.jwt_issuer,
            # Times are checked below, by the app's clock.
            options={"require": ["exp"], "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
        late = now - _time(claims, "exp", 0) - LEEWAY_SECONDS
        if late >= 0:
            raise CredentialRejected("a token has expired (exp)", f"{late + LEEWAY_SECONDS:,.0f} s ago")
        early = max(_time(claims, "nbf", 0), _time(claims, "iat", 0)) - now
        if early > LEEWAY_SECONDS:
            raise CredentialRejected("a token is not valid yet (nbf, iat)", f"in {early:,.0f} s")
        return claims

    async def _key(self, algorithm: str, header: Mapping[str, Any]) -> Any:
        """The key for this algorithm: never the secret for a public one, nor a public key as a secret."""
        if algorithm in MIN_SECRET_BYTES:
            if self._secret is None:
                raise CredentialRejected("a token is signed with a secret, and jwt_secret is not set")
            return self._secret
        kid = header.get("kid")
        if self._published is None:
            raise CredentialRejected("a token is signed with a public key, and jwt_jwks_url is not set")
        if not (kid is None or (isinstance(kid, str) and len(kid) <= MAX_KID_LENGTH)):
            raise CredentialRejected("the key id (kid) of a token is no text, or too long")
        key = await self._published.find(kid)
        if key is None:
            raise CredentialRejected("the key (kid) of a token is not among those of jwt_jwks_url")
        if algorithm not in key.algorithms:
            raise CredentialRejected("the key (kid) of a token is not for its algorithm (alg)")
        return key.key

    def _read(self, claims: Mapping[str, Any]) -> Caller:
        subject = claims.get("sub")
        if subject is not None:
            check_text("sub", subject)
        tenant = ROOT_TENANT if self._settings.jwt_tenant_claim is None else self._tenant(claims)
        scopes, superuser = read_scopes(claims.get("scope"), self._default_scopes)
        # Ours last: no claim may pass itself off as what was found out here.
        auth = {**claims, "id": subject, "kind": "token", "tenant": tenant, "user_id": subject}
        return Caller(
            CallerKind.TOKEN,
            f"token of {subject}" if subject else "token",
            id=subject,
            tenant=tenant,
            superuser=superuser,
            scopes=scopes,
            user_id=subject,
            auth=auth | {"service_id": None, "superuser": superuser},
        )

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        name = self._settings.jwt_tenant_claim
        try:
            tenant = check_tenant(claims.get(name or ""), uuids=self._settings.tenant_uuids)
        except InvalidInput:
            raise CredentialRejected(
                "the tenant of a token is missing or not a valid name", f"jwt_tenant_claim is {name}"
            ) from None
        if tenant == ROOT_TENANT:
            raise CredentialRejected(
                f"the tenant of a token is {ROOT_TENANT}, which is reserved", f"jwt_tenant_claim is {name}"
            )
        return tenant


def read_scopes(claim: Any, default: frozenset[Scope]) -> tuple[frozenset[Scope], bool]:
    """Return what a token may do at most, and whether it is a superuser's.

    A token that names no scope of Tidewheel has the ``default`` ones. One that is a superuser's and names no
    other scope has all.
    """
    if claim is not None and not isinstance(claim, str):
        raise CredentialRejected("the scopes (scope) of a token are not a text with spaces between them")
    ours = {
        word.removeprefix(SCOPE_PREFIX) for word in (claim or "").split() if word.startswith(SCOPE_PREFIX)
    }
    if not ours:
        return default, False
    superuser = SUPERUSER_SCOPE in ours
    named = frozenset(scope for scope in Scope if scope in ours)
    return (ALL_SCOPES if ours == {SUPERUSER_SCOPE} else named), superuser


def _default_scopes(names: Sequence[str]) -> frozenset[Scope]:
    for name in names:
        if name not in set(Scope):
            raise ConfigurationError(
                f"jwt_default_scopes has {shorten(name)}{suggest(name, Scope)}; the scopes are "
                f"{', '.join(Scope)}"
            )
    return frozenset(Scope(name) for name in names)


def _time(claims: Mapping[str, Any], name: str, missing: float) -> float:
    value = claims.get(name, missing)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise CredentialRejected("a time (exp, nbf, iat) of a token is not a number")
    return float(value)
