"""The public keys tokens are signed with, fetched from where their issuer publishes them (JWKS)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, Final
from urllib.parse import urlsplit

import jwt
from jwt.algorithms import has_crypto

from tidewheel.core.clock import Clock
from tidewheel.core.names import shorten
from tidewheel.core.urls import redact_url
from tidewheel.errors import ConfigurationError

REFRESH_SECONDS: Final = 300.0
"""After this the keys are fetched again."""
MAX_AGE_SECONDS: Final = 3600.0
"""Keys older than this are not believed, however long their issuer is away."""
RETRY_SECONDS: Final = 30.0
"""Between two fetches: also a key nobody knows is no reason to ask more often."""
FETCH_TIMEOUT_SECONDS: Final = 5.0
"""How long a fetch may take, from asking to the last byte."""
MAX_DOCUMENT_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 100
KEY_TYPES: Final = frozenset({"RSA", "EC", "OKP"})
"""Of public keys. A shared secret in a published set would let everybody sign."""

RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})

_log = logging.getLogger("tidewheel.access")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key, and the algorithms it may be used with."""

    key: Any
    algorithms: frozenset[str]


def check_jwks_url(url: str) -> str:
    """https, or http on this machine: whoever changes the keys on their way can sign for anybody."""
    parts = urlsplit(url)
    loopback = parts.scheme == "http" and _is_loopback(parts.hostname or "")
    if not parts.hostname or not (parts.scheme == "https" or loopback):
        raise ConfigurationError(
            f"jwt_jwks_url is {shorten(redact_url(url))}; it must be https://…, or http:// on this machine"
        )
    return url


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class JwksCache:
    """The keys of one URL, by ``kid``."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = check_jwks_url(url)
        self._clock = clock
        self._keys: Mapping[str, PublicKey] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._downloading = False

    async def find(self, kid: str | None) -> PublicKey | None:
        """The key with this id; without an id the only one, if there is only one."""
        age = self._age(self._fetched_at)
        key = self._choose(kid) if age < MAX_AGE_SECONDS else None
        due = (key is None or age >= REFRESH_SECONDS) and self._age(self._tried_at) >= RETRY_SECONDS
        if due or (key is None and self._fetching is not None):
            await self._refresh()
            key = self._choose(kid)
        return key if self._age(self._fetched_at) < MAX_AGE_SECONDS else None

    def _choose(self, kid: str | None) -> PublicKey | None:
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    def _age(self, moment: float | None) -> float:
        return float("inf") if moment is None else self._clock.monotonic() - moment

    async def _refresh(self) -> None:
        """Fetch, or wait for the fetch that is under way."""
        task = self._fetching
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._fetching = asyncio.create_task(self._fetch())
        await asyncio.shield(task)

    async def _fetch(self) -> None:
        self._tried_at = self._clock.monotonic()
        try:
            keys = parse_jwks(await self._download())
            self._keys, self._fetched_at = keys, self._clock.monotonic()
        except (OSError, ValueError, HTTPException, RecursionError) as error:
            _log.warning("no keys from %s, going on with those at hand: %s", redact_url(self._url), error)
        finally:
            self._fetching = None

    async def _download(self) -> bytes:
        """On a thread that nobody waits for: an issuer who sends a byte now and then could keep it for days,
        and every thread of a pool has to end before the process can.
        """
        if self._downloading:
            raise TimeoutError("the last fetch has not ended yet")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()

        def settle(body: bytes, error: Exception | None) -> None:
            if answer.done():
                return  # too late
            if error is None:
                answer.set_result(body)
            else:
                answer.set_exception(error)

        def work() -> None:
            body, problem = b"", None
            try:
                body = _download(self._url)
            except Exception as error:
                problem = error
            self._downloading = False
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(settle, body, problem)

        self._downloading = True
        threading.Thread(target=work, name="tidewheel-jwks", daemon=True).start()
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_SECONDS):
                return await answer
        except TimeoutError:
            raise TimeoutError(f"no answer within {FETCH_TIMEOUT_SECONDS:g} s") from None


def parse_jwks(body: bytes) -> dict[str, PublicKey]:
    """The usable keys of a set. ``ValueError`` when it is none."""
    document = json.loads(body)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("what is there is no JSON Web Key Set")  # noqa: TRY004 - a value, not a type
    keys = {}
    for number, data in enumerate(listed[:MAX_KEYS]):
        if not isinstance(data, dict) or data.get("kty") not in KEY_TYPES or data.get("use", "sig") != "sig":
            continue
        kid = data.get("kid", f"#{number}")
        try:
            key = jwt.PyJWK(data)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
            _log.warning("key %s of the set cannot be used: %s", shorten(kid), error)
            continue
        if isinstance(kid, str):
            # An RSA key that does not say is good for all of its kind; a curve has one algorithm.
            any_of_its_kind = key.key_type == "RSA" and "alg" not in data
            algorithms = RSA_ALGORITHMS if any_of_its_kind else frozenset({key.algorithm_name})
            keys[kid] = PublicKey(key.key, algorithms)
    return keys


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Who sends us elsewhere could send us anywhere, into the machine's own network too."""

    def redirect_request(
        self,
        req: urllib.request.Request,  # noqa: ARG002 - the signature urllib wants
        fp: IO[bytes],  # noqa: ARG002
        code: int,  # noqa: ARG002
        msg: str,  # noqa: ARG002
        headers: HTTPMessage,  # noqa: ARG002
        newurl: str,  # noqa: ARG002
    ) -> None:
        return None


def _download(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirect)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - checked
    try:
        with opener.open(request, timeout=FETCH_TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read(MAX_DOCUMENT_BYTES + 1)
    except urllib.error.HTTPError as error:
        error.close()  # it is the answer as well, with its connection
        raise OSError(f"it answers {error.code} {error.reason}") from None
    if len(body) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"the set has more than {MAX_DOCUMENT_BYTES:,} bytes")
    return body


def check_crypto_installed(value: Any) -> None:
    """Public keys need the library ``cryptography``."""
    if value is not None and not has_crypto:
        raise ConfigurationError(
            "jwt_jwks_url needs a library for public keys; install it with: pip install 'tidewheel[jwks]'"
        )
