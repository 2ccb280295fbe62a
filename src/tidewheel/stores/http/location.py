"""What a URL says about where the API is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tidewheel.core.urls import redact_url
from tidewheel.errors import ConfigurationError

ROOT: Final = "/api/jobs"
"""Beneath the server's own address, which may have a path: an API can be mounted anywhere."""


@dataclass(frozen=True, slots=True)
class Location:
    """A server, and who asks it."""

    base: str
    token: str | None = field(repr=False)

    @property
    def root(self) -> str:
        return self.base + ROOT


def parse_url(url: str, token: str | None) -> Location:
    """The server that a URL names; a URL that cannot work is refused, and no secret is quoted."""
    shown = _without_secrets(url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"{shown!r} is no URL: {error}; write http://host:8080") from None
    del port  # read because that checks it
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            f"{shown!r} has a name or a password in it, and URLs are written to logs; give an API key with "
            "token= or TIDEWHEEL_TOKEN"
        )
    if not host:
        raise ConfigurationError(f"{shown!r} names no host; write http://host:8080")
    if parts.query or parts.fragment:
        raise ConfigurationError(
            f"{shown!r} has more than an address; give that of the server, for example http://host:8080"
        )
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise ConfigurationError(
            "token has characters that no API key has (spaces, line ends or others than ASCII); copy it again"
        )
    path = parts.path.rstrip("/").removesuffix(ROOT)
    return Location(f"{parts.scheme.lower()}://{parts.netloc}{path}", token or None)


def _without_secrets(url: str) -> str:
    """Without names, passwords and parameters: a key may be any of them."""
    address = re.split(r"[?#]", redact_url(url), maxsplit=1)[0]
    return re.sub(r"^([A-Za-z]+:/*)[^/]*@", r"\1", address)
