"""URLs: how they may be shown, whether they name another Tidewheel, and which secrets may be sent to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from tidewheel.errors import ConfigurationError

_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})

# Up to the last @ of all: a password may hold any character, whether or not it should have been escaped.
# Rather hide too much (the port of a URL with an @ in its options) than too little.
_PASSWORD = re.compile(r"(?<=//)([^:/?#@]*):.*@")
_PASSWORD_OPTION = re.compile(r"(?<=[?&])((?:ssl)?password)=[^&#]*")


def redact_url(url: str) -> str:
    """A URL without its password, also one that is no proper URL."""
    return _PASSWORD_OPTION.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", url))


def is_http_url(url: str) -> bool:
    """Whether a URL names a server, which has the database: what only that can do is not asked there."""
    return url.partition(":")[0].lower() in {"http", "https"}


def check_secret_target(
    filed: Mapping[str, Any], chosen: Mapping[str, Any], environment: Mapping[str, str]
) -> None:
    """Refuse to send a secret to an address from another source.

    A pyproject.toml is found by the working directory and may be of a stranger: a server that it names must
    not get the token or the password of whoever works there. Nor does a token of the file go elsewhere.
    ``filed``: the settings of the file; ``chosen``: those of the environment, the code and the command line.
    """
    url, from_file = (chosen["url"], False) if "url" in chosen else (filed.get("url", ""), True)
    if is_http_url(url):
        if from_file and chosen.get("token") is not None:
            raise ConfigurationError(
                f"url is {redact_url(url)}, from [tool.tidewheel] in pyproject.toml, and token is not from "
                "there; the server that the file names would get your token. If it is yours, name it: set "
                f"TIDEWHEEL_URL={redact_url(url)} or give --url"
            )
        if not from_file and "token" not in chosen and filed.get("token") is not None:
            raise ConfigurationError(
                f"token is from [tool.tidewheel] in pyproject.toml, and url is {redact_url(url)}, which is "
                "not from there; set TIDEWHEEL_TOKEN to the token for that server, or to none"
            )
    elif from_file and environment.get("PGPASSWORD") and (host := _host_without_password(url)) is not None:
        raise ConfigurationError(
            f"url is {redact_url(url)}, from [tool.tidewheel] in pyproject.toml, and the password is that of "
            f"PGPASSWORD; {host} would get it. If it is yours, set TIDEWHEEL_URL, or use a password file "
            "(~/.pgpass), which says whom a password is for"
        )


def _host_without_password(url: str) -> str | None:
    """The other machine that a PostgreSQL URL names without a password for it."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        host = parts.hostname or options.get("host", "")
        password = parts.password or options.get("password")
    except ValueError:
        return None  # the store says better what is wrong with it
    if parts.scheme not in {"postgresql", "postgres"} or password or not host:
        return None
    return None if host in _LOCAL or host.startswith("/") else host
