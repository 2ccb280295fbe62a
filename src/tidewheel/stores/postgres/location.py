"""Which database and schema a ``postgresql:`` URL means."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from tidewheel.core.urls import redact_url
from tidewheel.errors import ConfigurationError

_OPTIONS: Final = ("schema", "connections")
_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")

MOST_CONNECTIONS: Final = 100


@dataclass(frozen=True, slots=True)
class Location:
    """A database and how to use it."""

    dsn: str = field(repr=False)  # for the driver: our own options are taken out; holds the password
    schema: str = "tidewheel"
    connections: int = 5

    @property
    def shown(self) -> str:
        """For messages: no user, no password."""
        parts = urlsplit(self.dsn)
        host = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "localhost")
        return f"{host}{parts.path} (schema {self.schema})"


def parse_url(url: str) -> Location:
    """``postgresql://user:password@host:port/database?schema=tidewheel&connections=5``.

    Other options (``sslmode``, ``host`` for a socket directory, …) are the driver's.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigurationError(f"{redact_url(url)!r} is no URL: {error}") from None
    _check_escapes(parts)
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in options if name in _OPTIONS}
    query = urlencode([(name, value) for name, value in options if name not in _OPTIONS])
    schema = ours.get("schema", "tidewheel")
    if not _SCHEMA.fullmatch(schema):
        raise ConfigurationError(
            f"schema is {schema!r}; letters, digits and _ are possible, 1 to 50 of them, no digit first"
        )
    number = ours.get("connections", "5")
    if not number.isdecimal() or not 1 <= int(number) <= MOST_CONNECTIONS:
        raise ConfigurationError(f"connections is {number!r}; 1 to {MOST_CONNECTIONS} are possible")
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
    return Location(dsn, schema, int(number))


def _check_escapes(parts: SplitResult) -> None:
    """A password with a / ? or # in it ends too early, and parts of it would be shown as host or path."""
    after = (parts.path, parts.fragment, *(option for option in parts.query.split("&") if "=" not in option))
    if parts.fragment or ("@" not in parts.netloc and any("@" in part for part in after)):
        raise ConfigurationError(
            "the PostgreSQL URL cannot be read; / ? # and @ in a password are written %2F %3F %23 and %40"
        )
